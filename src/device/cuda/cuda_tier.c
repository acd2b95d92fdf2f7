/* Pages in pinned host memory. Copies have a stream of their own, beside the one of steps. A copy begins when the
 * steps submitted so far are done, and a step that uses a page begins when the last copy of that page is done: events
 * in the streams see to both, so neither the host nor any other step waits. */
#include <stdlib.h>

#include "device/cuda/cuda_state.h"

static void *event_of(const spry_cuda_tier *t, uint64_t copy)
{
    return t->after[copy % SPRY_CUDA_COPIES];
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */

static void close_stream(spry_cuda_device *d)
{
    const spry_cuda *cuda = d->context.cuda;
    spry_cuda_tier *t = &d->tier;
    for (size_t i = 0; i < SPRY_CUDA_COPIES; i++)
        if (t->after[i])
            cuda->event_destroy(t->after[i]);
    if (t->before)
        cuda->event_destroy(t->before);
    if (t->stream)
        cuda->stream_destroy(t->stream);
    free(t->of_page);
    *t = (spry_cuda_tier){0};
}

/* What fails here is no fault of the device: there is no tier. */
static bool open_stream(spry_cuda_device *d)
{
    const spry_cuda *cuda = d->context.cuda;
    spry_cuda_tier *t = &d->tier;
    if (t->stream)
        return true;
    t->of_page = calloc(d->pool->n_pages, sizeof *t->of_page);
    bool fine = t->of_page && !cuda->event_create(&t->before, SPRY_CUDA_EVENT_UNTIMED);
    for (size_t i = 0; fine && i < SPRY_CUDA_COPIES; i++)
        fine = !cuda->event_create(&t->after[i], SPRY_CUDA_EVENT_UNTIMED);
    fine = fine && !cuda->stream_create(&t->stream, SPRY_CUDA_STREAM_APART);
    if (!fine)
        close_stream(d);
    return fine;
}

void spry_cuda_tier_deinit(spry_cuda_device *d)
{
    if (!d->tier.stream)
        return;
    spry_cuda_finish_stream(&d->context, d->tier.stream);
    close_stream(d);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void *allocate(void *self, size_t bytes)
{
    spry_cuda_device *d = self;
    void *memory = NULL;
    spry_cuda_enter(&d->context);
    bool fine = !d->context.fault && open_stream(d) && !d->context.cuda->host_allocate(&memory, bytes, 0);
    return fine ? memory : NULL;
}

static void release(void *self, void *memory)
{
    spry_cuda_device *d = self;
    spry_cuda_enter(&d->context);
    spry_cuda_finish_stream(&d->context, d->tier.stream);
    spry_cuda_free_host(&d->context, memory);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Behind everything in the steps' stream, which may still use the page. */
static bool begin_copy(spry_cuda_device *d)
{
    spry_cuda_context *c = &d->context;
    spry_cuda_enter(c);
    return !c->fault && spry_cuda_went_well(c, c->cuda->event_record(d->tier.before, c->stream), "cuEventRecord") &&
           spry_cuda_went_well(c, c->cuda->stream_wait_event(d->tier.stream, d->tier.before, 0), "cuStreamWaitEvent");
}

/* Returns its number. */
static uint64_t end_copy(spry_cuda_device *d, uint32_t page)
{
    spry_cuda_context *c = &d->context;
    spry_cuda_tier *t = &d->tier;
    uint64_t copy = t->newest + 1;
    if (!spry_cuda_went_well(c, c->cuda->event_record(event_of(t, copy), t->stream), "cuEventRecord"))
        return 0;
    t->newest = t->of_page[page] = copy;
    return copy;
}

static uint64_t save(void *self, void *to, uint32_t page)
{
    spry_cuda_device *d = self;
    spry_cuda_context *c = &d->context;
    if (!begin_copy(d) ||
        !spry_cuda_went_well(c, c->cuda->stream_read(to, spry_cuda_page(d, page), d->pool->page_bytes, d->tier.stream),
                             "cuMemcpyDtoHAsync"))
        return 0;
    return end_copy(d, page);
}

static bool load(void *self, uint32_t page, const void *from)
{
    spry_cuda_device *d = self;
    spry_cuda_context *c = &d->context;
    return begin_copy(d) &&
           spry_cuda_went_well(
               c, c->cuda->stream_write(spry_cuda_page(d, page), from, d->pool->page_bytes, d->tier.stream),
               "cuMemcpyHtoDAsync") &&
           end_copy(d, page);
}

static bool saved(void *self, uint64_t copy)
{
    spry_cuda_device *d = self;
    spry_cuda_enter(&d->context);
    return !d->context.fault && !d->context.cuda->event_query(event_of(&d->tier, copy));
}

void spry_cuda_tier_mover(spry_kv_mover *mover)
{
    mover->host_allocate = allocate;
    mover->host_free = release;
    mover->save = save;
    mover->load = load;
    mover->saved = saved;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* The steps' stream waits for a copy, and so for all before it. */
static void pass(spry_cuda_device *d, uint64_t copy)
{
    spry_cuda_context *c = &d->context;
    spry_cuda_tier *t = &d->tier;
    if (copy > t->passed && !c->fault &&
        spry_cuda_went_well(c, c->cuda->stream_wait_event(c->stream, event_of(t, copy), 0), "cuStreamWaitEvent"))
        t->passed = copy;
}

void spry_cuda_tier_pass(spry_cuda_device *d, uint32_t page)
{
    if (d->tier.newest > d->tier.passed)
        pass(d, d->tier.of_page[page]);
}

void spry_cuda_tier_pass_step(spry_cuda_device *d, const spry_device_step *step)
{
    spry_cuda_tier *t = &d->tier;
    uint64_t last = 0;
    if (t->newest == t->passed || d->context.fault)
        return;
    if (!d->context.cuda->event_query(event_of(t, t->newest))) { /* all are done */
        t->passed = t->newest;
        return;
    }
    for (size_t i = 0; i < step->n_segments; i++) {
        const spry_kv_table *table = step->segments[i].table;
        for (size_t k = 0; k < table->n_entries; k++) {
            uint64_t copy = t->of_page[table->entries[k].page];
            last = copy > last ? copy : last;
        }
    }
    pass(d, last);
}
