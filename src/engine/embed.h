/* Embeddings in parts, for those who have other things to do in between. A text's vector is made of the sum of its
 * hidden states; rows are added one by one in order, in double precision, so parts of any size give the same bits. */
#ifndef SPRY_ENGINE_EMBED_H
#define SPRY_ENGINE_EMBED_H

#include "spry.h"

/* Whether there is an embedding of these ids. From any thread. */
spry_status spry_embed_check(const spry_engine *engine, const int32_t *ids, size_t count, spry_error *error);

/* Adds the hidden states after ids [first, count) to sum[n_embd]. The ids have been checked. What was computed of those
 * before `first` is reused, on whatever session; the session holds `ids` then. */
spry_status spry_embed_add(spry_session *session, double *sum, const int32_t *ids, size_t count, size_t first,
                           spry_error *error);

/* The sum at length 1; one of no length stays zero. Fails when it is not finite. */
spry_status spry_embed_scale(float *out, const double *sum, size_t n, spry_error *error);

#endif
