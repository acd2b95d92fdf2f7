/* Reads config.json of Hugging Face checkpoints, old and new: rope_parameters (new) or rope_theta + rope_scaling (old),
 * layer_types or the older rules for sliding layers, text_config if a text model is a part of a larger model. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "model/arch.h"
#include "model/config.h"

/* The kinds of layers, for models that name them: a list, or a string with a letter for each. */
static const json_t *block_list(const json_t *json)
{
    const json_t *list = json_object_get(json, "layers_block_type");
    list = json_is_array(list) ? list : json_object_get(json, "layer_types");
    return json_is_array(list) ? list : NULL;
}

static size_t count_blocks(const json_t *json)
{
    const char *pattern = json_string_value(json_object_get(json, "hybrid_override_pattern"));
    const json_t *list = block_list(json);
    return list ? json_array_size(list) : pattern ? strlen(pattern) : 0;
}

static int number(const void *source, const char *key, double *value)
{
    const json_t *item = json_object_get((const json_t *)source, key);
    if (!item && !strcmp(key, "num_hidden_layers") && (*value = (double)count_blocks(source)) > 0)
        return 1;
    if (!item)
        return 0;
    if (json_array_size(item) > 1) { /* one number per layer, accepted if all are equal */
        for (size_t i = 1; i < json_array_size(item); i++)
            if (!json_equal(json_array_get(item, i), json_array_get(item, 0)))
                return -1;
        item = json_array_get(item, 0);
    }
    const char *pattern = json_string_value(item); /* "LLLG": the period of sliding layers (L) and one full layer (G) */
    if (pattern && *pattern && pattern[strspn(pattern, "L")] == 'G' && !pattern[strspn(pattern, "L") + 1])
        *value = (double)strlen(pattern);
    else if (json_is_null(item))
        *value = 0;
    else if (json_is_number(item))
        *value = json_number_value(item);
    else
        return -1;
    return 1;
}

/* Values without checks of their own. If absent or null they keep their default; if they have another type, they are
 * refused here, first. */
typedef enum value_type { NUMBER, TRUTH, TEXT, LIST, OBJECT } value_type;

typedef struct typed_key {
    const char *key;
    value_type type;
} typed_key;

static const typed_key config_keys[] = {
    {"rope_parameters", OBJECT},
    {"rope_scaling", OBJECT},
    {"rope_theta", NUMBER},
    {"rope_local_base_freq", NUMBER},
    {"partial_rotary_factor", NUMBER},
    {"original_max_position_embeddings", NUMBER},
    {"layer_types", LIST},
    {"no_rope_layers", LIST},
    {"full_attn_idxs", LIST},
    {"block_auto_adjust_ff_dim", TRUTH},
    {"block_ffn_dim_multiplier", NUMBER},
    {"block_multiple_of", NUMBER},
    {"hidden_act", TEXT},
    {"hidden_activation", TEXT},
    {"tie_word_embeddings", TRUTH},
    {"tie_embedding", TRUTH},
    {"altup_correct_scale", TRUTH},
    {"use_sliding_window", TRUTH},
    {"is_decoder", TRUTH},
    {"causal", TRUTH},
    {"rotary_emb_base", NUMBER},
    {"pad_token_id", NUMBER},
    {"norm_topk_prob", TRUTH},
    {"attention_bias", TRUTH},
    {"quantization_config", OBJECT},
    {"use_bias", TRUTH},
    {"use_qk_norm", TRUTH},
    {"rope_interleave", TRUTH},
    {"topk_method", TEXT},
    {"qkv_bias", TRUTH},
    {"layers_block_type", LIST},
    {"attn_layer_indices", LIST},
    {"hybrid_override_pattern", TEXT},
    {"position_embedding_type", TEXT},
    {"time_step_limit", LIST},
    {"mlp_multipliers", LIST},
    {"ssm_multipliers", LIST},
    {"mamba_rms_norm", TRUTH},
    {"mamba_norm_before_gate", TRUTH},
    {"mlp_layer_types", LIST},
    {"hybrid_layer_pattern", LIST},
    {"per_layer_config", OBJECT},
    {"global_head_dim", NUMBER},
    {"num_global_key_value_heads", NUMBER},
    {"swa_rope_theta", NUMBER},
    {"global_rope_theta", NUMBER},
    {"local_rope_theta", NUMBER},
    {"norm_bias", TRUTH},
    {"linear_allow_neg_eigval", TRUTH},
    {"attention_k_eq_v", TRUTH},
    {"enable_moe_block", TRUTH},
    {"use_double_wide_mlp", TRUTH},
    {"mup_enabled", TRUTH},
    {"route_norm", TRUTH},
    {"use_expert_bias", TRUTH},
    {"use_routing_bias", TRUTH},
    {"expert_selection_fn", TEXT},
    {"indexer_types", LIST},
    {"compress_rates", OBJECT},
    {"compress_ratios", LIST},
    {"compress_rope_theta", NUMBER},
    {"scoring_func", TEXT},
    {"hybrid_layer_ids", LIST},
    {"use_mem_rope", TRUTH},
    {"use_shared_attention_adapter", TRUTH},
    {"time_step_min", NUMBER},
    {"indexer_rope_interleave", TRUTH},
    {"shared_expert_combination_strategy", TEXT},
};

static const typed_key rope_keys[] = {
    {"rope_type", TEXT},
    {"type", TEXT},
    {"rope_theta", NUMBER},
    {"factor", NUMBER},
    {"low_freq_factor", NUMBER},
    {"high_freq_factor", NUMBER},
    {"beta_fast", NUMBER},
    {"beta_slow", NUMBER},
    {"attention_factor", NUMBER},
    {"mscale", NUMBER},
    {"mscale_all_dim", NUMBER},
    {"partial_rotary_factor", NUMBER},
    {"original_max_position_embeddings", NUMBER},
    {"truncate", TRUTH},
    {"alpha", NUMBER},
    {"llama_4_scaling_beta", NUMBER},
};

static bool has_type(const json_t *item, value_type type)
{
    return type == NUMBER  ? json_is_number(item)
           : type == TRUTH ? json_is_boolean(item)
           : type == TEXT  ? json_is_string(item)
           : type == LIST  ? json_is_array(item)
                           : json_is_object(item);
}

