/* ERNIE 4.5. */
#include "model/arch.h"

/* ---- dense ------------------------------------------------------------------------------------------------------- */

/* ERNIE 4.5: Llama with rope pairs (2i, 2i + 1). */

static void ernie4_5_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->norm_eps = 1e-5f;
    config->n_context = 131072;
    config->rope.theta = 5e5f;
    config->tied = true;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_kv_heads = 2;
        config->head_dim = 128;
    }
}

const spry_arch spry_arch_ernie4_5 = {
    .name = "ERNIE 4.5",
    .gguf = "ernie4_5",
    .hf_type = "ernie4_5",
    .gate = SPRY_GATE_SILU,
    .interleaved = true,
    .never_slides = true,
    .defaults = ernie4_5_defaults,
};

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* ERNIE 4.5 MoE: experts selected by a softmax plus a bias, in addition to shared ones; some layers are dense. */

static void ernie4_5_moe_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->norm_eps = 1e-5f;
    config->n_context = 131072;
    config->rope.theta = 5e5f;
    config->tied = true;
    config->normalise_experts = true;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_kv_heads = 4;
        config->n_experts = 64;
        config->n_experts_used = 6;
        config->n_expert_ff = 1536;
        config->n_shared = 2;
    }
}

static const spry_tensor_name names[] = {
    {"exp_probs_b", "=mlp.moe_statics.e_score_correction_bias", NULL},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj", NULL},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj", NULL},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj", NULL},
    {0},
};

const spry_arch spry_arch_ernie4_5_moe = {
    .name = "ERNIE 4.5 MoE",
    .gguf = "ernie4_5-moe",
    .hf_type = "ernie4_5_moe",
    .gate = SPRY_GATE_SILU,
    .interleaved = true,
    .choice_bias = true,
    .gguf_normalises = true,
    .never_slides = true,
    .names = names,
    .defaults = ernie4_5_moe_defaults,
};
