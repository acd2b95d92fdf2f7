/* Chat templates, with ChatML as the fallback, and the forms of messages that templates accept. */
#include "template/chat_template.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/json.h"
#include "template/chat_roles.h"
#include "template/jinja_eval.h"
#include "template/jinja_parser.h"
#include "template/jinja_value.h"
#include "template/tool_calls.h"

/* The forms are tried in this order. */
typedef enum spry_chat_form {
    SPRY_CHAT_AS_GIVEN,       /* JSON text in tool-call arguments becomes an object */
    SPRY_CHAT_PLAIN_CONTENT,  /* also, text parts are joined with line breaks, and null content becomes an empty text */
    SPRY_CHAT_TEXT_ARGUMENTS, /* contents as above, but arguments stay text */
    SPRY_CHAT_FORMS
} spry_chat_form;

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Messages that change are copied; unchanged parts are shared. */

enum { MAX_CONTENT_BYTES = 256 << 20, VALUE_BYTES = 4 };

static json_t *mutable(const json_t *json)
{
    return (json_t *)(uintptr_t)json; /* needed for reference counting: jansson's functions are not const */
}

static bool is_text_part(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type && strcmp(type, "text") == 0 && json_is_string(json_object_get(part, "text"));
}

static bool is_text_parts(const json_t *content)
{
    if (!json_is_array(content))
        return false;
    for (size_t i = 0; i < json_array_size(content); i++)
        if (!is_text_part(json_array_get(content, i)))
            return false;
    return true;
}

static json_t *joined_parts(const json_t *content)
{
    spry_buffer text;
    spry_buffer_init(&text, MAX_CONTENT_BYTES);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_object_get(json_array_get(content, i), "text");
        spry_buffer_text(&text, i ? "\n" : "");
        spry_buffer_append(&text, json_string_value(part), json_string_length(part));
    }
    json_t *joined = text.failed ? NULL : json_stringn(spry_buffer_view(&text).data, text.size);
    spry_buffer_deinit(&text);
    return joined;
}

/* False when memory is short. */
static bool make_content_plain(json_t *message, bool *changed)
{
    const json_t *content = json_object_get(message, "content");
    bool parts = is_text_parts(content);
    if (!parts && !json_is_null(content))
        return true;
    *changed = true;
    return json_object_set_new(message, "content", parts ? joined_parts(content) : json_string("")) == 0;
}

/* The object that the arguments' JSON text contains; NULL when it is not an object. */
static json_t *parsed_arguments(const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *text = json_object_get(function ? function : call, "arguments");
    json_t *json = NULL;
    if (json_is_string(text))
        json = spry_json_value(spry_json_view(text));
    if (json_is_object(json))
        return json;
    json_decref(json);
    return NULL;
}

static bool parse_arguments(json_t *message, bool *changed)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    json_t *copy = NULL;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *arguments = parsed_arguments(json_array_get(calls, i));
        if (!arguments)
            continue;
        copy = copy ? copy : json_deep_copy(calls);
        json_t *call = json_array_get(copy, i), *function = json_object_get(call, "function");
        if (json_object_set_new(function ? function : call, "arguments", arguments)) {
            json_decref(copy);
            return false;
        }
        *changed = true;
    }
    return !copy || json_object_set_new(message, "tool_calls", copy) == 0;
}

/* Converts messages to a form; the caller releases *out with json_decref. *differs: the result differs from that of the
 * previous form. */
static spry_status messages_form(json_t **out, bool *differs, const json_t *messages, spry_chat_form form,
                                 spry_error *error)
{
    bool arguments = false, contents = false, made = true;
    *out = json_array();
    for (size_t i = 0; i < json_array_size(messages) && made; i++) {
        const json_t *message = json_array_get(messages, i);
        json_t *copy = json_is_object(message) ? json_copy(mutable(message)) : json_incref(mutable(message));
        made = copy;
        if (json_is_object(copy)) {
            made = made && (form == SPRY_CHAT_AS_GIVEN || make_content_plain(copy, &contents));
            /* The last form keeps arguments as text, but must detect whether there are any. */
            json_t *target = form == SPRY_CHAT_TEXT_ARGUMENTS ? json_copy(copy) : json_incref(copy);
            made = made && target && parse_arguments(target, &arguments);
            json_decref(target);
        }
        made = json_array_append_new(*out, copy) == 0 && made;
    }
    if (!made || !*out) {
        json_decref(*out);
        *out = NULL;
        return spry_fail_memory(error, "a conversation", json_array_size(messages));
    }
    *differs = form == SPRY_CHAT_TEXT_ARGUMENTS ? arguments : contents;
    return SPRY_OK;
}

