/* Launches of what several places need: encoding rows, products, time. */
#include <stdio.h>
#include <string.h>

#include "device/cuda/cuda_state.h"
#include "model/arch.h"
#include "platform/clock.h"

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
    ROWS_TILES = 8,        /* of a block at a time that norms and gates take, at most */
    TILE_SUMS = SPRY_TILE_ROWS * SPRY_ACT_ROWS,
    STAGES = 3, /* units of rows, or of rows and tiles, that wait in shared memory */
};

spry_acts spry_cuda_acts(const spry_cuda_device *d, const spry_cuda_matrix *w, size_t n)
{
    return (spry_acts){.values = d->scratch.act_values[spry_cuda_form(w->type)],
                       .scales = d->scratch.act_scales,
                       .n_units = (uint32_t)((n + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT)};
}

/* A unit of a group of rows, with its scales. */
static size_t group_bytes(spry_dtype type)
{
    static const size_t bytes[SPRY_ACT_FORMS] = {512 + 128, 1024, 2048, 3072};
    return bytes[spry_cuda_form(type)];
}

/* Shared memory of a block of multiply_cores. */
static size_t cores_bytes(spry_dtype type, size_t rows)
{
    size_t stages = rows == CORES_ROWS ? CORES_STAGES : CORES_STAGES_MANY;
    return stages * (rows / SPRY_ACT_ROWS * group_bytes(type) + CORES_TILES * spry_cuda_unit_bytes(type));
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

static void launch_encode(spry_cuda_device *d, spry_encode_args args, bool cores, size_t n_rows)
{
    args.in_stride = args.in_stride ? args.in_stride : args.n;
    args.eps = d->config->norm_eps;
    spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, cores ? "spry_encode_cores" : "spry_encode"), n_rows, 1,
                     1, ROW_THREADS, &args);
}

void spry_cuda_encode(spry_cuda_device *d, spry_encode_args args, const spry_cuda_product *products, size_t n_products,
                      size_t n_rows)
{
    if (spry_cuda_adapts(d, products, n_products))
        spry_cuda_adapt_from(d, &args);
    bool cores = !args.plain && !args.source && args.n % 8 == 0; /* for all of them, and nothing else is wanted */
    for (size_t i = 0; i < n_products; i++) {
        const spry_cuda_matrix *w = products[i].w;
        spry_act_form form = spry_cuda_form(w->type);
        args.to[form] = spry_cuda_acts(d, w, args.n);
        args.to[form].cores = d->cores[form] = spry_cuda_cores(d, w->type, n_rows);
        cores = cores && d->cores[form];
    }
    launch_encode(d, args, cores, n_rows);
}

/* Which kernel: rows and tiles of a block. Bits do not depend on it. */
typedef struct product_way {
    char name[SPRY_CUDA_KERNEL_NAME];
    size_t rows, tiles;
    size_t share; /* of multiply_cores: blocks that share inputs */
    unsigned threads;
    size_t shared_bytes;
} product_way;

/* For many rows; `work`: blocks of 32 rows and a tile. Each way takes a time that hardly depends on the rows until it
 * fills the GPU, so the way for few rows is the faster one for longer than its share of the GPU's speed says. */
