/* Configs: the fields of both file formats as one table; defaults and checks that do not depend on the source; GGUF
 * metadata; and the angles of RoPE. */
#include "model/config.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "model/arch.h"
#include "spry.h"

enum { SPELLINGS = 5 };

typedef struct field {
    const char *gguf;            /* key after "arch."; NULL: GGUF has no such key */
    const char *json[SPELLINGS]; /* the first of these that is present is used */
    size_t offset;
    bool real; /* a float; otherwise an uint32_t */
    bool required;
    double max;
} field;

/* clang-format off */
#define JSON(...) {__VA_ARGS__}
#define WHOLE(gguf, json, member, max) {gguf, json, offsetof(spry_config, member), false, false, max}
#define SIZE(gguf, json, member, max)  {gguf, json, offsetof(spry_config, member), false, true, max}
#define REAL(gguf, json, member)       {gguf, json, offsetof(spry_config, member), true, false, 1e9}

static const field fields[] = {
    SIZE("block_count", JSON("num_hidden_layers", "n_layer"), n_layers, SPRY_MAX_LAYERS),
    SIZE("embedding_length", JSON("hidden_size", "n_embd"), n_embd, 1 << 20),
    SIZE("attention.head_count", JSON("num_attention_heads", "n_head"), n_heads, 1 << 16),
    WHOLE("attention.head_count_kv", JSON("num_key_value_heads"), n_kv_heads, 1 << 16),
    WHOLE("attention.key_length", JSON("head_dim"), head_dim, SPRY_MAX_HEAD_DIM),
    WHOLE("attention.key_length_swa", JSON("swa_head_dim"), slide.head_dim, SPRY_MAX_HEAD_DIM),
    WHOLE(NULL, JSON("swa_num_key_value_heads"), slide.n_kv_heads, 1 << 16),
    WHOLE("rope.dimension_count_swa", JSON(NULL), slide.rope_dim, SPRY_MAX_HEAD_DIM),
    WHOLE("feed_forward_length", JSON("block_ff_dim", "intermediate_size", "n_inner"), n_ff, 1 << 24),
    WHOLE("context_length", JSON("max_position_embeddings", "max_trained_positions", "n_positions"), n_context, 1 << 30),
    WHOLE("attention.sliding_window", JSON("sliding_window", "attention_chunk_size", "local_attention"), window, 1 << 30),
    WHOLE(NULL, JSON("max_window_layers", "sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"), window_layers, 1 << 20),
    WHOLE("expert_count", JSON("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), n_experts, SPRY_MAX_EXPERTS),
    WHOLE("expert_used_count", JSON("num_experts_per_tok", "moe_k", "moe_topk", "top_k_experts"), n_experts_used, SPRY_MAX_EXPERTS),
    WHOLE("expert_shared_count", JSON("n_shared_experts", "moe_num_shared_experts", "num_shared_experts", "num_shared_expert"), n_shared, SPRY_MAX_EXPERTS),
    WHOLE("expert_group_count", JSON("n_group"), n_groups, SPRY_MAX_EXPERTS),
    WHOLE("expert_group_used_count", JSON("topk_group"), n_groups_used, SPRY_MAX_EXPERTS),
    WHOLE("expert_gating_func", JSON(NULL), routing, 1 << 10),
    WHOLE("nextn_predict_layers", JSON(NULL), n_extra_layers, SPRY_MAX_LAYERS),
    WHOLE("expert_feed_forward_length", JSON("moe_intermediate_size"), n_expert_ff, 1 << 24),
    WHOLE("expert_shared_feed_forward_length", JSON("shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size"), n_shared_ff, 1 << 24),
    WHOLE(NULL, JSON("prefix_dense_intermediate_size", "intermediate_size_mlp"), n_dense_ff, 1 << 24),
    WHOLE("leading_dense_block_count", JSON("first_k_dense_replace", "num_dense_layers"), n_dense_first, SPRY_MAX_LAYERS),
    WHOLE(NULL, JSON("prefix_dense_sliding_window_pattern"), dense_pattern, 1 << 20),
    WHOLE(NULL, JSON("rotary_dim"), rotary_dim, SPRY_MAX_HEAD_DIM),
    WHOLE("rope.dimension_count", JSON("qk_rope_head_dim"), rope_dim, SPRY_MAX_HEAD_DIM),
    WHOLE("attention.kv_lora_rank", JSON("kv_lora_rank"), n_kv_rank, SPRY_MAX_HEAD_DIM),
    WHOLE("attention.q_lora_rank", JSON("q_lora_rank"), n_q_rank, 1 << 20),
    WHOLE("attention.key_length_mla", JSON(NULL), key_dim, 1 << 12),
    WHOLE("attention.value_length_mla", JSON("v_head_dim"), value_dim, 1 << 12),
    WHOLE(NULL, JSON("qk_nope_head_dim"), nope_dim, 1 << 12),
    WHOLE("attention.indexer.head_count", JSON("index_n_heads"), n_index_heads, 1 << 10),
    WHOLE("attention.indexer.key_length", JSON("index_head_dim"), index_dim, SPRY_MAX_HEAD_DIM),
    WHOLE("attention.indexer.top_k", JSON("index_topk"), index_top, 1 << 20),
    WHOLE("attention.output_group_count", JSON("o_groups"), n_out_groups, 1 << 12),
    WHOLE("attention.output_lora_rank", JSON("o_lora_rank"), out_rank, 1 << 16),
    WHOLE("hyper_connection.count", JSON("hc_mult"), n_hyper, SPRY_MAX_STREAMS),
    WHOLE("hyper_connection.sinkhorn_iterations", JSON("hc_sinkhorn_iters"), hyper_rounds, 1000),
    REAL("hyper_connection.epsilon", JSON("hc_eps"), hyper_eps),
    WHOLE("hash_layer_count", JSON("num_hash_layers"), n_hashed, SPRY_MAX_LAYERS),
    REAL("swiglu_clamp_exp", JSON("swiglu_limit"), gate_limit),
    WHOLE("altup.num_inputs", JSON("altup_num_inputs"), n_streams, SPRY_MAX_STREAMS),
    WHOLE("altup.active_idx", JSON("altup_active_idx"), active_stream, SPRY_MAX_STREAMS),
    WHOLE("embedding_length_per_layer_input", JSON("hidden_size_per_layer_input"), n_layer_embd, 1 << 16),
    WHOLE("attention.shared_kv_layers", JSON("num_kv_shared_layers"), n_shared_kv, SPRY_MAX_LAYERS),
    WHOLE(NULL, JSON("no_rope_layer_interval"), rope_interval, 1 << 20),
    WHOLE("shortconv.l_cache", JSON("conv_L_cache"), n_conv, 64),
    WHOLE("ssm.conv_kernel", JSON("linear_conv_kernel_dim", "mamba_d_conv", "conv_kernel"), n_conv, 64),
    WHOLE("ssm.time_step_rank", JSON("linear_num_value_heads", "mamba_n_heads", "mamba_num_heads", "num_heads", "n_mamba_heads"), n_delta_heads, 1 << 12),
    WHOLE("ssm.group_count", JSON("linear_num_key_heads", "mamba_n_groups", "n_groups", "mamba_ngroups"), n_delta_keys, 1 << 12),
    WHOLE("ssm.state_size", JSON("linear_key_head_dim", "mamba_d_state", "ssm_state_size", "state_size"), delta_key_dim, SPRY_MAX_DELTA_DIM),
    WHOLE("ssm.inner_size", JSON("mamba_d_ssm"), delta_inner, 1 << 20),
    WHOLE(NULL, JSON("linear_value_head_dim", "mamba_head_dim", "mamba_headdim"), delta_value_dim, SPRY_MAX_DELTA_DIM),
    WHOLE(NULL, JSON("mamba_expand", "expand"), n_expand, 64),
    WHOLE(NULL, JSON("num_mem_blocks"), n_blocks, SPRY_MAX_LAYERS),
    WHOLE(NULL, JSON("adapter_rank"), block_rank, 1 << 16),
    WHOLE("moe_latent_size", JSON("moe_latent_size"), n_latent, 1 << 20),
    REAL(NULL, JSON("attention_in_multiplier"), attention_in_scale),
    REAL(NULL, JSON("attention_out_multiplier"), attention_out_scale),
    REAL(NULL, JSON("key_multiplier"), key_scale),
    REAL(NULL, JSON("ssm_in_multiplier"), state_in_scale),
    REAL(NULL, JSON("ssm_out_multiplier"), state_out_scale),
    WHOLE("full_attention_interval", JSON("full_attention_interval"), attention_interval, SPRY_MAX_LAYERS),
    REAL(NULL, JSON("partial_rotary_factor", "rotary_emb_fraction"), rope_part),
    REAL("attention.layer_norm_rms_epsilon", JSON("rms_norm_eps"), norm_eps),
    REAL("attention.layer_norm_epsilon", JSON("layer_norm_eps", "norm_epsilon", "layer_norm_epsilon", "norm_eps", "layernorm_epsilon"), layer_norm_eps),
    REAL(NULL, JSON("query_pre_attn_scalar"), query_scalar),
    REAL("attention.scale", JSON("attention_multiplier"), attention_scale),
    REAL("attn_logit_softcapping", JSON("attn_logit_softcapping"), attn_softcap),
    REAL("final_logit_softcapping", JSON("final_logit_softcapping"), final_softcap),
    REAL("attention.value_scale", JSON("attention_value_scale"), value_scale),
    REAL("expert_weights_scale", JSON("routed_scaling_factor", "route_scale"), routed_scale),
    REAL("attention.temperature_scale", JSON("attn_scale"), temperature_scale),
    WHOLE("attention.temperature_length", JSON("floor_scale"), temperature_length, 1 << 30),
    REAL("ssm.beta_scale", JSON(NULL), beta_scale),
    REAL("embedding_scale", JSON("embedding_multiplier"), embedding_scale),
    REAL("residual_scale", JSON("residual_multiplier"), residual_scale),
    REAL("logit_scale", JSON("logit_scale", "logits_scaling", "lm_head_multiplier"), logit_scale),
};
/* clang-format on */

static spry_status store(spry_config *config, const field *f, double value, const char *name, const char *key,
                         spry_error *error)
{
    void *slot = (char *)config + f->offset;
    if (f->real) {
        if (!(value >= 0 && value <= f->max))
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: %s is %g, outside 0 to %g", name, key, value, f->max);
        *(float *)slot = (float)value;
        return SPRY_OK;
    }
    if (!(value >= 0 && value <= f->max && value == floor(value)))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: %s is %g, not a whole number from 0 to %.0f", name, key, value,
                         f->max);
    *(uint32_t *)slot = (uint32_t)value;
    return SPRY_OK;
}

spry_status spry_config_read(spry_config *config, spry_config_dialect dialect, spry_config_number get,
                             const void *source, const char *name, spry_error *error)
{
    const spry_arch *arch = config->arch;
    *config = (spry_config){.arch = arch,
                            .n_context = 2048,
                            .norm_eps = arch->either_norm ? 0 : 1e-6f,
                            .window_layers = 1,
                            .routing = arch->routing ? arch->routing : SPRY_ROUTING_SOFTMAX,
                            .routed_scale = 1,
                            .scale_block = {128, 128},
                            .beta_scale = 1,
                            .time_limit = {0, INFINITY},
                            .attention_in_scale = 1,
                            .attention_out_scale = 1,
                            .key_scale = 1,
                            .state_in_scale = 1,
                            .state_out_scale = 1,
                            .gate_scale = 1,
                            .down_scale = 1,
                            .state_scales = {1, 1, 1, 1, 1},
                            .embedding_scale = 1,
                            .value_scale = 1,
                            .residual_scale = 1,
                            .logit_scale = 1,
                            .norm_bias = arch->norm_bias,
                            .choice_bias = arch->choice_bias};
    config->rope = config->rope_sliding = (spry_rope){.theta = 1e4f, .factor = 1, .truncate = true};
    if (arch->defaults)
        arch->defaults(config, dialect);
    for (size_t i = 0; i < SPRY_COUNT(fields); i++) {
        const field *f = &fields[i];
        if (arch->latent && f->offset == offsetof(spry_config, head_dim))
            continue; /* the field has different meanings in the two kinds of files and is derived from other fields */
        const char *key = dialect == SPRY_DIALECT_GGUF ? f->gguf : f->json[0];
        double value = 0;
        int found = key ? get(source, key, &value) : 0;
        for (size_t j = 1; dialect == SPRY_DIALECT_JSON && !found && j < SPELLINGS && f->json[j]; j++)
            found = get(source, key = f->json[j], &value);
        if (found < 0)
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: %s is not a number, or not the same for every layer", name,
                             key);
        if (!found && f->required && *(uint32_t *)(void *)((char *)config + f->offset) == 0)
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: %s is missing", name,
                             dialect == SPRY_DIALECT_GGUF ? key : f->json[0]);
        spry_status status = found ? store(config, f, value, name, key, error) : SPRY_OK;
        if (status)
            return status;
    }
    return SPRY_OK;
}

