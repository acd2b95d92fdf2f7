/* DeepSeek's models. */
#include <math.h>

#include "model/arch.h"

/* ---- V2 ---------------------------------------------------------------------------------------------------------- */

/* DeepSeek V2: latent attention, experts in addition to shared ones, the first layers dense. In GGUF V3 has the same
 * name; its files say how experts are selected. */

static void deepseek_v2_defaults(spry_config *config, spry_config_dialect dialect)
{
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_kv_rank = 512;
        config->n_q_rank = 1536;
        config->nope_dim = 128;
        config->rope_dim = 64;
        config->value_dim = 128;
        config->n_experts = 64;
        config->n_shared = 2;
        config->n_expert_ff = 1407;
    }
}

void spry_latent_finish(spry_config *config)
{
    float m = config->rope.factor > 1 ? 1 + config->latent_log * logf(config->rope.factor) : 1;
    config->query_scalar = (float)(config->nope_dim + config->rope_dim) / (m * m * m * m);
}

/* In transformers, V2 never normalises the experts' weights. */
static void finish(spry_config *config)
{
    config->normalise_experts = config->normalise_experts && config->routing == SPRY_ROUTING_SIGMOID;
    spry_latent_finish(config);
}

const spry_arch spry_arch_deepseek_v2 = {
    .name = "DeepSeek V2",
    .gguf = "deepseek2",
    .hf_type = "deepseek_v2",
    .gate = SPRY_GATE_SILU,
    .latent = true,
    .interleaved = true,
    .never_slides = true,
    .names = spry_latent_names,
    .defaults = deepseek_v2_defaults,
    .finish = finish,
};

/* ---- V3 and R1 --------------------------------------------------------------------------------------------------- */

/* DeepSeek V3 and R1: V2 with experts selected by a sigmoid, a bias and groups. */

const spry_tensor_name spry_latent_names[] = {
    {"attn_q_a", "self_attn.q_a_proj", NULL},
    {"attn_q_a_norm", "self_attn.q_a_layernorm", NULL},
    {"attn_q_b", "self_attn.q_b_proj", NULL},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", NULL},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm", NULL},
    {"attn_kv_b", "self_attn.kv_b_proj", NULL},
    {"exp_probs_b", "=mlp.gate.e_score_correction_bias", NULL},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj", NULL},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj", NULL},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj", NULL},
    {"indexer.attn_q_b", "self_attn.indexer.wq_b", NULL},
    {"indexer.attn_k", "self_attn.indexer.wk", NULL},
    {"indexer.k_norm", "self_attn.indexer.k_norm", NULL},
    {"indexer.proj", "self_attn.indexer.weights_proj", NULL},
    {0},
};

static void deepseek_v3_defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect; /* GGUF calls it deepseek2, like V2 */
    config->n_context = 4096;
    config->n_kv_rank = 512;
    config->n_q_rank = 1536;
    config->nope_dim = 128;
    config->rope_dim = 64;
    config->value_dim = 128;
    config->n_experts = 256;
    config->n_experts_used = 8;
    config->n_expert_ff = 2048;
    config->n_shared = 1;
    config->n_groups = 8;
    config->n_groups_used = 4;
    config->routed_scale = 2.5f;
    config->normalise_experts = true;
}

const spry_arch spry_arch_deepseek_v3 = {
    .name = "DeepSeek V3",
    .gguf = "deepseek2",
    .hf_type = "deepseek_v3",
    .gate = SPRY_GATE_SILU,
    .latent = true,
    .interleaved = true,
    .routing = SPRY_ROUTING_SIGMOID,
    .choice_bias = true,
    .never_slides = true,
    .names = spry_latent_names,
    .defaults = deepseek_v3_defaults,
    .finish = spry_latent_finish,
};

/* ---- V3.2 -------------------------------------------------------------------------------------------------------- */

/* DeepSeek V3.2: V3 with an indexer, which selects the keys that a row attends to. */

static void deepseek_v32_defaults(spry_config *config, spry_config_dialect dialect)
{
    deepseek_v3_defaults(config, dialect);
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_index_heads = 64;
        config->index_dim = 128;
        config->index_top = 2048;
    }
}

