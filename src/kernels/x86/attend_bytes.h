/* Attention over Q8_0 and Q4_0 pages by integer products, for AVX-512 with VNNI. Scores: queries are encoded as
 * activations are (act.h), so a block of 32 coordinates is exact in integers, and one fused addition per block rounds.
 * Sums of values: a page's weights, times the scales of a block of values, are rounded to integers of 14 bits with a
 * common power of two, so that sums over the page's tokens are exact. Include after simd_attend.h. */
#include <immintrin.h>
#include <stddef.h>
#include <string.h>

#include "kernels/act.h"
#include "kernels/ops.h"

enum { BYTE_VALUES = 4, WEIGHT_BITS = 14, HEAD_BLOCKS_MAX = SPRY_ATTEND_HEAD_DIM_MAX / SCALE_BLOCK };

static void OP(encode_act)(spry_act_block *out, const float *in, size_t n);

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* Interleaves four coordinates of 32 tokens into four vectors in which the coordinates of a token are adjacent. The
 * vectors hold tokens 0.. and 16.., 4.. and 20.., 8.. and 24.., 12.. and 28... */
SPRY_INLINE void interleave_rows(__m256i out[4], __m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i ab_low = _mm256_unpacklo_epi8(a, b), ab_high = _mm256_unpackhi_epi8(a, b);
    __m256i cd_low = _mm256_unpacklo_epi8(c, d), cd_high = _mm256_unpackhi_epi8(c, d);
    out[0] = _mm256_unpacklo_epi16(ab_low, cd_low);
    out[1] = _mm256_unpackhi_epi16(ab_low, cd_low);
    out[2] = _mm256_unpacklo_epi16(ab_high, cd_high);
    out[3] = _mm256_unpackhi_epi16(ab_high, cd_high);
}

/* The same for coordinates with a sign, to which 128 is added. */
SPRY_INLINE void interleave_keys(__m256i out[4], const unsigned char *keys)
{
    const __m256i flip = _mm256_set1_epi8(-128), *rows = (const __m256i *)(const void *)keys;
    __m256i a = _mm256_xor_si256(_mm256_loadu_si256(rows), flip);
    __m256i b = _mm256_xor_si256(_mm256_loadu_si256(rows + 1), flip);
    __m256i c = _mm256_xor_si256(_mm256_loadu_si256(rows + 2), flip);
    __m256i d = _mm256_xor_si256(_mm256_loadu_si256(rows + 3), flip);
    interleave_rows(out, a, b, c, d);
}

/* Puts the sums of those four vectors into the order of tokens, as floats. */
SPRY_INLINE void order_sums(vec out[2], const __m256i sum[4])
{
    __m512i early = _mm512_inserti64x4(_mm512_castsi256_si512(sum[0]), sum[1], 1);
    __m512i late = _mm512_inserti64x4(_mm512_castsi256_si512(sum[2]), sum[3], 1);
    out[0] = _mm512_cvtepi32_ps(_mm512_shuffle_i32x4(early, late, 0x88));
    out[1] = _mm512_cvtepi32_ps(_mm512_shuffle_i32x4(early, late, 0xdd));
}

/* Products of a block of coordinates of all the page's tokens with n queries, without scales. Prefetches for the next
 * page (with `ahead`) are spread over the calls, because many at once delay the loads after them. */
