/* A sequence's table: which pages hold its tokens, in order. Sharing pages between tables is how a prefix is reused: no
 * bytes move until somebody writes, then only the page written to is copied. */
#ifndef SPRY_KV_KV_TABLE_H
#define SPRY_KV_KV_TABLE_H

#include "kv/kv_pool.h"

typedef struct spry_kv_table {
    spry_kv_entry *entries; /* ascending, without gaps */
    size_t n_entries, capacity;
    size_t n_tokens, max_tokens;
} spry_kv_table;

spry_status spry_kv_table_init(spry_kv_table *table, size_t max_tokens, spry_error *error);
void spry_kv_table_deinit(spry_kv_table *table, spry_kv_pool *pool);

/* Room for `count` more tokens that nobody else can see. When pages run out nothing changes. */
spry_status spry_kv_table_extend(spry_kv_table *table, spry_kv_pool *pool, size_t count, spry_error *error);

/* Keeps the first `n_tokens`. */
void spry_kv_table_truncate(spry_kv_table *table, spry_kv_pool *pool, size_t n_tokens);

/* Makes an empty table hold the first `n_tokens` of another; copies no keys or values. */
void spry_kv_table_share(spry_kv_table *table, const spry_kv_table *from, spry_kv_pool *pool, size_t n_tokens);

/* The entry that holds a position below n_tokens. */
const spry_kv_entry *spry_kv_table_find(const spry_kv_table *table, size_t position);

#endif
