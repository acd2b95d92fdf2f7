/* The parts of a request's time. Each lap charges the time since the previous lap to a part: there is no gap, so the
 * parts add up to the total. With a trace every lap is a span in the request's lane. */
#ifndef SPRY_PLATFORM_LAPS_H
#define SPRY_PLATFORM_LAPS_H

#include "platform/trace.h"

typedef struct spry_laps {
    spry_trace *trace; /* NULL: times are recorded without a trace */
    uint32_t lane;
    uint64_t began_ns, last_ns;
    uint64_t ns[SPRY_PART_COUNT];
} spry_laps;

/* Starts at `began_ns`, a time of spry_clock_ns. */
void spry_laps_begin(spry_laps *laps, spry_trace *trace, uint32_t lane, uint64_t began_ns);

/* Charges the time from the last lap to now (or to `ns`, if that is later than the last lap) to `part`. */
void spry_lap(spry_laps *laps, spry_part part);
void spry_lap_until(spry_laps *laps, spry_part part, uint64_t ns);

/* The parts in milliseconds. */
void spry_laps_ms(const spry_laps *laps, double ms[SPRY_PART_COUNT]);

#endif
