/* Answers as fragments: after an answer is complete its text is computed once more, alone, as a fragment is, so that
 * the next request that contains it as one finds it, at any position. It is computed again because a fragment must not
 * depend on the text before it; it runs as batch jobs, which give way to all requests, on a thread that waits
 * for them. */
#ifndef SPRY_SERVER_ANSWER_SPANS_H
#define SPRY_SERVER_ANSWER_SPANS_H

#include "server/server.h"

typedef struct spry_answer_spans spry_answer_spans;

spry_status spry_answer_spans_create(spry_answer_spans **out, spry_model_pool *pool, spry_error *error);
/* Drops texts that still wait. */
void spry_answer_spans_destroy(spry_answer_spans *spans);

/* Makes a text known as a fragment of a model that the caller holds, under the key's salt. Returns at once; when too
 * many wait, or memory is short, the text is not made known. */
void spry_answer_spans_add(spry_answer_spans *spans, const spry_pooled *model, spry_view key, spry_view text);

#endif
