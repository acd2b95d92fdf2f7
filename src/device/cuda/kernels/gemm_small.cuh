/* Small-batch GEMM for 2 to 8 rows, compute capability 8.0 and later, all types but F32, with norm and gate fused:
 *   FUSE_NORM  out = (norm(x) * W) + bias          x is normalised in the prologue
 *   FUSE_GATE  act = gate(norm(x) * Wg) * (norm(x) * Wu), quantised for the next product in the epilogue
 *   FUSE_NONE  out = act * W + bias                activations are quantised already
 * Grid: at most one block per SM, 16 warps. A block loops over batches of TILES tiles; each warp sums one of the 16
 * splits of K of all tiles in a batch. Dynamic shared memory is a ring of units (64 inputs of weights) per warp, filled
 * with cp.async; the first units are requested before pdl_wait. Static shared memory holds the splits' sums. A lane
 * builds its part of mma operand B in registers with the same values that spry_quantise would store, so the bits are
 * the same as in gemm_mma.cuh.
 *
 * The code is short on purpose: each block runs it once or a few times, so instruction fetches count. */
#pragma once

#include "device/cuda/kernels/gemm_mma.cuh"

enum { ROWS = SPRY_ACT_ROWS };

/* What is fused with the product; see the head of this file. */
typedef enum gemm_fusion { FUSE_NORM, FUSE_GATE, FUSE_NONE } gemm_fusion;

/* ---- operand B of a lane ----------------------------------------------------------------------------------------- */

/* 16 of the 64 inputs of a unit: 2t and 2t + 1 of each 8. */
struct lane_inputs {
    float v[16];

    SPRY_METHOD void load(const float *from, bool valid, uint32_t n, uint32_t unit, int lane)
    {
        SPRY_UNROLL
        for (int p = 0; p < 8; p++) {
            uint32_t at = unit * SPRY_TILE_UNIT + (uint32_t)(p * 8 + lane % 4 * 2);
            float2 two = {0, 0};
            if (valid && at < n)
                two = *(const float2 *)(from + at);
            v[p * 2] = two.x;
            v[p * 2 + 1] = two.y;
        }
    }

    /* Sum of squares of the lane's row. */
    SPRY_METHOD float squares() const
    {
        float steps[4];
        SPRY_UNROLL
        for (int i = 0; i < 4; i++)
            steps[i] = pair(i * 4) + pair(i * 4 + 2);
        return add_across(add_across((steps[0] + steps[1]) + (steps[2] + steps[3]), 1), 2);
    }

  private:
    SPRY_METHOD float pair(int i) const
    {
        return v[i] * v[i] + v[i + 1] * v[i + 1];
    }
};

/* mma operand B of a lane: ACTS bf16 terms. */
template <int ACTS> struct lane_fragment {
    uint2 terms[4][ACTS];

    SPRY_METHOD void quantise(const lane_inputs &x)
    {
        SPRY_UNROLL
        for (int step = 0; step < 4; step++) {
            float v[4] = {x.v[step * 4], x.v[step * 4 + 1], x.v[step * 4 + 2], x.v[step * 4 + 3]};
            SPRY_UNROLL
            for (int term = 0; term < ACTS; term++) {
                terms[step][term].x = split_bf16x2(&v[0], &v[1]);
                terms[step][term].y = split_bf16x2(&v[2], &v[3]);
            }
        }
    }

    SPRY_METHOD void load(const spry_activations &act, bool valid, uint32_t unit, int lane)
    {
        SPRY_UNROLL
        for (int i = 0; i < 4 * ACTS; i++) {
            uint2 none = {0, 0};
            const uint2 *step = mma_terms<ACTS>(act, 0, unit * 4 + (uint32_t)(i / ACTS));
            terms[i / ACTS][i % ACTS] = valid ? step[i % ACTS * WARP + lane] : none;
        }
    }

    template <class T> SPRY_METHOD void multiply(float acc[4], const typename unit_weights<T>::type &unit) const
    {
        const typename unit_weights<T>::type::decoded weights = unit.decode();
        SPRY_UNROLL
        for (int step = 0; step < 4; step++) {
            weight_fragment<T> w;
            weights.fragment(w, step);
            SPRY_UNROLL
            for (int j = 0; j < ACTS; j++) {
                SPRY_UNROLL
                for (int i = 0; i < T::TERMS && i + j < ACTS; i++)
                    mma_bf16(acc, w.words[i], terms[step][j].x, terms[step][j].y);
            }
        }
    }
};

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* Tile number `tile` of a batch of tiles; past the last tile of the matrix, the last one. */
template <int TILES, gemm_fusion FUSION>
SPRY_DEVICE gemm_tile batch_tile(const spry_gemm_args &a, uint32_t *part, uint32_t batch, uint32_t tile)
{
    enum { HALF = TILES > 1 ? TILES / 2 : 1 };
    uint32_t number = batch * TILES + tile;
    if (FUSION == FUSE_GATE) {
        *part = tile / HALF;
        number = a.parts[*part].first_tile + batch * HALF + tile % HALF;
    } else {
        number = number < a.n_tiles ? number : a.n_tiles - 1;
        *part = part_of_tile(a, number);
    }
    return gemm_tile_at(a, a.parts[*part], number, 0, 0);
}

