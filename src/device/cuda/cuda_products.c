/* See cuda_products.h. */
#include "device/cuda/cuda_products.h"

#include <stdio.h>
#include <string.h>

enum {
    SLOTS = 4, /* units of products_rows.cuh and products_one.cuh that a warp waits for */
    FEW_THREADS = 512,
    MANY_THREADS = 256,
    STAGED_THREADS = 128,
    WIDE_ROWS = 128,
    WIDE_BLOCKS = 100,
    TILE_SUMS = SPRY_TILE_ROWS * SPRY_ACT_ROWS,
    STAGES = 3, /* units of rows, or of rows and tiles, that wait in shared memory */
};

/* For many rows; `work`: blocks of 32 rows and a tile. Each way takes a time that hardly depends on the rows until it
 * fills the GPU, so the way for few rows is the faster one for longer than its share of the GPU's speed says. */
static bool choose_many(spry_product_way *way, const spry_product_args *args, spry_dtype type)
{
    enum { FLOATS_WORK = 800, BYTES_WORK = 1500 };
    const char *name = spry_cuda_type_name(type);
    size_t work = (size_t)args->n_tiles * ((args->n_rows + 31) / 32);
    bool floats = type == SPRY_BF16 || type == SPRY_F16;
    if (args->n_rows <= 32 || work < (floats ? FLOATS_WORK : BYTES_WORK) ||
        (args->experts && args->expert_rows < WIDE_ROWS))
        return false;
    if (type == SPRY_F32) {
        *way = (spry_product_way){.rows = 64, .tiles = 8, .threads = MANY_THREADS};
        snprintf(way->name, sizeof way->name, "spry_product_%s_many", name);
    } else if (floats) {
        *way = (spry_product_way){.rows = 64, .tiles = 8, .threads = STAGED_THREADS};
        way->shared_bytes = STAGES * 8 * (2048 + spry_cuda_group_bytes(type)); /* of 8 tiles and 8 groups of rows */
        snprintf(way->name, sizeof way->name, "spry_product_%s_staged", name);
    } else {
        size_t blocks = (args->n_tiles + 7) / 8 * ((args->n_rows + WIDE_ROWS - 1) / WIDE_ROWS);
        size_t each = blocks < WIDE_BLOCKS ? 1 : 2;
        *way = (spry_product_way){.rows = WIDE_ROWS, .tiles = 4 * each, .threads = MANY_THREADS};
        snprintf(way->name, sizeof way->name, "spry_product_%s_wide_%zu", name, each);
    }
    return true;
}

/* Shared memory in which so many units wait for each warp. */
static size_t kept_bytes(spry_dtype type, size_t units)
{
    return SPRY_PRODUCT_SPLITS * units * spry_cuda_unit_bytes(type);
}

/* Whether a block has room for what a launch asks for and for what its kernel has besides. What is not asked this way
 * takes at most 99 KB, which every GPU of compute capability 8 has. */
static bool has_room(const spry_cuda_context *c, size_t bytes, size_t besides)
{
    return bytes + besides <= c->shared_bytes;
}

/* Shared memory that kernels have besides: sums of splits, and those of norms. */
static size_t one_sums(size_t tiles)
{
    return (SPRY_PRODUCT_SPLITS * tiles * SPRY_TILE_ROWS + SPRY_PRODUCT_SPLITS) * sizeof(float);
}

static size_t rows_sums(size_t tiles)
{
    size_t splits = SPRY_PRODUCT_SPLITS * (tiles < 4 ? tiles : 4) * TILE_SUMS;
    return (splits + tiles * TILE_SUMS + SPRY_ACT_ROWS * SPRY_PRODUCT_SPLITS) * sizeof(float);
}

static size_t few_sums(size_t groups)
{
    return SPRY_PRODUCT_SPLITS * groups * TILE_SUMS * sizeof(float);
}

/* Of one row: groups of units that wait (one_block of products_one.cuh), and the row as row_acts has it. */
static size_t one_bytes(size_t n_units, spry_dtype type, size_t tiles)
{
    size_t most = (n_units + SPRY_PRODUCT_SPLITS - 1) / SPRY_PRODUCT_SPLITS;
    size_t group = tiles * most < SLOTS ? tiles * most : SLOTS, depth = spry_cuda_form(type) == SPRY_ACT_BYTES ? 2 : 1;
    static const size_t act_unit[SPRY_ACT_FORMS] = {80, 128, 256, 384};
    return kept_bytes(type, group * depth) + n_units * act_unit[spry_cuda_form(type)];
}

static bool has_room_for_one(const spry_cuda_context *c, size_t n_units, spry_dtype type, size_t tiles)
{
    size_t bytes = one_bytes(n_units, type, tiles);
    return bytes <= SPRY_ONE_BYTES && has_room(c, bytes, one_sums(tiles));
}