const spry_arch spry_arch_deepseek_v32 = {
    .name = "DeepSeek V3.2",
    .gguf = "deepseek32",
    .hf_type = "deepseek_v32",
    .gate = SPRY_GATE_SILU,
    .latent = true,
    .indexed = true,
    .interleaved = true,
    .routing = SPRY_ROUTING_SIGMOID,
    .choice_bias = true,
    .never_slides = true,
    .names = spry_latent_names,
    .defaults = deepseek_v32_defaults,
    .finish = spry_latent_finish,
};

/* ---- V4 ---------------------------------------------------------------------------------------------------------- */

/* DeepSeek V4: one vector for each token is key and value of all heads; attention to a window, and to entries that join
 * tokens; several residual streams. */

static void deepseek_v4_defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect;
    config->n_kv_heads = 1;
    config->normalise_experts = true;
    config->hyper_eps = 1e-6f;
}

static const spry_tensor_name v4_names[] = {
    {"attn_norm", "attn_norm", NULL},
    {"ffn_norm", "ffn_norm", NULL},
    {"attn_q_a", "attn.wq_a", NULL},
    {"attn_q_a_norm", "attn.q_norm", NULL},
    {"attn_q_b", "attn.wq_b", NULL},
    {"attn_kv", "attn.wkv", NULL},
    {"attn_kv_a_norm", "attn.kv_norm", NULL},
    {"attn_output_a", "attn.wo_a", NULL},
    {"attn_output_b", "attn.wo_b", NULL},
    {"attn_sinks", "=attn.attn_sink", NULL},
    {"attn_compressor_kv", "attn.compressor.wkv", NULL},
    {"attn_compressor_gate", "attn.compressor.wgate", NULL},
    {"attn_compressor_ape", "=attn.compressor.ape", NULL},
    {"attn_compressor_norm", "attn.compressor.norm", NULL},
    {"indexer.attn_q_b", "attn.indexer.wq_b", NULL},
    {"indexer.proj", "attn.indexer.weights_proj", NULL},
    {"indexer_compressor_kv", "attn.indexer.compressor.wkv", NULL},
    {"indexer_compressor_gate", "attn.indexer.compressor.wgate", NULL},
    {"indexer_compressor_ape", "=attn.indexer.compressor.ape", NULL},
    {"indexer_compressor_norm", "attn.indexer.compressor.norm", NULL},
    {"hc_attn_fn", "=hc_attn_fn", NULL},
    {"hc_attn_base", "=hc_attn_base", NULL},
    {"hc_attn_scale", "=hc_attn_scale", NULL},
    {"hc_ffn_fn", "=hc_ffn_fn", NULL},
    {"hc_ffn_base", "=hc_ffn_base", NULL},
    {"hc_ffn_scale", "=hc_ffn_scale", NULL},
    {"ffn_gate_inp", "ffn.gate", NULL},
    {"ffn_gate_tid2eid", "=ffn.gate.tid2eid", NULL},
    {"exp_probs_b", "=ffn.gate.bias", NULL},
    {"ffn_gate_exps", "ffn.experts.%u.w1", NULL},
    {"ffn_up_exps", "ffn.experts.%u.w3", NULL},
    {"ffn_down_exps", "ffn.experts.%u.w2", NULL},
    {"ffn_gate_shexp", "ffn.shared_experts.w1", NULL},
    {"ffn_up_shexp", "ffn.shared_experts.w3", NULL},
    {"ffn_down_shexp", "ffn.shared_experts.w2", NULL},
    {0},
};

const spry_arch spry_arch_deepseek_v4 = {
    .name = "DeepSeek V4",
    .gguf = "deepseek4",
    .hf_type = "deepseek_v4",
    .hf_embedding = "embed",
    .gate = SPRY_GATE_SILU,
    .indexed = true,
    .compressed = true,
    .interleaved = true,
    .two_ropes = true,
    .routing = SPRY_ROUTING_ROOT,
    .choice_bias = true,
    .gguf_normalises = true,
    .names = v4_names,
    .defaults = deepseek_v4_defaults,
};
