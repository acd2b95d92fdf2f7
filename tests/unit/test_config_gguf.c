/* Sizes and switches from GGUF metadata: what may be left out, what rope keys mean, and wrong values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "model/arch.h"
#include "model/config.h"
#include "support/gguf_bytes.h"
#include "support/hostile.h"

enum { N_LAYERS = 8 };

/* One entry; keys without a dot at their beginning stand below the architecture. */
typedef struct entry {
    const char *key;
    uint32_t kind;
    double number;
    const char *text;
    const int32_t *list; /* N_LAYERS of them */
} entry;

#define U32(key, value)                                                                                                \
    {                                                                                                                  \
        key, SPRY_GGUF_U32, value, NULL, NULL                                                                          \
    }
#define F32(key, value)                                                                                                \
    {                                                                                                                  \
        key, SPRY_GGUF_F32, value, NULL, NULL                                                                          \
    }
#define TEXT(key, words)                                                                                               \
    {                                                                                                                  \
        key, SPRY_GGUF_STRING, 0, words, NULL                                                                          \
    }
#define LAYERS(key, list)                                                                                              \
    {                                                                                                                  \
        key, SPRY_GGUF_ARRAY, 0, NULL, list                                                                            \
    }

static void write_value(spry_buffer *out, const entry *e)
{
    float real = (float)e->number;
    if (e->kind == SPRY_GGUF_U32)
        gguf_u32(out, (uint32_t)e->number);
    else if (e->kind == SPRY_GGUF_I32)
        gguf_u32(out, (uint32_t)(int32_t)e->number);
    else if (e->kind == SPRY_GGUF_F32)
        gguf_bytes(out, &real, sizeof real);
    else if (e->kind == SPRY_GGUF_BOOL)
        gguf_bytes(out, e->number > 0 ? "\1" : "\0", 1);
    else if (e->kind == SPRY_GGUF_STRING)
        gguf_string(out, e->text);
    else {
        gguf_array(out, SPRY_GGUF_I32, N_LAYERS);
        gguf_bytes(out, e->list, N_LAYERS * sizeof *e->list);
    }
}

static bool replaced(const char *key, const entry *more, size_t n_more)
{
    for (size_t i = 0; i < n_more; i++)
        if (!strcmp(key, more[i].key))
            return true;
    return false;
}

/* A file of metadata alone: the sizes every model has, and what is more. An entry of kind UINT32_MAX leaves its key
 * out. */
static void build(spry_buffer *out, const char *arch, const entry *more, size_t n_more)
{
    static const entry sizes[] = {
        U32("block_count", N_LAYERS),
        U32("embedding_length", 128),
        U32("attention.head_count", 4),
        U32("attention.head_count_kv", 2),
        U32("feed_forward_length", 256),
        U32("context_length", 8192),
        F32("attention.layer_norm_rms_epsilon", 1e-5),
    };
    const entry *all[64];
    size_t n = 0;
    for (size_t i = 0; i < SPRY_COUNT(sizes); i++)
        if (!replaced(sizes[i].key, more, n_more))
            all[n++] = &sizes[i];
    for (size_t i = 0; i < n_more; i++)
        if (more[i].kind != UINT32_MAX)
            all[n++] = &more[i];
    gguf_begin(out, 3, 0, n + 1);
    gguf_key(out, "general.architecture", SPRY_GGUF_STRING);
    gguf_string(out, arch);
    for (size_t i = 0; i < n; i++) {
        char key[128];
        snprintf(key, sizeof key, "%s.%s", arch, all[i]->key);
        gguf_key(out, key, all[i]->kind);
        write_value(out, all[i]);
    }
}

static spry_status read_config(spry_config *config, const char *arch, const entry *more, size_t n_more,
                               spry_arena *arena, spry_error *error)
{
    spry_buffer bytes;
    spry_gguf *gguf;
    build(&bytes, arch, more, n_more);
    spry_arena_init(arena);
    *config = (spry_config){0};
    assert_int_equal(spry_gguf_open_memory(&gguf, bytes.data, bytes.size, "here.gguf", NULL), SPRY_OK);
    spry_status status = spry_config_from_gguf(config, gguf, arena, error);
    spry_gguf_close(gguf);
    spry_buffer_deinit(&bytes);
    return status;
}

