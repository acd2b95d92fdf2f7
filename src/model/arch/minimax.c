/* MiniMax-M2: q and k normalised over all heads, RoPE for half of each head, experts selected by a sigmoid and a
 * bias. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_context = 196608;
    config->rope.theta = config->rope_sliding.theta = 5e6f;
    config->normalise_experts = true;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_kv_heads = 8;
        config->head_dim = 128;
        config->n_experts = 256;
        config->n_experts_used = 8;
    }
}

static const spry_tensor_name names[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate", NULL},
    {"exp_probs_b", "=block_sparse_moe.e_score_correction_bias", NULL},
    {"ffn_gate_exps", "block_sparse_moe.experts.%u.w1", NULL},
    {"ffn_up_exps", "block_sparse_moe.experts.%u.w3", NULL},
    {"ffn_down_exps", "block_sparse_moe.experts.%u.w2", NULL},
    {0},
};

const spry_arch spry_arch_minimax_m2 = {
    .name = "MiniMax-M2",
    .gguf = "minimax-m2",
    .hf_type = "minimax_m2",
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_ROW,
    .routing = SPRY_ROUTING_SIGMOID,
    .choice_bias = true,
    .gguf_normalises = true,
    .never_slides = true,
    .names = names,
    .defaults = defaults,
};
