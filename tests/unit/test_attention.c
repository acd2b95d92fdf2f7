/* Attention of every table over a paged sequence against the textbook formula over whole matrices, and the promise that
 * a row's bits depend on its sequence alone: not on the chunk it came in, nor on pages it does not see. And the layout
 * of keys in a page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kv_layout.h"

enum { MAX_TOKENS = 150, MAX_ENTRIES = 8, MAX_WIDTH = 4 * 2 * 96 };

/* A sequence whose keys and values lie in shuffled pages, as they do in an engine. */
typedef struct paged_sequence {
    const spry_ops *ops; /* under test */
    size_t n_tokens, n_kv_heads;
    unsigned char *pages;
    size_t pages_size;
    spry_kv_entry entries[MAX_ENTRIES];
    float *query, *out; /* [n_tokens, row_stride] */
    double *keys;       /* [n_kv_heads, n_tokens, head_dim], what the pages hold */
    double *values;
    spry_attend whole; /* all rows at once */
} paged_sequence;

typedef struct sequence_shape {
    const char *name;
    spry_dtype type;
    size_t n_tokens, n_kv_heads, group, head_dim;
    uint32_t window;
    float softcap;
} sequence_shape;

static const sequence_shape shapes[] = {
    {"plain", SPRY_F32, 97, 2, 2, 64, 0, 0},
    {"one token", SPRY_F32, 1, 1, 1, 16, 0, 0},
    {"whole pages", SPRY_F32, 96, 1, 3, 80, 0, 0},
    {"window of one", SPRY_F32, 70, 1, 2, 32, 1, 0},
    {"window within a page", SPRY_F16, 130, 2, 3, 64, 7, 0},
    {"window of a page", SPRY_F16, 149, 1, 4, 96, 32, 0},
    {"window over pages", SPRY_Q8_0, 150, 2, 2, 64, 75, 0},
    {"softcap", SPRY_F16, 100, 2, 4, 32, 0, 3},
    {"q8_0", SPRY_Q8_0, 65, 2, 4, 96, 0, 0},
    {"all of it", SPRY_Q8_0, 128, 2, 4, 32, 40, 2},
};

static uint32_t random_state;

static uint32_t random_below(uint32_t bound)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % bound;
}

static float uniform(void) /* [-1, 1) */
{
    return (float)random_below(1 << 24) * 0x1p-23f - 1;
}

static const spry_ops *ref_ops(void)
{
    const spry_ops *ops = NULL;
    assert_int_equal(spry_ops_get(&ops, "ref", NULL), SPRY_OK);
    return ops;
}

/* Table `index` of this machine; NULL past the last. */
static const spry_ops *table(size_t index)
{
    const spry_ops *ops = NULL;
    const char *names = spry_ops_names();
    for (; index && *names; index--) {
        names += strcspn(names, ",");
        names += strspn(names, ", ");
    }
    char name[16] = {0};
    size_t length = strcspn(names, ",");
    assert_true(length < sizeof name);
    memcpy(name, names, length);
    if (length)
        assert_int_equal(spry_ops_get(&ops, name, NULL), SPRY_OK);
    return ops;
}

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    assert_non_null(memory);
    memset(memory, 0xff, bytes); /* NaN wherever nothing is written */
    return memory;
}

/* ---- building --------------------------------------------------------------------------------------------------- */