/* A copy of an object in which `key` is an empty text if it was missing. */
static json_t *with_text(const json_t *object, const char *key, bool *changed)
{
    json_t *copy = json_is_object(object) ? json_copy(mutable(object)) : json_incref(mutable(object));
    if (json_is_object(copy) && !json_object_get(copy, key)) {
        *changed = true;
        json_object_set_new(copy, key, json_string(""));
    }
    return copy;
}

/* A copy of a function in which it and its parameters have descriptions, if necessary empty ones. */
static json_t *described_function(const json_t *function, bool *changed)
{
    json_t *copy = with_text(function, "description", changed);
    json_t *parameters = json_deep_copy(json_object_get(copy, "parameters")), *property;
    json_t *properties = json_object_get(parameters, "properties");
    const char *key;
    void *next;
    json_object_foreach_safe(properties, next, key, property)
    {
        json_object_set_new(properties, key, with_text(property, "description", changed));
    }
    if (!parameters) {
        *changed = true;
        parameters = json_pack("{s:s, s:{}}", "type", "object", "properties");
    }
    json_object_set_new(copy, "parameters", parameters);
    return copy;
}

/* A copy of the tools in which descriptions and parameters that were missing are empty. The caller releases *out with
 * json_decref. */
static spry_status tools_described(json_t **out, bool *differs, const json_t *tools, spry_error *error)
{
    *differs = false;
    *out = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *function = json_object_get(tool, "function");
        json_t *copy = function ? json_copy(mutable(tool)) : described_function(tool, differs);
        if (function)
            json_object_set_new(copy, "function", described_function(function, differs));
        if (!copy || json_array_append_new(*out, copy)) {
            json_decref(*out);
            *out = NULL;
            return spry_fail_memory(error, "tools", json_array_size(tools));
        }
    }
    return *out ? SPRY_OK : spry_fail_memory(error, "tools", 0);
}

/* True if some message's content is a list of text parts. */
static bool messages_have_parts(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        if (json_array_size(content) && is_text_parts(content))
            return true;
    }
    return false;
}

static bool is_known_role(spry_view role)
{
    static const char *const roles[] = {"system",   "user",    "assistant",   "tool",  "developer",
                                        "function", "ipython", "observation", "model", "tool_response"};
    for (size_t i = 0; i < SPRY_COUNT(roles); i++)
        if (spry_view_is(role, roles[i]))
            return true;
    return false;
}

/* Converts messages to a template value. All strings are marked as literal, except well-known roles, because templates
 * build control tokens such as "<|user|>" from them. */
static spry_jinja_value messages_value(spry_jinja_run *run, const json_t *messages)
{
    spry_jinja_value list = spry_jinja_from_json(run, messages);
    for (size_t i = 0; !run->status && i < list.list->count; i++) {
        spry_jinja_value message = list.list->items[i];
        if (message.kind != SPRY_JINJA_DICT)
            continue;
        spry_jinja_value *role = spry_jinja_dict_find_text(message.dict, SPRY_VIEW("role"));
        const spry_jinja_value *content = spry_jinja_dict_find_text(message.dict, SPRY_VIEW("content"));
        if (role && role->kind == SPRY_JINJA_STRING && is_known_role(spry_jinja_view(*role)))
            *role = spry_jinja_text(run, spry_jinja_view(*role), false);
        if (content && content->kind == SPRY_JINJA_LIST)
            content->list->parts = true;
    }
    return list;
}

/* Approximate size of the JSON text; 0 for NULL. */
static size_t json_bytes(const json_t *json)
{
    size_t bytes = VALUE_BYTES;
    if (!json)
        return 0;
    if (json_is_string(json))
        bytes += json_string_length(json);
    for (size_t i = 0; i < json_array_size(json); i++)
        bytes += json_bytes(json_array_get(json, i));
    for (void *at = json_object_iter(mutable(json)); at; at = json_object_iter_next(mutable(json), at))
        bytes += json_object_iter_key_len(at) + json_bytes(json_object_iter_value(at));
    return bytes;
}

