/* Vision towers: encoders whose rows are patches of a picture. They run the block of all models; patches come in as
 * rows of a picture (model/picture.h), hidden states go to the projector (model/tower.h). */
#include "model/arch.h"

#define TOWER .tower = true, .encoder = true, .qkv_bias = true, .every_bias = true

/* ---- Qwen3-VL ---------------------------------------------------------------------------------------------------- */

static const spry_tensor_name qwen3_names[] = {
    {"attn_norm", "norm1", NULL},
    {"ffn_norm", "norm2", NULL},
    {"attn_qkv", "attn.qkv", NULL},
    {"attn_output", "attn.proj", NULL},
    {"ffn_up", "mlp.linear_fc1", NULL},
    {"ffn_down", "mlp.linear_fc2", NULL},
    {0},
};

const spry_arch spry_arch_qwen3_tower = {
    .name = "Qwen3-VL's tower",
    .gguf = "",
    .hf_type = "spry_qwen3_tower",
    .hf_layers = "blocks",
    .hf_output_norm = "merger.norm",
    .gate = SPRY_GATE_GELU_TANH,
    .layer_norm = true,
    .norm_bias = true,
    .ungated = true,
    .fused_qkv = true,
    .names = qwen3_names,
    TOWER,
};
