/* Products of at most 8 rows that are normalised on the way: each warp encodes what it multiplies, the same values that
 * spry_encode writes, without a kernel and a wait between. All that does not depend on kernels before is loaded before
 * they are waited for, the rest at once behind that.
 *
 * A block takes TILES tiles, a warp a split of each. With PAIR these are two tiles of a gate and the same two of an `up`,
 * and the block writes the 32 gated values that they give, encoded for the product that follows.
 *
 * ROWS: 1, or 8 for more. */
#pragma once

#include "device/cuda/kernels/products.cuh"

enum { ROW_SUMS = ROW_THREADS / WARP }; /* warps whose sums inverse_rms adds up */

/* A warp's unit of encoded rows. */
template <class T> struct local_acts {
    enum { BYTES = (int)T::FORM == (int)SPRY_ACT_BYTES, VALUES = BYTES ? 512 : 2048, SCALES = BYTES ? 128 : 16 };
    uint4 values[VALUES / 16], scales[SCALES / 16];
};

/* A lane's values of a unit: of each row as they are, and the norm's weights. */
template <int ROWS> struct raw_unit {
    float in[ROWS][2], weight[2];

    SPRY_METHOD void load_weight(const spry_encode_args &from, uint32_t unit, int lane)
    {
        SPRY_UNROLL
        for (int block = 0; block < 2; block++) {
            uint32_t i = unit * SPRY_TILE_UNIT + (uint32_t)(block * ACT_BLOCK + lane);
            weight[block] = i < from.n ? from.weight[i] : 0;
        }
    }

    SPRY_METHOD void load_rows(const spry_encode_args &from, uint32_t n_rows, uint32_t unit, int lane)
    {
        SPRY_UNROLL
        for (int i = 0; i < ROWS * 2; i++) {
            uint32_t row = (uint32_t)i / 2, at = unit * SPRY_TILE_UNIT + (uint32_t)(i % 2 * ACT_BLOCK + lane);
            in[i / 2][i % 2] = row < n_rows && at < from.n ? from.in[(uint64_t)row * from.in_stride + at] : 0;
        }
    }
};

/* 1 / rms of each row, with the bits of inverse_rms: what its warps add up, the warps of the block share. */
template <int ROWS>
SPRY_DEVICE void scale_rows(float scales[ROWS], float room[ROWS][ROW_SUMS], const spry_encode_args &from, uint32_t n_rows)
{
    int lane = (int)(threadIdx.x % WARP);
    SPRY_UNROLL
    for (uint32_t k = 0; k < (ROWS * ROW_SUMS + SPRY_PRODUCT_SPLITS - 1) / SPRY_PRODUCT_SPLITS; k++) {
        uint32_t number = threadIdx.x / WARP + k * SPRY_PRODUCT_SPLITS, row = number / ROW_SUMS;
        const float *in = from.in + (uint64_t)row * from.in_stride;
        float sum = 0;
        SPRY_UNROLL_BY(4)
        for (uint32_t i = number % ROW_SUMS * WARP + (uint32_t)lane; row < n_rows && i < from.n; i += ROW_THREADS)
            sum = fmaf(in[i], in[i], sum);
        sum = warp_sum(sum);
        if (lane == 0 && row < ROWS)
            room[row][number % ROW_SUMS] = sum;
    }
    block_wait();
    if (threadIdx.x < ROWS) {
        float sum = room[threadIdx.x][0];
        SPRY_UNROLL
        for (int i = 1; i < ROW_SUMS; i++)
            sum += room[threadIdx.x][i];
        scales[threadIdx.x] = 1.0f / sqrtf(sum / (float)from.n + from.eps);
    }
    block_wait();
}

template <class T, int ROWS>
SPRY_DEVICE spry_acts encode_unit(local_acts<T> &room, const raw_unit<ROWS> &r, const float *scales, uint32_t n_rows,
                                  int lane)
{
    spry_acts to = {(unsigned char *)room.values, (float *)room.scales, 1};
    warp_wait();
    SPRY_UNROLL
    for (uint32_t i = 0; i < ROWS * 2; i++) {
        uint32_t row = i / 2, block = i % 2;
        if (row >= n_rows)
            break;
        float value = r.in[row][block] * scales[row] * r.weight[block];
        if (local_acts<T>::BYTES)
            write_bytes(to, row, block, lane, value);
        else
            write_terms<2>(to, row, block, lane, value);
    }
    warp_wait();
    return to;
}

/* Shared memory of a block: first the units that its warps encode, then what the splits give. */
template <class T, int TILES, int ROWS> struct rows_room {
    union {
        local_acts<T> acts[SPRY_PRODUCT_SPLITS];
        float sums[SPRY_PRODUCT_SPLITS][TILES * 4 * WARP];
    };
    float squares[ROWS][ROW_SUMS], scales[ROWS];
    float values[TILES * 4 * WARP]; /* of a PAIR */
};

