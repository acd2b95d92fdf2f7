/* Gemma 3 (text): q/k norms instead of soft-caps, five sliding layers to one full, each kind with its own rope. */
#include "model/arch.h"

enum { LAYERS_OF_27B = 62 };

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->head_dim = 256;
    config->n_context = 131072;
    config->window_layers = 6;
    config->tied = true;
    config->rope.theta = 1e6f;
    config->rope_sliding.theta = 1e4f;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_heads = 8;
        config->n_kv_heads = 4;
        config->window = 4096;
        config->query_scalar = 256;
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
    return !config->window_layers || (layer + 1) % config->window_layers != 0;
}

#define GEMMA3                                                                                                         \
    .gate = SPRY_GATE_GELU_TANH, .qk_norm = SPRY_QK_NORM_HEAD, .two_ropes = true, .norm_plus_one = true,               \
    .scaled_embedding = true, .norms = SPRY_NORMS_AROUND, .defaults = defaults, .finish = finish, .slides = slides

const spry_arch spry_arch_gemma3 = {.name = "Gemma 3", .gguf = "gemma3", .hf_type = "gemma3_text", GEMMA3};

/* The same, where rows see all of their text. In Hugging Face files only a flag says so. */
const spry_arch spry_arch_gemma_embedding = {.name = "EmbeddingGemma", .gguf = "gemma-embedding", GEMMA3};
