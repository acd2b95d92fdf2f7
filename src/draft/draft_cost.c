/* The choice, in tokens per nanosecond: (other rows + expected tokens) / (cost of the step + cost of drafting). Every
 * other row is worth a token, so a draft that makes many sequences wait must bring more than one that makes none wait.
 *
 * Losses are kept in tokens: what plain steps would have given in the time, less what the step gave. */
#include "draft/draft_cost.h"

#include <math.h>
#include <stdbool.h>

enum {
    PLAIN_FIRST = 2,  /* plain steps measured before the first draft */
    TRIAL = 3,        /* steps with a draft before a trial is given up */
    PAUSE_LEAST = 16, /* steps between trials */
    PAUSE_MOST = 512,
    LOSS_FREE = 32,    /* steps of believing in drafts that make the pause short again */
    PLAIN_EVERY = 128, /* steps after which the plain one is measured again */
};

static const double memory = 0.96;       /* of a position, for each draft tried there */
static const double memory_idle = 0.99;  /* of a position no draft reached */
static const double memory_draft = 0.95; /* of the cost of drafting */
static const double first_guess = 0.7;   /* acceptance before anything is known */
static const double guess_weight = 2;    /* drafts that a guess counts as */
static const double margin = 0.02;       /* tokens that a draft must promise over plain steps */
static const double earned = 0.02;       /* tokens a token earns for the account */
static const double trial_share = 0.005;
static const double account_first = 6, account_most = 12;
static const double hopeful = 0.9; /* acceptance at which even a trial would be worth it */

void spry_draft_cost_init(spry_draft_cost *cost, const spry_step_cost *steps)
{
    *cost = (spry_draft_cost){.steps = steps, .account = account_first, .pause = PAUSE_LEAST};
    cost->positions[0] = (spry_draft_position){guess_weight, guess_weight * first_guess};
}

/* ---- what a choice promises ------------------------------------------------------------------------------------ */

/* A position borrows from the one before it what it does not know itself. */
static void estimate_acceptance(double *acceptance, const spry_draft_cost *cost)
{
    acceptance[0] = cost->positions[0].accepted / cost->positions[0].tried;
    for (uint32_t i = 1; i < SPRY_DRAFT_MOST; i++) {
        const spry_draft_position *p = &cost->positions[i];
        acceptance[i] = (p->accepted + guess_weight * acceptance[i - 1]) / (p->tried + guess_weight);
    }
}

/* More rows never take less, whatever a noisy clock says: else the noise would be taken for a gain. */
static double step_ns(const spry_draft_cost *cost, size_t other_rows, uint32_t k)
{
    double drafting = cost->draft_tokens > 0 ? cost->draft_ns / cost->draft_tokens : 0;
    double plain = spry_step_cost_ns(cost->steps, other_rows + 1);
    return fmax(plain, spry_step_cost_ns(cost->steps, other_rows + 1 + k)) + k * drafting;
}

/* Tokens that plain steps give in the time of a step with k drafts. */
static double plain_tokens(const spry_draft_cost *cost, size_t other_rows, uint32_t k)
{
    return (double)(other_rows + 1) * step_ns(cost, other_rows, k) / step_ns(cost, other_rows, 0);
}

static uint32_t best_length(const spry_draft_cost *cost, const double *acceptance, size_t other_rows, uint32_t most)
{
    double reached = 1, tokens = (double)(other_rows + 1), best_gain = 1 + margin / tokens;
    size_t reach = spry_step_cost_reach(cost->steps);
    uint32_t best = 0;
    for (uint32_t k = 1; k <= most && other_rows + 1 + k <= reach; k++) {
        reached *= acceptance[k - 1];
        tokens += reached;
        double gain = tokens / plain_tokens(cost, other_rows, k);
        if (gain > best_gain) {
            best_gain = gain;
            best = k;
        }
    }
    return best;
}

static uint32_t expected_best(const spry_draft_cost *cost, size_t other_rows, uint32_t most)
{
    double acceptance[SPRY_DRAFT_MOST];
    estimate_acceptance(acceptance, cost);
    return best_length(cost, acceptance, other_rows, most);
}

/* Whether it is time to see if drafts have become better. Where rows are so dear that even good drafts would lose, that
 * time comes rarely: only the costs can have changed. */
