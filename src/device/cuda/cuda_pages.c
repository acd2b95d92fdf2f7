/* KV pages in the GPU's memory. Pages that come from the disk tier are read into pinned memory and copied from there
 * without waiting for each: one page travels while the next ones are read, and one synchronisation ends all. */
#include "device/cuda/cuda_state.h"

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

/* From any thread, so nothing of the device's own state is touched. */
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

static size_t places(const spry_kv_pool *pool, bool restores)
{
    size_t most = restores ? staging_bytes / pool->page_bytes : 1;
    most = most < SPRY_CUDA_WRITES ? most : SPRY_CUDA_WRITES;
    most = most < pool->n_pages ? most : pool->n_pages;
    return most ? most : 1;
}

/* Boxes of `rows` rows times `blocks` lines of 64 bytes; lines of one block lie together in shared memory. */
static void encode_tensor_map(spry_cuda_context *gpu, spry_tensor_map *map, const spry_kv_pages *kv, size_t n_pages,
                              uint32_t row_bytes, uint32_t rows, uint32_t blocks)
{
    enum { RANK = 4, LINE = 64 };
    const uint64_t sizes[RANK] = {LINE / 2, kv->page_bytes / row_bytes, blocks, n_pages};
    const uint64_t strides[RANK - 1] = {row_bytes, LINE, kv->page_bytes};
    const uint32_t box[RANK] = {LINE / 2, rows, blocks, 1}, steps[RANK] = {1, 1, 1, 1};
    if (!gpu->fault)
        spry_cuda_went_well(gpu,
                            gpu->cuda->memory_map(map, SPRY_CUDA_MAP_16_BIT, RANK, (void *)(uintptr_t)kv->pages, sizes,
                                                  strides, box, steps, 0, SPRY_CUDA_MAP_PERMUTED_64,
                                                  SPRY_CUDA_MAP_CACHED_256, 0),
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
    const spry_kv_pages kv = spry_cuda_layer_pages(d, 0);
    spry_cuda_encode_tensor_maps(&d->context, &d->attention, &kv, d->pool->n_pages);
    d->writes.capacity = places(d->pool, restores);
    d->writes.host = spry_cuda_allocate_host(&d->context, d->writes.capacity * d->pool->page_bytes);
    return spry_cuda_fault(&d->context, "allocating KV pages", error);
}

void spry_cuda_pages_deinit(spry_cuda_device *d)
{
    spry_cuda_free_host(&d->context, d->writes.host);
    spry_cuda_free(&d->context, &d->pages);
}
