/* Mistral: Llama with a sliding window on every layer. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect; /* GGUF calls it llama */
    config->window = 4096;
    config->n_kv_heads = 8;
    config->n_context = 131072;
}

const spry_arch spry_arch_mistral = {
    .name = "Mistral",
    .gguf = "llama",
    .hf_type = "mistral",
    .gate = SPRY_GATE_SILU,
    .permuted_in_gguf = true,
    .gguf_normalises = true,
    .defaults = defaults,
};
