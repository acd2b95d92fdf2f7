/* Runs rounds over all probes and takes the upper quartile of each: other programs only make tries slower, but the
 * fastest try may be an outlier that a longer run does not reach. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_state.h"
#include "insight/prediction.h"
#include "insight/speed_probe.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "sched/batch_choice.h"
#include "spry_tools.h"

enum {
    ROUNDS = 8,
    LEAST_ROUNDS = 4,
    PEAK_TRIES = 8,
    PROBES_MAX = SPRY_READ_SPEEDS + SPRY_SMALL_COUNT + 3 + 3 * SPRY_DTYPE_COUNT
};
static const uint64_t enough_ns = 5000000000u; /* no round starts later than this, once the minimum is done */

/* One measured value: `run` makes one try; `which` selects its subject. */
typedef struct probe {
    double *figure;
    double (*run)(spry_probe_bed *bed, size_t which);
    size_t which;
    double tries[ROUNDS];
} probe;

typedef struct probes {
    probe list[PROBES_MAX];
    size_t count;
} probes;

static void add(probes *p, double *figure, double (*run)(spry_probe_bed *, size_t), size_t which)
{
    p->list[p->count++] = (probe){.figure = figure, .run = run, .which = which};
}

/* ---- the probes as functions of one kind ------------------------------------------------------------------------- */

enum { READ_LEAST_SHIFT = 9 }; /* the smallest range that is read: a 512th of the memory beyond all caches */

static size_t read_bytes(const spry_probe_bed *bed, size_t step)
{
    return bed->bytes >> (READ_LEAST_SHIFT - step);
}

static double read_step(spry_probe_bed *bed, size_t step)
{
    size_t bytes = read_bytes(bed, step), once = bed->bytes / 2;
    return spry_probe_read(bed->memory, bytes, bytes < once ? once / bytes : 1, bed->threads);
}

static double multiply(spry_probe_bed *bed, size_t type)
{
    return spry_probe_multiply(bed, (spry_dtype)type);
}

static double decode(spry_probe_bed *bed, size_t type)
{
    return spry_probe_decode(bed, (spry_dtype)type);
}

static double cached(spry_probe_bed *bed, size_t type)
{
    return spry_probe_cached(bed, (spry_dtype)type);
}

static double small(spry_probe_bed *bed, size_t op)
{
    return spry_probe_small(bed, (spry_small_op)op);
}

static double attend_many(spry_probe_bed *bed, size_t which)
{
    (void)which;
    return spry_probe_attend_many(bed);
}

static double attend_one(spry_probe_bed *bed, size_t which)
{
    (void)which;
    return spry_probe_attend_one(bed);
}

static double sync_all(spry_probe_bed *bed, size_t which)
{
    (void)which;
    return spry_probe_sync(bed);
}

