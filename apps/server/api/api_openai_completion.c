/* POST /v1/completions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/api/apis.h"
#include "server/api/openai_json.h"
#include "server/request/fill_in.h"
#include "server/request/prompt.h"
#include "server/request/prompt_logprobs.h"

enum { DEFAULT_TOKENS = 16, ECHO_BYTES_MAX = 64 << 20 };

/* A prompt that is part of the reply, before its answers. */
typedef struct echoed {
    spry_buffer text;
    spry_answer_token *tokens; /* with their log probabilities; NULL: not wanted */
    size_t n_tokens;
} echoed;

/* State of this interface. */
typedef struct own_fields {
    size_t offsets[SPRY_ANSWERS_MAX]; /* characters written of each answer */
    echoed prompts[SPRY_ANSWERS_MAX];
} own_fields;

static void free_own(void *extra)
{
    own_fields *own = extra;
    for (size_t i = 0; i < SPRY_ANSWERS_MAX; i++) {
        spry_buffer_deinit(&own->prompts[i].text);
        free(own->prompts[i].tokens);
    }
    free(own);
}

static const echoed *echo_of(const spry_completion *c, const spry_choice *choice)
{
    const own_fields *own = c->prompts.extra;
    return &own->prompts[choice->index / c->options.n_each];
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static size_t characters(spry_view text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.size; i++)
        n += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    return n;
}

typedef struct logprob_lists {
    json_t *tokens, *probabilities, *top, *offsets;
} logprob_lists;

static void add_token(logprob_lists *lists, const spry_completion *c, const spry_answer_token *token, size_t *offset)
{
    spry_view bytes = spry_openai_token_bytes(c, token->token.id);
    double p = token->token.logprob;
    json_array_append_new(lists->tokens, spry_view_json(bytes));
    json_array_append_new(lists->probabilities, isfinite(p) ? json_real(p) : json_null());
    json_array_append_new(lists->offsets, json_integer((json_int_t)*offset));
    *offset += characters(bytes);
    json_t *top = isnan(p) ? json_null() : json_object();
    for (size_t i = 0; i < token->n_top; i++) {
        spry_view name = spry_openai_token_bytes(c, token->top[i].id);
        json_t *key = spry_view_json(name);
        json_object_set_new(top, json_string_value(key), json_real(token->top[i].logprob));
        json_decref(key);
    }
    json_array_append_new(lists->top, top);
}

/* The log probabilities of the tokens since the last chunk, those of an echoed prompt first; null: not wanted. */
static json_t *logprobs_of(const spry_completion *c, spry_choice *choice)
{
    own_fields *own = c->prompts.extra;
    const echoed *e = echo_of(c, choice);
    size_t *offset = &own->offsets[choice->index];
    if (!c->options.want_logprobs)
        return json_null();
    logprob_lists lists = {json_array(), json_array(), json_array(), json_array()};
    size_t n_prompt = *offset == 0 ? e->n_tokens : 0;
    for (size_t i = 0; i < n_prompt; i++)
        add_token(&lists, c, &e->tokens[i], offset);
    for (; choice->n_written < choice->n_tokens; choice->n_written++)
        add_token(&lists, c, &choice->tokens[choice->n_written], offset);
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", lists.tokens, "token_logprobs", lists.probabilities,
                     "top_logprobs", lists.top, "text_offset", lists.offsets);
}

static json_t *entry_of(const spry_completion *c, spry_choice *choice, json_t *text, const char *finish)
{
    return json_pack("{s:i, s:o, s:o, s:s?}", "index", (int)choice->index, "text", text, "logprobs",
                     logprobs_of(c, choice), "finish_reason", finish);
}

static void write_chunk(spry_completion *c, spry_choice *choice, spry_view text, const char *finish, bool timings)
{
    json_t *entry = entry_of(c, choice, spry_view_json(text), finish);
    json_t *message = spry_openai_envelope(c, "text_completion", json_pack("[o]", entry));
    if (timings)
        json_object_set_new(message, "timings", spry_completion_timings(c));
    else
        spry_openai_add_timings(message, choice);
    spry_completion_event(c, message);
}

static void open_stream(spry_completion *c)
{
    for (uint32_t i = 0; c->options.echo && i < c->n_choices; i++)
        write_chunk(c, &c->choices[i], spry_buffer_view(&echo_of(c, &c->choices[i])->text), NULL, false);
}

static void write_delta(spry_completion *c, spry_choice *choice, const spry_chat_event *event)
{
    write_chunk(c, choice, spry_event_text(event), NULL, false);
}

static void write_progress(spry_completion *c, spry_choice *choice)
{
    json_t *entry = entry_of(c, choice, json_string(""), NULL);
    spry_openai_progress(c, spry_openai_envelope(c, "text_completion", json_pack("[o]", entry)), choice);
}

static void close_choice(spry_completion *c, spry_choice *choice, bool last)
{
    write_chunk(c, choice, SPRY_VIEW(""), spry_choice_finish_reason(choice), last && !c->options.include_usage);
}

static void close_stream(spry_completion *c)
{
    spry_openai_close_stream(c, "text_completion");
}

