/* Nomic's BERT: an encoder with rope instead of learned positions, and a gated feed-forward part. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect;
    config->layer_norm_eps = 1e-12f;
    config->tied = true;
    config->rope.theta = config->rope_sliding.theta = 1000;
}

static const spry_tensor_name names[] = {
    {"attn_qkv", "attn.Wqkv", NULL},
    {"attn_output", "attn.out_proj", NULL},
    {"post_attention_norm", "norm1", "attn_output_norm"},
    {"ffn_gate", "mlp.fc12", NULL},
    {"ffn_up", "mlp.fc11", NULL},
    {"ffn_down", "mlp.fc2", NULL},
    {"post_ffw_norm", "norm2", "layer_output_norm"},
    {0},
};

const spry_arch spry_arch_nomic_bert = {
    .name = "Nomic BERT",
    .gguf = "nomic-bert",
    .hf_type = "nomic_bert",
    .hf_embedding = "embeddings.word_embeddings",
    .hf_embedding_norm = "emb_ln",
    .hf_layers = "encoder.layers",
    .gate = SPRY_GATE_SILU,
    .norms = SPRY_NORMS_SUM,
    .layer_norm = true,
    .norm_bias = true,
    .fused_qkv = true,
    .encoder = true,
    .names = names,
    .defaults = defaults,
};
