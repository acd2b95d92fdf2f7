/* A pool whose pages lie in host memory, for tests below the devices. Include after cmocka.h. */
#ifndef SPRY_TESTS_POOL_PAGES_H
#define SPRY_TESTS_POOL_PAGES_H

#include <stdlib.h>

#include "device/cpu/pass.h"

static inline void pool_open(spry_kv_pool *pool, const spry_kv_shape *shape, size_t n_pages)
{
    spry_host_pages *pages = malloc(sizeof *pages);
    assert_non_null(pages);
    assert_int_equal(spry_kv_pool_init(pool, shape, n_pages, NULL), SPRY_OK);
    assert_int_equal(spry_host_pages_init(pages, pool, NULL), SPRY_OK);
    pool->mover = spry_host_pages_mover(pages);
}

static inline void pool_close(spry_kv_pool *pool)
{
    spry_host_pages_deinit(pool->mover.self);
    free(pool->mover.self);
    spry_kv_pool_deinit(pool);
}

static inline unsigned char *pool_page(const spry_kv_pool *pool, uint32_t page)
{
    return spry_host_page(pool->mover.self, page);
}

#endif