SPRY_INLINE void dot_block(vec out[][2], const attend_tile *t, const unsigned char *keys,
                           const spry_act_block *const query[], int n, bool ahead)
{
    __m256i sum[SCORE_QUERIES][4], quad[4];
    for (int q = 0; q < n; q++)
        for (int i = 0; i < 4; i++) /* subtracts what the 128 added to each key contributes */
            sum[q][i] = _mm256_set1_epi32(16 * query[q]->minus_8_sum);
    SPRY_UNROLL(8)
    for (int d = 0; d < SPRY_ACT_BLOCK; d += 4) {
        if (ahead)
            prefetch_next(t, keys + d * SPRY_PAGE_TOKENS, 4 * SPRY_PAGE_TOKENS);
        interleave_keys(quad, keys + d * SPRY_PAGE_TOKENS);
        for (int q = 0; q < n; q++) {
            int32_t four;
            memcpy(&four, query[q]->values + d, sizeof four);
            for (int i = 0; i < 4; i++)
                sum[q][i] = _mm256_dpbusd_epi32(sum[q][i], quad[i], _mm256_set1_epi32(four));
        }
    }
    for (int q = 0; q < n; q++)
        order_sums(out[q], sum[q]);
}

/* Does what dot_block does, for nibbles: a byte holds the coordinates i and i + 16 of a token. */
SPRY_INLINE void dot_nibbles(vec out[][2], const attend_tile *t, const unsigned char *keys,
                             const spry_act_block *const query[], int n, bool ahead)
{
    const __m256i mask = _mm256_set1_epi8(15), *rows = (const __m256i *)(const void *)keys;
    __m256i sum[SCORE_QUERIES][4];
    for (int q = 0; q < n; q++)
        for (int i = 0; i < 4; i++) /* subtracts what the 8 added to each key contributes */
            sum[q][i] = _mm256_set1_epi32(query[q]->minus_8_sum);
    SPRY_UNROLL(4)
    for (int d = 0; d < SPRY_ACT_BLOCK / 2; d += 4, rows += 4) {
        __m256i quad[4];
        if (ahead)
            prefetch_next(t, keys + d * SPRY_PAGE_TOKENS, 4 * SPRY_PAGE_TOKENS);
        interleave_rows(quad, _mm256_loadu_si256(rows), _mm256_loadu_si256(rows + 1), _mm256_loadu_si256(rows + 2),
                        _mm256_loadu_si256(rows + 3));
        for (int q = 0; q < n; q++) {
            int32_t low, high;
            memcpy(&low, query[q]->values + d, sizeof low);
            memcpy(&high, query[q]->values + d + SPRY_ACT_BLOCK / 2, sizeof high);
            for (int i = 0; i < 4; i++) {
                __m256i upper = _mm256_and_si256(_mm256_srli_epi16(quad[i], 4), mask);
                sum[q][i] = _mm256_dpbusd_epi32(sum[q][i], _mm256_and_si256(quad[i], mask), _mm256_set1_epi32(low));
                sum[q][i] = _mm256_dpbusd_epi32(sum[q][i], upper, _mm256_set1_epi32(high));
            }
        }
    }
    for (int q = 0; q < n; q++)
        order_sums(out[q], sum[q]);
}

static void encode_queries(attend_tile *t)
{
    size_t head_dim = t->a->head_dim;
    for (size_t i = 0; i < t->n; i++)
        OP(encode_act)(t->encoded + i * (head_dim / SPRY_ACT_BLOCK), t->query[i], head_dim);
}