static void must_read(spry_config *config, const char *arch, const entry *more, size_t n_more, spry_arena *arena)
{
    spry_error error = {0};
    if (read_config(config, arch, more, n_more, arena, &error))
        fail_msg("%s", error.message);
}

#define READ(config, arch, ...)                                                                                        \
    must_read(config, arch, (const entry[]){__VA_ARGS__}, sizeof((const entry[]){__VA_ARGS__}) / sizeof(entry), &arena)

/* ---- sizes ------------------------------------------------------------------------------------------------------ */

static void test_left_out(void **state)
{
    (void)state;
    spry_config c;
    spry_arena arena;
    READ(&c, "llama", {"attention.head_count_kv", UINT32_MAX, 0, NULL, NULL});
    assert_int_equal(c.n_kv_heads, 4);
    assert_int_equal(c.head_dim, 32);
    assert_int_equal(c.rope_dim, 32);
    assert_true(c.interleaved && c.rope.theta == 1e4f && c.rope.kind == SPRY_ROPE_DEFAULT && c.rope.factor == 1);
    spry_arena_deinit(&arena);
    READ(&c, "gemma3", {"attention.head_count_kv", UINT32_MAX, 0, NULL, NULL}, U32("attention.sliding_window", 512));
    assert_int_equal(c.n_kv_heads, 4);
    assert_int_equal(c.head_dim, 256);
    assert_true(!c.interleaved && c.query_scalar == 256);
    assert_true(c.sliding[4] && !c.sliding[5] && c.sliding[6]);
    assert_true(c.rope.theta == 1e6f && c.rope_sliding.theta == 1e4f);
    spry_arena_deinit(&arena);
    READ(&c, "qwen2", U32("attention.key_length", 64), U32("rope.dimension_count", 48));
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.rope_dim, 48);
    assert_int_equal(c.window, 0);
    assert_true(c.qkv_bias);
    spry_arena_deinit(&arena);
}

/* The largest Gemmas scale queries by their width over their heads. */
static void test_query_scalars(void **state)
{
    (void)state;
    spry_config c;
    spry_arena arena;
    READ(&c, "gemma2", U32("block_count", 46), U32("embedding_length", 4608), U32("attention.head_count", 32),
         U32("attention.key_length", 128));
    assert_true(c.query_scalar == 144);
    spry_arena_deinit(&arena);
    READ(&c, "gemma3", U32("block_count", 62), U32("embedding_length", 5376), U32("attention.head_count", 32),
         U32("attention.key_length", 128));
    assert_true(c.query_scalar == 168);
    spry_arena_deinit(&arena);
    READ(&c, "gemma2", U32("attention.key_length", 64), F32("attention.scale", 0.25));
    assert_true(c.query_scalar == 16);
    spry_arena_deinit(&arena);
}

static void test_which_layers_slide(void **state)
{
    (void)state;
    static const int32_t listed[N_LAYERS] = {0, 1, 1, 0, 0, 0, 1, 0};
    spry_config c;
    spry_arena arena;
    READ(&c, "gemma3", U32("attention.sliding_window", 64), LAYERS("attention.sliding_window_pattern", listed));
    for (size_t i = 0; i < N_LAYERS; i++)
        assert_int_equal(c.sliding[i], listed[i]);
    spry_arena_deinit(&arena);
    READ(&c, "gemma3", U32("attention.sliding_window", 64), U32("attention.sliding_window_pattern", 4));
    for (size_t i = 0; i < N_LAYERS; i++)
        assert_int_equal(c.sliding[i], i % 4 != 3);
    spry_arena_deinit(&arena);
    READ(&c, "gemma2", U32("attention.sliding_window", 64));
    for (size_t i = 0; i < N_LAYERS; i++)
        assert_int_equal(c.sliding[i], i % 2 == 0);
    spry_arena_deinit(&arena);
    READ(&c, "llama", U32("attention.sliding_window", 64)); /* Mistral, as we write it */
    for (size_t i = 0; i < N_LAYERS; i++)
        assert_true(c.sliding[i]);
    spry_arena_deinit(&arena);
    READ(&c, "phi3", U32("attention.sliding_window", 0));
    for (size_t i = 0; i < N_LAYERS; i++)
        assert_false(c.sliding[i]);
    spry_arena_deinit(&arena);
}

