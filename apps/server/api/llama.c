/* llama-server's own paths. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/number.h"
#include "base/sampling_options.h"
#include "server/api/apis.h"
#include "server/api/chat_body.h"
#include "server/api/openai.h"
#include "server/fields/field_row.h"
#include "server/http/http_reply.h"
#include "server/models/derived_model.h"
#include "server/request/completion.h"
#include "server/request/prompt.h"
#include "server/server_setup.h"
#include "server/status/status_text.h"

const char *spry_llama_build(const spry_server *server)
{
    return spry_server_likes_llama(server) ? "b0-spry-" SPRY_VERSION : "spry-" SPRY_VERSION;
}

/* The ids of tokens [from, to). */
static json_t *llama_ids(const spry_choice *choice, size_t from, size_t to)
{
    json_t *list = json_array();
    for (size_t i = from; i < to; i++)
        json_array_append_new(list, json_integer(choice->tokens[i].token.id));
    return list;
}

/* The log probabilities of tokens [from, to). */
static json_t *llama_probabilities(const spry_completion *c, const spry_choice *choice, size_t from, size_t to)
{
    json_t *all = spry_openai_chat_logprobs(c, choice->tokens, from, to);
    json_t *content = json_incref(json_object_get(all, "content"));
    json_decref(all);
    return content;
}

json_t *spry_llama_prompt_text(const spry_completion *c, const spry_choice *choice)
{
    const spry_tokens *ids = choice->prompt;
    spry_buffer text;
    size_t size = 0;
    spry_buffer_init(&text, SIZE_MAX / 2);
    spry_status status = spry_engine_detokenize(c->model->engine, NULL, 0, &size, ids->ids, ids->count, true, NULL);
    char *room = status == SPRY_OK && size ? spry_buffer_extend(&text, size) : NULL;
    if (room)
        (void)spry_engine_detokenize(c->model->engine, room, size, &size, ids->ids, ids->count, true, NULL);
    json_t *json = spry_buffer_json(&text);
    spry_buffer_deinit(&text);
    return json;
}

/* Tokens that end an answer, none of which is chosen under "ignore_eos". */
static void add_ends(json_t *bias, const spry_engine *engine)
{
    spry_engine_info info;
    spry_engine_describe(engine, &info);
    for (size_t id = 0; id < info.vocabulary; id++)
        if (spry_engine_is_end(engine, (int32_t)id))
            json_array_append_new(bias, json_pack("{s:I, s:n}", "token", (json_int_t)id, "bias"));
}

enum { SHOWN_GRAMMAR = 1 << 16 };

/* Every sampling setting, under its name and its alias. */
static void add_sampling(json_t *settings, const spry_completion_options *o)
{
    spry_sampling copy = o->request.sampling;
    const spry_option_table table = spry_sampling_options(&copy);
    for (size_t i = 0; i < table.count; i++) {
        const char *const names[] = {table.options[i].name, table.options[i].alias};
        for (size_t k = 0; k < SPRY_COUNT(names) && names[k]; k++) {
            char key[64];
            spry_options_key(key, sizeof key, names[k]);
            json_object_set_new(settings, key, spry_options_get_json(&table, &table.options[i]));
        }
    }
}

