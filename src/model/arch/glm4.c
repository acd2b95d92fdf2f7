/* GLM-4 and GLM-4.5. */
#include "model/arch.h"

/* ---- dense ------------------------------------------------------------------------------------------------------- */

/* GLM-4 (0414): norms around both parts, half of each head rotated in pairs (2i, 2i + 1), gate and up in one matrix. */

static void glm4_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->norm_eps = dialect == SPRY_DIALECT_JSON ? 1.5625e-7f : 1e-5f;
    config->n_context = 131072;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_kv_heads = 2;
        config->head_dim = 128;
        config->rope_part = 0.5f;
    }
}

static const spry_tensor_name glm4_names[] = {
    {"post_attention_norm", "post_self_attn_layernorm", NULL},
    {"ffn_norm", "post_attention_layernorm", NULL},
    {"post_ffw_norm", "post_mlp_layernorm", NULL},
    {"ffn_up", "mlp.gate_up_proj", NULL},
    {0},
};

const spry_arch spry_arch_glm4 = {
    .name = "GLM-4",
    .gguf = "glm4",
    .hf_type = "glm4",
    .gate = SPRY_GATE_SILU,
    .norms = SPRY_NORMS_AROUND,
    .interleaved = true,
    .fused_gate_up = true,
    .never_slides = true,
    .names = glm4_names,
    .defaults = glm4_defaults,
};

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* GLM-4.5: experts selected by a sigmoid and a bias, in addition to shared ones; the first layers are dense. In GGUF
 * its second norm has the name that other models use for a norm after attention. */

static void glm4_moe_defaults(spry_config *config, spry_config_dialect dialect)
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

static const spry_tensor_name glm4_moe_names[] = {
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
    .names = glm4_moe_names,
    .defaults = glm4_moe_defaults,
};

/* ---- latent attention -------------------------------------------------------------------------------------------- */

/* GLM-4.7-Flash: DeepSeek V3 with other sizes; GGUF uses DeepSeek's name for it, too. */

static void glm4_moe_lite_defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect;
    config->norm_eps = 1e-5f;
    config->n_context = 202752;
    config->n_kv_rank = 512;
    config->n_q_rank = 768;
    config->nope_dim = 192;
    config->rope_dim = 64;
    config->value_dim = 256;
    config->n_experts = 64;
    config->n_experts_used = 4;
    config->n_expert_ff = 1536;
    config->n_shared = 1;
    config->routed_scale = 1.8f;
    config->normalise_experts = true;
}

const spry_arch spry_arch_glm4_moe_lite = {
    .name = "GLM-4.7-Flash",
    .gguf = "deepseek2",
    .hf_type = "glm4_moe_lite",
    .gate = SPRY_GATE_SILU,
    .latent = true,
    .interleaved = true,
    .routing = SPRY_ROUTING_SIGMOID,
    .choice_bias = true,
    .never_slides = true,
    .names = spry_latent_names,
    .defaults = glm4_moe_lite_defaults,
    .finish = spry_latent_finish,
};

/* ---- latent attention with an indexer ---------------------------------------------------------------------------- */

/* GLM-5: DeepSeek V3.2 with other sizes; the indexer's RoPE is that of attention, and layers may share a choice of
 * keys. */

static void glm_dsa_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->norm_eps = 1e-5f;
    config->n_context = 202752;
    config->n_kv_rank = 512;
    config->n_q_rank = 2048;
    config->nope_dim = 192;
    config->rope_dim = 64;
    config->value_dim = 256;
    config->n_experts = 256;
    config->n_experts_used = 8;
    config->n_expert_ff = 2048;
    config->n_shared = 1;
    config->routed_scale = 2.5f;
    config->normalise_experts = true;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_index_heads = 32;
        config->index_dim = 128;
        config->index_top = 2048;
    }
}

const spry_arch spry_arch_glm_dsa = {
    .name = "GLM-5",
    .gguf = "glm-dsa",
    .hf_type = "glm_moe_dsa",
    .gate = SPRY_GATE_SILU,
    .latent = true,
    .indexed = true,
    .index_rotates_pairs = true,
    .interleaved = true,
    .routing = SPRY_ROUTING_SIGMOID,
    .choice_bias = true,
    .gguf_normalises = true,
    .never_slides = true,
    .names = spry_latent_names,
    .defaults = glm_dsa_defaults,
    .finish = spry_latent_finish,
};
