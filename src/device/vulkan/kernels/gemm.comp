/* Products of many rows. Grid: (tiles / 4, rows / 64); a workgroup owns 64 outputs by 64 rows, a thread 4 by 4. Shared
 * memory: a block of 32 inputs of the outputs and of the rows. The sums of a split are added to the total at its end,
 * as gemv.comp adds them. */
#version 450
#include "common.glsl"
#include "weights.glsl"
layout(local_size_x = 256) in;
ARGUMENTS(spry_gemm_args);
#include "products.glsl"

const uint SIDE = 64, EACH = 4, STRIDE = 33; /* a block of floats, and one against bank conflicts */
shared float weights[SIDE * STRIDE], acts[SIDE * STRIDE];

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

/* Every thread loads 8 weights and 8 activations. */
void load_blocks(own_tile t, uint block, uint first)
{
    uint at = gl_LocalInvocationID.x % SIDE, begin = gl_LocalInvocationID.x / SIDE * 8;
    uint64_t row = uint64_t(min(first + at, args.a.n_rows - 1)) * (t.w.n_units * 64) + block * BLOCK;
    block_weights own = load_block(t.w, t.tile, block, at % OUTPUTS);
    for (uint i = begin; i < begin + 8; i += 4) {
        vec4 four = weights_of(own, i), values = activations_at(row + i);
        [[unroll]] for (uint k = 0; k < 4; k++) {
            weights[at * STRIDE + i + k] = four[k];
            acts[at * STRIDE + i + k] = values[k];
        }
    }
}

void add_blocks(inout float sum[EACH][EACH], uint to, uint tr)
{
    precise float own[EACH][EACH];
    [[unroll]] for (uint i = 0; i < EACH; i++)
        [[unroll]] for (uint r = 0; r < EACH; r++)
            own[i][r] = 0;
    for (uint k = 0; k < BLOCK; k++)
        [[unroll]] for (uint i = 0; i < EACH; i++)
            [[unroll]] for (uint r = 0; r < EACH; r++)
                own[i][r] += weights[(to * EACH + i) * STRIDE + k] * acts[(tr + r * (SIDE / EACH)) * STRIDE + k];
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
            load_blocks(loads, block, first);
            barrier();
            add_blocks(sum, to, tr);
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