/* Does what score_queries does, for Q8_0 or Q4_0 keys and encoded queries. */
SPRY_INLINE void score_bytes(attend_tile *t, spry_dtype type, const unsigned char *keys, size_t first, int n)
{
    const size_t row_bytes = type == SPRY_Q4_0 ? SPRY_PAGE_TOKENS / 2 : SPRY_PAGE_TOKENS; /* of one coordinate */
    vec sum[SCORE_QUERIES][KEY_VECTORS], part[SCORE_QUERIES][KEY_VECTORS], scale = v_set(t->a->scale);
    size_t blocks = t->a->head_dim / SPRY_ACT_BLOCK;
    const uint16_t *scales = (const uint16_t *)(const void *)(keys + t->a->head_dim * row_bytes);
    for (int q = 0; q < n; q++)
        for (int v = 0; v < KEY_VECTORS; v++)
            sum[q][v] = v_set(0);
    for (size_t b = 0; b < blocks; b++, scales += SPRY_PAGE_TOKENS) {
        const unsigned char *block = keys + b * SPRY_ACT_BLOCK * row_bytes;
        const spry_act_block *query[SCORE_QUERIES];
        for (int q = 0; q < n; q++)
            query[q] = &t->encoded[(first + (size_t)q) * blocks + b];
        bool ahead = first % t->per_head == 0;
        if (ahead)
            prefetch_next(t, (const unsigned char *)scales, SPRY_PAGE_TOKENS * sizeof *scales);
        if (type == SPRY_Q4_0)
            dot_nibbles(part, t, block, query, n, ahead);
        else
            dot_block(part, t, block, query, n, ahead);
        for (int v = 0; v < KEY_VECTORS; v++) {
            vec key_scale = v_load_f16(scales + v * LANES);
            for (int q = 0; q < n; q++)
                sum[q][v] = v_fma(part[q][v], v_mul(key_scale, v_set(query[q]->scale)), sum[q][v]);
        }
    }
    for (int q = 0; q < n; q++)
        for (int v = 0; v < KEY_VECTORS; v++)
            v_store(t->score[first + (size_t)q] + v * LANES, v_mul(sum[q][v], scale));
}

/* Scores queries [i, end), which belong to one head. */
SPRY_INLINE void score_head_bytes(attend_tile *t, spry_dtype type, const unsigned char *keys, size_t i, size_t end)
{
    for (; i + 4 <= end; i += 4)
        score_bytes(t, type, keys, i, 4);
    for (; i + 2 <= end; i += 2)
        score_bytes(t, type, keys, i, 2);
    for (; i < end; i++)
        score_bytes(t, type, keys, i, 1);
}

/* ---- sums of values ---------------------------------------------------------------------------------------------- */

/* Collects the scales of a page's values: [blocks, tokens]. */
static void gather_scales(float out[][SPRY_PAGE_TOKENS], const attend_tile *t, const unsigned char *values,
                          size_t block_bytes)
{
    size_t blocks = t->a->head_dim / SCALE_BLOCK, stride = t->a->token_bytes;
    for (size_t b = 0; b < blocks; b++, values += block_bytes) {
        uint64_t fours[SPRY_PAGE_TOKENS / 4];
        const unsigned char *at = values;
        SPRY_UNROLL(8)
        for (size_t i = 0; i < SPRY_PAGE_TOKENS / 4; i++, at += 4 * stride) {
            uint16_t half[4];
            for (size_t k = 0; k < 4; k++)
                memcpy(&half[k], at + k * stride, sizeof half[k]);
            fours[i] = (uint64_t)half[0] | (uint64_t)half[1] << 16 | (uint64_t)half[2] << 32 | (uint64_t)half[3] << 48;
        }
        for (int v = 0; v < KEY_VECTORS; v++) {
            const uint64_t *f = fours + 4 * v;
            __m256i halves = _mm256_set_epi64x((long long)f[3], (long long)f[2], (long long)f[1], (long long)f[0]);
            v_store(out[b] + v * LANES, _mm512_cvtph_ps(halves));
        }
    }
}

/* Computes integer weights of a query for the values of one block; returns the factor for the sums. A scale of 11 bits
 * with a weight of 1 is exact. Slots that the query does not see get 0, whatever they contain. */
