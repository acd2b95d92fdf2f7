/* Attention over shuffled pages: against a softmax over the whole row of scores in double precision; and the same bits
 * however rows are split, when chunks are joined later, and whatever slots and pages hold that a row does not see.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/kv_types.h"
#include "check/attend_case.h"

/* What one query sees, in the order of the table. */
typedef struct naive_row {
    double weight[ATTEND_MAX_KEYS]; /* 0: not seen */
    double relative;                /* the error a float weight may have, of its size */
} naive_row;

static bool sees(const spry_attend *a, size_t row, size_t key_position)
{
    size_t position = a->first_position + row;
    if (key_position > position)
        return key_position - position <= a->ahead;
    return !a->window || position - key_position < a->window;
}

/* Half a unit of each coordinate's block, when queries are encoded; and the roundings on the way there. */
static void encoding_errors(double *errors, const double *turned, const double *sizes, size_t head_dim)
{
    for (size_t block = 0; block < head_dim; block += SPRY_ACT_BLOCK) {
        double largest = 0;
        for (size_t d = block; d < block + SPRY_ACT_BLOCK; d++)
            largest = fmax(largest, fabs(turned[d]));
        for (size_t d = block; d < block + SPRY_ACT_BLOCK; d++)
            errors[d] = largest / 127 / 2 + CHECK_OTHER_ROUNDINGS * CHECK_ROUNDING * (largest + sizes[d]);
    }
}

/* The rotation of Q4_0 pages, straight from its definition; `sizes` are what their sums may be. */
static void rotate(double *x, double *sizes, size_t n)
{
    double rotated[SPRY_ATTEND_HEAD_DIM_MAX], large[SPRY_ATTEND_HEAD_DIM_MAX];
    size_t block = 1;
    while (n % (2 * block) == 0)
        block *= 2;
    for (size_t i = 0; i < n; i++) {
        rotated[i] = large[i] = 0;
        for (size_t j = 0; j < block; j++) {
            size_t from = i / block * block + j;
            rotated[i] += (__builtin_popcountll(i % block & j) % 2 ? -x[from] : x[from]) / sqrt((double)block);
            large[i] += sizes[from] / sqrt((double)block);
        }
    }
    memcpy(x, rotated, n * sizeof *x);
    memcpy(sizes, large, n * sizeof *sizes);
}

/* The error of a number that is rounded to bfloat16, of its size; 0 where attention does not round. */
static double half_rounding(const check *c, const spry_attend *a)
{
    return c->ops->attend_halves && a->type == SPRY_F16 ? 0x1p-8 : 0;
}

/* Scores go to `weight`, -infinity for keys not seen; the result is the error a score may have. */
static double naive_scores(check *c, naive_row *n, const attend_case *k, size_t kv_head, size_t row, const float *query)
{
    const spry_attend *a = &k->a;
    double cap = (double)a->softcap, scale = (double)a->scale, largest = 0, encoded = 0, half = half_rounding(c, a);
    double turned[SPRY_ATTEND_HEAD_DIM_MAX], sizes[SPRY_ATTEND_HEAD_DIM_MAX], errors[SPRY_ATTEND_HEAD_DIM_MAX] = {0};
    for (size_t e = 0, i = 0; e < a->n_entries; e++) {
        for (size_t d = 0; d < a->head_dim; d++)
            turned[d] = attend_case_turned(&sizes[d], k, e, query, d);
        if (a->type == SPRY_Q4_0)
            rotate(turned, sizes, a->head_dim);
        if (c->ops->attend_bytes && (a->type == SPRY_Q8_0 || a->type == SPRY_Q4_0))
            encoding_errors(errors, turned, sizes, a->head_dim);
        for (size_t t = 0; t < k->entries[e].count; t++, i++) {
            n->weight[i] = -INFINITY;
            if (!sees(a, row, k->entries[e].start + t))
                continue;
            const double *key = k->keys + attend_case_index(k, kv_head, i, 0);
            double sum = 0, size = 0, error = 0;
            for (size_t d = 0; d < a->head_dim; d++) {
                sum += key[d] * turned[d];
                size += fabs(key[d]) * sizes[d];
                error += fabs(key[d]) * (errors[d] + (2 * half + half * half) * sizes[d]);
            }
            n->weight[i] = cap != 0 ? cap * tanh(sum * scale / cap) : sum * scale;
            largest = fmax(largest, size * scale);
            encoded = fmax(encoded, error * scale);
        }
    }
    /* One chain of additions over the head; tanh makes no error larger and adds its own. */
    return encoded + ((double)(a->head_dim + CHECK_OTHER_ROUNDINGS) * largest + 8 * cap) * CHECK_ROUNDING;
}

