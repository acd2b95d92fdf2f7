#include "grammar/compile/grammar_cache.h"

#include <stdlib.h>
#include <threads.h>

typedef struct entry {
    spry_grammar *grammar; /* NULL: free */
    spry_grammar_kind kind;
    char *source;
    size_t size;
    uint64_t used;
} entry;

struct spry_grammar_cache {
    mtx_t lock;
    entry entries[SPRY_GRAMMAR_CACHE_ENTRIES];
    uint64_t clock;
};

spry_status spry_grammar_cache_create(spry_grammar_cache **out, spry_error *error)
{
    *out = calloc(1, sizeof **out);
    if (*out && mtx_init(&(*out)->lock, mtx_plain) == thrd_success)
        return SPRY_OK;
    free(*out);
    *out = NULL;
    return spry_fail_memory(error, "a cache of grammars", sizeof **out);
}

static void drop(entry *old)
{
    spry_grammar_unref(old->grammar);
    free(old->source);
    *old = (entry){0};
}

void spry_grammar_cache_destroy(spry_grammar_cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < SPRY_GRAMMAR_CACHE_ENTRIES; i++)
        drop(&cache->entries[i]);
    mtx_destroy(&cache->lock);
    free(cache);
}

static entry *find(spry_grammar_cache *cache, spry_grammar_kind kind, spry_view source)
{
    for (size_t i = 0; i < SPRY_GRAMMAR_CACHE_ENTRIES; i++) {
        entry *at = &cache->entries[i];
        if (at->grammar && at->kind == kind && spry_view_equal((spry_view){at->source, at->size}, source))
            return at;
    }
    return NULL;
}

/* Remembers a grammar when there is memory for it; it is right without that too. */
static void keep(spry_grammar_cache *cache, spry_grammar_kind kind, spry_view source, spry_grammar *grammar)
{
    entry *oldest = &cache->entries[0];
    for (size_t i = 1; i < SPRY_GRAMMAR_CACHE_ENTRIES; i++)
        if (cache->entries[i].used < oldest->used)
            oldest = &cache->entries[i];
    char *copy = source.size <= SPRY_GRAMMAR_CACHE_SOURCE_MAX ? malloc(source.size + 1) : NULL;
    if (!copy)
        return;
    if (source.size)
        memcpy(copy, source.data, source.size);
    drop(oldest);
    *oldest = (entry){spry_grammar_ref(grammar), kind, copy, source.size, ++cache->clock};
}

spry_status spry_grammar_cache_get(spry_grammar_cache *cache, spry_grammar **out, spry_grammar_kind kind,
                                   spry_view source, spry_error *error)
{
    mtx_lock(&cache->lock);
    entry *known = find(cache, kind, source);
    spry_status status = SPRY_OK;
    if (known) {
        known->used = ++cache->clock;
        *out = spry_grammar_ref(known->grammar);
    } else {
        status = spry_grammar_create(out, kind, source, error);
        if (!status)
            keep(cache, kind, source, *out);
    }
    mtx_unlock(&cache->lock);
    return status;
}
