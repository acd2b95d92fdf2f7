/* LFM2: most layers have a short convolution instead of attention. What a token gives to it is kept in pages, as keys
 * and values are. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect;
    config->n_context = 128000;
    config->norm_eps = 1e-5f;
    config->n_conv = 3;
    config->tied = true;
    config->rope.theta = config->rope_sliding.theta = 1e6f;
}

/* Files may have rms_norm_eps, too, which counts for nothing. */
static void finish(spry_config *config)
{
    if (config->layer_norm_eps > 0)
        config->norm_eps = config->layer_norm_eps;
}

static const spry_tensor_name names[] = {
    {"attn_norm", "operator_norm", NULL},           {"attn_output", "self_attn.out_proj", NULL},
    {"attn_q_norm", "self_attn.q_layernorm", NULL}, {"attn_k_norm", "self_attn.k_layernorm", NULL},
    {"shortconv.in_proj", "conv.in_proj", NULL},    {"shortconv.conv", "conv.conv", NULL},
    {"shortconv.out_proj", "conv.out_proj", NULL},  {"ffn_norm", "ffn_norm", NULL},
    {"ffn_gate", "feed_forward.w1", NULL},          {"ffn_up", "feed_forward.w3", NULL},
    {"ffn_down", "feed_forward.w2", NULL},          {0},
};

const spry_arch spry_arch_lfm2 = {
    .name = "LFM2",
    .gguf = "lfm2",
    .hf_type = "lfm2",
    .hf_output_norm = "embedding_norm",
    .gguf_output_norm = "token_embd_norm",
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .convolutions = true,
    .names = names,
    .defaults = defaults,
    .finish = finish,
};
