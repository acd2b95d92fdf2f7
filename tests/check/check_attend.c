/* Attention over shuffled pages, against a softmax over the whole row of scores. */
#include <math.h>
#include <string.h>

#include "check/check.h"

enum { SHAPES = 40, MAX_ENTRIES = 6, MAX_KEYS = MAX_ENTRIES * SPRY_PAGE_TOKENS };

/* As in check_matmul.c: what bounds the roundings of a score. */
enum { LEAST_LANES = 8, OTHER_ROUNDINGS = 16 };

typedef struct attend_case {
    size_t n_kv_heads, n_keys;
    spry_kv_entry entries[MAX_ENTRIES];
    guarded pages, query, out;
    spry_attend a;
} attend_case;

static size_t bytes_of(spry_dtype type, size_t n)
{
    return n / spry_dtype_block(type) * spry_dtype_bytes(type);
}

static void choose_shape(check *c, attend_case *k, spry_dtype type)
{
    static const size_t head_dims[] = {16, 32, 64, 80, 128, 256, SPRY_ATTEND_HEAD_DIM_MAX};
    spry_attend *a = &k->a;
    a->type = type;
    do
        a->head_dim = head_dims[check_between(c, 0, SPRY_COUNT(head_dims) - 1)];
    while (a->head_dim % spry_dtype_block(type));
    a->group = check_between(c, 1, 8);
    a->n_entries = check_between(c, 1, MAX_ENTRIES);
    a->window = check_between(c, 0, 1) ? (uint32_t)check_between(c, 1, 70) : 0;
    a->softcap = check_between(c, 0, 2) ? 0 : 5;
    a->scale = 1 / sqrtf((float)a->head_dim);
    k->n_kv_heads = check_between(c, 1, 3);
}

/* Pages in any order, each used once; most are full. The sequence may have lost its first tokens. */
static void choose_table(check *c, attend_case *k, size_t n_pages)
{
    size_t first = check_between(c, 0, n_pages - 1), start = check_between(c, 0, 1) ? check_between(c, 1, 1000) : 0;
    k->n_keys = 0;
    for (size_t e = 0; e < k->a.n_entries; e++) {
        size_t count = check_between(c, 0, 2) ? SPRY_PAGE_TOKENS : check_between(c, 1, SPRY_PAGE_TOKENS);
        /* 5 and a number of pages that is no multiple of it share no factor. */
        size_t page = (first + 5 * e) % n_pages;
        k->entries[e] = (spry_kv_entry){(uint32_t)page, (uint32_t)(start + k->n_keys), (uint32_t)count};
        k->n_keys += count;
    }
    k->a.entries = k->entries;
    size_t most = k->n_keys < 9 ? k->n_keys : 9;
    k->a.n_rows = check_between(c, 1, most);
    size_t behind = check_between(c, 0, 1) ? 0 : check_between(c, 0, k->n_keys - k->a.n_rows);
    k->a.first_position = (uint32_t)(start + k->n_keys - k->a.n_rows - behind);
}

/* Keys and values of a second layer stand before ours; what no token fills stays poison. */
static void build_pages(check *c, attend_case *k, size_t n_pages)
{
    spry_attend *a = &k->a;
    a->token_bytes = bytes_of(a->type, a->head_dim);
    a->head_bytes = a->token_bytes * SPRY_PAGE_TOKENS;
    size_t layer_bytes = k->n_kv_heads * a->head_bytes;
    a->key_offset = 2 * layer_bytes;
    a->value_offset = 3 * layer_bytes;
    a->page_bytes = 4 * layer_bytes;
    k->pages = guarded_create(n_pages * a->page_bytes);
    a->pages = k->pages.data;
    for (size_t e = 0; e < a->n_entries; e++)
        for (size_t head = 0; head < k->n_kv_heads; head++)
            for (size_t t = 0; t < k->entries[e].count; t++) {
                float floats[SPRY_ATTEND_HEAD_DIM_MAX];
                unsigned char *at =
                    k->pages.data + k->entries[e].page * a->page_bytes + head * a->head_bytes + t * a->token_bytes;
                check_fill(c, floats, a->head_dim, 3);
                c->ref->encode[a->type](at + a->key_offset, floats, a->head_dim);
                check_fill(c, floats, a->head_dim, 1);
                c->ref->encode[a->type](at + a->value_offset, floats, a->head_dim);
            }
    guarded_freeze(&k->pages);
}

static void build_rows(check *c, attend_case *k)
{
    spry_attend *a = &k->a;
    size_t heads_width = k->n_kv_heads * a->group * a->head_dim;
    a->row_stride = heads_width + check_between(c, 0, 7);
    size_t n = (a->n_rows - 1) * a->row_stride + heads_width;
    k->query = guarded_floats(n);
    for (size_t row = 0; row < a->n_rows; row++)
        check_fill(c, guarded_f(&k->query) + row * a->row_stride, heads_width, 3);
    guarded_freeze(&k->query);
    k->out = guarded_floats(n);
    a->query = guarded_f(&k->query);
    a->out = guarded_f(&k->out);
}

