/* What a step's time goes to, op by op: the thread that runs a step charges the time since the last op to the op that
 * just ended, so that ops add up to steps. Counts the work, too, so that speeds can be held against what the machine
 * can do. A pass without a watch looks at no clock. */
#ifndef SPRY_MODEL_OP_WATCH_H
#define SPRY_MODEL_OP_WATCH_H

#include "base/dtype.h"
#include "platform/trace.h"

typedef enum spry_op {
    SPRY_OP_LAYOUT,  /* rows, positions, slots and turns of the step */
    SPRY_OP_EMBED,   /* embeddings and angles */
    SPRY_OP_NORM,    /* before, behind and at the end */
    SPRY_OP_QKV,     /* products: queries, keys, values */
    SPRY_OP_ROPE,    /* head norms, rope, keys and values into their pages */
    SPRY_OP_ATTEND,  /* attention over the pages */
    SPRY_OP_OUT,     /* product: attention's output */
    SPRY_OP_ADD,     /* residual */
    SPRY_OP_GATE_UP, /* products: gate and up */
    SPRY_OP_GATE,    /* activation */
    SPRY_OP_DOWN,    /* product: down */
    SPRY_OP_ROUTE,   /* choosing experts, gathering and scattering rows */
    SPRY_OP_LOGITS,  /* product: output matrix, and soft-capping */
    SPRY_OP_COUNT
} spry_op;

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

const char *spry_op_name(spry_op op); /* "gate_up" */

/* Hands its spans over: at the end of a step. */
void spry_op_watch_flush(spry_op_watch *watch);

/* The time since the last op was this op's. */
void spry_op_watch_took(spry_op_watch *watch, spry_op op, spry_dtype type, const char *kernels, double bytes,
                        double products);

#endif
