/* One line a tensor. */
#include "model/tensor_names.h"

#include <stdio.h>
#include <string.h>

static const spry_tensor_name usual[] = {
    {"attn_norm", "input_layernorm", NULL},
    {"attn_q", "self_attn.q_proj", NULL},
    {"attn_k", "self_attn.k_proj", NULL},
    {"attn_v", "self_attn.v_proj", NULL},
    {"attn_qkv", "self_attn.qkv_proj", NULL},
    {"attn_output", "self_attn.o_proj", NULL},
    {"attn_q_norm", "self_attn.q_norm", NULL},
    {"attn_k_norm", "self_attn.k_norm", NULL},
    {"ffn_gate", "mlp.gate_proj", NULL},
    {"ffn_up", "mlp.up_proj", NULL},
    {"ffn_down", "mlp.down_proj", NULL},
    {"ffn_gate_inp", "mlp.gate", NULL},
    {"ffn_gate_exps", "mlp.experts.%u.gate_proj", NULL},
    {"ffn_up_exps", "mlp.experts.%u.up_proj", NULL},
    {"ffn_down_exps", "mlp.experts.%u.down_proj", NULL},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", NULL},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj", NULL},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj", NULL},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj", NULL},
    {"post_ffw_norm", "post_feedforward_layernorm", NULL},
    {0},
};

/* The same Hugging Face name means another norm where parts have norms behind them. */
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
    if (own && own->gguf && *own->gguf == '=')
        snprintf(name, SPRY_TENSOR_NAME_MAX, "blk.%u.%s", layer, own->gguf + 1);
    else
        snprintf(name, SPRY_TENSOR_NAME_MAX, "blk.%u.%s.%s", layer, own && own->gguf ? own->gguf : ours, suffix);
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
