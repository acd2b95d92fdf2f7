/* How fast this machine does what a forward pass is made of, with the kernels and threads an engine would use: enough
 * to say how fast a model will run without having it. Every figure is the middle of several short tries, taken in
 * rounds over everything that is measured, so that what else the machine does meanwhile falls on all figures alike. */
#ifndef SPRY_APPS_DOCTOR_MACHINE_SPEED_H
#define SPRY_APPS_DOCTOR_MACHINE_SPEED_H

#include <jansson.h>

#include "kernels/ops.h"
#include "platform/threads.h"

/* Products with a matrix of one type; zeros: no kernel takes the type. */
typedef struct spry_type_speed {
    double multiply_g_s; /* many rows, as in a prefill: billions of products a second */
    double decode_gb_s;  /* one row, weights from memory */
    double cached_gb_s;  /* one row, weights from the caches */
} spry_type_speed;

/* All threads reading the same `bytes` again and again. */
typedef struct spry_read_speed {
    double bytes, gb_s;
} spry_read_speed;

/* What is done to rows of numbers between products. */
typedef enum spry_small_op {
    SPRY_SMALL_NORM,   /* a norm and a residual */
    SPRY_SMALL_ROPE,   /* queries, keys and values: rope, and into the pages */
    SPRY_SMALL_GATE,   /* activation */
    SPRY_SMALL_ENCODE, /* activations for integer kernels */
    SPRY_SMALL_COUNT
} spry_small_op;

enum { SPRY_READ_SPEEDS = 10 };

typedef struct spry_machine_speed {
    uint32_t threads;
    char kernels[16];
    double read_gb_s;                        /* from memory */
    spry_read_speed reads[SPRY_READ_SPEEDS]; /* ascending by bytes, from what any cache holds to what none does */
    double sync_us;                          /* waking all threads and waiting for them */
    double attend_g_s;                       /* attention of many rows over keys and values in F16 */
    double attend_gb_s;                      /* attention of one row: keys and values read from memory */
    double small_g_s[SPRY_SMALL_COUNT];      /* numbers gone through */
    spry_type_speed types[SPRY_DTYPE_COUNT];
} spry_machine_speed;

/* Called now and then with how much is done; false stops, with SPRY_ERR_CANCELLED. */
typedef struct spry_speed_progress {
    bool (*report)(void *user, size_t done, size_t total);
    void *user;
} spry_speed_progress;

/* Measures everything in about 5 seconds. `cpu` is a mask as for spry_ops_get, `threads` 0 means all usable, `progress`
 * may be NULL. Takes some hundred megabytes of memory meanwhile. */
spry_status spry_machine_speed_measure(spry_machine_speed *speed, const char *cpu, uint32_t threads,
                                       const spry_speed_progress *progress, spry_error *error);

/* The object "speeds" of a machine's profile (NULL when memory is short), and back: what it lacks, or has as something
 * else than numbers above 0, is refused by name. Types may be missing; they are unknown then. */
json_t *spry_machine_speed_to_json(const spry_machine_speed *speed);
spry_status spry_machine_speed_from_json(spry_machine_speed *speed, const json_t *json, spry_error *error);

/* Two limits that no engine passes, each the best of several tries: all threads reading memory; all threads multiplying
 * what lies in their own caches, by the kernel of a type. */
spry_status spry_machine_read_peak(double *gb_s, spry_threads *threads, spry_error *error);
spry_status spry_machine_multiply_peak(double *g_s, const spry_ops *ops, spry_dtype type, spry_threads *threads,
                                       spry_error *error);

#endif
