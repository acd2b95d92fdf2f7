/* KV pages in GPU memory, their TMA descriptors, and the tier of pages in pinned host memory. */
#include <stdlib.h>

#include "device/cuda/cuda_state.h"

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Pages from the disk tier are read into pinned memory and copied from there asynchronously: one page is copied while
 * the next ones are read, and one wait ends all of them. */

static const size_t staging_bytes = (size_t)128 << 20;

spry_cuda_memory spry_cuda_page(const spry_cuda_device *d, uint32_t page)
{
    return d->pages + (uint64_t)page * d->pool->page_bytes;
}

static void copy_page(void *self, uint32_t to, uint32_t from)
{
    spry_cuda_device *d = self;
    spry_cuda_enter(&d->context);
    spry_cuda_tier_pass(d, to);
    spry_cuda_tier_pass(d, from);
    spry_cuda_copy(&d->context, spry_cuda_page(d, to), spry_cuda_page(d, from), d->pool->page_bytes);
}

/* Called from any thread, so it does not touch the device's state. */
static const void *read_page(void *self, uint32_t page, void *room)
{
    const spry_cuda_device *d = self;
    const spry_cuda *cuda = d->context.cuda;
    bool fine = cuda->context_set(d->context.context) == 0 && cuda->stream_wait(d->context.stream) == 0 &&
                cuda->memory_read(room, spry_cuda_page(d, page), d->pool->page_bytes) == 0;
    return fine ? room : NULL;
}

static void *begin_write(void *self, uint32_t page)
{
    spry_cuda_device *d = self;
    spry_cuda_writes *w = &d->writes;
    if (w->n == w->capacity)
        return NULL;
    w->pages[w->n] = page;
    return w->host + w->n++ * d->pool->page_bytes;
}

static bool end_write(void *self, uint32_t page, bool whole)
{
    spry_cuda_device *d = self;
    size_t at = 0;
    while (d->writes.pages[at] != page)
        at++;
    if (!whole)
        return true;
    spry_cuda_enter(&d->context);
    spry_cuda_tier_pass(d, page);
    spry_cuda_write(&d->context, spry_cuda_page(d, page), d->writes.host + at * d->pool->page_bytes,
                    d->pool->page_bytes);
    return d->context.fault == 0;
}

static bool finish_writes(void *self)
{
    spry_cuda_device *d = self;
    spry_cuda_enter(&d->context);
    spry_cuda_finish(&d->context);
    d->writes.n = 0;
    return d->context.fault == 0;
}

spry_kv_mover spry_cuda_pages_mover(spry_device *device)
{
    spry_kv_mover mover = {.self = device,
                           .copy = copy_page,
                           .read = read_page,
                           .max_writes = ((const spry_cuda_device *)device)->writes.capacity,
                           .write_begin = begin_write,
                           .write_end = end_write,
                           .write_finish = finish_writes};
    spry_cuda_tier_mover(&mover);
    return mover;
}

/* ---- recurrent states -------------------------------------------------------------------------------------------- */

static spry_cuda_memory state_at(const spry_cuda_device *d, uint32_t state)
{
    return d->states.memory + (uint64_t)state * d->pool->shape.state;
}

static void copy_state(void *self, uint32_t to, uint32_t from)
{
    spry_cuda_device *d = self;
    spry_cuda_enter(&d->context);
    spry_cuda_copy(&d->context, state_at(d, to), state_at(d, from), d->pool->shape.state);
}

/* Called from any thread, so it does not touch the device's state. */
static const void *read_state(void *self, uint32_t state, void *room)
{
    const spry_cuda_device *d = self;
    const spry_cuda *cuda = d->context.cuda;
    bool fine = cuda->context_set(d->context.context) == 0 && cuda->stream_wait(d->context.stream) == 0 &&
                cuda->memory_read(room, state_at(d, state), d->pool->shape.state) == 0;
    return fine ? room : NULL;
}

static void *begin_state(void *self, uint32_t state)
{
    spry_cuda_device *d = self;
    (void)state;
    spry_cuda_enter(&d->context);
    if (!d->states.host)
        d->states.host = spry_cuda_allocate_host(&d->context, d->pool->shape.state);
    return d->states.host;
}

static bool end_state(void *self, uint32_t state, bool whole)
{
    spry_cuda_device *d = self;
    if (whole)
        spry_cuda_write(&d->context, state_at(d, state), d->states.host, d->pool->shape.state);
    return d->context.fault == 0;
}

static bool finish_states(void *self)
{
    spry_cuda_device *d = self;
    spry_cuda_enter(&d->context);
    spry_cuda_finish(&d->context);
    return d->context.fault == 0;
}