static bool usable(float value, float above)
{
    return value > above && isfinite(value);
}

static spry_status check(const spry_config *c, const char *name, spry_error *error)
{
    const char *wrong = NULL;
    if (!c->n_layers)
        wrong = "it has no layers";
    else if (!c->n_embd || !c->n_heads || !c->n_kv_heads || !c->head_dim)
        wrong = "a size is zero (hidden size, heads, key/value heads or head size)";
    else if (c->n_heads % c->n_kv_heads)
        wrong = "the number of heads is not a multiple of the number of key/value heads";
    else if (c->arch->latent && (!c->n_kv_rank || !c->rope_dim || !c->nope_dim || !c->value_dim))
        wrong = "a rank or a size of latent attention is zero";
    else if (c->head_dim > (c->arch->latent ? SPRY_ATTEND_HEAD_DIM_MAX : SPRY_MAX_HEAD_DIM))
        wrong = "the head size is over 512";
    else if (c->rope_dim > c->head_dim || c->rope_dim % 2 || c->slide.rope_dim > c->slide.head_dim ||
             c->slide.rope_dim % 2)
        wrong = "the rotated part of a head is odd or larger than the head";
    else if (c->slide.head_dim > (c->arch->latent ? SPRY_ATTEND_HEAD_DIM_MAX : SPRY_MAX_HEAD_DIM) ||
             c->n_heads % c->slide.n_kv_heads)
        wrong = "the heads of layers that slide are larger than 512, or no multiple of their key/value heads";
    else if (!c->arch->latent && c->value_dim > c->head_dim)
        wrong = "values are larger than keys";
    else if (c->n_layer_embd > 0 && (size_t)c->n_layers * c->n_layer_embd > 1 << 24)
        wrong = "the inputs by layer are too large";
    else if (c->n_experts && (!c->n_experts_used || c->n_experts_used > c->n_experts || !c->n_expert_ff))
        wrong = "the number of experts used is not within the number of experts, or their size is missing";
    else if (c->n_experts && (!c->routing || c->routing > SPRY_ROUTING_ROOT))
        wrong = "how experts are chosen is not known (expert_gating_func)";
    else if (c->n_groups > 1 &&
             (c->n_experts % c->n_groups || c->n_groups_used > c->n_groups || !c->n_groups_used ||
              c->n_experts / c->n_groups < 2 || c->n_groups_used * (c->n_experts / c->n_groups) < c->n_experts_used))
        wrong =
            "the experts do not divide into their groups, or more groups or experts of them are used than there are";
    else if (c->n_experts && !usable(c->routed_scale, 0))
        wrong = "the multiplier of experts' weights is not positive";
    else if (!c->n_ff && !c->n_experts && !c->arch->attention_free)
        wrong = "the feed-forward size is missing";
    else if (!(c->norm_eps > 0) || !usable(c->rope.theta, 1) || !usable(c->rope_sliding.theta, 1))
        wrong = "a norm epsilon or rope base is not positive, or too large";
    else if (!usable(c->rope.factor, 0) || !usable(c->rope_sliding.factor, 0) || !isfinite(c->rope.attention_factor) ||
             !isfinite(c->rope.beta_fast) || !isfinite(c->rope.beta_slow) || !isfinite(c->latent_log))
        wrong = "a rope scaling factor is not positive, or too large";
    else if (c->arch->streams && (c->n_streams < 2 || c->active_stream >= c->n_streams || !c->n_layer_embd))
        wrong = "there are fewer than two residual streams, or the active one is not among them";
    else if (c->arch->convolutions && (c->n_conv < 2 || c->n_embd % c->head_dim))
        wrong = "a convolution sees fewer than two tokens, or the hidden size is no multiple of the head size";
    else if (c->arch->delta && (!c->n_delta_heads || !c->n_delta_keys || c->n_delta_heads % c->n_delta_keys))
        wrong = "a delta net's heads are not a multiple of its key heads";
    else if (c->arch->delta && (!c->delta_key_dim || !c->delta_value_dim || c->delta_value_dim > SPRY_MAX_DELTA_DIM ||
                                c->n_conv < 2 || (!c->attention_interval && !c->arch->mamba)))
        wrong = "a size of its delta nets is zero or over 256, or their convolution sees fewer than two tokens";
    else if (c->arch->indexed &&
             (!c->n_index_heads || !c->index_dim || !c->index_top || !c->n_q_rank || c->rope_dim > c->index_dim))
        wrong = "a size of the indexer is zero or missing (its heads, their size, how many keys it selects, or the "
                "rank of queries), or its heads are smaller than their rotated part";
    else if (c->arch->compressed && (!c->n_hyper || !c->n_out_groups || c->n_heads % c->n_out_groups || !c->out_rank ||
                                     !c->window || c->n_kv_heads != 1 || !c->rope_dim || c->rope_dim > c->head_dim))
        wrong = "a size of compressed attention or of hyper-connections is zero, missing or does not divide the heads";
    else if (c->arch->shared_blocks && (!c->n_blocks || !c->block_rank || 2 * c->n_embd % c->n_heads))
        wrong =
            "the number of shared blocks or the rank of their adapters is zero, or the heads do not divide two rows";
    else if (c->n_shared_kv >= c->n_layers)
        wrong = "no layer has keys and values of its own";
    else if (!c->n_context || c->position_offset >= c->n_context)
        wrong = "the context length is zero, or no longer than the offset of positions";
    else if (!usable(c->embedding_scale, 0) || !usable(c->residual_scale, 0) || !usable(c->logit_scale, 0))
        wrong = "a multiplier of embeddings, residuals or logits is not positive";
    else if (!isfinite(c->temperature_scale) ||
             (c->arch->chunked && c->temperature_scale > 0 && !c->temperature_length))
        wrong = "how queries are scaled by position is not known";
    return wrong ? spry_fail(error, SPRY_ERR_FORMAT, "%s: %s", name, wrong) : SPRY_OK;
}

