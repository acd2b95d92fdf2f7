/* Launches of what several places need: encoding rows, products, time. */
#include "device/cuda/cuda_gemm.h"
#include "model/arch.h"

spry_activations spry_cuda_activations(const spry_cuda_device *d, const spry_cuda_matrix *w, size_t n)
{
    return (spry_activations){.values = d->scratch.act_values[spry_cuda_act_format(w->type)],
                              .scales = d->scratch.act_scales,
                              .n_units = (uint32_t)((n + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT)};
}

/* Rows that are normalised whole are not multiplied by anything behind their products. */
static bool normalises_first(const spry_quantise_args *args)
{
    return !args->weight || args->centre || args->bias;
}

static void launch_quantise(spry_cuda_device *d, spry_quantise_args args, bool wgmma, size_t n_rows)
{
    args.in_stride = args.in_stride ? args.in_stride : args.n;
    args.n_rows = (uint32_t)n_rows;
    args.eps = d->config->norm_eps;
    size_t units = (args.n + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT, each = SPRY_QUANTISE_WGMMA_UNITS;
    if (wgmma)
        spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, "spry_quantise_wgmma"),
                         (n_rows + SPRY_ACT_ROWS - 1) / SPRY_ACT_ROWS, (units + each - 1) / each, 1,
                         (unsigned)each * 32, &args);
    else
        spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, "spry_quantise"), n_rows, 1, 1,
                         SPRY_QUANTISE_THREADS, &args);
}

/* Whether the rows of x are encoded for the norm already. They are taken once: products of the next step have the same
 * norm. */
static bool take_prequantised(spry_cuda_device *d, const spry_quantise_args *args)
{
    bool so = d->prequantised.norm && args->in == d->scratch.x && args->weight == d->prequantised.norm;
    if (so)
        d->activations[d->prequantised.format] = d->prequantised.activations;
    d->prequantised.norm = 0;
    return so;
}

void spry_cuda_quantise(spry_cuda_device *d, spry_quantise_args args, const spry_cuda_gemm *products, size_t n_products,
                        size_t n_rows)
{
    if (spry_cuda_has_lora(d, products, n_products))
        spry_cuda_lora_input(d, &args);
    if (take_prequantised(d, &args))
        return;
    /* for all of them, and nothing else is wanted */
    bool wgmma = !args.plain && !args.source && args.n % 8 == 0 && !(args.weight && normalises_first(&args));
    for (size_t i = 0; i < n_products; i++) {
        const spry_cuda_matrix *w = products[i].w;
        spry_act_format format = spry_cuda_act_format(w->type);
        spry_activations activations = spry_cuda_activations(d, w, args.n);
        activations.norms = normalises_first(&args) ? 0 : d->scratch.act_norms;
        activations.wgmma_groups = spry_cuda_wgmma_groups(d, w->type, n_rows);
        args.to[format] = d->activations[format] = activations;
        wgmma = wgmma && activations.wgmma_groups;
    }
    launch_quantise(d, args, wgmma, n_rows);
}

static void launch_gemm(spry_cuda_device *d, const spry_gemm_launch *launch, const spry_gemm_args *args)
{
    void *kernel = spry_cuda_kernel(&d->context, launch->name);
    if (launch->share > 1)
        spry_cuda_launch_cluster(&d->context, kernel, launch->share, launch->blocks, 1, launch->threads,
                                 launch->shared_bytes, args);
    else if (launch->blocks)
        spry_cuda_launch_shared(&d->context, kernel, 1, launch->blocks, 1, launch->threads, launch->shared_bytes, args);
    else
        spry_cuda_launch_shared(&d->context, kernel, (args->n_tiles + launch->tiles - 1) / launch->tiles,
                                (args->n_rows + launch->rows - 1) / launch->rows, 1, launch->threads,
                                launch->shared_bytes, args);
}

/* Products of one type. */
static void launch_gemms(spry_cuda_device *d, const spry_gemm_args *args, spry_dtype type)
{
    spry_gemm_launch launch = spry_cuda_pick_gemm(d, args, type);
    launch_gemm(d, &launch, args);
}

