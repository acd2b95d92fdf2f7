/* Attention of a layer as launches: choice of the kernels, RoPE and KV store, decode, split-KV and prefill. */
#include <math.h>

#include "device/cuda/cuda_state.h"
#include "device/cuda/smem_sizes.h"
#include "model/arch.h"

enum { ALL_AHEAD = 1 << 30 }; /* more positions than a text can have */

/* ---- choice of kernels ------------------------------------------------------------------------------------------- */

/* Prefill with wgmma. */
static void use_wgmma(spry_cuda_attention *attention, size_t blocks)
{
    attention->prefill = spry_cuda_head_kernels[blocks].prefill_wgmma;
    attention->prefill_warps = 8;
    attention->prefill_full_grid = 66; /* half of the 132 SMs of an H200, one block each */
    attention->prefill_bytes = spry_smem_prefill_wgmma(blocks);
    attention->uses_tma = true;
}

/* The mma kernels need F16 pages and a head size that is a multiple of 32; other cases use attention_simt.cu. Prefill
 * uses wgmma if the GPU has it. */
spry_cuda_attention spry_cuda_attention_of(const spry_cuda_context *gpu, const spry_config *c, spry_dtype type)
{
    if (c->n_kv_rank)
        return spry_cuda_mla_attention(type);
    size_t blocks = c->head_dim / 32, dims = 1, index = 0; /* dims = 1 << index */
    size_t warps = SPRY_HEAD_WARPS(blocks), part = blocks <= 4 ? blocks : 4;
    if (type == SPRY_F16 && c->head_dim % 32 == 0 && (blocks <= 4 || blocks == 8)) {
        const spry_head_kernels *kernels = &spry_cuda_head_kernels[blocks];
        size_t group = c->n_heads / c->n_kv_heads;
        spry_cuda_attention attention = {
            .split_kv = kernels->split_kv,
            .prefill = kernels->prefill,
            .decode = group <= SPRY_DECODE_GQA_MAX ? kernels->decode : SPRY_NO_KERNEL,
            .combine = spry_attend_combine_pages_id,
            .combine_prefill = spry_attend_combine_prefill_id,
            .multi_row = true,
            .chunk_pages = 1,
            .warps = warps,
            .prefill_warps = warps,
            .prefill_full_grid = 264,
            .queries = 16,
            .parts = blocks / part,
            .split_kv_bytes = spry_smem_split_kv(blocks),
            .prefill_bytes = spry_smem_prefill_mma(blocks),
            .decode_bytes = spry_smem_decode(blocks, warps) + spry_smem_partials(blocks, warps, group),
            .decode_fast_bytes = spry_smem_decode_fast(blocks, warps) + spry_smem_partials(blocks, warps, group)};
        if (gpu->has_wgmma && blocks >= 2 && blocks <= 4 && spry_smem_prefill_wgmma(blocks) <= gpu->shared_bytes)
            use_wgmma(&attention, blocks);
        return attention;
    }
    for (; dims * 32 < c->head_dim; dims *= 2)
        index++;
    return (spry_cuda_attention){
        .split_kv = spry_cuda_kv_kernels[type].split_kv[index],
        .prefill = spry_cuda_kv_kernels[type].prefill[index],
        .combine = spry_attend_combine_id,
        .chunk_pages = SPRY_SIMT_CHUNK_PAGES,
        .warps = SPRY_SIMT_CHUNK_PAGES,
        .prefill_warps = SPRY_SIMT_CHUNK_PAGES,
        .queries = dims <= 4 ? 4 : 16 / dims,
        .parts = 1,
    };
}

/* ---- heads ------------------------------------------------------------------------------------------------------- */

spry_kv_pages spry_cuda_layer_pages(const spry_cuda_device *d, uint32_t layer)
{
    const spry_kv_pool *pool = d->pool;
    return (spry_kv_pages){.pages = d->pages,
                           .page_bytes = pool->page_bytes,
                           .key_offset = spry_kv_offset(pool, d->config->kv_slot[layer], 0),
                           .value_offset = spry_kv_offset(pool, d->config->kv_slot[layer], 1),
                           .head_bytes = (uint32_t)pool->head_bytes,
                           .token_bytes = (uint32_t)pool->token_bytes,
                           .n_kv_heads = d->config->n_kv_heads,
                           .head_dim = d->config->head_dim};
}

/* RoPE pairs of a head in a layer. */
static uint32_t pairs_of(const spry_config *c, uint32_t layer)
{
    return c->rotated[layer] ? c->rope_dim / 2 : 0;
}

