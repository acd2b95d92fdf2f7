/* Models written as GGUF and opened again: the same logits, the tensor types that were asked for, and, beside what
 * llama.cpp's converter made of the same checkpoints, the same tensors and keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "golden/logit_bound.h"
#include "golden/model_runner.h"
#include "model/config.h"
#include "model/gguf_export.h"
#include "platform/file.h"
#include "support/made_model.h"
#include "support/model_folder.h"
#include "support/must.h"
#include "support/quoted_json.h"

static scratch place, outside; /* outside: where made checkpoints stand */
static spry_threads *threads;

static const char *const with_gguf[] = {"llama", "qwen3", "gemma3", "qwen2-moe"};

static const int32_t prompt[] = {
    9,  20, 39, 7,  21, 0,  19, 17, 3,  11, 4,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13,
    14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35}; /* > a page */

/* ---- exporting and opening -------------------------------------------------------------------------------------- */

/* Exports the model at `from`; the file's path stays in place.path. */
static const char *export_as(const char *from, const char *type)
{
    spry_model *model;
    spry_error error = {0};
    spry_export options = {.threads = threads};
    must(spry_model_open(&model, from, &error), &error);
    must(spry_recipe_find(&options.recipe, type, &error), &error);
    must(spry_model_export(model, scratch_path(&place, "out.gguf"), &options, &error), &error);
    spry_model_close(model);
    return place.path;
}

/* The same bits, or values no further apart than two computations may be. */
static void same_logits(const char *a_path, const char *b_path, bool bits, const char *what)
{
    model_runner a, b;
    const char *cpu = bits ? "auto" : "ref"; /* other kernels may round activations */
    runner_open(&a, a_path, cpu, SPRY_F32, 1);
    runner_open(&b, b_path, cpu, SPRY_F32, 1);
    size_t n = SPRY_COUNT(prompt), n_vocab = a.model->config.n_vocab;
    assert_int_equal(n_vocab, b.model->config.n_vocab);
    float *x = runner_logits(&a, prompt, n, n), *y = runner_logits(&b, prompt, n, n);
    float *hidden = runner_hidden(&a, prompt, n), *weights = malloc(a.model->config.n_embd * sizeof *weights);
    assert_non_null(weights);
    if (bits && memcmp(x, y, n * n_vocab * sizeof *x))
        fail_msg("%s: other bits", what);
    for (size_t row = 0; row < n && !bits; row++) {
        double bound = 2 * logit_bound(&a, hidden, row, weights);
        for (size_t i = row * n_vocab; i < (row + 1) * n_vocab; i++)
            if (!(fabs((double)x[i] - (double)y[i]) <= bound))
                fail_msg("%s, row %zu: %g and %g, %g apart are allowed", what, row, (double)x[i], (double)y[i], bound);
    }
    free(weights);
    free(hidden);
    free(x);
    free(y);
    runner_close(&a);
    runner_close(&b);
}

static void all_finite(const char *path)
{
    model_runner r;
    runner_open(&r, path, "auto", SPRY_F16, 1);
    size_t n = SPRY_COUNT(prompt) * r.model->config.n_vocab;
    float *logits = runner_logits(&r, prompt, SPRY_COUNT(prompt), 64), low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        assert_true(isfinite(logits[i]));
        low = logits[i] < low ? logits[i] : low;
        high = logits[i] > high ? logits[i] : high;
    }
    assert_true(low < high);
    free(logits);
    runner_close(&r);
}

/* ---- every fixture ---------------------------------------------------------------------------------------------- */

/* `turned`: rows of q and k change places, or a router becomes floats, whose products round other things. */
static spry_dtype type_of_fixture(const char *path, bool *turned)
{
    spry_model *model;
    assert_int_equal(spry_model_open(&model, path, NULL), SPRY_OK);
    spry_dtype type = model->weights.layers[0].q.type;
    *turned = model->config.arch->permuted_in_gguf || model->weights.layers[0].router.data;
    spry_model_close(model);
    return type;
}

static void test_same_type_same_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        char folder[SCRATCH_PATH];
        bool turned;
        spry_dtype type = type_of_fixture(model_path(folder, model_names[i], ""), &turned);
        same_logits(folder, export_as(folder, spry_dtype_name(type)), !turned, model_names[i]);
        /* Floats hold every half exactly, but their kernels may sum in another order. */
        same_logits(folder, export_as(folder, "f32"), !turned && type == SPRY_F32, model_names[i]);
    }
}

