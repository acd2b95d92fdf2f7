/* Products of weights in floats of 16 bits for many rows: a block takes 8 tiles of weights (128 outputs) and 8 groups of
 * rows, a unit of 64 inputs at a time, which travels to shared memory while those before it are used. A warp takes 4
 * tiles and 4 groups.
 *
 * Each sum is the one of products.cuh: the same instructions in the same order, split after split. So a row has the same
 * bits here and there. Rows behind the last are computed from whatever lies there, and not written. */
#include "device/cuda/kernels/products.cuh"

enum { STAGED_TILES = 8, STAGED_GROUPS = 8, WARP_TILES = 4, WARP_GROUPS = 4, STAGED_WARPS = 4, STAGES = 3, PIECE = 16 };
enum { UNIT_BYTES = 2048, STAGE_ROWS = STAGED_TILES * UNIT_BYTES }; /* UNIT_BYTES: of a tile */

/* Bytes of a unit of a group of rows, and of all that a block needs of a unit. */
template <class T> struct staged_sizes {
    enum { GROUP = T::ACTS * 1024, STAGE = STAGE_ROWS + STAGED_GROUPS * GROUP };
};

typedef float warp_sums[WARP_TILES][WARP_GROUPS][4];

/* The weights of tile `number` among all parts; behind the end those of the last. */
SPRY_DEVICE const unsigned char *find_tile(const spry_product_args &a, uint32_t number, int32_t expert)
{
    number = number < a.n_tiles ? number : a.n_tiles - 1;
    const spry_product_part &part = a.parts[product_part(a, number)];
    const spry_tiles &w = part.weight;
    return tile_plane(w, (uint64_t)expert * w.matrix_bytes, tile_unit(w, number - part.first_tile, 0), UNIT_BYTES);
}

/* The block's threads copy a unit of the tiles and of the rows; behind the last group that one again. */
template <class T>
SPRY_DEVICE void copy_unit(unsigned char *stage, const unsigned char *const *tiles, const spry_product_args &a,
                           uint32_t group, uint32_t unit)
{
    enum { EACH = UNIT_BYTES / PIECE, THREADS = STAGED_WARPS * WARP, GROUP = staged_sizes<T>::GROUP, ROWS = GROUP / PIECE };
    uint32_t last = (a.n_rows - 1) / SPRY_ACT_ROWS;
    uint64_t offset = (uint64_t)unit * SPRY_TILES_TOGETHER * UNIT_BYTES + threadIdx.x % EACH * PIECE;
    SPRY_UNROLL
    for (uint32_t i = 0; i < STAGED_TILES * EACH / THREADS; i++)
        copy_ahead(stage + (threadIdx.x + i * THREADS) * PIECE, tiles[(threadIdx.x + i * THREADS) / EACH] + offset);
    SPRY_UNROLL
    for (uint32_t i = 0; i < STAGED_GROUPS * ROWS / THREADS; i++) {
        uint32_t number = group + (threadIdx.x + i * THREADS) / ROWS;
        number = number < last ? number : last;
        copy_ahead(stage + STAGE_ROWS + (threadIdx.x + i * THREADS) * PIECE,
                   a.act.values + ((uint64_t)number * a.act.n_units + unit) * GROUP + threadIdx.x % ROWS * PIECE);
    }
}

/* Adds a unit to the sums of a warp; `tiles` and `rows` are its own. */
template <class T> SPRY_DEVICE void add_unit(warp_sums acc, const unsigned char *tiles, const unsigned char *rows, int lane)
{
    SPRY_UNROLL
    for (int step = 0; step < 4; step++) {
        uint2 values[WARP_GROUPS][T::ACTS];
        float_words<T> words[WARP_TILES];
        SPRY_UNROLL
        for (int i = 0; i < WARP_GROUPS * T::ACTS; i++) {
            const uint2 *group = (const uint2 *)(rows + i / T::ACTS * staged_sizes<T>::GROUP);
            values[i / T::ACTS][i % T::ACTS] = group[(step * T::ACTS + i % T::ACTS) * WARP + lane];
        }
        SPRY_UNROLL
        for (int i = 0; i < WARP_TILES; i++) {
            float_bits<T> bits;
            load_words(bits.words, tiles + i * UNIT_BYTES + (step * WARP + lane) * 16, 4);
            split_floats(words[i], bits);
        }
        SPRY_UNROLL
        for (int term = 0; term < T::ACTS; term++) { /* what is added to one sum stands far apart */
            SPRY_UNROLL
            for (int k = 0; k < T::TERMS && k + term < T::ACTS; k++) {
                SPRY_UNROLL
                for (int i = 0; i < WARP_TILES * WARP_GROUPS; i++)
                    multiply_bf16(acc[i / WARP_GROUPS][i % WARP_GROUPS], words[i / WARP_GROUPS].words[k],
                                  values[i % WARP_GROUPS][term].x, values[i % WARP_GROUPS][term].y);
            }
        }
    }
}

