/* One answer: a request on a sequence, run in steps. The caller that runs steps gets the next rows, alone or together
 * with those of other generations, and passes back their logits; then tokens are sampled, verified, decoded and
 * emitted.
 *
 *   begin -> { next -> (a step) -> took } until done -> end
 *
 * In between it can be suspended, which gives its pages to others, and resumed: that changes no token of the answer.
 *
 * Rows of a step: tokens that are decided but not computed yet (the last one drawn, and what a grammar forces behind
 * it), then drafted ones. The logits from the last decided row on are judged one after the other; what is refused is
 * taken back. With or without drafts the tokens are the same. */
#ifndef SPRY_ENGINE_GENERATION_H
#define SPRY_ENGINE_GENERATION_H

#include <stdatomic.h>

#include "draft/draft_cost.h"
#include "draft/verification.h"
#include "engine/sequence.h"
#include "grammar/grammar.h"
#include "model/model.h"
#include "platform/laps.h"

enum { SPRY_PENDING_MOST = 64 };

/* Who guesses what comes next. */
typedef struct spry_drafter {
    /* Up to `most` tokens that may follow these; returns how many. *sync_ns: what it took before that to read what was
     * not known yet. */
    size_t (*propose)(void *self, int32_t *draft, size_t most, const int32_t *tokens, size_t n_tokens,
                      uint64_t *sync_ns);
    void *self;
} spry_drafter;

typedef struct spry_generation {
    /* set by the caller before begin, borrowed */
    const spry_model *model;
    spry_sequence *sequence;
    spry_verifier *verifier; /* and its sampler */
    const spry_request *request;
    spry_result *result;
    spry_matcher *matcher;       /* NULL: any text */
    const spry_drafter *drafter; /* NULL: none */
    spry_draft_cost *cost;       /* when there is a drafter */
    atomic_bool *cancelled;      /* ends the answer at its next step */
    spry_laps *laps;             /* begun */

    /* inside */
    int32_t pending[SPRY_PENDING_MOST]; /* decided, not computed */
    size_t n_pending;
    int32_t drafts[SPRY_DRAFT_MOST];
    size_t n_drafts;
    size_t other_rows; /* of the step under way */
    size_t n_appended; /* rows of the step under way that are the sequence's newest */
    uint64_t draft_ns, sync_ns;
    uint64_t start_ns, prefilled_ns, first_ns;
    spry_decoder decoder;
    spry_buffer held; /* decoded, not given out yet */
    bool unheard;     /* on_text said no: it hears nothing more */
    bool ended, begun;
    bool resuming; /* what it held is not all computed again */
    size_t n_held; /* tokens it held when it was suspended */
} spry_generation;

/* Looks the prompt up. Nothing is computed yet. */
spry_status spry_generation_begin(spry_generation *generation, spry_error *error);

/* The next rows, as spry_sequence_fill gives them; none when the answer is done. `other_rows`: of the step, that are
 * not this generation's. */
spry_status spry_generation_next(spry_generation *generation, spry_segment *segments, size_t *n, size_t capacity,
                                 size_t max_rows, size_t max_wanted, size_t other_rows, spry_error *error);

/* The rows have been computed; `logits` are those that were wanted, in a row. */
spry_status spry_generation_on_step_done(spry_generation *generation, size_t n_rows, const float *logits,
                                         spry_error *error);

bool spry_generation_done(const spry_generation *generation);

/* Whether its next rows are of the answer, not of what stands before it. */
bool spry_generation_decodes(const spry_generation *generation);

/* Whether the last failure of begin, next or resume came from a want of KV pages: others may have some later, and then
 * next or resume can be called again. */
bool spry_generation_starved(const spry_generation *generation);

/* Releases its pages and the rows of the last _next. Computed pages stay cached until they are evicted. */
void spry_generation_suspend(spry_generation *generation);
/* Looks up what it held; the rest is computed again, as the next rows. A failure leaves it suspended. */
spry_status spry_generation_resume(spry_generation *generation, spry_error *error);

/* Gives out what is still held back and completes the result. Also after a failure. */
void spry_generation_end(spry_generation *generation);

#endif
