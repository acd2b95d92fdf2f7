/* One row times blocks of 256 for AVX-512: decode. Every vector of weights is loaded once, in ascending order, and used
 * for all blocks of 32 that have bits in it, so that memory sets the speed. Dots are exact in integers, and conversions
 * and fused additions are the same as in matmul_avx512.h, in the same order: the same bits. Included by it.
 *
 * Levels of two and three bits are not shifted down to the lowest bits of their byte: their dots are up to 64 times as
 * large, which is exact, and the scale is divided by that factor. Without VNNI the topmost levels are shifted. */

/* Reads one byte of each cache line in ascending order, before the lines are used in another order: hardware
 * prefetchers follow the order in which lines are first read. */
SPRY_INLINE void touch(const unsigned char *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        (void)*(const volatile unsigned char *)(p + i);
}

/* Loads a vector exactly once and after the loads before it; compilers would repeat the load in every instruction that
 * uses it. */
SPRY_INLINE __m512i load_once(const unsigned char *p)
{
    return *(const volatile __m512i_u *)(const volatile void *)p;
}

SPRY_INLINE __m512i dot_quad(__m512i sum, __m512i quad, const spry_act_block *a, int q, int top)
{
    return dot_quads(sum, &quad, a->values + 4 * q, 1, top);
}

static inline __m512 scaled_by(__m512 scale, float by)
{
    return _mm512_mul_ps(scale, _mm512_set1_ps(by));
}

/* ---- Q4_K and Q5_K ----------------------------------------------------------------------------------------------- */

SPRY_INLINE void dots_k45(__m512i dot[8], spry_dtype type, const unsigned char *p, const spry_act_block *a)
{
    const int top = type == SPRY_Q5_K ? 31 : 15;
    SPRY_UNROLL(8)
    for (int q = 0; q < 8; q++) {
        __m512i high = _mm512_setzero_si512();
        if (type == SPRY_Q5_K) {
            high = load_once(p);
            p += 64;
        }
        SPRY_UNROLL(4)
        for (int s = 0; s < 8; s += 2, p += 64) {
            __m512i both = load_once(p), first = low_nibbles(both), second = high_nibbles(both);
            dot[s] = dot_quad(dot[s], type == SPRY_Q5_K ? fifth_bits(first, high, s) : first, a + s, q, top);
            dot[s + 1] =
                dot_quad(dot[s + 1], type == SPRY_Q5_K ? fifth_bits(second, high, s + 1) : second, a + s + 1, q, top);
        }
    }
}

SPRY_INLINE __m512 one_k45(__m512 sum, spry_dtype type, const unsigned char *p, const spry_act_block *a)
{
    const unsigned char *scales = p + 64, *minima = scales + 8 * GROUP, *levels = minima + 8 * GROUP;
    const __m512 scale = halves(p), min = _mm512_sub_ps(_mm512_setzero_ps(), halves(p + 32));
    __m512i dot[8];
    touch(p, (size_t)(levels - p));
    for (int s = 0; s < 8; s++)
        dot[s] = _mm512_setzero_si512();
    dots_k45(dot, type, levels, a);
    for (int s = 0; s < 8; s++) {
        __m512 factor = _mm512_mul_ps(scale, bytes_u8(scales + s * GROUP));
        __m512 below = _mm512_mul_ps(min, bytes_u8(minima + s * GROUP));
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[s]), scaled_by(factor, a[s].scale), sum);
        sum = _mm512_fmadd_ps(below, _mm512_set1_ps(a[s].scaled_sum), sum);
    }
    return sum;
}

/* ---- Q6_K: two dots a block, zero point 32 ----------------------------------------------------------------------- */

typedef struct four_dots {
    __m512i block[4][2];
} four_dots;

/* -zero * half_sum[k] */
SPRY_INLINE __m512i start_half(const spry_act_block *a, int k, int zero)
{
    int32_t both;
    memcpy(&both, a->half_sum, 4);
    if (zero == 0)
        return _mm512_setzero_si512();
    return _mm512_madd_epi16(_mm512_set1_epi32(both), _mm512_set1_epi32(k ? -zero * 65536 : -zero & 0xffff));
}

