/* The Granite models. */
#include "model/arch.h"

/* ---- dense ------------------------------------------------------------------------------------------------------- */

/* Granite 3: Llama with multipliers of embedding, attention scores, residuals and logits. */

/* Scores are not scaled if config.json does not say so. */
static void granite_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->attention_scale = dialect == SPRY_DIALECT_JSON ? 1 : 0;
}

const spry_arch spry_arch_granite = {
    .name = "Granite",
    .gguf = "granite",
    .hf_type = "granite",
    .gate = SPRY_GATE_SILU,
    .never_slides = true,
    .permuted_in_gguf = true,
    .divides_logits = true,
    .defaults = granite_defaults,
};

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* Granite MoE: Granite with experts, all in one tensor. */

static void granite_moe_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->attention_scale = dialect == SPRY_DIALECT_JSON ? 1 : 0;
    config->n_experts = 8;
    config->n_experts_used = 2;
    config->normalise_experts = true;
}

/* In GGUF the same name is used for models with a shared expert, which has a size of its own. */
static void finish(spry_config *config)
{
    config->n_shared = config->n_shared_ff ? 1 : 0;
}

static const spry_tensor_name names[] = {
    {"ffn_gate_inp", "block_sparse_moe.router.layer", NULL},
    {"ffn_gate_up_exps", "block_sparse_moe.input_linear", NULL},
    {"ffn_down_exps_all", "block_sparse_moe.output_linear", NULL},
    {0},
};

const spry_arch spry_arch_granite_moe = {
    .name = "Granite MoE",
    .gguf = "granitemoe",
    .hf_type = "granitemoe",
    .gate = SPRY_GATE_SILU,
    .gguf_normalises = true,
    .never_slides = true,
    .permuted_in_gguf = true,
    .divides_logits = true,
    .names = names,
    .defaults = granite_moe_defaults,
    .finish = finish,
};
