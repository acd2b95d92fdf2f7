/* Sequences that step together, for measuring (spry_tools.h) and warming up: tables that are no session's, and a job
 * for each list of segments. */
#include <stdlib.h>

#include "kv/kv_states.h"
#include "sched/driver.h"
#include "spry_tools.h"

struct spry_steps {
    spry_engine *engine;
    size_t count;
    spry_kv_table tables[SPRY_STEPS_MAX];
    spry_op_watch watch;
};

/* ---- jobs of segments -------------------------------------------------------------------------------------------- */

static bool list_decodes(const spry_job *job)
{
    return job->list.segments[0].n_rows == 1;
}

static bool list_is_done(const spry_job *job)
{
    return job->list.n_done == job->list.count;
}

/* As many of the segments as fit. */
static spry_status list_next(spry_job *job, size_t *n, const spry_room *room, spry_error *error)
{
    const spry_segment_list *l = &job->list;
    size_t rows = 0;
    (void)error;
    for (size_t i = l->n_done; i < l->count && *n < room->capacity && *n < room->logits && rows < room->rows; i++) {
        spry_segment segment = l->segments[i];
        size_t done = i == l->n_done ? l->rows_done : 0, left = segment.n_rows - done;
        bool cut = left > room->rows - rows;
        segment.tokens += done;
        segment.first_position += (uint32_t)done;
        segment.n_rows = (uint32_t)(cut ? room->rows - rows : left);
        segment.want = cut ? SPRY_WANT_NOTHING : segment.want;
        rows += segment.n_rows;
        room->segments[(*n)++] = segment;
    }
    return SPRY_OK;
}

static spry_status list_on_step_done(spry_job *job, const spry_rows *rows, spry_error *error)
{
    spry_segment_list *l = &job->list;
    (void)error;
    l->rows_done += rows->n_rows;
    for (; l->n_done < l->count && l->rows_done >= l->segments[l->n_done].n_rows; l->n_done++)
        l->rows_done -= l->segments[l->n_done].n_rows;
    return SPRY_OK;
}

static spry_status list_cancel(spry_job *job, spry_error *error)
{
    (void)job;
    return spry_fail(error, SPRY_ERR_CANCELLED, "the steps were cancelled");
}

static const spry_job_kind list_kind = {.decodes = list_decodes,
                                        .next = list_next,
                                        .on_step_done = list_on_step_done,
                                        .is_done = list_is_done,
                                        .cancel = list_cancel};

static spry_status compute(spry_steps *s, const spry_segment *segments, size_t count, spry_error *error)
{
    spry_job job;
    spry_job_init(&job, s->engine, &list_kind, NULL);
    job.is_callers = true;
    job.list = (spry_segment_list){.segments = segments, .count = count};
    return spry_driver_run(s->engine->driver, &job, error);
}

/* ---- sequences --------------------------------------------------------------------------------------------------- */

/* The CPU packs weights in the first two steps that use them: nothing that is to be measured. */
static spry_status pack_weights(spry_steps *s, spry_error *error)
{
    bool logits = !s->engine->model->config.bidirectional, more = s->count > 0;
    spry_status status = SPRY_OK;
    for (int i = 0; !status && more && i < 2; i++) {
        status = spry_steps_prefill(s, &(int32_t){0}, 1, logits, error);
        more = spry_device_placed_weights(s->engine->device);
        spry_steps_truncate(s, 0);
    }
    return status;
}

spry_status spry_steps_create(spry_steps **out, spry_engine *engine, size_t count, spry_error *error)
{
    *out = NULL;
    if (count > SPRY_STEPS_MAX || count > engine->logit_rows) /* a step has a row of logits for each sequence */
        return spry_fail(error, SPRY_ERR_INPUT,
                         "%zu sequences are more than %d, or than the %u rows of logits of a step", count,
                         SPRY_STEPS_MAX, engine->logit_rows);
    spry_steps *s = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "sequences", sizeof *s);
    s->engine = engine;
    spry_status status = SPRY_OK;
    for (; !status && s->count < count; s->count++)
        status = spry_kv_table_init(&s->tables[s->count], engine->context, error);
    if (!status)
        status = pack_weights(s, error);
    if (status)
        spry_steps_destroy(s);
    else
        *out = s;
    return status;
}

void spry_steps_destroy(spry_steps *s)
{
    if (!s)
        return;
    spry_steps_watch(s, false);
    for (size_t i = 0; i < s->count; i++)
        spry_kv_table_deinit(&s->tables[i], &s->engine->pool);
    free(s);
}

size_t spry_steps_held(const spry_steps *s)
{
    return s->tables[0].n_tokens;
}

/* Sessions may have left pages in the cache. */
static spry_status extend(spry_steps *s, spry_kv_table *table, size_t count, spry_error *error)
{
    spry_kv_pool *pool = &s->engine->pool;
    spry_driver_enter(s->engine->driver);
    spry_kv_cache_make_room_for(&s->engine->cache, table, count);
    spry_status status = spry_kv_table_extend(table, pool, count, error);
    spry_driver_leave(s->engine->driver);
    return status;
}

