/* Products with the IQ2 and IQ3 types for AVX2 and above: packed groups (packed.h), eight outputs at a time. The table
 * entry of each code is read from memory as a word; entries are joined to vectors of four outputs. Levels and signs
 * become nibbles, then bytes 64 + weight. A part is 32 weights. Dots are exact in integers, and conversions and fused
 * additions are the same as in matmul_codes.c, in the same order: the same bits.
 *
 * A vector of weights holds every fourth value, or pairs from every eight values. Activations are put in that order
 * first.
 *
 * Define OP(name) and GROUP first. */
#include <immintrin.h>
#include <string.h>

#include "kernels/grids.h"
#include "kernels/ops.h"
#include "kernels/packed.h"
#include "kernels/x86/grid_types.h"

enum { GRID_TILE_ROWS = 4, GRID_OUTPUTS = 8, GRID_LARGE = 256, GRID_QUAD = 4 * GROUP };

/* Table entries for a block of 256 weights of eight outputs: part[0] is for outputs 0, 1, 4 and 5, part[1] for outputs
 * 2, 3, 6 and 7, as that order suits the AVX2 instructions. In IQ3 even codes come first, then odd ones. */
typedef struct grid_words {
    _Alignas(32) uint16_t part[2][2][32];
} grid_words;

/* 32 weights of eight outputs. [0] is for outputs 0, 1, 4 and 5, [1] for outputs 2, 3, 6 and 7. A quad has, for each
 * output, one 32-bit word with four of its first 16 weights and one with four of its last 16. */
typedef struct grid_part {
    __m256i quad[4][2];
    __m256 scale[2];
} grid_part;

static inline __m256i load32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* The table entry of each code, with zeros before and after it. IQ2: the grid's own entry; IQ3: levels 0, 2, 1 and 3, a
 * nibble each. */
typedef struct grid_table {
    uint64_t entry[1 + 1024]; /* entry[1 + i] belongs to code i */
} grid_table;

SPRY_INLINE void fill_grid_table(grid_table *t, spry_dtype type)
{
    const uint16_t *grid = spry_grid_of(type);
    t->entry[0] = 0;
    for (int i = 0; i < spry_grid_codes(type); i++) {
        uint64_t e = grid[i];
        t->entry[1 + i] = spry_grid_fours(type) ? (e & 7) | (e & 0x1c0) >> 2 | (e & 0x38) << 5 | (e & 0xe00) << 3 : e;
    }
}

/* Reads the entry of a code shifted left by 16 * place bits: the read begins 2 * place bytes before the entry. */
SPRY_INLINE uint64_t entry_at(const grid_table *t, uint64_t code, size_t place)
{
    uint64_t found;
    memcpy(&found, (const unsigned char *)(t->entry + 1 + code) - 2 * place, sizeof found);
    return found;
}

/* A lookup table for nibbles: entry i is the sum (XOR) of the bytes a, b, c, d whose bits are set in i. */
static inline __m256i sums_of_bits(int a, int b, int c, int d)
{
    return _mm256_broadcastsi128_si256(_mm_setr_epi8(0, (char)a, (char)b, (char)(a ^ b), (char)c, (char)(a ^ c),
                                                     (char)(b ^ c), (char)(a ^ b ^ c), (char)d, (char)(a ^ d),
                                                     (char)(b ^ d), (char)(a ^ b ^ d), (char)(c ^ d), (char)(a ^ c ^ d),
                                                     (char)(b ^ c ^ d), (char)(a ^ b ^ c ^ d)));
}

static inline __m256i low_of(__m256i x)
{
    return _mm256_and_si256(x, _mm256_set1_epi8(15));
}

static inline __m256i high_of(__m256i x)
{
    return low_of(_mm256_srli_epi16(x, 4));
}

SPRY_INLINE __m256i grid_levels(spry_dtype type)
{
    uint8_t levels[16];
    spry_grid_levels(levels, type);
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)levels));
}

/* ---- a block ----------------------------------------------------------------------------------------------------- */

