/* The properties of a model apart from its weights: sizes and switches, read from config.json or GGUF metadata and
 * checked. */
#ifndef SPRY_MODEL_CONFIG_H
#define SPRY_MODEL_CONFIG_H

#include <jansson.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"
#include "formats/gguf.h"
#include "kernels/ops.h"

enum { SPRY_MAX_LAYERS = 1024, SPRY_MAX_EXPERTS = 1024, SPRY_MAX_HEAD_DIM = SPRY_ATTEND_HEAD_DIM_MAX };

typedef enum spry_rope_kind {
    SPRY_ROPE_DEFAULT,
    SPRY_ROPE_LINEAR,
    SPRY_ROPE_LLAMA3,
    SPRY_ROPE_YARN,
    SPRY_ROPE_LONG
} spry_rope_kind;

/* How positions become angles. Fields a kind does not use are ignored. */
typedef struct spry_rope {
    spry_rope_kind kind;
    float theta;
    float factor;
    float low_freq_factor, high_freq_factor; /* llama3 */
    float beta_fast, beta_slow;              /* yarn */
    bool truncate;                           /* yarn: the ramp's ends are whole numbers */
    float attention_factor;                  /* scales cos and sin; 0: what the kind says */
    uint32_t original_context;
    /* NULL, or [rope_dim / 2] that divide the frequencies: GGUF's rope_freqs; long rope's two lists, of which sessions
     * within the original context use the first and longer ones the second. */
    const float *factors, *long_factors;
} spry_rope;

typedef struct spry_config {
    const struct spry_arch *arch;
    uint32_t n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff, n_vocab, n_context;
    uint32_t rope_dim;
    float norm_eps;
    uint32_t window;        /* sliding-window layers see this many keys; 0: no layer slides */
    uint32_t window_layers; /* what arch->slides needs: max_window_layers or the pattern's period */
    bool *sliding;          /* [n_layers] */
    float query_scalar;     /* scores are scaled by its -1/2 power; 0: head_dim */
    float attn_softcap, final_softcap;
    uint32_t n_experts, n_experts_used, n_expert_ff, n_shared_ff;
    bool normalise_experts; /* the chosen experts' weights are made to sum to 1 */
    bool qkv_bias;          /* q, k and v have biases that must be there */
    bool tied;              /* the output matrix is the embedding */
    bool interleaved;       /* rope pairs are (2i, 2i + 1) */
    spry_rope rope, rope_sliding;
} spry_config;

/* Both fill `config` (arrays from `arena`) and check every value. `name` is prepended to messages. n_vocab is set
 * later, from the embedding's shape. */
spry_status spry_config_from_gguf(spry_config *config, const spry_gguf *gguf, spry_arena *arena, spry_error *error);
spry_status spry_config_from_json(spry_config *config, const json_t *json, const char *name, spry_arena *arena,
                                  spry_error *error);

/* Shared by both readers. A source looks up one number: 1 found, 0 absent, -1 not a number. null counts as found and
 * 0. */
typedef int (*spry_config_number)(const void *source, const char *key, double *value);
typedef enum spry_config_dialect { SPRY_DIALECT_GGUF, SPRY_DIALECT_JSON } spry_config_dialect;
spry_status spry_config_read(spry_config *config, spry_config_dialect dialect, spry_config_number get,
                             const void *source, const char *name, spry_error *error);
/* Derives omitted values, checks everything, allocates `sliding` and fills it by the architecture's rule. */
spry_status spry_config_finish(spry_config *config, const char *name, spry_arena *arena, spry_error *error);

#endif
