/* Phi-3, 3.5 and 4: q, k and v are one matrix, gate and up are one matrix; models for long contexts have long RoPE. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->norm_eps = 1e-5f;
    config->n_context = 4096;
    if (dialect == SPRY_DIALECT_JSON)
        config->rope.original_context = 4096;
}

static const spry_tensor_name names[] = {{"ffn_up", "mlp.gate_up_proj", NULL}, {0}};

const spry_arch spry_arch_phi3 = {
    .name = "Phi-3",
    .gguf = "phi3",
    .hf_type = "phi3",
    .gate = SPRY_GATE_SILU,
    .fused_qkv = true,
    .fused_gate_up = true,
    .names = names,
    .defaults = defaults,
};
