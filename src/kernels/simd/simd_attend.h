/* Attention over pages, written once over simd_*.h. Queries are the heads of a group, row after row; a tile of queries
 * shares each load of a key or value. While a page is read the next one is prefetched: pages are too far apart for the
 * hardware to do it. Keys are transposed (kv_layout.h), so a score is one chain of fused additions
 * over the head without horizontal sums.
 *
 * Invariance: scores are independent of each other; a page's maximum and sum cover all its slots, where invisible slots
 * contribute nothing; values are added in token order; chunks (ops.h) are joined in their order. So a query's bits
 * depend on its table alone.
 *
 * Include a simd_*.h and define OP(name) first. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels/blocks.h"
#include "kernels/kv_layout.h"
#include "kernels/simd/simd_math.h"

enum {
    ATTEND_QUERIES = 64,
    ATTEND_FLOATS = ATTEND_QUERIES * 128, /* floats of a tile's queries; with larger heads a tile has fewer queries */
    KEY_VECTORS = SPRY_PAGE_TOKENS / LANES,
    SCALE_BLOCK = 32,
    CACHE_LINE = 64,
    MAPPED_BYTES = 4096,
    PAGES_AHEAD = 4
};

/* A tile: some queries and their running softmax. */
typedef struct attend_tile {
    const spry_attend *a;
    size_t first_head, n_heads, per_head;                     /* first and number of key/value heads; number of queries
                                                               * of each */
    size_t n;                                                 /* number of queries; those of one head are adjacent */
    const float *own[ATTEND_QUERIES], *query[ATTEND_QUERIES]; /* [head_dim]: the query as given, and rotated for the
                                                               * current page */
    uintptr_t ahead;                                          /* distance in bytes from the current page to the next
                                                               * one */
    bool fresh;                                               /* queries have not been encoded yet */
    const float *turn;                                        /* cosines of the current rotation, or NULL */
    uint64_t first[ATTEND_QUERIES], end[ATTEND_QUERIES];      /* visible positions */
    int from[ATTEND_QUERIES], to[ATTEND_QUERIES];             /* visible slots of the current page */
    float max[ATTEND_QUERIES], sums[ATTEND_QUERIES][LANES];   /* max and sums (one sum per lane) of the current chunk */
    float *part[ATTEND_QUERIES];                              /* [head_dim]: weighted values of the current chunk,
                                                               * summed */
    float total_max[ATTEND_QUERIES], total_sum[ATTEND_QUERIES];
    float *out[ATTEND_QUERIES];                                         /* [head_dim]: weighted values of all chunks so
                                                                         * far, summed */
    float *state[ATTEND_QUERIES];                                       /* where a partial result's maximum and sum are
                                                                         * stored */
    _Alignas(CACHE_LINE) float score[ATTEND_QUERIES][SPRY_PAGE_TOKENS]; /* scores of the current page, then exp(score -
                                                                         * max) */
    _Alignas(CACHE_LINE) float turned[ATTEND_FLOATS], parts[ATTEND_FLOATS];
    union {                                                     /* queries for the current page in another encoding */
        spry_act_block encoded[ATTEND_FLOATS / SPRY_ACT_BLOCK]; /* used by x86/attend_bytes.h */
        uint32_t pairs[ATTEND_FLOATS / 2];                      /* used by x86/attend_bf16.h */
    };
} attend_tile;

/* Rotates a query as Q4_0 pages need it (kv_layout.h). */
static void rotate_query(attend_tile *t, size_t i, const float *from)
{
    float *turned = t->turned + i * t->a->head_dim;
    if (from != turned)
        memcpy(turned, from, t->a->head_dim * sizeof *turned);
    spry_kv_rotate(turned, t->a->head_dim);
    t->query[i] = turned;
}

