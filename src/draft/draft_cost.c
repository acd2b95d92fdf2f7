/* Maximises tokens per time: (rows of other sequences + expected tokens) / (cost of the step + cost of drafting).
 * Every other row is worth one token, so a draft that delays many sequences must gain more than one that delays none.
 *
 * Losses are counted in tokens: the tokens plain steps would have given in the same time, minus those the step gave. */
#include "draft/draft_cost.h"

#include <math.h>
#include <stdbool.h>

/* ---- figures ----------------------------------------------------------------------------------------------------- */

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
    return figures->taken_cost > 0 ? figures->plain_cost / figures->taken_cost : 1;
}

/* ---- choosing the length ----------------------------------------------------------------------------------------- */

enum {
    PLAIN_FIRST = 2,  /* plain steps measured before the first draft */
    TRIAL = 3,        /* drafted steps before a trial fails */
    PAUSE_LEAST = 16, /* steps between trials */
    PAUSE_MOST = 512,
    LOSS_FREE = 32, /* drafted steps without failure after which the pause is reset */
    /* Drafted steps between two plain ones: before the first comparison, then, and at most. The number doubles after
     * PAID_OFTEN plain steps at which drafts clearly paid. */
    PLAIN_SOON = 1,
    PLAIN_EVERY = SPRY_DRAFT_STEPS_HELD,
    PLAIN_SELDOM = 64,
    PAID_OFTEN = 4,
    CHECK = 4, /* drafted steps between two plain ones that are far from others, so that they compare */
};

static const double memory = 0.96;       /* decay of a position, per draft tried there */
static const double memory_idle = 0.99;  /* decay of a position that no draft reached */
static const double memory_draft = 0.95; /* decay of the cost of drafting */
static const double first_guess = 0.7;   /* assumed acceptance before any measurement */
static const double guess_weight = 2;    /* number of drafts that the assumption counts as */
static const double margin = 0.1;        /* tokens that a draft must gain over plain steps */
static const double clear_gain = 1.2;    /* of drafts that clearly pay */
static const double earned = 0.01;       /* tokens added to the account per token */
static const double trial_share = 0.005;
static const double account_first = 4, account_most = 8;
static const double hopeful = 0.9; /* acceptance rate at which even a trial would pay */

void spry_draft_cost_init(spry_draft_cost *cost, const spry_draft_steps *steps)
{
    *cost = (spry_draft_cost){.steps = steps, .account = account_first, .pause = PAUSE_LEAST};
    cost->positions[0] = (spry_draft_position){guess_weight, guess_weight * first_guess};
}

/* ---- expected gain of a length ----------------------------------------------------------------------------------- */

/* A position without data of its own uses the estimate of the position before it. */
static void estimate_acceptance(double *acceptance, const spry_draft_cost *cost)
{
    acceptance[0] = cost->positions[0].accepted / cost->positions[0].tried;
    for (uint32_t i = 1; i < SPRY_DRAFT_MOST; i++) {
        const spry_draft_position *p = &cost->positions[i];
        acceptance[i] = (p->accepted + guess_weight * acceptance[i - 1]) / (p->tried + guess_weight);
    }
}

/* The cost of a step. More rows never cost less, even if a noisy measurement says so: otherwise noise would look like a
 * gain. */
static double cost_of(const spry_draft_cost *cost, size_t other_rows, uint32_t k)
{
    double drafting = cost->draft_tokens > 0 ? cost->draft_units / cost->draft_tokens : 0;
    double plain = spry_draft_steps_cost(cost->steps, other_rows + 1);
    return fmax(plain, spry_draft_steps_cost(cost->steps, other_rows + 1 + k)) + k * drafting;
}

/* Tokens that plain steps (without drafts) would give in the time of a step with k drafted tokens. */
static double plain_tokens(const spry_draft_cost *cost, size_t other_rows, uint32_t k)
{
    return (double)(other_rows + 1) * cost_of(cost, other_rows, k) / cost_of(cost, other_rows, 0);
}

