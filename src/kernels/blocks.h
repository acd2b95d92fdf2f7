/* The quantised blocks of model files, defined once for C and CUDA. Little-endian, without padding; sizes as in
 * base/dtype.c. A block may be at any address, so C code copies it before reading its fields.
 *
 * A half is the bits of an IEEE binary16 number (kernels/half.h). "Low bits" of quants are packed so that one byte
 * holds values half or a quarter of the block (or of a chunk of 64 or 128 values) apart; each struct documents its
 * layout. */
#ifndef SPRY_KERNELS_BLOCKS_H
#define SPRY_KERNELS_BLOCKS_H

#include <assert.h>
#include <stdint.h>

enum { SPRY_BLOCK_SMALL = 32, SPRY_BLOCK_LARGE = 256 }; /* values in a block */

typedef uint16_t spry_half;

/* ---- blocks of 32: byte i of `low` holds value i in its low nibble and value i + 16 in its high one ------------- */

/* scale * (q - 8) */
typedef struct spry_block_q4_0 {
    spry_half scale;
    uint8_t low[16];
} spry_block_q4_0;

/* scale * q + min */
typedef struct spry_block_q4_1 {
    spry_half scale, min;
    uint8_t low[16];
} spry_block_q4_1;

/* scale * (q - 16); bit i of `high`, counted from its first byte, is the fifth bit of value i */
typedef struct spry_block_q5_0 {
    spry_half scale;
    uint8_t high[4];
    uint8_t low[16];
} spry_block_q5_0;

/* scale * q + min */
typedef struct spry_block_q5_1 {
    spry_half scale, min;
    uint8_t high[4];
    uint8_t low[16];
} spry_block_q5_1;

/* scale * q */
typedef struct spry_block_q8_0 {
    spry_half scale;
    int8_t quants[32];
} spry_block_q8_0;

/* scale * level[q], 16 uneven levels */
typedef struct spry_block_iq4_nl {
    spry_half scale;
    uint8_t low[16];
} spry_block_iq4_nl;

/* 2^(exponent - 127) * the 4-bit float q (sign, two bits of exponent, one of mantissa) */
typedef struct spry_block_mxfp4 {
    uint8_t exponent;
    uint8_t low[16];
} spry_block_mxfp4;

/* scale * the 8-bit float q (sign, four bits of exponent, three of mantissa), which is always a number; in no file */
typedef struct spry_block_f8 {
    float scale;
    uint8_t values[32];
} spry_block_f8;

/* ---- blocks of 256 values in parts, each with a scale of its own ------------------------------------------------- */

/* Parts of 16: scale * (scales & 15) * q - min * (scales >> 4). Byte i of each 32 of `low` holds the values i, i + 32,
 * i + 64, i + 96 of a chunk of 128. */
typedef struct spry_block_q2_k {
    uint8_t scales[16];
    uint8_t low[64];
    spry_half scale, min;
} spry_block_q2_k;

/* Parts of 16: scale * (s - 32) * (q - 4), s of 6 bits. `low` is laid out as in q2_k; bit k of high[i] is the third bit
 * of value i of the k-th 32. `scales` holds 16 low nibbles (parts 0..7, then 8..15 in the high half), then the upper
 * pairs of bits, four parts a byte and four apart. */
typedef struct spry_block_q3_k {
    uint8_t high[32];
    uint8_t low[64];
    uint8_t scales[12];
    spry_half scale;
} spry_block_q3_k;

/* Parts of 32: scale * s * q - min * m, s and m of 6 bits. `scales` holds s of parts 0..3, m of parts 0..3, then low
 * nibbles of s and m of parts 4..7 whose upper bits are the upper bits of the first eight bytes. Byte i of each 32 of
 * `low` holds the values i and i + 32 of a chunk of 64. */
typedef struct spry_block_q4_k {
    spry_half scale, min;
    uint8_t scales[12];
    uint8_t low[128];
} spry_block_q4_k;

/* As q4_k; bit k of high[i] is the fifth bit of value i of part k. */
typedef struct spry_block_q5_k {
    spry_half scale, min;
    uint8_t scales[12];
    uint8_t high[32];
    uint8_t low[128];
} spry_block_q5_k;

/* Parts of 16: scale * scales * (q - 32). Of a chunk of 128, byte i of 64 in `low` holds the values i and i + 64, byte
 * i of 32 in `high` the upper pairs of bits of i, i + 32, i + 64, i + 96. */
typedef struct spry_block_q6_k {
    uint8_t low[128];
    uint8_t high[64];
    int8_t scales[16];
    spry_half scale;
} spry_block_q6_k;

/* Parts of 32: scale * (s - 32) * level[q], s of 6 bits. Nibbles of part k are in 16 bytes, as in the small blocks. */
typedef struct spry_block_iq4_xs {
    spry_half scale;
    uint8_t scales_high[2]; /* two bits a part */
    uint8_t scales_low[4];  /* a nibble a part */
    uint8_t low[128];
} spry_block_iq4_xs;