static void naive_weights(check *c, naive_row *n, const attend_case *k, size_t head, size_t row, const float *query)
{
    double slack = naive_scores(c, n, k, head / k->a.group, row, query), max = -INFINITY, min = INFINITY, sum = 0;
    if (k->a.sinks)
        max = min = (double)k->a.sinks[head];
    for (size_t i = 0; i < k->n_keys; i++) {
        max = fmax(max, n->weight[i]);
        min = n->weight[i] > -INFINITY ? fmin(min, n->weight[i]) : min;
    }
    if (k->a.sinks)
        sum = exp((double)k->a.sinks[head] - max);
    for (size_t i = 0; i < k->n_keys; i++)
        sum += n->weight[i] = exp(n->weight[i] - max);
    for (size_t i = 0; i < k->n_keys; i++)
        n->weight[i] /= sum;
    /* A score that is off by s multiplies its weight by at most exp(s), and the sum it is divided by as well. The
     * difference to the maximum is rounded, exp adds 2 units, and each page that brings a larger maximum 4 more, and
     * each chunk that is joined 4. Then values are added key after key. */
    double weight = slack + (max - min + 4 + 8 * (double)k->a.n_entries) * CHECK_ROUNDING;
    n->relative = expm1(2 * weight) + (double)(k->n_keys + CHECK_OTHER_ROUNDINGS) * CHECK_ROUNDING;
    /* A weight, the sum of all and a value. */
    n->relative += expm1(3 * half_rounding(c, &k->a)) * (1 + n->relative);
}

/* Where a page's weights times the scales of a block become integers of 14 bits, each may be off by half a unit, times
 * a quant of at most 127. */
static void weight_errors(double *errors, const check *c, const attend_case *k, size_t kv_head, const naive_row *n)
{
    for (size_t block = 0; c->ops->attend_bytes && (k->a.type == SPRY_Q8_0 || k->a.type == SPRY_Q4_0) && !k->a.latent &&
                           block < k->a.head_dim;
         block += SPRY_ACT_BLOCK)
        for (size_t e = 0, i = 0; e < k->a.n_entries; e++) {
            double largest = 0, seen = 0;
            for (size_t t = 0; t < k->entries[e].count; t++, i++) {
                const double *value = k->values + attend_case_index(k, kv_head, i, block);
                seen += n->weight[i] > 0;
                for (size_t d = 0; d < SPRY_ACT_BLOCK; d++)
                    largest = fmax(largest, n->weight[i] * fabs(value[d]));
            }
            for (size_t d = block; d < block + SPRY_ACT_BLOCK; d++)
                errors[d] += seen * largest * 0x1p-14 * (1 + 0x1p-8);
        }
}

static void compare_head(check *c, const attend_case *k, size_t kv_head, size_t row, size_t head)
{
    const spry_attend *a = &k->a;
    size_t offset = row * a->row_stride + head * a->head_dim;
    double expected[SPRY_ATTEND_HEAD_DIM_MAX] = {0}, size[SPRY_ATTEND_HEAD_DIM_MAX] = {0};
    double errors[SPRY_ATTEND_HEAD_DIM_MAX] = {0};
    naive_row n;
    naive_weights(c, &n, k, head, row, a->query + offset);
    weight_errors(errors, c, k, kv_head, &n);
    size_t n_values = a->latent ? a->latent : a->head_dim;
    for (size_t i = 0; i < k->n_keys; i++) {
        const double *value = a->latent ? k->keys + attend_case_index(k, kv_head, i, a->head_dim - a->latent)
                                        : k->values + attend_case_index(k, kv_head, i, 0);
        for (size_t d = 0; n.weight[i] != 0 && d < n_values; d++) {
            expected[d] += n.weight[i] * value[d];
            size[d] += n.weight[i] * fabs(value[d]);
        }
    }
    double same[SPRY_ATTEND_HEAD_DIM_MAX];
    memcpy(same, expected, sizeof same);
    if (a->type == SPRY_Q4_0) {
        rotate(expected, size, n_values);
        rotate(same, errors, n_values);
    }
    for (size_t d = 0; d < n_values; d++) {
        double underflow = (double)k->n_keys * 2 * (double)FLT_MIN;
        check_close(c, offset + d, (double)a->out[offset + d], expected[d],
                    n.relative * size[d] + errors[d] + underflow);
    }
}

/* kv_head's heads of every row hold the right values; others are still poison. */
static void compare(check *c, const attend_case *k, size_t kv_head)
{
    for (size_t i = 0; i < k->out.size / sizeof(float); i++) {
        size_t row = i / k->a.row_stride, head = i % k->a.row_stride / k->a.head_dim;
        if (head / k->a.group != kv_head) {
            if (!check_is_poison(guarded_f(&k->out) + i, sizeof(float)))
                check_complain(c, "row %zu head %zu belongs to another key head and was written", row, head);
        } else if (i % k->a.row_stride % k->a.head_dim == 0)
            compare_head(c, k, kv_head, row, head);
    }
}

