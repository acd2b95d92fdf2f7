/* Embeddings of texts in the interfaces of OpenAI and Ollama, and reranking. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/buffer.h"
#include "base/json.h"
#include "platform/clock.h"
#include "server/api/apis.h"
#include "server/api/ollama.h"
#include "server/fields/field_row.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "server/request/completion.h"
#include "server/request/prompt.h"
#include "server/server.h"

enum { SPRY_EMBEDDINGS_MAX = 64 }; /* jobs of a request at once */

typedef struct spry_embedder {
    spry_costs *costs; /* the request's */
    const spry_pooled *model;
    size_t width;    /* floats in one embedding */
    float *vector;   /* [width]: the last one taken */
    size_t n_tokens; /* tokens of all texts taken */
    spry_job *jobs[SPRY_EMBEDDINGS_MAX];
    size_t sizes[SPRY_EMBEDDINGS_MAX]; /* tokens of each text */
    size_t first, count, most;         /* ring of jobs: index of the oldest one, number of jobs, capacity */
} spry_embedder;

/* ---- embeddings of texts ----------------------------------------------------------------------------------------- */

/* Borrows `costs` and `model`. */
static spry_status embedder_init(spry_embedder *e, spry_costs *costs, const spry_pooled *model, spry_error *error)
{
    spry_engine_info info;
    spry_engine_describe(model->engine, &info);
    spry_jobs_figures figures;
    spry_engine_jobs_figures(model->engine, &figures);
    *e = (spry_embedder){.costs = costs, .model = model, .width = info.embedding, .most = 2 * figures.max_running};
    e->most = e->most < SPRY_EMBEDDINGS_MAX ? e->most : SPRY_EMBEDDINGS_MAX;
    e->vector = calloc(e->width, sizeof *e->vector);
    return e->vector ? SPRY_OK : spry_fail_memory(error, "an embedding", e->width * sizeof *e->vector);
}

/* Freeing a job waits for a step, so all are cancelled before. */
static void embedder_deinit(spry_embedder *e)
{
    for (size_t i = 0; i < e->count; i++)
        spry_job_cancel(e->jobs[(e->first + i) % SPRY_EMBEDDINGS_MAX]);
    for (size_t i = 0; i < e->count; i++)
        spry_job_free(e->jobs[(e->first + i) % SPRY_EMBEDDINGS_MAX]);
    free(e->vector);
    *e = (spry_embedder){.n_tokens = e->n_tokens};
}

/* ---- computing --------------------------------------------------------------------------------------------------- */

/* Appends the ids of a prompt of the model (NULL: none) and of a text. */
static spry_status embedder_encode(spry_tokens *ids, const spry_engine *engine, const char *prompt, spry_view text,
                                   spry_error *error)
{
    spry_buffer both;
    if (!prompt || !*prompt)
        return spry_prompt_encode(ids, engine, text, false, true, error);
    spry_buffer_init(&both, SIZE_MAX / 2);
    spry_buffer_text(&both, prompt);
    spry_status status = spry_buffer_append(&both, text.data, text.size)
                             ? spry_prompt_encode(ids, engine, spry_buffer_view(&both), false, true, error)
                             : spry_fail_memory(error, "a text", text.size);
    spry_buffer_deinit(&both);
    return status;
}

/* On the engine's thread, where looking at its pages waits for nothing. */
static void on_done(void *user, spry_job *job)
{
    const spry_embedder *e = user;
    (void)job;
    spry_registry_sample(&e->costs->exchange->server->registry, e->model->name, e->model->engine, 0, false);
}

/* Submits the embedding of a text; there is room (count < most). SPRY_ERR_BUSY: the model's queue is full. */
static spry_status embedder_add(spry_embedder *e, const spry_tokens *ids, spry_error *error)
{
    spry_job *job;
    spry_job_options options;
    size_t at = (e->first + e->count) % SPRY_EMBEDDINGS_MAX;
    spry_job_options_of(&options, e->costs->exchange);
    options.on_done = on_done;
    options.user = e;
    spry_costs_begin_share(e->costs);
    spry_status status = spry_job_create_embedding(&job, e->model->engine, ids->ids, ids->count, &options, error);
    if (status == SPRY_OK)
        status = spry_job_begin(job, e->costs, error);
    if (status != SPRY_OK) {
        spry_job_free(job);
        return status;
    }
    e->jobs[at] = job;
    e->sizes[at] = ids->count;
    e->count++;
    return SPRY_OK;
}

