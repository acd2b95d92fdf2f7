/* Attention of a layer as launches: choice of the kernels, RoPE and KV store, decode, split-KV and prefill. */
#include <math.h>
#include <stdio.h>

#include "device/cuda/cuda_state.h"
#include "model/arch.h"

enum { ROW_THREADS = 256, COMBINE_THREADS = 128 };
enum { ALL_AHEAD = 1 << 30 }; /* more positions than a text can have */

static const char *kv_name(const spry_cuda_device *d)
{
    return spry_cuda_type_name(d->pool->shape.type);
}

/* ---- choice of kernels ------------------------------------------------------------------------------------------- */

/* page_copy of attention_mma.cuh: the keys of a page and `kept` blocks of 32 values. */
static size_t copy_bytes(size_t blocks, size_t kept)
{
    return blocks * 2048 + 32 * (size_t)(kept <= 2 ? 128 : kept <= 4 ? 256 : 512);
}

/* decode_smem of attention_decode.cuh, and one partial result per warp. */
static size_t decode_bytes(size_t blocks, size_t warps, size_t group)
{
    size_t queries = SPRY_DECODE_GQA_MAX * (blocks * 32 + 8) * sizeof(float);
    size_t partials = (group + 1) / 2 * warps * (SPRY_PARTIAL_HEADER + 2 * blocks * 32) * sizeof(float);
    return (1 + warps) * queries + warps * SPRY_DECODE_GQA_MAX * 20 * sizeof(uint32_t) +
           2 * blocks * 32 * sizeof(float) + partials;
}

/* fast_smem of attention_decode_fast.cu, and one partial result per warp. */
static size_t decode_fast_bytes(size_t blocks, size_t warps, size_t group)
{
    size_t heads = (SPRY_DECODE_GQA_MAX + 1) * (blocks * 16 + 16) * sizeof(uint32_t) + blocks * 16 * sizeof(uint32_t);
    size_t of_warp = 34 * 4 * sizeof(float) + SPRY_DECODE_GQA_MAX * 20 * sizeof(uint32_t);
    return heads + warps * of_warp + (group + 1) / 2 * warps * (SPRY_PARTIAL_HEADER + 2 * blocks * 32) * sizeof(float);
}

/* prefill_smem of attention_wgmma.cu: five pairs of pages with entries and mbarriers; totals of 256 threads; queries of
 * 8 warps. */
static size_t wgmma_prefill_bytes(size_t blocks)
{
    return 8 * 40 + 10 * (blocks * 4096 + sizeof(spry_step_entry) + sizeof(uint64_t)) +
           (blocks * 16 + 1) * 256 * sizeof(float);
}

/* Prefill with wgmma. */
static void use_wgmma(spry_cuda_attention *attention, size_t blocks)
{
    attention->prefill = "spry_attend_prefill_wgmma_%zu";
    attention->prefill_warps = 8;
    attention->producer_warps = 4;
    attention->prefill_full_grid = 66; /* one block per SM */
    attention->prefill_bytes = wgmma_prefill_bytes(blocks);
    attention->uses_tma = true;
}

/* The mma kernels need F16 pages and a head size that is a multiple of 32; other cases use attention_simt.cu. Prefill
 * uses wgmma if the GPU has it. */
spry_cuda_attention spry_cuda_attention_of(const spry_cuda_context *gpu, const spry_config *c, spry_dtype type)
{
    if (c->n_kv_rank)
        return spry_cuda_mla_attention();
    size_t blocks = c->head_dim / 32, dims = 1;
    size_t warps = blocks <= 4 ? 4 : 2, part = blocks <= 4 ? blocks : 4, queries = warps * blocks * 1024;
    if (type == SPRY_F16 && c->head_dim % 32 == 0 && (blocks <= 4 || blocks == 8)) {
        spry_cuda_attention attention = {
            .split_kv = "spry_attend_split_kv_mma_%zu",
            .prefill = "spry_attend_prefill_mma_%zu",
            .decode = c->n_heads / c->n_kv_heads <= SPRY_DECODE_GQA_MAX ? "spry_attend_decode_%zu" : NULL,
            .combine = "spry_attend_combine_pages",
            .combine_prefill = "spry_attend_combine_prefill",
            .number = blocks,
            .multi_row = true,
            .chunk_pages = 1,
            .warps = warps,
            .prefill_warps = warps,
            .prefill_full_grid = 264,
            .queries = 16,
            .parts = blocks / part,
            .split_kv_bytes = queries + warps * copy_bytes(blocks, part),
            .prefill_bytes = queries + 2 * copy_bytes(blocks, blocks) + warps * 32 * 4 * sizeof(float),
            .decode_bytes = decode_bytes(blocks, warps, c->n_heads / c->n_kv_heads),
            .decode_fast_bytes = decode_fast_bytes(blocks, warps, c->n_heads / c->n_kv_heads)};
        if (gpu->has_wgmma && blocks >= 2 && blocks <= 4 && wgmma_prefill_bytes(blocks) <= gpu->shared_bytes)
            use_wgmma(&attention, blocks);
        return attention;
    }
    while (dims * 32 < c->head_dim)
        dims *= 2;
    return (spry_cuda_attention){
        .split_kv = type == SPRY_F16   ? "spry_attend_split_kv_f16_%zu"
                    : type == SPRY_F32 ? "spry_attend_split_kv_f32_%zu"
                                       : "spry_attend_split_kv_q8_0_%zu",
        .prefill = type == SPRY_F16   ? "spry_attend_prefill_f16_%zu"
                   : type == SPRY_F32 ? "spry_attend_prefill_f32_%zu"
                                      : "spry_attend_prefill_q8_0_%zu",
        .combine = "spry_attend_combine",
        .number = dims,
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
                                     .centre = c->arch->layer_norm};
        if (lists[i].wanted)
            spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, "spry_norm"), d->n_rows, args.n_groups, 1,
                             ROW_THREADS, &args);
    }
}

