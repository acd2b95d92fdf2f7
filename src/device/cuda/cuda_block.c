/* The transformer block of every architecture, as launches. A norm, bias or matrix that an architecture lacks has
 * address 0 in its layer. */
#include <math.h>

#include "device/cuda/cuda_state.h"
#include "model/arch.h"

enum { SOFTCAP_BLOCKS = 1024 };

/* ---- before the layers ------------------------------------------------------------------------------------------- */

/* Adds (or stores) one row of an embedding table to each row of the step. */
static void embed_table(spry_cuda_device *d, const spry_cuda_matrix *table, spry_embed_args args)
{
    if (table->type == SPRY_DTYPE_COUNT)
        return;
    args.weight = table->tiles;
    args.x = d->scratch.x;
    args.rows = d->upload.memory + d->upload.rows;
    args.n = d->config->n_embd;
    spry_cuda_launch(&d->context, spry_cuda_weight_types[table->type].embed, d->n_rows, 1, 1, &args);
}

void spry_cuda_embed(spry_cuda_device *d)
{
    const spry_config *c = d->config;
    const spry_cuda_model *m = &d->model;
    float scale = c->arch->scaled_embedding ? sqrtf((float)c->n_embd) : c->embedding_scale;
    if (m->embedding.type == SPRY_DTYPE_COUNT) /* the step has rows in place of tokens */
        return;
    embed_table(d, &m->embedding, (spry_embed_args){.by = SPRY_EMBED_TOKEN, .scale = scale});
    embed_table(d, &m->token_types, (spry_embed_args){.by = SPRY_EMBED_SAME, .scale = 1, .add = true});
    embed_table(d, &m->positions,
                (spry_embed_args){.by = SPRY_EMBED_POSITION, .offset = c->position_offset, .scale = 1, .add = true});
    const spry_norm_args norm = {.x = d->scratch.x,
                                 .weight = m->embedding_norm,
                                 .bias = m->embedding_norm_bias,
                                 .n = c->n_embd,
                                 .n_groups = 1,
                                 .eps = c->norm_eps,
                                 .centre = c->layer_norm};
    if (m->embedding_norm)
        spry_cuda_launch(&d->context, spry_norm_id, d->n_rows, 1, 1, &norm);
}