bool spry_config_has_bare_norms(const spry_config *c)
{
    enum { LARGEST = 128 };
    return c->arch->qk_norm == SPRY_QK_NORM_BARE && c->n_experts != LARGEST;
}

uint32_t spry_config_features(const spry_config *c)
{
    const spry_arch *arch = c->arch;
    bool unrotated = false;
    for (uint32_t i = 0; i < c->n_layers; i++)
        unrotated = unrotated || !c->rotated[i];
    const struct {
        spry_feature feature;
        bool used;
    } all[] = {
        {SPRY_FEATURE_LAYER_NORM, c->layer_norm},
        {SPRY_FEATURE_NORM_PLACES, arch->norms == SPRY_NORMS_AFTER || arch->norms == SPRY_NORMS_PARALLEL},
        {SPRY_FEATURE_QK_NORM, arch->qk_norm > SPRY_QK_NORM_HEAD && arch->qk_norm != SPRY_QK_NORM_BARE},
        {SPRY_FEATURE_BARE_NORM, arch->qk_norm == SPRY_QK_NORM_BARE && c->qk_norm},
        {SPRY_FEATURE_UNROTATED, unrotated},
        {SPRY_FEATURE_SCALES, c->embedding_scale != 1 || c->residual_scale != 1 || c->logit_scale != 1},
        {SPRY_FEATURE_UNGATED, arch->ungated},
        {SPRY_FEATURE_SINKS, arch->sinks},
        {SPRY_FEATURE_CLAMPED, arch->gate == SPRY_GATE_CLAMPED},
        {SPRY_FEATURE_ROUTING, c->n_experts && (c->routing == SPRY_ROUTING_SIGMOID || arch->choice_bias ||
                                                c->n_groups > 1 || c->routed_scale != 1)},
        {SPRY_FEATURE_SHARED, c->n_shared},
        {SPRY_FEATURE_LATENT, arch->latent},
        {SPRY_FEATURE_STREAMS, arch->streams},
        {SPRY_FEATURE_ENCODER, c->bidirectional || arch->encoder},
        {SPRY_FEATURE_CONVOLUTIONS, arch->convolutions},
        {SPRY_FEATURE_DELTA, arch->delta},
        {SPRY_FEATURE_KINDS, spry_config_has_kinds(c) || c->slide.rope_dim != c->rope_dim || c->value_scale != 1 ||
                                 (!arch->latent && c->value_dim)},
        {SPRY_FEATURE_BESIDE, arch->beside},
        {SPRY_FEATURE_TYPES, c->second_type},
        {SPRY_FEATURE_MAMBA, arch->mamba || arch->delta_parts},
        {SPRY_FEATURE_TEMPERATURE, c->temperature_length},
        {SPRY_FEATURE_CHUNKED, arch->chunked && c->window},
        {SPRY_FEATURE_GATES, arch->attention_gate},
        {SPRY_FEATURE_INDEXER, c->index_top},
        {SPRY_FEATURE_BLOCKS, arch->shared_blocks},
        {SPRY_FEATURE_COMPRESSED, arch->compressed},
        {SPRY_FEATURE_INNER_NORMS, arch->inner_norms || arch->delta_norms_before},
        {SPRY_FEATURE_MIXING, c->n_experts && (arch->scales_inputs || c->average_shared || c->weight_eps > 0 ||
                                               (arch->groups_by_two && c->n_groups > 1))},
    };
    uint32_t features = 0;
    for (size_t i = 0; i < SPRY_COUNT(all); i++)
        features |= all[i].used ? all[i].feature : 0;
    return features;
}

