/* GGUF metadata: keys stand below the architecture's name. */
#include <math.h>
#include <stdio.h>

#include "model/arch.h"
#include "model/config.h"

typedef struct source {
    const spry_gguf *gguf;
    const char *arch;
    bool skips; /* layers without attention have 0 key/value heads */
} source;

static void full_key(char key[128], const source *from, const char *suffix)
{
    snprintf(key, 128, "%s.%s", from->arch, suffix);
}

/* Some files have one number per layer: accepted when all are equal. */
static int number(const void *user, const char *suffix, double *value)
{
    const source *from = user;
    char key[128];
    full_key(key, from, suffix);
    spry_gguf_array array;
    if (!spry_gguf_find_entry(from->gguf, spry_view_of(key)))
        return 0;
    if (!spry_gguf_get_array(from->gguf, key, &array))
        return spry_gguf_get_f64(from->gguf, key, value) ? 1 : -1;
    if (!spry_gguf_array_f64(&array, 0, value))
        return -1;
    for (size_t i = 1; i < array.count; i++) {
        double other;
        if (!spry_gguf_array_f64(&array, i, &other) || (other != *value && !(from->skips && (!other || !*value))))
            return -1;
        *value = other != 0 ? other : *value;
    }
    return 1;
}

static void real(float *value, const source *from, const char *suffix)
{
    double found;
    if (number(from, suffix, &found) > 0)
        *value = (float)found;
}

/* Without a type, a factor means linear, and a magnitude Phi-3's two lists. */
static spry_status read_rope_kind(spry_rope *rope, const source *from, float magnitude, const char *name,
                                  spry_error *error)
{
    spry_view type;
    char key[128];
    full_key(key, from, "rope.scaling.type");
    if (!spry_gguf_get_string(from->gguf, key, &type))
        rope->kind = rope->factor > 0 ? SPRY_ROPE_LINEAR : magnitude > 0 ? SPRY_ROPE_LONG : SPRY_ROPE_DEFAULT;
    else if (spry_view_is(type, "none"))
        rope->kind = SPRY_ROPE_DEFAULT;
    else if (spry_view_is(type, "linear"))
        rope->kind = SPRY_ROPE_LINEAR;
    else if (spry_view_is(type, "yarn"))
        rope->kind = SPRY_ROPE_YARN;
    else if (spry_view_is(type, "longrope"))
        rope->kind = SPRY_ROPE_LONG;
    else
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: %s is '%.*s'; known are none, linear, yarn, longrope", name,
                         key, SPRY_VIEW_ARG(type));
    return SPRY_OK;
}

static spry_status read_rope(spry_config *config, const source *from, const char *name, spry_error *error)
{
    spry_rope *rope = &config->rope;
    float context = 0, magnitude = 0;
    rope->factor = 0;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    real(&rope->theta, from, "rope.freq_base");
    real(&config->rope_sliding.theta, from, "rope.freq_base_swa");
    real(&rope->factor, from, "rope.scale_linear"); /* older files */
    real(&rope->factor, from, "rope.scaling.factor");
    real(&rope->beta_fast, from, "rope.scaling.yarn_beta_fast");
    real(&rope->beta_slow, from, "rope.scaling.yarn_beta_slow");
    real(&context, from, "rope.scaling.original_context_length");
    real(&magnitude, from, "rope.scaling.attn_factor");
    spry_status status = read_rope_kind(rope, from, magnitude, name, error);
    if (status)
        return status;
    rope->original_context = context >= 1 && context < 1e9f ? (uint32_t)context : config->n_context;
    if (rope->factor == 0)
        rope->factor = 1;
    if (config->arch->latent && rope->kind == SPRY_ROPE_YARN) {
        real(&config->latent_log, from, "rope.scaling.yarn_log_multiplier");
        rope->attention_factor = 1;
    }
    if (rope->kind == SPRY_ROPE_LONG) {
        rope->attention_factor = magnitude > 0 ? magnitude : 1;
        rope->factor = (float)config->n_context / (float)rope->original_context;
    } else if (rope->kind == SPRY_ROPE_YARN && magnitude > 0) { /* relative to what yarn would take */
        rope->attention_factor = magnitude * (rope->factor > 1 ? 0.1f * logf(rope->factor) + 1 : 1);
    } else if (rope->kind == SPRY_ROPE_YARN) {
        real(&rope->attention_factor, from, "rope.scaling.yarn_attn_factor");
    }
    if (!config->arch->two_ropes)
        config->rope_sliding = *rope;
    return SPRY_OK;
}

/* A list of which layers slide, or the period of the pattern. */
static void read_pattern(spry_config *config, const source *from)
{
    char key[128];
    spry_gguf_array array;
    uint64_t slides;
    full_key(key, from, "attention.sliding_window_pattern");
    if (spry_gguf_get_array(from->gguf, key, &array) && array.count == config->n_layers)
        for (uint32_t i = 0; i < config->n_layers; i++)
            if (spry_gguf_array_u64(&array, i, &slides))
                config->sliding[i] = slides && config->window;
}

