/* GEMV: the products of gemm_small.cuh for one row. Used by decode steps of one sequence, all types but F32, compute
 * capability 8.0 and later.
 *
 * Latency decides here: everything that does not depend on the row is requested before pdl_wait, then all loads of the
 * row at once. Grid: at most one block per SM, 16 warps; a warp sums one split of K of a batch of TILES tiles. Dynamic
 * shared memory: [warp, DEPTH, group of units] ring of weights | the row's activations, unit by unit. Static shared
 * memory: [16 splits, TILES * 16] sums, 16 sums of squares. Each warp produces and consumes its own ring and its own
 * units of activations; the block synchronises once per batch, to add the splits in the order of gemm_mma.cuh.
 *
 * Measured share of the limit (docs/lab/gpu.md, H200, Qwen3-0.6B BF16, 2026-11-15): reading the weights takes 27 to
 * 44 % of the time of a layer's products and 89 % of the output matrix's. */
#pragma once

#include "device/cuda/kernels/gemm_small.cuh"

/* The row's activations in shared memory, one unit at a time, in the mma layout of activations.cuh without the other 7
 * rows: bf16 terms, or (ACTS = 0) int8 values followed by scale and sum of both blocks of 32. A warp quantises a unit,
 * two inputs per lane. */
template <int ACTS> struct row_fragment {
    enum { UNIT = ACTS * 128, PIECES = ACTS * 8 }; /* bytes of a unit; 16-byte pieces of a unit */

    SPRY_METHOD static void quantise(unsigned char *to, float2 v, int lane)
    {
        SPRY_UNROLL
        for (int term = 0; term < ACTS; term++)
            ((uint32_t *)to)[((lane / 8 * ACTS + term) * 4 + lane % 4) * 2 + lane % 8 / 4] = split_bf16x2(&v.x, &v.y);
    }

    /* Copies piece i of the units that begin with `unit`. */
    SPRY_METHOD static void copy(unsigned char *to, const spry_activations &act, uint32_t unit, uint32_t i)
    {
        const unsigned char *from = (const unsigned char *)mma_terms<ACTS>(act, 0, unit * 4) + i / 2 * WARP * 8;
        *(uint4 *)(to + i * 16) = *(const uint4 *)(from + i % 2 * 16);
    }

    SPRY_METHOD static lane_fragment<ACTS> get(const unsigned char *from, int lane)
    {
        lane_fragment<ACTS> act;
        SPRY_UNROLL
        for (int i = 0; i < 4 * ACTS; i++) {
            uint2 none = {0, 0};
            act.terms[i / ACTS][i % ACTS] = lane < 4 ? ((const uint2 *)from)[i * 4 + lane] : none;
        }
        return act;
    }
};

template <> struct row_fragment<0> {
    enum { UNIT = 80, PIECES = 5 };

    /* Computes the same values as store_q8; each half of the warp has a block of 32 inputs. */
    SPRY_METHOD static void quantise(unsigned char *to, float2 v, int lane)
    {
        uint32_t own = larger_of(magnitude_bits(v.x), magnitude_bits(v.y)), first = warp_max_u32(lane < 16 ? own : 0);
        uint32_t second = warp_max_u32(lane < 16 ? 0 : own);
        const q8_scale by(lane < 16 ? first : second);
        int low = by.quant(v.x), high = by.quant(v.y), first_sum = warp_sum_i32(lane < 16 ? low + high : 0);
        int second_sum = warp_sum_i32(lane < 16 ? 0 : low + high), sum = lane < 16 ? first_sum : second_sum;
        int pair = lane % 16, word = pair / 2; /* four inputs of the block: the inputs of lane word % 4, in its half */
        ((uint16_t *)to)[((lane / 16 * 4 + word % 4) * 2 + word / 4) * 2 + pair % 2] =
            (uint16_t)(((uint32_t)low & 255) | ((uint32_t)high & 255) << 8);
        float2 scale = {by.scale, (float)sum};
        if (pair == 0)
            ((float2 *)(to + 64))[lane / 16] = scale;
    }

    SPRY_METHOD static void copy(unsigned char *to, const spry_activations &act, uint32_t unit, uint32_t i)
    {
        uint32_t block = (unit + i / PIECES) * 2 + i % PIECES / 2;
        if (i % PIECES < 4) {
            *(uint4 *)(to + i * 16) = ((const uint4 *)mma_q8(act, 0, block))[i % PIECES % 2];
            return;
        }
        ((float2 *)(to + i * 16))[0] = mma_scales(act, 0, block - 2)[0];
        ((float2 *)(to + i * 16))[1] = mma_scales(act, 0, block - 1)[0];
    }

    SPRY_METHOD static lane_fragment<0> get(const unsigned char *from, int lane)
    {
        lane_fragment<0> act;
        SPRY_UNROLL
        for (int block = 0; block < 2; block++) {
            float2 zero = {0, 0};
            uint2 none = {0, 0};
            act.values[block] = lane < 4 ? ((const uint2 *)from)[block * 4 + lane] : none;
            act.columns[block][0] = lane % 4 ? zero : ((const float2 *)(from + 64))[block];
            act.columns[block][1] = zero;
        }
        return act;
    }
};

