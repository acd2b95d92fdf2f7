/* Llama, Mistral and Mixtral, which have one name in GGUF. */
#include "model/arch.h"

/* ---- Llama ------------------------------------------------------------------------------------------------------- */

/* Llama 1 to 3.x. In GGUF Mistral and Mixtral have the same name; their files have a window, or experts. */

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

/* ---- Llama 4 ----------------------------------------------------------------------------------------------------- */

/* Llama 4 (text): every fourth layer sees all keys, without RoPE and with queries scaled by position; in other layers a
 * row sees the keys of its own block of positions. Inputs of experts are multiplied by a sigmoid; there is a shared
 * expert, too. */

static void llama4_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_context = 131072;
    config->norm_eps = 1e-5f;
    config->rope.theta = config->rope_sliding.theta = 5e5f;
    config->window = 8192;
    config->rope_interval = 4;
    config->temperature_scale = 0.1f;
    config->temperature_length = 8192;
    config->temperature_offset = 1;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_kv_heads = 8;
        config->head_dim = 128;
        config->n_experts = 16;
        config->n_experts_used = 1;
        config->n_ff = 8192; /* the feed-forward size of experts */
        config->n_dense_ff = 16384;
    }
}

static void llama4_finish(spry_config *config)
{
    config->n_shared = config->n_experts ? 1 : 0;
    config->n_shared_ff = config->n_shared ? config->n_expert_ff : 0;
}

static bool llama4_rotates(const spry_config *config, uint32_t layer)
{
    return !config->rope_interval || (layer + 1) % config->rope_interval != 0;
}

static const spry_tensor_name llama4_names[] = {
    {"ffn_gate", "feed_forward.gate_proj", NULL},
    {"ffn_up", "feed_forward.up_proj", NULL},
    {"ffn_down", "feed_forward.down_proj", NULL},
    {"ffn_gate_inp", "feed_forward.router", NULL},
    {"ffn_gate_up_exps", "=feed_forward.experts.gate_up_proj", NULL},
    {"ffn_down_exps", "=feed_forward.experts.down_proj", NULL},
    {"ffn_gate_shexp", "feed_forward.shared_expert.gate_proj", NULL},
    {"ffn_up_shexp", "feed_forward.shared_expert.up_proj", NULL},
    {"ffn_down_shexp", "feed_forward.shared_expert.down_proj", NULL},
    {0},
};

const spry_arch spry_arch_llama4 = {
    .name = "Llama 4",
    .gguf = "llama4",
    .hf_type = "llama4_text",
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_BARE,
    .qk_norm_flag = true,
    .interleaved = true,
    .chunked = true,
    .cools_unrotated = true,
    .routing = SPRY_ROUTING_SIGMOID,
    .experts_across = true,
    .scales_inputs = true,
    .names = llama4_names,
    .defaults = llama4_defaults,
    .finish = llama4_finish,
    .slides = llama4_rotates,
    .rotates = llama4_rotates,
};
