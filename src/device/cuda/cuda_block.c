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

/* Rows of pictures in place of embeddings. */
static void embed_pictures(spry_cuda_device *d)
{
    size_t row = 0, n = d->config->n_embd * sizeof(float);
    for (size_t s = 0; s < d->n_step_segments; row += d->segments[s++].n_rows) {
        const spry_segment *g = &d->segments[s];
        if (g->picture)
            spry_cuda_write(&d->context, d->scratch.x + row * n, spry_picture_values(g->picture, 0, g->picture_row),
                            g->n_rows * n);
    }
}

/* Adds the values that pictures have for the rows after layer number `layer` - 1; true if there were some. */
static bool deepen(spry_cuda_device *d, uint32_t layer)
{
    size_t row = 0, n = d->config->n_embd * sizeof(float);
    bool any = false;
    for (size_t s = 0; s < d->n_step_segments; row += d->segments[s++].n_rows) {
        const spry_segment *g = &d->segments[s];
        const spry_residual_args add = {
            .x = d->scratch.x + row * n, .y = d->scratch.y + row * n, .n = d->config->n_embd, .scale = 1};
        if (!g->picture || layer > g->picture->n_deep || !g->n_rows)
            continue;
        spry_cuda_write(&d->context, add.y, spry_picture_values(g->picture, layer, g->picture_row), g->n_rows * n);
        spry_cuda_launch(&d->context, spry_residual_id, g->n_rows, 1, 1, &add);
        any = true;
    }
    return any;
}

static void keep_taps(spry_cuda_device *d, uint32_t layer)
{
    const spry_config *c = d->config;
    size_t bytes = d->n_rows * c->n_embd * sizeof(float);
    for (size_t i = 0; i < c->n_taps; i++)
        if (c->taps[i] == layer)
            spry_cuda_copy(&d->context, d->scratch.taps + i * bytes, d->scratch.x, bytes);
}

void spry_cuda_embed(spry_cuda_device *d)
{
    const spry_config *c = d->config;
    const spry_cuda_model *m = &d->model;
    float scale = c->arch->scaled_embedding ? sqrtf((float)c->n_embd) : c->embedding_scale;
    if (m->embedding.type == SPRY_DTYPE_COUNT && !c->arch->tower) /* the step has rows in place of tokens */
        return;
    embed_table(d, &m->embedding, (spry_embed_args){.by = SPRY_EMBED_TOKEN, .scale = scale});
    embed_table(d, &m->token_types, (spry_embed_args){.by = SPRY_EMBED_TYPE, .scale = 1, .add = true});
    embed_table(d, &m->positions,
                (spry_embed_args){.by = SPRY_EMBED_POSITION, .offset = c->position_offset, .scale = 1, .add = true});
    if (d->sees)
        embed_pictures(d);
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
                                            .axes = d->model.axes,
                                            .n_rows = (uint32_t)d->n_rows,
                                            .n_pairs = rope_dim / 2,
                                            .magnitude = d->model.magnitude[kind]};
        size_t rotations = d->pool->turns.end > 1 ? d->pool->turns.end - 1 : 0;
        spry_cuda_launch(&d->context, spry_rope_angles_id, d->n_rows + rotations, 1, 1, &args);
    }
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

void spry_cuda_scale_products(spry_cuda_device *d, const spry_cuda_gemm *products, size_t n_products)
{
    for (size_t i = 0; i < n_products; i++) {
        const spry_cuda_matrix *w = products[i].w;
        const spry_scale_args args = {products[i].out, products[i].stride, w->tiles.n_out, w->scale};
        if (w->scale != 0)
            spry_cuda_launch(&d->context, spry_scale_rows_id, d->n_rows, 1, 1, &args);
    }
}

/* Where attention or feed-forward adds or stores its result: x itself, or y if a norm or a scale follows. In
 * architectures that compute two parts from the same input, both results are added up in y. */
typedef struct part_sum {
    spry_cuda_memory out, norm, bias; /* norm after the part, or 0 */
    spry_cuda_memory factors;         /* of the result's values, or 0 */
    bool add, done;                   /* add: to the old values; done: no residual sum follows */
    float scale, sum_scale;           /* factors of the result and, unless 0, of the sum */
} part_sum;

static part_sum sum_of(const spry_cuda_device *d, spry_cuda_memory post_norm, spry_cuda_memory bias,
                       spry_cuda_memory factors, const spry_cuda_matrix *last, bool second)
{
    bool parallel = d->config->arch->norms == SPRY_NORMS_PARALLEL;
    float scale = d->config->residual_scale * (last->scale != 0 ? last->scale : 1);
    bool direct = !post_norm && !parallel && scale == 1 && !factors;
    return (part_sum){.out = direct ? d->scratch.x : d->scratch.y,
                      .norm = post_norm,
                      .bias = bias,
                      .factors = factors,
                      .add = direct || (parallel && second),
                      .done = direct || (parallel && !second),
                      .scale = scale};
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
                                     .scale = sum->scale,
                                     .centre = d->config->layer_norm,
                                     .of_sum = d->config->arch->norms == SPRY_NORMS_SUM,
                                     .sum_scale = sum->sum_scale,
                                     .factors = sum->factors};
    spry_cuda_launch(&d->context, spry_residual_id, d->n_rows, 1, 1, &args);
    spry_cuda_charge(d, SPRY_OP_ADD, SPRY_F32, 0, 0);
}

