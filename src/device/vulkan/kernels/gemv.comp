/* Products of up to 8 rows: out[row][o] = sum over i of weight[o][i] * act[row][i]. Grid: (tiles, rows / ROWS); a
 * workgroup owns a tile of 16 outputs. Thread t has output t % 16 and split t / 16 of K: 16 threads read 256
 * neighbouring bytes of weights, and the same activations. A weight is unpacked once for all rows. Shared memory: the
 * sums of the splits. */
#version 450
#include "common.glsl"
#include "weights.glsl"
layout(constant_id = 8) const uint ROWS = 1;
layout(local_size_x = 256) in;
ARGUMENTS(spry_gemm_args);
#include "products.glsl"

shared float sums[SPRY_SPLIT_K][16][ROWS];

void add_block(inout float sum[ROWS], spry_tiles w, uint tile, uint block, uint o, uint first)
{
    block_weights weights = load_block(w, tile, block, o);
    precise float own[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        own[r] = 0;
    [[unroll]] for (uint i = 0; i < BLOCK; i += 4) {
        vec4 four = weights_of(weights, i);
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            vec4 acts = activations_at(uint64_t(first + r) * (w.n_units * 64) + block * BLOCK + i);
            [[unroll]] for (uint k = 0; k < 4; k++)
                own[r] += four[k] * acts[k];
        }
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        precise float next = sum[r] + own[r];
        sum[r] = next;
    }
}

void main()
{
    uint o = gl_LocalInvocationID.x % OUTPUTS, split = gl_LocalInvocationID.x / OUTPUTS, first = gl_WorkGroupID.y * ROWS;
    uint part = part_of(gl_WorkGroupID.x), tile = gl_WorkGroupID.x - args.a.parts[part].first_tile;
    int expert = expert_of(first);
    spry_tiles w = args.a.parts[part].weight;
    float sum[ROWS];
    if (expert < 0)
        return;
    w.base += uint64_t(expert) * w.matrix_bytes;
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        sum[r] = 0;
    for (uint block = split_begin(w.n_units, split) * 2; block < split_begin(w.n_units, split + 1) * 2; block++)
        add_block(sum, w, tile, block, o, first);
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        sums[split][o][r] = sum[r];
    barrier();
    uint row = first + split;
    if (split >= ROWS || row >= args.a.n_rows || tile * OUTPUTS + o >= w.n_out)
        return;
    precise float total = sums[0][o][split];
    for (uint s = 1; s < SPRY_SPLIT_K; s++)
        total += sums[s][o][split];
    store_sum(part, expert, row, tile * OUTPUTS + o, total);
}
