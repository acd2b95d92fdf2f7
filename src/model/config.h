/* The properties of a model apart from its weights: sizes and switches, read from config.json or GGUF metadata and
 * checked. */
#ifndef SPRY_MODEL_CONFIG_H
#define SPRY_MODEL_CONFIG_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buffer.h"
#include "base/error.h"
#include "formats/gguf.h"
#include "kernels/ops.h"

enum { SPRY_MAX_STREAMS = 16, SPRY_MAX_TAPS = 8 };
enum { SPRY_MAX_LAYERS = 1024, SPRY_MAX_EXPERTS = 1024, SPRY_MAX_HEAD_DIM = 512, SPRY_MAX_DELTA_DIM = 256 };

/* Heads of one kind of layers. */
typedef struct spry_heads {
    uint32_t n_kv_heads, head_dim, rope_dim;
} spry_heads;

typedef enum spry_rope_kind {
    SPRY_ROPE_DEFAULT,
    SPRY_ROPE_LINEAR,
    SPRY_ROPE_LLAMA3,
    SPRY_ROPE_YARN,
    SPRY_ROPE_LONG,
    SPRY_ROPE_PROPORTIONAL
} spry_rope_kind;

/* How positions become angles. Fields a kind does not use are ignored. */
typedef struct spry_rope {
    spry_rope_kind kind;
    float theta;
    float factor;
    float low_freq_factor, high_freq_factor; /* llama3 */
    float beta_fast, beta_slow;              /* yarn */
    float share;                             /* proportional: of all pairs that turn, at the speeds of a whole head */
    bool truncate;                           /* yarn: the ramp's ends are whole numbers */
    float attention_factor;                  /* scales cos and sin; 0: what the kind says */
    uint32_t original_context;
    /* NULL, or [rope_dim / 2] that divide the frequencies: GGUF's rope_freqs; long rope's two lists, of which sessions
     * within the original context use the first and longer ones the second. */
    const float *factors, *long_factors;
} spry_rope;

/* How logits of a router become scores. The numbers are GGUF's. */
typedef enum spry_routing { SPRY_ROUTING_SOFTMAX = 1, SPRY_ROUTING_SIGMOID = 2, SPRY_ROUTING_CHOSEN = 3 } spry_routing;

/* Matrices as .qweight, .qzeros and .scales. GPTQ's older files hold zero points less 1. */
typedef enum spry_int4 { SPRY_INT4_NONE, SPRY_INT4_GPTQ, SPRY_INT4_GPTQ_V2, SPRY_INT4_AWQ } spry_int4;

/* Parts of a model beyond the plain block. A device says which it computes (device/device_impl.h); models that use
 * others are refused there. */
typedef enum spry_feature {
    SPRY_FEATURE_LAYER_NORM = 1 << 0,
    SPRY_FEATURE_NORM_PLACES = 1 << 1, /* norms only after parts, parts side by side */
    SPRY_FEATURE_QK_NORM = 1 << 2,     /* norms of q and k other than per head, before rope */
    SPRY_FEATURE_UNROTATED = 1 << 3,   /* layers without rope */
    SPRY_FEATURE_SCALES = 1 << 4,      /* multipliers of embeddings, residuals or logits */
    SPRY_FEATURE_UNGATED = 1 << 5,
    SPRY_FEATURE_SINKS = 1 << 6,
    SPRY_FEATURE_CLAMPED = 1 << 7,  /* gpt-oss's gate */
    SPRY_FEATURE_ROUTING = 1 << 8,  /* experts chosen or weighted other than by a softmax */
    SPRY_FEATURE_SHARED = 1 << 9,   /* a shared expert without a gate of its own */
    SPRY_FEATURE_LATENT = 1 << 10,  /* latent attention */
    SPRY_FEATURE_STREAMS = 1 << 11, /* several residual streams, inputs by layer, shared keys and values */
    SPRY_FEATURE_ENCODER = 1 << 12, /* rows see all of their text, learned positions, norms of sums */
    SPRY_FEATURE_CONVOLUTIONS = 1 << 13,
    SPRY_FEATURE_DELTA = 1 << 14,       /* gated delta nets, gated attention */
    SPRY_FEATURE_TEMPERATURE = 1 << 15, /* queries scaled by position */
    SPRY_FEATURE_CHUNKED = 1 << 16,     /* attention within blocks of positions */
    SPRY_FEATURE_GATES = 1 << 17,       /* gates of attention that come from a matrix of their own */
    SPRY_FEATURE_BARE_NORM = 1 << 18,   /* norms of q and k without weights */
    SPRY_FEATURE_MIXING = 1 << 19,      /* experts' inputs scaled, halved sums, groups as good as two experts */
    SPRY_FEATURE_KINDS = 1 << 20,       /* layers that slide have heads of other sizes; values of a size of their own */
    SPRY_FEATURE_BESIDE = 1 << 21,      /* experts beside a dense part, layer scalars, inputs by layer */
    SPRY_FEATURE_TYPES = 1 << 22,       /* tokens of a second type */
    SPRY_FEATURE_MAMBA = 1 << 23,       /* Mamba-2, layers of one part, scaled products */
    SPRY_FEATURES_END = 1 << 24
} spry_feature;