/* One query's scores, in the order of the table; the tolerance of a score goes to *slack. A key it does not see gets
 * -infinity. */
static void naive_scores(double *scores, double *slack, const attend_case *k, size_t kv_head, size_t row,
                         const float *query)
{
    const spry_attend *a = &k->a;
    size_t position = a->first_position + row, n = 0;
    double roundings = (double)(a->head_dim / LEAST_LANES + OTHER_ROUNDINGS);
    *slack = 0;
    for (size_t e = 0; e < a->n_entries; e++)
        for (size_t t = 0; t < k->entries[e].count; t++, n++) {
            size_t at = k->entries[e].start + t;
            scores[n] = -INFINITY;
            if (at > position || (a->window && position - at >= a->window))
                continue;
            const unsigned char *key = a->pages + k->entries[e].page * a->page_bytes + a->key_offset +
                                       kv_head * a->head_bytes + t * a->token_bytes;
            double sum = 0, size = 0;
            for (size_t d = 0; d < a->head_dim; d++) {
                double magnitude, value = naive_value(&magnitude, a->type, key, d);
                sum += value * (double)query[d];
                size += fabs(value * (double)query[d]);
            }
            sum *= (double)a->scale;
            scores[n] = a->softcap != 0 ? (double)a->softcap * tanh(sum / (double)a->softcap) : sum;
            *slack = fmax(*slack, roundings * CHECK_ROUNDING * size * (double)a->scale);
        }
}

/* Scores to weights that sum to 1. */
static void naive_softmax(double *scores, size_t n)
{
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        max = fmax(max, scores[i]);
    for (size_t i = 0; i < n; i++)
        sum += scores[i] = exp(scores[i] - max);
    for (size_t i = 0; i < n; i++)
        scores[i] /= sum;
}

/* One value of the output: the weighted sum, and of sizes for the tolerance. */
static double naive_gather(double *magnitude, const attend_case *k, size_t kv_head, const double *weights, size_t d)
{
    const spry_attend *a = &k->a;
    double sum = 0, size = 0;
    size_t n = 0;
    for (size_t e = 0; e < a->n_entries; e++)
        for (size_t t = 0; t < k->entries[e].count; t++, n++) {
            if (weights[n] == 0)
                continue;
            double terms, value = naive_value(&terms, a->type,
                                              a->pages + k->entries[e].page * a->page_bytes + a->value_offset +
                                                  kv_head * a->head_bytes + t * a->token_bytes,
                                              d);
            sum += weights[n] * value;
            size += weights[n] * fabs(value);
        }
    *magnitude = size;
    return sum;
}

static void compare_head(check *c, const attend_case *k, size_t kv_head, size_t row, size_t head, const float *ref_out)
{
    const spry_attend *a = &k->a;
    size_t offset = row * a->row_stride + head * a->head_dim;
    double scores[MAX_KEYS], slack;
    naive_scores(scores, &slack, k, kv_head, row, a->query + offset);
    naive_softmax(scores, k->n_keys);
    /* A score that is off by s multiplies its weight, and the sum it is divided by, by at most exp(s). Values are added
     * key after key. */
    double relative = 2 * slack + (double)(k->n_keys + OTHER_ROUNDINGS) * CHECK_ROUNDING;
    for (size_t d = 0; d < a->head_dim; d++) {
        double magnitude, expected = naive_gather(&magnitude, k, kv_head, scores, d);
        if (!check_is_ref(c))
            expected = (double)ref_out[offset + d];
        check_close(c, offset + d, (double)a->out[offset + d], expected, relative * magnitude);
    }
}

/* kv_head's heads of every row hold the right values; others are still poison. */
static void compare(check *c, const attend_case *k, size_t kv_head)
{
    guarded ref_out = guarded_create(k->out.size);
    if (!check_is_ref(c)) {
        spry_attend a = k->a;
        a.out = guarded_f(&ref_out);
        c->ref->attend(&a, kv_head);
    }
    for (size_t i = 0; i < k->out.size / sizeof(float); i++) {
        size_t row = i / k->a.row_stride, head = i % k->a.row_stride / k->a.head_dim;
        if (head / k->a.group != kv_head) {
            if (!check_is_poison(guarded_f(&k->out) + i, sizeof(float)))
                check_complain(c, "row %zu head %zu belongs to another key head and was written", row, head);
        } else if (i % k->a.row_stride % k->a.head_dim == 0)
            compare_head(c, k, kv_head, row, head, guarded_f(&ref_out));
    }
    guarded_destroy(c, &ref_out);
}