static spry_status check_types(const json_t *json, const typed_key *keys, size_t n_keys, const char *where,
                               const char *name, spry_error *error)
{
    static const char *const words[] = {"a number", "true or false", "a string", "a list", "an object"};
    for (size_t i = 0; i < n_keys; i++) {
        const json_t *item = json_object_get(json, keys[i].key);
        if (item && !json_is_null(item) && !has_type(item, keys[i].type))
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: %s%s is not %s", name, where, keys[i].key,
                             words[keys[i].type]);
    }
    return SPRY_OK;
}

static bool truth(const json_t *json, const char *key, bool otherwise)
{
    const json_t *item = json_object_get(json, key);
    return json_is_boolean(item) ? json_is_true(item) : otherwise;
}

/* Reads a number; the value is unchanged if it is absent or null. */
static void real(float *value, const json_t *json, const char *key)
{
    const json_t *item = json_object_get(json, key);
    if (json_is_number(item))
        *value = (float)json_number_value(item);
}

static spry_status rope_factors(const float **out, const spry_config *config, const json_t *json, const char *key,
                                const char *name, spry_arena *arena, spry_error *error)
{
    const json_t *list = json_object_get(json, key);
    size_t n_pairs = config->rope_dim / 2;
    if (!json_is_array(list) || json_array_size(list) != n_pairs)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: rope %s must be a list of %zu numbers", name, key, n_pairs);
    float *factors = spry_arena_alloc(arena, n_pairs, sizeof *factors);
    if (!factors)
        return spry_fail_memory(error, "rope factors", n_pairs * sizeof *factors);
    for (size_t i = 0; i < n_pairs; i++) {
        factors[i] = (float)json_number_value(json_array_get(list, i));
        if (!(factors[i] > 0))
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: rope %s holds %g", name, key, (double)factors[i]);
    }
    *out = factors;
    return SPRY_OK;
}

static bool rope_kind(spry_rope_kind *kind, const char *name)
{
    static const struct {
        const char *name;
        spry_rope_kind kind;
    } kinds[] = {{"default", SPRY_ROPE_DEFAULT},
                 {"linear", SPRY_ROPE_LINEAR},
                 {"llama3", SPRY_ROPE_LLAMA3},
                 {"yarn", SPRY_ROPE_YARN},
                 {"longrope", SPRY_ROPE_LONG},
                 {"su", SPRY_ROPE_LONG},
                 {"proportional", SPRY_ROPE_PROPORTIONAL}};
    for (size_t i = 0; i < SPRY_COUNT(kinds); i++)
        if (!strcmp(name, kinds[i].name)) {
            *kind = kinds[i].kind;
            return true;
        }
    return false;
}

static float yarn_magnitude(float factor, float mscale)
{
    return factor <= 1 ? 1 : 0.1f * mscale * logf(factor) + 1;
}

static spry_status read_rope_kind(spry_rope *rope, const spry_config *config, const json_t *json, const char *name,
                                  spry_error *error)
{
    const json_t *type = json_object_get(json, "rope_type");
    if (!json_is_string(type))
        type = json_object_get(json, "type");
    const char *kind = json_is_string(type) ? json_string_value(type) : "default";
    if (!strcmp(kind, "dynamic") && json_is_number(json_object_get(json, "alpha")))
        kind = "default"; /* HunYuan: only the base differs, and it does not depend on the length */
    if (!strcmp(kind, "mrope"))
        kind = "default"; /* the axes are read by read_rope_axes */
    if (!rope_kind(&rope->kind, kind))
        return spry_fail(
            error, SPRY_ERR_UNSUPPORTED,
            "%s: rope type '%.60s' is not known; known are default, linear, llama3, yarn, longrope, proportional", name,
            kind);
    if (config->arch == &spry_arch_phi3 && rope->kind == SPRY_ROPE_YARN)
        rope->kind = SPRY_ROPE_LONG; /* name of this kind in the first models that had it */
    return SPRY_OK;
}

static void read_rope_numbers(spry_rope *rope, const json_t *json)
{
    rope->factor = rope->beta_fast = rope->beta_slow = 0;
    rope->low_freq_factor = 1;
    rope->high_freq_factor = 4;
    real(&rope->theta, json, "rope_theta");
    real(&rope->factor, json, "factor");
    real(&rope->low_freq_factor, json, "low_freq_factor");
    real(&rope->high_freq_factor, json, "high_freq_factor");
    real(&rope->beta_fast, json, "beta_fast");
    real(&rope->beta_slow, json, "beta_slow");
    real(&rope->attention_factor, json, "attention_factor");
    rope->truncate = truth(json, "truncate", rope->truncate);
    if (!(rope->beta_fast > 0))
        rope->beta_fast = 32;
    if (!(rope->beta_slow > 0))
        rope->beta_slow = 1;
}

/* Derives the scaling factor if it is missing, and yarn's magnitude. */
static void derive_rope(spry_rope *rope, spry_config *config, const json_t *json)
{
    float mscale = 0, mscale_all = 0;
    real(&mscale, json, "mscale");
    real(&mscale_all, json, "mscale_all_dim");
    if (rope->kind == SPRY_ROPE_DEFAULT || rope->kind == SPRY_ROPE_PROPORTIONAL)
        rope->factor = 1;
    else if (rope->factor == 0 && (rope->kind == SPRY_ROPE_YARN || rope->kind == SPRY_ROPE_LONG))
        rope->factor = (float)config->n_context / (float)rope->original_context;
    if (rope->kind == SPRY_ROPE_YARN && config->arch->latent)
        config->latent_log = 0.1f * mscale_all;
    if (rope->kind == SPRY_ROPE_YARN && !(rope->attention_factor > 0) && mscale > 0 && mscale_all > 0)
        rope->attention_factor = yarn_magnitude(rope->factor, mscale) / yarn_magnitude(rope->factor, mscale_all);
}

