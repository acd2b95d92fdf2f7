/* GEMV: the products of gemm_small.cuh for one row. Used by decode steps of one sequence, all types but F32, compute
 * capability 8.0 and later.
 *
 * Latency decides here: everything that does not depend on the row is requested before pdl_wait, then all loads of the
 * row at once. Grid: up to two blocks per SM, 16 warps each. A block owns a range of columns (a tile, or with FUSE_GATE
 * a tile of each matrix); the ranges of two blocks that share an SM are neighbours, so that the SMs have equal work. A
 * warp sums one split of K, one tile after the other. Dynamic shared memory: [warp, slots] ring of units of weights |
 * the row's activations, unit by unit. Static shared memory: two buffers of [16 splits, COLUMNS tiles] sums, 16 sums of
 * squares. Each warp produces and consumes its own ring and its own units of activations; the block synchronises once
 * for COLUMNS columns, to add the splits in the order of gemm_mma.cuh.
 *
 * The loop over units is short on purpose: with a loop body of ten kilobytes warps wait for instructions. */
#pragma once

#include "device/cuda/kernels/gemm_small.cuh"

/* The row's activations in shared memory, one unit at a time: the B operands of the unit's steps in the mma layout of
 * activations.cuh for one row, those of a lane side by side. */
template <int ACTS> struct row_fragment {
    enum {
        UNIT = ACTS * 128,
        PIECES = ACTS * 8,
        LANE = ACTS * 4
    }; /* bytes of a unit; its 16-byte pieces; uint2s of a lane */

    /* A warp quantises a unit, two inputs per lane. */
    SPRY_METHOD static void quantise(unsigned char *to, float2 v, int lane)
    {
        SPRY_UNROLL
        for (int term = 0; term < ACTS; term++)
            ((uint32_t *)to)[(lane % 4 * LANE + lane / 8 * ACTS + term) * 2 + lane % 8 / 4] = split_bf16x2(&v.x, &v.y);
    }

    /* Copies piece i of the units that begin with `unit`. */
    SPRY_METHOD static void copy(unsigned char *to, const spry_activations &act, uint32_t unit, uint32_t i)
    {
        const unsigned char *from = (const unsigned char *)mma_terms<ACTS>(act, 0, unit * 4) + i / 2 * WARP * 8;
        const uint4 both = *(const uint4 *)(from + i % 2 * 16);
        const uint2 first = {both.x, both.y}, second = {both.z, both.w};
        uint2 *at = (uint2 *)(to + i / PIECES * UNIT) + i % 2 * 2 * LANE + i / 2 % LANE;
        at[0] = first;
        at[LANE] = second;
    }

    /* Where a lane finds its part of the first unit. */
    SPRY_METHOD static smem_address part(const unsigned char *units, int lane)
    {
        return smem_address_of(units + lane % 4 * LANE * sizeof(uint2));
    }

    /* All columns of the operand are the row; only the sums of the first are used. */
    SPRY_METHOD static void get(lane_fragment<ACTS> &act, smem_address part)
    {
        SPRY_UNROLL
        for (int i = 0; i < LANE; i += 2) {
            const uint4 both = smem_load_4(part + i * (int)sizeof(uint2));
            const uint2 first = {both.x, both.y}, second = {both.z, both.w};
            act.terms[i / ACTS][i % ACTS] = first;
            act.terms[(i + 1) / ACTS][(i + 1) % ACTS] = second;
        }
    }
};

/* A lane's part of units: their addresses in the matrix, unit after unit, and their layout in a slot of the ring: the
 * values, then the other planes (smem_units). */
