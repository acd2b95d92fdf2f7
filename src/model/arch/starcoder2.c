/* StarCoder 2: layer norms and biases everywhere, a feed-forward part without a gate. */
#include "model/arch.h"

static void defaults(spry_config *config, spry_config_dialect dialect)
{
    config->layer_norm_eps = 1e-5f;
    config->n_context = 4096;
    config->tied = true;
    if (dialect == SPRY_DIALECT_JSON)
        config->n_kv_heads = 2;
}

static const spry_tensor_name names[] = {
    {"ffn_up", "mlp.c_fc", NULL},
    {"ffn_down", "mlp.c_proj", NULL},
    {0},
};

const spry_arch spry_arch_starcoder2 = {
    .name = "StarCoder 2",
    .gguf = "starcoder2",
    .hf_type = "starcoder2",
    .gate = SPRY_GATE_GELU_TANH,
    .layer_norm = true,
    .norm_bias = true,
    .ungated = true,
    .qkv_bias = true,
    .names = names,
    .defaults = defaults,
};