/* ---- templates --------------------------------------------------------------------------------------------------- */

enum { MAX_SOURCE_BYTES = 1 << 20 };

struct spry_chat_template {
    spry_buffer source; /* the model's own template */
    spry_view used;     /* the source of the template that was parsed */
    spry_arena arena;
    const spry_jinja_node *nodes;
    bool own;
    char problem[SPRY_ERROR_MAX];
    const spry_tool_style *tool_style;
    const spry_thought_style *thought_style;
    spry_chat_template *tool_use; /* NULL: this template is also used with tools */
};

static const char chatml[] = "{%- for message in messages %}"
                             "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
                             "{%- endfor %}"
                             "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

void spry_chat_text_init(spry_chat_text *text, size_t max)
{
    spry_buffer_init(&text->text, max);
    spry_buffer_init(&text->literal, max);
}

void spry_chat_text_deinit(spry_chat_text *text)
{
    spry_buffer_deinit(&text->text);
    spry_buffer_deinit(&text->literal);
}

/* Parses the model's template, or ChatML when that is empty or invalid. */
static spry_status parse(spry_chat_template *chat, spry_error *error)
{
    spry_error why = {0};
    spry_status status = SPRY_OK;
    chat->used = spry_buffer_view(&chat->source);
    if (chat->used.size)
        status = spry_jinja_parse(&chat->nodes, chat->used, &chat->arena, &why);
    if (status == SPRY_ERR_MEMORY)
        return spry_fail(error, status, "%s", why.message);
    chat->own = chat->used.size && !status;
    memcpy(chat->problem, why.message, sizeof chat->problem);
    if (chat->own)
        return SPRY_OK;
    chat->used = SPRY_VIEW(chatml);
    return spry_jinja_parse(&chat->nodes, chat->used, &chat->arena, error);
}

spry_status spry_chat_template_create(spry_chat_template **out, spry_view source, spry_error *error)
{
    spry_status status = SPRY_OK;
    spry_chat_template *chat = calloc(1, sizeof *chat);
    *out = NULL;
    if (!chat)
        return spry_fail_memory(error, "a chat template", sizeof *chat);
    spry_buffer_init(&chat->source, MAX_SOURCE_BYTES);
    spry_arena_init(&chat->arena);
    if (!spry_buffer_append(&chat->source, source.data, source.size))
        status = spry_fail(error, SPRY_ERR_FORMAT, "a chat template of %zu bytes is too long (at most %d)", source.size,
                           MAX_SOURCE_BYTES);
    if (!status)
        status = parse(chat, error);
    chat->tool_style = spry_tool_style_find(chat->used);
    chat->thought_style = spry_thought_style_find(chat->used);
    if (status)
        spry_chat_template_destroy(chat);
    else
        *out = chat;
    return status;
}

void spry_chat_template_destroy(spry_chat_template *chat)
{
    if (!chat)
        return;
    spry_chat_template_destroy(chat->tool_use);
    spry_arena_deinit(&chat->arena);
    spry_buffer_deinit(&chat->source);
    free(chat);
}

spry_status spry_chat_template_add_tool_use(spry_chat_template *chat, spry_view source, spry_error *error)
{
    spry_chat_template *tool_use;
    spry_status status = spry_chat_template_create(&tool_use, source, error);
    if (status)
        return status;
    if (!tool_use->own) {
        spry_chat_template_destroy(tool_use);
        return SPRY_OK;
    }
    spry_chat_template_destroy(chat->tool_use);
    chat->tool_use = tool_use;
    return SPRY_OK;
}

spry_view spry_chat_template_source(const spry_chat_template *chat)
{
    return spry_buffer_view(&chat->source);
}

static const spry_chat_template *used(const spry_chat_template *chat, bool tools)
{
    return tools && chat->tool_use ? chat->tool_use : chat;
}

spry_view spry_chat_template_used_source(const spry_chat_template *chat, bool tools)
{
    return used(chat, tools)->used;
}

const spry_tool_style *spry_chat_template_tool_style(const spry_chat_template *chat, bool tools)
{
    return used(chat, tools)->tool_style;
}