static void test_experts(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        bool normalises;
    } cases[] = {{"llama", true}, {"qwen2moe", false}, {"qwen3moe", true}};
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_config c;
        spry_arena arena;
        READ(&c, cases[i].arch, U32("expert_count", 8), U32("expert_used_count", 3));
        assert_int_equal(c.normalise_experts, cases[i].normalises);
        assert_int_equal(c.n_expert_ff, 256);
        spry_arena_deinit(&arena);
        READ(&c, cases[i].arch, U32("expert_count", 8), U32("expert_used_count", 3),
             U32("expert_feed_forward_length", 96),
             {"expert_weights_norm", SPRY_GGUF_BOOL, !cases[i].normalises, NULL, NULL});
        assert_int_equal(c.normalise_experts, !cases[i].normalises);
        assert_int_equal(c.n_expert_ff, 96);
        spry_arena_deinit(&arena);
    }
}

/* ---- rope ------------------------------------------------------------------------------------------------------- */

static double magnitude_of(const spry_config *c)
{
    float frequencies[64];
    return (double)spry_rope_frequencies(frequencies, &c->rope, c->rope_dim, c->n_context);
}

static void near(double value, double expected)
{
    if (fabs(value - expected) > 4 * (double)FLT_EPSILON * fabs(expected))
        fail_msg("%.9g, expected %.9g", value, expected);
}

static void test_rope_kinds(void **state)
{
    (void)state;
    spry_config c;
    spry_arena arena;
    READ(&c, "llama", TEXT("rope.scaling.type", "none"), F32("rope.scaling.factor", 4));
    assert_int_equal(c.rope.kind, SPRY_ROPE_DEFAULT);
    spry_arena_deinit(&arena);
    READ(&c, "llama", TEXT("rope.scaling.type", "linear"), F32("rope.scaling.factor", 4), F32("rope.freq_base", 5e5));
    assert_true(c.rope.kind == SPRY_ROPE_LINEAR && c.rope.factor == 4 && c.rope.theta == 5e5f);
    assert_true(c.rope_sliding.kind == SPRY_ROPE_LINEAR && c.rope_sliding.theta == 5e5f);
    spry_arena_deinit(&arena);
    READ(&c, "llama", F32("rope.scaling.factor", 2)); /* the format's own default */
    assert_true(c.rope.kind == SPRY_ROPE_LINEAR && c.rope.factor == 2);
    spry_arena_deinit(&arena);
    READ(&c, "llama", F32("rope.scaling.factor", 0)); /* as good as none */
    assert_true(c.rope.kind == SPRY_ROPE_DEFAULT && c.rope.factor == 1);
    spry_arena_deinit(&arena);
    READ(&c, "gemma3", TEXT("rope.scaling.type", "linear"), F32("rope.scaling.factor", 8),
         F32("rope.freq_base_swa", 2000));
    assert_true(c.rope.kind == SPRY_ROPE_LINEAR && c.rope.factor == 8);
    assert_true(c.rope_sliding.kind == SPRY_ROPE_DEFAULT && c.rope_sliding.theta == 2000);
    spry_arena_deinit(&arena);
}

