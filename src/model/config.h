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

/* Sizes of the heads in one kind of layers. */
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

/* How positions become RoPE angles. Fields that a kind does not use are ignored. */
typedef struct spry_rope {
    spry_rope_kind kind;
    float theta;
    float factor;
    float low_freq_factor, high_freq_factor; /* llama3 */
    float beta_fast, beta_slow;              /* yarn */
    float share;                             /* proportional: the share of all pairs that are rotated, with the
                                              * frequencies of a complete head */
    bool truncate;                           /* yarn: the ends of the ramp are rounded to integers */
    float attention_factor;                  /* factor of cos and sin; 0: the kind's own */
    uint32_t original_context;
    /* NULL, or [rope_dim / 2]: divisors of the frequencies. They are GGUF's rope_freqs, or the two lists of long RoPE:
     * sessions within the original context use `factors`, longer ones `long_factors`. */
    const float *factors, *long_factors;
} spry_rope;

/* How the logits of a router become scores. The numbers are those of GGUF. */
typedef enum spry_routing {
    SPRY_ROUTING_SOFTMAX = 1,
    SPRY_ROUTING_SIGMOID = 2,
    SPRY_ROUTING_CHOSEN = 3,
    SPRY_ROUTING_ROOT = 4
} spry_routing;

/* How matrices stored as .qweight, .qzeros and .scales are encoded, older GPTQ files store zero points minus 1; or that
 * they are stored as .weight_packed and .weight_scale. */
typedef enum spry_int4 { SPRY_INT4_NONE, SPRY_INT4_GPTQ, SPRY_INT4_GPTQ_V2, SPRY_INT4_AWQ, SPRY_INT4_PACKED } spry_int4;

/* Features of models beyond the plain block. A device says which of them it can compute (device/device_impl.h) and
 * refuses models that need others. */
typedef enum spry_feature {
    SPRY_FEATURE_LAYER_NORM = 1 << 0,
    SPRY_FEATURE_NORM_PLACES = 1 << 1, /* norms only after attention and feed-forward, or both in parallel */
    SPRY_FEATURE_QK_NORM = 1 << 2,     /* norms of q and k of another kind than per head before RoPE */
    SPRY_FEATURE_UNROTATED = 1 << 3,   /* layers without RoPE */
    SPRY_FEATURE_SCALES = 1 << 4,      /* factors of embeddings, residuals or logits */
    SPRY_FEATURE_UNGATED = 1 << 5,
    SPRY_FEATURE_SINKS = 1 << 6,
    SPRY_FEATURE_CLAMPED = 1 << 7,  /* the gate of gpt-oss */
    SPRY_FEATURE_ROUTING = 1 << 8,  /* experts selected or weighted by something other than a softmax */
    SPRY_FEATURE_SHARED = 1 << 9,   /* a shared expert without a gate of its own */
    SPRY_FEATURE_LATENT = 1 << 10,  /* latent attention */
    SPRY_FEATURE_STREAMS = 1 << 11, /* several residual streams, inputs for each layer, layers that share keys and
                                     * values */
    SPRY_FEATURE_ENCODER = 1 << 12, /* rows see the whole text, learned positions, norms of residual sums */
    SPRY_FEATURE_CONVOLUTIONS = 1 << 13,
    SPRY_FEATURE_DELTA = 1 << 14,       /* gated delta nets, gated attention */
    SPRY_FEATURE_TEMPERATURE = 1 << 15, /* queries scaled by position */
    SPRY_FEATURE_CHUNKED = 1 << 16,     /* attention within blocks of positions */
    SPRY_FEATURE_GATES = 1 << 17,       /* gates of attention from a separate matrix */
    SPRY_FEATURE_BARE_NORM = 1 << 18,   /* norms of q and k without weights */
    SPRY_FEATURE_MIXING = 1 << 19,      /* scaled inputs of experts, halved sums, groups rated by two experts */
    SPRY_FEATURE_KINDS = 1 << 20,       /* sliding layers with heads of other sizes; values of another size than keys */
    SPRY_FEATURE_BESIDE = 1 << 21,      /* experts in addition to a dense part, layer scalars, inputs for each layer */
    SPRY_FEATURE_TYPES = 1 << 22,       /* tokens of a second type */
    SPRY_FEATURE_MAMBA = 1 << 23,       /* Mamba-2, layers of a single part, scaled products */
    SPRY_FEATURE_INNER_NORMS = 1 << 24, /* norms in other places in some layers */
    SPRY_FEATURE_INDEXER = 1 << 25,     /* attention to the keys that an indexer selects */
    SPRY_FEATURE_BLOCKS = 1 << 26,      /* blocks that layers share */
    SPRY_FEATURE_COMPRESSED = 1 << 27,  /* entries that join tokens, hyper-connections */
    SPRY_FEATURES_END = 1 << 28
} spry_feature;

