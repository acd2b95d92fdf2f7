/* The parts of Gemma 3n as launches: residual streams, of which a layer computes one, per-layer inputs (which Gemma 4
 * has, too), the low-rank branch beside attention, sparse gates. */
#include "device/cuda/kernel_args.h"

#include <assert.h>
#include <math.h>

#include "device/cuda/cuda_state.h"
#include "model/arch.h"

static_assert((int)SPRY_STREAMS_MAX == (int)SPRY_MAX_STREAMS, "what a config may say");

static const float half_root = 0.70710678118654752f;
static const float layer_input_scale = 0.70703125f; /* the square root in 16 bits, as in the reference code */

static size_t stream_step(const spry_cuda_device *d)
{
    return d->device.limits.max_rows * d->config->n_embd;
}

static spry_cuda_memory stream(const spry_cuda_device *d, spry_cuda_memory streams, size_t index)
{
    return streams + index * stream_step(d) * sizeof(float);
}

static void launch_rows(spry_cuda_device *d, spry_kernel_id kernel, const void *args)
{
    spry_cuda_launch(&d->context, kernel, d->n_rows, 1, 1, args);
}

static void multiply(spry_cuda_device *d, spry_op op, spry_quantise_args from, const spry_cuda_gemm *products,
                     size_t n_products)
{
    spry_cuda_quantise_gemms(d, from, products, n_products, d->n_rows, false);
    spry_cuda_charge_gemms(d, op, products, n_products, d->n_rows);
}

/* ---- before and after the layers --------------------------------------------------------------------------------- */

/* The per-layer inputs: the embedding's part, the table's part, then the sum of both. */
void spry_cuda_layer_inputs(spry_cuda_device *d)
{
    const spry_config *c = d->config;
    const spry_cuda_matrix *table = &d->model.layer_embedding;
    const spry_cuda_gemm projection = {d->scratch.layer_in, (size_t)c->n_layers * c->n_layer_embd,
                                       &d->model.layer_projection};
    const spry_embed_args embed = {.weight = table->tiles,
                                   .x = d->scratch.layer_gate,
                                   .rows = d->upload.memory + d->upload.rows,
                                   .n = c->n_layers * c->n_layer_embd,
                                   .scale = sqrtf((float)c->n_layer_embd)};
    const spry_layer_inputs_args args = {.in = d->scratch.layer_in,
                                         .table = d->scratch.layer_gate,
                                         .weight = d->model.layer_norm,
                                         .n = c->n_layer_embd,
                                         .n_layers = c->n_layers,
                                         .scale = 1 / sqrtf((float)c->n_embd),
                                         .last_scale = c->arch->streams ? layer_input_scale : half_root,
                                         .eps = c->norm_eps};
    multiply(d, SPRY_OP_EMBED, (spry_quantise_args){.in = d->scratch.x, .n = c->n_embd}, &projection, 1);
    launch_rows(d, spry_cuda_weight_types[table->type].embed, &embed);
    spry_cuda_launch(&d->context, spry_layer_inputs_id, d->n_rows, c->n_layers, 1, &args);
}

static spry_streams_args streams_args(const spry_cuda_device *d)
{
    return (spry_streams_args){.x = d->scratch.x,
                               .streams = d->scratch.streams,
                               .others = d->scratch.predicted,
                               .step = stream_step(d),
                               .n = d->config->n_embd,
                               .n_streams = d->config->n_streams};
}

void spry_cuda_streams_begin(spry_cuda_device *d)
{
    const spry_config *c = d->config;
    const spry_streams_args args = streams_args(d);
    spry_cuda_matrix in[SPRY_MAX_STREAMS];
    spry_cuda_gemm products[SPRY_MAX_STREAMS];
    for (size_t i = 1; i < c->n_streams; i++) {
        in[i - 1] = spry_cuda_matrix_of(&d->model.stream_in, i - 1);
        products[i - 1] = (spry_cuda_gemm){stream(d, d->scratch.streams, i), c->n_embd, &in[i - 1]};
    }
    multiply(d, SPRY_OP_EMBED, (spry_quantise_args){.in = d->scratch.x, .n = c->n_embd}, products, c->n_streams - 1);
    launch_rows(d, spry_streams_begin_id, &args);
    spry_cuda_charge(d, SPRY_OP_EMBED, SPRY_F32, 0, 0);
}

void spry_cuda_streams_end(spry_cuda_device *d)
{
    const spry_config *c = d->config;
    const spry_streams_args args = streams_args(d);
    for (size_t i = 1; i < c->n_streams; i++) {
        const spry_cuda_matrix out = spry_cuda_matrix_of(&d->model.stream_out, i - 1);
        const spry_cuda_gemm product = {stream(d, d->scratch.predicted, i), c->n_embd, &out};
        multiply(d, SPRY_OP_OUT, (spry_quantise_args){.in = stream(d, d->scratch.streams, i), .n = c->n_embd}, &product,
                 1);
    }
    launch_rows(d, spry_streams_end_id, &args);
    spry_cuda_charge(d, SPRY_OP_OUT, SPRY_F32, 0, 0);
}

/* ---- around a layer ---------------------------------------------------------------------------------------------- */

