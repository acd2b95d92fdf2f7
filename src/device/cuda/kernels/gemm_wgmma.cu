/* Warp-specialised GEMM with wgmma for more than 8 rows, compute capability 9.0, all weight types but F32. It computes
 * the product of gemm_mma.cuh with the same bits; gate and up matrices can be multiplied together, and the epilogue can
 * quantise the result for the next product.
 *
 * Grid: (blocks of a cluster, clusters); persistent, a tile scheduler hands out work tiles of 64 or 128 outputs x 64 or
 * 128 rows. Block: one or two consumer warpgroups, each with four weight tiles (64 outputs, one tile per warp) and all
 * rows of the work tile; one producer warp, whose lane 0 copies units (64 inputs) of weights and activations with
 * cp.async.bulk; one warp that turns sums of squares into 1 / rms.
 *
 * Dynamic shared memory (gemm_smem): mbarriers | 1 / rms of the rows of two work tiles | ring of stages, each a unit of
 * activations and of weights | sums of the work tile. The ring runs on from one work tile to the next. The consumers
 * wait for full[stage] and arrive at empty[stage]; the producer does the opposite.
 *
 * Split-K: if there are too few work tiles for the GPU, the blocks of a cluster share the splits of one. The first
 * block sums its own splits, the others leave the sums of each split in shared memory; then every block adds some rows
 * in order through distributed shared memory and stores them.
 *
 * A test shows that wgmma adds 16 products as mma does. Rows past the last are computed from whatever memory holds and
 * are not stored.
 *
 * Measured share of the limit (docs/lab/2026-11-17.md, H200, BF16, prompts of 2,048 tokens): 340 TFLOP/s, 34 % of the
 * tensor cores' 989; without any copies 2 % more. */
#include "device/cuda/kernels/gemm_wgmma_tiles.cuh"

/* ---- epilogue ---------------------------------------------------------------------------------------------------- */

/* Four outputs of a row, fewer at the end of a matrix. If all four exist they are loaded and stored as a vector. */
struct output_quad {
    uint32_t first, n;
    bool whole;

    SPRY_METHOD output_quad(const spry_gemm_part &part, uint32_t output)
        : first(output), n(output < part.weight.n_out ? part.weight.n_out - output : 0),
          whole(n >= 4 && part.stride % 4 == 0)
    {
    }

    SPRY_METHOD float4 load(const float *row) const
    {
        return *(const float4 *)(row + first);
    }

    SPRY_METHOD void store(float *row, float4 four) const
    {
        *(float4 *)(row + first) = four;
    }

    /* Stores the outputs that exist, plus the bias, plus the old values with `add`. */
    SPRY_METHOD void store_some(float *row, float4 four, const float *bias, bool add) const
    {
        const float v[4] = {four.x, four.y, four.z, four.w};
        SPRY_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            if (i >= n)
                continue;
            float value = bias ? v[i] + bias[first + i] : v[i];
            row[first + i] = add ? row[first + i] + value : value;
        }
    }
};

