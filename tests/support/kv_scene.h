/* A small pool with a cache, and tables on it whose tokens are numbers a test chose. Include after cmocka.h. */
#ifndef SPRY_TESTS_KV_SCENE_H
#define SPRY_TESTS_KV_SCENE_H

#include <string.h>

#include "kv/kv_cache.h"
#include "support/pool_pages.h"

typedef struct kv_scene {
    spry_kv_pool pool;
    spry_kv_cache cache;
    spry_kv_key root;
    uint64_t now;
} kv_scene;

static inline void scene_open(kv_scene *s, size_t n_pages, const spry_kv_cache_options *options)
{
    static const spry_kv_shape shape = {.n_layers = 1, .n_kv_heads = 1, .head_dim = 4, .type = SPRY_F32};
    static const spry_kv_cache_options all = {.max_bytes = SIZE_MAX};
    *s = (kv_scene){.root = {11, 12}, .now = 1000};
    pool_open(&s->pool, &shape, n_pages);
    assert_int_equal(spry_kv_cache_init(&s->cache, &s->pool, options ? options : &all, NULL), SPRY_OK);
}

/* Every table must be gone: then nothing may be left. */
static inline void scene_close(kv_scene *s)
{
    spry_kv_cache_deinit(&s->cache);
    assert_int_equal(s->pool.n_free, s->pool.n_pages);
    for (uint32_t i = 0; i < s->pool.turns.end; i++)
        assert_int_equal(s->pool.turns.references[i], 0);
    pool_close(&s->pool);
}

/* A table with n more tokens, each page stamped with what it must hold. */
static inline void scene_extend(kv_scene *s, spry_kv_table *t, size_t count)
{
    if (!t->entries)
        assert_int_equal(spry_kv_table_init(t, 4096, NULL), SPRY_OK);
    assert_int_equal(spry_kv_table_extend(t, &s->pool, count, NULL), SPRY_OK);
}

static inline void scene_release(kv_scene *s, spry_kv_table *t, const int32_t *tokens)
{
    spry_kv_cache_release(&s->cache, t, s->root, tokens, ++s->now);
    spry_kv_table_deinit(t, &s->pool);
}

/* Makes a text known, as a sequence that came and went; its first page in *page when that is wanted. */
static inline void scene_learn(kv_scene *s, const int32_t *tokens, size_t count, uint32_t *page)
{
    spry_kv_table t = {0};
    scene_extend(s, &t, count);
    if (page)
        *page = t.entries[0].page;
    scene_release(s, &t, tokens);
}

#endif
