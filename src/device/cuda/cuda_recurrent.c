/* Recurrent layers as launches: gated delta nets, Mamba-2 and short convolutions. */

#include "device/cuda/cuda_state.h"
#include "device/cuda/kernel_args.h"
#include "model/arch.h"

/* ---- gated delta nets -------------------------------------------------------------------------------------------- */

enum { KEYS_LEAST = 32 };

static spry_delta_args delta_args(const spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    size_t before = c->state_slot[layer] * spry_config_delta_floats(c) * sizeof(float);
    const spry_mixed_places first = spry_config_mixed_places(c, 0);
    return (spry_delta_args){.out = s->delta_result,
                             .mixed = s->delta_mixed,
                             .ba = s->delta_ba,
                             .weight = l->delta_conv,
                             .bias = l->delta_conv_bias,
                             .skip = l->delta_skip,
                             .dt = l->delta_dt,
                             .fading = l->delta_fading,
                             .runs = d->upload.memory + d->upload.runs,
                             .states = d->states.memory + before,
                             .state_bytes = d->pool->shape.state,
                             .n_heads = c->n_delta_heads,
                             .n_keys = c->n_delta_keys,
                             .key_dim = c->delta_key_dim,
                             .value_dim = c->delta_value_dim,
                             .n_mixed = (uint32_t)spry_config_delta_mixed(c),
                             .reach = c->n_conv,
                             .queries = (uint32_t)first.q,
                             .keys = (uint32_t)first.k,
                             .values = (uint32_t)first.v,
                             .tiled = c->delta_tiled,
                             .mamba = c->arch->mamba,
                             .beta_scale = c->beta_scale,
                             .time_least = c->time_limit[0],
                             .time_largest = c->time_limit[1]};
}

/* Updates the states over the rows. */
static void recur(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_delta_args args = delta_args(d, l, layer);
    static const spry_kernel_id kernels[] = {spry_delta_32_id, spry_delta_64_id, spry_delta_128_id, spry_delta_256_id};
    size_t size = 0;
    while (size + 1 < SPRY_COUNT(kernels) && (uint32_t)KEYS_LEAST << size < c->delta_key_dim)
        size++;
    spry_cuda_launch(&d->context, spry_delta_gates_id, d->n_rows, 1, 1, &args);
    spry_cuda_launch(&d->context, kernels[size], (c->delta_value_dim + SPRY_DELTA_COLUMNS - 1) / SPRY_DELTA_COLUMNS,
                     c->n_delta_heads, d->n_segments, &args);
    spry_cuda_launch(&d->context, spry_delta_keep_id,
                     (args.n_mixed + 2 * args.n_heads + SPRY_DELTA_ROW_THREADS - 1) / SPRY_DELTA_ROW_THREADS,
                     d->n_segments, 1, &args);
}

/* Normalises results group by group and gates them, in either order. A gate that comes last is left to the next
 * product. */
static spry_quantise_args gate_results(spry_cuda_device *d, const spry_cuda_layer *l)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    uint32_t width = c->n_delta_heads * c->delta_value_dim, n = c->delta_norm_size;
    bool gate_first = c->delta_gate_first && n;
    const spry_norm_args norm = {.x = s->delta_result,
                                 .weight = l->delta_norm,
                                 .n = n,
                                 .n_groups = n ? width / n : 0,
                                 .step = c->arch->mamba ? n : 0, /* heads of a delta net share their weights */
                                 .eps = c->delta_norm_eps > 0 ? c->delta_norm_eps : c->norm_eps};
    const spry_gate_args gate = {s->delta_result, s->delta_gate, width, SPRY_GATE_SILU};
    if (gate_first)
        spry_cuda_launch(&d->context, spry_gate_rows_id, d->n_rows, 1, 1, &gate);
    if (n)
        spry_cuda_launch(&d->context, spry_norm_id, d->n_rows, norm.n_groups, 1, &norm);
    if (gate_first)
        return (spry_quantise_args){.in = s->delta_result, .n = width};
    return (spry_quantise_args){.in = s->delta_gate, .up = s->delta_result, .n = width, .gate = SPRY_GATE_SILU};
}

spry_quantise_args spry_cuda_delta(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    enum { MOST = 6 };
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    size_t heads = c->n_delta_heads, mixed = spry_config_delta_mixed(c), n = 0, at = 0;
    spry_cuda_gemm in[MOST];
    for (size_t i = 0; i < SPRY_COUNT(l->delta_qkv) && l->delta_qkv[i].type != SPRY_DTYPE_COUNT; i++) {
        in[n++] = (spry_cuda_gemm){s->delta_mixed + at * sizeof(float), mixed, &l->delta_qkv[i]};
        at += l->delta_qkv[i].tiles.n_out;
    }
    in[n++] = (spry_cuda_gemm){s->delta_gate, heads * c->delta_value_dim, &l->delta_gate};
    if (l->delta_b.type != SPRY_DTYPE_COUNT)
        in[n++] = (spry_cuda_gemm){s->delta_ba, 2 * heads, &l->delta_b};
    in[n++] = (spry_cuda_gemm){s->delta_ba + heads * sizeof(float), 2 * heads, &l->delta_a};
    spry_cuda_quantise_gemms(d, spry_cuda_input(d, l->attn_norm, l->attn_norm_bias, NULL), in, n, d->n_rows, false);
    spry_cuda_charge_gemms(d, SPRY_OP_QKV, in, n, d->n_rows);
    spry_cuda_scale_products(d, in, n);
    recur(d, l, layer);
    spry_cuda_charge(d, SPRY_OP_ATTEND, SPRY_F32, 0, 0);
    return gate_results(d, l);
}

/* ---- short convolutions ------------------------------------------------------------------------------------------ */

static void launch(spry_cuda_device *d, spry_kernel_id kernel, const spry_conv_args *args)
{
    spry_cuda_launch(&d->context, kernel, (d->n_rows + SPRY_ROPE_KV_ROWS - 1) / SPRY_ROPE_KV_ROWS,
                     args->n / args->kv.head_dim, 1, args);
}

spry_quantise_args spry_cuda_convolution(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const spry_cuda_scratch *s = &d->scratch;
    uint32_t n = d->config->n_embd;
    const spry_cuda_gemm in = {s->conv, 3 * (size_t)n, &l->conv_in};
    const spry_conv_args args = {.out = s->h,
                                 .in = s->conv,
                                 .weight = l->conv,
                                 .bias = l->conv_bias,
                                 .rows = d->upload.memory + d->upload.rows,
                                 .entries = d->upload.memory + d->upload.entries,
                                 .kv = spry_cuda_layer_pages(d, layer),
                                 .place_bytes = spry_kv_offset(d->pool, 1, 0),
                                 .n_rows = (uint32_t)d->n_rows,
                                 .n = n,
                                 .reach = d->config->n_conv};
    spry_cuda_quantise_gemms(d, spry_cuda_input(d, l->attn_norm, l->attn_norm_bias, NULL), &in, 1, d->n_rows, false);
    spry_cuda_charge_gemms(d, SPRY_OP_QKV, &in, 1, d->n_rows);
    launch(d, spry_cuda_kv_kernels[d->pool->shape.type].conv_store, &args);
    launch(d, spry_cuda_kv_kernels[d->pool->shape.type].convolve, &args);
    spry_cuda_charge(d, SPRY_OP_ATTEND, d->pool->shape.type, 0, 0);
    return (spry_quantise_args){.in = s->h, .n = n};
}
