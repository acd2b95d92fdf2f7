/* config.json in its older published forms, with fields left out, and with wrong values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "golden/model_runner.h"
#include "model/arch.h"
#include "support/hostile.h"
#include "support/model_folder.h"
#include "support/place.h"
#include "support/quoted_json.h"

/* ---- comparing -------------------------------------------------------------------------------------------------- */

#define SAME(member)                                                                                                   \
    if (a->member != b->member)                                                                                        \
    fail_msg("%s: %s is %g, was %g", what, #member, (double)b->member, (double)a->member)

static void same_factors(const float *a, const float *b, size_t n)
{
    assert_int_equal(!a, !b);
    if (a)
        assert_memory_equal(a, b, n * sizeof *a);
}

static void same_rope(const spry_rope *a, const spry_rope *b, size_t n_pairs, const char *what)
{
    SAME(kind);
    SAME(theta);
    SAME(factor);
    SAME(low_freq_factor);
    SAME(high_freq_factor);
    SAME(beta_fast);
    SAME(beta_slow);
    SAME(truncate);
    SAME(attention_factor);
    SAME(original_context);
    same_factors(a->factors, b->factors, n_pairs);
    same_factors(a->long_factors, b->long_factors, n_pairs);
}

static void same_config(const spry_config *a, const spry_config *b, const char *what)
{
    assert_ptr_equal(a->arch, b->arch);
    SAME(n_layers);
    SAME(n_embd);
    SAME(n_heads);
    SAME(n_kv_heads);
    SAME(head_dim);
    SAME(n_ff);
    SAME(n_vocab);
    SAME(n_context);
    SAME(rope_dim);
    SAME(norm_eps);
    SAME(window);
    SAME(query_scalar);
    SAME(attn_softcap);
    SAME(final_softcap);
    SAME(n_experts);
    SAME(n_experts_used);
    SAME(n_expert_ff);
    SAME(n_shared_ff);
    SAME(normalise_experts);
    SAME(qkv_bias);
    SAME(tied);
    SAME(interleaved);
    for (uint32_t i = 0; i < a->n_layers; i++)
        SAME(sliding[i]);
    same_rope(&a->rope, &b->rope, a->rope_dim / 2, what);
    same_rope(&a->rope_sliding, &b->rope_sliding, a->rope_dim / 2, what);
}

/* ---- the older forms -------------------------------------------------------------------------------------------- */

static void rename_key(json_t *json, const char *from, const char *to)
{
    json_t *value = json_object_get(json, from);
    if (!value || !strcmp(from, to))
        return;
    json_object_set(json, to, value);
    json_object_del(json, from);
}

static bool is_model_type(const json_t *json, const char *type)
{
    return !strcmp(json_string_value(json_object_get(json, "model_type")), type);
}

/* rope_parameters becomes rope_theta and rope_scaling. */
static void older_rope(json_t *json, const char *type_key)
{
    json_t *parameters = json_incref(json_object_get(json, "rope_parameters"));
    json_t *full = json_object_get(parameters, "full_attention"), *sliding;
    json_object_del(json, "rope_parameters");
    if (!full)
        full = parameters;
    json_object_set(json, "rope_theta", json_object_get(full, "rope_theta"));
    if ((sliding = json_object_get(parameters, "sliding_attention")))
        json_object_set(json, "rope_local_base_freq", json_object_get(sliding, "rope_theta"));
    if (!strcmp(json_string_value(json_object_get(full, "rope_type")), "default")) {
        json_object_set_new(json, "rope_scaling", json_null());
    } else {
        json_t *scaling = json_copy(full);
        json_object_del(scaling, "rope_theta");
        rename_key(scaling, "rope_type", type_key);
        json_object_set_new(json, "rope_scaling", scaling);
    }
    json_decref(parameters);
}

static void drop_derivable(json_t *json)
{
    json_int_t heads = json_integer_value(json_object_get(json, "num_attention_heads"));
    json_int_t head_dim = json_integer_value(json_object_get(json, "head_dim"));
    bool derived = is_model_type(json, "llama") || is_model_type(json, "mistral") || is_model_type(json, "mixtral");
    if (derived && (!head_dim || head_dim * heads == json_integer_value(json_object_get(json, "hidden_size"))))
        json_object_del(json, "head_dim");
}

typedef enum older_form { WITH_TYPE, WITH_ROPE_TYPE, WITH_NULLS, N_FORMS } older_form;

static void make_older(json_t *json, older_form form)
{
    older_rope(json, form == WITH_TYPE ? "type" : "rope_type");
    rename_key(json, "dtype", "torch_dtype");
    rename_key(json, "_sliding_window_pattern", "sliding_window_pattern");
    json_object_del(json, "layer_types");
    json_object_del(json, "use_bidirectional_attention");
    drop_derivable(json);
    if (is_model_type(json, "gemma")) { /* what its first config said, and meant the tanh form by */
        json_object_set_new(json, "hidden_act", json_string("gelu"));
        json_object_set_new(json, "hidden_activation", json_null());
    }
    if (is_model_type(json, "gemma2"))
        json_object_set_new(json, "hidden_act", json_string("gelu_pytorch_tanh"));
    if (is_model_type(json, "gemma3_text"))
        json_object_del(json, "sliding_window_pattern"); /* six, as in all that were published */
    if (is_model_type(json, "qwen3_moe"))
        rename_key(json, "num_local_experts", "num_experts");
    if (form != WITH_NULLS)
        return;
    static const char *const may_be_null[] = {"layer_types",    "rope_parameters", "partial_rotary_factor",
                                              "attention_bias", "pretraining_tp",  "use_bidirectional_attention",
                                              "qkv_bias",       "mlp_only_layers"};
    for (size_t i = 0; i < SPRY_COUNT(may_be_null); i++)
        json_object_set_new(json, may_be_null[i], json_null());
    if (!json_object_get(json, "head_dim") && !is_model_type(json, "qwen3"))
        json_object_set_new(json, "head_dim", json_null());
}

static void same_logits(model_runner *a, model_runner *b, const char *what)
{
    static const int32_t ids[] = {
        49, 80, 349, 507, 261, 260, 499, 17, 3,  511, 44, 44, 5,  6,  7, 8,
        9,  10, 11,  12,  13,  14,  15,  16, 18, 19,  20, 21, 22, 23, 24}; /* longer than the windows */
    float *x = runner_logits(a, ids, SPRY_COUNT(ids), 64), *y = runner_logits(b, ids, SPRY_COUNT(ids), 64);
    if (memcmp(x, y, SPRY_COUNT(ids) * a->model->config.n_vocab * sizeof *x))
        fail_msg("%s: other logits", what);
    free(x);
    free(y);
}

static void test_older_forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        char path[SCRATCH_PATH];
        model_runner newer, older;
        runner_open(&newer, model_path(path, model_names[i], ""), "auto", SPRY_F16, 1);
        for (older_form form = 0; form < N_FORMS; form++) {
            json_t *json = model_config(model_names[i]);
            make_older(json, form);
            model_folder_fill(&place, model_names[i], "config.json");
            model_folder_json(&place, "config.json", json);
            runner_open(&older, place.folder, "auto", SPRY_F16, 1);
            same_config(&newer.model->config, &older.model->config, model_names[i]);
            same_logits(&newer, &older, model_names[i]);
            runner_close(&older);
            json_decref(json);
        }
        runner_close(&newer);
    }
}

