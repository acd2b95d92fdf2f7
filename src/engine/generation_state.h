/* What the files of generations share. */
#ifndef SPRY_ENGINE_GENERATION_STATE_H
#define SPRY_ENGINE_GENERATION_STATE_H

#include "engine/generation.h"

/* The answer is done; the first reason counts. */
void spry_generation_finish(spry_generation *generation, spry_finish why);

/* Emits a token. `logits`: of its row; NULL: it was not sampled. */
spry_status spry_generation_emit(spry_generation *generation, int32_t id, const float *logits, spry_error *error);

/* Tokens the grammar allows next; NULL: any. */
spry_status spry_generation_mask(spry_generation *generation, const uint32_t **mask, spry_error *error);

/* The grammar takes a token that was handed out; where nothing can follow, the answer is whole. */
spry_status spry_generation_follow(spry_generation *generation, int32_t id, spry_error *error);

/* Makes the answer whole instead of taking `id`, if behind it there would be no room for that any more. `held`: tokens
 * the sequence holds before it. */
spry_status spry_generation_complete(spry_generation *generation, int32_t id, size_t held, spry_error *error);

/* Decides without the model what the grammar leaves no choice about. */
spry_status spry_generation_force(spry_generation *generation, spry_error *error);

/* How many of these tokens, one behind the other, the grammar would take. */
size_t spry_generation_allowed(spry_generation *generation, const int32_t *ids, size_t count);

#endif
