/* Tool calls that a conversation requires: the prompt begins the call, and a schema describes the rest of it. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_state.h"
#include "template/tool_forms.h"

/* Joins several schemas to one: any of them, with their definitions. */
static json_t *join_schemas(const spry_tool_forms *forms)
{
    static const char *const shared[] = {"$defs", "definitions"};
    json_t *any = json_array(), *all = json_pack("{s:o}", "anyOf", any);
    for (size_t i = 0; all && i < forms->count; i++) {
        json_t *schema = json_loads(forms->items[i].schema, 0, NULL);
        for (size_t k = 0; k < SPRY_COUNT(shared); k++) {
            json_t *definitions = json_object_get(schema, shared[k]);
            if (definitions && !json_object_get(all, shared[k]))
                json_object_set(all, shared[k], definitions);
            else
                json_object_update_missing(json_object_get(all, shared[k]), definitions);
        }
        json_array_append_new(any, schema);
    }
    return all;
}

/* Whether all forms begin and end with the same text, and all have a schema. */
static bool forms_agree(const spry_tool_forms *forms)
{
    for (size_t i = 0; i < forms->count; i++) {
        const spry_tool_form *a = &forms->items[0], *b = &forms->items[i];
        if (!b->schema || strcmp(a->open, b->open) != 0 || strcmp(a->close, b->close) != 0)
            return false;
    }
    return true;
}

static char *schema_of(const spry_tool_forms *forms)
{
    if (forms->count == 1)
        return strdup(forms->items[0].schema);
    json_t *joined = join_schemas(forms);
    char *text = json_dumps(joined, JSON_COMPACT);
    json_decref(joined);
    return text;
}

static spry_status begin_call(spry_chat_prompt *prompt, spry_tokens *ids, const spry_engine *engine,
                              const spry_tool_forms *forms, const char *mark, spry_error *error)
{
    bool agree = forms_agree(forms), alone = forms->count == 1;
    prompt->call_open = strdup(agree || alone ? forms->items[0].open : mark);
    prompt->call_close = strdup(agree ? forms->items[0].close : "");
    prompt->call_schema = agree ? schema_of(forms) : NULL;
    if (!prompt->call_open || !prompt->call_close || (agree && !prompt->call_schema))
        return spry_fail_memory(error, "a call", strlen(mark));
    return spry_tokenizer_encode(engine->model->tokenizer, ids, spry_view_of(prompt->call_open), NULL, 0,
                                 SPRY_ENCODE_SPECIAL, error);
}

spry_status spry_engine_require_call(spry_chat_prompt *prompt, spry_tokens *ids, const spry_engine *engine,
                                     const json_t *tools, const json_t *choice, spry_error *error)
{
    spry_tool_forms forms;
    const spry_tool_style *style = spry_chat_template_tool_style(engine->model->chat, tools != NULL);
    spry_status status = spry_tool_forms_make(&forms, style, tools, choice, error);
    if (status == SPRY_OK && forms.required)
        status = begin_call(prompt, ids, engine, &forms, style->open, error);
    spry_tool_forms_deinit(&forms);
    return status;
}
