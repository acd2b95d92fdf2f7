/* The eyes of an engine: the model's tower on a device of its own, and pictures that were encoded before. */
#ifndef SPRY_ENGINE_EYES_H
#define SPRY_ENGINE_EYES_H

#include "engine/engine_state.h"
#include "spry_pictures.h"

typedef struct spry_eyes spry_eyes;

/* NULL for a model without eyes. The tower is opened with the first picture. */
spry_status spry_eyes_create(spry_eyes **out, spry_engine *engine, spry_error *error);
void spry_eyes_destroy(spry_eyes *eyes);

/* Tokens around a picture's rows and in their place; -1: none. */
typedef struct spry_eyes_tokens {
    int32_t pad, begin, end;
} spry_eyes_tokens;

/* A picture file as rows for the model, with a reference for the caller. Any thread: other work of the engine waits
 * while the tower computes. `name`: for messages. */
spry_status spry_eyes_look(spry_eyes *eyes, spry_picture **out, spry_eyes_tokens *tokens, const void *file, size_t size,
                           const char *name, spry_error *error);

#endif
