#include "grammar/grammar.h"

#include <pthread.h>
#include <stdlib.h>

/* An entry is free (no source), being compiled (source, no grammar) or ready (both). */
typedef struct entry {
    spry_grammar *grammar;
    spry_grammar_kind kind;
    spry_json_style style;
    char *source;
    size_t size;
    uint64_t used; /* value of the clock at the last request */
} entry;

struct spry_grammar_cache {
    pthread_mutex_t lock; /* protects the fields below; never held while a grammar is compiled */
    pthread_cond_t compiled;
    entry entries[SPRY_GRAMMAR_CACHE_ENTRIES];
    uint64_t clock;
};

spry_status spry_grammar_cache_create(spry_grammar_cache **out, spry_error *error)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return spry_fail_memory(error, "a cache of grammars", sizeof **out);
    pthread_mutex_init(&(*out)->lock, NULL);
    pthread_cond_init(&(*out)->compiled, NULL);
    return SPRY_OK;
}

static void clear(entry *old)
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
        clear(&cache->entries[i]);
    pthread_cond_destroy(&cache->compiled);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

static entry *find(spry_grammar_cache *cache, spry_grammar_kind kind, spry_json_style style, spry_view source)
{
    for (size_t i = 0; i < SPRY_GRAMMAR_CACHE_ENTRIES; i++) {
        entry *at = &cache->entries[i];
        if (at->source && at->kind == kind && at->style == style &&
            spry_view_equal((spry_view){at->source, at->size}, source))
            return at;
    }
    return NULL;
}

/* Reserves the least recently used entry for a grammar that the caller compiles. NULL when every entry is being
 * compiled, the source is too long or there is no memory for it: the caller then compiles without caching. */
static entry *reserve(spry_grammar_cache *cache, spry_grammar_kind kind, spry_json_style style, spry_view source)
{
    entry *oldest = NULL;
    for (size_t i = 0; i < SPRY_GRAMMAR_CACHE_ENTRIES; i++) {
        entry *at = &cache->entries[i];
        bool compiling = at->source && !at->grammar;
        if (!compiling && (!oldest || at->used < oldest->used))
            oldest = at;
    }
    char *copy = oldest && source.size <= SPRY_GRAMMAR_CACHE_SOURCE_MAX ? malloc(source.size + 1) : NULL;
    if (!copy)
        return NULL;
    if (source.size)
        memcpy(copy, source.data, source.size);
    clear(oldest);
    *oldest = (entry){NULL, kind, style, copy, source.size, ++cache->clock};
    return oldest;
}

/* Waits if another thread is compiling this source. NULL when the source is not cached; *failed: this thread waited for
 * a compile that failed. */
static entry *find_ready(spry_grammar_cache *cache, bool *failed, spry_grammar_kind kind, spry_json_style style,
                         spry_view source)
{
    entry *known = find(cache, kind, style, source);
    *failed = false;
    while (known && !known->grammar) {
        pthread_cond_wait(&cache->compiled, &cache->lock);
        known = find(cache, kind, style, source);
        *failed = !known;
    }
    return known;
}

spry_status spry_grammar_cache_get(spry_grammar_cache *cache, spry_grammar **out, spry_grammar_kind kind,
                                   spry_json_style style, spry_view source, spry_error *error)
{
    bool failed;
    pthread_mutex_lock(&cache->lock);
    entry *known = find_ready(cache, &failed, kind, style, source);
    if (known) {
        known->used = ++cache->clock;
        *out = spry_grammar_ref(known->grammar);
        pthread_mutex_unlock(&cache->lock);
        return SPRY_OK;
    }
    /* After a failed compile each waiting thread compiles by itself, at the same time, to get its own error. */
    entry *reserved = failed ? NULL : reserve(cache, kind, style, source);
    pthread_mutex_unlock(&cache->lock);
    spry_status status = spry_grammar_create_styled(out, kind, style, source, error);
    if (!reserved)
        return status;
    pthread_mutex_lock(&cache->lock);
    if (status)
        clear(reserved);
    else
        reserved->grammar = spry_grammar_ref(*out);
    pthread_cond_broadcast(&cache->compiled);
    pthread_mutex_unlock(&cache->lock);
    return status;
}