/* Each row by itself, over only the pages it can see, must give the same bits. */
static void compare_splits(check *c, const attend_case *k, size_t kv_head)
{
    guarded again = guarded_create(k->out.size);
    for (size_t row = 0; row < k->a.n_rows; row++) {
        spry_attend one = k->a;
        one.n_rows = 1;
        one.first_position += (uint32_t)row;
        one.query += row * one.row_stride;
        one.out = guarded_f(&again) + row * one.row_stride;
        uint32_t first = one.window && one.first_position >= one.window ? one.first_position + 1 - one.window : 0;
        while (one.n_entries && one.entries[one.n_entries - 1].start > one.first_position)
            one.n_entries--;
        for (; one.n_entries && one.entries[0].start + one.entries[0].count <= first; one.n_entries--)
            one.entries++;
        c->ops->attend(&one, kv_head);
    }
    check_same(c, "running each row by itself over the pages it sees", again.data, k->out.data, again.size);
    guarded_destroy(c, &again);
}

static void check_shape(check *c, spry_dtype type)
{
    static const size_t pages[] = {6, 7, 9};
    size_t n_pages = pages[check_between(c, 0, SPRY_COUNT(pages) - 1)];
    attend_case k = {.n_keys = 0};
    choose_shape(c, &k, type);
    choose_table(c, &k, n_pages);
    check_detail(c, "n_rows=%zu head_dim=%zu group=%zu keys=%zu entries=%zu position=%u window=%u softcap=%g",
                 k.a.n_rows, k.a.head_dim, k.a.group, k.n_keys, k.a.n_entries, k.a.first_position, k.a.window,
                 (double)k.a.softcap);
    build_pages(c, &k, n_pages);
    build_rows(c, &k);
    size_t kv_head = check_between(c, 0, k.n_kv_heads - 1);
    c->ops->attend(&k.a, kv_head);
    compare(c, &k, kv_head);
    compare_splits(c, &k, kv_head);
    guarded_destroy(c, &k.pages);
    guarded_destroy(c, &k.query);
    guarded_destroy(c, &k.out);
}

static const spry_dtype types[] = {SPRY_F32, SPRY_F16, SPRY_Q8_0};

void check_attend(check *c)
{
    for (size_t i = 0; i < SPRY_COUNT(types); i++) {
        if (!check_begin(c, "attend %s", spry_dtype_name(types[i])))
            continue;
        for (int shape = 0; shape < SHAPES; shape++)
            check_shape(c, types[i]);
        check_end(c);
    }
}

/* ---- speed ------------------------------------------------------------------------------------------------------ */

enum { BENCH_PAGES = 32, BENCH_HEAD_DIM = 128, BENCH_GROUP = 4 };

static void call_attend(const spry_ops *ops, const void *context)
{
    ops->attend(context, 0);
}

/* Rows at the end of a context of BENCH_PAGES full pages. */
static void bench_rows(check *c, spry_dtype type, size_t n_rows)
{
    spry_kv_entry entries[BENCH_PAGES];
    for (uint32_t e = 0; e < BENCH_PAGES; e++)
        entries[e] = (spry_kv_entry){e, e * SPRY_PAGE_TOKENS, SPRY_PAGE_TOKENS};
    size_t n_keys = BENCH_PAGES * SPRY_PAGE_TOKENS, width = BENCH_GROUP * BENCH_HEAD_DIM;
    size_t head_bytes = bytes_of(type, SPRY_PAGE_TOKENS * BENCH_HEAD_DIM);
    guarded query = guarded_floats(n_rows * width), out = guarded_floats(n_rows * width);
    guarded pages = guarded_create(BENCH_PAGES * 2 * head_bytes);
    check_fill(c, guarded_f(&query), n_rows * width, 1);
    check_fill_type(c, pages.data, type, n_keys * 2 * BENCH_HEAD_DIM);
    spry_attend a = {
        .out = guarded_f(&out),
        .query = guarded_f(&query),
        .row_stride = width,
        .n_rows = n_rows,
        .first_position = (uint32_t)(n_keys - n_rows),
        .head_dim = BENCH_HEAD_DIM,
        .group = BENCH_GROUP,
        .scale = 1 / sqrtf(BENCH_HEAD_DIM),
        .type = type,
        .pages = pages.data,
        .page_bytes = 2 * head_bytes,
        .value_offset = head_bytes,
        .head_bytes = head_bytes,
        .token_bytes = bytes_of(type, BENCH_HEAD_DIM),
        .entries = entries,
        .n_entries = BENCH_PAGES,
    };
    double products = 2.0 * (double)(n_rows * n_keys * width);
    check_bench(c, &(bench_work){call_attend, &a, (double)pages.size, products});
    guarded_destroy(c, &query);
    guarded_destroy(c, &out);
    guarded_destroy(c, &pages);
}

void bench_attend(check *c)
{
    static const size_t rows[] = {1, 32};
    for (size_t i = 0; i < SPRY_COUNT(types); i++)
        for (size_t r = 0; r < SPRY_COUNT(rows); r++)
            if (check_begin(c, "attend %s rows %zu", spry_dtype_name(types[i]), rows[r]))
                bench_rows(c, types[i], rows[r]);
}