/* A block loops over batches of TILES tiles; a warp loops over the units of its split, AT_ONCE units of all tiles at a
 * time, or fewer if the split is shorter. These units are called a group. Quantised weights are small: DEPTH groups are
 * in flight. */
template <class T, int TILES, gemm_fusion FUSION> struct gemv_block {
    enum { AT_ONCE = TILES < 4 ? 4 / TILES : 1, SLOTS = TILES * AT_ONCE, DEPTH = T::QUANTS ? 2 : 1 };
    enum { OUTPUTS = TILES * SPRY_TILE_ROWS, HALF = OUTPUTS / 2 };
    typedef smem_units<T, SLOTS * DEPTH, T::QUANTS> ring_units;
    typedef row_fragment<T::ACTS> row;
    ring_units ring;
    unsigned char *activations; /* address of the row's first unit in shared memory */
    float2 weight;              /* with FUSE_NORM and FUSE_GATE: the norm's weights for the next unit */
    float squares;              /* with FUSE_NORM and FUSE_GATE: sum of squares of the split; with FUSE_NONE: 1 / rms */
    uint32_t batch, batches, begin, end, split;
    uint32_t next_batch, next_first, next_slot; /* the group that is loaded next */
    uint32_t group;                             /* maximum number of units in a group */
    int lane;

    /* Starts the copies of the next group. Most blocks have no more groups than those requested at the start, so later
     * calls are marked unlikely. */
    SPRY_METHOD void load_group(const spry_gemm_args &a, bool first)
    {
        bool more_batches = next_batch < batches;
        SPRY_UNROLL_BY(1)
        for (uint32_t i = 0;
             (first ? more_batches : SPRY_UNLIKELY(more_batches)) && i < SLOTS && next_first + i / TILES < end; i++) {
            uint32_t part;
            ring.load(batch_tile<TILES, FUSION>(a, &part, next_batch, i % TILES), next_slot + i,
                      next_first + i / TILES);
        }
        cp_async_commit();
        bool more = next_first + AT_ONCE < end;
        next_batch = more ? next_batch : next_batch + gridDim.x;
        next_first = more ? next_first + AT_ONCE : begin;
        next_slot = next_slot ? 0 : (DEPTH - 1) * group;
    }

    SPRY_METHOD float2 pair_of(const float *from, uint32_t n, uint32_t unit) const
    {
        uint32_t at = unit * SPRY_TILE_UNIT + (uint32_t)lane * 2;
        float2 none = {0, 0};
        return unit < end && at < n ? *(const float2 *)(from + at) : none;
    }

    SPRY_METHOD void start(const spry_gemm_args &a, unsigned char *smem)
    {
        uint32_t n_units = a.parts[0].weight.n_units, most = (n_units + SPRY_SPLIT_K - 1) / SPRY_SPLIT_K;
        lane = (int)(threadIdx.x % WARP);
        split = threadIdx.x / WARP;
        batch = blockIdx.x;
        begin = n_units * split / SPRY_SPLIT_K;
        end = n_units * (split + 1) / SPRY_SPLIT_K;
        batches = FUSION == FUSE_GATE ? a.parts[0].weight.n_tiles / (TILES > 1 ? TILES / 2 : 1)
                                      : (a.n_tiles + TILES - 1) / TILES;
        group = TILES * (most < AT_ONCE ? most : (uint32_t)AT_ONCE);
        activations = smem + SPRY_SPLIT_K * DEPTH * group * ring_units::UNIT;
        ring.bind(smem + split * DEPTH * group * ring_units::UNIT, 0, lane);
        next_batch = batch;
        next_first = begin;
        next_slot = 0;
        SPRY_UNROLL_BY(1)
        for (int i = 0; i < DEPTH; i++)
            load_group(a, true);
        if (FUSION != FUSE_NONE)
            weight = pair_of(a.from.weight, a.from.n, begin);
    }

    SPRY_METHOD void copy_activations(const spry_gemm_args &a)
    {
        squares = row_scale_of(a, 0);
        SPRY_UNROLL_BY(1)
        for (uint32_t i = (uint32_t)lane; i < (end - begin) * row::PIECES; i += WARP)
            row::copy(activations + begin * row::UNIT, a.act, begin, i);
        syncwarp();
    }

    SPRY_METHOD void make_activations(const spry_gemm_args &a)
    {
        float2 raw = pair_of(a.from.in, a.from.n, begin);
        squares = 0;
        SPRY_UNROLL_BY(1)
        for (uint32_t unit = begin; unit < end; unit++) {
            const float2 v = {raw.x * weight.x, raw.y * weight.y};
            squares += unit_sum(raw.x * raw.x + raw.y * raw.y);
            raw = pair_of(a.from.in, a.from.n, unit + 1);
            weight = pair_of(a.from.weight, a.from.n, unit + 1);
            row::quantise(activations + unit * row::UNIT, v, lane);
        }
        syncwarp();
    }

    SPRY_METHOD void add(float acc[TILES][4], const spry_gemm_args &a)
    {
        SPRY_UNROLL_BY(1)
        for (uint32_t first = begin; first < end; first += AT_ONCE) {
            cp_async_wait_group<DEPTH - 1>();
            SPRY_UNROLL_BY(1)
            for (uint32_t u = 0; u < AT_ONCE && first + u < end; u++) {
                const lane_fragment<T::ACTS> act = row::get(activations + (first + u) * row::UNIT, lane);
                SPRY_UNROLL
                for (uint32_t tile = 0; tile < TILES; tile++)
                    act.multiply(acc[tile],
                                 ring.get(next_slot + u * TILES + tile)); /* the slot that is refilled next */
            }
            load_group(a, false);
        }
    }

    /* Sum of an output over the splits, in order. */
    SPRY_METHOD static float total(const float (*splits)[OUTPUTS], uint32_t output)
    {
        float sum = 0;
        SPRY_UNROLL
        for (int s = 0; s < SPRY_SPLIT_K; s++)
            sum += splits[s][output];
        return sum;
    }

    /* Address of an output of the batch, and its bias; without a bias -0, which changes no sum. */
    SPRY_METHOD output_slot output_of(float *bias, const spry_gemm_args &a, uint32_t output) const
    {
        output_slot none = {(float *)0, 0};
        uint32_t part, o = output % SPRY_TILE_ROWS, tile = output / SPRY_TILE_ROWS;
        int from = (int)(o % 8 * 4), i = (int)(o / 8 * 2);
        *bias = -0.0f;
        if (output >= OUTPUTS || (FUSION != FUSE_GATE && batch * TILES + tile >= a.n_tiles))
            return none;
        gemm_tile p = batch_tile<TILES, FUSION>(a, &part, batch, tile);
        if (SPRY_UNLIKELY(a.parts[part].bias))
            *bias = output_bias(a.parts[part], p, from, i, 0);
        return FUSION == FUSE_GATE ? none : find_output(a, a.parts[part], p, 0, from, i);
    }

    /* `norms`: sums of squares of the splits; unused with FUSE_NONE. */
    SPRY_METHOD void finish(const float (*splits)[OUTPUTS], const float *norms, const spry_gemm_args &a, output_slot to,
                            float bias)
    {
        float norm = FUSION == FUSE_NONE ? squares : norm_of_splits(norms, 1, a.from.n, a.from.eps);
        if (FUSION != FUSE_GATE) {
            if (!to.out)
                return;
            float sum = total(splits, threadIdx.x) * norm + bias;
            *to.out = a.add ? to.base + sum : sum;
            return;
        }
        float up_bias = -0.0f;
        if (SPRY_UNLIKELY(a.parts[1].bias))
            output_of(&up_bias, a, HALF + threadIdx.x);
        float gate = total(splits, threadIdx.x) * norm + bias, up = total(splits, HALF + threadIdx.x) * norm + up_bias;
        store_activation_for<T>(a.from.to, 0, batch * (HALF / ACT_BLOCK) + threadIdx.x / WARP, lane,
                                gated(gate, up, a.from.gate));
    }
};