SPRY_DEVICE float4 add_four(float4 a, float4 b)
{
    float4 sum = {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
    return sum;
}

/* Epilogue: turns the sums of a work tile in shared memory into rows of the result. Rare cases, a bias or a gate other
 * than SiLU, are kept out of line, because each block runs this code only a few times and waits for its instructions.
 */
template <class S> struct gemm_epilogue {
    enum { WARPS = S::WARPGROUPS * WARPGROUP_WARPS, EACH = 2 / S::WARPGROUPS, STEP = WARPS * EACH, AHEAD = 4 };
    const spry_gemm_args &a;
    float *sums;
    const float *norms;  /* NULL, or 1 / rms of the work tile's rows */
    uint32_t row;        /* first row of the work tile */
    uint32_t begin, end; /* the rows of the work tile that this block stores, in whole groups */
    int lane, warp;

    SPRY_METHOD float norm_of(uint32_t in_item) const
    {
        return norms ? norms[in_item] : 1;
    }

    SPRY_METHOD float4 normalised(uint32_t in_item, uint32_t column) const
    {
        float4 v = *(const float4 *)(sums + in_item * S::WIDTH + column);
        float norm = norm_of(in_item);
        v.x *= norm, v.y *= norm, v.z *= norm, v.w *= norm;
        return v;
    }

    /* A warp stores one row of two warpgroups, or two rows of one, at a time. Old values are loaded for several rows at
     * once. Adding -0 changes nothing. */
    SPRY_METHOD void write_rows(const work_tile &item) const
    {
        const tile_source t = S::find(a, item.column, S::WARPGROUPS == 1 ? 0 : (uint32_t)lane / 16, 0);
        const spry_gemm_part &part = a.parts[t.part];
        const output_quad outputs(part, t.tile * SPRY_TILE_ROWS + (uint32_t)lane % 16 * 4);
        const float4 nothing = {-0.0f, -0.0f, -0.0f, -0.0f};
        uint32_t own = begin + (uint32_t)(warp * EACH) +
                       (S::WARPGROUPS == 1 ? (uint32_t)lane / 16 : 0); /* the first row of this lane */
        uint32_t last = row + end < a.n_rows ? end : a.n_rows - row, column = (uint32_t)lane % (S::WARPGROUPS * 16) * 4;
        float *to = part.out + (uint64_t)row * part.stride;
        float4 bias = nothing;
        if (SPRY_UNLIKELY(!warp_all(t.valid && outputs.whole))) {
            SPRY_UNROLL_BY(1)
            for (uint32_t r = own; t.valid && r < last; r += STEP)
                outputs.store_some(to + (uint64_t)r * part.stride, normalised(r, column), part.bias, a.add);
            return;
        }
        if (SPRY_UNLIKELY(part.bias))
            bias = outputs.load(part.bias);
        SPRY_UNROLL_BY(1)
        for (uint32_t first = own; first < last; first += STEP * AHEAD) {
            float4 base[AHEAD];
            SPRY_UNROLL
            for (uint32_t i = 0; i < AHEAD; i++)
                base[i] = a.add && first + i * STEP < last
                              ? outputs.load(to + (uint64_t)(first + i * STEP) * part.stride)
                              : nothing;
            SPRY_UNROLL
            for (uint32_t i = 0; i < AHEAD; i++)
                if (first + i * STEP < last)
                    outputs.store(to + (uint64_t)(first + i * STEP) * part.stride,
                                  add_four(base[i], add_four(normalised(first + i * STEP, column), bias)));
        }
    }

    /* A warp stores 8 rows by one unit (64 outputs) at a time and quantises them as the next product's input; rows past
     * the last become zeros. All outputs belong to one matrix and fill whole units. */
    SPRY_METHOD void write_encoded(const work_tile &item) const
    {
        const spry_gemm_part &part = a.parts[0];
        SPRY_UNROLL_BY(1)
        for (uint32_t i = begin / SPRY_ACT_ROWS * S::WARPGROUPS + (uint32_t)warp;
             i < end / SPRY_ACT_ROWS * S::WARPGROUPS; i += WARPS) {
            uint32_t in_item = i / S::WARPGROUPS * SPRY_ACT_ROWS + (uint32_t)lane % 8,
                     unit = item.column * S::WARPGROUPS + i % S::WARPGROUPS;
            uint32_t output = unit * SPRY_TILE_UNIT, group = item.first_group + i / S::WARPGROUPS;
            bool valid = row + in_item < a.n_rows;
            float *to = part.out + (uint64_t)(row + in_item) * part.stride + output;
            wgmma_fragment sum, base, weight;
            if (group * SPRY_ACT_ROWS >= a.n_rows || output >= part.weight.n_out)
                continue;
            base.load(to, SPRY_TILE_UNIT, 0, lane, valid && a.add);
            weight.load(a.from.weight, a.from.n, output, lane, true);
            sum.load(sums + in_item * S::WIDTH, S::WIDTH, i % S::WARPGROUPS * SPRY_TILE_UNIT, lane, valid);
            if (SPRY_UNLIKELY(part.bias && valid))
                sum.add(part.bias, output, lane);
            SPRY_UNROLL
            for (int k = 0; k < 16; k++)
                sum.of[k / 8].v[k % 8] =
                    a.add ? base.of[k / 8].v[k % 8] + sum.of[k / 8].v[k % 8] : sum.of[k / 8].v[k % 8];
            SPRY_UNROLL
            for (uint32_t half = 0; half < 2 && valid; half++)
                sum.of[half].store(to + wgmma_fragment::begin(half, lane));
            sum.scale_by_weight(weight, a.from.to, group, unit, lane);
            sum.of[0].template store_expecting<S::FORMAT>(a.from.to, group, unit, 0, lane);
            sum.of[1].template store_expecting<S::FORMAT>(a.from.to, group, unit, 1, lane);
        }
    }

    /* Gates eight outputs of a row in place. */
    SPRY_METHOD void gate_slow_path(float *gate, const float *up, uint32_t output, float norm) const
    {
        SPRY_UNROLL_BY(1)
        for (uint32_t k = 0; k < 8; k++) {
            float x = gate[k] * norm, y = up[k] * norm;
            x = a.parts[0].bias ? x + a.parts[0].bias[output + k] : x;
            y = a.parts[1].bias ? y + a.parts[1].bias[output + k] : y;
            gate[k] = gated(x, y, a.from.gate);
        }
    }

    /* A warp gates and quantises 32 outputs of 8 rows at a time; rows past the last become zeros. */
    SPRY_METHOD void write_gated(const work_tile &item) const
    {
        enum { HALVES = S::WARPGROUPS, UP = S::WARPGROUPS * WARPGROUP_OUTPUTS / 2 };
        bool plain = a.from.gate == GATE_SILU && !a.parts[0].bias && !a.parts[1].bias;
        SPRY_UNROLL_BY(1)
        for (uint32_t i = begin / SPRY_ACT_ROWS * HALVES + (uint32_t)warp; i < end / SPRY_ACT_ROWS * HALVES;
             i += WARPS) {
            uint32_t in_item = i / HALVES * SPRY_ACT_ROWS + (uint32_t)lane % 8,
                     column = i % HALVES * 32 + (uint32_t)lane / 8 * 8;
            uint32_t block = item.column * HALVES + i % HALVES, group = item.first_group + i / HALVES;
            float norm = norm_of(in_item), *gates = sums + in_item * S::WIDTH + column;
            wgmma_vec8 gate;
            vec8 up;
            if (group * SPRY_ACT_ROWS >= a.n_rows)
                continue;
            if (SPRY_UNLIKELY(!plain))
                gate_slow_path(gates, gates + UP, block * 32 + (uint32_t)lane / 8 * 8, norm);
            gate.load(gates, 8, 0, true);
            up.load(gates + UP, 8, 0, true);
            SPRY_UNROLL
            for (uint32_t k = 0; k < 8; k++) {
                float x = plain ? gated(gate.v[k] * norm, up.v[k] * norm, GATE_SILU) : gate.v[k];
                gate.v[k] = row + in_item < a.n_rows ? x : 0;
            }
            gate.template store_expecting<S::FORMAT>(a.from.to, group, block / 2, block % 2, lane);
        }
    }
};

/* ---- producer warp ----------------------------------------------------------------------------------------------- */

template <class S> struct gemm_producer {
    typedef typename S::weights weights;
    enum {
        N = S::HALVES ? 2 : WARPGROUP_TILES,
        SECOND = S::HALVES ? 2 : 0
    }; /* N: tiles that a source copies; SECOND: slot of a warpgroup where the second source begins */
    gemm_smem<S> ring;
    const spry_gemm_args &a;
    typename weights::template source<N, 0> first, other; /* other: the weights of the second warpgroup */
    typename weights::template source<N, SECOND> second;  /* the `up` matrix of a single warpgroup */
    const unsigned char *rows;

    SPRY_METHOD gemm_producer(const gemm_smem<S> &its, const spry_gemm_args &args) : ring(its), a(args)
    {
    }

    /* Points at the weights and the rows of a work tile from `unit` on. */
    SPRY_METHOD void start(const work_tile &item, uint32_t unit)
    {
        const tile_source t = S::find(a, item.column, 0, 0), u = S::find(a, item.column, S::WARPGROUPS - 1, S::HALVES);
        first.start(a.parts[t.part].weight, t.tile, unit);
        if (S::HALVES)
            second.start(a.parts[u.part].weight, u.tile, unit);
        else if (S::WARPGROUPS == 2)
            other.start(a.parts[u.part].weight, u.tile, unit);
        rows = a.act.values + wgmma_unit(a.act, item.first_group, unit) * weights::GROUP_BYTES;
    }

    SPRY_METHOD void copy_weights(uint32_t stage)
    {
        unsigned char *to = ring.at(stage) + S::ROWS;
        mbarrier *full = ring.full(stage);
        mbarrier_arrive_expect_tx(full, S::STAGE);
        first.copy(to, full);
        if (S::HALVES)
            second.copy(to, full);
        else if (S::WARPGROUPS == 2)
            other.copy(to + weights::BYTES, full);
    }

    SPRY_METHOD void copy_rows(uint32_t stage)
    {
        cp_async_bulk(ring.at(stage), rows, S::ROWS, ring.full(stage));
        rows += (uint64_t)a.act.wgmma_groups * weights::GROUP_BYTES;
    }

    /* Weights do not depend on earlier kernels and are copied before pdl_wait, rows after it. */
    SPRY_METHOD void copy(const cluster_split &share)
    {
        tile_scheduler<S> items(a);
        work_tile item;
        pipeline_state<S::STAGES> cursor;
        bool waited = false;
        SPRY_UNROLL_BY(1)
        while (items.next(&item)) {
            uint32_t unit = share.first_unit;
            start(item, unit);
            if (!waited) {
                uint32_t n = share.end_unit - unit < S::STAGES ? share.end_unit - unit : (uint32_t)S::STAGES;
                SPRY_UNROLL_BY(1)
                for (uint32_t i = 0; i < n; i++)
                    copy_weights(i);
                pdl_wait();
                SPRY_UNROLL_BY(1)
                for (uint32_t i = 0; i < n; i++, unit++, cursor.next())
                    copy_rows(cursor.stage);
                waited = true;
            }
            SPRY_UNROLL_BY(1)
            for (; unit < share.end_unit; unit++, cursor.next()) {
                mbarrier_wait(ring.empty(cursor.stage), cursor.phase ^ 1);
                copy_weights(cursor.stage);
                copy_rows(cursor.stage);
            }
        }
    }

    SPRY_METHOD void run()
    {
        const cluster_split share(a.parts[0].weight.n_units);
        if (threadIdx.x % WARP == 0)
            copy(share);
        syncwarp();
        pdl_wait();
        share.leave();
    }
};

/* ---- warp that makes 1 / rms ------------------------------------------------------------------------------------- */

/* 1 / rms of a row from the sums of squares of its units. */
SPRY_DEVICE float row_inverse_rms(const spry_gemm_args &a, uint32_t row)
{
    enum { AT_ONCE = 16 };
    uint32_t n_units = a.act.n_units, stride = a.act.wgmma_groups * SPRY_ACT_ROWS, split = 0;
    float total = 0, sum = 0;
    if (row >= a.n_rows)
        return 1;
    SPRY_UNROLL_BY(1)
    for (uint32_t first = 0; first < n_units; first += AT_ONCE) {
        float squares[AT_ONCE];
        SPRY_UNROLL
        for (uint32_t i = 0; i < AT_ONCE; i++)
            squares[i] = first + i < n_units ? a.act.norms[(uint64_t)(first + i) * stride + row] : 0;
        SPRY_UNROLL
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            while (split + 1 < ACT_SPLITS && split_begin(n_units, split + 1) <= first + i) {
                total += sum;
                sum = 0;
                split++;
            }
            sum += squares[i];
        }
    }
    return inverse_rms(total + sum, a.parts[0].weight.n_in, a.from.eps);
}