/* ---- reading from text ------------------------------------------------------------------------------------------ */

static spry_status read_json_config(spry_config *config, const json_t *json, spry_arena *arena, spry_error *error)
{
    spry_arena_init(arena);
    *config = (spry_config){0};
    return spry_config_from_json(config, json, "here/config", arena, error);
}

static json_t *changed(const char *model, const char *changes)
{
    json_t *json = model_config(model);
    quoted_json_change(json, changes);
    return json;
}

/* Two ways to say the same. */
static const struct {
    const char *model, *one, *other;
} pairs[] = {
    {"llama", "{'num_key_value_heads': '-'}", "{'num_key_value_heads': 4}"},
    {"llama", "{'num_key_value_heads': null}", "{'num_key_value_heads': 4}"},
    {"phi3", "{'num_key_value_heads': '-'}", "{'num_key_value_heads': 4}"},
    {"qwen2", "{'num_key_value_heads': null}", "{'num_key_value_heads': 4}"},
    {"llama", "{'head_dim': null}", "{'head_dim': 16}"},
    {"mistral-swa", "{'sliding_window': null}", "{'sliding_window': 0}"},
    {"llama", "{'sliding_window': 7}", "{}"}, /* transformers' Llama has no window */
    {"gemma", "{'sliding_window': 7}", "{}"},
    {"qwen2", "{'sliding_window': 7, 'layer_types': '-'}", "{}"},
    {"qwen2", "{'sliding_window': 7, 'layer_types': '-', 'use_sliding_window': true}", /* from layer 28 on */
     "{'sliding_window': 7, 'use_sliding_window': true}"},
    {"mistral-swa", "{'layer_types': ['full_attention', 'full_attention', 'full_attention']}", "{}"},
    {"qwen3-moe", "{'layer_types': ['full_attention'], 'sliding_window': 9, 'use_sliding_window': true}",
     "{'sliding_window': 9, 'use_sliding_window': true}"},
    {"qwen2", "{'sliding_window': 7, 'layer_types': '-', 'use_sliding_window': true, 'max_window_layers': 0}",
     "{'sliding_window': 7, 'use_sliding_window': true, 'layer_types': ['sliding_attention', 'sliding_attention', "
     "'sliding_attention']}"},
    {"qwen3", "{'sliding_window': 7, 'layer_types': '-', 'use_sliding_window': true, 'max_window_layers': 1}",
     "{'sliding_window': 7, 'use_sliding_window': true, 'layer_types': ['full_attention', 'sliding_attention', "
     "'sliding_attention']}"},
    {"qwen2-moe", "{'sliding_window': 7, 'layer_types': '-', 'use_sliding_window': true, 'max_window_layers': 2}",
     "{'sliding_window': 7, 'use_sliding_window': true, 'layer_types': ['sliding_attention', 'full_attention', "
     "'full_attention']}"},
    {"gemma3", "{'layer_types': '-', '_sliding_window_pattern': '-', 'sliding_window_pattern': 3}",
     "{'layer_types': ['sliding_attention', 'sliding_attention', 'full_attention', 'sliding_attention', "
     "'sliding_attention', 'full_attention', 'sliding_attention']}"},
    {"gemma2", "{'attn_logit_softcapping': '-', 'final_logit_softcapping': '-'}", "{}"},
    {"gemma2", "{'attn_logit_softcapping': null}", "{'attn_logit_softcapping': 0}"},
    {"llama", "{'rope_scaling': {'type': 'linear', 'factor': 2}}",
     "{'rope_parameters': {'rope_type': 'linear', 'factor': 2, 'rope_theta': 10000}}"},
    {"llama", "{'rope_parameters': {'rope_type': null, 'type': 'linear', 'factor': 2}}",
     "{'rope_parameters': {'rope_type': 'linear', 'factor': 2, 'rope_theta': 10000}}"},
    {"llama", "{'rope_parameters': null}", "{}"},
    {"llama", "{'rope_parameters': '-', 'rope_scaling': '-'}", "{}"},
    {"llama", "{'text_config': 3}", "{}"},
    {"gemma3", "{'rope_parameters': '-'}", "{}"},
    {"gemma3",
     "{'rope_parameters': '-', 'rope_theta': 50000, 'rope_local_base_freq': 2000, "
     "'rope_scaling': {'rope_type': 'linear', 'factor': 8}}",
     "{'rope_parameters': {'full_attention': {'rope_type': 'linear', 'factor': 8, 'rope_theta': 50000}, "
     "'sliding_attention': {'rope_type': 'default', 'rope_theta': 2000}}}"},
};

static void test_equal_configs(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(pairs); i++) {
        spry_config a, b;
        spry_arena arenas[2];
        spry_error error = {0};
        json_t *one = changed(pairs[i].model, pairs[i].one), *other = changed(pairs[i].model, pairs[i].other);
        if (read_json_config(&a, one, &arenas[0], &error) || read_json_config(&b, other, &arenas[1], &error))
            fail_msg("%s: %s", pairs[i].one, error.message);
        same_config(&b, &a, pairs[i].one);
        spry_arena_deinit(&arenas[0]);
        spry_arena_deinit(&arenas[1]);
        json_decref(one);
        json_decref(other);
    }
}

/* ---- what transformers takes when config.json is silent --------------------------------------------------------- */

