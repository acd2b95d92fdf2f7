#include "server/request/request_costs.h"

#include "cli/energy_figures.h"
#include "cli/terminal.h"
#include "platform/clock.h"
#include "run/answer.h"

void spry_costs_begin(spry_costs *costs, spry_exchange *x)
{
    spry_trace *trace = x->server->trace;
    *costs = (spry_costs){.exchange = x};
    spry_laps_begin(&costs->laps, trace, spry_trace_take_lane(trace, x->began_ns), x->began_ns);
}

void spry_costs_begin_share(spry_costs *costs)
{
    if (costs->share_began_ns)
        return;
    spry_energy_begin(costs->exchange->server->meter, &costs->share);
    costs->share_began_ns = spry_clock_ns();
}

void spry_costs_end_share(spry_costs *costs)
{
    if (!costs->share_began_ns || costs->share_ended_ns)
        return;
    spry_energy_end(costs->exchange->server->meter, &costs->share, &costs->used);
    costs->share_ended_ns = spry_clock_ns();
}

void spry_costs_end(spry_costs *costs, size_t prompt_tokens, size_t generated_tokens)
{
    spry_exchange *x = costs->exchange;
    spry_laps *laps = &costs->laps;
    spry_costs_end_share(costs);
    spry_lap(laps, SPRY_PART_WRITE);
    x->audit.prompt = prompt_tokens;
    x->audit.generated = generated_tokens;
    if (x->counted)
        spry_key_limits_charge(&x->server->limits, x->key_index, prompt_tokens + generated_tokens);
    const spry_trace_span span = {.name = "request",
                                  .category = "request",
                                  .lane = laps->lane,
                                  .begin_ns = laps->began_ns,
                                  .end_ns = laps->last_ns,
                                  .args = {{"request", (int64_t)x->number},
                                           {"prompt_tokens", (int64_t)prompt_tokens},
                                           {"generated_tokens", (int64_t)generated_tokens}}};
    spry_trace_add(laps->trace, &span);
    spry_trace_leave_lane(laps->trace, laps->lane, laps->last_ns);
    if (spry_trace_failed(laps->trace) && !atomic_exchange(&x->server->trace_failed, true))
        spry_complain("the trace file can no longer be written; the server continues without it");
}

void spry_costs_parts(const spry_costs *costs, double ms[SPRY_PART_COUNT])
{
    spry_laps laps = costs->laps;
    laps.trace = NULL; /* only the real last lap is written to the trace */
    spry_lap(&laps, SPRY_PART_WRITE);
    spry_laps_ms(&laps, ms);
}

void spry_costs_tell(const spry_costs *costs, json_t *timings, const double ms[SPRY_PART_COUNT], size_t generated)
{
    double whole = 0;
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        whole += ms[i];
    json_object_set_new(timings, "total_ms", json_real(whole));
    json_object_set_new(timings, "parts_ms", spry_parts_json(ms));
    double share_ms = (double)(costs->share_ended_ns - costs->share_began_ns) / 1e6;
    json_t *energy = spry_energy_json(&costs->used, share_ms, generated);
    if (json_is_null(energy)) {
        char why[SPRY_ENERGY_TEXT];
        spry_energy_why(why, costs->exchange->server->meter);
        json_object_set_new(timings, "why_no_energy", json_string(why));
    }
    json_object_set_new(timings, "energy", energy);
}