static spry_status read_rope(spry_rope *rope, uint32_t *rope_dim, uint32_t head_dim, spry_config *config,
                             const json_t *whole, const json_t *json, const char *name, spry_arena *arena,
                             spry_error *error)
{
    spry_status status = check_types(json, rope_keys, SPRY_COUNT(rope_keys), "rope ", name, error);
    if (!status)
        status = read_rope_kind(rope, config, json, name, error);
    if (status)
        return status;
    read_rope_numbers(rope, json);
    float original = (float)rope->original_context, partial = 0, alpha = 0;
    real(&original, json, "original_max_position_embeddings");
    real(&original, whole, "original_max_position_embeddings"); /* Phi-3 has it outside of the rope parameters, and this
                                                                 * one is valid */
    real(&partial, json, "partial_rotary_factor");
    partial = partial > 0 ? partial : config->rope_part;
    head_dim = head_dim ? head_dim : config->n_embd / (config->n_heads ? config->n_heads : 1);
    rope->share = partial > 0 && partial < 1 ? partial : 1;
    partial = rope->kind == SPRY_ROPE_PROPORTIONAL ? 0 : partial;
    if (!config->arch->latent && config->rotary_dim)
        *rope_dim = config->rotary_dim;
    else if (!config->arch->latent && !config->arch->compressed)
        *rope_dim = partial > 0 && partial < 1 ? (uint32_t)((float)head_dim * partial) : head_dim;
    rope->original_context = original >= 1 && original < 1e9f ? (uint32_t)original : config->n_context;
    real(&alpha, json, "alpha");
    real(&config->temperature_scale, json, "llama_4_scaling_beta");
    if (rope->kind == SPRY_ROPE_DEFAULT && alpha > 0 && head_dim > 2)
        rope->theta *= (float)pow((double)alpha, (double)head_dim / (head_dim - 2.0));
    derive_rope(rope, config, json);
    if (rope->kind != SPRY_ROPE_LONG)
        return SPRY_OK;
    status = rope_factors(&rope->factors, config, json, "short_factor", name, arena, error);
    return status ? status : rope_factors(&rope->long_factors, config, json, "long_factor", name, arena, error);
}

static spry_status read_ropes(spry_config *config, const json_t *json, const char *name, spry_arena *arena,
                              spry_error *error)
{
    const json_t *parameters = json_object_get(json, "rope_parameters");
    const json_t *full = json_object_get(parameters, "full_attention");
    const json_t *sliding = json_object_get(parameters, "sliding_attention");
    const json_t *scaling = json_object_get(json, "rope_scaling");
    real(&config->rope.theta, json, "rope_theta");
    real(&config->rope.theta, json, "rotary_emb_base");
    real(&config->rope.theta, json, "global_rope_theta");
    if (config->arch->compressed) {
        real(&config->rope_sliding.theta, json, "rope_theta");
        real(&config->rope.theta, json, "compress_rope_theta");
        full = json_object_get(parameters, "compress");
        sliding = json_object_get(parameters, "main");
    }
    if (!json_is_object(full)) /* one RoPE for all layers, or the old form */
        full = json_is_object(scaling) ? scaling : parameters;
    spry_status status =
        read_rope(&config->rope, &config->rope_dim, config->head_dim, config, json, full, name, arena, error);
    if (status)
        return status;
    if (!config->arch->two_ropes) {
        config->rope_sliding = config->rope;
        config->slide.rope_dim = config->rope_dim;
        return SPRY_OK;
    }
    real(&config->rope_sliding.theta, json, "rope_local_base_freq");
    real(&config->rope_sliding.theta, json, "swa_rope_theta");
    real(&config->rope_sliding.theta, json, "local_rope_theta");
    if (config->arch->compressed)
        config->rope.attention_factor = 1;
    uint32_t head_dim = config->slide.head_dim ? config->slide.head_dim : config->head_dim;
    return read_rope(&config->rope_sliding, &config->slide.rope_dim, head_dim, config, json, sliding, name, arena,
                     error);
}

static spry_status check_activation(const spry_arch *arch, const json_t *json, const char *name, spry_error *error)
{
    const json_t *item = json_object_get(json, "hidden_activation");
    if (arch->gate == SPRY_GATE_RELU_SQUARED)
        item = json_object_get(json, "mlp_hidden_act");
    else if (!json_is_string(item))
        item = json_object_get(json, "hidden_act");
    if (!json_is_string(item))
        return SPRY_OK;
    const char *act = json_string_value(item);
    /* Gemma's first configs say gelu and mean its tanh approximation. */
    bool ok = arch->gate == SPRY_GATE_RELU_SQUARED ? !strcmp(act, "relu2")
              : arch->gate == SPRY_GATE_GELU_TANH  ? !strncmp(act, "gelu", 4)
              : arch->gate == SPRY_GATE_GELU       ? !strcmp(act, "gelu")
                                                   : !strcmp(act, "silu") || !strcmp(act, "swish");
    return ok ? SPRY_OK
              : spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: hidden_act '%.60s' is not what %s models use", name, act,
                          arch->name);
}

static spry_status read_layer_types(spry_config *config, const json_t *json, const char *name, spry_error *error)
{
    const json_t *types = json_object_get(json, "layer_types"), *hybrid = json_object_get(json, "hybrid_layer_pattern");
    if (json_is_array(hybrid) && !json_is_array(types) && config->arch->kinds &&
        json_array_size(hybrid) != config->n_layers)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: hybrid_layer_pattern lists %zu layers of %u", name,
                         json_array_size(hybrid), config->n_layers);
    for (uint32_t i = 0; config->arch->kinds && !json_is_array(types) && i < json_array_size(hybrid); i++)
        config->sliding[i] = json_number_value(json_array_get(hybrid, i)) != 0 && config->window;
    const char *other = config->arch->chunked ? "chunked_attention" : "sliding_attention";
    if (!json_is_array(types) || !config->arch->slides) /* without such a rule all layers are alike */
        return SPRY_OK;
    if (json_array_size(types) != config->n_layers)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: layer_types lists %zu layers of %u", name, json_array_size(types),
                         config->n_layers);
    for (uint32_t i = 0; i < config->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool sliding = type && !strcmp(type, other);
        if (!sliding && (!type || strcmp(type, "full_attention")))
            return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                             "%s: layer_types[%u] is '%.60s'; known are full_attention and %s", name, i,
                             type ? type : "not a string", other);
        config->sliding[i] = sliding && config->window;
    }
    return SPRY_OK;
}

/* Reads which layers have a convolution: layer_types, or a list of the layers with attention. */
static spry_status read_convolutions(spry_config *config, const json_t *json, const char *name, spry_error *error)
{
    const json_t *types = json_object_get(json, "layer_types"), *full = json_object_get(json, "full_attn_idxs");
    const char *other = config->arch->delta ? "linear_attention" : "conv";
    if (config->arch->mamba || (!config->arch->convolutions && !(config->arch->delta && json_is_array(types))))
        return SPRY_OK;
    if (json_is_array(types) && json_array_size(types) != config->n_layers)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: layer_types lists %zu layers of %u", name, json_array_size(types),
                         config->n_layers);
    for (uint32_t i = 0; i < config->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        config->convolves[i] = json_is_array(types) ? type && !strcmp(type, other) : json_is_array(full);
        if (json_is_array(types) && !config->convolves[i] && (!type || strcmp(type, "full_attention") != 0))
            return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                             "%s: layer_types[%u] is '%.60s'; known are full_attention and %s", name, i,
                             type ? type : "not a string", other);
    }
    for (size_t i = 0; !json_is_array(types) && i < json_array_size(full); i++) {
        double layer = json_number_value(json_array_get(full, i));
        if (!json_is_number(json_array_get(full, i)) || !(layer >= 0 && layer < config->n_layers))
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: full_attn_idxs[%zu] is not a layer", name, i);
        config->convolves[(uint32_t)layer] = false;
    }
    return SPRY_OK;
}

