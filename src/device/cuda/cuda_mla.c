/* Multi-head latent attention as launches. Each head has a matrix of its own, and GEMMs treat heads like experts: a
 * slot is one head of one row, and the slots of a head are consecutive. */
#include <assert.h>

#include "device/cuda/cuda_state.h"
#include "device/cuda/kernel_args.h"

static_assert((int)SPRY_MLA_KEY_MAX == (int)SPRY_ATTEND_HEAD_DIM_MAX &&
                  (int)SPRY_MLA_VALUES_MAX == (int)SPRY_MAX_HEAD_DIM,
              "what a config may say");

static const float inner_eps = 1e-6f; /* independent of the model's other norms */

spry_cuda_attention spry_cuda_mla_attention(spry_dtype type)
{
    return (spry_cuda_attention){.split_kv = spry_cuda_kv_kernels[type].mla_split_kv,
                                 .prefill = spry_cuda_kv_kernels[type].mla_prefill,
                                 .combine = spry_attend_combine_id,
                                 .multi_row = true,
                                 .chunk_pages = 1,
                                 .warps = 1,
                                 .prefill_warps = 1,
                                 .queries = SPRY_MLA_QUERIES,
                                 .parts = 1};
}

/* The number of slots of a head is a multiple of this. */
static size_t align_of(size_t rows)
{
    return rows < SPRY_CUDA_EXPERT_ALIGN_MANY ? SPRY_CUDA_EXPERT_ALIGN : SPRY_CUDA_EXPERT_ALIGN_MANY;
}

static size_t slots_of_head(size_t rows)
{
    return (rows + align_of(rows) - 1) / align_of(rows) * align_of(rows);
}

size_t spry_cuda_mla_slots(const spry_config *c, size_t rows)
{
    return c->n_kv_rank ? c->n_heads * slots_of_head(rows) : 0;
}

void spry_cuda_mla_begin(spry_cuda_device *d)
{
    size_t slots = spry_cuda_mla_slots(d->config, d->n_rows);
    const spry_mla_slots_args args = {.source = d->scratch.head_source,
                                      .heads = d->scratch.head_numbers,
                                      .n_rows = (uint32_t)d->n_rows,
                                      .n_heads = d->config->n_heads,
                                      .each = (uint32_t)slots_of_head(d->n_rows),
                                      .align = (uint32_t)align_of(d->n_rows)};
    spry_cuda_launch(&d->context, spry_mla_slots_id, (slots + SPRY_MLA_THREADS - 1) / SPRY_MLA_THREADS, 1, 1, &args);
}

/* Multiplies the first values of each head by the head's matrix, into slots; heads are `stride` values apart. */
static void multiply_heads(spry_cuda_device *d, spry_op op, const spry_cuda_matrix *w, spry_cuda_memory in,
                           size_t stride)
{
    size_t slots = spry_cuda_mla_slots(d->config, d->n_rows);
    const spry_cuda_gemm product = {d->scratch.heads, w->tiles.n_out, w};
    const spry_quantise_args heads = {
        .in = in, .source = d->scratch.head_source, .n = w->tiles.n_in, .in_stride = (uint32_t)stride};
    const spry_cuda_expert_groups groups = {d->scratch.head_numbers, align_of(d->n_rows)};
    const spry_cuda_rows rows = spry_cuda_quantise(d, heads, &product, 1, slots, true);
    spry_cuda_gemms(d, &rows, &product, 1, slots, false, groups);
    spry_cuda_charge(d, op, w->type, w->read_bytes * d->config->n_heads,
                     (double)w->tiles.n_out * w->tiles.n_in * (double)slots);
}

/* Projects queries into `raw`, and latents and the rotated part of keys into `k`. */
static void project(spry_cuda_device *d, const spry_cuda_layer *l)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    size_t n_q = (size_t)c->n_heads * (c->nope_dim + c->rope_dim);
    bool low = l->q_a.type != SPRY_DTYPE_COUNT;
    const spry_cuda_gemm q = {s->raw, n_q, &l->q}, q_a = {s->low, c->n_q_rank, &l->q_a};
    const spry_cuda_gemm both[] = {low ? q_a : q, {s->k, c->head_dim, &l->k}};
    spry_cuda_quantise_gemms(d, spry_cuda_input(d, l->attn_norm, l->attn_norm_bias, NULL), both, SPRY_COUNT(both),
                             d->n_rows, false);
    spry_cuda_charge_gemms(d, SPRY_OP_QKV, both, SPRY_COUNT(both), d->n_rows);
    if (!low)
        return;
    const spry_norm_args norm = {.x = s->low, .weight = l->q_a_norm, .n = c->n_q_rank, .n_groups = 1, .eps = inner_eps};
    spry_cuda_launch(&d->context, spry_norm_id, d->n_rows, 1, 1, &norm);
    spry_cuda_quantise_gemms(d, (spry_quantise_args){.in = s->low, .n = c->n_q_rank}, &q, 1, d->n_rows, false);
    spry_cuda_charge_gemms(d, SPRY_OP_QKV, &q, 1, d->n_rows);
}