void spry_features_describe(char *out, size_t size, uint32_t features)
{
    static const char *const names[] = {"layer norms",
                                        "norms only after attention and feed-forward, or both side by side",
                                        "norms of q and k that are not per head before rope",
                                        "layers without rope",
                                        "multipliers",
                                        "a feed-forward part without a gate",
                                        "attention sinks",
                                        "clamped gates",
                                        "experts chosen other than by a softmax",
                                        "shared experts without a gate of their own",
                                        "latent attention",
                                        "several residual streams",
                                        "attention in both directions",
                                        "short convolutions",
                                        "gated delta nets",
                                        "queries scaled by position",
                                        "attention within blocks of positions",
                                        "gates of attention from a matrix of their own",
                                        "norms of q and k without weights",
                                        "experts mixed in another way",
                                        "heads of several sizes",
                                        "parts beside the block",
                                        "tokens of a second type",
                                        "Mamba-2 layers",
                                        "norms in other places in some layers",
                                        "an indexer of keys",
                                        "blocks that layers share",
                                        "compressed attention"};
    size_t used = 0;
    *out = 0;
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        int written = features & 1u << i ? snprintf(out + used, size - used, "%s%s", used ? ", " : "", names[i]) : 0;
        used += written > 0 && used + (size_t)written < size ? (size_t)written : 0;
    }
}

static void derive_sizes(spry_config *c)
{
    if (c->arch->latent) {
        c->n_kv_heads = 1;
        c->head_dim = c->n_kv_rank + c->rope_dim;
        if (c->key_dim > c->rope_dim)
            c->nope_dim = c->key_dim - c->rope_dim;
    }
    if (c->arch->attention_free) /* these sizes are for pages without keys and values */
        c->n_heads = c->n_kv_heads = 1, c->head_dim = SPRY_PAGE_TOKENS;
    if (!c->n_kv_heads)
        c->n_kv_heads = c->n_heads;
    if (!c->head_dim && c->n_heads)
        c->head_dim = c->n_embd / c->n_heads;
    if (!c->rope_dim && !c->arch->latent)
        c->rope_dim = c->head_dim;
    c->slide.n_kv_heads = c->slide.n_kv_heads ? c->slide.n_kv_heads : c->n_kv_heads;
    c->slide.head_dim = c->slide.head_dim ? c->slide.head_dim : c->head_dim;
    c->slide.rope_dim = c->slide.rope_dim                  ? c->slide.rope_dim
                        : c->slide.head_dim != c->head_dim ? c->slide.head_dim
                                                           : c->rope_dim;
    if (!c->arch->latent && (!c->arch->kinds || c->value_dim == c->head_dim))
        c->value_dim = 0;
    if (!c->n_expert_ff)
        c->n_expert_ff = c->n_ff; /* Mixtral has one size */
    if (c->n_dense_ff)
        c->n_ff = c->n_dense_ff;
    if (c->embedding_scale < 0)
        c->embedding_scale = sqrtf((float)c->n_embd);
    if (c->n_shared && !(c->arch->mamba && c->n_shared_ff))
        c->n_shared_ff = c->n_shared * c->n_expert_ff;
    c->layer_norm = c->arch->layer_norm && !(c->arch->either_norm && c->norm_eps > 0);
    if (c->layer_norm)
        c->norm_eps = c->layer_norm_eps;
    if (c->arch->mamba && !c->delta_inner && !c->delta_value_dim && c->n_expand)
        c->delta_inner = c->n_expand * c->n_embd;
    if (c->delta_inner && c->n_delta_heads)
        c->delta_value_dim = c->delta_inner % c->n_delta_heads ? 0 : c->delta_inner / c->n_delta_heads;
    if (!c->arch->indexed)
        c->n_index_heads = c->index_dim = c->index_top = 0;
    if (!c->arch->compressed) /* other models may have such a setting, which means something else */
        c->n_hyper = c->n_out_groups = c->n_hashed = 0, c->gate_limit = 0;
    c->n_layers -= c->n_extra_layers < c->n_layers ? c->n_extra_layers : 0;
}