/* Starts a tile with queries [first_query, first_query + n) of each of n_heads key/value heads. */
static void start_tile(attend_tile *t, const spry_attend *a, size_t kv_head, size_t n_heads, size_t first_query,
                       size_t n)
{
    t->a = a;
    t->first_head = kv_head;
    t->n_heads = n_heads;
    t->per_head = n;
    t->n = n_heads * n;
    t->turn = NULL;
    t->fresh = true;
    for (size_t i = 0; i < t->n; i++) {
        size_t query = first_query + i % n, row = query / a->group;
        size_t head = (kv_head + i / n) * a->group + query % a->group;
        size_t offset = row * a->row_stride + head * a->head_dim;
        bool sink = a->sinks && !a->states;
        t->own[i] = t->query[i] = a->query + offset;
        t->out[i] = a->out + offset;
        t->part[i] = t->parts + i * a->head_dim;
        t->state[i] = a->states ? a->states + row * a->state_stride + 2 * head : NULL;
        uint64_t past = (uint64_t)a->first_position + row + 1;
        t->end[i] = past + a->ahead;
        t->first[i] = spry_attend_first(a, row);
        t->total_max[i] = sink ? a->sinks[head] : -INFINITY;
        t->total_sum[i] = sink ? 1 : 0;
        memset(t->out[i], 0, a->head_dim * sizeof(float));
        if (a->type == SPRY_Q4_0)
            rotate_query(t, i, t->own[i]);
    }
}

static void start_chunk(attend_tile *t)
{
    for (size_t i = 0; i < t->n; i++) {
        t->max[i] = -INFINITY;
        v_store(t->sums[i], v_set(0));
    }
    memset(t->parts, 0, t->n * t->a->head_dim * sizeof(float));
}

/* Adds a chunk's softmax to the sums so far. A chunk of which the query sees nothing changes nothing. */
static void join_chunk(float *out, float *total_max, float *total_sum, const float *part, float max, float sum,
                       size_t head_dim)
{
    if (max == -INFINITY && sum == 0)
        return;
    float top = max > *total_max ? max : *total_max, factors[LANES];
    v_store(factors, v_exp(v_set(*total_max - top)));
    float keep = factors[0];
    v_store(factors, v_exp(v_set(max - top)));
    float take = factors[0];
    *total_max = top;
    *total_sum = *total_sum * keep + sum * take;
    for (size_t d = 0; d < head_dim; d += LANES)
        v_store(out + d, v_fma(v_load(part + d), v_set(take), v_mul(v_load(out + d), v_set(keep))));
}

static void end_chunk(attend_tile *t)
{
    for (size_t i = 0; i < t->n; i++)
        join_chunk(t->out[i], &t->total_max[i], &t->total_sum[i], t->part[i], t->max[i], v_sum(v_load(t->sums[i])),
                   t->a->head_dim);
}

/* Completes a result. */
static void divide_by(float *out, float sum, const spry_attend *a)
{
    for (size_t d = 0; d < a->head_dim; d += LANES)
        v_store(out + d, v_div(v_load(out + d), v_set(sum)));
    if (a->type == SPRY_Q4_0)
        spry_kv_rotate(out, a->head_dim);
}