json_t *spry_llama_settings(const spry_completion_options *o)
{
    const spry_request *r = &o->request;
    const spry_sampling *s = &r->sampling;
    /* It is in the reply of every prompt, so a long one is left out. */
    bool shown = r->constraint == SPRY_GBNF && r->constraint_text && strlen(r->constraint_text) <= SHOWN_GRAMMAR;
    json_int_t limit = r->max_tokens ? (json_int_t)r->max_tokens : -1;
    json_t *stop = json_array();
    for (size_t i = 0; i < r->n_stop; i++)
        json_array_append_new(stop, json_string(r->stop[i]));
    json_t *bias = json_array();
    for (size_t i = 0; i < s->n_bias; i++)
        json_array_append_new(bias,
                              json_pack("{s:i, s:o}", "token", (int)s->bias[i].token, "bias",
                                        isfinite(s->bias[i].bias) ? json_real((double)s->bias[i].bias) : json_null()));
    if (r->ignore_end && o->engine)
        add_ends(bias, o->engine);
    json_t *settings = json_pack("{s:I, s:I, s:I, s:I, s:b, s:b, s:o, s:o, s:s}", "n_predict", limit, "max_tokens",
                                 limit, "n_probs", (json_int_t)r->logprobs, "n_logit_bias",
                                 (json_int_t)json_array_size(bias), "ignore_eos", r->ignore_end, "stream", o->stream,
                                 "stop", stop, "logit_bias", bias, "grammar", shown ? r->constraint_text : "");
    add_sampling(settings, o);
    json_t *off =
        json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "mirostat", 0, "dynatemp_range", 0.0, "xtc_probability", 0.0,
                  "dry_multiplier", 0.0, "top_n_sigma", -1.0, "adaptive_target", -1.0, "adaptive_decay", 0.0);
    json_object_update(settings, off); /* samplers that are never on */
    json_decref(off);
    return settings;
}

/* ---- POST /completion -------------------------------------------------------------------------------------------- */

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The members that every event has; takes `content`. */
static json_t *piece(const spry_completion *c, const spry_choice *choice, json_t *content, bool stop)
{
    return json_pack("{s:i, s:o, s:b, s:i, s:s}", "index", (int)choice->index, "content", content, "stop", stop,
                     "id_slot", (int)choice->index, "model", c->model->name);
}

/* The tokens since the last event, with their probabilities where they are wanted. */
static void add_tokens(json_t *message, const spry_completion *c, spry_choice *choice)
{
    json_object_set_new(message, "tokens", llama_ids(choice, choice->n_written, choice->n_tokens));
    if (c->options.request.logprobs)
        json_object_set_new(message, "completion_probabilities",
                            llama_probabilities(c, choice, choice->n_written, choice->n_tokens));
    choice->n_written = choice->n_tokens;
}

static void write_delta(spry_completion *c, spry_choice *choice, const spry_chat_event *event)
{
    json_t *message = piece(c, choice, spry_view_json(spry_event_text(event)), false);
    add_tokens(message, c, choice);
    json_object_set_new(message, "tokens_predicted", json_integer((json_int_t)choice->n_tokens));
    json_object_set_new(message, "tokens_evaluated", json_integer((json_int_t)choice->prompt->count));
    spry_openai_add_timings(message, choice);
    spry_completion_event(c, message);
}

static void write_progress(spry_completion *c, spry_choice *choice)
{
    json_t *message = piece(c, choice, json_string(""), false);
    json_object_set_new(message, "tokens", json_array());
    spry_openai_progress(c, message, choice);
}

static json_t *last_piece(spry_completion *c, spry_choice *choice, json_t *content)
{
    static const char *const stop_types[] = {[SPRY_FINISH_END] = "eos",
                                             [SPRY_FINISH_STOP] = "word",
                                             [SPRY_FINISH_LENGTH] = "limit",
                                             [SPRY_FINISH_CONTEXT] = "limit",
                                             [SPRY_FINISH_CANCELLED] = "none"};
    const spry_result *r = &choice->job.result;
    spry_engine_info info;
    spry_engine_describe(c->model->engine, &info);
    bool slid =
        c->options.overflow == SPRY_OVERFLOW_SLIDE && choice->prompt->count + r->generated_tokens > info.context;
    json_t *message = piece(c, choice, content, true);
    json_t *more =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:o, s:o, s:o, s:o}", "stop_type", stop_types[r->finish],
                  "stopping_word", r->finish == SPRY_FINISH_STOP ? spry_choice_stop(choice) : "", "tokens_predicted",
                  (json_int_t)r->generated_tokens, "tokens_evaluated", (json_int_t)choice->prompt->count,
                  "tokens_cached", (json_int_t)(choice->prompt->count + r->generated_tokens), "truncated",
                  slid || r->finish == SPRY_FINISH_CONTEXT, "has_new_line", choice->has_newline, "prompt",
                  spry_llama_prompt_text(c, choice), "generation_settings", spry_llama_settings(&c->options), "timings",
                  spry_completion_timings(c), "tokens", json_array());
    json_object_update(message, more);
    json_decref(more);
    return message;
}

