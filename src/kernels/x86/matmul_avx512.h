/* Integer matrix products for AVX-512: groups of 16 outputs (packed.h), a tile of up to 8 rows. With VNNI one dpbusd
 * multiplies four adjacent weights of 16 outputs by four activations; eight dpbusd are a block of 32, exact in
 * integers. Without VNNI pairs are added in 16 bits, as many as cannot overflow, and then in 32 bits, which is exact,
 * too. The only rounding is one conversion and one fused addition per block, in block order, the same for any tile,
 * with and without VNNI. */
#include <immintrin.h>
#include <string.h>

#include "kernels/grids.h"
#include "kernels/ops.h"
#include "kernels/packed.h"

enum { GROUP = 16, INT_TILE_ROWS = 8, INT_ROW_BLOCK = 64 };
enum { FETCH_AHEAD = 8192 }; /* bytes to prefetch ahead; the best value measured */

/* 32 weights of 16 outputs: a weight is q * scale + min, q unsigned. Types with a zero point have no min here: their
 * correction depends only on the sums of the activations. */
typedef struct wblock {
    __m512i quad[8];
    __m512 scale, min;
} wblock;

static inline __m512 halves(const unsigned char *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline __m512 bytes_u8(const unsigned char *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

static inline __m512 bytes_i8(const unsigned char *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

/* Scales of MXFP4: spry_half_e8m0_bits of 16 bytes. */
static inline __m512 exponents(const unsigned char *p)
{
    __m512i x = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(x, _mm512_set1_epi32(1)), 23);
    __mmask16 small = _mm512_cmplt_epi32_mask(x, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, small, _mm512_set1_epi32(0x00200000), x));
}

/* A table of 16 levels plus 128, in every quarter of the vector. */
static inline __m512i level_table(spry_dtype type)
{
    const int8_t *levels = type == SPRY_MXFP4 ? spry_levels_e2m1 : spry_levels_iq4;
    __m128i signs = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)levels), _mm_set1_epi8(-128));
    return _mm512_broadcast_i32x4(signs);
}

static inline __m512i low_nibbles(__m512i x)
{
    return _mm512_and_si512(x, _mm512_set1_epi8(15));
}

static inline __m512i high_nibbles(__m512i x)
{
    return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
}

/* x | (y & mask) */
static inline __m512i or_chosen(__m512i x, __m512i y, __m512i mask)
{
    return _mm512_ternarylogic_epi32(x, y, mask, 0xf8);
}

/* Shifts pairs of bytes left, or right if n is negative. Bits that move between the bytes must be masked out. */
static inline __m512i shift_left(__m512i x, int n)
{
    return n < 0 ? _mm512_srl_epi16(x, _mm_cvtsi32_si128(-n)) : _mm512_sll_epi16(x, _mm_cvtsi32_si128(n));
}

/* Adds the fifth bits of block s, which `high` has in bit s, as bit 4. */
SPRY_INLINE __m512i fifth_bits(__m512i quad, __m512i high, int s)
{
    return or_chosen(quad, shift_left(high, 4 - s), _mm512_set1_epi8(16));
}

static inline __m512i load64(const unsigned char *p)
{
    return _mm512_loadu_si512(p);
}

static inline __m512i four_values(const int8_t *values)
{
    int32_t four;
    memcpy(&four, values, 4);
    return _mm512_set1_epi32(four);
}

/* dot_quads adds the dot of n quads with 4 * n activations from `values` on; levels are at most `top`, a constant.
 * start_dot is the initial dot of types with the zero point 8 << shift. */
#if defined(__AVX512VNNI__)
enum { LARGEST_TOP = 255 };

SPRY_INLINE __m512i dot_quads(__m512i sum, const __m512i *quad, const int8_t *values, int n, int top)
{
    (void)top;
    for (int q = 0; q < n; q++)
        sum = _mm512_dpbusd_epi32(sum, quad[q], four_values(values + 4 * q));
    return sum;
}

SPRY_INLINE __m512i start_dot(const spry_act_block *a, int shift)
{
    __m512i eight = _mm512_set1_epi32(a->minus_8_sum);
    return shift < 0 ? _mm512_srai_epi32(eight, (unsigned)-shift) : _mm512_slli_epi32(eight, (unsigned)shift);
}
#else
enum { LARGEST_TOP = 127 };