static void derive_states(spry_config *c)
{
    size_t inner = (size_t)c->n_delta_heads * c->delta_value_dim;
    c->delta_gate_first = c->arch->mamba && !c->delta_norm_first;
    if (!c->arch->mamba)
        c->delta_norm_size = c->delta_value_dim;
    else if (!c->delta_unnormed)
        c->delta_norm_size = (uint32_t)(inner / (c->arch->grouped_norm ? c->n_delta_keys : 1));
}

static void derive_scales(spry_config *c)
{
    if (c->arch->finish)
        c->arch->finish(c);
    if (c->arch->delta)
        derive_states(c);
    if (c->bidirectional && c->window)
        c->window = c->window / 2 + 1; /* the window's half on each side */
    if (c->attention_scale > 0)
        c->query_scalar = 1 / (c->attention_scale * c->attention_scale);
    if (!(c->query_scalar > 0))
        c->query_scalar = (float)c->head_dim;
    if (!(c->temperature_scale > 0))
        c->temperature_length = 0;
    if (c->arch->divides_logits)
        c->logit_scale = 1 / c->logit_scale;
}

spry_heads spry_config_heads(const spry_config *c, uint32_t layer)
{
    return c->sliding[layer] ? c->slide : (spry_heads){c->n_kv_heads, c->head_dim, c->rope_dim};
}

bool spry_config_has_kinds(const spry_config *c)
{
    return c->slide.head_dim && (c->slide.n_kv_heads != c->n_kv_heads || c->slide.head_dim != c->head_dim);
}

/* The vector of a token itself; then values and gates that an entry joins, twice in overlapping layers, and the entry.
 */
uint32_t spry_config_places(const spry_config *c, uint32_t layer)
{
    return !c->arch->compressed || !c->rates[layer] ? 1 : c->overlaps[layer] ? 6 : 4;
}

enum { INDEX_PLACES = 5 }; /* the same for an indexer, without a vector of the token */

void spry_config_sort_layers(spry_config *c)
{
    for (uint32_t i = 0; i < c->n_layers; i++)
        c->rotated[i] = !c->unrotated && (!c->arch->rotates || c->arch->rotates(c, i));
    uint32_t own = c->n_layers - c->n_shared_kv, *from = c->kv_layer;
    for (uint32_t i = 0; i < c->n_layers;
         i++) { /* finds the last layer that has its own KV and slides (or not) like this layer */
        from[i] = i < own ? i : own - 1;
        for (uint32_t j = own; i >= own && j-- > 0 && c->sliding[from[i]] != c->sliding[i];)
            from[i] = j;
    }
    for (uint32_t i = 0, use = 0; i < c->n_layers; i++) { /* the first uses store the blocks, which then take turns */
        uint32_t at = use % (c->n_blocks ? c->n_blocks : 1);
        c->block_layer[i] = i;
        for (uint32_t j = 0; c->blocks[i] && use >= c->n_blocks && j < i; j++)
            if (c->blocks[j] && !at--) {
                c->block_layer[i] = j;
                break;
            }
        use += c->blocks[i];
    }
    c->n_index_slots = 0;
    for (uint32_t i = 0; c->index_top && i < c->n_layers; i++) {
        c->index_layer[i] = c->indexes[i] || !i ? i : c->index_layer[i - 1];
        c->index_slot[i] = c->indexes[i] ? c->n_index_slots : c->index_slot[c->index_layer[i]];
        c->n_index_slots += !c->arch->compressed ? c->indexes[i] : c->overlaps[i] ? INDEX_PLACES : 0;
    }
    uint32_t width = 2 * c->n_kv_heads * c->head_dim; /* floats of a token's keys and values in one KV slot */
    c->n_kv_slots = c->n_slide_slots = c->n_delta_layers = 0;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        if (spry_config_recurs(c, i))
            c->state_slot[i] = c->n_delta_layers++;
        if (c->arch->delta && !spry_config_attends(c, i))
            continue;
        if (c->sliding[i] && spry_config_has_kinds(c)) {
            c->kv_slot[i] = i < own ? c->n_slide_slots++ : c->kv_slot[from[i]];
            continue;
        }
        c->kv_slot[i] = i < own ? c->n_kv_slots : c->kv_slot[from[i]];
        c->n_kv_slots += i >= own                             ? 0
                         : c->convolves[i] && !c->arch->delta ? (c->n_embd + width - 1) / width
                                                              : spry_config_places(c, i);
    }
    if (!c->n_kv_slots && !c->n_slide_slots) /* pages are never empty */
        c->n_kv_slots = 1;
}

spry_status spry_config_finish(spry_config *c, const char *name, spry_arena *arena, spry_error *error)
{
    derive_sizes(c);
    spry_status status = check(c, name, error);
    if (status)
        return status;
    derive_scales(c);
    if (!c->rope.original_context)
        c->rope.original_context = c->n_context;
    if (!c->rope_sliding.original_context)
        c->rope_sliding.original_context = c->n_context;
    c->sliding = spry_arena_alloc(arena, c->n_layers, sizeof *c->sliding);
    c->rotated = spry_arena_alloc(arena, c->n_layers, sizeof *c->rotated);
    c->kv_layer = spry_arena_alloc(arena, c->n_layers, sizeof *c->kv_layer);
    c->kv_slot = spry_arena_alloc(arena, c->n_layers, sizeof *c->kv_slot);
    c->convolves = spry_arena_alloc(arena, c->n_layers, sizeof *c->convolves);
    c->kinds = spry_arena_alloc(arena, c->n_layers, sizeof *c->kinds);
    c->state_slot = spry_arena_alloc(arena, c->n_layers, sizeof *c->state_slot);
    c->indexes = spry_arena_alloc(arena, c->n_layers, sizeof *c->indexes);
    c->index_layer = spry_arena_alloc(arena, c->n_layers, sizeof *c->index_layer);
    c->index_slot = spry_arena_alloc(arena, c->n_layers, sizeof *c->index_slot);
    c->rates = spry_arena_alloc(arena, c->n_layers, sizeof *c->rates);
    c->overlaps = spry_arena_alloc(arena, c->n_layers, sizeof *c->overlaps);
    if (!c->rates || !c->overlaps)
        return spry_fail_memory(error, "the layers", c->n_layers);
    c->blocks = spry_arena_alloc(arena, c->n_layers, sizeof *c->blocks);
    c->block_layer = spry_arena_alloc(arena, c->n_layers, sizeof *c->block_layer);
    if (!c->indexes || !c->index_layer || !c->index_slot || !c->blocks || !c->block_layer)
        return spry_fail_memory(error, "the layers", c->n_layers);
    for (uint32_t i = 0; i < c->n_layers; i++)
        c->indexes[i] = c->index_top;
    if (!c->sliding || !c->rotated || !c->kv_layer || !c->kv_slot || !c->convolves || !c->kinds || !c->state_slot)
        return spry_fail_memory(error, "the layers", c->n_layers);
    for (uint32_t i = 0; i < c->n_layers; i++)
        c->sliding[i] = c->window && (!c->arch->slides || c->arch->slides(c, i));
    for (uint32_t i = 0; c->arch->delta && i < c->n_layers; i++)
        c->convolves[i] = c->arch->mamba || (i + 1) % c->attention_interval != 0;
    for (uint32_t i = 0; (c->arch->attention_free || c->arch->shared_blocks) && i < c->n_layers; i++)
        c->kinds[i] = SPRY_LAYER_MIXES;
    spry_config_sort_layers(c);
    return SPRY_OK;
}