/* Runs rows [first, first + n), with the table as it was when the last of them, or what it sees ahead, had just been
 * stored and without pages that the first of them no longer sees. */
static void run_rows(check *c, const attend_case *k, float *out, const unsigned char *pages, size_t kv_head,
                     size_t first, size_t n)
{
    spry_attend part = k->a;
    spry_kv_entry entries[ATTEND_MAX_ENTRIES];
    memcpy(entries, k->entries, sizeof entries);
    part.entries = entries;
    part.pages = pages;
    part.n_rows = n;
    part.first_position += (uint32_t)first;
    part.query += first * part.row_stride;
    part.out = out + first * part.row_stride;
    uint32_t end = part.first_position + (uint32_t)n, seen = part.first_position + 1;
    seen = part.window && seen > part.window ? seen - part.window : 0;
    end = part.ahead < UINT32_MAX - end ? end + part.ahead : UINT32_MAX;
    while (entries[part.n_entries - 1].start >= end)
        part.n_entries--;
    spry_kv_entry *last = &entries[part.n_entries - 1];
    last->count = last->start + last->count > end ? end - last->start : last->count;
    for (; part.entries->start + part.entries->count <= seen; part.n_entries--)
        part.entries++;
    c->ops->attend(&part, kv_head, kv_head + 1);
}

static void compare_splits(check *c, const attend_case *k, size_t kv_head)
{
    guarded again = guarded_create(k->out.size);
    for (size_t row = 0; row < k->a.n_rows; row++)
        run_rows(c, k, guarded_f(&again), k->pages.data, kv_head, row, 1);
    check_same(c, "running each row by itself", again.data, k->out.data, again.size);
    guarded_destroy(c, &again);

    again = guarded_create(k->out.size);
    for (size_t row = 0, n; row < k->a.n_rows; row += n) {
        n = check_between(c, 1, k->a.n_rows - row);
        run_rows(c, k, guarded_f(&again), k->pages.data, kv_head, row, n);
    }
    check_same(c, "running chunks of rows", again.data, k->out.data, again.size);
    guarded_destroy(c, &again);
}

/* Chunks by themselves, then joined. */
static void compare_joined(check *c, const attend_case *k, size_t kv_head)
{
    size_t n_heads = k->n_kv_heads * k->a.group, n_sums = k->out.size / sizeof(float);
    guarded sums = guarded_create(ATTEND_MAX_ENTRIES * k->out.size), again = guarded_create(k->out.size);
    guarded states = guarded_floats(ATTEND_MAX_ENTRIES * k->a.n_rows * 2 * n_heads);
    spry_attend_parts parts = {guarded_f(&sums), guarded_f(&states), n_sums, k->a.n_rows * 2 * n_heads, 0};
    for (size_t e = 0, end; e < k->a.n_entries; e = end, parts.n++) {
        spry_attend part = k->a;
        end = spry_attend_chunk_end(&k->a, e);
        part.entries = k->entries + e;
        part.n_entries = end - e;
        part.out = guarded_f(&sums) + parts.n * n_sums;
        part.states = guarded_f(&states) + parts.n * parts.n_states;
        part.state_stride = 2 * n_heads;
        c->ops->attend(&part, kv_head, kv_head + 1);
    }
    spry_attend whole = k->a;
    whole.out = guarded_f(&again);
    whole.state_stride = 2 * n_heads;
    c->ops->attend_join(&whole, &parts, kv_head);
    check_same(c, "joining chunks", again.data, k->out.data, again.size);
    guarded_destroy(c, &sums);
    guarded_destroy(c, &states);
    guarded_destroy(c, &again);
}

/* All heads in one call. */
static void compare_together(check *c, const attend_case *k, size_t kv_head)
{
    guarded again = guarded_create(k->out.size);
    spry_attend all = k->a;
    size_t width = k->a.group * k->a.head_dim;
    all.out = guarded_f(&again);
    c->ops->attend(&all, 0, k->n_kv_heads);
    for (size_t row = 0; row < k->a.n_rows; row++) {
        size_t at = row * k->a.row_stride + kv_head * width;
        check_same(c, "computing all heads together", all.out + at, k->a.out + at, width * sizeof(float));
    }
    guarded_destroy(c, &again);
}