/* Reads a list of numbers, which must be complete. An infinite number may be written as an object. */
static spry_status read_list(float *out, size_t n, const json_t *json, const char *key, const char *name,
                             spry_error *error)
{
    const json_t *list = json_object_get(json, key);
    if (!json_is_array(list))
        return SPRY_OK;
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        const char *word = json_string_value(json_object_get(item, "__float__"));
        bool infinite = word && !strcmp(word, "Infinity");
        if (json_array_size(list) != n || (!infinite && !json_is_number(item)))
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: %s is not a list of %zu numbers", name, key, n);
        double value = json_number_value(item);
        out[i] = infinite || value > 1e38 ? INFINITY : (float)value;
    }
    return SPRY_OK;
}

static spry_status read_mamba(spry_config *config, const json_t *json, const char *name, spry_error *error)
{
    float mlp[2] = {1, 1}, head_dim = 0;
    if (!config->arch->mamba)
        return SPRY_OK;
    spry_status status = read_list(config->time_limit, 2, json, "time_step_limit", name, error);
    if (!status)
        status = read_list(config->state_scales, 5, json, "ssm_multipliers", name, error);
    if (!status)
        status = read_list(mlp, 2, json, "mlp_multipliers", name, error);
    if (config->arch->shared_blocks) {
        if (!json_is_array(json_object_get(json, "time_step_limit")))
            real(&config->time_limit[0], json, "time_step_min");
        config->unrotated = !truth(json, "use_mem_rope", false);
        config->block_attention = truth(json, "use_shared_attention_adapter", false);
    }
    config->gate_scale = mlp[0];
    config->down_scale = mlp[1];
    config->delta_unnormed = !truth(json, "mamba_rms_norm", true);
    config->delta_norm_first =
        !config->delta_unnormed && config->arch->both_mixers && truth(json, "mamba_norm_before_gate", true);
    real(&head_dim, json, "mamba_d_head"); /* may be "auto" */
    if (head_dim >= 1 && head_dim <= SPRY_MAX_DELTA_DIM && !config->delta_value_dim)
        config->delta_value_dim = (uint32_t)head_dim;
    const char *rope = json_string_value(json_object_get(json, "position_embedding_type"));
    config->unrotated = config->unrotated && !(rope && !strcmp(rope, "rope"));
    return status;
}

/* Decodes a layer's kind from its name or letter. */
static bool read_block(spry_config *config, uint32_t layer, const char *kind, bool *experts)
{
    static const struct {
        const char *name;
        bool recurs, feeds, experts;
    } kinds[] = {{"mamba", true, false, false},
                 {"linear_attention", true, false, false},
                 {"M", true, false, false},
                 {"attention", false, false, false},
                 {"full_attention", false, false, false},
                 {"*", false, false, false},
                 {"hybrid", true, false, false},
                 {"mlp", false, true, false},
                 {"-", false, true, false},
                 {"moe", false, true, true},
                 {"E", false, true, true}};
    for (size_t i = 0; i < SPRY_COUNT(kinds); i++)
        if (!strcmp(kind, kinds[i].name) && (config->arch->single_parts || !kinds[i].feeds)) {
            bool hybrid = !strcmp(kind, "hybrid");
            if (config->arch->shared_blocks ? !kinds[i].recurs : hybrid)
                return false;
            config->blocks[layer] = hybrid;
            config->convolves[layer] = kinds[i].recurs;
            if (config->arch->single_parts)
                config->kinds[layer] = kinds[i].feeds ? SPRY_LAYER_FEEDS : SPRY_LAYER_MIXES;
            *experts = *experts || kinds[i].experts;
            return true;
        }
    return false;
}

/* Reads which layers of a model with Mamba-2 layers have attention: a list or a string of kinds, or a list of layer
 * numbers. */
static spry_status read_blocks(spry_config *config, const json_t *json, const char *name, spry_error *error)
{
    const json_t *list = block_list(json), *indices = json_object_get(json, "attn_layer_indices");
    const char *pattern = json_string_value(json_object_get(json, "hybrid_override_pattern"));
    bool experts = false;
    if (!config->arch->mamba || config->arch->attention_free || config->arch->both_mixers)
        return SPRY_OK;
    if ((list || pattern) && count_blocks(json) != config->n_layers)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: the pattern of layers has %zu of them, num_hidden_layers is %u",
                         name, count_blocks(json), config->n_layers);
    for (uint32_t i = 0; (list || pattern) && i < config->n_layers; i++) {
        char letter[2] = {pattern ? pattern[i] : 0};
        const char *kind = list ? json_string_value(json_array_get(list, i)) : letter;
        if (!kind || !read_block(config, i, kind, &experts))
            return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: layer %u is '%.60s', which %s models do not have", name,
                             i, kind ? kind : "not a string", config->arch->name);
    }
    for (size_t i = 0; !list && !pattern && i < json_array_size(indices); i++) {
        double layer = json_number_value(json_array_get(indices, i));
        if (!json_is_number(json_array_get(indices, i)) || !(layer >= 0 && layer < config->n_layers))
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: attn_layer_indices[%zu] is not a layer", name, i);
        config->convolves[(uint32_t)layer] = false;
    }
    indices = json_object_get(json, "hybrid_layer_ids");
    for (size_t i = 0; !list && config->arch->shared_blocks && i < json_array_size(indices); i++) {
        double layer = json_number_value(json_array_get(indices, i));
        if (!json_is_number(json_array_get(indices, i)) || !(layer >= 0 && layer < config->n_layers))
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: hybrid_layer_ids[%zu] is not a layer", name, i);
        config->blocks[(uint32_t)layer] = true;
    }
    if (config->arch->single_parts && experts)
        config->arch = &spry_arch_nemotron_h_moe;
    return SPRY_OK;
}

