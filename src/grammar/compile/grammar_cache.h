/* Compiled grammars by their source: requests often bring the same schema again. Safe for several threads; compiling
 * happens under the lock. */
#ifndef SPRY_GRAMMAR_GRAMMAR_CACHE_H
#define SPRY_GRAMMAR_GRAMMAR_CACHE_H

#include "grammar/grammar.h"

typedef struct spry_grammar_cache spry_grammar_cache;

enum {
    SPRY_GRAMMAR_CACHE_ENTRIES = 32,
    SPRY_GRAMMAR_CACHE_SOURCE_MAX = 1 << 20, /* longer sources are compiled each time */
};

spry_status spry_grammar_cache_create(spry_grammar_cache **out, spry_error *error);
void spry_grammar_cache_destroy(spry_grammar_cache *cache); /* NULL is fine */

/* The grammar of a source, to be unreferenced by the caller. The one used longest ago makes room for a new one. */
spry_status spry_grammar_cache_get(spry_grammar_cache *cache, spry_grammar **out, spry_grammar_kind kind,
                                   spry_view source, spry_error *error);

#endif
