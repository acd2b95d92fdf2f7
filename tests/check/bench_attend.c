/* The speed of attention at the end of a context: one row, as in decoding, and many, as in prefill. */
#include <math.h>

#include "check/check.h"
#include "kernels/kv_layout.h"

enum { PAGES = 64, HEAD_DIM = 128, GROUP = 4, KV_HEADS = 8 }; /* 2048 tokens */

static void call_attend(const spry_ops *ops, const void *context)
{
    ops->attend(context, 0, KV_HEADS);
}

static void fill_page(check *c, unsigned char *page, spry_dtype type, size_t head_bytes)
{
    float key[HEAD_DIM];
    for (size_t head = 0; head < KV_HEADS; head++, page += head_bytes) {
        for (size_t token = 0; token < SPRY_PAGE_TOKENS; token++) {
            check_fill(c, key, HEAD_DIM, 1);
            spry_kv_store_key(c->ref, type, page, token, key, HEAD_DIM);
        }
        check_fill_type(c, page + KV_HEADS * head_bytes, type, SPRY_PAGE_TOKENS * HEAD_DIM);
    }
}

static void bench_rows(check *c, spry_dtype type, size_t n_rows)
{
    enum { WIDTH = KV_HEADS * GROUP * HEAD_DIM, KEYS = PAGES * SPRY_PAGE_TOKENS };
    size_t head_bytes = check_bytes(type, SPRY_PAGE_TOKENS * HEAD_DIM), page_bytes = 2 * KV_HEADS * head_bytes;
    guarded query = guarded_floats(n_rows * WIDTH), out = guarded_floats(n_rows * WIDTH);
    guarded pages = guarded_create(PAGES * page_bytes);
    spry_kv_entry entries[PAGES];
    check_fill(c, guarded_f(&query), n_rows * WIDTH, 1);
    for (uint32_t e = 0; e < PAGES; e++) {
        entries[e] = (spry_kv_entry){e, e * SPRY_PAGE_TOKENS, SPRY_PAGE_TOKENS, 0};
        fill_page(c, pages.data + e * page_bytes, type, head_bytes);
    }
    spry_attend a = {
        .out = guarded_f(&out),
        .query = guarded_f(&query),
        .row_stride = WIDTH,
        .n_rows = n_rows,
        .first_position = (uint32_t)(KEYS - n_rows),
        .head_dim = HEAD_DIM,
        .group = GROUP,
        .scale = 1 / sqrtf(HEAD_DIM),
        .type = type,
        .pages = pages.data,
        .page_bytes = page_bytes,
        .value_offset = KV_HEADS * head_bytes,
        .head_bytes = head_bytes,
        .token_bytes = check_bytes(type, HEAD_DIM),
        .entries = entries,
        .n_entries = PAGES,
    };
    double products = 2.0 * (double)(n_rows * KEYS * WIDTH);
    check_bench(c, &(bench_work){call_attend, &a, (double)pages.size, products});
    guarded_destroy(c, &query);
    guarded_destroy(c, &out);
    guarded_destroy(c, &pages);
}

void bench_attend(check *c)
{
    static const spry_dtype types[] = {SPRY_F32, SPRY_F16, SPRY_Q8_0, SPRY_Q4_0};
    static const size_t rows[] = {1, 32};
    for (size_t i = 0; i < SPRY_COUNT(types); i++)
        for (size_t r = 0; r < SPRY_COUNT(rows); r++)
            if (check_begin(c, "attend %s rows %zu", spry_dtype_name(types[i]), rows[r]))
                bench_rows(c, types[i], rows[r]);
}
