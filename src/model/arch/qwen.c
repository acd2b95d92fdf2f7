/* The Qwen models. */
#include "model/arch.h"

/* ---- Qwen 2 ------------------------------------------------------------------------------------------------------ */

/* Qwen 2 and 2.5: biases on q, k and v. */

static void qwen2_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_context = 32768;
    if (dialect == SPRY_DIALECT_JSON) {
        config->window = 4096;
        config->n_kv_heads = 32;
    }
    config->window_layers = 28;
}

static bool qwen2_slides(const spry_config *config, uint32_t layer)
{
    return layer >= config->window_layers;
}

const spry_arch spry_arch_qwen2 = {
    .name = "Qwen2",
    .gguf = "qwen2",
    .hf_type = "qwen2",
    .gate = SPRY_GATE_SILU,
    .qkv_bias = true,
    .window_needs_flag = true,
    .defaults = qwen2_defaults,
    .slides = qwen2_slides,
};

/* Qwen2.5-VL's text model: Qwen 2 whose rope has three axes. */
const spry_arch spry_arch_qwen2_vl = {
    .name = "Qwen2.5-VL",
    .gguf = "qwen2vl",
    .hf_type = "qwen2_5_vl_text",
    .gate = SPRY_GATE_SILU,
    .qkv_bias = true,
    .window_needs_flag = true,
    .defaults = qwen2_defaults,
    .slides = qwen2_slides,
};

/* ---- Qwen2-MoE --------------------------------------------------------------------------------------------------- */

/* Qwen2-MoE: a softmax over all experts, whose weights are normalised only with norm_topk_prob, and a shared expert
 * with a gate. */

static void qwen2_moe_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_context = 32768;
    if (dialect == SPRY_DIALECT_JSON) {
        config->window = 4096;
        config->n_kv_heads = 16;
        config->n_expert_ff = 1408;
        config->n_shared_ff = 5632;
    }
    config->window_layers = 28;
    config->n_experts = 60;
    config->n_experts_used = 4;
}

static bool qwen2_moe_slides(const spry_config *config, uint32_t layer)
{
    return layer % 2 == 0 && layer < config->window_layers;
}

const spry_arch spry_arch_qwen2_moe = {
    .name = "Qwen2-MoE",
    .gguf = "qwen2moe",
    .hf_type = "qwen2_moe",
    .gate = SPRY_GATE_SILU,
    .qkv_bias = true,
    .shared_expert = true,
    .window_needs_flag = true,
    .defaults = qwen2_moe_defaults,
    .slides = qwen2_moe_slides,
};

/* ---- Qwen 3 ------------------------------------------------------------------------------------------------------ */

/* Qwen 3: no biases, q and k normalised per head before rope. */

static void qwen3_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_context = 32768;
    config->head_dim = 128;
    if (dialect == SPRY_DIALECT_JSON) {
        config->window = 4096;
        config->n_kv_heads = 32;
    }
    config->window_layers = 28;
}

static bool qwen3_slides(const spry_config *config, uint32_t layer)
{
    return layer >= config->window_layers;
}

const spry_arch spry_arch_qwen3 = {
    .name = "Qwen3",
    .gguf = "qwen3",
    .hf_type = "qwen3",
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .window_needs_flag = true,
    .defaults = qwen3_defaults,
    .slides = qwen3_slides,
};

/* Qwen3-VL's text model: Qwen 3 with three axes of RoPE. */
const spry_arch spry_arch_qwen3_vl = {
    .name = "Qwen3-VL",
    .gguf = "qwen3vl",
    .hf_type = "qwen3_vl_text",
    .mixed_axes = true,
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .window_needs_flag = true,
    .defaults = qwen3_defaults,
    .slides = qwen3_slides,
};

/* ---- Qwen3-MoE --------------------------------------------------------------------------------------------------- */

/* Qwen3-MoE: Qwen3's attention, experts without a shared one; some layers may be dense. */

