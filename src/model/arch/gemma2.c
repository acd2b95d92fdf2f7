/* Gemma 2: norms after attention and feed-forward too, soft-capped scores and logits, every other layer slides. */
#include "model/arch.h"

enum { LAYERS_OF_27B = 46 };

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->head_dim = 256;
    config->n_context = 8192;
    config->window = 4096;
    config->attn_softcap = 50;
    config->final_softcap = 30;
    config->tied = true;
    if (dialect == SPRY_DIALECT_JSON) {
        config->query_scalar = 256;
        config->n_kv_heads = 4;
    }
}

/* GGUF does not store the scalar: it is the head's size, but for the largest. */
static void finish(spry_config *config)
{
    if (!(config->query_scalar > 0) && config->n_layers == LAYERS_OF_27B)
        config->query_scalar = (float)(config->n_embd / config->n_heads);
}

static bool slides(const spry_config *config, uint32_t layer)
{
    (void)config;
    return layer % 2 == 0;
}

const spry_arch spry_arch_gemma2 = {
    .name = "Gemma 2",
    .gguf = "gemma2",
    .hf_type = "gemma2",
    .gate = SPRY_GATE_GELU_TANH,
    .norm_plus_one = true,
    .scaled_embedding = true,
    .norms = SPRY_NORMS_AROUND,
    .defaults = defaults,
    .finish = finish,
    .slides = slides,
};
