/* The template and the tokenizer are called separately, so that the time of each is known. Conversations with fragments
 * go through spry_engine_chat_spans, which does both; their time is charged to the template. */
#include "server/request/prompt.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/engine_state.h"

enum { CHAT_BYTES_MAX = 64 << 20, TEMPLATE_TOKENS = 1024 };

static spry_status need_tokenizer(const spry_engine *engine, spry_error *error)
{
    if (engine->model->tokenizer)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_UNSUPPORTED, "the model has no tokenizer");
}

static size_t count_fragments(const json_t *messages)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        for (size_t k = 0; k < json_array_size(content); k++)
            count += json_object_get(json_array_get(content, k), "cache") != NULL;
    }
    return count;
}

/* ---- fragments --------------------------------------------------------------------------------------------------- */

/* Nearly every token is at least a byte of the conversation, so there is room for all of them in one call; a template
 * that adds more than TEMPLATE_TOKENS of its own costs a second one. */
static spry_status read_fragments(spry_completion *c, spry_view json, size_t n_fragments, spry_error *error)
{
    const spry_engine *engine = c->model->engine;
    spry_tokens *prompt = &c->prompts.ids[0];
    size_t room = json.size + TEMPLATE_TOKENS, count = 0;
    spry_status status = SPRY_OK;
    c->prompts.spans = calloc(n_fragments + 1, sizeof *c->prompts.spans);
    do {
        int32_t *ids = c->prompts.spans ? realloc(prompt->ids, room * sizeof *ids) : NULL;
        if (!ids)
            return spry_fail_memory(error, "the prompt", room * sizeof *ids);
        prompt->ids = ids;
        prompt->capacity = room;
        status = spry_engine_chat_spans(engine, ids, room, &count, c->prompts.spans, n_fragments, &c->prompts.n_spans,
                                        json.data, json.size, error);
        room = count;
    } while (status == SPRY_OK && count > prompt->capacity);
    prompt->count = count;
    return status;
}

static spry_status chat_with_fragments(spry_completion *c, const json_t *messages, const json_t *tools,
                                       const json_t *extra, bool generate, spry_error *error)
{
    json_t *all = json_pack("{s:O, s:O?, s:O?, s:b}", "messages", messages, "tools", tools, "chat_template_kwargs",
                            extra, "add_generation_prompt", generate);
    char *text = all ? json_dumps(all, JSON_COMPACT) : NULL;
    spry_status status = text ? read_fragments(c, spry_view_of(text), count_fragments(messages), error)
                              : spry_fail_memory(error, "the conversation", c->exchange->body.size);
    free(text);
    json_decref(all);
    return status;
}

/* ---- conversations ----------------------------------------------------------------------------------------------- */

static spry_chat_input input_of(const json_t *messages, const json_t *tools, const json_t *extra, bool generate)
{
    return (spry_chat_input){.messages = messages,
                             .tools = json_array_size(tools) ? tools : NULL,
                             .extra = json_is_object(extra) ? extra : NULL,
                             .add_generation_prompt = generate};
}

spry_status spry_prompt_render(spry_buffer *out, const spry_engine *engine, const json_t *messages, const json_t *tools,
                               const json_t *extra, bool generate, spry_error *error)
{
    spry_chat_text text;
    spry_chat_input input = input_of(messages, tools, extra, generate);
    spry_chat_text_init(&text, CHAT_BYTES_MAX);
    spry_status status = spry_engine_render(engine, &text, &input, error);
    spry_buffer_append(out, spry_buffer_view(&text.text).data, text.text.size);
    if (status == SPRY_OK && out->failed)
        status = spry_fail_memory(error, "the conversation", text.text.size);
    spry_chat_text_deinit(&text);
    return status;
}

spry_status spry_prompt_chat(spry_completion *c, const json_t *messages, const json_t *tools, const json_t *extra,
                             bool generate, spry_error *error)
{
    const spry_engine *engine = c->model->engine;
    if (count_fragments(messages)) {
        spry_status status = chat_with_fragments(c, messages, tools, extra, generate, error);
        spry_lap(&c->costs.laps, SPRY_PART_TEMPLATE);
        return status;
    }
    spry_chat_text text;
    spry_chat_input input = input_of(messages, tools, extra, generate);
    spry_chat_text_init(&text, CHAT_BYTES_MAX);
    spry_status status = spry_engine_render(engine, &text, &input, error);
    spry_lap(&c->costs.laps, SPRY_PART_TEMPLATE);
    if (status == SPRY_OK)
        status = spry_tokenizer_encode(engine->model->tokenizer, &c->prompts.ids[0], spry_buffer_view(&text.text),
                                       (const spry_text_range *)(const void *)text.literal.data,
                                       text.literal.size / sizeof(spry_text_range), SPRY_ENCODE_SPECIAL, error);
    spry_chat_text_deinit(&text);
    return status;
}

/* ---- plain prompts ----------------------------------------------------------------------------------------------- */

spry_status spry_prompt_encode(spry_tokens *out, const spry_engine *engine, spry_view text, bool special, bool begin,
                               spry_error *error)
{
    spry_status status = need_tokenizer(engine, error);
    unsigned flags = (special ? SPRY_ENCODE_SPECIAL : 0) | (begin ? SPRY_ENCODE_BOS_EOS : 0);
    return status ? status : spry_tokenizer_encode(engine->model->tokenizer, out, text, NULL, 0, flags, error);
}