const spry_thought_style *spry_chat_template_thought_style(const spry_chat_template *chat, bool tools)
{
    return used(chat, tools)->thought_style;
}

bool spry_chat_template_needs_token(const spry_chat_template *chat, spry_view spelling)
{
    return spry_answer_needs_token(chat->tool_style, chat->thought_style, spelling) ||
           (chat->tool_use && spry_chat_template_needs_token(chat->tool_use, spelling));
}

bool spry_chat_template_is_own(const spry_chat_template *chat)
{
    return chat->own;
}

const char *spry_chat_template_problem(const spry_chat_template *chat)
{
    return chat->problem;
}

/* ---- rendering --------------------------------------------------------------------------------------------------- */

static spry_view or_empty(spry_view text)
{
    return text.data ? text : SPRY_VIEW("");
}

/* Sets the variable with the date that templates use, unless the caller has set it. */
static void bind_date(spry_jinja_run *run, const char *name, const char *format, const spry_chat_input *input)
{
    if (input->dates && !json_object_get(input->extra, name))
        spry_jinja_bind(run, spry_view_of(name), spry_jinja_date(run, spry_view_of(format), NULL));
}

/* Sets the variable with the tools as JSON text, which some templates need, unless the caller has set it. */
static void bind_functions(spry_jinja_run *run, const spry_chat_input *input)
{
    if (!input->dates || json_object_get(input->extra, "functions"))
        return;
    char *text = input->tools ? spry_json_text(input->tools, JSON_INDENT(2)) : NULL;
    spry_jinja_bind(run, SPRY_VIEW("functions"), spry_jinja_text(run, spry_view_of(text ? text : ""), true));
    free(text);
}

static void bind_input(spry_jinja_run *run, const spry_chat_input *input, const json_t *messages)
{
    const spry_jinja_value extra = input->extra ? spry_jinja_from_json(run, input->extra) : SPRY_JINJA_NOTHING;
    if (extra.kind == SPRY_JINJA_DICT)
        for (size_t i = 0; i < extra.dict->count && !run->status; i++)
            spry_jinja_bind(run, spry_jinja_view(extra.dict->entries[i].key), extra.dict->entries[i].value);
    bind_date(run, "date_string", "%d %b %Y", input);
    bind_date(run, "datetime", "%b %d %Y %H:%M:%S", input);
    bind_functions(run, input);
    spry_jinja_bind(run, SPRY_VIEW("messages"), messages_value(run, messages));
    if (input->tools)
        spry_jinja_bind(run, SPRY_VIEW("tools"), spry_jinja_from_json(run, input->tools));
    spry_jinja_bind(run, SPRY_VIEW("add_generation_prompt"), SPRY_JINJA_BOOLEAN(input->add_generation_prompt));
    spry_jinja_bind(run, SPRY_VIEW("bos_token"), spry_jinja_text(run, or_empty(input->bos_token), false));
    spry_jinja_bind(run, SPRY_VIEW("eos_token"), spry_jinja_text(run, or_empty(input->eos_token), false));
}

static spry_status hand_over(spry_chat_text *out, const spry_jinja_builder *from, spry_error *error)
{
    size_t start = out->text.size;
    spry_buffer_append(&out->text, from->data, from->size);
    for (size_t i = 0; i < from->n_marks; i++) {
        spry_text_range range = {start + from->marks[i].begin, start + from->marks[i].end};
        spry_buffer_append(&out->literal, &range, sizeof range);
    }
    if (from->size > out->text.max - start)
        return spry_fail(error, SPRY_ERR_INPUT, "a conversation of more than %zu bytes is too long", out->text.max);
    return out->text.failed || out->literal.failed ? spry_fail_memory(error, "the conversation", from->size) : SPRY_OK;
}

/* Input that a template did not output. */
typedef struct unprinted {
    bool parts;           /* lists of text parts */
    bool instructions;    /* an instruction of `wanted` is missing */
    bool refused;         /* the template raised an error itself, so everything is missing */
    const json_t *wanted; /* messages that must be output; NULL: any output is accepted */
} unprinted;