/* The parts of a layer. */
typedef enum spry_layer_kind {
    SPRY_LAYER_BOTH,  /* attention, or what replaces it, and a feed-forward part */
    SPRY_LAYER_MIXES, /* the first alone */
    SPRY_LAYER_FEEDS, /* the second alone */
} spry_layer_kind;

typedef struct spry_config {
    const struct spry_arch *arch;
    uint32_t n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff, n_vocab, n_context;
    uint32_t rope_dim;
    spry_heads slide;     /* of layers that slide; 0: as the others */
    float value_scale;    /* what values are multiplied by */
    uint32_t n_ff_shared; /* the feed-forward size of layers that share keys and values; 0: n_ff */
    /* Latent attention: keys are [rope_dim | n_kv_rank], the latter are the values, too; head_dim is both. Queries come
     * through n_q_rank, 0: directly; in the model's terms a head has nope_dim + rope_dim and values of value_dim. */
    uint32_t n_kv_rank, n_q_rank, nope_dim, value_dim;
    uint32_t key_dim; /* nope_dim + rope_dim, where the file says that */
    float latent_log; /* yarn's factor of latent scores: 1 + this * log(factor), squared */
    /* Gemma 3n: residual streams, of which layers compute one; numbers a token gives to each layer; how many of the
     * last layers use keys and values of an earlier one. 0: none of that. */
    uint32_t n_streams, active_stream, n_layer_embd, n_shared_kv;
    bool unscaled_stream; /* the corrected one gives to the others as it is */
    uint32_t *kv_layer;   /* [n_layers]: whose keys and values a layer sees */
    uint32_t *kv_slot;    /* [n_layers]: its place in pages, of n_kv_slots, or of n_slide_slots for layers that slide
                           * and have other sizes */
    uint32_t n_kv_slots, n_slide_slots;
    uint32_t n_conv; /* tokens that a short convolution sees */
    bool *convolves; /* [n_layers]: has one, or a recurrent state, instead of attention (arch->beside: and attention) */
    unsigned char *kinds; /* [n_layers]: spry_layer_kind */
    /* Gated delta nets: heads with a state [delta_key_dim, delta_value_dim] each, groups of which share queries and
     * keys. Mamba-2's heads are alike: B is their keys, C their queries, x their values. */
    uint32_t *state_slot; /* [n_layers]: the layer's place among those with a state */
    uint32_t n_delta_layers, n_delta_heads, n_delta_keys, delta_key_dim, delta_value_dim;
    bool delta_tiled;                      /* heads h, h + n_delta_keys, ... share a key head */
    uint32_t delta_norm_size;              /* values that are normalised together; 0: none */
    bool delta_unnormed, delta_norm_first; /* Mamba-2: results are not normalised; or before they are gated */
    bool delta_gate_first;                 /* results are gated before they are normalised */
    float delta_norm_eps;                  /* 0: norm_eps */
    float beta_scale;                      /* of the sigmoid that gives beta */
    float time_limit[2];                   /* Mamba-2: steps in time are within them */
    uint32_t n_expand; /* Mamba-2: the size of all values is this times n_embd, where the file says so */
    float attention_in_scale, attention_out_scale, key_scale, state_in_scale, state_out_scale; /* Falcon-H1's */
    float gate_scale, down_scale, state_scales[5];                                             /* of z, x, B, C, dt */
    uint32_t n_latent;           /* size of experts' inputs, where rows are made smaller for them; 0: n_embd */
    bool unrotated;              /* no layer has rope */
    uint32_t delta_inner;        /* the size of all values, where the file says that */
    uint32_t attention_interval; /* one layer in this number has attention, where the file does not list them */
    const float *sparsity;    /* NULL, or [n_layers]: gates below mean + this * deviation become 0; -INFINITY: none */
    float rope_part;          /* share of a head that is rotated, if the file has such a field; 0: the whole head */
    uint32_t rope_interval;   /* for arch->rotates */
    bool *rotated;            /* [n_layers]: has rope */
    bool bidirectional;       /* rows see all of their text, which must be computed in one step; no logits */
    uint32_t second_type;     /* rows after the first of token second_type - 1 have the second type; 0: none has */
    uint32_t position_offset; /* of the first row of learned positions */
    float norm_eps;
    float layer_norm_eps;   /* the same field of models with layer norms */
    uint32_t window;        /* sliding-window layers see this many keys; 0: no layer slides */
    uint32_t window_layers; /* for arch->slides: max_window_layers, or the pattern's period */
    bool *sliding;          /* [n_layers] */
    float query_scalar;     /* scores are scaled by its -1/2 power; 0: head_dim */
    float attention_scale;  /* or by this; 0: not said */
    float attn_softcap, final_softcap;
    float embedding_scale, residual_scale, logit_scale; /* factors of embeddings, of parts' results, and of logits */
    /* Queries are multiplied by 1 + temperature_scale * log(1 + floor((position + temperature_offset) /
     * temperature_length)); temperature_length is 0: by nothing. */
    float temperature_scale;
    uint32_t temperature_length, temperature_offset;
    uint32_t n_experts, n_experts_used, n_expert_ff, n_shared_ff;
    uint32_t n_dense_ff;              /* of dense layers, where the file's usual size is that of experts */
    uint32_t n_dense_first;           /* layers without experts before those with them */
    uint32_t dense_pattern;           /* 1: those have rope although they do not slide */
    uint32_t rotary_dim;              /* what is rotated of a head, where the file says that */
    float weight_eps;                 /* added to the sum that experts' weights are divided by */
    uint32_t n_shared;                /* shared experts without a gate, as one of their size together */
    uint32_t routing;                 /* spry_routing */
    uint32_t n_groups, n_groups_used; /* experts are chosen from the best groups; 1 or 0: from all */
    float routed_scale;               /* factor of experts' weights */
    uint32_t n_extra_layers;          /* after the model's own, for predicting further tokens; not used */
    uint32_t int4;                    /* spry_int4: how matrices of 4-bit numbers are stored */
    uint32_t int4_group;              /* inputs that share a scale; 0: all */
    uint32_t scale_block[2];          /* rows and columns of an 8-bit float's scale */
    bool normalise_experts;           /* the chosen experts' weights are made to sum to 1 */
    bool keys_as_values;              /* layers that do not slide have no values of their own */
    bool choice_bias;                 /* experts are chosen by score plus a bias, which must be there */
    bool average_shared;              /* the sum of chosen and shared experts is halved */
    bool layer_norm;                  /* norms subtract the mean */
    bool qkv_bias;                    /* q, k and v have biases that must be there */
    bool every_bias;                  /* attention's output and feed-forward parts have biases that must be there */
    bool qk_norm;                     /* q and k have norms that must be there */
    bool tied;                        /* the output matrix is the embedding */
    bool interleaved;                 /* rope pairs are (2i, 2i + 1) */
    const char *prefix;               /* of a tower's tensors; NULL: not a tower, or not bound yet */
    const bool *windowed;             /* NULL, or [n_layers]: rows see those of their segment alone; of towers */
    uint32_t n_taps;                  /* layers whose output is wanted beside the last one's, at most SPRY_MAX_TAPS */
    uint32_t taps[SPRY_MAX_TAPS];
    const uint8_t *rope_axes; /* NULL, or [rope_dim / 2]: pairs turn by a row's time, row or column: 0, 1, 2 */
    spry_rope rope, rope_sliding;
} spry_config;