static void make_angles(spry_cuda_device *d)
{
    const spry_cuda_scratch *s = &d->scratch;
    for (size_t kind = 0; kind < (d->config->window ? 2 : 1); kind++) {
        uint32_t rope_dim = kind ? d->config->slide.rope_dim : d->config->rope_dim;
        const spry_rope_angles_args args = {.frequencies = d->model.frequencies[kind],
                                            .cosine = s->cosine[kind],
                                            .sine = s->sine[kind],
                                            .rotation_cosine = s->rotation_cosine[kind],
                                            .rotation_sine = s->rotation_sine[kind],
                                            .rows = d->upload.memory + d->upload.rows,
                                            .deltas = d->upload.memory + d->upload.deltas,
                                            .n_rows = (uint32_t)d->n_rows,
                                            .n_pairs = rope_dim / 2,
                                            .magnitude = d->model.magnitude[kind]};
        size_t rotations = d->pool->turns.end > 1 ? d->pool->turns.end - 1 : 0;
        spry_cuda_launch(&d->context, spry_rope_angles_id, d->n_rows + rotations, 1, 1, &args);
    }
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

/* Where attention or feed-forward adds or stores its result: x itself, or y if a norm or a scale follows. In
 * architectures that compute both parts from the same input, both results are added up in y. */
typedef struct part_sum {
    spry_cuda_memory out, norm, bias; /* norm after the part, or 0 */
    bool add, done;                   /* add: to the old values; done: no residual sum follows */
} part_sum;

static part_sum sum_of(const spry_cuda_device *d, spry_cuda_memory post_norm, spry_cuda_memory bias, bool second)
{
    bool parallel = d->config->arch->norms == SPRY_NORMS_PARALLEL;
    bool direct = !post_norm && !parallel && d->config->residual_scale == 1;
    return (part_sum){.out = direct ? d->scratch.x : d->scratch.y,
                      .norm = post_norm,
                      .bias = bias,
                      .add = direct || (parallel && second),
                      .done = direct || (parallel && !second)};
}

/* x += y, normalised first if there is a norm. */
static void add_residual(spry_cuda_device *d, const part_sum *sum)
{
    const spry_residual_args args = {.x = d->scratch.x,
                                     .y = d->scratch.y,
                                     .weight = sum->norm,
                                     .bias = sum->bias,
                                     .n = d->config->n_embd,
                                     .eps = d->config->norm_eps,
                                     .scale = d->config->residual_scale,
                                     .centre = d->config->layer_norm,
                                     .of_sum = d->config->arch->norms == SPRY_NORMS_SUM};
    spry_cuda_launch(&d->context, spry_residual_id, d->n_rows, 1, 1, &args);
    spry_cuda_charge(d, SPRY_OP_ADD, SPRY_F32, 0, 0);
}

spry_cuda_rows spry_cuda_attention_part(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer,
                                        const spry_cuda_rows *x)
{
    const spry_config *c = d->config;
    const part_sum sum = sum_of(d, l->attn_post_norm, l->attn_post_norm_bias, false);
    const spry_cuda_gemm o = {sum.out, c->n_embd, &l->o};
    const spry_quantise_args attended = c->n_kv_rank ? spry_cuda_mla(d, l, layer) : spry_cuda_attend(d, l, layer, x);
    const spry_cuda_rows result = spry_cuda_quantise_gemms(d, attended, &o, 1, d->n_rows, sum.add);
    spry_cuda_charge_gemms(d, SPRY_OP_OUT, &o, 1, d->n_rows);
    if (c->arch->streams)
        spry_cuda_add_laurel(d, l);
    else if (!sum.done)
        add_residual(d, &sum);
    return result;
}

/* A recurrent layer, in place of attention. */
static spry_cuda_rows keep_state(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const part_sum sum = sum_of(d, l->attn_post_norm, l->attn_post_norm_bias, false);
    const spry_cuda_gemm o = {sum.out, d->config->n_embd, &l->o};
    const spry_quantise_args given =
        d->config->arch->delta ? spry_cuda_delta(d, l, layer) : spry_cuda_convolution(d, l, layer);
    const spry_cuda_rows result = spry_cuda_quantise_gemms(d, given, &o, 1, d->n_rows, sum.add);
    spry_cuda_charge_gemms(d, SPRY_OP_OUT, &o, 1, d->n_rows);
    if (!sum.done)
        add_residual(d, &sum);
    return result;
}

/* Feed-forward part of a layer. `input`: the rows of x before its norm, or as attention has quantised them. */
static spry_cuda_rows feed_forward(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer,
                                   spry_quantise_args input, const part_sum *sum)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    bool has_gate = l->gate.type != SPRY_DTYPE_COUNT, sparse = spry_cuda_is_sparse(d, layer);
    size_t n = l->up.tiles.n_out, n_both = has_gate ? 2 : 1;
    const spry_cuda_gemm both[] = {{s->gate, n, has_gate ? &l->gate : &l->up}, {s->up, n, &l->up}};
    const spry_cuda_gemm down = {sum->out, c->n_embd, &l->down};
    spry_quantise_args activated = {
        .in = s->gate, .up = has_gate ? s->up : 0, .ungated = !has_gate, .n = (uint32_t)n, .gate = c->arch->gate};
    if (!has_gate || sparse || !spry_cuda_gate_up_gemms(d, &activated, input, both, &l->down, d->n_rows))
        spry_cuda_quantise_gemms(d, input, both, n_both, d->n_rows, false);
    spry_cuda_charge_gemms(d, SPRY_OP_GATE_UP, both, n_both, d->n_rows);
    if (sparse)
        spry_cuda_sparsify(d, layer, n);
    const spry_cuda_rows result = spry_cuda_quantise_gemms(d, activated, &down, 1, d->n_rows, sum->add);
    spry_cuda_charge_gemms(d, SPRY_OP_DOWN, &down, 1, d->n_rows);
    return result;
}

