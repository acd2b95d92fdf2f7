/* Qwen 3: no biases, q and k normalised per head before rope. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_context = 32768;
    config->head_dim = 128;
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

const spry_arch spry_arch_qwen3 = {
    .name = "Qwen3",
    .gguf = "qwen3",
    .hf_type = "qwen3",
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .window_needs_flag = true,
    .defaults = defaults,
    .slides = slides,
};
