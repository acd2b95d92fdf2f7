/* Measures points. Each is run once without counting, to map pages and warm caches; then as often as requested, timed,
 * with the energy of all repeats together; then twice with per-op timing, of which the faster is reported, because
 * disturbances only add to the times of ops. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench_runner.h"
#include "cli/energy_figures.h"
#include "platform/clock.h"
#include "platform/gpu.h"

enum { WATCHED = 2 };

static double seconds_since(uint64_t start)
{
    return (double)(spry_clock_ns() - start) / 1e9;
}

/* ---- what is repeated ----------------------------------------------------------------------------------------------
 */

/* Appends tokens to the first sequence up to `tokens`. */
static spry_status fill(spry_bench_runner *r, size_t tokens)
{
    spry_status status = SPRY_OK;
    for (size_t done = spry_steps_held(r->steps); !status && done < tokens;) {
        size_t part = tokens - done < r->chunk ? tokens - done : r->chunk;
        status = spry_bench_go_on(r);
        if (!status)
            status = spry_steps_prefill(r->steps, r->ids + done, part, done + part == tokens, r->error);
        done += part;
    }
    return status;
}

spry_status spry_bench_reach(spry_bench_runner *r, size_t depth, size_t batch)
{
    spry_steps_truncate(r->steps, depth);
    spry_status status = fill(r, depth);
    return status ? status : spry_steps_spread(r->steps, batch, r->error);
}

spry_status spry_bench_generate(spry_bench_runner *r, size_t n_tokens, size_t batch)
{
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < n_tokens; i++) {
        status = spry_bench_go_on(r);
        uint64_t start = spry_clock_ns();
        if (!status)
            status = spry_steps_decode(r->steps, r->ids + i * batch % (r->n_ids - batch + 1), batch, r->error);
        r->step_ms[r->n_steps++] = seconds_since(start) * 1e3;
    }
    return status;
}

/* One prefill, or one round of decoding; the sequences have the same length afterwards. */
static spry_status once(spry_bench_runner *r, const spry_bench_point *point, double *seconds)
{
    size_t held = point->decode ? point->tokens : 0;
    uint64_t start = spry_clock_ns();
    spry_status status =
        point->decode ? spry_bench_generate(r, r->settings->tokens, point->batch) : fill(r, point->tokens);
    *seconds = seconds_since(start);
    spry_steps_truncate(r->steps, held);
    return status;
}

/* ---- energy --------------------------------------------------------------------------------------------------------
 */

/* Tokens of one repeat. */
static double point_tokens(const spry_bench_runner *r, const spry_bench_point *point)
{
    return point->decode ? (double)r->settings->tokens * point->batch : point->tokens;
}

/* `times` repeats took so many seconds. A GPU's counter changes ten times a second: where there is one, the point is
 * repeated until a second has passed. */
static spry_status note_energy(spry_bench_runner *r, spry_bench_point *point, const spry_joules *before, double seconds,
                               double times)
{
    spry_joules after;
    double more;
    spry_status status = SPRY_OK;
    for (; !status && before->has_gpu && seconds < 1; times++) {
        r->n_steps = 0;
        status = once(r, point, &more);
        seconds += more;
    }
    spry_energy_read(r->energy, &after);
    spry_joules used = spry_joules_between(before, &after);
    used.cpu /= times;
    used.gpu /= times;
    if (spry_joules_whole(&used) > 0) /* counters change once per millisecond */
        point->energy = (spry_bench_energy){used, seconds * 1e3 / times, (size_t)point_tokens(r, point)};
    return status;
}

/* ---- ops -----------------------------------------------------------------------------------------------------------
 */

enum { SUMS_MAX = SPRY_OP_COUNT * SPRY_TYPES_ROOM };

typedef struct op_sums {
    spry_op_sum list[SUMS_MAX];
    size_t count;
    double ns; /* of all */
} op_sums;

