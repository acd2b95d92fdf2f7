/* Vision towers: encoders whose rows are patches of an image. They are computed by the same block as other models;
 * patches come in as rows of a picture (model/picture.h), hidden states go to the projector (model/tower.h). */
#include "model/arch.h"

#define TOWER .gguf = "", .tower = true, .encoder = true

/* ---- Qwen3-VL and Qwen3.5 ---------------------------------------------------------------------------------------- */

static const spry_tensor_name qwen3_names[] = {
    {"attn_norm", "norm1", "ln1"},
    {"ffn_norm", "norm2", "ln2"},
    {"attn_qkv", "attn.qkv", NULL},
    {"attn_output", "attn.proj", "attn_out"},
    {"ffn_up", "mlp.linear_fc1", NULL},
    {"ffn_down", "mlp.linear_fc2", NULL},
    {0},
};

const spry_arch spry_arch_qwen3_tower = {
    .name = "Qwen3-VL's tower",
    .hf_type = "spry_qwen3_tower",
    .hf_layers = "blocks",
    .hf_output_norm = "merger.norm",
    .gguf_output_norm = "v.post_ln",
    .gate = SPRY_GATE_GELU_TANH,
    .layer_norm = true,
    .norm_bias = true,
    .ungated = true,
    .fused_qkv = true,
    .qkv_bias = true,
    .every_bias = true,
    .names = qwen3_names,
    TOWER,
};

/* ---- Qwen2.5-VL -------------------------------------------------------------------------------------------------- */

static const spry_tensor_name qwen2_5_names[] = {
    {"attn_norm", "norm1", "ln1"},
    {"ffn_norm", "norm2", "ln2"},
    {"attn_qkv", "attn.qkv", NULL},
    {"attn_output", "attn.proj", "attn_out"},
    {0},
};

const spry_arch spry_arch_qwen2_5_tower = {
    .name = "Qwen2.5-VL's tower",
    .hf_type = "spry_qwen2_5_tower",
    .hf_layers = "blocks",
    .hf_output_norm = "merger.ln_q",
    .gguf_output_norm = "v.post_ln",
    .gate = SPRY_GATE_SILU,
    .fused_qkv = true,
    .qkv_bias = true,
    .every_bias = true,
    .names = qwen2_5_names,
    TOWER,
};

/* ---- SigLIP: Gemma 3, Idefics 3, SmolVLM ------------------------------------------------------------------------- */

static bool never_rotates(const spry_config *config, uint32_t layer)
{
    (void)config;
    (void)layer;
    return false;
}

#define SIGLIP_NAMES                                                                                                   \
    {"attn_norm", "layer_norm1", "ln1"}, {"ffn_norm", "layer_norm2", "ln2"},                                           \
    {                                                                                                                  \
        "attn_output", "self_attn.out_proj", "attn_out"                                                                \
    }

#define SIGLIP                                                                                                         \
    .hf_layers = "encoder.layers", .hf_output_norm = "post_layernorm", .gguf_output_norm = "v.post_ln",                \
    .gate = SPRY_GATE_GELU_TANH, .layer_norm = true, .norm_bias = true, .ungated = true, .qkv_bias = true,             \
    .every_bias = true, .rotates = never_rotates, TOWER

static const spry_tensor_name siglip_names[] = {
    SIGLIP_NAMES,
    {"ffn_up", "mlp.fc1", NULL},
    {"ffn_down", "mlp.fc2", NULL},
    {0},
};

const spry_arch spry_arch_siglip = {.name = "SigLIP", .hf_type = "spry_siglip", .names = siglip_names, SIGLIP};

/* GGUF's first files name the two matrices the other way round. */
static const spry_tensor_name siglip_first_names[] = {
    SIGLIP_NAMES,
    {"ffn_up", "mlp.fc1", "ffn_down"},
    {"ffn_down", "mlp.fc2", "ffn_up"},
    {0},
};

const spry_arch spry_arch_siglip_first = {
    .name = "SigLIP", .hf_type = "spry_siglip_first", .names = siglip_first_names, SIGLIP};

/* ---- Pixtral: Mistral 3 ------------------------------------------------------------------------------------------ */

static const spry_tensor_name pixtral_names[] = {
    {"attn_norm", "attention_norm", "ln1"},       {"ffn_norm", "ffn_norm", "ln2"},
    {"attn_q", "attention.q_proj", NULL},         {"attn_k", "attention.k_proj", NULL},
    {"attn_v", "attention.v_proj", NULL},         {"attn_output", "attention.o_proj", "attn_out"},
    {"ffn_gate", "feed_forward.gate_proj", NULL}, {"ffn_up", "feed_forward.up_proj", NULL},
    {"ffn_down", "feed_forward.down_proj", NULL}, {0},
};

#define PIXTRAL .hf_layers = "transformer.layers", .permuted_in_gguf = true, .names = pixtral_names, TOWER

const spry_arch spry_arch_pixtral = {.name = "Pixtral", .hf_type = "spry_pixtral", .gate = SPRY_GATE_SILU, PIXTRAL};

const spry_arch spry_arch_pixtral_gelu = {
    .name = "Pixtral", .hf_type = "spry_pixtral_gelu", .gate = SPRY_GATE_GELU, PIXTRAL};

/* ---- InternVL ---------------------------------------------------------------------------------------------------- */

static const spry_tensor_name internvit_names[] = {
    {"attn_norm", "layernorm_before", "ln1"},
    {"ffn_norm", "layernorm_after", "ln2"},
    {"attn_q", "attention.q_proj", NULL},
    {"attn_k", "attention.k_proj", NULL},
    {"attn_v", "attention.v_proj", NULL},
    {"attn_q_norm", "attention.q_norm", NULL},
    {"attn_k_norm", "attention.k_norm", NULL},
    {"attn_output", "attention.projection_layer", "attn_out"},
    {"ffn_up", "mlp.fc1", NULL},
    {"ffn_down", "mlp.fc2", NULL},
    {"ls1", "=lambda_1", NULL},
    {"ls2", "=lambda_2", NULL},
    {0},
};

/* Large towers have RMS norms, also of all heads of q and of k. */
const spry_arch spry_arch_internvit = {
    .name = "InternViT",
    .hf_type = "spry_internvit",
    .hf_layers = "encoder.layer",
    .gate = SPRY_GATE_GELU,
    .qk_norm = SPRY_QK_NORM_ROW,
    .qk_norm_flag = true,
    .layer_norm = true,
    .either_norm = true,
    .norm_bias = true,
    .ungated = true,
    .qkv_bias = true,
    .every_bias = true,
    .rotates = never_rotates,
    .names = internvit_names,
    TOWER,
};

/* ---- Gemma 4 ----------------------------------------------------------------------------------------------------- */

static const spry_tensor_name gemma4_names[] = {
    {"attn_norm", NULL, "ln1"},
    {"ffn_norm", NULL, "ln2"},
    {"post_attention_norm", NULL, "attn_post_norm"},
    {"post_ffw_norm", NULL, "ffn_post_norm"},
    {"attn_output", NULL, "attn_out"},
    {0},
};

static void gemma4_finish(spry_config *config)
{
    config->query_scalar = 1;
}

const spry_arch spry_arch_gemma4_tower = {
    .name = "Gemma 4's tower",
    .hf_type = "spry_gemma4_tower",
    .hf_layers = "encoder.layers",
    .gate = SPRY_GATE_GELU_TANH,
    .norms = SPRY_NORMS_AROUND,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .v_norm = true,
    .limited = true,
    .names = gemma4_names,
    .finish = gemma4_finish,
    TOWER,
};
