/* GEMMs: choice of the kernel, launches, and the quantisation of activations. */

#include "device/cuda/cuda_gemm.h"

#include <string.h>

#include "device/cuda/smem_sizes.h"
#include "device/vulkan/vulkan_device.h"
#include "model/arch.h"

/* ---- choice of kernel -------------------------------------------------------------------------------------------- */

enum {
    SLOTS = 4, /* units of 64 inputs in flight per warp in gemm_small.cuh and gemv.cuh */
    WIDE_ROWS = 128,
    WIDE_BLOCKS = 100,
    STAGES = 3, /* pipeline stages of the multistage kernel */
};

/* Chooses a kernel for many rows; false if there is too little work for one. `work`: the number of pieces of 32 rows
 * and one tile. Until the GPU is full, the time of a kernel hardly depends on the number of rows, so split-K stays the
 * fastest for longer than its throughput suggests. */
static bool choose_large(spry_gemm_launch *launch, const spry_gemm_args *args, spry_dtype type)
{
    enum { FLOATS_WORK = 800, BYTES_WORK = 1500 };
    const spry_kernel_id *kernels = spry_cuda_weight_types[type].large;
    size_t work = (size_t)args->n_tiles * ((args->n_rows + 31) / 32);
    bool floats = type == SPRY_BF16 || type == SPRY_F16;
    if (args->n_rows <= 32 || work < (floats ? FLOATS_WORK : BYTES_WORK) ||
        (args->experts && args->expert_rows < WIDE_ROWS))
        return false;
    if (type == SPRY_F32) {
        *launch = (spry_gemm_launch){.kernel = kernels[0], .rows = 64, .tiles = 8};
    } else if (floats) {
        *launch = (spry_gemm_launch){.kernel = kernels[0], .rows = 64, .tiles = 8};
        launch->shared_bytes = STAGES * 8 * (2048 + spry_cuda_act_group_bytes(type)); /* 8 tiles and 8 groups of rows */
    } else {
        size_t blocks = (args->n_tiles + 7) / 8 * ((args->n_rows + WIDE_ROWS - 1) / WIDE_ROWS);
        size_t each = blocks < WIDE_BLOCKS ? 1 : 2;
        *launch = (spry_gemm_launch){.kernel = kernels[each - 1], .rows = WIDE_ROWS, .tiles = 4 * each};
    }
    return true;
}

/* Shared memory of all warps' rings, with `units` units of 64 inputs each. */
static size_t unit_ring_bytes(spry_dtype type, size_t units)
{
    return SPRY_SPLIT_K * units * spry_cuda_unit_bytes(type);
}

/* True if dynamic and static shared memory fit into a block. Kernels that are not checked need at most 99 KB, which
 * every GPU of compute capability 8 has. */
static bool fits_smem(const spry_cuda_context *c, size_t bytes, size_t besides)
{
    return bytes + besides <= c->shared_bytes;
}

/* Dynamic shared memory of a GEMV: the ring of gemv_block with all units of a warp, or as many as it holds, and the row
 * as row_fragment stores it. */
static size_t gemv_bytes(const spry_tiles *w, spry_dtype type, size_t columns, size_t matrices, size_t blocks)
{
    size_t lane = spry_cuda_weight_types[type].values / SPRY_WARP, depth = SPRY_GEMV_DEPTH(lane);
    size_t each = SPRY_GEMV_AT_ONCE(lane), most = (w->n_units + SPRY_SPLIT_K - 1) / SPRY_SPLIT_K;
    size_t slots = (columns + blocks - 1) / blocks * matrices * ((most + each - 1) / each);
    return unit_ring_bytes(type, (slots < depth ? slots : depth) * each) +
           w->n_units * spry_smem_row_unit(spry_cuda_act_terms(type));
}

/* A GEMV over columns of one tile, or of one tile of each of two matrices: two blocks per SM if there are enough
 * columns and they fit. */
