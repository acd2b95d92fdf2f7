/* What one request costs: its time by parts, and its share of the machine's energy.
 *
 * Time counts from the moment the request's head was read to the last byte of its reply. Energy counts only while the
 * request has jobs in a scheduler, so that a slow reader is not charged. */
#ifndef SPRY_SERVER_REQUEST_COSTS_H
#define SPRY_SERVER_REQUEST_COSTS_H

#include "platform/trace.h"
#include "server/http/exchange.h"

typedef struct spry_costs {
    spry_exchange *exchange;
    spry_laps laps;
    uint64_t share_began_ns, share_ended_ns; /* 0: not yet */
    spry_energy_share share;
    spry_joules used; /* once the share has ended */
} spry_costs;

void spry_costs_begin(spry_costs *costs, spry_exchange *exchange);

/* Only the first call of each has an effect; an end without a begin has none. Any thread, one at a time. */
void spry_costs_begin_share(spry_costs *costs);
void spry_costs_end_share(spry_costs *costs);

/* The request has ended: the remaining time is charged to writing, and the request is added to the trace. */
void spry_costs_end(spry_costs *costs, size_t prompt_tokens, size_t generated_tokens);

/* The parts of the time until now. */
void spry_costs_parts(const spry_costs *costs, double ms[SPRY_PART_COUNT]);

/* Adds total_ms, parts_ms and energy to the timings of a reply; `generated`: tokens, for joules per token. */
void spry_costs_tell(const spry_costs *costs, json_t *timings, const double ms[SPRY_PART_COUNT], size_t generated);

#endif
