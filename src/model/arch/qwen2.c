/* Qwen 2 and 2.5: biases on q, k and v. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_context = 32768;
    if (dialect == SPRY_DIALECT_JSON) {
        config->window = 4096;
        config->n_kv_heads = 32;
    }
    config->window_layers = 28;
}

static bool slides(const spry_config *config, uint32_t layer)
{
    return layer >= config->window_layers;
}

const spry_arch spry_arch_qwen2 = {
    .name = "Qwen2",
    .gguf = "qwen2",
    .hf_type = "qwen2",
    .gate = SPRY_GATE_SILU,
    .qkv_bias = true,
    .window_needs_flag = true,
    .defaults = defaults,
    .slides = slides,
};