static void close_choice(spry_completion *c, spry_choice *choice, bool last)
{
    (void)last;
    spry_completion_event(c, last_piece(c, choice, json_string("")));
}

/* The members that "response_fields" names; "a/b" is member b of member a. */
static json_t *chosen_members(json_t *message, const json_t *names)
{
    json_t *chosen = json_object();
    const json_t *name;
    size_t i;
    if (!json_array_size(names)) {
        json_decref(chosen);
        return message;
    }
    json_array_foreach(names, i, name)
    {
        char path[128];
        json_t *value = message;
        snprintf(path, sizeof path, "%s", json_is_string(name) ? json_string_value(name) : "");
        for (char *rest = path, *part; value && (part = strtok_r(rest, "/", &rest));)
            value = json_object_get(value, part);
        if (value)
            json_object_set(chosen, json_is_string(name) ? json_string_value(name) : "", value);
    }
    json_decref(message);
    return chosen;
}

static json_t *whole_choice(spry_completion *c, spry_choice *choice)
{
    json_t *message = last_piece(c, choice, spry_buffer_json(&choice->content));
    if (c->options.return_tokens)
        json_object_set_new(message, "tokens", llama_ids(choice, 0, choice->n_tokens));
    if (c->options.request.logprobs)
        json_object_set_new(message, "completion_probabilities", llama_probabilities(c, choice, 0, choice->n_tokens));
    return chosen_members(message, json_object_get(c->root, "response_fields"));
}

/* Several prompts have a list of replies. */
static json_t *whole(spry_completion *c)
{
    if (!c->options.several && c->n_choices == 1)
        return whole_choice(c, &c->choices[0]);
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->n_choices; i++)
        json_array_append_new(list, whole_choice(c, &c->choices[i]));
    return list;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* {"prompt_string": TEXT} is TEXT. */
static const json_t *plain_prompt(const json_t *prompt)
{
    const json_t *text = json_object_get(prompt, "prompt_string");
    return text && !json_object_get(prompt, "multimodal_data") ? text : prompt;
}

static spry_status make_prompt(spry_tokens *out, spry_completion *c, const json_t *prompt, const char *what,
                               spry_error *error)
{
    prompt = plain_prompt(prompt);
    if (json_is_string(prompt))
        return spry_prompt_encode(out, c->model->engine,
                                  (spry_view){json_string_value(prompt), json_string_length(prompt)}, true, true,
                                  error);
    if (json_is_array(prompt))
        return spry_prompt_list(out, c, prompt, what, error);
    return spry_fail(error, SPRY_ERR_INPUT, "%s must be a string or a list of token ids and strings", what);
}

/* A list is one prompt of ids, texts and parts, or a list of prompts: it is the latter if no item is an id or part. */
static bool is_list_of_prompts(const json_t *prompt)
{
    size_t i;
    const json_t *item;
    json_array_foreach(prompt, i, item)
    {
        if (json_is_integer(item) || json_object_get(item, "text"))
            return false;
    }
    return json_array_size(prompt) > 0;
}

/* The base64 of picture `number`, counted in its list or by the id in `[img-ID]`; NULL: there is none. */
static const char *find_media(const json_t *list, bool by_id, size_t number)
{
    size_t i;
    const json_t *item;
    if (!by_id)
        return json_string_value(json_array_get(list, number));
    json_array_foreach(list, i, item)
    {
        const json_t *id = json_object_get(item, "id");
        if (json_is_integer(id) && (uint64_t)json_integer_value(id) == number)
            return json_string_value(json_object_get(item, "data"));
    }
    return NULL;
}

