/* Qwen3-MoE: Qwen3's attention, experts without a shared one; some layers may be dense. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_context = 32768;
    if (dialect == SPRY_DIALECT_JSON) {
        config->window = 4096;
        config->n_kv_heads = 4;
        config->n_expert_ff = 768;
    }
    config->n_experts = 128;
    config->n_experts_used = 8;
}

const spry_arch spry_arch_qwen3_moe = {
    .name = "Qwen3-MoE",
    .gguf = "qwen3moe",
    .hf_type = "qwen3_moe",
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .gguf_normalises = true,
    .window_needs_flag = true,
    .defaults = defaults,
};
