/* Names of tensors, and a walk over the matrices they name. */
#include "model/tensor_names.h"

#include <stdio.h>
#include <string.h>

#include "model/arch.h"

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* One line for each tensor. */

static const spry_tensor_name usual[] = {
    {"attn_norm", "input_layernorm", NULL},
    {"attn_q", "self_attn.q_proj", NULL},
    {"attn_k", "self_attn.k_proj", NULL},
    {"attn_v", "self_attn.v_proj", NULL},
    {"attn_qkv", "self_attn.qkv_proj", NULL},
    {"attn_output", "self_attn.o_proj", NULL},
    {"attn_gate", "self_attn.gate_proj", NULL},
    {"attn_q_norm", "self_attn.q_norm", NULL},
    {"attn_k_norm", "self_attn.k_norm", NULL},
    {"ffn_gate", "mlp.gate_proj", NULL},
    {"ffn_up", "mlp.up_proj", NULL},
    {"ffn_down", "mlp.down_proj", NULL},
    {"ffn_gate_inp", "mlp.gate", NULL},
    {"ffn_gate_exps", "mlp.experts.%u.gate_proj", NULL},
    {"ffn_up_exps", "mlp.experts.%u.up_proj", NULL},
    {"ffn_down_exps", "mlp.experts.%u.down_proj", NULL},
    {"ffn_gate_up_exps", "=mlp.experts.gate_up_proj", NULL},
    {"ffn_down_exps_all", "=mlp.experts.down_proj", NULL},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", NULL},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj", NULL},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj", NULL},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj", NULL},
    {"post_ffw_norm", "post_feedforward_layernorm", NULL},
    {"nextn.eh_proj", "eh_proj", NULL},
    {"nextn.enorm", "enorm", NULL},
    {"nextn.hnorm", "hnorm", NULL},
    {"nextn.shared_head_norm", "shared_head.norm", NULL},
    {0},
};

/* This Hugging Face name means another norm in architectures with norms after attention and feed-forward. */
static const spry_tensor_name norms_before[] = {{"ffn_norm", "post_attention_layernorm", NULL}, {0}};
static const spry_tensor_name norms_after[] = {
    {"post_attention_norm", "post_attention_layernorm", NULL},
    {"ffn_norm", "pre_feedforward_layernorm", NULL},
    {0},
};

static const spry_tensor_name *find(const spry_tensor_name *names, const char *ours)
{
    for (; names && names->ours; names++)
        if (!strcmp(names->ours, ours))
            return names;
    return NULL;
}

void spry_tensor_gguf_name(char name[SPRY_TENSOR_NAME_MAX], const spry_arch *arch, uint32_t layer, const char *ours,
                           const char *suffix)
{
    const spry_tensor_name *own = find(arch->names, ours);
    const char *prefix = arch->tower ? "v." : "";
    if (own && own->gguf && *own->gguf == '=')
        snprintf(name, SPRY_TENSOR_NAME_MAX, "%sblk.%u.%s", prefix, layer, own->gguf + 1);
    else
        snprintf(name, SPRY_TENSOR_NAME_MAX, "%sblk.%u.%s.%s", prefix, layer, own && own->gguf ? own->gguf : ours,
                 suffix);
}

static const char *spelling(const spry_arch *arch, const char *ours)
{
    bool after = arch->norms != SPRY_NORMS_BEFORE && arch->norms != SPRY_NORMS_PARALLEL;
    const spry_tensor_name *const lists[] = {arch->names, usual, after ? norms_after : norms_before};
    for (size_t i = 0; i < SPRY_COUNT(lists); i++) {
        const spry_tensor_name *found = find(lists[i], ours);
        if (found && found->hf)
            return found->hf;
    }
    return NULL;
}