/* The next products of one type, as many as one launch takes; *at moves behind them. */
static spry_gemm_args gather_gemms(spry_cuda_device *d, const spry_cuda_gemm *products, size_t n_products,
                                   size_t n_rows, size_t *at)
{
    const spry_cuda_matrix *first = products[*at].w;
    spry_gemm_args args = {.act = d->activations[spry_cuda_act_format(first->type)],
                           .n_rows = (uint32_t)n_rows,
                           .from.eps = d->config->norm_eps};
    for (; *at < n_products && products[*at].w->type == first->type && args.n_parts < SPRY_GEMM_PARTS; ++*at) {
        const spry_cuda_gemm *p = &products[*at];
        args.parts[args.n_parts++] = (spry_gemm_part){.weight = p->w->tiles,
                                                      .out = p->out,
                                                      .bias = p->w->bias,
                                                      .stride = (uint32_t)p->stride,
                                                      .first_tile = args.n_tiles};
        args.n_tiles += p->w->tiles.n_tiles;
    }
    return args;
}

/* Where rows of x lie that a product of many rows has encoded, or whose gates it writes to the place of other rows. */
static spry_activations x_activations(const spry_cuda_device *d, const spry_cuda_matrix *w, size_t n_rows)
{
    return (spry_activations){.values = d->scratch.x_values,
                              .norms = d->scratch.act_norms,
                              .n_units = w->tiles.n_units,
                              .wgmma_groups = spry_cuda_wgmma_groups(d, w->type, n_rows)};
}

/* Lets a product of many rows, whose result is x, encode it for what follows; where that cannot be, it changes nothing.
 */
static void fuse_next_norm(spry_cuda_device *d, spry_gemm_args *args, const spry_cuda_gemm *product)
{
    const spry_cuda_matrix *w = product->w, *const *next = w->next;
    if (!args->act.wgmma_groups || !w->next_norm || !next[0] || product->out != d->scratch.x || args->n_parts > 1 ||
        product->stride % SPRY_TILE_UNIT || spry_cuda_has_lora(d, product, 1))
        return;
    spry_act_format format = spry_cuda_act_format(next[0]->type);
    for (size_t i = 0; i < SPRY_GEMM_PARTS && next[i]; i++)
        if (spry_cuda_act_format(next[i]->type) != format || !spry_cuda_wgmma_groups(d, next[i]->type, args->n_rows) ||
            spry_cuda_has_lora(d, &(spry_cuda_gemm){.w = next[i]}, 1))
            return;
    d->prequantised = (spry_cuda_prequantised){w->next_norm, format, x_activations(d, next[0], args->n_rows)};
    args->from.weight = w->next_norm;
    args->from.n = next[0]->tiles.n_in;
    args->from.to[format] = d->prequantised.activations;
}

void spry_cuda_gemms(spry_cuda_device *d, const spry_cuda_gemm *products, size_t n_products, size_t n_rows, bool add,
                     spry_cuda_expert_groups groups)
{
    for (size_t i = 0; i < n_products;) {
        spry_dtype type = products[i].w->type;
        spry_gemm_args args = gather_gemms(d, products, n_products, n_rows, &i);
        args.act.wgmma_groups = d->mma_layout ? 0 : args.act.wgmma_groups;
        args.experts = groups.experts;
        args.expert_rows = (uint32_t)groups.align;
        args.add = add;
        fuse_next_norm(d, &args, &products[i - 1]);
        launch_gemms(d, &args, type);
    }
    spry_cuda_lora(d, products, n_products, n_rows, groups);
}

spry_quantise_args spry_cuda_input(const spry_cuda_device *d, spry_cuda_memory norm, spry_cuda_memory bias)
{
    const spry_config *c = d->config;
    return (spry_quantise_args){.in = d->scratch.x,
                                .weight = norm,
                                .bias = bias,
                                .centre = c->arch->layer_norm,
                                .n = c->n_embd,
                                .gate = c->arch->gate};
}

/* Whether products normalise their rows themselves, by kernels of this kind. */
static bool normalises(const spry_cuda_device *d, const spry_quantise_args *from, const spry_cuda_gemm *products,
                       size_t n_products, size_t n_rows, const char *kind)
{
    spry_gemm_launch launch;
    bool can = n_rows <= SPRY_ACT_ROWS && from->n % 4 == 0 && !normalises_first(from) && !from->source &&
               !from->plain && !spry_cuda_has_lora(d, products, n_products);
    for (size_t i = 0; i < n_products; i++)
        can = can && spry_cuda_act_format(products[i].w->type) != SPRY_ACT_BF16X3 &&
              spry_cuda_pick_fused(&launch, &d->context, products[i].w, kind, SPRY_FUSED_TILES, n_rows);
    return can;
}

