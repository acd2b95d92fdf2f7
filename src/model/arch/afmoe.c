/* AFMoE (Arcee's Trinity): norms before and after both parts, gates for attention's result, RoPE only in sliding
 * layers, experts selected by a sigmoid and a bias in addition to shared ones. In GGUF embeddings are scaled unless the
 * file says otherwise. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->norm_eps = 1e-5f;
    config->n_context = 16384;
    config->window = 1024;
    config->window_layers = 4;
    config->normalise_experts = true;
    if (dialect == SPRY_DIALECT_GGUF)
        config->embedding_scale = -1;
}

static bool slides(const spry_config *config, uint32_t layer)
{
    return config->window_layers && (layer + 1) % config->window_layers != 0;
}

static bool rotates(const spry_config *config, uint32_t layer)
{
    return config->sliding[layer];
}

static const spry_tensor_name names[] = {
    {"ffn_norm", "pre_mlp_layernorm", NULL},
    {"post_ffw_norm", "post_mlp_layernorm", NULL},
    {"ffn_gate_inp", "mlp.router.gate", NULL},
    {"exp_probs_b", "=mlp.expert_bias", NULL},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj", NULL},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj", NULL},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj", NULL},
    {0},
};

const spry_arch spry_arch_afmoe = {
    .name = "AFMoE",
    .gguf = "afmoe",
    .hf_type = "afmoe",
    .gate = SPRY_GATE_SILU,
    .norms = SPRY_NORMS_AROUND,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .attention_gate = true,
    .routing = SPRY_ROUTING_SIGMOID,
    .choice_bias = true,
    .gguf_normalises = true,
    .names = names,
    .defaults = defaults,
    .slides = slides,
    .rotates = rotates,
};
