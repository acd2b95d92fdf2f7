/* Attention over F16 pages with products of bfloat16 pairs (AVX512_BF16): queries, keys, weights and values are rounded
 * to bfloat16, sums are floats. A page is converted once for all queries of a tile. Include after attend_bytes.h.
 *
 * Invariance: a page that a query sees is added whole, in pairs of tokens; slots that the page's entry does not cover
 * count as zeros, and slots that a query does not see have a weight of zero. */
#include <immintrin.h>
#include <string.h>

enum { PAGE_PAIRS = SPRY_PAGE_TOKENS / 2, HALF_QUERIES = 8, HALF_VALUES = 4, HALF_VECTORS = 4 };

/* Rounds two vectors to bfloat16 and interleaves them: lane i of both becomes pair i. */
SPRY_INLINE __m512i pair_floats(vec first, vec second)
{
    static const uint16_t order[2 * LANES] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                              8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), (__m512i)_mm512_cvtne2ps_pbh(second, first));
}

/* Stores the tile's queries as pairs of coordinates: [head_dim / 2, n]. */
static void pair_queries(attend_tile *t)
{
    for (size_t i = 0; i < t->n; i++)
        for (size_t d = 0; d < t->a->head_dim; d += LANES) {
            uint32_t pairs[LANES / 2];
            _mm256_storeu_si256((__m256i *)(void *)pairs, (__m256i)_mm512_cvtneps_pbh(v_load(t->query[i] + d)));
            for (size_t p = 0; p < LANES / 2; p++)
                t->pairs[(d / 2 + p) * t->n + i] = pairs[p];
        }
}

/* Loads keys of coordinates d and d + 1, vector v, as pairs. */
SPRY_INLINE __m512i load_key_pairs(const unsigned char *keys, size_t d, int v)
{
    const uint16_t *first = (const uint16_t *)(const void *)keys + d * SPRY_PAGE_TOKENS + (size_t)v * LANES;
    return pair_floats(v_load_f16(first), v_load_f16(first + SPRY_PAGE_TOKENS));
}

SPRY_INLINE void prefetch_keys(const attend_tile *t, const unsigned char *keys, size_t d)
{
    enum { COORDINATE = SPRY_PAGE_TOKENS * sizeof(uint16_t) };
    prefetch_next(t, keys + d * COORDINATE, 2 * COORDINATE);
}

/* Stores a page's keys as pairs of coordinates: [head_dim / 2, tokens, 2]. */
SPRY_INLINE void pair_keys(uint32_t *out, const attend_tile *t, const unsigned char *keys)
{
    for (size_t d = 0; d < t->a->head_dim; d += 2) {
        prefetch_keys(t, keys, d);
        for (int v = 0; v < KEY_VECTORS; v++, out += LANES)
            _mm512_storeu_si512(out, load_key_pairs(keys, d, v));
    }
}

/* Stores the values of tokens [from, to), with zeros for other tokens, as pairs of tokens: [pairs, head_dim, 2].
 * Returns true if all are finite. */
SPRY_INLINE bool pair_values(uint32_t *out, const attend_tile *t, const unsigned char *values, int from, int to)
{
    size_t head_dim = t->a->head_dim, stride = t->a->token_bytes;
    __m512i largest = _mm512_setzero_si512();
    for (int token = 0; token < SPRY_PAGE_TOKENS; token += 2) {
        const unsigned char *bytes = values + (size_t)token * stride;
        __mmask16 first = token >= from && token < to ? 0xffff : 0;
        __mmask16 second = token + 1 >= from && token + 1 < to ? 0xffff : 0;
        prefetch_next(t, bytes, 2 * stride);
        for (size_t d = 0; d < head_dim; d += LANES, out += LANES) {
            __m256i x = _mm256_maskz_loadu_epi16(first, (const uint16_t *)(const void *)bytes + d);
            __m256i y = _mm256_maskz_loadu_epi16(second, (const uint16_t *)(const void *)(bytes + stride) + d);
            __m512i pairs = pair_floats(_mm512_cvtph_ps(x), _mm512_cvtph_ps(y));
            largest = _mm512_max_epu16(largest, _mm512_add_epi16(pairs, pairs)); /* doubling removes the sign */
            _mm512_storeu_si512(out, pairs);
        }
    }
    return _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16((short)0xff00)) == 0; /* the exponent of infinities and
                                                                                     * NaN */
}

/* Dot products of n queries with all slots of a page, times the scale. `pairs`: the keys from pair_keys, or NULL:
 * `keys` are converted here. */
