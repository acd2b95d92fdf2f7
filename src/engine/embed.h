/* The embedding of a text is the sum of its hidden states scaled to length 1. Mean and sum have the same direction, so
 * only the sum is computed. */
#ifndef SPRY_ENGINE_EMBED_H
#define SPRY_ENGINE_EMBED_H

#include "spry.h"

/* Checks that these ids have an embedding. Thread-safe. */
spry_status spry_embed_check(const spry_engine *engine, const int32_t *ids, size_t count, spry_error *error);

/* Scales the sum to length 1; a zero sum stays zero. Fails when it is not finite. */
spry_status spry_embed_scale(float *out, const double *sum, size_t n, spry_error *error);

#endif