static spry_status attempt(const spry_chat_template *chat, spry_chat_text *out, const spry_chat_input *input,
                           const json_t *messages, unprinted *missed, spry_error *error)
{
    spry_jinja_run run;
    spry_jinja_builder text;
    size_t bytes = json_bytes(messages) + json_bytes(input->tools) + json_bytes(input->extra);
    spry_jinja_run_init(&run, out->text.max - out->text.size, bytes, error);
    spry_jinja_builder_init(&text, &run);
    run.now = input->now;
    run.out = &text;
    run.scope = spry_jinja_scope_create(&run, NULL);
    if (run.scope) {
        bind_input(&run, input, messages);
        spry_jinja_exec(&run, chat->nodes);
    }
    spry_status status = run.status;
    missed->refused = status && run.refused;
    missed->parts = !status && (run.parts_printed || !run.parts_used) && messages_have_parts(messages);
    missed->instructions = !status && !missed->parts && missed->wanted &&
                           !spry_chat_roles_rendered(missed->wanted, (spry_view){text.data, text.size});
    if (!status && !missed->parts && !missed->instructions)
        status = hand_over(out, &text, error);
    spry_jinja_run_deinit(&run);
    return status;
}

/* Renders messages in each form that templates accept, until one succeeds. */
static spry_status render_forms(const spry_chat_template *chat, spry_chat_text *out, const spry_chat_input *input,
                                unprinted *missed, spry_error *error)
{
    spry_status status = SPRY_OK, first = SPRY_OK; /* first: the first error, which is the most useful one */
    spry_error later;
    missed->parts = true;
    for (spry_chat_form form = SPRY_CHAT_AS_GIVEN; form < SPRY_CHAT_FORMS && (status || missed->parts); form++) {
        json_t *messages;
        bool differs = false;
        spry_status made = messages_form(&messages, &differs, input->messages, form, error);
        if (made)
            return made;
        if (form == SPRY_CHAT_AS_GIVEN || differs)
            status = attempt(chat, out, input, messages, missed, form == SPRY_CHAT_AS_GIVEN ? error : &later);
        first = form == SPRY_CHAT_AS_GIVEN ? status : first;
        json_decref(messages);
    }
    return status && first ? first : status;
}

/* Renders with one form of roles; *again: another form may be better. */
static spry_status render_as(const spry_chat_template *chat, spry_chat_text *out, const spry_chat_input *input,
                             spry_chat_roles roles, bool complete, bool *again, spry_error *error)
{
    json_t *messages;
    bool differs;
    unprinted missed = {.wanted = complete ? input->messages : NULL};
    spry_chat_input changed = *input;
    spry_status status = spry_chat_roles_apply(&messages, &differs, input->messages, roles, chat->used, error);
    if (status)
        return status;
    changed.messages = messages;
    *again = true;
    if (roles == SPRY_ROLES_MERGED || differs) {
        status = render_forms(chat, out, &changed, &missed, error);
        *again = missed.refused || missed.instructions;
    }
    json_decref(messages);
    return status;
}

/* Renders with each form of roles, until one renders all instructions. */
static spry_status render_roles(const spry_chat_template *chat, spry_chat_text *out, const spry_chat_input *input,
                                spry_error *error)
{
    bool again;
    spry_error later;
    spry_status first = render_as(chat, out, input, SPRY_ROLES_MERGED, true, &again, error), status = first;
    for (spry_chat_roles roles = SPRY_ROLES_LATER_AS_USER; roles < SPRY_ROLES_FORMS && again; roles++)
        status = render_as(chat, out, input, roles, true, &again, &later);
    if (!again && !status)
        return SPRY_OK;
    return first ? first : render_as(chat, out, input, SPRY_ROLES_MERGED, false, &again, error);
}

spry_status spry_chat_template_render(const spry_chat_template *chat, spry_chat_text *out, const spry_chat_input *input,
                                      spry_error *error)
{
    if (!json_is_array(input->messages))
        return spry_fail(error, SPRY_ERR_INPUT, "messages must be a list");
    spry_status status = render_roles(used(chat, json_array_size(input->tools) > 0), out, input, error);
    if (!status || !json_array_size(input->tools))
        return status;
    json_t *tools;
    bool differs;
    spry_error later;
    spry_chat_input described = *input;
    spry_status made = tools_described(&tools, &differs, input->tools, error);
    if (made)
        return made;
    described.tools = tools;
    if (differs && render_roles(used(chat, true), out, &described, &later) == SPRY_OK)
        status = SPRY_OK;
    json_decref(tools);
    return status;
}
