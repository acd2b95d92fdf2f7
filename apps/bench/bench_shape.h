/* Models with random weights for `spry bench`: written to a file people keep, or to one that vanishes. */
#ifndef SPRY_APPS_BENCH_SHAPE_H
#define SPRY_APPS_BENCH_SHAPE_H

#include "base/error.h"
#include "platform/temporary.h"

typedef struct spry_bench_shape {
    const char *shape, *type; /* "qwen3-0.6b", "q4_0" */
    uint32_t threads;
} spry_bench_shape;

/* Writes the model to `path`, with a progress line; Ctrl-C leaves nothing behind. */
spry_status spry_bench_shape_write(const spry_bench_shape *shape, const char *path, spry_error *error);

/* The same into a temporary file, to be read by its path and then deinited by the caller. */
spry_status spry_bench_shape_make(spry_temporary *file, const spry_bench_shape *shape, spry_error *error);

#endif