static bool choose_gemv(spry_gemm_launch *launch, const spry_cuda_context *c, const spry_tiles *w, spry_dtype type,
                        spry_gemv_variant variant, size_t columns)
{
    enum { RESERVED = 1024 }; /* bytes of each block that the driver takes */
    size_t matrices = variant == SPRY_GEMV_GATE ? 2 : 1, still = spry_smem_gemv_sums(matrices);
    for (size_t each = spry_dtype_block(type) > 1 ? 2 : 1; each && type != SPRY_F32; each--) {
        size_t most = each * c->sm_count, blocks = columns < most ? columns : most;
        size_t bytes = gemv_bytes(w, type, columns, matrices, blocks);
        if (!fits_smem(c, each * (bytes + still), (each - 1) * RESERVED))
            continue;
        *launch = (spry_gemm_launch){.kernel = spry_cuda_weight_types[type].gemv[variant],
                                     .rows = SPRY_ACT_ROWS,
                                     .tiles = 1,
                                     .grid = blocks,
                                     .shared_bytes = bytes};
        return true;
    }
    return false;
}

/* Dynamic shared memory of gemm_small.cuh. */
static size_t small_bytes(spry_dtype type, size_t tiles)
{
    return unit_ring_bytes(type, tiles < SLOTS ? tiles : SLOTS);
}

/* At most 8 rows and many outputs: a block per SM loops over batches of tiles (gemm_small.cuh). */
static bool choose_streaming(spry_gemm_launch *launch, const spry_cuda_context *c, const spry_gemm_args *args,
                             spry_dtype type)
{
    enum { TILES = 8 };
    size_t sm_count = c->sm_count, bytes = small_bytes(type, TILES);
    if (args->n_rows > SPRY_ACT_ROWS || args->experts || type == SPRY_F32 || args->n_tiles < TILES * sm_count ||
        !fits_smem(c, bytes, spry_smem_small_sums(TILES)))
        return false;
    *launch = (spry_gemm_launch){.kernel = spry_cuda_weight_types[type].small[SPRY_SMALL_OUT_8],
                                 .rows = SPRY_ACT_ROWS,
                                 .tiles = (args->n_tiles + sm_count - 1) / sm_count,
                                 .shared_bytes = bytes};
    return true;
}

/* The split-K kernel whose blocks compute `groups` groups of 8 rows and `tiles` tiles. */
static spry_splitk_variant splitk_variant(size_t groups, size_t tiles)
{
    if (tiles > 1)
        return groups == 2 ? SPRY_SPLITK_2_2 : SPRY_SPLITK_4_4;
    return groups == 1 ? SPRY_SPLITK_1_1 : groups == 2 ? SPRY_SPLITK_2_1 : SPRY_SPLITK_4_1;
}

/* Picks the kernel. If no other kernel fits, it is split-K, with several tiles per block if there are enough blocks,
 * because the tiles of a block share the rows that the block loads. */
spry_gemm_launch spry_cuda_pick_gemm(const spry_cuda_device *d, const spry_gemm_args *args, spry_dtype type)
{
    enum { BLOCKS = 96 };
    enum { TILES_AT_ONCE = SPRY_PLAIN_THREADS / SPRY_WARP, TILES_WARPS = 16 }; /* warps per SM that are worth it */
    const spry_cuda_context *c = &d->context;
    size_t rows = SPRY_ACT_ROWS;
    while (rows < 4 * SPRY_ACT_ROWS && rows < args->n_rows)
        rows *= 2;
    spry_gemm_launch launch = {.rows = rows, .tiles = 1};
    if (c->vulkan)
        return spry_vulkan_pick_gemm(args, type);
    if (spry_cuda_pick_wgmma(&launch, d, args, type, false) || choose_large(&launch, args, type) ||
        (args->n_rows == 1 && !args->experts &&
         choose_gemv(&launch, c, &args->parts[0].weight, type, SPRY_GEMV_OUT, args->n_tiles)) ||
        choose_streaming(&launch, c, args, type))
        return launch;
    if (args->experts && args->expert_rows < launch.rows)
        launch.rows = SPRY_ACT_ROWS;
    if (args->experts && launch.rows == SPRY_ACT_ROWS && type != SPRY_F32 &&
        args->n_tiles * (args->n_rows / SPRY_ACT_ROWS) >= TILES_WARPS * c->sm_count)
        return (spry_gemm_launch){
            .kernel = spry_cuda_weight_types[type].tiles, .rows = SPRY_ACT_ROWS, .tiles = TILES_AT_ONCE};
    size_t groups = launch.rows / SPRY_ACT_ROWS, blocks = (args->n_rows + launch.rows - 1) / launch.rows;
    if (groups > 1 && args->n_tiles / groups * blocks >= BLOCKS)
        launch.tiles = groups;
    launch.shared_bytes = unit_ring_bytes(type, groups > 1 || type == SPRY_F32 ? 1 : SPRY_GEMM_PREFETCH);
    bool small = groups == 1 && !fits_smem(c, launch.shared_bytes, spry_smem_splitk_sums(groups)); /* 16-bit floats */
    if (small)
        launch.shared_bytes = unit_ring_bytes(type, SPRY_GEMM_PREFETCH_SMALL);
    spry_splitk_variant variant = small ? SPRY_SPLITK_SMALL : splitk_variant(groups, launch.tiles);
    launch.kernel = spry_cuda_weight_types[type].splitk[variant];
    return launch;
}

