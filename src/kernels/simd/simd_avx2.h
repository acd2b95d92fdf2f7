/* Eight floats at a time: AVX2 with FMA and F16C. */
#ifndef SPRY_KERNELS_SIMD_AVX2_H
#define SPRY_KERNELS_SIMD_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 8, TILE_OUTPUTS = 3, TILE_ROWS = 4, SCORE_QUERIES = 2, VALUE_QUERIES = 2, VALUE_VECTORS = 4 };

typedef __m256 vec;

static inline __m256i first_lanes(size_t n)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), index);
}

static inline vec v_set(float x)
{
    return _mm256_set1_ps(x);
}
static inline vec v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline vec v_load_part(const float *p, size_t n)
{
    return _mm256_maskload_ps(p, first_lanes(n));
}
static inline void v_store(float *p, vec x)
{
    _mm256_storeu_ps(p, x);
}
static inline void v_store_part(float *p, vec x, size_t n)
{
    _mm256_maskstore_ps(p, first_lanes(n), x);
}
static inline vec v_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline vec v_set_f16(uint16_t half)
{
    return _mm256_cvtph_ps(_mm_set1_epi16((short)half));
}
static inline vec v_load_f16_part(const uint16_t *p, size_t n)
{
    uint16_t part[LANES] = {0};
    memcpy(part, p, n * sizeof *p);
    return v_load_f16(part);
}
static inline void v_store_f16(void *p, vec x)
{
    _mm_storeu_si128(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
static inline vec v_load_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline vec v_load_bf16_part(const uint16_t *p, size_t n)
{
    uint16_t part[LANES] = {0};
    memcpy(part, p, n * sizeof *p);
    return v_load_bf16(part);
}
static inline vec v_load_f8(const uint8_t *p)
{
    __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)p));
    return _mm256_cvtph_ps(_mm_andnot_si128(_mm_set1_epi16(0x4000), _mm_slli_epi16(wide, 7)));
}
static inline vec v_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
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
    return _mm256_add_ps(a, b);
}
static inline vec v_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}
static inline vec v_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}
static inline vec v_div(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}
static inline vec v_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}
static inline vec v_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}
static inline vec v_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vec v_round(vec a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* Multiplies by 2^n in two steps, because 2^n alone may be out of a float's normal range. */
static inline vec v_scale2(vec x, vec n)
{
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
    __m256i rest = _mm256_sub_epi32(whole, half);
    vec first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    vec second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(x, first), second);
}
static inline float v_sum(vec a)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
static inline float v_largest(vec a)
{
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
static inline vec v_zero_below(vec y, vec x, vec limit)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), y);
}
static inline vec v_select_range(vec x, vec y, int first, int begin, int end)
{
    __m256i index = _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i inside = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), index),
                                         _mm256_cmpgt_epi32(_mm256_set1_epi32(end), index));
    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(inside));
}

#endif
