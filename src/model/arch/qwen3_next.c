/* Qwen3-Next: most layers have a gated delta net instead of attention (device/cpu/delta.c); attention has a gate;
 * Qwen2-MoE's experts, renormalised. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_context = 32768;
    config->n_conv = 4;
    config->attention_interval = 4;
    config->rope_part = 0.25f;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_kv_heads = 2;
        config->head_dim = 256;
        config->n_expert_ff = 512;
        config->n_shared_ff = 512;
        config->n_delta_keys = 16;
        config->n_delta_heads = 32;
        config->delta_key_dim = config->delta_value_dim = 128;
    }
    config->n_experts = 512;
    config->n_experts_used = 10;
}

static const spry_tensor_name names[] = {
    {"ffn_norm", "post_attention_layernorm", "post_attention_norm"},
    {"ssm_conv1d", "linear_attn.conv1d", NULL},
    {"ssm_dt", "=linear_attn.dt_bias", NULL},
    {"ssm_a", "=linear_attn.A_log", "=ssm_a"},
    {"ssm_ba", "linear_attn.in_proj_ba", NULL},
    {"ssm_norm", "linear_attn.norm", NULL},
    {"ssm_out", "linear_attn.out_proj", NULL},
    {"delta_qkvz", "linear_attn.in_proj_qkvz", "ssm_in"}, /* GGUF's first files */
    {0},
};

const spry_arch spry_arch_qwen3_next = {
    .name = "Qwen3-Next",
    .gguf = "qwen3next",
    .hf_type = "qwen3_next",
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .norm_plus_one = true,
    .gguf_normalises = true,
    .shared_expert = true,
    .delta = true,
    .gated_attention = true,
    .names = names,
    .defaults = defaults,
};
