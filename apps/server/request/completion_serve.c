/* The life of a completion: its phases in order. A phase that fails gives the reply. */
#include "server/request/completion.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "platform/clock.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "server/models/derived_model.h"
#include "server/request/answer_spans.h"
#include "server/request/completion_internal.h"
#include "server/request/model_name.h"
#include "server/request/prompt.h"
#include "server/server_setup.h"

enum { STREAM_BYTES_MAX = 64 << 20 };

/* ---- models ------------------------------------------------------------------------------------------------------ */

typedef struct state_search {
    const char *name;
    spry_pool_state state;
    bool found;
} state_search;

static bool find_state(void *context, const spry_pool_info *info)
{
    state_search *s = context;
    s->found = strcmp(info->name, s->name) == 0;
    s->state = info->state;
    return !s->found;
}

bool spry_completion_sleeps(const spry_server *server, const char *name)
{
    state_search s = {.name = name ? name : spry_server_first_model(server)};
    spry_model_pool_each(server->pool, find_state, &s);
    return s.found && s.state == SPRY_POOL_ON_DISK;
}

const spry_pooled *spry_completion_model(spry_exchange *x, const char *name)
{
    const spry_pooled *model = NULL;
    spry_error error;
    uint64_t began = spry_clock_ns();
    char known[SPRY_MODEL_NAME];
    const char *own = spry_model_name(known, x->server, name);
    if (x->server->settings->no_autoload && spry_completion_sleeps(x->server, own)) {
        spry_reply_error(x, MHD_HTTP_BAD_REQUEST, "model", "the model is not loaded; POST /models/load loads it");
        return NULL;
    }
    spry_status status = spry_model_pool_acquire(x->server->pool, &model, own, &error);
    x->load_ns = spry_clock_ns() - began;
    if (status != SPRY_OK)
        spry_completion_refuse_model(x, name, &error);
    else
        snprintf(x->audit.model, sizeof x->audit.model, "%s", model->name);
    return model;
}

void spry_completion_refuse_model(spry_exchange *x, const char *name, const spry_error *error)
{
    spry_status status = error->status;
    spry_http_log(x->server, "request=%llu model=%.100s error=\"%s\"", (unsigned long long)x->number, name ? name : "",
                  error->message);
    /* Messages of the pool and the loader name files of this machine, which clients must not learn. */
    if (status == SPRY_ERR_FILE || status == SPRY_ERR_INPUT)
        spry_reply_error(x, MHD_HTTP_NOT_FOUND, "model", "there is no model \"%.100s\"; GET /v1/models lists them",
                         name ? name : "");
    else if (status == SPRY_ERR_BUSY)
        spry_reply_failure(x, error);
    else if (status == SPRY_ERR_MEMORY)
        spry_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, "model",
                         "the model \"%.100s\" does not fit into memory at present", name ? name : "");
    else
        spry_reply_error(x, MHD_HTTP_INTERNAL_SERVER_ERROR, "model",
                         "the model \"%.100s\" cannot be loaded; the server's log says why", name ? name : "");
}

/* ---- the phases -------------------------------------------------------------------------------------------------- */

static spry_completion *create(spry_exchange *x, json_t *root, const spry_completion_interface *interface)
{
    spry_completion *c = calloc(1, sizeof *c);
    if (!c) {
        json_decref(root);
        spry_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the request");
        return NULL;
    }
    c->exchange = x;
    c->interface = interface;
    c->root = root;
    c->prompts.count = 1;
    c->created = (int64_t)time(NULL);
    snprintf(c->id, sizeof c->id, "%s%016" PRIx64, interface->id_prefix, spry_entropy());
    spry_buffer_init(&c->reply.out, STREAM_BYTES_MAX);
    spry_buffer_init(&c->jobs.received, STREAM_BYTES_MAX);
    spry_completion_options_init(&c->options, x->server->settings->speculation);
    spry_costs_begin(&c->costs, x);
    return c;
}

static bool read_options(spry_completion *c, spry_fields *fields)
{
    uint32_t most = c->exchange->server->settings->max_tokens, *wanted = &c->options.request.max_tokens;
    c->interface->read(&c->options, fields);
    spry_fields_own(&c->options, fields, c->exchange->server->settings);
    if (most && (!*wanted || *wanted > most))
        *wanted = most;
    spry_lap(&c->costs.laps, SPRY_PART_READ);
    return spry_fields_fine(fields, c->exchange);
}

/* The fields were read before, so that a wrong one loads no model, and are read again over the sampling settings that
 * the model recommends. */
static bool load_model(spry_completion *c, spry_fields *fields, const char *name)
{
    spry_completion_options *o = &c->options;
    c->model = spry_completion_model(c->exchange, name);
    spry_lap(&c->costs.laps, SPRY_PART_QUEUE);
    if (!c->model)
        return false;
    spry_completion_options_deinit(o);
    spry_completion_options_init(o, c->exchange->server->settings->speculation);
    o->engine = c->model->engine;
    spry_engine_sampling(c->model->engine, &o->request.sampling);
    bool fine = read_options(c, fields);
    if (fine && o->has_keep_alive)
        spry_model_pool_keep(c->exchange->server->pool, c->model, o->keep_alive_s);
    return fine;
}