SPRY_INLINE void start_dots(four_dots *dots, const spry_act_block *a, int zero)
{
    for (int j = 0; j < 4; j++)
        for (int k = 0; k < 2; k++)
            dots->block[j][k] = start_half(a + j, k, zero);
}

/* Multiplies a half of 128 values: for each step one quad of high and two adjacent quads of low. Blocks 0 and 1 are in
 * the low nibbles, 2 and 3 in the high ones; each has two bits of high. */
SPRY_INLINE void dots_q6(four_dots *dots, const unsigned char *high, const spry_act_block *a)
{
    const __m512i upper = _mm512_set1_epi8(0x30);
    SPRY_UNROLL(8)
    for (int q = 0; q < 8; q++) {
        __m512i two = load_once(high + 192 * q), even = load_once(high + 192 * q + 64),
                odd = load_once(high + 192 * q + 128);
        __m512i *dot[4] = {&dots->block[0][q / 4], &dots->block[1][q / 4], &dots->block[2][q / 4],
                           &dots->block[3][q / 4]};
        *dot[0] = dot_quad(*dot[0], or_chosen(low_nibbles(even), _mm512_slli_epi16(two, 4), upper), a, q, 63);
        *dot[1] = dot_quad(*dot[1], or_chosen(low_nibbles(odd), _mm512_slli_epi16(two, 2), upper), a + 1, q, 63);
        *dot[2] = dot_quad(*dot[2], or_chosen(high_nibbles(even), two, upper), a + 2, q, 63);
        *dot[3] = dot_quad(*dot[3], or_chosen(high_nibbles(odd), _mm512_srli_epi16(two, 2), upper), a + 3, q, 63);
    }
}

SPRY_INLINE __m512 one_q6(__m512 sum, const unsigned char *p, const spry_act_block *a)
{
    const unsigned char *scales = p + 32, *levels = scales + 16 * GROUP;
    const __m512 scale = halves(p);
    touch(p, 32 + 16 * GROUP);
    SPRY_UNROLL(2)
    for (int half = 0; half < 2; half++, levels += 24 * 64, a += 4) {
        four_dots dots;
        start_dots(&dots, a, 32);
        dots_q6(&dots, levels, a);
        for (int j = 0; j < 4; j++, scales += 2 * GROUP) {
            __m512 one = _mm512_cvtepi32_ps(dots.block[j][0]), two = _mm512_cvtepi32_ps(dots.block[j][1]);
            __m512 first = _mm512_mul_ps(scale, bytes_i8(scales));
            __m512 second = _mm512_mul_ps(scale, bytes_i8(scales + GROUP));
            __m512 both = _mm512_fmadd_ps(two, second, _mm512_mul_ps(one, first));
            sum = _mm512_fmadd_ps(both, _mm512_set1_ps(a[j].scale), sum);
        }
    }
    return sum;
}

/* ---- Q2_K: two dots and two minima a block ----------------------------------------------------------------------- */

/* How far the levels of block j of two bits are shifted left in their byte while they are multiplied. */
SPRY_INLINE int pair_shift(int j)
{
    return 3 << 2 * j <= LARGEST_TOP ? 2 * j : 0;
}

/* Multiplies four blocks of two bits per value, which share 8 quads; dots keep the factor of pair_shift. */
SPRY_INLINE void dots_pairs(four_dots *dots, const unsigned char *low, const spry_act_block *a)
{
    SPRY_UNROLL(8)
    for (int q = 0; q < 8; q++) {
        __m512i four = load_once(low + 64 * q);
        for (int j = 0; j < 4; j++) {
            const int shift = pair_shift(j), top = 3 << shift;
            __m512i moved = shift == 2 * j ? four : shift_left(four, shift - 2 * j);
            __m512i quad = _mm512_and_si512(moved, _mm512_set1_epi8((char)top));
            dots->block[j][q / 4] = dot_quad(dots->block[j][q / 4], quad, a + j, q, top);
        }
    }
}