/* A text with pictures: "<__media__>" is the next of "multimodal_data", "[img-12]" the one of "image_data" with id 12.
 */
static spry_status make_media_prompt(spry_completion *c, spry_view text, const json_t *list, bool by_id,
                                     spry_error *error)
{
    const char *mark = by_id ? "[img-" : "<__media__>";
    size_t used = 0, wanted = json_array_size(list);
    json_t *parts = json_array();
    spry_status status = SPRY_OK;
    while (status == SPRY_OK && text.size) {
        const char *at = memmem(text.data, text.size, mark, strlen(mark));
        size_t before = at ? (size_t)(at - text.data) : text.size, size = at ? strlen(mark) : 0, number = used;
        if (at && by_id) {
            const char *end = memchr(at, ']', text.size - before);
            uint64_t id = 0;
            if (!end || !spry_number_u64(&id, (spry_view){at + size, (size_t)(end - at) - size})) {
                before += size; /* it is text */
                at = NULL;
            } else {
                size = (size_t)(end - at) + 1;
            }
            number = (size_t)id;
        }
        json_array_append_new(parts, json_pack("{s:s, s:s%}", "type", "text", "text", text.data, before));
        const char *data = at ? find_media(list, by_id, number) : NULL;
        if (at && !data)
            status = spry_fail(error, SPRY_ERR_INPUT, "the prompt has a place for a picture that is not in %s",
                               by_id ? "image_data" : "multimodal_data");
        else if (at)
            spry_chat_body_add_image_data(parts, "image/png", data);
        used += at != NULL;
        before += at ? size : 0;
        text = (spry_view){text.data + before, text.size - before};
    }
    if (status == SPRY_OK && used < wanted)
        status = spry_fail(error, SPRY_ERR_INPUT, "%s has %zu pictures, but the prompt %zu places for them (%s)",
                           by_id ? "image_data" : "multimodal_data", wanted, used, by_id ? "[img-ID]" : mark);
    if (status == SPRY_OK)
        status = spry_prompt_parts(c, parts, error);
    json_decref(parts);
    return status;
}

static spry_status make_prompts(spry_completion *c, spry_fields *fields, spry_error *error)
{
    const json_t *prompt = json_object_get(fields->object, "prompt");
    const json_t *images = spry_fields_get(fields, "image_data"), *media = json_object_get(prompt, "multimodal_data");
    const json_t *text = json_is_string(prompt) ? prompt : json_object_get(prompt, "prompt_string");
    if ((json_array_size(images) || json_array_size(media)) && json_is_string(text))
        return make_media_prompt(c, spry_json_view(text), json_array_size(media) ? media : images,
                                 !json_array_size(media), error);
    size_t count = c->options.several ? json_array_size(prompt) : 1;
    if (!c->options.several)
        return make_prompt(&c->prompts.ids[0], c, prompt, "prompt", error);
    if (count * c->options.n_each > SPRY_ANSWERS_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "prompt has %zu prompts; the limit is %d answers", count,
                         SPRY_ANSWERS_MAX);
    c->prompts.count = (uint32_t)count;
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < count && status == SPRY_OK; i++) {
        char what[32];
        snprintf(what, sizeof what, "prompt[%zu]", i);
        status = make_prompt(&c->prompts.ids[i], c, json_array_get(prompt, i), what, error);
    }
    return status;
}

static void llama_defaults(spry_completion_options *o)
{
    o->request.sampling.temperature = 0.8f;
    o->request.sampling.top_k = 40;
    o->request.sampling.top_p = 0.95f;
    o->request.sampling.min_p = 0.05f;
}

static void read_tokens(spry_completion_options *o, spry_fields *fields)
{
    o->several = is_list_of_prompts(spry_fields_get(fields, "prompt"));
    o->want_logprobs = o->stream || o->request.logprobs || o->return_tokens;
}

