/* HunYuan (dense): Llama whose q and k are normalised per head after rope. */
#include "model/arch.h"

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