/* When a row was decoded, the slots after it held older values. */
static void compare_stale(check *c, const attend_case *k, size_t kv_head)
{
    guarded pages = guarded_create(k->pages.size), again = guarded_create(k->out.size);
    size_t row = check_between(c, 0, k->a.n_rows - 1), width = k->n_kv_heads * k->a.group * k->a.head_dim;
    memcpy(pages.data, k->pages.data, pages.size);
    attend_case_spoil(pages.data, k, (size_t)k->a.first_position + row + 1 + k->a.ahead);
    run_rows(c, k, guarded_f(&again), pages.data, kv_head, row, 1);
    check_same(c, "NaNs in slots that are not used", guarded_f(&again) + row * k->a.row_stride,
               guarded_f(&k->out) + row * k->a.row_stride, width * sizeof(float));
    guarded_destroy(c, &pages);
    guarded_destroy(c, &again);
}

/* What later rows of the same call have stored changes no bit of those before them, even where it is not a number. */
static void compare_later(check *c, const attend_case *k, size_t kv_head)
{
    if (k->a.ahead || k->a.n_rows < 2)
        return;
    guarded pages = guarded_create(k->pages.size), again = guarded_create(k->out.size);
    size_t row = check_between(c, 1, k->a.n_rows - 1);
    memcpy(pages.data, k->pages.data, pages.size);
    attend_case_spoil(pages.data, k, (size_t)k->a.first_position + row);
    run_rows(c, k, guarded_f(&again), pages.data, kv_head, 0, k->a.n_rows);
    check_same(c, "NaNs of later rows", again.data, k->out.data, row * k->a.row_stride * sizeof(float));
    guarded_destroy(c, &pages);
    guarded_destroy(c, &again);
}

/* A query that sees one key has a weight of exactly 1: the result is that key's value, exactly or rounded once. */
static void compare_single(check *c, const attend_case *k, size_t kv_head)
{
    guarded out = guarded_create(k->out.size);
    spry_attend a = k->a;
    a.window = 1;
    a.ahead = 0;
    a.sinks = NULL;
    a.latent = 0;
    a.out = guarded_f(&out);
    c->ops->attend(&a, kv_head, kv_head + 1);
    for (size_t row = 0; row < a.n_rows; row++) {
        size_t key = a.first_position + row - k->entries[0].start;
        double values[SPRY_ATTEND_HEAD_DIM_MAX], sizes[SPRY_ATTEND_HEAD_DIM_MAX];
        for (size_t d = 0; d < a.head_dim; d++) {
            values[d] = k->values[attend_case_index(k, kv_head, key, d)];
            sizes[d] = fabs(values[d]);
        }
        bool rotated = a.type == SPRY_Q4_0;
        if (rotated)
            rotate(values, sizes, a.head_dim);
        for (size_t i = 0; i < a.group * a.head_dim; i++) {
            size_t at = row * a.row_stride + kv_head * a.group * a.head_dim + i, d = i % a.head_dim;
            double error = rotated ? CHECK_OTHER_ROUNDINGS * CHECK_ROUNDING : half_rounding(c, &a);
            check_close(c, at, (double)a.out[at], (double)(float)values[d], error * sizes[d]);
        }
    }
    guarded_destroy(c, &out);
}

static void check_shape(check *c, spry_dtype type, size_t head_dim, size_t group)
{
    attend_case k;
    attend_case_build(c, &k, type, head_dim, group);
    size_t kv_head = check_between(c, 0, k.n_kv_heads - 1);
    c->ops->attend(&k.a, kv_head, kv_head + 1);
    compare(c, &k, kv_head);
    compare_splits(c, &k, kv_head);
    compare_joined(c, &k, kv_head);
    compare_together(c, &k, kv_head);
    compare_stale(c, &k, kv_head);
    compare_later(c, &k, kv_head);
    compare_single(c, &k, kv_head);
    attend_case_destroy(c, &k);
}

void check_attend(check *c)
{
#define KV_TYPE(name, TYPE) SPRY_##TYPE,
    static const spry_dtype types[] = {SPRY_KV_TYPES_ALL(KV_TYPE)};
#undef KV_TYPE
    /* 20 and 40 are not whole vectors of every instruction set. */
    static const size_t head_dims[] = {16, 20, 32, 40, 64, 80, 96, 128, 256, SPRY_ATTEND_HEAD_DIM_MAX};
    for (size_t i = 0; i < SPRY_COUNT(types); i++) {
        if (!check_begin(c, "attend %s", spry_dtype_name(types[i])))
            continue;
        for (size_t d = 0; d < SPRY_COUNT(head_dims); d++)
            for (size_t group = 1; head_dims[d] % spry_dtype_block(types[i]) == 0 && group <= 8; group++)
                check_shape(c, types[i], head_dims[d], group);
        check_end(c);
    }
}
