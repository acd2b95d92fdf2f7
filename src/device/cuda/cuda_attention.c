/* Attention of a layer as launches: choice of the kernels, RoPE and KV store, decode, split-KV and prefill. */
#include <math.h>

#include "device/cuda/cuda_state.h"
#include "device/cuda/smem_sizes.h"
#include "device/vulkan/vulkan_device.h"
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

/* True if the mma kernels compute heads of this size: F16 pages, and a multiple of 32. Prefill uses wgmma if the GPU
 * has it. */
static bool has_mma_kernels(uint32_t head_dim, spry_dtype type)
{
    uint32_t blocks = head_dim / 32;
    return type == SPRY_F16 && head_dim % 32 == 0 && (blocks <= 4 || blocks == 8);
}

static spry_cuda_attention choose(const spry_cuda_context *gpu, const spry_config *c, spry_heads heads, spry_dtype type,
                                  bool simt)
{
    if (c->n_kv_rank)
        return spry_cuda_mla_attention(type);
    if (gpu->vulkan)
        return spry_vulkan_attention_of(heads.head_dim, type);
    size_t blocks = heads.head_dim / 32, dims = 1, index = 0; /* dims = 1 << index */
    size_t warps = SPRY_HEAD_WARPS(blocks), part = blocks <= 4 ? blocks : 4;
    if (!simt && has_mma_kernels(heads.head_dim, type)) {
        const spry_head_kernels *kernels = &spry_cuda_head_kernels[blocks];
        size_t group = c->n_heads / heads.n_kv_heads;
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
    for (; dims * 32 < heads.head_dim; dims *= 2)
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

/* Both kinds of layers share the tiles of a step, so both use kernels of one family. */
spry_cuda_attention spry_cuda_attention_of(const spry_cuda_context *gpu, const spry_config *c, spry_dtype type,
                                           bool slides)
{
    const spry_heads full = {c->n_kv_heads, c->head_dim, c->rope_dim};
    bool kinds = spry_config_has_kinds(c);
    bool simt = kinds && !(has_mma_kernels(c->head_dim, type) && has_mma_kernels(c->slide.head_dim, type));
    return choose(gpu, c, kinds && slides ? c->slide : full, type, simt);
}

/* ---- heads ------------------------------------------------------------------------------------------------------- */

/* The kind of a layer: 1 for sliding layers if their heads have other sizes, else 0. */
static size_t kind_of(const spry_cuda_device *d, uint32_t layer)
{
    return d->config->sliding[layer] && spry_config_has_kinds(d->config);
}

spry_kv_pages spry_cuda_layer_pages(const spry_cuda_device *d, uint32_t layer)
{
    const spry_kv_place place = spry_kv_place_of(d->pool, kind_of(d, layer), d->config->kv_slot[layer]);
    return (spry_kv_pages){.pages = d->pages,
                           .page_bytes = d->pool->page_bytes,
                           .key_offset = place.keys,
                           .value_offset = place.values,
                           .head_bytes = (uint32_t)place.head_bytes,
                           .token_bytes = (uint32_t)place.token_bytes,
                           .n_kv_heads = (uint32_t)place.n_heads,
                           .head_dim = (uint32_t)place.head_dim};
}

/* RoPE pairs of a head in a layer. */
static uint32_t pairs_of(const spry_config *c, uint32_t layer)
{
    return c->rotated[layer] ? spry_config_heads(c, layer).rope_dim / 2 : 0;
}

/* Norms of q and k that spry_rope_kv does not compute, before or after RoPE. */
static void normalise_heads(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer, bool later)
{
    const spry_config *c = d->config;
    const spry_heads h = spry_config_heads(c, layer);
    spry_qk_norm kind = c->arch->qk_norm;
    bool row = kind == SPRY_QK_NORM_ROW, bare = kind == SPRY_QK_NORM_BARE;
    const struct {
        spry_cuda_memory x, weight;
        uint32_t n_heads;
        bool wanted;
    } lists[] = {{d->scratch.q, l->q_norm, c->n_heads, later == (kind == SPRY_QK_NORM_HEAD_LATER)},
                 {d->scratch.k, kind == SPRY_QK_NORM_HEAD_LATER ? 0 : l->k_norm, h.n_kv_heads, !later}};
    if (bare ? !c->qk_norm || !c->rotated[layer] : !l->q_norm || kind < SPRY_QK_NORM_HEAD_LATER)
        return;
    for (size_t i = 0; i < SPRY_COUNT(lists); i++) {
        const spry_norm_args args = {.x = lists[i].x,
                                     .weight = lists[i].weight,
                                     .n = h.head_dim * (row ? lists[i].n_heads : 1),
                                     .n_groups = row ? 1 : lists[i].n_heads,
                                     .step = kind == SPRY_QK_NORM_EACH ? h.head_dim : 0,
                                     .eps = c->norm_eps,
                                     .centre = c->layer_norm};
        if (lists[i].wanted)
            spry_cuda_launch(&d->context, spry_norm_id, d->n_rows, args.n_groups, 1, &args);
    }
}

static void launch_heads(spry_cuda_device *d, spry_kernel_id kernel, uint32_t n_heads, spry_heads_args args)
{
    spry_cuda_launch(&d->context, kernel, d->n_rows, n_heads, 1, &args);
}

/* Prepares the values of a layer: copies its keys before their norm, if it has no values; pads the values of each head
 * with zeros, if they are shorter than keys; then applies a factor and a norm. */
static void take_values(spry_cuda_device *d, const spry_cuda_layer *l, spry_heads h)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    bool given = l->v.type != SPRY_DTYPE_COUNT;
    uint32_t n = given && c->value_dim ? c->value_dim : h.head_dim;
    const spry_heads_args copy = {.out = s->v,
                                  .in = !given         ? s->k
                                        : c->value_dim ? s->raw
                                                       : s->v,
                                  .out_dim = h.head_dim,
                                  .in_dim = n,
                                  .n = n,
                                  .scale = c->value_scale};
    const spry_norm_args norm = {.x = s->v, .n = h.head_dim, .n_groups = h.n_kv_heads, .eps = c->norm_eps};
    if (copy.in != copy.out || copy.scale != 1)
        launch_heads(d, spry_copy_heads_id, h.n_kv_heads, copy);
    if (c->arch->v_norm)
        spry_cuda_launch(&d->context, spry_norm_id, d->n_rows, h.n_kv_heads, 1, &norm);
}

/* Copies queries that have gates beside them from `raw`. */
static void take_queries(spry_cuda_device *d)
{
    uint32_t n = d->config->head_dim;
    launch_heads(d, spry_copy_heads_id, d->config->n_heads,
                 (spry_heads_args){
                     .out = d->scratch.q, .in = d->scratch.raw, .out_dim = n, .in_dim = 2 * n, .n = n, .scale = 1});
}

/* Applies the gates in `raw` to attention's result, and leaves out the zeros after values that are shorter than keys.
 * Returns the address of the result. */
static spry_cuda_memory take_results(spry_cuda_device *d, const spry_cuda_layer *l, spry_heads h)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    bool beside = c->arch->gated_attention;
    const spry_heads_args gate = {.out = s->attn,
                                  .in = s->raw,
                                  .out_dim = h.head_dim,
                                  .in_dim = beside ? 2 * h.head_dim : h.head_dim,
                                  .first = beside ? h.head_dim : 0,
                                  .n = h.head_dim};
    const spry_heads_args shorter = {
        .out = s->raw, .in = s->attn, .out_dim = c->value_dim, .in_dim = h.head_dim, .n = c->value_dim, .scale = 1};
    if (beside || l->attn_gate.type != SPRY_DTYPE_COUNT)
        launch_heads(d, spry_gate_heads_id, c->n_heads, gate);
    if (c->value_dim)
        launch_heads(d, spry_copy_heads_id, c->n_heads, shorter);
    return c->value_dim ? s->raw : s->attn;
}

