/* The layout of weights: tiles of 16 outputs, blocks of 32 inputs; of a block the 16 outputs follow each other, so that
 * 16 threads read 256 neighbouring bytes. Planes as in cuda/kernels/weight_tiles.cuh, of the same sizes:
 *   values  4 to 6 bits: 16 bytes of a block and output; byte i has value i in the low and i + 16 in the high nibble.
 *           8 bits: values 0 .. 15 of all outputs, then 16 .. 31
 *   high    fifth bits: a word; bit j of byte k belongs to value 4 j + k. Sixth bits: two words, for the lower and the
 *           upper 16 values, two bits each
 *   scale   the scales, or scales and minima, of a unit of 64 inputs, for each output
 *   super   the scales that 256 inputs share, for each output
 * A float type has 16 bytes of each output, then the next 16 bytes.
 * Where the GPU shares the host's memory, a matrix may also be used where its file is mapped: its `scale` is 0, and `high`
 * the bytes of a row. */
layout(constant_id = 0) const uint BITS = 4; /* 0: floats */
layout(constant_id = 1) const uint ZERO = 8;
layout(constant_id = 2) const uint GROUP = 32;
layout(constant_id = 3) const uint SCALE = 4;
layout(constant_id = 4) const uint MIN = 0;
layout(constant_id = 5) const uint SUPER = 0;
layout(constant_id = 6) const uint FLOATS = 0; /* quants are 4-bit floats; of floats: 1 F16, 2 BF16 */
layout(constant_id = 7) const uint BYTES = 0;  /* bytes of a float */
layout(constant_id = 11) const uint SHARED = 0; /* there may be matrices in file layout */

const uint BLOCK = 32, OUTPUTS = 16;
const bool IS_BYTES = BITS == 8, IS_CENTRED = BITS == 6;
#include "file_blocks.glsl"

/* The number of a block of a tile. */
uint64_t block_at(spry_tiles w, uint tile, uint block)
{
    return uint64_t(tile) * (w.n_units * 2) + block;
}

/* Four 4-bit floats to integers: twice their value plus 16. */
uint mxfp4_quants(uint q)
{
    uint b0 = q & 0x01010101, b1 = q >> 1 & 0x01010101, b2 = q >> 2 & 0x01010101, sign = q >> 3 & 0x01010101;
    uint size =
        (b0 & ~b2) | (b1 & ~b2) << 1 | (b2 & ~b1 & b0) << 1 | (b2 & ~b1) << 2 | (b2 & b1 & b0) << 2 | (b2 & b1) << 3;
    return 0x10101010 + size - 2 * (size & sign * 255);
}

/* The quants of a block as bytes: words 0 to 3 are values 0 .. 15, words 4 to 7 values 16 .. 31. */
void load_quants(out uint q[8], spry_tiles w, uint tile, uint block, uint o)
{
    uint64_t at = block_at(w, tile, block);
    if (IS_BYTES) {
        uvec4 lower = Quads(w.base + (at * 2 * OUTPUTS + o) * 16).v[0],
              upper = Quads(w.base + (at * 2 * OUTPUTS + OUTPUTS + o) * 16).v[0];
        [[unroll]] for (uint j = 0; j < 4; j++) {
            q[j] = lower[j];
            q[4 + j] = upper[j];
        }
        return;
    }
    uvec4 words = Quads(w.base + (at * OUTPUTS + o) * 16).v[0];
    uvec2 high = uvec2(0);
    if (BITS == 5)
        high.x = Words(w.base + w.high + (at * OUTPUTS + o) * 4).v[0];
    if (BITS == 6)
        high = Pairs(w.base + w.high + (at * OUTPUTS + o) * 8).v[0];
    [[unroll]] for (uint j = 0; j < 4; j++) {
        uint lower = words[j] & 0x0f0f0f0f, upper = words[j] >> 4 & 0x0f0f0f0f;
        if (BITS == 5) {
            lower |= (high.x >> j & 0x01010101) << 4;
            upper |= (high.x >> (4 + j) & 0x01010101) << 4;
        }
        if (BITS == 6) {
            lower |= (high.x >> 2 * j & 0x03030303) << 4;
            upper |= (high.y >> 2 * j & 0x03030303) << 4;
        }
        q[j] = lower;
        q[4 + j] = upper;
    }
}

/* Scale of the lower and of the upper half of a block, and its minimum, of what a file has. */
vec3 scales_of(uint own, uint super)
{
    precise vec3 scales = vec3(0);
    if (SCALE == 8) { /* scale and minimum as halves */
        vec2 both = unpackHalf2x16(own);
        return vec3(both.xx, both.y);
    }
    if (SUPER == 1 && MIN == 1) {
        vec2 both = unpackHalf2x16(super);
        scales.xy = vec2(both.x * float(own & 255));
        scales.z = -(both.y * float(own >> 8 & 255));
    } else if (SUPER == 1) {
        scales.x = float_of_half(super) * float(bitfieldExtract(int(own), 0, 8));
        scales.y = float_of_half(super) * float(bitfieldExtract(int(own), 8, 8));
    } else if (FLOATS == 1) {
        uint exponent = own & 255; /* half of MXFP4's scale, because the values are doubled */
        scales.xy = vec2(uintBitsToFloat(exponent > 1 ? (exponent - 1) << 23 : 0x00200000u << exponent));
    } else {
        scales.xy = vec2(unpackHalf2x16(own).x);
    }
    return scales;
}

