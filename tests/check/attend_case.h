/* One call of attention to be checked: a table of shuffled pages, queries, and what keys and values are worth in double
 * precision. */
#ifndef SPRY_TESTS_ATTEND_CASE_H
#define SPRY_TESTS_ATTEND_CASE_H

#include "check/check.h"

enum {
    ATTEND_MAX_ENTRIES = 6,
    ATTEND_MAX_KEYS = ATTEND_MAX_ENTRIES * SPRY_PAGE_TOKENS,
    ATTEND_TURNS = 2,
    ATTEND_MAX_HEADS = 64
};

typedef struct attend_case {
    size_t n_kv_heads, n_keys, n_pages;
    spry_kv_entry entries[ATTEND_MAX_ENTRIES];
    spry_turn turns[ATTEND_MAX_ENTRIES];
    float cosine[ATTEND_TURNS][SPRY_ATTEND_HEAD_DIM_MAX / 2], sine[ATTEND_TURNS][SPRY_ATTEND_HEAD_DIM_MAX / 2];
    guarded pages, query, out;
    double *keys, *values; /* [n_kv_heads, n_keys, head_dim] */
    spry_attend a;
} attend_case;

/* A random case. Slots of a page that no token fills hold NaNs, and so do pages that are not in the table. */
void attend_case_build(check *c, attend_case *k, spry_dtype type, size_t head_dim, size_t group);
void attend_case_destroy(check *c, attend_case *k);

/* Fills the slots of tokens at positions from `position` on with NaNs, in a copy of the pages. */
void attend_case_spoil(unsigned char *pages, const attend_case *k, size_t position);

/* Coordinate d of a query as page `e` of the table meets it; `size` is that of the terms it is a sum of. */
double attend_case_turned(double *size, const attend_case *k, size_t e, const float *query, size_t d);

/* The value of key `i` (counted along the table), or of its value, at coordinate d. */
static inline size_t attend_case_index(const attend_case *k, size_t kv_head, size_t i, size_t d)
{
    return (kv_head * k->n_keys + i) * k->a.head_dim + d;
}

#endif