void spry_cuda_cool(spry_cuda_device *d, spry_cuda_memory q, size_t head_dim, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_cool_args args = {.q = q,
                                 .rows = d->upload.memory + d->upload.rows,
                                 .n = (uint32_t)(c->n_heads * head_dim),
                                 .length = c->temperature_length,
                                 .offset = c->temperature_offset,
                                 .scale = c->temperature_scale};
    if (c->temperature_length && !(c->arch->cools_unrotated && c->rotated[layer]))
        spry_cuda_launch(&d->context, spry_cool_id, d->n_rows, 1, 1, &args);
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
static const spry_full_head_kernels *full_head_kernels(const spry_rope_kv_args *p)
{
    uint32_t n = p->kv.head_dim;
    bool whole = (n == 64 || n == 128) && p->n_pairs == n / 2;
    if (!whole || !p->q_norm != !p->k_norm || (p->q_norm && p->interleaved))
        return NULL;
    spry_full_heads heads = p->interleaved ? SPRY_HEADS_PAIRS : p->q_norm ? SPRY_HEADS_NORM : SPRY_HEADS_RAW;
    return &spry_cuda_full_head_kernels[heads][n == 128];
}

static void rope_kv(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const spry_rope_kv_args args = prepare_args(d, l, layer);
    const spry_full_head_kernels *full =
        d->pool->shape.type == SPRY_F16 && !d->context.vulkan ? full_head_kernels(&args) : NULL;
    spry_cuda_launch(&d->context, full ? full->rope_kv : spry_cuda_kv_kernels[d->pool->shape.type].rope_kv,
                     (d->n_rows + SPRY_ROPE_KV_ROWS - 1) / SPRY_ROPE_KV_ROWS,
                     args.n_heads + (l->k.type == SPRY_DTYPE_COUNT ? 0 : 2 * args.kv.n_kv_heads), 1, &args);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* True if attention also quantises its output for the next product: head size a multiple of 32, all rows combined from
 * partial results, and nothing done to the output in between. */
static bool attention_quantises(const spry_cuda_device *d, uint32_t layer)
{
    const spry_config *c = d->config;
    size_t n = spry_config_heads(c, layer).head_dim;
    return !d->context.vulkan && (!d->n_prefill_tiles || d->n_kv_splits) && !c->n_kv_rank &&
           !c->arch->gated_attention && !c->arch->attention_gate && !c->arch->limited && !c->value_dim && n % 32 == 0 &&
           c->n_heads * n % SPRY_TILE_UNIT == 0;
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
    bool windowed = c->windowed && c->windowed[layer];
    spry_attend_args args = {.out = s->attn,
                             .q = s->q,
                             .partial = s->partial,
                             .rows = d->upload.memory + (windowed ? d->upload.window_rows : d->upload.rows),
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
                             .block = kind && c->arch->chunked ? c->window : 0,
                             .ahead = !c->bidirectional ? 0
                                      : kind            ? c->window - 1
                                                        : ALL_AHEAD,
                             .both_ways = !c->bidirectional && (kind || !c->arch->sliding_two_way),
                             .n_chunks = (uint32_t)d->n_chunks,
                             .chunk_pages = (uint32_t)d->attention[kind_of(d, layer)].chunk_pages,
                             .scale = 1 / sqrtf(c->query_scalar),
                             .softcap = c->attn_softcap};
    const spry_cuda_matrix *o = &d->model.layers[layer].o;
    if (attention_quantises(d, layer))
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
static void attend_prefill_split(spry_cuda_device *d, spry_attend_args args, uint32_t layer)
{
    if (d->n_kv_splits) {
        args.partial += d->n_decode_rows * d->n_chunks * spry_cuda_partial_floats(d->config) * sizeof(float);
        args.n_chunks = (uint32_t)d->n_kv_splits;
        args.chunk_pages = SPRY_SPLIT_KV_PAGES;
    }
    spry_cuda_attend_prefill(&d->context, &d->attention[kind_of(d, layer)], &args, d->n_prefill_tiles,
                             d->longest_prefill_tile, d->n_kv_splits);
}

static void attend(spry_cuda_device *d, uint32_t layer)
{
    const spry_cuda_attention *attention = &d->attention[kind_of(d, layer)];
    const spry_attend_args args = spry_cuda_attend_args(d, layer);
    size_t n_kv = args.kv.n_kv_heads, group = args.n_heads / n_kv;
    size_t batches = (group + attention->queries - 1) / attention->queries * attention->parts;
    size_t pages = d->n_chunks * attention->chunk_pages;
    if (d->n_decode_rows) {
        spry_cuda_launch_shared(&d->context, attention->split_kv,
                                attention->multi_row ? d->n_decode_tiles : d->n_decode_rows, n_kv * batches,
                                (pages + attention->warps - 1) / attention->warps, attention->split_kv_bytes, &args);
        spry_cuda_launch(&d->context, attention->combine, d->n_decode_rows, args.n_heads, 1, &args);
    }
    if (d->n_prefill_tiles)
        attend_prefill_split(d, args, layer);
}

/* True if the fused decode kernel can process the step. */
static bool decodes(const spry_cuda_device *d, uint32_t layer)
{
    return d->config->arch->qk_norm != SPRY_QK_NORM_HEAD_LATER && d->attention[kind_of(d, layer)].decode &&
           d->context.sm90_up && d->alone && !d->n_prefill_tiles;
}

/* The kernel of attention_decode_fast.cu; SPRY_NO_KERNEL if the model or its pages need the general kernel, or if the
 * blocks of a cluster have several pages per warp. */
static spry_kernel_id fast_decode_kernel(const spry_cuda_device *d, const spry_decode_args *args, size_t warps,
                                         size_t share, size_t pages)
{
    const spry_attend_args *a = &args->attend;
    const spry_full_head_kernels *kernels = full_head_kernels(&args->rope_kv);
    bool single = pages <= share * warps;
    spry_fast_pages kind = !single ? SPRY_PAGES_LONG : share == 1 ? SPRY_PAGES_SHORT : SPRY_PAGES_SINGLE;
    if (!kernels || a->sinks || a->softcap != 0 || d->pool->turns.end > 1 || !a->to[SPRY_ACT_BF16].values ||
        (share > 1 && !single))
        return SPRY_NO_KERNEL;
    return kernels->decode[kind];
}

/* Fused decode attention. A cluster of `share` blocks divides the pages of one row. With many rows the clusters are
 * smaller; if even then not all blocks fit on the GPU, a block gets no more warps than there are pages. */
static void attend_decode(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    enum { SHARE = 8, FEWEST = 2 };
    const spry_cuda_attention *attention = &d->attention[kind_of(d, layer)];
    const spry_decode_args args = {.rope_kv = prepare_args(d, l, layer), .attend = spry_cuda_attend_args(d, layer)};
    size_t share = SHARE, blocks = 2 * d->context.sm_count; /* blocks that fit */
    size_t n_kv = args.attend.kv.n_kv_heads, pages = d->n_chunks * attention->chunk_pages, warps = attention->warps;
    while (share > attention->parts &&
           (d->n_rows * n_kv * share > blocks || share / 2 / attention->parts * warps >= pages))
        share /= 2;
    share = share > attention->parts ? share : attention->parts;
    if (pages < warps && d->n_rows * n_kv * share > blocks)
        warps = pages > FEWEST ? pages : FEWEST;
    spry_kernel_id fast = fast_decode_kernel(d, &args, attention->warps, share, pages);
    spry_cuda_launch_cluster(&d->context, fast ? fast : attention->decode, share, n_kv, d->n_rows,
                             (unsigned)warps * SPRY_WARP, fast ? attention->decode_fast_bytes : attention->decode_bytes,
                             &args);
}

/* Projects to queries, keys and values as far as a layer has them, and to gates; returns whether it has keys. */
static bool project(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer, const spry_cuda_rows *x)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    const spry_heads h = spry_config_heads(c, layer);
    size_t n_q = (size_t)c->n_heads * h.head_dim, n_kv = (size_t)h.n_kv_heads * h.head_dim, n = 0;
    bool gated = c->arch->gated_attention;
    const spry_cuda_gemm all[] = {
        {gated ? s->raw : s->q, gated ? 2 * n_q : n_q, &l->q},
        {s->k, n_kv, &l->k},
        {c->value_dim ? s->raw : s->v, c->value_dim ? (size_t)h.n_kv_heads * c->value_dim : n_kv, &l->v},
        {s->raw, n_q, &l->attn_gate}};
    spry_cuda_gemm there[SPRY_COUNT(all)];
    for (size_t i = 0; i < SPRY_COUNT(all); i++)
        if (all[i].w->type != SPRY_DTYPE_COUNT)
            there[n++] = all[i];
    spry_cuda_quantise_gemms(d, spry_cuda_input(d, l->attn_norm, l->attn_norm_bias, x), there, n, d->n_rows, false);
    spry_cuda_charge_gemms(d, SPRY_OP_QKV, there, n, d->n_rows);
    spry_cuda_scale_products(d, there, n);
    return l->k.type != SPRY_DTYPE_COUNT;
}

spry_quantise_args spry_cuda_attend(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer,
                                    const spry_cuda_rows *x)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    const spry_heads h = spry_config_heads(c, layer);
    bool own = project(d, l, layer, x), cools_later = l->q_norm != 0;
    if (c->arch->gated_attention)
        take_queries(d);
    if (own)
        take_values(d, l, h);
    normalise_heads(d, l, layer, false);
    if (!cools_later)
        spry_cuda_cool(d, s->q, h.head_dim, layer);
    /* the fused kernel stores keys, and a shared page holds the keys of another layer */
    if (decodes(d, layer) && (own || !c->n_shared_kv) && !(cools_later && c->temperature_length)) {
        attend_decode(d, l, layer);
    } else {
        if (own || c->n_shared_kv)
            rope_kv(d, l, layer);
        normalise_heads(d, l, layer, true);
        if (cools_later)
            spry_cuda_cool(d, s->q, h.head_dim, layer);
        spry_cuda_charge(d, SPRY_OP_ROPE, SPRY_F32, 0, 0);
        attend(d, layer);
    }
    spry_quantise_args result = {.in = take_results(d, l, h), .n = l->o.tiles.n_in};
    spry_cuda_charge_attention(d, layer);
    if (attention_quantises(d, layer))
        result.to[spry_cuda_act_format(l->o.type)] = attention_activations(d, &l->o);
    return result;
}
