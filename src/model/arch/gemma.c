/* The Gemma models. */
#include "model/arch.h"

/* ---- Gemma 1 ----------------------------------------------------------------------------------------------------- */

/* Gemma 1: norms multiply by 1 + w, scaled embeddings, GELU in its tanh form, tied output. */

static void gemma_defaults(spry_config *config, spry_config_dialect dialect)
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
    .defaults = gemma_defaults,
};

/* ---- Gemma 2 ----------------------------------------------------------------------------------------------------- */

/* Gemma 2: norms after attention and feed-forward too, soft-capped scores and logits, every other layer slides. */

enum { GEMMA2_LAYERS_OF_27B = 46 };

static void gemma2_defaults(spry_config *config, spry_config_dialect dialect)
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

/* GGUF does not store the scalar: it is the head size, except in the largest model. */
static void gemma2_finish(spry_config *config)
{
    if (!(config->query_scalar > 0) && config->n_layers == GEMMA2_LAYERS_OF_27B)
        config->query_scalar = (float)(config->n_embd / config->n_heads);
}

static bool gemma2_slides(const spry_config *config, uint32_t layer)
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
    .defaults = gemma2_defaults,
    .finish = gemma2_finish,
    .slides = gemma2_slides,
};

/* ---- Gemma 3 ----------------------------------------------------------------------------------------------------- */

/* Gemma 3 (text): q/k norms instead of soft-caps, five sliding layers to one full, each kind with its own rope. */

enum { GEMMA3_LAYERS_OF_27B = 62 };

static void gemma3_defaults(spry_config *config, spry_config_dialect dialect)
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

/* GGUF does not store the scalar: it is the head size, except in the largest model. */
static void gemma3_finish(spry_config *config)
{
    if (!(config->query_scalar > 0) && config->n_layers == GEMMA3_LAYERS_OF_27B)
        config->query_scalar = (float)(config->n_embd / config->n_heads);
}

static bool gemma3_slides(const spry_config *config, uint32_t layer)
{
    return !config->window_layers || (layer + 1) % config->window_layers != 0;
}

#define GEMMA3                                                                                                         \
    .gate = SPRY_GATE_GELU_TANH, .qk_norm = SPRY_QK_NORM_HEAD, .two_ropes = true, .norm_plus_one = true,               \
    .scaled_embedding = true, .norms = SPRY_NORMS_AROUND, .defaults = gemma3_defaults, .finish = gemma3_finish,        \
    .slides = gemma3_slides

const spry_arch spry_arch_gemma3 = {.name = "Gemma 3", .gguf = "gemma3", .hf_type = "gemma3_text", GEMMA3};

/* Gemma 3 whose rows see the whole text. In Hugging Face files only a flag distinguishes it. */
const spry_arch spry_arch_gemma_embedding = {.name = "EmbeddingGemma", .gguf = "gemma-embedding", GEMMA3};

/* ---- Gemma 3n ---------------------------------------------------------------------------------------------------- */

/* Gemma 3n: several residual streams, of which a layer computes one and corrects all; inputs for each layer; a low-rank
 * path beside attention; sparse gates in the first layers; the last layers share keys and values. */

static void gemma3n_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->head_dim = 256;
    config->n_context = 32768;
    config->window_layers = 5;
    config->tied = true;
    config->rope.theta = 1e6f;
    config->rope_sliding.theta = 1e4f;
    config->final_softcap = 30;
    config->n_streams = 4;
    config->n_layer_embd = 256;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_heads = 8;
        config->n_kv_heads = 2;
        config->window = 512;
        config->n_shared_kv = 15;
    }
}

/* Scores are not scaled. */
static void gemma3n_finish(spry_config *config)
{
    config->query_scalar = 1;
}

static bool gemma3n_slides(const spry_config *config, uint32_t layer)
{
    return !config->window_layers || (layer + 1) % config->window_layers != 0;
}

static const spry_tensor_name names[] = {
    {"inp_gate", "per_layer_input_gate", NULL},
    {"proj", "per_layer_projection", NULL},
    {"post_norm", "post_per_layer_input_norm", NULL},
    {"altup_correct_coef", "altup.correction_coefs", NULL},
    {"altup_correct_scale", "=altup.correct_output_scale", NULL},
    {"altup_predict_coef", "altup.prediction_coefs", NULL},
    {"altup_router", "altup.modality_router", NULL},
    {"altup_router_norm", "altup.router_norm", NULL},
    {"laurel_l", "laurel.linear_left", NULL},
    {"laurel_r", "laurel.linear_right", NULL},
    {"laurel_post_norm", "laurel.post_laurel_norm", NULL},
    {0},
};

const spry_arch spry_arch_gemma3n = {
    .name = "Gemma 3n",
    .gguf = "gemma3n",
    .hf_type = "gemma3n_text",
    .gate = SPRY_GATE_GELU_TANH,
    .norms = SPRY_NORMS_AROUND,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .v_norm = true,
    .two_ropes = true,
    .scaled_embedding = true,
    .streams = true,
    .names = names,
    .defaults = gemma3n_defaults,
    .finish = gemma3n_finish,
    .slides = gemma3n_slides,
};

/* ---- Gemma 4 ----------------------------------------------------------------------------------------------------- */

/* Gemma 4 (text): heads have different sizes in sliding and in full layers. Full layers may use their keys as values,
 * and RoPE rotates only some of their pairs. Each layer has a scalar. Small models have inputs for each layer and share
 * keys and values; the largest mixture of experts has a dense part, too. */

static void gemma4_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->head_dim = 256;
    config->n_context = 131072;
    config->window_layers = 6;
    config->tied = true;
    config->rope.theta = 1e6f;
    config->rope_sliding.theta = 1e4f;
    config->normalise_experts = true;
    if (dialect == SPRY_DIALECT_JSON)
        config->window = 512;
}

static const spry_tensor_name gemma4_names[] = {
    {"inp_gate", "per_layer_input_gate", NULL},
    {"proj", "per_layer_projection", NULL},
    {"post_norm", "post_per_layer_input_norm", NULL},
    {"layer_output_scale", "=layer_scalar", NULL},
    {"ffn_gate_inp", "router.proj", NULL},
    {"router_scale", "=router.scale", "=ffn_gate_inp.scale"},
    {"expert_scale", "=router.per_expert_scale", "=ffn_down_exps.scale"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2", NULL},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1", NULL},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2", NULL},
    {"ffn_gate_exps", "experts.%u.gate_proj", NULL},
    {"ffn_up_exps", "experts.%u.up_proj", NULL},
    {"ffn_down_exps", "experts.%u.down_proj", NULL},
    {"ffn_gate_up_exps", "=experts.gate_up_proj", NULL},
    {"ffn_down_exps_all", "=experts.down_proj", NULL},
    {0},
};

const spry_arch spry_arch_gemma4 = {
    .name = "Gemma 4",
    .gguf = "gemma4",
    .hf_type = "gemma4_text",
    .gate = SPRY_GATE_GELU_TANH,
    .norms = SPRY_NORMS_AROUND,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .v_norm = true,
    .sliding_two_way = true,
    .kinds = true,
    .keys_as_values = true,
    .beside = true,
    .two_ropes = true,
    .scaled_embedding = true,
    .gguf_normalises = true,
    .names = gemma4_names,
    .defaults = gemma4_defaults,
    .finish = gemma3n_finish,
    .slides = gemma3_slides,
};