/* For levels with the zero point 128: multiplies the magnitudes of level - 128 by activations that get their signs. */
SPRY_INLINE __m512i dot_signed(__m512i sum, __m512i quad, __m512i four)
{
    __m512i level = _mm512_xor_si512(quad, _mm512_set1_epi8(-128));
    __m512i with_sign = _mm512_mask_sub_epi8(four, _mm512_movepi8_mask(level), _mm512_setzero_si512(), four);
    __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(level), with_sign);
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

SPRY_INLINE __m512i dot_quads(__m512i sum, const __m512i *quad, const int8_t *values, int n, int top)
{
    const int fit = top > LARGEST_TOP ? 1 : INT16_MAX / (2 * 127 * top); /* number of quads whose pairs can be added in
                                                                          * 16 bits */
    for (int q = 0; q < n; q += fit) {
        if (top > LARGEST_TOP) {
            sum = dot_signed(sum, quad[q], four_values(values + 4 * q));
            continue;
        }
        __m512i pairs = _mm512_maddubs_epi16(quad[q], four_values(values + 4 * q));
        for (int i = q + 1; i < q + fit && i < n; i++)
            pairs = _mm512_add_epi16(pairs, _mm512_maddubs_epi16(quad[i], four_values(values + 4 * i)));
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
    }
    return sum;
}

SPRY_INLINE __m512i start_dot(const spry_act_block *a, int shift)
{
    __m512i eight = _mm512_set1_epi32(a->minus_8_sum);
    if (shift == 4) /* dot_signed subtracts this zero point itself */
        return _mm512_setzero_si512();
    return shift < 0 ? _mm512_srai_epi32(eight, (unsigned)-shift) : _mm512_slli_epi32(eight, (unsigned)shift);
}
#endif

/* Adds blocks of 32 with the zero point 8 << shift. */
SPRY_INLINE void add_zero_point(__m512 sum[INT_TILE_ROWS], const wblock *w, const spry_act_block *const act[], size_t b,
                                int n_rows, int shift)
{
    const int top = shift < 0 ? 3 : (16 << shift) - 1; /* twice the zero point less 1, or 3 for types of two bits */
    for (int r = 0; r < n_rows; r++) {
        const spry_act_block *a = act[r] + b;
        __m512 dot = _mm512_cvtepi32_ps(dot_quads(start_dot(a, shift), w->quad, a->values, 8, top));
        sum[r] = _mm512_fmadd_ps(dot, _mm512_mul_ps(w->scale, _mm512_set1_ps(a->scale)), sum[r]);
    }
}

/* Adds blocks of 32 with a minimum. */
SPRY_INLINE void add_with_min(__m512 sum[INT_TILE_ROWS], const wblock *w, const spry_act_block *const act[], size_t b,
                              int n_rows, int top)
{
    for (int r = 0; r < n_rows; r++) {
        const spry_act_block *a = act[r] + b;
        __m512 dot = _mm512_cvtepi32_ps(dot_quads(_mm512_setzero_si512(), w->quad, a->values, 8, top));
        sum[r] = _mm512_fmadd_ps(dot, _mm512_mul_ps(w->scale, _mm512_set1_ps(a->scale)), sum[r]);
        sum[r] = _mm512_fmadd_ps(w->min, _mm512_set1_ps(a->scaled_sum), sum[r]);
    }
}

/* Prefetches the weights that follow a block. While multiplying many rows the hardware does not prefetch that far; with
 * one row it does, and explicit prefetches disturb it (measured). */
SPRY_INLINE void fetch_ahead(spry_dtype type, const unsigned char *p, int n_rows)
{
    for (size_t i = 0; n_rows > 1 && i < spry_packed_row_bytes(type) * GROUP; i += 64)
        _mm_prefetch((const char *)((uintptr_t)p + FETCH_AHEAD + i), _MM_HINT_T1);
}

