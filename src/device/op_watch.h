/* What a step's time goes to, op by op: the thread that runs a step charges the time since the last op to the op that
 * just ended, so that ops add up to steps. Counts the work, too, so that speeds can be compared with those of the
 * machine. A pass without a watch reads no clock. */
#ifndef SPRY_DEVICE_OP_WATCH_H
#define SPRY_DEVICE_OP_WATCH_H

#include "base/dtype.h"
#include "platform/trace.h"
#include "spry_tools.h"

typedef struct spry_op_figures {
    uint64_t ns, calls;
    double bytes;    /* of weights, or keys and values, that had to be read */
    double products; /* multiplications */
} spry_op_figures;

enum { SPRY_OP_SPANS = 64 };

typedef struct spry_op_watch {
    spry_trace *trace; /* NULL: ops are counted, not written */
    uint32_t lane;
    uint64_t last_ns;
    spry_trace_span spans[SPRY_OP_SPANS]; /* not handed over yet */
    size_t n_spans;
    /* By the type of the matrix, or of keys and values; SPRY_F32 where there is none. */
    spry_op_figures ops[SPRY_OP_COUNT][SPRY_DTYPE_COUNT];
} spry_op_watch;

/* Hands its spans over: at the end of a step. */
void spry_op_watch_flush(spry_op_watch *watch);

/* The time since the last op was this op's. */
void spry_op_watch_add(spry_op_watch *watch, spry_op op, spry_dtype type, const char *kernels, double bytes,
                       double products);

/* The same for an op that ended at `end_ns`, not before the last one. */
void spry_op_watch_until(spry_op_watch *watch, uint64_t end_ns, spry_op op, spry_dtype type, const char *kernels,
                         double bytes, double products);

#endif