/* The heads of a layer. */
spry_heads spry_config_heads(const spry_config *config, uint32_t layer);

/* Whether layers that slide have places of their own in pages. */
bool spry_config_has_kinds(const spry_config *config);

/* Inputs of a delta net's convolution: queries, keys and values of all heads; floats that a page keeps of a layer. */
size_t spry_config_delta_mixed(const spry_config *config);
size_t spry_config_delta_floats(const spry_config *config);

/* Whether a layer has attention, a recurrent state, a feed-forward part. */
bool spry_config_attends(const spry_config *config, uint32_t layer);
bool spry_config_recurs(const spry_config *config, uint32_t layer);
static inline bool spry_config_feeds(const spry_config *c, uint32_t layer)
{
    return c->kinds[layer] != SPRY_LAYER_MIXES;
}

/* Where a recurrent layer's queries, keys and values are among its mixed inputs. */
typedef struct spry_mixed_places {
    size_t q, k, v;
} spry_mixed_places;
spry_mixed_places spry_config_mixed_places(const spry_config *config, size_t head);

/* The key head of a head of a delta net: neighbouring heads share one, or in `delta_tiled` models every n-th head. */
static inline uint32_t spry_config_key_head(const spry_config *c, size_t head)
{
    return (uint32_t)(c->delta_tiled ? head % c->n_delta_keys : head / (c->n_delta_heads / c->n_delta_keys));
}

