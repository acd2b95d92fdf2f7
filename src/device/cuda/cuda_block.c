/* The block every architecture runs, as launches. What an architecture lacks is an address of 0 in its layer. */
#include <math.h>
#include <stdio.h>

#include "device/cuda/cuda_state.h"
#include "model/arch.h"

enum { ROW_THREADS = 256, MERGE_THREADS = 128, SOFTCAP_BLOCKS = 1024 };

static const spry_cuda_groups no_groups = {0};

static const char *kv_name(const spry_cuda_device *d)
{
    return spry_cuda_type_name(d->pool->shape.type);
}

/* ---- before the layers ------------------------------------------------------------------------------------------- */

static void embed(spry_cuda_device *d)
{
    const spry_config *c = d->config;
    char name[SPRY_CUDA_KERNEL_NAME];
    const spry_embed_args args = {.weight = d->model.embedding.tiles,
                                  .x = d->scratch.x,
                                  .rows = d->upload.memory + d->upload.rows,
                                  .n = c->n_embd,
                                  .scale = c->arch->scaled_embedding ? sqrtf((float)c->n_embd) : 1};
    snprintf(name, sizeof name, "spry_embed_%s", spry_cuda_type_name(d->model.embedding.type));
    spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, name), d->n_rows, 1, 1, ROW_THREADS, &args);
}

static void make_angles(spry_cuda_device *d)
{
    const spry_cuda_scratch *s = &d->scratch;
    for (size_t kind = 0; kind < (d->config->window ? 2 : 1); kind++) {
        const spry_angles_args args = {.frequencies = d->model.frequencies[kind],
                                       .cosine = s->cosine[kind],
                                       .sine = s->sine[kind],
                                       .turn_cosine = s->turn_cosine[kind],
                                       .turn_sine = s->turn_sine[kind],
                                       .rows = d->upload.memory + d->upload.rows,
                                       .deltas = d->upload.memory + d->upload.deltas,
                                       .n_rows = (uint32_t)d->n_rows,
                                       .n_pairs = d->config->rope_dim / 2,
                                       .magnitude = d->model.magnitude[kind]};
        size_t turns = d->pool->turns.end > 1 ? d->pool->turns.end - 1 : 0;
        spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, "spry_angles"), d->n_rows + turns, 1, 1,
                         ROW_THREADS, &args);
    }
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static spry_kv_pages layer_pages(const spry_cuda_device *d, uint32_t layer)
{
    const spry_kv_pool *pool = d->pool;
    return (spry_kv_pages){.pages = d->pages,
                           .page_bytes = pool->page_bytes,
                           .key_offset = spry_kv_offset(pool, layer, 0),
                           .value_offset = spry_kv_offset(pool, layer, 1),
                           .head_bytes = (uint32_t)pool->head_bytes,
                           .token_bytes = (uint32_t)pool->token_bytes,
                           .n_kv_heads = d->config->n_kv_heads,
                           .head_dim = d->config->head_dim};
}

/* Head norms, rope, keys and values into their pages. */
static spry_prepare_args prepare_args(const spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    return (spry_prepare_args){.q = s->q,
                               .k = s->k,
                               .v = s->v,
                               .q_norm = l->q_norm,
                               .k_norm = l->k_norm,
                               .cosine = s->cosine[c->sliding[layer]],
                               .sine = s->sine[c->sliding[layer]],
                               .rows = d->upload.memory + d->upload.rows,
                               .kv = layer_pages(d, layer),
                               .n_rows = (uint32_t)d->n_rows,
                               .n_heads = c->n_heads,
                               .n_pairs = c->rope_dim / 2,
                               .interleaved = c->interleaved,
                               .eps = c->norm_eps};
}

static void prepare(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_prepare_args args = prepare_args(d, l, layer);
    char name[SPRY_CUDA_KERNEL_NAME];
    snprintf(name, sizeof name, "spry_prepare_%s", kv_name(d));
    spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, name),
                     (d->n_rows + SPRY_PREPARE_ROWS - 1) / SPRY_PREPARE_ROWS, c->n_heads + 2 * c->n_kv_heads, 1,
                     SPRY_PREPARE_THREADS, &args);
}