/* Waits for the oldest embedding, which becomes `vector`. SPRY_ERR_CANCELLED: the client has disconnected. */
static spry_status embedder_take(spry_embedder *e, spry_error *error)
{
    spry_job *job = e->jobs[e->first];
    spry_status status = spry_job_finish(job, e->costs, error);
    if (status == SPRY_OK) {
        memcpy(e->vector, spry_job_embedding(job), e->width * sizeof *e->vector);
        e->n_tokens += e->sizes[e->first];
    }
    spry_job_free(job);
    e->first = (e->first + 1) % SPRY_EMBEDDINGS_MAX;
    e->count--;
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The last embedding as a list of numbers, and as base64 of little-endian 32-bit floats. */
static json_t *embedder_list(const spry_embedder *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < e->width; i++)
        json_array_append_new(list, json_real((double)e->vector[i]));
    return list;
}

/* Byte `at` of the vector, little end first; 0 after its end. */
static uint32_t byte_of(const spry_embedder *e, size_t at)
{
    uint32_t bits = 0;
    if (at / 4 < e->width)
        memcpy(&bits, &e->vector[at / 4], sizeof bits);
    return bits >> 8 * (at % 4) & 0xFF;
}

static json_t *embedder_base64(const spry_embedder *e)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n_bytes = e->width * 4, size = (n_bytes + 2) / 3 * 4, missing = size / 4 * 3 - n_bytes;
    char *text = malloc(size);
    for (size_t i = 0; text && i < size / 4; i++) {
        uint32_t group = byte_of(e, 3 * i) << 16 | byte_of(e, 3 * i + 1) << 8 | byte_of(e, 3 * i + 2);
        for (size_t k = 0; k < 4; k++)
            text[4 * i + k] = digits[group >> (18 - 6 * k) & 63];
    }
    for (size_t i = 0; text && i < missing; i++)
        text[size - 1 - i] = '=';
    json_t *string = text ? json_stringn(text, size) : NULL;
    free(text);
    return string;
}

/* ---- /v1/embeddings and /api/embed ------------------------------------------------------------------------------- */

enum { TEXTS_MAX = 2048 }; /* maximum texts of a request */

typedef struct embed_call {
    spry_fields fields;
    json_t *root;
    const char *input;    /* the field that has the texts */
    const char *name;     /* name of the model; NULL: none was given */
    const char *prompt;   /* name of the model's prompt that precedes the texts; NULL: its default prompt */
    uint32_t dimensions;  /* wanted; 0: any number */
    unsigned char base64; /* 1: embeddings are base64 of floats */
    bool cut;             /* texts that are too long */
    bool has_keep;
    double keep_s;                                                 /* time that the model stays loaded, if has_keep */
    json_t *(*write)(const struct embed_call *call, size_t index); /* writes one embedding as JSON */
    json_t *(*reply)(const struct embed_call *call, json_t *embeddings); /* takes the list */
    spry_costs costs;
    spry_embedder embedder;
} embed_call;

#define TARGET embed_call

static const char *const encodings[] = {"float", "base64", NULL};

#define DIMENSIONS                                                                                                     \
    BOUND("dimensions", INTEGER, "512", "only the model's own size; others are refused",                               \
          TO_U32(dimensions, 1, INT32_MAX))
#define PROMPT_NAME                                                                                                    \
    BOUND("prompt_name", STRING, "\"\"", "which of the model's prompts precedes the texts; empty: none",               \
          TO_TEXT(prompt))

static const spry_field embeddings_fields[] = {
    BOUND("model", STRING, "\"Spry-Tales-29M\"", "absent: the first model", TO_TEXT(name)),
    HONOURED("input", STRING | LIST, "\"A text.\"", "a text, texts, token ids and texts, or lists of these"),
    BOUND("encoding_format", STRING, "\"float\"", "`float` or `base64`", TO_WORD(base64, encodings)),
    DIMENSIONS,
    PROMPT_NAME,
    NO_EFFECT("user", STRING, "\"u1\"", NO_CLIENTS),
};

const spry_field_table spry_fields_openai_embeddings = {
    .title = "POST /v1/embeddings", .within = "", .groups = {SPRY_FIELD_GROUP(embeddings_fields)}};