/* Which parts a layer has. */
typedef enum spry_layer_kind {
    SPRY_LAYER_BOTH,  /* attention (or what replaces it) and feed-forward */
    SPRY_LAYER_MIXES, /* only attention (or what replaces it) */
    SPRY_LAYER_FEEDS, /* only feed-forward */
} spry_layer_kind;

typedef struct spry_config {
    const struct spry_arch *arch;
    uint32_t n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff, n_vocab, n_context;
    uint32_t rope_dim;
    spry_heads slide;     /* sizes in sliding layers; 0: same as in other layers */
    float value_scale;    /* factor of the values */
    uint32_t n_ff_shared; /* feed-forward size of layers that share keys and values; 0: n_ff */
    /* Multi-head latent attention: a key is [rope_dim | n_kv_rank], where the second part is also the value; head_dim
     * is the size of both together. Queries are projected through n_q_rank values, 0: directly. In the model's own
     * terms a head has nope_dim + rope_dim coordinates, and values have value_dim. */
    uint32_t n_kv_rank, n_q_rank, nope_dim, value_dim;
    uint32_t key_dim; /* nope_dim + rope_dim, if the file gives that */
    float latent_log; /* yarn's factor of scores: (1 + this * log(factor)) squared */
    /* Sparse attention: an indexer with n_index_heads heads of index_dim rates the keys, and a row attends to the
     * index_top best ones. 0: rows attend to all. */
    uint32_t n_index_heads, index_dim, index_top;
    bool index_interleaved; /* the indexer's RoPE pairs are (2i, 2i + 1) */
    /* DeepSeek V4: tokens that an entry joins, [n_layers], 0: the layer has none; whether entries join as many more
     * before them, and are selected by an indexer, [n_layers]. Groups of heads with output matrices of their own, and
     * the size of their results. Residual streams, rounds that balance their mixing matrix, and an epsilon. Layers
     * whose experts follow from the token; limit of gates and of what they multiply, 0: none. */
    uint32_t *rates;
    bool *overlaps;
    uint32_t n_out_groups, out_rank, n_hyper, hyper_rounds, n_hashed;
    float hyper_eps, gate_limit;
    bool *indexes;                       /* [n_layers]: the layer has an indexer */
    uint32_t *index_layer;               /* [n_layers]: the layer whose choice of keys a layer uses */
    uint32_t *index_slot, n_index_slots; /* [n_layers]: where the keys of a layer's indexer are in pages */
    /* Gemma 3n: number of residual streams, and the one that layers compute; size of the input that a token gives to
     * each layer; number of last layers that use keys and values of an earlier layer. 0: the model has none. */
    uint32_t n_streams, active_stream, n_layer_embd, n_shared_kv;
    bool unscaled_stream; /* the corrected stream is added to the others without a factor */
    uint32_t *kv_layer;   /* [n_layers]: the layer whose keys and values a layer uses */
    uint32_t *kv_slot;    /* [n_layers]: a layer's slot in pages, out of n_kv_slots, or out of n_slide_slots for sliding
                           * layers with other sizes */
    uint32_t n_kv_slots, n_slide_slots;
    uint32_t n_conv;      /* number of tokens that a short convolution covers */
    bool *convolves;      /* [n_layers]: the layer has a convolution or a recurrent state in place of attention (with
                           * arch->both_mixers: in addition to it) */
    unsigned char *kinds; /* [n_layers]: spry_layer_kind */
    /* Gated delta nets: each head has a state [delta_key_dim, delta_value_dim], and groups of heads share queries and
     * keys. Heads of Mamba-2 correspond to these: B is the keys, C the queries, x the values. */
    uint32_t *state_slot; /* [n_layers]: index of the layer among the layers with a state */
    uint32_t n_delta_layers, n_delta_heads, n_delta_keys, delta_key_dim, delta_value_dim;
    bool delta_tiled;                      /* heads h, h + n_delta_keys, ... share a key head */
    uint32_t delta_norm_size;              /* number of values that are normalised together; 0: no norm */
    bool delta_unnormed, delta_norm_first; /* Mamba-2: results are not normalised; results are normalised before they
                                            * are gated */
    bool delta_gate_first;                 /* results are gated before they are normalised */
    float delta_norm_eps;                  /* 0: norm_eps */
    float beta_scale;                      /* factor of the sigmoid that gives beta */
    float time_limit[2];                   /* Mamba-2: limits of the time steps */
    uint32_t n_expand; /* Mamba-2: the total size of the values is this times n_embd, if the file gives that */
    float attention_in_scale, attention_out_scale, key_scale, state_in_scale,
        state_out_scale;                           /* factors of Falcon-H1 */
    float gate_scale, down_scale, state_scales[5]; /* factors of z, x, B, C, dt */
    /* Zamba2: number of blocks that layers share; rank of what a layer adds to their products; the layers that have one
     * before their recurrent part, and the layers under which their tensors are stored, [n_layers]. */
    uint32_t n_blocks, block_rank;
    bool block_attention; /* queries, keys and values have such additions, too */
    bool *blocks;
    uint32_t *block_layer;
    uint32_t n_latent;           /* size of the experts' inputs, if rows are projected to fewer values for them; 0:
                                  * n_embd */
    bool unrotated;              /* no layer has rope */
    uint32_t delta_inner;        /* total size of the values, if the file gives that */
    uint32_t attention_interval; /* every layer whose number is a multiple of this has attention, if the file does not
                                  * list them */
    const float *sparsity;    /* NULL, or [n_layers]: gates below mean + this * standard deviation become 0; -INFINITY:
                               * none do */
    float rope_part;          /* share of a head that RoPE rotates, if the file has such a field; 0: the complete
                               * head */
    uint32_t rope_interval;   /* for arch->rotates */
    bool *rotated;            /* [n_layers]: the layer has RoPE */
    bool bidirectional;       /* rows see the whole text, which must be computed in one step; there are no logits */
    uint32_t second_type;     /* rows after the first token with the id second_type - 1 have the second token type; 0:
                               * none has */
    uint32_t position_offset; /* position of the first row in the table of learned positions */
    float norm_eps;
    float layer_norm_eps;   /* the epsilon of models with layer norms */
    uint32_t window;        /* number of keys that sliding layers see; 0: no layer slides */
    uint32_t window_layers; /* for arch->slides: max_window_layers, or the pattern's period */
    bool *sliding;          /* [n_layers] */
    uint32_t normed_dim;    /* values of a head that norms of heads cover; 0: all */
    float query_scalar;     /* scores are multiplied by this to the power of -1/2; 0: head_dim is used */
    float attention_scale;  /* or scores are multiplied by this; 0: not given */
    float attn_softcap, final_softcap;
    float embedding_scale, residual_scale, logit_scale; /* factors of embeddings, of the results of attention and
                                                         * feed-forward, and of logits */
    /* Queries are multiplied by 1 + temperature_scale * log(1 + floor((position + temperature_offset) /
     * temperature_length)); temperature_length 0: no factor. */
    float temperature_scale;
    uint32_t temperature_length, temperature_offset;
    uint32_t n_experts, n_experts_used, n_expert_ff, n_shared_ff;
    uint32_t n_dense_ff;              /* feed-forward size of dense layers, if the file's usual size is that of
                                       * experts */
    uint32_t n_dense_first;           /* number of first layers without experts */
    uint32_t dense_pattern;           /* 1: these layers have RoPE although they do not slide */
    uint32_t rotary_dim;              /* number of rotated coordinates of a head, if the file gives that */
    float weight_eps;                 /* added to the sum by which weights of experts are divided */
    uint32_t n_shared;                /* number of shared experts without a gate, which are computed as one of their
                                       * total size */
    uint32_t routing;                 /* spry_routing */
    uint32_t n_groups, n_groups_used; /* experts are selected from the best groups; 1 or 0: from all */
    float routed_scale;               /* factor of the experts' weights */
    uint32_t n_extra_layers;          /* number of layers after the model's own, which draft (draft_head.h) */
    uint32_t int4;                    /* spry_int4: how matrices of 4-bit integers are stored */
    uint32_t int4_group;              /* inputs that share a scale; 0: all */
    uint32_t scale_block[2];          /* rows and columns of a block of 8-bit floats with one scale */
    bool normalise_experts;           /* the weights of the selected experts are divided by their sum */
    bool keys_as_values;              /* full layers have no values of their own */
    bool choice_bias;                 /* experts are selected by score plus a bias, which must be present */
    bool average_shared;              /* the sum of the selected and the shared experts is halved */
    bool layer_norm;                  /* norms subtract the mean */
    bool norm_bias;                   /* layer norms have biases, which must be present */
    bool qkv_bias;                    /* q, k and v have biases, which must be present */
    bool every_bias;                  /* the output projection of attention and the feed-forward matrices have biases,
                                       * which must be present */
    bool qk_norm;                     /* q and k have norms, which must be present */
    bool tied;                        /* the output matrix is the embedding */
    bool interleaved;                 /* rope pairs are (2i, 2i + 1) */
    const char *prefix;               /* prefix of a tower's tensors; NULL: not a tower, or not bound yet */
    const bool *windowed;             /* NULL, or [n_layers]: rows see those of their segment alone; of towers */
    uint32_t n_taps;                  /* layers whose output is wanted beside the last one's, at most SPRY_MAX_TAPS */
    uint32_t taps[SPRY_MAX_TAPS];     /* n_layers: the normalised output of the last one */
    uint32_t n_draft_in;              /* a head that drafts: values that its first matrix reads; 0: a model */
    const uint8_t *rope_axes; /* NULL, or [rope_dim / 2]: the coordinate by which a pair is rotated: time 0, row 1,
                               * column 2 */
    spry_rope rope, rope_sliding;
} spry_config;

