/* Packed weights: rows in groups. Packing changes no value and (almost) no size.
 *
 * Quantised weights are for integer kernels: one vector holds four adjacent values of every row of the group and is
 * multiplied by four activations broadcast to all lanes, so whole groups of four bytes are moved.
 *
 * For a group of R rows a block becomes, each part R times that of one row, row after row:
 *   Q4_0  scale f16 | 4 quads of low, of 4 bytes a row: low nibbles are values 4q.., high nibbles 16 + 4q..
 *   Q4_1  scale f16 | min f16 | low as above
 *   Q5_0  scale f16 | 8 masks of R * 4 bits: fifth bits of values 4q.. | low
 *   Q5_1  scale f16 | min f16 | 8 masks | low
 *   Q8_0  scale f16 | 8 quads of values + 128
 *   Q4_K  scale f16 | min scale f16 | 8 x scale u8 | 8 x min u8 | 4 chunks of 8 quads of low:
 *         low nibbles are block 2c of 32 values, high nibbles block 2c + 1
 *   Q5_K  the same, with 8 quads of high before the chunks: bit b is the fifth bit of block b
 *   Q6_K  scale f16 | 16 x scale i8 | 2 halves of: 8 quads of high, 16 quads of low, each as in the file
 * Floats are stored in chunks of SPRY_PACK_FLOATS values, row after row; the last may be shorter. A product then reads
 * one stream instead of one per row of its tile.
 *
 * Missing rows of the last group are zeros. Parts are in the order in which kernels first read them: hardware
 * prefetchers follow ascending streams. */
#ifndef SPRY_KERNELS_PACKED_H
#define SPRY_KERNELS_PACKED_H

#include "base/dtype.h"
#include "kernels/act.h"

enum { SPRY_PACK_MAX_ROWS = 16, SPRY_PACK_FLOATS = 16 };

/* Bytes of a block per row of the group; 0 for types that are not packed. */
static inline size_t spry_packed_row_bytes(spry_dtype type)
{
    switch (type) {
    case SPRY_F32: return 4;
    case SPRY_F16:
    case SPRY_BF16: return 2;
    case SPRY_Q4_0: return 18;
    case SPRY_Q4_1: return 20;
    case SPRY_Q5_0: return 22;
    case SPRY_Q5_1: return 24;
    case SPRY_Q8_0: return 34;
    case SPRY_Q4_K: return 148; /* 6-bit scales and minima become bytes: 4 more than in the file */
    case SPRY_Q5_K: return 180;
    case SPRY_Q6_K: return 210;
    default: return 0;
    }
}

/* Packs `n_rows` (at most `rows`) weight rows of n_in values into one group. */
void spry_pack_group(spry_dtype type, void *out, const void *weight, size_t weight_stride, size_t n_in, size_t n_rows,
                     size_t rows);

/* Unpacks one row of a group to its file layout, byte for byte. */
void spry_unpack_row(spry_dtype type, void *out, const void *group, size_t row, size_t n_in, size_t rows);

#endif