void spry_draft_prospect(const spry_draft_cost *cost, double *step_cost, double *acceptance)
{
    double plain = cost_of(cost, 0, 0);
    *step_cost = plain > 0 ? cost_of(cost, 0, 1) / plain : 0;
    *acceptance = cost->positions[0].accepted / cost->positions[0].tried;
}

/* *best_gain: the tokens per time of that length, relative to plain steps; just above 1 if the length is 0. */
static uint32_t best_length(double *best_gain, const spry_draft_cost *cost, const double *acceptance, size_t other_rows,
                            uint32_t most)
{
    double reached = 1, tokens = (double)(other_rows + 1);
    size_t reach = spry_step_cost_reach(&cost->steps->cost);
    uint32_t best = 0;
    *best_gain = 1 + margin / tokens;
    for (uint32_t k = 1; k <= most && other_rows + 1 + k <= reach; k++) {
        reached *= acceptance[k - 1];
        tokens += reached;
        double gain = tokens / plain_tokens(cost, other_rows, k);
        if (gain > *best_gain) {
            *best_gain = gain;
            best = k;
        }
    }
    return best;
}

static uint32_t expected_best(double *gain, const spry_draft_cost *cost, size_t other_rows, uint32_t most)
{
    double acceptance[SPRY_DRAFT_MOST];
    estimate_acceptance(acceptance, cost);
    return best_length(gain, cost, acceptance, other_rows, most);
}

/* True if it is time to try again whether drafts have become better. Where rows are so expensive that even good drafts
 * would lose, trials are rare, because only a change of costs could help. */
static bool trial_due(const spry_draft_cost *cost, size_t other_rows)
{
    double acceptance[SPRY_DRAFT_MOST], gain;
    if (cost->trials_left)
        return true;
    if (cost->since_draft < cost->pause)
        return false;
    for (uint32_t i = 0; i < SPRY_DRAFT_MOST; i++)
        acceptance[i] = hopeful;
    return cost->since_draft >= PAUSE_MOST || best_length(&gain, cost, acceptance, other_rows, SPRY_DRAFT_MOST) > 0;
}

/* True if a plain step is due: the costs of drafted steps count only between two of them. */
static bool plain_due(const spry_draft_cost *cost, bool pays)
{
    const uint32_t doublings = cost->paid / PAID_OFTEN;
    if (!cost->steps->n_compared)
        return cost->since_plain >= PLAIN_SOON;
    if (!pays || doublings == 0)
        return cost->since_plain >= PLAIN_EVERY;
    if (cost->checking && cost->since_plain >= CHECK)
        return true;
    return cost->since_plain >= (doublings > 2 ? (uint32_t)PLAIN_SELDOM : (uint32_t)PLAIN_EVERY << doublings);
}

uint32_t spry_draft_cost_choose(const spry_draft_cost *cost, size_t other_rows, uint32_t most)
{
    if (most > SPRY_DRAFT_MOST)
        most = SPRY_DRAFT_MOST;
    if (!most || cost->figures.lengths[0] < PLAIN_FIRST || !(cost_of(cost, other_rows, 0) > 0))
        return 0;
    double gain;
    uint32_t k = expected_best(&gain, cost, other_rows, most);
    if (plain_due(cost, k > 0))
        return 0;
    if (!k && trial_due(cost, other_rows))
        k = 1;
    while (k && plain_tokens(cost, other_rows, k) - (double)(other_rows + 1) > cost->account)
        k--;
    return k;
}

/* ---- learning from steps ----------------------------------------------------------------------------------------- */

static void learn_acceptance(spry_draft_cost *cost, uint32_t drafted, uint32_t accepted)
{
    for (uint32_t i = 0; i < SPRY_DRAFT_MOST; i++) {
        spry_draft_position *p = &cost->positions[i];
        bool tried = i < drafted && i <= accepted;
        double keep = tried ? memory : memory_idle;
        p->tried = p->tried * keep + tried;
        p->accepted = p->accepted * keep + (tried && i < accepted);
    }
}

/* After a pause, earlier measurements count no more than the initial assumption. */
static void forget_acceptance(spry_draft_cost *cost)
{
    for (uint32_t i = 0; i < SPRY_DRAFT_MOST; i++) {
        spry_draft_position *p = &cost->positions[i];
        double keep = p->tried > guess_weight ? guess_weight / p->tried : 1;
        p->tried *= keep;
        p->accepted *= keep;
    }
}