/* Products of the type of `w`, one of them. */
static void launch_fused(spry_cuda_device *d, spry_gemm_args *args, spry_quantise_args from, const spry_cuda_matrix *w,
                         const char *kind, size_t tiles)
{
    spry_gemm_launch launch;
    if (!spry_cuda_pick_fused(&launch, &d->context, w, kind, tiles, args->n_rows))
        return; /* normalises saw that there is a way */
    size_t batches = (args->n_tiles + launch.tiles - 1) / launch.tiles, sm_count = d->context.sm_count;
    from.in_stride = from.n;
    from.eps = d->config->norm_eps;
    args->from = from;
    spry_cuda_launch_shared(&d->context, spry_cuda_kernel(&d->context, launch.name),
                            batches < sm_count ? batches : sm_count, 1, 1, launch.threads, launch.shared_bytes, args);
}

void spry_cuda_quantise_gemms(spry_cuda_device *d, spry_quantise_args from, const spry_cuda_gemm *products,
                              size_t n_products, size_t n_rows, bool add)
{
    if (!normalises(d, &from, products, n_products, n_rows, "norm")) {
        spry_cuda_quantise(d, from, products, n_products, n_rows);
        spry_cuda_gemms(d, products, n_products, n_rows, add, (spry_cuda_expert_groups){0});
        return;
    }
    for (size_t i = 0; i < n_products;) {
        const spry_cuda_matrix *first = products[i].w;
        spry_gemm_args args = gather_gemms(d, products, n_products, n_rows, &i);
        args.add = add;
        unsigned tiles = spry_cuda_tuned(d, SPRY_TUNE_NORM_TILES);
        launch_fused(d, &args, from, first, "norm", tiles ? tiles : args.n_tiles <= 2 * d->context.sm_count ? 2 : 4);
    }
}

/* More than 8 rows, by wgmma. */
static bool gate_up_wgmma(spry_cuda_device *d, spry_quantise_args from, const spry_cuda_gemm both[2],
                          const spry_cuda_matrix *down, size_t n_rows)
{
    spry_gemm_launch launch;
    const spry_cuda_matrix *w = both[0].w;
    spry_act_format format = spry_cuda_act_format(down->type);
    size_t at = 0;
    spry_gemm_args args = gather_gemms(d, both, 2, n_rows, &at);
    args.act = x_activations(d, w, n_rows);
    args.from.gate = from.gate;
    args.from.to[format] = spry_cuda_activations(d, down, w->tiles.n_out);
    args.from.to[format].wgmma_groups = spry_cuda_wgmma_groups(d, down->type, n_rows);
    if (from.n % 8 || from.source || from.plain || normalises_first(&from) || spry_cuda_has_lora(d, both, 2) ||
        !args.from.to[format].wgmma_groups || !spry_cuda_pick_wgmma(&launch, d, &args, w->type, true))
        return false;
    from.to[spry_cuda_act_format(w->type)] = args.act;
    if (!take_prequantised(d, &from))
        launch_quantise(d, from, true, n_rows);
    launch_gemm(d, &launch, &args);
    d->activations[format] = args.from.to[format];
    return true;
}

bool spry_cuda_gate_up_gemms(spry_cuda_device *d, spry_quantise_args from, const spry_cuda_gemm both[2],
                             const spry_cuda_matrix *down, size_t n_rows)
{
    const spry_tiles *gate = &both[0].w->tiles, *up = &both[1].w->tiles;
    if (both[0].w->type != both[1].w->type || gate->n_out != up->n_out || gate->n_out % SPRY_TILE_UNIT ||
        spry_cuda_has_lora(d, &(spry_cuda_gemm){.w = down}, 1))
        return false;
    if (n_rows > SPRY_ACT_ROWS)
        return gate_up_wgmma(d, from, both, down, n_rows);
    if (spry_cuda_act_format(down->type) != spry_cuda_act_format(both[0].w->type) ||
        !normalises(d, &from, both, 2, n_rows, "gate"))
        return false;
    size_t at = 0;
    spry_gemm_args args = gather_gemms(d, both, 2, n_rows, &at);
    spry_act_format format = spry_cuda_act_format(down->type);
    from.to[format] = d->activations[format] = spry_cuda_activations(d, down, gate->n_out);
    unsigned tiles = spry_cuda_tuned(d, SPRY_TUNE_GATE_TILES);
    launch_fused(d, &args, from, both[0].w, "gate", tiles ? tiles : args.n_tiles <= 4 * d->context.sm_count ? 4 : 8);
    return true;
}

void spry_cuda_charge_gemms(spry_cuda_device *d, spry_op op, const spry_cuda_gemm *products, size_t n_products,
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
