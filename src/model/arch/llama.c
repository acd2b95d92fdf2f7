/* Llama, Mistral and Mixtral, which have one name in GGUF. */
#include "model/arch.h"

/* ---- Llama ------------------------------------------------------------------------------------------------------- */

/* Llama 1 to 3.x. In GGUF the name also covers Mistral and Mixtral: those files say so by a window or by experts. */

const spry_arch spry_arch_llama = {
    .name = "Llama",
    .gguf = "llama",
    .hf_type = "llama",
    .gate = SPRY_GATE_SILU,
    .never_slides = true,
    .permuted_in_gguf = true,
    .gguf_normalises = true,
};

/* ---- Mistral ----------------------------------------------------------------------------------------------------- */

/* Mistral: Llama with a sliding window on every layer. */

static void mistral_defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect; /* GGUF calls it llama */
    config->window = 4096;
    config->n_kv_heads = 8;
    config->n_context = 131072;
}

const spry_arch spry_arch_mistral = {
    .name = "Mistral",
    .gguf = "llama",
    .hf_type = "mistral",
    .gate = SPRY_GATE_SILU,
    .permuted_in_gguf = true,
    .gguf_normalises = true,
    .defaults = mistral_defaults,
};

/* ---- Mixtral ----------------------------------------------------------------------------------------------------- */

/* Mixtral: Mistral whose feed-forward part is a mixture of experts, weights renormalised over the chosen ones. */

static void mixtral_defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect; /* GGUF calls it llama */
    config->rope.theta = 1e6f;
    config->norm_eps = 1e-5f;
    config->n_kv_heads = 8;
    config->n_context = 131072;
    config->n_experts = 8;
    config->n_experts_used = 2;
    config->normalise_experts = true;
}

static const spry_tensor_name names[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate", NULL},
    {"ffn_gate_exps", "block_sparse_moe.experts.%u.w1", NULL},
    {"ffn_up_exps", "block_sparse_moe.experts.%u.w3", NULL},
    {"ffn_down_exps", "block_sparse_moe.experts.%u.w2", NULL},
    {0},
};

const spry_arch spry_arch_mixtral = {
    .name = "Mixtral",
    .gguf = "llama",
    .hf_type = "mixtral",
    .gate = SPRY_GATE_SILU,
    .permuted_in_gguf = true,
    .gguf_normalises = true,
    .names = names,
    .defaults = mixtral_defaults,
};