/* Static shared memory: the sums of all splits, for four tiles at a time. */
template <int TILES> struct split_sums {
    enum { ROUND = TILES < 4 ? TILES : 4, TILE = 4 * WARP, N = ROUND * TILE };
    float splits[SPRY_SPLIT_K][N];
    float values[TILES * TILE]; /* outputs before the gate; only with FUSE_GATE */
    float squares[SPRY_SPLIT_K][ROWS];

    SPRY_METHOD void put(uint32_t split, int tile, const float acc[4], int lane)
    {
        SPRY_UNROLL
        for (int i = 0; i < 4; i++)
            splits[split][tile * TILE + i * WARP + lane] = acc[i];
    }

    SPRY_METHOD float add(uint32_t number) const
    {
        float sum = 0;
        SPRY_UNROLL
        for (int s = 0; s < SPRY_SPLIT_K; s++)
            sum += splits[s][number];
        return sum;
    }

    /* Output o of a tile for a row. */
    SPRY_METHOD float value(uint32_t tile, uint32_t o, uint32_t row) const
    {
        return values[tile * TILE + (row % 2 + o / 8 * 2) * WARP + o % 8 * 4 + row / 2];
    }
};

/* A warp gates and quantises 32 outputs of a row. */
template <class T, int TILES>
SPRY_DEVICE void write_gated(const split_sums<TILES> &sums, const spry_gemm_args &a, uint32_t batch)
{
    enum { HALF = TILES / 2, BLOCKS = HALF > 1 ? HALF / 2 : 1 };
    uint32_t row = threadIdx.x / WARP % SPRY_ACT_ROWS, block = threadIdx.x / WARP / SPRY_ACT_ROWS;
    uint32_t lane = threadIdx.x % WARP, tile = block * 2 + lane / 16;
    if (row >= a.n_rows || block >= BLOCKS)
        return;
    float value = gated(sums.value(tile, lane % 16, row), sums.value(tile + HALF, lane % 16, row), a.from.gate);
    store_terms<T::ACTS>(a.from.to[T::FORMAT], row, batch * BLOCKS + block, (int)lane, value, false);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

template <class T, int TILES, gemm_fusion FUSION> struct small_block {
    enum { SLOTS = TILES < 4 ? TILES : 4 };
    typedef smem_units<T, SLOTS, T::QUANTS> ring_units;
    typedef split_sums<TILES> all_sums;
    ring_units ring;
    lane_inputs raw;
    lane_fragment<T::ACTS> act;
    float squares; /* sum of squares of the lane's row in the split; with FUSE_NONE the row's 1 / rms */
    uint32_t batch, batches, begin, end, split;
    int lane;
    bool valid;

    SPRY_METHOD void load_weights(const spry_gemm_args &a, int slot, uint32_t from, uint32_t tile, uint32_t unit)
    {
        uint32_t part;
        if (from < batches)
            ring.load(batch_tile<TILES, FUSION>(a, &part, from, tile), (uint32_t)slot, unit);
        cp_async_commit();
    }

    SPRY_METHOD void start(const spry_gemm_args &a, unsigned char *smem)
    {
        uint32_t n_units = a.parts[0].weight.n_units;
        lane = (int)(threadIdx.x % WARP);
        split = threadIdx.x / WARP;
        valid = (uint32_t)(lane / 4) < a.n_rows;
        squares = 0;
        begin = n_units * split / SPRY_SPLIT_K;
        end = n_units * (split + 1) / SPRY_SPLIT_K;
        batches = FUSION == FUSE_GATE ? a.parts[0].weight.n_tiles / (TILES / 2) : (a.n_tiles + TILES - 1) / TILES;
        ring.bind(smem, split, lane);
        SPRY_UNROLL
        for (int slot = 0; slot < SLOTS; slot++)
            if (begin < end)
                load_weights(a, slot, blockIdx.x, (uint32_t)slot, begin);
        SPRY_UNROLL_BY(1)
        for (uint32_t i = begin * SPRY_TILE_UNIT + (uint32_t)lane * 8; FUSION != FUSE_NONE && i < end * SPRY_TILE_UNIT;
             i += 8 * WARP)
            if (i < a.from.n)
                prefetch_l2(a.from.weight + i);
    }

    SPRY_METHOD void load_rows(const spry_gemm_args &a, uint32_t unit)
    {
        if (FUSION == FUSE_NONE)
            squares = row_scale_of(a, threadIdx.x % 4 * 2 + threadIdx.x / WARP % 2);
        else if (begin < end)
            raw.load(a.from.in + (uint64_t)(lane / 4) * a.from.in_stride, valid, a.from.n, unit, lane);
    }

    /* The next unit of the rows is loaded while this one is used. */
    SPRY_METHOD void quantise(const spry_gemm_args &a, uint32_t unit, uint32_t next)
    {
        if (FUSION == FUSE_NONE) {
            act.load(a.act, valid, unit, lane);
            return;
        }
        lane_inputs weight;
        weight.load(a.from.weight, true, a.from.n, unit, lane);
        if (batch == blockIdx.x)
            squares += raw.squares();
        SPRY_UNROLL
        for (int i = 0; i < 16; i++)
            raw.v[i] = raw.v[i] * weight.v[i];
        act.quantise(raw);
        if (end - begin > 1)
            load_rows(a, next);
    }

    /* Multiplies one unit of all tiles at a time. */
    SPRY_METHOD void add(float acc[TILES][4], const spry_gemm_args &a)
    {
        SPRY_UNROLL_BY(1)
        for (uint32_t unit = begin; unit < end; unit++) {
            bool last = unit + 1 == end;
            uint32_t next_batch = last ? batch + gridDim.x : batch, next = last ? begin : unit + 1;
            if (end - begin > 1 || batch == blockIdx.x)
                quantise(a, unit, next);
            SPRY_UNROLL
            for (int tile = 0; tile < TILES; tile++) {
                cp_async_wait_group<SLOTS - 1>();
                act.template multiply<T>(acc[tile], ring.get((uint32_t)(tile % SLOTS)));
                if (tile + SLOTS < TILES)
                    load_weights(a, tile % SLOTS, batch, (uint32_t)(tile + SLOTS), unit);
                else
                    load_weights(a, tile % SLOTS, next_batch, (uint32_t)(tile + SLOTS - TILES), next);
            }
        }
    }

    SPRY_METHOD void finish(all_sums &sums, const spry_gemm_args &a, uint32_t number, uint32_t tile)
    {
        int i = (int)(number % all_sums::TILE / WARP), from = (int)(number % WARP);
        float sum = sums.add(number);
        uint32_t part, row = (uint32_t)(from % 4 * 2 + i % 2);
        sum *= FUSION == FUSE_NONE ? squares : norm_of_splits(sums.squares[0] + row, ROWS, a.from.n, a.from.eps);
        if (FUSION != FUSE_GATE && batch * TILES + tile >= a.n_tiles)
            return;
        gemm_tile p = batch_tile<TILES, FUSION>(a, &part, batch, tile);
        if (FUSION != FUSE_GATE)
            store_scaled(a, a.parts[part], p, 0, from, i, sum, 0);
        else
            sums.values[tile * all_sums::TILE + number % all_sums::TILE] =
                a.parts[part].bias ? sum + output_bias(a.parts[part], p, from, i, 0) : sum;
    }

    SPRY_METHOD void reduce(all_sums &sums, const spry_gemm_args &a, const float acc[TILES][4])
    {
        SPRY_UNROLL
        for (int first = 0; first < TILES; first += all_sums::ROUND) {
            if (first || batch != blockIdx.x)
                syncthreads();
            SPRY_UNROLL
            for (int tile = 0; tile < all_sums::ROUND; tile++)
                sums.put(split, tile, acc[first + tile], lane);
            if (FUSION != FUSE_NONE && lane % 4 == 0)
                sums.squares[split][lane / 4] = squares;
            syncthreads();
            if (threadIdx.x < all_sums::N)
                finish(sums, a, threadIdx.x, (uint32_t)first + threadIdx.x / all_sums::TILE);
        }
        if (FUSION != FUSE_GATE)
            return;
        syncthreads();
        write_gated<T, TILES>(sums, a, batch);
    }
};

/* Grid: at most as many blocks as there are batches of tiles. */
template <class T, int TILES, gemm_fusion FUSION> SPRY_DEVICE void gemm_small(const spry_gemm_args &a)
{
    typedef small_block<T, TILES, FUSION> block;
    SPRY_SMEM split_sums<TILES> sums;
    static_assert(sizeof sums == spry_smem_small_sums(TILES), "as chosen");
    smem_check(sizeof sums);
    SPRY_SMEM_DYNAMIC(smem, 1024);
    block b;
    b.start(a, smem);
    pdl_wait();
    b.load_rows(a, b.begin);
    SPRY_UNROLL_BY(1)
    for (b.batch = blockIdx.x; b.batch < b.batches; b.batch += gridDim.x) {
        float acc[TILES][4] = {};
        b.add(acc, a);
        b.reduce(sums, a, acc);
    }
}

#define GEMM_SMALL(name, kind, label, tiles)                                                                           \
    SPRY_KERNEL_PDL(spry_gemm_small_##name##_##label##_##tiles, spry_gemm_args, tiles > 4 ? 1 : 2)                     \
    {                                                                                                                  \
        gemm_small<type_##name, tiles, kind>(a);                                                                       \
    }
#define GEMMS_SMALL(name, ...)                                                                                         \
    GEMM_SMALL(name, FUSE_NORM, norm, 2)                                                                               \
    GEMM_SMALL(name, FUSE_NORM, norm, 4)                                                                               \
    GEMM_SMALL(name, FUSE_GATE, gate, 4) GEMM_SMALL(name, FUSE_GATE, gate, 8) GEMM_SMALL(name, FUSE_NONE, out, 8)
