/* How many tokens to draft. For each sequence it learns how often drafts are accepted, position by position, and what
 * drafting costs; with the cost of the target's steps it chooses the number that promises the most tokens a second,
 * which may be none. docs/SPECULATION.md has the formulas.
 *
 * A drafter that is wrong all the time is left alone, and tried again after pauses that double. What speculation may
 * lose is limited by an account: every token earns a small share, losses are paid from it, and without funds nothing is
 * drafted.
 *
 * No clock, no chance: the same calls give the same answers. */
#ifndef SPRY_DRAFT_DRAFT_COST_H
#define SPRY_DRAFT_DRAFT_COST_H

#include "draft/draft_figures.h"
#include "draft/step_cost.h"

typedef struct spry_draft_position {
    double tried, accepted; /* decaying counts: tried are the drafts whose predecessors were accepted */
} spry_draft_position;

typedef struct spry_draft_cost {
    const spry_step_cost *steps; /* borrowed */
    spry_draft_position positions[SPRY_DRAFT_MOST];
    double draft_ns, draft_tokens;                 /* decaying sums */
    double account;                                /* tokens that may be lost */
    uint32_t pause;                                /* steps without drafts before a trial */
    uint32_t trials_left;                          /* of the trial under way */
    uint32_t since_draft, since_plain, since_loss; /* steps */
    spry_draft_figures figures;
} spry_draft_cost;

typedef struct spry_draft_outcome {
    size_t other_rows; /* rows of the step that are not this sequence's */
    uint32_t drafted;  /* tokens verified, at most SPRY_DRAFT_MOST; 0: a plain step */
    uint32_t accepted; /* of them */
    uint64_t draft_ns; /* what drafting took, also when it gave nothing */
    uint64_t sync_ns;  /* what it took before to bring the drafter up to date after a pause: paid from the account, not
                          held against later drafts */
} spry_draft_outcome;

/* `steps` is measured by whoever runs the steps, once for each. */
void spry_draft_cost_init(spry_draft_cost *cost, const spry_step_cost *steps);

/* How many tokens to draft for the next step, at most `most` (what the drafter, the context and the answer's length
 * allow), if it has `other_rows` besides this sequence's. Drafters that cost next to nothing can draft first and pass
 * what they found as `most`. Changes nothing: what happens next is told to _learn. */
uint32_t spry_draft_cost_choose(const spry_draft_cost *cost, size_t other_rows, uint32_t most);

/* After each of the sequence's steps, plain ones too, and after spry_step_cost_measure. */
void spry_draft_cost_learn(spry_draft_cost *cost, const spry_draft_outcome *outcome);

#endif
