/* Prompts of conversations come from spry_engine_chat_prompt, which says how long template and tokenizer took. */
#include "server/request/prompt.h"

#include <stdio.h>
#include <stdlib.h>

#include "platform/clock.h"

/* ---- conversations ----------------------------------------------------------------------------------------------- */

/* The conversation as the library takes it; NULL when memory is short. */
static char *conversation(const json_t *messages, const json_t *tools, const json_t *extra, const json_t *choice,
                          bool generate, bool parallel, const json_t *source, const json_t *begun)
{
    json_t *all =
        json_pack("{s:O, s:O*, s:O*, s:O*, s:O*, s:b, s:b, s:O*}", "messages", messages, "tools", tools,
                  "chat_template_kwargs", json_is_object(extra) ? extra : NULL, "tool_choice", choice, "chat_template",
                  source, "add_generation_prompt", generate, "parallel_tool_calls", parallel, "continuation", begun);
    char *text = all ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    return text;
}

spry_status spry_prompt_render(json_t **out, const spry_engine *engine, const json_t *messages, const json_t *tools,
                               const json_t *extra, bool generate, spry_error *error)
{
    char *json = conversation(messages, tools, extra, NULL, generate, true, NULL, NULL), *text = NULL;
    size_t size = 0;
    spry_status status = json ? spry_engine_chat_text(engine, &text, &size, json, strlen(json), error)
                              : spry_fail_memory(error, "the conversation", 0);
    *out = text ? spry_view_json((spry_view){text, size}) : NULL;
    spry_free(text);
    free(json);
    return status;
}

/* Appends the prompt to the ids that the request began with, and takes what else it owns. Tool calls are held
 * to their schemas, unless the request has a constraint of its own. */
static spry_status take_prompt(spry_completion *c, spry_chat_prompt *prompt, spry_error *error)
{
    spry_tokens *out = &c->prompts.ids[0];
    size_t before = out->count;
    for (size_t i = 0; i < prompt->count; i++)
        if (!spry_tokens_push(out, prompt->ids[i]))
            return spry_fail_memory(error, "the prompt", prompt->count * sizeof *prompt->ids);
    for (size_t i = 0; i < prompt->n_spans; i++)
        prompt->spans[i] = (spry_span){before + prompt->spans[i].begin, before + prompt->spans[i].end};
    c->prompts.spans = prompt->spans;
    c->prompts.n_spans = prompt->n_spans;
    prompt->spans = NULL;
    if (prompt->call_constraint && c->options.request.constraint == SPRY_ANY_TEXT) {
        free(c->options.constraint_text);
        c->options.constraint_text = prompt->call_constraint;
        c->options.request.constraint = SPRY_TOOL_CALLS;
        c->options.request.constraint_text = prompt->call_constraint;
        prompt->call_constraint = NULL;
    }
    return SPRY_OK;
}

spry_status spry_prompt_chat(spry_completion *c, const json_t *messages, const json_t *tools, const json_t *extra,
                             const json_t *choice, bool generate, spry_error *error)
{
    spry_chat_prompt prompt = {0};
    char *json =
        conversation(messages, tools, extra, choice, generate, !c->options.one_call, c->template, c->prompts.begun);
    spry_status status = json ? spry_engine_chat_prompt(c->model->engine, &prompt, json, strlen(json), error)
                              : spry_fail_memory(error, "the conversation", 0);
    spry_lap_until(&c->costs.laps, SPRY_PART_TEMPLATE, spry_clock_ns() - (uint64_t)(prompt.tokenize_ms * 1e6));
    if (status == SPRY_OK)
        status = take_prompt(c, &prompt, error);
    spry_chat_prompt_deinit(&prompt);
    free(json);
    return status;
}

/* ---- conversations that are too long ----------------------------------------------------------------------------- */

static bool is_system(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "system") == 0;
}

