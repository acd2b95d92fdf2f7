/* Seed-OSS: Llama with biases on q, k and v. In GGUF its second norm has the name that other models use for a norm
 * after attention. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->n_context = 524288;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_kv_heads = 8;
        config->head_dim = 128;
    }
}

static const spry_tensor_name names[] = {{"ffn_norm", NULL, "post_attention_norm"}, {0}};

const spry_arch spry_arch_seed_oss = {
    .name = "Seed-OSS",
    .gguf = "seed_oss",
    .hf_type = "seed_oss",
    .gate = SPRY_GATE_SILU,
    .qkv_bias = true,
    .never_slides = true,
    .names = names,
    .defaults = defaults,
};
