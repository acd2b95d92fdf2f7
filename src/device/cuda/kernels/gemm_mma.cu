/* Instances of the kernels of gemm_mma.cuh for all weight types, and a multistage GEMM for 16-bit floats. */
#include "device/cuda/kernels/gemm_mma.cuh"

SPRY_FLOAT_TYPES(GEMMS_SPLITK)
SPRY_HALF_TYPES(GEMMS_HALF)
SPRY_QUANT_FORMS(GEMMS_MMA)
/* F32 weights are rare: there is only the plain kernel for many rows. */
GEMM_PLAIN(f32)

/* ---- multistage gemm of 16-bit floats ---------------------------------------------------------------------------- */

/* The product of gemm_mma.cuh for F16 and BF16 weights and many rows. Grid: (tiles / 8, rows / 64), 4 warps. A block
 * owns 8 tiles (128 outputs) x 8 groups of rows; a warp 4 tiles x 4 groups. All threads copy a unit of weights and
 * activations with cp.async; dynamic shared memory has STAGES = 3 stages [8 tiles of a unit | 8 groups of a unit].
 *
 * Instructions and their order are the same as in gemm_mma.cuh, split after split, so the bits are the same. Rows past
 * the last are computed from whatever memory holds and are not stored. */

enum {
    BLOCK_TILES = 8,
    BLOCK_GROUPS = 8,
    WARP_TILES = 4,
    WARP_GROUPS = 4,
    BLOCK_WARPS = SPRY_MULTISTAGE_THREADS / WARP,
    STAGES = 3,
    PIECE = 16
};
enum { UNIT_BYTES = 2048, STAGE_ROWS = BLOCK_TILES * UNIT_BYTES }; /* UNIT_BYTES: a unit of one tile */

/* Bytes of a unit of a group of rows, and of a stage. */
template <class T> struct stage_bytes {
    enum { GROUP = T::ACTS * 1024, STAGE = STAGE_ROWS + BLOCK_GROUPS * GROUP };
};

typedef float warp_sums[WARP_TILES][WARP_GROUPS][4];

/* Address of the weights of tile `number` among all parts; past the last tile, of the last one again. */
SPRY_DEVICE const unsigned char *tile_weights(const spry_gemm_args &a, uint32_t number, int32_t expert)
{
    number = number < a.n_tiles ? number : a.n_tiles - 1;
    const spry_gemm_part &part = a.parts[part_of_tile(a, number)];
    const spry_tiles &w = part.weight;
    return tile_plane(w, (uint64_t)expert * w.matrix_bytes, tile_unit(w, number - part.first_tile, 0), UNIT_BYTES);
}

/* Starts the copies of a unit of the block's tiles and rows; past the last group of rows, the last one again. */
template <class T>
SPRY_DEVICE void copy_unit(unsigned char *stage, const unsigned char *const *tiles, const spry_gemm_args &a,
                           uint32_t group, uint32_t unit)
{
    enum {
        EACH = UNIT_BYTES / PIECE,
        THREADS = BLOCK_WARPS * WARP,
        GROUP = stage_bytes<T>::GROUP,
        ROWS = GROUP / PIECE
    };
    uint32_t last = (a.n_rows - 1) / SPRY_ACT_ROWS;
    uint64_t offset = (uint64_t)unit * SPRY_TILE_GROUP * UNIT_BYTES + threadIdx.x % EACH * PIECE;
    SPRY_UNROLL
    for (uint32_t i = 0; i < BLOCK_TILES * EACH / THREADS; i++)
        cp_async(stage + (threadIdx.x + i * THREADS) * PIECE, tiles[(threadIdx.x + i * THREADS) / EACH] + offset);
    SPRY_UNROLL
    for (uint32_t i = 0; i < BLOCK_GROUPS * ROWS / THREADS; i++) {
        uint32_t number = group + (threadIdx.x + i * THREADS) / ROWS;
        number = number < last ? number : last;
        cp_async(stage + STAGE_ROWS + (threadIdx.x + i * THREADS) * PIECE,
                 a.act.values + ((uint64_t)number * a.act.n_units + unit) * GROUP + threadIdx.x % ROWS * PIECE);
    }
}

