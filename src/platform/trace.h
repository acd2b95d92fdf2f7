/* Writes a file of Chrome trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open. Once a second, and
 * at the end, the machine's state is added as counters: temperature, frequency, pressure (machine_state.h).
 *
 * Callers add time spans; a thread of the trace writes them, so that no caller waits for the disk. When that thread
 * cannot keep up, spans are dropped and counted; when the disk is full, the file keeps complete lines only, and closing
 * reports it. A NULL trace accepts all calls and writes nothing. */
#ifndef SPRY_PLATFORM_TRACE_H
#define SPRY_PLATFORM_TRACE_H

#include "base/error.h"

enum { SPRY_TRACE_ARGS = 5 };

typedef struct spry_trace_arg {
    const char *name; /* NULL: none */
    int64_t value;
} spry_trace_arg;

/* Names are borrowed while the trace is open and must not need escaping in JSON. */
typedef struct spry_trace_span {
    const char *name, *category;
    uint32_t lane;
    uint64_t begin_ns, end_ns;
    spry_trace_arg args[SPRY_TRACE_ARGS];
    const char *kernel, *type; /* NULL, or text for the "kernel" argument of the event */
} spry_trace_span;

/* Adds one span, or several. Thread-safe. */
void spry_trace_add(spry_trace *trace, const spry_trace_span *span);
void spry_trace_add_all(spry_trace *trace, const spry_trace_span *spans, size_t count);

/* Whether writing has failed and stopped; closing reports the reason. */
bool spry_trace_failed(const spry_trace *trace);

/* Whether spans of single ops are wanted. */
bool spry_trace_wants_ops(const spry_trace *trace);

/* A lane (row of the display) by name. The spans of a lane must be disjoint or nested. */
uint32_t spry_trace_lane(spry_trace *trace, const char *name);

/* Reserves a lane for a request that began at `began_ns`: "request 1", "request 2", as many as are needed at once.
 * Return it with the end of its last span; a request that began before that gets another lane. A NULL trace gives 0;
 * returning 0 has no effect. */
uint32_t spry_trace_take_lane(spry_trace *trace, uint64_t began_ns);
void spry_trace_leave_lane(spry_trace *trace, uint32_t lane, uint64_t ended_ns);

/* The parts of a request's time. Each lap charges the time since the previous lap to a part: there is no gap, so the
 * parts add up to the total. With a trace every lap is a span in the request's lane. */

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

/* Charges the time up to now to the parts of spry_engine_chat_prompt, which has just returned. */
void spry_laps_prompt(spry_laps *laps, const spry_chat_prompt *prompt);

/* The parts in milliseconds. */
void spry_laps_ms(const spry_laps *laps, double ms[SPRY_PART_COUNT]);

#endif
