/* Models with Mamba-2 layers: only these, or also attention, in other layers or in parallel. A Mamba-2 layer is
 * computed by the code of gated delta nets (device/cpu/recurrent.c), without the delta rule. */
#include "model/arch.h"

#define MAMBA_NAMES(prefix)                                                                                            \
    {"ssm_in", prefix "in_proj", NULL}, {"ssm_conv1d", prefix "conv1d", NULL}, {"ssm_dt", "=" prefix "dt_bias", NULL}, \
        {"ssm_a", "=" prefix "A_log", "=ssm_a"}, {"ssm_d", "=" prefix "D", "=ssm_d"},                                  \
        {"ssm_norm", prefix "norm", NULL},                                                                             \
    {                                                                                                                  \
        "ssm_out", prefix "out_proj", NULL                                                                             \
    }

/* In files the epsilon is called that of layer norms. */
static void finish_eps(spry_config *config)
{
    if (config->layer_norm_eps > 0)
        config->norm_eps = config->layer_norm_eps;
}

/* ---- Mamba-2 ----------------------------------------------------------------------------------------------------- */

static void mamba2_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_context = 1 << 20;
    config->norm_eps = 1e-5f;
    config->n_conv = 4;
    config->n_heads = 1;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_expand = 2;
        config->n_delta_heads = 128;
        config->n_delta_keys = 8;
        config->delta_key_dim = 128;
        config->tied = false;
    } else {
        config->n_delta_keys = 1;
    }
}

static const spry_tensor_name mamba2_names[] = {{"attn_norm", "norm", NULL}, MAMBA_NAMES("mixer."), {0}};

const spry_arch spry_arch_mamba2 = {
    .name = "Mamba-2",
    .gguf = "mamba2",
    .hf_type = "mamba2",
    .hf_embedding = "embeddings",
    .hf_output_norm = "norm_f",
    .gate = SPRY_GATE_SILU,
    .delta = true,
    .mamba = true,
    .attention_free = true,
    .names = mamba2_names,
    .defaults = mamba2_defaults,
    .finish = finish_eps,
};

/* ---- Granite 4 --------------------------------------------------------------------------------------------------- */

/* Granite 4: Mamba-2 or attention, then experts and a shared expert, or a dense part that the files call the shared
 * expert; Granite's factors. */

static void hybrid_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->attention_scale = dialect == SPRY_DIALECT_JSON ? 1 : 0;
    config->n_conv = 4;
    config->unrotated = dialect == SPRY_DIALECT_JSON;
    config->normalise_experts = true;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_delta_heads = 128;
        config->n_delta_keys = 1;
        config->delta_key_dim = 256;
        config->n_expand = 2;
    }
}

static void hybrid_finish(spry_config *config)
{
    config->n_shared = config->n_experts && config->n_shared_ff ? 1 : 0;
    if (!config->n_experts && config->n_shared_ff)
        config->n_ff = config->n_shared_ff;
}

static const spry_tensor_name hybrid_names[] = {
    MAMBA_NAMES("mamba."),
    {"ffn_gate_inp", "block_sparse_moe.router.layer", NULL},
    {"ffn_gate_up_exps", "block_sparse_moe.input_linear", NULL},
    {"ffn_down_exps_all", "block_sparse_moe.output_linear", NULL},
    {"ffn_gate_up_shexp", "shared_mlp.input_linear", NULL},
    {"ffn_down_shexp", "shared_mlp.output_linear", NULL},
    {"ffn_gate_up", "shared_mlp.input_linear", NULL},
    {"ffn_down", "shared_mlp.output_linear", NULL},
    {0},
};

const spry_arch spry_arch_granite_hybrid = {
    .name = "Granite 4",
    .gguf = "granitehybrid",
    .hf_type = "granitemoehybrid",
    .gate = SPRY_GATE_SILU,
    .gguf_normalises = true,
    .never_slides = true,
    .permuted_in_gguf = true,
    .divides_logits = true,
    .delta = true,
    .mamba = true,
    .names = hybrid_names,
    .defaults = hybrid_defaults,
    .finish = hybrid_finish,
};

/* ---- Bamba ------------------------------------------------------------------------------------------------------- */