/* Multiplies a unit; `tiles` and `rows` are the warp's own. */
template <class T>
SPRY_DEVICE void add_unit(warp_sums acc, const unsigned char *tiles, const unsigned char *rows, int lane)
{
    SPRY_UNROLL
    for (int step = 0; step < 4; step++) {
        uint2 values[WARP_GROUPS][T::ACTS];
        weight_fragment<T> words[WARP_TILES];
        SPRY_UNROLL
        for (int i = 0; i < WARP_GROUPS * T::ACTS; i++) {
            const uint2 *group = (const uint2 *)(rows + i / T::ACTS * stage_bytes<T>::GROUP);
            values[i / T::ACTS][i % T::ACTS] = group[(step * T::ACTS + i % T::ACTS) * WARP + lane];
        }
        SPRY_UNROLL
        for (int i = 0; i < WARP_TILES; i++) {
            float_bits<T> bits;
            load_words(bits.words, tiles + i * UNIT_BYTES + (step * WARP + lane) * 16, 4);
            split_floats(words[i], bits);
        }
        SPRY_UNROLL
        for (int term = 0; term < T::ACTS; term++) { /* the mma of the innermost loop use different accumulators, so
                                                      * they do not wait for each other */
            SPRY_UNROLL
            for (int k = 0; k < T::TERMS && k + term < T::ACTS; k++) {
                SPRY_UNROLL
                for (int i = 0; i < WARP_TILES * WARP_GROUPS; i++)
                    mma_bf16(acc[i / WARP_GROUPS][i % WARP_GROUPS], words[i / WARP_GROUPS].words[k],
                             values[i % WARP_GROUPS][term].x, values[i % WARP_GROUPS][term].y);
            }
        }
    }
}

/* Adds the sums of a split to the totals. */
SPRY_DEVICE void add_sums(warp_sums total, warp_sums acc)
{
    SPRY_UNROLL
    for (int i = 0; i < WARP_TILES * WARP_GROUPS * 4; i++) {
        float *sum = &acc[i / 4 / WARP_GROUPS][i / 4 % WARP_GROUPS][i % 4];
        total[i / 4 / WARP_GROUPS][i / 4 % WARP_GROUPS][i % 4] += *sum;
        *sum = 0;
    }
}

/* Multiplies all units, in the order of gemm_mma.cuh. */
template <class T>
SPRY_DEVICE void add_units(warp_sums total, unsigned char *stages, const unsigned char *const *tiles,
                           const spry_gemm_args &a, uint32_t group)
{
    enum { STAGE = stage_bytes<T>::STAGE };
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    const gemm_tile first_tile = {a.parts[0].weight, 0, 0, 0, 0};
    uint32_t n_units = first_tile.weight.n_units, split = 0;
    warp_sums acc = {};
    for (uint32_t unit = 0; unit < STAGES - 1; unit++) {
        if (unit < n_units)
            copy_unit<T>(stages + unit * STAGE, tiles, a, group, unit);
        cp_async_commit();
    }
    for (uint32_t unit = 0; unit < n_units; unit++) {
        cp_async_wait_group<STAGES - 2>();
        syncthreads();
        uint32_t ahead = unit + STAGES - 1;
        if (ahead < n_units)
            copy_unit<T>(stages + ahead % STAGES * STAGE, tiles, a, group, ahead);
        cp_async_commit();
        const unsigned char *stage = stages + unit % STAGES * STAGE;
        add_unit<T>(acc, stage + warp % 2 * WARP_TILES * UNIT_BYTES,
                    stage + STAGE_ROWS + warp / 2 * WARP_GROUPS * stage_bytes<T>::GROUP, lane);
        while (split_begin(first_tile, split + 1) <= unit)
            split++;
        if (split_begin(first_tile, split + 1) == unit + 1)
            add_sums(total, acc);
    }
}

/* Grid: (tiles / 8, rows / 64); the warps are 2 along the tiles by 2 along the rows. */
template <class T> SPRY_DEVICE void gemm_multistage(const spry_gemm_args &a)
{
    SPRY_SMEM_DYNAMIC(stages, 1024);
    SPRY_SMEM const unsigned char *tiles[BLOCK_TILES];
    smem_check(sizeof tiles);
    uint32_t group = blockIdx.y * BLOCK_GROUPS;
    int32_t expert = expert_of_group(a, group);
    if (expert < 0)
        return;
    if (threadIdx.x < BLOCK_TILES)
        tiles[threadIdx.x] = tile_weights(a, blockIdx.x * BLOCK_TILES + threadIdx.x, expert);
    syncthreads();
    warp_sums total = {};
    add_units<T>(total, stages, tiles, a, group);
    uint32_t warp = threadIdx.x / WARP;
    SPRY_UNROLL
    for (int i = 0; i < WARP_TILES; i++) {
        uint32_t number = blockIdx.x * BLOCK_TILES + warp % 2 * WARP_TILES + (uint32_t)i;
        if (number >= a.n_tiles)
            continue;
        const spry_gemm_part &part = a.parts[part_of_tile(a, number)];
        gemm_tile p = gemm_tile_at(a, part, number, group + warp / 2 * WARP_GROUPS, expert);
        SPRY_UNROLL
        for (int k = 0; k < WARP_GROUPS * 4; k++)
            store_sum(a, part, p, p.group + (uint32_t)(k / 4), p.lane, k % 4, total[i][k / 4][k % 4], expert);
    }
}

#define GEMM_MULTISTAGE(name, ...)                                                                                     \
    SPRY_KERNEL(spry_gemm_multistage_##name, spry_gemm_args)                                                           \
    {                                                                                                                  \
        gemm_multistage<type_##name>(a);                                                                               \
    }
SPRY_HALF_TYPES(GEMM_MULTISTAGE)