/* Blocks loop over all batches of tiles. `smem`: dynamic shared memory. */
template <class T, int TILES, gemm_fusion FUSION>
SPRY_DEVICE void gemv(const spry_gemm_args &a, float (*splits)[TILES * SPRY_TILE_ROWS], float *squares,
                      unsigned char *smem)
{
    typedef gemv_block<T, TILES, FUSION> block;
    const uint32_t finishing =
        FUSION == FUSE_GATE ? (uint32_t)block::HALF : (uint32_t)block::OUTPUTS; /* threads that store outputs */
    block b;
    if (FUSION != FUSE_NONE)
        pdl_launch_dependents();
    b.start(a, smem);
    if (FUSION == FUSE_NONE) { /* the next kernels prefetch more than this one, which would delay these loads */
        cp_async_wait_all();
        pdl_launch_dependents();
    }
    pdl_wait();
    if (FUSION == FUSE_NONE)
        b.copy_activations(a);
    else
        b.make_activations(a);
    SPRY_UNROLL_BY(1)
    for (; b.batch < b.batches; b.batch += gridDim.x) {
        float acc[TILES][4] = {}, bias;
        output_slot to = b.output_of(&bias, a, threadIdx.x);
        b.add(acc, a);
        if (b.batch != blockIdx.x)
            syncthreads();
        if (FUSION != FUSE_NONE && b.batch == blockIdx.x && b.lane == 0)
            squares[b.split] = b.squares;
        SPRY_UNROLL
        for (int tile = 0; tile < TILES; tile++)
            if (b.lane % 4 == 0) {
                splits[b.split][tile * SPRY_TILE_ROWS + b.lane / 4] = acc[tile][0];
                splits[b.split][tile * SPRY_TILE_ROWS + b.lane / 4 + 8] = acc[tile][2];
            }
        syncthreads();
        if (threadIdx.x < finishing)
            b.finish(splits, squares, a, to, bias);
    }
}