/* The kernel for 2 to 8 rows with a fused norm (or gate) that computes `tiles` tiles at a time. */
static spry_kernel_id small_kernel(spry_dtype type, bool gate, size_t tiles)
{
    const spry_kernel_id *kernels = spry_cuda_weight_types[type].small;
    if (gate)
        return kernels[tiles == 8 ? SPRY_SMALL_GATE_8 : SPRY_SMALL_GATE_4];
    return kernels[tiles == 4 ? SPRY_SMALL_NORM_4 : SPRY_SMALL_NORM_2];
}

bool spry_cuda_pick_fused(spry_gemm_launch *launch, const spry_cuda_context *c, const spry_tiles *w, spry_dtype type,
                          bool gate, size_t columns, size_t n_rows)
{
    size_t fewest = gate ? 4 : 2, n_tiles = gate ? 2 * columns : columns;
    if (c->vulkan)
        return false;
    if (n_rows == 1 && choose_gemv(launch, c, w, type, gate ? SPRY_GEMV_GATE : SPRY_GEMV_NORM, columns))
        return true;
    for (size_t n = n_tiles <= fewest * c->sm_count ? fewest : 2 * fewest; type != SPRY_F32 && n >= fewest; n /= 2) {
        size_t bytes = small_bytes(type, n), batches = (n_tiles + n - 1) / n;
        *launch = (spry_gemm_launch){.kernel = small_kernel(type, gate, n),
                                     .grid = batches < c->sm_count ? batches : c->sm_count,
                                     .shared_bytes = bytes};
        if (fits_smem(c, bytes, spry_smem_small_sums(n)))
            return true;
    }
    return false;
}

/* ---- wgmma ------------------------------------------------------------------------------------------------------- */

enum {
    FEW_ROWS = 8,      /* up to this many rows other kernels are faster */
    LARGE_ROWS = 129,  /* from this many rows on, work tiles have 128 rows */
    LARGE_ITEMS = 80,  /* from this many work tiles on, two consumer warpgroups are fastest */
    MOST_SHARE = 8,    /* maximum blocks of a cluster */
    SHARED_UNITS = 32, /* minimum units of K for split-K */
    OWN_UNITS = 8,     /* minimum units of K per block */
};

size_t spry_cuda_act_group_bytes(spry_dtype type)
{
    return spry_cuda_act_terms(type) * SPRY_ACT_TERM_BYTES;
}

/* Size of gemm_smem (gemm_wgmma_tiles.cuh): mbarriers, norms, stages, and the sums of the work tile; with split-K the
 * block stores the sums of each of its splits. */
size_t spry_cuda_wgmma_smem(spry_dtype type, spry_wgmma_config kind)
{
    size_t stages = kind.groups == 8                                ? SPRY_WGMMA_STAGES_64
                    : spry_cuda_act_format(type) == SPRY_ACT_BF16X2 ? SPRY_WGMMA_STAGES_128_X2
                                                                    : SPRY_WGMMA_STAGES_128;
    size_t outputs = kind.warpgroups * SPRY_TILE_GROUP * SPRY_TILE_ROWS, rows = kind.groups * SPRY_ACT_ROWS;
    size_t stage =
        kind.groups * spry_cuda_act_group_bytes(type) + outputs / SPRY_TILE_ROWS * spry_cuda_unit_bytes(type);
    size_t sums = kind.share > 1 ? SPRY_SPLIT_K / kind.share : 1;
    return SPRY_WGMMA_HEAD_BYTES + stages * stage + sums * rows * (outputs + 4) * sizeof(float);
}