/* Upper bits of codes, two bits in each byte: in IQ3_S bit 0 for an even code and bit 1 for an odd one. */
SPRY_INLINE __m256i grid_high(spry_dtype type, const unsigned char *block, const unsigned char *p, int part)
{
    if (type == SPRY_IQ2_XS)
        return _mm256_and_si256(load32(p + GRID_QUAD), _mm256_set1_epi8(1));
    if (type != SPRY_IQ2_S && type != SPRY_IQ3_S)
        return _mm256_setzero_si256();
    const unsigned char *high = block + (type == SPRY_IQ3_S ? 1 : 2) * GRID_QUAD;
    __m256i bytes = _mm256_srl_epi32(load32(high + part / 4 * GRID_QUAD), _mm_cvtsi32_si128(part % 4 * 8));
    bytes = _mm256_and_si256(bytes, _mm256_set1_epi32(255));
    bytes = _mm256_or_si256(bytes, _mm256_slli_epi32(bytes, 6));
    return _mm256_and_si256(_mm256_or_si256(bytes, _mm256_slli_epi32(bytes, 12)), _mm256_set1_epi8(3));
}

/* Looks up the entries of codes; four codes of an output are joined in a scalar register. */
SPRY_INLINE void look_up_codes(uint16_t words[32], const grid_table *t, __m256i code, __m256i high)
{
    _Alignas(32) uint16_t index[32];
    _mm256_store_si256((__m256i *)(void *)index, _mm256_unpacklo_epi8(code, high));
    _mm256_store_si256((__m256i *)(void *)(index + 16), _mm256_unpackhi_epi8(code, high));
    SPRY_UNROLL(8)
    for (int i = 0; i < 32; i += 4) {
        uint64_t four;
        memcpy(&four, index + i, 8);
        *(volatile uint64_t *)(void *)(words + i) = entry_at(t, four & 0xffff, 0) |
                                                    entry_at(t, four >> 16 & 0xffff, 1) |
                                                    entry_at(t, four >> 32 & 0xffff, 2) | entry_at(t, four >> 48, 3);
    }
}

SPRY_INLINE void look_up_part(grid_words *w, const grid_table *entries, spry_dtype type, const unsigned char *block,
                              int part)
{
    const __m256i one = _mm256_set1_epi8(1);
    const unsigned char *p = block + spry_grid_part(type, part) * GRID_QUAD;
    __m256i high = grid_high(type, block, p, part);
    if (!spry_grid_fours(type)) {
        look_up_codes(w->part[part % 2][0], entries, load32(p), high);
        return;
    }
    look_up_codes(w->part[part % 2][0], entries, load32(p), _mm256_and_si256(high, one));
    look_up_codes(w->part[part % 2][1], entries, load32(p + GRID_QUAD),
                  _mm256_and_si256(_mm256_srli_epi16(high, 1), one));
}

/* The signs of 8 weights in each byte, for four times 8 weights: from bit 7 down the signs of weights 2, 3, 6, 7, 0, 1,
 * 4, 5. Where only seven signs are stored, the sign of weight 7 makes the number of minus signs even. */
SPRY_INLINE __m256i grid_signs(spry_dtype type, __m256i bits)
{
    const int even = type == SPRY_IQ2_S || type == SPRY_IQ3_S ? 0 : 0x10;
    if (type == SPRY_IQ2_XS)
        bits = _mm256_and_si256(_mm256_srli_epi16(bits, 1), _mm256_set1_epi8(127));
    if (spry_grid_words(type)) {
        const __m256i seven = _mm256_set1_epi32(127);
        __m256i fields = _mm256_and_si256(bits, seven);
        for (int i = 1; i < 4; i++)
            fields =
                _mm256_or_si256(fields, _mm256_and_si256(_mm256_slli_epi32(bits, i), _mm256_slli_epi32(seven, 8 * i)));
        bits = fields;
    }
    __m256i lower = sums_of_bits(0x08 ^ even, 0x04 ^ even, 0x80 ^ even, 0x40 ^ even);
    __m256i upper = sums_of_bits(0x02 ^ even, 0x01 ^ even, 0x20 ^ even, 0x10);
    return _mm256_xor_si256(_mm256_shuffle_epi8(lower, low_of(bits)), _mm256_shuffle_epi8(upper, high_of(bits)));
}

/* Makes quads 2 k and 2 k + 1 of four outputs from levels (in `words`) and signs (in bits 3 and 7). */
SPRY_INLINE void grid_quads(grid_part *out, int k, int four, __m256i words, __m256i signs, __m256i levels)
{
    const __m256i top = _mm256_set1_epi8((char)0x88);
    __m256i nibbles = _mm256_or_si256(_mm256_andnot_si256(top, words), _mm256_and_si256(top, signs));
    out->quad[2 * k][four] = _mm256_shuffle_epi8(levels, low_of(nibbles));
    out->quad[2 * k + 1][four] = _mm256_shuffle_epi8(levels, high_of(nibbles));
}

