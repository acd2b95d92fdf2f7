/* The timed operations that a machine's speed consists of. Each probe repeats one operation of a forward pass for some
 * milliseconds, in the same way: the same kernels, split over the same threads, on successive matrices that are not
 * cached. Results are billions per second of products, bytes or values. */
#ifndef SPRY_INSIGHT_SPEED_PROBE_H
#define SPRY_INSIGHT_SPEED_PROBE_H

#include "kernels/ops.h"
#include "platform/threads.h"
#include "spry_tools.h"

enum {
    SPRY_PROBE_ROWS = 128,   /* rows of a prefill step, the default of engines */
    SPRY_PROBE_WIDTH = 4096, /* maximum length of a row */
};

/* The memory for probes. */
typedef struct spry_probe_bed {
    const spry_ops *ops;
    spry_threads *threads;
    unsigned char *memory; /* for packed weights, keys and values: larger than the caches, in huge pages */
    unsigned char *plain;  /* same size, for weights that stay in their file: in ordinary pages */
    size_t bytes;
    size_t at;               /* position of the next weights */
    float *rows, *more_rows; /* [SPRY_PROBE_ROWS, SPRY_PROBE_WIDTH] */
    float *results;          /* the same */
    spry_act_block *act;     /* quantised activations of the first rows */
    unsigned char *pages;    /* for keys and values of the rows */
    size_t working_bytes;
    size_t many_out[SPRY_DTYPE_COUNT], one_out[SPRY_DTYPE_COUNT]; /* outputs of a matrix; 0: not chosen yet */
} spry_probe_bed;

spry_status spry_probe_bed_init(spry_probe_bed *bed, const spry_ops *ops, spry_threads *threads, spry_error *error);
void spry_probe_bed_deinit(spry_probe_bed *bed);

/* Memory for reading, filled with ordinary numbers: larger than the caches of the threads. On failure NULL, with the
 * requested size in *bytes. */
unsigned char *spry_probe_memory(size_t *bytes, spry_threads *threads);

/* One try each: many rows by a matrix, one row by matrices from memory, and by one from the caches. */
double spry_probe_multiply(spry_probe_bed *bed, spry_dtype type);
double spry_probe_decode(spry_probe_bed *bed, spry_dtype type);
double spry_probe_cached(spry_probe_bed *bed, spry_dtype type);

/* All threads multiplying what is in their own caches by the kernel of a type: the best of several tries. */
spry_status spry_probe_multiply_peak(double *g_s, const spry_ops *ops, spry_dtype type, spry_threads *threads,
                                     spry_error *error);

/* speed_probe.c */
double spry_probe_attend_many(spry_probe_bed *bed);
double spry_probe_attend_one(spry_probe_bed *bed);
double spry_probe_small(spry_probe_bed *bed, spry_small_op op);
double spry_probe_sync(spry_probe_bed *bed);

/* All threads read the first `bytes` of memory, `times` times. */
double spry_probe_read(const unsigned char *memory, size_t bytes, size_t times, spry_threads *threads);

#endif
