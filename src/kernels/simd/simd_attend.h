/* Attention over pages, written once over simd_*.h. Queries are the heads of a group, row after row; a tile of queries
 * shares each load of a key or value. Keys are transposed (kv_layout.h), so a score is one chain of fused additions
 * over the head without horizontal sums.
 *
 * Invariance: scores are independent of each other; a page's maximum and sum cover all its slots, where invisible slots
 * contribute nothing; values are added in token order. So a query's bits depend on its table alone.
 *
 * Include a simd_*.h and define OP(name) first. */
#include <math.h>
#include <string.h>

#include "kernels/blocks.h"
#include "kernels/kv_layout.h"
#include "kernels/simd/simd_math.h"

enum { ATTEND_QUERIES = 8, KEY_VECTORS = SPRY_PAGE_TOKENS / LANES, SCALE_BLOCK = 32 };

/* Running softmax of a tile's queries. */
typedef struct attend_tile {
    const spry_attend *a;
    size_t n;                                                 /* queries */
    const float *own[ATTEND_QUERIES], *query[ATTEND_QUERIES]; /* [head_dim]: as given, and for the current page */
    const float *turn;                                        /* cosines of the current rotation, or NULL */
    float turned[ATTEND_QUERIES][SPRY_ATTEND_HEAD_DIM_MAX];
    float *out[ATTEND_QUERIES];                          /* [head_dim]: sums of weighted values until the end */
    uint64_t first[ATTEND_QUERIES], end[ATTEND_QUERIES]; /* visible positions */
    int from[ATTEND_QUERIES], to[ATTEND_QUERIES];        /* visible slots of the current page */
    float max[ATTEND_QUERIES], sum[ATTEND_QUERIES];
    float score[ATTEND_QUERIES][SPRY_PAGE_TOKENS]; /* then exp(score - max) */
} attend_tile;

static void start_tile(attend_tile *t, const spry_attend *a, size_t kv_head, size_t first_query, size_t n)
{
    t->a = a;
    t->n = n;
    t->turn = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t row = (first_query + i) / a->group, head = kv_head * a->group + (first_query + i) % a->group;
        size_t offset = row * a->row_stride + head * a->head_dim;
        t->own[i] = t->query[i] = a->query + offset;
        t->out[i] = a->out + offset;
        uint64_t past = (uint64_t)a->first_position + row + 1;
        t->end[i] = past + a->ahead;
        t->first[i] = a->window && past > a->window ? past - a->window : 0;
        t->max[i] = a->sinks ? a->sinks[head] : -INFINITY;
        t->sum[i] = a->sinks ? 1 : 0;
        memset(t->out[i], 0, a->head_dim * sizeof(float));
    }
}

static void turn_query(float *out, const float *own, const spry_attend *a, const spry_turn *turn)
{
    size_t n = a->n_pairs;
    if (a->interleaved || n % LANES) {
        memcpy(out, own, a->head_dim * sizeof(float));
        spry_ref_rope(out, turn->cosine, turn->sine, 1, a->head_dim, n, a->interleaved);
        return;
    }
    for (size_t i = 0; i < n; i += LANES) {
        vec x = v_load(own + i), y = v_load(own + n + i), c = v_load(turn->cosine + i), s = v_load(turn->sine + i);
        v_store(out + i, v_sub(v_mul(x, c), v_mul(y, s)));
        v_store(out + n + i, v_add(v_mul(x, s), v_mul(y, c)));
    }
    for (size_t i = 2 * n; i < a->head_dim; i++)
        out[i] = own[i];
}

/* Rotates the queries for a page; consecutive pages mostly share their rotation. */
static void turn_queries(attend_tile *t, const spry_turn *turn)
{
    if (t->turn == turn->cosine)
        return;
    t->turn = turn->cosine;
    for (size_t i = 0; i < t->n; i++) {
        t->query[i] = turn->cosine ? t->turned[i] : t->own[i];
        if (turn->cosine)
            turn_query(t->turned[i], t->own[i], t->a, turn);
    }
}

/* Which slots of a page each query sees. False: none. *same: all queries see the same slots. */
static bool place_page(attend_tile *t, const spry_kv_entry *entry, bool *same)
{
    bool any = false;
    *same = true;
    for (size_t i = 0; i < t->n; i++) {
        uint64_t start = entry->start, stop = start + entry->count;
        uint64_t low = t->first[i] > start ? t->first[i] : start, high = t->end[i] < stop ? t->end[i] : stop;
        bool sees = low < high;
        t->from[i] = sees ? (int)(low - start) : 0;
        t->to[i] = sees ? (int)(high - start) : 0;
        any = any || sees;
        *same = *same && t->from[i] == t->from[0] && t->to[i] == t->to[0];
    }
    return any;
}