SPRY_INLINE void score_pairs(attend_tile *t, const uint32_t *pairs, const unsigned char *keys, size_t first, int n)
{
    vec sum[HALF_QUERIES][KEY_VECTORS], scale = v_set(t->a->scale);
    const uint32_t *query = t->pairs + first;
    for (int q = 0; q < n; q++)
        for (int v = 0; v < KEY_VECTORS; v++)
            sum[q][v] = v_set(0);
    for (size_t d = 0; d < t->a->head_dim; d += 2, query += t->n) {
        __m512i key[KEY_VECTORS];
        if (!pairs)
            prefetch_keys(t, keys, d);
        for (int v = 0; v < KEY_VECTORS; v++)
            key[v] =
                pairs ? _mm512_loadu_si512(pairs + d / 2 * SPRY_PAGE_TOKENS + v * LANES) : load_key_pairs(keys, d, v);
        for (int q = 0; q < n; q++) {
            __m512bh pair = (__m512bh)_mm512_set1_epi32((int)query[q]);
            for (int v = 0; v < KEY_VECTORS; v++)
                sum[q][v] = _mm512_dpbf16_ps(sum[q][v], (__m512bh)key[v], pair);
        }
    }
    for (int q = 0; q < n; q++)
        for (int v = 0; v < KEY_VECTORS; v++)
            v_store(t->score[first + (size_t)q] + v * LANES, v_mul(sum[q][v], scale));
}