static const spry_field embed_fields[] = {
    BOUND("model", STRING, "\"Spry-Tales-29M\"", "with or without `:latest`", TO_TEXT(name)),
    HONOURED("input", STRING | LIST, "\"A text.\"", "a text or texts"),
    HONOURED("prompt", STRING, "\"A text.\"", "of `/api/embeddings`: one text"),
    BOUND("truncate", BOOL, "true", "cut texts beyond the context; `false`: they are errors", TO_BOOL(cut)),
    HONOURED("keep_alive", NUMBER | STRING, "\"5m\"", "time until an unused model is unloaded"),
    DIMENSIONS,
    PROMPT_NAME,
    NO_EFFECT("options", OBJECT, "{\"num_ctx\": 2048}", "nothing is sampled"),
    NO_EFFECT("stream", BOOL, "false", "the reply is one object"),
};

const spry_field_table spry_fields_ollama_embed = {
    .title = "POST /api/embed, /api/embeddings", .within = "", .groups = {SPRY_FIELD_GROUP(embed_fields)}};

#undef TARGET

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Token ids, with texts between them. */
static spry_status read_list(spry_tokens *ids, const spry_engine *engine, const json_t *list, spry_error *error)
{
    spry_status status = SPRY_OK;
    size_t i;
    json_t *item, *numbers = json_array();
    json_array_foreach(list, i, item)
    {
        if (!json_is_string(item)) {
            json_array_append(numbers, item);
            continue;
        }
        status = spry_prompt_ids(ids, engine, numbers, "ids", true, error);
        json_array_clear(numbers);
        if (status == SPRY_OK)
            status = spry_prompt_encode(ids, engine, (spry_view){json_string_value(item), json_string_length(item)},
                                        false, i == 0, error);
        if (status != SPRY_OK)
            break;
    }
    if (status == SPRY_OK)
        status = spry_prompt_ids(ids, engine, numbers, "ids", true, error);
    json_decref(numbers);
    return status;
}

static spry_status read_text(spry_tokens *ids, const embed_call *call, const json_t *text, spry_error *error)
{
    const spry_engine *engine = call->embedder.model->engine;
    if (json_is_array(text))
        return read_list(ids, engine, text, error);
    if (!json_is_string(text))
        return spry_fail(error, SPRY_ERR_INPUT, "must be a text or a list of token ids");
    bool none = call->prompt && !*call->prompt;
    const char *prompt = none ? "" : spry_engine_embedding_prompt(engine, call->prompt);
    if (call->prompt && !prompt)
        return spry_fail(error, SPRY_ERR_INPUT, "the model has no prompt named '%.60s'", call->prompt);
    spry_status status =
        embedder_encode(ids, engine, prompt, (spry_view){json_string_value(text), json_string_length(text)}, error);
    spry_engine_info info;
    spry_engine_describe(engine, &info);
    if (call->cut && ids->count > info.context)
        ids->count = info.context;
    if (status == SPRY_OK && ids->count > info.context)
        return spry_fail(error, SPRY_ERR_CONTEXT, "the input is too large: %zu tokens, but the context holds %zu",
                         ids->count, info.context);
    return status;
}

/* The texts as a list; a new reference. */
static json_t *list_texts(spry_fields *fields, const char *key)
{
    json_t *input = json_object_get(fields->object, key);
    bool one = json_is_string(input) || json_is_integer(json_array_get(input, 0));
    if (!one && !json_is_array(input))
        spry_fields_refuse(fields, key, "%s must be a text, a list of texts, token ids, or a list of those", key);
    else if (!one && json_array_size(input) > TEXTS_MAX)
        spry_fields_refuse(fields, key, "%s has %zu texts; send at most %d a request", key, json_array_size(input),
                           TEXTS_MAX);
    return one ? json_pack("[O]", input) : json_incref(input);
}

/* ---- computing and replying -------------------------------------------------------------------------------------- */

/* Adds the number of the text to the error; returns `status`. */
static spry_status of_text(const embed_call *call, size_t index, spry_status status, spry_error *error)
{
    char place[64];
    snprintf(place, sizeof place, "%s[%zu]", call->input, index);
    return status == SPRY_OK ? status : spry_fail_prefix(error, status, place);
}

static spry_status add_text(embed_call *call, const json_t *text, size_t index, spry_error *error)
{
    spry_tokens ids = {0};
    spry_status status = read_text(&ids, call, text, error);
    spry_lap(&call->costs.laps, SPRY_PART_TOKENIZE);
    if (status == SPRY_OK)
        status = embedder_add(&call->embedder, &ids, error);
    spry_tokens_deinit(&ids);
    return of_text(call, index, status, error);
}

static spry_status take_text(json_t *out, embed_call *call, size_t index, spry_error *error)
{
    spry_status status = embedder_take(&call->embedder, error);
    if (status == SPRY_OK && json_array_append_new(out, call->write(call, index)))
        status = spry_fail_memory(error, "the reply", call->embedder.width * sizeof(float));
    spry_lap(&call->costs.laps, SPRY_PART_WRITE);
    return of_text(call, index, status, error);
}

