#include "draft/draft_steps.h"

static const double unit = 1e9;  /* spry_step_cost takes whole numbers */
static const double same = 1.25; /* plain steps that differ by more were not taken at the same pace */

void spry_draft_steps_init(spry_draft_steps *steps)
{
    *steps = (spry_draft_steps){0};
    spry_step_cost_init(&steps->cost);
}

double spry_draft_steps_cost(const spry_draft_steps *steps, size_t rows)
{
    return spry_step_cost_ns(&steps->cost, rows) / unit;
}

double spry_draft_steps_units(const spry_draft_steps *steps, uint64_t ns)
{
    return steps->pace > 0 ? (double)ns / steps->pace : 0;
}

/* The steps that were held lie between two plain ones, of which the second was taken at `pace`. */
static void count_held(spry_draft_steps *s, double pace)
{
    if (!s->n_held || s->n_held > SPRY_DRAFT_STEPS_HELD || pace > same * s->plain_pace || s->plain_pace > same * pace)
        return;
    spry_step_cost_measure(&s->cost, s->plain_rows, /* as it is: so that it is not forgotten */
                           (uint64_t)(unit * spry_draft_steps_cost(s, s->plain_rows)));
    for (size_t i = 0; i < s->n_held; i++)
        spry_step_cost_measure(&s->cost, s->held[i].rows,
                               (uint64_t)(unit * s->held[i].ns * 2 / (pace + s->plain_pace)));
    s->n_compared++;
}

void spry_draft_steps_measure(spry_draft_steps *s, size_t rows, bool plain, uint64_t ns)
{
    const double time = ns ? (double)ns : 1;
    if (!rows)
        return;
    if (!s->cost.n_measured)
        spry_step_cost_measure(&s->cost, rows, (uint64_t)unit);
    else if (plain && !spry_step_cost_knows(&s->cost, rows)) /* at the pace of the step before it */
        spry_step_cost_measure(&s->cost, rows, (uint64_t)(unit * time / s->pace));
    s->pace = time / spry_draft_steps_cost(s, rows);
    if (plain && (!s->plain_rows || s->n_held >= SPRY_DRAFT_STEPS_HELD)) { /* sequences began or ended: from now on
                                                                            * these are the plain steps */
        s->n_held = rows == s->plain_rows ? s->n_held : SPRY_DRAFT_STEPS_HELD + 1;
        s->plain_rows = rows;
    }
    if (plain && rows == s->plain_rows) {
        count_held(s, s->pace);
        s->plain_pace = s->pace;
        s->n_held = 0;
    } else {
        if (s->n_held < SPRY_DRAFT_STEPS_HELD)
            s->held[s->n_held] = (spry_held_step){rows, time};
        s->n_held += s->n_held <= SPRY_DRAFT_STEPS_HELD;
    }
}