/* Multiplies a part's result by its last matrix. */
static spry_cuda_rows project_out(spry_cuda_device *d, spry_quantise_args from, const spry_cuda_matrix *w,
                                  const part_sum *sum)
{
    const spry_cuda_gemm o = {sum->out, d->config->n_embd, w};
    const spry_cuda_rows result = spry_cuda_quantise_gemms(d, from, &o, 1, d->n_rows, sum->add);
    spry_cuda_charge_gemms(d, SPRY_OP_OUT, &o, 1, d->n_rows);
    return result;
}

static spry_quantise_args attend(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer, const spry_cuda_rows *x)
{
    return d->config->n_kv_rank ? spry_cuda_mla(d, l, layer) : spry_cuda_attend(d, l, layer, x);
}

static spry_quantise_args keep_state(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    return d->config->arch->delta ? spry_cuda_delta(d, l, layer) : spry_cuda_convolution(d, l, layer);
}

spry_cuda_rows spry_cuda_attention_part(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer,
                                        const spry_cuda_rows *x)
{
    const part_sum sum = sum_of(d, l->attn_post_norm, l->attn_post_norm_bias, l->attn_scales, &l->o, false);
    const spry_cuda_rows result = project_out(d, attend(d, l, layer, x), &l->o, &sum);
    if (d->config->arch->streams)
        spry_cuda_add_laurel(d, l);
    else if (!sum.done)
        add_residual(d, &sum);
    return result;
}

/* A recurrent layer, in place of attention. */
static spry_cuda_rows state_part(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const part_sum sum = sum_of(d, l->attn_post_norm, l->attn_post_norm_bias, 0, &l->state_out, false);
    const spry_cuda_rows result = project_out(d, keep_state(d, l, layer), &l->state_out, &sum);
    if (!sum.done)
        add_residual(d, &sum);
    return result;
}

/* A recurrent part and attention, from the same input: both results are added up in y, which is then multiplied by the
 * factor of attention's. */
static void both_parts(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    part_sum sum = sum_of(d, l->attn_post_norm, l->attn_post_norm_bias, 0, &l->o, false);
    float state = l->state_out.scale != 0 ? l->state_out.scale : 1, attention = l->o.scale != 0 ? l->o.scale : 1;
    const spry_scale_args relative = {d->scratch.y, d->config->n_embd, d->config->n_embd, state / attention};
    sum.out = d->scratch.y;
    sum.add = false;
    project_out(d, keep_state(d, l, layer), &l->state_out, &sum);
    if (relative.scale != 1)
        spry_cuda_launch(&d->context, spry_scale_rows_id, d->n_rows, 1, 1, &relative);
    sum.add = true;
    project_out(d, attend(d, l, layer, NULL), &l->o, &sum);
    add_residual(d, &sum);
}

/* A gated feed-forward part. `input`: the rows of x before its norm, or as attention has quantised them. */
static spry_cuda_rows gated(spry_cuda_device *d, const spry_cuda_matrix *gate, const spry_cuda_matrix *up,
                            const spry_cuda_matrix *down, uint32_t layer, spry_quantise_args input, const part_sum *sum)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    bool has_gate = gate->type != SPRY_DTYPE_COUNT, sparse = spry_cuda_is_sparse(d, layer);
    size_t n = up->tiles.n_out, n_both = has_gate ? 2 : 1;
    const spry_cuda_gemm both[] = {{s->gate, n, has_gate ? gate : up}, {s->up, n, up}};
    const spry_cuda_gemm last = {sum->out, c->n_embd, down};
    bool apart = !has_gate || sparse || gate->scale != 0 || up->scale != 0 || gate->limits || up->limits;
    spry_quantise_args activated = {
        .in = s->gate, .up = has_gate ? s->up : 0, .ungated = !has_gate, .n = (uint32_t)n, .gate = c->arch->gate};
    if (apart || !spry_cuda_gate_up_gemms(d, &activated, input, both, down, d->n_rows))
        spry_cuda_quantise_gemms(d, input, both, n_both, d->n_rows, false);
    spry_cuda_charge_gemms(d, SPRY_OP_GATE_UP, both, n_both, d->n_rows);
    spry_cuda_scale_products(d, both, n_both);
    if (sparse)
        spry_cuda_sparsify(d, layer, n);
    const spry_cuda_rows result = spry_cuda_quantise_gemms(d, activated, &last, 1, d->n_rows, sum->add);
    spry_cuda_charge_gemms(d, SPRY_OP_DOWN, &last, 1, d->n_rows);
    return result;
}

