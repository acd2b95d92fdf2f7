/* Qwen2-MoE: a softmax over all experts, renormalised only if norm_topk_prob, and a shared expert behind its own gate.
 */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
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

static bool slides(const spry_config *config, uint32_t layer)
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
    .defaults = defaults,
    .slides = slides,
};
