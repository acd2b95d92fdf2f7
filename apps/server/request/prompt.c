/* Prompts of conversations come from spry_engine_chat_prompt, which says how long template and tokenizer took. */
#include "server/request/prompt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "server/http/http_server.h"
#include "server/request/agents.h"
#include "server/request/completion.h"

/* ---- conversations ----------------------------------------------------------------------------------------------- */

/* The conversation as the library takes it; NULL when memory is short. */
static char *conversation(const json_t *messages, const json_t *tools, const json_t *extra, const json_t *choice,
                          bool generate, bool parallel, const json_t *source, const json_t *begun)
{
    json_t *all =
        json_pack("{s:O, s:O*, s:O*, s:O*, s:O*, s:b, s:b, s:O*}", "messages", messages, "tools", tools,
                  "chat_template_kwargs", json_is_object(extra) ? extra : NULL, "tool_choice", choice, "chat_template",
                  source, "add_generation_prompt", generate, "parallel_tool_calls", parallel, "continuation", begun);
    char *text = all ? spry_json_text(all, JSON_COMPACT) : NULL;
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

/* Appends the prompt to the ids that the request began with, and takes its other parts. Tool calls are held
 * to their schemas, unless the request has a constraint. */
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
    for (size_t i = 0; i < prompt->n_pictures; i++)
        prompt->pictures[i].at += before;
    c->prompts.pictures = prompt->pictures;
    c->prompts.n_pictures = (size_t)prompt->n_pictures;
    prompt->pictures = NULL;
    prompt->n_pictures = 0;
    if (prompt->call_constraint && c->options.request.constraint == SPRY_ANY_TEXT) {
        free(c->options.constraint_text);
        c->options.constraint_text = prompt->call_constraint;
        c->options.request.constraint = SPRY_TOOL_CALLS;
        c->options.request.constraint_text = prompt->call_constraint;
        prompt->call_constraint = NULL;
    }
    return SPRY_OK;
}

/* ---- pictures that cannot be shown ------------------------------------------------------------------------------- */

static bool add_name(void *context, const spry_pool_info *info)
{
    spry_buffer *names = context;
    if (info->state == SPRY_POOL_LOADED && info->sees)
        spry_buffer_format(names, "%s%s", names->size ? ", " : "", info->name);
    return true;
}

static spry_status refuse_picture(const spry_completion *c, spry_error *error)
{
    spry_buffer names;
    spry_buffer_init(&names, 256);
    spry_model_pool_each(c->exchange->server->pool, add_name, &names);
    spry_status status = spry_fail(error, SPRY_ERR_INPUT, "%s cannot see pictures; of the loaded models %s",
                                   c->model->name, names.size ? "these can: " : "none can");
    if (names.size && error)
        strncat(error->message, names.data, sizeof error->message - strlen(error->message) - 1);
    spry_buffer_deinit(&names);
    return status;
}

/* Takes a picture out of the conversation: it is refused where it is the question; in a conversation with tools, and
 * before the last message, a sentence takes its place, as in fields/messages.c. False: it stays. */
static bool hide_picture(spry_completion *c, json_t *content, size_t index, bool history, const char *why)
{
    bool strict = c->exchange->server->settings->strict;
    spry_fields fields = {.within = "", .ignored = &c->exchange->ignored};
    if (strict || !history)
        return false;
    spry_fields_ignore(&fields, "messages", "messages.image_url", "the model cannot be shown this");
    json_array_set_new(
        content, index,
        json_pack("{s:s, s:o}", "type", "text", "text", json_sprintf("[image_url: not shown, %s]", why)));
    return true;
}

/* The content that has picture `number`, the first is 1, and its index there; NULL: there are fewer pictures.
 * *history: it may be hidden. */
static json_t *find_picture(size_t *index, bool *history, const json_t *messages, bool agent, size_t number)
{
    size_t i, k, count = json_array_size(messages);
    const json_t *message, *part;
    json_array_foreach(messages, i, message)
    {
        json_t *content = json_object_get(message, "content");
        json_array_foreach(content, k, part)
        {
            if (!json_object_get(part, "image_url") || --number)
                continue;
            *index = k;
            *history = agent || i + 1 < count;
            return content;
        }
    }
    return NULL;
}