/* Adjusts the feed-forward size of LFM2, which may be given as that of a part without a gate. */
static spry_status adjust_feed_forward(spry_config *config, const json_t *json, const char *name, spry_error *error)
{
    float multiplier = 1, multiple = 256;
    if (config->arch != &spry_arch_lfm2 || !truth(json, "block_auto_adjust_ff_dim", true))
        return SPRY_OK;
    real(&multiplier, json, "block_ffn_dim_multiplier");
    real(&multiple, json, "block_multiple_of");
    if (!(multiplier > 0 && multiplier < 64) || !(multiple >= 1 && multiple <= 65536))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: block_ffn_dim_multiplier or block_multiple_of is out of range",
                         name);
    double size = floor((double)multiplier * floor(2.0 * config->n_ff / 3));
    config->n_ff = (uint32_t)((double)multiple * ceil(size / (double)multiple));
    return SPRY_OK;
}

/* Reads the settings of GPTQ and AWQ: 4-bit integers with a scale and a zero point for each group of inputs. */
static spry_status read_int4(spry_config *config, const json_t *stored, const char *method, const char *name,
                             spry_error *error)
{
    const json_t *bits = json_object_get(stored, "bits"), *group = json_object_get(stored, "group_size");
    const char *format = json_string_value(json_object_get(stored, "checkpoint_format"));
    const char *version = json_string_value(json_object_get(stored, "version"));
    bool awq = !strcmp(method, "awq"), second = format && !strcmp(format, "gptq_v2");
    bits = bits ? bits : json_object_get(stored, "w_bit");
    group = group ? group : json_object_get(stored, "q_group_size");
    double size = json_is_number(group) ? json_number_value(group) : 128;
    if (!json_is_number(bits) || json_number_value(bits) != 4)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: weights are stored by %s in other than 4 bits", name,
                         method);
    if (size != -1 && !(size >= 32 && size <= 65536 && fmod(size, 32) == 0))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: group_size is %g; known are -1 and multiples of 32", name,
                         size);
    if ((awq && version && strcasecmp(version, "gemm") != 0) ||
        (!awq && format && strcmp(format, "gptq") != 0 && !second))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s: the form '%.40s' of %s is not known; known are gptq, gptq_v2, gemm", name,
                         awq ? version : format, method);
    config->int4 = awq ? SPRY_INT4_AWQ : second ? SPRY_INT4_GPTQ_V2 : SPRY_INT4_GPTQ;
    config->int4_group = size > 0 ? (uint32_t)size : 0;
    return SPRY_OK;
}

/* Checks the settings of compressed-tensors: symmetric integers or floats of 8 bits, whose scales are tensors; packed
 * integers and 4-bit floats. How other programs would quantise activations does not matter. */
static spry_status check_compressed(spry_config *config, const json_t *stored, const char *name, spry_error *error)
{
    static const struct {
        const char *format, *type;
        bool four, eight, zeros, packed;
    } forms[] = {{"int-quantized", "int", false, true, false, false},
                 {"naive-quantized", "int", false, true, false, false},
                 {"float-quantized", "float", false, true, false, false},
                 {"pack-quantized", "int", true, true, true, true},
                 {"nvfp4-pack-quantized", "float", true, false, false, true},
                 {"mxfp4-pack-quantized", "float", true, false, false, true}};
    const char *format = json_string_value(json_object_get(stored, "format")), *wrong = NULL, *key;
    const char *sparse = json_string_value(json_object_get(json_object_get(stored, "sparsity_config"), "format"));
    json_t *group;
    size_t form = 0;
    while (form < SPRY_COUNT(forms) && (!format || strcmp(format, forms[form].format) != 0))
        form++;
    if (form == SPRY_COUNT(forms))
        wrong = "its format";
    else if (sparse && strcmp(sparse, "dense") != 0)
        wrong = "its sparsity_config";
    json_object_foreach(json_object_get(stored, "config_groups"), key, group)
    {
        const json_t *weights = json_object_get(group, "weights");
        const char *type = json_string_value(json_object_get(weights, "type"));
        double bits = json_number_value(json_object_get(weights, "num_bits"));
        if (wrong)
            break;
        bool known = (bits == 4 && forms[form].four) || (bits == 8 && forms[form].eight);
        if (!type || strcmp(type, forms[form].type) != 0 || !known)
            wrong = "type or num_bits of its weights";
        else if (!json_is_true(json_object_get(weights, "symmetric")) && !(forms[form].zeros && bits == 4))
            wrong = "weights that are not symmetric";
    }
    if (wrong)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s: weights are stored by compressed-tensors (format '%.40s') in a form that is not read "
                         "because of %s; read are symmetric int8 weights of the format int-quantized, 8-bit floats of "
                         "float-quantized, integers of 4 and 8 bits of pack-quantized, and nvfp4- and "
                         "mxfp4-pack-quantized",
                         name, format ? format : "?", wrong);
    config->int4 = forms[form].packed ? SPRY_INT4_PACKED : SPRY_INT4_NONE;
    return SPRY_OK;
}

/* Checks the settings of ModelOpt: 4-bit floats in groups of 16, or 8-bit floats. */
static spry_status check_modelopt(const json_t *stored, const char *name, spry_error *error)
{
    const char *algorithm = json_string_value(json_object_get(stored, "quant_algo"));
    bool known =
        algorithm && (!strcmp(algorithm, "NVFP4") || !strcmp(algorithm, "W4A16_NVFP4") || !strcmp(algorithm, "FP8"));
    return known ? SPRY_OK
                 : spry_fail(error, SPRY_ERR_UNSUPPORTED,
                             "%s: weights are stored by modelopt as '%.40s'; known are NVFP4 and FP8", name,
                             algorithm ? algorithm : "?");
}

/* Reads quantization_config: 8-bit floats with a scale for each block of rows and columns; 4-bit floats, which are
 * recognised by their tensors. */