SPRY_INLINE __m256 grid_scale(spry_dtype type, __m256i nibbles, __m256 scale)
{
    __m256i nibble = _mm256_and_si256(nibbles, _mm256_set1_epi32(15));
    __m256 factor = _mm256_add_ps(_mm256_cvtepi32_ps(nibble), _mm256_set1_ps(0.5f));
    return _mm256_mul_ps(scale, _mm256_mul_ps(factor, _mm256_set1_ps(spry_grid_step(type))));
}

SPRY_INLINE void grid_scales(grid_part *out, spry_dtype type, const unsigned char *block, __m256i bits, int part,
                             __m256 scale)
{
    if (spry_grid_words(type)) {
        out->scale[0] = grid_scale(type, _mm256_srli_epi32(bits, 28), scale);
        return;
    }
    const int each = spry_grid_sixteens(type) ? 2 : 1;
    __m256i eight = load32(block + each * part / 8 * GRID_QUAD);
    for (int k = 0; k < each; k++)
        out->scale[k] = grid_scale(type, _mm256_srl_epi32(eight, _mm_cvtsi32_si128((each * part + k) % 8 * 4)), scale);
}

SPRY_INLINE void load_grid_part(grid_part *out, const grid_words *w, spry_dtype type, const unsigned char *block,
                                int part, __m256 scale)
{
    const bool fours = spry_grid_fours(type);
    const __m256i levels = grid_levels(type), zero = _mm256_setzero_si256();
    __m256i bits = load32(block + (spry_grid_part(type, part) + (fours ? 2 : 1)) * GRID_QUAD);
    __m256i signs = grid_signs(type, bits);
    for (int four = 0; four < 2; four++) {
        __m256i own = four ? _mm256_unpackhi_epi8(signs, zero) : _mm256_unpacklo_epi8(signs, zero);
        __m256i words = load32(w->part[part % 2][0] + 16 * four);
        if (fours) {
            own = _mm256_or_si256(own, _mm256_slli_epi16(own, 9));
            grid_quads(out, 0, four, words, own, levels);
            grid_quads(out, 1, four, load32(w->part[part % 2][1] + 16 * four), _mm256_slli_epi16(own, 2), levels);
        } else {
            own = _mm256_or_si256(own, _mm256_slli_epi16(own, 10));
            grid_quads(out, 0, four, words, own, levels);
            grid_quads(out, 1, four, _mm256_srli_epi16(words, 2), _mm256_slli_epi16(own, 1), levels);
        }
    }
    grid_scales(out, type, block, bits, part, scale);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Stores the activations of a block of 256 in the order of the quads of weights: in each quad four of the first 16
 * values and four of the last 16. */
SPRY_INLINE void put_in_order(int8_t *out, spry_dtype type, const spry_act_block *a)
{
    const __m128i fourths = _mm_setr_epi8(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15);
    const __m128i pairs = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    for (int s = 0; s < SPRY_GRID_PARTS; s++) {
        const __m128i *values = (const __m128i *)(const void *)a[s].values,
                      order = spry_grid_fours(type) ? pairs : fourths;
        __m128i first = _mm_shuffle_epi8(_mm_loadu_si128(values), order);
        __m128i last = _mm_shuffle_epi8(_mm_loadu_si128(values + 1), order);
        _mm_storeu_si128((__m128i *)(void *)(out + 32 * s), _mm_unpacklo_epi32(first, last));
        _mm_storeu_si128((__m128i *)(void *)(out + 32 * s + 16), _mm_unpackhi_epi32(first, last));
    }
}

/* Levels are at most 126, so that sums of two products fit in 16 bits. */
static inline __m256i grid_dot(__m256i sum, __m256i quad, __m256i values)
{
#if defined(DOT_FOUR)
    return DOT_FOUR(sum, quad, values);
#elif defined(__AVX512VNNI__)
    return _mm256_dpbusd_epi32(sum, quad, values);
#else
    __m256i pairs = _mm256_maddubs_epi16(quad, values);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}

SPRY_INLINE __m256 add_grid_part(__m256 sum, const grid_part *w, spry_dtype type, const spry_act_block *a,
                                 const int8_t *values)
{
    __m256i dot[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int q = 0; q < 4; q++) {
        long long eight;
        memcpy(&eight, values + 8 * q, 8);
        for (int four = 0; four < 2; four++)
            dot[four] = grid_dot(dot[four], w->quad[q][four], _mm256_set1_epi64x(eight));
    }
    if (spry_grid_sixteens(type)) {
        __m256 x = _mm256_castsi256_ps(dot[0]), y = _mm256_castsi256_ps(dot[1]);
        __m256i left = _mm256_set1_epi32(-SPRY_GRID_ZERO * a->half_sum[0]);
        __m256i right = _mm256_set1_epi32(-SPRY_GRID_ZERO * a->half_sum[1]);
        left = _mm256_add_epi32(left, _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)));
        right = _mm256_add_epi32(right, _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xdd)));
        __m256 one = _mm256_mul_ps(_mm256_cvtepi32_ps(left), w->scale[0]);
        __m256 both = _mm256_fmadd_ps(_mm256_cvtepi32_ps(right), w->scale[1], one);
        return _mm256_fmadd_ps(both, _mm256_set1_ps(a->scale), sum);
    }
    __m256i start = _mm256_set1_epi32(SPRY_GRID_ZERO / 8 * a->minus_8_sum);
    __m256 whole = _mm256_cvtepi32_ps(_mm256_add_epi32(start, _mm256_hadd_epi32(dot[0], dot[1])));
    return _mm256_fmadd_ps(whole, _mm256_mul_ps(w->scale[0], _mm256_set1_ps(a->scale)), sum);
}

