/* The life of a completion: made, served whole or as a stream, and gone. */
#include "server/request/completion.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "platform/clock.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "server/request/completion_internal.h"

enum { STREAM_BYTES_MAX = 64 << 20 };

/* ---- making one -------------------------------------------------------------------------------------------------- */

const spry_pooled *spry_completion_model(spry_exchange *x, const char *name)
{
    const spry_pooled *model = NULL;
    spry_error error;
    uint64_t began = spry_clock_ns();
    spry_status status = spry_model_pool_acquire(x->server->pool, &model, name && *name ? name : NULL, &error);
    x->load_ns = spry_clock_ns() - began;
    if (status != SPRY_OK)
        spry_completion_refuse_model(x, name, &error);
    return model;
}

void spry_completion_refuse_model(spry_exchange *x, const char *name, const spry_error *error)
{
    spry_status status = error->status;
    spry_http_log(x->server, "request=%llu model=%.100s error=\"%s\"", (unsigned long long)x->number, name ? name : "",
                  error->message);
    /* Sentences of the pool and the loader name files of this machine; clients are not told those. */
    if (status == SPRY_ERR_FILE || status == SPRY_ERR_INPUT)
        spry_reply_error(x, MHD_HTTP_NOT_FOUND, "model", "there is no model \"%.100s\"; GET /v1/models lists them",
                         name ? name : "");
    else if (status == SPRY_ERR_BUSY)
        spry_reply_failure(x, error);
    else if (status == SPRY_ERR_MEMORY)
        spry_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, "model", "the model \"%.100s\" does not fit into memory now",
                         name ? name : "");
    else
        spry_reply_error(x, MHD_HTTP_INTERNAL_SERVER_ERROR, "model",
                         "the model \"%.100s\" cannot be loaded; the server's log says why", name ? name : "");
}

spry_completion *spry_completion_create(spry_exchange *x, json_t *root, const char *model, const spry_answer_form *form,
                                        const char *id_prefix)
{
    spry_completion *c = calloc(1, sizeof *c);
    if (!c) {
        json_decref(root);
        spry_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the request");
        return NULL;
    }
    c->exchange = x;
    c->form = form;
    c->root = root;
    c->n_prompts = c->n_each = 1;
    c->created = (int64_t)time(NULL);
    snprintf(c->id, sizeof c->id, "%s%016" PRIx64, id_prefix, spry_entropy());
    spry_buffer_init(&c->out, STREAM_BYTES_MAX);
    spry_buffer_init(&c->taken, STREAM_BYTES_MAX);
    spry_request_default(&c->request);
    c->request.sampling.seed = spry_entropy() >> 32;
    c->request.speculation = x->server->settings->speculation;
    spry_costs_begin(&c->costs, x);
    spry_lap(&c->costs.laps, SPRY_PART_READ);
    c->model = spry_completion_model(x, model);
    spry_lap(&c->costs.laps, SPRY_PART_QUEUE);
    if (c->model) {
        spry_engine_sampling(c->model->engine, &c->request.sampling);
        return c;
    }
    spry_completion_destroy(c);
    return NULL;
}

static void destroy_choice(spry_choice *choice)
{
    spry_answer_parser_destroy(choice->parser);
    spry_buffer_deinit(&choice->said);
    spry_buffer_deinit(&choice->content);
    spry_buffer_deinit(&choice->reasoning);
    spry_buffer_deinit(&choice->arguments);
    json_decref(choice->calls);
    free(choice->tokens);
}

void spry_completion_destroy(spry_completion *c)
{
    if (c->choices) {
        spry_completion_settle(c);
        spry_completion_account(c);
    }
    spry_completion_finish(c);
    for (uint32_t i = 0; i < c->n; i++)
        destroy_choice(&c->choices[i]);
    if (c->has_channel)
        spry_channel_deinit(&c->channel);
    if (c->model)
        spry_model_pool_release(c->exchange->server->pool, c->model);
    spry_buffer_deinit(&c->out);
    spry_buffer_deinit(&c->taken);
    for (size_t i = 0; i < SPRY_ANSWERS_MAX; i++)
        spry_tokens_deinit(&c->prompts[i]);
    free(c->choices);
    free(c->spans);
    free(c->constraint_text);
    free(c->call_open);
    free(c->call_close);
    if (c->extra)
        c->free_extra(c->extra);
    json_decref(c->root);
    free(c);
}