/* Bamba: Granite 4 without the factors; RoPE rotates half of a head. Its GGUF files use Granite 4's name. */

static void bamba_defaults(spry_config *config, spry_config_dialect dialect)
{
    hybrid_defaults(config, dialect);
    config->attention_scale = 0;
    config->unrotated = false;
    config->n_context = 262144;
    config->n_kv_heads = 8;
}

/* The file's value is ignored. */
static void bamba_finish(spry_config *config)
{
    config->rope_dim = config->head_dim / 2;
}

static const spry_tensor_name feed_forward_names[] = {
    MAMBA_NAMES("mamba."),
    {"ffn_norm", "pre_ff_layernorm", NULL},
    {"ffn_gate", "feed_forward.gate_proj", NULL},
    {"ffn_up", "feed_forward.up_proj", NULL},
    {"ffn_down", "feed_forward.down_proj", NULL},
    {0},
};

const spry_arch spry_arch_bamba = {
    .name = "Bamba",
    .gguf = "granitehybrid",
    .hf_type = "bamba",
    .hf_output_norm = "final_layernorm",
    .gate = SPRY_GATE_SILU,
    .never_slides = true,
    .permuted_in_gguf = true,
    .delta = true,
    .mamba = true,
    .names = feed_forward_names,
    .defaults = bamba_defaults,
    .finish = bamba_finish,
};

/* ---- Falcon-H1 --------------------------------------------------------------------------------------------------- */

/* Falcon-H1: attention and Mamba-2 in parallel, and a factor for nearly every product. */

static void falcon_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_conv = 4;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_kv_heads = 8;
        config->n_delta_heads = 128;
        config->n_delta_keys = 1;
        config->delta_key_dim = 256;
        config->n_expand = 2;
    }
}

const spry_arch spry_arch_falcon_h1 = {
    .name = "Falcon-H1",
    .gguf = "falcon-h1",
    .hf_type = "falcon_h1",
    .hf_output_norm = "final_layernorm",
    .gate = SPRY_GATE_SILU,
    .never_slides = true,
    .delta = true,
    .mamba = true,
    .grouped_norm = true,
    .both_mixers = true,
    .folded_scales = true,
    .names = feed_forward_names,
    .defaults = falcon_defaults,
};

/* ---- Nemotron-H -------------------------------------------------------------------------------------------------- */

/* Nemotron-H and 3: a layer is only Mamba-2, only attention without RoPE, or only feed-forward without a gate; or
 * experts, selected as in DeepSeek V3. */

static void nemotron_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_conv = 4;
    config->norm_eps = 1e-5f;
    config->unrotated = true;
    config->normalise_experts = true;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_kv_heads = 8;
        config->n_delta_heads = 128;
        config->n_delta_keys = 8;
        config->delta_key_dim = 128;
        config->delta_value_dim = 64;
    }
}

/* Configs of models without experts may still have counts of them, which are ignored. */
static void nemotron_finish(spry_config *config)
{
    finish_eps(config);
    config->unrotated = true;
}

static const spry_tensor_name nemotron_names[] = {
    MAMBA_NAMES("mixer."),
    {"attn_norm", "norm", NULL},
    {"ffn_norm", "norm", "attn_norm"},
    {"attn_q", "mixer.q_proj", NULL},
    {"attn_k", "mixer.k_proj", NULL},
    {"attn_v", "mixer.v_proj", NULL},
    {"attn_output", "mixer.o_proj", NULL},
    {"ffn_up", "mixer.up_proj", NULL},
    {"ffn_down", "mixer.down_proj", NULL},
    {"ffn_gate_inp", "mixer.gate", NULL},
    {"exp_probs_b", "=mixer.gate.e_score_correction_bias", NULL},
    {"ffn_up_exps", "mixer.experts.%u.up_proj", NULL},
    {"ffn_down_exps", "mixer.experts.%u.down_proj", NULL},
    {"ffn_up_shexp", "mixer.shared_experts.up_proj", NULL},
    {"ffn_down_shexp", "mixer.shared_experts.down_proj", NULL},
    {"ffn_latent_down", "mixer.fc1_latent_proj", NULL},
    {"ffn_latent_up", "mixer.fc2_latent_proj", NULL},
    {0},
};