/* Norms of q and k that spry_rope_kv does not compute, before or after RoPE. */
static void normalise_heads(spry_cuda_device *d, const spry_cuda_layer *l, bool later)
{
    const spry_config *c = d->config;
    spry_qk_norm kind = c->arch->qk_norm;
    bool row = kind == SPRY_QK_NORM_ROW;
    const struct {
        spry_cuda_memory x, weight;
        uint32_t n_heads;
        bool wanted;
    } lists[] = {{d->scratch.q, l->q_norm, c->n_heads, later == (kind == SPRY_QK_NORM_HEAD_LATER)},
                 {d->scratch.k, kind == SPRY_QK_NORM_HEAD_LATER ? 0 : l->k_norm, c->n_kv_heads, !later}};
    if (!l->q_norm || kind < SPRY_QK_NORM_HEAD_LATER)
        return;
    for (size_t i = 0; i < SPRY_COUNT(lists); i++) {
        const spry_norm_args args = {.x = lists[i].x,
                                     .weight = lists[i].weight,
                                     .n = c->head_dim * (row ? lists[i].n_heads : 1),
                                     .n_groups = row ? 1 : lists[i].n_heads,
                                     .step = kind == SPRY_QK_NORM_EACH ? c->head_dim : 0,
                                     .eps = c->norm_eps,
                                     .centre = c->layer_norm};
        if (lists[i].wanted)
            spry_cuda_launch(&d->context, spry_norm_id, d->n_rows, args.n_groups, 1, &args);
    }
}

static void normalise_values(spry_cuda_device *d)
{
    const spry_config *c = d->config;
    const spry_norm_args args = {.x = d->scratch.v, .n = c->head_dim, .n_groups = c->n_kv_heads, .eps = c->norm_eps};
    spry_cuda_launch(&d->context, spry_norm_id, d->n_rows, c->n_kv_heads, 1, &args);
}

/* Arguments for head norms, RoPE and the KV store. */
static spry_rope_kv_args prepare_args(const spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    bool here = c->arch->qk_norm <= SPRY_QK_NORM_HEAD;
    return (spry_rope_kv_args){.q = s->q,
                               .k = s->k,
                               .v = s->v,
                               .q_norm = here ? l->q_norm : 0,
                               .k_norm = here ? l->k_norm : 0,
                               .cosine = s->cosine[c->sliding[layer]],
                               .sine = s->sine[c->sliding[layer]],
                               .rows = d->upload.memory + d->upload.rows,
                               .kv = spry_cuda_layer_pages(d, layer),
                               .n_rows = (uint32_t)d->n_rows,
                               .n_heads = c->n_heads,
                               .n_pairs = pairs_of(c, layer),
                               .interleaved = c->interleaved,
                               .eps = c->norm_eps};
}

/* Specialised kernels for heads of 64 or 128 values that RoPE rotates completely; NULL if the model's heads differ. */
static const spry_full_head_kernels *full_head_kernels(const spry_config *c, const spry_rope_kv_args *p)
{
    bool whole = (c->head_dim == 64 || c->head_dim == 128) && p->n_pairs == c->head_dim / 2;
    if (!whole || !p->q_norm != !p->k_norm || (p->q_norm && p->interleaved))
        return NULL;
    spry_full_heads heads = p->interleaved ? SPRY_HEADS_PAIRS : p->q_norm ? SPRY_HEADS_NORM : SPRY_HEADS_RAW;
    return &spry_cuda_full_head_kernels[heads][c->head_dim == 128];
}

