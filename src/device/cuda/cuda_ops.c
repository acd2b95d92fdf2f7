/* Launches of what several places need: encoding rows, products, time. */
#include <stdio.h>

#include "device/cuda/cuda_state.h"
#include "platform/clock.h"

enum {
    ROW_THREADS = 256,
    FEW_THREADS = 512,
    MANY_THREADS = 256,
    STAGED_THREADS = 128,
    STAGED_BYTES = 3 * 8 * (2048 + 2048), /* three units of 8 tiles and 8 groups of rows */
    WIDE_ROWS = 128,
    WIDE_BLOCKS = 100,
    FROM_TILES = 200,
};

spry_acts spry_cuda_acts(const spry_cuda_device *d, const spry_cuda_matrix *w, size_t n)
{
    return (spry_acts){.values = d->scratch.act_values[spry_cuda_form(w->type)],
                       .scales = d->scratch.act_scales,
                       .n_units = (uint32_t)((n + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT)};
}

void spry_cuda_encode(spry_cuda_device *d, spry_encode_args args, const spry_cuda_product *products, size_t n_products,
                      size_t n_rows)
{
    for (size_t i = 0; i < n_products; i++)
        args.to[spry_cuda_form(products[i].w->type)] = spry_cuda_acts(d, products[i].w, args.n);
    args.in_stride = args.n;
    args.eps = d->config->norm_eps;
    spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, "spry_encode"), n_rows, 1, 1, ROW_THREADS, &args);
}

/* Which kernel: rows and tiles of a block. Bits do not depend on it. */
typedef struct product_way {
    char name[SPRY_CUDA_KERNEL_NAME];
    size_t rows, tiles;
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
        snprintf(way->name, sizeof way->name, "spry_product_%s_8", name);
    } else if (floats) {
        *way = (product_way){.rows = 64, .tiles = 8, .threads = STAGED_THREADS, .shared_bytes = STAGED_BYTES};
        snprintf(way->name, sizeof way->name, "spry_product_%s_staged", name);
    } else {
        size_t blocks = (args->n_tiles + 7) / 8 * ((args->n_rows + WIDE_ROWS - 1) / WIDE_ROWS);
        size_t each = blocks < WIDE_BLOCKS ? 1 : 2;
        *way = (product_way){.rows = WIDE_ROWS, .tiles = 4 * each, .threads = MANY_THREADS};
        snprintf(way->name, sizeof way->name, "spry_product_%s_wide_%zu", name, each);
    }
    return true;
}

static product_way choose_way(const spry_product_args *args, spry_dtype type)
{
    size_t rows = SPRY_ACT_ROWS;
    while (rows < 4 * SPRY_ACT_ROWS && rows < args->n_rows)
        rows *= 2;
    product_way way = {.rows = rows, .tiles = 1, .threads = FEW_THREADS};
    if (choose_many(&way, args, type))
        return way;
    if (args->experts && args->expert_rows < way.rows)
        way.rows = SPRY_ACT_ROWS;
    snprintf(way.name, sizeof way.name, "spry_product_%s_%zu", spry_cuda_type_name(type), way.rows / SPRY_ACT_ROWS);
    return way;
}

/* Products of one type. */
static void launch_products(spry_cuda_device *d, const spry_product_args *args, spry_dtype type)
{
    product_way way = choose_way(args, type);
    spry_cuda_launch_shared(&d->context, spry_cuda_kernel(&d->context, way.name),
                            (args->n_tiles + way.tiles - 1) / way.tiles, (args->n_rows + way.rows - 1) / way.rows, 1,
                            way.threads, way.shared_bytes, args);
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
        args.experts = groups.experts;
        args.expert_rows = (uint32_t)groups.align;
        args.add = add;
        launch_products(d, &args, type);
    }
}

/* Whether products can encode their rows themselves. */
static bool encodes(const spry_encode_args *from, const spry_cuda_product *products, size_t n_products, size_t n_rows)
{
    bool can = n_rows == 1 && !from->source && !from->plain;
    for (size_t i = 0; i < n_products; i++)
        can = can && spry_cuda_form(products[i].w->type) != SPRY_ACT_THREE;
    return can;
}

void spry_cuda_encode_products(spry_cuda_device *d, spry_encode_args from, const spry_cuda_product *products,
                               size_t n_products, size_t n_rows, bool add)
{
    if (!encodes(&from, products, n_products, n_rows)) {
        spry_cuda_encode(d, from, products, n_products, n_rows);
        spry_cuda_products(d, products, n_products, n_rows, add, (spry_cuda_groups){0});
        return;
    }
    from.in_stride = from.n;
    from.eps = d->config->norm_eps;
    for (size_t i = 0; i < n_products;) {
        char name[SPRY_CUDA_KERNEL_NAME];
        const char *type = spry_cuda_type_name(products[i].w->type);
        spry_product_args args = gather_products(d, products, n_products, n_rows, &i);
        /* Where blocks are many, smaller ones are all there at once. */
        unsigned warps = args.n_tiles > FROM_TILES ? 8 : 16;
        args.from = from;
        args.add = add;
        snprintf(name, sizeof name, "spry_product_%s_from_%u", type, warps);
        spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, name), args.n_tiles, 1, 1, warps * 32, &args);
    }
}

void spry_cuda_charge(spry_cuda_device *d, spry_op op, spry_dtype type, double bytes, double products)
{
    if (!d->watch)
        return;
    spry_cuda_finish(&d->context);
    spry_op_watch_add(d->watch, op, type, "cuda", bytes, products);
}

void spry_cuda_took_products(spry_cuda_device *d, spry_op op, const spry_cuda_product *products, size_t n_products,
                             size_t n_rows)
{
    double bytes = 0, count = 0;
    for (size_t i = 0; i < n_products; i++) {
        const spry_tiles *t = &products[i].w->tiles;
        bytes += products[i].w->read_bytes;
        count += (double)t->n_out * t->n_in * (double)n_rows;
    }
    spry_cuda_charge(d, op, products[0].w->type, bytes, count);
}