SPRY_INLINE float encode_weights(int16_t out[SPRY_PAGE_TOKENS], const attend_tile *t, size_t i, const float *scales)
{
    vec w[KEY_VECTORS], top = v_set(0x1p-100f); /* smaller scores contribute nothing */
    for (int v = 0; v < KEY_VECTORS; v++) {
        w[v] = v_mul(v_load(t->score[i] + v * LANES), v_load(scales + v * LANES));
        if (t->to[i] - t->from[i] != SPRY_PAGE_TOKENS)
            w[v] = v_select_range(w[v], v_set(0), v * LANES, t->from[i], t->to[i]);
        top = v_max(top, _mm512_abs_ps(w[v]));
    }
    vec power = v_sub(v_set(WEIGHT_BITS - 1), _mm512_getexp_ps(v_set(v_largest(top))));
    for (int v = 0; v < KEY_VECTORS; v++) {
        __m512i whole = _mm512_cvtps_epi32(v_scale2(w[v], power));
        _mm256_storeu_si256((__m256i *)(void *)out + v, _mm512_cvtsepi32_epi16(whole));
    }
    return _mm512_cvtss_f32(v_scale2(v_set(1), v_sub(v_set(0), power)));
}

/* The largest value of each of four vectors, in all lanes of a quarter. */
SPRY_INLINE vec largest_of_four(const vec x[4])
{
    vec a = v_max(_mm512_shuffle_f32x4(x[0], x[1], 0x44), _mm512_shuffle_f32x4(x[0], x[1], 0xee));
    vec b = v_max(_mm512_shuffle_f32x4(x[2], x[3], 0x44), _mm512_shuffle_f32x4(x[2], x[3], 0xee));
    vec all = v_max(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    all = v_max(all, _mm512_permute_ps(all, 0x4e));
    return v_max(all, _mm512_permute_ps(all, 0xb1));
}

/* One quarter of a vector, repeated four times. */
SPRY_INLINE vec repeat_quarter(vec x, int quarter)
{
    return quarter == 0   ? _mm512_shuffle_f32x4(x, x, 0x00)
           : quarter == 1 ? _mm512_shuffle_f32x4(x, x, 0x55)
           : quarter == 2 ? _mm512_shuffle_f32x4(x, x, 0xaa)
                          : _mm512_shuffle_f32x4(x, x, 0xff);
}

/* Does what encode_weights does, for four blocks at once. */
SPRY_INLINE void encode_four(int16_t out[][SPRY_PAGE_TOKENS], float factor[], const attend_tile *t, size_t i,
                             float scales[][SPRY_PAGE_TOKENS])
{
    enum { BLOCKS = 4, SIZES = 0x0b /* the larger absolute value, without its sign */ };
    const __m512i tokens = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    const __m512i quarters = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
    vec w[BLOCKS][KEY_VECTORS], top[BLOCKS];
    for (int b = 0; b < BLOCKS; b++) {
        for (int v = 0; v < KEY_VECTORS; v++) {
            w[b][v] = v_mul(v_load(t->score[i] + v * LANES), v_load(scales[b] + v * LANES));
            if (t->to[i] - t->from[i] != SPRY_PAGE_TOKENS)
                w[b][v] = v_select_range(w[b][v], v_set(0), v * LANES, t->from[i], t->to[i]);
        }
        top[b] = _mm512_range_ps(w[b][0], w[b][1], SIZES);
    }
    vec largest = v_max(largest_of_four(top), v_set(0x1p-100f));
    vec power = v_sub(v_set(WEIGHT_BITS - 1), _mm512_getexp_ps(largest));
    for (int b = 0; b < BLOCKS; b++) {
        vec own = repeat_quarter(power, b);
        __m512i low = _mm512_cvtps_epi32(v_scale2(w[b][0], own)), high = _mm512_cvtps_epi32(v_scale2(w[b][1], own));
        _mm512_storeu_si512(out[b], _mm512_permutexvar_epi64(tokens, _mm512_packs_epi32(low, high)));
    }
    vec factors = _mm512_permutexvar_ps(quarters, v_scale2(v_set(1), v_sub(v_set(0), power)));
    _mm_storeu_ps(factor, _mm512_castps512_ps128(factors));
}

/* Adds the sums of a block in the order of coordinates; `low` has the sums of coordinates 0.. and 16.., `high` those of
 * 8.. and 24..., of Q4_0 those of load_token_pairs. */
SPRY_INLINE void add_sums(float *out, spry_dtype type, __m512i low, __m512i high, float factor)
{
    bool ordered = type == SPRY_Q4_0;
    __m512i first = ordered ? low : _mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1);
    __m512i second = ordered ? high : _mm512_shuffle_i64x2(low, high, 0xee);
    v_store(out, v_fma(_mm512_cvtepi32_ps(first), v_set(factor), v_load(out)));
    v_store(out + LANES, v_fma(_mm512_cvtepi32_ps(second), v_set(factor), v_load(out + LANES)));
}

