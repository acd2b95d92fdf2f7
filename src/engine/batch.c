/* Tables for the sequences, segments for each step. */
#include "engine/batch.h"

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
    spry_kv_cache_make_room(&batch->engine->cache, spry_kv_table_pages_needed(table, pool, count));
    return spry_kv_table_extend(table, pool, count, error);
}

spry_status spry_batch_prefill(spry_batch *batch, const int32_t *ids, size_t count, bool last, spry_error *error)
{
    spry_kv_table *table = &batch->tables[0];
    spry_segment segment = {table, ids, (uint32_t)table->n_tokens, (uint32_t)count,
                            last ? SPRY_WANT_LAST : SPRY_WANT_NOTHING};
    spry_status status = extend(batch, table, count, error);
    return status ? status : spry_device_run(batch->engine->device, &segment, 1, error);
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
    return status ? status : spry_device_run(batch->engine->device, segments, n, error);
}

void spry_batch_truncate(spry_batch *batch, size_t n_tokens)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->tables[i].n_tokens > n_tokens)
            spry_kv_table_truncate(&batch->tables[i], &batch->engine->pool, n_tokens);
}
