/* GLM-4.5: experts chosen by a sigmoid and a bias, beside shared ones; the first layers are dense. In GGUF its second
 * norm goes by the name of one behind attention. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->norm_eps = 1e-5f;
    config->n_context = 131072;
    config->normalise_experts = true;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_kv_heads = 8;
        config->rope_part = 0.5f;
        config->n_experts = 128;
        config->n_experts_used = 8;
        config->n_expert_ff = 1408;
        config->n_shared = 1;
    }
}

static const spry_tensor_name names[] = {
    {"ffn_norm", NULL, "post_attention_norm"},
    {"exp_probs_b", "=mlp.gate.e_score_correction_bias", NULL},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj", NULL},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj", NULL},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj", NULL},
    {0},
};

const spry_arch spry_arch_glm4_moe = {
    .name = "GLM-4.5",
    .gguf = "glm4moe",
    .hf_type = "glm4_moe",
    .gate = SPRY_GATE_SILU,
    .qk_norm = SPRY_QK_NORM_HEAD,
    .qk_norm_flag = true,
    .routing = SPRY_ROUTING_SIGMOID,
    .choice_bias = true,
    .gguf_normalises = true,
    .never_slides = true,
    .names = names,
    .defaults = defaults,
};
