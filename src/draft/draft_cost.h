/* Chooses how many tokens to draft. Per sequence it learns the acceptance rate at each draft position and the cost of
 * drafting; with the cost of the target's steps it chooses the number with the highest expected tokens per second,
 * which may be 0. docs/SPECULATION.md has the formulas.
 *
 * A drafter whose tokens are refused is not used for a pause that grows each time. An account limits the total loss:
 * every token adds a small credit, losses are deducted, and nothing is drafted while the account is empty. A plain step
 * between drafted ones shows what they cost: often at first, and seldom once drafts have paid at several of them.
 *
 * Uses no clock and no random numbers: the same calls give the same results. */
#ifndef SPRY_DRAFT_DRAFT_COST_H
#define SPRY_DRAFT_DRAFT_COST_H

#include <stdint.h>

#include "draft/draft_steps.h"
#include "spry.h"

/* Drafting statistics, counted since creation. */

typedef struct spry_draft_figures {
    uint64_t steps, tokens; /* all steps of the sequence; tokens they produced */
    uint64_t drafted, accepted;
    uint64_t tried_at[SPRY_DRAFT_MOST], accepted_at[SPRY_DRAFT_MOST]; /* per position: drafts whose predecessors were
                                                                       * accepted */
    uint64_t lengths[SPRY_DRAFT_MOST + 1];                            /* steps by number of drafted tokens */
    uint64_t rollbacks[SPRY_DRAFT_MOST + 1]; /* steps with drafts by number of refused tokens */
    double plain_cost, taken_cost;           /* estimated cost of the same tokens without drafts; and with them */
    double prefill_ns;                       /* time in which a drafter computed the prompt, or tokens that it had
                                              * missed */
} spry_draft_figures;

/* Counts a step with `drafted` tokens, `accepted` of them accepted; both at most SPRY_DRAFT_MOST. */
void spry_draft_figures_count(spry_draft_figures *figures, uint32_t drafted, uint32_t accepted);

/* The smallest number n such that `share` (0 to 1) of the drafted steps have at most n refused tokens. */
uint32_t spry_draft_rollback(const spry_draft_figures *figures, double share);

/* Tokens per step; 1 before the first step. */
double spry_draft_tokens_per_step(const spry_draft_figures *figures);

/* Estimated speed relative to decoding without drafts; 1 before the first step. */
double spry_draft_speedup(const spry_draft_figures *figures);

typedef struct spry_draft_cost spry_draft_cost;

/* Why few tokens are drafted: the expected duration of a step with one draft, relative to one without (0: not known),
 * and the probability that this draft is accepted. */
void spry_draft_prospect(const spry_draft_cost *cost, double *step_cost, double *acceptance);

typedef struct spry_draft_position {
    double tried, accepted; /* decaying counts; `tried`: drafts whose predecessors were accepted */
} spry_draft_position;

struct spry_draft_cost {
    const spry_draft_steps *steps; /* borrowed */
    spry_draft_position positions[SPRY_DRAFT_MOST];
    double draft_units, draft_tokens;              /* decaying sums; the cost of drafting in the units of `steps` */
    double account;                                /* tokens that may still be lost */
    uint32_t pause;                                /* steps without drafts before the next trial */
    uint32_t trials_left;                          /* drafted steps left in the current trial */
    uint32_t since_draft, since_plain, since_loss; /* steps */
    uint32_t paid;                                 /* plain steps between drafts at which drafts clearly paid */
    bool checking;                                 /* a second plain step is due after a few drafted ones */
    spry_draft_figures figures;
};

typedef struct spry_draft_outcome {
    size_t other_rows; /* rows of the step that belong to other sequences */
    uint32_t drafted;  /* tokens verified, at most SPRY_DRAFT_MOST; 0: a plain step */
    uint32_t accepted; /* accepted tokens among them */
    uint64_t draft_ns; /* time spent drafting, also when nothing was drafted */
    uint64_t sync_ns;  /* time to bring the drafter up to date after a pause: deducted from the account, not counted in
                        * the cost of later drafts */
} spry_draft_outcome;

/* The caller that runs the steps measures each of them once with `steps`. */
void spry_draft_cost_init(spry_draft_cost *cost, const spry_draft_steps *steps);

/* The number of tokens to draft for the next step, at most `most` (the limit of drafter, context and answer length),
 * when the step has `other_rows` rows of other sequences. A drafter with negligible cost can draft first and pass the
 * number found as `most`. Changes no state; report the result with _learn. */
uint32_t spry_draft_cost_choose(const spry_draft_cost *cost, size_t other_rows, uint32_t most);

/* Call after each step of the sequence, plain steps included, and after spry_draft_steps_measure. */
void spry_draft_cost_learn(spry_draft_cost *cost, const spry_draft_outcome *outcome);

#endif
