/* 128-bit keys by XXH3. Every kind of key has its own seed, so that kinds cannot collide by construction. */
#include "kv/kv_key.h"

#include <string.h>

#include <xxhash.h>

#include "kernels/ops.h"

enum { SEED_ROOT = 1, SEED_PAGE, SEED_SPAN, SEED_LINK };

static spry_kv_key hash(const void *data, size_t size, uint64_t seed)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(data, size, seed);
    return (spry_kv_key){h.low64, h.high64};
}

spry_kv_key spry_kv_key_root(spry_kv_key fingerprint, const void *salt, size_t salt_size)
{
    spry_kv_key parts[2] = {fingerprint, hash(salt_size ? salt : "", salt_size, SEED_ROOT)};
    return hash(parts, sizeof parts, SEED_ROOT);
}

spry_kv_key spry_kv_key_page(spry_kv_key parent, const int32_t *tokens, size_t count)
{
    unsigned char text[sizeof parent + SPRY_PAGE_TOKENS * sizeof *tokens];
    memcpy(text, &parent, sizeof parent);
    memcpy(text + sizeof parent, tokens, count * sizeof *tokens);
    return hash(text, sizeof parent + count * sizeof *tokens, SEED_PAGE);
}

spry_kv_key spry_kv_key_span_root(spry_kv_key root)
{
    return hash(&root, sizeof root, SEED_SPAN);
}

spry_kv_key spry_kv_key_link(spry_kv_key parent, spry_kv_key span_page)
{
    spry_kv_key parts[2] = {parent, span_page};
    return hash(parts, sizeof parts, SEED_LINK);
}