/* The IQ2 and IQ3 types: a code selects the magnitudes of 8 or 4 values from a table (kernels/grids.h); signs are
 * stored separately.
 *
 * Parts of 32: scale * (s + 1/2) / 4. A part is 4 codes of 8 values, one byte each, then a word: 4 x 7 bits of signs
 * (spry_even_signs), and s in its upper 4 bits. */
typedef struct spry_block_iq2_xxs {
    spry_half scale;
    uint8_t parts[8][8];
} spry_block_iq2_xxs;

/* Parts of 16: scale * (s + 1/2) / 4; s is a nibble, and the low nibble of a byte comes first. Two bytes hold a code of
 * 9 bits and 7 bits of signs for 8 values. */
typedef struct spry_block_iq2_xs {
    spry_half scale;
    uint8_t codes[32][2];
    uint8_t scales[8];
} spry_block_iq2_xs;

/* As iq2_xs, with codes of 10 bits, whose upper two bits are in `high`, and with all 8 signs. */
typedef struct spry_block_iq2_s {
    spry_half scale;
    uint8_t low[32];
    uint8_t signs[32];
    uint8_t high[8];
    uint8_t scales[8];
} spry_block_iq2_s;

/* Parts of 32: scale * (s + 1/2) / 2. A part is 8 codes of 4 values, and a word of signs and scale as in iq2_xxs. */
typedef struct spry_block_iq3_xxs {
    spry_half scale;
    uint8_t codes[64];
    uint8_t words[8][4];
} spry_block_iq3_xxs;

/* Parts of 32: scale * (2 s + 1), where s is a nibble. Codes have 9 bits, for 4 values each; their upper bits are in
 * `high`. All signs are stored. */
typedef struct spry_block_iq3_s {
    spry_half scale;
    uint8_t low[64];
    uint8_t high[8];
    uint8_t signs[32];
    uint8_t scales[4];
} spry_block_iq3_s;

/* scale * (q - 1), where q is 0, 1 or 2. A byte is a fraction of 256 written in base three, most significant digit
 * first. The digits of a byte belong to values that are 32 apart in the first 32 bytes (160 values), 16 apart in the
 * next 16 bytes (80 values), 4 apart in `last` (16 values). */
typedef struct spry_block_tq1_0 {
    uint8_t five[48];
    uint8_t last[4];
    spry_half scale;
} spry_block_tq1_0;

/* scale * (q - 1), two bits each, laid out as in q2_k. */
typedef struct spry_block_tq2_0 {
    uint8_t low[64];
    spry_half scale;
} spry_block_tq2_0;

/* ---- blocks of other sizes, and codes of one bit and a half ------------------------------------------------------ */

/* 256 values in parts of 32: scale * (2 s + 1) * (q + d), q of -1, 0, 1 from the table spry_grid_iq1, 8 values a code.
 * A word (its first byte is the lower one) of a part has the upper 3 bits of its 4 codes, then s of 3 bits, and its top
 * bit says whether d is -1/8 or 1/8. */
typedef struct spry_block_iq1_s {
    spry_half scale;
    uint8_t low[32];
    uint8_t words[8][2];
} spry_block_iq1_s;

/* 256 values in parts of 16 with a scale each: scale * (2 s + 1) * (q + d). A nibble of `high` has the upper 3 bits of
 * a code and the sign of its d. A word of `scales` has s of four parts, 3 bits each, and in its top nibble 4 bits of
 * the scale, the lowest ones in the first word. */
typedef struct spry_block_iq1_m {
    uint8_t low[32];
    uint8_t high[16];
    uint8_t scales[4][2];
} spry_block_iq1_m;

/* 64 values in parts of 16: the part's scale, an 8-bit float (four bits of exponent, three of mantissa; 127 is 0),
 * times the 4-bit float q. 8 bytes of `low` are a part: low nibbles are its first 8 values. */
typedef struct spry_block_nvfp4 {
    uint8_t scales[4];
    uint8_t low[32];
} spry_block_nvfp4;

/* 128 values: scale where the bit is set, -scale where it is not. */
typedef struct spry_block_q1_0 {
    spry_half scale;
    uint8_t bits[16];
} spry_block_q1_0;

/* 64 values: scale * (q - 1), four neighbours in a byte, the first in its lowest bits. */
typedef struct spry_block_q2_0 {
    spry_half scale;
    uint8_t low[16];
} spry_block_q2_0;

