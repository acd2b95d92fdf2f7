/* Integer matrix products for AVX2: groups of 8 outputs (packed.h), a tile of up to 4 rows. maddubs multiplies four
 * adjacent weights of 8 outputs, unsigned, by four activations and adds pairs in 16 bits; as many of them are added as
 * cannot overflow (8 for 4 bits, 4 for 5, 2 for 6), then one widening madd. With AVX-VNNI, where DOT_FOUR(sum, weights,
 * activations) is defined, one dpbusd does all of it in 32 bits. All of this is exact; the only rounding is one
 * conversion and one fused addition per block, in block order, the same for any tile, with and without AVX-VNNI.
 *
 * A block of 32 is processed in two halves of 16: 16 weights of 8 outputs, and the dots and sums of 4 rows, fill 16
 * registers. */
#include <immintrin.h>
#include <string.h>

#include "kernels/grids.h"
#include "kernels/ops.h"
#include "kernels/packed.h"

enum { GROUP = 8, INT_TILE_ROWS = 4, INT_ROW_BLOCK = 32, QUAD_BYTES = 4 * GROUP, FETCH_AHEAD = 8192 };

/* 16 weights of 8 outputs. */
typedef __m256i quads[4];

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

/* Scales of MXFP4: spry_half_e8m0_bits of 8 bytes. */
static inline __m256 exponents(const unsigned char *p)
{
    __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(x, _mm256_set1_epi32(1)), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), x);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(small, normal, _mm256_cmpgt_epi32(x, _mm256_set1_epi32(1))));
}

/* Looks up the signed levels of nibbles. */
static inline __m256i look_up(spry_dtype type, __m256i nibbles)
{
    const int8_t *levels = type == SPRY_MXFP4 ? spry_levels_e2m1 : spry_levels_iq4;
    __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)levels));
    return _mm256_shuffle_epi8(table, nibbles);
}

static inline __m256i low_nibbles(__m256i x)
{
    return _mm256_and_si256(x, _mm256_set1_epi8(15));
}

static inline __m256i high_nibbles(__m256i x)
{
    return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15));
}

/* Shifts pairs of bytes left, or right if n is negative. Bits that move between the bytes must be masked out. */
static inline __m256i shift_left(__m256i x, int n)
{
    return n < 0 ? _mm256_srl_epi16(x, _mm_cvtsi32_si128(-n)) : _mm256_sll_epi16(x, _mm_cvtsi32_si128(n));
}

static inline __m256i load_quad(const unsigned char *p, int q)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)(p + QUAD_BYTES * q));
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

#if defined(DOT_FOUR)

SPRY_INLINE __m256i add_dot(__m256i dot, const quads w, const int8_t *values, int fit)
{
    (void)fit;
    for (int q = 0; q < 4; q++)
        dot = DOT_FOUR(dot, w[q], four_values(values + 4 * q));
    return dot;
}

SPRY_INLINE __m256i add_signed_dot(__m256i dot, const quads w, const int8_t *values)
{
    for (int q = 0; q < 4; q++)
        dot = DOT_FOUR(dot, _mm256_abs_epi8(w[q]), _mm256_sign_epi8(four_values(values + 4 * q), w[q]));
    return dot;
}

/* dpbusd sums in 32 bits already. */
static inline __m256i widen(__m256i dot)
{
    return dot;
}

#else

static inline __m256i widen(__m256i pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* Adds the dot of half a block. The products of `fit` quads can be added in 16 bits; if that is a whole block, the dot
 * stays in 16 bits. */
SPRY_INLINE __m256i add_dot(__m256i dot, const quads w, const int8_t *values, int fit)
{
    for (int q = 0; q < 4; q += fit) {
        __m256i pairs = _mm256_maddubs_epi16(w[q], four_values(values + 4 * q));
        for (int i = 1; i < fit && i < 4; i++)
            pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(w[q + i], four_values(values + 4 * (q + i))));
        dot = fit == 8 ? _mm256_add_epi16(dot, pairs) : _mm256_add_epi32(dot, widen(pairs));
    }
    return dot;
}

/* Does what add_dot does for signed weights: multiplies their magnitudes by activations that get their signs. */
SPRY_INLINE __m256i add_signed_dot(__m256i dot, const quads w, const int8_t *values)
{
    for (int q = 0; q < 4; q++) {
        __m256i four = _mm256_sign_epi8(four_values(values + 4 * q), w[q]);
        dot = _mm256_add_epi32(dot, widen(_mm256_maddubs_epi16(_mm256_abs_epi8(w[q]), four)));
    }
    return dot;
}

#endif