/* Texts are submitted as far ahead as they can be computed together, and taken in order; *done says how many were. */
static spry_status embed_all(json_t *out, size_t *done, embed_call *call, const json_t *texts, spry_error *error)
{
    const spry_embedder *e = &call->embedder;
    size_t n = json_array_size(texts), next = 0;
    spry_status status = SPRY_OK;
    bool full = false;
    while (status == SPRY_OK && *done < n) {
        bool adds = next < n && e->count < e->most && !full;
        status = adds ? add_text(call, json_array_get(texts, next), next, error) : take_text(out, call, *done, error);
        full = adds && status == SPRY_ERR_BUSY &&
               e->count; /* the queue is full of other requests: one job of this request must end first */
        if (full)
            status = SPRY_OK;
        else if (status == SPRY_OK)
            ++*(adds ? &next : done);
    }
    return status;
}

static void note(const embed_call *call, size_t n_texts, const spry_error *error)
{
    const spry_embedder *e = &call->embedder;
    const spry_exchange *x = call->costs.exchange;
    const spry_model_counts counts = {.requests = 1, .failed = error->status != SPRY_OK, .prompt_tokens = e->n_tokens};
    spry_registry_add_counts(&x->server->registry, e->model->name, &counts);
    spry_http_log(x->server, "request=%" PRIu64 " model=%.100s texts=%zu prompt=%zu total_ms=%.1f error=\"%s\"",
                  x->number, e->model->name, n_texts, e->n_tokens, (double)(spry_clock_ns() - x->began_ns) / 1e6,
                  error->status != SPRY_OK ? error->message : "");
}

static void embed_texts(embed_call *call, const json_t *texts)
{
    size_t done = 0;
    spry_error error = {.status = SPRY_OK};
    spry_exchange *x = call->costs.exchange;
    json_t *out = json_array();
    spry_status status = embed_all(out, &done, call, texts, &error);
    spry_costs_end_share(&call->costs);
    error.status = status; /* a full queue that was waited for is no error */
    note(call, done, &error);
    if (status == SPRY_OK) {
        spry_reply_json(x, SPRY_HTTP_OK, call->reply(call, out));
        return;
    }
    json_decref(out);
    spry_reply_error(x, x->late ? SPRY_HTTP_GATEWAY_TIMEOUT : spry_reply_status(error.status), call->input, "%s",
                     error.message);
}

/* A model's embeddings have the size they have. */
static bool fits_model(const embed_call *call)
{
    const spry_embedder *e = &call->embedder;
    if (!call->dimensions || (size_t)call->dimensions == e->width)
        return true;
    spry_reply_error(call->costs.exchange, SPRY_HTTP_BAD_REQUEST, "dimensions",
                     "dimensions is %" PRIu32 ", but embeddings of this model have %zu", call->dimensions, e->width);
    return false;
}

static void embed_with_model(embed_call *call, const char *name, const json_t *texts)
{
    spry_error error;
    spry_exchange *x = call->costs.exchange;
    const spry_pooled *model = spry_completion_model(x, name);
    spry_lap(&call->costs.laps, SPRY_PART_QUEUE);
    if (!model)
        return;
    if (call->has_keep)
        spry_completion_keep(x, model, call->keep_s);
    if (embedder_init(&call->embedder, &call->costs, model, &error) != SPRY_OK)
        spry_reply_failure(x, &error);
    else if (fits_model(call))
        embed_texts(call, texts);
    embedder_deinit(&call->embedder);
    spry_model_pool_release(x->server->pool, model);
}

/* Computes the embeddings and replies, after the fields are read. Takes the texts. */
static void serve(embed_call *call, spry_exchange *x, const char *model_name, json_t *texts)
{
    if (spry_fields_fine(&call->fields, x)) {
        spry_costs_begin(&call->costs, x);
        spry_lap(&call->costs.laps, SPRY_PART_READ);
        embed_with_model(call, model_name, texts);
        spry_costs_end(&call->costs, call->embedder.n_tokens, 0);
    }
    json_decref(texts);
    json_decref(call->root);
}

/* The timings of completions, without members about answers. */
static json_t *timings_of(const embed_call *call)
{
    double parts[SPRY_PART_COUNT];
    json_t *timings = json_pack("{s:f, s:I}", "load_ms", (double)call->costs.exchange->load_ns / 1e6, "prompt_tokens",
                                (json_int_t)call->embedder.n_tokens);
    spry_costs_parts(&call->costs, parts);
    spry_costs_tell(&call->costs, timings, parts, 0);
    return timings;
}