/* Stores weights over the scores, two bytes each. */
SPRY_INLINE vec store_halves(attend_tile *t, size_t i, int v, vec weights)
{
    __m256i halves = (__m256i)_mm512_cvtneps_pbh(weights);
    _mm256_storeu_si256((__m256i *)(void *)t->score[i] + v, halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* Loads the values of two tokens from coordinate d on, as pairs. */
SPRY_INLINE __m512i load_value_pairs(const unsigned char *tokens, size_t stride, size_t d)
{
    return pair_floats(v_load_f16((const uint16_t *)(const void *)tokens + d),
                       v_load_f16((const uint16_t *)(const void *)(tokens + stride) + d));
}

/* Adds a page's values to n_vectors of the sums of n queries. `pairs`: the values from pair_values; or NULL: `values`
 * are converted here, and the queries see all of the page. */
SPRY_INLINE void add_pairs(attend_tile *t, const uint32_t *pairs, const unsigned char *values, size_t first, int n,
                           size_t d, int n_vectors)
{
    vec sum[HALF_VALUES][HALF_VECTORS];
    size_t stride = t->a->token_bytes;
    for (int q = 0; q < n; q++)
        for (int v = 0; v < n_vectors; v++)
            sum[q][v] = v_load(t->part[first + (size_t)q] + d + (size_t)v * LANES);
    for (size_t pair = 0; pair < PAGE_PAIRS; pair++) {
        __m512i value[HALF_VECTORS];
        if (!pairs)
            for (size_t i = 0; i < 2; i++)
                prefetch_next(t, values + (2 * pair + i) * stride + d * sizeof(uint16_t),
                              (size_t)n_vectors * LANES * sizeof(uint16_t));
        for (int v = 0; v < n_vectors; v++) {
            size_t at = d + (size_t)v * LANES;
            value[v] = pairs ? _mm512_loadu_si512(pairs + pair * t->a->head_dim + at)
                             : load_value_pairs(values + 2 * pair * stride, stride, at);
        }
        for (int q = 0; q < n; q++) {
            int weights;
            memcpy(&weights, t->score[first + (size_t)q] + pair, sizeof weights);
            for (int v = 0; v < n_vectors; v++)
                sum[q][v] = _mm512_dpbf16_ps(sum[q][v], (__m512bh)value[v], (__m512bh)_mm512_set1_epi32(weights));
        }
    }
    for (int q = 0; q < n; q++)
        for (int v = 0; v < n_vectors; v++)
            v_store(t->part[first + (size_t)q] + d + (size_t)v * LANES, sum[q][v]);
}

SPRY_INLINE void add_pairs_of(attend_tile *t, const uint32_t *pairs, const unsigned char *values, size_t first, int n)
{
    size_t d = 0, head_dim = t->a->head_dim;
    for (; d + HALF_VECTORS * LANES <= head_dim; d += HALF_VECTORS * LANES)
        add_pairs(t, pairs, values, first, n, d, HALF_VECTORS);
    for (; d < head_dim; d += LANES)
        add_pairs(t, pairs, values, first, n, d, 1);
}

/* Scores queries [i, end) of a head with keys that are converted once; the queries see some of the page. */
static void score_converted(attend_tile *t, const unsigned char *keys, size_t i, size_t end)
{
    _Alignas(CACHE_LINE) uint32_t pairs[PAGE_PAIRS * SPRY_ATTEND_HEAD_DIM_MAX];
    pair_keys(pairs, t, keys);
    for (; i + HALF_QUERIES <= end; i += HALF_QUERIES)
        score_pairs(t, pairs, NULL, i, HALF_QUERIES);
    for (; i + 2 <= end; i += 2)
        score_pairs(t, pairs, NULL, i, 2);
    for (; i < end; i++)
        score_pairs(t, pairs, NULL, i, 1);
}

static void add_converted(attend_tile *t, const unsigned char *values, size_t i, size_t end)
{
    _Alignas(CACHE_LINE) uint32_t pairs[PAGE_PAIRS * SPRY_ATTEND_HEAD_DIM_MAX];
    int from = SPRY_PAGE_TOKENS, to = 0;
    for (size_t q = i; q < end; q++) {
        from = t->from[q] < from ? t->from[q] : from;
        to = t->to[q] > to ? t->to[q] : to;
    }
    /* A weight of 0 times an infinity or a NaN is not 0, so values that are not finite need more care. */
    bool finite = pair_values(pairs, t, values, from, to);
    for (; finite && i + HALF_VALUES <= end; i += HALF_VALUES)
        add_pairs_of(t, pairs, NULL, i, HALF_VALUES);
    for (; i < end; i++) {
        if (!finite)
            pair_values(pairs, t, values, t->from[i], t->to[i]);
        add_pairs_of(t, pairs, NULL, i, 1);
    }
}

/* `whole`: the head's queries see all of the page. With few queries the converted pairs stay in registers. */
SPRY_INLINE void score_halves(attend_tile *t, const unsigned char *keys, size_t begin, size_t end, bool whole)
{
    if (whole && end - begin == 4)
        score_pairs(t, NULL, keys, begin, 4);
    else if (whole && end - begin == 2)
        score_pairs(t, NULL, keys, begin, 2);
    else if (whole && end - begin == 1)
        score_pairs(t, NULL, keys, begin, 1);
    else
        score_converted(t, keys, begin, end);
}

SPRY_INLINE void add_halves(attend_tile *t, const unsigned char *values, size_t begin, size_t end, bool whole)
{
    if (whole && end - begin == 4)
        add_pairs_of(t, NULL, values, begin, 4);
    else if (whole && end - begin == 2)
        add_pairs_of(t, NULL, values, begin, 2);
    else if (whole && end - begin == 1)
        add_pairs_of(t, NULL, values, begin, 1);
    else
        add_converted(t, values, begin, end);
}

SPRY_INLINE void attend_halves(attend_tile *t, const spry_kv_entry *entry, const spry_kv_entry *next)
{
    bool same;
    const unsigned char *page = enter_page(t, entry, next, &same);
    if (!page)
        return;
    if (t->fresh)
        pair_queries(t);
    t->fresh = false;
    size_t begin = 0, end = t->per_head; /* rows are in ascending order, so the queries of a head that see the page are
                                          * adjacent */
    while (t->from[begin] == t->to[begin])
        begin++;
    while (t->from[end - 1] == t->to[end - 1])
        end--;
    bool whole = same && t->to[0] - t->from[0] == SPRY_PAGE_TOKENS;
    const unsigned char *keys = page + t->a->key_offset, *values = page + t->a->value_offset;
    for (size_t h = 0; h < t->n_heads; h++)
        score_halves(t, keys + h * t->a->head_bytes, h * t->per_head + begin, h * t->per_head + end, whole);
    for (size_t h = 0; h < t->n_heads; h++)
        for (size_t i = begin; i < end; i++)
            weigh_query(t, h * t->per_head + i, store_halves);
    for (size_t h = 0; h < t->n_heads; h++)
        add_halves(t, values + h * t->a->head_bytes, h * t->per_head + begin, h * t->per_head + end, whole);
}

static void OP(attend_bf16)(const spry_attend *a, size_t kv_begin, size_t kv_end)
{
    if (a->type != SPRY_F16 || attends_plainly(a))
        OP(attend_bytes)(a, kv_begin, kv_end);
    else
        attend_tiles(a, kv_begin, kv_end, attend_halves);
}
