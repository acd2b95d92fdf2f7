/* Scores of Q8_0 keys by integer products, for AVX-512 with VNNI: queries are encoded as activations are (act.h), so a
 * block of 32 coordinates is exact in integers, and one fused addition per block rounds. Include before
 * simd_attend.h. */
#include <immintrin.h>
#include <string.h>

#include "kernels/act.h"
#include "kernels/ops.h"

#define SCORE_BYTES

static void OP(encode_act)(spry_act_block *out, const float *in, size_t n);

/* Four coordinates of 32 tokens, plus 128, become four vectors in which the coordinates of a token are adjacent:
 * tokens 0.. and 16.., 4.. and 20.., 8.. and 24.., 12.. and 28.. */
SPRY_INLINE void interleave_keys(__m256i out[4], const unsigned char *keys)
{
    const __m256i flip = _mm256_set1_epi8(-128), *rows = (const __m256i *)(const void *)keys;
    __m256i a = _mm256_xor_si256(_mm256_loadu_si256(rows), flip);
    __m256i b = _mm256_xor_si256(_mm256_loadu_si256(rows + 1), flip);
    __m256i c = _mm256_xor_si256(_mm256_loadu_si256(rows + 2), flip);
    __m256i d = _mm256_xor_si256(_mm256_loadu_si256(rows + 3), flip);
    __m256i ab_low = _mm256_unpacklo_epi8(a, b), ab_high = _mm256_unpackhi_epi8(a, b);
    __m256i cd_low = _mm256_unpacklo_epi8(c, d), cd_high = _mm256_unpackhi_epi8(c, d);
    out[0] = _mm256_unpacklo_epi16(ab_low, cd_low);
    out[1] = _mm256_unpackhi_epi16(ab_low, cd_low);
    out[2] = _mm256_unpacklo_epi16(ab_high, cd_high);
    out[3] = _mm256_unpackhi_epi16(ab_high, cd_high);
}

/* The sums of those four vectors in the order of tokens, as floats. */
SPRY_INLINE void order_sums(vec out[2], const __m256i sum[4])
{
    __m512i early = _mm512_inserti64x4(_mm512_castsi256_si512(sum[0]), sum[1], 1);
    __m512i late = _mm512_inserti64x4(_mm512_castsi256_si512(sum[2]), sum[3], 1);
    out[0] = _mm512_cvtepi32_ps(_mm512_shuffle_i32x4(early, late, 0x88));
    out[1] = _mm512_cvtepi32_ps(_mm512_shuffle_i32x4(early, late, 0xdd));
}

/* Products of a block of coordinates of all tokens of a page with n queries, without scales. */
SPRY_INLINE void dot_block(vec out[][2], const unsigned char *keys, const spry_act_block *const query[], int n)
{
    __m256i sum[SCORE_QUERIES][4], quad[4];
    for (int q = 0; q < n; q++)
        for (int i = 0; i < 4; i++) /* removes what adding 128 to each key adds */
            sum[q][i] = _mm256_set1_epi32(16 * query[q]->minus_8_sum);
    for (int d = 0; d < SPRY_ACT_BLOCK; d += 4) {
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
