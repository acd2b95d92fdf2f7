/* Packed weights: rows in groups. Packing changes no value and (almost) no size; only TQ1_0, which has five values in a
 * byte, grows by a fifth to TQ2_0.
 *
 * Quantised weights are for integer kernels: one vector holds four adjacent values of every row of the group and is
 * multiplied by four activations broadcast to all lanes. So groups of four bytes are moved as a whole: a quad is four
 * adjacent bytes of each row of the group.
 *
 * For a group of R rows a block becomes the fields below. Each field has R times the bytes that it has for one row, row
 * after row; "low" and "high" are the fields of the block in the file (blocks.h):
 *   Q4_0  scale f16 | 4 quads of low: low nibbles are values 4q.., high nibbles 16 + 4q..
 *   Q4_1  scale f16 | min f16 | low as above
 *   Q5_0  scale f16 | 8 masks of R * 4 bits: fifth bits of values 4q.. | low
 *   Q5_1  scale f16 | min f16 | 8 masks | low
 *   Q8_0  scale f16 | 8 quads of values + 128
 *   Q4_K  scale f16 | min scale f16 | 8 x scale u8 | 8 x min u8 | 4 chunks of 8 quads of low, whose low nibbles are
 *         block 2c of 32 values, high nibbles block 2c + 1; for 16 rows 8 times: a quad of each chunk
 *   Q5_K  the same, with 8 quads of high before the chunks, or one before each 4: bit b is the fifth bit of block b
 *   Q6_K  scale f16 | 16 x scale i8 | 2 halves of 8 times: a quad of high, a quad of low and a quad of low + 32
 *   Q3_K  scale f16 | 16 x scale i8 | 8 times three quads, each with the levels of two blocks, 2c and 2c + 1, in bits
 *         0-2 and 3-5; bits 6-7 of the first two are the upper bits of blocks 6 and 7, the same bits of the third one
 *         are their lowest bits
 *   Q2_K  scale f16 | min scale f16 | 16 x scale and min, nibbles of a byte, for 16 rows as 4 quads: bytes 0 and 2 of
 *         quad c are the halves of block 2c, bytes 1 and 3 the halves of block 2c + 1 | 16 quads of low
 *   TQ2_0, TQ1_0  scale f16 | 16 quads of low, as TQ2_0 in the file
 *   IQ4_NL  as Q4_0
 *   MXFP4  exponent u8 | low as Q4_0
 *   IQ4_XS  scale f16 | 8 x scale i8 | 8 blocks of 4 quads of low as Q4_0
 *   IQ2_XXS  scale f16 | 8 times: a quad of codes, the word as a quad
 *   IQ2_XS  scale f16 | 2 quads of scales | 8 times: a quad of the lower bytes of codes, a quad of the upper bytes
 *   IQ2_S  scale f16 | 2 quads of scales | 2 quads of high | 8 times: a quad of low, a quad of signs
 *   IQ3_XXS  scale f16 | 8 times: a quad of even codes, a quad of odd codes, the word as a quad
 *   IQ3_S  scale f16 | a quad of scales | 2 quads of high | 8 times: a quad of even bytes of low, a quad of odd
 *         bytes, a quad of signs
 *
 * Floats are stored value by value, each value for all rows. BF16 is stored in pairs of values, row after row; the last
 * of an odd number of values is stored alone. A product then reads one stream instead of one per row of its tile.
 *
 * Missing rows of the last group are zeros. Fields are in the order in which kernels first read them: hardware
 * prefetchers follow ascending streams. */
#ifndef SPRY_KERNELS_PACKED_H
#define SPRY_KERNELS_PACKED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"
#include "kernels/act.h"

enum { SPRY_PACK_MAX_ROWS = 16 };

/* Bytes of a block per row of the group; 0 for types that are not packed. */
static inline size_t spry_packed_row_bytes(spry_dtype type)
{
#define SPRY_PACKED_BYTES(NAME, name, id, block, bytes, packed)                                                        \
    case SPRY_##NAME: return packed;
    switch (type) {
        SPRY_DTYPES_KNOWN(SPRY_PACKED_BYTES)
    default: return 0;
    }
#undef SPRY_PACKED_BYTES
}

/* Packs `n_rows` (at most `rows`) weight rows of n_in values into one group. */
void spry_pack_group(spry_dtype type, void *out, const void *weight, size_t weight_stride, size_t n_in, size_t n_rows,
                     size_t rows);

/* Unpacks one row of a group to its file layout, byte for byte. In TQ1_0 several bytes can mean the same digits; the
 * result is the one that encoders write. */
void spry_unpack_row(spry_dtype type, void *out, const void *group, size_t row, size_t n_in, size_t rows);

/* ---- values of F16 in BF16 --------------------------------------------------------------------------------------- */

/* Most F16 files were made from BF16 checkpoints, so BF16 can represent all their values exactly, including those that
 * became subnormal halves. */

/* True if BF16 can represent all n values at `halves` (at any address) exactly. */
bool spry_narrow_exact(const void *halves, size_t n);

/* Converts n such values to BF16, in place. */
void spry_narrow(void *halves, size_t n);

#endif