bool spry_config_attends(const spry_config *c, uint32_t layer)
{
    return c->kinds[layer] != SPRY_LAYER_FEEDS &&
           (!c->convolves[layer] || c->arch->both_mixers || spry_config_has_block(c, layer));
}

bool spry_config_has_block(const spry_config *c, uint32_t layer)
{
    return c->arch->shared_blocks && c->blocks[layer];
}

bool spry_config_recurs(const spry_config *c, uint32_t layer)
{
    return c->kinds[layer] != SPRY_LAYER_FEEDS && c->convolves[layer] && c->arch->delta;
}

spry_mixed_places spry_config_mixed_places(const spry_config *c, size_t head)
{
    size_t keys = (size_t)c->n_delta_keys * c->delta_key_dim, value = head * c->delta_value_dim;
    size_t key = spry_config_key_head(c, head) * (size_t)c->delta_key_dim;
    size_t inner = (size_t)c->n_delta_heads * c->delta_value_dim;
    if (c->arch->mamba)
        return (spry_mixed_places){.v = value, .k = inner + key, .q = inner + keys + key};
    return (spry_mixed_places){.q = key, .k = keys + key, .v = 2 * keys + value};
}

size_t spry_config_delta_mixed(const spry_config *c)
{
    return 2 * (size_t)c->n_delta_keys * c->delta_key_dim + (size_t)c->n_delta_heads * c->delta_value_dim;
}

size_t spry_config_delta_floats(const spry_config *c)
{
    return (size_t)c->n_delta_heads * c->delta_key_dim * c->delta_value_dim +
           SPRY_PAGE_TOKENS * (2 * (size_t)c->n_delta_heads) +
           (SPRY_PAGE_TOKENS + c->n_conv - 1) * spry_config_delta_mixed(c);
}

/* ---- GGUF metadata ----------------------------------------------------------------------------------------------- */

/* GGUF metadata. The keys of an architecture begin with its name. */

typedef struct source {
    const spry_gguf *gguf;
    const char *arch;
    bool skips; /* layers without attention have 0 key/value heads */
    bool kinds; /* layers differ, so the lists of sizes are read separately */
} source;

static void full_key(char key[128], const source *from, const char *suffix)
{
    snprintf(key, 128, "%s.%s", from->arch, suffix);
}

/* Reads a number. Some files have one number per layer, which is accepted if all are equal. */
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
    for (size_t i = 1; !from->kinds && i < array.count; i++) {
        double other;
        if (!spry_gguf_array_f64(&array, i, &other) ||
            (other != *value && !(from->skips && (other == 0 || *value == 0))))
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

/* Reads the kind of RoPE scaling. Without a type, a factor means linear scaling, and a magnitude means the two lists of
 * Phi-3. */
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
    float multiplier = 0;
    real(&multiplier, from, "rope.scaling.yarn_log_multiplier");
    if (config->arch->latent && rope->kind == SPRY_ROPE_YARN) {
        config->latent_log = multiplier;
        rope->attention_factor = 1;
    }
    if (rope->kind == SPRY_ROPE_LONG) {
        rope->attention_factor = magnitude > 0 ? magnitude : 1;
        rope->factor = (float)config->n_context / (float)rope->original_context;
    } else if (rope->kind == SPRY_ROPE_YARN && magnitude > 0) { /* the file's value is relative to yarn's own */
        rope->attention_factor = magnitude * (rope->factor > 1 ? 0.1f * logf(rope->factor) + 1 : 1);
    } else if (rope->kind == SPRY_ROPE_YARN && multiplier > 0 && !config->arch->latent) {
        float log_factor = rope->factor > 1 ? 0.1f * logf(rope->factor) : 0;
        rope->attention_factor = (1 + log_factor) / (1 + multiplier * log_factor);
    } else if (rope->kind == SPRY_ROPE_YARN) {
        real(&rope->attention_factor, from, "rope.scaling.yarn_attn_factor");
    }
    if (config->arch->compressed) { /* the usual base is that of layers that only slide; others have a scaled one */
        config->rope_sliding.theta = rope->theta;
        real(&rope->theta, from, "attention.compress_rope_freq_base");
        rope->attention_factor = 1;
    }
    if (!config->arch->two_ropes)
        config->rope_sliding = *rope;
    return SPRY_OK;
}

/* Reads which layers slide: a list, or the period of a pattern. */
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

/* Finds the layers without attention. Layers without key/value heads have a convolution; layers with delta nets are
 * listed, or follow from an interval. */
static void read_convolutions(spry_config *config, const source *from)
{
    char key[128];
    spry_gguf_array array;
    double heads;
    uint64_t recurs;
    bool rotates;
    full_key(key, from, "attention.recurrent_layers");
    if (config->arch->delta && spry_gguf_get_array(from->gguf, key, &array) && array.count >= config->n_layers)
        for (uint32_t i = 0; i < config->n_layers; i++)
            config->convolves[i] = spry_gguf_array_u64(&array, i, &recurs) && recurs;
    full_key(key, from, "attention.head_count_kv");
    if ((config->arch->convolutions || (config->arch->mamba && !config->arch->both_mixers)) &&
        spry_gguf_get_array(from->gguf, key, &array))
        for (uint32_t i = 0; i < config->n_layers && i < array.count; i++)
            config->convolves[i] = spry_gguf_array_f64(&array, i, &heads) && !(heads > 0);
    full_key(key, from, "feed_forward_length");
    for (uint32_t i = 0; config->arch->single_parts && i < config->n_layers; i++) {
        double width = 0;
        bool feeds =
            spry_gguf_get_array(from->gguf, key, &array) && spry_gguf_array_f64(&array, i, &width) && width > 0;
        config->kinds[i] = feeds ? SPRY_LAYER_FEEDS : SPRY_LAYER_MIXES;
    }
    full_key(key, from, "rope.scaling.finetuned");
    if ((config->arch->mamba || config->arch->delta_norms_before) && spry_gguf_get_bool(from->gguf, key, &rotates))
        config->unrotated = !rotates;
}