static const spry_completion_interface interface = {.id_prefix = "",
                                                    .table = &spry_fields_llama_completion,
                                                    .defaults = llama_defaults,
                                                    .read = read_tokens,
                                                    .make_prompts = make_prompts,
                                                    .whole = whole,
                                                    .stream_type = "text/event-stream",
                                                    .delta = write_delta,
                                                    .progress = write_progress,
                                                    .close_choice = close_choice};

void spry_llama_completion(spry_exchange *x)
{
    spry_openai_serve(x, &interface);
}

/* ---- /infill ----------------------------------------------------------------------------------------------------- */

/* Checks "input_extra": files that precede the text. */
static void read_infill(spry_completion_options *o, spry_fields *fields)
{
    size_t i;
    const json_t *extra;
    read_tokens(o, fields);
    o->several = false;
    json_array_foreach(spry_fields_array(fields, "input_extra"), i, extra)
    {
        const json_t *name = json_object_get(extra, "filename");
        if (!json_is_string(json_object_get(extra, "text")) || (name && !json_is_string(name)))
            spry_fields_refuse(fields, "input_extra", "input_extra[%zu] must have a text and may have a filename", i);
    }
}

static spry_status make_infill(spry_completion *c, spry_fields *fields, spry_error *error)
{
    const json_t *prefix = spry_fields_get(fields, "input_prefix"), *suffix = spry_fields_get(fields, "input_suffix");
    const json_t *prompt = spry_fields_get(fields, "prompt");
    spry_buffer before;
    spry_buffer_init(&before, SIZE_MAX / 2);
    spry_buffer_append(&before, prefix ? json_string_value(prefix) : "", json_string_length(prefix));
    spry_buffer_append(&before, json_is_string(prompt) ? json_string_value(prompt) : "", json_string_length(prompt));
    spry_view after = {suffix ? json_string_value(suffix) : "", json_string_length(suffix)};
    spry_status status = spry_prompt_fill_in(&c->prompts.ids[0], c->model->engine, spry_buffer_view(&before), after,
                                             spry_fields_get(fields, "input_extra"), error);
    spry_buffer_deinit(&before);
    return status;
}

static const spry_completion_interface infill_interface = {.id_prefix = "",
                                                           .table = &spry_fields_llama_infill,
                                                           .defaults = llama_defaults,
                                                           .read = read_infill,
                                                           .make_prompts = make_infill,
                                                           .whole = whole,
                                                           .stream_type = "text/event-stream",
                                                           .delta = write_delta,
                                                           .progress = write_progress,
                                                           .close_choice = close_choice};

void spry_llama_infill(spry_exchange *x)
{
    spry_openai_serve(x, &infill_interface);
}

/* ---- /tokenize, /detokenize and /apply-template ------------------------------------------------------------------ */

enum { TEXT_BYTES_MAX = 256 << 20 };

typedef struct text_call {
    spry_fields fields;
    json_t *root;
    const char *name; /* name of the model; NULL: none was given */
    const json_t *content, *tokens;
    bool begin, special, pieces;
    const spry_pooled *model;
} text_call;

#define TARGET text_call

static const spry_field tokenize_fields[] = {
    BOUND("content", STRING, "\"Once\"", "the text", TO_JSON(content)),
    BOUND("model", STRING, "\"Spry-Tales-29M\"", "absent: the first model", TO_TEXT(name)),
    BOUND("add_special", BOOL, "true", "with the tokens that begin a text", TO_BOOL(begin)),
    BOUND("parse_special", BOOL, "false", "`false`: spellings of control tokens are plain text", TO_BOOL(special)),
    BOUND("with_pieces", BOOL, "true", "each token as `id` and `piece`", TO_BOOL(pieces)),
};

const spry_field_table spry_fields_llama_tokenize = {
    .title = "POST /tokenize", .within = "", .groups = {SPRY_FIELD_GROUP(tokenize_fields)}};