spry_kv_mover spry_cuda_states_mover(spry_device *device)
{
    return (spry_kv_mover){.self = device,
                           .copy = copy_state,
                           .read = read_state,
                           .max_writes = 1,
                           .write_begin = begin_state,
                           .write_end = end_state,
                           .write_finish = finish_states};
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static size_t places(const spry_kv_pool *pool, bool restores)
{
    size_t most = restores ? staging_bytes / pool->page_bytes : 1;
    most = most < SPRY_CUDA_WRITES ? most : SPRY_CUDA_WRITES;
    most = most < pool->n_pages ? most : pool->n_pages;
    return most ? most : 1;
}

/* A TMA descriptor for boxes of `rows` rows by `blocks` lines of 64 bytes; in shared memory the lines of a block are
 * contiguous. */
static void encode_tensor_map(spry_cuda_context *gpu, spry_tensor_map *map, const spry_kv_pages *kv, size_t n_pages,
                              uint32_t row_bytes, uint32_t rows, uint32_t blocks)
{
    enum { RANK = 4, LINE = 64 };
    const uint64_t sizes[RANK] = {LINE / 2, kv->page_bytes / row_bytes, blocks, n_pages};
    const uint64_t strides[RANK - 1] = {row_bytes, LINE, kv->page_bytes};
    const uint32_t box[RANK] = {LINE / 2, rows, blocks, 1}, steps[RANK] = {1, 1, 1, 1};
    if (!gpu->fault)
        spry_cuda_went_well(gpu,
                            gpu->cuda->tensor_map_encode(map, SPRY_CUDA_TMA_16_BIT, RANK, (void *)(uintptr_t)kv->pages,
                                                         sizes, strides, box, steps, 0, SPRY_CUDA_TMA_SWIZZLE_64,
                                                         SPRY_CUDA_TMA_L2_256, 0),
                            "cuTensorMapEncodeTiled");
}

void spry_cuda_encode_tensor_maps(spry_cuda_context *gpu, spry_cuda_attention *attention, const spry_kv_pages *kv,
                                  size_t n_pages)
{
    if (!attention->uses_tma)
        return;
    encode_tensor_map(gpu, &attention->maps.keys, kv, n_pages, 64, kv->head_dim, 1);
    encode_tensor_map(gpu, &attention->maps.values, kv, n_pages, kv->token_bytes, SPRY_PAGE_TOKENS, kv->head_dim / 32);
}

spry_status spry_cuda_pages_init(spry_cuda_device *d, bool restores, spry_error *error)
{
    d->pages = spry_cuda_allocate(&d->context, d->pool->page_bytes * d->pool->n_pages);
    if (d->pool->states)
        d->states.memory = spry_cuda_allocate(&d->context, spry_kv_states_bytes(&d->pool->shape));
    for (uint32_t layer = d->config->n_layers; layer-- > 0;) { /* the first layer of each kind */
        const spry_kv_pages kv = spry_cuda_layer_pages(d, layer);
        bool slides = d->config->sliding[layer] && spry_config_has_kinds(d->config);
        spry_cuda_encode_tensor_maps(&d->context, &d->attention[slides], &kv, d->pool->n_pages);
    }
    d->writes.capacity = places(d->pool, restores);
    d->writes.host = spry_cuda_allocate_host(&d->context, d->writes.capacity * d->pool->page_bytes);
    return spry_cuda_fault(&d->context, "allocating KV pages", error);
}

void spry_cuda_pages_deinit(spry_cuda_device *d)
{
    spry_cuda_free_host(&d->context, d->writes.host);
    spry_cuda_free_host(&d->context, d->states.host);
    spry_cuda_free(&d->context, &d->states.memory);
    spry_cuda_free(&d->context, &d->pages);
}

/* ---- host tier --------------------------------------------------------------------------------------------------- */

/* Copies have their own stream beside that of the steps. A copy starts when the steps submitted so far have finished,
 * and a step that uses a page starts when the last copy of that page has finished. Events in the streams ensure both,
 * so neither the host nor other steps wait. */

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

/* A failure here is no fault of the device; there is just no host tier. */
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

/* Starts after everything in the steps' stream, which may still use the page. */
static bool begin_copy(spry_cuda_device *d)
{
    spry_cuda_context *c = &d->context;
    spry_cuda_enter(c);
    return !c->fault && spry_cuda_went_well(c, c->cuda->event_record(d->tier.before, c->stream), "cuEventRecord") &&
           spry_cuda_went_well(c, c->cuda->stream_wait_event(d->tier.stream, d->tier.before, 0), "cuStreamWaitEvent");
}

/* Returns the number of the copy. */
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

/* Makes the steps' stream wait for a copy, and so for all earlier ones. */
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
    if (!d->context.cuda->event_query(event_of(t, t->newest))) { /* all have finished */
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
