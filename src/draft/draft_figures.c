/* Counters and the ratios derived from them. */
#include "draft/draft_figures.h"

void spry_draft_figures_count(spry_draft_figures *figures, uint32_t drafted, uint32_t accepted)
{
    figures->steps++;
    figures->tokens += accepted + 1;
    figures->drafted += drafted;
    figures->accepted += accepted;
    figures->lengths[drafted]++;
    if (drafted)
        figures->rollbacks[drafted - accepted]++;
    for (uint32_t i = 0; i < drafted && i <= accepted; i++) {
        figures->tried_at[i]++;
        figures->accepted_at[i] += i < accepted;
    }
}

uint32_t spry_draft_rollback(const spry_draft_figures *figures, double share)
{
    double goal = share * (double)(figures->steps - figures->lengths[0]), sum = 0;
    uint32_t length = 0;
    for (; length < SPRY_DRAFT_MOST; length++) {
        sum += (double)figures->rollbacks[length];
        if (sum >= goal)
            break;
    }
    return length;
}

double spry_draft_tokens_per_step(const spry_draft_figures *figures)
{
    return figures->steps ? (double)figures->tokens / (double)figures->steps : 1;
}

double spry_draft_speedup(const spry_draft_figures *figures)
{
    return figures->taken_ns > 0 ? figures->plain_ns / figures->taken_ns : 1;
}
