/* The fields of both file formats as one table; defaults and checks that do not depend on the source. */
#include "model/config.h"

#include <math.h>
#include <stddef.h>

#include "model/arch.h"

typedef struct field {
    const char *keys[2]; /* by dialect: GGUF (after "arch."), JSON; NULL: not there */
    const char *other;   /* a second JSON name */
    size_t offset;
    bool real; /* float, else uint32_t */
    bool required;
    double max;
} field;

#define WHOLE(gguf, json, other, member, required, max)                                                                \
    {                                                                                                                  \
        {gguf, json}, other, offsetof(spry_config, member), false, required, max                                       \
    }
#define REAL(gguf, json, member)                                                                                       \
    {                                                                                                                  \
        {gguf, json}, NULL, offsetof(spry_config, member), true, false, 1e9                                            \
    }

static const field fields[] = {
    WHOLE("block_count", "num_hidden_layers", NULL, n_layers, true, SPRY_MAX_LAYERS),
    WHOLE("embedding_length", "hidden_size", NULL, n_embd, true, 1 << 20),
    WHOLE("attention.head_count", "num_attention_heads", NULL, n_heads, true, 1 << 16),
    WHOLE("attention.head_count_kv", "num_key_value_heads", NULL, n_kv_heads, false, 1 << 16),
    WHOLE("attention.key_length", "head_dim", NULL, head_dim, false, SPRY_MAX_HEAD_DIM),
    WHOLE("feed_forward_length", "intermediate_size", NULL, n_ff, false, 1 << 24),
    WHOLE("context_length", "max_position_embeddings", NULL, n_context, false, 1 << 30),
    WHOLE("attention.sliding_window", "sliding_window", NULL, window, false, 1 << 30),
    WHOLE(NULL, "max_window_layers", NULL, window_layers, false, 1 << 20),
    WHOLE(NULL, "sliding_window_pattern", "_sliding_window_pattern", window_layers, false, 1 << 20),
    WHOLE("expert_count", "num_experts", "num_local_experts", n_experts, false, SPRY_MAX_EXPERTS),
    WHOLE("expert_used_count", "num_experts_per_tok", NULL, n_experts_used, false, SPRY_MAX_EXPERTS),
    WHOLE("expert_feed_forward_length", "moe_intermediate_size", NULL, n_expert_ff, false, 1 << 24),
    WHOLE("expert_shared_feed_forward_length", "shared_expert_intermediate_size", NULL, n_shared_ff, false, 1 << 24),
    WHOLE("rope.dimension_count", NULL, NULL, rope_dim, false, SPRY_MAX_HEAD_DIM),
    REAL("attention.layer_norm_rms_epsilon", "rms_norm_eps", norm_eps),
    REAL(NULL, "query_pre_attn_scalar", query_scalar),
    REAL("attn_logit_softcapping", "attn_logit_softcapping", attn_softcap),
    REAL("final_logit_softcapping", "final_logit_softcapping", final_softcap),
};

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
    *config = (spry_config){.arch = arch, .n_context = 2048, .norm_eps = 1e-6f, .window_layers = 1};
    config->rope = config->rope_sliding = (spry_rope){.theta = 1e4f, .factor = 1, .truncate = true};
    if (arch->defaults)
        arch->defaults(config, dialect);
    for (size_t i = 0; i < SPRY_COUNT(fields); i++) {
        const field *f = &fields[i];
        const char *key = f->keys[dialect];
        if (!key)
            continue;
        double value = 0;
        int found = get(source, key, &value);
        if (!found && dialect == SPRY_DIALECT_JSON && f->other)
            found = get(source, key = f->other, &value);
        if (found < 0)
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: %s is not a number%s", name, key,
                             dialect == SPRY_DIALECT_GGUF ? ", or not the same for every layer" : "");
        if (!found && f->required && *(uint32_t *)(void *)((char *)config + f->offset) == 0)
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: %s is missing", name, key);
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
    else if (c->head_dim > SPRY_MAX_HEAD_DIM)
        wrong = "the head size is over 512";
    else if (c->rope_dim > c->head_dim || c->rope_dim % 2)
        wrong = "the rotated part of a head is odd or larger than the head";
    else if (c->n_experts && (!c->n_experts_used || c->n_experts_used > c->n_experts || !c->n_expert_ff))
        wrong = "the number of experts used is not within the number of experts, or their size is missing";
    else if (!c->n_ff && !c->n_experts)
        wrong = "the feed-forward size is missing";
    else if (!(c->norm_eps > 0) || !usable(c->rope.theta, 1) || !usable(c->rope_sliding.theta, 1))
        wrong = "a norm epsilon or rope base is not positive, or too large";
    else if (!usable(c->rope.factor, 0) || !usable(c->rope_sliding.factor, 0) || isinf(c->rope.attention_factor))
        wrong = "a rope scaling factor is not positive, or too large";
    else if (!c->n_context)
        wrong = "the context length is zero";
    return wrong ? spry_fail(error, SPRY_ERR_FORMAT, "%s: %s", name, wrong) : SPRY_OK;
}

spry_status spry_config_finish(spry_config *c, const char *name, spry_arena *arena, spry_error *error)
{
    if (!c->n_kv_heads)
        c->n_kv_heads = c->n_heads;
    if (!c->head_dim && c->n_heads)
        c->head_dim = c->n_embd / c->n_heads;
    if (!c->rope_dim)
        c->rope_dim = c->head_dim;
    if (!c->n_expert_ff)
        c->n_expert_ff = c->n_ff; /* Mixtral has one size */
    spry_status status = check(c, name, error);
    if (status)
        return status;
    if (c->arch->finish)
        c->arch->finish(c);
    if (!(c->query_scalar > 0))
        c->query_scalar = (float)c->head_dim;
    if (!c->rope.original_context)
        c->rope.original_context = c->n_context;
    if (!c->rope_sliding.original_context)
        c->rope_sliding.original_context = c->n_context;
    c->sliding = spry_arena_alloc(arena, c->n_layers, sizeof *c->sliding);
    if (!c->sliding)
        return spry_fail_memory(error, "the layers", c->n_layers);
    for (uint32_t i = 0; i < c->n_layers; i++)
        c->sliding[i] = c->window && (!c->arch->slides || c->arch->slides(c, i));
    return SPRY_OK;
}
