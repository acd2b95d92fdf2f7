/* The embeddings of one request: jobs that are computed together and taken in the order of their texts. */
#ifndef SPRY_SERVER_EMBEDDING_H
#define SPRY_SERVER_EMBEDDING_H

#include "base/buffer.h"
#include "server/request/request_costs.h"

enum { SPRY_EMBEDDINGS_MAX = 64 }; /* jobs of a request at once */

typedef struct spry_embedder {
    spry_costs *costs; /* the request's */
    const spry_pooled *model;
    size_t width;    /* floats in one embedding */
    float *vector;   /* [width]: the last one taken */
    size_t n_tokens; /* of all texts taken */
    spry_job *jobs[SPRY_EMBEDDINGS_MAX];
    size_t sizes[SPRY_EMBEDDINGS_MAX]; /* in tokens */
    size_t first, count, most;         /* of the ring: the oldest job; how many; at most: twice what can run */
} spry_embedder;

/* Borrows `costs` and `model`. */
spry_status spry_embedder_init(spry_embedder *embedder, spry_costs *costs, const spry_pooled *model, spry_error *error);
/* Cancels what was not taken. */
void spry_embedder_deinit(spry_embedder *embedder);

/* Appends the ids of a text behind a prompt of the model (NULL: none). */
spry_status spry_embedder_encode(spry_tokens *ids, const spry_engine *engine, const char *prompt, spry_view text,
                                 spry_error *error);

/* Submits the embedding of a text; there is room (count < most). SPRY_ERR_BUSY: the model's queue is full. */
spry_status spry_embedder_add(spry_embedder *embedder, const spry_tokens *ids, spry_error *error);

/* Waits for the oldest embedding, which becomes `vector`. SPRY_ERR_CANCELLED: the client has disconnected. */
spry_status spry_embedder_take(spry_embedder *embedder, spry_error *error);

/* The last embedding as a list of numbers, and as base64 of little-endian 32-bit floats. */
json_t *spry_embedder_list(const spry_embedder *embedder);
json_t *spry_embedder_base64(const spry_embedder *embedder);

#endif