static spry_status read_stored_types(spry_config *config, const json_t *json, const char *name, spry_error *error)
{
    const json_t *stored = json_object_get(json, "quantization_config"), *block;
    const char *method = json_string_value(json_object_get(stored, "quant_method"));
    if (!json_is_object(stored))
        return SPRY_OK;
    if (method && (!strcmp(method, "gptq") || !strcmp(method, "awq")))
        return read_int4(config, stored, method, name, error);
    if (method && !strcmp(method, "compressed-tensors"))
        return check_compressed(config, stored, name, error);
    if (method && !strcmp(method, "modelopt"))
        return check_modelopt(stored, name, error);
    if (!method || (strcmp(method, "fp8") != 0 && strcmp(method, "fbgemm_fp8") != 0 && strcmp(method, "mxfp4") != 0))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s: weights are stored by the method '%.60s'%s; known are fp8 (e4m3 in blocks), mxfp4, gptq "
                         "and awq of 4 bits, compressed-tensors, and modelopt of nvfp4 and fp8",
                         name, method ? method : "?",
                         method && !strcmp(method, "bitsandbytes")
                             ? ", whose nf4 and int8 forms are not read: take the original checkpoint and --quantize"
                             : "");
    block = json_object_get(stored, "weight_block_size");
    if (strcmp(method, "fp8") != 0 || json_is_null(block))
        return SPRY_OK;
    for (size_t i = 0; i < 2 && block; i++) {
        double size = json_number_value(json_array_get(block, i));
        if (json_array_size(block) != 2 || !(size >= 32 && size <= 65536 && fmod(size, 32) == 0))
            return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                             "%s: weight_block_size must be two multiples of 32, as in [128, 128]", name);
        config->scale_block[i] = (uint32_t)size;
    }
    return SPRY_OK;
}

/* Quantile of the normal distribution, as a float: the number of standard deviations below which `share` of the
 * distribution lies. */
static float deviations(double share)
{
    double low = -10, high = 10;
    for (int i = 0; i < 100; i++) {
        double middle = (low + high) / 2;
        if (erfc(-middle / 1.4142135623730951) / 2 < share)
            low = middle;
        else
            high = middle;
    }
    return (float)high;
}

/* The number of sparse layers if a larger model does not give it. */
enum { USUALLY_SPARSE = 10 };

static spry_status read_sparsity(spry_config *config, const json_t *json, const char *name, spry_arena *arena,
                                 spry_error *error)
{
    const json_t *list = json_object_get(json, "activation_sparsity_pattern");
    bool said = list && !json_is_null(list);
    if (!config->arch->streams || (!said && config->n_layers <= USUALLY_SPARSE))
        return SPRY_OK;
    float *values = spry_arena_alloc(arena, config->n_layers, sizeof *values);
    if (!values)
        return spry_fail_memory(error, "the layers", config->n_layers * sizeof *values);
    for (uint32_t i = 0; i < config->n_layers; i++) {
        const json_t *item = json_is_array(list) ? json_array_get(list, i) : list;
        double share = said ? json_number_value(item) : i < USUALLY_SPARSE ? 0.95 : 0;
        if ((said && !json_is_number(item)) || !(share >= 0 && share < 1) ||
            (json_is_array(list) && json_array_size(list) != config->n_layers))
            return spry_fail(error, SPRY_ERR_FORMAT,
                             "%s: activation_sparsity_pattern must have a number from 0 to 1 for every layer", name);
        values[i] = share > 0 ? deviations(share) : -INFINITY;
    }
    config->sparsity = values;
    return SPRY_OK;
}

/* Reads the list of layers that have RoPE. */
static spry_status read_rotated(spry_config *config, const json_t *json, const char *name, spry_error *error)
{
    const json_t *list = json_object_get(json, "no_rope_layers");
    if (!json_array_size(list) || !config->arch->rotates)
        return SPRY_OK;
    if (json_array_size(list) != config->n_layers)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: no_rope_layers lists %zu layers of %u", name,
                         json_array_size(list), config->n_layers);
    for (uint32_t i = 0; i < config->n_layers; i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_number(item) || (json_number_value(item) != 0 && json_number_value(item) != 1))
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: no_rope_layers[%u] is not 0 or 1", name, i);
        config->rotated[i] = json_number_value(item) != 0;
        if (config->arch->chunked && !json_is_array(json_object_get(json, "layer_types")))
            config->sliding[i] = config->rotated[i] && config->window;
    }
    return SPRY_OK;
}

/* Reads whether rows see the whole text: in encoders they do, in Gemma 3 they may. */
static spry_status read_direction(spry_config *config, const json_t *json, const char *name, spry_error *error)
{
    const json_t *direction = json_object_get(json, "use_bidirectional_attention");
    const char *kind = json_string_value(direction); /* in Gemma 4 the setting applies to pictures only */
    if (direction && !json_is_null(direction) && !json_is_boolean(direction) && !(kind && !strcmp(kind, "vision")))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: use_bidirectional_attention is not true, false or 'vision'",
                         name);
    bool both = truth(json, "use_bidirectional_attention", false);
    const json_t *padding = json_object_get(json, "pad_token_id");
    double id = json_is_number(padding) ? json_number_value(padding) : 1; /* the default of transformers */
    if (both && config->arch != &spry_arch_gemma3)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: use_bidirectional_attention is not supported for %s models",
                         name, config->arch->name);
    if (config->arch->encoder && (truth(json, "is_decoder", false) || truth(json, "causal", false)))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: %s models are supported as encoders only", name,
                         config->arch->name);
    if (config->arch->offset_positions && !(id >= 0 && id < 65536 && id == floor(id)))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: pad_token_id is %g, not a whole number from 0 to 65535", name,
                         id);
    config->position_offset = config->arch->offset_positions ? (uint32_t)id + 1 : 0;
    config->bidirectional = config->arch->encoder || both;
    config->arch = both ? &spry_arch_gemma_embedding : config->arch;
    return SPRY_OK;
}

/* Checks a size of one kind of layers, which the first such layer sets. */
static bool set_size(uint32_t *size, const json_t *item, uint32_t most, bool first)
{
    double value = json_number_value(item);
    if (!json_is_number(item))
        return !item || json_is_null(item);
    if (!(value >= 1 && value <= most && value == floor(value)) || (!first && *size != (uint32_t)value))
        return false;
    *size = (uint32_t)value;
    return true;
}

/* Reads sizes of single layers, which must be equal in all full layers; the config's own sizes are those of sliding
 * layers. */
