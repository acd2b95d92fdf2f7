/* Runs rounds over all probes and takes the upper quartile of each: other programs only make tries slower, but the
 * fastest try may be an outlier that a longer run does not reach. */
#include "spry_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "insight/speed_probe.h"
#include "platform/clock.h"
#include "platform/memory.h"

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

/* ---- the probes behind one kind of function ---------------------------------------------------------------------- */

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
