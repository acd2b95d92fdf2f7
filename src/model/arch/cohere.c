/* Command R: layer norms without biases, attention and feed-forward side by side, scaled logits, tied output. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->layer_norm_eps = 1e-5f;
    config->n_context = 8192;
    config->tied = true;
    if (dialect == SPRY_DIALECT_JSON)
        config->logit_scale = 0.0625f;
}

const spry_arch spry_arch_cohere = {
    .name = "Command R",
    .gguf = "command-r",
    .hf_type = "cohere",
    .gate = SPRY_GATE_SILU,
    .norms = SPRY_NORMS_PARALLEL,
    .qk_norm = SPRY_QK_NORM_EACH,
    .qk_norm_flag = true,
    .layer_norm = true,
    .interleaved = true,
    .never_slides = true,
    .defaults = defaults,
};
