/* Steps and drafts cost what is written here, whatever the clock says, so that drafting is always worth its cost and
 * the machine's speed decides nothing. The program is linked with --wrap for both functions. */
#ifndef SPRY_TESTS_FIXED_COSTS_H
#define SPRY_TESTS_FIXED_COSTS_H

#include "draft/draft_cost.h"

void __real_spry_draft_steps_measure(spry_draft_steps *steps, size_t rows, bool plain, uint64_t ns);
void __wrap_spry_draft_steps_measure(spry_draft_steps *steps, size_t rows, bool plain, uint64_t ns);
void __real_spry_draft_cost_learn(spry_draft_cost *cost, const spry_draft_outcome *outcome);
void __wrap_spry_draft_cost_learn(spry_draft_cost *cost, const spry_draft_outcome *outcome);

/* A row more costs a thousandth. */
void __wrap_spry_draft_steps_measure(spry_draft_steps *steps, size_t rows, bool plain, uint64_t ns)
{
    (void)ns;
    __real_spry_draft_steps_measure(steps, rows, plain, 1000000 + 1000 * rows);
}

void __wrap_spry_draft_cost_learn(spry_draft_cost *cost, const spry_draft_outcome *outcome)
{
    spry_draft_outcome fixed = *outcome;
    fixed.draft_ns = 1000 * outcome->drafted;
    fixed.sync_ns = 0;
    __real_spry_draft_cost_learn(cost, &fixed);
}

#endif