bool spry_tensor_hf_name(char name[SPRY_TENSOR_NAME_MAX], const spry_arch *arch, const char *prefix, uint32_t layer,
                         const char *ours, uint32_t expert, const char *suffix)
{
    const char *spelled = spelling(arch, ours);
    if (!spelled)
        return false;
    const char *end = strchr(spelled, '%');
    bool bare = *spelled == '=';
    spelled += bare;
    snprintf(name, SPRY_TENSOR_NAME_MAX, "%s%s.%u.%.*s", prefix, arch->hf_layers ? arch->hf_layers : "layers", layer,
             end ? (int)(end - spelled) : 100, spelled);
    size_t used = strlen(name);
    if (end)
        snprintf(name + used, SPRY_TENSOR_NAME_MAX - used, "%u%s%s%s", expert, end + 2, bare ? "" : ".",
                 bare ? "" : suffix);
    else
        snprintf(name + used, SPRY_TENSOR_NAME_MAX - used, "%s%s", bare ? "" : ".", bare ? "" : suffix);
    return true;
}

/* ---- a walk over all matrices ------------------------------------------------------------------------------------ */

/* The GGUF names of matrices are the same as in export_plan.c. */

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

/* Visits matrices that are stored one after the other in one tensor. */
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

/* The matrices of a layer that no other layer has, if layers share some. */
static void visit_recurrent(const walk *w, spry_layer *l)
{
    visit(w, &l->delta_qkv[0], "attn_qkv");
    visit(w, &l->delta_qkv[1], "attn_k");
    visit(w, &l->delta_qkv[2], "attn_v");
    visit(w, &l->delta_gate, "attn_gate");
    visit(w, &l->delta_b, "ssm_beta");
    visit(w, &l->delta_a, "ssm_alpha");
    visit(w, &l->delta_out, "ssm_out");
    visit(w, &l->conv_in, "shortconv.in_proj");
    visit(w, &l->conv_out, "shortconv.out_proj");
}

static void visit_compressed(const walk *w, spry_layer *l, const spry_config *c)
{
    visit(w, &l->q_a, "attn_q_a");
    visit(w, &l->q, "attn_q_b");
    visit(w, &l->k, "attn_kv");
    visit(w, &l->o, "attn_output_b");
    for (uint32_t g = 0; g < c->n_out_groups; g++) {
        const spry_matrix m = {.weight = &l->out_groups[g],
                               .ours = "attn_output_a",
                               .layer = w->layer,
                               .n_rows = (size_t)c->n_out_groups * c->out_rank,
                               .first_row = (size_t)g * c->out_rank};
        w->visit(w->context, &m);
    }
    visit(w, &l->join_values, "attn_compressor_kv");
    visit(w, &l->join_gates, "attn_compressor_gate");
    visit(w, &l->index_q, "indexer.attn_q_b");
    visit(w, &l->index_join_values, "indexer_compressor_kv");
    visit(w, &l->index_join_gates, "indexer_compressor_gate");
}

static void visit_attention(const walk *w, spry_layer *l, const spry_config *c)
{
    if (c->arch->latent) {
        visit(w, &l->q_a, "attn_q_a");
        visit(w, &l->q, c->n_q_rank ? "attn_q_b" : "attn_q");
        visit(w, &l->k, "attn_kv_a_mqa");
        visit(w, &l->index_q, "indexer.attn_q_b");
        visit(w, &l->index_k, "indexer.attn_k");
    } else if (c->arch->compressed) {
        visit_compressed(w, l, c);
        return;
    } else if (c->arch->fused_qkv) {
        visit_parts(w, (spry_weight *const[]){&l->q, &l->k, &l->v}, 3, "attn_qkv");
    } else {
        visit_heads(w, &l->q, "attn_q");
        visit_heads(w, &l->k, "attn_k");
        visit(w, &l->v, "attn_v");
        visit(w, &l->attn_gate, "attn_gate");
    }
    visit(w, &l->o, "attn_output");
    visit_recurrent(w, l);
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
        bool elsewhere = spry_config_has_block(config, w.layer) && config->block_layer[w.layer] != w.layer;
        if (elsewhere)
            visit_recurrent(&w, &weights->layers[w.layer]);
        else
            visit_attention(&w, &weights->layers[w.layer], config);
        if (!elsewhere)
            visit_feed_forward(&w, &weights->layers[w.layer], config);
    }
    visit(&w, &weights->output, "output");
}

size_t spry_matrix_head(const spry_config *config, const spry_matrix *matrix)
{
    return matrix->heads && config->arch->permuted_in_gguf ? config->head_dim : 0;
}