/* Makes 1 / rms for the rows of one work tile after the other. */
template <class S> SPRY_DEVICE void make_norms(const gemm_smem<S> &ring, const spry_gemm_args &a)
{
    tile_scheduler<S> items(a);
    work_tile item;
    pipeline_state<2> cursor;
    const cluster_split share(a.parts[0].weight.n_units);
    pdl_wait();
    SPRY_UNROLL_BY(1)
    for (; a.act.norms && items.next(&item); cursor.next()) {
        mbarrier_wait(ring.norms_empty(cursor.stage), cursor.phase ^ 1);
        SPRY_UNROLL_BY(1)
        for (uint32_t i = threadIdx.x % WARP; i < S::GROUPS * SPRY_ACT_ROWS; i += WARP)
            ring.norms(cursor.stage)[i] = row_inverse_rms(a, item.first_group * SPRY_ACT_ROWS + i);
        syncwarp();
        if (threadIdx.x % WARP == 0)
            mbarrier_arrive(ring.norms_full(cursor.stage));
    }
    share.leave();
}

/* ---- consumer warpgroups ----------------------------------------------------------------------------------------- */

template <class S> struct gemm_consumer {
    typedef typename S::weights weights;
    gemm_smem<S> ring;
    const spry_gemm_args &a;
    int lane, slot; /* slot: index of the warp's tile in the warpgroup */
    uint32_t warpgroup;
    pipeline_state<S::STAGES> cursor;
    pipeline_state<2> norms;

    SPRY_METHOD gemm_consumer(const gemm_smem<S> &its, const spry_gemm_args &args)
        : ring(its), a(args), lane((int)(threadIdx.x % WARP)), slot((int)(threadIdx.x / WARP % WARPGROUP_WARPS)),
          warpgroup(threadIdx.x / WARPGROUP_THREADS)
    {
    }

    /* Stores the lane's sums in `sums`, [rows, WIDTH]. */
    SPRY_METHOD void put(float *sums, const float of[S::GROUPS][4]) const
    {
        float *to = sums + lane % 4 * 2 * S::WIDTH + warpgroup * WARPGROUP_OUTPUTS +
                    (uint32_t)(slot * SPRY_TILE_ROWS + lane / 4);
        SPRY_UNROLL
        for (int k = 0; k < S::GROUPS * 4; k++)
            to[(k / 4 * 8 + k % 2) * S::WIDTH + k % 4 / 2 * 8] = of[k / 4][k % 4];
    }

    /* Waits for the current stage and loads its weights. */
    SPRY_METHOD void load(weights &w) const
    {
        mbarrier_wait(ring.full(cursor.stage), cursor.phase);
        w.load(ring.at(cursor.stage) + S::ROWS + warpgroup * weights::BYTES, slot, lane);
    }

    /* Sums the splits of a work tile, or of the block's share of K. A block that is not the first of its cluster leaves
     * the sums of each split in shared memory. */
    SPRY_METHOD void multiply(float total[S::GROUPS][4], const cluster_split &share)
    {
        uint32_t n_units = a.parts[0].weight.n_units, split = share.first_split;
        bool fresh = true;
        float acc[S::GROUPS][4];
        weights w, next;
        if (share.first_unit < share.end_unit)
            load(w);
        SPRY_UNROLL_BY(2)
        for (uint32_t unit = share.first_unit; unit < share.end_unit; unit++) {
            uint32_t now = cursor.stage;
            cursor.next();
            w.template begin<S::GROUPS>(acc, ring.at(now), fresh);
            if (unit + 1 < share.end_unit)
                load(next);
            w.template end<S::GROUPS>(acc);
            w = next;
            syncwarp(); /* all lanes have read the stage */
            if (lane == 0)
                mbarrier_arrive(ring.empty(now));
            while (split_begin(n_units, split + 1) <= unit)
                split++;
            fresh = split_begin(n_units, split + 1) == unit + 1;
            if (fresh && share.rank) {
                put(ring.sums(split - share.first_split), acc);
                continue;
            }
            SPRY_UNROLL
            for (int i = 0; fresh && i < S::GROUPS * 4; i++)
                total[i / 4][i % 4] += acc[i / 4][i % 4];
        }
    }

    /* Adds the sums of the other blocks of the cluster to rows of the first block's sums; the result goes to this
     * block's own shared memory. The number of blocks is a power of two. */
    SPRY_METHOD void gather(uint32_t begin, uint32_t end, const cluster_split &share) const
    {
        enum { PIECES = WARPGROUP_OUTPUTS / 4 };
        uint32_t each = share.splits;
        cluster_sync_smem();
        SPRY_UNROLL_BY(1)
        for (uint32_t i = begin * PIECES + threadIdx.x; i < end * PIECES; i += S::THREADS) {
            uint32_t at = i / PIECES * S::WIDTH + i % PIECES * 4;
            float4 sum = dsmem_load((const float4 *)(ring.sums() + at), 0);
            SPRY_UNROLL_BY(8)
            for (uint32_t split = each; split < ACT_SPLITS; split++)
                sum = add_four(sum, dsmem_load((const float4 *)(ring.sums(split & (each - 1)) + at),
                                               split * share.blocks / ACT_SPLITS));
            *(float4 *)(ring.sums() + at) = sum;
        }
        cluster_sync_smem();
    }

    /* Runs the epilogue of a work tile; all consumer warpgroups do this together. */
    SPRY_METHOD void write(const work_tile &item, const float total[S::GROUPS][4], const cluster_split &share)
    {
        uint32_t rows = S::GROUPS * SPRY_ACT_ROWS / share.blocks, begin = share.rank * rows;
        const gemm_epilogue<S> writer = {a,
                                         ring.sums(),
                                         a.act.norms ? ring.norms(norms.stage) : (const float *)0,
                                         item.first_group * SPRY_ACT_ROWS,
                                         begin,
                                         begin + rows,
                                         lane,
                                         (int)(threadIdx.x / WARP)};
        named_barrier_sync(1, S::THREADS); /* all warps have finished the previous epilogue */
        if (share.rank == 0)
            put(ring.sums(), total);
        if (S::WARPGROUPS == 1 && share.blocks > 1)
            gather(begin, begin + rows, share);
        named_barrier_sync(1, S::THREADS);
        if (a.act.norms)
            mbarrier_wait(ring.norms_full(norms.stage), norms.phase);
        if (S::GATE)
            writer.write_gated(item);
        else if (a.from.weight)
            writer.write_encoded(item);
        else
            writer.write_rows(item);
        if (!a.act.norms)
            return;
        syncwarp(); /* all lanes have read the norms */
        if (lane == 0)
            mbarrier_arrive(ring.norms_empty(norms.stage));
        norms.next();
    }

    SPRY_METHOD void run()
    {
        tile_scheduler<S> items(a);
        work_tile item;
        const cluster_split share(a.parts[0].weight.n_units);
        SPRY_UNROLL_BY(1)
        while (items.next(&item)) {
            float total[S::GROUPS][4] = {};
            multiply(total, share);
            pdl_wait(); /* returns at once: the rows of the first unit were copied after the producer's pdl_wait */
            write(item, total, share);
        }
        pdl_wait();
    }
};

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* With two consumer warpgroups there are four more warps, two of them idle: setmaxnreg works on whole warpgroups, and a
 * kernel of 384 threads has 168 registers a thread to distribute. */