/* Pictures for a model without eyes. */
static spry_status hide_pictures(spry_completion *c, const json_t *messages, bool agent, spry_error *error)
{
    size_t index;
    bool history;
    json_t *content;
    while ((content = find_picture(&index, &history, messages, agent, 1)))
        if (!hide_picture(c, content, index, history, "this model reads only text"))
            return refuse_picture(c, error);
    return SPRY_OK;
}

/* Hides the picture of which an error says that it cannot be read, or the oldest of too many, so that an agent's
 * history with such a picture is answered. False: the error stays. */
static bool hide_unread(spry_completion *c, const json_t *messages, bool agent, const spry_error *error)
{
    static const char mark[] = "picture ", many[] = "a conversation can have ";
    size_t index, number = 0;
    bool history;
    if (strncmp(error->message, mark, strlen(mark)) == 0)
        number = (size_t)strtoul(error->message + strlen(mark), NULL, 10);
    else if (strncmp(error->message, many, strlen(many)) == 0)
        number = 1;
    json_t *content = number ? find_picture(&index, &history, messages, agent, number) : NULL;
    return content && hide_picture(c, content, index, history, error->message);
}

/* One attempt to make the prompt of a conversation. */
static spry_status make_chat(spry_completion *c, const json_t *messages, const json_t *tools, const json_t *extra,
                             const json_t *choice, bool generate, spry_error *error)
{
    spry_chat_prompt prompt = {0};
    spry_agent_prompt arranged;
    spry_agent_prompt_init(&arranged, c->exchange->server->agents, spry_exchange_header(c->exchange, "User-Agent"),
                           messages, tools);
    c->prompts.agent = arranged.agent;
    char *json = conversation(arranged.messages, arranged.tools, extra, choice, generate, !c->options.one_call,
                              c->template, c->prompts.begun);
    spry_agent_prompt_deinit(&arranged);
    spry_status status = json ? spry_engine_chat_prompt(c->model->engine, &prompt, json, strlen(json), error)
                              : spry_fail_memory(error, "the conversation", 0);
    spry_laps_prompt(&c->costs.laps, &prompt);
    if (status == SPRY_OK)
        status = take_prompt(c, &prompt, error);
    spry_chat_prompt_deinit(&prompt);
    free(json);
    return status;
}

spry_status spry_prompt_chat(spry_completion *c, const json_t *messages, const json_t *tools, const json_t *extra,
                             const json_t *choice, bool generate, spry_error *error)
{
    spry_error why = {0};
    bool agent = json_array_size(tools) > 0, sees = spry_engine_sees(c->model->engine);
    spry_status status = sees ? SPRY_OK : hide_pictures(c, messages, agent, error);
    if (status != SPRY_OK)
        return status;
    do {
        status = sees ? spry_fetch_pictures(c->exchange, messages, &why) : SPRY_OK;
        if (status == SPRY_OK)
            status = make_chat(c, messages, tools, extra, choice, generate, &why);
    } while (status != SPRY_OK && status != SPRY_ERR_MEMORY && status != SPRY_ERR_CANCELLED &&
             hide_unread(c, messages, agent, &why));
    if (status != SPRY_OK && error)
        *error = why;
    return status;
}

spry_status spry_prompt_parts(spry_completion *c, const json_t *parts, spry_error *error)
{
    spry_chat_prompt prompt = {0};
    if (!spry_engine_sees(c->model->engine))
        return refuse_picture(c, error);
    json_t *request = json_pack("{s:O}", "prompt", parts);
    char *json = request ? spry_json_text(request, JSON_COMPACT) : NULL;
    spry_status status = json ? spry_engine_chat_prompt(c->model->engine, &prompt, json, strlen(json), error)
                              : spry_fail_memory(error, "the prompt", 0);
    spry_laps_prompt(&c->costs.laps, &prompt);
    if (status == SPRY_OK)
        status = take_prompt(c, &prompt, error);
    spry_chat_prompt_deinit(&prompt);
    json_decref(request);
    free(json);
    return status;
}

