/* Members of the objects inside messages, tools and settings, by interface and place: those with an effect, and those
 * that vendors document and that have none here. Others are accepted and named. */
#include <stdio.h>
#include <string.h>

#include "server/fields/fields.h"

#define CACHE  "type ttl scope"
#define SOURCE "type media_type data url file_id content"

const spry_field_place spry_places_chat[] = {
    {"messages",
     "role content name tool_calls tool_call_id function_call refusal audio annotations reasoning reasoning_content "
     "reasoning_text reasoning_details reasoning_opaque thinking thinking_blocks signature provider_specific_fields "
     "cache_control copilot_cache_control id partial prefix metadata timestamp images tool_name",
     NULL},
    {"messages.content",
     "type text image_url input_audio file video_url audio_url source thinking signature refusal annotations "
     "cache_control cache detail",
     "text input_text output_text image_url image input_image input_audio file video_url audio_url thinking refusal"},
    {"messages.content.image_url", "url detail format", NULL},
    {"messages.content.input_audio", "data format", NULL},
    {"messages.content.file", "file_id file_data filename format", NULL},
    {"messages.content.source", SOURCE, NULL},
    {"messages.content.cache_control", CACHE, NULL},
    {"messages.cache_control", CACHE, NULL},
    {"messages.function_call", "name arguments", NULL},
    {"messages.tool_calls", "id type index function custom extra_content name arguments", "function custom"},
    {"messages.tool_calls.function", "name arguments index parsed_arguments", NULL},
    {"messages.tool_calls.custom", "name input", NULL},
    {"functions", "name description parameters strict", NULL},
    {"tools",
     "type function custom name description parameters strict cache_control defer_loading server_label server_url "
     "server_description allowed_tools require_approval headers authorization connector_id",
     "function custom mcp"},
    {"tools.cache_control", CACHE, NULL},
    {"tools.function", "name description parameters strict", NULL},
    {"tools.custom", "name description format", NULL},
    {"tools.custom.format", "type grammar syntax definition", NULL},
    {"tools.custom.format.grammar", "syntax definition", NULL},
    {"tool_choice", "type function custom name mode tools allowed_tools server_label", NULL},
    {"tool_choice.function", "name", NULL},
    {"response_format", "type json_schema schema grammar name strict description", NULL},
    {"response_format.json_schema", "name schema strict description", NULL},
    {"thinking", "type budget_tokens clear_thinking", NULL},
    {"reasoning", "effort enabled exclude max_tokens summary", NULL},
    {NULL, NULL, NULL}};

const spry_field_place spry_places_ollama[] = {
    {"messages",
     "role content images name thinking reasoning reasoning_content reasoning_text reasoning_details tool_calls "
     "tool_name tool_call_id",
     NULL},
    {"messages.tool_calls", "id type index function", NULL},
    {"messages.tool_calls.function", "index name arguments description", NULL},
    {"tools", "type function items name description parameters", "function"},
    {"tools.function", "name description parameters strict", NULL},
    {NULL, NULL, NULL}};

#define BLOCK                                                                                                          \
    "type text source title context citations content cache_control name input id tool_use_id is_error caller "        \
    "thinking signature data tool tool_name toolset_name file_id transformations"
#define BLOCKS                                                                                                         \
    "text image document search_result tool_use tool_result thinking redacted_thinking tool_reference tool_addition "  \
    "tool_removal"

const spry_field_place spry_places_anthropic[] = {
    {"cache_control", CACHE, NULL},
    {"system", "type text cache_control citations", NULL},
    {"system.cache_control", CACHE, NULL},
    {"messages", "role content", NULL},
    {"messages.content", BLOCK, BLOCKS},
    {"messages.content.cache_control", CACHE, NULL},
    {"messages.content.caller", "type tool_id", NULL},
    {"messages.content.source", SOURCE, NULL},
    {"messages.content.content", BLOCK, BLOCKS},
    {"messages.content.content.cache_control", CACHE, NULL},
    {"messages.content.content.source", SOURCE, NULL},
    {"tools",
     "type name description input_schema cache_control strict defer_loading allowed_callers input_examples "
     "eager_input_streaming",
     "custom"},
    {"tools.cache_control", CACHE, NULL},
    {"tool_choice", "type name disable_parallel_tool_use", NULL},
    {"thinking", "type budget_tokens display", NULL},
    {"output_config", "effort format task_budget", NULL},
    {"output_config.format", "type schema name strict description", NULL},
    {"output_config.task_budget", "type total remaining", NULL},
    {"context_management", "edits", NULL},
    {"context_management.edits", "type trigger keep clear_at_least exclude_tools clear_tool_inputs",
     "clear_thinking_20251015 clear_tool_uses_20250919"},
    {"context_management.edits.trigger", "type value", NULL},
    {"context_management.edits.keep", "type value", NULL},
    {"context_management.edits.clear_at_least", "type value", NULL},
    {NULL, NULL, NULL}};

