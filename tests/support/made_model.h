/* Small checkpoints of random numbers, for shapes and switches that no fixture has. Include after cmocka.h. */
#ifndef SPRY_TESTS_MADE_MODEL_H
#define SPRY_TESTS_MADE_MODEL_H

#include <jansson.h>

#include "base/buffer.h"
#include "support/hostile.h"
#include "support/scratch.h"

typedef struct made_model {
    json_t *header;
    spry_buffer data;
    uint64_t random;
} made_model;

static inline size_t made_size(const json_t *config, const char *key)
{
    const json_t *item = json_object_get(config, key);
    assert_true(json_is_number(item));
    return (size_t)json_number_value(item);
}

/* Numbers around `middle`; n_in 0 makes a vector. */
static inline void made_tensor(made_model *m, const char *name, size_t n_out, size_t n_in, double middle)
{
    size_t n = n_out * (n_in ? n_in : 1), begin = m->data.size;
    for (size_t i = 0; i < n; i++) {
        float value = (float)(middle + ((double)(hostile_random(&m->random) >> 40) / (1 << 24) - 0.5) * 0.4);
        assert_true(spry_buffer_append(&m->data, &value, sizeof value));
    }
    json_t *shape =
        n_in ? json_pack("[I,I]", (json_int_t)n_out, (json_int_t)n_in) : json_pack("[I]", (json_int_t)n_out);
    json_object_set_new(m->header, name,
                        json_pack("{s:s, s:o, s:[I,I]}", "dtype", "F32", "shape", shape, "data_offsets",
                                  (json_int_t)begin, (json_int_t)m->data.size));
}

static inline void made_linear(made_model *m, size_t layer, const char *what, size_t n_out, size_t n_in, bool bias)
{
    char name[128];
    snprintf(name, sizeof name, "model.layers.%zu.%s.weight", layer, what);
    made_tensor(m, name, n_out, n_in, n_in ? 0 : 1);
    snprintf(name, sizeof name, "model.layers.%zu.%s.bias", layer, what);
    if (bias)
        made_tensor(m, name, n_out, 0, 0);
}

/* DeepSeek's attention without a rank for queries. */
static inline void made_latent(made_model *m, const json_t *config, size_t layer)
{
    size_t n = made_size(config, "hidden_size"), heads = made_size(config, "num_attention_heads");
    size_t rank = made_size(config, "kv_lora_rank"), rope = made_size(config, "qk_rope_head_dim");
    size_t nope = made_size(config, "qk_nope_head_dim"), values = made_size(config, "v_head_dim");
    size_t ff = made_size(config, "intermediate_size");
    made_linear(m, layer, "input_layernorm", n, 0, false);
    made_linear(m, layer, "post_attention_layernorm", n, 0, false);
    made_linear(m, layer, "self_attn.q_proj", heads * (nope + rope), n, false);
    made_linear(m, layer, "self_attn.kv_a_proj_with_mqa", rank + rope, n, false);
    made_linear(m, layer, "self_attn.kv_a_layernorm", rank, 0, false);
    made_linear(m, layer, "self_attn.kv_b_proj", heads * (nope + values), rank, false);
    made_linear(m, layer, "self_attn.o_proj", n, heads * values, false);
    made_linear(m, layer, "mlp.gate_proj", ff, n, false);
    made_linear(m, layer, "mlp.up_proj", ff, n, false);
    made_linear(m, layer, "mlp.down_proj", n, ff, false);
}

static inline void made_layer(made_model *m, const json_t *config, size_t layer)
{
    size_t n = made_size(config, "hidden_size"), heads = made_size(config, "num_attention_heads");
    size_t head_dim = json_object_get(config, "head_dim") ? made_size(config, "head_dim") : n / heads;
    size_t n_q = heads * head_dim, n_kv = made_size(config, "num_key_value_heads") * head_dim;
    size_t ff = made_size(config, "intermediate_size");
    bool bias = json_is_true(json_object_get(config, "attention_bias"));
    bool fused = !strcmp(json_string_value(json_object_get(config, "model_type")), "phi3");
    made_linear(m, layer, "input_layernorm", n, 0, false);
    made_linear(m, layer, "post_attention_layernorm", n, 0, false);
    if (fused) {
        made_linear(m, layer, "self_attn.qkv_proj", n_q + 2 * n_kv, n, false);
        made_linear(m, layer, "mlp.gate_up_proj", 2 * ff, n, false);
    } else {
        made_linear(m, layer, "self_attn.q_proj", n_q, n, bias);
        made_linear(m, layer, "self_attn.k_proj", n_kv, n, bias);
        made_linear(m, layer, "self_attn.v_proj", n_kv, n, bias);
        made_linear(m, layer, "mlp.gate_proj", ff, n, false);
        made_linear(m, layer, "mlp.up_proj", ff, n, false);
    }
    made_linear(m, layer, "self_attn.o_proj", n, n_q, bias);
    made_linear(m, layer, "mlp.down_proj", n, ff, false);
}

/* Writes config.json and model.safetensors of a "llama", "mistral", "phi3" or "deepseek_v2" into the folder. */
static inline void made_model_write(scratch *s, const json_t *config)
{
    made_model m = {.header = json_object(), .random = 42};
    size_t n = made_size(config, "hidden_size"), n_vocab = made_size(config, "vocab_size");
    spry_buffer_init(&m.data, 1 << 26);
    made_tensor(&m, "model.embed_tokens.weight", n_vocab, n, 0);
    made_tensor(&m, "model.norm.weight", n, 0, 1);
    if (!json_is_true(json_object_get(config, "tie_word_embeddings")))
        made_tensor(&m, "lm_head.weight", n_vocab, n, 0);
    for (size_t i = 0; i < made_size(config, "num_hidden_layers"); i++)
        (json_object_get(config, "kv_lora_rank") ? made_latent : made_layer)(&m, config, i);
    char *header = json_dumps(m.header, JSON_COMPACT);
    uint64_t size = strlen(header);
    spry_buffer file;
    spry_buffer_init(&file, 1 << 26);
    spry_buffer_append(&file, &size, sizeof size);
    spry_buffer_append(&file, header, size);
    spry_buffer_append(&file, m.data.data, m.data.size);
    assert_false(file.failed);
    scratch_write(s, "model.safetensors", file.data, file.size);
    assert_int_equal(json_dump_file(config, scratch_path(s, "config.json"), JSON_INDENT(1)), 0);
    spry_buffer_deinit(&file);
    spry_buffer_deinit(&m.data);
    json_decref(m.header);
    free(header);
}

#endif