/* Keys of coordinate d, vector v, as floats; Q8_0's without their scales. */
SPRY_INLINE vec load_keys(spry_dtype type, const unsigned char *keys, size_t d, int v)
{
    size_t at = d * SPRY_PAGE_TOKENS + (size_t)v * LANES;
    if (type == SPRY_F32)
        return v_load((const float *)(const void *)keys + at);
    if (type == SPRY_F16)
        return v_load_f16((const uint16_t *)(const void *)keys + at);
    return v_load_i8((const int8_t *)keys + at);
}

/* Dot products of n queries with all slots of a page, times the scale. */
SPRY_INLINE void score_queries(attend_tile *t, spry_dtype type, const unsigned char *keys, size_t first, int n)
{
    vec sum[SCORE_QUERIES][KEY_VECTORS], part[SCORE_QUERIES][KEY_VECTORS], scale = v_set(t->a->scale);
    size_t head_dim = t->a->head_dim, step = type == SPRY_Q8_0 ? SCALE_BLOCK : head_dim;
    const uint16_t *scales = (const uint16_t *)(const void *)(keys + head_dim * SPRY_PAGE_TOKENS);
    for (int q = 0; q < n; q++)
        for (int v = 0; v < KEY_VECTORS; v++)
            sum[q][v] = v_set(0);
    for (size_t block = 0; block < head_dim; block += step, scales += SPRY_PAGE_TOKENS) {
        for (int q = 0; q < n; q++)
            for (int v = 0; v < KEY_VECTORS; v++)
                part[q][v] = v_set(0);
        for (size_t d = block; d < block + step; d++)
            for (int v = 0; v < KEY_VECTORS; v++) {
                vec key = load_keys(type, keys, d, v);
                for (int q = 0; q < n; q++)
                    part[q][v] = v_fma(key, v_set(t->query[first + (size_t)q][d]), part[q][v]);
            }
        for (int q = 0; q < n; q++)
            for (int v = 0; v < KEY_VECTORS; v++)
                sum[q][v] =
                    type == SPRY_Q8_0 ? v_fma(part[q][v], v_load_f16(scales + v * LANES), sum[q][v]) : part[q][v];
    }
    for (int q = 0; q < n; q++)
        for (int v = 0; v < KEY_VECTORS; v++)
            v_store(t->score[first + (size_t)q] + v * LANES, v_mul(sum[q][v], scale));
}

SPRY_INLINE void score_page(attend_tile *t, spry_dtype type, const unsigned char *keys)
{
    size_t i = 0;
    for (; i + SCORE_QUERIES <= t->n; i += SCORE_QUERIES)
        score_queries(t, type, keys, i, SCORE_QUERIES);
    for (; SCORE_QUERIES > 4 && i + 4 <= t->n; i += 4)
        score_queries(t, type, keys, i, 4);
    for (; i + 2 <= t->n; i += 2)
        score_queries(t, type, keys, i, 2);
    for (; i < t->n; i++)
        score_queries(t, type, keys, i, 1);
}

/* Converts scores to weights under the new maximum and rescales the previous sums. */
static void weigh_query(attend_tile *t, size_t i)
{
    float cap = t->a->softcap, *score = t->score[i];
    vec s[KEY_VECTORS], top = v_set(-INFINITY), total = v_set(0), none = v_set(-INFINITY);
    for (int v = 0; v < KEY_VECTORS; v++) {
        s[v] = v_load(score + v * LANES);
        if (cap > 0)
            s[v] = v_mul(v_tanh(v_div(s[v], v_set(cap))), v_set(cap));
        s[v] = v_select_range(s[v], none, v * LANES, t->from[i], t->to[i]);
        top = v_max(top, s[v]);
    }
    float largest = v_largest(top), max = largest > t->max[i] ? largest : t->max[i], keep[LANES];
    for (int v = 0; v < KEY_VECTORS; v++) {
        vec weight = v_exp(v_sub(s[v], v_set(max))); /* exp(-infinity), of invisible slots, is 0 */
        v_store(score + v * LANES, weight);
        total = v_add(total, weight);
    }
    v_store(keep, v_exp(v_set(t->max[i] - max)));
    t->sum[i] = t->sum[i] * keep[0] + v_sum(total);
    for (size_t d = 0; t->max[i] != max && d < t->a->head_dim; d += LANES)
        v_store(t->out[i] + d, v_mul(v_load(t->out[i] + d), v_set(keep[0])));
    t->max[i] = max;
}