static void qwen3_moe_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_context = 32768;
    if (dialect == SPRY_DIALECT_JSON) {
        config->window = 4096;
        config->n_kv_heads = 4;
        config->n_expert_ff = 768;
    }
    config->n_experts = 128;
    config->n_experts_used = 8;
}

const spry_arch spry_arch_qwen3_moe = {
    .name = "Qwen3-MoE",
    .gguf = "qwen3moe",
    .hf_type = "qwen3_moe",
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .gguf_normalises = true,
    .window_needs_flag = true,
    .defaults = qwen3_moe_defaults,
};

/* ---- Qwen3-Next -------------------------------------------------------------------------------------------------- */

/* Qwen3-Next: most layers have a gated delta net in place of attention (device/cpu/recurrent.c); attention has a gate;
 * experts as in Qwen2-MoE, with normalised weights. */

static void qwen3_next_defaults(spry_config *config, spry_config_dialect dialect)
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

#define DELTA_NAMES                                                                                                    \
    {"ffn_norm", "post_attention_layernorm", "post_attention_norm"}, {"ssm_conv1d", "linear_attn.conv1d", NULL},       \
        {"ssm_dt", "=linear_attn.dt_bias", NULL}, {"ssm_a", "=linear_attn.A_log", "=ssm_a"},                           \
        {"ssm_norm", "linear_attn.norm", NULL},                                                                        \
    {                                                                                                                  \
        "ssm_out", "linear_attn.out_proj", NULL                                                                        \
    }

static const spry_tensor_name qwen3_next_names[] = {
    DELTA_NAMES,
    {"ssm_ba", "linear_attn.in_proj_ba", NULL},
    {"delta_qkvz", "linear_attn.in_proj_qkvz", "ssm_in"}, /* early GGUF files have one matrix */
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
    .names = qwen3_next_names,
    .defaults = qwen3_next_defaults,
};

/* ---- Qwen 3.5 ---------------------------------------------------------------------------------------------------- */

/* Qwen 3.5, 3.6 and 3.8: Qwen3-Next's layers with a separate matrix for each input of the delta net; dense, or with
 * Qwen3-Next's experts. GGUF files have the delta net's heads in another order. */

static void qwen3_5_defaults(spry_config *config, spry_config_dialect dialect)
{
    qwen3_next_defaults(config, dialect);
    config->n_experts = config->n_experts_used = 0;
    config->n_expert_ff = config->n_shared_ff = 0;
    config->rope.theta = config->rope_sliding.theta = 1e7f;
}

static void qwen3_5_moe_defaults(spry_config *config, spry_config_dialect dialect)
{
    qwen3_5_defaults(config, dialect);
    if (dialect == SPRY_DIALECT_JSON)
        config->n_expert_ff = config->n_shared_ff = 512;
    config->n_experts = 256;
    config->n_experts_used = 8;
    config->normalise_experts = true;
}

static const spry_tensor_name qwen3_5_names[] = {
    DELTA_NAMES,
    {"attn_qkv", "linear_attn.in_proj_qkv", NULL},
    {"attn_gate", "linear_attn.in_proj_z", NULL},
    {"ssm_beta", "linear_attn.in_proj_b", NULL},
    {"ssm_alpha", "linear_attn.in_proj_a", NULL},
    {0},
};

const spry_arch spry_arch_qwen3_5 = {
    .name = "Qwen3.5",
    .gguf = "qwen35",
    .hf_type = "qwen3_5_text",
    .mixed_axes = true,
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .norm_plus_one = true,
    .delta = true,
    .delta_tiled = true,
    .gated_attention = true,
    .names = qwen3_5_names,
    .defaults = qwen3_5_defaults,
};

const spry_arch spry_arch_qwen3_5_moe = {
    .name = "Qwen3.5-MoE",
    .gguf = "qwen35moe",
    .hf_type = "qwen3_5_moe_text",
    .mixed_axes = true,
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .norm_plus_one = true,
    .gguf_normalises = true,
    .shared_expert = true,
    .delta = true,
    .delta_tiled = true,
    .gated_attention = true,
    .names = qwen3_5_names,
    .defaults = qwen3_5_moe_defaults,
};