/* ---- serving ----------------------------------------------------------------------------------------------------- */

static unsigned failure_status(const spry_completion *c)
{
    return c->exchange->late ? MHD_HTTP_GATEWAY_TIMEOUT : spry_reply_status(c->error.status);
}

/* The answers failed before anything was written. */
static void reply_failure(spry_completion *c)
{
    spry_reply_error(c->exchange, failure_status(c), NULL, "%s", c->error.message);
    spry_completion_destroy(c);
}

static void serve_whole(spry_completion *c)
{
    spry_pumped pumped;
    do
        pumped = spry_completion_pump(c);
    while (pumped == SPRY_PUMPED_MORE);
    if (pumped == SPRY_PUMPED_GONE) { /* nobody reads this, but the connection wants a reply */
        c->gone = true;
        spry_fail(&c->error, SPRY_ERR_CANCELLED, "the client has left");
    }
    if (c->error.status != SPRY_OK) {
        reply_failure(c);
        return;
    }
    spry_reply_json(c->exchange, MHD_HTTP_OK, c->form->whole(c));
    spry_completion_destroy(c);
}

/* An error once the head is written can only be the stream's last words. */
static void close_stream(spry_completion *c)
{
    c->ended = true;
    if (c->error.status != SPRY_OK) {
        spry_error_form form = c->exchange->route->errors;
        json_t *body = spry_reply_error_body(form, failure_status(c), NULL, c->error.message);
        (form == SPRY_ERRORS_OLLAMA ? spry_completion_line : spry_completion_event)(c, body);
    } else if (c->form->close) {
        c->form->close(c);
    }
}

/* Fills `out`. False when the connection is to be cut. */
static bool more_to_write(spry_completion *c)
{
    while (c->out.size == 0 && !c->ended) {
        spry_pumped pumped = spry_completion_pump(c);
        if (pumped == SPRY_PUMPED_GONE) {
            c->gone = true;
            return false;
        }
        if (pumped == SPRY_PUMPED_ALL)
            close_stream(c);
    }
    return !c->out.failed;
}

static ssize_t stream_more(void *self, char *out, size_t size)
{
    spry_completion *c = self;
    if (!more_to_write(c))
        return -1;
    size_t n = c->out.size < size ? c->out.size : size;
    if (n)
        memcpy(out, c->out.data, n);
    spry_buffer_consume(&c->out, n);
    return (ssize_t)n;
}

static void stream_end(void *self)
{
    spry_completion *c = self;
    c->gone = c->gone || !c->ended;
    spry_completion_destroy(c);
}

/* The first news decides whether the status is 200, so it is waited for. */
static void serve_stream(spry_completion *c)
{
    if (c->form->open)
        c->form->open(c);
    size_t opened = c->out.size;
    spry_pumped pumped = SPRY_PUMPED_MORE;
    while (pumped == SPRY_PUMPED_MORE && c->out.size == opened && c->error.status == SPRY_OK)
        pumped = spry_completion_pump(c);
    if (pumped == SPRY_PUMPED_GONE) {
        c->gone = true;
        spry_fail(&c->error, SPRY_ERR_CANCELLED, "the client has left");
    }
    if (c->error.status != SPRY_OK) {
        reply_failure(c);
        return;
    }
    if (pumped == SPRY_PUMPED_ALL)
        close_stream(c);
    spry_reply_stream(c->exchange, c->form->stream_type, (spry_reply_source){stream_more, stream_end, c});
}

void spry_completion_serve(spry_completion *c)
{
    spry_status status = spry_completion_submit(c, &c->error);
    if (status != SPRY_OK)
        reply_failure(c);
    else if (c->stream)
        serve_stream(c);
    else
        serve_whole(c);
}
