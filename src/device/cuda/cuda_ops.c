/* Launches of what several places need: encoding rows, products, time. */
#include <stdio.h>

#include "device/cuda/cuda_state.h"
#include "platform/clock.h"

enum { ROW_THREADS = 256, FEW_THREADS = 512, MANY_THREADS = 256, MANY_TILES = 8 };

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
    args.in_stride = args.in_stride ? args.in_stride : args.n;
    args.eps = d->config->norm_eps;
    spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, "spry_encode"), n_rows, 1, 1, ROW_THREADS, &args);
}

/* Products of one type. */
static void launch_products(spry_cuda_device *d, const spry_product_args *args, spry_dtype type)
{
    size_t groups = args->n_rows <= SPRY_ACT_ROWS ? 1 : args->n_rows <= 64 ? 4 : 8, rows = groups * SPRY_ACT_ROWS;
    char name[SPRY_CUDA_KERNEL_NAME];
    while (args->experts && args->expert_rows < rows) {
        groups = groups == 8 ? 4 : 1;
        rows = groups * SPRY_ACT_ROWS;
    }
    snprintf(name, sizeof name, "spry_product_%s_%zu", spry_cuda_type_name(type), groups);
    void *kernel = spry_cuda_kernel(&d->context, name);
    size_t many = groups == 8, tiles = many ? (args->n_tiles + MANY_TILES - 1) / MANY_TILES : args->n_tiles;
    spry_cuda_launch(&d->context, kernel, tiles, (args->n_rows + rows - 1) / rows, 1, many ? MANY_THREADS : FEW_THREADS,
                     args);
}

void spry_cuda_products(spry_cuda_device *d, const spry_cuda_product *products, size_t n_products, size_t n_rows,
                        bool add, spry_cuda_groups groups)
{
    for (size_t i = 0; i < n_products;) {
        spry_dtype type = products[i].w->type;
        spry_product_args args = {.act = spry_cuda_acts(d, products[i].w, products[i].w->tiles.n_in),
                                  .n_rows = (uint32_t)n_rows,
                                  .experts = groups.experts,
                                  .expert_rows = (uint32_t)groups.align,
                                  .add = add};
        for (; i < n_products && products[i].w->type == type && args.n_parts < SPRY_PRODUCT_PARTS; i++) {
            args.parts[args.n_parts++] = (spry_product_part){.weight = products[i].w->tiles,
                                                             .out = products[i].out,
                                                             .bias = products[i].w->bias,
                                                             .stride = (uint32_t)products[i].stride,
                                                             .first_tile = args.n_tiles};
            args.n_tiles += products[i].w->tiles.n_tiles;
        }
        launch_products(d, &args, type);
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
