/* Fragments that nothing declares: text of a prompt that is in cached pages, wherever it stood when it was computed. */
#ifndef SPRY_ENGINE_SPAN_SEARCH_H
#define SPRY_ENGINE_SPAN_SEARCH_H

#include "engine/sequence.h"

/* Runs of whole pages in a prompt, each page referenced. */
typedef struct spry_span_runs {
    spry_span *spans; /* ascending */
    uint32_t *pages;  /* of all runs, in order */
    size_t n_spans, n_pages;
} spry_span_runs;

/* Finds runs of at least the sequence's span_pages in ids [from, to). */
spry_status spry_span_search(spry_span_runs *runs, const spry_sequence *sequence, const int32_t *ids, size_t from,
                             size_t to, spry_error *error);
void spry_span_runs_deinit(spry_span_runs *runs, spry_kv_cache *cache);

#endif
