/* The eyes of an engine: the model's tower on a device of its own, and pictures that were encoded before. */
#ifndef SPRY_ENGINE_EYES_H
#define SPRY_ENGINE_EYES_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "engine/engine_state.h"
#include "spry_pictures.h"

typedef struct spry_eyes spry_eyes;

/* NULL for a model without eyes. Sets the engine's picture_rows; memory is allocated with the first picture. Threads
 * and driver of the engine are not needed before. */
spry_status spry_eyes_create(spry_eyes **out, spry_engine *engine, const spry_engine_options *options,
                             spry_error *error);
void spry_eyes_destroy(spry_eyes *eyes);

/* Decides where the tower is computed, once the engine's device is chosen: sets eyes_on_gpu and eyes_bytes, and takes a
 * GPU's part off device_bytes and gpu_bytes. */
void spry_eyes_place(spry_eyes *eyes);

/* A picture file as a part of a prompt: tokens, and pictures in place of some of them. Constant once it is shared. */
typedef struct spry_seen {
    atomic_uint references;
    const char *margin; /* text before and after it, which is tokenised with the text beside it */
    spry_tokens ids;
    spry_placed *placed; /* referenced; `at` counts from the first of ids */
    size_t n_placed, bytes;
} spry_seen;

void spry_seen_unref(spry_seen *seen);

/* Time that pictures took: decoding and resizing them; the tower, with waiting for it. */
typedef struct spry_eyes_cost {
    uint64_t preprocess_ns, encode_ns;
} spry_eyes_cost;

/* What the model sees in a picture file, with a reference for the caller; its time is added to `cost`. Any thread:
 * other work of the engine waits while the tower computes. `name`: for messages. */
spry_status spry_eyes_look(spry_eyes *eyes, spry_seen **out, spry_eyes_cost *cost, const void *file, size_t size,
                           const char *name, spry_error *error);

#endif
