/* GLM-4 (0414): norms around both parts, half of each head rotated in pairs (2i, 2i + 1), gate and up in one matrix. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->norm_eps = dialect == SPRY_DIALECT_JSON ? 1.5625e-7f : 1e-5f;
    config->n_context = 131072;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_kv_heads = 2;
        config->head_dim = 128;
        config->rope_part = 0.5f;
    }
}

static const spry_tensor_name names[] = {
    {"post_attention_norm", "post_self_attn_layernorm", NULL},
    {"ffn_norm", "post_attention_layernorm", NULL},
    {"post_ffw_norm", "post_mlp_layernorm", NULL},
    {"ffn_up", "mlp.gate_up_proj", NULL},
    {0},
};

const spry_arch spry_arch_glm4 = {
    .name = "GLM-4",
    .gguf = "glm4",
    .hf_type = "glm4",
    .gate = SPRY_GATE_SILU,
    .norms = SPRY_NORMS_AROUND,
    .interleaved = true,
    .fused_gate_up = true,
    .never_slides = true,
    .names = names,
    .defaults = defaults,
};