typedef struct byte_weights {
    int16_t weights[BYTE_VALUES][HEAD_BLOCKS_MAX][SPRY_PAGE_TOKENS];
    float factor[BYTE_VALUES][HEAD_BLOCKS_MAX];
} byte_weights;

/* Loads a block of two tokens' values as pairs of 16-bit integers: coordinates 0.. and 16.. in `low` and 8.. and 24..
 * in `high`; of Q4_0 coordinates 0.. and 16... */
SPRY_INLINE void load_token_pairs(__m512i *low, __m512i *high, spry_dtype type, const unsigned char *bytes,
                                  size_t stride)
{
    if (type == SPRY_Q4_0) {
        const __m256i mask = _mm256_set1_epi8(15), eight = _mm256_set1_epi8(8);
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)bytes);
        __m128i y = _mm_loadu_si128((const __m128i *)(const void *)(bytes + stride));
        __m256i both = _mm256_set_m128i(_mm_unpackhi_epi8(x, y), _mm_unpacklo_epi8(x, y));
        __m256i upper = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
        *low = _mm512_cvtepi8_epi16(_mm256_sub_epi8(_mm256_and_si256(both, mask), eight));
        *high = _mm512_cvtepi8_epi16(_mm256_sub_epi8(upper, eight));
        return;
    }
    __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)bytes);
    __m256i y = _mm256_loadu_si256((const __m256i *)(const void *)(bytes + stride));
    *low = _mm512_cvtepi8_epi16(_mm256_unpacklo_epi8(x, y));
    *high = _mm512_cvtepi8_epi16(_mm256_unpackhi_epi8(x, y));
}

SPRY_INLINE size_t value_block_bytes(spry_dtype type)
{
    return type == SPRY_Q4_0 ? sizeof(spry_block_q4_0) : sizeof(spry_block_q8_0);
}

/* Adds blocks [block, block + n_blocks) of a page's values to the sums of n queries. */
SPRY_INLINE void add_bytes(attend_tile *t, spry_dtype type, const unsigned char *values, const byte_weights *w,
                           size_t first, int n, size_t block, int n_blocks)
{
    __m512i sum[BYTE_VALUES][BYTE_VALUES][2];
    size_t stride = t->a->token_bytes, block_bytes = value_block_bytes(type);
    const unsigned char *at = values + block * block_bytes + offsetof(spry_block_q8_0, quants); /* or low, of Q4_0 */
    for (int q = 0; q < n; q++)
        for (int b = 0; b < n_blocks; b++)
            sum[q][b][0] = sum[q][b][1] = _mm512_setzero_si512();
    bool ahead = block == 0 && first % t->per_head == 0;
    SPRY_UNROLL(4)
    for (size_t token = 0; token < SPRY_PAGE_TOKENS; token += 2, at += 2 * stride) {
        if (ahead)
            prefetch_next(t, values + token * stride, 2 * stride);
        for (int b = 0; b < n_blocks; b++) {
            __m512i low, high;
            load_token_pairs(&low, &high, type, at + (size_t)b * block_bytes, stride);
            for (int q = 0; q < n; q++) {
                int32_t two;
                memcpy(&two, &w->weights[q][block + (size_t)b][token], sizeof two);
                sum[q][b][0] = _mm512_dpwssd_epi32(sum[q][b][0], low, _mm512_set1_epi32(two));
                sum[q][b][1] = _mm512_dpwssd_epi32(sum[q][b][1], high, _mm512_set1_epi32(two));
            }
        }
    }
    for (int q = 0; q < n; q++)
        for (int b = 0; b < n_blocks; b++)
            add_sums(t->part[first + (size_t)q] + (block + (size_t)b) * SCALE_BLOCK, type, sum[q][b][0], sum[q][b][1],
                     w->factor[q][block + (size_t)b]);
}