static spry_status read_kinds(spry_config *config, const json_t *json, const char *name, spry_error *error)
{
    const json_t *layers = json_object_get(json, "per_layer_config"), *types = json_object_get(json, "layer_types");
    bool first = true, fits = true;
    size_t n_full = 0, n_given = 0;
    if (!config->arch->kinds)
        return SPRY_OK;
    if (!config->arch->beside && !config->slide.n_kv_heads)
        config->slide.n_kv_heads = 2 * config->n_kv_heads;
    if (config->arch->beside) { /* the usual sizes are those of sliding layers */
        config->slide.n_kv_heads = config->n_kv_heads;
        config->slide.head_dim = config->head_dim;
        fits = set_size(&config->head_dim, json_object_get(json, "global_head_dim"), SPRY_MAX_HEAD_DIM, true) &&
               set_size(&config->n_kv_heads, json_object_get(json, "num_global_key_value_heads"), 1 << 16, true);
        config->n_ff_shared =
            truth(json, "use_double_wide_mlp", false) && config->n_ff < 1 << 23 ? 2 * config->n_ff : 0;
        config->n_experts = truth(json, "enable_moe_block", config->n_experts > 0) ? config->n_experts : 0;
        config->keys_as_values = truth(json, "attention_k_eq_v", false);
    }
    for (size_t i = 0; json_object_size(layers) && i < json_array_size(types); i++) {
        char key[24];
        snprintf(key, sizeof key, "%zu", i);
        const json_t *layer = json_object_get(layers, key);
        const char *type = json_string_value(json_array_get(types, i));
        bool full = type && !strcmp(type, "full_attention");
        n_full += full;
        n_given += full && layer;
        if (!layer)
            continue;
        uint32_t *head_dim = full ? &config->head_dim : &config->slide.head_dim;
        uint32_t *heads = full ? &config->n_kv_heads : &config->slide.n_kv_heads;
        fits = fits && set_size(head_dim, json_object_get(layer, "head_dim"), SPRY_MAX_HEAD_DIM, full && first) &&
               set_size(heads, json_object_get(layer, "num_key_value_heads"), 1 << 16, full && first);
        first = first && !full;
    }
    if (!fits || (n_given && n_given != n_full))
        return spry_fail(
            error, SPRY_ERR_UNSUPPORTED,
            "%s: sizes of heads in per_layer_config, global_head_dim or num_global_key_value_heads are not "
            "whole numbers, or not the same for all layers of a kind",
            name);
    return SPRY_OK;
}

/* Reads how experts are selected and mixed, and which of the first layers have none. */
static spry_status read_experts(spry_config *config, const json_t *json, const char *name, spry_error *error)
{
    const char *method = json_string_value(json_object_get(json, "topk_method"));
    const char *choice = json_string_value(json_object_get(json, "expert_selection_fn"));
    const char *shared = json_string_value(json_object_get(json, "shared_expert_combination_strategy"));
    const json_t *types = json_object_get(json, "mlp_layer_types");
    config->normalise_experts = truth(json, "norm_topk_prob", truth(json, "route_norm", config->normalise_experts));
    config->choice_bias = truth(json, "use_expert_bias", truth(json, "use_routing_bias", config->choice_bias));
    if (method && !strcmp(method, "greedy"))
        config->n_groups = 1;
    if (choice && !strcmp(choice, "softmax")) {
        config->routing = SPRY_ROUTING_CHOSEN;
        config->normalise_experts = true;
    }
    const char *scores = config->arch->compressed ? json_string_value(json_object_get(json, "scoring_func")) : NULL;
    if (scores && !strcmp(scores, "sigmoid"))
        config->routing = SPRY_ROUTING_SIGMOID;
    else if (scores && !strcmp(scores, "softmax"))
        config->routing = SPRY_ROUTING_SOFTMAX;
    else if (scores && strcmp(scores, "sqrtsoftplus") != 0)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s: scoring_func is '%.60s'; known are sqrtsoftplus, sigmoid and softmax", name, scores);
    for (size_t i = 0; config->arch->compressed && i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (!type || strcmp(type, "hash_moe") != 0)
            break;
        config->n_hashed = (uint32_t)i + 1;
    }
    if (choice && strcmp(choice, "softmax") != 0 && strcmp(choice, "sigmoid") != 0)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s: expert_selection_fn is '%.60s'; known are sigmoid and softmax", name, choice);
    if (shared && strcmp(shared, "sum") != 0 && strcmp(shared, "average") != 0)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s: shared_expert_combination_strategy is '%.60s'; known are average and sum", name, shared);
    if (shared && !strcmp(shared, "sum"))
        config->average_shared = false;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (!type || strcmp(type, "dense") != 0)
            break;
        config->n_dense_first = (uint32_t)i + 1;
    }
    return SPRY_OK;
}

/* Reads RoPE with three axes: how many pairs are rotated by time, row and column, one axis after the other or
 * alternating. */
static spry_status read_rope_axes(spry_config *config, const json_t *json, const char *name, spry_arena *arena,
                                  spry_error *error)
{
    const json_t *rope = json_object_get(json, "rope_parameters"), *sections;
    if (!json_object_get(rope, "mrope_section"))
        rope = json_object_get(json, "rope_scaling");
    sections = json_object_get(rope, "mrope_section");
    if (!sections)
        return SPRY_OK;
    uint32_t n_pairs = config->rope_dim / 2, n[3] = {0};
    for (size_t i = 0; i < 3; i++) {
        double value = json_number_value(json_array_get(sections, i));
        n[i] = value >= 0 && value <= n_pairs ? (uint32_t)value : n_pairs + 1;
    }
    if (json_array_size(sections) != 3 || n[0] + n[1] + n[2] != n_pairs)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: mrope_section must be three numbers whose sum is %u", name,
                         n_pairs);
    return spry_config_set_axes(config, n, truth(rope, "mrope_interleaved", false), arena, error);
}

/* Reads which layers have an indexer; the others use the choice of the one before them. It is a list, or a pattern of
 * letters, or every n-th layer after the first ones. */
static spry_status read_indexers(spry_config *config, const json_t *json, const char *name, spry_error *error)
{
    const json_t *list = json_object_get(json, "indexer_types"), *letters = json_object_get(json, "index_topk_pattern");
    const char *pattern = json_string_value(letters);
    float interval = 1, first = 2;
    if (!config->index_top)
        return SPRY_OK;
    real(&interval, json, "index_topk_freq");
    real(&first, json, "index_skip_topk_offset");
    list = json_is_array(list) ? list : json_is_array(letters) ? letters : NULL;
    size_t n = list ? json_array_size(list) : pattern ? strlen(pattern) : config->n_layers;
    for (uint32_t i = 0; i < config->n_layers && n == config->n_layers; i++) {
        const char *kind = list ? json_string_value(json_array_get(list, i)) : pattern ? pattern + i : NULL;
        float after = (float)i - first + 1;
        config->indexes[i] =
            kind ? *kind == 'f' || *kind == 'F' : !(interval > 1) || !(after > 0) || !(fmodf(after, interval) > 0);
        if (list && (!kind || (strcmp(kind, "full") != 0 && strcmp(kind, "shared") != 0)))
            return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: indexer_types[%u] is '%.60s'; known are full and shared",
                             name, i, kind ? kind : "not a string");
    }
    if (n != config->n_layers || !config->indexes[0])
        return spry_fail(error, SPRY_ERR_FORMAT,
                         "%s: indexer_types lists %zu layers of %u, or the first one without an indexer", name, n,
                         config->n_layers);
    return SPRY_OK;
}

