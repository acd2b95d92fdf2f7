/* Which kernel of gemm_wgmma.cu multiplies, and by how many blocks: by the items there are, each some tiles and
 * some rows. */
#include <stdio.h>

#include "device/cuda/cuda_gemm.h"

enum {
    FEW_ROWS = 8,            /* for so many rows other kernels are faster, */
    FEW_ROWS_Q8 = 16,        /* and for so many where weights are quantised */
    LARGE_ROWS = 129,        /* from so many on rows lie in blocks of 128 */
    WARPGROUP_THREADS = 128, /* that multiply four tiles */
    PRODUCER_THREADS = 64,   /* and copy, or make norms; beside two teams as many as of a team */
    LARGE_ITEMS = 80,        /* from so many items of two teams on they are the fastest */
    MOST_SHARE = 8,          /* blocks of a cluster */
    SHARED_UNITS = 32,       /* that an item has at least whose inputs are shared */
    OWN_UNITS = 8,           /* and that each block has of them */
};

size_t spry_cuda_act_group_bytes(spry_dtype type)
{
    static const size_t bytes[SPRY_ACT_FORMATS] = {SPRY_WGMMA_Q8_BYTES, SPRY_WGMMA_TERM_BYTES,
                                                   2 * SPRY_WGMMA_TERM_BYTES, 3 * SPRY_WGMMA_TERM_BYTES};
    return bytes[spry_cuda_act_format(type)];
}

/* gemm_smem of gemm_wgmma.cuh: barriers, norms, stages, sums; of each split of a block where blocks share inputs.
 */
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
    bool can = d->context.has_wgmma && !d->mma_layout && spry_cuda_act_format(type) != SPRY_ACT_BF16X3 &&
               fits(d, type, (spry_wgmma_config){8, 1, 1, 1});
    size_t min_rows = spry_cuda_act_format(type) == SPRY_ACT_Q8 ? FEW_ROWS_Q8 : FEW_ROWS;
    bool enough = n_rows > min_rows && (n_rows >= LARGE_ROWS || spry_cuda_tuned(d, SPRY_TUNE_WGMMA) != 1);
    return can && enough ? (uint32_t)((n_rows + rows - 1) / rows * (rows / SPRY_ACT_ROWS)) : 0;
}

/* Groups of four tiles, of each part. */
static size_t tile_groups(const spry_gemm_args *args)
{
    size_t n = 0;
    for (size_t i = 0; i < args->n_parts; i++)
        n += (args->parts[i].weight.n_tiles + SPRY_TILE_GROUP - 1) / SPRY_TILE_GROUP;
    return n;
}

/* Blocks that share the inputs of an item, so that there is work for the whole GPU; each has enough of them to be worth
 * what exchanging sums takes. */
static size_t share_of(const spry_cuda_device *d, const spry_gemm_args *args, spry_dtype type, size_t items)
{
    size_t share = 1, units = args->parts[0].weight.n_units;
    for (size_t more = 2; units >= SHARED_UNITS && more * OWN_UNITS <= units && more * items <= d->context.sm_count;
         more *= 2)
        if (more <= MOST_SHARE && fits(d, type, (spry_wgmma_config){8, 1, 1, more}))
            share = more;
    return share;
}

void spry_cuda_wgmma_name(char name[SPRY_CUDA_KERNEL_NAME], spry_dtype type, bool gate, spry_wgmma_config kind)
{
    snprintf(name, SPRY_CUDA_KERNEL_NAME, "spry_gemm_%s_%s_%zu_%zu_%zu", gate ? "wgmma_gate" : "wgmma",
             spry_cuda_type_name(type), kind.groups, kind.warpgroups, kind.blocks);
}

/* The kernel, and the items it has. */
static size_t pick_kind(spry_wgmma_config *kind, const spry_cuda_device *d, const spry_gemm_args *args, spry_dtype type)
{
    spry_wgmma_config large = {16, 2, 1, 1};
    size_t tiles = tile_groups(args), rows = large.groups * SPRY_ACT_ROWS, sm_count = d->context.sm_count;
    size_t items = (tiles + 1) / 2 * ((args->n_rows + rows - 1) / rows);
    *kind = large;
    if (args->n_rows >= LARGE_ROWS && items >= LARGE_ITEMS && fits(d, type, large))
        return items;
    items = tiles * ((args->n_rows + 63) / 64);
    bool one = spry_cuda_act_format(type) == SPRY_ACT_Q8 && items <= sm_count;
    *kind = (spry_wgmma_config){8, 1, one ? 1 : 2, share_of(d, args, type, items)};
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
                                 .threads = kind.warpgroups == 2 ? 3 * WARPGROUP_THREADS
                                                                 : WARPGROUP_THREADS + PRODUCER_THREADS,
                                 .shared_bytes = bytes};
    spry_cuda_wgmma_name(launch->name, type, gate, kind);
    return true;
}