static const spry_field detokenize_fields[] = {
    BOUND("tokens", LIST, "[5, 6]", "token ids", TO_JSON(tokens)),
    BOUND("model", STRING, "\"Spry-Tales-29M\"", "absent: the first model", TO_TEXT(name)),
};

const spry_field_table spry_fields_llama_detokenize = {
    .title = "POST /detokenize", .within = "", .groups = {SPRY_FIELD_GROUP(detokenize_fields)}};

/* Reads the body and loads its model; false when a reply was given. */
static bool begin_text(text_call *call, spry_exchange *x, const spry_field_table *table)
{
    *call = (text_call){.special = true};
    if (!spry_fields_open(&call->fields, &call->root, x, table))
        return false;
    if (table == &spry_fields_openai_chat)
        call->name = spry_fields_string(&call->fields, "model", NULL);
    else
        spry_fields_read(call, &call->fields, table);
    if (spry_fields_fine(&call->fields, x))
        call->model = spry_completion_model(x, call->name);
    if (!call->model)
        json_decref(call->root);
    return call->model != NULL;
}

static void end_text(text_call *call, spry_exchange *x)
{
    spry_model_pool_release(x->server->pool, call->model);
    json_decref(call->root);
}

static json_t *tokens_json(const spry_tokens *tokens, const spry_engine *engine, bool pieces)
{
    json_t *list = json_array();
    for (size_t i = 0; i < tokens->count && !spry_interrupted(1); i++) {
        json_t *id = json_integer(tokens->ids[i]);
        spry_view bytes;
        bytes.data = spry_engine_token_bytes(engine, tokens->ids[i], true, &bytes.size);
        if (pieces)
            id = json_pack("{s:o, s:o}", "id", id, "piece", spry_view_json(bytes));
        json_array_append_new(list, id);
    }
    return list;
}

void spry_llama_tokenize(spry_exchange *x)
{
    text_call call;
    spry_tokens tokens = {0};
    spry_error error;
    if (!begin_text(&call, x, &spry_fields_llama_tokenize))
        return;
    if (!json_is_string(call.content))
        spry_fields_refuse(&call.fields, "content", "content must be a string");
    if (spry_fields_fine(&call.fields, x)) {
        spry_view text = {json_string_value(call.content), json_string_length(call.content)};
        if (spry_prompt_encode(&tokens, call.model->engine, text, call.special, call.begin, &error) == SPRY_OK)
            spry_reply_json(x, SPRY_HTTP_OK,
                            json_pack("{s:o}", "tokens", tokens_json(&tokens, call.model->engine, call.pieces)));
        else
            spry_reply_failure(x, &error);
    }
    spry_tokens_deinit(&tokens);
    end_text(&call, x);
}

static spry_status decode(spry_buffer *out, const spry_engine *engine, const spry_tokens *ids, spry_error *error)
{
    size_t size = 0;
    spry_status status = spry_engine_detokenize(engine, NULL, 0, &size, ids->ids, ids->count, true, error);
    char *text = status == SPRY_OK && size ? spry_buffer_extend(out, size) : NULL;
    if (text)
        status = spry_engine_detokenize(engine, text, size, &size, ids->ids, ids->count, true, error);
    return status;
}

void spry_llama_detokenize(spry_exchange *x)
{
    text_call call;
    spry_tokens ids = {0};
    spry_buffer text;
    spry_error error;
    if (!begin_text(&call, x, &spry_fields_llama_detokenize))
        return;
    spry_buffer_init(&text, TEXT_BYTES_MAX);
    if (!call.tokens)
        spry_fields_refuse(&call.fields, "tokens", "tokens must be a list of token ids");
    if (spry_fields_fine(&call.fields, x)) {
        spry_status status = spry_prompt_ids(&ids, call.model->engine, call.tokens, "tokens", false, &error);
        if (status == SPRY_OK)
            status = decode(&text, call.model->engine, &ids, &error);
        if (status == SPRY_OK)
            spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:o}", "content", spry_buffer_json(&text)));
        else
            spry_reply_failure(x, &error);
    }
    spry_buffer_deinit(&text);
    spry_tokens_deinit(&ids);
    end_text(&call, x);
}

