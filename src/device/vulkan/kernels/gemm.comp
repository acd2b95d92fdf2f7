/* Products of many rows. Grid: (tiles / 4, rows / 64); a workgroup owns 64 outputs by 64 rows, a thread 4 by 4. Shared
 * memory: a block of 32 inputs of the outputs and of the rows. The sums of a split are added to the total at its end,
 * as gemv.comp adds them. */
#version 450
#include "common.glsl"
#include "weights.glsl"
layout(local_size_x = 256) in;
ARGUMENTS(spry_gemm_args);
#include "products.glsl"

const uint SIDE = 64, EACH = 4, STRIDE = 9; /* words of 32 bytes, and one against bank conflicts */
const uint FLOAT_STRIDE = 33;
/* A block of quants as words, or of floats. */
shared uint weights[SIDE * FLOAT_STRIDE], acts[SIDE * FLOAT_STRIDE];
shared vec4 weight_scales[SIDE];
shared vec2 act_scales[SIDE];

/* The tile of four that belong to the workgroup, in its part; n_out is 0 past the last one. */
struct own_tile {
    spry_tiles w;
    uint part, tile;
};

own_tile tile_of(uint number, int expert)
{
    own_tile t;
    number = min(number, args.a.n_tiles - 1);
    t.part = part_of(number);
    t.w = args.a.parts[t.part].weight;
    t.w.base += uint64_t(expert) * t.w.matrix_bytes;
    t.tile = number - args.a.parts[t.part].first_tile;
    return t;
}

/* The first 64 threads load the weights of an output, the next 64 a row. */
void load_quant_block(own_tile t, uint block, uint first)
{
    uint thread = gl_LocalInvocationID.x, at = thread % SIDE;
    uint q[8];
    if (thread < SIDE) {
        load_quants(q, t.w, t.tile, block, at % OUTPUTS);
        [[unroll]] for (uint j = 0; j < 8; j++)
            weights[at * STRIDE + j] = q[j];
        weight_scales[at].xyz = load_scales(t.w, t.tile, block, at % OUTPUTS);
    } else if (thread < 2 * SIDE) {
        uint64_t from = uint64_t(min(first + at, args.a.n_rows - 1)) * (t.w.n_units * 2) + block;
        [[unroll]] for (uint j = 0; j < 8; j++)
            acts[at * STRIDE + j] = Words(args.a.act.values + from * 32).v[j];
        act_scales[at] = FloatPairs(args.a.act.scales + from * 8).v[0];
    }
}

void add_quant_block(inout float sum[EACH][EACH], uint to, uint tr)
{
    uint q[EACH][8];
    [[unroll]] for (uint i = 0; i < EACH; i++)
        [[unroll]] for (uint j = 0; j < 8; j++)
            q[i][j] = weights[(to * EACH + i) * STRIDE + j];
    [[unroll]] for (uint r = 0; r < EACH; r++) {
        uint row = tr + r * (SIDE / EACH);
        uvec4 lower = uvec4(acts[row * STRIDE], acts[row * STRIDE + 1], acts[row * STRIDE + 2], acts[row * STRIDE + 3]);
        uvec4 upper =
            uvec4(acts[row * STRIDE + 4], acts[row * STRIDE + 5], acts[row * STRIDE + 6], acts[row * STRIDE + 7]);
        [[unroll]] for (uint i = 0; i < EACH; i++) {
            precise float next = sum[i][r] + block_value(block_products(q[i], lower, upper),
                                                         weight_scales[to * EACH + i].xyz, act_scales[row]);
            sum[i][r] = next;
        }
    }
}

/* Every thread loads 8 weights and 8 activations. */
void load_float_block(own_tile t, uint block, uint first)
{
    uint thread = gl_LocalInvocationID.x, at = thread % SIDE, begin = thread / SIDE * 8, each = 16 / BYTES;
    uint64_t row = uint64_t(min(first + at, args.a.n_rows - 1)) * (t.w.n_units * 64) + block * BLOCK;
    [[unroll]] for (uint i = begin; i < begin + 8; i++) {
        uvec4 words = Quads(floats_address(t.w, t.tile, block, i / each, at % OUTPUTS)).v[0];
        weights[at * FLOAT_STRIDE + i] = floatBitsToUint(float_in(words, i % each));
        acts[at * FLOAT_STRIDE + i] = FLOATS == 2 ? uint(Shorts(args.a.act.values + (row + i) * 2).v[0]) << 16
                                                  : Words(args.a.act.values + (row + i) * 4).v[0];
    }
}

void add_float_block(inout float sum[EACH][EACH], uint to, uint tr)
{
    precise float own[EACH][EACH];
    [[unroll]] for (uint i = 0; i < EACH; i++)
        [[unroll]] for (uint r = 0; r < EACH; r++)
            own[i][r] = 0;
    for (uint k = 0; k < BLOCK; k++)
        [[unroll]] for (uint i = 0; i < EACH; i++)
            [[unroll]] for (uint r = 0; r < EACH; r++)
                own[i][r] += uintBitsToFloat(weights[(to * EACH + i) * FLOAT_STRIDE + k]) *
                             uintBitsToFloat(acts[(tr + r * (SIDE / EACH)) * FLOAT_STRIDE + k]);
    [[unroll]] for (uint i = 0; i < EACH; i++)
        [[unroll]] for (uint r = 0; r < EACH; r++) {
            precise float next = sum[i][r] + own[i][r];
            sum[i][r] = next;
        }
}

void main()
{
    uint to = gl_LocalInvocationID.x / 16, tr = gl_LocalInvocationID.x % 16, first = gl_WorkGroupID.y * SIDE;
    int expert = expert_of(first);
    if (expert < 0)
        return;
    own_tile loads = tile_of(gl_WorkGroupID.x * 4 + gl_LocalInvocationID.x % SIDE / OUTPUTS, expert);
    float sum[EACH][EACH];
    precise float total[EACH][EACH];
    [[unroll]] for (uint i = 0; i < EACH; i++)
        [[unroll]] for (uint r = 0; r < EACH; r++)
            total[i][r] = 0;
    for (uint split = 0; split < SPRY_SPLIT_K; split++) {
        uint begin = split_begin(loads.w.n_units, split) * 2, end = split_begin(loads.w.n_units, split + 1) * 2;
        [[unroll]] for (uint i = 0; i < EACH; i++)
            [[unroll]] for (uint r = 0; r < EACH; r++)
                sum[i][r] = 0;
        for (uint block = begin; block < end; block++) {
            barrier();
            if (BITS == 0)
                load_float_block(loads, block, first);
            else
                load_quant_block(loads, block, first);
            barrier();
            if (BITS == 0)
                add_float_block(sum, to, tr);
            else
                add_quant_block(sum, to, tr);
        }
        [[unroll]] for (uint i = 0; i < EACH; i++)
            [[unroll]] for (uint r = 0; r < EACH; r++)
                total[i][r] = split == 0 ? sum[i][r] : total[i][r] + sum[i][r];
    }
    uint number = gl_WorkGroupID.x * 4 + to / 4;
    own_tile own = tile_of(number, expert);
    for (uint i = 0; i < EACH; i++) {
        uint o = own.tile * OUTPUTS + to % 4 * EACH + i;
        for (uint r = 0; r < EACH; r++) {
            uint row = first + tr + r * (SIDE / EACH);
            if (number < args.a.n_tiles && o < own.w.n_out && row < args.a.n_rows)
                store_sum(own.part, expert, row, o, total[i][r]);
        }
    }
}