/* ---- OpenAI ------------------------------------------------------------------------------------------------------ */

static json_t *openai_entry(const embed_call *call, size_t index)
{
    json_t *vector = (call->base64 ? embedder_base64 : embedder_list)(&call->embedder);
    return json_pack("{s:s, s:I, s:o}", "object", "embedding", "index", (json_int_t)index, "embedding", vector);
}

static json_t *openai_reply(const embed_call *call, json_t *embeddings)
{
    json_int_t n = (json_int_t)call->embedder.n_tokens;
    return json_pack("{s:s, s:o, s:s, s:{s:I, s:I}, s:o}", "object", "list", "data", embeddings, "model",
                     call->embedder.model->name, "usage", "prompt_tokens", n, "total_tokens", n, "timings",
                     timings_of(call));
}

void spry_openai_embeddings(spry_exchange *x)
{
    embed_call call = {.input = "input", .write = openai_entry, .reply = openai_reply};
    if (!spry_fields_open(&call.fields, &call.root, x, &spry_fields_openai_embeddings))
        return;
    spry_fields_read(&call, &call.fields, &spry_fields_openai_embeddings);
    json_t *texts = list_texts(&call.fields, "input");
    if (json_is_array(texts) && !json_array_size(texts))
        spry_fields_refuse(&call.fields, "input", "input is empty");
    serve(&call, x, call.name, texts);
}

/* ---- Ollama ------------------------------------------------------------------------------------------------------ */

static json_t *ollama_entry(const embed_call *call, size_t index)
{
    (void)index;
    return embedder_list(&call->embedder);
}

static json_t *ollama_reply(const embed_call *call, json_t *embeddings)
{
    const spry_embedder *e = &call->embedder;
    const spry_exchange *x = call->costs.exchange;
    return json_pack("{s:s, s:o, s:I, s:I, s:I, s:o}", "model", e->model->name, "embeddings", embeddings,
                     "total_duration", (json_int_t)(spry_clock_ns() - x->began_ns), "load_duration",
                     (json_int_t)x->load_ns, "prompt_eval_count", (json_int_t)e->n_tokens, "timings", timings_of(call));
}

/* The older path has one text, and tells only its embedding. */
static json_t *ollama_reply_one(const embed_call *call, json_t *embeddings)
{
    json_t *first = json_array_get(embeddings, 0);
    json_t *reply = json_pack("{s:o}", "embedding", first ? json_incref(first) : json_array());
    (void)call;
    json_decref(embeddings);
    return reply;
}

/* Without a text a request only loads the model. */
static json_t *ollama_texts(spry_fields *fields, const char *key)
{
    const json_t *input = spry_fields_get(fields, key);
    bool nothing = !input || (json_is_string(input) && !json_string_length(input));
    return nothing ? json_array() : list_texts(fields, key);
}

static void serve_ollama(embed_call *call, spry_exchange *x)
{
    char name[SPRY_OLLAMA_NAME];
    if (!spry_fields_open(&call->fields, &call->root, x, &spry_fields_ollama_embed))
        return;
    call->cut = true;
    spry_fields_read(call, &call->fields, &spry_fields_ollama_embed);
    if (!call->name || !*call->name)
        spry_fields_refuse(&call->fields, "model", "model is missing");
    call->has_keep = spry_ollama_keep_alive(&call->fields, &call->keep_s);
    json_t *texts = ollama_texts(&call->fields, call->input);
    serve(call, x, spry_ollama_model(name, call->name ? call->name : ""), texts);
}

void spry_ollama_embed(spry_exchange *x)
{
    embed_call call = {.input = "input", .write = ollama_entry, .reply = ollama_reply};
    serve_ollama(&call, x);
}

void spry_ollama_embed_one(spry_exchange *x)
{
    embed_call call = {.input = "prompt", .write = ollama_entry, .reply = ollama_reply_one};
    serve_ollama(&call, x);
}

/* ---- POST /rerank ------------------------------------------------------------------------------------------------ */

/* POST /rerank: documents in the order in which they fit a query, by their embeddings, by a cross-encoder or by a model
 * that says yes or no. */

enum { DOCUMENTS_MAX = 2048 };

typedef struct ranked {
    size_t index;
    double score;
} ranked;

