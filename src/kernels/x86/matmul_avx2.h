/* Integer matrix products for AVX2: groups of 8 outputs (packed.h), a tile of up to 4 rows. maddubs multiplies four
 * neighbouring weights of 8 outputs, unsigned, by four activations and adds pairs in 16 bits; as many of them are added
 * there as cannot overflow (8 for 4 bits, 4 for 5, 2 for 6), then one widening madd. All exact; the only rounding is
 * one conversion and one fused addition per block, in the order of blocks, the same for any tile. */
#include <immintrin.h>
#include <string.h>

#include "kernels/ops.h"
#include "kernels/packed.h"

enum { GROUP = 8, INT_TILE_ROWS = 4, INT_ROW_BLOCK = 32 };

typedef struct wblock {
    __m256i quad[8];
    __m256 scale, min;
} wblock;

static inline __m256 halves(const unsigned char *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline __m256 bytes_u8(const unsigned char *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

static inline __m256 bytes_i8(const unsigned char *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

static inline __m256i low_nibbles(__m256i x)
{
    return _mm256_and_si256(x, _mm256_set1_epi8(15));
}

static inline __m256i high_nibbles(__m256i x)
{
    return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15));
}

static inline __m256i load32(const unsigned char *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

static inline __m256i four_values(const int8_t *values)
{
    int32_t four;
    memcpy(&four, values, 4);
    return _mm256_set1_epi32(four);
}

/* 16 in each byte whose bit is set in the mask */
static inline __m256i fifth_bits(const unsigned char *mask)
{
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    int32_t all;
    memcpy(&all, mask, 4);
    __m256i chosen = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(all), byte), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(chosen, bit), _mm256_set1_epi8(16));
}

/* The dot of n quads, `fit` of which can be added in 16 bits. */
SPRY_INLINE __m256i dot_quads(const __m256i *quad, const int8_t *values, int n, int fit)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum = _mm256_setzero_si256();
    for (int q = 0; q < n; q += fit) {
        __m256i pairs = _mm256_maddubs_epi16(quad[q], four_values(values + 4 * q));
        for (int i = 1; i < fit; i++)
            pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(quad[q + i], four_values(values + 4 * (q + i))));
        sum = q ? _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones)) : _mm256_madd_epi16(pairs, ones);
    }
    return sum;
}

/* The same for signed weights: their magnitude times activations that carry their sign. */
SPRY_INLINE __m256i dot_signed(const __m256i *quad, const int8_t *values)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum = _mm256_setzero_si256();
    for (int q = 0; q < 8; q++) {
        __m256i pairs =
            _mm256_maddubs_epi16(_mm256_abs_epi8(quad[q]), _mm256_sign_epi8(four_values(values + 4 * q), quad[q]));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    return sum;
}

SPRY_INLINE void load_small(wblock *w, spry_dtype type, const unsigned char *p)
{
    w->scale = halves(p);
    p += 2 * GROUP;
    if (type == SPRY_Q8_0) {
        for (int q = 0; q < 8; q++)
            w->quad[q] = _mm256_xor_si256(load32(p + 32 * q), _mm256_set1_epi8((char)0x80));
        return;
    }
    if (type == SPRY_Q4_1 || type == SPRY_Q5_1) {
        w->min = halves(p);
        p += 2 * GROUP;
    }
    const unsigned char *masks = p;
    if (type == SPRY_Q5_0 || type == SPRY_Q5_1)
        p += 4 * GROUP;
    for (int q = 0; q < 4; q++) {
        __m256i both = load32(p + 32 * q);
        w->quad[q] = low_nibbles(both);
        w->quad[q + 4] = high_nibbles(both);
    }
    for (int q = 0; (type == SPRY_Q5_0 || type == SPRY_Q5_1) && q < 8; q++)
        w->quad[q] = _mm256_or_si256(w->quad[q], fifth_bits(masks + 4 * q));
}

SPRY_INLINE void small_blocks(__m256 sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                              const spry_act_block *const act[], size_t n_in, int n_rows)
{
    bool has_min = type == SPRY_Q4_1 || type == SPRY_Q5_1, nibble = type == SPRY_Q4_0 || type == SPRY_Q4_1;
    for (size_t b = 0; b < n_in / 32; b++, p += spry_packed_row_bytes(type) * GROUP) {
        wblock w;
        load_small(&w, type, p);
        for (int r = 0; r < n_rows; r++) {
            const spry_act_block *a = act[r] + b;
            __m256i dot =
                type == SPRY_Q8_0 ? dot_signed(w.quad, a->values) : dot_quads(w.quad, a->values, 8, nibble ? 8 : 4);
            if (type == SPRY_Q4_0 || type == SPRY_Q5_0)
                dot = _mm256_add_epi32(dot, _mm256_slli_epi32(_mm256_set1_epi32(a->minus_8_sum), type == SPRY_Q5_0));
            sum[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(w.scale, _mm256_set1_ps(a->scale)), sum[r]);
            if (has_min)
                sum[r] = _mm256_fmadd_ps(w.min, _mm256_set1_ps(a->scaled_sum), sum[r]);
        }
    }
}