spry_status spry_steps_prefill(spry_steps *s, const int32_t *ids, size_t count, bool last, spry_error *error)
{
    spry_kv_table *table = &s->tables[0];
    spry_segment segment = {.table = table,
                            .tokens = ids,
                            .first_position = (uint32_t)table->n_tokens,
                            .n_rows = (uint32_t)count,
                            .want = last ? SPRY_WANT_LAST : SPRY_WANT_NOTHING};
    spry_status status = extend(s, table, count, error);
    return status ? status : compute(s, &segment, 1, error);
}

spry_status spry_steps_spread(spry_steps *s, size_t n, spry_error *error)
{
    const spry_kv_table *from = &s->tables[0];
    spry_kv_pool *pool = &s->engine->pool;
    spry_status status = SPRY_OK;
    for (size_t i = 1; !status && i < n && i < s->count; i++) {
        spry_kv_table *table = &s->tables[i];
        spry_kv_table_truncate(table, pool, 0);
        if (from->n_tokens)
            status = extend(s, table, from->n_tokens, error);
        for (size_t k = 0; !status && k < from->n_entries; k++)
            pool->mover.copy(pool->mover.self, table->entries[k].page, from->entries[k].page);
        if (!status)
            spry_kv_state_copy(pool, table, from);
    }
    return status;
}

spry_status spry_steps_decode(spry_steps *s, const int32_t *ids, size_t n, spry_error *error)
{
    spry_segment segments[SPRY_STEPS_MAX];
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < n && i < s->count; i++) {
        spry_kv_table *table = &s->tables[i];
        segments[i] = (spry_segment){.table = table,
                                     .tokens = ids + i,
                                     .first_position = (uint32_t)table->n_tokens,
                                     .n_rows = 1,
                                     .want = SPRY_WANT_LAST};
        status = extend(s, table, 1, error);
    }
    return status ? status : compute(s, segments, n, error);
}

void spry_steps_truncate(spry_steps *s, size_t n_tokens)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->tables[i].n_tokens > n_tokens)
            spry_kv_table_truncate(&s->tables[i], &s->engine->pool, n_tokens);
}

/* ---- warming up ------------------------------------------------------------------------------------------------ */

enum { WARM_ROWS = 16, WARM_ROUNDS = 2 };

/* Rows of a prompt, then tokens one by one: nothing of it is remembered but what steps cost. The first round fetches
 * the weights and is not counted. */
spry_status spry_engine_warm_up(spry_engine *e, spry_error *error)
{
    spry_steps *steps;
    int32_t ids[WARM_ROWS];
    bool decodes = !e->model->config.bidirectional;
    size_t rows = e->chunk < WARM_ROWS ? e->chunk : WARM_ROWS;
    rows = rows < e->context ? rows : e->context - 1; /* one row is left for a token after them */
    for (size_t i = 0; i < WARM_ROWS; i++)
        ids[i] = (int32_t)(i % e->model->config.n_vocab);
    spry_status status = spry_steps_create(&steps, e, 1, error);
    for (int round = 0; !status && round < WARM_ROUNDS; round++) {
        spry_driver_enter(e->driver);
        spry_draft_steps_init(&e->steps);
        spry_step_time_init(&e->times);
        spry_driver_leave(e->driver);
        status = spry_steps_prefill(steps, ids, rows, decodes, error);
        if (!status && decodes)
            status = spry_steps_decode(steps, ids, 1, error);
        spry_steps_truncate(steps, 0);
    }
    spry_steps_destroy(steps);
    return status;
}

/* ---- ops ------------------------------------------------------------------------------------------------------- */

void spry_steps_watch(spry_steps *s, bool on)
{
    if (on)
        s->watch = (spry_op_watch){0};
    spry_device_set_watch(s->engine->device, on ? &s->watch : NULL);
}

size_t spry_steps_ops(const spry_steps *s, spry_op_sum *sums, size_t capacity)
{
    size_t count = 0;
    for (size_t i = 0; i < SPRY_OP_PLACES * SPRY_OP_COUNT * SPRY_DTYPE_COUNT; i++) {
        const size_t type = i % SPRY_DTYPE_COUNT, op = i / SPRY_DTYPE_COUNT % SPRY_OP_COUNT;
        const size_t place = i / SPRY_DTYPE_COUNT / SPRY_OP_COUNT;
        const spry_op_figures *f = &s->watch.ops[place][op][type];
        if (!f->calls)
            continue;
        if (count < capacity)
            sums[count] = (spry_op_sum){.op = (spry_op)op,
                                        .place = (spry_op_place)place,
                                        .type = (uint32_t)type,
                                        .ns = f->ns,
                                        .calls = f->calls,
                                        .bytes = f->bytes,
                                        .products = f->products};
        count++;
    }
    return count;
}
