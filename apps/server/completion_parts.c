/* Where the time and the energy of a request went.
 *
 * The request's own laps go up to the moment its jobs are handed over. From there on the first answer's job tells, in
 * the same lane; what follows its end is the request's again. So there is no gap, and the parts add up to the whole.
 * Jobs of further answers have lanes of their own. */
#include "completion_internal.h"
#include "energy_figures.h"
#include "platform/clock.h"
#include "terminal.h"

void spry_completion_start(spry_completion *c)
{
    spry_server *server = c->exchange->server;
    spry_laps_begin(&c->laps, server->trace, spry_trace_take_lane(server->trace), c->exchange->began_ns);
    spry_energy_begin(server->meter, &c->share);
}

void spry_completion_hand_over(spry_completion *c)
{
    spry_lap(&c->laps, SPRY_PART_QUEUE);
    c->before = c->laps;
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
    if (c->stopped_ns)
        return;
    for (uint32_t i = 0; i < c->n; i++)
        last_ns = c->choices[i].done_ns > last_ns ? c->choices[i].done_ns : last_ns;
    if (c->n && c->choices[0].done_ns)
        skip_job(&c->laps, &c->choices[0]);
    if (c->n > 1)
        spry_lap_until(&c->laps, SPRY_PART_OTHERS, last_ns);
    c->stopped_ns = spry_clock_ns();
    spry_energy_end(c->exchange->server->meter, &c->share, &c->used);
}

void spry_completion_finish(spry_completion *c)
{
    spry_usage_counts n;
    spry_completion_stop(c);
    spry_completion_count(c, &n);
    spry_lap(&c->laps, SPRY_PART_WRITE);
    const spry_trace_span span = {.name = "request",
                                  .category = "request",
                                  .lane = c->laps.lane,
                                  .begin_ns = c->laps.began_ns,
                                  .end_ns = c->laps.last_ns,
                                  .args = {{"request", (int64_t)c->exchange->number},
                                           {"prompt_tokens", (int64_t)n.prompt},
                                           {"generated_tokens", (int64_t)n.generated}}};
    spry_trace_add(c->laps.trace, &span);
    spry_trace_leave_lane(c->laps.trace, c->laps.lane);
    if (spry_trace_failed(c->laps.trace) && !atomic_exchange(&c->exchange->server->trace_told, true))
        spry_complain("the trace cannot be written any more; serving goes on without it");
}

/* Parts, and energy, whose times end now. */
void spry_completion_parts(const spry_completion *c, json_t *timings, size_t generated)
{
    double whole[SPRY_PART_COUNT], first[SPRY_PART_COUNT];
    spry_laps laps = c->laps;
    laps.trace = NULL; /* the lap that is told ends with the last byte */
    spry_lap(&laps, SPRY_PART_WRITE);
    spry_laps_ms(&laps, whole);
    spry_laps_ms(&c->before, first);
    if (c->choices[0].done_ns) {
        add(whole, c->choices[0].job.result.parts_ms);
        add(first, c->choices[0].job.result.first_parts_ms);
    }
    json_object_set_new(timings, "ttft_ms", json_real(sum(first)));
    json_object_set_new(timings, "total_ms", json_real(sum(whole)));
    json_object_set_new(timings, "parts_ms", spry_parts_json(whole));
    json_object_set_new(timings, "first_parts_ms", spry_parts_json(first));
    json_t *energy = spry_energy_json(&c->used, (double)(c->stopped_ns - c->laps.began_ns) / 1e6, generated);
    if (json_is_null(energy)) {
        char why[SPRY_ENERGY_TEXT];
        spry_energy_why(why, c->exchange->server->meter);
        json_object_set_new(timings, "why_no_energy", json_string(why));
    }
    json_object_set_new(timings, "energy", energy);
}