/* Loads a block whose first 16 values are in low nibbles and whose last 16 are in high nibbles. */
SPRY_INLINE void load_nibbles(__m512i quad[8], const unsigned char *p)
{
    for (int q = 0; q < 4; q++) {
        __m512i both = load64(p + 64 * q);
        quad[q] = low_nibbles(both);
        quad[q + 4] = high_nibbles(both);
    }
}

SPRY_INLINE void look_up(__m512i quad[8], spry_dtype type)
{
    __m512i table = level_table(type);
    for (int q = 0; q < 8; q++)
        quad[q] = _mm512_shuffle_epi8(table, quad[q]);
}

/* Loads block s of eight blocks with two bits per value: 128 values in 8 quads. */
SPRY_INLINE void load_pairs(__m512i quad[8], const unsigned char *low, int s)
{
    for (int q = 0; q < 8; q++) {
        __m512i four = load64(low + s / 4 * 512 + 64 * q);
        quad[q] = _mm512_and_si512(shift_left(four, -(s % 4 * 2)), _mm512_set1_epi8(3));
    }
}

/* Blocks 6 and 7 of Q3_K: their levels are in the upper bits of the three quads that hold the levels of blocks 0 to
 * 5. */
SPRY_INLINE __m512i split_q3(__m512i upper, __m512i lowest, int s)
{
    __m512i moved = _mm512_srl_epi16(lowest, _mm_cvtsi32_si128(s - 5));
    return or_chosen(_mm512_and_si512(upper, _mm512_set1_epi8((char)0xc0)), moved, _mm512_set1_epi8(0x20));
}

SPRY_INLINE void load_small(wblock *w, spry_dtype type, const unsigned char *p)
{
    w->scale = type == SPRY_MXFP4 ? exponents(p) : halves(p);
    p += type == SPRY_MXFP4 ? GROUP : 2 * GROUP;
    if (type == SPRY_Q8_0) {
        for (int q = 0; q < 8; q++)
            w->quad[q] = load64(p + 64 * q);
        return;
    }
    if (type == SPRY_Q4_1 || type == SPRY_Q5_1) {
        w->min = halves(p);
        p += 2 * GROUP;
    }
    const unsigned char *masks = p;
    if (type == SPRY_Q5_0 || type == SPRY_Q5_1)
        p += 4 * GROUP;
    load_nibbles(w->quad, p);
    if (type == SPRY_IQ4_NL || type == SPRY_MXFP4)
        look_up(w->quad, type);
    for (int q = 0; (type == SPRY_Q5_0 || type == SPRY_Q5_1) && q < 8; q++) {
        uint64_t mask;
        memcpy(&mask, masks + 8 * q, 8);
        w->quad[q] = _mm512_mask_add_epi8(w->quad[q], mask, w->quad[q], _mm512_set1_epi8(16));
    }
}

#include "kernels/x86/matmul_one.h"

SPRY_INLINE void small_blocks(__m512 sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                              const spry_act_block *const act[], size_t n_in, int n_rows)
{
    size_t n_blocks = n_in / 32;
    for (size_t b = 0; b < n_blocks; b++, p += spry_packed_row_bytes(type) * GROUP) {
        fetch_ahead(type, p, n_rows);
        wblock w;
        load_small(&w, type, p);
        if (type == SPRY_Q4_1 || type == SPRY_Q5_1)
            add_with_min(sum, &w, act, b, n_rows, type == SPRY_Q4_1 ? 15 : 31);
        else
            add_zero_point(sum, &w, act, b, n_rows, type == SPRY_Q4_0 ? 0 : type == SPRY_Q5_0 ? 1 : 4);
    }
}

/* Loads block s of the eight blocks in Q4_K and Q5_K. */
SPRY_INLINE void load_k45(wblock *w, spry_dtype type, const unsigned char *p, int s)
{
    const unsigned char *scales = p + 64, *minima = scales + 8 * GROUP, *high = minima + 8 * GROUP;
    const int quads = type == SPRY_Q5_K ? 5 : 4; /* quads per step: one of each chunk, and one of fifth bits in Q5_K */
    const unsigned char *low = high + 64 * (quads - 4 + s / 2);
    w->scale = _mm512_mul_ps(halves(p), bytes_u8(scales + s * GROUP));
    w->min = _mm512_mul_ps(_mm512_sub_ps(_mm512_setzero_ps(), halves(p + 32)), bytes_u8(minima + s * GROUP));
    for (int q = 0; q < 8; q++) {
        __m512i both = load64(low + 64 * quads * q);
        w->quad[q] = s % 2 ? high_nibbles(both) : low_nibbles(both);
        if (type == SPRY_Q5_K)
            w->quad[q] = fifth_bits(w->quad[q], load64(high + 64 * quads * q), s);
    }
}