/* Computes the mixing coefficients from one stream; returns the arguments of the mix. */
static spry_streams_mix_args make_modalities(spry_cuda_device *d, const spry_cuda_side *side, spry_cuda_memory x,
                                             spry_cuda_memory coefficients)
{
    const spry_config *c = d->config;
    const spry_cuda_gemm product = {d->scratch.modality, c->n_streams, &side->router};
    spry_quantise_args from = spry_cuda_input(d, side->router_norm, 0, NULL);
    from.in = x;
    multiply(d, SPRY_OP_ROUTE, from, &product, 1);
    return (spry_streams_mix_args){.x = d->scratch.x,
                                   .y = d->scratch.y,
                                   .streams = d->scratch.streams,
                                   .predicted = d->scratch.predicted,
                                   .modality = d->scratch.modality,
                                   .coefficients = coefficients,
                                   .output_scale = side->correct_scale,
                                   .step = stream_step(d),
                                   .n = c->n_embd,
                                   .n_streams = c->n_streams,
                                   .active = c->active_stream,
                                   .scale = 1 / (float)c->n_embd};
}

void spry_cuda_streams_predict(spry_cuda_device *d, const spry_cuda_side *side)
{
    const spry_streams_mix_args args =
        make_modalities(d, side, stream(d, d->scratch.streams, d->config->active_stream), side->predict);
    launch_rows(d, spry_streams_predict_id, &args);
    spry_cuda_charge(d, SPRY_OP_ADD, SPRY_F32, 0, 0);
}

/* Gates are strided like layer_in. */
void spry_cuda_layer_part(spry_cuda_device *d, const spry_cuda_side *side, spry_cuda_memory from, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    uint32_t all = c->n_layers * c->n_layer_embd;
    const spry_cuda_gemm gate = {s->layer_gate, all, &side->gate}, proj = {s->y, c->n_embd, &side->proj};
    const spry_quantise_args gated = {.in = s->layer_gate,
                                      .up = s->layer_in + (size_t)layer * c->n_layer_embd * sizeof(float),
                                      .n = c->n_layer_embd,
                                      .in_stride = all,
                                      .gate = c->arch->gate};
    multiply(d, SPRY_OP_GATE_UP, (spry_quantise_args){.in = from, .n = c->n_embd}, &gate, 1);
    multiply(d, SPRY_OP_DOWN, gated, &proj, 1);
}

/* The layer's input gates what the corrected stream adds to the others. */
void spry_cuda_streams_correct(spry_cuda_device *d, const spry_cuda_side *side, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    const spry_streams_mix_args mix = make_modalities(d, side, s->x, side->correct);
    const spry_streams_add_args add = {.streams = s->streams,
                                       .y = s->y,
                                       .weight = side->post_norm,
                                       .step = stream_step(d),
                                       .n = c->n_embd,
                                       .n_streams = c->n_streams,
                                       .eps = c->norm_eps};
    launch_rows(d, spry_streams_correct_id, &mix);
    spry_cuda_layer_part(d, side, s->y, layer);
    launch_rows(d, spry_streams_add_id, &add);
    spry_cuda_charge(d, SPRY_OP_ADD, SPRY_F32, 0, 0);
}

/* ---- inside a layer ---------------------------------------------------------------------------------------------- */

void spry_cuda_laurel(spry_cuda_device *d, const spry_cuda_layer *l)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    size_t rank = l->side.laurel_l.tiles.n_out;
    const spry_cuda_gemm left = {s->laurel_low, rank, &l->side.laurel_l},
                         right = {s->laurel, c->n_embd, &l->side.laurel_r};
    multiply(d, SPRY_OP_OUT, spry_cuda_input(d, l->attn_norm, 0, NULL), &left, 1);
    multiply(d, SPRY_OP_OUT, (spry_quantise_args){.in = s->laurel_low, .n = (uint32_t)rank}, &right, 1);
}

void spry_cuda_add_laurel(spry_cuda_device *d, const spry_cuda_layer *l)
{
    const spry_laurel_args args = {.x = d->scratch.x,
                                   .y = d->scratch.y,
                                   .low = d->scratch.laurel,
                                   .x_weight = l->attn_norm,
                                   .y_weight = l->attn_post_norm,
                                   .low_weight = l->side.laurel_norm,
                                   .n = d->config->n_embd,
                                   .scale = half_root,
                                   .eps = d->config->norm_eps};
    launch_rows(d, spry_laurel_id, &args);
    spry_cuda_charge(d, SPRY_OP_ADD, SPRY_F32, 0, 0);
}

bool spry_cuda_is_sparse(const spry_cuda_device *d, uint32_t layer)
{
    return d->config->sparsity && d->config->sparsity[layer] > -INFINITY;
}

void spry_cuda_sparsify(spry_cuda_device *d, uint32_t layer, size_t n)
{
    const spry_sparsify_args args = {d->scratch.gate, (uint32_t)n, d->config->sparsity[layer]};
    launch_rows(d, spry_sparsify_id, &args);
    spry_cuda_charge(d, SPRY_OP_GATE, SPRY_F32, 0, 0);
}
