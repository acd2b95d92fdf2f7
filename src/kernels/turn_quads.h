/* Transposes four rows of 16 bytes into columns of four bytes, or eight rows into columns of two. Packing does this
 * with most bytes of a file. Uses only vector instructions that every processor of the architecture has, so no table of
 * functions is needed. */
#ifndef SPRY_KERNELS_TURN_QUADS_H
#define SPRY_KERNELS_TURN_QUADS_H

#include <stddef.h>
#include <string.h>

#include "base/compiler.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

/* Transposes quads: bytes 4q .. 4q + 3 of row r go to out + q * out_stride + 4r. Any addresses. */
SPRY_INLINE void spry_turn_quads(unsigned char *out, size_t out_stride, const unsigned char *in, size_t in_stride)
{
#if defined(__SSE2__)
    __m128i row0 = _mm_loadu_si128((const __m128i *)in), row1 = _mm_loadu_si128((const __m128i *)(in + in_stride));
    __m128i row2 = _mm_loadu_si128((const __m128i *)(in + 2 * in_stride));
    __m128i row3 = _mm_loadu_si128((const __m128i *)(in + 3 * in_stride));
    __m128i low01 = _mm_unpacklo_epi32(row0, row1), high01 = _mm_unpackhi_epi32(row0, row1);
    __m128i low23 = _mm_unpacklo_epi32(row2, row3), high23 = _mm_unpackhi_epi32(row2, row3);
    _mm_storeu_si128((__m128i *)out, _mm_unpacklo_epi64(low01, low23));
    _mm_storeu_si128((__m128i *)(out + out_stride), _mm_unpackhi_epi64(low01, low23));
    _mm_storeu_si128((__m128i *)(out + 2 * out_stride), _mm_unpacklo_epi64(high01, high23));
    _mm_storeu_si128((__m128i *)(out + 3 * out_stride), _mm_unpackhi_epi64(high01, high23));
#elif defined(__ARM_NEON)
    uint32x4x4_t rows = {{vreinterpretq_u32_u8(vld1q_u8(in)), vreinterpretq_u32_u8(vld1q_u8(in + in_stride)),
                          vreinterpretq_u32_u8(vld1q_u8(in + 2 * in_stride)),
                          vreinterpretq_u32_u8(vld1q_u8(in + 3 * in_stride))}};
    uint32_t columns[16];
    vst4q_u32(columns, rows); /* interleaves: quad q of rows 0 .. 3 */
    for (size_t q = 0; q < 4; q++)
        memcpy(out + q * out_stride, columns + 4 * q, 16);
#else
    for (size_t q = 0; q < 4; q++)
        for (size_t row = 0; row < 4; row++)
            memcpy(out + q * out_stride + 4 * row, in + row * in_stride + 4 * q, 4);
#endif
}

/* Transposes pairs of eight rows of 16 bytes: bytes 2p, 2p + 1 of row r go to out + p * out_stride + 2r. */
SPRY_INLINE void spry_turn_pairs(unsigned char *out, size_t out_stride, const unsigned char *in, size_t in_stride)
{
#if defined(__SSE2__)
    __m128i a[8], b[8];
    for (size_t r = 0; r < 8; r++)
        a[r] = _mm_loadu_si128((const __m128i *)(in + r * in_stride));
    for (size_t r = 0; r < 4; r++) { /* interleaves row r and row r + 4 three times, value by value */
        b[2 * r] = _mm_unpacklo_epi16(a[r], a[r + 4]);
        b[2 * r + 1] = _mm_unpackhi_epi16(a[r], a[r + 4]);
    }
    for (size_t r = 0; r < 4; r++) {
        a[2 * r] = _mm_unpacklo_epi16(b[r], b[r + 4]);
        a[2 * r + 1] = _mm_unpackhi_epi16(b[r], b[r + 4]);
    }
    for (size_t r = 0; r < 4; r++) {
        _mm_storeu_si128((__m128i *)(out + 2 * r * out_stride), _mm_unpacklo_epi16(a[r], a[r + 4]));
        _mm_storeu_si128((__m128i *)(out + (2 * r + 1) * out_stride), _mm_unpackhi_epi16(a[r], a[r + 4]));
    }
#else
    for (size_t p = 0; p < 8; p++)
        for (size_t row = 0; row < 8; row++)
            memcpy(out + p * out_stride + 2 * row, in + row * in_stride + 2 * p, 2);
#endif
}

#endif
