/* The content address of a page: a 128-bit hash of everything its keys and values were computed from. A chain starts at
 * a root (model, kernels, KV type, salt); each page's key takes in its parent's key and its own tokens. */
#ifndef SPRY_KV_KV_KEY_H
#define SPRY_KV_KV_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spry_kv_key {
    uint64_t low, high;
} spry_kv_key;

static inline bool spry_kv_key_equal(spry_kv_key a, spry_kv_key b)
{
    return a.low == b.low && a.high == b.high;
}

/* Where chains begin. Callers with different salts share nothing. */
spry_kv_key spry_kv_key_root(spry_kv_key fingerprint, const void *salt, size_t salt_size);

/* Of a page computed behind `parent`. Fewer tokens than a page holds give another key than any full page. */
spry_kv_key spry_kv_key_page(spry_kv_key parent, const int32_t *tokens, size_t count);

/* Where a span's own chain begins: the text is computed as if nothing stood before it. */
spry_kv_key spry_kv_key_span_root(spry_kv_key root);

/* What stands behind `parent` when a page of a span was put there as it is. */
spry_kv_key spry_kv_key_link(spry_kv_key parent, spry_kv_key span_page);

#endif