/* The type a tensor must have: routers and vectors stay floats, rows that are not whole blocks become halves. */
static spry_dtype expected_type(const spry_tensor *t, const spry_export *options)
{
    bool embedding = spry_view_is(t->name, "token_embd.weight") || spry_view_is(t->name, "output.weight");
    bool router = spry_view_ends(t->name, SPRY_VIEW(".ffn_gate_inp.weight")) ||
                  spry_view_ends(t->name, SPRY_VIEW(".ffn_gate_inp_shexp.weight"));
    spry_dtype type = embedding ? options->recipe->embedding : options->recipe->matrices;
    if (t->n_dims < 2 || router)
        return SPRY_F32;
    return t->dims[t->n_dims - 1] % spry_dtype_block(type) ? SPRY_F16 : type;
}

static void check_types(const char *path, const char *type)
{
    spry_gguf *gguf;
    spry_export options;
    uint64_t file_type;
    assert_int_equal(spry_recipe_find(&options.recipe, type, NULL), SPRY_OK);
    assert_int_equal(spry_gguf_open(&gguf, path, NULL), SPRY_OK);
    for (size_t i = 0; i < spry_gguf_tensor_count(gguf); i++) {
        const spry_tensor *t = spry_gguf_tensor(gguf, i);
        if (t->type != expected_type(t, &options))
            fail_msg("%s as %s: %.*s is %s", path, type, SPRY_VIEW_ARG(t->name), spry_dtype_name(t->type));
    }
    assert_true(spry_gguf_get_u64(gguf, "general.file_type", &file_type));
    static const struct {
        const char *type;
        uint64_t id;
    } ids[] = {{"f32", 0}, {"f16", 1}, {"q4_0", 2}, {"q4_1", 3}, {"q8_0", 7}, {"q5_0", 8}, {"q5_1", 9}, {"bf16", 32}};
    for (size_t i = 0; i < SPRY_COUNT(ids); i++)
        if (!strcmp(ids[i].type, type))
            assert_int_equal(file_type, ids[i].id);
    spry_gguf_close(gguf);
}

static void test_every_type(void **state)
{
    (void)state;
    static const char *const types[] = {"f32", "f16", "bf16", "q8_0", "q4_0"};
    for (size_t i = 0; i < N_MODELS; i++)
        for (size_t t = 0; t < SPRY_COUNT(types); t++) {
            char folder[SCRATCH_PATH];
            const char *path = export_as(model_path(folder, model_names[i], ""), types[t]);
            check_types(path, types[t]);
            all_finite(path);
        }
}

static void test_other_types(void **state)
{
    (void)state;
    static const char *const types[] = {"q4_1", "q5_0", "q5_1", "Q8_0"};
    char folder[SCRATCH_PATH];
    for (size_t t = 0; t < SPRY_COUNT(types); t++) {
        const char *path = export_as(model_path(folder, "llama-256", ""), types[t]);
        check_types(path, types[t]);
        all_finite(path);
    }
}

/* Who encodes which rows changes no byte. */
static void test_threads_write_the_same(void **state)
{
    (void)state;
    spry_buffer files[3];
    spry_threads *one = threads;
    for (size_t i = 0; i < SPRY_COUNT(files); i++) {
        char folder[SCRATCH_PATH];
        assert_int_equal(spry_threads_create(&threads, i + 1, NULL), SPRY_OK);
        spry_buffer_init(&files[i], 1 << 26);
        export_as(model_path(folder, "mixtral", ""), "q4_0");
        assert_int_equal(spry_file_read(&files[i], place.path, NULL), SPRY_OK);
        assert_int_equal(files[i].size, files[0].size);
        assert_memory_equal(files[i].data, files[0].data, files[0].size);
        spry_threads_destroy(threads);
    }
    for (size_t i = 0; i < SPRY_COUNT(files); i++)
        spry_buffer_deinit(&files[i]);
    threads = one;
}

/* ---- beside the converter --------------------------------------------------------------------------------------- */