typedef struct defaults {
    const char *type;
    uint32_t n_kv_heads, head_dim, n_context;
    double norm_eps, theta;
    uint32_t window; /* with use_sliding_window */
    uint32_t n_experts, n_experts_used, n_expert_ff, n_shared_ff;
    double query_scalar, attn_softcap, final_softcap;
    bool tied, normalise, qkv_bias;
    const char *slides; /* the first eight layers: s or f */
} defaults;

/* Of models with 32 heads, 4,096 wide, 1,000 feed-forward, 40 layers. */
static const defaults silent[] = {
    {"llama", 32, 128, 2048, 1e-6, 1e4, .query_scalar = 128, .slides = "ffffffff"},
    {"mistral", 8, 128, 131072, 1e-6, 1e4, 4096, .query_scalar = 128, .slides = "ssssssss"},
    {"mixtral", 8, 128, 131072, 1e-5, 1e6, 0, 8, 2, 1000, .query_scalar = 128, .normalise = true, .slides = "ffffffff"},
    {"qwen2", 32, 128, 32768, 1e-6, 1e4, 4096, .query_scalar = 128, .qkv_bias = true, .slides = "ffffffff"},
    {"qwen2_moe", 16, 128, 32768, 1e-6, 1e4, 4096, 60, 4, 1408, 5632, .query_scalar = 128, .qkv_bias = true,
     .slides = "sfsfsfsf"},
    {"qwen3", 32, 128, 32768, 1e-6, 1e4, 4096, .query_scalar = 128, .slides = "ffffffff"},
    {"qwen3_moe", 4, 128, 32768, 1e-6, 1e4, 4096, 128, 8, 768, .query_scalar = 128, .slides = "ssssssss"},
    {"gemma", 16, 256, 8192, 1e-6, 1e4, .query_scalar = 256, .tied = true, .slides = "ffffffff"},
    {"gemma2", 4, 256, 8192, 1e-6, 1e4, 4096, .query_scalar = 256, .attn_softcap = 50, .final_softcap = 30,
     .tied = true, .slides = "sfsfsfsf"},
    {"gemma3_text", 4, 256, 131072, 1e-6, 1e6, 4096, .query_scalar = 256, .tied = true, .slides = "sssssfss"},
    {"phi3", 32, 128, 4096, 1e-5, 1e4, .query_scalar = 128, .slides = "ffffffff"},
};

static void compare_defaults(const spry_config *b, const defaults *d)
{
    const char *what = d->type;
    const spry_config expected = {.n_kv_heads = d->n_kv_heads,
                                  .head_dim = d->head_dim,
                                  .n_context = d->n_context,
                                  .norm_eps = (float)d->norm_eps,
                                  .window = d->window,
                                  .n_experts = d->n_experts,
                                  .n_experts_used = d->n_experts_used,
                                  .n_expert_ff = d->n_experts ? d->n_expert_ff : 1000,
                                  .n_shared_ff = d->n_shared_ff,
                                  .query_scalar = (float)d->query_scalar,
                                  .attn_softcap = (float)d->attn_softcap,
                                  .final_softcap = (float)d->final_softcap,
                                  .tied = d->tied,
                                  .normalise_experts = d->normalise,
                                  .qkv_bias = d->qkv_bias,
                                  .rope = {.theta = (float)d->theta}},
                      *a = &expected;
    SAME(n_kv_heads);
    SAME(head_dim);
    SAME(n_context);
    SAME(norm_eps);
    SAME(rope.theta);
    SAME(window);
    SAME(n_experts);
    SAME(n_experts_used);
    SAME(n_expert_ff);
    SAME(n_shared_ff);
    SAME(query_scalar);
    SAME(attn_softcap);
    SAME(final_softcap);
    SAME(tied);
    SAME(normalise_experts);
    SAME(qkv_bias);
    for (uint32_t layer = 0; layer < 8; layer++)
        assert_int_equal(b->sliding[layer], d->slides[layer] == 's');
}

static void test_defaults(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(silent); i++) {
        const char *type = silent[i].type;
        json_t *json = quoted_json("{'num_hidden_layers': 40, 'hidden_size': 4096, 'num_attention_heads': 32, "
                                   "'intermediate_size': 1000, 'use_sliding_window': true}");
        spry_config config;
        spry_arena arena;
        spry_error error = {0};
        json_object_set_new(json, "model_type", json_string(type));
        if (read_json_config(&config, json, &arena, &error))
            fail_msg("%s: %s", type, error.message);
        compare_defaults(&config, &silent[i]);
        if (!strcmp(type, "qwen2") || !strcmp(type, "qwen3")) /* from max_window_layers on */
            assert_true(!config.sliding[27] && config.sliding[28]);
        spry_arena_deinit(&arena);
        if (!strncmp(type, "qwen", 4)) {
            json_object_del(json, "use_sliding_window");
            assert_int_equal(read_json_config(&config, json, &arena, &error), SPRY_OK);
            assert_int_equal(config.window, 0);
            spry_arena_deinit(&arena);
        }
        json_decref(json);
    }
}

/* Gemma 3's published text_config leaves even the heads out. */
static void test_inner_text_config(void **state)
{
    (void)state;
    json_t *json =
        quoted_json("{'model_type': 'gemma3', 'eos_token_id': [1, 106], 'vision_config': {'model_type': 'siglip'}, "
                    "'text_config': {'model_type': 'gemma3_text', 'hidden_size': 2560, 'intermediate_size': 10240, "
                    "'num_hidden_layers': 34, 'sliding_window': 1024, "
                    "'rope_scaling': {'factor': 8.0, 'rope_type': 'linear'}}}");
    spry_config config;
    spry_arena arena;
    spry_error error = {0};
    if (read_json_config(&config, json, &arena, &error))
        fail_msg("%s", error.message);
    assert_ptr_equal(config.arch, &spry_arch_gemma3);
    assert_int_equal(config.n_heads, 8);
    assert_int_equal(config.n_kv_heads, 4);
    assert_int_equal(config.head_dim, 256);
    assert_int_equal(config.window, 1024);
    assert_true(config.sliding[4] && !config.sliding[5] && config.sliding[6]);
    assert_true(config.rope.kind == SPRY_ROPE_LINEAR && config.rope.factor == 8 && config.rope.theta == 1e6f);
    assert_true(config.rope_sliding.kind == SPRY_ROPE_DEFAULT && config.rope_sliding.theta == 1e4f);
    spry_arena_deinit(&arena);
    json_decref(json);
}