static void test_rope_magnitudes(void **state)
{
    (void)state;
    double yarn = 0.1 * log(4) + 1;
    spry_config c;
    spry_arena arena;
    READ(&c, "qwen2", TEXT("rope.scaling.type", "yarn"), F32("rope.scaling.factor", 4),
         U32("rope.scaling.original_context_length", 2048));
    assert_true(c.rope.kind == SPRY_ROPE_YARN && c.rope.original_context == 2048);
    assert_true(c.rope.beta_fast == 32 && c.rope.beta_slow == 1);
    near(magnitude_of(&c), yarn);
    spry_arena_deinit(&arena);
    READ(&c, "qwen2", TEXT("rope.scaling.type", "yarn"), F32("rope.scaling.factor", 4),
         F32("rope.scaling.attn_factor", 0.5), F32("rope.scaling.yarn_beta_fast", 16),
         F32("rope.scaling.yarn_beta_slow", 2));
    assert_true(c.rope.beta_fast == 16 && c.rope.beta_slow == 2 && c.rope.original_context == 8192);
    near(magnitude_of(&c), 0.5 * yarn);
    spry_arena_deinit(&arena);
    READ(&c, "phi3", TEXT("rope.scaling.type", "longrope"), F32("rope.scaling.attn_factor", 1.25),
         U32("rope.scaling.original_context_length", 4096));
    near(magnitude_of(&c), 1.25);
    spry_arena_deinit(&arena);
    READ(&c, "phi3", F32("rope.scaling.attn_factor", 1.25), /* as Phi-3's files really are */
         U32("rope.scaling.original_context_length", 4096));
    assert_true(c.rope.kind == SPRY_ROPE_LONG && c.rope.original_context == 4096);
    near(magnitude_of(&c), 1.25);
    spry_arena_deinit(&arena);
    READ(&c, "phi3", U32("rope.scaling.original_context_length", 4096));
    near(magnitude_of(&c), 1);
    spry_arena_deinit(&arena);
}

/* ---- wrong values ----------------------------------------------------------------------------------------------- */

