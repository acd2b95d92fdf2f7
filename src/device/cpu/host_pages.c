#include "device/cpu/host_pages.h"

#include <string.h>

#include "platform/memory.h"

spry_status spry_host_pages_init(spry_host_pages *pages, const spry_kv_pool *pool, spry_error *error)
{
    size_t bytes = pool->page_bytes * pool->n_pages; /* the pool has checked that this does not overflow */
    *pages = (spry_host_pages){spry_memory_map(bytes), pool->page_bytes, pool->n_pages};
    return pages->memory ? SPRY_OK : spry_fail_memory(error, "KV pages", bytes);
}

void spry_host_pages_deinit(spry_host_pages *pages)
{
    if (pages->memory)
        spry_memory_unmap(pages->memory, pages->page_bytes * pages->n_pages);
    *pages = (spry_host_pages){0};
}

void spry_host_pages_copy(spry_host_pages *pages, uint32_t to, uint32_t from)
{
    memcpy(spry_host_page(pages, to), spry_host_page(pages, from), pages->page_bytes);
}

static void copy_page(void *self, uint32_t to, uint32_t from)
{
    spry_host_pages_copy(self, to, from);
}

static const void *lend_page(void *self, uint32_t page, void *room)
{
    (void)room;
    return spry_host_page(self, page);
}

static void *lend_for_writing(void *self, uint32_t page)
{
    return spry_host_page(self, page);
}

static bool written(void *self, uint32_t page, bool whole)
{
    (void)self;
    (void)page;
    (void)whole;
    return true;
}

static bool finished(void *self)
{
    (void)self;
    return true;
}

void spry_host_pages_release(spry_host_pages *pages, uint32_t first, size_t count)
{
    spry_memory_drop(spry_host_page(pages, first), count * pages->page_bytes);
}

static void release_pages(void *self, uint32_t first, size_t count)
{
    spry_host_pages_release(self, first, count);
}

spry_kv_mover spry_host_pages_mover(spry_host_pages *pages)
{
    return (spry_kv_mover){.self = pages,
                           .copy = copy_page,
                           .read = lend_page,
                           .max_writes = SIZE_MAX,
                           .write_begin = lend_for_writing,
                           .write_end = written,
                           .write_finish = finished,
                           .release = release_pages};
}