SPRY_INLINE void start_dots(__m256i dot[INT_TILE_ROWS], int n_rows)
{
    for (int r = 0; r < n_rows; r++)
        dot[r] = _mm256_setzero_si256();
}

/* Prefetches the weights that follow a block of this many bytes. While multiplying several rows the hardware does not
 * prefetch that far; with a single row it does, and this would slow it down. */
SPRY_INLINE void fetch_ahead(const unsigned char *p, size_t bytes, int n_rows)
{
    for (size_t i = 0; n_rows > 1 && i < bytes; i += 64)
        _mm_prefetch((const char *)((uintptr_t)p + FETCH_AHEAD + i), _MM_HINT_T1);
}

SPRY_INLINE void load_small(quads w, spry_dtype type, const unsigned char *masks, const unsigned char *levels,
                            int second)
{
    for (int q = 0; q < 4; q++) {
        if (type == SPRY_Q8_0) {
            w[q] = _mm256_xor_si256(load_quad(levels, q + 4 * second), _mm256_set1_epi8((char)0x80));
        } else {
            __m256i both = load_quad(levels, q);
            w[q] = second ? high_nibbles(both) : low_nibbles(both);
        }
        if (type == SPRY_IQ4_NL || type == SPRY_IQ4_XS || type == SPRY_MXFP4)
            w[q] = look_up(type, w[q]);
        if (type == SPRY_Q5_0 || type == SPRY_Q5_1)
            w[q] = _mm256_or_si256(w[q], fifth_bits(masks + 4 * (q + 4 * second)));
    }
}

SPRY_INLINE void small_blocks(__m256 sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                              const spry_act_block *const act[], size_t n_in, int n_rows)
{
    bool min = type == SPRY_Q4_1 || type == SPRY_Q5_1, fifth = type == SPRY_Q5_0 || type == SPRY_Q5_1;
    bool signs = type == SPRY_Q8_0 || type == SPRY_IQ4_NL || type == SPRY_MXFP4;
    size_t masks = min ? 4 * GROUP : type == SPRY_MXFP4 ? GROUP : 2 * GROUP, levels = fifth ? masks + 4 * GROUP : masks;
    int fit = fifth ? 4 : 8;
    for (size_t b = 0; b < n_in / 32; b++, p += spry_packed_row_bytes(type) * GROUP) {
        fetch_ahead(p, spry_packed_row_bytes(type) * GROUP, n_rows);
        __m256i dot[INT_TILE_ROWS];
        start_dots(dot, n_rows);
        for (int second = 0; second < 2; second++) {
            quads w;
            load_small(w, type, p + masks, p + levels, second);
            for (int r = 0; r < n_rows; r++) {
                const int8_t *values = act[r][b].values + 16 * second;
                dot[r] = signs ? add_signed_dot(dot[r], w, values) : add_dot(dot[r], w, values, fit);
            }
        }
        for (int r = 0; r < n_rows; r++) {
            const spry_act_block *a = act[r] + b;
            __m256i whole = type == SPRY_Q4_0 || type == SPRY_Q4_1 ? widen(dot[r]) : dot[r];
            if (type == SPRY_Q4_0 || type == SPRY_Q5_0)
                whole = _mm256_add_epi32(whole, _mm256_set1_epi32(a->minus_8_sum * (fifth ? 2 : 1)));
            __m256 scale = _mm256_mul_ps(type == SPRY_MXFP4 ? exponents(p) : halves(p), _mm256_set1_ps(a->scale));
            sum[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), scale, sum[r]);
            if (min)
                sum[r] = _mm256_fmadd_ps(halves(p + 2 * GROUP), _mm256_set1_ps(a->scaled_sum), sum[r]);
        }
    }
}

/* Loads half of block s of the eight blocks in Q4_K and Q5_K. */
SPRY_INLINE void load_k45(quads w, spry_dtype type, const unsigned char *high, const unsigned char *low, int s,
                          int second)
{
    low += s / 2 * (8 * QUAD_BYTES);
    for (int q = 0; q < 4; q++) {
        __m256i both = load_quad(low, q + 4 * second);
        w[q] = s % 2 ? high_nibbles(both) : low_nibbles(both);
        if (type == SPRY_Q5_K) {
            __m256i bits = shift_left(load_quad(high, q + 4 * second), 4 - s);
            w[q] = _mm256_or_si256(w[q], _mm256_and_si256(bits, _mm256_set1_epi8(16)));
        }
    }
}

