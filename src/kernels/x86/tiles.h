/* Short names for the AMX tile instructions. On machines without AMX, tests define these names first, in plain C. */
#ifndef SPRY_KERNELS_TILES_H
#define SPRY_KERNELS_TILES_H

#include <immintrin.h>
#include <stdint.h>

/* The operand of the configuring instruction: the shape of each register. */
typedef struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes;

#if !defined(TILES_EMULATED)
#define tile_configure(shapes)     _tile_loadconfig(shapes)
#define tile_release()             _tile_release()
#define tile_zero(t)               _tile_zero(t)
#define tile_load(t, from, stride) _tile_loadd(t, from, stride)
#define tile_store(t, to, stride)  _tile_stored(t, to, stride)
#define tile_multiply(sum, a, b)   _tile_dpbssd(sum, a, b) /* sum += a x b: int8, four at a time, exact in int32 */
/* tile_multiply for BF16, two values at a time: even and odd values are summed in separate chains of fused additions
 * that start from 0; both sums are added, then added to the tile. Subnormal numbers count as zeros. */
#define tile_multiply_bf16(sum, a, b) _tile_dpbf16ps(sum, a, b)
#endif

#endif
