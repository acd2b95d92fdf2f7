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

/* The first size that was not measured, going up, or n_sizes. Sizes behind one that gives less than half of the best
 * are left out, and count as measured: *n_sizes becomes how many there are before them. */
static size_t first_unmeasured(const spry_batch_choice *c, size_t *n_sizes)
{
    double most = 0;
    for (size_t i = 0; i < c->n_sizes; i++) {
        double now = is_measured(&c->steps[i]) ? tokens_per_second(&c->steps[i]) : 0;
        if (!is_measured(&c->steps[i]))
            return i;
        *n_sizes = i + 1;
        if (now < most / 2)
            break;
        most = now > most ? now : most;
    }
    return c->n_sizes;
}

/* Of the first n_sizes sizes that were measured, one that gives the most tokens a second, or hardly less: the largest
 * such size from the top, the smallest from the bottom. */
static size_t best_size(const spry_batch_choice *c, size_t n_sizes)
{
    double most = 0;
    size_t best = 0;
    for (size_t i = 0; i < n_sizes; i++)
        if (is_measured(&c->steps[i]) && tokens_per_second(&c->steps[i]) > most)
            most = tokens_per_second(&c->steps[i]);
    for (size_t i = 0; i < n_sizes; i++) {
        size_t at = c->from_top ? i : n_sizes - 1 - i;
        if (is_measured(&c->steps[at]) && SPRY_BATCH_GAIN * tokens_per_second(&c->steps[at]) > most)
            best = at;
    }
    return best;
}

/* The index of the size to take; *trial: its measurement is not complete yet. From the top smaller sizes are not tried:
 * they are measured when no more answers are there. */
static size_t choose(const spry_batch_choice *c, bool *trial)
{
    size_t n_sizes = c->n_sizes, top = n_sizes - 1;
    size_t next = !c->from_top ? first_unmeasured(c, &n_sizes) : is_measured(&c->steps[top]) ? n_sizes : top;
    *trial = next < c->n_sizes;
    return *trial ? next : best_size(c, n_sizes);
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