/* Finds out how experts are selected if DeepSeek's files do not say: V3's files have a bias for that, V2's have
 * none. */
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

/* Fails if sizes of recurrent states are missing, because they cannot be guessed. */
static spry_status check_states(const source *from, const char *name, spry_error *error)
{
    static const char *const keys[] = {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank",
                                       "ssm.inner_size"};
    double value;
    for (size_t i = 0; i < SPRY_COUNT(keys); i++)
        if (!number(from, keys[i], &value))
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: %s.%s is missing", name, from->arch, keys[i]);
    return SPRY_OK;
}

/* Reads which layers have an indexer; without a list all have one. */
static spry_status read_indexes(spry_config *config, const source *from, const char *name, spry_error *error)
{
    char key[128];
    spry_gguf_array array;
    uint64_t whole;
    full_key(key, from, "attention.indexer.types");
    bool listed = config->index_top && spry_gguf_get_array(from->gguf, key, &array);
    for (uint32_t i = 0; listed && i < config->n_layers; i++)
        config->indexes[i] = spry_gguf_array_u64(&array, i, &whole) && whole;
    if (listed && (array.count < config->n_layers || !config->indexes[0]))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: %s lists %zu of %u layers, or the first one without an indexer",
                         name, key, (size_t)array.count, config->n_layers);
    return SPRY_OK;
}

/* The smallest rate is that of layers whose entries overlap, unless it is a large one. */
enum { OVERLAPPING_RATE = 16 };

/* Reads how many tokens an entry joins in each layer. */
static spry_status read_rates(spry_config *config, const source *from, const char *name, spry_error *error)
{
    char key[128];
    spry_gguf_array array;
    uint64_t rate = 0;
    full_key(key, from, "attention.compress_ratios");
    if (!config->arch->compressed)
        return SPRY_OK;
    bool listed = spry_gguf_get_array(from->gguf, key, &array) && array.count >= config->n_layers;
    for (uint32_t i = 0; listed && i < config->n_layers; i++) {
        listed = spry_gguf_array_u64(&array, i, &rate) && rate <= 1 << 16;
        config->rates[i] = listed ? (uint32_t)rate : 0;
        config->overlaps[i] = config->rates[i] && config->rates[i] <= OVERLAPPING_RATE;
        config->sliding[i] = !config->rates[i];
    }
    return listed ? SPRY_OK
                  : spry_fail(error, SPRY_ERR_FORMAT, "%s: %s does not list a number for each of %u layers", name, key,
                              config->n_layers);
}

/* Fails if sizes of the indexer are missing. */
static spry_status check_indexer(const source *from, const char *name, spry_error *error)
{
    static const char *const keys[] = {"attention.indexer.head_count", "attention.indexer.key_length",
                                       "attention.indexer.top_k"};
    double value;
    for (size_t i = 0; i < SPRY_COUNT(keys); i++)
        if (!number(from, keys[i], &value))
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: %s.%s is missing", name, from->arch, keys[i]);
    return SPRY_OK;
}

/* Reads the sparsity of gates; the last value applies to all layers after the list. */
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

/* Reads the sizes of layers that slide and of layers that share keys and values, which differ from those of other
 * layers. */
static spry_status read_kinds(spry_config *config, const source *from, const char *name, spry_error *error)
{
    char key[128];
    spry_gguf_array heads, slides, sizes;
    double values = 0, last = 0;
    full_key(key, from, "attention.sliding_window_pattern");
    bool listed = spry_gguf_get_array(from->gguf, key, &slides) && slides.count >= config->n_layers;
    full_key(key, from, "attention.head_count_kv");
    if (spry_gguf_get_array(from->gguf, key, &heads) && listed && heads.count >= config->n_layers)
        for (uint32_t i = 0; i < config->n_layers; i++) {
            uint64_t slide = 0, n = 0, seen = 0;
            spry_gguf_array_u64(&slides, i, &slide);
            bool known = spry_gguf_array_u64(&heads, i, &n) && n && n <= UINT16_MAX;
            for (uint32_t j = 0; known && j < i; j++) { /* finds the first layer of the same kind */
                uint64_t other;
                if (spry_gguf_array_u64(&slides, j, &other) && !other == !slide) {
                    spry_gguf_array_u64(&heads, j, &seen);
                    break;
                }
            }
            if (!known || (seen && seen != n))
                return spry_fail(error, SPRY_ERR_FORMAT, "%s: %s is not the same for all layers of a kind", name, key);
            *(slide ? &config->slide.n_kv_heads : &config->n_kv_heads) = (uint32_t)n;
        }
    if (number(from, "attention.value_length", &values) > 0 && values >= 0 && values <= SPRY_MAX_HEAD_DIM)
        config->value_dim = (uint32_t)values;
    full_key(key, from, "feed_forward_length");
    if (spry_gguf_get_array(from->gguf, key, &sizes) && sizes.count &&
        spry_gguf_array_f64(&sizes, sizes.count - 1, &last) && last >= 0 && last <= 1 << 24)
        config->n_ff_shared = (uint32_t)last == config->n_ff ? 0 : (uint32_t)last;
    return SPRY_OK;
}

spry_status spry_config_set_axes(spry_config *config, const uint32_t n[3], bool mixed, spry_arena *arena,
                                 spry_error *error)
{
    uint32_t n_pairs = config->rope_dim / 2;
    uint8_t *axes = spry_arena_alloc(arena, n_pairs, 1);
    if (!axes)
        return spry_fail_memory(error, "the axes of rope", n_pairs);
    for (uint32_t i = 0; i < n_pairs; i++)
        if (mixed)
            axes[i] = i % 3 == 1 && i < 3 * n[1] ? 1 : i % 3 == 2 && i < 3 * n[2] ? 2 : 0;
        else
            axes[i] = i < n[0] ? 0 : i < n[0] + n[1] ? 1 : 2;
    config->rope_axes = axes;
    return SPRY_OK;
}