#define NEMOTRON_H                                                                                                     \
    .hf_type = "nemotron_h", .hf_embedding = "embeddings", .hf_output_norm = "norm_f", .gate = SPRY_GATE_RELU_SQUARED, \
    .never_slides = true, .ungated = true, .routing = SPRY_ROUTING_SIGMOID, .gguf_normalises = true, .delta = true,    \
    .mamba = true, .grouped_norm = true, .single_parts = true, .names = nemotron_names, .defaults = nemotron_defaults, \
    .finish = nemotron_finish

const spry_arch spry_arch_nemotron_h = {.name = "Nemotron-H", .gguf = "nemotron_h", NEMOTRON_H};

/* Selected by the kinds of layers, not by the model's type. */
const spry_arch spry_arch_nemotron_h_moe = {
    .name = "Nemotron-H MoE", .gguf = "nemotron_h_moe", NEMOTRON_H, .choice_bias = true};

/* ---- Zamba2 ------------------------------------------------------------------------------------------------------ */

/* Zamba2: Mamba-2 layers. Before some of them, one of a few blocks of attention and feed-forward that layers share
 * reads the layer's input beside the embedding; its result is added to the input of the layer's norm, not to the
 * residual stream. Each use of a block adds its own product of low rank to gate and up. GGUF has no such models. */

static void zamba2_defaults(spry_config *config, spry_config_dialect dialect)
{
    (void)dialect;
    config->norm_eps = 1e-5f;
    config->n_conv = 4;
    config->n_delta_heads = 8;
    config->n_delta_keys = 1;
    config->delta_key_dim = 64;
    config->n_expand = 2;
    config->n_blocks = 1;
    config->block_rank = 128;
    config->tied = true;
}

static void zamba2_finish(spry_config *config)
{
    config->query_scalar = (float)config->head_dim / 2;
    config->delta_norm_eps = 1e-5f;
}

#define BLOCK "shared_transformer."

static const spry_tensor_name zamba2_names[] = {
    MAMBA_NAMES("mamba."),
    {"block_norm", BLOCK "input_layernorm", NULL},
    {"attn_q", BLOCK "self_attn.q_proj", NULL},
    {"attn_k", BLOCK "self_attn.k_proj", NULL},
    {"attn_v", BLOCK "self_attn.v_proj", NULL},
    {"attn_output", BLOCK "self_attn.o_proj", NULL},
    {"ffn_norm", BLOCK "pre_ff_layernorm", NULL},
    {"ffn_gate_up", BLOCK "feed_forward.gate_up_proj", NULL},
    {"ffn_down", BLOCK "feed_forward.down_proj", NULL},
    {"block_output", "linear", NULL},
    {"ffn_gate_up_low", BLOCK "feed_forward.gate_up_proj_adapter_list.%u.0", NULL},
    {"ffn_gate_up_high", BLOCK "feed_forward.gate_up_proj_adapter_list.%u.1", NULL},
    {"attn_q_low", BLOCK "self_attn.linear_q_adapter_list.%u.0", NULL},
    {"attn_q_high", BLOCK "self_attn.linear_q_adapter_list.%u.1", NULL},
    {"attn_k_low", BLOCK "self_attn.linear_k_adapter_list.%u.0", NULL},
    {"attn_k_high", BLOCK "self_attn.linear_k_adapter_list.%u.1", NULL},
    {"attn_v_low", BLOCK "self_attn.linear_v_adapter_list.%u.0", NULL},
    {"attn_v_high", BLOCK "self_attn.linear_v_adapter_list.%u.1", NULL},
    {0},
};

const spry_arch spry_arch_zamba2 = {
    .name = "Zamba2",
    .hf_type = "zamba2",
    .hf_inner = "mamba_decoder.",
    .hf_output_norm = "final_layernorm",
    .gate = SPRY_GATE_GELU,
    .never_slides = true,
    .delta = true,
    .mamba = true,
    .grouped_norm = true,
    .shared_blocks = true,
    .names = zamba2_names,
    .defaults = zamba2_defaults,
    .finish = zamba2_finish,
};
