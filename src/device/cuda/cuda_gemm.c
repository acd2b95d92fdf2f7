/* See cuda_gemm.h. */
#include "device/cuda/cuda_gemm.h"

#include <stdio.h>
#include <string.h>

enum {
    SLOTS = 4, /* units of gemm_small.cuh and gemv.cuh that a warp waits for */
    SPLITK_THREADS = 512,
    MANY_THREADS = 256,
    STAGED_THREADS = 128,
    WIDE_ROWS = 128,
    WIDE_BLOCKS = 100,
    TILE_SUMS = SPRY_TILE_ROWS * SPRY_ACT_ROWS,
    STAGES = 3, /* units of rows, or of rows and tiles, that wait in shared memory */
};

/* For many rows; `work`: blocks of 32 rows and a tile. Each way takes a time that hardly depends on the rows until it
 * fills the GPU, so the way for few rows is the faster one for longer than its share of the GPU's speed says. */
static bool choose_large(spry_gemm_launch *launch, const spry_gemm_args *args, spry_dtype type)
{
    enum { FLOATS_WORK = 800, BYTES_WORK = 1500 };
    const char *name = spry_cuda_type_name(type);
    size_t work = (size_t)args->n_tiles * ((args->n_rows + 31) / 32);
    bool floats = type == SPRY_BF16 || type == SPRY_F16;
    if (args->n_rows <= 32 || work < (floats ? FLOATS_WORK : BYTES_WORK) ||
        (args->experts && args->expert_rows < WIDE_ROWS))
        return false;
    if (type == SPRY_F32) {
        *launch = (spry_gemm_launch){.rows = 64, .tiles = 8, .threads = MANY_THREADS};
        snprintf(launch->name, sizeof launch->name, "spry_gemm_plain_%s", name);
    } else if (floats) {
        *launch = (spry_gemm_launch){.rows = 64, .tiles = 8, .threads = STAGED_THREADS};
        launch->shared_bytes =
            STAGES * 8 * (2048 + spry_cuda_act_group_bytes(type)); /* of 8 tiles and 8 groups of rows */
        snprintf(launch->name, sizeof launch->name, "spry_gemm_multistage_%s", name);
    } else {
        size_t blocks = (args->n_tiles + 7) / 8 * ((args->n_rows + WIDE_ROWS - 1) / WIDE_ROWS);
        size_t each = blocks < WIDE_BLOCKS ? 1 : 2;
        *launch = (spry_gemm_launch){.rows = WIDE_ROWS, .tiles = 4 * each, .threads = MANY_THREADS};
        snprintf(launch->name, sizeof launch->name, "spry_gemm_wide_%s_%zu", name, each);
    }
    return true;
}

/* Shared memory in which so many units wait for each warp. */
static size_t unit_ring_bytes(spry_dtype type, size_t units)
{
    return SPRY_SPLIT_K * units * spry_cuda_unit_bytes(type);
}

/* Whether a block has room for what a launch asks for and for what its kernel has besides. What is not asked this way
 * takes at most 99 KB, which every GPU of compute capability 8 has. */
static bool fits_smem(const spry_cuda_context *c, size_t bytes, size_t besides)
{
    return bytes + besides <= c->shared_bytes;
}

/* Shared memory that kernels have besides: sums of splits, and those of norms. */
static size_t gemv_static_bytes(size_t tiles)
{
    return (SPRY_SPLIT_K * tiles * SPRY_TILE_ROWS + SPRY_SPLIT_K) * sizeof(float);
}

static size_t small_static_bytes(size_t tiles)
{
    size_t splits = SPRY_SPLIT_K * (tiles < 4 ? tiles : 4) * TILE_SUMS;
    return (splits + tiles * TILE_SUMS + SPRY_ACT_ROWS * SPRY_SPLIT_K) * sizeof(float);
}

static size_t splitk_static_bytes(size_t groups)
{
    return SPRY_SPLIT_K * groups * TILE_SUMS * sizeof(float);
}

/* Of one row: groups of units that wait (gemv_block of gemv.cuh), and the row as row_fragment has it. */
static size_t gemv_bytes(size_t n_units, spry_dtype type, size_t tiles)
{
    size_t most = (n_units + SPRY_SPLIT_K - 1) / SPRY_SPLIT_K;
    size_t group = tiles * most < SLOTS ? tiles * most : SLOTS,
           depth = spry_cuda_act_format(type) == SPRY_ACT_Q8 ? 2 : 1;
    static const size_t act_unit[SPRY_ACT_FORMATS] = {80, 128, 256, 384};
    return unit_ring_bytes(type, group * depth) + n_units * act_unit[spry_cuda_act_format(type)];
}

static bool gemv_fits_smem(const spry_cuda_context *c, size_t n_units, spry_dtype type, size_t tiles)
{
    size_t bytes = gemv_bytes(n_units, type, tiles);
    return bytes <= SPRY_GEMV_SMEM_MAX && fits_smem(c, bytes, gemv_static_bytes(tiles));
}

/* At most 8 rows, by gemm_small.cuh. */
static size_t small_bytes(spry_dtype type, size_t tiles)
{
    return unit_ring_bytes(type, tiles < SLOTS ? tiles : SLOTS);
}

