/* Tunable launch configs of decode steps. They do not change the result of a step, so the fastest one is used: measured
 * for each step size on this GPU with this model, and stored in a profile. */
#ifndef SPRY_DEVICE_CUDA_CUDA_TUNE_H
#define SPRY_DEVICE_CUDA_CUDA_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The tunables. The value 0 means the rule in the code, which applies if nothing was measured. */
typedef enum spry_cuda_tunable {
    SPRY_TUNE_LAUNCHES,   /* 1: single launches; 2: persistent kernel; by rule: a CUDA graph */
    SPRY_TUNE_WGMMA,      /* steps of more than 8 rows: 1: gemm_mma.cuh in place of gemm_wgmma.cu */
    SPRY_TUNE_CLUSTER,    /* blocks of a cluster that share the pages of a row and KV head */
    SPRY_TUNE_NORM_TILES, /* tiles at a time of a GEMV with a fused norm */
    SPRY_TUNE_GATE_TILES, /* and of a gate and up GEMV */
    SPRY_TUNABLES
} spry_cuda_tunable;

typedef struct spry_cuda_decode_config {
    uint8_t of[SPRY_TUNABLES];
} spry_cuda_decode_config;

/* Step sizes: maximum number of rows, which is also the number that is measured. */
enum { SPRY_CUDA_STEP_SIZES = 3 };
extern const size_t spry_cuda_step_sizes[SPRY_CUDA_STEP_SIZES];

/* Index of the size of a step; SPRY_CUDA_STEP_SIZES: larger than all. */
size_t spry_cuda_step_size_of(size_t rows);

typedef struct spry_cuda_measured {
    spry_cuda_decode_config config;
    double us, rule_us; /* time of a step, with this config and by rule. 0: not measured */
} spry_cuda_measured;

/* Microseconds of a step; 0: the time for measuring is used up. */
typedef double (*spry_cuda_timer)(void *context, size_t rows, const spry_cuda_decode_config *config);

/* Finds the fastest config: tries each value of one tunable after the other, keeping the best ones so far. A config
 * must be clearly faster than the rule, which is measured again at the end. */
void spry_cuda_choose(spry_cuda_measured *best, size_t rows, spry_cuda_timer timer, void *context);

/* Describes the measured sizes: "1 row 740.0 us, share 4 (by rule 760.0 us); 8 rows 970.0 us". */
void spry_cuda_profile_describe(char *text, size_t size, const spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES]);

/* ---- the profile ------------------------------------------------------------------------------------------------- */

/* Reads the entry of a key. Without a file or entry nothing counts as measured; an invalid file is an error. */
spry_status spry_cuda_profile_read(spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES], const char *path, const char *key,
                                   spry_error *error);

/* Replaces the entry of a key atomically; an invalid file is replaced. */
spry_status spry_cuda_profile_write(const char *path, const char *key,
                                    const spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES], spry_error *error);

/* Name of a tunable; sets a tunable by name, false for an unknown name or value. */
const char *spry_cuda_tunable_name(spry_cuda_tunable tunable);
bool spry_cuda_decode_config_set(spry_cuda_decode_config *config, const char *name, uint64_t value);

#endif
