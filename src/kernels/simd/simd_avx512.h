/* Sixteen floats at a time: AVX-512 (F, BW, DQ, VL). All simd_*.h define the same names, so that code over them is
 * written once for all instruction sets. */
#ifndef SPRY_KERNELS_SIMD_AVX512_H
#define SPRY_KERNELS_SIMD_AVX512_H

#include <immintrin.h>
#include <stdint.h>

enum {
    LANES = 16,
    /* register tiles: outputs x rows of a float product, queries of a score tile, queries x vectors of a value tile */
    TILE_OUTPUTS = 4,
    TILE_ROWS = 6,
    SCORE_QUERIES = 8,
    VALUE_QUERIES = 4,
    VALUE_VECTORS = 4
};

typedef __m512 vec;

static inline __mmask16 first_lanes(size_t n)
{
    return (__mmask16)((1u << n) - 1u);
}

static inline vec v_set(float x)
{
    return _mm512_set1_ps(x);
}
static inline vec v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
/* The first n lanes, zeros after them; n < LANES. */
static inline vec v_load_part(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
static inline void v_store(float *p, vec x)
{
    _mm512_storeu_ps(p, x);
}
static inline void v_store_part(float *p, vec x, size_t n)
{
    _mm512_mask_storeu_ps(p, first_lanes(n), x);
}
static inline vec v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
/* A half as a float, in every lane. */
static inline vec v_set_f16(uint16_t half)
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)half));
}
static inline vec v_load_f16_part(const uint16_t *p, size_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
/* Stores as halves, to any address, rounded to nearest, ties to even. */
static inline void v_store_f16(void *p, vec x)
{
    _mm256_storeu_si256(p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline vec v_load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline vec v_load_bf16_part(const uint16_t *p, size_t n)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n), p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
/* Loads 8-bit floats (e4m3, no NaN), times 2^-8: shifted left, their bits are halves; the sign, which the shift copies,
 * is masked out. */
static inline vec v_load_f8(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm512_cvtph_ps(_mm256_andnot_si256(_mm256_set1_epi16(0x4000), _mm256_slli_epi16(wide, 7)));
}
static inline vec v_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
/* The low and the high nibbles of 16 bytes, minus 8. */
static inline void v_split_nibbles(unsigned char *low, unsigned char *high, const unsigned char *from)
{
    const __m128i mask = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
    __m128i both = _mm_loadu_si128((const __m128i *)(const void *)from);
    _mm_storeu_si128((__m128i *)(void *)low, _mm_sub_epi8(_mm_and_si128(both, mask), eight));
    _mm_storeu_si128((__m128i *)(void *)high, _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(both, 4), mask), eight));
}
static inline vec v_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}
static inline vec v_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}
static inline vec v_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}
static inline vec v_div(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}
static inline vec v_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}
static inline vec v_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}
/* a * b + c, rounded once */
static inline vec v_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vec v_round(vec a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* x * 2^n for an integer n within a float's exponents */
static inline vec v_scale2(vec x, vec n)
{
    return _mm512_scalef_ps(x, n);
}
static inline float v_sum(vec a)
{
    return _mm512_reduce_add_ps(a);
}
static inline float v_largest(vec a)
{
    return _mm512_reduce_max_ps(a);
}
/* y where x >= limit or x is NaN, else 0 */
static inline vec v_zero_below(vec y, vec x, vec limit)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), y);
}
/* Lane i of the result: x where first + i is in [begin, end), else y. */
static inline vec v_select_range(vec x, vec y, int first, int begin, int end)
{
    int low = begin - first, high = end - first;
    low = low < 0 ? 0 : low > LANES ? LANES : low;
    high = high < low ? low : high > LANES ? LANES : high;
    __mmask16 inside = (__mmask16)(((1u << high) - 1u) & ~((1u << low) - 1u));
    return _mm512_mask_blend_ps(inside, y, x);
}

#endif
