/* OLMo 2: norms only after attention and feed-forward, q and k normalised as whole rows. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect;
    config->norm_eps = 1e-5f;
}

const spry_arch spry_arch_olmo2 = {
    .name = "OLMo 2",
    .gguf = "olmo2",
    .hf_type = "olmo2",
    .gate = SPRY_GATE_SILU,
    .norms = SPRY_NORMS_AFTER,
    .qk_norm = SPRY_QK_NORM_ROW,
    .never_slides = true,
    .defaults = defaults,
};
