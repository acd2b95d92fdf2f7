/* A sequence's table: which pages hold its tokens, in order. Reuse is an edit of a table: no bytes move until somebody
 * writes, then only the page written to is copied.
 *
 * An entry may be *closed*: nothing is ever added behind its last token, and what follows begins a page of its own. So
 * are pages of spans, pages before a span, and pages used away from where they were computed. */
#ifndef SPRY_KV_KV_TABLE_H
#define SPRY_KV_KV_TABLE_H

#include "kv/kv_key.h"
#include "kv/kv_pool.h"

/* What a table knows of an entry besides. */
typedef struct spry_kv_mark {
    spry_kv_key key;    /* of everything up to here, when `cached` */
    bool cached;        /* the cache knows the page */
    bool closed;        /* nothing is added to it */
    bool foreign;       /* computed with other tokens before it than stand there now: a span's, or moved by sliding */
    uint32_t next_turn; /* while the table slides */
} spry_kv_mark;

typedef struct spry_kv_table {
    spry_kv_entry *entries; /* ascending, without gaps */
    spry_kv_mark *marks;    /* [n_entries] */
    size_t n_entries, capacity;
    size_t n_tokens, max_tokens;
} spry_kv_table;

spry_status spry_kv_table_init(spry_kv_table *table, size_t max_tokens, spry_error *error);
void spry_kv_table_deinit(spry_kv_table *table, spry_kv_pool *pool);

/* Room for `count` more tokens that nobody else can see. When pages run out nothing changes. */
spry_status spry_kv_table_extend(spry_kv_table *table, spry_kv_pool *pool, size_t count, spry_error *error);

/* How many free pages that takes. */
size_t spry_kv_table_pages_needed(const spry_kv_table *table, const spry_kv_pool *pool, size_t count);

/* Nothing is added to the last page any more. */
void spry_kv_table_close(spry_kv_table *table);

/* Puts the first `count` tokens of a page behind what the table holds, with a reference of its own. `position`: where
 * its first token stood when it was computed. */
spry_status spry_kv_table_append(spry_kv_table *table, spry_kv_pool *pool, uint32_t page, size_t count, size_t position,
                                 const spry_kv_mark *mark, spry_error *error);

/* Keeps the first `n_tokens`. */
void spry_kv_table_truncate(spry_kv_table *table, spry_kv_pool *pool, size_t n_tokens);

/* Takes out `drop` entries after the first `keep`, some of which must remain behind them; the rest moves up. When too
 * many distances differ nothing changes. Returns how many tokens went in *dropped. */
spry_status spry_kv_table_slide(spry_kv_table *table, spry_kv_pool *pool, size_t keep, size_t drop, size_t *dropped,
                                spry_error *error);

/* The entry that holds a position below n_tokens. */
const spry_kv_entry *spry_kv_table_find(const spry_kv_table *table, size_t position);

#endif
