/* Sequences that step together on an engine, one segment each, as jobs without a session: for measuring the cost of a
 * batch. They hold pages of the engine's pool, and one thread uses a batch. Programs use spry.h. */
#ifndef SPRY_ENGINE_BATCH_H
#define SPRY_ENGINE_BATCH_H

#include "engine/engine_state.h"

enum { SPRY_BATCH_MAX = SPRY_MAX_LOGIT_ROWS };

typedef struct spry_batch {
    spry_engine *engine;
    size_t count;
    spry_kv_table tables[SPRY_BATCH_MAX];
} spry_batch;

/* `count` empty sequences, at most SPRY_BATCH_MAX. */
spry_status spry_batch_init(spry_batch *batch, spry_engine *engine, size_t count, spry_error *error);
void spry_batch_deinit(spry_batch *batch);

/* Appends the tokens of one step (at most the engine's chunk) to the first sequence. `last`: with the logits after the
 * last one. */
spry_status spry_batch_prefill(spry_batch *batch, const int32_t *ids, size_t count, bool last, spry_error *error);

/* Copies the contents of the first sequence to sequences 1 to n - 1, in separate pages, like conversations that have
 * nothing in common. */
spry_status spry_batch_spread(spry_batch *batch, size_t n, spry_error *error);

/* One token each for the first n sequences, ids[i] for sequence i, with logits. */
spry_status spry_batch_step(spry_batch *batch, const int32_t *ids, size_t n, spry_error *error);

/* Every sequence keeps at most its first `n_tokens`. */
void spry_batch_truncate(spry_batch *batch, size_t n_tokens);

#endif