static void normalise_values(spry_cuda_device *d)
{
    const spry_config *c = d->config;
    const spry_norm_args args = {.x = d->scratch.v, .n = c->head_dim, .n_groups = c->n_kv_heads, .eps = c->norm_eps};
    spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, "spry_norm"), d->n_rows, c->n_kv_heads, 1, ROW_THREADS,
                     &args);
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

/* The kernel variant for heads of 64 or 128 that RoPE rotates fully; NULL: there is none. */
static const char *full_head_kind(const spry_config *c, const spry_rope_kv_args *p)
{
    bool whole = (c->head_dim == 64 || c->head_dim == 128) && p->n_pairs == c->head_dim / 2;
    if (!whole || !p->q_norm != !p->k_norm || (p->q_norm && p->interleaved))
        return NULL;
    return p->interleaved ? "pairs" : p->q_norm ? "norm" : "raw";
}

static void rope_kv(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_rope_kv_args args = prepare_args(d, l, layer);
    const char *whole = full_head_kind(c, &args);
    char name[SPRY_CUDA_KERNEL_NAME];
    if (whole && d->pool->shape.type == SPRY_F16)
        snprintf(name, sizeof name, "spry_rope_kv_%s_%u", whole, c->head_dim / 32);
    else
        snprintf(name, sizeof name, "spry_rope_kv_%s", kv_name(d));
    spry_cuda_launch(
        &d->context, spry_cuda_kernel(&d->context, name), (d->n_rows + SPRY_ROPE_KV_ROWS - 1) / SPRY_ROPE_KV_ROWS,
        c->n_heads + (l->k.type == SPRY_DTYPE_COUNT ? 0 : 2 * c->n_kv_heads), 1, SPRY_ROPE_KV_THREADS, &args);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static void *attend_kernel(spry_cuda_context *gpu, const spry_cuda_attention *attention, const char *format)
{
    char name[SPRY_CUDA_KERNEL_NAME];
    snprintf(name, sizeof name, format, attention->number);
    return spry_cuda_kernel(gpu, name);
}

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
    unsigned threads = (unsigned)(attention->prefill_warps + attention->producer_warps) * 32;
    void *kernel = attend_kernel(gpu, attention, attention->prefill);
    if (attention->uses_tma) { /* persistent blocks; with split-KV one block per job */
        const spry_attend_tma_args mapped = {attention->maps, *args, (uint32_t)batches, (uint32_t)n_prefill_tiles,
                                             (uint32_t)parts};
        blocks *= n_prefill_tiles * parts;
        spry_cuda_launch_shared(gpu, kernel, n_kv_splits || blocks < gpu->sm_count ? blocks : gpu->sm_count, 1, 1,
                                threads, attention->prefill_bytes, &mapped);
    } else {
        spry_cuda_launch_shared(gpu, kernel, blocks, n_prefill_tiles, parts, threads, attention->prefill_bytes, args);
    }
    if (n_kv_splits)
        spry_cuda_launch(gpu, spry_cuda_kernel(gpu, attention->combine_prefill), n_prefill_tiles, args->n_heads,
                         longest, COMBINE_THREADS, args);
}

/* The partial results of prefill follow those of decode rows. */
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
    unsigned threads = (unsigned)attention->warps * 32;
    size_t batches = (group + attention->queries - 1) / attention->queries * attention->parts;
    size_t pages = d->n_chunks * attention->chunk_pages;
    if (d->n_decode_rows) {
        spry_cuda_launch_shared(&d->context, attend_kernel(&d->context, attention, attention->split_kv),
                                attention->multi_row ? d->n_decode_tiles : d->n_decode_rows, c->n_kv_heads * batches,
                                (pages + attention->warps - 1) / attention->warps, threads, attention->split_kv_bytes,
                                &args);
        spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, attention->combine), d->n_decode_rows, c->n_heads,
                         1, COMBINE_THREADS, &args);
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