/* many_room of attention_f16.cu: the queries of the warps in two terms, keys and values of two pages. */
static size_t pages_shared(size_t blocks)
{
    size_t warps = blocks <= 4 ? 4 : 2, value_stride = blocks <= 2 ? 128 : blocks <= 4 ? 256 : 512;
    return warps * blocks * 2048 + 2 * (blocks * 2048 + 32 * value_stride);
}

/* Matrix instructions take F16 and heads of whole blocks; everything else is multiplied value by value. */
spry_cuda_attention spry_cuda_attention_of(const spry_config *c, spry_dtype type)
{
    size_t blocks = c->head_dim / 32, dims = 1;
    if (type == SPRY_F16 && c->head_dim % 32 == 0 && (blocks <= 4 || blocks == 8))
        return (spry_cuda_attention){
            .few = "spry_attend_pages_few_%zu",
            .many = "spry_attend_pages_many_%zu",
            .decode = c->n_heads / c->n_kv_heads <= SPRY_DECODE_GROUP ? "spry_attend_decode_%zu" : NULL,
            .number = blocks,
            .pieces = true,
            .chunk_pages = 1,
            .warps = blocks <= 4 ? 4 : 2,
            .queries = 16,
            .parts = blocks <= 4 ? 1 : 2,
            .shared_bytes = pages_shared(blocks)};
    while (dims * 32 < c->head_dim)
        dims *= 2;
    return (spry_cuda_attention){
        .few = type == SPRY_F16   ? "spry_attend_few_f16_%zu"
               : type == SPRY_F32 ? "spry_attend_few_f32_%zu"
                                  : "spry_attend_few_q8_0_%zu",
        .many = type == SPRY_F16   ? "spry_attend_many_f16_%zu"
                : type == SPRY_F32 ? "spry_attend_many_f32_%zu"
                                   : "spry_attend_many_q8_0_%zu",
        .number = dims,
        .chunk_pages = SPRY_ATTEND_CHUNK,
        .warps = SPRY_ATTEND_CHUNK,
        .queries = dims <= 4 ? 4 : 16 / dims,
        .parts = 1,
    };
}

static void *attend_kernel(spry_cuda_device *d, const char *format)
{
    char name[SPRY_CUDA_KERNEL_NAME];
    snprintf(name, sizeof name, format, d->attention.number);
    return spry_cuda_kernel(&d->context, name);
}

/* Whether attention also writes its rows as the product behind it wants them: few rows, heads of whole blocks. */
static bool attend_encodes(const spry_cuda_device *d)
{
    size_t n_q = (size_t)d->config->n_heads * d->config->head_dim;
    return !d->n_runs && d->config->head_dim % 32 == 0 && n_q % SPRY_TILE_UNIT == 0;
}

static spry_attend_args attend_args(const spry_cuda_device *d, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    size_t kind = c->sliding[layer];
    spry_attend_args args = {.out = s->attn,
                             .q = s->q,
                             .partial = s->partial,
                             .rows = d->upload.memory + d->upload.rows,
                             .entries = d->upload.memory + d->upload.entries,
                             .few = d->upload.memory + d->upload.few,
                             .pieces = d->upload.memory + d->upload.pieces,
                             .runs = d->upload.memory + d->upload.runs,
                             .turn_cosine = s->turn_cosine[kind],
                             .turn_sine = s->turn_sine[kind],
                             .kv = layer_pages(d, layer),
                             .n_heads = c->n_heads,
                             .n_pairs = c->rope_dim / 2,
                             .interleaved = c->interleaved,
                             .window = kind ? c->window : 0,
                             .n_chunks = (uint32_t)d->n_chunks,
                             .chunk_pages = (uint32_t)d->attention.chunk_pages,
                             .scale = 1 / sqrtf(c->query_scalar),
                             .softcap = c->attn_softcap};
    const spry_cuda_matrix *o = &d->model.layers[layer].o;
    if (attend_encodes(d))
        args.to[spry_cuda_form(o->type)] = spry_cuda_acts(d, o, o->tiles.n_in);
    return args;
}