static void same_tensors(const spry_gguf *ours, const spry_gguf *theirs)
{
    assert_int_equal(spry_gguf_tensor_count(ours), spry_gguf_tensor_count(theirs));
    for (size_t i = 0; i < spry_gguf_tensor_count(theirs); i++) {
        const spry_tensor *t = spry_gguf_tensor(theirs, i), *o = spry_gguf_find_tensor(ours, t->name);
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)t->name.size, t->name.data);
        if (!o)
            fail_msg("%s: we have no %s", spry_gguf_name(theirs), name);
        if (o->type != t->type || o->n_dims != t->n_dims || memcmp(o->dims, t->dims, sizeof t->dims))
            fail_msg("%s: %s is %s [%zu, %zu, %zu] (%u), ours %s [%zu, %zu, %zu] (%u)", spry_gguf_name(theirs), name,
                     spry_dtype_name(t->type), t->dims[0], t->dims[1], t->dims[2], t->n_dims, spry_dtype_name(o->type),
                     o->dims[0], o->dims[1], o->dims[2], o->n_dims);
        if (memcmp(o->data, t->data, t->bytes))
            fail_msg("%s: %s holds other numbers", spry_gguf_name(theirs), name);
    }
}

/* Names, labels and sizes in words describe. The pattern has several names: the fixtures' tokenizer is Qwen2's without
 * its normalisation, which has another, while the converter was told "qwen2". Everything else must be the same. */
static bool descriptive(spry_view key)
{
    return spry_view_is(key, "general.name") || spry_view_is(key, "general.type") ||
           spry_view_is(key, "general.size_label") || spry_view_is(key, "tokenizer.ggml.pre");
}

static void same_entries(const spry_gguf *ours, const spry_gguf *theirs)
{
    for (size_t i = 0; i < spry_gguf_entry_count(theirs); i++) {
        const spry_gguf_entry *t = spry_gguf_entry_at(theirs, i), *o = spry_gguf_find_entry(ours, t->key);
        if (descriptive(t->key))
            continue;
        if (!o || o->kind != t->kind || o->bytes != t->bytes || memcmp(o->data, t->data, t->bytes))
            fail_msg("%s: %.*s is %s", spry_gguf_name(theirs), (int)t->key.size, t->key.data,
                     !o ? "not in ours" : "another in ours");
    }
}

static void test_beside_the_converter(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(with_gguf); i++) {
        char folder[SCRATCH_PATH], path[SCRATCH_PATH];
        spry_gguf *ours, *theirs;
        assert_int_equal(spry_gguf_open(&ours, export_as(model_path(folder, with_gguf[i], ""), "f32"), NULL), SPRY_OK);
        assert_int_equal(spry_gguf_open(&theirs, model_path(path, with_gguf[i], "model-f32.gguf"), NULL), SPRY_OK);
        same_tensors(ours, theirs);
        same_entries(ours, theirs);
        spry_gguf_close(ours);
        spry_gguf_close(theirs);
    }
}

/* From GGUF to GGUF nothing is lost: keys are copied, known or not, and floats stay what they are. */
static void test_gguf_to_gguf(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(with_gguf); i++) {
        char path[SCRATCH_PATH];
        spry_gguf *ours, *theirs;
        model_path(path, with_gguf[i], "model-f32.gguf");
        same_logits(path, export_as(path, "f32"), true, with_gguf[i]);
        assert_int_equal(spry_gguf_open(&ours, place.path, NULL), SPRY_OK);
        assert_int_equal(spry_gguf_open(&theirs, path, NULL), SPRY_OK);
        same_tensors(ours, theirs);
        same_entries(ours, theirs);
        assert_int_equal(spry_gguf_entry_count(ours), spry_gguf_entry_count(theirs));
        spry_gguf_close(ours);
        spry_gguf_close(theirs);
        check_types(export_as(path, "q8_0"), "q8_0");
        all_finite(place.path);
    }
}

/* ---- made models: what no fixture has --------------------------------------------------------------------------- */

#define TINY                                                                                                           \
    "'num_hidden_layers': 2, 'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 40, "                   \
    "'max_position_embeddings': 128"

