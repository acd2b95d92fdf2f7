/* EXAONE 4: norms only after attention and feed-forward, q and k normalised per head; where layers slide, those that
 * do not have no rope. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->norm_eps = 1e-5f;
    config->window_layers = 4;
    if (dialect == SPRY_DIALECT_JSON)
        config->window = 4096;
}

static bool slides(const spry_config *config, uint32_t layer)
{
    return config->window_layers && (layer + 1) % config->window_layers != 0;
}

static bool rotates(const spry_config *config, uint32_t layer)
{
    return !config->window || config->sliding[layer];
}

const spry_arch spry_arch_exaone4 = {
    .name = "EXAONE 4",
    .gguf = "exaone4",
    .hf_type = "exaone4",
    .gate = SPRY_GATE_SILU,
    .norms = SPRY_NORMS_AFTER,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .defaults = defaults,
    .slides = slides,
    .rotates = rotates,
};
