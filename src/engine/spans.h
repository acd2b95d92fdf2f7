/* Fragments of a prompt whose cached pages are reused after other text than they were computed after. */
#ifndef SPRY_ENGINE_SPANS_H
#define SPRY_ENGINE_SPANS_H

#include "engine/sequence.h"

/* Which pages of a fragment are recomputed in place. The choice depends on the places of the prompt's spans and on the
 * repair alone, never on what is cached; and for the spans of one place not on spans that follow later text, so that a
 * conversation that goes on finds what it has computed. */

typedef struct spry_span_choice {
    size_t head; /* pages before this page, */
    size_t tail; /* this page and all later pages, */
    size_t step; /* and every step-th page are recomputed; 0: only head and tail */
} spry_span_choice;

spry_span_choice spry_span_choose(const spry_prompt *prompt, const spry_span *span);

static inline bool spry_span_chosen(const spry_span_choice *choice, size_t page)
{
    return page < choice->head || page >= choice->tail || (choice->step && page % choice->step == 0);
}

/* What reusing `spans` tokens of a prompt, with `repaired` more of them recomputed in place, is expected to cost: the
 * mean KL divergence from full prefill, in nats per token, as measured with the bundled model. */
double spry_span_divergence(size_t spans, size_t repaired, size_t prompt);

/* Fragments that nothing declares: text of a prompt that is in cached pages, wherever it stood when it was computed. */

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