static const struct {
    const char *name, *config;
} made[] = {
    {"biases", "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 96, 'attention_bias': true, " TINY "}"},
    {"odd rows", "{'model_type': 'llama', 'hidden_size': 80, 'intermediate_size': 72, 'head_dim': 20, " TINY "}"},
    {"tied",
     "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 96, 'tie_word_embeddings': true, " TINY "}"},
    {"window", "{'model_type': 'mistral', 'hidden_size': 64, 'intermediate_size': 96, 'sliding_window': 7, " TINY "}"},
    {"linear rope", "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 96, "
                    "'rope_scaling': {'type': 'linear', 'factor': 2.5}, " TINY "}"},
    {"yarn", "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 96, 'rope_theta': 1000, "
             "'rope_scaling': {'type': 'yarn', 'factor': 4, 'original_max_position_embeddings': 32, 'beta_fast': 8, "
             "'beta_slow': 2}, " TINY "}"},
    {"yarn with a magnitude", "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 96, "
                              "'rope_scaling': {'type': 'yarn', 'factor': 4, 'original_max_position_embeddings': 32, "
                              "'attention_factor': 1.5}, " TINY "}"},
    {"longrope", "{'model_type': 'phi3', 'hidden_size': 64, 'intermediate_size': 96, "
                 "'original_max_position_embeddings': 32, 'rope_scaling': {'type': 'longrope', 'short_factor': "
                 "[1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7], 'long_factor': [1, 2, 3, 4, 5, 6, 7, 8]}, " TINY "}"},
    {"longrope with a magnitude",
     "{'model_type': 'phi3', 'hidden_size': 64, 'intermediate_size': 96, 'original_max_position_embeddings': 32, "
     "'rope_scaling': {'type': 'longrope', 'attention_factor': 1.5, 'short_factor': "
     "[1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7], 'long_factor': [1, 2, 3, 4, 5, 6, 7, 8]}, " TINY "}"},
};

static void same_rope(const char *a_path, const char *b_path, uint32_t session, const char *what)
{
    spry_model *a, *b;
    float x[64], y[64];
    assert_int_equal(spry_model_open(&a, a_path, NULL), SPRY_OK);
    assert_int_equal(spry_model_open(&b, b_path, NULL), SPRY_OK);
    size_t n_pairs = a->config.rope_dim / 2;
    double m = (double)spry_rope_frequencies(x, &a->config.rope, a->config.rope_dim, session);
    double k = (double)spry_rope_frequencies(y, &b->config.rope, b->config.rope_dim, session);
    if (fabs(m - k) > 4 * (double)FLT_EPSILON * m)
        fail_msg("%s: magnitude %.9g became %.9g", what, m, k);
    for (size_t i = 0; i < n_pairs; i++)
        if (fabs((double)x[i] - (double)y[i]) > 4 * (double)FLT_EPSILON * (double)x[i])
            fail_msg("%s: frequency %zu, %.9g, became %.9g", what, i, (double)x[i], (double)y[i]);
    assert_int_equal(a->config.window, b->config.window);
    for (uint32_t i = 0; i < a->config.n_layers; i++)
        assert_int_equal(a->config.sliding[i], b->config.sliding[i]);
    spry_model_close(a);
    spry_model_close(b);
}

static void test_made_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(made); i++) {
        json_t *config = quoted_json(made[i].config);
        scratch_clear(&outside);
        made_model_write(&outside, config);
        same_logits(outside.folder, export_as(outside.folder, "f32"), false, made[i].name);
        same_rope(outside.folder, place.path, 128, made[i].name);
        same_rope(outside.folder, place.path, 32, made[i].name);
        check_types(export_as(outside.folder, "q4_0"), "q4_0");
        all_finite(place.path);
        json_decref(config);
    }
}

