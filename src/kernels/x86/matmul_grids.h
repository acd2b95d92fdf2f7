/* Products with the IQ2 and IQ3 types for AVX2 and above: weights stay in file layout, activations are integers. A part
 * of 32 weights is expanded once, as magnitudes and signs, for a tile of rows: magnitudes times activations with the
 * weights' signs, in pairs that cannot overflow 16 bits (62 * 127 * 2), then in 32 bits. All exact; the only rounding
 * is one fused addition per part and lane, and the final sum of the lanes, the same for any tile.
 *
 * Define OP(name) first. */
#include <immintrin.h>
#include <string.h>

#include "kernels/blocks.h"
#include "kernels/grids.h"
#include "kernels/half.h"
#include "kernels/ops.h"

enum { GRID_TILE_ROWS = 4 };

typedef struct grid_part {
    __m256i sizes, signs; /* signs are 1 and -1 */
    __m256 scale;         /* the lower four lanes belong to the first 16 weights */
} grid_part;

/* Seven bits each, in four bytes, with the eighth that makes them even. */
static inline uint32_t even_signs(uint32_t word)
{
    uint32_t seven = (word & 0x7f) | (word << 1 & 0x7f00) | (word << 2 & 0x7f0000) | (word << 3 & 0x7f000000),
             odd = seven;
    odd ^= odd >> 4 & 0x0f0f0f0f;
    odd ^= odd >> 2 & 0x03030303;
    odd ^= odd >> 1;
    return seven | (odd & 0x01010101) << 7;
}

static inline __m256i sign_bytes(uint32_t signs)
{
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    __m256i chosen = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int)signs), byte), bit);
    return _mm256_or_si256(_mm256_cmpeq_epi8(chosen, bit), _mm256_set1_epi8(1));
}

/* Indexes in 16-bit lanes, moved to the top by `to_top`, become bytes and then levels. */
static inline __m256i levels_of(__m256i even, __m256i odd, __m256i to_top, int bits, __m128i levels)
{
    even = _mm256_srli_epi16(_mm256_mullo_epi16(even, to_top), 16 - bits);
    odd = _mm256_srli_epi16(_mm256_mullo_epi16(odd, to_top), 16 - bits);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), _mm256_packus_epi16(even, odd));
}

static inline __m256i two_codes(uint16_t first, uint16_t second)
{
    return _mm256_set_m128i(_mm_set1_epi16((short)second), _mm_set1_epi16((short)first));
}