/* `wanted`: what else is allowed, for the message. */
static spry_status push_id(spry_tokens *out, const spry_engine *engine, const json_t *item, const char *what, size_t at,
                           const char *wanted, spry_error *error)
{
    size_t vocabulary = engine->model->config.n_vocab;
    json_int_t id = json_integer_value(item);
    if (!json_is_integer(item))
        return spry_fail(error, SPRY_ERR_INPUT, "%s[%zu] must be a token id%s", what, at, wanted);
    if (id < 0 || (size_t)id >= vocabulary)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "%s[%zu] is %" JSON_INTEGER_FORMAT ", but token ids of this model are below %zu", what, at, id,
                         vocabulary);
    if (!spry_tokens_push(out, (int32_t)id))
        return spry_fail_memory(error, what, out->count * sizeof *out->ids);
    return SPRY_OK;
}

/* Every item is at least one token, so a list that is too long need not be read. */
static spry_status check_length(const spry_engine *engine, const json_t *list, const char *what, spry_error *error)
{
    spry_engine_info info;
    spry_engine_describe(engine, &info);
    if (json_array_size(list) <= info.context)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_CONTEXT, "%s has %zu tokens, but the context holds %zu", what,
                     json_array_size(list), info.context);
}

spry_status spry_prompt_list(spry_tokens *out, const spry_engine *engine, const json_t *list, const char *what,
                             spry_error *error)
{
    size_t i;
    const json_t *item;
    spry_status status = check_length(engine, list, what, error);
    if (status != SPRY_OK)
        return status;
    json_array_foreach(list, i, item)
    {
        if (json_is_string(item))
            status = spry_prompt_encode(out, engine, (spry_view){json_string_value(item), json_string_length(item)},
                                        true, i == 0, error);
        else
            status = push_id(out, engine, item, what, i, ", or a string", error);
        if (status != SPRY_OK)
            return status;
    }
    return SPRY_OK;
}

spry_status spry_prompt_ids(spry_tokens *out, const spry_engine *engine, const json_t *list, const char *what, bool fit,
                            spry_error *error)
{
    size_t i;
    const json_t *item;
    spry_status status = fit ? check_length(engine, list, what, error) : SPRY_OK;
    if (status != SPRY_OK)
        return status;
    json_array_foreach(list, i, item)
    {
        status = push_id(out, engine, item, what, i, "", error);
        if (status != SPRY_OK)
            break;
    }
    return status;
}

spry_status spry_prompt_check(const spry_completion *c, spry_error *error)
{
    spry_engine_info info;
    uint32_t n = c->prompts.count * c->options.n_each, most = c->exchange->server->answers_max;
    spry_engine_describe(c->model->engine, &info);
    for (uint32_t i = 0; i < c->prompts.count; i++) {
        char name[24] = "the prompt";
        size_t count = c->prompts.ids[i].count;
        if (c->prompts.count > 1)
            snprintf(name, sizeof name, "prompt[%u]", i);
        if (count == 0)
            return spry_fail(error, SPRY_ERR_INPUT, "%s is empty", name);
        if (count >= info.context)
            return spry_fail(error, SPRY_ERR_CONTEXT,
                             "%s has %zu tokens, but the context holds %zu, and the answer needs room", name, count,
                             info.context);
    }
    if (n > most && !c->options.no_answer)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "%u answers requested, but at most %u can run or wait (--parallel and --queue)", n, most);
    return SPRY_OK;
}

/* ---- required tool calls ----------------------------------------------------------------------------------------- */

/* One schema that matches any of several, with the definitions of all. */
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

/* Whether all forms have the same opening and closing marks, and a schema. */
static bool forms_agree(const spry_tool_forms *forms)
{
    for (size_t i = 0; i < forms->count; i++) {
        const spry_tool_form *a = &forms->items[0], *b = &forms->items[i];
        if (!b->schema || strcmp(a->open, b->open) != 0 || strcmp(a->close, b->close) != 0)
            return false;
    }
    return true;
}

static spry_status constrain_to(spry_completion *c, const spry_tool_forms *forms, spry_error *error)
{
    json_t *joined = forms->count > 1 ? join_schemas(forms) : NULL;
    free(c->options.constraint_text);
    c->options.constraint_text = forms->count > 1 ? json_dumps(joined, JSON_COMPACT) : strdup(forms->items[0].schema);
    json_decref(joined);
    if (!c->options.constraint_text)
        return spry_fail_memory(error, "the tools' schemas", c->exchange->body.size);
    c->options.request.constraint = SPRY_JSON_SCHEMA;
    c->options.request.constraint_text = c->options.constraint_text;
    return SPRY_OK;
}

static spry_status begin_call(spry_completion *c, const spry_tool_forms *forms, const char *mark, spry_error *error)
{
    bool agree = forms_agree(forms), alone = forms->count == 1;
    c->prompts.call_open = strdup(agree || alone ? forms->items[0].open : mark);
    c->prompts.call_close = strdup(agree ? forms->items[0].close : "");
    if (!c->prompts.call_open || !c->prompts.call_close)
        return spry_fail_memory(error, "a call", strlen(mark));
    spry_status status = spry_prompt_encode(&c->prompts.ids[0], c->model->engine, spry_view_of(c->prompts.call_open),
                                            true, false, error);
    if (status == SPRY_OK && agree && c->options.request.constraint == SPRY_ANY_TEXT)
        status = constrain_to(c, forms, error);
    return status;
}

spry_status spry_prompt_require_call(spry_completion *c, const json_t *tools, const json_t *choice, spry_error *error)
{
    spry_tool_forms forms;
    spry_tool_style style =
        spry_tool_style_find(spry_chat_template_used_source(c->model->engine->model->chat, tools != NULL));
    spry_status status = spry_tool_forms_make(&forms, style, tools, choice, error);
    if (status == SPRY_OK && forms.required)
        status = begin_call(c, &forms, spry_tool_style_marks(style)->open, error);
    spry_tool_forms_deinit(&forms);
    return status;
}
