/* The OLMo models. */
#include "model/arch.h"

/* ---- OLMo 2 ------------------------------------------------------------------------------------------------------ */

/* OLMo 2: norms only after attention and feed-forward, q and k normalised as whole rows. */

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect;
    config->norm_eps = 1e-5f;
}

const spry_arch spry_arch_olmo2 = {
    .name = "OLMo 2",
    .gguf = "olmo2",
    .hf_type = "olmo2",
    .gate = SPRY_GATE_SILU,
    .norms = SPRY_NORMS_AFTER,
    .qk_norm = SPRY_QK_NORM_ROW,
    .never_slides = true,
    .defaults = defaults,
};

/* ---- OLMo hybrid ------------------------------------------------------------------------------------------------- */

/* OLMo hybrid: OLMo 2's layers with attention, and layers with a gated delta net, whose norms are before it and before
 * feed-forward. Queries, keys and values of the delta net have a matrix and a convolution each. */

static void hybrid_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_conv = 4;
    config->attention_interval = 4;
    config->delta_norm_eps = 1e-5f; /* whatever the config says */
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_context = 65536;
        config->n_delta_keys = config->n_delta_heads = 30;
        config->delta_key_dim = 96;
        config->delta_value_dim = 192;
    }
}

static const spry_tensor_name hybrid_names[] = {
    {"attn_norm", "attention_layer_norm", NULL},    {"ffn_norm", "feedforward_layer_norm", NULL},
    {"delta_q", "linear_attn.q_proj", "attn_q"},    {"delta_k", "linear_attn.k_proj", "attn_k"},
    {"delta_v", "linear_attn.v_proj", "attn_v"},    {"ssm_conv1d_q", "linear_attn.q_conv1d", NULL},
    {"ssm_conv1d_k", "linear_attn.k_conv1d", NULL}, {"ssm_conv1d_v", "linear_attn.v_conv1d", NULL},
    {"attn_gate", "linear_attn.g_proj", NULL},      {"ssm_beta", "linear_attn.b_proj", NULL},
    {"ssm_alpha", "linear_attn.a_proj", NULL},      {"ssm_dt", "=linear_attn.dt_bias", NULL},
    {"ssm_a", "=linear_attn.A_log", "=ssm_a"},      {"ssm_norm", "linear_attn.o_norm", NULL},
    {"ssm_out", "linear_attn.o_proj", NULL},        {0},
};

const spry_arch spry_arch_olmo_hybrid = {
    .name = "OLMo hybrid",
    .gguf = "olmo-hybrid",
    .hf_type = "olmo_hybrid",
    .gate = SPRY_GATE_SILU,
    .norms = SPRY_NORMS_AFTER,
    .qk_norm = SPRY_QK_NORM_ROW,
    .never_slides = true,
    .delta = true,
    .delta_parts = true,
    .delta_norms_before = true,
    .names = hybrid_names,
    .defaults = hybrid_defaults,
};