static inline __m256i sizes_iq2(const uint16_t *grid, const unsigned code[4])
{
    const __m256i to_top = _mm256_broadcastsi128_si256(_mm_setr_epi16(0x4000, 0x1000, 0x400, 0x100, 0x40, 0x10, 4, 1));
    return levels_of(two_codes(grid[code[0]], grid[code[2]]), two_codes(grid[code[1]], grid[code[3]]), to_top, 2,
                     _mm_setr_epi8(8, 25, 43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
}

static inline __m256i four_codes(uint16_t a, uint16_t b, uint16_t c, uint16_t d)
{
    const uint64_t all = 0x0001000100010001;
    return _mm256_setr_epi64x((long long)(a * all), (long long)(b * all), (long long)(c * all), (long long)(d * all));
}

static inline __m256i sizes_iq3(const uint16_t *grid, const unsigned code[8], const uint8_t levels[8])
{
    const __m256i to_top = _mm256_set1_epi64x(0x0010008004002000);
    return levels_of(four_codes(grid[code[0]], grid[code[1]], grid[code[4]], grid[code[5]]),
                     four_codes(grid[code[2]], grid[code[3]], grid[code[6]], grid[code[7]]), to_top, 3,
                     _mm_loadl_epi64((const __m128i *)(const void *)levels));
}

static inline uint32_t grid_word(const uint8_t *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

static inline __m256 two_scales(float first, float second)
{
    return _mm256_set_m128(_mm_set1_ps(second), _mm_set1_ps(first));
}

/* Nibbles of two parts of 16. */
static inline __m256 nibble_scales(float scale, unsigned nibbles)
{
    return two_scales(scale * (0.5f + (float)(nibbles & 15)) * 0.25f, scale * (0.5f + (float)(nibbles >> 4)) * 0.25f);
}

SPRY_INLINE void load_iq2_xxs(grid_part *out, const unsigned char *p, size_t part)
{
    const unsigned char *codes = p + 2 + 8 * part;
    uint32_t word = grid_word(codes + 4);
    unsigned code[4];
    for (size_t k = 0; k < 4; k++)
        code[k] = codes[k];
    float scale = spry_f16_decode((uint16_t)(p[0] | p[1] << 8)) * (0.5f + (float)(word >> 28)) * 0.25f;
    out->sizes = sizes_iq2(spry_grid_iq2_xxs, code);
    out->signs = sign_bytes(even_signs(word));
    out->scale = _mm256_set1_ps(scale);
}

SPRY_INLINE void load_iq2_xs(grid_part *out, const unsigned char *p, size_t part)
{
    unsigned code[4];
    uint32_t word = 0;
    for (size_t k = 0; k < 4; k++) {
        const unsigned char *pair = p + 2 + 8 * part + 2 * k;
        code[k] = pair[0] | (pair[1] & 1u) << 8;
        word |= (uint32_t)(pair[1] >> 1) << 7 * k;
    }
    out->sizes = sizes_iq2(spry_grid_iq2_xs, code);
    out->signs = sign_bytes(even_signs(word));
    out->scale = nibble_scales(spry_f16_decode((uint16_t)(p[0] | p[1] << 8)), p[66 + part]);
}

SPRY_INLINE void load_iq2_s(grid_part *out, const unsigned char *p, size_t part)
{
    unsigned code[4], high = p[66 + part];
    for (size_t k = 0; k < 4; k++)
        code[k] = p[2 + 4 * part + k] | (high >> 2 * k & 3) << 8;
    out->sizes = sizes_iq2(spry_grid_iq2_s, code);
    out->signs = sign_bytes(grid_word(p + 34 + 4 * part));
    out->scale = nibble_scales(spry_f16_decode((uint16_t)(p[0] | p[1] << 8)), p[74 + part]);
}

SPRY_INLINE void load_iq3_xxs(grid_part *out, const unsigned char *p, size_t part)
{
    unsigned code[8];
    uint32_t word = grid_word(p + 66 + 4 * part);
    for (size_t k = 0; k < 8; k++)
        code[k] = p[2 + 8 * part + k];
    float scale = spry_f16_decode((uint16_t)(p[0] | p[1] << 8)) * (0.5f + (float)(word >> 28)) * 0.5f;
    out->sizes = sizes_iq3(spry_grid_iq3_xxs, code, spry_levels_iq3_xxs);
    out->signs = sign_bytes(even_signs(word));
    out->scale = _mm256_set1_ps(scale);
}

SPRY_INLINE void load_iq3_s(grid_part *out, const unsigned char *p, size_t part)
{
    unsigned code[8], high = p[66 + part], nibble = p[106 + part / 2] >> 4 * (part % 2) & 15;
    for (size_t k = 0; k < 8; k++)
        code[k] = p[2 + 8 * part + k] | (high >> k & 1) << 8;
    out->sizes = sizes_iq3(spry_grid_iq3_s, code, spry_levels_iq3_s);
    out->signs = sign_bytes(grid_word(p + 74 + 4 * part));
    out->scale = _mm256_set1_ps(spry_f16_decode((uint16_t)(p[0] | p[1] << 8)) * (float)(1 + 2 * nibble));
}

SPRY_INLINE void load_part(grid_part *out, spry_dtype type, const unsigned char *block, size_t part)
{
    switch (type) {
    case SPRY_IQ2_XXS: load_iq2_xxs(out, block, part); break;
    case SPRY_IQ2_XS: load_iq2_xs(out, block, part); break;
    case SPRY_IQ2_S: load_iq2_s(out, block, part); break;
    case SPRY_IQ3_XXS: load_iq3_xxs(out, block, part); break;
    default: load_iq3_s(out, block, part); break;
    }
}

/* Eight dots of four. */
static inline __m256i dot_eight(__m256i sizes, __m256i values)
{
#if defined(DOT_FOUR)
    return DOT_FOUR(_mm256_setzero_si256(), sizes, values);
#else
    return _mm256_madd_epi16(_mm256_maddubs_epi16(sizes, values), _mm256_set1_epi16(1));
#endif
}

static inline float sum_of_eight(__m256 x)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

SPRY_INLINE void grid_tile(const spry_matmul *m, spry_dtype type, size_t output, size_t row, int n_rows)
{
    const unsigned char *block = (const unsigned char *)m->weight + output * m->weight_stride;
    const spry_act_block *act[GRID_TILE_ROWS];
    __m256 sum[GRID_TILE_ROWS];
    for (int r = 0; r < n_rows; r++) {
        act[r] =
            (const spry_act_block *)(const void *)((const unsigned char *)m->act + (row + (size_t)r) * m->act_stride);
        sum[r] = _mm256_setzero_ps();
    }
    for (size_t b = 0; b < m->n_in / 32; b++) {
        grid_part w;
        load_part(&w, type, block + b / 8 * spry_dtype_bytes(type), b % 8);
        for (int r = 0; r < n_rows; r++) {
            const spry_act_block *a = act[r] + b;
            __m256i values = _mm256_loadu_si256((const __m256i *)(const void *)a->values);
            __m256 dot = _mm256_cvtepi32_ps(dot_eight(w.sizes, _mm256_sign_epi8(values, w.signs)));
            sum[r] = _mm256_fmadd_ps(dot, _mm256_mul_ps(w.scale, _mm256_set1_ps(a->scale)), sum[r]);
        }
    }
    for (int r = 0; r < n_rows; r++)
        m->out[(row + (size_t)r) * m->out_stride + output] = sum_of_eight(sum[r]);
}

SPRY_INLINE void grid_product(const spry_matmul *m, spry_dtype type, size_t out_begin, size_t out_end)
{
    for (size_t output = out_begin; output < out_end; output++) {
        size_t row = 0;
        for (; row + GRID_TILE_ROWS <= m->n_rows; row += GRID_TILE_ROWS)
            grid_tile(m, type, output, row, GRID_TILE_ROWS);
        for (; row < m->n_rows; row++)
            grid_tile(m, type, output, row, 1);
    }
}

#define GRID_DEFINE(NAME, ...)                                                                                         \
    static void OP(matmul_##NAME)(const spry_matmul *m, size_t out_begin, size_t out_end)                              \
    {                                                                                                                  \
        grid_product(m, SPRY_##NAME, out_begin, out_end);                                                              \
    }
SPRY_DTYPES_GRID(GRID_DEFINE)

/* Entries of a table. */
#define GRID_ENTRY(NAME, ...) .matmul[SPRY_##NAME] = {.integer = true, .run = OP(matmul_##NAME)},
#define GRID_OPS              SPRY_DTYPES_GRID(GRID_ENTRY)
