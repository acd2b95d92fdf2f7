/* SmolLM3: Llama, but every fourth layer has no rope. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect;
    config->n_kv_heads = dialect == SPRY_DIALECT_JSON ? 4 : 0;
    config->n_context = 32768;
    config->rope.theta = 2e6f;
    config->rope_interval = 4;
}

static bool rotates(const spry_config *config, uint32_t layer)
{
    return !config->rope_interval || (layer + 1) % config->rope_interval != 0;
}

/* If there is a window, it applies to the layers without RoPE. */
static bool slides(const spry_config *config, uint32_t layer)
{
    return !rotates(config, layer);
}

const spry_arch spry_arch_smollm3 = {
    .name = "SmolLM3",
    .gguf = "smollm3",
    .hf_type = "smollm3",
    .gate = SPRY_GATE_SILU,
    .permuted_in_gguf = true,
    .window_needs_flag = true,
    .defaults = defaults,
    .slides = slides,
    .rotates = rotates,
};
