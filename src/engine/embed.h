/* Embeddings: which texts have one. How it is made of hidden states is the model's (model/pooling.h). */
#ifndef SPRY_ENGINE_EMBED_H
#define SPRY_ENGINE_EMBED_H

#include "spry.h"

/* Checks that these ids have an embedding. Thread-safe. */
spry_status spry_embed_check(const spry_engine *engine, const int32_t *ids, size_t count, spry_error *error);

#endif