/* x: rows of x that are quantised already (see spry_cuda_input); on return those for the next layer. */
static void run_layer(spry_cuda_device *d, uint32_t layer, spry_cuda_rows *x)
{
    const spry_cuda_layer *l = &d->model.layers[layer];
    bool experts = l->router.type != SPRY_DTYPE_COUNT, parallel = d->config->arch->norms == SPRY_NORMS_PARALLEL;
    const part_sum sum = sum_of(d, l->ffn_post_norm, l->ffn_post_norm_bias, true);
    if (d->config->arch->streams) {
        spry_cuda_streams_predict(d, &l->side);
        spry_cuda_laurel(d, l);
    }
    *x = d->config->convolves[layer] ? keep_state(d, l, layer) : spry_cuda_attention_part(d, l, layer, x);
    const spry_quantise_args input = parallel ? spry_cuda_input(d, l->attn_norm, l->attn_norm_bias, x)
                                              : spry_cuda_input(d, l->ffn_norm, l->ffn_norm_bias, x);
    if (experts)
        spry_cuda_experts(d, l);
    *x = experts ? (spry_cuda_rows){0} : feed_forward(d, l, layer, input, &sum);
    if (experts || !sum.done)
        add_residual(d, &sum);
    if (d->config->arch->streams)
        spry_cuda_streams_correct(d, &l->side, layer);
}

/* Norm of the wanted rows, and the logits of those that need them. */
void spry_cuda_unembed(spry_cuda_device *d)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    const spry_cuda_gemm logits = {s->logits, c->n_vocab, &d->model.output};
    if (!d->n_wanted)
        return;
    const spry_quantise_args norm = {.in = s->x,
                                     .weight = d->model.output_norm,
                                     .bias = d->model.output_norm_bias,
                                     .centre = c->layer_norm,
                                     .plain = s->h,
                                     .source = d->upload.memory + d->upload.source,
                                     .n = c->n_embd};
    const spry_cuda_rows rows = spry_cuda_quantise(d, norm, &logits, d->n_logits ? 1 : 0, d->n_wanted, false);
    spry_cuda_charge(d, SPRY_OP_NORM, SPRY_F32, 0, 0);
    if (!d->n_logits)
        return;
    spry_cuda_gemms(d, &rows, &logits, 1, d->n_logits, false, (spry_cuda_expert_groups){0});
    const spry_softcap_args cap = {s->logits, d->n_logits * c->n_vocab, c->final_softcap, c->logit_scale};
    if (c->final_softcap > 0 || c->logit_scale != 1)
        spry_cuda_launch(&d->context, spry_softcap_id, SOFTCAP_BLOCKS, 1, 1, &cap);
    spry_cuda_charge_gemms(d, SPRY_OP_LOGITS, &logits, 1, d->n_logits);
}

void spry_cuda_run(spry_cuda_device *d)
{
    spry_cuda_rows x = {0};
    spry_cuda_charge(d, SPRY_OP_LAYOUT, SPRY_F32, 0, 0);
    spry_cuda_embed(d);
    make_angles(d);
    if (d->config->n_kv_rank)
        spry_cuda_mla_begin(d);
    if (d->config->arch->streams)
        spry_cuda_streams_begin(d);
    spry_cuda_charge(d, SPRY_OP_EMBED, SPRY_F32, 0, 0);
    for (uint32_t layer = 0; layer < d->config->n_layers; layer++)
        run_layer(d, layer, &x);
    if (d->config->arch->streams)
        spry_cuda_streams_end(d);
    spry_cuda_unembed(d);
}
