/* See cuda_products.h. */
#include "device/cuda/cuda_products.h"

#include <stdio.h>
#include <string.h>

enum {
    SLOTS = 4, /* units of products_rows.cuh and products_one.cuh that a warp waits for */
    ROW_THREADS = 256,
    FEW_THREADS = 512,
    MANY_THREADS = 256,
    STAGED_THREADS = 128,
    WIDE_ROWS = 128,
    WIDE_BLOCKS = 100,
    CORES_ROWS = 64,       /* of a block with the matrix instructions of four warps, for few rows */
    CORES_ROWS_MANY = 128, /* and for many */
    CORES_MANY = 192,      /* rows from which they are many */
    CORES_TILES = 4,       /* of a block */
    CORES_THREADS = 128,
    CORES_SHARE = 8,       /* blocks that share inputs, at most */
    CORES_STAGES = 6,      /* units on their way of blocks for few rows */
    CORES_STAGES_MANY = 4, /* and for many */
    TILE_SUMS = SPRY_TILE_ROWS * SPRY_ACT_ROWS,
    STAGES = 3, /* units of rows, or of rows and tiles, that wait in shared memory */
};

size_t spry_cuda_group_bytes(spry_dtype type)
{
    static const size_t bytes[SPRY_ACT_FORMS] = {512 + 128, 1024, 2048, 3072};
    return bytes[spry_cuda_form(type)];
}

/* Shared memory of a block of multiply_cores. */
static size_t cores_bytes(spry_dtype type, size_t rows)
{
    size_t stages = rows == CORES_ROWS ? CORES_STAGES : CORES_STAGES_MANY;
    return stages * (rows / SPRY_ACT_ROWS * spry_cuda_group_bytes(type) + CORES_TILES * spry_cuda_unit_bytes(type));
}

/* Blocks of 128 rows are taken where there are so many at least. Those of quantised weights are bound by arithmetic of
 * single threads, and want more than one a multiprocessor. */
static size_t cores_rows(const spry_cuda_device *d, spry_dtype type, size_t columns, size_t n_rows)
{
    size_t blocks = columns * ((n_rows + CORES_ROWS_MANY - 1) / CORES_ROWS_MANY), processors = d->context.processors;
    size_t fewest = spry_cuda_form(type) == SPRY_ACT_BYTES ? processors * 3 / 2 : processors;
    return n_rows >= CORES_MANY && blocks >= fewest ? CORES_ROWS_MANY : CORES_ROWS;
}

uint32_t spry_cuda_cores(const spry_cuda_device *d, spry_dtype type, size_t n_rows)
{
    enum { FEW = 32 };
    size_t rows = n_rows < CORES_MANY ? CORES_ROWS : CORES_ROWS_MANY, row_blocks = (n_rows + rows - 1) / rows;
    bool fit = d->context.cores && !d->lanes && spry_cuda_form(type) != SPRY_ACT_THREE &&
               cores_bytes(type, CORES_ROWS) <= d->context.shared_bytes &&
               cores_bytes(type, CORES_ROWS_MANY) <= d->context.shared_bytes;
    bool enough = n_rows > FEW && (n_rows >= CORES_MANY || spry_cuda_chosen(d, SPRY_CHOICE_CORES) != 1);
    return fit && enough ? (uint32_t)(row_blocks * (rows / SPRY_ACT_ROWS)) : 0;
}

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

/* Blocks that share the inputs of one, so that there is work for the whole GPU, and room for what they give. */
static size_t share_inputs(const spry_cuda_device *d, const spry_product_args *args, spry_dtype type, size_t blocks)
{
    size_t share = 1, floats = blocks * SPRY_PRODUCT_SPLITS * CORES_TILES * SPRY_TILE_ROWS * CORES_ROWS;
    size_t most = d->context.processors * (spry_cuda_form(type) == SPRY_ACT_BYTES ? 2 : 1);
    while (share < CORES_SHARE && 2 * share * blocks <= most && 2 * share <= args->parts[0].weight.n_units &&
           floats <= d->scratch.partial_floats)
        share *= 2;
    return share;
}

