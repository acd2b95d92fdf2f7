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
    size_t units = (args.n + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT, each = SPRY_ENCODE_CORES_UNITS;
    if (cores)
        spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, "spry_encode_cores"),
                         (n_rows + SPRY_ACT_ROWS - 1) / SPRY_ACT_ROWS, (units + each - 1) / each, 1,
                         (unsigned)each * 32, &args);
    else
        spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, "spry_encode"), n_rows, 1, 1, SPRY_ENCODE_THREADS,
                         &args);
}

/* Whether the rows of x are encoded for the norm already. They are taken once: products of the next step have the same
 * norm. */
static bool was_encoded(spry_cuda_device *d, const spry_encode_args *args)
{
    bool so = d->encoded.norm && args->in == d->scratch.x && args->weight == d->encoded.norm;
    if (so)
        d->acts[d->encoded.form] = d->encoded.acts;
    d->encoded.norm = 0;
    return so;
}

void spry_cuda_encode(spry_cuda_device *d, spry_encode_args args, const spry_cuda_product *products, size_t n_products,
                      size_t n_rows)
{
    if (spry_cuda_adapts(d, products, n_products))
        spry_cuda_adapt_from(d, &args);
    if (was_encoded(d, &args))
        return;
    /* for all of them, and nothing else is wanted */
    bool cores = !args.plain && !args.source && args.n % 8 == 0 && !(args.weight && encodes_whole(&args));
    for (size_t i = 0; i < n_products; i++) {
        const spry_cuda_matrix *w = products[i].w;
        spry_act_form form = spry_cuda_form(w->type);
        spry_acts acts = spry_cuda_acts(d, w, args.n);
        acts.norms = encodes_whole(&args) ? 0 : d->scratch.act_norms;
        acts.cores = spry_cuda_cores(d, w->type, n_rows);
        args.to[form] = d->acts[form] = acts;
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
    spry_product_args args = {
        .act = d->acts[spry_cuda_form(first->type)], .n_rows = (uint32_t)n_rows, .from.eps = d->config->norm_eps};
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

/* Where rows of x lie that a product of many rows has encoded, or whose gates it writes to the place of other rows. */
static spry_acts x_acts(const spry_cuda_device *d, const spry_cuda_matrix *w, size_t n_rows)
{
    return (spry_acts){.values = d->scratch.x_values,
                       .norms = d->scratch.act_norms,
                       .n_units = w->tiles.n_units,
                       .cores = spry_cuda_cores(d, w->type, n_rows)};
}

/* Lets a product of many rows, whose result is x, encode it for what follows; where that cannot be, it changes nothing.
 */
static void encode_next(spry_cuda_device *d, spry_product_args *args, const spry_cuda_product *product)
{
    const spry_cuda_matrix *w = product->w, *const *next = w->next;
    if (!args->act.cores || !w->next_norm || !next[0] || product->out != d->scratch.x || args->n_parts > 1 ||
        product->stride % SPRY_TILE_UNIT || spry_cuda_adapts(d, product, 1))
        return;
    spry_act_form form = spry_cuda_form(next[0]->type);
    for (size_t i = 0; i < SPRY_PRODUCT_PARTS && next[i]; i++)
        if (spry_cuda_form(next[i]->type) != form || !spry_cuda_cores(d, next[i]->type, args->n_rows) ||
            spry_cuda_adapts(d, &(spry_cuda_product){.w = next[i]}, 1))
            return;
    d->encoded = (spry_cuda_encoded){w->next_norm, form, x_acts(d, next[0], args->n_rows)};
    args->from.weight = w->next_norm;
    args->from.n = next[0]->tiles.n_in;
    args->from.to[form] = d->encoded.acts;
}

void spry_cuda_products(spry_cuda_device *d, const spry_cuda_product *products, size_t n_products, size_t n_rows,
                        bool add, spry_cuda_groups groups)
{
    for (size_t i = 0; i < n_products;) {
        spry_dtype type = products[i].w->type;
        spry_product_args args = gather_products(d, products, n_products, n_rows, &i);
        args.act.cores = d->lanes ? 0 : args.act.cores;
        args.experts = groups.experts;
        args.expert_rows = (uint32_t)groups.align;
        args.add = add;
        encode_next(d, &args, &products[i - 1]);
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

/* More than 8 rows, by multiply_cores. */
static bool gate_cores(spry_cuda_device *d, spry_encode_args from, const spry_cuda_product both[2],
                       const spry_cuda_matrix *down, size_t n_rows)
{
    spry_product_way way;
    const spry_cuda_matrix *w = both[0].w;
    spry_act_form form = spry_cuda_form(down->type);
    size_t at = 0;
    spry_product_args args = gather_products(d, both, 2, n_rows, &at);
    args.act = x_acts(d, w, n_rows);
    args.from.gate = from.gate;
    args.from.to[form] = spry_cuda_acts(d, down, w->tiles.n_out);
    args.from.to[form].cores = spry_cuda_cores(d, down->type, n_rows);
    if (from.n % 8 || from.source || from.plain || encodes_whole(&from) || spry_cuda_adapts(d, both, 2) ||
        !args.from.to[form].cores || !spry_cuda_pick_cores(&way, d, &args, w->type, true))
        return false;
    from.to[spry_cuda_form(w->type)] = args.act;
    if (!was_encoded(d, &from))
        launch_encode(d, from, true, n_rows);
    launch_way(d, &way, &args);
    d->acts[form] = args.from.to[form];
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
    spry_act_form form = spry_cuda_form(down->type);
    from.to[form] = d->acts[form] = spry_cuda_acts(d, down, gate->n_out);
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