static int by_time_down(const void *a, const void *b)
{
    const spry_bench_op *x = a, *y = b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

/* The sums as those of one of `times` prefills or steps. */
static spry_status record_ops(spry_bench_runner *r, spry_bench_point *point, const op_sums *sums, double times)
{
    point->ops = calloc(sums->count ? sums->count : 1, sizeof *point->ops);
    if (!point->ops)
        return spry_fail_memory(r->error, "the times of ops", sums->count * sizeof *point->ops);
    for (size_t i = 0; i < sums->count; i++) {
        const spry_op_sum *f = &sums->list[i];
        point->ops[point->n_ops++] = (spry_bench_op){.op = f->op,
                                                     .type = (spry_dtype)f->type,
                                                     .ms = (double)f->ns / 1e6 / times,
                                                     .share = sums->ns > 0 ? (double)f->ns / sums->ns : 0,
                                                     .calls = (double)f->calls / times,
                                                     .bytes = f->bytes / times,
                                                     .products = f->products / times};
    }
    qsort(point->ops, point->n_ops, sizeof *point->ops, by_time_down);
    return SPRY_OK;
}

static spry_status watch_ops(spry_bench_runner *r, spry_bench_point *point)
{
    op_sums *watched = calloc(WATCHED, sizeof *watched), *best = watched;
    if (!watched)
        return spry_fail_memory(r->error, "timing ops", WATCHED * sizeof *watched);
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < WATCHED; i++) {
        double seconds;
        op_sums *sums = &watched[i];
        r->n_steps = 0;
        spry_steps_watch(r->steps, true);
        status = once(r, point, &seconds);
        sums->count = spry_steps_ops(r->steps, sums->list, SUMS_MAX);
        for (size_t k = 0; k < sums->count; k++)
            sums->ns += (double)sums->list[k].ns;
        best = sums->ns < best->ns ? sums : best;
    }
    spry_steps_watch(r->steps, false);
    if (!status)
        status = record_ops(r, point, best, point->decode ? r->settings->tokens : 1);
    free(watched);
    return status;
}

/* ---- a point -------------------------------------------------------------------------------------------------------
 */

static void note_speed(const spry_bench_runner *r, spry_bench_point *point, double *tps)
{
    uint32_t n = r->settings->tokens;
    point->tps = spry_bench_stat_of(tps, r->settings->repeat);
    spry_work_amount work = point->decode ? spry_engine_decode_work(r->engine, point->tokens + n / 2, point->batch)
                                          : spry_engine_prefill_work(r->engine, point->tokens);
    double seconds = (point->decode ? point->batch : point->tokens) / point->tps.median;
    point->read_gb_s = work.bytes / seconds / 1e9;
    point->multiply_g_s = work.products / seconds / 1e9;
}

static uint64_t waits_of(const spry_bench_runner *r)
{
    spry_jobs_figures figures;
    spry_engine_jobs_figures(r->engine, &figures);
    return figures.waits;
}

static spry_status repeat(spry_bench_runner *r, spry_bench_point *point)
{
    double tps[SPRY_BENCH_REPEAT_MAX], seconds, all = 0;
    spry_joules before;
    spry_status status = once(r, point, &seconds);
    uint64_t waits = waits_of(r);
    r->n_steps = 0;
    spry_energy_read(r->energy, &before);
    for (uint32_t i = 0; !status && i < r->settings->repeat; i++) {
        status = once(r, point, &seconds);
        tps[i] = point_tokens(r, point) / seconds;
        all += seconds;
    }
    if (status)
        return status;
    point->waits = (double)(waits_of(r) - waits) / (point_tokens(r, point) * r->settings->repeat);
    note_speed(r, point, tps);
    if (point->decode)
        point->steps = spry_bench_steps_of(r->step_ms, r->n_steps);
    status = note_energy(r, point, &before, all, r->settings->repeat);
    point->gpu_busy = spry_gpu_busy_percent();
    return status;
}

static spry_status measure_point(spry_bench_runner *r, spry_bench_point *point)
{
    if (point->decode)
        snprintf(r->doing, sizeof r->doing, "decode at depth %u, %u together:", point->tokens, point->batch);
    else
        snprintf(r->doing, sizeof r->doing, "prefill of %u tokens:", point->tokens);
    r->n_steps = 0;
    spry_status status = spry_bench_reach(r, point->decode ? point->tokens : 0, point->batch);
    if (!status)
        status = repeat(r, point);
    if (!status)
        status = watch_ops(r, point);
    r->measured++;
    return status;
}

/* ---- all of a kind -------------------------------------------------------------------------------------------------
 */

static bool belongs(const spry_bench_point *point, spry_bench_stage stage)
{
    spry_bench_stage own = !point->decode      ? SPRY_BENCH_PREFILL
                           : point->batch == 1 ? SPRY_BENCH_ONE
                                               : SPRY_BENCH_BATCHES;
    return own == stage && !point->skipped[0];
}

static int by_depth(const void *a, const void *b)
{
    const spry_bench_point *x = *(spry_bench_point *const *)a, *y = *(spry_bench_point *const *)b;
    return (x->tokens > y->tokens) - (x->tokens < y->tokens);
}

static int by_depth_down(const void *a, const void *b)
{
    return by_depth(b, a);
}

spry_status spry_bench_measure_stage(spry_bench_runner *r, spry_bench_stage stage)
{
    spry_bench_point *order[SPRY_BENCH_POINTS_MAX];
    size_t count = 0;
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < r->report->n_points; i++)
        if (belongs(&r->report->points[i], stage))
            order[count++] = &r->report->points[i];
    if (stage != SPRY_BENCH_PREFILL)
        qsort(order, count, sizeof *order, stage == SPRY_BENCH_ONE ? by_depth : by_depth_down);
    for (size_t i = 0; !status && i < count; i++)
        status = measure_point(r, order[i]);
    return status;
}