/* Switches that no fixture has set this way, on fixtures' weights. */
static void test_changed_configs(void **state)
{
    (void)state;
    static const struct {
        const char *model, *changes;
    } cases[] = {
        {"gemma2", "{'query_pre_attn_scalar': 17}"},
        {"gemma2", "{'attn_logit_softcapping': 3, 'final_logit_softcapping': 2}"},
        {"gemma2",
         "{'layer_types': ['full_attention', 'sliding_attention', 'sliding_attention'], 'sliding_window': 5}"},
        {"gemma3", "{'layer_types': '-', '_sliding_window_pattern': 3, 'sliding_window': 7}"},
        {"gemma3", "{'rope_parameters': '-', 'rope_theta': 5000, 'rope_local_base_freq': 300, "
                   "'rope_scaling': {'type': 'linear', 'factor': 3}}"},
        {"qwen2-moe", "{'norm_topk_prob': true, 'num_experts_per_tok': 3}"},
        {"qwen3-moe", "{'norm_topk_prob': false}"},
        {"qwen3", "{'use_sliding_window': true, 'sliding_window': 6, 'layer_types': '-', 'max_window_layers': 1}"},
        {"phi3", "{'sliding_window': 9, 'rms_norm_eps': 0.01}"},
        {"llama3-rope", "{'rope_parameters': {'rope_type': 'llama3', 'factor': 3, 'low_freq_factor': 2, "
                        "'high_freq_factor': 5, 'original_max_position_embeddings': 48, 'rope_theta': 900}}"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        json_t *config = model_config(cases[i].model);
        quoted_json_change(config, cases[i].changes);
        model_folder_fill(&outside, cases[i].model, "config.json");
        model_folder_json(&outside, "config.json", config);
        same_logits(outside.folder, export_as(outside.folder, "f32"), false, cases[i].changes);
        same_rope(outside.folder, place.path, 512, cases[i].changes);
        json_decref(config);
    }
}

/* An embedding with more rows than the tokenizer has tokens: llama.cpp wants a token for each. */
static void test_padded_vocabulary(void **state)
{
    (void)state;
    json_t *config =
        quoted_json("{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 96, 'num_hidden_layers': 1, "
                    "'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 520}");
    char source[SCRATCH_PATH];
    spry_gguf *gguf;
    spry_gguf_array tokens, types;
    spry_view name = {"", 0};
    uint64_t type;
    scratch_clear(&outside);
    made_model_write(&outside, config);
    assert_int_equal(symlink(model_path(source, "llama", "tokenizer.json"), scratch_path(&outside, "tokenizer.json")),
                     0);
    assert_int_equal(spry_gguf_open(&gguf, export_as(outside.folder, "f32"), NULL), SPRY_OK);
    assert_true(spry_gguf_get_array(gguf, "tokenizer.ggml.tokens", &tokens));
    assert_true(spry_gguf_get_array(gguf, "tokenizer.ggml.token_type", &types));
    assert_int_equal(tokens.count, 520);
    assert_int_equal(types.count, 520);
    for (size_t cursor = 0; spry_gguf_array_string(&tokens, &cursor, &name);)
        ;
    assert_true(spry_view_is(name, "[PAD519]"));
    assert_true(spry_gguf_array_u64(&types, 519, &type));
    assert_int_equal(type, 5); /* unused */
    spry_gguf_close(gguf);
    same_logits(outside.folder, place.path, false, "padded");
    json_decref(config);
}

/* ---- options ---------------------------------------------------------------------------------------------------- */

static void test_type_names(void **state)
{
    (void)state;
    static const char *const unknown[] = {"", "q9_0", "iq4_nl", "float32", "f64", "tq1_0"};
    spry_export options = {0};
    spry_error error = {0};
    assert_int_equal(spry_recipe_find(&options.recipe, "q4_0", NULL), SPRY_OK);
    assert_true(options.recipe->matrices == SPRY_Q4_0 && options.recipe->embedding == SPRY_Q8_0);
    assert_int_equal(spry_recipe_find(&options.recipe, "bf16", NULL), SPRY_OK);
    assert_true(options.recipe->matrices == SPRY_BF16 && options.recipe->embedding == SPRY_BF16);
    for (size_t i = 0; i < SPRY_COUNT(unknown); i++) {
        hostile_expect(spry_recipe_find(&options.recipe, unknown[i], &error), &error, SPRY_ERR_INPUT,
                       "cannot be written|q4_0|q8_0|f16|bf16|f32");
        assert_int_equal(spry_recipe_find(&options.recipe, unknown[i], NULL), SPRY_ERR_INPUT);
    }
}

typedef struct progress {
    size_t last, total, calls;
} progress;

static bool on_progress(void *user, size_t done, size_t total)
{
    progress *p = user;
    assert_true(done > p->last && done <= total && (!p->calls || total == p->total));
    *p = (progress){done, total, p->calls + 1};
    return true;
}

static bool stop_after_three(void *user, size_t done, size_t total)
{
    on_progress(user, done, total);
    return ((progress *)user)->calls < 3;
}

static void expect_name(const char *path, const char *expected)
{
    spry_gguf *gguf;
    spry_view name;
    assert_int_equal(spry_gguf_open(&gguf, path, NULL), SPRY_OK);
    assert_true(spry_gguf_get_string(gguf, "general.name", &name));
    assert_true(spry_view_is(name, expected));
    spry_gguf_close(gguf);
}

static void test_title_and_progress(void **state)
{
    (void)state;
    char folder[SCRATCH_PATH], gguf[SCRATCH_PATH];
    spry_model *model;
    progress p = {0};
    spry_export options = {.threads = threads, .title = "My model", .progress = on_progress, .user = &p};
    assert_int_equal(spry_recipe_find(&options.recipe, "q8_0", NULL), SPRY_OK);
    assert_int_equal(spry_model_open(&model, model_path(folder, "mixtral", ""), NULL), SPRY_OK);
    assert_int_equal(spry_model_export(model, scratch_path(&place, "out.gguf"), &options, NULL), SPRY_OK);
    assert_true(p.calls > 10 && p.last == p.total);
    progress stopped = {0};
    spry_error error = {0};
    options.user = &stopped;
    options.progress = stop_after_three;
    assert_int_equal(spry_model_export(model, scratch_path(&place, "stopped.gguf"), &options, &error),
                     SPRY_ERR_CANCELLED);
    assert_true(stopped.calls == 3 && !spry_path_exists(place.path));
    scratch_path(&place, "out.gguf");
    spry_model_close(model);
    expect_name(place.path, "My model");
    strncat(folder, "/", sizeof folder - strlen(folder) - 1);
    expect_name(export_as(folder, "f16"), "mixtral");
    expect_name(export_as(model_path(gguf, "llama", "model-f32.gguf"), "f16"), "Llama");
    assert_int_equal(spry_model_open(&model, gguf, NULL), SPRY_OK);
    options.progress = NULL;
    assert_int_equal(spry_model_export(model, scratch_path(&place, "out.gguf"), &options, NULL), SPRY_OK);
    spry_model_close(model);
    expect_name(place.path, "My model");
}

/* The settings that a folder recommends are in the file, and in a file made of that file. */
static void test_sampling_hints(void **state)
{
    (void)state;
    char once[SCRATCH_PATH + 8];
    json_t *recommended = quoted_json("{'temperature': 0.5, 'top_k': 20, 'min_p': 0.0}");
    model_folder_fill(&outside, "llama", NULL);
    model_folder_json(&outside, "generation_config.json", recommended);
    json_decref(recommended);
    snprintf(once, sizeof once, "%s.once", export_as(outside.folder, "f16"));
    assert_int_equal(rename(place.path, once), 0);
    const char *const files[] = {once, export_as(once, "q8_0")};
    for (size_t i = 0; i < SPRY_COUNT(files); i++) {
        spry_model *model;
        spry_sampling s = {.temperature = 7, .top_p = 7, .min_p = 7, .repeat_penalty = 7};
        assert_int_equal(spry_model_open(&model, files[i], NULL), SPRY_OK);
        spry_sampling_hints_apply(&model->sampling, &s);
        assert_true(s.temperature == 0.5f && s.top_k == 20 && s.top_p == 7 && s.min_p == 0 && s.repeat_penalty == 7);
        spry_model_close(model);
    }
    assert_int_equal(remove(once), 0);
}

/* A file that cannot be written whole does not appear. */
static void test_no_room(void **state)
{
    (void)state;
    char folder[SCRATCH_PATH], missing[SCRATCH_PATH];
    spry_model *model;
    spry_error error = {0};
    spry_export options = {.threads = threads};
    assert_int_equal(spry_recipe_find(&options.recipe, "f32", NULL), SPRY_OK);
    assert_int_equal(spry_model_open(&model, model_path(folder, "llama", ""), NULL), SPRY_OK);
    scratch_clear(&place);
    snprintf(missing, sizeof missing, "%.900s/nowhere/out.gguf", place.folder);
    hostile_expect(spry_model_export(model, missing, &options, &error), &error, SPRY_ERR_FILE, "nowhere/out.gguf");
    hostile_expect(spry_model_export(model, place.folder, &options, &error), &error, SPRY_ERR_FILE, place.folder);
    scratch_limit_files(100000);
    spry_status status = spry_model_export(model, scratch_path(&place, "out.gguf"), &options, &error);
    scratch_limit_files(RLIM_INFINITY);
    hostile_expect(status, &error, SPRY_ERR_FILE, "out.gguf");
    assert_int_equal(scratch_count(&place), 0);
    spry_model_close(model);
}

static int set_up(void **state)
{
    (void)state;
    scratch_init(&place);
    scratch_init(&outside);
    return spry_threads_create(&threads, 1, NULL) != SPRY_OK;
}

static int tear_down(void **state)
{
    (void)state;
    spry_threads_destroy(threads);
    scratch_deinit(&place);
    scratch_deinit(&outside);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_type_same_logits),
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_threads_write_the_same),
        cmocka_unit_test(test_beside_the_converter),
        cmocka_unit_test(test_gguf_to_gguf),
        cmocka_unit_test(test_made_models),
        cmocka_unit_test(test_changed_configs),
        cmocka_unit_test(test_padded_vocabulary),
        cmocka_unit_test(test_type_names),
        cmocka_unit_test(test_title_and_progress),
        cmocka_unit_test(test_sampling_hints),
        cmocka_unit_test(test_no_room),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