static bool choose_cores(spry_product_way *way, const spry_cuda_device *d, spry_product_args *args, spry_dtype type)
{
    size_t columns = (args->n_tiles + CORES_TILES - 1) / CORES_TILES, rows = cores_rows(d, type, columns, args->n_rows);
    if (!args->act.cores)
        return false;
    *way = (spry_product_way){.rows = rows,
                              .tiles = CORES_TILES,
                              .share = 1,
                              .threads = CORES_THREADS,
                              .shared_bytes = cores_bytes(type, rows)};
    if (rows == CORES_ROWS)
        way->share = share_inputs(d, args, type, columns * ((args->n_rows + rows - 1) / rows));
    args->sums = way->share > 1 ? d->scratch.partial : 0;
    snprintf(way->name, sizeof way->name, "spry_product_%s_cores_%zu", spry_cuda_type_name(type), rows / SPRY_ACT_ROWS);
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
    return (SPRY_PRODUCT_SPLITS * tiles * SPRY_TILE_ROWS + ROW_THREADS / 32) * sizeof(float);
}

static size_t rows_sums(size_t tiles)
{
    size_t splits = SPRY_PRODUCT_SPLITS * (tiles < 4 ? tiles : 4) * TILE_SUMS;
    return (splits + tiles * TILE_SUMS + SPRY_ACT_ROWS * (ROW_THREADS / 32 + 1)) * sizeof(float);
}

static size_t few_sums(size_t groups)
{
    return SPRY_PRODUCT_SPLITS * groups * TILE_SUMS * sizeof(float);
}

/* Of one row: groups of units that wait (one_block of products_one.cuh), and the row as row_acts has it. */
static size_t one_bytes(size_t n_units, spry_dtype type, size_t tiles)
{
    static const size_t act_unit[SPRY_ACT_FORMS] = {80, 128, 256, 384};
    spry_act_form form = spry_cuda_form(type);
    size_t most = (n_units + SPRY_PRODUCT_SPLITS - 1) / SPRY_PRODUCT_SPLITS;
    size_t group = tiles * most < SLOTS ? tiles * most : SLOTS, depth = form == SPRY_ACT_BYTES ? 2 : 1;
    return kept_bytes(type, group * depth) + n_units * act_unit[form];
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
spry_product_way spry_cuda_pick(const spry_cuda_device *d, spry_product_args *args, spry_dtype type)
{
    enum { BLOCKS = 96 };
    const spry_cuda_context *c = &d->context;
    size_t rows = SPRY_ACT_ROWS;
    while (rows < 4 * SPRY_ACT_ROWS && rows < args->n_rows)
        rows *= 2;
    spry_product_way way = {.rows = rows, .tiles = 1, .threads = FEW_THREADS};
    if (choose_cores(&way, d, args, type) || choose_many(&way, args, type) || choose_one(&way, c, args, type) ||
        choose_stream(&way, c, args, type))
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

bool spry_cuda_pick_gate(spry_product_way *way, const spry_cuda_device *d, const spry_cuda_matrix *w, size_t n_rows)
{
    size_t columns = w->tiles.n_tiles * 2 / CORES_TILES, rows = cores_rows(d, w->type, columns, n_rows);
    size_t blocks = columns * ((n_rows + rows - 1) / rows);
    if (!spry_cuda_cores(d, w->type, n_rows) || spry_cuda_form(w->type) == SPRY_ACT_BYTES ||
        3 * blocks < 2 * d->context.processors) /* of fewer, sharing inputs is faster */
        return false;
    *way = (spry_product_way){.rows = rows,
                              .tiles = CORES_TILES / 2,
                              .share = 1,
                              .threads = CORES_THREADS,
                              .shared_bytes = cores_bytes(w->type, rows)};
    snprintf(way->name, sizeof way->name, "spry_product_%s_cores_gate_%zu", spry_cuda_type_name(w->type),
             rows / SPRY_ACT_ROWS);
    return true;
}