/* Values of a token from coordinate d on, as floats. */
SPRY_INLINE vec load_values(spry_dtype type, const unsigned char *token, size_t d)
{
    if (type == SPRY_F32)
        return v_load((const float *)(const void *)token + d);
    if (type == SPRY_F16)
        return v_load_f16((const uint16_t *)(const void *)token + d);
    const spry_block_q8_0 *block = (const spry_block_q8_0 *)(const void *)token + d / SCALE_BLOCK;
    return v_mul(v_load_i8(block->quants + d % SCALE_BLOCK), v_set_f16(block->scale));
}

/* Adds tokens [from, to), weighted, to n_vectors of the sums of n queries that see all of them. */
SPRY_INLINE void add_values(attend_tile *t, spry_dtype type, const unsigned char *values, size_t first, int n, size_t d,
                            int n_vectors)
{
    vec sum[VALUE_QUERIES][VALUE_VECTORS];
    for (int q = 0; q < n; q++)
        for (int v = 0; v < n_vectors; v++)
            sum[q][v] = v_load(t->out[first + (size_t)q] + d + (size_t)v * LANES);
    for (int token = t->from[first]; token < t->to[first]; token++) {
        const unsigned char *bytes = values + (size_t)token * t->a->token_bytes;
        for (int v = 0; v < n_vectors; v++) {
            vec value = load_values(type, bytes, d + (size_t)v * LANES);
            for (int q = 0; q < n; q++)
                sum[q][v] = v_fma(value, v_set(t->score[first + (size_t)q][token]), sum[q][v]);
        }
    }
    for (int q = 0; q < n; q++)
        for (int v = 0; v < n_vectors; v++)
            v_store(t->out[first + (size_t)q] + d + (size_t)v * LANES, sum[q][v]);
}

SPRY_INLINE void add_values_of(attend_tile *t, spry_dtype type, const unsigned char *values, size_t first, int n)
{
    size_t d = 0, head_dim = t->a->head_dim;
    for (; d + VALUE_VECTORS * LANES <= head_dim; d += VALUE_VECTORS * LANES)
        add_values(t, type, values, first, n, d, VALUE_VECTORS);
    for (; d < head_dim; d += LANES)
        add_values(t, type, values, first, n, d, 1);
}

SPRY_INLINE void add_page(attend_tile *t, spry_dtype type, const unsigned char *values, bool same)
{
    size_t i = 0;
    for (; same && i + VALUE_QUERIES <= t->n; i += VALUE_QUERIES)
        add_values_of(t, type, values, i, VALUE_QUERIES);
    for (; i < t->n; i++)
        add_values_of(t, type, values, i, 1);
}

SPRY_INLINE void attend_type(const spry_attend *a, size_t kv_head, spry_dtype type)
{
    size_t n_queries = a->n_rows * a->group;
    for (size_t first = 0; first < n_queries; first += ATTEND_QUERIES) {
        attend_tile t;
        bool same;
        start_tile(&t, a, kv_head, first, n_queries - first < ATTEND_QUERIES ? n_queries - first : ATTEND_QUERIES);
        for (size_t e = 0; e < a->n_entries; e++) {
            if (!place_page(&t, &a->entries[e], &same))
                continue;
            if (a->turns)
                turn_queries(&t, &a->turns[a->entries[e].turn]);
            const unsigned char *page = a->pages + a->entries[e].page * a->page_bytes + kv_head * a->head_bytes;
            score_page(&t, type, page + a->key_offset);
            for (size_t i = 0; i < t.n; i++)
                if (t.from[i] < t.to[i])
                    weigh_query(&t, i);
            add_page(&t, type, page + a->value_offset, same);
        }
        for (size_t i = 0; i < t.n; i++)
            for (size_t d = 0; d < a->head_dim; d += LANES)
                v_store(t.out[i] + d, v_div(v_load(t.out[i] + d), v_set(t.sum[i])));
    }
}

/* Heads that are not a multiple of the vector size, and values within keys, use the plain version; the choice depends
 * on the model alone. */
static void OP(attend)(const spry_attend *a, size_t kv_head)
{
    if (a->head_dim % LANES || a->latent)
        spry_ref_attend(a, kv_head);
    else if (a->type == SPRY_F32)
        attend_type(a, kv_head, SPRY_F32);
    else if (a->type == SPRY_F16)
        attend_type(a, kv_head, SPRY_F16);
    else
        attend_type(a, kv_head, SPRY_Q8_0);
}
