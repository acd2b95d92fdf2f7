/* EXAONE 4 and K-EXAONE: q and k normalised per head. In models with sliding layers, the other layers have no RoPE. */
#include "model/arch.h"

/* ---- dense ------------------------------------------------------------------------------------------------------- */

/* EXAONE 4: norms only after attention and feed-forward. */

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->norm_eps = 1e-5f;
    config->window_layers = 4;
    if (dialect == SPRY_DIALECT_JSON)
        config->window = 4096;
}

static bool slides(const spry_config *config, uint32_t layer)
{
    return config->window_layers && (layer + 1) % config->window_layers != 0;
}

static bool rotates(const spry_config *config, uint32_t layer)
{
    return !config->window || config->sliding[layer];
}

const spry_arch spry_arch_exaone4 = {
    .name = "EXAONE 4",
    .gguf = "exaone4",
    .hf_type = "exaone4",
    .gate = SPRY_GATE_SILU,
    .norms = SPRY_NORMS_AFTER,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .defaults = defaults,
    .slides = slides,
    .rotates = rotates,
};

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* K-EXAONE: norms before both parts, experts as in DeepSeek V3. */

static void moe_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->norm_eps = 1e-5f;
    config->window_layers = 4;
    config->window = 128;
    config->normalise_experts = true;
    if (dialect == SPRY_DIALECT_JSON)
        config->routed_scale = 2.5f;
}

static const spry_tensor_name moe_names[] = {
    {"exp_probs_b", "=mlp.e_score_correction_bias", NULL},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj", NULL},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj", NULL},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj", NULL},
    {0},
};

const spry_arch spry_arch_exaone_moe = {
    .name = "K-EXAONE",
    .gguf = "exaone-moe",
    .hf_type = "exaone_moe",
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .routing = SPRY_ROUTING_SIGMOID,
    .choice_bias = true,
    .gguf_normalises = true,
    .names = moe_names,
    .defaults = moe_defaults,
    .slides = slides,
    .rotates = rotates,
};