static void attend(spry_cuda_device *d, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_cuda_attention *way = &d->attention;
    const spry_attend_args args = attend_args(d, layer);
    size_t group = c->n_heads / c->n_kv_heads;
    unsigned threads = (unsigned)way->warps * 32;
    size_t batches = (group + way->queries - 1) / way->queries * way->parts;
    size_t pages = d->n_chunks * way->chunk_pages;
    if (d->n_few) {
        spry_cuda_launch(&d->context, attend_kernel(d, way->few), way->pieces ? d->n_pieces : d->n_few,
                         c->n_kv_heads * batches, (pages + way->warps - 1) / way->warps, threads, &args);
        spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, "spry_attend_merge"), d->n_few, c->n_heads, 1,
                         MERGE_THREADS, &args);
    }
    if (d->n_runs)
        spry_cuda_launch_shared(&d->context, attend_kernel(d, way->many), d->n_runs, c->n_kv_heads, 1, threads,
                                way->shared_bytes, &args);
}

/* Whether one kernel does everything for the step's rows, each the only new one of its sequence. Measured: it is faster
 * for one row and for many; for a few, pages spread over more blocks win. */
static bool decodes(const spry_cuda_device *d)
{
    enum { SPREAD_FROM = 2, SPREAD_TO = 12 };
    bool spread = d->n_rows >= SPREAD_FROM && d->n_rows <= SPREAD_TO;
    return d->attention.decode && d->context.overlaps && d->alone && !d->n_runs && !spread;
}

/* Head norms, rope, keys and values into their pages, and attention, in one kernel. Where rows are many, few blocks
 * share the pages of one. */
static void attend_decode(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    enum { BLOCKS = 264, SHARE = 8 };
    const spry_cuda_attention *way = &d->attention;
    const spry_decode_args args = {.prepare = prepare_args(d, l, layer), .attend = attend_args(d, layer)};
    size_t share = SHARE, n_kv = d->config->n_kv_heads;
    while (share > way->parts && d->n_rows * n_kv * share > BLOCKS)
        share /= 2;
    spry_cuda_launch_cluster(&d->context, attend_kernel(d, way->decode), share, n_kv, d->n_rows,
                             (unsigned)way->warps * 32, &args);
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

/* Where the product of a part goes: onto x, or to y where a norm stands between. */
static spry_cuda_product part_product(const spry_cuda_device *d, const spry_cuda_matrix *w, spry_cuda_memory post_norm)
{
    return (spry_cuda_product){post_norm ? d->scratch.y : d->scratch.x, d->config->n_embd, w};
}

/* x += y, normalised first where there is a norm. */
static void add_residual(spry_cuda_device *d, spry_cuda_memory post_norm)
{
    const spry_residual_args args = {
        .x = d->scratch.x, .y = d->scratch.y, .weight = post_norm, .n = d->config->n_embd, .eps = d->config->norm_eps};
    spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, "spry_residual"), d->n_rows, 1, 1, ROW_THREADS, &args);
    spry_cuda_charge(d, SPRY_OP_ADD, SPRY_F32, 0, 0);
}

static void attention(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    size_t n_q = (size_t)c->n_heads * c->head_dim, n_kv = (size_t)c->n_kv_heads * c->head_dim;
    const spry_cuda_product qkv[] = {{s->q, n_q, &l->q}, {s->k, n_kv, &l->k}, {s->v, n_kv, &l->v}};
    const spry_cuda_product o = part_product(d, &l->o, l->attn_post_norm);
    spry_cuda_encode_products(d, (spry_encode_args){.in = s->x, .weight = l->attn_norm, .n = c->n_embd}, qkv,
                              SPRY_COUNT(qkv), d->n_rows, false);
    spry_cuda_took_products(d, SPRY_OP_QKV, qkv, SPRY_COUNT(qkv), d->n_rows);
    if (decodes(d)) {
        attend_decode(d, l, layer);
    } else {
        prepare(d, l, layer);
        spry_cuda_charge(d, SPRY_OP_ROPE, SPRY_F32, 0, 0);
        attend(d, layer);
    }
    spry_cuda_charge(d, SPRY_OP_ATTEND, d->pool->shape.type, 0, 0);
    if (attend_encodes(d)) {
        d->lanes = true;
        spry_cuda_products(d, &o, 1, d->n_rows, !l->attn_post_norm, no_groups);
        d->lanes = false;
    } else {
        spry_cuda_encode_products(d, (spry_encode_args){.in = s->attn, .n = (uint32_t)n_q}, &o, 1, d->n_rows,
                                  !l->attn_post_norm);
    }
    spry_cuda_took_products(d, SPRY_OP_OUT, &o, 1, d->n_rows);
    if (l->attn_post_norm)
        add_residual(d, l->attn_post_norm);
}