void spry_llama_apply_template(spry_exchange *x)
{
    text_call call;
    json_t *text;
    spry_error error;
    if (!begin_text(&call, x, &spry_fields_openai_chat))
        return;
    spry_derived_apply(x->server->defaults, call.root, false);
    const json_t *messages = spry_fields_array(&call.fields, "messages"), *tools = spry_fields_tools(&call.fields),
                 *extra = spry_fields_object(&call.fields, "chat_template_kwargs");
    bool generate = spry_fields_bool(&call.fields, "add_generation_prompt", true);
    spry_fields_messages(&call.fields, messages);
    if (spry_fields_fine(&call.fields, x)) {
        if (spry_prompt_render(&text, call.model->engine, messages, tools, extra, generate, &error) == SPRY_OK)
            spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:o}", "prompt", text));
        else
            spry_reply_failure(x, &error);
    }
    end_text(&call, x);
}

/* ---- /props, /slots and /lora-adapters --------------------------------------------------------------------------- */

/* The model's entry in the registry of live status. */
static bool find_status(spry_model_status *out, spry_exchange *x, const char *name)
{
    spry_model_status *models;
    size_t count, i = 0;
    if (!spry_registry_models(&x->server->registry, &models, &count, x->server->pool))
        return false;
    while (i < count && strcmp(models[i].pool.name, name) != 0)
        i++;
    if (i < count)
        *out = models[i];
    bool found = i < count;
    free(models);
    return found;
}

static json_t *default_settings(spry_exchange *x, const spry_pooled *model)
{
    spry_completion_options o;
    json_t *empty = json_object();
    spry_derived_apply(x->server->defaults, empty, false);
    spry_fields fields = {.object = empty, .within = ""};
    spry_completion_options_init(&o, x->server->settings);
    spry_engine_sampling(model->engine, &o.request.sampling);
    spry_completion_options_read(&o, &fields, &interface);
    json_t *settings = spry_llama_settings(&o);
    spry_completion_options_deinit(&o);
    json_decref(empty);
    return settings;
}

static bool count_model(void *count, const spry_pool_info *info)
{
    (void)info;
    ++*(size_t *)count;
    return true;
}

/* The properties that do not need a loaded model. */
static void add_server(json_t *props, const spry_server *server, bool sleeping)
{
    size_t count = 0;
    spry_model_pool_each(server->pool, count_model, &count);
    json_t *more =
        json_pack("{s:s, s:s, s:I, s:b, s:I, s:b}", "build_info", spry_llama_build(server), "role",
                  count > 1 ? "router" : "model", "total_slots", (json_int_t)server->slots, "is_sleeping", sleeping,
                  "max_instances", (json_int_t)server->models_max, "models_autoload", !server->settings->no_autoload);
    json_object_update(props, more);
    json_decref(more);
}

/* Does not load a model that was unloaded. */
void spry_llama_props(spry_exchange *x)
{
    if (spry_completion_sleeps(x->server, NULL)) {
        json_t *props = json_pack("{s:s}", "model_alias", spry_server_first_model(x->server));
        add_server(props, x->server, true);
        spry_reply_json(x, SPRY_HTTP_OK, props);
        return;
    }
    const spry_pooled *model = spry_completion_model(x, NULL);
    if (!model)
        return;
    spry_engine_info info;
    spry_engine_describe(model->engine, &info);
    spry_view source;
    source.data = spry_engine_chat_template(model->engine, false, &source.size);
    spry_model_status status = {0};
    bool known = find_status(&status, x, model->name);
    spry_engine_kv_figures(model->engine, &status.kv);
    const spry_pool_info *pool = &status.pool;
    json_t *props = json_pack(
        "{s:s, s:s, s:o, s:{s:I, s:o}, s:I, s:s, s:s, s:o*, s:{s:b, s:b}, s:o}", "model_alias", model->name,
        "model_path", x->server->loopback && pool->path[0] ? pool->path : model->name, "chat_template",
        spry_view_json(source), "default_generation_settings", "n_ctx", (json_int_t)info.context, "params",
        default_settings(x, model), "n_params", (json_int_t)info.parameters, "architecture", info.architecture,
        "device", info.device, "together", known ? spry_watch_batch(&status) : NULL, "modalities", "vision",
        spry_engine_sees(model->engine), "audio", 0, "memory", spry_watch_memory(&status));
    add_server(props, x->server, false);
    spry_reply_json(x, SPRY_HTTP_OK, props);
    spry_model_pool_release_unused(x->server->pool, model);
}

