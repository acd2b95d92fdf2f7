/* Products with the IQ2 and IQ3 types for AVX-512 with VBMI and GFNI: groups of 16 outputs (packed.h). Codes are looked
 * up in registers: 64 of them, four of each output, with one vpermi2b for every 128 entries. Levels and signs become
 * nibbles, then bytes 64 + weight, which dpbusd multiplies. Dots are exact in integers; conversions and fused additions
 * are the same as in matmul_avx512.h for types with a scale for every 32 or 16 values.
 *
 * Each byte of a vector of codes stands for eight adjacent weights, so a vector of weights holds every eighth value.
 * Activations are put in that order first. */
#include <immintrin.h>
#include <string.h>

#include "kernels/ops.h"
#include "kernels/packed.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/x86/grid_types.h"
#include "kernels/x86/x86.h"

enum { GROUP = 16, INT_TILE_ROWS = 8, INT_ROW_BLOCK = 64 };
enum { LARGE = 256, MOST_CODES = 1024, VECTOR = 64 };

/* 32 weights of 16 outputs, plus SPRY_GRID_ZERO, in the order of put_in_order. */
typedef struct code_part {
    __m512i quad[8];
    __m512 scale[2]; /* for the first and the last 16 values; a type with one scale for 32 values uses only scale[0] */
} code_part;

/* The grid as lookup tables: entry i is byte i of both halves. In IQ2 the halves have levels 0 to 3 and 4 to 7, two
 * bits each; in IQ3 levels 0 and 2, and levels 1 and 3, a nibble each. */
typedef struct int_tables {
    __m512i half[2][MOST_CODES / VECTOR];
} int_tables;

static inline __m512i load64(const unsigned char *p)
{
    return _mm512_loadu_si512(p);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

SPRY_INLINE void int_fill(int_tables *t, spry_dtype type)
{
    for (int i = 0; i < spry_grid_codes(type); i += 32) {
        __m512i entry = _mm512_loadu_si512(spry_grid_of(type) + i), low = entry, high = _mm512_srli_epi16(entry, 8);
        if (spry_grid_fours(type)) { /* levels have three bits: 0 and 2 begin at bits 0 and 6, 1 and 3 at bits 3 and
                                      * 9 */
            const __m512i three = _mm512_set1_epi16(7);
            low = _mm512_or_si512(_mm512_and_si512(entry, three),
                                  _mm512_and_si512(_mm512_srli_epi16(entry, 2), _mm512_slli_epi16(three, 4)));
            high = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(entry, 3), three),
                                   _mm512_and_si512(_mm512_srli_epi16(entry, 5), _mm512_slli_epi16(three, 4)));
        }
        _mm256_storeu_si256((__m256i *)(void *)t->half[0] + i / 32, _mm512_cvtepi16_epi8(low));
        _mm256_storeu_si256((__m256i *)(void *)t->half[1] + i / 32, _mm512_cvtepi16_epi8(high));
    }
}

SPRY_INLINE __m512i level_table(spry_dtype type)
{
    uint8_t levels[16];
    spry_grid_levels(levels, type);
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)levels));
}

/* Scale factors, indexed by nibble. */
SPRY_INLINE __m512 factor_table(spry_dtype type)
{
    const __m512 nibble = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_mul_ps(_mm512_add_ps(nibble, _mm512_set1_ps(0.5f)), _mm512_set1_ps(spry_grid_step(type)));
}

/* ---- a part ------------------------------------------------------------------------------------------------------ */

/* Looks up 64 codes: `code` has their lower seven bits, `bits` masks of the higher bits. */
SPRY_INLINE __m512i find(const __m512i *table, int n, __m512i code, const __mmask64 bits[3])
{
    __m512i found[MOST_CODES / 128];
    for (int i = 0; i < n / 128; i++)
        found[i] = _mm512_permutex2var_epi8(table[2 * i], code, table[2 * i + 1]);
    for (int b = 0, left = n / 256; left; b++, left /= 2)
        for (int i = 0; i < left; i++)
            found[i] = _mm512_mask_blend_epi8(bits[b], found[2 * i], found[2 * i + 1]);
    return found[0];
}

/* The signs of 8 weights in each byte, for four times 8 weights of 16 outputs: from bit 7 down the signs of weights 2,
 * 3, 6, 7, 0, 1, 4, 5. GFNI multiplies each byte by a matrix of bits, whose last rows give the topmost bits. Where only
 * seven signs are stored, the eighth makes the number of minus signs even. */
