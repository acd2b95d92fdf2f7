/* gpt-oss: attention sinks, every other layer slides, biases everywhere, experts with a clamped gate; published in
 * 4-bit floats. In GGUF its second norm has the name that other models use for a norm after attention. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->norm_eps = 1e-5f;
    config->n_context = 131072;
    config->head_dim = 64;
    config->window = 128;
    config->rope.theta = 150000;
    config->rope.truncate = false;
    config->normalise_experts = true;
    config->n_experts = 128;
    config->n_experts_used = 4;
    if (dialect == SPRY_DIALECT_JSON)
        config->n_kv_heads = 8;
}

static bool slides(const spry_config *config, uint32_t layer)
{
    (void)config;
    return layer % 2 == 0;
}

static const spry_tensor_name names[] = {
    {"ffn_norm", NULL, "post_attention_norm"},
    {"attn_sinks", "=self_attn.sinks", NULL},
    {"ffn_gate_inp", "mlp.router", NULL},
    {"ffn_gate_up_exps", "=mlp.experts.gate_up_proj", NULL},
    {"ffn_down_exps", "=mlp.experts.down_proj", NULL},
    {0},
};

const spry_arch spry_arch_gpt_oss = {
    .name = "gpt-oss",
    .gguf = "gpt-oss",
    .hf_type = "gpt_oss",
    .gate = SPRY_GATE_CLAMPED,
    .sinks = true,
    .qkv_bias = true,
    .out_bias = true,
    .router_bias = true,
    .routing = SPRY_ROUTING_CHOSEN,
    .experts_mixed = true,
    .gguf_normalises = true,
    .names = names,
    .defaults = defaults,
    .slides = slides,
};