SPRY_INLINE void k45_blocks(__m256 sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                            const spry_act_block *const act[], size_t n_in, int n_rows)
{
    for (size_t b = 0; b < n_in / 32; b += 8, p += spry_packed_row_bytes(type) * GROUP) {
        __m256 scale = halves(p), min = _mm256_sub_ps(_mm256_setzero_ps(), halves(p + 2 * GROUP));
        const unsigned char *scales = p + 4 * GROUP, *minima = scales + 8 * GROUP, *low = minima + 8 * GROUP;
        const unsigned char *high = low + 4 * 8 * 32;
        for (size_t s = 0; s < 8; s++) {
            wblock w = {.scale = _mm256_mul_ps(scale, bytes_u8(scales + s * GROUP)),
                        .min = _mm256_mul_ps(min, bytes_u8(minima + s * GROUP))};
            for (int q = 0; q < 8; q++) {
                __m256i both = load32(low + s / 2 * 256 + 32 * (size_t)q);
                w.quad[q] = s % 2 ? high_nibbles(both) : low_nibbles(both);
                if (type == SPRY_Q5_K) {
                    __m256i bit = _mm256_set1_epi8((char)(1u << s));
                    __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(load32(high + 32 * q), bit), bit);
                    w.quad[q] = _mm256_or_si256(w.quad[q], _mm256_and_si256(set, _mm256_set1_epi8(16)));
                }
            }
            for (int r = 0; r < n_rows; r++) {
                const spry_act_block *a = act[r] + b + s;
                __m256 dot = _mm256_cvtepi32_ps(dot_quads(w.quad, a->values, 8, type == SPRY_Q4_K ? 8 : 4));
                sum[r] = _mm256_fmadd_ps(dot, _mm256_mul_ps(w.scale, _mm256_set1_ps(a->scale)), sum[r]);
                sum[r] = _mm256_fmadd_ps(w.min, _mm256_set1_ps(a->scaled_sum), sum[r]);
            }
        }
    }
}

SPRY_INLINE void add_q6(__m256 sum[INT_TILE_ROWS], const __m256i quad[8], __m256 first, __m256 second,
                        const spry_act_block *const act[], size_t b, int n_rows)
{
    for (int r = 0; r < n_rows; r++) {
        const spry_act_block *a = act[r] + b;
        __m256i left = _mm256_set1_epi32(-32 * a->half_sum[0]), right = _mm256_set1_epi32(-32 * a->half_sum[1]);
        __m256 one = _mm256_cvtepi32_ps(_mm256_add_epi32(dot_quads(quad, a->values, 4, 2), left));
        __m256 two = _mm256_cvtepi32_ps(_mm256_add_epi32(dot_quads(quad + 4, a->values + 16, 4, 2), right));
        __m256 both = _mm256_fmadd_ps(two, second, _mm256_mul_ps(one, first));
        sum[r] = _mm256_fmadd_ps(both, _mm256_set1_ps(a->scale), sum[r]);
    }
}

SPRY_INLINE void q6_blocks(__m256 sum[INT_TILE_ROWS], const unsigned char *p, const spry_act_block *const act[],
                           size_t n_in, int n_rows)
{
    for (size_t b = 0; b < n_in / 32; b += 8, p += spry_packed_row_bytes(SPRY_Q6_K) * GROUP) {
        __m256 scale = halves(p);
        const unsigned char *scales = p + 2 * GROUP;
        for (size_t s = 0; s < 8; s++) {
            /* Within a half of 128: blocks 0 and 1 in the low nibbles, 2 and 3 in the high ones; two bits each of
             * `high`. */
            const unsigned char *half = scales + 16 * GROUP + s / 4 * (24 * 32), *low = half + s % 2 * 256;
            const unsigned char *high = half + 16 * 32;
            __m256i quad[8];
            for (int q = 0; q < 8; q++) {
                __m256i both = load32(low + 32 * q), two = load32(high + 32 * q);
                __m256i nibble = s % 4 < 2 ? low_nibbles(both) : high_nibbles(both);
                __m256i bits = s % 4 == 0   ? _mm256_slli_epi16(two, 4)
                               : s % 4 == 1 ? _mm256_slli_epi16(two, 2)
                               : s % 4 == 2 ? two
                                            : _mm256_srli_epi16(two, 2);
                quad[q] = _mm256_or_si256(nibble, _mm256_and_si256(bits, _mm256_set1_epi8(0x30)));
            }
            add_q6(sum, quad, _mm256_mul_ps(scale, bytes_i8(scales + 2 * s * GROUP)),
                   _mm256_mul_ps(scale, bytes_i8(scales + (2 * s + 1) * GROUP)), act, b + s, n_rows);
        }
    }
}

/* For simd_integers.h: a group is one vector. */
typedef __m256 int_sum;

static inline int_sum int_zero(void)
{
    return _mm256_setzero_ps();
}

static inline void int_store(float *out, int_sum sum, size_t n_out)
{
    if (n_out == GROUP)
        v_store(out, sum);
    else
        v_store_part(out, sum, n_out);
}

SPRY_INLINE void int_blocks(int_sum sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                            const spry_act_block *const act[], size_t n_in, int n_rows)
{
    if (type == SPRY_Q6_K)
        q6_blocks(sum, p, act, n_in, n_rows);
    else if (type == SPRY_Q4_K || type == SPRY_Q5_K)
        k45_blocks(sum, type, p, act, n_in, n_rows);
    else
        small_blocks(sum, type, p, act, n_in, n_rows);
}