/* Reads how many tokens an entry joins in each layer: a list, or kinds of layers and the number of each kind. */
static spry_status read_rates(spry_config *config, const json_t *json, const char *name, spry_error *error)
{
    enum { OVERLAPPING_RATE = 16, RATE_MAX = 1 << 16 };
    const json_t *list = json_object_get(json, "compress_ratios"), *types = json_object_get(json, "layer_types");
    const json_t *rates = json_object_get(json, "compress_rates");
    bool kinds = json_is_array(types) && json_is_object(rates);
    size_t n = json_array_size(kinds ? types : list);
    if (!config->arch->compressed)
        return SPRY_OK;
    if (kinds ? n != config->n_layers : n < config->n_layers)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: %s lists %zu layers of %u", name,
                         kinds ? "layer_types" : "compress_ratios", n, config->n_layers);
    for (uint32_t i = 0; i < config->n_layers; i++) {
        const char *kind = kinds ? json_string_value(json_array_get(types, i)) : NULL;
        bool slides = kind && !strcmp(kind, "sliding_attention");
        const json_t *item = kinds ? kind ? json_object_get(rates, kind) : NULL : json_array_get(list, i);
        double rate = slides ? 0 : json_number_value(item);
        if ((!slides && !json_is_number(item)) || !(rate >= 0 && rate <= RATE_MAX && rate == floor(rate)))
            return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: layer %u is '%.60s', for which there is no whole number",
                             name, i, kind ? kind : "without a kind");
        config->rates[i] = (uint32_t)rate;
        config->overlaps[i] =
            kinds ? rate > 0 && !strcmp(kind, "compressed_sparse_attention") : rate > 0 && rate <= OVERLAPPING_RATE;
        config->sliding[i] = !(rate > 0);
    }
    return SPRY_OK;
}

spry_status spry_config_from_json(spry_config *config, const json_t *json, const char *name, spry_arena *arena,
                                  spry_error *error)
{
    const json_t *text = json_object_get(json, "text_config"), *whole = json;
    if (json_is_object(text))
        json = text;
    const char *type = json_string_value(json_object_get(json, "model_type"));
    if (!type)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: model_type is missing or not a string", name);
    config->arch = spry_arch_by_hf(spry_view_of(type));
    char whole_text[80]; /* Qwen2.5-VL's first files have the text model's settings beside vision_config */
    if (!config->arch && json_object_get(json, "vision_config")) {
        snprintf(whole_text, sizeof whole_text, "%s_text", type);
        config->arch = spry_arch_by_hf(spry_view_of(whole_text));
    }
    if (!config->arch)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: model_type '%.60s' is not known; known are %s", name, type,
                         spry_arch_hf_names());
    spry_status status = spry_config_read(config, SPRY_DIALECT_JSON, number, json, name, error);
    if (!status)
        status = check_types(json, config_keys, SPRY_COUNT(config_keys), "", name, error);
    if (!status)
        status = read_direction(config, json, name, error);
    if (!status)
        status = check_activation(config->arch, json, name, error);
    if (!status)
        status = read_kinds(config, json, name, error);
    if (config->arch->shared_blocks && config->n_heads) /* heads of rows that are twice as wide */
        config->head_dim = 2 * config->n_embd / config->n_heads;
    if (!status)
        status = read_ropes(config, json, name, arena, error);
    if (!status)
        status = read_stored_types(config, json, name, error);
    if (!status)
        status = adjust_feed_forward(config, json, name, error);
    if (status)
        return status;
    if (config->arch->window_needs_flag && !truth(json, "use_sliding_window", false))
        config->window = 0;
    if (config->arch->never_slides)
        config->window = 0;
    config->tied = truth(whole, "tie_word_embeddings", config->tied);
    config->tied = truth(json, "tie_word_embeddings", truth(json, "tie_embedding", config->tied));
    if ((status = read_experts(config, json, name, error)))
        return status;
    config->qkv_bias =
        truth(json, "qkv_bias",
              truth(json, "attention_bias", !config->arch->mamba && truth(json, "use_bias", config->arch->qkv_bias)));
    config->every_bias = !config->arch->mamba && truth(json, "use_bias", config->arch->every_bias);
    config->beta_scale = truth(json, "linear_allow_neg_eigval", false) ? 2 : 1;
    if (config->arch->delta_norms_before) /* OLMo hybrid rotates only if the config has a rope */
        config->unrotated = !json_object_size(json_object_get(json, "rope_parameters")) &&
                            !json_is_number(json_object_get(json, "rope_theta"));
    config->norm_bias = truth(json, "norm_bias", config->arch->norm_bias);
    config->interleaved = truth(json, "rope_interleave", config->arch->interleaved);
    config->index_interleaved = truth(json, "indexer_rope_interleave", config->arch->index_rotates_pairs);
    config->unscaled_stream = !truth(json, "altup_correct_scale", true);
    if (truth(json, "mup_enabled", false))
        config->embedding_scale = -1;
    const json_t *tuning = json_object_get(json, "attn_temperature_tuning"); /* in older files it is a number */
    if (json_is_false(tuning) || (json_is_number(tuning) && json_number_value(tuning) == 0))
        config->temperature_scale = 0;
    config->qk_norm = config->arch->qk_norm && (!config->arch->qk_norm_flag ||
                                                truth(json, "use_qk_norm", config->arch->qk_norm == SPRY_QK_NORM_BARE));
    status = read_mamba(config, json, name, error);
    if (!status)
        status = spry_config_finish(config, name, arena, error);
    if (!status)
        status = read_blocks(config, json, name, error);
    if (!status)
        status = read_indexers(config, json, name, error);
    if (!status)
        status = read_rates(config, json, name, error);
    if (!status)
        status = read_rope_axes(config, json, name, arena, error);
    if (!status)
        status = read_layer_types(config, json, name, error);
    if (!status)
        status = read_convolutions(config, json, name, error);
    if (status)
        return status;
    spry_config_sort_layers(config);
    status = read_sparsity(config, json, name, arena, error);
    return status ? status : read_rotated(config, json, name, error);
}