typedef struct rerank_call {
    spry_fields fields;
    json_t *root;
    const json_t *documents, *texts; /* two names of the same field */
    const char *name, *query, *instruction, *method;
    bool with_text;
    uint32_t top_n;
    spry_costs costs;
    const spry_pooled *model;
    size_t n_tokens;
    ranked *ranking; /* one entry for each document */
} rerank_call;

#define TARGET rerank_call

static const char *const methods[] = {"embedding", "yes_no", "pair", NULL};

static const spry_field rerank_fields[] = {
    BOUND("model", STRING, "\"Spry-Tales-29M\"", "absent: the first model", TO_TEXT(name)),
    BOUND("query", STRING, "\"A fox\"", "the text that documents are compared with", TO_TEXT(query)),
    BOUND("documents", LIST, "[\"A fox.\", \"A hen.\"]", "texts, or objects with a `text`", TO_JSON(documents)),
    BOUND("texts", LIST, "[\"A fox.\", \"A hen.\"]", "TEI's name of `documents`; the reply is a list", TO_JSON(texts)),
    BOUND("top_n", INTEGER, "1", "number of documents in the reply, the best first", TO_U32(top_n, 1, INT32_MAX)),
    BOUND("return_documents", BOOL, "true", "the reply has the texts", TO_BOOL(with_text)),
    BOUND("return_text", BOOL, "true", "TEI's name of `return_documents`", TO_BOOL(with_text)),
    BOUND(
        "method", STRING, "\"embedding\"",
        "`embedding`: the cosine of embeddings; `yes_no`: the probability of the model's yes; `pair`: what a "
        "cross-encoder gives for query and document; absent: `pair` for cross-encoders, else `yes_no` for models with "
        "`rerank` in their name",
        TO_TEXT(method), .words = methods),
    BOUND("instruction", STRING, "\"Find tales.\"", "of `yes_no`: the task", TO_TEXT(instruction)),
    NO_EFFECT("truncate", BOOL, "false", "texts beyond the context are errors"),
    NO_EFFECT("user", STRING, "\"u1\"", NO_CLIENTS),
};

const spry_field_table spry_fields_rerank = {.title = "POST /rerank, /reranking, /v1/rerank, /v1/reranking",
                                             .within = "",
                                             .groups = {SPRY_FIELD_GROUP(rerank_fields)}};

/* NULL: it has none. */
static const char *text_of(const json_t *document)
{
    const json_t *text = json_is_object(document) ? json_object_get(document, "text") : document;
    return json_string_value(text);
}

/* ---- by embeddings ----------------------------------------------------------------------------------------------- */

/* Adds the ids of a text after the model's prompt of that name, if it has one. */
static spry_status embed(spry_embedder *embedder, const char *text, const char *prompt_name, spry_error *error)
{
    spry_tokens ids = {0};
    const spry_engine *engine = embedder->model->engine;
    const char *prompt = spry_engine_embedding_prompt(engine, prompt_name);
    prompt = prompt ? prompt : spry_engine_embedding_prompt(engine, NULL);
    spry_status status = embedder_encode(&ids, engine, prompt, spry_view_of(text), error);
    if (status == SPRY_OK)
        status = embedder_add(embedder, &ids, error);
    if (status == SPRY_OK)
        status = embedder_take(embedder, error);
    spry_tokens_deinit(&ids);
    return status;
}

/* Models need not give embeddings of length 1. */
static double cosine(const float *a, const float *b, size_t n)
{
    double product = 0, first = 0, second = 0;
    for (size_t i = 0; i < n; i++) {
        product += (double)a[i] * (double)b[i];
        first += (double)a[i] * (double)a[i];
        second += (double)b[i] * (double)b[i];
    }
    return first > 0 && second > 0 ? product / sqrt(first * second) : 0;
}

static spry_status rank_by_embedding(rerank_call *call, spry_error *error)
{
    spry_embedder embedder;
    spry_status status = embedder_init(&embedder, &call->costs, call->model, error);
    float *query = status == SPRY_OK ? calloc(embedder.width, sizeof *query) : NULL;
    if (status == SPRY_OK && !query)
        status = spry_fail_memory(error, "an embedding", 0);
    if (status == SPRY_OK)
        status = embed(&embedder, call->query, "query", error);
    if (status == SPRY_OK)
        memcpy(query, embedder.vector, embedder.width * sizeof *query);
    size_t i;
    const json_t *document;
    json_array_foreach(call->documents, i, document)
    {
        if (status == SPRY_OK)
            status = embed(&embedder, text_of(document), "document", error);
        call->ranking[i] = (ranked){i, status == SPRY_OK ? cosine(query, embedder.vector, embedder.width) : 0};
    }
    call->n_tokens = embedder.n_tokens;
    free(query);
    embedder_deinit(&embedder);
    return status;
}