/* The sizes of the heads in a layer. */
spry_heads spry_config_heads(const spry_config *config, uint32_t layer);

/* True if sliding layers have slots of their own in pages. */
bool spry_config_has_kinds(const spry_config *config);

/* Number of inputs of a delta net's convolution: queries, keys and values of all heads. Then, number of floats that a
 * page stores for a layer. */
size_t spry_config_delta_mixed(const spry_config *config);
size_t spry_config_delta_floats(const spry_config *config);

/* True if a layer has attention; a recurrent state; feed-forward. */
bool spry_config_attends(const spry_config *config, uint32_t layer);
bool spry_config_recurs(const spry_config *config, uint32_t layer);
static inline bool spry_config_feeds(const spry_config *c, uint32_t layer)
{
    return c->kinds[layer] != SPRY_LAYER_MIXES;
}

/* True if a layer begins with a block that other layers share. */
bool spry_config_has_block(const spry_config *config, uint32_t layer);

/* Vectors of the first kind that a layer with compressed attention has in pages. */
uint32_t spry_config_places(const spry_config *config, uint32_t layer);

/* Offsets of a head's queries, keys and values among the mixed inputs of a recurrent layer. */
typedef struct spry_mixed_places {
    size_t q, k, v;
} spry_mixed_places;
spry_mixed_places spry_config_mixed_places(const spry_config *config, size_t head);