/* One unit of all tiles at a time; the first is on its way. */
template <class T, int TILES, int ROWS>
SPRY_DEVICE void add_rows(float acc[TILES][1][4], units_ahead<T, 1> ahead[TILES], raw_unit<ROWS> &raw,
                          local_acts<T> &room, const float *scales, const product_place p[TILES],
                          const spry_product_args &a)
{
    for (uint32_t unit = ahead[0].begin; unit < ahead[0].end; unit++) {
        if (unit != ahead[0].begin) {
            SPRY_UNROLL
            for (int tile = 0; tile < TILES; tile++)
                ahead[tile].units.load(p[tile], 0, unit);
            raw.load_weight(a.from, unit, p[0].lane);
            raw.load_rows(a.from, a.n_rows, unit, p[0].lane);
        }
        spry_acts act = encode_unit<T, ROWS>(room, raw, scales, a.n_rows, p[0].lane);
        ahead[0].units.wait();
        SPRY_UNROLL
        for (int tile = 0; tile < TILES; tile++)
            ahead[tile].units.get(0).template add<1>(acc[tile], p[tile], act, 0);
    }
}

/* A warp for a row: the block's 32 gated values. */
SPRY_DEVICE void write_pair(const float *values, const spry_product_args &a)
{
    uint32_t row = threadIdx.x / WARP;
    int lane = (int)(threadIdx.x % WARP);
    if (row >= a.n_rows || row >= SPRY_ACT_ROWS)
        return;
    /* Output o of a tile and row r: number r % 2 + o / 8 * 2 of lane o % 8 * 4 + r / 2. */
    int tile = lane / 16, at = (int)(row % 2 + (uint32_t)(lane % 16 / 8) * 2) * WARP + lane % 8 * 4 + (int)row / 2;
    float value = gated(values[tile * 4 * WARP + at], values[(tile + 2) * 4 * WARP + at], a.from.gate);
    write_forms(a.from.to, row, blockIdx.x, lane, value);
}

template <class T, int TILES, int ROWS, bool PAIR> SPRY_DEVICE void multiply_rows(const spry_product_args &a)
{
    typedef units_ahead<T, 1> weights;
    enum { N = TILES * 4 * WARP, ROOM = SPRY_PRODUCT_SPLITS * TILES * weights::kept::ROOM };
    SPRY_SHARED rows_room<T, TILES, ROWS> room;
    SPRY_SHARED_LARGE(rooms, ROOM);
    uint32_t split = threadIdx.x / WARP, parts[TILES];
    product_place p[TILES];
    weights ahead[TILES];
    raw_unit<ROWS> raw;
    SPRY_UNROLL
    for (uint32_t tile = 0; tile < TILES; tile++) { /* beyond the last tile: the last again, and nothing is written */
        uint32_t number = PAIR ? a.parts[tile / 2].first_tile + blockIdx.x * 2 + tile % 2 : blockIdx.x * TILES + tile;
        number = number < a.n_tiles ? number : a.n_tiles - 1;
        parts[tile] = PAIR ? tile / 2 : product_part(a, number);
        p[tile] = place_product(a, a.parts[parts[tile]], number, 0, 0);
        ahead[tile].units.place(rooms, split * TILES + tile, p[0].lane);
        ahead[tile].load(p[tile], split);
    }
    raw.load_weight(a.from, ahead[0].begin, p[0].lane);
    grid_wait();
    raw.load_rows(a.from, a.n_rows, ahead[0].begin, p[0].lane);
    scale_rows<ROWS>(room.scales, room.squares, a.from, a.n_rows);
    float acc[TILES][1][4] = {};
    add_rows<T, TILES, ROWS>(acc, ahead, raw, room.acts[split], room.scales, p, a);
    block_wait();
    SPRY_UNROLL
    for (int i = 0; i < TILES * 4; i++)
        room.sums[split][i * WARP + p[0].lane] = acc[i / 4][0][i % 4];
    block_wait();
    if (threadIdx.x < N) {
        uint32_t tile = threadIdx.x / (4 * WARP);
        int i = (int)(threadIdx.x / WARP % 4);
        float sum = 0;
        SPRY_UNROLL
        for (int s = 0; s < SPRY_PRODUCT_SPLITS; s++)
            sum += room.sums[s][threadIdx.x];
        SPRY_UNROLL
        for (uint32_t k = 0; k < TILES; k++) { /* a number that the compiler knows */
            if (tile != k)
                continue;
            const spry_product_part &part = a.parts[parts[k]];
            if (!PAIR && blockIdx.x * TILES + k < a.n_tiles)
                write_sum(a, part, p[k], 0, p[0].lane, i, sum, 0);
            if (PAIR)
                room.values[threadIdx.x] = part.bias ? sum + sum_bias(part, p[k], p[0].lane, i, 0) : sum;
        }
    }
    if (!PAIR)
        return;
    block_wait();
    write_pair(room.values, a);
}

#define PRODUCT_ROWS(name, tiles, rows)                                                                                \
    SPRY_KERNEL_EARLY(spry_product_##name##_norm_##rows, spry_product_args, FEW_THREADS, rows > 1 ? 1 : 2)             \
    {                                                                                                                  \
        multiply_rows<type_##name, tiles, rows, false>(a);                                                             \
    }                                                                                                                  \
    SPRY_KERNEL_EARLY(spry_product_##name##_gate_##rows, spry_product_args, FEW_THREADS, rows > 1 ? 1 : 2)             \
    {                                                                                                                  \
        multiply_rows<type_##name, 4, rows, true>(a);                                                                  \
    }
#define PRODUCTS_ROWS(name) PRODUCT_ROWS(name, SPRY_PRODUCT_NORM_TILES, 1) PRODUCT_ROWS(name, SPRY_PRODUCT_NORM_TILES, 8)