/* Computes outputs [output, output + n_out), at most eight. */
SPRY_INLINE void grid_tile(const spry_matmul *m, spry_dtype type, const grid_table *entries, size_t output,
                           size_t n_out, size_t row, int n_rows)
{
    const unsigned char *group = (const unsigned char *)m->weight + output / GROUP * m->weight_stride;
    const spry_act_block *act[GRID_TILE_ROWS];
    __m256 sum[GRID_TILE_ROWS];
    for (int r = 0; r < n_rows; r++) {
        act[r] =
            (const spry_act_block *)(const void *)((const unsigned char *)m->act + (row + (size_t)r) * m->act_stride);
        sum[r] = _mm256_setzero_ps();
    }
    for (size_t b = 0; b < m->n_in / 32; b += SPRY_GRID_PARTS, group += spry_packed_row_bytes(type) * GROUP) {
        const unsigned char *block = group + 2 * GROUP + output % GROUP * 4;
        const __m256 scale =
            _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(group + output % GROUP * 2)));
        _Alignas(32) int8_t values[GRID_TILE_ROWS][GRID_LARGE];
        grid_words words;
        look_up_part(&words, entries, type, block, 0);
        for (int r = 0; r < n_rows; r++)
            put_in_order(values[r], type, act[r] + b);
        for (int s = 0; s < SPRY_GRID_PARTS; s++) {
            grid_part w;
            if (s + 1 < SPRY_GRID_PARTS)
                look_up_part(&words, entries, type, block, s + 1);
            load_grid_part(&w, &words, type, block, s, scale);
            for (int r = 0; r < n_rows; r++)
                sum[r] = add_grid_part(sum[r], &w, type, act[r] + b + s, values[r] + 32 * s);
        }
    }
    for (int r = 0; r < n_rows; r++) {
        float out[GRID_OUTPUTS];
        _mm256_storeu_ps(out, sum[r]);
        memcpy(m->out + (row + (size_t)r) * m->out_stride + output, out, n_out * sizeof *out);
    }
}

SPRY_INLINE void grid_product(const spry_matmul *m, spry_dtype type, size_t out_begin, size_t out_end)
{
    grid_table table;
    fill_grid_table(&table, type);
    for (size_t output = out_begin; output < out_end; output += GRID_OUTPUTS) {
        size_t row = 0, n_out = out_end - output < GRID_OUTPUTS ? out_end - output : GRID_OUTPUTS;
        for (; row + GRID_TILE_ROWS <= m->n_rows; row += GRID_TILE_ROWS)
            grid_tile(m, type, &table, output, n_out, row, GRID_TILE_ROWS);
        for (; row < m->n_rows; row++)
            grid_tile(m, type, &table, output, n_out, row, 1);
    }
}

#define GRID_DEFINE(NAME, ...)                                                                                         \
    static void OP(matmul_##NAME)(const spry_matmul *m, size_t out_begin, size_t out_end)                              \
    {                                                                                                                  \
        grid_product(m, SPRY_##NAME, out_begin, out_end);                                                              \
    }
SPRY_DTYPES_GRID(GRID_DEFINE)

/* The table's entries for this file's products. */
#define GRID_ENTRY(NAME, ...) .matmul[SPRY_##NAME] = {.integer = true, .group = GROUP, .run = OP(matmul_##NAME)},
#define GRID_OPS              SPRY_DTYPES_GRID(GRID_ENTRY)