static bool make_prompts(spry_completion *c, spry_fields *fields)
{
    spry_error error;
    spry_status status = c->interface->make_prompts(c, fields, &error);
    spry_lap(&c->costs.laps, SPRY_PART_TOKENIZE);
    if (!spry_fields_fine(fields, c->exchange))
        return false;
    if (status == SPRY_OK)
        status = spry_prompt_check(c, &error);
    if (status != SPRY_OK)
        spry_reply_failure(c->exchange, &error);
    return status == SPRY_OK;
}

/* False when a stream with this id exists, and a reply was given. */
static bool keep_stream(spry_completion *c)
{
    spry_exchange *x = c->exchange;
    if (!c->options.stream || !c->options.stream_id || !x->connection)
        return true;
    c->reply.kept =
        spry_kept_streams_open(&x->server->streams, c->options.stream_id, x->key, c->interface->stream_type);
    if (!c->reply.kept)
        spry_reply_error(x, MHD_HTTP_CONFLICT, "stream_id", "stream_id is in use, or too many streams are kept");
    return c->reply.kept != NULL;
}

/* The model that computes; where `name` is a derived model, what that sets is added to the body. */
static const char *use_derived(spry_completion *c, const char *name)
{
    bool ollama = c->exchange->route->errors == SPRY_ERRORS_OLLAMA;
    c->derived = spry_derived_load(c->exchange->server, name);
    if (c->derived)
        spry_derived_apply(c->derived, c->root, ollama);
    spry_derived_apply(c->exchange->server->defaults, c->root, ollama);
    if (!c->derived)
        return name;
    const json_t *source = json_object_get(c->derived, "template");
    c->template = json_string_length(source) ? source : NULL;
    return json_string_value(json_object_get(c->derived, "from"));
}

void spry_completion_serve(spry_exchange *x, json_t *root, spry_fields *fields, const char *model,
                           const spry_completion_interface *interface)
{
    spry_completion *c = create(x, root, interface);
    if (!c)
        return;
    model = use_derived(c, model);
    if (!read_options(c, fields) || !load_model(c, fields, model) || !make_prompts(c, fields) || !keep_stream(c))
        spry_completion_destroy(c);
    else if (spry_completion_submit(c, &c->jobs.error) != SPRY_OK)
        spry_completion_reply_failure(c);
    else
        spry_completion_reply(c);
}

/* ---- done -------------------------------------------------------------------------------------------------------- */

static void deinit_choice(spry_choice *choice)
{
    spry_job_free(choice->job.handle);
    spry_chat_parser_destroy(choice->parser);
    spry_buffer_deinit(&choice->raw_text);
    spry_buffer_deinit(&choice->content);
    spry_buffer_deinit(&choice->reasoning);
    spry_buffer_deinit(&choice->arguments);
    json_decref(choice->calls);
    free(choice->tokens);
}

static void deinit_prompts(spry_completion *c)
{
    for (size_t i = 0; i < SPRY_ANSWERS_MAX; i++)
        spry_tokens_deinit(&c->prompts.ids[i]);
    free(c->prompts.spans);
    if (c->prompts.extra)
        c->prompts.free_extra(c->prompts.extra);
}

/* Answers that are complete become fragments, as they were generated where nothing was parsed from them. */
static void keep_as_spans(const spry_completion *c)
{
    spry_server *server = c->exchange->server;
    for (uint32_t i = 0; i < c->n_choices && c->options.answer_span && server->spans; i++) {
        const spry_choice *choice = &c->choices[i];
        bool whole = choice->content.size && (choice->reasoning.size || choice->n_calls);
        spry_view text = spry_buffer_view(whole ? &choice->content : &choice->raw_text);
        if (choice->progress.done_ns && choice->job.result.finish != SPRY_FINISH_CANCELLED && text.size)
            spry_answer_spans_add(server->spans, c->model, c->exchange->key, text);
    }
}

void spry_completion_destroy(spry_completion *c)
{
    if (c->choices) {
        spry_completion_cancel_and_wait(c);
        spry_completion_record(c);
        keep_as_spans(c);
    }
    spry_completion_costs_end(c);
    spry_completion_release_stream(c);
    for (uint32_t i = 0; i < c->n_choices; i++)
        deinit_choice(&c->choices[i]);
    free(c->choices);
    if (c->jobs.has_channel)
        spry_channel_deinit(&c->jobs.channel);
    spry_buffer_deinit(&c->jobs.received);
    spry_buffer_deinit(&c->reply.out);
    deinit_prompts(c);
    if (c->model)
        spry_model_pool_release(c->exchange->server->pool, c->model);
    spry_completion_options_deinit(&c->options);
    json_decref(c->root);
    json_decref(c->derived);
    free(c);
}
