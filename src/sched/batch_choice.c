/* How much a step takes: answers that are computed together, and rows of prompts beside answers. */
#include "sched/batch_choice.h"

#include <stdio.h>

/* ---- answers ----------------------------------------------------------------------------------------------------- */

void spry_batch_choice_init(spry_batch_choice *choice, uint32_t most, bool tries)
{
    *choice = (spry_batch_choice){.tries = tries};
    most = most ? most : 1;
    for (uint32_t size = 1; size < most && choice->n_sizes + 1 < SPRY_BATCH_SIZES; size *= 2)
        choice->sizes[choice->n_sizes++] = size;
    choice->sizes[choice->n_sizes++] = most;
}

static bool is_measured(const spry_batch_steps *steps)
{
    return steps->n >= SPRY_BATCH_STEPS;
}

/* 0: not measured. */
static double tokens_per_second(const spry_batch_steps *steps)
{
    double tokens = 0, ns = 0;
    for (size_t i = 0; is_measured(steps) && i < SPRY_BATCH_STEPS; i++) {
        tokens += steps->tokens[i];
        ns += (double)steps->ns[i];
    }
    return ns > 0 ? tokens / ns * 1e9 : 0;
}

/* The largest size that gives the most tokens a second, or hardly less. Without measurements: the largest. */
static size_t best_size(const spry_batch_choice *c)
{
    double most = 0;
    size_t best = c->n_sizes - 1;
    for (size_t i = 0; i < c->n_sizes; i++)
        most = tokens_per_second(&c->steps[i]) > most ? tokens_per_second(&c->steps[i]) : most;
    for (size_t i = 0; i < c->n_sizes; i++)
        if (SPRY_BATCH_GAIN * tokens_per_second(&c->steps[i]) > most)
            best = i;
    return best;
}

/* Whether a size that was not measured could give more than the best one. */
static bool could_win(const spry_batch_choice *c, size_t at, double best)
{
    double one = tokens_per_second(&c->steps[0]);
    return at == 0 || (one > 0 && c->sizes[at] * one > SPRY_BATCH_GAIN * best);
}

/* The index of the size to take; *trial: its measurement is not complete yet. */
static size_t choose(const spry_batch_choice *c, bool *trial)
{
    size_t top = c->n_sizes - 1, best = best_size(c);
    *trial = !is_measured(&c->steps[top]);
    if (*trial)
        return top;
    for (size_t i = 0; c->tries && c->n_steps >= SPRY_BATCH_WAIT && i < top; i++)
        if (!is_measured(&c->steps[i]) && could_win(c, i, tokens_per_second(&c->steps[best]))) {
            *trial = true;
            return i;
        }
    return best;
}

void spry_batch_choice_measure(spry_batch_choice *c, size_t size, uint32_t tokens, uint64_t ns)
{
    bool trial;
    size_t at = 0;
    while (at < c->n_sizes && c->sizes[at] != size)
        at++;
    c->n_steps++;
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
    for (size_t i = c->tries ? 0 : best + 1; i < c->n_sizes; i++)
        c->steps[i].n = 0; /* the machine, or the work, may have changed */
    c->since_trial = 0;
}

uint32_t spry_batch_choice_limit(const spry_batch_choice *c)
{
    bool trial;
    size_t at = choose(c, &trial);
    return c->sizes[trial ? c->n_sizes - 1 : at];
}

uint32_t spry_batch_choice_width(const spry_batch_choice *c)
{
    bool trial;
    return c->sizes[choose(c, &trial)];
}

uint32_t spry_batch_choice_explain(const spry_batch_choice *c, char *evidence, size_t capacity)
{
    bool trial;
    size_t at = choose(c, &trial), top = c->n_sizes - 1, other = at == top ? 0 : top;
    const spry_batch_steps *now = &c->steps[at];
    if (trial)
        snprintf(evidence, capacity, "offline: trying %u together, %u of %d steps measured", c->sizes[at],
                 (unsigned)now->n, SPRY_BATCH_STEPS);
    else if (other != at && is_measured(&c->steps[other]))
        snprintf(evidence, capacity, "offline: %u together give %.1f tokens/s; %u gave %.1f", c->sizes[at],
                 tokens_per_second(now), c->sizes[other], tokens_per_second(&c->steps[other]));
    else
        snprintf(evidence, capacity, "offline: %u together give %.1f tokens/s, and are the most", c->sizes[at],
                 tokens_per_second(now));
    return c->sizes[at];
}

/* ---- rows of prompts --------------------------------------------------------------------------------------------- */

size_t spry_prefill_budget(const spry_step_time *time, const spry_step_load *answers, const spry_prompts *prompts,
                           size_t most, double stall_ns)
{
    if (!answers->rows || !most)
        return most;
    if (!(stall_ns > 0)) /* measurements that contradict each other do not count against that */
        return 1;
    double limit = spry_step_time_ns(time, answers) + stall_ns;
    size_t reach = spry_step_cost_reach(&time->products), fits = 1, fails = most + 1;
    if (reach < answers->rows + most) /* further it would be a guess */
        fails = reach > answers->rows ? reach - answers->rows + 1 : 2;
    while (fits + 1 < fails) {
        size_t half = fits + (fails - fits) / 2, each = (half + prompts->n - 1) / prompts->n;
        const spry_step_load load = {answers->rows + half,
                                     answers->sight + spry_step_sight(each, 1) * (double)prompts->depth};
        if (spry_step_time_ns(time, &load) <= limit)
            fits = half;
        else
            fails = half;
    }
    return fits;
}