/* RoPE, norm of the latents, and the KV store. */
static void rope_kv(spry_cuda_device *d, const spry_cuda_layer *l, const spry_attend_args *attend)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    const spry_mla_rope_kv_args args = {.q = s->q,
                                        .raw = s->raw,
                                        .taken = s->heads,
                                        .k = s->k,
                                        .norm = l->kv_a_norm,
                                        .cosine = s->cosine[0],
                                        .sine = s->sine[0],
                                        .rows = attend->rows,
                                        .kv = attend->kv,
                                        .n_rows = (uint32_t)d->n_rows,
                                        .n_heads = c->n_heads,
                                        .n_values = c->n_kv_rank,
                                        .raw_dim = c->nope_dim + c->rope_dim,
                                        .each = (uint32_t)slots_of_head(d->n_rows),
                                        .n_pairs = attend->n_pairs,
                                        .interleaved = c->interleaved,
                                        .eps = inner_eps};
    spry_cuda_launch(&d->context, spry_cuda_kv_kernels[d->pool->shape.type].mla_rope_kv,
                     (d->n_rows + SPRY_ROPE_KV_ROWS - 1) / SPRY_ROPE_KV_ROWS, c->n_heads + 1, 1, &args);
    spry_cuda_charge(d, SPRY_OP_ROPE, SPRY_F32, 0, 0);
}

/* Attention over latents, [rows, n_heads, n_kv_rank] in attn. */
static void attend(spry_cuda_device *d, const spry_attend_args *attend)
{
    const spry_config *c = d->config;
    size_t bytes = SPRY_MLA_SMEM + SPRY_MLA_QUERY_STRIDE * sizeof(float) * c->head_dim;
    size_t batches = (c->n_heads + SPRY_MLA_QUERIES - 1) / SPRY_MLA_QUERIES;
    spry_mla_attend_args args = {.attend = *attend, .key_dim = c->head_dim};
    args.attend.kv.head_dim = c->n_kv_rank;
    if (d->n_decode_rows) {
        spry_cuda_launch_shared(&d->context, d->attention[0].split_kv, d->n_decode_tiles, batches, d->n_chunks, bytes,
                                &args);
        spry_cuda_launch(&d->context, d->attention[0].combine, d->n_decode_rows, c->n_heads, 1, &args.attend);
    }
    if (d->n_prefill_tiles)
        spry_cuda_launch_shared(&d->context, d->attention[0].prefill, d->n_prefill_tiles, batches, 1, bytes, &args);
    spry_cuda_charge(d, SPRY_OP_ATTEND, d->pool->shape.type, 0, 0);
}

spry_quantise_args spry_cuda_mla(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    const spry_attend_args args = spry_cuda_attend_args(d, layer);
    const spry_mla_join_args join = {s->raw, s->heads, c->value_dim, c->n_heads, (uint32_t)slots_of_head(d->n_rows)};
    project(d, l);
    spry_cuda_cool(d, s->raw, (size_t)c->nope_dim + c->rope_dim, layer);
    multiply_heads(d, SPRY_OP_QKV, &l->k_b, s->raw, (size_t)c->nope_dim + c->rope_dim);
    rope_kv(d, l, &args);
    attend(d, &args);
    multiply_heads(d, SPRY_OP_OUT, &l->v_b, s->attn, c->n_kv_rank);
    spry_cuda_launch(&d->context, spry_mla_join_id, d->n_rows, 1, 1, &join);
    spry_cuda_charge(d, SPRY_OP_OUT, SPRY_F32, 0, 0);
    return (spry_quantise_args){.in = s->raw, .n = l->o.tiles.n_in};
}