SPRY_INLINE void add_bytes_of(attend_tile *t, spry_dtype type, const unsigned char *values,
                              float scales[][SPRY_PAGE_TOKENS], size_t first, int n)
{
    byte_weights w;
    size_t b = 0, blocks = t->a->head_dim / SCALE_BLOCK;
    const int most = n > 2 ? 2 : BYTE_VALUES; /* at most as many that the sums stay in registers */
    for (int q = 0; q < n; q++) {
        for (b = 0; b + 4 <= blocks; b += 4)
            encode_four(w.weights[q] + b, w.factor[q] + b, t, first + (size_t)q, scales + b);
        for (; b < blocks; b++)
            w.factor[q][b] = encode_weights(w.weights[q][b], t, first + (size_t)q, scales[b]);
    }
    for (b = 0; b + (size_t)most <= blocks; b += (size_t)most)
        add_bytes(t, type, values, &w, first, n, b, most);
    for (; b < blocks; b++)
        add_bytes(t, type, values, &w, first, n, b, 1);
}

SPRY_INLINE void add_head_bytes(attend_tile *t, spry_dtype type, const unsigned char *values, size_t i, size_t end)
{
    _Alignas(CACHE_LINE) float scales[HEAD_BLOCKS_MAX][SPRY_PAGE_TOKENS];
    gather_scales(scales, t, values, value_block_bytes(type));
    for (; i + BYTE_VALUES <= end; i += BYTE_VALUES)
        add_bytes_of(t, type, values, scales, i, BYTE_VALUES);
    for (; i + 2 <= end; i += 2)
        add_bytes_of(t, type, values, scales, i, 2);
    for (; i < end; i++)
        add_bytes_of(t, type, values, scales, i, 1);
}

SPRY_INLINE void attend_blocks(attend_tile *t, spry_dtype type, const spry_kv_entry *entry, const spry_kv_entry *next)
{
    bool same;
    const unsigned char *page = enter_page(t, entry, next, &same);
    if (!page)
        return;
    if (t->fresh)
        encode_queries(t);
    t->fresh = false;
    const unsigned char *keys = page + t->a->key_offset, *values = page + t->a->value_offset;
    for (size_t h = 0; h < t->n_heads; h++)
        score_head_bytes(t, type, keys + h * t->a->head_bytes, h * t->per_head, (h + 1) * t->per_head);
    for (size_t i = 0; i < t->n; i++)
        if (t->from[i] < t->to[i])
            weigh_query(t, i, store_floats);
    for (size_t h = 0; h < t->n_heads; h++)
        add_head_bytes(t, type, values + h * t->a->head_bytes, h * t->per_head, (h + 1) * t->per_head);
}

static void attend_quants(attend_tile *t, const spry_kv_entry *entry, const spry_kv_entry *next)
{
    attend_blocks(t, SPRY_Q8_0, entry, next);
}

static void attend_nibbles(attend_tile *t, const spry_kv_entry *entry, const spry_kv_entry *next)
{
    attend_blocks(t, SPRY_Q4_0, entry, next);
}

static void OP(attend_bytes)(const spry_attend *a, size_t kv_begin, size_t kv_end)
{
    if (attends_plainly(a) || (a->type != SPRY_Q8_0 && a->type != SPRY_Q4_0))
        OP(attend)(a, kv_begin, kv_end);
    else
        attend_tiles(a, kv_begin, kv_end, a->type == SPRY_Q8_0 ? attend_quants : attend_nibbles);
}