/* Layers without key/value heads have a convolution; those with delta nets are listed, or follow from an interval. */
static void read_convolutions(spry_config *config, const source *from)
{
    char key[128];
    spry_gguf_array array;
    double heads;
    uint64_t recurs;
    full_key(key, from, "attention.recurrent_layers");
    if (config->arch->delta && spry_gguf_get_array(from->gguf, key, &array) && array.count >= config->n_layers)
        for (uint32_t i = 0; i < config->n_layers; i++)
            config->convolves[i] = spry_gguf_array_u64(&array, i, &recurs) && recurs;
    full_key(key, from, "attention.head_count_kv");
    if (config->arch->convolutions && spry_gguf_get_array(from->gguf, key, &array))
        for (uint32_t i = 0; i < config->n_layers && i < array.count; i++)
            config->convolves[i] = spry_gguf_array_f64(&array, i, &heads) && !(heads > 0);
}

/* DeepSeek's files may leave out how experts are chosen: V3's have a bias for that, V2's have none. */
static void find_routing(spry_config *config, const source *from)
{
    double said;
    char name[64];
    if (!config->arch->latent || number(from, "expert_gating_func", &said))
        return;
    for (uint32_t i = 0; i < config->n_layers; i++) {
        snprintf(name, sizeof name, "blk.%u.exp_probs_b.bias", i);
        if (spry_gguf_find_tensor(from->gguf, spry_view_of(name)))
            config->routing = SPRY_ROUTING_SIGMOID;
    }
}

/* The last value stands for layers behind the list. */
static spry_status read_sparsity(spry_config *config, const source *from, spry_arena *arena, spry_error *error)
{
    char key[128];
    spry_gguf_array array;
    full_key(key, from, "activation_sparsity_scale");
    if (!config->arch->streams || !spry_gguf_get_array(from->gguf, key, &array) || !array.count)
        return SPRY_OK;
    float *values = spry_arena_alloc(arena, config->n_layers, sizeof *values);
    if (!values)
        return spry_fail_memory(error, "the layers", config->n_layers * sizeof *values);
    for (uint32_t i = 0; i < config->n_layers; i++) {
        double value = -INFINITY;
        if (!spry_gguf_array_f64(&array, i < array.count ? i : array.count - 1, &value) || isnan(value))
            return spry_fail(error, SPRY_ERR_FORMAT, "%s is not a list of numbers", key);
        values[i] = (float)value;
    }
    config->sparsity = values;
    return SPRY_OK;
}

spry_status spry_config_from_gguf(spry_config *config, const spry_gguf *gguf, spry_arena *arena, spry_error *error)
{
    const char *name = spry_gguf_name(gguf);
    spry_view architecture;
    if (!spry_gguf_get_string(gguf, "general.architecture", &architecture))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: general.architecture is missing or not a string", name);
    config->arch = spry_arch_by_gguf(architecture);
    if (!config->arch)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: architecture '%.*s' is not known; known are %s", name,
                         SPRY_VIEW_ARG(architecture), spry_arch_gguf_names());
    source from = {gguf, config->arch->gguf, config->arch->convolutions};
    spry_status status = spry_config_read(config, SPRY_DIALECT_GGUF, number, &from, name, error);
    if (status)
        return status;
    if (config->arch->latent && !config->key_dim && !config->value_dim) { /* files made before 2025 */
        double keys = 0, values = 0;
        bool both =
            number(&from, "attention.key_length", &keys) > 0 && number(&from, "attention.value_length", &values) > 0;
        config->key_dim = both && keys >= 0 && keys <= 4096 ? (uint32_t)keys : 0;
        config->value_dim = both && values >= 0 && values <= 4096 ? (uint32_t)values : 0;
    }
    find_routing(config, &from);
    config->interleaved = config->arch->permuted_in_gguf || config->arch->interleaved;
    config->normalise_experts = config->arch->gguf_normalises;
    config->qkv_bias = config->arch->qkv_bias;
    config->qk_norm = config->arch->qk_norm && !config->arch->qk_norm_flag;
    config->bidirectional = config->arch->encoder || config->arch == &spry_arch_gemma_embedding;
    char key[128];
    full_key(key, &from, "expert_weights_norm");
    spry_gguf_get_bool(gguf, key, &config->normalise_experts);
    double period;
    full_key(key, &from, "attention.sliding_window_pattern");
    if (spry_gguf_get_f64(gguf, key, &period) && period >= 1 && period < SPRY_MAX_LAYERS)
        config->window_layers = (uint32_t)period;
    status = read_rope(config, &from, name, error);
    if (!status)
        status = spry_config_finish(config, name, arena, error);
    if (!status) {
        read_pattern(config, &from);
        read_convolutions(config, &from);
        spry_config_sort_layers(config);
        status = read_sparsity(config, &from, arena, error);
    }
    return status;
}
