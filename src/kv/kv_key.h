/* The content address of a page: a 128-bit hash of everything that determines its keys and values. A chain starts at a
 * root (model, kernels, KV type, salt); each page's key is computed from its parent's key and its own tokens. */
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

/* The root of a chain. Callers with different salts share nothing. */
spry_kv_key spry_kv_key_root(spry_kv_key fingerprint, const void *salt, size_t salt_size);

/* The key of a page after `parent`. A partial page has another key than any full page. */
spry_kv_key spry_kv_key_page(spry_kv_key parent, const int32_t *tokens, size_t count);

/* The root of span chains: a span is computed without the text before it. */
spry_kv_key spry_kv_key_span_root(spry_kv_key root);

/* The key after `parent` when an unchanged page of a span follows it. */
spry_kv_key spry_kv_key_link(spry_kv_key parent, spry_kv_key span_page);

#endif