#define GEMV(name, kind, label, tiles)                                                                                 \
    SPRY_KERNEL_PDL_MANUAL(spry_gemv_##name##_##label##_##tiles, spry_gemm_args, 2)                                    \
    {                                                                                                                  \
        SPRY_SMEM float splits[SPRY_SPLIT_K][tiles * SPRY_TILE_ROWS], squares[ACT_SPLITS];                             \
        SPRY_SMEM_DYNAMIC(smem, 1024);                                                                                 \
        smem_check(sizeof splits + sizeof squares);                                                                    \
        static_assert(sizeof splits + sizeof squares == spry_smem_gemv_sums(tiles), "as chosen");                      \
        static_assert((size_t)row_fragment<type_##name::ACTS>::UNIT == spry_smem_row_unit(type_##name::ACTS),          \
                      "as chosen");                                                                                    \
        gemv<type_##name, tiles, kind>(a, splits, squares, smem);                                                      \
    }
#define GEMVS(name, ...)                                                                                               \
    GEMV(name, FUSE_NORM, norm, 2)                                                                                     \
    GEMV(name, FUSE_NORM, norm, 4)                                                                                     \
    GEMV(name, FUSE_GATE, gate, 4) GEMV(name, FUSE_NONE, out, 1) GEMV(name, FUSE_NONE, out, 4)