static bool fits(const spry_cuda_device *d, spry_dtype type, spry_wgmma_config kind)
{
    return spry_cuda_wgmma_smem(type, kind) <= d->context.shared_bytes;
}

uint32_t spry_cuda_wgmma_groups(const spry_cuda_device *d, spry_dtype type, size_t n_rows)
{
    size_t rows = n_rows < LARGE_ROWS ? 64 : 128;
    bool can = d->context.has_wgmma && spry_cuda_act_format(type) != SPRY_ACT_BF16X3 &&
               fits(d, type, (spry_wgmma_config){8, 1, 1, 1});
    return can && n_rows > FEW_ROWS ? (uint32_t)((n_rows + rows - 1) / rows * (rows / SPRY_ACT_ROWS)) : 0;
}

/* Groups of four tiles, of all parts. */
static size_t tile_groups(const spry_gemm_args *args)
{
    size_t n = 0;
    for (size_t i = 0; i < args->n_parts; i++)
        n += (args->parts[i].weight.n_tiles + SPRY_TILE_GROUP - 1) / SPRY_TILE_GROUP;
    return n;
}

/* The number of blocks in a cluster that divide K among them, so that all SMs have work. Each block gets enough units
 * of K to be worth the exchange of sums.
 */
static size_t share_of(const spry_cuda_device *d, const spry_gemm_args *args, spry_dtype type, size_t items)
{
    size_t share = 1, units = args->parts[0].weight.n_units;
    for (size_t more = 2; units >= SHARED_UNITS && more * OWN_UNITS <= units && more * items <= d->context.sm_count;
         more *= 2)
        if (more <= MOST_SHARE && fits(d, type, (spry_wgmma_config){8, 1, 1, more}))
            share = more;
    return share;
}

spry_kernel_id spry_cuda_wgmma_kernel(spry_dtype type, bool gate, spry_wgmma_config kind)
{
    return spry_cuda_weight_types[type].wgmma[gate][kind.groups == 16 ? SPRY_WGMMA_16_2_1 : SPRY_WGMMA_8_1_2];
}

/* Chooses the kernel; returns the number of work tiles. */
static size_t pick_kind(spry_wgmma_config *kind, const spry_cuda_device *d, const spry_gemm_args *args, spry_dtype type)
{
    spry_wgmma_config large = {16, 2, 1, 1};
    size_t tiles = tile_groups(args), rows = large.groups * SPRY_ACT_ROWS;
    size_t items = (tiles + 1) / 2 * ((args->n_rows + rows - 1) / rows);
    *kind = large;
    if (args->n_rows >= LARGE_ROWS && items >= LARGE_ITEMS && fits(d, type, large))
        return items;
    items = tiles * ((args->n_rows + 63) / 64);
    *kind = (spry_wgmma_config){8, 1, 2, share_of(d, args, type, items)};
    return items;
}

