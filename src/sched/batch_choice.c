/* How large steps are: how many answers are computed together, and how many rows of prompts are computed beside
 * answers. */
#include "sched/batch_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- answers ----------------------------------------------------------------------------------------------------- */

void spry_batch_choice_init(spry_batch_choice *choice, uint32_t most, spry_policy policy)
{
    *choice = (spry_batch_choice){.policy = policy};
    most = most ? most : 1;
    for (uint32_t size = 1; size < most && choice->n_sizes + 1 < SPRY_BATCH_SIZES; size *= 2)
        choice->sizes[choice->n_sizes++] = size;
    choice->sizes[choice->n_sizes++] = most;
}

static bool is_measured(const spry_batch_steps *steps)
{
    return steps->n >= SPRY_BATCH_STEPS;
}

/* Tokens per second in steps of a size; 0: not measured. */
static double tokens_per_second(const spry_batch_steps *steps)
{
    double tokens = 0, ns = 0;
    for (size_t i = 0; is_measured(steps) && i < SPRY_BATCH_STEPS; i++) {
        tokens += steps->tokens[i];
        ns += (double)steps->ns[i];
    }
    return ns > 0 ? tokens / ns * 1e9 : 0;
}

static int by_ns(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double p95_ns(const spry_batch_steps *steps)
{
    uint64_t ns[SPRY_BATCH_STEPS];
    memcpy(ns, steps->ns, sizeof ns);
    qsort(ns, SPRY_BATCH_STEPS, sizeof *ns, by_ns);
    return (double)ns[SPRY_BATCH_STEPS * 95 / 100];
}

static bool climbs(const spry_batch_choice *c)
{
    return c->policy == SPRY_POLICY_INTERACTIVE || c->policy == SPRY_POLICY_OFFLINE;
}

/* True if size number `at` is better, by the policy's rule, than the size before it, which is the best so far. */
static bool pays(const spry_batch_choice *c, size_t at)
{
    const spry_batch_steps *now = &c->steps[at], *before = &c->steps[c->policy == SPRY_POLICY_OFFLINE ? at - 1 : 0];
    return now->p95_ns < SPRY_BATCH_RULE * before->p95_ns &&
           (c->policy == SPRY_POLICY_INTERACTIVE ||
            tokens_per_second(now) >= SPRY_BATCH_RULE * tokens_per_second(before));
}

/* Goes from size 1 upward until a size is not better, or not measured completely. */
static size_t highest_that_pays(const spry_batch_choice *c)
{
    size_t at = 0;
    while (at + 1 < c->n_sizes && is_measured(&c->steps[at]) && is_measured(&c->steps[at + 1]) && pays(c, at + 1))
        at++;
    return at;
}

/* The index of the largest size that gives the most tokens per second, or nearly as many. Without measurements, the
 * largest size. */
static size_t best_size(const spry_batch_choice *c)
{
    if (climbs(c))
        return highest_that_pays(c);
    double most = 0;
    size_t best = c->n_sizes - 1;
    for (size_t i = 0; i < c->n_sizes; i++)
        most = tokens_per_second(&c->steps[i]) > most ? tokens_per_second(&c->steps[i]) : most;
    for (size_t i = 0; i < c->n_sizes; i++)
        if (SPRY_BATCH_GAIN * tokens_per_second(&c->steps[i]) > most)
            best = i;
    return best;
}

/* True if a size that was not measured could give more than the best one. */
static bool could_win(const spry_batch_choice *c, size_t at, double best)
{
    double one = tokens_per_second(&c->steps[0]);
    return at == 0 || (one > 0 && c->sizes[at] * one > SPRY_BATCH_GAIN * best);
}

/* The index of the size to use; *trial: its measurement is not complete yet. */
static size_t choose(const spry_batch_choice *c, bool *trial)
{
    size_t top = c->n_sizes - 1, best = best_size(c);
    if (climbs(c)) {
        best += is_measured(&c->steps[best]) && best < top && !is_measured(&c->steps[best + 1]);
        *trial = !is_measured(&c->steps[best]);
        return best;
    }
    *trial = !is_measured(&c->steps[top]);
    if (*trial)
        return top;
    for (size_t i = 0; c->policy == SPRY_POLICY_THROUGHPUT && c->n_steps >= SPRY_BATCH_WAIT && i < top; i++)
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
    steps->p95_ns = is_measured(steps) ? p95_ns(steps) : 0;
    size_t best = choose(c, &trial);
    c->since_trial = trial ? 0 : c->since_trial + 1;
    if (c->since_trial < SPRY_BATCH_AGAIN)
        return;
    for (size_t i = c->policy == SPRY_POLICY_THROUGHPUT ? 0 : best + 1; i < c->n_sizes; i++)
        c->steps[i].n = 0; /* the machine or the work may have changed since */
    c->since_trial = 0;
}

uint32_t spry_batch_choice_limit(const spry_batch_choice *c)
{
    bool trial;
    size_t at = choose(c, &trial);
    return c->sizes[trial && !climbs(c) ? c->n_sizes - 1 : at];
}

uint32_t spry_batch_choice_width(const spry_batch_choice *c)
{
    bool trial;
    return c->policy == SPRY_POLICY_THROUGHPUT ? c->sizes[choose(c, &trial)] : UINT32_MAX;
}

uint32_t spry_batch_choice_explain(const spry_batch_choice *c, char *evidence, size_t capacity)
{
    static const char *const names[] = {"interactive", "offline", "throughput", "throughput"}; /* by policy */
    const char *name = names[c->policy];
    bool trial;
    size_t at = choose(c, &trial), top = c->n_sizes - 1, other = at == top ? 0 : climbs(c) ? at + 1 : top;
    const spry_batch_steps *now = &c->steps[at], *beside = &c->steps[other];
    if (trial)
        snprintf(evidence, capacity, "%s: trying %u together, %u of %d steps measured", name, c->sizes[at],
                 (unsigned)now->n, SPRY_BATCH_STEPS);
    else if (other != at && is_measured(beside))
        snprintf(evidence, capacity, "%s: %u together give %.1f tokens/s, p95 %.2f ms; %u gave %.1f, %.2f ms", name,
                 c->sizes[at], tokens_per_second(now), now->p95_ns / 1e6, c->sizes[other], tokens_per_second(beside),
                 beside->p95_ns / 1e6);
    else
        snprintf(evidence, capacity, "%s: %u together give %.1f tokens/s, and are the most", name, c->sizes[at],
                 tokens_per_second(now));
    return c->sizes[at];
}

/* ---- rows of prompts --------------------------------------------------------------------------------------------- */

size_t spry_prefill_budget(const spry_step_time *time, const spry_step_load *answers, const spry_prompts *prompts,
                           size_t most, double stall_ns)
{
    if (!answers->rows || !most)
        return most;
    if (!(stall_ns > 0)) /* ignore measurements that contradict each other */
        return 1;
    double limit = spry_step_time_ns(time, answers) + stall_ns;
    size_t reach = spry_step_cost_reach(&time->products), fits = 1, fails = most + 1;
    if (reach < answers->rows + most) /* beyond this the estimate would be a guess */
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
