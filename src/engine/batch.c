/* Tables for the sequences, and a job for each list of segments. */
#include "engine/batch.h"

#include <string.h>

#include "sched/driver.h"

/* ---- jobs of segments ----------------------------------------------------------------------------------------------
 */

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
    return spry_fail(error, SPRY_ERR_CANCELLED, "the batch was cancelled");
}

static const spry_job_kind list_kind = {.decodes = list_decodes,
                                        .next = list_next,
                                        .on_step_done = list_on_step_done,
                                        .is_done = list_is_done,
                                        .cancel = list_cancel};

static spry_status compute(spry_batch *batch, const spry_segment *segments, size_t count, spry_error *error)
{
    spry_job job;
    spry_job_init(&job, batch->engine, &list_kind, NULL);
    job.is_callers = true;
    job.list = (spry_segment_list){.segments = segments, .count = count};
    return spry_driver_run(batch->engine->driver, &job, error);
}

/* ---- sequences -----------------------------------------------------------------------------------------------------
 */

spry_status spry_batch_init(spry_batch *batch, spry_engine *engine, size_t count, spry_error *error)
{
    *batch = (spry_batch){.engine = engine};
    spry_status status = SPRY_OK;
    if (count > SPRY_BATCH_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "a batch of %zu sequences is larger than %d", count, SPRY_BATCH_MAX);
    for (; !status && batch->count < count; batch->count++)
        status = spry_kv_table_init(&batch->tables[batch->count], engine->context, error);
    if (status)
        spry_batch_deinit(batch);
    return status;
}

void spry_batch_deinit(spry_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        spry_kv_table_deinit(&batch->tables[i], &batch->engine->pool);
    batch->count = 0;
}

/* Sessions may have left pages in the cache. */
static spry_status extend(spry_batch *batch, spry_kv_table *table, size_t count, spry_error *error)
{
    spry_kv_pool *pool = &batch->engine->pool;
    spry_driver_enter(batch->engine->driver);
    spry_kv_cache_make_room(&batch->engine->cache, spry_kv_table_pages_needed(table, pool, count));
    spry_status status = spry_kv_table_extend(table, pool, count, error);
    spry_driver_leave(batch->engine->driver);
    return status;
}

spry_status spry_batch_prefill(spry_batch *batch, const int32_t *ids, size_t count, bool last, spry_error *error)
{
    spry_kv_table *table = &batch->tables[0];
    spry_segment segment = {table, ids, (uint32_t)table->n_tokens, (uint32_t)count,
                            last ? SPRY_WANT_LAST : SPRY_WANT_NOTHING};
    spry_status status = extend(batch, table, count, error);
    return status ? status : compute(batch, &segment, 1, error);
}

spry_status spry_batch_spread(spry_batch *batch, size_t n, spry_error *error)
{
    const spry_kv_table *from = &batch->tables[0];
    spry_kv_pool *pool = &batch->engine->pool;
    spry_status status = SPRY_OK;
    for (size_t i = 1; !status && i < n && i < batch->count; i++) {
        spry_kv_table *table = &batch->tables[i];
        spry_kv_table_truncate(table, pool, 0);
        if (from->n_tokens)
            status = extend(batch, table, from->n_tokens, error);
        for (size_t k = 0; !status && k < from->n_entries; k++)
            pool->mover.copy(pool->mover.self, table->entries[k].page, from->entries[k].page);
    }
    return status;
}

spry_status spry_batch_step(spry_batch *batch, const int32_t *ids, size_t n, spry_error *error)
{
    spry_segment segments[SPRY_BATCH_MAX];
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < n && i < batch->count; i++) {
        spry_kv_table *table = &batch->tables[i];
        segments[i] = (spry_segment){table, ids + i, (uint32_t)table->n_tokens, 1, SPRY_WANT_LAST};
        status = extend(batch, table, 1, error);
    }
    return status ? status : compute(batch, segments, n, error);
}

void spry_batch_truncate(spry_batch *batch, size_t n_tokens)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->tables[i].n_tokens > n_tokens)
            spry_kv_table_truncate(&batch->tables[i], &batch->engine->pool, n_tokens);
}