/* The messages without the first `dropped` of those that may be dropped; a new list. */
static json_t *without_oldest(const json_t *messages, size_t dropped)
{
    json_t *kept = json_array(), *message;
    size_t i, count = json_array_size(messages);
    json_array_foreach(messages, i, message)
    {
        bool drop = dropped && i + 1 < count && !is_system(message);
        dropped -= drop;
        if (!drop)
            json_array_append(kept, message);
    }
    return kept;
}

static void reset_prompt(spry_completion *c, size_t before)
{
    c->prompts.ids[0].count = before;
    free(c->prompts.spans);
    c->prompts.spans = NULL;
    c->prompts.n_spans = 0;
}

bool spry_prompt_slides(const spry_completion *c)
{
    return c->options.slide && !c->options.must_fit && !c->options.no_shift;
}

spry_status spry_prompt_chat_fit(spry_completion *c, const json_t *messages, const json_t *tools, const json_t *extra,
                                 const json_t *choice, spry_error *error)
{
    spry_engine_info info;
    size_t before = c->prompts.ids[0].count, low = 0, high = json_array_size(messages);
    spry_engine_describe(c->model->engine, &info);
    spry_status status = spry_prompt_chat(c, messages, tools, extra, choice, true, error);
    size_t whole = c->prompts.ids[0].count;
    if (status != SPRY_OK || whole < info.context)
        return status;
    /* The fewest messages whose loss suffices. */
    while (status == SPRY_OK && low < high) {
        size_t middle = low + (high - low) / 2;
        json_t *kept = without_oldest(messages, middle);
        reset_prompt(c, before);
        status = spry_prompt_chat(c, kept, tools, extra, choice, true, error);
        json_decref(kept);
        if (c->prompts.ids[0].count < info.context)
            high = middle;
        else
            low = middle + 1;
    }
    if (status != SPRY_OK)
        return status;
    json_t *kept = without_oldest(messages, low);
    reset_prompt(c, before);
    status = spry_prompt_chat(c, kept, tools, extra, choice, true, error);
    json_decref(kept);
    c->prompts.dropped += whole - c->prompts.ids[0].count;
    return status;
}

/* Removes ids [begin, end) and moves the fragments behind them. */
static void cut_ids(spry_completion *c, spry_tokens *ids, size_t begin, size_t end)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->prompts.n_spans; i++) {
        spry_span span = c->prompts.spans[i];
        if (span.begin < end && span.end > begin)
            continue;
        size_t moved = span.begin >= end ? end - begin : 0;
        c->prompts.spans[kept++] = (spry_span){span.begin - moved, span.end - moved};
    }
    c->prompts.n_spans = kept;
    c->prompts.dropped += end - begin;
    memmove(ids->ids + begin, ids->ids + end, (ids->count - end) * sizeof *ids->ids);
    ids->count -= end - begin;
}

static void cut_middle(spry_completion *c)
{
    spry_engine_info info;
    spry_engine_describe(c->model->engine, &info);
    size_t wanted = c->options.request.max_tokens,
           room = wanted && wanted < info.context / 2 ? wanted : info.context / 4;
    size_t most = info.context - (room ? room : 1);
    for (uint32_t i = 0; i < c->prompts.count; i++) {
        spry_tokens *ids = &c->prompts.ids[i];
        if (ids->count > most)
            cut_ids(c, ids, most / 2, ids->count - (most - most / 2));
    }
}

/* ---- plain prompts ----------------------------------------------------------------------------------------------- */

spry_status spry_prompt_encode(spry_tokens *out, const spry_engine *engine, spry_view text, bool special, bool begin,
                               spry_error *error)
{
    /* A token is at least a byte of text, except for those that begin and end it. */
    size_t room = text.size + 8, count = 0;
    spry_status status = SPRY_OK;
    do {
        int32_t *ids = realloc(out->ids, (out->count + room) * sizeof *ids);
        if (!ids)
            return spry_fail_memory(error, "the prompt", (out->count + room) * sizeof *ids);
        out->ids = ids;
        out->capacity = out->count + room;
        status = (begin ? spry_engine_tokenize : spry_engine_tokenize_part)(engine, ids + out->count, room, &count,
                                                                            text.data, text.size, special, error);
    } while (status == SPRY_OK && count > room && (room = count));
    out->count += status == SPRY_OK ? count : 0;
    return status;
}

