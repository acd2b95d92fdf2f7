/* Tile registers of AMX under short names. Tests define them first, in plain C, for machines without AMX. */
#ifndef SPRY_KERNELS_TILES_H
#define SPRY_KERNELS_TILES_H

#include <immintrin.h>
#include <stdint.h>

/* What the configuring instruction reads: the shape of each register. */
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
/* The same for BF16, two at a time: even and odd values in chains of fused additions from 0 on, both added, then to the
 * sum; subnormal numbers are zeros. */
#define tile_multiply_bf16(sum, a, b) _tile_dpbf16ps(sum, a, b)
#endif

#endif
