/* Ministral 3 and Mistral 4: queries are scaled by position. */
#include "model/arch.h"

/* ---- Ministral 3 ------------------------------------------------------------------------------------------------- */

/* Ministral 3: Llama with yarn. In GGUF Mistral Small 3 has the same name; its queries are not scaled. */

static void ministral3_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_context = 131072;
    config->norm_eps = 1e-5f;
    if (dialect == SPRY_DIALECT_JSON)
        config->n_kv_heads = 8;
}

static void ministral3_finish(spry_config *config)
{
    if (config->temperature_scale > 0)
        config->temperature_length = config->rope.original_context;
}

const spry_arch spry_arch_ministral3 = {
    .name = "Ministral 3",
    .gguf = "mistral3",
    .hf_type = "ministral3",
    .gate = SPRY_GATE_SILU,
    .permuted_in_gguf = true,
    .defaults = ministral3_defaults,
    .finish = ministral3_finish,
};

/* ---- Mistral 4 --------------------------------------------------------------------------------------------------- */

/* Mistral 4: DeepSeek's latent attention and experts. A softmax selects experts from groups, which are rated by their
 * best two. */

static void mistral4_defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_context = 131072;
    config->normalise_experts = true;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_kv_rank = 256;
        config->n_q_rank = 1024;
        config->nope_dim = config->rope_dim = 64;
        config->value_dim = 128;
        config->n_experts = 128;
        config->n_experts_used = 4;
        config->n_expert_ff = 2048;
        config->n_shared = 1;
    }
}

static void mistral4_finish(spry_config *config)
{
    ministral3_finish(config);
    spry_latent_finish(config);
}

const spry_arch spry_arch_mistral4 = {
    .name = "Mistral 4",
    .gguf = "mistral4",
    .hf_type = "mistral4",
    .gate = SPRY_GATE_SILU,
    .latent = true,
    .interleaved = true,
    .groups_by_two = true,
    .gguf_normalises = true,
    .never_slides = true,
    .names = spry_latent_names,
    .defaults = mistral4_defaults,
    .finish = mistral4_finish,
};