static void test_wrong_values(void **state)
{
    (void)state;
    static const int32_t unequal[N_LAYERS] = {4, 4, 4, 4, 4, 4, 4, 2};
    static const struct {
        const char *arch;
        entry entry;
        spry_status status;
        const char *words;
    } cases[] = {
        {"mamba", U32("x", 1), SPRY_ERR_UNSUPPORTED,
         "architecture 'mamba'|known are llama, qwen2, qwen2moe, qwen3, qwen3moe, gemma, gemma2, gemma3, phi3"},
        {"llama", {"block_count", UINT32_MAX, 0, NULL, NULL}, SPRY_ERR_FORMAT, "block_count is missing"},
        {"llama", TEXT("block_count", "eight"), SPRY_ERR_FORMAT, "block_count is not a number"},
        {"llama", U32("block_count", 0), SPRY_ERR_FORMAT, "no layers"},
        {"llama", U32("block_count", 1000000000), SPRY_ERR_FORMAT, "block_count is 1e+09"},
        {"llama", {"block_count", SPRY_GGUF_I32, -3, NULL, NULL}, SPRY_ERR_FORMAT, "block_count is -3"},
        {"llama", F32("block_count", 2.5), SPRY_ERR_FORMAT, "block_count is 2.5"},
        {"llama", U32("attention.head_count", 3), SPRY_ERR_FORMAT, "not a multiple"},
        {"gpt-oss", U32("expert_gating_func", 7), SPRY_ERR_FORMAT, "expert_gating_func"},
        {"llama", LAYERS("attention.head_count", unequal), SPRY_ERR_FORMAT,
         "attention.head_count is not a number, or not the same for every layer"},
        {"llama", U32("attention.key_length", 1024), SPRY_ERR_FORMAT, "attention.key_length is 1024"},
        {"llama", U32("rope.dimension_count", 34), SPRY_ERR_FORMAT, "larger than the head"},
        {"llama", U32("rope.dimension_count", 7), SPRY_ERR_FORMAT, "odd"},
        {"llama", F32("attention.layer_norm_rms_epsilon", 0), SPRY_ERR_FORMAT, "norm epsilon"},
        {"llama", F32("attention.layer_norm_rms_epsilon", NAN), SPRY_ERR_FORMAT, "rms_epsilon is nan"},
        {"llama", F32("rope.freq_base", 0), SPRY_ERR_FORMAT, "rope base"},
        {"llama", F32("rope.freq_base", NAN), SPRY_ERR_FORMAT, "rope base"},
        {"llama", F32("rope.scaling.factor", -1), SPRY_ERR_FORMAT, "scaling factor"},
        {"llama", F32("rope.scaling.yarn_beta_fast", INFINITY), SPRY_ERR_FORMAT, "scaling factor"},
        {"llama", F32("rope.scaling.yarn_beta_slow", NAN), SPRY_ERR_FORMAT, "scaling factor"},
        {"llama", TEXT("rope.scaling.type", "dynamic"), SPRY_ERR_UNSUPPORTED,
         "llama.rope.scaling.type is 'dynamic'|none, linear, yarn, longrope"},
        {"llama", U32("expert_count", 4), SPRY_ERR_FORMAT, "experts used"},
        {"qwen2moe", U32("expert_used_count", 61), SPRY_ERR_FORMAT, "experts used"},
        {"llama", U32("expert_count", 5000), SPRY_ERR_FORMAT, "expert_count is 5000"},
        {"llama", U32("context_length", 0), SPRY_ERR_FORMAT, "context length is zero"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_config config;
        spry_arena arena;
        spry_error error = {0};
        spry_status status = read_config(&config, cases[i].arch, &cases[i].entry, 1, &arena, &error);
        hostile_expect(status, &error, cases[i].status, cases[i].words);
        assert_memory_equal(error.message, "here.gguf: ", strlen("here.gguf: "));
        spry_arena_deinit(&arena);
    }
}

/* Fields that newer architectures brought: below 0, too large, not a number, text. */
static void test_every_field(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *key;
    } fields[] = {
        {"deepseek2", "attention.kv_lora_rank"},
        {"deepseek2", "attention.q_lora_rank"},
        {"deepseek2", "attention.key_length_mla"},
        {"deepseek2", "attention.value_length_mla"},
        {"deepseek2", "expert_shared_count"},
        {"deepseek2", "expert_group_count"},
        {"deepseek2", "expert_group_used_count"},
        {"deepseek2", "expert_gating_func"},
        {"deepseek2", "expert_weights_scale"},
        {"glm4moe", "nextn_predict_layers"},
        {"glm4moe", "expert_feed_forward_length"},
        {"qwen2moe", "expert_shared_feed_forward_length"},
        {"gemma3n", "altup.num_inputs"},
        {"gemma3n", "altup.active_idx"},
        {"gemma3n", "embedding_length_per_layer_input"},
        {"gemma3n", "attention.shared_kv_layers"},
        {"gemma3n", "final_logit_softcapping"},
        {"lfm2", "shortconv.l_cache"},
        {"qwen3next", "ssm.conv_kernel"},
        {"qwen3next", "ssm.state_size"},
        {"qwen3next", "ssm.group_count"},
        {"qwen3next", "ssm.time_step_rank"},
        {"qwen3next", "ssm.inner_size"},
        {"qwen3next", "full_attention_interval"},
        {"deepseek32", "attention.indexer.head_count"},
        {"deepseek32", "attention.indexer.key_length"},
        {"deepseek32", "attention.indexer.top_k"},
        {"deepseek4", "attention.output_group_count"},
        {"deepseek4", "hyper_connection.count"},
        {"granite", "attention.scale"},
        {"granite", "embedding_scale"},
        {"granite", "residual_scale"},
        {"granite", "logit_scale"},
        {"bert", "attention.layer_norm_epsilon"},
        {"gpt-oss", "attention.sliding_window"},
    };
    for (size_t i = 0; i < SPRY_COUNT(fields); i++) {
        const char *key = fields[i].key;
        const entry values[] = {{key, SPRY_GGUF_I32, -1, NULL, NULL}, F32(key, 1e12), F32(key, NAN), TEXT(key, "many")};
        for (size_t v = 0; v < SPRY_COUNT(values); v++) {
            spry_config config;
            spry_arena arena;
            spry_error error = {0};
            spry_status status = read_config(&config, fields[i].arch, &values[v], 1, &arena, &error);
            hostile_expect(status, &error, SPRY_ERR_FORMAT, key);
            spry_arena_deinit(&arena);
        }
    }
}

