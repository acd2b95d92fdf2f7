/* Blocks of a file become the layout of weights.glsl. Grid: (units, tiles); a thread moves one block of 32 inputs of one
 * output. */
#version 450
#include "common.glsl"
#include "weights.glsl"
layout(local_size_x = 32) in;
ARGUMENTS(spry_repack_args);

void repack_quants(spry_tiles to, uint64_t row, bool valid, uint tile, uint block, uint o)
{
    uint q[8] = uint[8](0, 0, 0, 0, 0, 0, 0, 0), fifth = 0;
    uvec2 sixth = uvec2(0);
    if (valid && block * BLOCK < to.n_in)
        file_quants(q, row, block * BLOCK);
    [[unroll]] for (uint j = 0; j < 8; j++) {
        fifth |= (q[j] >> 4 & 0x01010101) << j;
        sixth[j / 4] |= (q[j] >> 4 & 0x03030303) << j % 4 * 2;
        q[j] &= BITS == 8 ? 0xffffffff : 0x0f0f0f0f;
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
    for (uint chunk = 0; chunk < 2 * BYTES; chunk++)
        Quads(floats_address(to, tile, block, chunk, o)).v[0] =
            file_floats(row, block * BLOCK + chunk * (16 / BYTES), valid ? to.n_in : 0);
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