/* Name of the kernel of attention_decode_fast.cu; false if the model or its pages need the general kernel, or if the
 * blocks of a cluster have several pages per warp. */
static bool fast_decode_kernel(char name[SPRY_CUDA_KERNEL_NAME], const spry_cuda_device *d,
                               const spry_decode_args *args, size_t share, size_t pages)
{
    const spry_cuda_attention *attention = &d->attention;
    const spry_rope_kv_args *p = &args->rope_kv;
    const spry_attend_args *a = &args->attend;
    const char *heads = full_head_kind(d->config, p);
    bool bytes = a->to[SPRY_ACT_Q8].values, single = pages <= share * attention->warps;
    if (!heads || a->sinks || a->softcap != 0 || d->pool->turns.end > 1 || !(bytes || a->to[SPRY_ACT_BF16].values) ||
        (share > 1 && !single))
        return false;
    snprintf(name, SPRY_CUDA_KERNEL_NAME, "spry_attend_decode_%s_%s_%s_%zu", heads, bytes ? "q8" : "bf16",
             !single      ? "long"
             : share == 1 ? "short"
                          : "single",
             attention->number);
    return true;
}

/* Fused decode attention. With many rows, fewer blocks share the pages of one row; if there are more blocks than fit,
 * no block has a warp without a page. */
static void attend_decode(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    enum { BLOCKS = 264, SHARE = 8, FEWEST = 2 };
    const spry_cuda_attention *attention = &d->attention;
    const spry_decode_args args = {.rope_kv = prepare_args(d, l, layer), .attend = spry_cuda_attend_args(d, layer)};
    size_t chosen = spry_cuda_tuned(d, SPRY_TUNE_CLUSTER), share = chosen ? chosen : SHARE;
    size_t n_kv = d->config->n_kv_heads, pages = d->n_chunks * attention->chunk_pages, warps = attention->warps;
    while (share > attention->parts &&
           ((!chosen && d->n_rows * n_kv * share > BLOCKS) || share / 2 / attention->parts * warps >= pages))
        share /= 2;
    share = share > attention->parts ? share : attention->parts;
    if (pages < warps && d->n_rows * n_kv * share > 2 * d->context.sm_count)
        warps = pages > FEWEST ? pages : FEWEST;
    char name[SPRY_CUDA_KERNEL_NAME];
    bool plain = fast_decode_kernel(name, d, &args, share, pages);
    void *kernel =
        plain ? spry_cuda_kernel(&d->context, name) : attend_kernel(&d->context, attention, attention->decode);
    spry_cuda_launch_cluster(&d->context, kernel, share, n_kv, d->n_rows, (unsigned)warps * 32,
                             plain ? attention->decode_fast_bytes : attention->decode_bytes, &args);
}

bool spry_cuda_attend(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    size_t n_q = (size_t)c->n_heads * c->head_dim, n_kv = (size_t)c->n_kv_heads * c->head_dim;
    size_t n_qkv = l->k.type == SPRY_DTYPE_COUNT ? 1 : 3;
    bool gated = c->arch->gated_attention;
    const spry_cuda_gemm qkv[] = {
        {gated ? s->raw : s->q, gated ? 2 * n_q : n_q, &l->q}, {s->k, n_kv, &l->k}, {s->v, n_kv, &l->v}};
    spry_cuda_quantise_gemms(d, spry_cuda_input(d, l->attn_norm, l->attn_norm_bias), qkv, n_qkv, d->n_rows, false);
    spry_cuda_charge_gemms(d, SPRY_OP_QKV, qkv, n_qkv, d->n_rows);
    if (gated)
        spry_cuda_head_gates(d, "spry_gated_query_split", s->q);
    normalise_heads(d, l, false);
    if (c->arch->v_norm && n_qkv > 1)
        normalise_values(d);
    if (decodes(d) &&
        (n_qkv > 1 ||
         !c->n_shared_kv)) { /* the fused kernel stores keys, and a shared page holds those of another layer */
        attend_decode(d, l, layer);
    } else {
        if (n_qkv > 1 || c->n_shared_kv)
            rope_kv(d, l, layer);
        normalise_heads(d, l, true);
        spry_cuda_charge(d, SPRY_OP_ROPE, SPRY_F32, 0, 0);
        attend(d, layer);
    }
    if (gated)
        spry_cuda_head_gates(d, "spry_gated_heads_apply", s->attn);
    spry_cuda_charge_attention(d, layer);
    bool quantised = attention_quantises(d);
    if (quantised)
        d->activations[spry_cuda_act_format(l->o.type)] = attention_activations(d, &l->o);
    return quantised;
}