/* ---- conversations that are too long ----------------------------------------------------------------------------- */

static bool is_system(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "system") == 0;
}

/* The messages without the first `dropped` droppable ones; a new list. */
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
    spry_placed_free(c->prompts.pictures, c->prompts.n_pictures);
    c->prompts.pictures = NULL;
    c->prompts.n_pictures = 0;
}

void spry_prompt_reset(spry_completion *c)
{
    reset_prompt(c, 0);
    c->prompts.dropped = 0;
}

bool spry_prompt_slides(const spry_completion *c)
{
    return c->options.overflow == SPRY_OVERFLOW_SLIDE && !c->options.must_fit && !c->options.no_shift;
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

/* Removes ids [begin, end) and moves the fragments after them. */
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
    /* Every token except the first and last special token is at least a byte of text. */
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

/* Appends one token id; `wanted`: the other items that are allowed, for the message. */
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
    bool fit = !spry_prompt_slides(c) && c->options.overflow != SPRY_OVERFLOW_CUT_MIDDLE;
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

/* Agents find out by the words of each interface that they have to compact their conversation. */
static spry_status refuse_length(const spry_completion *c, const char *name, size_t count, size_t context,
                                 spry_error *error)
{
    switch (c->exchange->route->errors) {
    case SPRY_ERRORS_ANTHROPIC:
        return spry_fail(error, SPRY_ERR_CONTEXT, "prompt is too long: %zu tokens > %zu maximum", count, context);
    case SPRY_ERRORS_OLLAMA:
        return spry_fail(error, SPRY_ERR_CONTEXT,
                         "the input length of %zu tokens exceeds the context length of %zu tokens", count, context);
    case SPRY_ERRORS_OPENAI: break;
    }
    return spry_fail(
        error, SPRY_ERR_CONTEXT,
        "This model's maximum context length is %zu tokens; %s has %zu tokens, which exceeds the available "
        "context size, and the answer needs room, too",
        context, name, count);
}

spry_status spry_prompt_check(spry_completion *c, spry_error *error)
{
    if (c->options.overflow == SPRY_OVERFLOW_CUT_MIDDLE && !c->prompts.n_pictures)
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
            return refuse_length(c, name, count, info.context, error);
        }
    }
    if (n > most && !c->options.no_answer)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "%u answers requested, but at most %u can run or wait (--parallel and --queue)", n, most);
    return SPRY_OK;
}

/* ---- fill-in ----------------------------------------------------------------------------------------------------- */

/* The order is: prefix token, text before, suffix token, text after, middle token. The text of users never becomes a
 * control token. */

typedef struct fill_in_tokens {
    const char *prefix, *suffix, *middle;
} fill_in_tokens;

static const fill_in_tokens known[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "hole\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>"},
    {"\xe2\x96\x81<PRE>", "\xe2\x96\x81<SUF>", "\xe2\x96\x81<MID>"},
    {"<PRE>", "<SUF>", "<MID>"},
};

/* The id of a control token with this spelling; -1: there is none. */
static int32_t control_token(const spry_engine *engine, const char *spelling)
{
    int32_t ids[2], plain[2];
    size_t count = 0, n_plain = 0, size = strlen(spelling);
    if (spry_engine_tokenize_part(engine, ids, 2, &count, spelling, size, true, NULL) != SPRY_OK || count != 1)
        return -1;
    bool ordinary =
        spry_engine_tokenize_part(engine, plain, 2, &n_plain, spelling, size, false, NULL) == SPRY_OK && n_plain == 1;
    return ordinary ? -1 : ids[0];
}