/* `wanted`: what else is allowed, for the message. */
static spry_status push_id(spry_tokens *out, const spry_engine *engine, const json_t *item, const char *what, size_t at,
                           const char *wanted, spry_error *error)
{
    spry_engine_info info;
    json_int_t id = json_integer_value(item);
    spry_engine_describe(engine, &info);
    if (!json_is_integer(item))
        return spry_fail(error, SPRY_ERR_INPUT, "%s[%zu] must be a token id%s", what, at, wanted);
    if (id < 0 || (size_t)id >= info.vocabulary)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "%s[%zu] is %" JSON_INTEGER_FORMAT ", but token ids of this model are below %zu", what, at, id,
                         info.vocabulary);
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

static bool add_span(spry_completion *c, size_t begin, size_t end)
{
    spry_span *grown = realloc(c->prompts.spans, (c->prompts.n_spans + 1) * sizeof *grown);
    if (!grown)
        return false;
    c->prompts.spans = grown;
    grown[c->prompts.n_spans++] = (spry_span){begin, end};
    return true;
}

/* A part is text: control tokens in it are not recognised. */
static spry_status push_part(spry_tokens *out, spry_completion *c, const json_t *part, const char *what, size_t at,
                             spry_error *error)
{
    const json_t *text = json_object_get(part, "text"), *cache = json_object_get(part, "cache");
    bool span = json_is_string(cache) && strcmp(json_string_value(cache), "span") == 0;
    size_t begin = out->count;
    if (!json_is_string(text) || (cache && !span && !json_is_null(cache)))
        return spry_fail(error, SPRY_ERR_INPUT, "%s[%zu] must have a \"text\", and \"cache\" can only be \"span\"",
                         what, at);
    if (span && c->prompts.count > 1)
        return spry_fail(error, SPRY_ERR_INPUT, "%s[%zu]: a request with fragments has one prompt", what, at);
    spry_status status =
        spry_prompt_encode(out, c->model->engine, (spry_view){json_string_value(text), json_string_length(text)}, false,
                           at == 0 && !span, error);
    if (status == SPRY_OK && span && out->count > begin && !add_span(c, begin, out->count))
        status = spry_fail_memory(error, "fragments", c->prompts.n_spans * sizeof *c->prompts.spans);
    return status;
}

spry_status spry_prompt_list(spry_tokens *out, spry_completion *c, const json_t *list, const char *what,
                             spry_error *error)
{
    size_t i;
    const json_t *item;
    const spry_engine *engine = c->model->engine;
    bool fit = !spry_prompt_slides(c) && !c->options.cut_middle;
    spry_status status = fit ? check_length(engine, list, what, error) : SPRY_OK;
    if (status != SPRY_OK)
        return status;
    json_array_foreach(list, i, item)
    {
        if (json_is_string(item))
            status = spry_prompt_encode(out, engine, (spry_view){json_string_value(item), json_string_length(item)},
                                        true, i == 0, error);
        else if (json_is_object(item))
            status = push_part(out, c, item, what, i, error);
        else
            status = push_id(out, engine, item, what, i, ", a string or a part with \"text\"", error);
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

spry_status spry_prompt_check(spry_completion *c, spry_error *error)
{
    if (c->options.cut_middle)
        cut_middle(c);
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
        if (count >= info.context && !spry_prompt_slides(c)) {
            c->exchange->overflow_tokens = count;
            c->exchange->overflow_context = info.context;
            return spry_fail(error, SPRY_ERR_CONTEXT,
                             "%s has %zu tokens, which exceeds the available context size of %zu tokens; the answer "
                             "needs room, too",
                             name, count, info.context);
        }
    }
    if (n > most && !c->options.no_answer)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "%u answers requested, but at most %u can run or wait (--parallel and --queue)", n, most);
    return SPRY_OK;
}
