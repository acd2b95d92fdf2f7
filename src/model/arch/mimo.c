/* MiMo-V2-Flash: sliding layers have more key/value heads, sinks and a RoPE of their own; values are smaller than keys,
 * and scaled; experts as in DeepSeek V3, without shared ones. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->norm_eps = 1e-5f;
    config->n_context = 262144;
    config->window = 128;
    config->window_layers = 6;
    config->rope.theta = 5e6f;
    config->rope_sliding.theta = 1e4f;
    config->normalise_experts = true;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_kv_heads = 4;
        config->head_dim = 192;
        config->value_dim = 128;
        config->rope_part = 0.334f;
        config->n_experts = 256;
        config->n_experts_used = 8;
        config->n_expert_ff = 2048;
    }
}

/* Published files use layernorm_epsilon for the epsilon of their RMS norms. */
static void finish(spry_config *config)
{
    if (config->layer_norm_eps > 0)
        config->norm_eps = config->layer_norm_eps;
}

static bool slides(const spry_config *config, uint32_t layer)
{
    return layer && config->window_layers && (layer + 1) % config->window_layers != 0;
}

static const spry_tensor_name names[] = {
    {"attn_sinks", "=self_attn.attention_sink_bias", NULL},
    {"exp_probs_b", "=mlp.gate.e_score_correction_bias", NULL},
    {0},
};

const spry_arch spry_arch_mimo2 = {
    .name = "MiMo-V2-Flash",
    .gguf = "mimo2",
    .hf_type = "mimo_v2_flash",
    .gate = SPRY_GATE_SILU,
    .kinds = true,
    .two_ropes = true,
    .sinks = true,
    .routing = SPRY_ROUTING_SIGMOID,
    .choice_bias = true,
    .gguf_normalises = true,
    .names = names,
    .defaults = defaults,
    .finish = finish,
    .slides = slides,
};