/* Pages of the table, shuffled among a few more than are needed. */
static size_t shuffle_pages(paged_sequence *s)
{
    size_t n_entries = (s->n_tokens + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS, n_pages = n_entries + 3;
    uint32_t order[MAX_ENTRIES + 3];
    for (uint32_t i = 0; i < n_pages; i++)
        order[i] = i;
    for (uint32_t i = (uint32_t)n_pages - 1; i > 0; i--) {
        uint32_t other = random_below(i + 1), page = order[i];
        order[i] = order[other];
        order[other] = page;
    }
    for (size_t e = 0; e < n_entries; e++) {
        size_t start = e * SPRY_PAGE_TOKENS, left = s->n_tokens - start;
        s->entries[e] = (spry_kv_entry){order[e], (uint32_t)start,
                                        (uint32_t)(left < SPRY_PAGE_TOKENS ? left : SPRY_PAGE_TOKENS), 0};
    }
    s->whole.n_entries = n_entries;
    return n_pages;
}

/* A random key or value, its bytes in the type, and what they are worth. */
static void make_vector(float *floats, void *bytes, double *noted, spry_dtype type, size_t head_dim)
{
    float decoded[SPRY_ATTEND_HEAD_DIM_MAX];
    for (size_t d = 0; d < head_dim; d++)
        floats[d] = 2 * uniform();
    ref_ops()->encode[type](bytes, floats, head_dim);
    ref_ops()->decode[type](decoded, bytes, head_dim);
    for (size_t d = 0; d < head_dim; d++)
        noted[d] = (double)decoded[d];
}

static void fill_pages(paged_sequence *s)
{
    const spry_attend *a = &s->whole;
    float floats[SPRY_ATTEND_HEAD_DIM_MAX];
    unsigned char bytes[sizeof floats];
    for (size_t head = 0; head < s->n_kv_heads; head++)
        for (size_t token = 0; token < s->n_tokens; token++) {
            unsigned char *at =
                s->pages + s->entries[token / SPRY_PAGE_TOKENS].page * a->page_bytes + head * a->head_bytes;
            size_t noted = (head * s->n_tokens + token) * a->head_dim, slot = token % SPRY_PAGE_TOKENS;
            make_vector(floats, bytes, s->keys + noted, a->type, a->head_dim);
            spry_kv_store_key(s->ops, a->type, at + a->key_offset, slot, floats, a->head_dim);
            make_vector(floats, bytes, s->values + noted, a->type, a->head_dim);
            memcpy(at + a->value_offset + slot * a->token_bytes, bytes, a->token_bytes);
        }
}

static void create_sequence(paged_sequence *s, const spry_ops *ops, const sequence_shape *shape)
{
    random_state = (uint32_t)(shape - shapes);
    *s = (paged_sequence){.ops = ops, .n_tokens = shape->n_tokens, .n_kv_heads = shape->n_kv_heads};
    size_t n_pages = shuffle_pages(s), width = shape->n_kv_heads * shape->group * shape->head_dim;
    assert_true(width <= MAX_WIDTH && shape->n_tokens <= MAX_TOKENS);
    spry_attend *a = &s->whole;
    assert_true(spry_dtype_size(&a->token_bytes, shape->type, shape->head_dim));
    a->head_bytes = a->token_bytes * SPRY_PAGE_TOKENS;
    a->value_offset = shape->n_kv_heads * a->head_bytes;
    a->page_bytes = 2 * a->value_offset;
    s->pages_size = n_pages * a->page_bytes;
    s->pages = allocate(s->pages_size);
    s->query = allocate(s->n_tokens * width * sizeof(float));
    s->out = allocate(s->n_tokens * width * sizeof(float));
    s->keys = allocate(s->n_tokens * s->n_kv_heads * shape->head_dim * sizeof(double));
    s->values = allocate(s->n_tokens * s->n_kv_heads * shape->head_dim * sizeof(double));
    for (size_t i = 0; i < s->n_tokens * width; i++)
        s->query[i] = 2 * uniform();
    a->out = s->out;
    a->query = s->query;
    a->row_stride = width;
    a->n_rows = s->n_tokens;
    a->window = shape->window;
    a->head_dim = shape->head_dim;
    a->group = shape->group;
    a->scale = 1 / sqrtf((float)shape->head_dim);
    a->softcap = shape->softcap;
    a->type = shape->type;
    a->pages = s->pages;
    a->entries = s->entries;
    fill_pages(s);
}

static void destroy_sequence(paged_sequence *s)
{
    free(s->pages);
    free(s->query);
    free(s->out);
    free(s->keys);
    free(s->values);
}

static void attend_all_heads(const paged_sequence *s, const spry_attend *a)
{
    for (size_t head = 0; head < s->n_kv_heads; head++)
        s->ops->attend(a, head, head + 1);
}

static size_t out_bytes(const paged_sequence *s)
{
    return s->n_tokens * s->whole.row_stride * sizeof(float);
}

/* ---- against the formula ---------------------------------------------------------------------------------------- */

/* Half a unit of the block that a coordinate of an encoded query is in; 0 when queries are not encoded. */
static double encoding_error(const paged_sequence *s, const float *query, size_t d)
{
    double largest = 0;
    if (!s->ops->attend_bytes || s->whole.type != SPRY_Q8_0)
        return 0;
    for (size_t i = d - d % SPRY_ACT_BLOCK, end = i + SPRY_ACT_BLOCK; i < end; i++)
        largest = fmax(largest, fabs((double)query[i]));
    return largest / 127 * (0.5 + 0x1p-16);
}

/* The error of a number that is rounded to bfloat16, of its size; 0 when numbers are not rounded. */
static double half_rounding(const paged_sequence *s)
{
    return s->ops->attend_halves && s->whole.type == SPRY_F16 ? 0x1p-8 : 0;
}

/* Row `token` of softmax(Q K^T + mask); returns the largest error a float score may have. */
static double attention_row(double weights[MAX_TOKENS], const paged_sequence *s, size_t kv_head, const float *query,
                            size_t token)
{
    const spry_attend *a = &s->whole;
    double max = -INFINITY, sum = 0, slack = 0;
    for (size_t key = 0; key < s->n_tokens; key++) {
        bool masked = key > token || (a->window != 0 && key + a->window <= token);
        double dot = 0, size = 0, encoded = 0;
        for (size_t d = 0; d < a->head_dim; d++) {
            double value = s->keys[(kv_head * s->n_tokens + key) * a->head_dim + d], term = (double)query[d] * value;
            dot += term;
            size += fabs(term);
            encoded += fabs(value) * encoding_error(s, query, d) + fabs(term) * expm1(2 * half_rounding(s));
        }
        dot *= (double)a->scale;
        if (a->softcap != 0)
            dot = (double)a->softcap * tanh(dot / (double)a->softcap);
        weights[key] = masked ? -INFINITY : dot;
        max = fmax(max, weights[key]);
        slack = fmax(slack, ((double)(a->head_dim + 16) * 0x1p-24 * size + encoded) * (double)a->scale);
    }
    for (size_t key = 0; key < s->n_tokens; key++)
        sum += weights[key] = exp(weights[key] - max);
    for (size_t key = 0; key < s->n_tokens; key++)
        weights[key] /= sum;
    return slack;
}

/* Half a unit of the integers of 14 bits that a page's weights times the scales of a block of values become, for every
 * token of the page; 0 when they do not. */
static double weight_error(const paged_sequence *s, const double *weights, size_t kv_head, size_t d)
{
    double error = 0;
    if (!s->ops->attend_bytes || s->whole.type != SPRY_Q8_0)
        return 0;
    for (size_t page = 0; page < s->n_tokens; page += SPRY_PAGE_TOKENS) {
        double largest = 0;
        for (size_t key = page; key < s->n_tokens && key < page + SPRY_PAGE_TOKENS; key++)
            for (size_t i = d - d % SPRY_ACT_BLOCK, end = i + SPRY_ACT_BLOCK; i < end; i++)
                largest = fmax(largest,
                               weights[key] * fabs(s->values[(kv_head * s->n_tokens + key) * s->whole.head_dim + i]));
        error += SPRY_PAGE_TOKENS * largest * 0x1p-14;
    }
    return error;
}

static void compare_head(const paged_sequence *s, const char *name, size_t token, size_t head)
{
    const spry_attend *a = &s->whole;
    size_t kv_head = head / a->group, offset = token * a->row_stride + head * a->head_dim;
    double weights[MAX_TOKENS], slack = attention_row(weights, s, kv_head, s->query + offset, token);
    double relative = expm1(2 * slack + 3 * half_rounding(s)) + (double)(s->n_tokens + 16) * 0x1p-24;
    for (size_t d = 0; d < a->head_dim; d++) {
        double expected = 0, size = 0;
        for (size_t key = 0; key < s->n_tokens; key++) {
            double value = s->values[(kv_head * s->n_tokens + key) * a->head_dim + d];
            expected += weights[key] * value;
            size += weights[key] * fabs(value);
        }
        double got = (double)s->out[offset + d];
        if (!(fabs(got - expected) <= relative * size + weight_error(s, weights, kv_head, d)))
            fail_msg("%s, %s: token %zu head %zu value %zu is %g, expected %g", s->ops->name, name, token, head, d, got,
                     expected);
    }
}

static void compare_with_formula(const spry_ops *ops, const sequence_shape *shape)
{
    paged_sequence s;
    create_sequence(&s, ops, shape);
    attend_all_heads(&s, &s.whole);
    for (size_t token = 0; token < s.n_tokens; token++)
        for (size_t head = 0; head < s.n_kv_heads * s.whole.group; head++)
            compare_head(&s, shape->name, token, head);
    destroy_sequence(&s);
}

static void attention_is_what_the_formula_says(void **state)
{
    (void)state;
    for (size_t t = 0; table(t); t++)
        for (size_t i = 0; i < SPRY_COUNT(shapes); i++)
            compare_with_formula(table(t), &shapes[i]);
}

/* ---- the same bits ---------------------------------------------------------------------------------------------- */

/* Runs rows [first, first + n) with the table as it was when the last of them had just been stored. */
static void attend_chunk(const paged_sequence *s, float *out, size_t first, size_t n)
{
    spry_kv_entry entries[MAX_ENTRIES];
    size_t end = first + n, n_entries = (end + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
    memcpy(entries, s->entries, sizeof entries);
    entries[n_entries - 1].count = (uint32_t)(end - entries[n_entries - 1].start);
    spry_attend a = s->whole;
    a.entries = entries;
    a.n_entries = n_entries;
    a.first_position = (uint32_t)first;
    a.n_rows = n;
    a.query += first * a.row_stride;
    a.out = out + first * a.row_stride;
    attend_all_heads(s, &a);
}

static void compare_chunks(const spry_ops *ops, const sequence_shape *shape)
{
    const size_t chunks[] = {1, 2, 7, 31, 32, 33, 64, 100};
    paged_sequence s;
    create_sequence(&s, ops, shape);
    attend_all_heads(&s, &s.whole);
    for (size_t k = 0; k < SPRY_COUNT(chunks); k++) {
        float *out = allocate(out_bytes(&s));
        for (size_t first = 0; first < s.n_tokens; first += chunks[k]) {
            size_t left = s.n_tokens - first;
            attend_chunk(&s, out, first, left < chunks[k] ? left : chunks[k]);
        }
        assert_memory_equal(out, s.out, out_bytes(&s));
        free(out);
    }
    destroy_sequence(&s);
}

static void chunks_do_not_change_a_bit(void **state)
{
    (void)state;
    for (size_t t = 0; table(t); t++)
        for (size_t i = 0; i < SPRY_COUNT(shapes); i++)
            compare_chunks(table(t), &shapes[i]);
}

/* With a window the table may lose its oldest pages, and with them their memory may hold anything. Returns how many
 * were dropped. */
static size_t compare_without_old_pages(const spry_ops *ops, const sequence_shape *shape)
{
    paged_sequence s;
    create_sequence(&s, ops, shape);
    attend_all_heads(&s, &s.whole);
    size_t last = s.n_tokens - 1, width = s.whole.row_stride, n_dropped = 0;
    spry_attend a = s.whole;
    float *out = allocate(width * sizeof *out);
    a.first_position = (uint32_t)last;
    a.n_rows = 1;
    a.query += last * width;
    a.out = out;
    while (a.entries[0].start + a.entries[0].count + a.window <= last + 1) {
        memset(s.pages + a.entries[0].page * a.page_bytes, 0xff, a.page_bytes);
        attend_all_heads(&s, &a); /* with a page that is never looked at */
        assert_memory_equal(out, s.out + last * width, width * sizeof *out);
        a.entries++;
        a.n_entries--;
        n_dropped++;
    }
    attend_all_heads(&s, &a); /* without it */
    assert_memory_equal(out, s.out + last * width, width * sizeof *out);
    free(out);
    destroy_sequence(&s);
    return n_dropped;
}

static void pages_out_of_sight_do_not_change_a_bit(void **state)
{
    (void)state;
    for (size_t t = 0; table(t); t++) {
        size_t n_dropped = 0;
        for (size_t i = 0; i < SPRY_COUNT(shapes); i++)
            if (shapes[i].window)
                n_dropped += compare_without_old_pages(table(t), &shapes[i]);
        assert_true(n_dropped > 5);
    }
}

/* ---- keys in a page --------------------------------------------------------------------------------------------- */

/* Where the bytes of coordinate d of a token's key lie, by the words of kv_layout.h. */
static bool belongs_to_key(spry_dtype type, size_t byte, size_t token, size_t head_dim)
{
    size_t size = type == SPRY_F32 ? 4 : type == SPRY_F16 ? 2 : 1, values = head_dim * SPRY_PAGE_TOKENS * size;
    if (byte < values)
        return byte / size % SPRY_PAGE_TOKENS == token;
    return (byte - values) / sizeof(uint16_t) % SPRY_PAGE_TOKENS == token;
}

static void compare_stored_key(const spry_ops *ops, spry_dtype type, size_t head_dim, size_t token)
{
    size_t token_bytes;
    assert_true(spry_dtype_size(&token_bytes, type, head_dim));
    size_t head_bytes = token_bytes * SPRY_PAGE_TOKENS, n_touched = 0;
    unsigned char *head = allocate(head_bytes), bytes[SPRY_ATTEND_HEAD_DIM_MAX * sizeof(float)];
    float key[SPRY_ATTEND_HEAD_DIM_MAX], back[SPRY_ATTEND_HEAD_DIM_MAX];
    double noted[SPRY_ATTEND_HEAD_DIM_MAX];
    make_vector(key, bytes, noted, type, head_dim);
    spry_kv_store_key(ops, type, head, token, key, head_dim);
    spry_kv_load_key(type, back, head, token, head_dim);
    for (size_t d = 0; d < head_dim; d++)
        assert_true((double)back[d] == noted[d]);
    for (size_t i = 0; i < head_bytes; i++) {
        assert_true(head[i] == 0xff || belongs_to_key(type, i, token, head_dim));
        n_touched += belongs_to_key(type, i, token, head_dim);
    }
    assert_int_equal(n_touched, token_bytes);
    free(head);
}

static void a_key_is_read_back_and_touches_no_other(void **state)
{
    (void)state;
    const spry_dtype kv_types[] = {SPRY_F32, SPRY_F16, SPRY_Q8_0};
    const size_t head_dims[] = {32, 96, SPRY_ATTEND_HEAD_DIM_MAX};
    random_state = 1;
    for (size_t t = 0; table(t); t++)
        for (size_t i = 0; i < SPRY_COUNT(kv_types); i++)
            for (size_t d = 0; d < SPRY_COUNT(head_dims); d++)
                for (size_t token = 0; token < SPRY_PAGE_TOKENS; token += 31)
                    compare_stored_key(table(t), kv_types[i], head_dims[d], token);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_what_the_formula_says),
        cmocka_unit_test(chunks_do_not_change_a_bit),
        cmocka_unit_test(pages_out_of_sight_do_not_change_a_bit),
        cmocka_unit_test(a_key_is_read_back_and_touches_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