static void feed_forward(spry_cuda_device *d, const spry_cuda_layer *l)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    size_t n = l->gate.tiles.n_out;
    const spry_cuda_product both[] = {{s->gate, n, &l->gate}, {s->up, n, &l->up}};
    const spry_cuda_product down = part_product(d, &l->down, l->ffn_post_norm);
    const spry_encode_args norm = {.in = s->x, .weight = l->ffn_norm, .n = c->n_embd, .gate = c->arch->gate};
    const spry_encode_args gated = {.in = s->gate, .up = s->up, .n = (uint32_t)n, .gate = c->arch->gate};
    if (spry_cuda_gated_products(d, norm, both, &l->down, d->n_rows)) {
        spry_cuda_took_products(d, SPRY_OP_GATE_UP, both, SPRY_COUNT(both), d->n_rows);
        spry_cuda_products(d, &down, 1, d->n_rows, !l->ffn_post_norm, no_groups);
    } else {
        spry_cuda_encode_products(d, norm, both, SPRY_COUNT(both), d->n_rows, false);
        spry_cuda_took_products(d, SPRY_OP_GATE_UP, both, SPRY_COUNT(both), d->n_rows);
        spry_cuda_encode_products(d, gated, &down, 1, d->n_rows, !l->ffn_post_norm);
    }
    spry_cuda_took_products(d, SPRY_OP_DOWN, &down, 1, d->n_rows);
}

static void run_layer(spry_cuda_device *d, uint32_t layer)
{
    const spry_cuda_layer *l = &d->model.layers[layer];
    bool experts = l->router.type != SPRY_DTYPE_COUNT;
    attention(d, l, layer);
    if (experts)
        spry_cuda_experts(d, l);
    else
        feed_forward(d, l);
    if (experts || l->ffn_post_norm)
        add_residual(d, l->ffn_post_norm);
}

/* Norm of the rows that are wanted, and output matrix where their logits are. */
static void unembed(spry_cuda_device *d)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    const spry_cuda_product logits = {s->logits, c->n_vocab, &d->model.output};
    if (!d->n_wanted)
        return;
    const spry_encode_args norm = {.in = s->x,
                                   .weight = d->model.output_norm,
                                   .plain = s->h,
                                   .source = d->upload.memory + d->upload.source,
                                   .n = c->n_embd};
    spry_cuda_encode(d, norm, &logits, 1, d->n_wanted);
    spry_cuda_charge(d, SPRY_OP_NORM, SPRY_F32, 0, 0);
    if (!d->n_logits)
        return;
    spry_cuda_products(d, &logits, 1, d->n_logits, false, no_groups);
    const spry_softcap_args cap = {s->logits, d->n_logits * c->n_vocab, c->final_softcap};
    if (c->final_softcap > 0)
        spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, "spry_softcap"), SOFTCAP_BLOCKS, 1, 1, ROW_THREADS,
                         &cap);
    spry_cuda_took_products(d, SPRY_OP_LOGITS, &logits, 1, d->n_logits);
}

void spry_cuda_run(spry_cuda_device *d)
{
    spry_cuda_charge(d, SPRY_OP_LAYOUT, SPRY_F32, 0, 0);
    embed(d);
    make_angles(d);
    spry_cuda_charge(d, SPRY_OP_EMBED, SPRY_F32, 0, 0);
    for (uint32_t layer = 0; layer < d->config->n_layers; layer++)
        run_layer(d, layer);
    unembed(d);
}
