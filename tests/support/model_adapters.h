/* Adapters that are made for golden models: of every matrix, of fused ones, of experts; and rows with different ones in
 * the same steps. Include after cmocka.h. */
#ifndef SPRY_TESTS_MODEL_ADAPTERS_H
#define SPRY_TESTS_MODEL_ADAPTERS_H

#include "golden/model_runner.h"
#include "support/device_rows.h"
#include "support/made_adapter.h"
#include "support/model_folder.h"

enum { MADE_LIST = 4 * SCRATCH_PATH }; /* paths of a few adapters */

static inline void made_add_layer(made_adapter *m, uint32_t layer, const char *hf, const char *gguf, size_t n_out,
                                  size_t n_in, size_t head)
{
    char long_name[128], short_name[64];
    snprintf(long_name, sizeof long_name, "model.layers.%u.%s", layer, hf);
    snprintf(short_name, sizeof short_name, "blk.%u.%s", layer, gguf);
    made_add(m, long_name, short_name, n_out, n_in, 4, head);
}

/* Every matrix of a Llama. */
static inline void made_llama(made_adapter *m, const spry_config *c, uint64_t seed)
{
    size_t n_q = (size_t)c->n_heads * c->head_dim, n_kv = (size_t)c->n_kv_heads * c->head_dim;
    *m = (made_adapter){.seed = seed};
    for (uint32_t i = 0; i < c->n_layers; i++) {
        made_add_layer(m, i, "self_attn.q_proj", "attn_q", n_q, c->n_embd, c->head_dim);
        made_add_layer(m, i, "self_attn.k_proj", "attn_k", n_kv, c->n_embd, c->head_dim);
        made_add_layer(m, i, "self_attn.v_proj", "attn_v", n_kv, c->n_embd, 0);
        made_add_layer(m, i, "self_attn.o_proj", "attn_output", c->n_embd, n_q, 0);
        made_add_layer(m, i, "mlp.gate_proj", "ffn_gate", c->n_ff, c->n_embd, 0);
        made_add_layer(m, i, "mlp.up_proj", "ffn_up", c->n_ff, c->n_embd, 0);
        made_add_layer(m, i, "mlp.down_proj", "ffn_down", c->n_embd, c->n_ff, 0);
    }
    if (!c->tied)
        made_add(m, "lm_head", "output", c->n_vocab, c->n_embd, 3, 0);
}

/* Fused matrices. */
static inline void made_phi3(made_adapter *m, const spry_config *c, uint64_t seed)
{
    size_t n_q = (size_t)c->n_heads * c->head_dim, n_kv = (size_t)c->n_kv_heads * c->head_dim;
    *m = (made_adapter){.seed = seed};
    for (uint32_t i = 0; i < c->n_layers; i++) {
        made_add_layer(m, i, "self_attn.qkv_proj", "attn_qkv", n_q + 2 * n_kv, c->n_embd, 0);
        made_add_layer(m, i, "mlp.gate_up_proj", "ffn_up", 2 * c->n_ff, c->n_embd, 0);
    }
}

/* Experts, each by itself, and the shared one. */
static inline void made_moe(made_adapter *m, const spry_config *c, uint64_t seed)
{
    *m = (made_adapter){.seed = seed};
    for (uint32_t i = 0; i < c->n_layers; i++) {
        char name[64];
        made_add_layer(m, i, "mlp.shared_expert.down_proj", "ffn_down_shexp", c->n_embd, c->n_shared_ff, 0);
        made_add_layer(m, i, "mlp.gate", "ffn_gate_inp", c->n_experts, c->n_embd, 0);
        for (uint32_t e = 0; e < c->n_experts; e += 2) {
            snprintf(name, sizeof name, "mlp.experts.%u.up_proj", e);
            made_add_layer(m, i, name, "", c->n_expert_ff, c->n_embd, 0);
            snprintf(name, sizeof name, "mlp.experts.%u.down_proj", e);
            made_add_layer(m, i, name, "", c->n_embd, c->n_expert_ff, 0);
        }
    }
}

/* The sizes of a model; its lists are gone. */
static inline spry_config made_config(const char *path)
{
    spry_model *model;
    spry_error error = {0};
    if (spry_model_open_sizes(&model, path, NULL, 0, &error))
        fail_msg("%s", error.message);
    spry_config c = model->config;
    spry_model_close(model);
    return c;
}

/* Two of them, in folders "one" and "two"; `lora` names both. */
static inline void made_two(scratch *place, const char *model,
                            void (*make)(made_adapter *, const spry_config *, uint64_t), char *folder,
                            char lora[MADE_LIST])
{
    made_adapter m;
    const spry_config c = made_config(model_path(folder, model, ""));
    make(&m, &c, 7);
    made_folder(place, "one", &m, NULL);
    made_deinit(&m);
    make(&m, &c, 8);
    made_folder(place, "two", &m, NULL);
    made_deinit(&m);
    snprintf(lora, MADE_LIST, "%s/one,%s/two", place->folder, place->folder);
}

/* ---- rows with different adapters ----------------------------------------------------------------------------------
 */

enum { ADAPTED_ROWS = 48, ADAPTED_KINDS = 4 };

static const spry_adapter_scales adapted_kinds[ADAPTED_KINDS] = {{{0}}, {{1}}, {{0, 0.5f}}, {{-1, 2}}};

static inline void adapted_same(const float *a, const float *b, size_t n, const char *what)
{
    if (memcmp(a, b, n * sizeof *a))
        fail_msg("%s changed bits", what);
}

/* Sequences with different adapters in each step, a few rows of each, against each alone. */
static inline void adapted_company(model_runner *r, float *const alone[ADAPTED_KINDS], const int32_t *ids)
{
    spry_error error = {0};
    spry_kv_table tables[ADAPTED_KINDS];
    size_t n_vocab = r->model->config.n_vocab, done[ADAPTED_KINDS] = {0}, left = ADAPTED_KINDS * ADAPTED_ROWS;
    for (size_t i = 0; i < ADAPTED_KINDS; i++)
        assert_int_equal(spry_kv_table_init(&tables[i], ADAPTED_ROWS, &error), SPRY_OK);
    for (size_t step = 0; left; step++) {
        spry_segment segments[ADAPTED_KINDS];
        size_t owner[ADAPTED_KINDS], n = 0, row = 0;
        for (size_t i = 0; i < ADAPTED_KINDS; i++) {
            size_t rows = 1 + (step * 5 + i * 3) % 9;
            rows = rows < ADAPTED_ROWS - done[i] ? rows : ADAPTED_ROWS - done[i];
            if (!rows)
                continue;
            assert_int_equal(spry_kv_table_extend(&tables[i], &r->pool, rows, &error), SPRY_OK);
            owner[n] = i;
            segments[n++] = (spry_segment){
                &tables[i], ids + done[i], (uint32_t)done[i], (uint32_t)rows, SPRY_WANT_ALL, adapted_kinds[i], 0, NULL,
                0};
        }
        assert_int_equal(step_run(r->device, segments, n, &error), SPRY_OK);
        for (size_t s = 0; s < n; s++) {
            size_t i = owner[s], rows = segments[s].n_rows;
            adapted_same(alone[i] + done[i] * n_vocab, step_logits(r->device, row, rows), rows * n_vocab, "company");
            row += rows;
            done[i] += rows;
            left -= rows;
        }
    }
    for (size_t i = 0; i < ADAPTED_KINDS; i++)
        spry_kv_table_deinit(&tables[i], &r->pool);
}

#endif