/* A product of one row by gemv.cuh. Where outputs are so many that blocks have several batches of tiles, a
 * block for each multiprocessor. */
static bool choose_gemv(spry_gemm_launch *launch, const spry_cuda_context *c, const spry_gemm_args *args,
                        spry_dtype type)
{
    size_t sm_count = c->sm_count, n_units = args->parts[0].weight.n_units;
    size_t tiles = args->n_tiles < 8 * sm_count ? 1 : 4;
    if (args->n_rows > 1 || args->experts || type == SPRY_F32 || !gemv_fits_smem(c, n_units, type, tiles))
        return false;
    *launch = (spry_gemm_launch){.rows = SPRY_ACT_ROWS,
                                 .tiles = tiles > 1 ? (args->n_tiles + sm_count - 1) / sm_count : 1,
                                 .threads = SPLITK_THREADS,
                                 .shared_bytes = gemv_bytes(n_units, type, tiles)};
    snprintf(launch->name, sizeof launch->name, "spry_gemv_%s_out_%zu", spry_cuda_type_name(type), tiles);
    return true;
}

/* For at most 8 rows and outputs so many that blocks have several batches of tiles (gemm_small.cuh). */
static bool choose_streaming(spry_gemm_launch *launch, const spry_cuda_context *c, const spry_gemm_args *args,
                             spry_dtype type)
{
    enum { TILES = 8 };
    size_t sm_count = c->sm_count, bytes = small_bytes(type, TILES);
    if (args->n_rows > SPRY_ACT_ROWS || args->experts || type == SPRY_F32 || args->n_tiles < TILES * sm_count ||
        !fits_smem(c, bytes, small_static_bytes(TILES)))
        return false;
    *launch = (spry_gemm_launch){.rows = SPRY_ACT_ROWS,
                                 .tiles = (args->n_tiles + sm_count - 1) / sm_count,
                                 .threads = SPLITK_THREADS,
                                 .shared_bytes = bytes};
    snprintf(launch->name, sizeof launch->name, "spry_gemm_small_%s_out_%d", spry_cuda_type_name(type), TILES);
    return true;
}

/* For few rows: several tiles a block where there are blocks enough, because they share rows. */
spry_gemm_launch spry_cuda_pick_gemm(const spry_cuda_device *d, const spry_gemm_args *args, spry_dtype type)
{
    enum { BLOCKS = 96 };
    const spry_cuda_context *c = &d->context;
    size_t rows = SPRY_ACT_ROWS;
    while (rows < 4 * SPRY_ACT_ROWS && rows < args->n_rows)
        rows *= 2;
    spry_gemm_launch launch = {.rows = rows, .tiles = 1, .threads = SPLITK_THREADS};
    if (spry_cuda_pick_wgmma(&launch, d, args, type, false) || choose_large(&launch, args, type) ||
        choose_gemv(&launch, c, args, type) || choose_streaming(&launch, c, args, type))
        return launch;
    if (args->experts && args->expert_rows < launch.rows)
        launch.rows = SPRY_ACT_ROWS;
    size_t groups = launch.rows / SPRY_ACT_ROWS, blocks = (args->n_rows + launch.rows - 1) / launch.rows;
    if (groups > 1 && args->n_tiles / groups * blocks >= BLOCKS)
        launch.tiles = groups;
    launch.shared_bytes = unit_ring_bytes(type, groups > 1 || type == SPRY_F32 ? 1 : SPRY_GEMM_PREFETCH);
    bool small =
        groups == 1 && !fits_smem(c, launch.shared_bytes, splitk_static_bytes(groups)); /* of floats of 16 bits */
    if (small)
        launch.shared_bytes = unit_ring_bytes(type, SPRY_GEMM_PREFETCH_SMALL);
    snprintf(launch.name, sizeof launch.name, "spry_gemm_splitk_%s_%zu_%zu%s", spry_cuda_type_name(type), groups,
             launch.tiles, small ? "_small" : "");
    return launch;
}

bool spry_cuda_pick_fused(spry_gemm_launch *launch, const spry_cuda_context *c, const spry_cuda_matrix *w,
                          const char *kind, size_t tiles, size_t n_rows)
{
    size_t fewest = strcmp(kind, "gate") ? 2 : 4;
    for (int one = n_rows == 1; one >= 0; one--)
        for (size_t n = one && tiles > 4 ? 4 : tiles; n >= fewest; n /= 2) {
            bool fits = one ? gemv_fits_smem(c, w->tiles.n_units, w->type, n)
                            : fits_smem(c, small_bytes(w->type, n), small_static_bytes(n));
            if (!fits)
                continue;
            size_t bytes = one ? gemv_bytes(w->tiles.n_units, w->type, n) : small_bytes(w->type, n);
            *launch = (spry_gemm_launch){.rows = n_rows, .tiles = n, .threads = SPLITK_THREADS, .shared_bytes = bytes};
            snprintf(launch->name, sizeof launch->name, "%s_%s_%s_%zu", one ? "spry_gemv" : "spry_gemm_small",
                     spry_cuda_type_name(w->type), kind, n);
            return true;
        }
    return false;
}
