/* Drafting statistics, counted since creation. */
#ifndef SPRY_DRAFT_DRAFT_FIGURES_H
#define SPRY_DRAFT_DRAFT_FIGURES_H

#include <stdint.h>

#include "spry.h"

typedef struct spry_draft_figures {
    uint64_t steps, tokens; /* all steps of the sequence; tokens they produced */
    uint64_t drafted, accepted;
    uint64_t tried_at[SPRY_DRAFT_MOST], accepted_at[SPRY_DRAFT_MOST]; /* per position: drafts whose predecessors were
                                                                       * accepted */
    uint64_t lengths[SPRY_DRAFT_MOST + 1];                            /* steps by number of drafted tokens */
    uint64_t rollbacks[SPRY_DRAFT_MOST + 1]; /* steps with drafts by number of refused tokens */
    double plain_ns, taken_ns;               /* estimated time of the same tokens without drafts; and with them */
    double prefill_ns;                       /* in which a drafter read the prompt, or what it had missed */
} spry_draft_figures;

/* Counts a step with `drafted` tokens, `accepted` of them accepted; both at most SPRY_DRAFT_MOST. */
void spry_draft_figures_count(spry_draft_figures *figures, uint32_t drafted, uint32_t accepted);

/* The smallest number n such that `share` (0 to 1) of the drafted steps have at most n refused tokens. */
uint32_t spry_draft_rollback(const spry_draft_figures *figures, double share);

/* Tokens per step; 1 before the first step. */
double spry_draft_tokens_per_step(const spry_draft_figures *figures);

/* Estimated speed relative to decoding without drafts; 1 before the first step. */
double spry_draft_speedup(const spry_draft_figures *figures);

#endif
