/* The pool of KV pages. A page holds the keys and values of SPRY_PAGE_TOKENS tokens for every layer; all pages come
 * from one mapping made up front, so a step never allocates. Pages are reference-counted: whoever holds a page in a
 * table holds one reference. One thread owns a pool. */
#ifndef SPRY_KV_KV_POOL_H
#define SPRY_KV_KV_POOL_H

#include "base/dtype.h"
#include "base/error.h"
#include "kernels/ops.h"
#include "kv/kv_turns.h"

typedef struct spry_kv_shape {
    size_t n_layers, n_kv_heads, head_dim;
    spry_dtype type; /* F32, F16 or Q8_0 */
} spry_kv_shape;

/* Inside a page: layer after layer, each keys then values, each n_kv_heads heads as in kernels/kv_layout.h. */
typedef struct spry_kv_pool {
    spry_kv_shape shape;
    size_t token_bytes; /* [head_dim] */
    size_t head_bytes;  /* [SPRY_PAGE_TOKENS, head_dim] */
    size_t side_bytes;  /* keys, or values, of one layer */
    size_t page_bytes;
    size_t n_pages, n_free;
    unsigned char *pages;
    uint32_t *references; /* [n_pages]; 0: free */
    uint32_t *free;       /* the last n_free are free pages */
    spry_kv_turns turns;  /* of the tables' entries */
} spry_kv_pool;

/* Bytes one token costs in all layers; false when the shape does not fit the type's blocks or overflows. */
bool spry_kv_token_bytes(size_t *bytes, const spry_kv_shape *shape);

spry_status spry_kv_pool_init(spry_kv_pool *pool, const spry_kv_shape *shape, size_t n_pages, spry_error *error);
void spry_kv_pool_deinit(spry_kv_pool *pool);

/* A page with one reference; false when none is free. */
bool spry_kv_page_take(spry_kv_pool *pool, uint32_t *page);
void spry_kv_page_ref(spry_kv_pool *pool, uint32_t page);
void spry_kv_page_unref(spry_kv_pool *pool, uint32_t page);

/* Where keys (side 0) or values (side 1) of a layer begin in a page. */
static inline size_t spry_kv_offset(const spry_kv_pool *pool, size_t layer, size_t side)
{
    return (layer * 2 + side) * pool->side_bytes;
}

static inline unsigned char *spry_kv_page(const spry_kv_pool *pool, uint32_t page)
{
    return pool->pages + (size_t)page * pool->page_bytes;
}

#endif