vec3 load_scales(spry_tiles w, uint tile, uint block, uint o)
{
    uint unit = block / 2, odd = block % 2, super = 0;
    uint64_t at = w.base + w.scale + ((uint64_t(tile) * w.n_units + unit) * OUTPUTS + o) * SCALE;
    if (SUPER == 1)
        super = Words(w.base + w.super + ((uint64_t(tile) * (w.n_units / 4) + unit / 4) * OUTPUTS + o) * 4).v[0];
    if (SCALE == 8)
        return scales_of(Words(at).v[odd], super);
    return scales_of(Words(at).v[0] >> (FLOATS == 1 ? 8 : 16) * odd & 0xffff, super);
}

/* Address of the 16 bytes of floats that hold inputs from `chunk` on; a chunk is 16 / BYTES inputs. */
uint64_t floats_address(spry_tiles w, uint tile, uint block, uint chunk, uint o)
{
    return w.base + ((block_at(w, tile, block) * (2 * BYTES) + chunk) * OUTPUTS + o) * 16;
}

/* Value i of the floats in 16 bytes. */
float float_in(uvec4 words, uint i)
{
    if (BYTES == 4)
        return uintBitsToFloat(words[i]);
    uint half_word = words[i / 2] >> 16 * (i % 2) & 0xffff;
    return FLOATS == 2 ? float_of_bf16(half_word) : float_of_half(half_word);
}

/* Four quants as floats, without ZERO. */
vec4 values_of_quants(uint q)
{
    vec4 values;
    [[unroll]] for (uint i = 0; i < 4; i++)
        values[i] = float(IS_BYTES || IS_CENTRED ? bitfieldExtract(int(q), int(8 * i), 8) : int(q >> 8 * i & 255) - int(ZERO));
    return values;
}

/* The weights of an output in a block: quants and scales, or 16-byte pieces of floats. */
struct block_weights {
    uint q[8];
    vec3 scales;
    uvec4 pieces[8];
};

/* Quants of 6 and 8 bits become signed, the others stay ZERO too large; 4-bit floats become integers. */
void finish_quants(inout uint q[8])
{
    [[unroll]] for (uint j = 0; j < 8; j++) {
        if (BITS == 6)
            q[j] = (q[j] | 0x80808080) - 0x20202020 ^ 0x80808080;
        if (BITS == 4 && FLOATS == 1)
            q[j] = mxfp4_quants(q[j]);
    }
}

/* The block of a matrix in file layout. Outputs that do not exist get those of the last one: nothing stores them. */
block_weights load_file_block(spry_tiles w, uint output_, uint block)
{
    block_weights b;
    uint64_t row = w.base + min(output_, w.n_out - 1) * w.high;
    uint i = block * BLOCK;
    if (BITS == 0) {
        [[unroll]] for (uint k = 0; k < 2 * BYTES; k++)
            b.pieces[k] = file_floats(row, i + k * (16 / max(BYTES, 1)), w.n_in);
        return b;
    }
    b.q = uint[8](0, 0, 0, 0, 0, 0, 0, 0);
    b.scales = vec3(0);
    if (i < w.n_in) {
        file_quants(b.q, row, i);
        b.scales = scales_of(file_scales(row, i), SUPER == 1 ? file_super(row, i) : 0);
    }
    finish_quants(b.q);
    return b;
}

block_weights load_block(spry_tiles w, uint tile, uint block, uint o)
{
    block_weights b;
    if (SHARED == 1 && w.scale == 0)
        return load_file_block(w, tile * OUTPUTS + o, block);
    if (BITS == 0) {
        [[unroll]] for (uint i = 0; i < 2 * BYTES; i++)
            b.pieces[i] = Quads(floats_address(w, tile, block, i, o)).v[0];
        return b;
    }
    load_quants(b.q, w, tile, block, o);
    finish_quants(b.q);
    b.scales = load_scales(w, tile, block, o);
    return b;
}

/* Weights i .. i + 3 of the block. */
vec4 weights_of(block_weights b, uint i)
{
    precise vec4 values;
    if (BITS == 0) {
        const uint each = 16 / max(BYTES, 1);
        [[unroll]] for (uint k = 0; k < 4; k++)
            values[k] = float_in(b.pieces[i / each], i % each + k);
        return values;
    }
    values = b.scales[i / 16] * values_of_quants(b.q[i / 4]) + b.scales.z;
    return values;
}

/* One weight. */
float weight_at(spry_tiles w, uint output_, uint input_)
{
    return weights_of(load_block(w, output_ / OUTPUTS, input_ / BLOCK, output_ % OUTPUTS), input_ % BLOCK & ~3u)[input_ % 4];
}