/* ---- by cross-encoders ------------------------------------------------------------------------------------------- */

static spry_status embed_pair(spry_embedder *embedder, const char *query, const char *document, spry_error *error)
{
    const spry_engine *engine = embedder->model->engine;
    spry_tokens ids = {0};
    spry_status status = spry_engine_tokenize_pair(engine, NULL, 0, &ids.count, query, document, error);
    if (status == SPRY_OK && !(ids.ids = calloc(ids.count + 1, sizeof *ids.ids)))
        status = spry_fail_memory(error, "token ids", ids.count * sizeof *ids.ids);
    if (status == SPRY_OK)
        status = spry_engine_tokenize_pair(engine, ids.ids, ids.count, &ids.count, query, document, error);
    if (status == SPRY_OK)
        status = embedder_add(embedder, &ids, error);
    if (status == SPRY_OK)
        status = embedder_take(embedder, error);
    free(ids.ids);
    return status;
}

static spry_status rank_by_pair(rerank_call *call, spry_error *error)
{
    spry_embedder embedder;
    if (!spry_engine_ranks(call->model->engine))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "this model is not a cross-encoder: take another method");
    spry_status status = embedder_init(&embedder, &call->costs, call->model, error);
    size_t i;
    const json_t *document;
    json_array_foreach(call->documents, i, document)
    {
        if (status == SPRY_OK)
            status = embed_pair(&embedder, call->query, text_of(document), error);
        call->ranking[i] = (ranked){i, status == SPRY_OK ? 1 / (1 + exp(-(double)embedder.vector[0])) : 0};
    }
    call->n_tokens = embedder.n_tokens;
    embedder_deinit(&embedder);
    return status;
}

/* ---- by yes and no ----------------------------------------------------------------------------------------------- */

typedef struct verdict {
    int32_t yes, no; /* tokens */
    double score;
} verdict;

static bool on_row(void *user, size_t index, const float *logits)
{
    verdict *v = user;
    (void)index;
    v->score = 1 / (1 + exp((double)logits[v->no] - (double)logits[v->yes]));
    return true;
}

static bool one_token(int32_t *id, const spry_engine *engine, const char *text)
{
    size_t count = 0;
    return spry_engine_tokenize_part(engine, id, 1, &count, text, strlen(text), false, NULL) == SPRY_OK && count == 1;
}

/* The conversation that asks whether a document fits. */
static char *question(const rerank_call *call, const char *document)
{
    json_t *conversation = json_pack(
        "{s:[{s:s, s:s}, {s:s, s:o}], s:{s:b}}", "messages", "role", "system", "content",
        "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the "
        "answer can only be \"yes\" or \"no\".",
        "role", "user", "content",
        json_sprintf("<Instruct>: %s\n<Query>: %s\n<Document>: %s", call->instruction, call->query, document),
        "chat_template_kwargs", "enable_thinking", 0);
    char *text = conversation ? spry_json_text(conversation, JSON_COMPACT) : NULL;
    json_decref(conversation);
    return text;
}

static spry_status judge(rerank_call *call, verdict *v, const char *document, spry_error *error)
{
    spry_chat_prompt prompt = {0};
    spry_job *job = NULL;
    spry_job_options options;
    spry_evaluation evaluation;
    char *json = question(call, document);
    spry_status status = json ? spry_engine_chat_prompt(call->model->engine, &prompt, json, strlen(json), error)
                              : spry_fail_memory(error, "the conversation", 0);
    spry_job_options_of(&options, call->costs.exchange);
    spry_evaluation_default(&evaluation);
    evaluation.ids = prompt.ids;
    evaluation.count = prompt.count;
    evaluation.first = prompt.count ? prompt.count - 1 : 0;
    evaluation.on_row = on_row;
    evaluation.user = v;
    spry_costs_begin_share(&call->costs);
    if (status == SPRY_OK)
        status = spry_job_create_evaluation(&job, call->model->engine, &evaluation, &options, error);
    if (status == SPRY_OK)
        status = spry_job_begin(job, &call->costs, error);
    if (status == SPRY_OK)
        status = spry_job_finish(job, &call->costs, error);
    call->n_tokens += prompt.count;
    spry_job_free(job);
    spry_chat_prompt_deinit(&prompt);
    free(json);
    return status;
}

