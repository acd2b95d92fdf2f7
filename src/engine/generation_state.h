/* Shared by the files of generations. */
#ifndef SPRY_ENGINE_GENERATION_STATE_H
#define SPRY_ENGINE_GENERATION_STATE_H

#include "engine/generation.h"

/* Ends the answer; the first reason counts. */
void spry_generation_finish(spry_generation *generation, spry_finish why);

/* Emits a token. `draw`: how it was sampled; NULL: it was not. */
spry_status spry_generation_emit(spry_generation *generation, int32_t id, const spry_draw *draw, spry_error *error);

/* The tokens that the grammar allows next; NULL: any. */
spry_status spry_generation_mask(spry_generation *generation, const uint32_t **mask, spry_error *error);

/* Advances the grammar by an emitted token; if nothing can follow, the answer is complete. */
spry_status spry_generation_follow(spry_generation *generation, int32_t id, spry_error *error);

/* Completes the answer instead of accepting `id`, if there would be no room for that after it. `held`: tokens in the
 * sequence before it. */
spry_status spry_generation_complete(spry_generation *generation, int32_t id, size_t held, spry_error *error);

/* Decides the tokens that the grammar forces, without the model. */
spry_status spry_generation_force(spry_generation *generation, spry_error *error);

/* How many of these consecutive tokens the grammar would accept. */
size_t spry_generation_allowed(spry_generation *generation, const int32_t *ids, size_t count);

#endif