/* Numbers that are fine each by itself. */
static void test_fields_that_disagree(void **state)
{
    (void)state;
    static const entry experts[] = {U32("expert_count", 8), U32("expert_used_count", 2),
                                    U32("expert_feed_forward_length", 32)};
    static const entry latent[] = {U32("attention.key_length_mla", 24), U32("attention.value_length_mla", 16),
                                   U32("rope.dimension_count", 8)};
    static const struct {
        const char *arch;
        const entry *first;
        entry more[2];
        const char *words;
    } cases[] = {
        {"glm4moe", experts, {U32("expert_group_count", 3), U32("expert_group_used_count", 1)}, "do not divide"},
        {"glm4moe", experts, {U32("expert_group_count", 4), U32("expert_group_used_count", 5)}, "more groups"},
        {"glm4moe", experts, {U32("expert_group_count", 4), U32("expert_used_count", 7)}, "more groups"},
        {"glm4moe", experts, {U32("expert_group_count", 4), U32("expert_group_used_count", 0)}, "groups"},
        {"glm4moe", experts, {U32("expert_group_count", 8), U32("expert_group_used_count", 2)}, "groups"},
        {"glm4moe", experts, {U32("expert_weights_scale", 0), U32("x", 0)}, "multiplier of experts"},
        {"deepseek2", latent, {U32("attention.kv_lora_rank", 0), U32("x", 0)}, "latent attention is zero"},
        {"deepseek2", latent, {U32("attention.kv_lora_rank", 512), U32("rope.dimension_count", 0)}, "is zero"},
        {"deepseek2", latent, {U32("attention.kv_lora_rank", 32), U32("attention.value_length_mla", 0)}, "is zero"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        entry all[5];
        size_t n = 2;
        memcpy(all, cases[i].more, sizeof cases[i].more);
        for (size_t k = 0; k < 3; k++)
            if (!replaced(cases[i].first[k].key, cases[i].more, 2))
                all[n++] = cases[i].first[k];
        spry_config config;
        spry_arena arena;
        spry_error error = {0};
        spry_status status = read_config(&config, cases[i].arch, all, n, &arena, &error);
        if (!status)
            print_message("%s, %s and %s\n", cases[i].arch, all[0].key, all[1].key);
        hostile_expect(status, &error, SPRY_ERR_FORMAT, cases[i].words);
        spry_arena_deinit(&arena);
    }
}

static void test_no_architecture(void **state)
{
    (void)state;
    for (int with_number = 0; with_number < 2; with_number++) {
        spry_buffer bytes;
        spry_gguf *gguf;
        spry_config config = {0};
        spry_arena arena;
        spry_error error = {0};
        gguf_begin(&bytes, 3, 0, 1);
        gguf_key(&bytes, with_number ? "general.architecture" : "general.name", SPRY_GGUF_U32);
        gguf_u32(&bytes, 7);
        spry_arena_init(&arena);
        assert_int_equal(spry_gguf_open_memory(&gguf, bytes.data, bytes.size, "here.gguf", NULL), SPRY_OK);
        hostile_expect(spry_config_from_gguf(&config, gguf, &arena, &error), &error, SPRY_ERR_FORMAT,
                       "general.architecture is missing or not a string");
        spry_gguf_close(gguf);
        spry_arena_deinit(&arena);
        spry_buffer_deinit(&bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_out),           cmocka_unit_test(test_query_scalars),
        cmocka_unit_test(test_which_layers_slide), cmocka_unit_test(test_experts),
        cmocka_unit_test(test_rope_kinds),         cmocka_unit_test(test_rope_magnitudes),
        cmocka_unit_test(test_wrong_values),       cmocka_unit_test(test_no_architecture),
        cmocka_unit_test(test_every_field),        cmocka_unit_test(test_fields_that_disagree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
