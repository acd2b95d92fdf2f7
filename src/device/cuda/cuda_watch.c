/* Times of ops from events in the stream. The host waits once, at the end of a watched step, so that the times are
 * times of the GPU and not of launches. The host's time is charged to the op LAYOUT, so that the ops add up to the
 * step. */
#include "device/cuda/cuda_state.h"
#include "platform/clock.h"

static bool open_events(spry_cuda_device *d)
{
    spry_cuda_marks *m = &d->marks;
    for (; !d->context.fault && m->n_events < SPRY_CUDA_MARKS + 2; m->n_events += d->context.fault == 0)
        m->events[m->n_events] = spry_cuda_event_create(&d->context);
    return d->context.fault == 0;
}

/* Marks the beginning of the first op. */
static void begin(spry_cuda_device *d)
{
    d->marks.n = 0;
    spry_cuda_event_record(&d->context, d->marks.events[0]);
}

void spry_cuda_watch_begin(spry_cuda_device *d, uint64_t begin_ns)
{
    spry_cuda_watch_end(d); /* ends the previous step, if this one was submitted after it */
    d->watch->last_ns = begin_ns;
    d->marks.under_way = open_events(d);
    begin(d);
}

void spry_cuda_charge(spry_cuda_device *d, spry_op op, spry_dtype type, double bytes, double products)
{
    spry_cuda_marks *m = &d->marks;
    if (!d->watch || !m->under_way)
        return;
    if (m->n == SPRY_CUDA_MARKS) {
        spry_cuda_watch_end(d);
        m->under_way = true;
        begin(d);
    }
    m->ops[m->n] = (spry_cuda_marked){op, type, bytes, products};
    spry_cuda_event_record(&d->context, m->events[++m->n]);
}

void spry_cuda_charge_attention(spry_cuda_device *d, uint32_t layer)
{
    double bytes, products;
    if (!d->watch)
        return;
    spry_device_attention_work(&bytes, &products, d->marks.segments, d->n_segments, d->config, d->pool, layer);
    spry_cuda_charge(d, SPRY_OP_ATTEND, d->pool->shape.type, bytes, products);
}

static uint64_t elapsed_ns(spry_cuda_device *d, size_t from, size_t to)
{
    double ns = 1e6 * spry_cuda_event_elapsed(&d->context, d->marks.events[from], d->marks.events[to]);
    return ns > 0 ? (uint64_t)ns : 0;
}

void spry_cuda_watch_end(spry_cuda_device *d)
{
    spry_cuda_marks *m = &d->marks;
    spry_op_watch *watch = d->watch;
    if (!watch || !m->under_way)
        return;
    m->under_way = false;
    spry_cuda_event_record(&d->context, m->events[m->n + 1]); /* after the draws */
    spry_cuda_finish(&d->context);
    uint64_t draws = elapsed_ns(d, m->n, m->n + 1), all = elapsed_ns(d, 0, m->n) + draws, now = spry_clock_ns();
    if (d->context.fault)
        return;
    uint64_t begun = watch->last_ns + all < now ? now - all : watch->last_ns;
    if (begun > watch->last_ns)
        spry_op_watch_until(watch, begun, SPRY_OP_LAYOUT, SPRY_F32, SPRY_OP_ON_HOST, 0, 0);
    for (size_t i = 0; i < m->n; i++)
        spry_op_watch_until(watch, watch->last_ns + elapsed_ns(d, i, i + 1), m->ops[i].op, m->ops[i].type,
                            SPRY_OP_ON_GPU, m->ops[i].bytes, m->ops[i].products);
    d->device.sampling_ns = draws;
    watch->last_ns = now;
}

void spry_cuda_watch_deinit(spry_cuda_device *d)
{
    for (size_t i = 0; i < d->marks.n_events; i++)
        spry_cuda_event_destroy(&d->context, d->marks.events[i]);
    d->marks.n_events = 0;
}