static const fill_in_tokens *tokens_of(const spry_engine *engine)
{
    for (size_t i = 0; i < SPRY_COUNT(known); i++)
        if (control_token(engine, known[i].prefix) >= 0 && control_token(engine, known[i].suffix) >= 0 &&
            control_token(engine, known[i].middle) >= 0)
            return &known[i];
    return NULL;
}

bool spry_engine_can_fill_in(const spry_engine *engine)
{
    return tokens_of(engine) != NULL;
}

static spry_status add(spry_tokens *out, const spry_engine *engine, const char *token, spry_view text,
                       spry_error *error)
{
    if (!spry_tokens_push(out, control_token(engine, token)))
        return spry_fail_memory(error, "the prompt", 0);
    return text.size ? spry_prompt_encode(out, engine, text, false, false, error) : SPRY_OK;
}

/* Files are set apart by the model's token for that, or by a line. */
static spry_status add_files(spry_tokens *out, const spry_engine *engine, const json_t *extra, spry_error *error)
{
    static const char separator[] = "<|file_sep|>";
    bool has_token = control_token(engine, separator) >= 0;
    spry_status status = SPRY_OK;
    size_t i;
    const json_t *file;
    json_array_foreach(extra, i, file)
    {
        const char *name = json_string_value(json_object_get(file, "filename"));
        spry_buffer text;
        spry_buffer_init(&text, SIZE_MAX / 2);
        spry_buffer_format(&text, has_token ? "%s\n" : "\n--- %s\n", name ? name : "file");
        spry_buffer_text(&text, json_string_value(json_object_get(file, "text")));
        if (status == SPRY_OK)
            status = has_token ? add(out, engine, separator, spry_buffer_view(&text), error)
                               : spry_prompt_encode(out, engine, spry_buffer_view(&text), false, false, error);
        spry_buffer_deinit(&text);
    }
    return status;
}

spry_status spry_prompt_fill_in(spry_tokens *out, const spry_engine *engine, spry_view before, spry_view after,
                                const json_t *extra, spry_error *error)
{
    const fill_in_tokens *tokens = tokens_of(engine);
    int32_t begin = spry_engine_begin_token(engine);
    if (!tokens)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "this model has no fill-in tokens, so it cannot write the text before a suffix");
    if (begin >= 0 && !spry_tokens_push(out, begin))
        return spry_fail_memory(error, "the prompt", 0);
    spry_status status = add_files(out, engine, extra, error);
    if (status == SPRY_OK)
        status = add(out, engine, tokens->prefix, before, error);
    if (status == SPRY_OK)
        status = add(out, engine, tokens->suffix, after, error);
    return status == SPRY_OK ? add(out, engine, tokens->middle, SPRY_VIEW(""), error) : status;
}

/* ---- log probabilities ------------------------------------------------------------------------------------------- */

static bool on_token(void *user, size_t index, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    spry_answer_token *kept = (spry_answer_token *)user + index;
    *kept = (spry_answer_token){.token = token, .n_top = n_top};
    if (n_top)
        memcpy(kept->top, top, n_top * sizeof *top);
    return true;
}

spry_status spry_prompt_logprobs(spry_answer_token *tokens, spry_completion *c, const spry_tokens *prompt,
                                 spry_error *error)
{
    spry_job *job;
    spry_job_options options;
    spry_evaluation evaluation;
    spry_evaluation_default(&evaluation);
    evaluation.ids = prompt->ids;
    evaluation.count = prompt->count;
    evaluation.n_logprobs = c->options.request.logprobs;
    evaluation.on_token = on_token;
    evaluation.user = tokens;
    tokens[0] = (spry_answer_token){.token = {prompt->ids[0], NAN}};
    spry_job_options_of(&options, c->exchange);
    spry_costs_begin_share(&c->costs);
    spry_status status = spry_job_create_evaluation(&job, c->model->engine, &evaluation, &options, error);
    if (status == SPRY_OK)
        status = spry_job_begin(job, &c->costs, error);
    if (status == SPRY_OK)
        status = spry_job_finish(job, &c->costs, error);
    spry_job_free(job);
    return status;
}
