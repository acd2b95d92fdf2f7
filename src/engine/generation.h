/* One answer: a request on a sequence, run in steps. The caller that runs steps gets the next rows and the draws that
 * go with them, alone or together with rows of other generations; after the step tokens are verified, decoded and
 * emitted.
 *
 *   begin -> { next -> draws -> (a step) -> on_step_done } until done -> end
 *
 * In between it can be suspended, which releases its pages, and resumed: that changes no token of the answer.
 *
 * The rows of a step are tokens that are decided but not computed yet (the last sampled one, and those forced by a
 * grammar), then drafts. At each row from the last decided one on a token is drawn; a draft is accepted where the draw
 * gives the same token, and refused drafts are removed. The tokens are the same with and without drafts.
 *
 * Draws that are known before the step go with it. With a grammar that is only the first: the mask of the next one
 * depends on its token. */
#ifndef SPRY_ENGINE_GENERATION_H
#define SPRY_ENGINE_GENERATION_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/number.h"
#include "base/view.h"
#include "device/device.h"
#include "draft/draft_cost.h"
#include "engine/sequence.h"
#include "grammar/grammar.h"
#include "model/model.h"
#include "platform/trace.h"
#include "template/tool_styles.h"

/* ---- thought_watch.c: the budget of thoughts --------------------------------------------------------------------- */

/* Counts the tokens of the thought with which an answer begins, so that it can be closed when its budget is spent. */

enum { SPRY_THOUGHT_TAIL = 64 };

typedef struct spry_thought_watch {
    const spry_thought_style *style; /* NULL: nothing is watched */
    uint32_t left;                   /* tokens that the thought can still have */
    bool inside, decided;            /* decided: it is known whether the answer begins with a thought */
    char tail[SPRY_THOUGHT_TAIL];    /* the last bytes, in which marks are looked for */
    size_t n_tail;
} spry_thought_watch;

/* `prompt`: the end of the prompt, which may open the thought. `budget` 0: nothing is watched. */
void spry_thought_watch_begin(spry_thought_watch *watch, const spry_thought_style *style, spry_view prompt,
                              uint32_t budget);

/* A token was emitted whose text is `text`. */
void spry_thought_watch_token(spry_thought_watch *watch, spry_view text);

/* Whether the thought must be closed now, and whether the next token may make it so. */
bool spry_thought_watch_due(const spry_thought_watch *watch);
bool spry_thought_watch_near(const spry_thought_watch *watch);

/* ---- generation.c ------------------------------------------------------------------------------------------------ */

enum { SPRY_PENDING_MOST = 64 };

/* What proposing took before the first draft. */
typedef struct spry_draft_times {
    uint64_t sync_ns;    /* on tokens the drafter had not seen, as far as they make its text longer */
    uint64_t prefill_ns; /* on a prompt, or more than the answer's last tokens */
} spry_draft_times;

/* A source of drafts. */
typedef struct spry_drafter {
    /* Writes up to `most` tokens that may follow these; returns their number. */
    size_t (*propose)(void *self, int32_t *draft, size_t most, const int32_t *tokens, size_t n_tokens,
                      spry_draft_times *times);
    /* NULL, or reads the results of a step's rows, after the device has computed them: the sequence's segments of the
     * step, and the number of the first one's hidden states in the device's tap. */
    void (*read)(void *self, const spry_sequence *sequence, const spry_segment *segments, size_t n, size_t first_tap);
    void *self;
} spry_drafter;

/* In precise mode: the least log probability of a drafted token to the drafter. Its own errors are not in that, so it
 * is above what is asked of the drafts, nine of ten. */
#define SPRY_DRAFT_SURE (-0.05)

typedef struct spry_generation {
    /* set by the caller before begin, borrowed */
    const spry_model *model;
    spry_sequence *sequence;
    spry_device *device;
    const spry_request *request;
    spry_result *result;
    spry_matcher *matcher;       /* NULL: any text */
    const spry_drafter *drafter; /* NULL: none */
    spry_draft_cost *cost;       /* when there is a drafter */
    atomic_bool *cancelled;      /* ends the answer at its next step */
    spry_laps *laps;             /* begun */

    /* inside */
    spry_random random;                 /* generator with the request's seed */
    int32_t pending[SPRY_PENDING_MOST]; /* decided, not computed */
    size_t n_pending;
    int32_t drafts[SPRY_DRAFT_MOST];
    size_t n_drafts;
    bool decides;                         /* the current step computes the rows that tokens are drawn at */
    spry_draw draws[SPRY_DRAFT_MOST + 1]; /* one for each of these rows */
    size_t n_ridden, first_logits;        /* draws that go with the step; number of the first row with logits */
    size_t other_rows;                    /* rows of other jobs in the current step */
    size_t n_appended;                    /* newest rows of the sequence in the current step */
    uint64_t draft_ns, sync_ns;
    uint64_t start_ns, prefilled_ns, first_ns;
    spry_decoder decoder;
    spry_buffer held; /* decoded, not emitted yet */
    spry_thought_watch thought;
    bool unheard; /* on_text returned false; never call it again */
    bool ended, begun;
    bool resuming; /* earlier tokens of the answer are still being computed again */
    size_t n_held; /* tokens it had when it was suspended */
} spry_generation;

/* Looks up the prompt. Computes nothing. */
spry_status spry_generation_begin(spry_generation *generation, spry_error *error);

/* The next rows, as in spry_sequence_fill; none when the answer is done. `other_rows`: rows of the step that belong to
 * other generations. */
spry_status spry_generation_next(spry_generation *generation, spry_segment *segments, size_t *n, size_t capacity,
                                 size_t max_rows, size_t max_wanted, size_t other_rows, spry_error *error);

/* The draws for the rows of spry_generation_next, at most SPRY_DRAFT_MOST + 1; returns their number. `first_logits`:
 * the number of the generation's first row with logits in the step. Call it again when the rows move to another step.
 */
size_t spry_generation_draws(spry_generation *generation, spry_draw **draws, size_t first_logits);

/* The row and the draw of the step after the one that next gave rows for, where they are known except for the row's
 * token, which that step draws. False: that step's token may change more than that, or end the answer.
 */
bool spry_generation_ahead(const spry_generation *generation, spry_segment *segment, spry_draw *draw);

/* The rows have been computed; the device holds their results. */
spry_status spry_generation_on_step_done(spry_generation *generation, size_t n_rows, spry_error *error);

bool spry_generation_done(const spry_generation *generation);

/* Whether its next rows belong to the answer, not to the prompt. */
bool spry_generation_decodes(const spry_generation *generation);

/* Releases its pages and the rows of the last _next. Computed pages stay cached until they are evicted. */
void spry_generation_suspend(spry_generation *generation);
/* Looks up its tokens; the rest is recomputed as the next rows. A failure leaves it suspended. */
spry_status spry_generation_resume(spry_generation *generation, spry_error *error);

/* Emits the text still held back and completes the result. Also called after a failure. */
void spry_generation_end(spry_generation *generation);

/* Stop strings in streamed text. Text is held back only while it could become a stop string. */

/* The length of `text` that can be emitted: *found: a stop string begins there; otherwise the rest may be the beginning
 * of one. At the end of the text (`whole`) a partial match holds nothing back. */
size_t spry_stop_match(bool *found, spry_view text, const char *const *stop, size_t n_stop, bool whole);

#endif
