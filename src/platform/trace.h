/* A file of what happened when, as Chrome's trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
 *
 * Whoever measures hands over spans of time; a thread of the trace's own writes them, so that nobody waits for a disk.
 * When that thread cannot keep up, spans are left out and counted; when the disk is full, the file keeps what it has,
 * in whole lines, and closing says so. A NULL trace takes everything and writes nothing. */
#ifndef SPRY_PLATFORM_TRACE_H
#define SPRY_PLATFORM_TRACE_H

#include "base/error.h"

enum { SPRY_TRACE_ARGS = 3 };

typedef struct spry_trace_arg {
    const char *name; /* NULL: none */
    int64_t value;
} spry_trace_arg;

/* Names are borrowed for as long as the trace is open, and hold nothing that JSON would escape. */
typedef struct spry_trace_span {
    const char *name, *category;
    uint32_t lane;
    uint64_t begin_ns, end_ns;
    spry_trace_arg args[SPRY_TRACE_ARGS];
    const char *kernel, *type; /* NULL, or the words of the "kernel" among its args */
} spry_trace_span;

/* From any thread: one, or several at once. */
void spry_trace_add(spry_trace *trace, const spry_trace_span *span);
void spry_trace_add_all(spry_trace *trace, const spry_trace_span *spans, size_t count);

/* Whether writing has failed, and nothing is written any more; closing says why. */
bool spry_trace_failed(const spry_trace *trace);

/* Whether single ops are wanted, too. */
bool spry_trace_wants_ops(const spry_trace *trace);

/* A line of the picture, the same for the same name. Spans of a lane follow or contain each other. */
uint32_t spry_trace_lane(spry_trace *trace, const char *name);

/* A lane for a request, to be given back when it is over: "request 1", "request 2", as many as there are at once. 0 of
 * a NULL trace; 0 given back is nothing. */
uint32_t spry_trace_take_lane(spry_trace *trace);
void spry_trace_leave_lane(spry_trace *trace, uint32_t lane);

#endif