/* ---- wrong values ----------------------------------------------------------------------------------------------- */

#define EVERY_TYPE                                                                                                     \
    "llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, gemma, gemma2, gemma3_text, phi3, olmo2"
#define LONG_LIST "[1, 1, 1, 1, 1, 1, 1, 1]"

static const struct {
    const char *model, *changes;
    spry_status status;
    const char *words;
} wrong[] = {
    {"llama", "{'model_type': '-'}", SPRY_ERR_FORMAT, "model_type|missing"},
    {"llama", "{'model_type': 7}", SPRY_ERR_FORMAT, "model_type|not a string"},
    {"llama", "{'model_type': null}", SPRY_ERR_FORMAT, "model_type|missing"},
    {"llama", "{'model_type': 'gpt2'}", SPRY_ERR_UNSUPPORTED, "model_type 'gpt2'|known are " EVERY_TYPE},
    {"llama", "{'model_type': ''}", SPRY_ERR_UNSUPPORTED, "model_type ''"},
    {"llama", "{'text_config': {}}", SPRY_ERR_FORMAT, "model_type|missing"},
    {"llama", "{'num_hidden_layers': '-'}", SPRY_ERR_FORMAT, "num_hidden_layers is missing"},
    {"llama", "{'num_hidden_layers': '3'}", SPRY_ERR_FORMAT, "num_hidden_layers is not a number"},
    {"llama", "{'num_hidden_layers': true}", SPRY_ERR_FORMAT, "num_hidden_layers is not a number"},
    {"llama", "{'num_hidden_layers': [3]}", SPRY_ERR_FORMAT, "num_hidden_layers is not a number"},
    {"llama", "{'num_hidden_layers': 0}", SPRY_ERR_FORMAT, "no layers"},
    {"llama", "{'num_hidden_layers': null}", SPRY_ERR_FORMAT, "no layers"},
    {"llama", "{'num_hidden_layers': -1}", SPRY_ERR_FORMAT, "num_hidden_layers is -1|whole number from 0 to 1024"},
    {"llama", "{'num_hidden_layers': 2.5}", SPRY_ERR_FORMAT, "num_hidden_layers is 2.5|whole number"},
    {"llama", "{'num_hidden_layers': 1025}", SPRY_ERR_FORMAT, "num_hidden_layers is 1025|0 to 1024"},
    {"llama", "{'num_hidden_layers': 1000000000}", SPRY_ERR_FORMAT, "num_hidden_layers is 1e+09|0 to 1024"},
    {"llama", "{'num_hidden_layers': 99999999999999999999999999999999999999}", SPRY_ERR_FORMAT, "num_hidden_layers"},
    {"llama", "{'hidden_size': '-'}", SPRY_ERR_FORMAT, "hidden_size is missing"},
    {"llama", "{'hidden_size': 0}", SPRY_ERR_FORMAT, "a size is zero"},
    {"llama", "{'hidden_size': -64}", SPRY_ERR_FORMAT, "hidden_size is -64"},
    {"llama", "{'hidden_size': 1e12}", SPRY_ERR_FORMAT, "hidden_size is 1e+12"},
    {"llama", "{'num_attention_heads': '-'}", SPRY_ERR_FORMAT, "num_attention_heads is missing"},
    {"llama", "{'num_attention_heads': 0}", SPRY_ERR_FORMAT, "a size is zero"},
    {"llama", "{'num_attention_heads': 3}", SPRY_ERR_FORMAT, "heads is not a multiple of|key/value heads"},
    {"llama", "{'num_key_value_heads': 8}", SPRY_ERR_FORMAT, "heads is not a multiple of|key/value heads"},
    {"llama", "{'num_key_value_heads': 70000}", SPRY_ERR_FORMAT, "num_key_value_heads is 70000"},
    {"llama", "{'head_dim': 513}", SPRY_ERR_FORMAT, "head_dim is 513|512"},
    {"llama", "{'head_dim': {}}", SPRY_ERR_FORMAT, "head_dim is not a number"},
    {"llama", "{'head_dim': '-', 'hidden_size': 4096, 'num_attention_heads': 4}", SPRY_ERR_FORMAT,
     "head size is over 512"},
    {"llama", "{'head_dim': 15}", SPRY_ERR_FORMAT, "rotated part of a head is odd"},
    {"llama", "{'head_dim': '-', 'hidden_size': 2}", SPRY_ERR_FORMAT, "a size is zero"},
    {"llama", "{'intermediate_size': '-'}", SPRY_ERR_FORMAT, "feed-forward size is missing"},
    {"llama", "{'intermediate_size': 0}", SPRY_ERR_FORMAT, "feed-forward size is missing"},
    {"llama", "{'intermediate_size': 1e9}", SPRY_ERR_FORMAT, "intermediate_size is 1e+09"},
    {"llama", "{'max_position_embeddings': 0}", SPRY_ERR_FORMAT, "context length is zero"},
    {"llama", "{'max_position_embeddings': 1e30}", SPRY_ERR_FORMAT, "max_position_embeddings is 1e+30"},
    {"llama", "{'rms_norm_eps': 0}", SPRY_ERR_FORMAT, "norm epsilon"},
    {"llama", "{'rms_norm_eps': -1}", SPRY_ERR_FORMAT, "rms_norm_eps is -1"},
    {"llama", "{'rms_norm_eps': 'small'}", SPRY_ERR_FORMAT, "rms_norm_eps is not a number"},
    {"llama", "{'intermediate_size': [160, 128]}", SPRY_ERR_FORMAT, "intermediate_size is not a number|same for every"},
    {"granite", "{'embedding_multiplier': 0}", SPRY_ERR_FORMAT, "multiplier of embeddings"},
    {"granite", "{'residual_multiplier': -1}", SPRY_ERR_FORMAT, "residual_multiplier is -1"},
    {"granite", "{'logits_scaling': 0}", SPRY_ERR_FORMAT, "multiplier of embeddings, residuals or logits"},
    {"granite", "{'attention_multiplier': 'much'}", SPRY_ERR_FORMAT, "attention_multiplier is not a number"},
    {"cohere", "{'layer_norm_eps': 0}", SPRY_ERR_FORMAT, "norm epsilon"},
    {"cohere", "{'logit_scale': 1e30}", SPRY_ERR_FORMAT, "logit_scale is 1e+30"},
    {"cohere", "{'use_qk_norm': 1}", SPRY_ERR_FORMAT, "use_qk_norm is not true or false"},
    {"starcoder2", "{'hidden_act': 'relu'}", SPRY_ERR_UNSUPPORTED, "hidden_act 'relu'"},
    {"starcoder2", "{'model_type': 'smollm3', 'hidden_act': 'silu', 'no_rope_layers': [1, 0]}", SPRY_ERR_FORMAT,
     "no_rope_layers lists 2 layers of 3"},
    {"starcoder2", "{'model_type': 'smollm3', 'hidden_act': 'silu', 'no_rope_layers': [1, 0, 7]}", SPRY_ERR_FORMAT,
     "no_rope_layers[2] is not 0 or 1"},
    {"hunyuan", "{'rope_parameters': {'rope_type': 'dynamic', 'alpha': 'a'}}", SPRY_ERR_FORMAT,
     "alpha is not a number"},
    {"hunyuan", "{'rope_parameters': {'rope_type': 'dynamic', 'factor': 2}}", SPRY_ERR_UNSUPPORTED, "'dynamic'"},
    {"gemma4-dense", "{'per_layer_config': {'2': {'head_dim': 64, 'num_key_value_heads': 1}}}", SPRY_ERR_UNSUPPORTED,
     "per_layer_config"},
    {"gemma4-dense", "{'per_layer_config': {'2': {'head_dim': 32}, '5': {'head_dim': 64}}}", SPRY_ERR_UNSUPPORTED,
     "per_layer_config"},
    {"gemma4-dense", "{'per_layer_config': {'2': {'head_dim': 'x'}, '5': {'head_dim': 'x'}}}", SPRY_ERR_UNSUPPORTED,
     "per_layer_config"},
    {"gemma4-dense", "{'per_layer_config': [2]}", SPRY_ERR_FORMAT, "per_layer_config is not an object"},
    {"gemma4-dense", "{'layer_types': ['full_attention']}", SPRY_ERR_FORMAT, "layer_types lists 1 layers of 6"},
    {"gemma4-dense", "{'use_bidirectional_attention': 'all'}", SPRY_ERR_UNSUPPORTED, "use_bidirectional_attention"},
    {"gemma4-ple", "{'num_kv_shared_layers': 7}", SPRY_ERR_FORMAT, "no layer has keys"},
    {"gemma4-ple", "{'hidden_size_per_layer_input': 9999999}", SPRY_ERR_FORMAT, "hidden_size_per_layer_input"},
    {"gemma4-moe", "{'top_k_experts': 99}", SPRY_ERR_FORMAT, "number of experts used"},
    {"llama4", "{'layer_types': ['sliding_attention', 'full_attention', 'full_attention', 'full_attention']}",
     SPRY_ERR_UNSUPPORTED, "full_attention and chunked_attention"},
    {"llama4", "{'floor_scale': 0}", SPRY_ERR_FORMAT, "scaled by position"},
    {"llama4", "{'attn_scale': 'x'}", SPRY_ERR_FORMAT, "attn_scale"},
    {"mimo-v2-flash", "{'v_head_dim': 25}", SPRY_ERR_FORMAT, "values are larger"},
    {"mimo-v2-flash", "{'swa_num_key_value_heads': 3}", SPRY_ERR_FORMAT, "heads of layers that slide"},
    {"mimo-v2-flash", "{'layer_types': '-', 'hybrid_layer_pattern': [0, 1]}", SPRY_ERR_FORMAT,
     "hybrid_layer_pattern lists 2 layers of 5"},
    {"deepseek-v3.2", "{'index_topk': 0}", SPRY_ERR_FORMAT, "a size of the indexer"},
    {"deepseek-v3.2", "{'q_lora_rank': null}", SPRY_ERR_FORMAT, "rank of queries"},
    {"deepseek-v3.2", "{'index_head_dim': 6}", SPRY_ERR_FORMAT, "smaller than their rotated part"},
    {"deepseek-v3.2", "{'index_head_dim': 5000}", SPRY_ERR_FORMAT, "index_head_dim is 5000"},
    {"glm-moe-dsa", "{'indexer_types': ['full']}", SPRY_ERR_FORMAT, "indexer_types lists 1 layers of 4"},
    {"glm-moe-dsa", "{'indexer_types': ['shared', 'full', 'full', 'full']}", SPRY_ERR_FORMAT,
     "first one without an indexer"},
    {"glm-moe-dsa", "{'indexer_types': ['full', 'full', 'half', 'full']}", SPRY_ERR_UNSUPPORTED,
     "indexer_types[2]|'half'|full and shared"},
    {"glm-moe-dsa", "{'indexer_types': 'full'}", SPRY_ERR_FORMAT, "indexer_types is not a list"},
    {"zamba2", "{'layers_block_type': ['mamba', 'hybrid', 'attention', 'hybrid']}", SPRY_ERR_UNSUPPORTED,
     "layer 2|'attention'"},
    {"zamba2", "{'layers_block_type': ['mamba', 'hybrid']}", SPRY_ERR_FORMAT, "pattern of layers has 2"},
    {"zamba2", "{'layers_block_type': '-', 'hybrid_layer_ids': [9]}", SPRY_ERR_FORMAT, "hybrid_layer_ids[0]"},
    {"zamba2", "{'num_mem_blocks': 0}", SPRY_ERR_FORMAT, "number of shared blocks"},
    {"bamba", "{'layers_block_type': ['mamba', 'hybrid', 'mamba', 'hybrid']}", SPRY_ERR_UNSUPPORTED, "'hybrid'"},
    {"deepseek-v4", "{'hc_mult': 0}", SPRY_ERR_FORMAT, "hyper-connections"},
    {"deepseek-v4", "{'o_groups': 3}", SPRY_ERR_FORMAT, "does not divide the heads"},
    {"deepseek-v4", "{'layer_types': '-'}", SPRY_ERR_FORMAT, "compress_ratios lists 0 layers of 5"},
    {"deepseek-v4", "{'layer_types': '-', 'compress_ratios': [0, 4, -1, 4, 0]}", SPRY_ERR_UNSUPPORTED, "layer 2"},
    {"deepseek-v4", "{'compress_rates': {'compressed_sparse_attention': 4}}", SPRY_ERR_UNSUPPORTED,
     "layer 2|heavily_compressed_attention"},
    {"deepseek-v4", "{'scoring_func': 'tanh'}", SPRY_ERR_UNSUPPORTED, "scoring_func is 'tanh'"},
    {"exaone-moe", "{'mlp_layer_types': 7}", SPRY_ERR_FORMAT, "mlp_layer_types is not a list"},
    {"cohere2-moe", "{'expert_selection_fn': 7}", SPRY_ERR_FORMAT, "expert_selection_fn is not a string"},
    {"cohere2-moe", "{'expert_selection_fn': 'relu'}", SPRY_ERR_UNSUPPORTED, "'relu'; known are sigmoid and softmax"},
    {"cohere2-moe", "{'shared_expert_combination_strategy': 'max'}", SPRY_ERR_UNSUPPORTED, "'max'; known are average"},
    {"ministral3", "{'rope_parameters': {'rope_type': 'yarn', 'factor': 4, 'llama_4_scaling_beta': 'x'}}",
     SPRY_ERR_FORMAT, "llama_4_scaling_beta is not a number"},
    {"gpt-oss-mxfp4", "{'num_local_experts': 2, 'num_experts_per_tok': 3}", SPRY_ERR_FORMAT, "number of experts used"},
    {"gpt-oss-mxfp4", "{'quantization_config': {'quant_method': 'bitsandbytes'}}", SPRY_ERR_UNSUPPORTED,
     "method 'bitsandbytes'|fp8|mxfp4"},
    {"gpt-oss-mxfp4", "{'quantization_config': {}}", SPRY_ERR_UNSUPPORTED, "method '?'"},
    {"gpt-oss-mxfp4", "{'quantization_config': 4}", SPRY_ERR_FORMAT, "quantization_config is not an object"},
    {"gpt-oss-mxfp4", "{'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [128]}}",
     SPRY_ERR_UNSUPPORTED, "weight_block_size"},
    {"gpt-oss-mxfp4", "{'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [0, 128]}}",
     SPRY_ERR_UNSUPPORTED, "weight_block_size"},
    {"gpt-oss-mxfp4", "{'n_group': 3, 'topk_group': 1}", SPRY_ERR_FORMAT, "do not divide into their groups"},
    {"gpt-oss-mxfp4", "{'n_group': 2, 'topk_group': 3}", SPRY_ERR_FORMAT, "used than there are"},
    {"gpt-oss-mxfp4", "{'n_group': 2, 'topk_group': 0}", SPRY_ERR_FORMAT, "groups"},
    {"gpt-oss-mxfp4", "{'n_group': 4, 'topk_group': 1}", SPRY_ERR_FORMAT, "groups"},
    {"gpt-oss-mxfp4", "{'routed_scaling_factor': 0}", SPRY_ERR_FORMAT, "multiplier of experts' weights"},
    {"gemma", "{'model_type': 'gemma3n_text', 'num_kv_shared_layers': 3}", SPRY_ERR_FORMAT,
     "keys and values of its own"},
    {"gemma", "{'model_type': 'gemma3n_text', 'num_kv_shared_layers': 0, 'altup_num_inputs': 1}", SPRY_ERR_FORMAT,
     "fewer than two residual streams"},
    {"gemma", "{'model_type': 'gemma3n_text', 'num_kv_shared_layers': 0, 'altup_active_idx': 4}", SPRY_ERR_FORMAT,
     "active one is not among them"},
    {"gemma", "{'model_type': 'gemma3n_text', 'num_kv_shared_layers': 0, 'altup_num_inputs': 17}", SPRY_ERR_FORMAT,
     "altup_num_inputs is 17"},
    {"gemma", "{'model_type': 'gemma3n_text', 'num_kv_shared_layers': 0, 'activation_sparsity_pattern': [0.5]}",
     SPRY_ERR_FORMAT, "activation_sparsity_pattern"},
    {"gemma", "{'model_type': 'gemma3n_text', 'num_kv_shared_layers': 0, 'activation_sparsity_pattern': [0.5, 1, 0]}",
     SPRY_ERR_FORMAT, "activation_sparsity_pattern"},
    {"llama", "{'model_type': 'deepseek_v3', 'kv_lora_rank': 0}", SPRY_ERR_FORMAT, "latent attention is zero"},
    {"llama", "{'model_type': 'deepseek_v3', 'kv_lora_rank': 513}", SPRY_ERR_FORMAT, "kv_lora_rank is 513"},
    {"llama", "{'model_type': 'deepseek_v3', 'qk_nope_head_dim': 0}", SPRY_ERR_FORMAT, "latent attention is zero"},
    {"llama", "{'model_type': 'deepseek_v3', 'v_head_dim': 0}", SPRY_ERR_FORMAT, "latent attention is zero"},
    {"llama", "{'model_type': 'deepseek_v3', 'qk_rope_head_dim': 7}", SPRY_ERR_FORMAT, "odd"},
    {"llama", "{'model_type': 'deepseek_v3', 'q_lora_rank': -4}", SPRY_ERR_FORMAT, "q_lora_rank is -4"},
    {"llama", "{'model_type': 'deepseek_v3', 'rope_interleave': 3}", SPRY_ERR_FORMAT, "rope_interleave is not true"},
    {"mistral-swa", "{'sliding_window': -1}", SPRY_ERR_FORMAT, "sliding_window is -1"},
    {"mistral-swa", "{'sliding_window': 2.5}", SPRY_ERR_FORMAT, "sliding_window is 2.5"},
    {"mistral-swa", "{'sliding_window': 'wide'}", SPRY_ERR_FORMAT, "sliding_window is not a number"},
    {"gemma2", "{'attn_logit_softcapping': -50}", SPRY_ERR_FORMAT, "attn_logit_softcapping is -50"},
    {"gemma2", "{'query_pre_attn_scalar': true}", SPRY_ERR_FORMAT, "query_pre_attn_scalar is not a number"},
    /* rope */
    {"llama", "{'rope_parameters': 'default'}", SPRY_ERR_FORMAT, "rope_parameters is not an object"},
    {"llama", "{'rope_scaling': [8]}", SPRY_ERR_FORMAT, "rope_scaling is not an object"},
    {"llama", "{'rope_parameters': '-', 'rope_theta': '10000'}", SPRY_ERR_FORMAT, "rope_theta is not a number"},
    {"llama", "{'rope_parameters': '-', 'rope_theta': 0}", SPRY_ERR_FORMAT, "rope base is not"},
    {"llama", "{'rope_parameters': {'rope_theta': -10000}}", SPRY_ERR_FORMAT, "rope base is not"},
    {"llama", "{'rope_parameters': {'rope_theta': false}}", SPRY_ERR_FORMAT, "rope rope_theta is not a number"},
    {"llama", "{'rope_parameters': {'rope_theta': 1e300}}", SPRY_ERR_FORMAT, "rope base is not|too large"},
    {"llama", "{'rope_scaling': {'type': 'linear', 'factor': 1e300}}", SPRY_ERR_FORMAT, "scaling factor|too large"},
    {"llama", "{'rope_scaling': {'type': 'yarn', 'factor': 2, 'attention_factor': 1e300}}", SPRY_ERR_FORMAT,
     "scaling factor|too large"},
    {"llama", "{'rope_parameters': {'rope_type': 'dynamic', 'factor': 2}}", SPRY_ERR_UNSUPPORTED,
     "rope type 'dynamic'|known are default, linear, llama3, yarn, longrope"},
    {"llama", "{'rope_scaling': {'type': 'xpos'}}", SPRY_ERR_UNSUPPORTED, "rope type 'xpos'"},
    {"llama", "{'rope_scaling': {'type': 5}}", SPRY_ERR_FORMAT, "rope type is not a string"},
    {"llama", "{'rope_scaling': {'type': 'linear'}}", SPRY_ERR_FORMAT, "scaling factor is not positive"},
    {"llama", "{'rope_scaling': {'type': 'linear', 'factor': -2}}", SPRY_ERR_FORMAT, "scaling factor is not positive"},
    {"llama", "{'rope_scaling': {'type': 'yarn', 'factor': -2}}", SPRY_ERR_FORMAT, "scaling factor is not positive"},
    {"llama", "{'rope_scaling': {'type': 'llama3', 'factor': '8'}}", SPRY_ERR_FORMAT, "rope factor is not a number"},
    {"llama", "{'rope_scaling': {'type': 'llama3'}}", SPRY_ERR_FORMAT, "scaling factor is not positive"},
    {"llama", "{'rope_scaling': {'type': 'yarn', 'factor': 2, 'truncate': 1}}", SPRY_ERR_FORMAT,
     "rope truncate is not true or false"},
    {"llama", "{'partial_rotary_factor': 0.2}", SPRY_ERR_FORMAT, "rotated part of a head is odd"},
    {"llama", "{'partial_rotary_factor': 'half'}", SPRY_ERR_FORMAT, "partial_rotary_factor is not a number"},
    {"phi3", "{'rope_scaling': {'type': 'longrope'}}", SPRY_ERR_FORMAT, "short_factor must be a list of 8 numbers"},
    {"phi3", "{'rope_scaling': {'type': 'longrope', 'short_factor': " LONG_LIST "}}", SPRY_ERR_FORMAT,
     "long_factor must be a list of 8 numbers"},
    {"phi3", "{'rope_scaling': {'type': 'longrope', 'short_factor': [1, 2], 'long_factor': " LONG_LIST "}}",
     SPRY_ERR_FORMAT, "short_factor must be a list of 8"},
    {"phi3",
     "{'rope_scaling': {'type': 'yarn', 'short_factor': " LONG_LIST ", 'long_factor': [1, 1, 1, 0, 1, 1, 1, 1]}}",
     SPRY_ERR_FORMAT, "long_factor holds 0"},
    {"phi3",
     "{'rope_scaling': {'type': 'su', 'short_factor': [1, 1, 1, 'x', 1, 1, 1, 1], 'long_factor': " LONG_LIST "}}",
     SPRY_ERR_FORMAT, "short_factor holds 0"},
    {"gemma3", "{'rope_parameters': '-', 'rope_local_base_freq': 0.5}", SPRY_ERR_FORMAT, "rope base is not"},
    {"gemma3", "{'rope_parameters': '-', 'rope_local_base_freq': []}", SPRY_ERR_FORMAT,
     "rope_local_base_freq is not a number"},
    /* layers */
    {"gemma3", "{'layer_types': ['full_attention']}", SPRY_ERR_FORMAT, "layer_types lists 1 layers of 7"},
    {"gemma2", "{'layer_types': ['full_attention', 'chunked_attention', 'full_attention']}", SPRY_ERR_UNSUPPORTED,
     "layer_types[1]|'chunked_attention'|full_attention and sliding_attention"},
    {"qwen3", "{'layer_types': ['full_attention', 'full_attention', 3]}", SPRY_ERR_UNSUPPORTED,
     "layer_types[2]|not a string"},
    {"qwen2", "{'layer_types': 'full_attention'}", SPRY_ERR_FORMAT, "layer_types is not a list"},
    /* experts */
    {"mixtral", "{'num_experts_per_tok': 5}", SPRY_ERR_FORMAT, "experts used|number of experts"},
    {"mixtral", "{'num_experts_per_tok': 0}", SPRY_ERR_FORMAT, "experts used"},
    {"mixtral", "{'num_local_experts': 1000000000}", SPRY_ERR_FORMAT, "num_local_experts is 1e+09|1024"},
    {"mixtral", "{'intermediate_size': '-'}", SPRY_ERR_FORMAT, "size is missing"},
    {"qwen2-moe", "{'num_experts': 'six'}", SPRY_ERR_FORMAT, "num_experts is not a number"},
    /* switches */
    {"llama", "{'hidden_act': 'relu'}", SPRY_ERR_UNSUPPORTED, "hidden_act 'relu'|Llama"},
    {"llama", "{'hidden_act': 'gelu'}", SPRY_ERR_UNSUPPORTED, "hidden_act 'gelu'|Llama"},
    {"gemma2", "{'hidden_activation': 'silu'}", SPRY_ERR_UNSUPPORTED, "hidden_act 'silu'|Gemma 2"},
    {"gemma", "{'hidden_act': 3}", SPRY_ERR_FORMAT, "hidden_act is not a string"},
    {"llama", "{'tie_word_embeddings': 'yes'}", SPRY_ERR_FORMAT, "tie_word_embeddings is not true or false"},
    {"qwen2", "{'use_sliding_window': 1}", SPRY_ERR_FORMAT, "use_sliding_window is not true or false"},
    {"qwen3-moe", "{'norm_topk_prob': 'no'}", SPRY_ERR_FORMAT, "norm_topk_prob is not true or false"},
    {"llama", "{'quantization_config': {'quant_method': 'bitsandbytes'}}", SPRY_ERR_UNSUPPORTED, "bitsandbytes|nf4"},
    {"llama", "{'quantization_config': {'quant_method': 'gptq', 'bits': 3}}", SPRY_ERR_UNSUPPORTED, "4 bits"},
    {"llama", "{'quantization_config': {'quant_method': 'gptq', 'bits': 4, 'group_size': 7}}", SPRY_ERR_UNSUPPORTED,
     "group_size"},
    {"llama", "{'quantization_config': {'quant_method': 'awq', 'bits': 4, 'version': 'gemv'}}", SPRY_ERR_UNSUPPORTED,
     "gemv"},
    {"lfm2", "{'conv_L_cache': 1}", SPRY_ERR_FORMAT, "convolution"},
    {"lfm2", "{'conv_L_cache': 65}", SPRY_ERR_FORMAT, "conv_L_cache"},
    {"lfm2", "{'layer_types': ['conv']}", SPRY_ERR_FORMAT, "layer_types"},
    {"lfm2", "{'layer_types': ['conv', 'conv', 'mamba', 'conv']}", SPRY_ERR_UNSUPPORTED, "mamba"},
    {"lfm2", "{'layer_types': null, 'full_attn_idxs': [4]}", SPRY_ERR_FORMAT, "full_attn_idxs"},
    {"lfm2", "{'block_auto_adjust_ff_dim': true, 'block_multiple_of': 0}", SPRY_ERR_FORMAT, "block_multiple_of"},
    {"qwen2-moe", "{'model_type': 'qwen3_next', 'linear_num_value_heads': 3, 'linear_num_key_heads': 2}",
     SPRY_ERR_FORMAT, "multiple of its key heads"},
    {"qwen2-moe", "{'model_type': 'qwen3_next', 'linear_num_key_heads': 0}", SPRY_ERR_FORMAT, "key heads"},
    {"qwen2-moe", "{'model_type': 'qwen3_next', 'linear_value_head_dim': 0}", SPRY_ERR_FORMAT, "delta nets"},
    {"qwen2-moe", "{'model_type': 'qwen3_next', 'linear_key_head_dim': 257}", SPRY_ERR_FORMAT, "linear_key_head_dim"},
    {"qwen2-moe", "{'model_type': 'qwen3_next', 'linear_conv_kernel_dim': 1}", SPRY_ERR_FORMAT, "two tokens"},
    {"nemotron-h", "{'num_hidden_layers': 7}", SPRY_ERR_FORMAT, "pattern of layers has 6"},
    {"nemotron-h", "{'layers_block_type': null, 'hybrid_override_pattern': 'M-M*-X'}", SPRY_ERR_UNSUPPORTED,
     "layer 5 is 'X'"},
    {"granite-hybrid", "{'layer_types': ['mamba', 'mlp', 'mamba', 'mamba']}", SPRY_ERR_UNSUPPORTED, "layer 1 is 'mlp'"},
    {"granite-hybrid", "{'layer_types': ['mamba']}", SPRY_ERR_FORMAT, "pattern of layers has 1"},
    {"granite-hybrid", "{'time_step_limit': [0]}", SPRY_ERR_FORMAT, "time_step_limit"},
    {"granite-hybrid", "{'mamba_d_state': 0}", SPRY_ERR_FORMAT, "delta nets"},
    {"granite-hybrid", "{'mamba_n_groups': 3}", SPRY_ERR_FORMAT, "key heads"},
    {"bamba", "{'attn_layer_indices': [4]}", SPRY_ERR_FORMAT, "attn_layer_indices[0]"},
    {"falcon-h1", "{'ssm_multipliers': [1, 1, 1, 1]}", SPRY_ERR_FORMAT, "ssm_multipliers"},
    {"qwen2-moe", "{'model_type': 'qwen3_next', 'full_attention_interval': 0}", SPRY_ERR_FORMAT, "delta nets"},
    {"qwen2-moe", "{'model_type': 'qwen3_next', 'layer_types': ['full_attention', 'mamba', 'full_attention']}",
     SPRY_ERR_UNSUPPORTED, "mamba|linear_attention"},
    {"bert", "{'is_decoder': true}", SPRY_ERR_UNSUPPORTED, "encoders"},
    {"bert", "{'hidden_act': 'relu'}", SPRY_ERR_UNSUPPORTED, "relu"},
    {"bert", "{'model_type': 'xlm-roberta', 'pad_token_id': -2}", SPRY_ERR_FORMAT, "pad_token_id"},
    {"bert", "{'model_type': 'roberta', 'pad_token_id': 255}", SPRY_ERR_FORMAT, "offset"},
    {"olmo-hybrid", "{'layer_types': ['linear_attention']}", SPRY_ERR_FORMAT, "layer_types lists 1 layers of 4"},
    {"olmo-hybrid", "{'linear_allow_neg_eigval': 2}", SPRY_ERR_FORMAT, "linear_allow_neg_eigval is not true"},
    {"modernbert", "{'norm_bias': 1}", SPRY_ERR_FORMAT, "norm_bias is not true or false"},
    {"modernbert", "{'layer_types': ['full_attention']}", SPRY_ERR_FORMAT, "layer_types lists 1 layers of 4"},
    {"modernbert", "{'hidden_activation': 'relu'}", SPRY_ERR_UNSUPPORTED, "relu"},
    {"llama", "{'use_bidirectional_attention': true}", SPRY_ERR_UNSUPPORTED, "use_bidirectional_attention"},
};

static void test_wrong_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(wrong); i++) {
        json_t *json = changed(wrong[i].model, wrong[i].changes);
        spry_config config;
        spry_arena arena;
        spry_error error = {0};
        spry_status status = read_json_config(&config, json, &arena, &error);
        if (status != wrong[i].status)
            print_message("%s\n", wrong[i].changes);
        hostile_expect(status, &error, wrong[i].status, wrong[i].words);
        assert_memory_equal(error.message, "here/config: ", strlen("here/config: "));
        spry_arena_deinit(&arena);
        assert_int_equal(read_json_config(&config, json, &arena, NULL), wrong[i].status);
        spry_arena_deinit(&arena);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_older_forms),       cmocka_unit_test(test_equal_configs), cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_inner_text_config), cmocka_unit_test(test_wrong_values),
    };
    return cmocka_run_group_tests(tests, place_make, place_remove);
}
