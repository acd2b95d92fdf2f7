/* Which kernel of products_cores.cu multiplies, and by how many blocks: by the items there are, each some tiles and
 * some rows. */
#include <stdio.h>

#include "device/cuda/cuda_products.h"

enum {
    FEW_ROWS = 8,       /* for so many rows other kernels are faster, */
    FEW_BYTES = 16,     /* and for so many where weights are quantised */
    MANY_ROWS = 129,    /* from so many on rows lie in blocks of 128 */
    TEAM_THREADS = 128, /* that multiply four tiles */
    OTHER_THREADS = 64, /* and copy, or make norms; beside two teams as many as of a team */
    LARGE_ITEMS = 80,   /* from so many items of two teams on they are the fastest */
    MOST_SHARE = 8,     /* blocks of a cluster */
    SHARED_UNITS = 32,  /* that an item has at least whose inputs are shared */
    OWN_UNITS = 8,      /* and that each block has of them */
};

size_t spry_cuda_group_bytes(spry_dtype type)
{
    static const size_t bytes[SPRY_ACT_FORMS] = {SPRY_CORE_BYTES, SPRY_CORE_TERM, 2 * SPRY_CORE_TERM,
                                                 3 * SPRY_CORE_TERM};
    return bytes[spry_cuda_form(type)];
}

/* core_ring of products_cores.cuh: barriers, norms, stages, sums; of each split of a block where blocks share inputs.
 */
size_t spry_cuda_cores_bytes(spry_dtype type, spry_core_kind kind)
{
    size_t stages = kind.groups == 8                       ? SPRY_CORE_STAGES_8
                    : spry_cuda_form(type) == SPRY_ACT_TWO ? SPRY_CORE_STAGES_TWO
                                                           : SPRY_CORE_STAGES_16;
    size_t outputs = kind.teams * SPRY_TILES_TOGETHER * SPRY_TILE_ROWS, rows = kind.groups * SPRY_ACT_ROWS;
    size_t stage = kind.groups * spry_cuda_group_bytes(type) + outputs / SPRY_TILE_ROWS * spry_cuda_unit_bytes(type);
    size_t sums = kind.share > 1 ? SPRY_PRODUCT_SPLITS / kind.share : 1;
    return SPRY_CORE_HEAD + stages * stage + sums * rows * (outputs + 4) * sizeof(float);
}

static bool fits(const spry_cuda_device *d, spry_dtype type, spry_core_kind kind)
{
    return spry_cuda_cores_bytes(type, kind) <= d->context.shared_bytes;
}

uint32_t spry_cuda_cores(const spry_cuda_device *d, spry_dtype type, size_t n_rows)
{
    size_t rows = n_rows < MANY_ROWS ? 64 : 128;
    bool can = d->context.cores && !d->lanes && spry_cuda_form(type) != SPRY_ACT_THREE &&
               fits(d, type, (spry_core_kind){8, 1, 1, 1});
    size_t few = spry_cuda_form(type) == SPRY_ACT_BYTES ? FEW_BYTES : FEW_ROWS;
    bool enough = n_rows > few && (n_rows >= MANY_ROWS || spry_cuda_chosen(d, SPRY_CHOICE_CORES) != 1);
    return can && enough ? (uint32_t)((n_rows + rows - 1) / rows * (rows / SPRY_ACT_ROWS)) : 0;
}

/* Groups of four tiles, of each part. */
static size_t tile_groups(const spry_product_args *args)
{
    size_t n = 0;
    for (size_t i = 0; i < args->n_parts; i++)
        n += (args->parts[i].weight.n_tiles + SPRY_TILES_TOGETHER - 1) / SPRY_TILES_TOGETHER;
    return n;
}

/* Blocks that share the inputs of an item, so that there is work for the whole GPU; each has enough of them to be worth
 * what exchanging sums takes. */
static size_t share_of(const spry_cuda_device *d, const spry_product_args *args, spry_dtype type, size_t items)
{
    size_t share = 1, units = args->parts[0].weight.n_units;
    for (size_t more = 2; units >= SHARED_UNITS && more * OWN_UNITS <= units && more * items <= d->context.processors;
         more *= 2)
        if (more <= MOST_SHARE && fits(d, type, (spry_core_kind){8, 1, 1, more}))
            share = more;
    return share;
}

void spry_cuda_cores_name(char name[SPRY_CUDA_KERNEL_NAME], spry_dtype type, bool gate, spry_core_kind kind)
{
    snprintf(name, SPRY_CUDA_KERNEL_NAME, "spry_product_%s_%s_%zu_%zu_%zu", spry_cuda_type_name(type),
             gate ? "gates" : "cores", kind.groups, kind.teams, kind.blocks);
}

/* The kernel, and the items it has. */
static size_t pick_kind(spry_core_kind *kind, const spry_cuda_device *d, const spry_product_args *args, spry_dtype type)
{
    spry_core_kind large = {16, 2, 1, 1};
    size_t tiles = tile_groups(args), rows = large.groups * SPRY_ACT_ROWS, processors = d->context.processors;
    size_t items = (tiles + 1) / 2 * ((args->n_rows + rows - 1) / rows);
    *kind = large;
    if (args->n_rows >= MANY_ROWS && items >= LARGE_ITEMS && fits(d, type, large))
        return items;
    items = tiles * ((args->n_rows + 63) / 64);
    bool one = spry_cuda_form(type) == SPRY_ACT_BYTES && items <= processors;
    *kind = (spry_core_kind){8, 1, one ? 1 : 2, share_of(d, args, type, items)};
    return items;
}

bool spry_cuda_pick_cores(spry_product_way *way, const spry_cuda_device *d, const spry_product_args *args,
                          spry_dtype type, bool gate)
{
    spry_core_kind kind;
    if (!args->act.cores)
        return false;
    size_t items = pick_kind(&kind, d, args, type), bytes = spry_cuda_cores_bytes(type, kind);
    size_t at_once = d->context.processors * (2 * bytes <= d->context.shared_bytes ? kind.blocks : 1);
    *way = (spry_product_way){.blocks = items < at_once ? items : at_once,
                              .share = kind.share,
                              .threads = kind.teams == 2 ? 3 * TEAM_THREADS : TEAM_THREADS + OTHER_THREADS,
                              .shared_bytes = bytes};
    spry_cuda_cores_name(way->name, type, gate, kind);
    return true;
}
