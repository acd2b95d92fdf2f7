/* KV pages in host memory: one mapping, made up front, which takes memory as pages are written and returns that of free
 * pages when the pool says so. */
#ifndef SPRY_DEVICE_CPU_HOST_PAGES_H
#define SPRY_DEVICE_CPU_HOST_PAGES_H

#include "kv/kv_pool.h"

typedef struct spry_host_pages {
    unsigned char *memory;
    size_t page_bytes, n_pages;
} spry_host_pages;

/* As many as the pool has numbers. */
spry_status spry_host_pages_init(spry_host_pages *pages, const spry_kv_pool *pool, spry_error *error);
void spry_host_pages_deinit(spry_host_pages *pages);

static inline unsigned char *spry_host_page(const spry_host_pages *pages, uint32_t page)
{
    return pages->memory + (size_t)page * pages->page_bytes;
}

void spry_host_pages_copy(spry_host_pages *pages, uint32_t to, uint32_t from);

/* Returns the memory of consecutive pages to the system. */
void spry_host_pages_release(spry_host_pages *pages, uint32_t first, size_t count);

/* Moves them for a pool: reads and writes lend the pages themselves. */
spry_kv_mover spry_host_pages_mover(spry_host_pages *pages);

#endif