template <class T, bool QUANTS> struct unit_stream {
    enum { AT_ONCE = 2 }; /* units that are copied and multiplied together, which spares instructions */
    typedef smem_units<T, 1, true> layout;
    typedef quant_unit<T> weights;
    const unsigned char *values, *rest; /* rest: of the planes after the values */
    uint32_t unit;
    uint32_t step, every; /* bytes to the next part of `rest`, after units whose number has all bits of `every` */

    SPRY_METHOD void start(const gemm_tile &p, uint32_t first)
    {
        uint64_t at = tile_unit(p.weight, p.tile, first);
        int offset = p.lane * 16, in_scales = offset - layout::HIGH, in_super = in_scales - layout::SCALES;
        unit = first;
        step = SPRY_TILE_GROUP * (uint32_t)(in_scales < 0 ? layout::HIGH : in_super < 0 ? layout::SCALES : 64);
        every = in_super < 0 ? 0 : 3; /* the super plane has one entry for four units */
        values = tile_plane(p.weight, 0, at, layout::VALUES) + p.lane * T::LANE;
        rest = in_scales < 0  ? tile_plane(p.weight, p.weight.high, at, layout::HIGH) + offset
               : in_super < 0 ? tile_plane(p.weight, p.weight.scale, at, layout::SCALES) + in_scales
                              : super_plane<T>(p.weight, p.tile, first) + in_super;
    }

    /* Starts the copies of AT_ONCE units before `end` to a slot and goes on to the next ones. */
    SPRY_METHOD void copy(smem_address slot, uint32_t end, int lane)
    {
        SPRY_UNROLL
        for (int i = 0; i < AT_ONCE; i++) {
            if (i && unit + i >= end)
                break;
            SPRY_UNROLL
            for (int k = 0; k < T::LANE; k += 16)
                smem_cp_async(slot + i * layout::UNIT + lane * T::LANE + k,
                              values + i * SPRY_TILE_GROUP * layout::VALUES + k);
            if (layout::VALUES + lane * 16 < layout::UNIT)
                smem_cp_async(slot + i * layout::UNIT + layout::VALUES + lane * 16, rest);
            if (!T::SUPER || ((unit + i) & every) == every)
                rest += step;
        }
        values += AT_ONCE * SPRY_TILE_GROUP * layout::VALUES;
        unit += AT_ONCE;
    }

    /* Reads the super plane of a tile of a type with levels; see super_word. */
    SPRY_METHOD static void read_levels(weights &u, smem_address plane, int output)
    {
        const uint4 levels = smem_load_4(plane + (int)LEVELS_AT);
        const uint32_t factor = smem_load(plane + (int)FACTOR_AT) << 16;
        u.words.high[0] = levels.x;
        u.words.high[T::LEVELS ? 1 : 0] = levels.y;
        u.words.high[T::LEVELS ? 2 : 0] = levels.z;
        u.words.high[T::LEVELS ? 3 : 0] = levels.w;
        SPRY_UNROLL
        for (int upper = 0; upper < 2; upper++) {
            const uint32_t two = smem_load(plane + (output / 2 + upper * 4) * 4);
            u.raw[upper].super = (two >> output % 2 * 16 & 0xffff) | factor;
        }
    }

    SPRY_METHOD static void read(weights &u, smem_address slot, int lane)
    {
        const smem_address own = slot + lane * T::LANE, high = slot + layout::VALUES + lane * T::HIGH * 4,
                           scale = slot + layout::VALUES + layout::HIGH + lane / 4 * T::SCALE,
                           super = slot + layout::SUPER_AT + lane / 4 * 4;
        SPRY_UNROLL
        for (int k = 0; k < T::LANE / 16; k++) {
            const uint4 words = smem_load_4(own + k * 16);
            u.words.words[k * 4] = words.x;
            u.words.words[k * 4 + 1] = words.y;
            u.words.words[k * 4 + 2] = words.z;
            u.words.words[k * 4 + 3] = words.w;
        }
        if (T::HIGH == 1)
            u.words.high[0] = smem_load(high);
        if (T::HIGH == 2) {
            const uint2 words = smem_load_2(high);
            u.words.high[0] = words.x;
            u.words.high[T::HIGH > 1 ? 1 : 0] = words.y;
        }
        SPRY_UNROLL
        for (int upper = 0; upper < 2; upper++) {
            SPRY_UNROLL
            for (int k = 0; k < T::SCALE / 4; k++)
                u.raw[upper].scale[k] = smem_load(scale + upper * 8 * T::SCALE + k * 4);
            u.raw[upper].super = T::SUPER && !T::LEVELS ? smem_load(super + upper * 32) : 0;
        }
        if (T::LEVELS)
            read_levels(u, slot + layout::SUPER_AT, lane / 4);
    }
};