SPRY_INLINE void k45_blocks(__m512 sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                            const spry_act_block *const act[], size_t n_in, int n_rows)
{
    for (size_t b = 0; b < n_in / 32; b += 8, p += spry_packed_row_bytes(type) * GROUP) {
        fetch_ahead(type, p, n_rows);
        if (n_rows == 1) {
            sum[0] = one_k45(sum[0], type, p, act[0] + b);
            continue;
        }
        SPRY_UNROLL(8)
        for (int s = 0; s < 8; s++) {
            wblock w;
            load_k45(&w, type, p, s);
            add_with_min(sum, &w, act, b + (size_t)s, n_rows, type == SPRY_Q4_K ? 15 : 31);
        }
    }
}

/* Loads block s of the eight blocks in a type of 256 with one scale (in IQ4_XS each block also has a factor); the zero
 * point is 128 or 1. */
SPRY_INLINE void load_levels(wblock *w, spry_dtype type, const unsigned char *p, int s)
{
    w->scale = halves(p);
    p += 32;
    if (type == SPRY_IQ4_XS) {
        w->scale = _mm512_mul_ps(w->scale, bytes_i8(p + s * GROUP));
        load_nibbles(w->quad, p + 8 * GROUP + s * 256);
        look_up(w->quad, type);
    } else {
        load_pairs(w->quad, p, s);
    }
}

SPRY_INLINE void level_blocks(__m512 sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                              const spry_act_block *const act[], size_t n_in, int n_rows)
{
    for (size_t b = 0; b < n_in / 32; b += 8, p += spry_packed_row_bytes(type) * GROUP) {
        fetch_ahead(type, p, n_rows);
        if (n_rows == 1) {
            sum[0] = type == SPRY_IQ4_XS ? one_iq4_xs(sum[0], p, act[0] + b) : one_ternary(sum[0], p, act[0] + b);
            continue;
        }
        SPRY_UNROLL(8)
        for (int s = 0; s < 8; s++) {
            wblock w;
            load_levels(&w, type, p, s);
            add_zero_point(sum, &w, act, b + (size_t)s, n_rows, type == SPRY_IQ4_XS ? 4 : -3);
        }
    }
}

/* A block of a type with a scale for every 16 values, which needs two dots. */
typedef struct wsixteens {
    __m512i quad[8];
    __m512 scale[2], min[2];
    int zero; /* zero point; -1: there are minima */
} wsixteens;

SPRY_INLINE void add_sixteens(__m512 sum[INT_TILE_ROWS], const wsixteens *w, const spry_act_block *const act[],
                              size_t b, int n_rows, int top)
{
    for (int r = 0; r < n_rows; r++) {
        const spry_act_block *a = act[r] + b;
        int zero = w->zero < 0 ? 0 : w->zero;
        __m512i left = _mm512_set1_epi32(-zero * a->half_sum[0]), right = _mm512_set1_epi32(-zero * a->half_sum[1]);
        __m512 one = _mm512_cvtepi32_ps(dot_quads(left, w->quad, a->values, 4, top));
        __m512 two = _mm512_cvtepi32_ps(dot_quads(right, w->quad + 4, a->values + 16, 4, top));
        __m512 both = _mm512_fmadd_ps(two, w->scale[1], _mm512_mul_ps(one, w->scale[0]));
        if (w->zero < 0) {
            both = _mm512_fmadd_ps(w->min[0], _mm512_set1_ps((float)a->half_sum[0]), both);
            both = _mm512_fmadd_ps(w->min[1], _mm512_set1_ps((float)a->half_sum[1]), both);
        }
        sum[r] = _mm512_fmadd_ps(both, _mm512_set1_ps(a->scale), sum[r]);
    }
}