static void list_probes(probes *p, spry_machine_speed *s, const spry_probe_bed *bed)
{
    for (size_t i = 0; i < SPRY_READ_SPEEDS; i++) {
        s->reads[i].bytes = (double)read_bytes(bed, i);
        add(p, &s->reads[i].gb_s, read_step, i);
    }
    add(p, &s->sync_us, sync_all, 0);
    add(p, &s->attend_g_s, attend_many, 0);
    add(p, &s->attend_gb_s, attend_one, 0);
    for (size_t op = 0; op < SPRY_SMALL_COUNT; op++)
        add(p, &s->small_g_s[op], small, op);
    for (uint32_t type = 0; type < SPRY_DTYPE_COUNT; type++)
        if (spry_dtype_known(type) && bed->ops->matmul[type].run) {
            add(p, &s->types[type].multiply_g_s, multiply, type);
            add(p, &s->types[type].decode_gb_s, decode, type);
            add(p, &s->types[type].cached_gb_s, cached, type);
        }
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static spry_status run_rounds(probes *p, spry_probe_bed *bed, const spry_speed_progress *progress, spry_error *error)
{
    uint64_t start = spry_clock_ns();
    size_t round = 0;
    for (; round < ROUNDS && (round < LEAST_ROUNDS || spry_clock_ns() - start < enough_ns); round++)
        for (size_t i = 0; i < p->count; i++) {
            if (progress && !progress->report(progress->user, round * p->count + i, ROUNDS * p->count))
                return spry_fail(error, SPRY_ERR_CANCELLED, "interrupted while measuring how fast the machine is");
            p->list[i].tries[round] = p->list[i].run(bed, p->list[i].which);
        }
    for (size_t i = 0; i < p->count; i++) {
        double *tries = p->list[i].tries;
        qsort(tries, round, sizeof *tries, by_size);
        *p->list[i].figure = tries[round * 5 / 8];
    }
    return SPRY_OK;
}

spry_status spry_machine_speed_measure(spry_machine_speed *speed, const char *cpu, uint32_t n_threads,
                                       const spry_speed_progress *progress, spry_error *error)
{
    const spry_ops *ops;
    spry_threads *threads = NULL;
    spry_probe_bed bed = {0};
    probes list = {.count = 0};
    *speed = (spry_machine_speed){0};
    spry_status status = spry_ops_get(&ops, cpu, error);
    if (!status)
        status = spry_threads_create(&threads, n_threads, error);
    if (!status)
        status = spry_probe_bed_init(&bed, ops, threads, error);
    if (!status) {
        snprintf(speed->kernels, sizeof speed->kernels, "%s", ops->name);
        speed->threads = (uint32_t)spry_threads_count(threads);
        list_probes(&list, speed, &bed);
        status = run_rounds(&list, &bed, progress, error);
        speed->read_gb_s = speed->reads[SPRY_READ_SPEEDS - 1].gb_s;
        speed->sync_us = 1e-3 / speed->sync_us; /* from billions per second */
    }
    spry_probe_bed_deinit(&bed);
    spry_threads_destroy(threads);
    return status;
}

/* All threads reading memory, the best of several tries. */
static spry_status read_peak(double *gb_s, spry_threads *threads, spry_error *error)
{
    size_t bytes;
    unsigned char *memory = spry_probe_memory(&bytes, threads);
    if (!memory)
        return spry_fail_memory(error, "measuring how fast memory is read", bytes);
    *gb_s = 0;
    for (int i = 0; i < PEAK_TRIES; i++) {
        double speed = spry_probe_read(memory, bytes, 1, threads);
        *gb_s = speed > *gb_s ? speed : *gb_s;
    }
    spry_memory_unmap(memory, bytes);
    return SPRY_OK;
}

spry_status spry_machine_peaks(double *read_gb_s, double *multiply_g_s, const char *cpu, uint32_t n_threads,
                               uint32_t type, spry_error *error)
{
    const spry_ops *ops;
    spry_threads *threads = NULL;
    if (!spry_dtype_known(type))
        return spry_fail(error, SPRY_ERR_INPUT, "type %u is not known", type);
    spry_status status = spry_ops_get(&ops, cpu, error);
    if (!status)
        status = spry_threads_create(&threads, n_threads, error);
    if (!status)
        status = read_peak(read_gb_s, threads, error);
    if (!status)
        status = spry_probe_multiply_peak(multiply_g_s, ops, (spry_dtype)type, threads, error);
    spry_threads_destroy(threads);
    return status;
}

spry_status spry_kernels_name(char name[SPRY_KERNELS_NAME], const char *cpu, spry_error *error)
{
    const spry_ops *ops;
    spry_status status = spry_ops_get(&ops, cpu, error);
    if (!status)
        snprintf(name, SPRY_KERNELS_NAME, "%s", ops->name);
    return status;
}

/* ---- steps of a model -------------------------------------------------------------------------------------------- */

/* The work of steps, the batch size that the policy would choose, and the time of lookups. */

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

const char *spry_engine_why_cpu(const spry_engine *e)
{
    return e->why_cpu;
}

/* ---- the policy ------------------------------------------------------------------------------------------------ */

uint32_t spry_policy_choose(char *why, size_t capacity, spry_policy policy, uint32_t most,
                            const spry_policy_step *steps, size_t n_steps)
{
    spry_batch_choice choice;
    uint32_t largest = 1; /* largest batch that was measured */
    for (size_t i = 0; i < n_steps; i++)
        largest = steps[i].size > largest && steps[i].size <= most ? steps[i].size : largest;
    spry_batch_choice_init(&choice, largest, policy);
    for (size_t i = 0; i < n_steps; i++)
        spry_batch_choice_measure(&choice, steps[i].size, steps[i].size, (uint64_t)(steps[i].ms * 1e6));
    return spry_batch_choice_explain(&choice, why, capacity);
}

/* ---- lookups --------------------------------------------------------------------------------------------------- */

/* Caches at least `pages` pages, the last of them with the text in `ids`, without computing them. */
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