template <class T> struct unit_stream<T, false> {
    enum { AT_ONCE = 1 };
    typedef smem_units<T, 1, false> layout;
    typedef float_unit<T> weights;
    const unsigned char *values;
    uint32_t unit;

    SPRY_METHOD void start(const gemm_tile &p, uint32_t first)
    {
        unit = first;
        values = tile_plane(p.weight, 0, tile_unit(p.weight, p.tile, first), layout::UNIT) + p.lane * 16;
    }

    SPRY_METHOD void copy(smem_address slot, uint32_t, int lane)
    {
        SPRY_UNROLL
        for (int k = 0; k < layout::UNIT; k += WARP * 16)
            smem_cp_async(slot + lane * 16 + k, values + k);
        values += SPRY_TILE_GROUP * layout::UNIT;
        unit++;
    }

    SPRY_METHOD static void read(weights &u, smem_address slot, int lane)
    {
        SPRY_UNROLL
        for (int k = 0; k < 4 * layout::PIECES; k++) {
            const uint4 words = smem_load_4(slot + lane * 16 + k * WARP * 16);
            uint32_t *to = u.steps[k / layout::PIECES].words + k % layout::PIECES * 4;
            to[0] = words.x, to[1] = words.y, to[2] = words.z, to[3] = words.w;
        }
    }
};

