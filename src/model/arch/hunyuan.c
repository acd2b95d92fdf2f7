/* HunYuan: Llama with q and k normalised per head after RoPE. */
#include "model/arch.h"

/* ---- dense ------------------------------------------------------------------------------------------------------- */

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect;
    config->norm_eps = 1e-5f;
}

static const spry_tensor_name names[] = {
    {"attn_q_norm", "self_attn.query_layernorm", NULL},
    {"attn_k_norm", "self_attn.key_layernorm", NULL},
    {0},
};

const spry_arch spry_arch_hunyuan = {
    .name = "HunYuan",
    .gguf = "hunyuan-dense",
    .hf_type = "hunyuan_v1_dense",
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_HEAD_LATER,
    .never_slides = true,
    .names = names,
    .defaults = defaults,
};

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* HunYuan MoE: experts in addition to a shared one. */

static void moe_defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect;
    config->norm_eps = 1e-5f;
    config->n_shared = 1;
    config->normalise_experts = true;
}

static const spry_tensor_name moe_names[] = {
    {"attn_q_norm", "self_attn.query_layernorm", NULL},
    {"attn_k_norm", "self_attn.key_layernorm", NULL},
    {"ffn_gate_inp", "mlp.gate.wg", NULL},
    {"ffn_gate_shexp", "mlp.shared_mlp.gate_proj", NULL},
    {"ffn_up_shexp", "mlp.shared_mlp.up_proj", NULL},
    {"ffn_down_shexp", "mlp.shared_mlp.down_proj", NULL},
    {0},
};

const spry_arch spry_arch_hunyuan_moe = {
    .name = "HunYuan MoE",
    .gguf = "hunyuan-moe",
    .hf_type = "hunyuan_v1_moe",
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_HEAD_LATER,
    .gguf_normalises = true,
    .never_slides = true,
    .names = moe_names,
    .defaults = moe_defaults,
};
