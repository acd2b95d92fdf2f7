/* Draws on the GPU: one copy uploads settings and lists, one copy returns the results. */
#include <math.h>
#include <string.h>

#include "device/cuda/cuda_state.h"

/* ---- upload ------------------------------------------------------------------------------------------------------ */

/* The part of the history that penalties use. */
static void window_history(const int32_t **history, size_t *n, const spry_draw *draw)
{
    const spry_sampling *s = draw->settings;
    bool used = s->repeat_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
    *n = used ? draw->n_history : 0;
    *history = draw->history;
    if (s->penalty_window && s->penalty_window < *n) {
        *history += *n - s->penalty_window;
        *n = s->penalty_window;
    }
}

static size_t mask_bytes(const spry_cuda_device *d)
{
    return (d->config->n_vocab + 31) / 32 * sizeof(uint32_t);
}

/* Bytes of a draw's lists. */
static size_t list_bytes(const spry_cuda_device *d, const spry_draw *draw)
{
    const int32_t *history;
    size_t n_history;
    window_history(&history, &n_history, draw);
    return n_history * sizeof *history + draw->settings->n_bias * sizeof(spry_logit_bias) +
           (draw->mask ? mask_bytes(d) : 0);
}

static spry_status make_room(spry_cuda_device *d, size_t bytes, size_t n, spry_error *error)
{
    spry_cuda_draws *r = &d->draws[d->newest];
    spry_cuda_context *c = &d->context;
    static const char doing[] = "allocating room for draws";
    void *host = r->host, *results = r->results;
    spry_status status = SPRY_OK;
    if (bytes > r->bytes && !(status = spry_cuda_grow(c, &host, &r->memory, 2 * bytes, doing, error)))
        r->bytes = 2 * bytes;
    if (!status && n > r->capacity &&
        !(status = spry_cuda_grow(c, &results, &r->results_memory, 2 * n * sizeof *r->results, doing, error)))
        r->capacity = 2 * n;
    r->host = host;
    r->results = results;
    return status ? status : spry_cuda_fault(c, doing, error);
}

/* Appends a list; returns its offset. */
static size_t put(unsigned char *host, size_t *used, const void *list, size_t bytes)
{
    size_t at = *used;
    if (bytes)
        memcpy(host + at, list, bytes);
    *used += bytes;
    return at;
}

static spry_draw_order order_of(spry_cuda_device *d, const spry_draw *draw, size_t *used)
{
    const spry_sampling *s = draw->settings;
    const int32_t *history;
    size_t n_history;
    window_history(&history, &n_history, draw);
    return (spry_draw_order){.row = (uint32_t)draw->row,
                             .n_history = (uint32_t)n_history,
                             .n_bias = (uint32_t)s->n_bias,
                             .n_top = draw->max_top,
                             .wants_logprob = draw->wants_logprob,
                             .has_mask = draw->mask != NULL,
                             .history = put(d->draws[d->newest].host, used, history, n_history * sizeof *history),
                             .bias = put(d->draws[d->newest].host, used, s->bias, s->n_bias * sizeof *s->bias),
                             .mask = put(d->draws[d->newest].host, used, draw->mask, draw->mask ? mask_bytes(d) : 0),
                             .repeat_penalty = s->repeat_penalty,
                             .presence_penalty = s->presence_penalty,
                             .frequency_penalty = s->frequency_penalty,
                             .temperature = s->temperature,
                             .top_k = s->top_k,
                             .top_p = s->top_p,
                             .min_p = s->min_p,
                             .typical_p = s->typical_p,
                             .u = draw->u};
}

/* Checks the tokens of the history, because the GPU uses them as indices. */
static spry_status check_history(const spry_cuda_device *d, spry_draw *draw)
{
    const int32_t *history;
    size_t n;
    window_history(&history, &n, draw);
    for (size_t i = 0; i < n; i++)
        if (history[i] < 0 || (uint32_t)history[i] >= d->config->n_vocab)
            return spry_fail(&draw->error, SPRY_ERR_INPUT, "token %d of the history is not in the vocabulary of %u",
                             history[i], d->config->n_vocab);
    return SPRY_OK;
}