/* Adds what a split gave to the rest. */
SPRY_DEVICE void add_sums(warp_sums total, warp_sums acc)
{
    SPRY_UNROLL
    for (int i = 0; i < WARP_TILES * WARP_GROUPS * 4; i++) {
        float *sum = &acc[i / 4 / WARP_GROUPS][i / 4 % WARP_GROUPS][i % 4];
        total[i / 4 / WARP_GROUPS][i / 4 % WARP_GROUPS][i % 4] += *sum;
        *sum = 0;
    }
}

/* All units, in the order of products.cuh. */
template <class T>
SPRY_DEVICE void add_units(warp_sums total, unsigned char *stages, const unsigned char *const *tiles,
                           const spry_product_args &a, uint32_t group)
{
    enum { STAGE = staged_sizes<T>::STAGE };
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    const product_place place = {a.parts[0].weight, 0, 0, 0, 0};
    uint32_t n_units = place.weight.n_units, split = 0;
    warp_sums acc = {};
    for (uint32_t unit = 0; unit < STAGES - 1; unit++) {
        if (unit < n_units)
            copy_unit<T>(stages + unit * STAGE, tiles, a, group, unit);
        copy_commit();
    }
    for (uint32_t unit = 0; unit < n_units; unit++) {
        copy_wait_but<STAGES - 2>();
        block_wait();
        uint32_t ahead = unit + STAGES - 1;
        if (ahead < n_units)
            copy_unit<T>(stages + ahead % STAGES * STAGE, tiles, a, group, ahead);
        copy_commit();
        const unsigned char *stage = stages + unit % STAGES * STAGE;
        add_unit<T>(acc, stage + warp % 2 * WARP_TILES * UNIT_BYTES,
                    stage + STAGE_ROWS + warp / 2 * WARP_GROUPS * staged_sizes<T>::GROUP, lane);
        while (split_begin(place, split + 1) <= unit)
            split++;
        if (split_begin(place, split + 1) == unit + 1)
            add_sums(total, acc);
    }
}

/* A grid of (groups of 8 tiles, groups of 64 rows); warps stand 2 along the tiles and 2 along the rows. */
template <class T> SPRY_DEVICE void multiply_staged(const spry_product_args &a)
{
    SPRY_SHARED_ASKED(stages, 1024);
    SPRY_SHARED const unsigned char *tiles[STAGED_TILES];
    shared_check(sizeof tiles);
    uint32_t group = blockIdx.y * STAGED_GROUPS;
    int32_t expert = product_expert(a, group);
    if (expert < 0)
        return;
    if (threadIdx.x < STAGED_TILES)
        tiles[threadIdx.x] = find_tile(a, blockIdx.x * STAGED_TILES + threadIdx.x, expert);
    block_wait();
    warp_sums total = {};
    add_units<T>(total, stages, tiles, a, group);
    uint32_t warp = threadIdx.x / WARP;
    SPRY_UNROLL
    for (int i = 0; i < WARP_TILES; i++) {
        uint32_t number = blockIdx.x * STAGED_TILES + warp % 2 * WARP_TILES + (uint32_t)i;
        if (number >= a.n_tiles)
            continue;
        const spry_product_part &part = a.parts[product_part(a, number)];
        product_place p = place_product(a, part, number, group + warp / 2 * WARP_GROUPS, expert);
        SPRY_UNROLL
        for (int k = 0; k < WARP_GROUPS * 4; k++)
            write_sum(a, part, p, p.group + (uint32_t)(k / 4), p.lane, k % 4, total[i][k / 4][k % 4], expert);
    }
}

SPRY_KERNEL(spry_product_f16_staged, spry_product_args, STAGED_WARPS *WARP)
{
    multiply_staged<type_f16>(a);
}

SPRY_KERNEL(spry_product_bf16_staged, spry_product_args, STAGED_WARPS *WARP)
{
    multiply_staged<type_bf16>(a);
}
