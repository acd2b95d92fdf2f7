/* Granite 3: Llama with multipliers of embedding, attention scores, residuals and logits. */
#include "model/arch.h"

/* Scores are not scaled where config.json does not say. */
static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->attention_scale = dialect == SPRY_DIALECT_JSON ? 1 : 0;
}

const spry_arch spry_arch_granite = {
    .name = "Granite",
    .gguf = "granite",
    .hf_type = "granite",
    .gate = SPRY_GATE_SILU,
    .never_slides = true,
    .permuted_in_gguf = true,
    .divides_logits = true,
    .defaults = defaults,
};