/* Credits the step's share to the account and books its loss or gain. Both sides are estimates, so that clock noise
 * affects them equally. */
static void update_account(spry_draft_cost *cost, const spry_draft_outcome *o)
{
    double tokens = (double)(o->accepted + 1), plain = cost_of(cost, o->other_rows, 0);
    double taken = cost_of(cost, o->other_rows, o->drafted) + spry_draft_steps_units(cost->steps, o->sync_ns);
    if (!o->drafted && o->draft_ns && cost->draft_tokens > 0)
        taken += cost->draft_units / cost->draft_tokens;
    double share = (double)(o->other_rows + 1);
    cost->account += earned * tokens;
    if (plain > 0)
        cost->account += (double)o->other_rows + tokens - share * taken / plain;
    cost->account = fmin(cost->account, account_most);
    cost->figures.plain_cost += plain * ((double)o->other_rows + tokens) / share;
    cost->figures.taken_cost += taken;
}

/* Pauses grow fourfold until failed trials cost no more than `trial_share` of the time. */
static uint32_t next_pause(const spry_draft_cost *cost, size_t other_rows)
{
    double loss = TRIAL * (plain_tokens(cost, other_rows, 1) - (double)(other_rows + 1));
    double most = fmin(fmax(loss / trial_share, PAUSE_LEAST), PAUSE_MOST);
    return (uint32_t)fmin(4.0 * cost->pause, most);
}

/* After a drafted step: decides whether a trial continues, has failed, or has succeeded. */
static void judge_trial(spry_draft_cost *cost, const spry_draft_outcome *o, bool first_of_trial)
{
    double gain;
    if (expected_best(&gain, cost, o->other_rows, SPRY_DRAFT_MOST) > 0) {
        cost->trials_left = 0;
        if (++cost->since_loss >= LOSS_FREE)
            cost->pause = PAUSE_LEAST;
        return;
    }
    cost->since_loss = 0;
    if (first_of_trial)
        cost->trials_left = TRIAL;
    if (cost->trials_left && --cost->trials_left == 0)
        cost->pause = next_pause(cost, o->other_rows);
}

/* After a plain step between drafted ones. */
static void judge_gain(spry_draft_cost *cost, size_t other_rows)
{
    double gain;
    cost->checking = cost->since_plain > PLAIN_EVERY;
    if (cost->since_plain < PLAIN_EVERY)
        return;
    expected_best(&gain, cost, other_rows, SPRY_DRAFT_MOST);
    cost->paid = gain >= clear_gain ? cost->paid + 1 : 0;
}

void spry_draft_cost_learn(spry_draft_cost *cost, const spry_draft_outcome *outcome)
{
    spry_draft_outcome o = *outcome;
    o.drafted = o.drafted < SPRY_DRAFT_MOST ? o.drafted : SPRY_DRAFT_MOST;
    o.accepted = o.accepted < o.drafted ? o.accepted : o.drafted;
    bool after_pause = cost->since_draft >= cost->pause;
    if (o.draft_ns || o.drafted) {
        cost->draft_units = cost->draft_units * memory_draft + spry_draft_steps_units(cost->steps, o.draft_ns);
        cost->draft_tokens =
            cost->draft_tokens * memory_draft + (o.drafted ? o.drafted : 1); /* a draft of one token that was refused */
    }
    if (o.drafted) {
        if (after_pause)
            forget_acceptance(cost);
        learn_acceptance(cost, o.drafted, o.accepted);
    }
    spry_draft_figures_count(&cost->figures, o.drafted, o.accepted);
    update_account(cost, &o);
    cost->since_draft = o.drafted ? 0 : cost->since_draft + 1;
    if (!o.drafted && cost->since_plain)
        judge_gain(cost, o.other_rows);
    cost->since_plain = o.drafted ? cost->since_plain + 1 : 0;
    if (o.drafted)
        judge_trial(cost, &o, after_pause);
}
