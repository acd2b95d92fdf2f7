/* Blocks of a file become the layout of weights.glsl. Grid: (units, tiles); a thread moves one block of 32 inputs of one
 * output. Blocks of a file are only 2-byte aligned, so they are read in bytes. */
#version 450
#include "common.glsl"
#include "weights.glsl"
layout(local_size_x = 32) in;
ARGUMENTS(spry_repack_args);

uint byte_at(uint64_t row, uint i)
{
    return uint(Bytes(row).v[i]);
}

/* Offset of the block of input i in a row, for blocks of `values` values and `bytes` bytes. */
uint block_offset(uint i, uint values, uint bytes)
{
    return i / values * bytes;
}

uint nibble(uint64_t row, uint at, uint i)
{
    return byte_at(row, at + i % 16) >> i / 16 * 4 & 15;
}

uint small_quant(uint64_t row, uint i)
{
    uint in_block = i % 32;
    if (BITS == 8)
        return byte_at(row, block_offset(i, 32, 34) + 2 + in_block);
    if (FLOATS == 1)
        return nibble(row, block_offset(i, 32, 17) + 1, in_block);
    uint head = MIN == 1 ? 4 : 2;
    if (BITS == 4)
        return nibble(row, block_offset(i, 32, head + 16) + head, in_block);
    uint at = block_offset(i, 32, head + 20) + head;
    return nibble(row, at + 4, in_block) | (byte_at(row, at + in_block / 8) >> in_block % 8 & 1) << 4;
}

uint large_quant(uint64_t row, uint i)
{
    uint at = i % 256, low = at / 64 * 32 + at % 32, shift = at % 64 / 32 * 4;
    if (BITS == 4)
        return byte_at(row, block_offset(i, 256, 144) + 16 + low) >> shift & 15;
    if (BITS == 5) {
        uint block = block_offset(i, 256, 176);
        return byte_at(row, block + 48 + low) >> shift & 15 | (byte_at(row, block + 16 + at % 32) >> at / 32 & 1) << 4;
    }
    uint block = block_offset(i, 256, 210), chunk = at / 128, inner = at % 128;
    return byte_at(row, block + chunk * 64 + inner % 64) >> inner / 64 * 4 & 15 |
           (byte_at(row, block + 128 + chunk * 32 + inner % 32) >> inner / 32 * 2 & 3) << 4;
}

/* Six-bit scale and minimum of a part of a block; see spry_block_q4_k. */
uint scales_of_part(uint64_t row, uint packed, uint part)
{
    uint low = part % 4, first = byte_at(row, packed + low), second = byte_at(row, packed + low + 4),
         third = byte_at(row, packed + low + 8);
    if (part < 4)
        return first & 63 | (second & 63) << 8;
    return third & 15 | first >> 6 << 4 | (third >> 4 | second >> 6 << 4) << 8;
}

/* The scales of the block of 32 inputs that begins with input i, as the scale plane stores them. */
uint file_scales(uint64_t row, uint i)
{
    if (BITS == 6) {
        uint at = block_offset(i, 256, 210) + 192 + i % 256 / 16;
        return byte_at(row, at) | byte_at(row, at + 1) << 8;
    }
    if (SUPER == 1)
        return scales_of_part(row, block_offset(i, 256, BITS == 4 ? 144 : 176) + 4, i % 256 / 32);
    uint at = FLOATS == 1 ? block_offset(i, 32, 17) : block_offset(i, 32, BITS * 4 + (MIN == 1 ? 4 : 2)), word = 0;
    for (uint k = 0; k < (FLOATS == 1 ? 1 : MIN == 1 ? 4 : 2); k++)
        word |= byte_at(row, at + k) << 8 * k;
    return word;
}

uint file_super(uint64_t row, uint i)
{
    if (BITS == 6) {
        uint at = block_offset(i, 256, 210) + 208;
        return byte_at(row, at) | byte_at(row, at + 1) << 8;
    }
    uint at = block_offset(i, 256, BITS == 4 ? 144 : 176), word = 0;
    for (uint k = 0; k < 4; k++)
        word |= byte_at(row, at + k) << 8 * k;
    return word;
}