/* The key head that a head of a delta net uses: neighbouring heads share one, or in `delta_tiled` models every n-th
 * head. */
static inline uint32_t spry_config_key_head(const spry_config *c, size_t head)
{
    return (uint32_t)(c->delta_tiled ? head % c->n_delta_keys : head / (c->n_delta_heads / c->n_delta_keys));
}

/* True if a GGUF file of Llama 4 has norms of q and k: all but the largest model have them. */
bool spry_config_has_bare_norms(const spry_config *config);

/* The features of spry_feature that a model uses. */
uint32_t spry_config_features(const spry_config *config);

/* Writes the names of the features: "layer norms, ungated feed-forward". */
void spry_features_describe(char *out, size_t size, uint32_t features);

/* Both functions fill in `config` (arrays from `arena`) and check every value. Messages begin with `name`. n_vocab is
 * set later, from the embedding's shape. */
spry_status spry_config_from_gguf(spry_config *config, const spry_gguf *gguf, spry_arena *arena, spry_error *error);
spry_status spry_config_from_json(spry_config *config, const json_t *json, const char *name, spry_arena *arena,
                                  spry_error *error);

/* Used by both readers. Looks up a number in a source: returns 1 if found, 0 if absent, -1 if it is not a number. null
 * is found, with value 0. */
typedef int (*spry_config_number)(const void *source, const char *key, double *value);
typedef enum spry_config_dialect { SPRY_DIALECT_GGUF, SPRY_DIALECT_JSON } spry_config_dialect;
spry_status spry_config_read(spry_config *config, spry_config_dialect dialect, spry_config_number get,
                             const void *source, const char *name, spry_error *error);
/* Derives omitted values, checks everything, allocates the lists of layers and fills them in by the architecture's
 * rules. */
spry_status spry_config_finish(spry_config *config, const char *name, spry_arena *arena, spry_error *error);
/* Rope with three axes: n[axis] pairs turn by time, row and column, one axis after the other or taking turns. */
spry_status spry_config_set_axes(spry_config *config, const uint32_t n[3], bool mixed, spry_arena *arena,
                                 spry_error *error);
/* Decides again which layers have rope, and where they are in pages, once the file has said what they are. */
void spry_config_sort_layers(spry_config *config);

/* angles of RoPE */

/* The angle in radians by which each pair is rotated per position, [rope_dim / 2], in sessions of up to `session`
 * tokens; returns the factor of cos and sin. */
float spry_rope_frequencies(float *frequencies, const spry_rope *rope, size_t rope_dim, uint32_t session);

/* cos and sin of one position, [n_pairs] each. */
void spry_rope_angles(float *cosine, float *sine, const float *frequencies, float magnitude, size_t n_pairs,
                      uint32_t position);

/* cos and sin of a place with three coordinates; `axes` gives the coordinate of each pair; NULL: all pairs use the
 * first. */
void spry_rope_angles_at(float *cosine, float *sine, const float *frequencies, float magnitude, size_t n_pairs,
                         const uint32_t at[3], const uint8_t *axes);

#endif
