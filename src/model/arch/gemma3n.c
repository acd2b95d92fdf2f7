/* Gemma 3n: several residual streams of which layers compute one and correct all, inputs by layer, a low-rank path
 * beside attention, sparse gates in the first layers, keys and values shared by the last. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
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
static void finish(spry_config *config)
{
    config->query_scalar = 1;
}

static bool slides(const spry_config *config, uint32_t layer)
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
    .defaults = defaults,
    .finish = finish,
    .slides = slides,
};