static void launch_draws(spry_cuda_device *d, size_t n)
{
    const spry_cuda_scratch *s = &d->scratch;
    const spry_cuda_draws *r = &d->draws[d->newest];
    for (size_t first = 0; first < n; first += SPRY_CUDA_DRAWS) {
        const spry_draw_args args = {.logits = s->logits,
                                     .orders = r->memory + first * sizeof(spry_draw_order),
                                     .upload = r->memory,
                                     .scores = s->draw_scores,
                                     .weight = s->draw_weight,
                                     .count = s->draw_count,
                                     .best = s->draw_best,
                                     .results = r->results_memory + first * sizeof(spry_draw_result),
                                     .n_vocab = d->config->n_vocab};
        size_t count = n - first < SPRY_CUDA_DRAWS ? n - first : SPRY_CUDA_DRAWS;
        spry_cuda_launch(&d->context, spry_draw_scan_id, SPRY_DRAW_SLICES, count, 1, &args);
        spry_cuda_launch(&d->context, spry_draw_tokens_id, count, 1, 1, &args);
    }
}

spry_status spry_cuda_draw_queue(spry_cuda_device *d, spry_draw *const *draws, size_t n, spry_error *error)
{
    const spry_cuda_draws *r = &d->draws[d->newest];
    size_t bytes = n * sizeof(spry_draw_order), used = bytes, queued = 0;
    d->steps[d->newest].n_queued = 0;
    if (!n)
        return SPRY_OK;
    for (size_t i = 0; i < n; i++)
        bytes += list_bytes(d, draws[i]);
    spry_status status = make_room(d, bytes, n, error);
    if (status)
        return status;
    for (size_t i = 0; i < n; i++) {
        draws[i]->status = check_history(d, draws[i]);
        if (draws[i]->status)
            continue;
        spry_draw_order order = order_of(d, draws[i], &used);
        memcpy(r->host + queued++ * sizeof order, &order, sizeof order);
    }
    spry_cuda_write(&d->context, r->memory, r->host, used);
    d->steps[d->newest].n_queued = queued;
    launch_draws(d, queued);
    spry_cuda_read(&d->context, r->results, r->results_memory, queued * sizeof *r->results);
    return spry_cuda_fault(&d->context, "drawing tokens", error);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static spry_status status_of(spry_draw *draw, const spry_draw_result *r, uint32_t n_vocab)
{
    if (r->fault == SPRY_DRAW_NAN)
        return spry_fail(&draw->error, SPRY_ERR_INPUT, "a logit is not a number");
    if (r->fault == SPRY_DRAW_NOTHING)
        return spry_fail(&draw->error, SPRY_ERR_INPUT,
                         "no token can be drawn: logits, bias and mask leave none of the %u tokens above -infinity",
                         n_vocab);
    return SPRY_OK;
}

void spry_cuda_draw_take(spry_cuda_device *d, size_t which, spry_draw *const *draws, size_t n)
{
    const spry_draw_result *r = d->draws[which].results;
    for (size_t i = 0; i < n; i++) {
        spry_draw *draw = draws[i];
        if (draw->status)
            continue;
        draw->status = status_of(draw, r, d->config->n_vocab);
        draw->token = r->token;
        draw->logprob = r->logprob;
        draw->n_top = draw->status ? 0 : r->n_top;
        for (size_t k = 0; k < draw->n_top; k++)
            draw->top[k] = (spry_logprob_entry){r->top[k], r->top_logprob[k]};
        r++;
    }
}

void spry_cuda_draw_deinit(spry_cuda_device *d)
{
    for (size_t i = 0; i < 2; i++) {
        spry_cuda_draws *r = &d->draws[i];
        spry_cuda_free_host(&d->context, r->host);
        spry_cuda_free_host(&d->context, r->results);
        spry_cuda_free(&d->context, &r->memory);
        spry_cuda_free(&d->context, &r->results_memory);
        *r = (spry_cuda_draws){0};
    }
}
