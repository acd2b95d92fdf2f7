/* Compiled grammars by source text: requests often repeat a schema. Several threads may use one cache. A request for
 * a source that another thread is compiling waits for that compile; it never waits for other sources. */
#ifndef SPRY_GRAMMAR_GRAMMAR_CACHE_H
#define SPRY_GRAMMAR_GRAMMAR_CACHE_H

#include "grammar/grammar.h"

typedef struct spry_grammar_cache spry_grammar_cache;

enum {
    SPRY_GRAMMAR_CACHE_ENTRIES = 32,
    SPRY_GRAMMAR_CACHE_SOURCE_MAX = 1 << 20, /* longer sources are compiled on every request */
};

spry_status spry_grammar_cache_create(spry_grammar_cache **out, spry_error *error);
void spry_grammar_cache_destroy(spry_grammar_cache *cache); /* NULL is allowed */

/* Gets the grammar of `source`, compiled if it is not cached; the caller unreferences it. A new grammar replaces the
 * least recently used one. */
spry_status spry_grammar_cache_get(spry_grammar_cache *cache, spry_grammar **out, spry_grammar_kind kind,
                                   spry_json_style style, spry_view source, spry_error *error);

#endif