static json_t *whole(spry_completion *c)
{
    json_t *choices = json_array();
    for (uint32_t i = 0; i < c->n_choices; i++) {
        spry_choice *choice = &c->choices[i];
        spry_buffer all;
        spry_buffer_init(&all, SIZE_MAX / 2);
        spry_view echo = spry_buffer_view(&echo_of(c, choice)->text);
        spry_buffer_append(&all, echo.data, echo.size);
        spry_buffer_append(&all, spry_buffer_view(&choice->content).data, choice->content.size);
        json_array_append_new(choices, entry_of(c, choice, spry_buffer_json(&all), spry_choice_finish_reason(choice)));
        spry_buffer_deinit(&all);
    }
    return spry_openai_whole(c, "text_completion", choices);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* `what`: the name of the prompt in messages. */
static spry_status make_prompt(spry_tokens *out, spry_completion *c, const json_t *prompt, const char *what,
                               spry_error *error)
{
    const json_t *suffix = json_object_get(c->root, "suffix");
    if (json_string_length(suffix)) {
        if (!json_is_string(prompt))
            return spry_fail(error, SPRY_ERR_INPUT, "%s must be a string where there is a suffix", what);
        return spry_prompt_fill_in(out, c->model->engine,
                                   (spry_view){json_string_value(prompt), json_string_length(prompt)},
                                   (spry_view){json_string_value(suffix), json_string_length(suffix)}, NULL, error);
    }
    if (json_is_string(prompt))
        return spry_prompt_encode(out, c->model->engine,
                                  (spry_view){json_string_value(prompt), json_string_length(prompt)}, false, true,
                                  error);
    if (json_is_array(prompt))
        return spry_prompt_list(out, c, prompt, what, error);
    return spry_fail(error, SPRY_ERR_INPUT, "%s must be a string or a list of token ids%s", what,
                     prompt == json_object_get(c->root, "prompt") ? ", or a list of those" : "");
}

/* The text of a prompt and, where wanted, its log probabilities. */
static spry_status make_echo(echoed *out, spry_completion *c, const spry_tokens *prompt, spry_error *error)
{
    const spry_engine *engine = c->model->engine;
    size_t size = 0;
    spry_status status = spry_engine_detokenize(engine, NULL, 0, &size, prompt->ids, prompt->count, false, error);
    char *text = status == SPRY_OK ? spry_buffer_extend(&out->text, size) : NULL;
    if (text)
        status = spry_engine_detokenize(engine, text, size, &size, prompt->ids, prompt->count, false, error);
    if (status != SPRY_OK || !c->options.want_logprobs)
        return status;
    out->tokens = calloc(prompt->count, sizeof *out->tokens);
    if (!out->tokens)
        return spry_fail_memory(error, "the prompt's tokens", prompt->count * sizeof *out->tokens);
    out->n_tokens = prompt->count;
    return spry_prompt_logprobs(out->tokens, c, prompt, error);
}

/* One prompt, or a list of prompts. */
static spry_status make_prompts(spry_completion *c, spry_fields *fields, spry_error *error)
{
    const json_t *prompt = json_object_get(fields->object, "prompt"), *first = json_array_get(prompt, 0);
    bool several = json_is_string(first) || json_is_array(first);
    size_t count = several ? json_array_size(prompt) : 1;
    if (count * c->options.n_each > SPRY_ANSWERS_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "prompt has %zu prompts with %u answers each; the limit is %d answers",
                         count, c->options.n_each, SPRY_ANSWERS_MAX);
    own_fields *own = c->prompts.extra = calloc(1, sizeof *own);
    c->prompts.free_extra = free_own;
    if (!own)
        return spry_fail_memory(error, "the prompts", sizeof *own);
    c->prompts.count = (uint32_t)count;
    for (size_t i = 0; i < SPRY_ANSWERS_MAX; i++)
        spry_buffer_init(&own->prompts[i].text, ECHO_BYTES_MAX);
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < count && status == SPRY_OK; i++) {
        char what[32] = "prompt";
        if (several)
            snprintf(what, sizeof what, "prompt[%zu]", i);
        status = make_prompt(&c->prompts.ids[i], c, several ? json_array_get(prompt, i) : prompt, what, error);
    }
    if (status == SPRY_OK)
        status = spry_prompt_check(c, error);
    spry_lap(&c->costs.laps, SPRY_PART_TOKENIZE);
    for (size_t i = 0; c->options.echo && i < count && status == SPRY_OK; i++)
        status = make_echo(&own->prompts[i], c, &c->prompts.ids[i], error);
    if (c->options.echo)
        spry_lap(&c->costs.laps, SPRY_PART_PREFILL);
    return status;
}

static void read_options(spry_completion_options *o, spry_fields *fields)
{
    spry_openai_read_common(o, fields);
    const json_t *logprobs = spry_fields_get(fields, "logprobs");
    o->want_logprobs = logprobs && !json_is_false(logprobs);
    if (json_is_number(logprobs))
        o->request.logprobs = (uint32_t)spry_fields_integer(fields, "logprobs", 0, 0, SPRY_TOP_LOGPROBS_MAX);
    else if (logprobs && !json_is_boolean(logprobs))
        spry_fields_refuse(fields, "logprobs", "logprobs must be a whole number");
    o->echo = spry_fields_bool(fields, "echo", false);
    o->request.max_tokens = (uint32_t)spry_openai_limit(fields, DEFAULT_TOKENS, 0);
    o->no_answer =
        json_number_value(spry_fields_get(fields, "max_tokens")) == 0 && spry_fields_get(fields, "max_tokens");
}

static const spry_completion_interface interface = {.id_prefix = "cmpl-",
                                                    .read = read_options,
                                                    .make_prompts = make_prompts,
                                                    .whole = whole,
                                                    .stream_type = "text/event-stream",
                                                    .open = open_stream,
                                                    .delta = write_delta,
                                                    .progress = write_progress,
                                                    .close_choice = close_choice,
                                                    .close = close_stream};

void spry_openai_completion(spry_exchange *x)
{
    spry_openai_serve(x, &interface, &spry_fields_openai_completion);
}
