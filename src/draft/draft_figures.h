/* What drafting came to, counted since the beginning. */
#ifndef SPRY_DRAFT_DRAFT_FIGURES_H
#define SPRY_DRAFT_DRAFT_FIGURES_H

#include <stdint.h>

#include "spry.h"

typedef struct spry_draft_figures {
    uint64_t steps, tokens; /* all of the sequence's steps; the tokens they gave */
    uint64_t drafted, accepted;
    uint64_t tried_at[SPRY_DRAFT_MOST], accepted_at[SPRY_DRAFT_MOST]; /* of drafts whose predecessors were accepted */
    uint64_t lengths[SPRY_DRAFT_MOST + 1];                            /* steps by number of drafted tokens */
    uint64_t rollbacks[SPRY_DRAFT_MOST + 1]; /* steps with drafts by number of refused tokens */
    double plain_ns, taken_ns;               /* estimates: the same tokens without drafts; as they were made */
} spry_draft_figures;

/* A step with `drafted` tokens, `accepted` of them accepted; both at most SPRY_DRAFT_MOST. */
void spry_draft_figures_count(spry_draft_figures *figures, uint32_t drafted, uint32_t accepted);

/* The smallest number of refused tokens that `share` (0 to 1) of the steps with drafts stay within. */
uint32_t spry_draft_rollback(const spry_draft_figures *figures, double share);

/* Tokens per step; 1 before the first. */
double spry_draft_tokens_per_step(const spry_draft_figures *figures);

/* How many times as fast as without drafts, estimated; 1 before the first step. */
double spry_draft_speedup(const spry_draft_figures *figures);

#endif
