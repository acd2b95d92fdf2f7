/* ERNIE 4.5: Llama with rope pairs (2i, 2i + 1). */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->norm_eps = 1e-5f;
    config->n_context = 131072;
    config->rope.theta = 5e5f;
    config->tied = true;
    if (dialect == SPRY_DIALECT_JSON) {
        config->n_kv_heads = 2;
        config->head_dim = 128;
    }
}

const spry_arch spry_arch_ernie4_5 = {
    .name = "ERNIE 4.5",
    .gguf = "ernie4_5",
    .hf_type = "ernie4_5",
    .gate = SPRY_GATE_SILU,
    .interleaved = true,
    .never_slides = true,
    .defaults = defaults,
};