static spry_status rank_by_verdict(rerank_call *call, spry_error *error)
{
    verdict v;
    spry_status status = SPRY_OK;
    size_t i;
    const json_t *document;
    if (!one_token(&v.yes, call->model->engine, "yes") || !one_token(&v.no, call->model->engine, "no"))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "this model has no single tokens for \"yes\" and \"no\"");
    json_array_foreach(call->documents, i, document)
    {
        v.score = 0;
        if (status == SPRY_OK)
            status = judge(call, &v, text_of(document), error);
        call->ranking[i] = (ranked){i, v.score};
    }
    return status;
}

/* ---- the reply --------------------------------------------------------------------------------------------------- */

static int better(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

static json_t *result_json(const rerank_call *call, const ranked *r)
{
    const char *text = text_of(json_array_get(call->documents, r->index));
    json_t *result =
        json_pack("{s:I, s:f}", "index", (json_int_t)r->index, call->texts ? "score" : "relevance_score", r->score);
    if (call->with_text)
        json_object_set_new(result, call->texts ? "text" : "document",
                            call->texts ? json_string(text) : json_pack("{s:s}", "text", text));
    return result;
}

static json_t *reply_json(rerank_call *call)
{
    size_t count = json_array_size(call->documents);
    json_t *results = json_array();
    qsort(call->ranking, count, sizeof *call->ranking, better);
    for (size_t i = 0; i < count && i < call->top_n; i++)
        json_array_append_new(results, result_json(call, &call->ranking[i]));
    if (call->texts)
        return results;
    json_int_t n = (json_int_t)call->n_tokens;
    return json_pack("{s:s, s:s, s:{s:I, s:I}, s:o}", "model", call->model->name, "object", "list", "usage",
                     "prompt_tokens", n, "total_tokens", n, "results", results);
}

static void rank(rerank_call *call, spry_exchange *x)
{
    spry_error error = {.status = SPRY_OK};
    call->model = spry_completion_model(x, call->name);
    if (!call->model)
        return;
    const char *method = call->method                              ? call->method
                         : spry_engine_ranks(call->model->engine)  ? "pair"
                         : strcasestr(call->model->name, "rerank") ? "yes_no"
                                                                   : "embedding";
    spry_status status = !strcmp(method, "pair")     ? rank_by_pair(call, &error)
                         : !strcmp(method, "yes_no") ? rank_by_verdict(call, &error)
                                                     : rank_by_embedding(call, &error);
    spry_costs_end_share(&call->costs);
    const spry_model_counts counts = {.requests = 1, .failed = status != SPRY_OK, .prompt_tokens = call->n_tokens};
    spry_registry_add_counts(&x->server->registry, call->model->name, &counts);
    if (status == SPRY_OK)
        spry_reply_json(x, SPRY_HTTP_OK, reply_json(call));
    else
        spry_reply_failure(x, &error);
    spry_model_pool_release(x->server->pool, call->model);
}

static void read_documents(rerank_call *call)
{
    spry_fields *fields = &call->fields;
    size_t i;
    const json_t *document;
    const char *name = call->texts ? "texts" : "documents";
    call->documents = call->texts ? call->texts : call->documents;
    if (!json_array_size(call->documents) || json_array_size(call->documents) > DOCUMENTS_MAX)
        spry_fields_refuse(fields, name, "%s must be a list of 1 to %d texts", name, DOCUMENTS_MAX);
    json_array_foreach(call->documents, i, document)
    {
        if (!text_of(document))
            spry_fields_refuse(fields, name, "%s[%zu] must be a text", name, i);
    }
}

void spry_llama_rerank(spry_exchange *x)
{
    rerank_call call = {.top_n = DOCUMENTS_MAX,
                        .instruction = "Given a web search query, retrieve relevant passages that answer the query"};
    spry_fields *fields = &call.fields;
    if (!spry_fields_open(fields, &call.root, x, &spry_fields_rerank))
        return;
    spry_fields_read(&call, fields, &spry_fields_rerank);
    if (!call.query)
        spry_fields_refuse(fields, "query", "query is missing");
    read_documents(&call);
    if (spry_fields_fine(fields, x)) {
        call.ranking = calloc(json_array_size(call.documents), sizeof *call.ranking);
        spry_costs_begin(&call.costs, x);
        if (call.ranking)
            rank(&call, x);
        else
            spry_reply_error(x, SPRY_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the documents");
        spry_costs_end(&call.costs, call.n_tokens, 0);
        free(call.ranking);
    }
    json_decref(call.root);
}
