/* The work of steps, the batch size that the policy would choose, and the time of lookups. */
#include <stdlib.h>

#include "engine/engine_state.h"
#include "insight/model_work.h"
#include "platform/clock.h"
#include "sched/batch_choice.h"
#include "spry_tools.h"

_Static_assert((int)SPRY_POLICY_STEPS == (int)SPRY_BATCH_STEPS, "a judgement is made of as many steps");

/* ---- work ------------------------------------------------------------------------------------------------------ */

static spry_work_amount amount(const spry_step_work *work)
{
    return (spry_work_amount){spry_work_bytes(work), spry_work_products(work)};
}

static spry_work_setting setting_of(const spry_engine *e)
{
    return (spry_work_setting){.model = e->model, .ops = e->ops, .kv_type = e->pool.shape.type, .chunk = e->chunk};
}

spry_work_amount spry_engine_prefill_work(const spry_engine *e, size_t tokens)
{
    const spry_work_setting setting = setting_of(e);
    spry_step_work work = spry_work_of_prefill(&setting, tokens);
    return amount(&work);
}

spry_work_amount spry_engine_decode_work(const spry_engine *e, size_t depth, size_t batch)
{
    const spry_work_setting setting = setting_of(e);
    spry_step_work work = spry_work_of_decode(&setting, depth, batch);
    return amount(&work);
}

uint32_t spry_engine_main_type(const spry_engine *e)
{
    return spry_work_main_type(e->model);
}

const char *spry_engine_device_kind(const spry_engine *e)
{
    return spry_device_kind_name(e->kind);
}

/* ---- the policy ------------------------------------------------------------------------------------------------ */

double spry_policy_gain(void)
{
    return SPRY_BATCH_GAIN;
}

uint32_t spry_policy_choose(char *why, size_t capacity, uint32_t most, const spry_policy_step *steps, size_t n_steps)
{
    spry_batch_choice choice;
    uint32_t largest = 1; /* that was measured */
    for (size_t i = 0; i < n_steps; i++)
        largest = steps[i].size > largest && steps[i].size <= most ? steps[i].size : largest;
    spry_batch_choice_init(&choice, largest, false);
    for (size_t i = 0; i < n_steps; i++)
        spry_batch_choice_measure(&choice, steps[i].size, steps[i].size, (uint64_t)(steps[i].ms * 1e6));
    return spry_batch_choice_explain(&choice, why, capacity);
}

/* ---- lookups --------------------------------------------------------------------------------------------------- */

/* Caches at least `pages` pages, the last of them those of the text in `ids`, without computing them. */
static spry_status fill_cache(spry_sequence *s, int32_t *ids, size_t tokens, size_t pages, spry_error *error)
{
    spry_found found;
    spry_status status = SPRY_OK;
    for (size_t text = 0; !status && text * tokens < pages * SPRY_PAGE_TOKENS; text++) {
        for (size_t i = 0; i < tokens; i++)
            ids[i] = (int32_t)(text * 31 + i);
        const spry_prompt prompt = {.ids = ids, .count = tokens, .compute_from = tokens - 1};
        status = spry_sequence_begin(s, &found, &prompt, error);
        if (!status)
            spry_sequence_computed(s, spry_sequence_pending(s), 0);
    }
    return status;
}

/* The pages have no bytes: only their bookkeeping is timed. */
static void copy_nothing(void *self, uint32_t to, uint32_t from)
{
    (void)self;
    (void)to;
    (void)from;
}

static spry_status time_lookups(double *us, size_t count, spry_kv_cache *cache, int32_t *ids, size_t tokens,
                                size_t pages, spry_error *error)
{
    spry_sequence sequence = {0};
    spry_found found;
    const spry_prompt prompt = {.ids = ids, .count = tokens, .compute_from = tokens - 1};
    spry_status status =
        spry_sequence_init(&sequence, cache, spry_kv_key_root((spry_kv_key){1, 2}, "", 0), tokens, error);
    if (!status)
        status = fill_cache(&sequence, ids, tokens, pages, error);
    for (size_t i = 0; !status && i < count; i++) {
        uint64_t start = spry_clock_ns();
        status = spry_sequence_begin(&sequence, &found, &prompt, error);
        us[i] = (double)(spry_clock_ns() - start) / 1e3;
    }
    spry_sequence_deinit(&sequence);
    return status;
}

spry_status spry_lookup_measure(double *us, size_t count, size_t tokens, size_t *pages, spry_error *error)
{
    const spry_kv_shape shape = {.n_layers = 1, .n_kv_heads = 1, .head_dim = 16, .type = SPRY_F16};
    const spry_kv_cache_options options = {.max_bytes = SIZE_MAX};
    spry_kv_pool pool;
    spry_kv_cache cache = {0};
    int32_t *ids = calloc(tokens, sizeof *ids);
    spry_status status = ids ? spry_kv_pool_init(&pool, &shape, *pages + tokens / SPRY_PAGE_TOKENS, error)
                             : spry_fail_memory(error, "a prompt", tokens * sizeof *ids);
    if (status) {
        free(ids);
        return status;
    }
    pool.mover.copy = copy_nothing;
    status = spry_kv_cache_init(&cache, &pool, &options, error);
    if (!status)
        status = time_lookups(us, count, &cache, ids, tokens, *pages, error);
    if (!status) {
        spry_kv_cache_figures figures;
        spry_kv_cache_describe(&cache, &figures);
        *pages = figures.pages;
    }
    spry_kv_cache_deinit(&cache);
    spry_kv_pool_deinit(&pool);
    free(ids);
    return status;
}
