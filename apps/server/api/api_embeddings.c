/* POST /v1/embeddings, and Ollama's /api/embed and /api/embeddings. */
#include <inttypes.h>
#include <stdio.h>

#include "platform/clock.h"
#include "server/api/apis.h"
#include "server/api/ollama_json.h"
#include "server/fields/field_table.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "server/request/embedding.h"
#include "server/request/prompt.h"

enum { TEXTS_MAX = 2048 }; /* of a request */

typedef struct embed_call {
    spry_fields fields;
    json_t *root;
    const char *input;  /* the field that has the texts */
    const char *prompt; /* name of what the model puts before texts; NULL: what it puts before all */
    int64_t dimensions; /* asked for; 0: as many as there are */
    bool cut;           /* texts that are too long */
    bool base64;
    bool has_keep;
    double keep_s;                                                       /* that the model stays, if has_keep */
    json_t *(*write)(const struct embed_call *call, size_t index);       /* one embedding */
    json_t *(*reply)(const struct embed_call *call, json_t *embeddings); /* takes the list of them */
    spry_costs costs;
    spry_embedder embedder;
} embed_call;

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
    spry_status status = spry_embedder_encode(ids, engine, prompt,
                                              (spry_view){json_string_value(text), json_string_length(text)}, error);
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

/* `status`, with the text it is about. */
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
        status = spry_embedder_add(&call->embedder, &ids, error);
    spry_tokens_deinit(&ids);
    return of_text(call, index, status, error);
}

static spry_status take_text(json_t *out, embed_call *call, size_t index, spry_error *error)
{
    spry_status status = spry_embedder_take(&call->embedder, error);
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
        full = adds && status == SPRY_ERR_BUSY && e->count; /* of others' requests: one of ours must end first */
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
        spry_reply_json(x, MHD_HTTP_OK, call->reply(call, out));
        return;
    }
    json_decref(out);
    spry_reply_error(x, x->late ? MHD_HTTP_GATEWAY_TIMEOUT : spry_reply_status(error.status), call->input, "%s",
                     error.message);
}

/* A model's embeddings have the size they have. */
static bool fits_model(const embed_call *call)
{
    const spry_embedder *e = &call->embedder;
    if (!call->dimensions || (size_t)call->dimensions == e->width)
        return true;
    spry_reply_error(call->costs.exchange, MHD_HTTP_BAD_REQUEST, "dimensions",
                     "dimensions is %" PRId64 ", but embeddings of this model have %zu", call->dimensions, e->width);
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
        spry_model_pool_keep(x->server->pool, model, call->keep_s);
    if (spry_embedder_init(&call->embedder, &call->costs, model, &error) != SPRY_OK)
        spry_reply_failure(x, &error);
    else if (fits_model(call))
        embed_texts(call, texts);
    spry_embedder_deinit(&call->embedder);
    spry_model_pool_release(x->server->pool, model);
}

/* What follows once the fields are read. Takes the texts. */
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

/* As completions have them, without what only answers have. */
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
    json_t *vector = (call->base64 ? spry_embedder_base64 : spry_embedder_list)(&call->embedder);
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
    if (!spry_fields_open(&call.fields, &call.root, x))
        return;
    spry_fields_check(&call.fields, &spry_fields_openai_embeddings);
    const char *model = spry_fields_string(&call.fields, "model", NULL);
    const char *format = spry_fields_string(&call.fields, "encoding_format", "float");
    call.base64 = strcmp(format, "base64") == 0;
    if (!call.base64 && strcmp(format, "float") != 0)
        spry_fields_refuse(&call.fields, "encoding_format", "encoding_format must be \"float\" or \"base64\"");
    call.dimensions = spry_fields_integer(&call.fields, "dimensions", 0, 1, INT32_MAX);
    call.prompt = spry_fields_string(&call.fields, "prompt_name", NULL);
    json_t *texts = list_texts(&call.fields, "input");
    if (json_is_array(texts) && !json_array_size(texts))
        spry_fields_refuse(&call.fields, "input", "input is empty");
    serve(&call, x, model, texts);
}

/* ---- Ollama ------------------------------------------------------------------------------------------------------ */

static json_t *ollama_entry(const embed_call *call, size_t index)
{
    (void)index;
    return spry_embedder_list(&call->embedder);
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
    if (!spry_fields_open(&call->fields, &call->root, x))
        return;
    spry_fields_check(&call->fields, &spry_fields_ollama_embed);
    const char *model = spry_fields_string(&call->fields, "model", "");
    if (!*model)
        spry_fields_refuse(&call->fields, "model", "model is missing");
    call->cut = spry_fields_bool(&call->fields, "truncate", true);
    call->dimensions = spry_fields_integer(&call->fields, "dimensions", 0, 1, INT32_MAX);
    call->prompt = spry_fields_string(&call->fields, "prompt_name", NULL);
    call->has_keep = spry_ollama_keep_alive(&call->fields, &call->keep_s);
    json_t *texts = ollama_texts(&call->fields, call->input);
    serve(call, x, spry_ollama_model(name, model), texts);
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