SPRY_INLINE void k45_blocks(__m256 sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                            const spry_act_block *const act[], size_t n_in, int n_rows)
{
    for (size_t b = 0; b < n_in / 32; b += 8, p += spry_packed_row_bytes(type) * GROUP) {
        fetch_ahead(p, spry_packed_row_bytes(type) * GROUP, n_rows);
        __m256 scale = halves(p), min = _mm256_sub_ps(_mm256_setzero_ps(), halves(p + 2 * GROUP));
        const unsigned char *scales = p + 4 * GROUP, *minima = scales + 8 * GROUP, *high = minima + 8 * GROUP;
        const unsigned char *low = type == SPRY_Q5_K ? high + 8 * QUAD_BYTES : high;
        SPRY_UNROLL(8)
        for (int s = 0; s < 8; s++) {
            __m256i dot[INT_TILE_ROWS];
            start_dots(dot, n_rows);
            for (int second = 0; second < 2; second++) {
                quads w;
                load_k45(w, type, high, low, s, second);
                for (int r = 0; r < n_rows; r++)
                    dot[r] = add_dot(dot[r], w, act[r][b + (size_t)s].values + 16 * second, type == SPRY_Q4_K ? 8 : 4);
            }
            __m256 part_scale = _mm256_mul_ps(scale, bytes_u8(scales + s * GROUP));
            __m256 part_min = _mm256_mul_ps(min, bytes_u8(minima + s * GROUP));
            for (int r = 0; r < n_rows; r++) {
                const spry_act_block *a = act[r] + b + s;
                __m256 whole = _mm256_cvtepi32_ps(type == SPRY_Q4_K ? widen(dot[r]) : dot[r]);
                sum[r] = _mm256_fmadd_ps(whole, _mm256_mul_ps(part_scale, _mm256_set1_ps(a->scale)), sum[r]);
                sum[r] = _mm256_fmadd_ps(part_min, _mm256_set1_ps(a->scaled_sum), sum[r]);
            }
        }
    }
}

/* Loads half of block s of the eight blocks in Q6_K. Within 128 values, blocks 0 and 1 are in the low nibbles, 2 and 3
 * in the high ones; each has two bits of `high`. */
SPRY_INLINE void load_q6(quads w, const unsigned char *p, int s, int second)
{
    const unsigned char *high = p + s / 4 * (24 * QUAD_BYTES), *low = high + (1 + s % 2) * QUAD_BYTES;
    for (int q = 0; q < 4; q++) {
        __m256i both = load_quad(low, 3 * (q + 4 * second)), two = load_quad(high, 3 * (q + 4 * second));
        __m256i nibble = s % 4 < 2 ? low_nibbles(both) : high_nibbles(both);
        __m256i bits = shift_left(two, 4 - s % 4 * 2);
        w[q] = _mm256_or_si256(nibble, _mm256_and_si256(bits, _mm256_set1_epi8(0x30)));
    }
}

/* Loads half of block s of eight blocks with two bits per value: 128 values in 8 quads. */
SPRY_INLINE void load_pairs(quads w, const unsigned char *low, int s, int second)
{
    for (int q = 0; q < 4; q++) {
        __m256i four = load_quad(low + s / 4 * (8 * QUAD_BYTES), q + 4 * second);
        w[q] = _mm256_and_si256(shift_left(four, -(s % 4 * 2)), _mm256_set1_epi8(3));
    }
}

/* Loads half of block s of the eight blocks in Q3_K. */
SPRY_INLINE void load_q3(quads w, const unsigned char *p, int s, int second)
{
    for (int q = 0; q < 4; q++) {
        const unsigned char *three = p + 3 * (q + 4 * second) * QUAD_BYTES;
        __m256i level = shift_left(load_quad(three, s / 2 % 3), -(s % 2 * 3));
        w[q] = _mm256_and_si256(level, _mm256_set1_epi8(7));
        if (s > 5) {
            __m256i upper = _mm256_and_si256(shift_left(load_quad(three, s - 6), -5), _mm256_set1_epi8(6));
            __m256i lowest = _mm256_and_si256(shift_left(load_quad(three, 2), -s), _mm256_set1_epi8(1));
            w[q] = _mm256_or_si256(upper, lowest);
        }
    }
}

/* Types with eight blocks of 32 under one scale; in IQ4_XS each block also has a factor. TQ1_0 and TQ2_0 have a zero
 * point of 1. */
