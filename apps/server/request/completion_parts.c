/* Where the time and the energy of a request went.
 *
 * The request's own laps go up to the moment its jobs are handed over. From there on the first answer's job tells, in
 * the same lane; what follows its end is the request's again. So there is no gap, and the parts add up to the whole.
 * Jobs of further answers have lanes of their own. */
#include "run/answer.h"
#include "server/request/completion_internal.h"

void spry_completion_hand_over(spry_completion *c)
{
    spry_lap(&c->costs.laps, SPRY_PART_QUEUE);
    c->before = c->costs.laps;
    spry_costs_begin_share(&c->costs);
}

static void add(double ms[SPRY_PART_COUNT], const double more[SPRY_PART_COUNT])
{
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        ms[i] += more[i];
}

static double sum(const double ms[SPRY_PART_COUNT])
{
    double all = 0;
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        all += ms[i];
    return all;
}

void spry_choice_parts(const spry_choice *choice, double ms[SPRY_PART_COUNT])
{
    spry_laps_ms(&choice->owner->before, ms);
    if (choice->done_ns)
        add(ms, choice->job.result.parts_ms);
}

/* The laps go on where the first answer's job ended. What passed between them and it, and between it and the news that
 * it is over, is next to nothing, but the sum must be whole. */
static void skip_job(spry_laps *laps, const spry_choice *choice)
{
    uint64_t took = (uint64_t)(sum(choice->job.result.parts_ms) * 1e6), since = choice->done_ns - laps->last_ns;
    laps->ns[SPRY_PART_WRITE] += since > took ? since - took : 0;
    laps->last_ns = choice->done_ns;
}

void spry_completion_stop(spry_completion *c)
{
    uint64_t last_ns = 0;
    if (c->stopped)
        return;
    c->stopped = true;
    for (uint32_t i = 0; i < c->n; i++)
        last_ns = c->choices[i].done_ns > last_ns ? c->choices[i].done_ns : last_ns;
    if (c->n && c->choices[0].done_ns)
        skip_job(&c->costs.laps, &c->choices[0]);
    if (c->n > 1)
        spry_lap_until(&c->costs.laps, SPRY_PART_OTHERS, last_ns);
}

void spry_completion_finish(spry_completion *c)
{
    spry_usage_counts n;
    spry_completion_stop(c);
    spry_completion_count(c, &n);
    spry_costs_end(&c->costs, n.prompt, n.generated);
}

/* Parts, and energy, whose times end now. */
void spry_completion_parts(const spry_completion *c, json_t *timings, size_t generated)
{
    double whole[SPRY_PART_COUNT], first[SPRY_PART_COUNT];
    spry_costs_parts(&c->costs, whole);
    spry_laps_ms(&c->before, first);
    if (c->choices[0].done_ns) {
        add(whole, c->choices[0].job.result.parts_ms);
        add(first, c->choices[0].job.result.first_parts_ms);
    }
    json_object_set_new(timings, "ttft_ms", json_real(sum(first)));
    json_object_set_new(timings, "first_parts_ms", spry_parts_json(first));
    spry_costs_tell(&c->costs, timings, whole, generated);
}