static_assert(sizeof(spry_block_iq1_s) == 50, "iq1_s has padding");
static_assert(sizeof(spry_block_iq1_m) == 56, "iq1_m has padding");
static_assert(sizeof(spry_block_nvfp4) == 36, "nvfp4 has padding");
static_assert(sizeof(spry_block_q1_0) == 18, "q1_0 has padding");
static_assert(sizeof(spry_block_q2_0) == 18, "q2_0 has padding");
static_assert(sizeof(spry_block_q4_0) == 18, "q4_0 has padding");
static_assert(sizeof(spry_block_q4_1) == 20, "q4_1 has padding");
static_assert(sizeof(spry_block_q5_0) == 22, "q5_0 has padding");
static_assert(sizeof(spry_block_q5_1) == 24, "q5_1 has padding");
static_assert(sizeof(spry_block_q8_0) == 34, "q8_0 has padding");
static_assert(sizeof(spry_block_iq4_nl) == 18, "iq4_nl has padding");
static_assert(sizeof(spry_block_mxfp4) == 17, "mxfp4 has padding");
static_assert(sizeof(spry_block_f8) == 36, "f8 has padding");
static_assert(sizeof(spry_block_q2_k) == 84, "q2_k has padding");
static_assert(sizeof(spry_block_q3_k) == 110, "q3_k has padding");
static_assert(sizeof(spry_block_q4_k) == 144, "q4_k has padding");
static_assert(sizeof(spry_block_q5_k) == 176, "q5_k has padding");
static_assert(sizeof(spry_block_q6_k) == 210, "q6_k has padding");
static_assert(sizeof(spry_block_iq4_xs) == 136, "iq4_xs has padding");
static_assert(sizeof(spry_block_iq2_xxs) == 66, "iq2_xxs has padding");
static_assert(sizeof(spry_block_iq2_xs) == 74, "iq2_xs has padding");
static_assert(sizeof(spry_block_iq2_s) == 82, "iq2_s has padding");
static_assert(sizeof(spry_block_iq3_xxs) == 98, "iq3_xxs has padding");
static_assert(sizeof(spry_block_iq3_s) == 110, "iq3_s has padding");
static_assert(sizeof(spry_block_tq1_0) == 54, "tq1_0 has padding");
static_assert(sizeof(spry_block_tq2_0) == 66, "tq2_0 has padding");

/* The types that a GPU stores as quants, scales and minima in planes (device/cuda/kernels/weight_tiles.cuh):
 * X(name, TYPE, bits of a quant, the quant that means 0, values with a common scale, bytes of scales for 64 values,
 * whether they have minima, whether 256 values have a second scale, what quants are: 0 integers, 1 4-bit floats, 2
 * codes of levels). */
#define SPRY_QUANT_TYPES(X)                                                                                            \
    X(q4_0, Q4_0, 4, 8, 32, 4, 0, 0, 0)                                                                                \
    X(q4_1, Q4_1, 4, 0, 32, 8, 1, 0, 0)                                                                                \
    X(q5_0, Q5_0, 5, 16, 32, 4, 0, 0, 0)                                                                               \
    X(q5_1, Q5_1, 5, 0, 32, 8, 1, 0, 0)                                                                                \
    X(q8_0, Q8_0, 8, 0, 32, 4, 0, 0, 0)                                                                                \
    X(q4_k, Q4_K, 4, 0, 32, 4, 1, 1, 0)                                                                                \
    X(q5_k, Q5_K, 5, 0, 32, 4, 1, 1, 0)                                                                                \
    X(q6_k, Q6_K, 6, 32, 16, 4, 0, 1, 0)                                                                               \
    X(mxfp4, MXFP4, 4, 16, 32, 4, 0, 0, 1)

/* Further ones that are stored so on NVIDIA's GPUs only; with minima, the quant is the one in the middle. */
#define SPRY_QUANT_TYPES_CUDA(X) X(q2_k, Q2_K, 4, 2, 16, 8, 1, 1, 0)

/* Two forms in which NVIDIA's GPUs store the types of SPRY_LEVEL_TYPES: a code of 4 bits selects one of 16 integers,
 * the levels of the file's type, and each 16 values have a scale: in level_k an integer, which a half for 256 values
 * and a power of 2 multiply, in level_h a half. */
#define SPRY_LEVEL_FORMS(X)                                                                                            \
    X(level_k, LEVEL_K, 4, 0, 16, 4, 0, 1, 2)                                                                          \
    X(level_h, LEVEL_H, 4, 0, 16, 8, 0, 1, 2)

/* X(name, TYPE, form) */
#define SPRY_LEVEL_TYPES(X)                                                                                            \
    X(q3_k, Q3_K, level_k)                                                                                             \
    X(iq4_xs, IQ4_XS, level_k)                                                                                         \
    X(iq3_s, IQ3_S, level_k)                                                                                           \
    X(iq3_xxs, IQ3_XXS, level_k)                                                                                       \
    X(iq2_s, IQ2_S, level_k)                                                                                           \
    X(iq2_xs, IQ2_XS, level_k)                                                                                         \
    X(iq2_xxs, IQ2_XXS, level_k)                                                                                       \
    X(iq1_m, IQ1_M, level_k)                                                                                           \
    X(iq1_s, IQ1_S, level_k)                                                                                           \
    X(tq2_0, TQ2_0, level_k)                                                                                           \
    X(tq1_0, TQ1_0, level_k)                                                                                           \
    X(iq4_nl, IQ4_NL, level_h)                                                                                         \
    X(nvfp4, NVFP4, level_h)                                                                                           \
    X(q2_0, Q2_0, level_h)                                                                                             \
    X(q1_0, Q1_0, level_h)

#endif