SPRY_INLINE __m512i signs_of(spry_dtype type, __m512i bits)
{
    if (spry_grid_words(type)) { /* seven bits each */
        const __m512i at = _mm512_set1_epi64(0x352e2720150e0700);
        return _mm512_gf2p8affine_epi64_epi8(_mm512_multishift_epi64_epi8(at, bits),
                                             _mm512_set1_epi64(0x201002017f400804), 0);
    }
    if (type == SPRY_IQ2_XS) /* the signs are above a bit of the code */
        return _mm512_gf2p8affine_epi64_epi8(bits, _mm512_set1_epi64(0x40200402fe801008), 0);
    return _mm512_gf2p8affine_epi64_epi8(bits, _mm512_set1_epi64(0x2010020180400804), 0);
}

/* Combines bits 3 and 7 of the signs with the other bits of the levels. */
SPRY_INLINE __m512i with_signs(__m512i levels, __m512i signs)
{
    return _mm512_ternarylogic_epi32(levels, signs, _mm512_set1_epi8((char)0x88), 0xd8);
}

/* Upper bits of codes: in IQ2_S bits 0 and 1 of a byte; in IQ3_S bit 0 for an even code and bit 1 for an odd one. */
SPRY_INLINE __m512i spread_high(const unsigned char *p, int part)
{
    const __m512i at = _mm512_set1_epi64(0x2624222006040200);
    __m512i bytes = _mm512_srl_epi32(load64(p + part / 4 * VECTOR), _mm_cvtsi32_si128(part % 4 * 8));
    return _mm512_multishift_epi64_epi8(at, bytes);
}

/* Loads the nibbles of weights 0 and 2, 1 and 3, 4 and 6, 5 and 7, each for four times eight weights. */
SPRY_INLINE void load_nibbles(__m512i nibbles[4], const int_tables *t, spry_dtype type, const unsigned char *block,
                              int part)
{
    const unsigned char *p = block + spry_grid_part(type, part) * VECTOR;
    const int n = spry_grid_codes(type), last = spry_grid_fours(type) ? 2 : 1;
    __m512i code = load64(p), bits = load64(p + last * VECTOR), signs = signs_of(type, bits), high = bits;
    if (type == SPRY_IQ2_S || type == SPRY_IQ3_S)
        high = spread_high(block + (type == SPRY_IQ3_S ? 1 : 2) * VECTOR, part);
    __mmask64 upper[3] = {_mm512_movepi8_mask(code), _mm512_test_epi8_mask(high, _mm512_set1_epi8(1)),
                          _mm512_test_epi8_mask(high, _mm512_set1_epi8(2))};
    __m512i first = find(t->half[0], n, code, upper), second = find(t->half[1], n, code, upper);
    nibbles[0] = first;
    nibbles[1] = _mm512_srli_epi16(first, 2);
    nibbles[2] = second;
    nibbles[3] = _mm512_srli_epi16(second, 2);
    if (spry_grid_fours(type)) {
        code = load64(p + VECTOR);
        __mmask64 odd[3] = {_mm512_movepi8_mask(code), upper[2]};
        nibbles[1] = second;
        nibbles[2] = find(t->half[0], n, code, odd);
        nibbles[3] = find(t->half[1], n, code, odd);
    }
    for (int j = 0; j < 4; j++, signs = _mm512_add_epi8(signs, signs))
        nibbles[j] = with_signs(nibbles[j], signs);
}

SPRY_INLINE void load_scales(code_part *w, spry_dtype type, const unsigned char *block, int part, __m512 scale)
{
    const __m512 factors = factor_table(type);
    if (spry_grid_words(type)) {
        __m512i word = load64(block + (spry_grid_part(type, part) + (spry_grid_fours(type) ? 2 : 1)) * VECTOR);
        w->scale[0] = _mm512_mul_ps(scale, _mm512_permutexvar_ps(_mm512_srli_epi32(word, 28), factors));
        return;
    }
    const int each = spry_grid_sixteens(type) ? 2 : 1;
    __m512i eight = load64(block + each * part / 8 * VECTOR);
    for (int k = 0; k < each; k++) {
        __m512i index = _mm512_srl_epi32(eight, _mm_cvtsi32_si128((each * part + k) % 8 * 4));
        w->scale[k] = _mm512_mul_ps(scale, _mm512_permutexvar_ps(index, factors));
    }
}

/* Loads a part. vpermb uses the lower 6 bits of an index, and the table has four copies of the 16 levels, so bits above
 * a nibble do not matter. In types with a scale for every 16 values, a quad has two pairs of adjacent values of the
 * same 16. */
