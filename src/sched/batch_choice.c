#include "sched/batch_choice.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t sizes[SPRY_BATCH_SIZES] = {1, 2, 4, 8, 16};

void spry_batch_choice_init(spry_batch_choice *choice, uint32_t most)
{
    *choice = (spry_batch_choice){.most = most};
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double p95_ms(const spry_batch_steps *steps)
{
    uint64_t sorted[SPRY_BATCH_STEPS];
    memcpy(sorted, steps->ns, sizeof sorted);
    qsort(sorted, SPRY_BATCH_STEPS, sizeof *sorted, by_time);
    return (double)sorted[SPRY_BATCH_STEPS * 95 / 100] / 1e6;
}

static double tokens_per_second(const spry_batch_steps *steps)
{
    double tokens = 0, ns = 0;
    for (size_t i = 0; i < SPRY_BATCH_STEPS; i++) {
        tokens += steps->tokens[i];
        ns += (double)steps->ns[i];
    }
    return ns > 0 ? tokens / ns * 1e9 : 0;
}

/* The place in the list of the size to take; *trial: its measurements are not complete yet. */
static size_t choose(const spry_batch_choice *choice, bool *trial)
{
    size_t best = 0;
    *trial = choice->sizes[0].n < SPRY_BATCH_STEPS;
    while (!*trial && best + 1 < SPRY_BATCH_SIZES && sizes[best + 1] <= choice->most) {
        const spry_batch_steps *now = &choice->sizes[best], *next = now + 1;
        *trial = next->n < SPRY_BATCH_STEPS;
        if (!*trial && (tokens_per_second(next) < SPRY_BATCH_GAIN * tokens_per_second(now) ||
                        p95_ms(next) >= SPRY_BATCH_SLOWER * p95_ms(now)))
            break;
        best++;
    }
    return best;
}

void spry_batch_choice_measure(spry_batch_choice *choice, size_t size, uint32_t tokens, uint64_t ns)
{
    bool trial;
    size_t at = 0;
    while (at < SPRY_BATCH_SIZES && sizes[at] != size)
        at++;
    if (at == SPRY_BATCH_SIZES)
        return;
    spry_batch_steps *steps = &choice->sizes[at];
    steps->ns[steps->n % SPRY_BATCH_STEPS] = ns;
    steps->tokens[steps->n % SPRY_BATCH_STEPS] = tokens;
    steps->n++;
    size_t best = choose(choice, &trial);
    choice->since_trial = trial ? 0 : choice->since_trial + 1;
    if (choice->since_trial >= SPRY_BATCH_AGAIN && best + 1 < SPRY_BATCH_SIZES) {
        choice->sizes[best + 1].n = 0; /* the machine, or the work, may have changed */
        choice->since_trial = 0;
    }
}

uint32_t spry_batch_choice_limit(const spry_batch_choice *choice)
{
    bool trial;
    return sizes[choose(choice, &trial)];
}

uint32_t spry_batch_choice_explain(const spry_batch_choice *choice, char *evidence, size_t capacity)
{
    bool trial;
    size_t at = choose(choice, &trial);
    const spry_batch_steps *now = &choice->sizes[at], *next = now + 1;
    if (trial)
        snprintf(evidence, capacity, "offline: trying %u together, %u of %d steps measured", sizes[at],
                 (unsigned)now->n, SPRY_BATCH_STEPS);
    else if (at + 1 < SPRY_BATCH_SIZES && sizes[at + 1] <= choice->most)
        snprintf(evidence, capacity,
                 "offline: %u together give %.1f tokens/s at %.2f ms a step (p95); %u gave %.1f at %.2f", sizes[at],
                 tokens_per_second(now), p95_ms(now), sizes[at + 1], tokens_per_second(next), p95_ms(next));
    else
        snprintf(evidence, capacity,
                 "offline: %u together give %.1f tokens/s at %.2f ms a step (p95), and are the most", sizes[at],
                 tokens_per_second(now), p95_ms(now));
    return sizes[at];
}