static bool trial_due(const spry_draft_cost *cost, size_t other_rows)
{
    double acceptance[SPRY_DRAFT_MOST];
    if (cost->trials_left)
        return true;
    if (cost->since_draft < cost->pause)
        return false;
    for (uint32_t i = 0; i < SPRY_DRAFT_MOST; i++)
        acceptance[i] = hopeful;
    return cost->since_draft >= PAUSE_MOST || best_length(cost, acceptance, other_rows, SPRY_DRAFT_MOST) > 0;
}

uint32_t spry_draft_cost_choose(const spry_draft_cost *cost, size_t other_rows, uint32_t most)
{
    if (most > SPRY_DRAFT_MOST)
        most = SPRY_DRAFT_MOST;
    if (!most || cost->figures.lengths[0] < PLAIN_FIRST || cost->since_plain >= PLAIN_EVERY ||
        !(step_ns(cost, other_rows, 0) > 0))
        return 0;
    uint32_t k = expected_best(cost, other_rows, most);
    if (!k && trial_due(cost, other_rows))
        k = 1;
    while (k && plain_tokens(cost, other_rows, k) - (double)(other_rows + 1) > cost->account)
        k--;
    return k;
}

/* ---- what a step taught ---------------------------------------------------------------------------------------- */

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

/* What was known before a pause is not worth more than a guess after it. */
static void forget_acceptance(spry_draft_cost *cost)
{
    for (uint32_t i = 0; i < SPRY_DRAFT_MOST; i++) {
        spry_draft_position *p = &cost->positions[i];
        double keep = p->tried > guess_weight ? guess_weight / p->tried : 1;
        p->tried *= keep;
        p->accepted *= keep;
    }
}

/* Earns, and pays for the step's loss or takes its gain. Estimates on both sides, so that what disturbs the clock
 * disturbs both. */
static void settle(spry_draft_cost *cost, const spry_draft_outcome *o)
{
    double tokens = (double)(o->accepted + 1), plain_ns = step_ns(cost, o->other_rows, 0);
    double taken_ns = step_ns(cost, o->other_rows, o->drafted) + (double)o->sync_ns;
    double share = (double)(o->other_rows + 1);
    cost->account += earned * tokens;
    if (plain_ns > 0)
        cost->account += (double)o->other_rows + tokens - share * taken_ns / plain_ns;
    cost->account = fmin(cost->account, account_most);
    cost->figures.plain_ns += plain_ns * ((double)o->other_rows + tokens) / share;
    cost->figures.taken_ns += taken_ns;
}

/* Pauses double up to where trials that fail cost no more than `trial_share` of the time. */
static uint32_t next_pause(const spry_draft_cost *cost, size_t other_rows)
{
    double loss = TRIAL * (plain_tokens(cost, other_rows, 1) - (double)(other_rows + 1));
    double most = fmin(fmax(loss / trial_share, PAUSE_LEAST), PAUSE_MOST);
    return (uint32_t)fmin(2.0 * cost->pause, most);
}

/* After a step with drafts: does a trial go on, has it failed, or are drafts believed in? */
static void judge_trial(spry_draft_cost *cost, const spry_draft_outcome *o, bool first_of_trial)
{
    if (expected_best(cost, o->other_rows, SPRY_DRAFT_MOST) > 0) {
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

void spry_draft_cost_learn(spry_draft_cost *cost, const spry_draft_outcome *outcome)
{
    spry_draft_outcome o = *outcome;
    o.drafted = o.drafted < SPRY_DRAFT_MOST ? o.drafted : SPRY_DRAFT_MOST;
    o.accepted = o.accepted < o.drafted ? o.accepted : o.drafted;
    bool after_pause = cost->since_draft >= cost->pause;
    if (o.draft_ns || o.drafted) {
        cost->draft_ns = cost->draft_ns * memory_draft + (double)o.draft_ns;
        cost->draft_tokens = cost->draft_tokens * memory_draft + o.drafted;
    }
    if (o.drafted) {
        if (after_pause)
            forget_acceptance(cost);
        learn_acceptance(cost, o.drafted, o.accepted);
    }
    spry_draft_figures_count(&cost->figures, o.drafted, o.accepted);
    settle(cost, &o);
    cost->since_draft = o.drafted ? 0 : cost->since_draft + 1;
    cost->since_plain = o.drafted ? cost->since_plain + 1 : 0;
    if (o.drafted)
        judge_trial(cost, &o, after_pause);
}
