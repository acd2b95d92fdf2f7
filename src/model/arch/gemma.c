/* Gemma 1: norms by 1 + w, scaled embeddings, tanh-form GELU, tied output. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->head_dim = 256;
    config->n_context = 8192;
    config->tied = true;
    if (dialect == SPRY_DIALECT_JSON)
        config->n_kv_heads = 16;
}

const spry_arch spry_arch_gemma = {
    .name = "Gemma",
    .gguf = "gemma",
    .hf_type = "gemma",
    .gate = SPRY_GATE_GELU_TANH,
    .never_slides = true,
    .norm_plus_one = true,
    .scaled_embedding = true,
    .defaults = defaults,
};
