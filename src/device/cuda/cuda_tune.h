/* Ways to launch decode steps. None changes a bit of what a step gives, so the fastest is taken: measured for each size
 * of step on this GPU with this model (cuda_tune.c), and kept in a file (cuda_tune_profile.c). */
#ifndef SPRY_DEVICE_CUDA_CUDA_WAYS_H
#define SPRY_DEVICE_CUDA_CUDA_WAYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* What there is to choose. The value 0 stands for the rule in the code, which holds where nothing was measured. */
typedef enum spry_cuda_tunable {
    SPRY_TUNE_LAUNCHES,   /* 1: kernel by kernel; 2: the layers as one kernel; by rule: as a graph */
    SPRY_TUNE_WGMMA,      /* of more than 8 rows, products 1: by splits of inputs, not by instructions of four warps */
    SPRY_TUNE_CLUSTER,    /* blocks that share the pages of a row and key head */
    SPRY_TUNE_NORM_TILES, /* tiles of a block at a time, where products normalise their rows, */
    SPRY_TUNE_GATE_TILES, /* and where they are a gate and what it is multiplied by */
    SPRY_TUNABLES
} spry_cuda_tunable;

typedef struct spry_cuda_decode_config {
    uint8_t of[SPRY_TUNABLES];
} spry_cuda_decode_config;

/* Steps of up to so many rows, which are measured with exactly so many. */
enum { SPRY_CUDA_STEP_SIZES = 3 };
extern const size_t spry_cuda_step_sizes[SPRY_CUDA_STEP_SIZES];

/* Which of them concerns a step; SPRY_CUDA_STEP_SIZES: none, it is no decode step. */
size_t spry_cuda_step_size_of(size_t rows);

typedef struct spry_cuda_measured {
    spry_cuda_decode_config config;
    double us, rule_us; /* of a step; rule_us: where every choice is by rule. 0: not measured */
} spry_cuda_measured;

/* Microseconds of a step of so many rows; 0: there is no time to measure more. */
typedef double (*spry_cuda_timer)(void *context, size_t rows, const spry_cuda_decode_config *config);

/* The fastest way: choice after choice each value is tried, with the best of the choices before. What is not clearly
 * faster than by rule, which is measured once more at the end, is not taken. */
void spry_cuda_choose(spry_cuda_measured *best, size_t rows, spry_cuda_timer timer, void *context);

/* "1 row 740.0 us, share 4 (by rule 760.0 us); 8 rows 970.0 us": of those that were measured. */
void spry_cuda_profile_describe(char *text, size_t size, const spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES]);

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* What the file has for this key. Where there is no file, or not this key, nothing was measured; a file that is not
 * understood is refused, and nothing was measured either. */
spry_status spry_cuda_profile_read(spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES], const char *path, const char *key,
                                   spry_error *error);

/* Replaces what the file has for this key, whole or not at all; a file that is not understood is replaced, too. */
spry_status spry_cuda_profile_write(const char *path, const char *key,
                                    const spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES], spry_error *error);

/* By name and back: false for unknown names, and for values that there is no kernel for. */
const char *spry_cuda_tunable_name(spry_cuda_tunable tunable);
bool spry_cuda_decode_config_set(spry_cuda_decode_config *config, const char *name, uint64_t value);

#endif
