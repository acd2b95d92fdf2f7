/* Products for many rows with the matrix instructions of four warps, which GPUs of compute capability 9.0 have. A block
 * has one or two teams of four warps, which multiply, a warp that copies and one that makes norms of rows. Units of 64
 * inputs, of the block's rows and of each team's four tiles of weights, go through a ring of stages in shared memory,
 * from one item of the block (tiles and rows) to the next without a pause. A team takes GROUPS groups of 8 rows, which
 * are all rows of an item, and each of its warps one tile; what they give goes through shared memory, so that a warp
 * writes whole rows.
 *
 * Of a gate and an `up` half of the tiles are of each, and what they give is written gated, encoded for the product
 * that follows. Results that are rows of the next product's input are encoded as well as written.
 *
 * Where items are too few for the GPU, the blocks of a cluster share the splits of one: the first adds its own up, the
 * others leave what each of theirs gives in their shared memory, and then each block adds up, in order, and writes some
 * of the rows.
 *
 * Each sum is the one of gemm_mma.cuh, split after split. Bytes are multiplied as bf16, which have them exactly, so
 * their sum is the one of integers; of floats it is tested that the instruction adds 16 products as that of one warp
 * does. Rows behind the last are computed from whatever lies there, and not written. */
#pragma once

#include "device/cuda/kernels/gemm_wgmma_epilogue.cuh"

/* ---- the warp that copies -----------------------------------------------------------------------------------------
 */

template <class S> struct gemm_producer {
    typedef typename S::weights weights;
    enum {
        N = S::HALVES ? 2 : WARPGROUP_TILES,
        SECOND = S::HALVES ? 2 : 0
    }; /* tiles of a source; the slot of a team's second one */
    gemm_smem<S> ring;
    const spry_gemm_args &a;
    typename weights::template source<N, 0> first, other; /* other: of the second team */
    typename weights::template source<N, SECOND> second;  /* of the `up` of a single team */
    const unsigned char *rows;

    SPRY_METHOD gemm_producer(const gemm_smem<S> &its, const spry_gemm_args &args) : ring(its), a(args)
    {
    }

    /* Weights of an item from a unit on, and its rows. */
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

    /* Weights do not wait for the kernels before this one; rows do. */
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

/* ---- the warp that makes norms ------------------------------------------------------------------------------------
 */

/* What the sums of a row are multiplied by, made from the squares of its units. */
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

/* For the rows of one item after the other. */
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

/* ---- teams --------------------------------------------------------------------------------------------------------
 */

template <class S> struct gemm_consumer {
    typedef typename S::weights weights;
    enum { AHEAD = weights::AHEAD };
    gemm_smem<S> ring;
    const spry_gemm_args &a;
    int lane, slot; /* slot: of its tile among those of the team */
    uint32_t warpgroup;
    pipeline_state<S::STAGES> cursor;
    pipeline_state<2> norms;

    SPRY_METHOD gemm_consumer(const gemm_smem<S> &its, const spry_gemm_args &args)
        : ring(its), a(args), lane((int)(threadIdx.x % WARP)), slot((int)(threadIdx.x / WARP % WARPGROUP_WARPS)),
          warpgroup(threadIdx.x / WARPGROUP_THREADS)
    {
    }

    /* Writes the lane's sums to their places among [rows, WIDTH]. */
    SPRY_METHOD void put(float *sums, const float of[S::GROUPS][4]) const
    {
        float *to = sums + lane % 4 * 2 * S::WIDTH + warpgroup * WARPGROUP_OUTPUTS +
                    (uint32_t)(slot * SPRY_TILE_ROWS + lane / 4);
        SPRY_UNROLL
        for (int k = 0; k < S::GROUPS * 4; k++)
            to[(k / 4 * 8 + k % 2) * S::WIDTH + k % 4 / 2 * 8] = of[k / 4][k % 4];
    }

    /* Weights of the unit where the cursor stands, when they are there. */
    SPRY_METHOD void load(weights &w) const
    {
        mbarrier_wait(ring.full(cursor.stage), cursor.phase);
        w.load(ring.at(cursor.stage) + S::ROWS + warpgroup * weights::BYTES, slot, lane);
    }

    /* Adds up the splits of an item, or of the block's share; a block that is not the first of its cluster leaves each
     * in shared memory. */
    SPRY_METHOD void multiply(float total[S::GROUPS][4], const cluster_split &share)
    {
        uint32_t n_units = a.parts[0].weight.n_units, split = share.first_split;
        bool fresh = true;
        float acc[S::GROUPS][4];
        weights w, next;
        if (AHEAD && share.first_unit < share.end_unit)
            load(w);
        SPRY_UNROLL_BY(AHEAD + 1)
        for (uint32_t unit = share.first_unit; unit < share.end_unit; unit++) {
            if (!AHEAD)
                load(w);
            uint32_t now = cursor.stage;
            cursor.next();
            w.template begin<S::GROUPS>(acc, ring.at(now), fresh);
            if (AHEAD && unit + 1 < share.end_unit)
                load(next);
            w.template end<S::GROUPS>(acc, ring.at(now), lane, fresh);
            if (AHEAD)
                w = next;
            syncwarp(); /* for lanes that read the stage */
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

    /* Adds what other blocks of the cluster leave to rows of the first one's, in the block's own memory, of which
     * others read other rows. Blocks are a power of two. */
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

    /* All teams together. */
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
        named_barrier_sync(1, S::THREADS); /* for warps that write what was there */
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
        syncwarp(); /* for lanes that read norms */
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
            pdl_wait(); /* which the rows of the first unit stand for: they were copied behind it */
            write(item, total, share);
        }
        pdl_wait();
    }
};
