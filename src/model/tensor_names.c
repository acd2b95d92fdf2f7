/* One line a tensor. */
#include "model/tensor_names.h"

#include <string.h>

typedef struct name_pair {
    const char *gguf;
    const char *hf[SPRY_TENSOR_ALIASES];
} name_pair;

static const name_pair shared_names[] = {
    {"attn_norm", {"input_layernorm"}},
    {"attn_q", {"self_attn.q_proj"}},
    {"attn_k", {"self_attn.k_proj"}},
    {"attn_v", {"self_attn.v_proj"}},
    {"attn_qkv", {"self_attn.qkv_proj"}},
    {"attn_output", {"self_attn.o_proj"}},
    {"attn_q_norm", {"self_attn.q_norm"}},
    {"attn_k_norm", {"self_attn.k_norm"}},
    {"ffn_gate", {"mlp.gate_proj"}},
    {"ffn_up", {"mlp.up_proj", "mlp.gate_up_proj"}},
    {"ffn_down", {"mlp.down_proj"}},
    {"ffn_gate_inp", {"mlp.gate", "block_sparse_moe.gate"}},
    {"ffn_gate_exps", {"mlp.experts.%u.gate_proj", "block_sparse_moe.experts.%u.w1"}},
    {"ffn_up_exps", {"mlp.experts.%u.up_proj", "block_sparse_moe.experts.%u.w3"}},
    {"ffn_down_exps", {"mlp.experts.%u.down_proj", "block_sparse_moe.experts.%u.w2"}},
    {"ffn_gate_inp_shexp", {"mlp.shared_expert_gate"}},
    {"ffn_gate_shexp", {"mlp.shared_expert.gate_proj"}},
    {"ffn_up_shexp", {"mlp.shared_expert.up_proj"}},
    {"ffn_down_shexp", {"mlp.shared_expert.down_proj"}},
};

/* The same Hugging Face name means another norm where there are four of them. */
static const name_pair two_norms[] = {{"ffn_norm", {"post_attention_layernorm"}}};
static const name_pair four_norms[] = {
    {"post_attention_norm", {"post_attention_layernorm"}},
    {"ffn_norm", {"pre_feedforward_layernorm"}},
    {"post_ffw_norm", {"post_feedforward_layernorm"}},
};

static const name_pair *find(const name_pair *pairs, size_t count, const char *gguf_name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(pairs[i].gguf, gguf_name))
            return &pairs[i];
    return NULL;
}

void spry_tensor_hf_names(const char *names[SPRY_TENSOR_ALIASES], const spry_arch *arch, const char *gguf_name)
{
    const name_pair *pair = find(shared_names, SPRY_COUNT(shared_names), gguf_name);
    if (!pair)
        pair = arch->sandwich_norms ? find(four_norms, SPRY_COUNT(four_norms), gguf_name)
                                    : find(two_norms, SPRY_COUNT(two_norms), gguf_name);
    for (size_t i = 0; i < SPRY_TENSOR_ALIASES; i++)
        names[i] = pair ? pair->hf[i] : NULL;
    if (names[1] && (arch->fused || arch == &spry_arch_mixtral)) { /* theirs is the other spelling */
        const char *other = names[0];
        names[0] = names[1];
        names[1] = other;
    }
}