SPRY_INLINE void load_part(code_part *w, const int_tables *t, spry_dtype type, const unsigned char *block, int part,
                           __m512 scale)
{
    const __m512i levels = level_table(type);
    const __m512i first = _mm512_set1_epi64(0x2c2428200c040800), last = _mm512_set1_epi64(0x3c3438301c141810);
    __m512i nibbles[4];
    load_nibbles(nibbles, t, type, block, part);
    for (int j = 0; j < 4; j++) {
        __m512i one = nibbles[j], two = _mm512_srli_epi16(nibbles[j], 4);
        if (spry_grid_sixteens(type)) {
            one = _mm512_multishift_epi64_epi8(first, nibbles[j]);
            two = _mm512_multishift_epi64_epi8(last, nibbles[j]);
        }
        w->quad[j] = _mm512_permutexvar_epi8(one, levels);
        w->quad[j + 4] = _mm512_permutexvar_epi8(two, levels);
    }
    load_scales(w, type, block, part, scale);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Stores the activations of a block of 256 in the order of the quads of weights. */
SPRY_INLINE void put_in_order(int8_t out[LARGE], spry_dtype type, const spry_act_block *a)
{
    static const uint8_t eighths[32] = {0, 8,  16, 24, 1, 9,  17, 25, 4, 12, 20, 28, 5, 13, 21, 29,
                                        2, 10, 18, 26, 3, 11, 19, 27, 6, 14, 22, 30, 7, 15, 23, 31};
    static const uint8_t halves[32] = {0,  8,  2,  10, 1,  9,  3,  11, 4,  12, 6,  14, 5,  13, 7,  15,
                                       16, 24, 18, 26, 17, 25, 19, 27, 20, 28, 22, 30, 21, 29, 23, 31};
    const __m256i order =
        _mm256_loadu_si256((const __m256i *)(const void *)(spry_grid_sixteens(type) ? halves : eighths));
    for (int s = 0; s < SPRY_GRID_PARTS; s++) {
        __m256i values = _mm256_loadu_si256((const __m256i *)(const void *)a[s].values);
        _mm256_store_si256((__m256i *)(void *)(out + 32 * s), _mm256_permutexvar_epi8(order, values));
    }
}

SPRY_INLINE __m512i dot_half(__m512i start, const __m512i quad[4], const int8_t *values)
{
    for (int q = 0; q < 4; q++) {
        int32_t four;
        memcpy(&four, values + 4 * q, 4);
        start = _mm512_dpbusd_epi32(start, quad[q], _mm512_set1_epi32(four));
    }
    return start;
}

SPRY_INLINE __m512 add_part(__m512 sum, const code_part *w, spry_dtype type, const spry_act_block *a,
                            const int8_t *values)
{
    if (spry_grid_sixteens(type)) {
        __m512i left = _mm512_set1_epi32(-SPRY_GRID_ZERO * a->half_sum[0]);
        __m512i right = _mm512_set1_epi32(-SPRY_GRID_ZERO * a->half_sum[1]);
        __m512 one = _mm512_cvtepi32_ps(dot_half(left, w->quad, values));
        __m512 two = _mm512_cvtepi32_ps(dot_half(right, w->quad + 4, values + 16));
        __m512 both = _mm512_fmadd_ps(two, w->scale[1], _mm512_mul_ps(one, w->scale[0]));
        return _mm512_fmadd_ps(both, _mm512_set1_ps(a->scale), sum);
    }
    __m512i start = _mm512_slli_epi32(_mm512_set1_epi32(a->minus_8_sum), 3); /* SPRY_GRID_ZERO is 64 = 8 * 8 */
    __m512i one = dot_half(start, w->quad, values);
    __m512i two = dot_half(_mm512_setzero_si512(), w->quad + 4, values + 16);
    __m512 dot = _mm512_cvtepi32_ps(_mm512_add_epi32(one, two));
    return _mm512_fmadd_ps(dot, _mm512_mul_ps(w->scale[0], _mm512_set1_ps(a->scale)), sum);
}

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

SPRY_INLINE void int_blocks(int_sum sum[INT_TILE_ROWS], const int_tables *table, spry_dtype type,
                            const unsigned char *p, const spry_act_block *const act[], size_t n_in, int n_rows)
{
    for (size_t b = 0; b < n_in / 32; b += SPRY_GRID_PARTS, p += spry_packed_row_bytes(type) * GROUP) {
        _Alignas(VECTOR) int8_t values[INT_TILE_ROWS][LARGE];
        const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
        for (int r = 0; r < n_rows; r++)
            put_in_order(values[r], type, act[r] + b);
        for (int s = 0; s < SPRY_GRID_PARTS; s++) {
            code_part w;
            load_part(&w, table, type, p + 2 * GROUP, s, scale);
            for (int r = 0; r < n_rows; r++)
                sum[r] = add_part(sum[r], &w, type, act[r] + b + s, values[r] + 32 * s);
        }
    }
}

#include "kernels/simd/simd_tiles.h"

#define CODES_DEFINE(NAME, name, ...)                                                                                  \
    void spry_avx512_matmul_##name(const spry_matmul *m, size_t out_begin, size_t out_end)                             \
    {                                                                                                                  \
        int_product(m, SPRY_##NAME, out_begin, out_end);                                                               \
    }
SPRY_DTYPES_GRID(CODES_DEFINE)