static bool choose_many(product_way *way, const spry_product_args *args, spry_dtype type)
{
    enum { FLOATS_WORK = 800, BYTES_WORK = 1500 };
    const char *name = spry_cuda_type_name(type);
    size_t work = (size_t)args->n_tiles * ((args->n_rows + 31) / 32);
    bool floats = type == SPRY_BF16 || type == SPRY_F16;
    if (args->n_rows <= 32 || work < (floats ? FLOATS_WORK : BYTES_WORK) ||
        (args->experts && args->expert_rows < WIDE_ROWS))
        return false;
    if (type == SPRY_F32) {
        *way = (product_way){.rows = 64, .tiles = 8, .threads = MANY_THREADS};
        snprintf(way->name, sizeof way->name, "spry_product_%s_many", name);
    } else if (floats) {
        *way = (product_way){.rows = 64, .tiles = 8, .threads = STAGED_THREADS};
        way->shared_bytes = STAGES * 8 * (2048 + group_bytes(type)); /* of 8 tiles and 8 groups of rows */
        snprintf(way->name, sizeof way->name, "spry_product_%s_staged", name);
    } else {
        size_t blocks = (args->n_tiles + 7) / 8 * ((args->n_rows + WIDE_ROWS - 1) / WIDE_ROWS);
        size_t each = blocks < WIDE_BLOCKS ? 1 : 2;
        *way = (product_way){.rows = WIDE_ROWS, .tiles = 4 * each, .threads = MANY_THREADS};
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

static bool choose_cores(product_way *way, const spry_cuda_device *d, spry_product_args *args, spry_dtype type)
{
    size_t columns = (args->n_tiles + CORES_TILES - 1) / CORES_TILES, rows = cores_rows(d, type, columns, args->n_rows);
    if (!args->act.cores)
        return false;
    *way = (product_way){.rows = rows,
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
static bool choose_one(product_way *way, const spry_cuda_context *c, const spry_product_args *args, spry_dtype type)
{
    size_t processors = c->processors, n_units = args->parts[0].weight.n_units;
    size_t tiles = args->n_tiles < 8 * processors ? 1 : 4;
    if (args->n_rows > 1 || args->experts || type == SPRY_F32 || !has_room_for_one(c, n_units, type, tiles))
        return false;
    *way = (product_way){.rows = SPRY_ACT_ROWS,
                         .tiles = tiles > 1 ? (args->n_tiles + processors - 1) / processors : 1,
                         .threads = FEW_THREADS,
                         .shared_bytes = one_bytes(n_units, type, tiles)};
    snprintf(way->name, sizeof way->name, "spry_product_%s_out_%zu_1", spry_cuda_type_name(type), tiles);
    return true;
}

/* For at most 8 rows and outputs so many that blocks have several batches of tiles (products_rows.cuh). */
static bool choose_stream(product_way *way, const spry_cuda_context *c, const spry_product_args *args, spry_dtype type)
{
    enum { TILES = 8 };
    size_t processors = c->processors, bytes = rows_bytes(type, TILES);
    if (args->n_rows > SPRY_ACT_ROWS || args->experts || type == SPRY_F32 || args->n_tiles < TILES * processors ||
        !has_room(c, bytes, rows_sums(TILES)))
        return false;
    *way = (product_way){.rows = SPRY_ACT_ROWS,
                         .tiles = (args->n_tiles + processors - 1) / processors,
                         .threads = FEW_THREADS,
                         .shared_bytes = bytes};
    snprintf(way->name, sizeof way->name, "spry_product_%s_out_%d_8", spry_cuda_type_name(type), TILES);
    return true;
}

/* For few rows: several tiles a block where there are blocks enough, because they share rows. */
static product_way choose_way(const spry_cuda_device *d, spry_product_args *args, spry_dtype type)
{
    enum { BLOCKS = 96 };
    const spry_cuda_context *c = &d->context;
    size_t rows = SPRY_ACT_ROWS;
    while (rows < 4 * SPRY_ACT_ROWS && rows < args->n_rows)
        rows *= 2;
    product_way way = {.rows = rows, .tiles = 1, .threads = FEW_THREADS};
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

/* Products of one type. */
static void launch_products(spry_cuda_device *d, spry_product_args *args, spry_dtype type)
{
    product_way way = choose_way(d, args, type);
    void *kernel = spry_cuda_kernel(&d->context, way.name);
    size_t tiles = (args->n_tiles + way.tiles - 1) / way.tiles, rows = (args->n_rows + way.rows - 1) / way.rows;
    if (way.share > 1)
        spry_cuda_launch_cluster(&d->context, kernel, way.share, tiles, rows, way.threads, way.shared_bytes, args);
    else
        spry_cuda_launch_shared(&d->context, kernel, way.share ? 1 : tiles, way.share ? tiles : rows,
                                way.share ? rows : 1, way.threads, way.shared_bytes, args);
}

/* The next products of one type, as many as one launch takes; *at moves behind them. */
static spry_product_args gather_products(spry_cuda_device *d, const spry_cuda_product *products, size_t n_products,
                                         size_t n_rows, size_t *at)
{
    const spry_cuda_matrix *first = products[*at].w;
    spry_product_args args = {.act = spry_cuda_acts(d, first, first->tiles.n_in), .n_rows = (uint32_t)n_rows};
    for (; *at < n_products && products[*at].w->type == first->type && args.n_parts < SPRY_PRODUCT_PARTS; ++*at) {
        const spry_cuda_product *p = &products[*at];
        args.parts[args.n_parts++] = (spry_product_part){.weight = p->w->tiles,
                                                         .out = p->out,
                                                         .bias = p->w->bias,
                                                         .stride = (uint32_t)p->stride,
                                                         .first_tile = args.n_tiles};
        args.n_tiles += p->w->tiles.n_tiles;
    }
    return args;
}

void spry_cuda_products(spry_cuda_device *d, const spry_cuda_product *products, size_t n_products, size_t n_rows,
                        bool add, spry_cuda_groups groups)
{
    for (size_t i = 0; i < n_products;) {
        spry_dtype type = products[i].w->type;
        spry_product_args args = gather_products(d, products, n_products, n_rows, &i);
        args.act.cores = d->lanes ? 0 : d->cores[spry_cuda_form(type)];
        args.experts = groups.experts;
        args.expert_rows = (uint32_t)groups.align;
        args.add = add;
        launch_products(d, &args, type);
    }
    spry_cuda_adapt(d, products, n_products, n_rows, groups);
}

spry_encode_args spry_cuda_input(const spry_cuda_device *d, spry_cuda_memory norm, spry_cuda_memory bias)
{
    const spry_config *c = d->config;
    return (spry_encode_args){.in = d->scratch.x,
                              .weight = norm,
                              .bias = bias,
                              .centre = c->arch->layer_norm,
                              .n = c->n_embd,
                              .gate = c->arch->gate};
}

/* Products that normalise their rows, "norm" or "gate", with at most so many tiles of a block at a time, of which four
 * at most are on their way. False where a block has no room for any such kernel. */
static bool choose_rows(product_way *way, const spry_cuda_context *c, const spry_cuda_matrix *w, const char *kind,
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
            *way = (product_way){.rows = n_rows, .tiles = n, .threads = FEW_THREADS, .shared_bytes = bytes};
            snprintf(way->name, sizeof way->name, "spry_product_%s_%s_%zu_%d", spry_cuda_type_name(w->type), kind, n,
                     one ? 1 : SPRY_ACT_ROWS);
            return true;
        }
    return false;
}

/* Whether products normalise their rows themselves, by kernels of this kind. */
static bool normalises(const spry_cuda_device *d, const spry_encode_args *from, const spry_cuda_product *products,
                       size_t n_products, size_t n_rows, const char *kind)
{
    product_way way;
    bool can = n_rows <= SPRY_ACT_ROWS && from->n % 4 == 0 && from->weight && !from->centre && !from->source &&
               !from->plain && !spry_cuda_adapts(d, products, n_products);
    for (size_t i = 0; i < n_products; i++)
        can = can && spry_cuda_form(products[i].w->type) != SPRY_ACT_THREE &&
              choose_rows(&way, &d->context, products[i].w, kind, ROWS_TILES, n_rows);
    return can;
}

/* Products of the type of `w`, one of them. */
static void launch_rows(spry_cuda_device *d, spry_product_args *args, spry_encode_args from, const spry_cuda_matrix *w,
                        const char *kind, size_t tiles)
{
    product_way way;
    if (!choose_rows(&way, &d->context, w, kind, tiles, args->n_rows))
        return; /* normalises saw that there is a way */
    size_t batches = (args->n_tiles + way.tiles - 1) / way.tiles, processors = d->context.processors;
    from.in_stride = from.n;
    from.eps = d->config->norm_eps;
    args->from = from;
    spry_cuda_launch_shared(&d->context, spry_cuda_kernel(&d->context, way.name),
                            batches < processors ? batches : processors, 1, 1, way.threads, way.shared_bytes, args);
}

void spry_cuda_encode_products(spry_cuda_device *d, spry_encode_args from, const spry_cuda_product *products,
                               size_t n_products, size_t n_rows, bool add)
{
    if (!normalises(d, &from, products, n_products, n_rows, "norm")) {
        spry_cuda_encode(d, from, products, n_products, n_rows);
        spry_cuda_products(d, products, n_products, n_rows, add, (spry_cuda_groups){0});
        return;
    }
    for (size_t i = 0; i < n_products;) {
        const spry_cuda_matrix *first = products[i].w;
        spry_product_args args = gather_products(d, products, n_products, n_rows, &i);
        args.add = add;
        unsigned tiles = spry_cuda_chosen(d, SPRY_CHOICE_NORM_TILES);
        launch_rows(d, &args, from, first, "norm", tiles ? tiles : args.n_tiles <= 2 * d->context.processors ? 2 : 4);
    }
}

/* Where the rows of a gate and an `up` lie while the product writes what they give to the place of rows: in place of
 * what it would give without gates. Without room for them: no groups of rows. */
static spry_acts gate_acts(const spry_cuda_device *d, const spry_cuda_matrix *w, size_t n_rows)
{
    spry_acts act = spry_cuda_acts(d, w, w->tiles.n_in);
    act.cores = spry_cuda_cores(d, w->type, n_rows);
    act.values = d->scratch.gate;
    act.scales = d->scratch.up;
    size_t room = (size_t)d->device.limits.max_rows * w->tiles.n_out * sizeof(float);
    act.cores = act.n_units * act.cores * group_bytes(w->type) <= room ? act.cores : 0;
    return act;
}

/* More than 8 rows of floats, by multiply_cores: encoding bytes takes a block longer than a kernel of its own. */
static bool gate_cores(spry_cuda_device *d, spry_encode_args from, const spry_cuda_product both[2],
                       const spry_cuda_matrix *down, size_t n_rows)
{
    enum { FEWEST = 2 }; /* of FEWEST blocks for three multiprocessors, sharing inputs is faster */
    const spry_cuda_matrix *w = both[0].w;
    const spry_acts act = gate_acts(d, w, n_rows);
    size_t at = 0, columns = w->tiles.n_tiles * 2 / CORES_TILES, rows = cores_rows(d, w->type, columns, n_rows);
    size_t row_blocks = (n_rows + rows - 1) / rows;
    if (!act.cores || spry_cuda_form(w->type) == SPRY_ACT_BYTES || from.n % 8 || from.source || from.plain ||
        spry_cuda_adapts(d, both, 2) || 3 * columns * row_blocks < FEWEST * d->context.processors)
        return false;
    spry_product_args args = gather_products(d, both, 2, n_rows, &at);
    args.act = act;
    args.from.gate = from.gate;
    args.from.to[spry_cuda_form(down->type)] = spry_cuda_acts(d, down, w->tiles.n_out);
    args.from.to[spry_cuda_form(down->type)].cores = d->cores[spry_cuda_form(down->type)] =
        spry_cuda_cores(d, down->type, n_rows);
    from.to[spry_cuda_form(w->type)] = act;
    launch_encode(d, from, true, n_rows);
    char name[SPRY_CUDA_KERNEL_NAME];
    snprintf(name, sizeof name, "spry_product_%s_cores_gate_%zu", spry_cuda_type_name(w->type), rows / SPRY_ACT_ROWS);
    spry_cuda_launch_shared(&d->context, spry_cuda_kernel(&d->context, name), 1, columns, row_blocks, CORES_THREADS,
                            cores_bytes(w->type, rows), &args);
    return true;
}

bool spry_cuda_gated_products(spry_cuda_device *d, spry_encode_args from, const spry_cuda_product both[2],
                              const spry_cuda_matrix *down, size_t n_rows)
{
    const spry_tiles *gate = &both[0].w->tiles, *up = &both[1].w->tiles;
    if (both[0].w->type != both[1].w->type || gate->n_out != up->n_out || gate->n_out % SPRY_TILE_UNIT ||
        spry_cuda_adapts(d, &(spry_cuda_product){.w = down}, 1))
        return false;
    if (n_rows > SPRY_ACT_ROWS)
        return gate_cores(d, from, both, down, n_rows);
    if (!normalises(d, &from, both, 2, n_rows, "gate"))
        return false;
    size_t at = 0;
    spry_product_args args = gather_products(d, both, 2, n_rows, &at);
    from.to[spry_cuda_form(down->type)] = spry_cuda_acts(d, down, gate->n_out);
    d->cores[spry_cuda_form(down->type)] = 0;
    unsigned tiles = spry_cuda_chosen(d, SPRY_CHOICE_GATE_TILES);
    launch_rows(d, &args, from, both[0].w, "gate", tiles ? tiles : args.n_tiles <= 4 * d->context.processors ? 4 : 8);
    return true;
}

void spry_cuda_took_products(spry_cuda_device *d, spry_op op, const spry_cuda_product *products, size_t n_products,
                             size_t n_rows)
{
    double bytes = 0, count = 0;
    if (!d->watch)
        return;
    for (size_t i = 0; i < n_products; i++) {
        const spry_tiles *t = &products[i].w->tiles;
        bytes += products[i].w->read_bytes;
        count += (double)t->n_out * t->n_in * (double)n_rows;
    }
    spry_cuda_charge(d, op, products[0].w->type, bytes, count);
}