#define TOOL                                                                                                           \
    "type name description parameters strict defer_loading format function tools allowed_callers output_schema "       \
    "cache_control execution"
#define TOOLS  "function custom namespace"
#define FORMAT "type syntax definition"

const spry_field_place spry_places_responses[] = {
    {"input",
     "type role content id status name namespace call_id tool_call_id arguments input output summary encrypted_content "
     "phase author "
     "recipient tools metadata internal_chat_message_metadata_passthrough caller created_by execution",
     "message function_call function_call_output custom_tool_call custom_tool_call_output reasoning additional_tools "
     "item_reference"},
    {"input.content",
     "type text image_url detail file_id file_url file_data filename annotations logprobs refusal input_audio "
     "encrypted_content",
     NULL},
    {"input.summary", "type text", NULL},
    {"input.tools", TOOL, TOOLS},
    {"input.tools.tools", TOOL, TOOLS},
    {"input.tools.format", FORMAT, NULL},
    {"input.tools.tools.format", FORMAT, NULL},
    {"tools", TOOL, TOOLS},
    {"tools.tools", TOOL, TOOLS},
    {"tools.format", FORMAT, NULL},
    {"tools.tools.format", FORMAT, NULL},
    {"tools.function", "name description parameters strict", NULL},
    {"tool_choice", "type name mode tools server_label", NULL},
    {"text", "format verbosity", NULL},
    {"text.format", "type name schema strict description", NULL},
    {"reasoning", "effort summary generate_summary context mode", NULL},
    {NULL, NULL, NULL}};

static bool is_word(const char *words, const char *word)
{
    size_t size = strlen(word);
    for (const char *at = words; size && (at = strstr(at, word)); at += size)
        if ((at == words || at[-1] == ' ') && (at[size] == ' ' || !at[size]))
            return true;
    return false;
}

static const spry_field_place *place_of(const spry_field_place *places, const char *name)
{
    for (; places->name; places++)
        if (strcmp(places->name, name) == 0)
            return places;
    return NULL;
}

/* The objects at a place, and those inside them; `key`: the body's field. As deep as the longest name of a place. A
 * content that is an object without a type is the result of a tool, with any members. */
static void check(spry_fields *fields, const spry_field_place *places, const char *key, const char *name,
                  const json_t *value)
{
    enum { NAME_BYTES = 96 };
    const spry_field_place *place = place_of(places, name);
    const json_t *type = json_object_get(value, "type");
    char inner[NAME_BYTES];
    const char *member;
    json_t *item;
    size_t i;
    if (!place || (place->types && json_is_string(type) && !is_word(place->types, json_string_value(type))))
        return;
    json_array_foreach(value, i, item)
    {
        if (json_is_object(item))
            check(fields, places, key, name, item);
    }
    json_object_foreach((json_t *)(uintptr_t)value, member, item)
    {
        if (json_is_null(item) || fields->wrong[0])
            continue;
        snprintf(inner, sizeof inner, "%s.%.40s", name, member);
        if (!is_word(place->members, member))
            spry_fields_ignore(fields, key, inner, "there is no such member");
        else if (json_is_array(item) || json_object_get(item, "type") || strcmp(member, "content") != 0)
            check(fields, places, key, inner, item);
    }
}

void spry_fields_check_members(spry_fields *fields, const spry_field_place *places)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)fields->object, name, value) check(fields, places, name, name, value);
}
