/* One row times blocks of 256 for AVX-512: decode. Every vector of weights is loaded once, in ascending order, and used
 * for all blocks of 32 that have bits in it, so that memory sets the speed. Dots are exact in integers, and conversions
 * and fused additions are those of matmul_avx512.h in the same order: the same bits. Included by it.
 *
 * Levels of two bits stay where they are in a byte: their dots are 1, 4, 16 and 64 times as large and are shifted once.
 * Without VNNI the topmost do not. */

/* Reads a byte of each line of `bytes` in ascending order, before parts of them are used in another order: the
 * hardware's prefetchers follow the order in which lines are first read. */
SPRY_INLINE void touch(const unsigned char *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        (void)*(const volatile unsigned char *)(p + i);
}

/* Loads a vector exactly once and after those before it; compilers would make it an operand of every instruction that
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

/* ---- Q6_K and Q2_K: two dots a block ------------------------------------------------------------------------------
 */

typedef struct four_dots {
    __m512i block[4][2];
} four_dots;

SPRY_INLINE void clear_dots(four_dots *dots)
{
    for (int j = 0; j < 4; j++)
        for (int k = 0; k < 2; k++)
            dots->block[j][k] = _mm512_setzero_si512();
}

/* A half of 128: a quad of high and two of low side by side. Blocks 0 and 1 are in the low nibbles, 2 and 3 in the high
 * ones, two bits each of high. */
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

/* Where block j of two bits has its levels in a byte while it is multiplied. */
SPRY_INLINE int pair_shift(int j)
{
    return 3 << 2 * j <= LARGEST_TOP ? 2 * j : 0;
}

/* Four blocks of two bits each of 8 quads. */
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
    for (int j = 1; j < 4; j++)
        for (int k = 0; k < 2; k++)
            dots->block[j][k] = _mm512_sra_epi32(dots->block[j][k], _mm_cvtsi32_si128(pair_shift(j)));
}

/* Adds four blocks from s on as add_sixteens does. */
SPRY_INLINE __m512 add_four(__m512 sum, spry_dtype type, const four_dots *dots, const unsigned char *p, int s,
                            const spry_act_block *a)
{
    const unsigned char *scales = p + (type == SPRY_Q2_K ? 64 : 32);
    const __m512 scale = halves(p), min = _mm512_sub_ps(_mm512_setzero_ps(), halves(p + 32));
    const int zero = type == SPRY_Q6_K ? 32 : 0;
    for (int j = 0; j < 4; j++) {
        __m512 dot[2], factor[2], below[2];
        for (int k = 0; k < 2; k++) {
            const unsigned char *bytes = scales + (2 * (s + j) + k) * GROUP;
            __m512i start = _mm512_set1_epi32(-zero * a[j].half_sum[k]);
            dot[k] = _mm512_cvtepi32_ps(_mm512_add_epi32(start, dots->block[j][k]));
            if (type == SPRY_Q2_K) {
                __m128i both = _mm_loadu_si128((const __m128i *)(const void *)bytes), four = _mm_set1_epi8(15);
                __m512i lower = _mm512_cvtepu8_epi32(_mm_and_si128(both, four));
                __m512i upper = _mm512_cvtepu8_epi32(_mm_and_si128(_mm_srli_epi16(both, 4), four));
                factor[k] = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(lower));
                below[k] = _mm512_mul_ps(min, _mm512_cvtepi32_ps(upper));
            } else {
                factor[k] = _mm512_mul_ps(scale, bytes_i8(bytes));
            }
        }
        __m512 both = _mm512_fmadd_ps(dot[1], factor[1], _mm512_mul_ps(dot[0], factor[0]));
        for (int k = 0; type == SPRY_Q2_K && k < 2; k++)
            both = _mm512_fmadd_ps(below[k], _mm512_set1_ps((float)a[j].half_sum[k]), both);
        sum = _mm512_fmadd_ps(both, _mm512_set1_ps(a[j].scale), sum);
    }
    return sum;
}

SPRY_INLINE __m512 one_sixteens(__m512 sum, spry_dtype type, const unsigned char *p, const spry_act_block *a)
{
    const unsigned char *levels = p + (type == SPRY_Q2_K ? 64 : 32) + 16 * GROUP;
    touch(p, (size_t)(levels - p));
    SPRY_UNROLL(2)
    for (int s = 0; s < 8; s += 4) {
        four_dots dots;
        clear_dots(&dots);
        if (type == SPRY_Q6_K)
            dots_q6(&dots, levels + s / 4 * (24 * 64), a + s);
        else
            dots_pairs(&dots, levels + s / 4 * 512, a + s);
        sum = add_four(sum, type, &dots, p, s, a + s);
    }
    return sum;
}

/* ---- Q3_K: two dots a block, zero point 4 -------------------------------------------------------------------------
 */

/* Where block s has its levels in a byte while it is multiplied. */
SPRY_INLINE int q3_shift(int s)
{
    return s > 5 ? (7 << 5 <= LARGEST_TOP ? 5 : 4) : s % 2 * 3;
}

/* Half k of all blocks: four turns of three quads. */
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

/* What the dot of half k of block s starts with: -zero * half_sum, in its place. */
SPRY_INLINE __m512i start_half(const spry_act_block *a, int k, int zero)
{
    int32_t both;
    memcpy(&both, a->half_sum, 4);
    return _mm512_madd_epi16(_mm512_set1_epi32(both), _mm512_set1_epi32(k ? -zero * 65536 : -zero & 0xffff));
}

/* A dot of at most 8128 times a scale of 6 bits and its place of 5 bits is exact in a float. So products are made in
 * integers, and the roundings are those of add_sixteens. */
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

/* ---- TQ1_0 and TQ2_0: one scale, zero point 1 ---------------------------------------------------------------------
 */

SPRY_INLINE __m512 one_ternary(__m512 sum, const unsigned char *p, const spry_act_block *a)
{
    const __m512 scale = halves(p);
    SPRY_UNROLL(2)
    for (int s = 0; s < 8; s += 4) {
        four_dots dots;
        clear_dots(&dots);
        dots_pairs(&dots, p + 32 + s / 4 * 512, a + s);
        for (int j = 0; j < 4; j++) {
            const spry_act_block *block = a + s + j;
            __m512i start = _mm512_srai_epi32(_mm512_set1_epi32(block->minus_8_sum), 3);
            __m512i dot = _mm512_add_epi32(start, _mm512_add_epi32(dots.block[j][0], dots.block[j][1]));
            sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scaled_by(scale, block->scale), sum);
        }
    }
    return sum;
}