/* Adds block j as add_sixteens does; its factors are in the lower bytes of words. Nibbles become floats by a table
 * lookup, whose index is the lowest four bits. A minimum (16 times too large, because it stays in its high nibble)
 * times half_sum is exact in a float, so these products are computed in integers and the roundings stay the same. */
SPRY_INLINE __m512 add_q2(__m512 sum, const __m512i dot[2], __m512i factors, __m512 scale, __m512 min,
                          const spry_act_block *a)
{
    const __m512 nibbles = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int32_t half_sums;
    memcpy(&half_sums, a->half_sum, 4);
    __m512 first = _mm512_mul_ps(scale, _mm512_permutexvar_ps(factors, nibbles));
    __m512 second = _mm512_mul_ps(scale, _mm512_permutexvar_ps(_mm512_srli_epi32(factors, 16), nibbles));
    __m512 one = _mm512_cvtepi32_ps(dot[0]), two = _mm512_cvtepi32_ps(dot[1]);
    __m512 both = _mm512_fmadd_ps(two, second, _mm512_mul_ps(one, first));
    for (int k = 0; k < 2; k++) {
        __m512i below = _mm512_and_si512(factors, _mm512_set1_epi32(0xf0 << 16 * k));
        __m512i product = _mm512_madd_epi16(below, _mm512_set1_epi32(half_sums));
        both = _mm512_fmadd_ps(min, _mm512_cvtepi32_ps(product), both);
    }
    return _mm512_fmadd_ps(both, _mm512_set1_ps(a->scale), sum);
}

SPRY_INLINE __m512 one_q2(__m512 sum, const unsigned char *p, const spry_act_block *a)
{
    const unsigned char *scales = p + 64, *levels = scales + 16 * GROUP;
    const __m512 scale = halves(p), min = scaled_by(halves(p + 32), -1.0f / 16);
    touch(p, 64 + 16 * GROUP);
    SPRY_UNROLL(2)
    for (int half = 0; half < 2; half++, levels += 512, a += 4) {
        four_dots dots;
        start_dots(&dots, a, 0);
        dots_pairs(&dots, levels, a);
        for (int j = 0; j < 4; j++) {
            __m512i factors = load64(scales + 64 * (2 * half + j / 2));
            sum = add_q2(sum, dots.block[j], j % 2 ? _mm512_srli_epi32(factors, 8) : factors,
                         scaled_by(scale, 1.0f / (float)(1 << pair_shift(j))), min, a + j);
        }
    }
    return sum;
}

/* ---- Q3_K: two dots a block, zero point 4 ------------------------------------------------------------------------ */

/* How far the levels of block s are shifted left in their byte while they are multiplied. */
SPRY_INLINE int q3_shift(int s)
{
    return s > 5 ? (7 << 5 <= LARGEST_TOP ? 5 : 4) : s % 2 * 3;
}

/* Multiplies half k of all blocks: four steps of three quads. */
SPRY_INLINE void dots_q3(__m512i dot[8], const unsigned char *p, const spry_act_block *a, int k)
{
    SPRY_UNROLL(4)
    for (int q = 4 * k; q < 4 * k + 4; q++, p += 192) {
        __m512i three[3] = {load_once(p), load_once(p + 64), load_once(p + 128)};
        SPRY_UNROLL(8)
        for (int s = 0; s < 8; s++) {
            const int top = 7 << q3_shift(s);
            __m512i quad = _mm512_and_si512(three[s / 2 % 3], _mm512_set1_epi8((char)top));
            if (s > 5)
                quad = _mm512_srl_epi16(split_q3(three[s - 6], three[2], s), _mm_cvtsi32_si128(5 - q3_shift(s)));
            dot[s] = dot_quad(dot[s], quad, a + s, q, top);
        }
    }
}

