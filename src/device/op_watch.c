#include "device/op_watch.h"

#include "base/compiler.h"
#include "platform/clock.h"

const char *spry_op_name(spry_op op)
{
    static const char *const names[] = {
        [SPRY_OP_LAYOUT] = "layout", [SPRY_OP_EMBED] = "embed",       [SPRY_OP_NORM] = "norm",
        [SPRY_OP_QKV] = "qkv",       [SPRY_OP_ROPE] = "rope",         [SPRY_OP_ATTEND] = "attend",
        [SPRY_OP_OUT] = "out",       [SPRY_OP_ADD] = "add",           [SPRY_OP_GATE_UP] = "gate_up",
        [SPRY_OP_GATE] = "gate",     [SPRY_OP_DOWN] = "down",         [SPRY_OP_ROUTE] = "route",
        [SPRY_OP_LOGITS] = "logits", [SPRY_OP_EXCHANGE] = "exchange",
    };
    return (size_t)op < SPRY_COUNT(names) ? names[op] : "unknown";
}

void spry_op_watch_flush(spry_op_watch *watch)
{
    spry_trace_add_all(watch->trace, watch->spans, watch->n_spans);
    watch->n_spans = 0;
}

void spry_op_watch_add(spry_op_watch *watch, spry_op op, spry_dtype type, const char *kernels, double bytes,
                       double products)
{
    spry_op_watch_until(watch, spry_clock_ns(), op, type, kernels, bytes, products);
}

void spry_op_watch_until(spry_op_watch *watch, uint64_t now, spry_op op, spry_dtype type, const char *kernels,
                         double bytes, double products)
{
    spry_op_figures *figures = &watch->ops[op][type];
    figures->ns += now - watch->last_ns;
    figures->calls++;
    figures->bytes += bytes;
    figures->products += products;
    if (watch->trace) {
        watch->spans[watch->n_spans++] = (spry_trace_span){.name = spry_op_name(op),
                                                           .category = "op",
                                                           .lane = watch->lane,
                                                           .begin_ns = watch->last_ns,
                                                           .end_ns = now,
                                                           .kernel = kernels,
                                                           .type = spry_dtype_name(type)};
        if (watch->n_spans == SPRY_OP_SPANS)
            spry_op_watch_flush(watch);
    }
    watch->last_ns = now;
}