/* The running requests of this key, one slot each, and slots that are idle. Slots that other keys use are shown as
 * busy, without their requests. */
void spry_llama_slots(spry_exchange *x)
{
    const spry_pooled *model = spry_completion_model(x, NULL);
    if (!model)
        return;
    spry_engine_info info;
    spry_engine_describe(model->engine, &info);
    spry_model_status status = {0};
    (void)find_status(&status, x, model->name);
    json_t *own = spry_watch_requests(x->server, x->key, 0), *slots = json_array(), *request;
    size_t i;
    json_array_foreach(own, i, request)
    {
        const char *state = json_string_value(json_object_get(request, "state"));
        if (state && strcmp(state, "queue") != 0)
            json_array_append(slots, request);
    }
    while (json_array_size(slots) < x->server->slots)
        json_array_append_new(slots, json_object());
    json_array_foreach(slots, i, request)
    {
        if (json_object_get(request, "id"))
            json_object_set(request, "request", json_object_get(request, "id"));
        json_object_set_new(request, "id", json_integer((json_int_t)i));
        json_object_set_new(request, "n_ctx", json_integer((json_int_t)info.context));
        json_object_set_new(request, "is_processing", json_boolean(i < status.running));
    }
    json_decref(own);
    spry_reply_json(x, SPRY_HTTP_OK, slots);
    spry_model_pool_release_unused(x->server->pool, model);
}

/* The first model's adapters. */
void spry_llama_adapters(spry_exchange *x)
{
    const spry_pooled *model = spry_completion_model(x, NULL);
    if (!model)
        return;
    json_t *list = json_array();
    spry_lora_info info;
    for (size_t i = 0; spry_engine_lora(model->engine, i, &info); i++)
        json_array_append_new(list, json_pack("{s:I, s:s, s:s, s:I, s:f}", "id", (json_int_t)i, "name", info.name,
                                              "path", x->server->loopback ? info.path : info.name, "rank",
                                              (json_int_t)info.rank, "scale", (double)info.scale));
    spry_reply_json(x, SPRY_HTTP_OK, list);
    spry_model_pool_release(x->server->pool, model);
}

/* Sets the adapters of requests that choose none: the body is a list as in their field "lora". */
void spry_llama_set_adapters(spry_exchange *x)
{
    spry_error error = {0};
    spry_fields fields = {.within = ""};
    json_t *list;
    spry_status status = spry_fields_parse(&list, x, &error);
    const spry_pooled *model = NULL;
    char *choice = NULL;
    if (status)
        spry_reply_failure(x, &error);
    else if (!json_is_array(list))
        spry_reply_error(x, SPRY_HTTP_BAD_REQUEST, NULL, "the body must be a list of adapters");
    else if ((choice = spry_fields_lora(&fields, "lora", list), spry_fields_fine(&fields, x)))
        model = spry_completion_model(x, NULL);
    if (model && spry_engine_set_lora(model->engine, choice, &error) != SPRY_OK)
        spry_reply_error(x, SPRY_HTTP_BAD_REQUEST, NULL, "%s", error.message);
    else if (model)
        spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:b}", "success", 1));
    if (model)
        spry_model_pool_release(x->server->pool, model);
    free(choice);
    json_decref(list);
}
