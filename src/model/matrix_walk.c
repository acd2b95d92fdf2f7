/* The names are those of export_plan.c. */
#include "model/matrix_walk.h"

#include "model/arch.h"

typedef struct walk {
    void (*visit)(void *context, const spry_matrix *matrix);
    void *context;
    uint32_t layer;
} walk;

static void visit(const walk *w, spry_weight *weight, const char *ours)
{
    const spry_matrix m = {.weight = weight, .ours = ours, .layer = w->layer, .n_rows = weight->n_out};
    if (weight->data)
        w->visit(w->context, &m);
}

static void visit_heads(const walk *w, spry_weight *weight, const char *ours)
{
    const spry_matrix m = {.weight = weight, .ours = ours, .layer = w->layer, .n_rows = weight->n_out, .heads = true};
    if (weight->data)
        w->visit(w->context, &m);
}

/* Matrices one after another in one tensor. */
static void visit_parts(const walk *w, spry_weight *const *parts, size_t n, const char *ours)
{
    spry_matrix m = {.ours = ours, .layer = w->layer};
    for (size_t i = 0; i < n; i++)
        m.n_rows += parts[i]->n_out;
    for (size_t i = 0; i < n; m.first_row += parts[i++]->n_out) {
        m.weight = parts[i];
        if (m.weight->data)
            w->visit(w->context, &m);
    }
}

static void visit_experts(const walk *w, spry_weight *experts, uint32_t n, const char *ours)
{
    spry_matrix m = {.ours = ours, .layer = w->layer, .stacked = true};
    for (; experts && m.expert < n; m.expert++) {
        m.weight = &experts[m.expert];
        m.n_rows = m.weight->n_out;
        if (m.weight->data)
            w->visit(w->context, &m);
    }
}

static void visit_attention(const walk *w, spry_layer *l, const spry_config *c)
{
    if (c->arch->latent) {
        visit(w, &l->q_a, "attn_q_a");
        visit(w, &l->q, c->n_q_rank ? "attn_q_b" : "attn_q");
        visit(w, &l->k, "attn_kv_a_mqa");
    } else if (c->arch->fused_qkv) {
        visit_parts(w, (spry_weight *const[]){&l->q, &l->k, &l->v}, 3, "attn_qkv");
    } else {
        visit_heads(w, &l->q, "attn_q");
        visit_heads(w, &l->k, "attn_k");
        visit(w, &l->v, "attn_v");
    }
    visit(w, &l->o, "attn_output");
    visit(w, &l->delta_qkv, "attn_qkv");
    visit(w, &l->delta_gate, "attn_gate");
    visit(w, &l->delta_ba, "ssm_ba");
    visit(w, &l->delta_out, "ssm_out");
    visit(w, &l->conv_in, "shortconv.in_proj");
    visit(w, &l->conv_out, "shortconv.out_proj");
}

static void visit_feed_forward(const walk *w, spry_layer *l, const spry_config *c)
{
    if (c->arch->fused_gate_up) {
        visit_parts(w, (spry_weight *const[]){&l->gate, &l->up}, 2, "ffn_up");
    } else {
        visit(w, &l->gate, "ffn_gate");
        visit(w, &l->up, "ffn_up");
    }
    visit(w, &l->down, "ffn_down");
    visit_experts(w, l->expert_gate, c->n_experts, "ffn_gate_exps");
    visit_experts(w, l->expert_up, c->n_experts, "ffn_up_exps");
    visit_experts(w, l->expert_down, c->n_experts, "ffn_down_exps");
    visit(w, &l->router, "ffn_gate_inp");
    visit(w, &l->shared_router, "ffn_gate_inp_shexp");
    visit(w, &l->shared_gate, "ffn_gate_shexp");
    visit(w, &l->shared_up, "ffn_up_shexp");
    visit(w, &l->shared_down, "ffn_down_shexp");
}

void spry_matrices_each(spry_weights *weights, const spry_config *config,
                        void (*visit_one)(void *context, const spry_matrix *matrix), void *context)
{
    walk w = {visit_one, context, 0};
    for (; w.layer < config->n_layers; w.layer++) {
        visit_attention(&w, &weights->layers[w.layer], config);
        visit_feed_forward(&w, &weights->layers[w.layer], config);
    }
    visit(&w, &weights->output, "output");
}

size_t spry_matrix_head(const spry_config *config, const spry_matrix *matrix)
{
    return matrix->heads && config->arch->permuted_in_gguf ? config->head_dim : 0;
}
