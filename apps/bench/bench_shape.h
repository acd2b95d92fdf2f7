/* Models with random weights, or with the weights of a smaller model, for `spry bench`: written to a given file, or to
 * a temporary one. */
#ifndef SPRY_APPS_BENCH_SHAPE_H
#define SPRY_APPS_BENCH_SHAPE_H

#include "base/error.h"
#include "cli/model_source.h"
#include "platform/file.h"

typedef struct spry_bench_shape {
    const char *shape, *type; /* "qwen3-0.6b", "q4_0" */
    uint32_t threads;
    const spry_model_source *widened; /* whose function the model has; NULL: random weights */
} spry_bench_shape;

/* Writes the model to `path`, with a progress line; after Ctrl-C no file remains. */
spry_status spry_bench_shape_write(const spry_bench_shape *shape, const char *path, spry_error *error);

/* Writes to a temporary file, which the caller reads by its path and deinitialises. */
spry_status spry_bench_shape_make(spry_temporary *file, const spry_bench_shape *shape, spry_error *error);

#endif