static void end_tile(attend_tile *t)
{
    const spry_attend *a = t->a;
    for (size_t i = 0; i < t->n; i++) {
        if (!a->states) {
            divide_by(t->out[i], t->total_sum[i], a);
            continue;
        }
        t->state[i][0] = t->total_max[i];
        t->state[i][1] = t->total_sum[i];
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

/* Rotates the queries for a page, unless the page before had the same rotation. */
static void turn_queries(attend_tile *t, const spry_turn *turn)
{
    if (t->turn == turn->cosine)
        return;
    t->turn = turn->cosine;
    t->fresh = true;
    for (size_t i = 0; i < t->n; i++) {
        float *turned = t->turned + i * t->a->head_dim;
        t->query[i] = turn->cosine ? turned : t->own[i];
        if (turn->cosine)
            turn_query(turned, t->own[i], t->a, turn);
        if (t->a->type == SPRY_Q4_0)
            rotate_query(t, i, t->query[i]);
    }
}

/* Finds the slots of a page that each query sees; false when no query sees any. *same: all queries see the same
 * slots. */
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

/* Loads keys of coordinate d, vector v, as floats; keys of Q8_0 without their scales. */
SPRY_INLINE vec load_keys(spry_dtype type, const unsigned char *keys, size_t d, int v)
{
    size_t at = d * SPRY_PAGE_TOKENS + (size_t)v * LANES;
    if (type == SPRY_F32)
        return v_load((const float *)(const void *)keys + at);
    if (type == SPRY_F16)
        return v_load_f16((const uint16_t *)(const void *)keys + at);
    return v_load_i8((const int8_t *)keys + at);
}

/* Bytes of one key coordinate. The scales of Q8_0, which are stored after the coordinates, are not prefetched. */
SPRY_INLINE size_t coordinate_bytes(spry_dtype type)
{
    return type == SPRY_F32 ? 4 : type == SPRY_F16 ? 2 : 1;
}

/* Prefetches the bytes of the next page at the same offset as these bytes. */
SPRY_INLINE void prefetch_next(const attend_tile *t, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i += CACHE_LINE)
        SPRY_PREFETCH_FAR((uintptr_t)bytes + t->ahead + i);
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
        for (size_t d = block; d < block + step; d++) {
            if (first % t->per_head == 0)
                prefetch_next(t, keys + d * SPRY_PAGE_TOKENS * coordinate_bytes(type),
                              SPRY_PAGE_TOKENS * coordinate_bytes(type));
            for (int v = 0; v < KEY_VECTORS; v++) {
                vec key = load_keys(type, keys, d, v);
                for (int q = 0; q < n; q++)
                    part[q][v] = v_fma(key, v_set(t->query[first + (size_t)q][d]), part[q][v]);
            }
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

/* Scores queries [i, end), which belong to one head. */
SPRY_INLINE void score_head(attend_tile *t, spry_dtype type, const unsigned char *keys, size_t i, size_t end)
{
    for (; i + SCORE_QUERIES <= end; i += SCORE_QUERIES)
        score_queries(t, type, keys, i, SCORE_QUERIES);
    for (; SCORE_QUERIES > 4 && i + 4 <= end; i += 4)
        score_queries(t, type, keys, i, 4);
    for (; i + 2 <= end; i += 2)
        score_queries(t, type, keys, i, 2);
    for (; i < end; i++)
        score_queries(t, type, keys, i, 1);
}

/* Stores vector v of a query's weights where the sums over values read them; returns the weights as stored
 * (rounded). */
typedef vec store_weights(attend_tile *t, size_t i, int v, vec weights);

SPRY_INLINE vec store_floats(attend_tile *t, size_t i, int v, vec weights)
{
    v_store(t->score[i] + v * LANES, weights);
    return weights;
}

/* Converts scores to weights relative to the new maximum, and rescales the previous sums. */
SPRY_INLINE void weigh_query(attend_tile *t, size_t i, store_weights *store)
{
    float cap = t->a->softcap;
    bool whole = t->to[i] - t->from[i] == SPRY_PAGE_TOKENS;
    vec s[KEY_VECTORS], top = v_set(-INFINITY), total = v_load(t->sums[i]), none = v_set(-INFINITY);
    for (int v = 0; v < KEY_VECTORS; v++) {
        s[v] = v_load(t->score[i] + v * LANES);
        if (cap > 0)
            s[v] = v_mul(v_tanh(v_div(s[v], v_set(cap))), v_set(cap));
        if (!whole)
            s[v] = v_select_range(s[v], none, v * LANES, t->from[i], t->to[i]);
        top = v_max(top, s[v]);
    }
    float largest = v_largest(top), max = largest > t->max[i] ? largest : t->max[i];
    if (t->max[i] != max) {
        float keep[LANES];
        v_store(keep, v_exp(v_set(t->max[i] - max)));
        total = v_mul(total, v_set(keep[0]));
        for (size_t d = 0; d < t->a->head_dim; d += LANES)
            v_store(t->part[i] + d, v_mul(v_load(t->part[i] + d), v_set(keep[0])));
        t->max[i] = max;
    }
    for (int v = 0; v < KEY_VECTORS; v++) /* invisible slots have the score -infinity, whose exp is 0 */
        total = v_add(total, store(t, i, v, v_exp(v_sub(s[v], v_set(max)))));
    v_store(t->sums[i], total);
}

/* Loads values of a token from coordinate d on, as floats. *scale keeps the scale of the current block. */
SPRY_INLINE vec load_values(vec *scale, spry_dtype type, const unsigned char *token, size_t d, bool first)
{
    if (type == SPRY_F32)
        return v_load((const float *)(const void *)token + d);
    if (type == SPRY_F16)
        return v_load_f16((const uint16_t *)(const void *)token + d);
    const spry_block_q8_0 *block = (const spry_block_q8_0 *)(const void *)token + d / SCALE_BLOCK;
    if (first || d % SCALE_BLOCK == 0)
        *scale = v_set_f16(block->scale);
    return v_mul(v_load_i8(block->quants + d % SCALE_BLOCK), *scale);
}

/* Adds the weighted values of tokens [from, to) to n_vectors of the sums of n queries, all of which see these
 * tokens. */
SPRY_INLINE void add_values(attend_tile *t, spry_dtype type, const unsigned char *values, size_t first, int n, size_t d,
                            int n_vectors)
{
    vec sum[VALUE_QUERIES][VALUE_VECTORS], scale = v_set(0);
    for (int q = 0; q < n; q++)
        for (int v = 0; v < n_vectors; v++)
            sum[q][v] = v_load(t->part[first + (size_t)q] + d + (size_t)v * LANES);
    for (int token = t->from[first]; token < t->to[first]; token++) {
        const unsigned char *bytes = values + (size_t)token * t->a->token_bytes;
        if (first % t->per_head == 0 && type != SPRY_Q8_0)
            prefetch_next(t, bytes + d * coordinate_bytes(type), (size_t)n_vectors * LANES * coordinate_bytes(type));
        else if (first % t->per_head == 0 && d == 0) /* all of the token's blocks with their scales, once */
            prefetch_next(t, bytes, t->a->token_bytes);
        for (int v = 0; v < n_vectors; v++) {
            vec value = load_values(&scale, type, bytes, d + (size_t)v * LANES, v == 0);
            for (int q = 0; q < n; q++)
                sum[q][v] = v_fma(value, v_set(t->score[first + (size_t)q][token]), sum[q][v]);
        }
    }
    for (int q = 0; q < n; q++)
        for (int v = 0; v < n_vectors; v++)
            v_store(t->part[first + (size_t)q] + d + (size_t)v * LANES, sum[q][v]);
}

SPRY_INLINE void add_values_of(attend_tile *t, spry_dtype type, const unsigned char *values, size_t first, int n)
{
    size_t d = 0, head_dim = t->a->head_dim;
    for (; d + VALUE_VECTORS * LANES <= head_dim; d += VALUE_VECTORS * LANES)
        add_values(t, type, values, first, n, d, VALUE_VECTORS);
    for (; d < head_dim; d += LANES)
        add_values(t, type, values, first, n, d, 1);
}

/* Adds the weighted values of a page for queries [i, end) of one head. `same`: all queries see the same slots. */
SPRY_INLINE void add_head(attend_tile *t, spry_dtype type, const unsigned char *values, size_t i, size_t end, bool same)
{
    for (; same && i + VALUE_QUERIES <= end; i += VALUE_QUERIES)
        add_values_of(t, type, values, i, VALUE_QUERIES);
    for (; VALUE_QUERIES > 2 && same && i + 2 <= end; i += 2)
        add_values_of(t, type, values, i, 2);
    for (; i < end; i++)
        add_values_of(t, type, values, i, 1);
}

/* Prepares the tile for a page and returns its address; NULL: no query sees any slot of it. */
SPRY_INLINE const unsigned char *enter_page(attend_tile *t, const spry_kv_entry *entry, const spry_kv_entry *next,
                                            bool *same)
{
    const spry_attend *a = t->a;
    if (!place_page(t, entry, same))
        return NULL;
    if (a->turns)
        turn_queries(t, &a->turns[entry->turn]);
    t->ahead = ((uintptr_t)next->page - entry->page) * a->page_bytes;
    return a->pages + entry->page * a->page_bytes + t->first_head * a->head_bytes;
}

SPRY_INLINE void attend_page(attend_tile *t, spry_dtype type, const spry_kv_entry *entry, const spry_kv_entry *next)
{
    const spry_attend *a = t->a;
    bool same;
    const unsigned char *page = enter_page(t, entry, next, &same);
    if (!page)
        return;
    for (size_t h = 0; h < t->n_heads; h++)
        score_head(t, type, page + a->key_offset + h * a->head_bytes, h * t->per_head, (h + 1) * t->per_head);
    for (size_t i = 0; i < t->n; i++)
        if (t->from[i] < t->to[i])
            weigh_query(t, i, store_floats);
    for (size_t h = 0; h < t->n_heads; h++)
        add_head(t, type, page + a->value_offset + h * a->head_bytes, h * t->per_head, (h + 1) * t->per_head, same);
}

/* Reads one byte of each memory page that a KV page, to be read later, occupies: its address translation is then known
 * when its lines are prefetched. */
SPRY_INLINE void find_page(const attend_tile *t, const spry_kv_entry *entry)
{
    const spry_attend *a = t->a;
    const unsigned char *page = a->pages + entry->page * a->page_bytes + t->first_head * a->head_bytes;
    for (size_t i = 0; i < t->n_heads * a->head_bytes; i += MAPPED_BYTES) {
        SPRY_PREFETCH_FAR((uintptr_t)page + a->key_offset + i);
        SPRY_PREFETCH_FAR((uintptr_t)page + a->value_offset + i);
    }
}

/* Entry i, counted on into the entries that are read after these; NULL: there is none. */
SPRY_INLINE const spry_kv_entry *entry_ahead(const spry_attend *a, size_t i)
{
    if (i < a->n_entries)
        return &a->entries[i];
    return i - a->n_entries < a->n_after ? &a->after[i - a->n_entries] : NULL;
}

typedef void attend_one(attend_tile *t, const spry_kv_entry *entry, const spry_kv_entry *next);

SPRY_INLINE void attend_tiles(const spry_attend *a, size_t kv_head, size_t kv_end, attend_one *attend)
{
    size_t n_queries = a->n_rows * a->group, most = ATTEND_FLOATS / a->head_dim;
    most = most < ATTEND_QUERIES ? most : ATTEND_QUERIES;
    attend_tile t;
    for (size_t n_heads; kv_head < kv_end; kv_head += n_heads) {
        n_heads = n_queries <= most ? most / n_queries : 1;
        n_heads = n_heads < kv_end - kv_head ? n_heads : kv_end - kv_head;
        for (size_t first = 0; first < n_queries; first += most) {
            start_tile(&t, a, kv_head, n_heads, first, n_queries - first < most ? n_queries - first : most);
            for (size_t e = 0, end; e < a->n_entries; e = end) {
                start_chunk(&t);
                end = spry_attend_chunk_end(a, e);
                for (size_t i = e; i < end; i++) {
                    const spry_kv_entry *far = entry_ahead(a, i + PAGES_AHEAD), *next = entry_ahead(a, i + 1);
                    if (far)
                        find_page(&t, far);
                    attend(&t, &a->entries[i], next ? next : &a->entries[i]);
                }
                end_chunk(&t);
            }
            end_tile(&t);
        }
    }
}

#define ATTEND_PAGE(NAME)                                                                                              \
    SPRY_INLINE void attend_##NAME(attend_tile *t, const spry_kv_entry *entry, const spry_kv_entry *next)              \
    {                                                                                                                  \
        attend_page(t, SPRY_##NAME, entry, next);                                                                      \
    }
ATTEND_PAGE(F32)
ATTEND_PAGE(F16)
ATTEND_PAGE(Q8_0)

/* ---- Q4_0 -------------------------------------------------------------------------------------------------------- */

/* Keys and values of a head in a Q4_0 page become those of a Q8_0 page, which the same kernels read. The tile's
 * token_bytes are those of Q8_0. */
typedef struct wide_head {
    _Alignas(CACHE_LINE) unsigned char bytes[SPRY_ATTEND_HEAD_DIM_MAX / SCALE_BLOCK * sizeof(spry_block_q8_0) *
                                             SPRY_PAGE_TOKENS];
} wide_head;

enum { NIBBLE_ROWS = SCALE_BLOCK / 2 };

/* `ahead`: distance to the next page, which is prefetched. */
static void widen_keys(wide_head *out, const unsigned char *keys, size_t head_dim, uintptr_t ahead)
{
    unsigned char *to = out->bytes;
    size_t scale_bytes = head_dim / SCALE_BLOCK * SPRY_PAGE_TOKENS * sizeof(uint16_t);
    for (size_t b = 0; b < head_dim / SCALE_BLOCK; b++, to += SCALE_BLOCK * SPRY_PAGE_TOKENS)
        for (size_t i = 0; i < NIBBLE_ROWS; i++, keys += SPRY_PAGE_TOKENS) {
            unsigned char *low = to + i * SPRY_PAGE_TOKENS, *high = low + NIBBLE_ROWS * SPRY_PAGE_TOKENS;
            if (i % 2 == 0)
                SPRY_PREFETCH_FAR((uintptr_t)keys + ahead);
            v_split_nibbles(low, high, keys);
            v_split_nibbles(low + SPRY_PAGE_TOKENS / 2, high + SPRY_PAGE_TOKENS / 2, keys + SPRY_PAGE_TOKENS / 2);
        }
    for (size_t at = 0; at < scale_bytes; at += CACHE_LINE)
        SPRY_PREFETCH_FAR((uintptr_t)keys + ahead + at);
    memcpy(to, keys, scale_bytes);
}

static void widen_values(wide_head *out, const unsigned char *values, size_t head_dim, uintptr_t ahead)
{
    unsigned char *to = out->bytes;
    size_t blocks = head_dim / SCALE_BLOCK * SPRY_PAGE_TOKENS;
    for (size_t b = 0; b < blocks; b++, values += sizeof(spry_block_q4_0), to += sizeof(spry_block_q8_0)) {
        unsigned char *quants = to + offsetof(spry_block_q8_0, quants);
        const unsigned char *low = values + offsetof(spry_block_q4_0, low);
        if (b % 3 == 0)
            SPRY_PREFETCH_FAR((uintptr_t)values + ahead);
        memcpy(to, values, sizeof(uint16_t));
        v_split_nibbles(quants, quants + NIBBLE_ROWS, low);
    }
}

SPRY_INLINE void attend_Q4_0(attend_tile *t, const spry_kv_entry *entry, const spry_kv_entry *next)
{
    const spry_attend *a = t->a;
    wide_head wide;
    bool same;
    const unsigned char *page = enter_page(t, entry, next, &same);
    uintptr_t ahead = t->ahead;
    if (!page)
        return;
    t->ahead = 0; /* kernels need not prefetch what is in the cache */
    for (size_t h = 0; h < t->n_heads; h++) {
        widen_keys(&wide, page + a->key_offset + h * a->head_bytes, a->head_dim, ahead);
        score_head(t, SPRY_Q8_0, wide.bytes, h * t->per_head, (h + 1) * t->per_head);
    }
    for (size_t i = 0; i < t->n; i++)
        if (t->from[i] < t->to[i])
            weigh_query(t, i, store_floats);
    for (size_t h = 0; h < t->n_heads; h++) {
        widen_values(&wide, page + a->value_offset + h * a->head_bytes, a->head_dim, ahead);
        add_head(t, SPRY_Q8_0, wide.bytes, h * t->per_head, (h + 1) * t->per_head, same);
    }
}

/* The arguments for widened heads. */
static spry_attend widen_arguments(const spry_attend *a)
{
    spry_attend wide = *a;
    wide.token_bytes = a->head_dim / SCALE_BLOCK * sizeof(spry_block_q8_0);
    return wide;
}

/* True if the plain kernel must be used: the head size is not a multiple of the vector size, values are a part of keys,
 * or the type is another one. The choice depends on the model and the type alone. */
static bool attends_plainly(const spry_attend *a)
{
    bool known = a->type == SPRY_F32 || a->type == SPRY_F16 || a->type == SPRY_Q8_0 || a->type == SPRY_Q4_0;
    return a->head_dim % LANES || a->latent || !known;
}

static void OP(attend)(const spry_attend *a, size_t kv_begin, size_t kv_end)
{
    if (attends_plainly(a))
        spry_ref_attend(a, kv_begin, kv_end);
    else if (a->type == SPRY_F32)
        attend_tiles(a, kv_begin, kv_end, attend_F32);
    else if (a->type == SPRY_F16)
        attend_tiles(a, kv_begin, kv_end, attend_F16);
    else if (a->type == SPRY_Q8_0)
        attend_tiles(a, kv_begin, kv_end, attend_Q8_0);
    else {
        const spry_attend wide = widen_arguments(a);
        attend_tiles(&wide, kv_begin, kv_end, attend_Q4_0);
    }
}

static void OP(attend_join)(const spry_attend *a, const spry_attend_parts *parts, size_t kv_head)
{
    if (attends_plainly(a)) {
        spry_ref_attend_join(a, parts, kv_head);
        return;
    }
    for (size_t query = 0; query < a->n_rows * a->group; query++) {
        size_t row = query / a->group, head = kv_head * a->group + query % a->group;
        float max = a->sinks ? a->sinks[head] : -INFINITY, sum = a->sinks ? 1 : 0;
        size_t offset = row * a->row_stride + head * a->head_dim;
        memset(a->out + offset, 0, a->head_dim * sizeof(float));
        for (size_t i = 0; i < parts->n; i++) {
            const float *state = parts->states + i * parts->n_states + row * a->state_stride + 2 * head;
            join_chunk(a->out + offset, &max, &sum, parts->sums + i * parts->n_sums + offset, state[0], state[1],
                       a->head_dim);
        }
        divide_by(a->out + offset, sum, a);
    }
}
