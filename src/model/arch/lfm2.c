/* LFM2: most layers have a short convolution in place of attention. The inputs that a token gives to it are stored in
 * pages, like keys and values. */
#include "model/arch.h"

/* ---- dense ------------------------------------------------------------------------------------------------------- */

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect;
    config->n_context = 128000;
    config->norm_eps = 1e-5f;
    config->n_conv = 3;
    config->tied = true;
    config->rope.theta = config->rope_sliding.theta = 1e6f;
}

/* Files may also have rms_norm_eps, which is ignored. */
static void finish(spry_config *config)
{
    if (config->layer_norm_eps > 0)
        config->norm_eps = config->layer_norm_eps;
}

static const spry_tensor_name names[] = {
    {"attn_norm", "operator_norm", NULL},
    {"attn_output", "self_attn.out_proj", NULL},
    {"attn_q_norm", "self_attn.q_layernorm", NULL},
    {"attn_k_norm", "self_attn.k_layernorm", NULL},
    {"shortconv.in_proj", "conv.in_proj", NULL},
    {"shortconv.conv", "conv.conv", NULL},
    {"shortconv.out_proj", "conv.out_proj", NULL},
    {"ffn_norm", "ffn_norm", NULL},
    {"ffn_gate", "feed_forward.w1", NULL},
    {"ffn_up", "feed_forward.w3", NULL},
    {"ffn_down", "feed_forward.w2", NULL},
    {"ffn_gate_inp", "feed_forward.gate", NULL},
    {"exp_probs_b", "=feed_forward.expert_bias", NULL},
    {"ffn_gate_exps", "feed_forward.experts.%u.w1", NULL},
    {"ffn_up_exps", "feed_forward.experts.%u.w3", NULL},
    {"ffn_down_exps", "feed_forward.experts.%u.w2", NULL},
    {0},
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

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* LFM2 MoE: experts selected by a sigmoid and, in most files, a bias; the first layers are dense. */

static void moe_defaults(spry_config *config, spry_config_dialect dialect)
{
    defaults(config, dialect);
    config->normalise_experts = true;
    config->weight_eps = 1e-6f;
}

const spry_arch spry_arch_lfm2_moe = {
    .name = "LFM2 MoE",
    .gguf = "lfm2moe",
    .hf_type = "lfm2_moe",
    .hf_output_norm = "embedding_norm",
    .gguf_output_norm = "token_embd_norm",
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .convolutions = true,
    .routing = SPRY_ROUTING_SIGMOID,
    .choice_bias = true,
    .gguf_normalises = true,
    .names = names,
    .defaults = moe_defaults,
    .finish = finish,
};
