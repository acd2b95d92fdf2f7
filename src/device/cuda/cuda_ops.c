/* Launches of what several places need: encoding rows, products, time. */
#include "device/cuda/cuda_products.h"
#include "model/arch.h"

spry_acts spry_cuda_acts(const spry_cuda_device *d, const spry_cuda_matrix *w, size_t n)
{
    return (spry_acts){.values = d->scratch.act_values[spry_cuda_form(w->type)],
                       .scales = d->scratch.act_scales,
                       .n_units = (uint32_t)((n + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT)};
}

/* Rows that are normalised whole are not multiplied by anything behind their products. */
static bool encodes_whole(const spry_encode_args *args)
{
    return !args->weight || args->centre || args->bias;
}

static void launch_encode(spry_cuda_device *d, spry_encode_args args, bool cores, size_t n_rows)
{
    args.in_stride = args.in_stride ? args.in_stride : args.n;
    args.n_rows = (uint32_t)n_rows;
    args.eps = d->config->norm_eps;
    if (cores)
        spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, "spry_encode_cores"),
                         (n_rows + SPRY_ACT_ROWS - 1) / SPRY_ACT_ROWS, 1, 1, SPRY_ENCODE_CORES_THREADS, &args);
    else
        spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, "spry_encode"), n_rows, 1, 1, SPRY_ENCODE_THREADS,
                         &args);
}

void spry_cuda_encode(spry_cuda_device *d, spry_encode_args args, const spry_cuda_product *products, size_t n_products,
                      size_t n_rows)
{
    if (spry_cuda_adapts(d, products, n_products))
        spry_cuda_adapt_from(d, &args);
    /* for all of them, and nothing else is wanted */
    bool cores = !args.plain && !args.source && args.n % 8 == 0 && !(args.weight && encodes_whole(&args));
    d->norms = encodes_whole(&args) ? 0 : d->scratch.act_norms;
    for (size_t i = 0; i < n_products; i++) {
        const spry_cuda_matrix *w = products[i].w;
        spry_act_form form = spry_cuda_form(w->type);
        spry_acts acts = spry_cuda_acts(d, w, args.n);
        acts.norms = d->norms;
        acts.cores = d->cores[form] = spry_cuda_cores(d, w->type, n_rows);
        args.to[form] = acts;
        cores = cores && acts.cores;
    }
    launch_encode(d, args, cores, n_rows);
}

static void launch_way(spry_cuda_device *d, const spry_product_way *way, const spry_product_args *args)
{
    void *kernel = spry_cuda_kernel(&d->context, way->name);
    if (way->share > 1)
        spry_cuda_launch_cluster(&d->context, kernel, way->share, way->blocks, 1, way->threads, way->shared_bytes,
                                 args);
    else if (way->blocks)
        spry_cuda_launch_shared(&d->context, kernel, 1, way->blocks, 1, way->threads, way->shared_bytes, args);
    else
        spry_cuda_launch_shared(&d->context, kernel, (args->n_tiles + way->tiles - 1) / way->tiles,
                                (args->n_rows + way->rows - 1) / way->rows, 1, way->threads, way->shared_bytes, args);
}

/* Products of one type. */
static void launch_products(spry_cuda_device *d, const spry_product_args *args, spry_dtype type)
{
    spry_product_way way = spry_cuda_pick(d, args, type);
    launch_way(d, &way, args);
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
        args.act.norms = d->norms;
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

/* Whether products normalise their rows themselves, by kernels of this kind. */
static bool normalises(const spry_cuda_device *d, const spry_encode_args *from, const spry_cuda_product *products,
                       size_t n_products, size_t n_rows, const char *kind)
{
    spry_product_way way;
    bool can = n_rows <= SPRY_ACT_ROWS && from->n % 4 == 0 && !encodes_whole(from) && !from->source && !from->plain &&
               !spry_cuda_adapts(d, products, n_products);
    for (size_t i = 0; i < n_products; i++)
        can = can && spry_cuda_form(products[i].w->type) != SPRY_ACT_THREE &&
              spry_cuda_pick_rows(&way, &d->context, products[i].w, kind, SPRY_ROWS_TILES, n_rows);
    return can;
}

/* Products of the type of `w`, one of them. */
static void launch_rows(spry_cuda_device *d, spry_product_args *args, spry_encode_args from, const spry_cuda_matrix *w,
                        const char *kind, size_t tiles)
{
    spry_product_way way;
    if (!spry_cuda_pick_rows(&way, &d->context, w, kind, tiles, args->n_rows))
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
    act.norms = d->scratch.act_norms;
    size_t room = (size_t)d->device.limits.max_rows * w->tiles.n_out * sizeof(float);
    act.cores = act.n_units * act.cores * spry_cuda_group_bytes(w->type) <= room ? act.cores : 0;
    return act;
}

/* More than 8 rows, by multiply_cores. */
static bool gate_cores(spry_cuda_device *d, spry_encode_args from, const spry_cuda_product both[2],
                       const spry_cuda_matrix *down, size_t n_rows)
{
    spry_product_way way;
    const spry_cuda_matrix *w = both[0].w;
    spry_act_form form = spry_cuda_form(down->type);
    size_t at = 0;
    spry_product_args args = gather_products(d, both, 2, n_rows, &at);
    args.act = gate_acts(d, w, n_rows);
    args.from.gate = from.gate;
    args.from.to[form] = spry_cuda_acts(d, down, w->tiles.n_out);
    args.from.to[form].cores = spry_cuda_cores(d, down->type, n_rows);
    if (from.n % 8 || from.source || from.plain || encodes_whole(&from) || spry_cuda_adapts(d, both, 2) ||
        !args.from.to[form].cores || !spry_cuda_pick_cores(&way, d, &args, w->type, true))
        return false;
    from.to[spry_cuda_form(w->type)] = args.act;
    launch_encode(d, from, true, n_rows);
    launch_way(d, &way, &args);
    d->cores[form] = args.from.to[form].cores;
    d->norms = 0;
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
    if (spry_cuda_form(down->type) != spry_cuda_form(both[0].w->type) || !normalises(d, &from, both, 2, n_rows, "gate"))
        return false;
    size_t at = 0;
    spry_product_args args = gather_products(d, both, 2, n_rows, &at);
    from.to[spry_cuda_form(down->type)] = spry_cuda_acts(d, down, gate->n_out);
    d->cores[spry_cuda_form(down->type)] = 0;
    d->norms = 0;
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