/* Loads block s of the eight blocks in Q6_K. Within a half of 128 values, blocks 0 and 1 are in the low nibbles, 2 and
 * 3 in the high ones; each has two bits of `high`. */
SPRY_INLINE void load_q6(__m512i quad[8], const unsigned char *p, int s)
{
    const unsigned char *high = p + s / 4 * (24 * 64), *low = high + 64 + s % 2 * 64;
    for (int q = 0; q < 8; q++) {
        __m512i both = load64(low + 192 * q), two = load64(high + 192 * q);
        __m512i nibble = s % 4 < 2 ? low_nibbles(both) : high_nibbles(both);
        quad[q] = or_chosen(nibble, shift_left(two, 4 - s % 4 * 2), _mm512_set1_epi8(0x30));
    }
}

/* Loads block s of the eight blocks in Q3_K. */
SPRY_INLINE void load_q3(__m512i quad[8], const unsigned char *p, int s)
{
    for (int q = 0; q < 8; q++, p += 192) {
        quad[q] = _mm512_and_si512(shift_left(load64(p + 64 * (s / 2 % 3)), -(s % 2 * 3)), _mm512_set1_epi8(7));
        if (s > 5)
            quad[q] = _mm512_srli_epi16(split_q3(load64(p + 64 * (s - 6)), load64(p + 128), s), 5);
    }
}

SPRY_INLINE void load_sixteens(wsixteens *w, spry_dtype type, const unsigned char *p, int s)
{
    const unsigned char *scales = p + (type == SPRY_Q2_K ? 64 : 32), *levels = scales + 16 * GROUP;
    __m512 scale = halves(p);
    for (int k = 0; k < 2; k++) {
        if (type == SPRY_Q2_K) {
            __m512i factors = _mm512_srl_epi32(load64(scales + s / 2 * 64), _mm_cvtsi32_si128(s % 2 * 8 + k * 16));
            __m512i lower = _mm512_and_si512(factors, _mm512_set1_epi32(15));
            __m512i upper = _mm512_and_si512(_mm512_srli_epi32(factors, 4), _mm512_set1_epi32(15));
            __m512 min = _mm512_sub_ps(_mm512_setzero_ps(), halves(p + 32));
            w->scale[k] = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(lower));
            w->min[k] = _mm512_mul_ps(min, _mm512_cvtepi32_ps(upper));
        } else {
            w->scale[k] = _mm512_mul_ps(scale, bytes_i8(scales + (2 * s + k) * GROUP));
        }
    }
    w->zero = type == SPRY_Q6_K ? 32 : type == SPRY_Q3_K ? 4 : -1;
    if (type == SPRY_Q6_K)
        load_q6(w->quad, levels, s);
    else if (type == SPRY_Q3_K)
        load_q3(w->quad, levels, s);
    else
        load_pairs(w->quad, levels, s);
}

SPRY_INLINE void sixteen_blocks(__m512 sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                                const spry_act_block *const act[], size_t n_in, int n_rows)
{
    for (size_t b = 0; b < n_in / 32; b += 8, p += spry_packed_row_bytes(type) * GROUP) {
        fetch_ahead(type, p, n_rows);
        if (n_rows == 1) {
            sum[0] = type == SPRY_Q6_K   ? one_q6(sum[0], p, act[0] + b)
                     : type == SPRY_Q3_K ? one_q3(sum[0], p, act[0] + b)
                                         : one_q2(sum[0], p, act[0] + b);
            continue;
        }
        SPRY_UNROLL(8)
        for (int s = 0; s < 8; s++) {
            wsixteens w;
            load_sixteens(&w, type, p, s);
            add_sixteens(sum, &w, act, b + (size_t)s, n_rows, type == SPRY_Q6_K ? 63 : type == SPRY_Q3_K ? 7 : 3);
        }
    }
}

/* Names that simd_integers.h needs; a group is one vector. */
typedef __m512 int_sum;

static inline int_sum int_zero(void)
{
    return _mm512_setzero_ps();
}

static inline void int_store(float *out, int_sum sum, size_t n_out)
{
    if (n_out == GROUP)
        v_store(out, sum);
    else
        v_store_part(out, sum, n_out);
}