static void rope_kv(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_rope_kv_args args = prepare_args(d, l, layer);
    const spry_full_head_kernels *full = d->pool->shape.type == SPRY_F16 ? full_head_kernels(c, &args) : NULL;
    spry_cuda_launch(&d->context, full ? full->rope_kv : spry_cuda_kv_kernels[d->pool->shape.type].rope_kv,
                     (d->n_rows + SPRY_ROPE_KV_ROWS - 1) / SPRY_ROPE_KV_ROWS,
                     c->n_heads + (l->k.type == SPRY_DTYPE_COUNT ? 0 : 2 * c->n_kv_heads), 1, &args);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* True if attention also quantises its output for the next product: head size a multiple of 32, and all rows combined
 * from partial results. */
static bool attention_quantises(const spry_cuda_device *d)
{
    size_t n_q = (size_t)d->config->n_heads * d->config->head_dim;
    return (!d->n_prefill_tiles || d->n_kv_splits) && !d->config->n_kv_rank && !d->config->arch->gated_attention &&
           d->config->head_dim % 32 == 0 && n_q % SPRY_TILE_UNIT == 0;
}

static spry_activations attention_activations(const spry_cuda_device *d, const spry_cuda_matrix *o)
{
    spry_activations activations = spry_cuda_activations(d, o, o->tiles.n_in);
    activations.wgmma_groups = spry_cuda_wgmma_groups(d, o->type, d->n_rows);
    return activations;
}

spry_attend_args spry_cuda_attend_args(const spry_cuda_device *d, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    size_t kind = c->sliding[layer];
    spry_attend_args args = {.out = s->attn,
                             .q = s->q,
                             .partial = s->partial,
                             .rows = d->upload.memory + d->upload.rows,
                             .entries = d->upload.memory + d->upload.entries,
                             .decode_rows = d->upload.memory + d->upload.decode_rows,
                             .decode_tiles = d->upload.memory + d->upload.decode_tiles,
                             .prefill_tiles = d->upload.memory + d->upload.prefill_tiles,
                             .rotation_cosine = s->rotation_cosine[kind],
                             .rotation_sine = s->rotation_sine[kind],
                             .sinks = d->model.layers[layer].sinks,
                             .kv = spry_cuda_layer_pages(d, layer),
                             .n_heads = c->n_heads,
                             .n_pairs = pairs_of(c, layer),
                             .interleaved = c->interleaved,
                             .window = kind ? c->window : 0,
                             .ahead = !c->bidirectional ? 0
                                      : kind            ? c->window - 1
                                                        : ALL_AHEAD,
                             .n_chunks = (uint32_t)d->n_chunks,
                             .chunk_pages = (uint32_t)d->attention.chunk_pages,
                             .scale = 1 / sqrtf(c->query_scalar),
                             .softcap = c->attn_softcap};
    const spry_cuda_matrix *o = &d->model.layers[layer].o;
    if (attention_quantises(d))
        args.to[spry_cuda_act_format(o->type)] = attention_activations(d, o);
    return args;
}

void spry_cuda_attend_prefill(spry_cuda_context *gpu, const spry_cuda_attention *attention,
                              const spry_attend_args *args, size_t n_prefill_tiles, size_t longest, size_t n_kv_splits)
{
    size_t each = attention->prefill_warps / attention->parts * attention->queries,
           queries = longest * (args->n_heads / args->kv.n_kv_heads);
    size_t batches = attention->combine_prefill ? (queries + each - 1) / each : 1;
    size_t parts = n_kv_splits ? n_kv_splits : 1, blocks = args->kv.n_kv_heads * batches;
    if (attention->uses_tma) { /* persistent blocks; with split-KV one block per job */
        const spry_attend_tma_args mapped = {attention->maps, *args, (uint32_t)batches, (uint32_t)n_prefill_tiles,
                                             (uint32_t)parts};
        blocks *= n_prefill_tiles * parts;
        spry_cuda_launch_shared(gpu, attention->prefill, n_kv_splits || blocks < gpu->sm_count ? blocks : gpu->sm_count,
                                1, 1, attention->prefill_bytes, &mapped);
    } else {
        spry_cuda_launch_shared(gpu, attention->prefill, blocks, n_prefill_tiles, parts, attention->prefill_bytes,
                                args);
    }
    if (n_kv_splits)
        spry_cuda_launch(gpu, attention->combine_prefill, n_prefill_tiles, args->n_heads, longest, args);
}

/* The partial results of prefill follow the partial results of decode rows. */
static void attend_prefill_split(spry_cuda_device *d, spry_attend_args args)
{
    if (d->n_kv_splits) {
        args.partial += d->n_decode_rows * d->n_chunks * spry_cuda_partial_floats(d->config) * sizeof(float);
        args.n_chunks = (uint32_t)d->n_kv_splits;
        args.chunk_pages = SPRY_SPLIT_KV_PAGES;
    }
    spry_cuda_attend_prefill(&d->context, &d->attention, &args, d->n_prefill_tiles, d->longest_prefill_tile,
                             d->n_kv_splits);
}

static void attend(spry_cuda_device *d, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_cuda_attention *attention = &d->attention;
    const spry_attend_args args = spry_cuda_attend_args(d, layer);
    size_t group = c->n_heads / c->n_kv_heads;
    size_t batches = (group + attention->queries - 1) / attention->queries * attention->parts;
    size_t pages = d->n_chunks * attention->chunk_pages;
    if (d->n_decode_rows) {
        spry_cuda_launch_shared(&d->context, attention->split_kv,
                                attention->multi_row ? d->n_decode_tiles : d->n_decode_rows, c->n_kv_heads * batches,
                                (pages + attention->warps - 1) / attention->warps, attention->split_kv_bytes, &args);
        spry_cuda_launch(&d->context, attention->combine, d->n_decode_rows, c->n_heads, 1, &args);
    }
    if (d->n_prefill_tiles)
        attend_prefill_split(d, args);
}

/* True if the fused decode kernel can process the step. */
static bool decodes(const spry_cuda_device *d)
{
    return d->config->arch->qk_norm != SPRY_QK_NORM_HEAD_LATER && d->attention.decode && d->context.sm90_up &&
           d->alone && !d->n_prefill_tiles;
}

/* The kernel of attention_decode_fast.cu; SPRY_NO_KERNEL if the model or its pages need the general kernel, or if the
 * blocks of a cluster have several pages per warp. */
static spry_kernel_id fast_decode_kernel(const spry_cuda_device *d, const spry_decode_args *args, size_t share,
                                         size_t pages)
{
    const spry_attend_args *a = &args->attend;
    const spry_full_head_kernels *kernels = full_head_kernels(d->config, &args->rope_kv);
    bool q8 = a->to[SPRY_ACT_Q8].values, single = pages <= share * d->attention.warps;
    spry_fast_pages kind = !single ? SPRY_PAGES_LONG : share == 1 ? SPRY_PAGES_SHORT : SPRY_PAGES_SINGLE;
    if (!kernels || a->sinks || a->softcap != 0 || d->pool->turns.end > 1 || !(q8 || a->to[SPRY_ACT_BF16].values) ||
        (share > 1 && !single))
        return SPRY_NO_KERNEL;
    return q8 ? kernels->decode_q8[kind] : kernels->decode_bf16[kind];
}

/* Fused decode attention. A cluster of `share` blocks divides the pages of one row. With many rows the clusters are
 * smaller; if even then not all blocks fit on the GPU, a block gets no more warps than there are pages. */
static void attend_decode(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    enum { SHARE = 8, FEWEST = 2 };
    const spry_cuda_attention *attention = &d->attention;
    const spry_decode_args args = {.rope_kv = prepare_args(d, l, layer), .attend = spry_cuda_attend_args(d, layer)};
    size_t share = SHARE, blocks = 2 * d->context.sm_count; /* blocks that fit */
    size_t n_kv = d->config->n_kv_heads, pages = d->n_chunks * attention->chunk_pages, warps = attention->warps;
    while (share > attention->parts &&
           (d->n_rows * n_kv * share > blocks || share / 2 / attention->parts * warps >= pages))
        share /= 2;
    share = share > attention->parts ? share : attention->parts;
    if (pages < warps && d->n_rows * n_kv * share > blocks)
        warps = pages > FEWEST ? pages : FEWEST;
    spry_kernel_id fast = fast_decode_kernel(d, &args, share, pages);
    spry_cuda_launch_cluster(&d->context, fast ? fast : attention->decode, share, n_kv, d->n_rows,
                             (unsigned)warps * SPRY_WARP, fast ? attention->decode_fast_bytes : attention->decode_bytes,
                             &args);
}

spry_quantise_args spry_cuda_attend(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer,
                                    const spry_cuda_rows *x)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    size_t n_q = (size_t)c->n_heads * c->head_dim, n_kv = (size_t)c->n_kv_heads * c->head_dim;
    size_t n_qkv = l->k.type == SPRY_DTYPE_COUNT ? 1 : 3;
    bool gated = c->arch->gated_attention;
    const spry_cuda_gemm qkv[] = {
        {gated ? s->raw : s->q, gated ? 2 * n_q : n_q, &l->q}, {s->k, n_kv, &l->k}, {s->v, n_kv, &l->v}};
    spry_cuda_quantise_gemms(d, spry_cuda_input(d, l->attn_norm, l->attn_norm_bias, x), qkv, n_qkv, d->n_rows, false);
    spry_cuda_charge_gemms(d, SPRY_OP_QKV, qkv, n_qkv, d->n_rows);
    if (gated)
        spry_cuda_head_gates(d, spry_gated_query_split_id, s->q);
    normalise_heads(d, l, false);
    if (c->arch->v_norm && n_qkv > 1)
        normalise_values(d);
    if (decodes(d) &&
        (n_qkv > 1 ||
         !c->n_shared_kv)) { /* the fused kernel stores keys, and a shared page holds the keys of another layer */
        attend_decode(d, l, layer);
    } else {
        if (n_qkv > 1 || c->n_shared_kv)
            rope_kv(d, l, layer);
        normalise_heads(d, l, true);
        spry_cuda_charge(d, SPRY_OP_ROPE, SPRY_F32, 0, 0);
        attend(d, layer);
    }
    if (gated)
        spry_cuda_head_gates(d, spry_gated_heads_apply_id, s->attn);
    spry_cuda_charge_attention(d, layer);
    spry_quantise_args result = {.in = s->attn, .n = l->o.tiles.n_in};
    if (attention_quantises(d))
        result.to[spry_cuda_act_format(l->o.type)] = attention_activations(d, &l->o);
    return result;
}
