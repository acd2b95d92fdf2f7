#include "sched/batch_choice.h"

#include <stdio.h>

void spry_batch_choice_init(spry_batch_choice *choice, uint32_t most, bool from_top)
{
    *choice = (spry_batch_choice){.from_top = from_top};
    most = most ? most : 1;
    for (uint32_t size = 1; size < most && choice->n_sizes + 1 < SPRY_BATCH_SIZES; size *= 2)
        choice->sizes[choice->n_sizes++] = size;
    choice->sizes[choice->n_sizes++] = most;
}

static bool is_measured(const spry_batch_steps *steps)
{
    return steps->n >= SPRY_BATCH_STEPS;
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

/* The largest size, or the smaller one that was measured to be better. Smaller ones are not tried: they are measured
 * when no more answers are there. */
static size_t choose_from_top(const spry_batch_choice *c, bool *trial)
{
    size_t top = c->n_sizes - 1, best = top;
    *trial = !is_measured(&c->steps[top]);
    for (size_t i = top; !*trial && i-- > 0;)
        if (is_measured(&c->steps[i]) &&
            tokens_per_second(&c->steps[i]) >= SPRY_BATCH_GAIN * tokens_per_second(&c->steps[best]))
            best = i;
    return best;
}

static size_t choose_from_bottom(const spry_batch_choice *c, bool *trial)
{
    size_t best = 0;
    *trial = !is_measured(&c->steps[0]);
    while (!*trial && best + 1 < c->n_sizes) {
        const spry_batch_steps *now = &c->steps[best], *next = now + 1;
        *trial = !is_measured(next);
        if (!*trial && tokens_per_second(next) < SPRY_BATCH_GAIN * tokens_per_second(now))
            break;
        best++;
    }
    return best;
}

/* The index of the size to take; *trial: its measurement is not complete yet. */
static size_t choose(const spry_batch_choice *c, bool *trial)
{
    return c->from_top ? choose_from_top(c, trial) : choose_from_bottom(c, trial);
}

void spry_batch_choice_measure(spry_batch_choice *c, size_t size, uint32_t tokens, uint64_t ns)
{
    bool trial;
    size_t at = 0;
    while (at < c->n_sizes && c->sizes[at] != size)
        at++;
    if (at == c->n_sizes)
        return;
    spry_batch_steps *steps = &c->steps[at];
    steps->ns[steps->n % SPRY_BATCH_STEPS] = ns;
    steps->tokens[steps->n % SPRY_BATCH_STEPS] = tokens;
    steps->n++;
    size_t best = choose(c, &trial);
    c->since_trial = trial ? 0 : c->since_trial + 1;
    if (c->since_trial < SPRY_BATCH_AGAIN)
        return;
    for (size_t i = best + 1; i < c->n_sizes; i++)
        c->steps[i].n = 0; /* the machine, or the work, may have changed */
    c->since_trial = 0;
}

uint32_t spry_batch_choice_limit(const spry_batch_choice *c)
{
    bool trial;
    return c->sizes[choose(c, &trial)];
}

uint32_t spry_batch_choice_explain(const spry_batch_choice *c, char *evidence, size_t capacity)
{
    bool trial;
    size_t at = choose(c, &trial), next = c->from_top ? c->n_sizes - 1 : at + 1;
    const spry_batch_steps *now = &c->steps[at];
    if (trial)
        snprintf(evidence, capacity, "offline: trying %u together, %u of %d steps measured", c->sizes[at],
                 (unsigned)now->n, SPRY_BATCH_STEPS);
    else if (next > at && next < c->n_sizes)
        snprintf(evidence, capacity, "offline: %u together give %.1f tokens/s; %u gave %.1f", c->sizes[at],
                 tokens_per_second(now), c->sizes[next], tokens_per_second(&c->steps[next]));
    else
        snprintf(evidence, capacity, "offline: %u together give %.1f tokens/s, and are the most", c->sizes[at],
                 tokens_per_second(now));
    return c->sizes[at];
}
