/* What GPUs measured of ways to decode, from the file that the engine keeps (docs/GPU.md). */
#ifndef SPRY_APPS_DOCTOR_GPU_WAYS_H
#define SPRY_APPS_DOCTOR_GPU_WAYS_H

#include <jansson.h>

#include "base/buffer.h"

/* An object: lists of ways by GPU, driver, kernels and model; the caller releases it. NULL: there is none. */
json_t *spry_gpu_ways_load(void);

/* "1 row 740 us, 8 rows 970 us" of such a list. */
void spry_gpu_ways_print(spry_buffer *out, const json_t *list);

#endif