template <class T, gemm_fusion FUSION> struct gemv_block {
    enum { MATRICES = FUSION == FUSE_GATE ? 2 : 1, COLUMNS = SPRY_GEMV_COLUMNS, OUTPUTS = COLUMNS * SPRY_TILE_ROWS };
    typedef unit_stream<T, T::QUANTS> stream;
    enum { AT_ONCE = stream::AT_ONCE, DEPTH = SPRY_GEMV_DEPTH(T::QUANTS ? (int)T::LANE : 64) };
    enum { SLOT = AT_ONCE * stream::layout::UNIT };
    typedef typename stream::layout layout;
    typedef row_fragment<T::ACTS> row;
    typedef float sums[MATRICES * OUTPUTS];
    unsigned char *activations; /* the split's first unit */
    smem_address part;          /* the lane's part of it */
    float2 weight;              /* with FUSE_NORM and FUSE_GATE: the norm's weights for the next unit */
    float squares;              /* with FUSE_NORM and FUSE_GATE: sum of squares of the split; with FUSE_NONE: 1 / rms */
    uint32_t column, last;      /* the columns of the block */
    uint32_t begin, end, split;
    stream next; /* the next unit to load; its column and matrix */
    uint32_t next_column, next_matrix;
    smem_address slot, first_slot, last_slot; /* the slot that is read next and refilled; the ring of the warp */
    int lane;

    SPRY_METHOD gemm_tile tile_of(const spry_gemm_args &a, uint32_t *part, uint32_t number, uint32_t matrix) const
    {
        if (FUSION == FUSE_GATE)
            number += a.parts[matrix].first_tile;
        *part = FUSION == FUSE_GATE ? matrix : part_of_tile(a, number);
        return gemm_tile_at(a, a.parts[*part], number, 0, 0);
    }

    SPRY_METHOD void start_tile(const spry_gemm_args &a)
    {
        uint32_t part;
        if (next_column < last)
            next.start(tile_of(a, &part, next_column, next_matrix), begin);
    }

    /* Starts the copies of the next units. */
    SPRY_METHOD void load(const spry_gemm_args &a, smem_address to)
    {
        if (next_column < last) {
            next.copy(to, end, lane);
            if (next.unit >= end) {
                next_matrix = next_matrix + 1 < MATRICES ? next_matrix + 1 : 0;
                next_column += next_matrix == 0;
                start_tile(a);
            }
        }
        cp_async_commit();
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
        uint32_t columns = FUSION == FUSE_GATE ? a.parts[0].weight.n_tiles : a.n_tiles, blocks = gridDim.x;
        uint32_t number = blocks % 2 ? blockIdx.x : blockIdx.x % (blocks / 2) * 2 + blockIdx.x / (blocks / 2);
        lane = (int)(threadIdx.x % WARP);
        split = threadIdx.x / WARP;
        begin = n_units * split / SPRY_SPLIT_K;
        end = n_units * (split + 1) / SPRY_SPLIT_K;
        column = (uint32_t)((uint64_t)columns * number / blocks);
        last = (uint32_t)((uint64_t)columns * (number + 1) / blocks);
        uint32_t slots = (columns + blocks - 1) / blocks * MATRICES * ((most + AT_ONCE - 1) / AT_ONCE);
        slots = slots < DEPTH ? slots : (uint32_t)DEPTH;
        first_slot = slot = smem_address_of(smem + split * slots * SLOT);
        last_slot = first_slot + (slots - 1) * SLOT;
        activations = smem + SPRY_SPLIT_K * slots * SLOT + begin * row::UNIT;
        part = row::part(activations, lane);
        next_column = begin < end ? column : last;
        next_matrix = 0;
        start_tile(a);
        SPRY_UNROLL_BY(1)
        for (uint32_t i = 0; i < DEPTH; i++)
            load(a, first_slot + i * SLOT); /* with fewer slots there are no more units */
        if (FUSION != FUSE_NONE)
            weight = pair_of(a.from.weight, a.from.n, begin);
    }

    SPRY_METHOD void copy_activations(const spry_gemm_args &a)
    {
        squares = row_scale_of(a, 0);
        SPRY_UNROLL_BY(1)
        for (uint32_t i = (uint32_t)lane; i < (end - begin) * row::PIECES; i += WARP)
            row::copy(activations, a.act, begin, i);
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
            row::quantise(activations + (unit - begin) * row::UNIT, v, lane);
        }
        syncwarp();
    }

    /* The sums of the split for one tile. */
    SPRY_METHOD void add(float acc[4], const spry_gemm_args &a)
    {
        SPRY_UNROLL_BY(1)
        for (uint32_t at = 0; at < (end - begin) * row::UNIT; at += AT_ONCE * row::UNIT) {
            cp_async_wait_group<DEPTH - 1>();
            syncwarp(); /* other lanes have copied a part */
            SPRY_UNROLL
            for (int i = 0; i < AT_ONCE; i++) {
                lane_fragment<T::ACTS> act;
                typename stream::weights weights;
                if (i && at + i * row::UNIT >= (end - begin) * row::UNIT)
                    break;
                stream::read(weights, slot + i * layout::UNIT, lane);
                row::get(act, part + at + i * row::UNIT);
                act.template multiply<T>(acc, weights);
            }
            syncwarp(); /* all lanes have read the slot */
            load(a, slot);
            slot = slot == last_slot ? first_slot : slot + (int)SLOT;
        }
    }

    /* Sum of an output over the splits, in order. */
    SPRY_METHOD static float total(const sums *splits, uint32_t output)
    {
        float sum = 0;
        SPRY_UNROLL
        for (int s = 0; s < SPRY_SPLIT_K; s++)
            sum += splits[s][output];
        return sum;
    }

    /* Address of an output of the columns that begin with `first`, and its bias; without a bias -0, which changes no
     * sum. */
    SPRY_METHOD output_slot output_of(float *bias, const spry_gemm_args &a, uint32_t first, uint32_t matrix) const
    {
        output_slot none = {(float *)0, 0};
        uint32_t part, o = threadIdx.x % SPRY_TILE_ROWS, number = first + threadIdx.x / SPRY_TILE_ROWS;
        int from = (int)(o % 8 * 4), i = (int)(o / 8 * 2);
        *bias = -0.0f;
        if (threadIdx.x >= OUTPUTS || number >= last)
            return none;
        gemm_tile p = tile_of(a, &part, number, matrix);
        if (SPRY_UNLIKELY(a.parts[part].bias))
            *bias = output_bias(a.parts[part], p, from, i, 0);
        return FUSION == FUSE_GATE ? none : find_output(a, a.parts[part], p, 0, from, i);
    }

    /* Threads store the outputs of the columns that begin with `first`. `norms`: sums of squares of the splits; unused
     * with FUSE_NONE. */
    SPRY_METHOD void finish(const sums *splits, const float *norms, const spry_gemm_args &a, output_slot to, float bias,
                            uint32_t first)
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
        if (first + threadIdx.x / SPRY_TILE_ROWS >= last)
            return;
        if (SPRY_UNLIKELY(a.parts[1].bias))
            output_of(&up_bias, a, first, 1);
        float gate = total(splits, threadIdx.x) * norm + bias,
              up = total(splits, OUTPUTS + threadIdx.x) * norm + up_bias;
        uint32_t output = first * SPRY_TILE_ROWS + threadIdx.x;
        store_terms<T::ACTS>(a.from.to[T::FORMAT], 0, output / ACT_BLOCK, (int)(output % ACT_BLOCK),
                             gated(gate, up, a.from.gate), false);
    }
};