template <class S> SPRY_DEVICE void gemm_wgmma(const spry_gemm_args &a)
{
    SPRY_SMEM_DYNAMIC(memory, 16);
    const gemm_smem<S> ring = {memory};
    ring.make();
    if (threadIdx.x < S::THREADS) {
        if (S::WARPGROUPS == 2)
            setmaxnreg_inc<232>();
        gemm_consumer<S>(ring, a).run();
    } else {
        if (S::WARPGROUPS == 2)
            setmaxnreg_dec<40>();
        if (threadIdx.x < S::THREADS + WARP)
            gemm_producer<S>(ring, a).run();
        else if (threadIdx.x < S::THREADS + 2 * WARP)
            make_norms(ring, a);
    }
}

/* The name says groups of 8 rows, consumer warpgroups, and blocks per SM. */
#define GEMM_WGMMA(name, label, groups, warpgroups, blocks, gate)                                                      \
    SPRY_KERNEL_PDL(spry_gemm_##label##_##name##_##groups##_##warpgroups##_##blocks, spry_gemm_args, blocks)           \
    {                                                                                                                  \
        typedef wgmma_config<type_##name, groups, warpgroups, gate> config;                                            \
        static_assert((int)config::THREADS + (warpgroups == 1 ? 2 * WARP : WARPGROUP_THREADS) ==                       \
                          spry_gemm_##label##_##name##_##groups##_##warpgroups##_##blocks##_threads,                   \
                      "the producer and norm warps follow the consumers");                                             \
        gemm_wgmma<config>(a);                                                                                         \
    }
#define GEMMS_WGMMA(name, ...)                                                                                         \
    GEMM_WGMMA(name, wgmma, 8, 1, 2, false)                                                                            \
    GEMM_WGMMA(name, wgmma, 16, 2, 1, false)                                                                           \
    GEMM_WGMMA(name, wgmma_gate, 8, 1, 2, true) GEMM_WGMMA(name, wgmma_gate, 16, 2, 1, true)
SPRY_HALF_TYPES(GEMMS_WGMMA)
SPRY_QUANT_FORMS(GEMMS_WGMMA)