/* A dot of at most 8128 times a scale of 6 bits, shifted left by up to 5 bits, is exact in a float. So the products are
 * computed in integers, and the roundings are the same as in add_sixteens. */
SPRY_INLINE __m512 one_q3(__m512 sum, const unsigned char *p, const spry_act_block *a)
{
    const unsigned char *scales = p + 32, *levels = scales + 16 * GROUP;
    const __m512 scale = halves(p);
    __m512i dot[2][8];
    touch(p, 32 + 16 * GROUP);
    SPRY_UNROLL(2)
    for (int k = 0; k < 2; k++) {
        for (int s = 0; s < 8; s++)
            dot[k][s] = start_half(a + s, k, 4 << q3_shift(s));
        dots_q3(dot[k], levels + k * (12 * 64), a, k);
    }
    for (int s = 0; s < 8; s++) {
        const __m512 placed = scaled_by(scale, 1.0f / (float)(1 << q3_shift(s)));
        __m512 part[2];
        for (int k = 0; k < 2; k++) {
            const unsigned char *bytes = scales + (2 * s + k) * GROUP;
            __m512i factor = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)bytes));
            part[k] = _mm512_cvtepi32_ps(_mm512_mullo_epi32(dot[k][s], factor));
        }
        __m512 both = _mm512_fmadd_ps(part[1], placed, _mm512_mul_ps(part[0], placed));
        sum = _mm512_fmadd_ps(both, _mm512_set1_ps(a[s].scale), sum);
    }
    return sum;
}

/* ---- TQ1_0 and TQ2_0: one scale, zero point 1 -------------------------------------------------------------------- */

SPRY_INLINE __m512 one_ternary(__m512 sum, const unsigned char *p, const spry_act_block *a)
{
    const __m512 scale = halves(p);
    SPRY_UNROLL(2)
    for (int s = 0; s < 8; s += 4) {
        four_dots dots;
        start_dots(&dots, a + s, 0);
        dots_pairs(&dots, p + 32 + s / 4 * 512, a + s);
        for (int j = 0; j < 4; j++) {
            const spry_act_block *block = a + s + j;
            __m512i start = _mm512_srai_epi32(_mm512_set1_epi32(block->minus_8_sum), 3);
            __m512i both = _mm512_add_epi32(dots.block[j][0], dots.block[j][1]);
            __m512i dot = _mm512_add_epi32(start, _mm512_sra_epi32(both, _mm_cvtsi32_si128(pair_shift(j))));
            sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scaled_by(scale, block->scale), sum);
        }
    }
    return sum;
}

/* ---- IQ4_XS ------------------------------------------------------------------------------------------------------ */

SPRY_INLINE __m512 one_iq4_xs(__m512 sum, const unsigned char *p, const spry_act_block *a)
{
    const __m512 scale = halves(p);
    const __m512i table = level_table(SPRY_IQ4_XS);
    const unsigned char *scales = p + 32, *levels = scales + 8 * GROUP;
    touch(p, 32 + 8 * GROUP);
    SPRY_UNROLL(8)
    for (int s = 0; s < 8; s++, levels += 256) {
        __m512i dot = start_dot(a + s, 4);
        __m512i high = _mm512_setzero_si512();
        SPRY_UNROLL(4)
        for (int q = 0; q < 4; q++) {
            __m512i both = load_once(levels + 64 * q);
            dot = dot_quad(dot, _mm512_shuffle_epi8(table, low_nibbles(both)), a + s, q, 255);
            high = dot_quad(high, _mm512_shuffle_epi8(table, high_nibbles(both)), a + s, q + 4, 255);
        }
        __m512 whole = _mm512_cvtepi32_ps(_mm512_add_epi32(dot, high));
        __m512 factor = _mm512_mul_ps(scale, bytes_i8(scales + s * GROUP));
        sum = _mm512_fmadd_ps(whole, scaled_by(factor, a[s].scale), sum);
    }
    return sum;
}