void repack_quants(spry_tiles to, uint64_t row, bool valid, uint tile, uint block, uint o)
{
    uint q[8], fifth = 0;
    uvec2 sixth = uvec2(0);
    for (uint j = 0; j < 8; j++) {
        q[j] = 0;
        for (uint k = 0; k < 4; k++) {
            uint i = block * BLOCK + j * 4 + k, quant = 0;
            if (valid && i < to.n_in)
                quant = SUPER == 1 ? large_quant(row, i) : small_quant(row, i);
            q[j] |= (BITS == 8 ? quant : quant & 15) << 8 * k;
            fifth |= (quant >> 4 & 1) << (8 * k + j);
            sixth[j / 4] |= (quant >> 4 & 3) << (8 * k + j % 4 * 2);
        }
    }
    uint64_t at = block_at(to, tile, block);
    if (BITS == 8) {
        Quads(to.base + (at * 2 * OUTPUTS + o) * 16).v[0] = uvec4(q[0], q[1], q[2], q[3]);
        Quads(to.base + (at * 2 * OUTPUTS + OUTPUTS + o) * 16).v[0] = uvec4(q[4], q[5], q[6], q[7]);
    } else {
        Quads(to.base + (at * OUTPUTS + o) * 16).v[0] =
            uvec4(q[0] | q[4] << 4, q[1] | q[5] << 4, q[2] | q[6] << 4, q[3] | q[7] << 4);
    }
    if (BITS == 5)
        Words(to.base + to.high + (at * OUTPUTS + o) * 4).v[0] = fifth;
    if (BITS == 6)
        Pairs(to.base + to.high + (at * OUTPUTS + o) * 8).v[0] = sixth;
}

void repack_scales(spry_tiles to, uint64_t row, bool valid, uint tile, uint unit, uint o)
{
    uint64_t at = to.base + to.scale + ((uint64_t(tile) * to.n_units + unit) * OUTPUTS + o) * SCALE;
    uint i = unit * 64, first = valid && i < to.n_in ? file_scales(row, i) : 0,
         second = valid && i + 32 < to.n_in ? file_scales(row, i + 32) : 0;
    if (SCALE == 8) {
        Words(at).v[0] = first;
        Words(at).v[1] = second;
    } else {
        Words(at).v[0] = first | second << (FLOATS == 1 ? 8 : 16);
    }
    if (SUPER == 1 && unit % 4 == 0)
        Words(to.base + to.super + ((uint64_t(tile) * (to.n_units / 4) + unit / 4) * OUTPUTS + o) * 4).v[0] =
            valid && i < to.n_in ? file_super(row, i) : 0;
}

void repack_floats(spry_tiles to, uint64_t row, bool valid, uint tile, uint block, uint o)
{
    uint each = 16 / BYTES;
    for (uint chunk = 0; chunk < 2 * BYTES; chunk++) {
        uvec4 words = uvec4(0);
        for (uint i = 0; i < each; i++) {
            uint input_ = block * BLOCK + chunk * each + i;
            if (!valid || input_ >= to.n_in)
                continue;
            if (BYTES == 4)
                words[i] = Words(row).v[input_];
            else
                words[i / 2] |= uint(Shorts(row).v[input_]) << 16 * (i % 2);
        }
        Quads(floats_address(to, tile, block, chunk, o)).v[0] = words;
    }
}

void main()
{
    spry_repack_args a = args.a;
    uint unit = gl_WorkGroupID.x, tile = a.first_tile + gl_WorkGroupID.y, o = gl_LocalInvocationID.x % OUTPUTS;
    uint block = unit * 2 + gl_LocalInvocationID.x / OUTPUTS;
    bool valid = tile * OUTPUTS + o < a.to.n_out;
    uint64_t row = a.rows + (gl_WorkGroupID.y * OUTPUTS + o) * a.row_bytes;
    if (BITS == 0) {
        repack_floats(a.to, row, valid, tile, block, o);
        return;
    }
    repack_quants(a.to, row, valid, tile, block, o);
    if (gl_LocalInvocationID.x < OUTPUTS)
        repack_scales(a.to, row, valid, tile, unit, o);
}
