/* A sequence's table: the pages with its tokens, in order. Reuse is an edit of a table: no bytes move until a write,
 * and then only the written page is copied.
 *
 * An entry may be *closed*: nothing is added after its last token, and the following text begins a new page. Pages of
 * spans, pages before a span, and pages used at other positions than computed are closed. */
#ifndef SPRY_KV_KV_TABLE_H
#define SPRY_KV_KV_TABLE_H

#include "kv/kv_key.h"
#include "kv/kv_pool.h"

/* Further state of an entry. */
typedef struct spry_kv_mark {
    spry_kv_key key;    /* key of everything up to here, when `cached` */
    bool cached;        /* the page is in the cache */
    bool closed;        /* nothing is added to it */
    bool foreign;       /* computed after other tokens than those before it now: a span's page, or moved by sliding */
    uint32_t next_turn; /* next rotation number while the table slides */
} spry_kv_mark;

typedef struct spry_kv_table {
    spry_kv_entry *entries; /* ascending, without gaps */
    spry_kv_mark *marks;    /* [n_entries] */
    size_t n_entries, capacity;
    size_t n_tokens, max_tokens;
    uint32_t state;    /* 1 + its recurrent state (kv_states.h); 0: none */
    size_t state_from; /* the position that the state is kept for: tokens from there on are kept as inputs */
} spry_kv_table;

spry_status spry_kv_table_init(spry_kv_table *table, size_t max_tokens, spry_error *error);
void spry_kv_table_deinit(spry_kv_table *table, spry_kv_pool *pool);

/* Adds room for `count` tokens in pages that are not shared. When pages run out nothing changes. */
spry_status spry_kv_table_extend(spry_kv_table *table, spry_kv_pool *pool, size_t count, spry_error *error);

/* The number of free pages that this needs. */
size_t spry_kv_table_pages_needed(const spry_kv_table *table, const spry_kv_pool *pool, size_t count);

/* Closes the last page. */
void spry_kv_table_close(spry_kv_table *table);

/* Appends the first `count` tokens of a page and references it. `position`: the position of its first token when it was
 * computed. */
spry_status spry_kv_table_append(spry_kv_table *table, spry_kv_pool *pool, uint32_t page, size_t count, size_t position,
                                 const spry_kv_mark *mark, spry_error *error);

/* Keeps the first `n_tokens`. A recurrent state of more tokens is released with them. */
void spry_kv_table_truncate(spry_kv_table *table, spry_kv_pool *pool, size_t n_tokens);

/* Removes `drop` entries after the first `keep` (some must remain after them) and moves the rest up: in the table by
 * *dropped tokens, in rope's space by `shift` more. When there are too many different offsets nothing changes. */
spry_status spry_kv_table_slide(spry_kv_table *table, spry_kv_pool *pool, size_t keep, size_t drop, int32_t shift,
                                size_t *dropped, spry_error *error);

/* Tokens that can be taken back once they are computed: with a recurrent state, those of one page. */
size_t spry_kv_table_returns(const spry_kv_table *table);

/* The entry that holds a position below n_tokens. */
const spry_kv_entry *spry_kv_table_find(const spry_kv_table *table, size_t position);

#endif