/* Whether a GGUF file of Llama 4 has norms of q and k: all but its largest model have. */
bool spry_config_has_bare_norms(const spry_config *config);

/* The bits of spry_feature for what a model uses. */
uint32_t spry_config_features(const spry_config *config);

/* "layer norms, ungated feed-forward": the names of the bits. */
void spry_features_describe(char *out, size_t size, uint32_t features);

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
/* Derives omitted values, checks everything, allocates the lists of layers and fills them by the architecture's rules.
 */
spry_status spry_config_finish(spry_config *config, const char *name, spry_arena *arena, spry_error *error);
/* Rope with three axes: n[axis] pairs turn by time, row and column, one axis after the other or taking turns. */
spry_status spry_config_set_axes(spry_config *config, const uint32_t n[3], bool mixed, spry_arena *arena,
                                 spry_error *error);
/* Decides again which layers have rope, and where they are in pages, once the file has said what they are. */
void spry_config_sort_layers(spry_config *config);

/* From a rope description to angles. */

/* Radians a position turns each pair by, [rope_dim / 2], in sessions of up to `session` tokens; returns what cos and
 * sin are multiplied by. */
float spry_rope_frequencies(float *frequencies, const spry_rope *rope, size_t rope_dim, uint32_t session);

/* cos and sin of one position, [n_pairs] each. */
void spry_rope_angles(float *cosine, float *sine, const float *frequencies, float magnitude, size_t n_pairs,
                      uint32_t position);

/* cos and sin of one place, whose coordinates pairs use as `axes` says; NULL: all pairs use the first. */
void spry_rope_angles_at(float *cosine, float *sine, const float *frequencies, float magnitude, size_t n_pairs,
                         const uint32_t at[3], const uint8_t *axes);

#endif