/* Files of models that see pictures say how many pairs turn by each axis; without that they see none. */
static spry_status read_axes(spry_config *config, const source *from, spry_arena *arena, spry_error *error)
{
    char key[128];
    spry_gguf_array sections;
    uint64_t value, sum = 0;
    uint32_t n[3] = {0};
    full_key(key, from, "rope.dimension_sections");
    if (!spry_gguf_get_array(from->gguf, key, &sections))
        return SPRY_OK;
    for (size_t i = 0; i < 3; i++)
        if (spry_gguf_array_u64(&sections, i, &value) && value <= config->rope_dim)
            sum += n[i] = (uint32_t)value;
    return sum == config->rope_dim / 2 ? spry_config_set_axes(config, n, config->arch->mixed_axes, arena, error)
                                       : SPRY_OK;
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
    source from = {gguf, config->arch->gguf, config->arch->convolutions || config->arch->mamba, config->arch->kinds};
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
    if (config->arch->kinds && (status = read_kinds(config, &from, name, error)))
        return status;
    find_routing(config, &from);
    config->interleaved = config->arch->permuted_in_gguf || config->arch->interleaved;
    config->normalise_experts = config->arch->gguf_normalises;
    config->qkv_bias = config->arch->qkv_bias;
    config->qk_norm = config->arch->qk_norm && (!config->arch->qk_norm_flag || spry_config_has_bare_norms(config));
    if (config->arch->chunked && !config->window)
        config->rope_interval = 0;
    config->bidirectional = config->arch->encoder || config->arch == &spry_arch_gemma_embedding;
    config->delta_tiled = config->arch->delta_tiled;
    char key[128];
    full_key(key, &from, "expert_weights_norm");
    spry_gguf_get_bool(gguf, key, &config->normalise_experts);
    double period;
    full_key(key, &from, "attention.sliding_window_pattern");
    if (spry_gguf_get_f64(gguf, key, &period) && period >= 1 && period < SPRY_MAX_LAYERS)
        config->window_layers = (uint32_t)period;
    status = read_rope(config, &from, name, error);
    if (!status && config->arch->delta)
        status = check_states(&from, name, error);
    if (!status && config->arch->indexed)
        status = check_indexer(&from, name, error);
    config->index_interleaved = config->arch->index_rotates_pairs;
    if (!status)
        status = spry_config_finish(config, name, arena, error);
    if (!status)
        status = read_axes(config, &from, arena, error);
    if (!status)
        status = read_indexes(config, &from, name, error);
    if (!status)
        status = read_rates(config, &from, name, error);
    if (!status) {
        if (!config->arch->compressed)
            read_pattern(config, &from);
        read_convolutions(config, &from);
        spry_config_sort_layers(config);
        status = read_sparsity(config, &from, arena, error);
    }
    return status;
}

/* ---- angles of rope ---------------------------------------------------------------------------------------------- */

/* The formulas are those of Hugging Face's transformers; the arithmetic has single precision wherever theirs has. */

static const float TWO_PI = 6.283185307179586f;

/* llama3: frequencies of long wavelengths are divided by the factor, those of short ones are kept, those between are
 * interpolated. */
static float llama3_frequency(float frequency, const spry_rope *rope)
{
    float context = (float)rope->original_context;
    float wavelength = TWO_PI / frequency;
    if (wavelength < context / rope->high_freq_factor)
        return frequency;
    if (wavelength > context / rope->low_freq_factor)
        return frequency / rope->factor;
    float smooth = (context / wavelength - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * frequency / rope->factor + smooth * frequency;
}

/* yarn: the dimension whose pairs make `rotations` rotations within the original context. */
static double yarn_dimension(const spry_rope *rope, double rotations, size_t rope_dim)
{
    double context = rope->original_context;
    return (double)rope_dim * log(context / (rotations * 6.283185307179586)) / (2 * log((double)rope->theta));
}

static void yarn(float *frequencies, const spry_rope *rope, size_t rope_dim)
{
    double low = yarn_dimension(rope, (double)rope->beta_fast, rope_dim);
    double high = yarn_dimension(rope, (double)rope->beta_slow, rope_dim);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = low > 0 ? low : 0;
    high = high < (double)rope_dim - 1 ? high : (double)rope_dim - 1;
    if (low == high)
        high += 0.001;
    for (size_t i = 0; i < rope_dim / 2; i++) {
        float ramp = ((float)i - (float)low) / (float)(high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        float keep = 1 - ramp;
        frequencies[i] = frequencies[i] / rope->factor * (1 - keep) + frequencies[i] * keep;
    }
}

static float magnitude(const spry_rope *rope)
{
    if (rope->kind != SPRY_ROPE_YARN && rope->kind != SPRY_ROPE_LONG)
        return 1;
    if (rope->attention_factor > 0)
        return rope->attention_factor;
    if (rope->kind == SPRY_ROPE_YARN)
        return rope->factor <= 1 ? 1 : (float)(0.1 * log((double)rope->factor) + 1);
    if (rope->factor <= 1)
        return 1;
    return (float)sqrt(1 + log((double)rope->factor) / log((double)rope->original_context));
}

float spry_rope_frequencies(float *frequencies, const spry_rope *rope, size_t rope_dim, uint32_t session)
{
    const float *factors = rope->long_factors && session > rope->original_context ? rope->long_factors : rope->factors;
    for (size_t i = 0; i < rope_dim / 2; i++) {
        float power = powf(rope->theta, (float)(2 * i) / (float)rope_dim);
        frequencies[i] = 1 / (factors ? factors[i] * power : power);
        if (rope->kind == SPRY_ROPE_PROPORTIONAL && i >= (size_t)(rope->share * (float)(rope_dim / 2)))
            frequencies[i] = 0;
        else if (rope->kind == SPRY_ROPE_LINEAR)
            frequencies[i] /= rope->factor;
        else if (rope->kind == SPRY_ROPE_LLAMA3)
            frequencies[i] = llama3_frequency(frequencies[i], rope);
    }
    if (rope->kind == SPRY_ROPE_YARN)
        yarn(frequencies, rope, rope_dim);
    return magnitude(rope);
}

void spry_rope_angles(float *cosine, float *sine, const float *frequencies, float scale, size_t n_pairs,
                      uint32_t position)
{
    const uint32_t place[3] = {position, position, position};
    spry_rope_angles_at(cosine, sine, frequencies, scale, n_pairs, place, NULL);
}

void spry_rope_angles_at(float *cosine, float *sine, const float *frequencies, float scale, size_t n_pairs,
                         const uint32_t place[3], const uint8_t *axes)
{
    for (size_t i = 0; i < n_pairs; i++) {
        float angle = (float)place[axes ? axes[i] : 0] * frequencies[i];
        cosine[i] = cosf(angle) * scale;
        sine[i] = sinf(angle) * scale;
    }
}
