/* DeepSeek V2: latent attention, experts beside shared ones, the first layers dense. In GGUF the name also covers V3,
 * whose files say how experts are chosen. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
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

/* Transformers' V2 never renormalises. */
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
    .defaults = defaults,
    .finish = finish,
};