bool spry_cuda_pick_wgmma(spry_gemm_launch *launch, const spry_cuda_device *d, const spry_gemm_args *args,
                          spry_dtype type, bool gate)
{
    spry_wgmma_config kind;
    if (!args->act.wgmma_groups)
        return false;
    size_t items = pick_kind(&kind, d, args, type), bytes = spry_cuda_wgmma_smem(type, kind);
    size_t at_once = d->context.sm_count * (2 * bytes <= d->context.shared_bytes ? kind.blocks : 1);
    *launch = (spry_gemm_launch){.blocks = items < at_once ? items : at_once,
                                 .share = kind.share,
                                 .kernel = spry_cuda_wgmma_kernel(type, gate, kind),
                                 .shared_bytes = bytes};
    return true;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

spry_activations spry_cuda_activations(const spry_cuda_device *d, const spry_cuda_matrix *w, size_t n)
{
    return (spry_activations){.values = d->scratch.act_values[spry_cuda_act_format(w->type)],
                              .n_units = (uint32_t)((n + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT)};
}

/* True if the norm, if any, is applied before the product and not to its sums. */
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
        spry_cuda_launch(&d->context, spry_quantise_wgmma_id, (n_rows + SPRY_ACT_ROWS - 1) / SPRY_ACT_ROWS,
                         (units + each - 1) / each, 1, &args);
    else
        spry_cuda_launch(&d->context, spry_quantise_id, n_rows, 1, 1, &args);
}

/* True if the rows are in the formats of all products already. */
static bool is_quantised(const spry_quantise_args *args, const spry_cuda_gemm *products, size_t n_products)
{
    bool so = n_products;
    for (size_t i = 0; i < n_products; i++)
        so = so && args->to[spry_cuda_act_format(products[i].w->type)].values;
    return so;
}

spry_cuda_rows spry_cuda_quantise(spry_cuda_device *d, spry_quantise_args args, const spry_cuda_gemm *products,
                                  size_t n_products, size_t n_rows, bool mma_layout)
{
    spry_cuda_rows rows = {.source = args.source};
    if (spry_cuda_has_lora(d, products, n_products))
        rows.plain = spry_cuda_lora_input(d, &args);
    if (!is_quantised(&args, products, n_products)) {
        /* the fast kernel, if all formats are in the wgmma layout and nothing else is wanted */
        bool wgmma = !args.plain && !args.source && args.n % 8 == 0 && !(args.weight && normalises_first(&args));
        for (size_t i = 0; i < n_products; i++) {
            const spry_cuda_matrix *w = products[i].w;
            spry_activations activations = spry_cuda_activations(d, w, args.n);
            activations.norms = normalises_first(&args) ? 0 : d->scratch.act_norms;
            activations.wgmma_groups = mma_layout ? 0 : spry_cuda_wgmma_groups(d, w->type, n_rows);
            args.to[spry_cuda_act_format(w->type)] = activations;
            wgmma = wgmma && activations.wgmma_groups;
        }
        launch_quantise(d, args, wgmma, n_rows);
    }
    memcpy(rows.in, args.to, sizeof rows.in);
    return rows;
}

static void launch_gemm(spry_cuda_device *d, const spry_gemm_launch *launch, const spry_gemm_args *args)
{
    spry_kernel_id kernel = launch->kernel;
    if (launch->share > 1)
        spry_cuda_launch_cluster(&d->context, kernel, launch->share, launch->blocks, 1, 0, launch->shared_bytes, args);
    else if (launch->blocks)
        spry_cuda_launch_shared(&d->context, kernel, 1, launch->blocks, 1, launch->shared_bytes, args);
    else if (launch->grid)
        spry_cuda_launch_shared(&d->context, kernel, launch->grid, 1, 1, launch->shared_bytes, args);
    else
        spry_cuda_launch_shared(&d->context, kernel, (args->n_tiles + launch->tiles - 1) / launch->tiles,
                                (args->n_rows + launch->rows - 1) / launch->rows, 1, launch->shared_bytes, args);
}

/* Launches products whose matrices have one weight type. */
static void launch_gemms(spry_cuda_device *d, const spry_gemm_args *args, spry_dtype type)
{
    spry_gemm_launch launch = spry_cuda_pick_gemm(d, args, type);
    launch_gemm(d, &launch, args);
}

/* Collects the next products of one type, as many as one launch takes; advances *at. */
static spry_gemm_args gather_gemms(const spry_cuda_device *d, const spry_cuda_gemm *products, size_t n_products,
                                   size_t n_rows, size_t *at)
{
    const spry_cuda_matrix *first = products[*at].w;
    spry_gemm_args args = {.n_rows = (uint32_t)n_rows, .from.eps = d->config->norm_eps};
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

/* The rows of x that a GEMM has quantised, or the input of a gate and up product, which has its own buffer. */
static spry_activations x_activations(const spry_cuda_device *d, const spry_cuda_matrix *w, size_t n_rows)
{
    return (spry_activations){.values = d->scratch.x_values,
                              .norms = d->scratch.act_norms,
                              .n_units = w->tiles.n_units,
                              .wgmma_groups = spry_cuda_wgmma_groups(d, w->type, n_rows)};
}

/* Makes a GEMM whose result is x quantise it for the next norm, if possible; returns these rows. */
static spry_cuda_rows fuse_next_norm(const spry_cuda_device *d, spry_gemm_args *args, const spry_cuda_gemm *product)
{
    spry_cuda_rows rows = {0};
    const spry_cuda_matrix *w = product->w, *const *next = w->next;
    if (!args->act.wgmma_groups || !w->next_norm || !next[0] || product->out != d->scratch.x || args->n_parts > 1 ||
        product->stride % SPRY_TILE_UNIT || spry_cuda_has_lora(d, product, 1))
        return rows;
    spry_act_format format = spry_cuda_act_format(next[0]->type);
    for (size_t i = 0; i < SPRY_GEMM_PARTS && next[i]; i++)
        if (spry_cuda_act_format(next[i]->type) != format || !spry_cuda_wgmma_groups(d, next[i]->type, args->n_rows) ||
            spry_cuda_has_lora(d, &(spry_cuda_gemm){.w = next[i]}, 1))
            return rows;
    rows.in[format] = x_activations(d, next[0], args->n_rows);
    args->from.weight = w->next_norm;
    args->from.n = next[0]->tiles.n_in;
    args->from.to[format] = rows.in[format];
    return rows;
}

spry_cuda_rows spry_cuda_gemms(spry_cuda_device *d, const spry_cuda_rows *rows, const spry_cuda_gemm *products,
                               size_t n_products, size_t n_rows, bool add, spry_cuda_expert_groups groups)
{
    spry_cuda_rows result = {0};
    for (size_t i = 0; i < n_products;) {
        spry_dtype type = products[i].w->type;
        spry_gemm_args args = gather_gemms(d, products, n_products, n_rows, &i);
        args.act = rows->in[spry_cuda_act_format(type)];
        args.experts = groups.experts;
        args.expert_rows = (uint32_t)groups.align;
        args.add = add;
        result = fuse_next_norm(d, &args, &products[i - 1]);
        launch_gemms(d, &args, type);
    }
    spry_cuda_lora(d, rows, products, n_products, n_rows, groups);
    return result;
}

spry_quantise_args spry_cuda_input(const spry_cuda_device *d, spry_cuda_memory norm, spry_cuda_memory bias,
                                   const spry_cuda_rows *x)
{
    const spry_config *c = d->config;
    spry_quantise_args args = {.in = d->scratch.x,
                               .weight = norm,
                               .bias = bias,
                               .centre = c->layer_norm,
                               .n = c->n_embd,
                               .gate = c->arch->gate};
    if (x)
        memcpy(args.to, x->in, sizeof args.to);
    return args;
}

/* True if the products can be computed by kernels with a fused norm. */
static bool normalises(const spry_cuda_device *d, const spry_quantise_args *from, const spry_cuda_gemm *products,
                       size_t n_products, size_t n_rows, bool gate)
{
    spry_gemm_launch launch;
    bool can = n_rows <= SPRY_ACT_ROWS && from->n % 4 == 0 && !normalises_first(from) && !from->source &&
               !from->plain && !spry_cuda_has_lora(d, products, n_products);
    for (size_t i = 0; i < n_products; i++)
        can = can && spry_cuda_act_format(products[i].w->type) != SPRY_ACT_BF16X3 &&
              spry_cuda_pick_fused(&launch, &d->context, &products[i].w->tiles, products[i].w->type, gate,
                                   products[i].w->tiles.n_tiles, n_rows);
    return can;
}

/* Launches products of one type with a fused norm. */
static void launch_fused(spry_cuda_device *d, spry_gemm_args *args, spry_quantise_args from, spry_dtype type, bool gate)
{
    spry_gemm_launch launch;
    if (!spry_cuda_pick_fused(&launch, &d->context, &args->parts[0].weight, type, gate,
                              gate ? args->n_tiles / 2 : args->n_tiles, args->n_rows))
        return; /* excluded by normalises() */
    from.in_stride = from.n;
    from.eps = d->config->norm_eps;
    args->from = from;
    launch_gemm(d, &launch, args);
}

/* Products with matrices whose inputs and outputs have limits: one by one, from rows of floats. */
static void limited_gemms(spry_cuda_device *d, spry_quantise_args from, const spry_cuda_gemm *products,
                          size_t n_products, size_t n_rows, bool add)
{
    memset(from.to, 0, sizeof from.to);
    from.plain = d->scratch.plain;
    spry_cuda_quantise(d, from, products, 0, n_rows, true);
    for (size_t i = 0; i < n_products; i++) {
        const spry_cuda_gemm *p = &products[i];
        const spry_limits *limits = p->w->limits;
        spry_quantise_args rows = {.in = d->scratch.plain, .n = from.n};
        if (limits) {
            const spry_limit_args in = {d->scratch.limited, rows.in,       from.n, from.n, from.n,
                                        limits->in_min,     limits->in_max};
            spry_cuda_launch(&d->context, spry_limit_rows_id, n_rows, 1, 1, &in);
            rows.in = d->scratch.limited;
        }
        const spry_cuda_rows quantised = spry_cuda_quantise(d, rows, p, 1, n_rows, false);
        spry_cuda_gemms(d, &quantised, p, 1, n_rows, add, (spry_cuda_expert_groups){0});
        if (limits) {
            const spry_limit_args out = {p->out,          p->out,         p->stride, p->stride, p->w->tiles.n_out,
                                         limits->out_min, limits->out_max};
            spry_cuda_launch(&d->context, spry_limit_rows_id, n_rows, 1, 1, &out);
        }
    }
}

spry_cuda_rows spry_cuda_quantise_gemms(spry_cuda_device *d, spry_quantise_args from, const spry_cuda_gemm *products,
                                        size_t n_products, size_t n_rows, bool add)
{
    if (d->config->arch->limited) {
        limited_gemms(d, from, products, n_products, n_rows, add);
        return (spry_cuda_rows){0};
    }
    if (!normalises(d, &from, products, n_products, n_rows, false)) {
        const spry_cuda_rows rows = spry_cuda_quantise(d, from, products, n_products, n_rows, false);
        return spry_cuda_gemms(d, &rows, products, n_products, n_rows, add, (spry_cuda_expert_groups){0});
    }
    for (size_t i = 0; i < n_products;) {
        const spry_cuda_matrix *first = products[i].w;
        spry_gemm_args args = gather_gemms(d, products, n_products, n_rows, &i);
        args.add = add;
        launch_fused(d, &args, from, first->type, false);
    }
    return (spry_cuda_rows){0};
}

/* gate and up for more than 8 rows, with wgmma. */
static bool gate_up_wgmma(spry_cuda_device *d, spry_quantise_args *result, spry_quantise_args from,
                          const spry_cuda_gemm both[2], const spry_cuda_matrix *down, size_t n_rows)
{
    spry_gemm_launch launch;
    const spry_cuda_matrix *w = both[0].w;
    spry_act_format format = spry_cuda_act_format(down->type);
    size_t at = 0;
    bool quantised = is_quantised(&from, both, 2);
    spry_gemm_args args = gather_gemms(d, both, 2, n_rows, &at);
    args.act = x_activations(d, w, n_rows);
    args.from.gate = from.gate;
    args.from.to[format] = spry_cuda_activations(d, down, w->tiles.n_out);
    args.from.to[format].wgmma_groups = spry_cuda_wgmma_groups(d, down->type, n_rows);
    if (from.n % 8 || from.source || from.plain || normalises_first(&from) || spry_cuda_has_lora(d, both, 2) ||
        !args.from.to[format].wgmma_groups || !spry_cuda_pick_wgmma(&launch, d, &args, w->type, true))
        return false;
    from.to[spry_cuda_act_format(w->type)] = args.act;
    if (!quantised)
        launch_quantise(d, from, true, n_rows);
    launch_gemm(d, &launch, &args);
    result->to[format] = args.from.to[format];
    return true;
}

bool spry_cuda_gate_up_gemms(spry_cuda_device *d, spry_quantise_args *result, spry_quantise_args from,
                             const spry_cuda_gemm both[2], const spry_cuda_matrix *down, size_t n_rows)
{
    const spry_tiles *gate = &both[0].w->tiles, *up = &both[1].w->tiles;
    if (both[0].w->type != both[1].w->type || gate->n_out != up->n_out || gate->n_out % SPRY_TILE_UNIT ||
        spry_cuda_has_lora(d, &(spry_cuda_gemm){.w = down}, 1))
        return false;
    if (n_rows > SPRY_ACT_ROWS)
        return gate_up_wgmma(d, result, from, both, down, n_rows);
    if (spry_cuda_act_format(down->type) != spry_cuda_act_format(both[0].w->type) ||
        !normalises(d, &from, both, 2, n_rows, true))
        return false;
    size_t at = 0;
    spry_gemm_args args = gather_gemms(d, both, 2, n_rows, &at);
    spry_act_format format = spry_cuda_act_format(down->type);
    from.to[format] = result->to[format] = spry_cuda_activations(d, down, gate->n_out);
    launch_fused(d, &args, from, both[0].w->type, true);
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
