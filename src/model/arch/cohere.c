/* Cohere's models. */
#include "model/arch.h"

/* ---- Command R --------------------------------------------------------------------------------------------------- */

/* Command R: layer norms without biases, attention and feed-forward in parallel, scaled logits, tied output. */

static void cohere_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->layer_norm_eps = 1e-5f;
    config->n_context = 8192;
    config->tied = true;
    if (dialect == SPRY_DIALECT_JSON)
        config->logit_scale = 0.0625f;
}

const spry_arch spry_arch_cohere = {
    .name = "Command R",
    .gguf = "command-r",
    .hf_type = "cohere",
    .gate = SPRY_GATE_SILU,
    .norms = SPRY_NORMS_PARALLEL,
    .qk_norm = SPRY_QK_NORM_EACH,
    .qk_norm_flag = true,
    .layer_norm = true,
    .interleaved = true,
    .never_slides = true,
    .defaults = cohere_defaults,
};

/* ---- Command R7B and A ------------------------------------------------------------------------------------------- */

/* Command R7B and A: Command R with sliding layers, except every fourth; only sliding layers have RoPE. */

static void cohere2_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->layer_norm_eps = 1e-5f;
    config->n_context = 8192;
    config->window = 4096;
    config->window_layers = 4;
    config->tied = true;
    if (dialect == SPRY_DIALECT_JSON)
        config->logit_scale = 0.0625f;
}

static bool slides(const spry_config *config, uint32_t layer)
{
    return !config->window_layers || (layer + 1) % config->window_layers != 0;
}

static bool rotates(const spry_config *config, uint32_t layer)
{
    return config->sliding[layer];
}

const spry_arch spry_arch_cohere2 = {
    .name = "Command R7B",
    .gguf = "cohere2",
    .hf_type = "cohere2",
    .gate = SPRY_GATE_SILU,
    .norms = SPRY_NORMS_PARALLEL,
    .layer_norm = true,
    .interleaved = true,
    .defaults = cohere2_defaults,
    .slides = slides,
    .rotates = rotates,
};

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* Command A with experts: Command R7B's block. The first layers may be dense. They see all keys, but have RoPE if the
 * file says so; GGUF files always imply it. */

static void cohere2_moe_defaults(spry_config *config, spry_config_dialect dialect)
{
    cohere2_defaults(config, dialect);
    config->dense_pattern = dialect == SPRY_DIALECT_GGUF;
    config->average_shared = true;
}

static bool moe_rotates(const spry_config *config, uint32_t layer)
{
    return config->sliding[layer] || (config->dense_pattern == 1 && layer < config->n_dense_first);
}

static const spry_tensor_name moe_names[] = {
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj", NULL},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj", NULL},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj", NULL},
    {0},
};

const spry_arch spry_arch_cohere2_moe = {
    .name = "Command A MoE",
    .gguf = "cohere2moe",
    .hf_type = "cohere2_moe",
    .gate = SPRY_GATE_SILU,
    .norms = SPRY_NORMS_PARALLEL,
    .layer_norm = true,
    .either_norm = true,
    .interleaved = true,
    .routing = SPRY_ROUTING_SIGMOID,
    .names = moe_names,
    .defaults = cohere2_moe_defaults,
    .slides = slides,
    .rotates = moe_rotates,
};