/* At most 8 rows, by products_rows.cuh. */
static size_t rows_bytes(spry_dtype type, size_t tiles)
{
    return kept_bytes(type, tiles < SLOTS ? tiles : SLOTS);
}

/* A product of one row by products_one.cuh. Where outputs are so many that blocks have several batches of tiles, a
 * block for each multiprocessor. */
static bool choose_one(spry_product_way *way, const spry_cuda_context *c, const spry_product_args *args,
                       spry_dtype type)
{
    size_t processors = c->processors, n_units = args->parts[0].weight.n_units;
    size_t tiles = args->n_tiles < 8 * processors ? 1 : 4;
    if (args->n_rows > 1 || args->experts || type == SPRY_F32 || !has_room_for_one(c, n_units, type, tiles))
        return false;
    *way = (spry_product_way){.rows = SPRY_ACT_ROWS,
                              .tiles = tiles > 1 ? (args->n_tiles + processors - 1) / processors : 1,
                              .threads = FEW_THREADS,
                              .shared_bytes = one_bytes(n_units, type, tiles)};
    snprintf(way->name, sizeof way->name, "spry_product_%s_out_%zu_1", spry_cuda_type_name(type), tiles);
    return true;
}

/* For at most 8 rows and outputs so many that blocks have several batches of tiles (products_rows.cuh). */
static bool choose_stream(spry_product_way *way, const spry_cuda_context *c, const spry_product_args *args,
                          spry_dtype type)
{
    enum { TILES = 8 };
    size_t processors = c->processors, bytes = rows_bytes(type, TILES);
    if (args->n_rows > SPRY_ACT_ROWS || args->experts || type == SPRY_F32 || args->n_tiles < TILES * processors ||
        !has_room(c, bytes, rows_sums(TILES)))
        return false;
    *way = (spry_product_way){.rows = SPRY_ACT_ROWS,
                              .tiles = (args->n_tiles + processors - 1) / processors,
                              .threads = FEW_THREADS,
                              .shared_bytes = bytes};
    snprintf(way->name, sizeof way->name, "spry_product_%s_out_%d_8", spry_cuda_type_name(type), TILES);
    return true;
}

/* For few rows: several tiles a block where there are blocks enough, because they share rows. */
spry_product_way spry_cuda_pick(const spry_cuda_device *d, const spry_product_args *args, spry_dtype type)
{
    enum { BLOCKS = 96 };
    const spry_cuda_context *c = &d->context;
    size_t rows = SPRY_ACT_ROWS;
    while (rows < 4 * SPRY_ACT_ROWS && rows < args->n_rows)
        rows *= 2;
    spry_product_way way = {.rows = rows, .tiles = 1, .threads = FEW_THREADS};
    if (spry_cuda_pick_cores(&way, d, args, type, false) || choose_many(&way, args, type) ||
        choose_one(&way, c, args, type) || choose_stream(&way, c, args, type))
        return way;
    if (args->experts && args->expert_rows < way.rows)
        way.rows = SPRY_ACT_ROWS;
    size_t groups = way.rows / SPRY_ACT_ROWS, blocks = (args->n_rows + way.rows - 1) / way.rows;
    if (groups > 1 && args->n_tiles / groups * blocks >= BLOCKS)
        way.tiles = groups;
    way.shared_bytes = kept_bytes(type, groups > 1 || type == SPRY_F32 ? 1 : SPRY_PRODUCT_AHEAD);
    bool small = groups == 1 && !has_room(c, way.shared_bytes, few_sums(groups)); /* of floats of 16 bits */
    if (small)
        way.shared_bytes = kept_bytes(type, SPRY_PRODUCT_AHEAD_SMALL);
    snprintf(way.name, sizeof way.name, "spry_product_%s_%zu_%zu%s", spry_cuda_type_name(type), groups, way.tiles,
             small ? "_small" : "");
    return way;
}

bool spry_cuda_pick_rows(spry_product_way *way, const spry_cuda_context *c, const spry_cuda_matrix *w, const char *kind,
                         size_t tiles, size_t n_rows)
{
    size_t fewest = strcmp(kind, "gate") ? 2 : 4;
    for (int one = n_rows == 1; one >= 0; one--)
        for (size_t n = one && tiles > 4 ? 4 : tiles; n >= fewest; n /= 2) {
            bool room = one ? has_room_for_one(c, w->tiles.n_units, w->type, n)
                            : has_room(c, rows_bytes(w->type, n), rows_sums(n));
            if (!room)
                continue;
            size_t bytes = one ? one_bytes(w->tiles.n_units, w->type, n) : rows_bytes(w->type, n);
            *way = (spry_product_way){.rows = n_rows, .tiles = n, .threads = FEW_THREADS, .shared_bytes = bytes};
            snprintf(way->name, sizeof way->name, "spry_product_%s_%s_%zu_%d", spry_cuda_type_name(w->type), kind, n,
                     one ? 1 : SPRY_ACT_ROWS);
            return true;
        }
    return false;
}