/* Gemma 4's experts and its dense part, in y: the router, the experts and the dense part have norms of their own before
 * them, the last two also after them. */
static void experts_beside(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    const part_sum dense = {.out = s->shared_out};
    const spry_norm_args norm = {
        .x = s->y, .weight = l->expert_post_norm, .n = c->n_embd, .n_groups = 1, .eps = c->norm_eps};
    const spry_residual_args add = {
        .x = s->y, .y = s->shared_out, .weight = l->dense_post_norm, .n = c->n_embd, .eps = c->norm_eps, .scale = 1};
    gated(d, &l->dense_gate, &l->dense_up, &l->dense_down, layer, spry_cuda_input(d, l->ffn_norm, 0, NULL), &dense);
    spry_cuda_experts(d, l, spry_cuda_input(d, l->router_norm, 0, NULL), spry_cuda_input(d, l->expert_norm, 0, NULL),
                      s->y, false);
    spry_cuda_launch(&d->context, spry_norm_id, d->n_rows, 1, 1, &norm);
    spry_cuda_launch(&d->context, spry_residual_id, d->n_rows, 1, 1, &add);
}

/* Attention, or what a layer has in its place or in addition. x: rows of x that are quantised already (see
 * spry_cuda_input); returns those for the next part. */
static spry_cuda_rows mix(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer, const spry_cuda_rows *x)
{
    const spry_config *c = d->config;
    if (!c->convolves[layer])
        return spry_cuda_attention_part(d, l, layer, x);
    if (!c->arch->both_mixers)
        return state_part(d, l, layer);
    both_parts(d, l, layer);
    return (spry_cuda_rows){0};
}

static spry_cuda_rows feed_forward(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer,
                                   const spry_cuda_rows *x)
{
    const spry_config *c = d->config;
    bool experts = l->router.type != SPRY_DTYPE_COUNT, parallel = c->arch->norms == SPRY_NORMS_PARALLEL;
    part_sum sum = sum_of(d, l->ffn_post_norm, l->ffn_post_norm_bias, l->ffn_scales, &l->down, true);
    const spry_quantise_args input = parallel ? spry_cuda_input(d, l->attn_norm, l->attn_norm_bias, x)
                                              : spry_cuda_input(d, l->ffn_norm, l->ffn_norm_bias, x);
    spry_cuda_rows result = {0};
    sum.sum_scale = c->n_layer_embd ? 0 : l->output_scale; /* the layer's input is added first */
    if (experts) {
        sum.scale = c->residual_scale;
        sum.done = !l->ffn_post_norm && !parallel && sum.scale == 1 && sum.sum_scale == 0 && !l->dense_post_norm;
    }
    if (l->dense_post_norm)
        experts_beside(d, l, layer);
    else if (experts)
        spry_cuda_experts(d, l, input, input, sum.done ? d->scratch.x : d->scratch.y, parallel || sum.done);
    else
        result = gated(d, &l->gate, &l->up, &l->down, layer, input, &sum);
    if (!sum.done)
        add_residual(d, &sum);
    return result;
}

/* Gemma 4: adds the layer's own input, and multiplies by the layer's scalar. */
static void add_layer_input(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const part_sum sum = {.norm = l->side.post_norm, .scale = 1, .sum_scale = l->output_scale};
    spry_cuda_layer_part(d, &l->side, d->scratch.x, layer);
    add_residual(d, &sum);
}

/* x: rows of x that are quantised already; on return those for the next layer. */
static void run_layer(spry_cuda_device *d, uint32_t layer, spry_cuda_rows *x)
{
    const spry_config *c = d->config;
    const spry_cuda_layer *l = &d->model.layers[layer];
    if (c->arch->streams) {
        spry_cuda_streams_predict(d, &l->side);
        spry_cuda_laurel(d, l);
    }
    if (c->kinds[layer] != SPRY_LAYER_FEEDS)
        *x = mix(d, l, layer, x);
    if (c->kinds[layer] != SPRY_LAYER_MIXES)
        *x = feed_forward(d, l, layer, x);
    if (c->arch->streams)
        spry_cuda_streams_correct(d, &l->side, layer);
    else if (c->n_layer_embd)
        add_layer_input(d, l, layer);
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
    if (d->config->n_layer_embd)
        spry_cuda_layer_inputs(d);
    if (d->config->arch->streams)
        spry_cuda_streams_begin(d);
    spry_cuda_charge(d, SPRY_OP_EMBED, SPRY_F32, 0, 0);
    for (uint32_t layer = 0; layer < d->config->n_layers; layer++) {
        run_layer(d, layer, &x);
        if (d->sees && deepen(d, layer + 1))
            x = (spry_cuda_rows){0}; /* which were quantised before */
        if (d->config->arch->tower)
            keep_taps(d, layer);
    }
    if (d->config->arch->streams)
        spry_cuda_streams_end(d);
    spry_cuda_unembed(d);
}
