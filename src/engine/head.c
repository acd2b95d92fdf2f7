/* What a head has read, its rows, its drafts. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_state.h"
#include "platform/clock.h"

enum { LEAST_ROWS = 64 };

struct spry_head {
    spry_engine *engine;
    spry_draft_head *model;
    spry_kv_pool pool;
    spry_kv_table table; /* row i of the table is for token places[i] of the text */
    spry_device *device;
    int32_t *tokens;  /* [context]: the text, as far as it has been read, and one token more */
    uint32_t *places; /* [context] */
    size_t n_tokens;  /* tokens whose hidden states were taken */
    size_t n_rows;    /* rows of the table that do not belong to drafts */
    float *waiting;   /* [capacity, n_embd]: hidden states of the last n_waiting tokens, which have no rows yet */
    size_t n_waiting, capacity;
    float *own;          /* [n_embd]: hidden state of its last row */
    uint64_t reading_ns; /* spent since the last drafts */
    bool precise;
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static spry_status open_device(spry_head *h, spry_error *error)
{
    const spry_engine *e = h->engine;
    const spry_config *c = &h->model->config;
    const spry_kv_shape shape = {.n_layers = 1,
                                 .n_kv_heads = c->n_kv_heads,
                                 .head_dim = c->head_dim,
                                 .type = SPRY_F16,
                                 .keys_only = c->arch->latent};
    size_t pages = (e->context + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
    spry_status status = spry_kv_pool_init(&h->pool, &shape, pages, error);
    if (!status)
        status = spry_kv_table_init(&h->table, e->context, error);
    const spry_device_setup setup = {
        .config = c,
        .weights = &h->model->weights,
        .pool = &h->pool,
        .ops = e->ops,
        .threads = e->threads,
        .limits = {.max_rows = (uint32_t)h->capacity, .max_logits = 1, .session = e->context},
        .lender = e->device,
        .mapped = e->mapped,
        .name = "cpu",
        .log = e->log};
    if (!status)
        status = spry_device_open(&h->device, "cpu", &setup, error);
    if (!status)
        spry_device_attach(h->device, &h->pool);
    return status;
}

/* Most rows of a step. */
static size_t capacity_of(const spry_engine *e)
{
    uint32_t rows = spry_engine_step_rows(e);
    return rows < LEAST_ROWS ? LEAST_ROWS : rows;
}

spry_status spry_head_find(spry_draft_head **out, spry_engine *e, const char *asked, spry_error *error)
{
    spry_error why = {0};
    bool must = asked && !strcmp(asked, "head");
    *out = NULL;
    if (!asked)
        return SPRY_OK;
    if (!must && strcmp(asked, "auto") != 0)
        return spry_fail(error, SPRY_ERR_INPUT, "draft_head is '%.40s': auto or head", asked);
    spry_status status = spry_draft_head_open(out, e->model, &why);
    if (!status && *out && !spry_device_taps(e->kind)) {
        spry_draft_head_close(*out);
        *out = NULL;
        status = spry_fail(&why, SPRY_ERR_UNSUPPORTED, "%s: its head drafts only where the CPU computes the model",
                           e->model->name);
    }
    if (!status && !*out && must)
        status = spry_fail(&why, SPRY_ERR_UNSUPPORTED, "%s: the checkpoint has no head that drafts", e->model->name);
    if (status && must)
        return spry_fail(error, status, "%s", why.message);
    if (status)
        spry_log_write(&e->log, SPRY_LOG_WARN, "no drafts by the model's own head: %s", why.message);
    if (!*out)
        return SPRY_OK;
    const spry_config *c = &(*out)->config;
    e->model->config.n_taps = 1;
    e->model->config.taps[0] = e->model->config.n_layers;
    e->head_bytes = (*out)->weights.bytes + capacity_of(e) * c->n_embd * sizeof(float) +
                    (size_t)e->context * spry_kv_sides(&(spry_kv_shape){.keys_only = c->arch->latent}) * c->n_kv_heads *
                        c->head_dim * sizeof(uint16_t);
    return SPRY_OK;
}

spry_status spry_head_create(spry_head **out, spry_engine *engine, spry_draft_head *model, spry_error *error)
{
    *out = NULL;
    if (!model)
        return SPRY_OK;
    spry_head *h = calloc(1, sizeof *h);
    if (!h) {
        spry_draft_head_close(model);
        return spry_fail_memory(error, "a head that drafts", sizeof *h);
    }
    spry_status status;
    size_t width = model->config.n_embd, context = engine->context;
    h->engine = engine;
    h->model = model;
    h->capacity = capacity_of(engine);
    h->tokens = calloc(context + 1, sizeof *h->tokens);
    h->places = calloc(context, sizeof *h->places);
    h->waiting = malloc(h->capacity * width * sizeof *h->waiting);
    h->own = malloc(width * sizeof *h->own);
    status = h->tokens && h->places && h->waiting && h->own
                 ? open_device(h, error)
                 : spry_fail_memory(error, "a head that drafts", h->capacity * width * sizeof *h->waiting);
    if (status)
        spry_head_destroy(h);
    else
        *out = h;
    return status;
}

void spry_head_destroy(spry_head *h)
{
    if (!h)
        return;
    spry_device_close(h->device);
    spry_kv_table_deinit(&h->table, &h->pool);
    spry_kv_pool_deinit(&h->pool);
    spry_draft_head_close(h->model);
    free(h->tokens);
    free(h->places);
    free(h->waiting);
    free(h->own);
    free(h);
}

void spry_head_set_precise(spry_head *h, bool precise)
{
    h->precise = precise;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Computes n rows: tokens, each with the hidden state of the token before it. Their keys and values are added to the
 * table; `draw`, if it is not NULL, is drawn from the last one, whose hidden state then is in `own`. */
static spry_status compute(spry_head *h, const int32_t *tokens, const float *hidden, size_t n, spry_draw *draw)
{
    const size_t width = h->model->config.n_embd;
    const spry_segment segment = {.table = &h->table,
                                  .tokens = tokens,
                                  .first_position = (uint32_t)h->table.n_tokens,
                                  .n_rows = (uint32_t)n,
                                  .want = draw ? SPRY_WANT_LAST : SPRY_WANT_NOTHING};
    const spry_device_step step = {
        .segments = &segment, .n_segments = 1, .draws = &draw, .n_draws = draw != NULL, .inputs = hidden};
    const float *state;
    if (h->table.n_tokens + n > h->table.max_tokens)
        return SPRY_ERR_CONTEXT;
    spry_status status = spry_kv_table_extend(&h->table, &h->pool, n, NULL);
    if (!status)
        status = spry_device_submit(h->device, &step, NULL);
    if (!status)
        status = spry_device_wait(h->device, NULL);
    if (!status && draw)
        status = draw->status ? draw->status : spry_device_hidden(h->device, &state, n - 1, 1, NULL);
    if (!status && draw)
        memcpy(h->own, state, width * sizeof *state);
    return status;
}

/* Computes the rows of all states that wait; the token after the last one is known. */
static spry_status compute_waiting(spry_head *h, spry_draw *draw)
{
    size_t n = h->n_waiting, first = h->n_tokens - n;
    spry_kv_table_truncate(&h->table, &h->pool, h->n_rows);
    spry_status status = compute(h, h->tokens + first + 1, h->waiting, n, draw);
    for (size_t i = 0; !status && i < n; i++)
        h->places[h->n_rows++] = (uint32_t)(first + i);
    h->n_waiting = 0;
    return status;
}

/* ---- reading along ----------------------------------------------------------------------------------------------- */

/* Keeps what is the same in this text; its tokens from `at` on are read again. */
static void keep_same(spry_head *h, const int32_t *tokens, size_t n_tokens, size_t at)
{
    size_t known = h->n_rows ? h->places[h->n_rows - 1] + 2u : 0, same = 0,
           most; /* a row is for the token after it, too */
    known = known > h->n_tokens ? known : h->n_tokens;
    most = known < n_tokens ? known : n_tokens;
    while (same < most && h->tokens[same] == tokens[same])
        same++;
    while (h->n_rows && (h->places[h->n_rows - 1] >= at || h->places[h->n_rows - 1] + 1u >= same))
        h->n_rows--;
    size_t first = h->n_tokens - h->n_waiting, kept = same < at ? same : at;
    if (h->n_tokens > kept) {
        h->n_waiting = kept > first ? kept - first : 0;
        h->n_tokens = kept;
    }
}

/* Takes the hidden states of tokens [at, at + n) of a text. */
static spry_status take(spry_head *h, const int32_t *tokens, size_t at, size_t n, const float *hidden)
{
    const size_t width = h->model->config.n_embd;
    spry_status status = SPRY_OK;
    keep_same(h, tokens, at + n, at);
    memcpy(h->tokens + h->n_tokens, tokens + h->n_tokens, (at + n - h->n_tokens) * sizeof *tokens);
    if (h->n_tokens < at) { /* some states were not computed in this text */
        status = h->n_waiting ? compute_waiting(h, NULL) : SPRY_OK;
        h->n_tokens = at;
    }
    for (size_t done = 0, part; !status && done < n; done += part) {
        if (h->n_waiting == h->capacity)
            status = compute_waiting(h, NULL);
        part = h->capacity - h->n_waiting < n - done ? h->capacity - h->n_waiting : n - done;
        memcpy(h->waiting + h->n_waiting * width, hidden + done * width, part * width * sizeof *hidden);
        h->n_waiting += part;
        h->n_tokens += part;
    }
    return status;
}

static void forget(spry_head *h)
{
    h->n_tokens = h->n_rows = h->n_waiting = 0;
    spry_kv_table_truncate(&h->table, &h->pool, 0);
}

/* Reads the rows of a step: those of tokens that the text still has. */
static void read_along(void *self, const spry_sequence *s, const spry_segment *segments, size_t n, size_t first_tap)
{
    spry_head *h = self;
    uint64_t start = spry_clock_ns();
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < n; first_tap += segments[i++].n_rows) {
        const spry_segment *g = &segments[i];
        const float *hidden;
        size_t at = g->first_position + s->n_dropped, end = at + g->n_rows;
        end = end < s->n_tokens ? end : s->n_tokens;
        if (g->table != &s->table || g->picture || end <= at)
            continue;
        status = end > h->engine->context ? SPRY_ERR_CONTEXT
                                          : spry_device_hidden(h->engine->device, &hidden, first_tap, end - at, NULL);
        if (!status)
            status = take(h, s->tokens, at, end - at, hidden);
    }
    if (status)
        forget(h);
    h->reading_ns += spry_clock_ns() - start;
}

/* ---- drafting ---------------------------------------------------------------------------------------------------- */

static size_t propose(void *self, int32_t *draft, size_t most, const int32_t *tokens, size_t n_tokens,
                      spry_draft_times *times)
{
    spry_head *h = self;
    spry_sampling greedy;
    spry_draw draw = {.settings = &greedy, .wants_logprob = h->precise};
    spry_sampling_default(&greedy);
    greedy.temperature = 0;
    uint64_t start = spry_clock_ns();
    *times = (spry_draft_times){.prefill_ns = h->reading_ns};
    h->reading_ns = 0;
    size_t n = 0, known = h->n_tokens, behind = h->n_waiting;
    if (!behind || n_tokens <= known || n_tokens + most > h->engine->context ||
        memcmp(h->tokens, tokens, known * sizeof *tokens) != 0)
        return 0;
    h->tokens[known] = tokens[known];
    spry_status status = compute_waiting(h, &draw);
    if (!status && behind > SPRY_DRAFT_MOST + 1)
        times->sync_ns = spry_clock_ns() - start;
    for (size_t i = known + 1; !status && i < n_tokens; i++) /* tokens that were decided without the model */
        status = compute(h, &tokens[i], h->own, 1, &draw);
    while (!status && !(h->precise && draw.logprob < SPRY_DRAFT_SURE)) {
        draft[n++] = draw.token;
        if (n == most)
            break;
        status = compute(h, &draft[n - 1], h->own, 1, &draw);
    }
    spry_kv_table_truncate(&h->table, &h->pool, h->n_rows);
    if (status)
        forget(h);
    return n;
}

spry_drafter spry_head_drafter(spry_head *h)
{
    return (spry_drafter){.propose = propose, .read = read_along, .self = h};
}
