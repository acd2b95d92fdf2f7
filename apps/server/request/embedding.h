/* The embeddings of one request, computed in sequence. */
#ifndef SPRY_SERVER_EMBEDDING_H
#define SPRY_SERVER_EMBEDDING_H

#include "base/tokens.h"
#include "server/request/request_costs.h"

typedef struct spry_embedder {
    spry_costs *costs; /* the request's */
    const spry_pooled *model;
    size_t width;    /* floats in one embedding */
    float *vector;   /* [width]: the last one */
    size_t n_tokens; /* of all texts computed */
} spry_embedder;

/* Borrows `costs` and `model`. */
spry_status spry_embedder_init(spry_embedder *embedder, spry_costs *costs, const spry_pooled *model, spry_error *error);
void spry_embedder_deinit(spry_embedder *embedder);

/* Computes the embedding of a text as a job of the model. SPRY_ERR_CANCELLED: the client has disconnected. */
spry_status spry_embedder_run(spry_embedder *embedder, const spry_tokens *ids, spry_error *error);

/* The last embedding as a list of numbers, and as base64 of little-endian 32-bit floats. */
json_t *spry_embedder_list(const spry_embedder *embedder);
json_t *spry_embedder_base64(const spry_embedder *embedder);

#endif