/* Blocks loop over their columns, COLUMNS at a time. `smem`: dynamic shared memory. */
template <class T, gemm_fusion FUSION>
SPRY_DEVICE void gemv(const spry_gemm_args &a, typename gemv_block<T, FUSION>::sums (*splits)[SPRY_SPLIT_K],
                      float *squares, unsigned char *smem)
{
    typedef gemv_block<T, FUSION> block;
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
    if (FUSION != FUSE_NONE && b.lane == 0)
        squares[b.split] = b.squares;
    uint32_t buffer = 0;
    SPRY_UNROLL_BY(1)
    for (uint32_t first = b.column; first < b.last; first += block::COLUMNS, buffer ^= 1) {
        uint32_t n = b.last - first < block::COLUMNS ? b.last - first : (uint32_t)block::COLUMNS;
        float bias;
        output_slot to = b.output_of(&bias, a, first, 0);
        SPRY_UNROLL_BY(1)
        for (uint32_t i = 0; i < n * block::MATRICES; i++) {
            float acc[4] = {}, *own = splits[buffer][b.split] + i % block::MATRICES * block::OUTPUTS +
                                      i / block::MATRICES * SPRY_TILE_ROWS + b.lane / 4;
            b.add(acc, a);
            if (b.lane % 4 == 0) {
                own[0] = acc[0];
                own[8] = acc[2];
            }
        }
        syncthreads();
        if (threadIdx.x < block::OUTPUTS)
            b.finish(splits[buffer], squares, a, to, bias, first);
    }
}

#define GEMV(name, kind, label)                                                                                        \
    SPRY_KERNEL_PDL_MANUAL(spry_gemv_##name##_##label, spry_gemm_args, 2)                                              \
    {                                                                                                                  \
        typedef gemv_block<type_##name, kind> block;                                                                   \
        SPRY_SMEM block::sums splits[2][SPRY_SPLIT_K];                                                                 \
        SPRY_SMEM float squares[ACT_SPLITS];                                                                           \
        SPRY_SMEM_DYNAMIC(smem, 1024);                                                                                 \
        smem_check(sizeof splits + sizeof squares);                                                                    \
        static_assert(sizeof splits + sizeof squares == spry_smem_gemv_sums(block::MATRICES), "as chosen");            \
        static_assert((size_t)block::row::UNIT == spry_smem_row_unit(type_##name::ACTS), "as chosen");                 \
        gemv<type_##name, kind>(a, splits, squares, smem);                                                             \
    }
#define GEMVS(name, ...) GEMV(name, FUSE_NORM, norm) GEMV(name, FUSE_GATE, gate) GEMV(name, FUSE_NONE, out)