SPRY_INLINE void level_blocks(__m256 sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                              const spry_act_block *const act[], size_t n_in, int n_rows)
{
    bool factors = type == SPRY_IQ4_XS;
    for (size_t b = 0; b < n_in / 32; b += 8, p += spry_packed_row_bytes(type) * GROUP) {
        fetch_ahead(p, spry_packed_row_bytes(type) * GROUP, n_rows);
        const unsigned char *scales = p + 2 * GROUP, *low = factors ? scales + 8 * GROUP : scales;
        SPRY_UNROLL(8)
        for (int s = 0; s < 8; s++) {
            __m256i dot[INT_TILE_ROWS];
            start_dots(dot, n_rows);
            for (int second = 0; second < 2; second++) {
                quads w;
                if (factors)
                    load_small(w, type, NULL, low + s * (4 * QUAD_BYTES), second);
                else
                    load_pairs(w, low, s, second);
                for (int r = 0; r < n_rows; r++) {
                    const int8_t *values = act[r][b + (size_t)s].values + 16 * second;
                    dot[r] = factors ? add_signed_dot(dot[r], w, values) : add_dot(dot[r], w, values, 8);
                }
            }
            __m256 scale = factors ? _mm256_mul_ps(halves(p), bytes_i8(scales + s * GROUP)) : halves(p);
            for (int r = 0; r < n_rows; r++) {
                const spry_act_block *a = act[r] + b + s;
                __m256i zero = _mm256_set1_epi32(a->minus_8_sum / 8);
                __m256i whole = factors ? dot[r] : _mm256_add_epi32(widen(dot[r]), zero);
                sum[r] =
                    _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), _mm256_mul_ps(scale, _mm256_set1_ps(a->scale)), sum[r]);
            }
        }
    }
}

/* Half a block of a type with a scale for every 16 values. */
typedef struct wsixteen {
    quads w;
    __m256 scale, min;
} wsixteen;

SPRY_INLINE void load_sixteen(wsixteen *out, spry_dtype type, const unsigned char *p, int s, int second)
{
    const unsigned char *scales = p + (type == SPRY_Q2_K ? 4 : 2) * GROUP, *levels = scales + 16 * GROUP;
    const unsigned char *bytes = scales + (2 * s + second) * GROUP;
    if (type == SPRY_Q6_K)
        load_q6(out->w, levels, s, second);
    else if (type == SPRY_Q3_K)
        load_q3(out->w, levels, s, second);
    else
        load_pairs(out->w, levels, s, second);
    if (type == SPRY_Q2_K) {
        __m256i both = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)bytes));
        __m256i lower = _mm256_and_si256(both, _mm256_set1_epi32(15)), upper = _mm256_srli_epi32(both, 4);
        __m256 min = _mm256_sub_ps(_mm256_setzero_ps(), halves(p + 2 * GROUP));
        out->scale = _mm256_mul_ps(halves(p), _mm256_cvtepi32_ps(lower));
        out->min = _mm256_mul_ps(min, _mm256_cvtepi32_ps(upper));
    } else {
        out->scale = _mm256_mul_ps(halves(p), bytes_i8(bytes));
    }
}

/* The product for types with a scale for every 16 values. The zero point is 32 in Q6_K and 4 in Q3_K; Q2_K has
 * minima. */
SPRY_INLINE void sixteen_blocks(__m256 sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                                const spry_act_block *const act[], size_t n_in, int n_rows)
{
    int zero = type == SPRY_Q6_K ? 32 : type == SPRY_Q3_K ? 4 : 0;
    for (size_t b = 0; b < n_in / 32; b += 8, p += spry_packed_row_bytes(type) * GROUP) {
        fetch_ahead(p, spry_packed_row_bytes(type) * GROUP, n_rows);
        __m256 both[INT_TILE_ROWS];
        SPRY_UNROLL(8)
        for (int s = 0; s < 8; s++) {
            for (int second = 0; second < 2; second++) {
                wsixteen w;
                load_sixteen(&w, type, p, s, second);
                for (int r = 0; r < n_rows; r++) {
                    const spry_act_block *a = act[r] + b + s;
                    __m256i dot = _mm256_set1_epi32(-zero * a->half_sum[second]);
                    dot = add_dot(dot, w.w, a->values + 16 * second, type == SPRY_Q6_K ? 2 : 4);
                    __m256 part = _mm256_cvtepi32_ps(dot);
                    both[r] = second ? _mm256_fmadd_ps(part, w.scale, both[r]) : _mm256_mul_ps(part, w.scale);
                    if (type == SPRY_Q2_K)
                        both[r] = _mm256_fmadd_ps(w.min, _mm256_set1_ps((float)a->half_sum[second]), both[r]);
                }
            }
            for (int r = 0; r < n_rows; r++)
                sum[r] = _mm256_fmadd_ps(both[r], _mm256_set1_ps(act[r][b + (size_t)s].scale), sum[r]);
        }
    }
}

/* Names that simd_integers.h needs; a group is one vector. */
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
