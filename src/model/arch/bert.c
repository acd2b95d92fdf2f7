/* BERT and its relatives: encoders. */
#include "model/arch.h"

/* ---- BERT -------------------------------------------------------------------------------------------------------- */

/* BERT and its relatives: encoders. Every row sees the whole text; positions are learned, norms are after each sum,
 * and there is no output matrix: hidden states are the result. */

static void bert_defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect;
    config->layer_norm_eps = 1e-12f;
    config->n_context = 512;
    config->tied = true;
}

/* Positions start after the padding token's id, so these rows of the table are not available. */
static void finish_offset(spry_config *config)
{
    config->n_context -= config->position_offset < config->n_context ? config->position_offset : 0;
}

static bool rotates(const spry_config *config, uint32_t layer)
{
    (void)config;
    (void)layer;
    return false;
}

static const spry_tensor_name bert_names[] = {
    {"attn_q", "attention.self.query", NULL},
    {"attn_k", "attention.self.key", NULL},
    {"attn_v", "attention.self.value", NULL},
    {"attn_output", "attention.output.dense", NULL},
    {"post_attention_norm", "attention.output.LayerNorm", "attn_output_norm"},
    {"ffn_up", "intermediate.dense", NULL},
    {"ffn_down", "output.dense", NULL},
    {"post_ffw_norm", "output.LayerNorm", "layer_output_norm"},
    {0},
};

#define ENCODER                                                                                                        \
    .gguf = "bert", .hf_embedding = "embeddings.word_embeddings", .hf_embedding_norm = "embeddings.LayerNorm",         \
    .hf_layers = "encoder.layer", .gate = SPRY_GATE_GELU, .norms = SPRY_NORMS_SUM, .layer_norm = true,                 \
    .norm_bias = true, .ungated = true, .qkv_bias = true, .every_bias = true, .encoder = true, .positions = true,      \
    .names = bert_names, .defaults = bert_defaults, .rotates = rotates

const spry_arch spry_arch_bert = {.name = "BERT", .hf_type = "bert", ENCODER};
const spry_arch spry_arch_roberta = {
    .name = "RoBERTa", .hf_type = "roberta", .offset_positions = true, .finish = finish_offset, ENCODER};
const spry_arch spry_arch_xlm_roberta = {
    .name = "XLM-RoBERTa", .hf_type = "xlm-roberta", .offset_positions = true, .finish = finish_offset, ENCODER};

/* ---- Nomic's BERT ------------------------------------------------------------------------------------------------ */

/* Nomic's BERT: an encoder with rope instead of learned positions, and a gated feed-forward part. */

static void nomic_bert_defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect;
    config->layer_norm_eps = 1e-12f;
    config->tied = true;
    config->rope.theta = config->rope_sliding.theta = 1000;
}

static const spry_tensor_name nomic_bert_names[] = {
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
    .names = nomic_bert_names,
    .defaults = nomic_bert_defaults,
};

/* ---- ModernBERT -------------------------------------------------------------------------------------------------- */

/* ModernBERT: an encoder with rope and norms before attention and feed-forward (the first layer has none before
 * attention, because the embeddings are normalised), and a norm of the output. Every third layer sees the whole text;
 * the others see a window to both sides and have a rope of their own. */

static void modern_bert_defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect;
    config->layer_norm_eps = 1e-5f;
    config->tied = true;
    config->window = 128;
    config->window_layers = 3;
    config->rope.theta = 160000;
    config->rope_sliding.theta = 10000;
}

static bool modern_bert_slides(const spry_config *config, uint32_t layer)
{
    return config->window_layers && layer % config->window_layers != 0;
}

static const spry_tensor_name modern_bert_names[] = {
    {"attn_norm", "attn_norm", NULL},
    {"attn_qkv", "attn.Wqkv", NULL},
    {"attn_output", "attn.Wo", NULL},
    {"ffn_norm", "mlp_norm", NULL},
    {"ffn_up", "mlp.Wi", NULL},
    {"ffn_down", "mlp.Wo", NULL},
    {0},
};

const spry_arch spry_arch_modern_bert = {
    .name = "ModernBERT",
    .gguf = "modern-bert",
    .hf_type = "modernbert",
    .hf_embedding = "embeddings.tok_embeddings",
    .hf_embedding_norm = "embeddings.norm",
    .hf_output_norm = "final_norm",
    .gate = SPRY_GATE_GELU,
    .layer_norm = true,
    .fused_qkv = true,
    .fused_gate_up = true,
    .two_ropes = true,
    .encoder = true,
    .inner_norms = true,
    .names = modern_bert_names,
    .defaults = modern_bert_defaults,
    .slides = modern_bert_slides,
};
