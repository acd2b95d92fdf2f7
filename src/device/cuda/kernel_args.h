/* The arguments of the kernels, one struct each, for both the C that launches and the CUDA that computes: an address
 * on the GPU is an integer for C and a pointer for CUDA. Rows are the tokens of a step. All matrices are row-major
 * floats unless noted. */
#ifndef SPRY_DEVICE_CUDA_KERNEL_ARGS_H
#define SPRY_DEVICE_CUDA_KERNEL_ARGS_H

#include <stdint.h>

#ifdef __cplusplus
#define SPRY_AT(type)       type *
#define SPRY_ALIGNED(bytes) alignas(bytes)
#else
#define SPRY_AT(type)       uint64_t
#define SPRY_ALIGNED(bytes) _Alignas(bytes)
#endif

/* Threads of blocks that several kernels have in common. */
enum {
    SPRY_WARP = 32,
    SPRY_ROW_THREADS = 256,        /* kernels over rows */
    SPRY_HEADS_THREADS = 128,      /* kernels/heads.cu */
    SPRY_SPLITK_THREADS = 512,     /* a warp for each of SPRY_SPLIT_K splits */
    SPRY_PLAIN_THREADS = 256,      /* gemm_mma.cuh */
    SPRY_WIDE_THREADS = 256,       /* gemm_mma.cuh */
    SPRY_MULTISTAGE_THREADS = 128, /* gemm_mma.cu */
    SPRY_WARPGROUP_THREADS = 128,
    SPRY_WGMMA_THREADS = 192,         /* gemm_wgmma.cu: a consumer warpgroup, the producer and the norm warp; */
    SPRY_WGMMA_THREADS_2 = 384,       /* two consumer warpgroups, and a warpgroup with those warps */
    SPRY_PREFILL_WGMMA_THREADS = 384, /* attention_wgmma.cu */
    SPRY_COMBINE_THREADS = 128,       /* online_softmax.cuh */
};

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* A weight matrix on the GPU: tiles of 16 outputs, in units of 64 inputs, in the operand order of a warp
 * (weight_tiles.cuh). The last tile and unit are padded with zeros. Quantised types have further planes: high bits,
 * scales of groups, scales of 256 inputs. */
enum { SPRY_TILE_ROWS = 16, SPRY_TILE_UNIT = 64, SPRY_TILE_GROUP = 4 };

typedef struct spry_tiles {
    SPRY_AT(unsigned char) base;
    /* Offsets of the planes in bytes. With Vulkan a matrix may be where its file is mapped: scale is 0, high the bytes
     * of a row. */
    uint64_t high, scale, super;
    uint64_t matrix_bytes; /* all planes; the experts of a layer follow each other */
    uint32_t n_out, n_in;
    uint32_t n_tiles, n_units;
} spry_tiles;

/* Repacks rows of a file's blocks into tiles. Grid: (units, tiles), 32 threads. */
typedef struct spry_repack_args {
    spry_tiles to;
    SPRY_AT(const unsigned char) rows; /* from tile `first_tile` on */
    uint64_t row_bytes;
    uint32_t first_tile;
} spry_repack_args;

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* Inputs of GEMMs in groups of 8 rows (activations.cuh), as sums of bf16 terms. Rows that pass an RMS norm are
 * multiplied by its weights; 1 / rms is applied to the sums of the product. */
enum { SPRY_ACT_ROWS = 8 };

/* Bytes of a group of rows and a unit, for each bf16 term. */
enum { SPRY_ACT_TERM_BYTES = 1024 };

/* A format has one bf16 term more than its number. */
typedef enum spry_act_format { SPRY_ACT_BF16, SPRY_ACT_BF16X2, SPRY_ACT_BF16X3, SPRY_ACT_FORMATS } spry_act_format;

typedef struct spry_activations {
    SPRY_AT(unsigned char) values;
    SPRY_AT(float)
    norms; /* NULL, or [rows]: 1 / rms; in the wgmma layout the sums of squares of units, [units, 8 * wgmma_groups] */
    uint32_t n_units;      /* units of 64 inputs */
    uint32_t wgmma_groups; /* wgmma layout: groups of rows, a multiple of 8; 0: mma layout */
} spry_activations;

/* Normalises each row (with a weight), gates it (with `up`; with `ungated` by its activation alone) or leaves it
 * unchanged, and stores it in the formats of `to` whose `values` is not NULL. With `source`, row i comes from row
 * source[i] of `in`; a negative number means none. Grid: one block per row; in spry_quantise_wgmma one warp per 8 rows
 * and unit of 64 inputs. */
enum { SPRY_QUANTISE_THREADS = 256, SPRY_QUANTISE_WGMMA_UNITS = 4 };

typedef struct spry_quantise_args {
    SPRY_AT(const float) in;
    SPRY_AT(const float) up;     /* NULL, or like `in`: row = activation(in) * up */
    SPRY_AT(const float) weight; /* NULL, or [n]: row = in / rms(in) * weight */
    SPRY_AT(const float) bias;   /* NULL, or [n]: the bias of a layer norm */
    SPRY_AT(float) plain;        /* NULL, or the row as floats */
    SPRY_AT(const int32_t) source;
    spry_activations to[SPRY_ACT_FORMATS];
    uint32_t n, n_rows, in_stride;
    float eps;
    uint32_t gate; /* spry_gate */
    uint32_t ungated;
    uint32_t centre; /* a layer norm: the mean is subtracted first, and rows are normalised before the product */
} spry_quantise_args;

/* Normalises x in place: `n_groups` groups of n values in a row. The weights of a group are `step` after the weights of
 * the previous one; all groups have the same bias. Grid: (rows, groups). */
typedef struct spry_norm_args {
    SPRY_AT(float) x;
    SPRY_AT(const float) weight; /* NULL: ones */
    SPRY_AT(const float) bias;   /* NULL, or [n] */
    uint32_t n, n_groups, step;
    float eps;
    uint32_t centre;
} spry_norm_args;

/* x += y * factors * scale; with a weight y is normalised first, or the sum afterwards; then x *= sum_scale. Grid:
 * rows.
 */
typedef struct spry_residual_args {
    SPRY_AT(float) x;
    SPRY_AT(const float) y;
    SPRY_AT(const float) weight; /* NULL, or [n] */
    SPRY_AT(const float) bias;   /* NULL, or [n] */
    uint32_t n;
    float eps, scale;
    uint32_t centre;
    uint32_t of_sum;              /* the norm is applied to the sum */
    float sum_scale;              /* 0: none */
    SPRY_AT(const float) factors; /* NULL, or [n]: y is multiplied by them before the sum */
} spry_residual_args;

/* out = in, but no less than `least` and no more than `most`, for rows of n values that are `stride` apart in `out`.
 * Grid: rows. */
typedef struct spry_limit_args {
    SPRY_AT(float) out;
    SPRY_AT(const float) in; /* [rows, n], or `out` itself */
    uint64_t stride, in_stride;
    uint32_t n;
    float least, most;
} spry_limit_args;

/* x *= scale, for rows of n values that are `stride` apart. Grid: rows. */
typedef struct spry_scale_args {
    SPRY_AT(float) x;
    uint64_t stride;
    uint32_t n;
    float scale;
} spry_scale_args;

/* x = activation(gate) * x, for rows of n values. Grid: rows. */
typedef struct spry_gate_args {
    SPRY_AT(float) x;
    SPRY_AT(const float) gate;
    uint32_t n, kind; /* spry_gate */
} spry_gate_args;

/* ---- gemm -------------------------------------------------------------------------------------------------------- */

enum { SPRY_GEMM_PARTS = 3, SPRY_SPLIT_K = 16 };
enum { SPRY_GEMM_PREFETCH = 3, SPRY_GEMM_PREFETCH_SMALL = 2 }; /* units that each warp prefetches */
/* gemm_wgmma.cu: maximum number of rows of a block; bytes of mbarriers; bytes before the stages; number of stages for
 * 64 rows, 128 rows, and 128 rows in two terms. */
enum {
    SPRY_WGMMA_ROWS = 128,
    SPRY_WGMMA_BARRIER_BYTES = 256,
    SPRY_WGMMA_HEAD_BYTES = SPRY_WGMMA_BARRIER_BYTES + 2 * SPRY_WGMMA_ROWS * 4
};
enum { SPRY_WGMMA_STAGES_64 = 5, SPRY_WGMMA_STAGES_128 = 4, SPRY_WGMMA_STAGES_128_X2 = 3 };

/* out[row][o] = sum over i of weight[o][i] * act[row][i] + bias[o], plus the old value with `add`. A launch has up to
 * three parts: matrices of one type that multiply the same input; the tiles of all parts are numbered in order. */
typedef struct spry_gemm_part {
    spry_tiles weight;
    SPRY_AT(float) out;
    SPRY_AT(const float) bias; /* NULL, or [n_out]; the biases of experts follow each other */
    uint32_t stride;           /* floats from one row of out to the next */
    uint32_t first_tile;       /* index of the part's first tile */
} spry_gemm_part;

typedef struct spry_gemm_args {
    spry_gemm_part parts[SPRY_GEMM_PARTS];
    spry_activations act;
    SPRY_AT(const int32_t) experts; /* NULL, or the expert of each group of `expert_rows` rows, negative: none */
    uint32_t expert_rows;
    uint32_t n_parts, n_tiles, n_rows;
    uint32_t add;
    spry_quantise_args
        from; /* gemv and gemm_small: the rows before their norm, in place of `act`, and in `to` the gated result.
                 gemm_wgmma: in `to` the gated result or, with a weight, the result quantised for the next product */
} spry_gemm_args;

/* ---- rows of a step ---------------------------------------------------------------------------------------------- */

typedef struct spry_step_row {
    int32_t token;
    uint32_t position;
    uint32_t page, slot;             /* where the row's key and value are stored */
    uint32_t first_entry, n_entries; /* entries of the row's page table, up to the page of the row itself */
    uint32_t first_new;              /* position of the sequence's first row in this step */
    uint32_t type;                   /* the token's type, in encoders */
    uint32_t time, line, column;     /* coordinates for RoPE, which differ only in pictures with columns */
    uint32_t ahead;                  /* later rows of its picture that it sees, in layers with `both_ways` */
} spry_step_row;

/* the layout of spry_kv_entry (kernels/ops.h); rotation: index of the page's RoPE rotation, 0: none */
typedef struct spry_step_entry {
    uint32_t page, start, count, rotation;
} spry_step_entry;

/* Adds or stores a row of a table, chosen by token, by position or by the token's type, times `scale`. Grid: rows. */
typedef enum spry_embed_by { SPRY_EMBED_TOKEN, SPRY_EMBED_POSITION, SPRY_EMBED_TYPE } spry_embed_by;

typedef struct spry_embed_args {
    spry_tiles weight;
    SPRY_AT(float) x;
    SPRY_AT(const spry_step_row) rows;
    uint32_t n;
    float scale;
    uint32_t by;     /* spry_embed_by */
    uint32_t offset; /* added to the number of the row */
    uint32_t add;    /* adds to the old values */
} spry_embed_args;

/* RoPE: cos and sin of rows' positions and of page rotations. Grid: rows, then rotations. */
typedef struct spry_rope_angles_args {
    SPRY_AT(const float) frequencies;
    SPRY_AT(float) cosine; /* [rows, pairs] */
    SPRY_AT(float) sine;
    SPRY_AT(float) rotation_cosine; /* [rotations, pairs] */
    SPRY_AT(float) rotation_sine;
    SPRY_AT(const spry_step_row) rows;
    SPRY_AT(const int32_t) deltas; /* of rotations: position of use minus position of computation */
    SPRY_AT(const uint32_t) axes;  /* NULL: all pairs turn by time; or [pairs]: 0 by time, 1 by line, 2 by column */
    uint32_t n_rows, n_pairs;
    float magnitude;
} spry_rope_angles_args;

/* ---- attention --------------------------------------------------------------------------------------------------- */

typedef struct spry_kv_pages {
    SPRY_AT(unsigned char) pages;
    uint64_t page_bytes;
    uint64_t key_offset, value_offset; /* where the layer's keys and values begin in a page */
    uint32_t head_bytes, token_bytes;
    uint32_t n_kv_heads, head_dim;
} spry_kv_pages;

/* q and k are normalised per head and rotated; keys and values are stored into their pages. Grid: (rows /
 * SPRY_ROPE_KV_ROWS, heads of q, then of k, then of v). */
enum { SPRY_ROPE_KV_ROWS = 16, SPRY_ROPE_KV_THREADS = 256 };

typedef struct spry_rope_kv_args {
    SPRY_AT(float) q;
    SPRY_AT(const float) k;
    SPRY_AT(const float) v;
    SPRY_AT(const float) q_norm; /* NULL, or [head_dim] */
    SPRY_AT(const float) k_norm;
    SPRY_AT(const float) cosine; /* [rows, pairs] */
    SPRY_AT(const float) sine;
    SPRY_AT(const spry_step_row) rows;
    spry_kv_pages kv;
    uint32_t n_rows, n_heads, n_pairs, interleaved;
    float eps;
} spry_rope_kv_args;

/* Operations on heads that some models have (kernels/heads.cu). A head of `in` has in_dim values, of which n are used,
 * from `first` on. spry_copy_heads copies them to the beginning of a head of out_dim values, times `scale`, and fills
 * the rest with zeros; spry_gate_heads multiplies heads of n values by their sigmoids. Grid: (rows, heads). */
typedef struct spry_heads_args {
    SPRY_AT(float) out; /* [rows, heads, out_dim]; may be `in` if the sizes are the same */
    SPRY_AT(const float) in;
    uint32_t out_dim, in_dim, first, n;
    float scale;
} spry_heads_args;

/* q *= 1 + scale * log(1 + floor((position + offset) / length)). Grid: rows. */
typedef struct spry_cool_args {
    SPRY_AT(float) q; /* [rows, n] */
    SPRY_AT(const spry_step_row) rows;
    uint32_t n, length, offset;
    float scale;
} spry_cool_args;

/* Pages of a chunk: a chunk's partial results are combined first. With MLA a chunk is one page. SPRY_PARTIAL_HEADER:
 * floats before the values of a partial result. */
enum { SPRY_SIMT_CHUNK_PAGES = 8, SPRY_PARTIAL_HEADER = 4, SPRY_SIMT_THREADS = SPRY_SIMT_CHUNK_PAGES * SPRY_WARP };

/* Warps of a block over F16 pages, for heads of `blocks` * 32 coordinates. */
#define SPRY_HEAD_WARPS(blocks) ((blocks) <= 4 ? 4 : 2)
enum { SPRY_SPLIT_KV_PAGES = 16 }; /* pages of a chunk in attention_mma.cuh; split-KV computes one chunk per part */

/* Consecutive rows of one sequence: a prefill tile. */
typedef struct spry_row_range {
    uint32_t first_row, n_rows;
} spry_row_range;

/* Consecutive decode rows of one sequence whose queries a warp multiplies together; partial_row: index of the first
 * among all decode rows. */
typedef struct spry_decode_tile {
    uint32_t first_row, n_rows, partial_row;
} spry_decode_tile;

typedef struct spry_attend_args {
    SPRY_AT(float) out; /* [rows, n_heads * head_dim] */
    SPRY_AT(const float) q;
    SPRY_AT(float) partial; /* [decode rows, or rows, n_heads, chunks, SPRY_PARTIAL_HEADER + head_dim] */
    SPRY_AT(const spry_step_row) rows;
    SPRY_AT(const spry_step_entry) entries;
    SPRY_AT(const uint32_t) decode_rows;          /* row numbers of the decode rows */
    SPRY_AT(const spry_decode_tile) decode_tiles; /* the decode rows in tiles */
    SPRY_AT(const spry_row_range) prefill_tiles;  /* the other rows in tiles */
    SPRY_AT(const float) rotation_cosine;         /* [rotations, pairs] */
    SPRY_AT(const float) rotation_sine;
    SPRY_AT(const float)
    sinks; /* NULL, or [n_heads]: attention sinks, scores that take a share of the weights and add no value */
    spry_kv_pages kv;
    spry_activations to[SPRY_ACT_FORMATS]; /* output formats besides `out`, for decode rows and for prefill with
                                              split-KV; heads are whole blocks of 32 then */
    uint32_t n_heads, n_pairs, interleaved;
    uint32_t window;                /* 0: none */
    uint32_t block;                 /* not 0: a row sees its own block of this many positions, not a window */
    uint32_t ahead;                 /* number of later positions that a row sees; position + ahead is below 2^32 */
    uint32_t both_ways;             /* rows of some pictures see all of it: `ahead` of each row counts, too */
    uint32_t n_chunks, chunk_pages; /* chunks in `partial`, enough for the longest page table, and pages of a chunk */
    float scale, softcap;
} spry_attend_args;

/* A TMA descriptor, as the driver encodes it. */
typedef struct spry_tensor_map {
    SPRY_ALIGNED(64) uint64_t words[16];
} spry_tensor_map;

/* TMA descriptors of KV pages: lines of 64 bytes of a head. A line of keys is one coordinate of 32 tokens, a line of
 * values 32 coordinates of a token. */
typedef struct spry_kv_tensor_maps {
    spry_tensor_map keys, values;
} spry_kv_tensor_maps;

typedef struct spry_attend_tma_args {
    spry_kv_tensor_maps maps;
    spry_attend_args attend;
    uint32_t n_batches, n_prefill_tiles, n_parts; /* batches of queries in a tile; split-KV parts, or 1 */
} spry_attend_tma_args;

/* Fused decode attention (attention_decode.cu), for rows that are the only new row of their sequence; decode_rows has
 * their numbers. At most SPRY_DECODE_GQA_MAX queries share a KV head. */
enum { SPRY_DECODE_GQA_MAX = 8 };

typedef struct spry_decode_args {
    spry_rope_kv_args rope_kv;
    spry_attend_args attend;
} spry_decode_args;

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* Selects experts from router logits. Grid: rows, one warp. */
typedef struct spry_moe_route_args {
    SPRY_AT(float) router;             /* [rows, n_experts] */
    SPRY_AT(uint32_t) chosen;          /* [rows, n_used], ascending */
    SPRY_AT(float) weight;             /* [rows, n_used] */
    SPRY_AT(const float) bias;         /* NULL, or [n_experts]: added to the scores for the selection */
    SPRY_AT(const float) expert_scale; /* NULL, or [n_experts]: factors of the experts' weights */
    uint32_t n_experts, n_used, normalise;
    uint32_t sigmoid;                 /* scores are sigmoids, otherwise a softmax */
    uint32_t n_groups, n_groups_used; /* experts are selected from the best groups; 1 or 0: from all */
    uint32_t by_two;                  /* a group is rated by its best two experts, otherwise by its best one */
    float eps;                        /* added to the sum by which weights are divided */
    float scale;                      /* factor of the weights */
} spry_moe_route_args;

/* Assigns (row, expert) pairs to slots, grouped by expert in multiples of `align`. Grid: experts. */
typedef struct spry_moe_group_args {
    SPRY_AT(const uint32_t) chosen;
    SPRY_AT(int32_t) source;  /* [slots]: row of the slot, -1: none */
    SPRY_AT(int32_t) experts; /* [slots / align]: expert of the slots, -1: none */
    SPRY_AT(uint32_t) slot;   /* [rows, n_used]: slot of a pair */
    uint32_t n_rows, n_experts, n_used, n_slots, align;
} spry_moe_group_args;

/* Inputs of experts multiplied by the experts' weights: out[slot] = in[row] * weight. Grid: (rows, n_used). */
typedef struct spry_moe_scale_args {
    SPRY_AT(float) out; /* [slots, n] */
    SPRY_AT(const float) in;
    SPRY_AT(const uint32_t) slot;
    SPRY_AT(const float) weight;
    uint32_t n, n_used;
} spry_moe_scale_args;

/* y[row] = scale * (sum of weight * out[slot], experts ascending, plus the shared expert times the sigmoid of its
 * gate), plus the old value with `add`. Grid: (rows, n / 256). */
typedef struct spry_moe_combine_args {
    SPRY_AT(float) y;
    SPRY_AT(const float) out; /* [slots, n] */
    SPRY_AT(const uint32_t) slot;
    SPRY_AT(const float) weight;      /* NULL: ones */
    SPRY_AT(const float) shared;      /* NULL, or [rows, n] */
    SPRY_AT(const float) shared_gate; /* NULL, or [rows] */
    uint32_t n, n_used, add;
    float scale;
} spry_moe_combine_args;

/* ---- logits and tokens ------------------------------------------------------------------------------------------- */

/* x = cap * tanh(x * scale / cap); cap 0: x * scale */
typedef struct spry_softcap_args {
    SPRY_AT(float) x;
    uint64_t n;
    float cap, scale;
} spry_softcap_args;

enum { SPRY_DRAW_TOP = 20 };
typedef enum spry_draw_fault { SPRY_DRAW_OK, SPRY_DRAW_NAN, SPRY_DRAW_NOTHING } spry_draw_fault;

typedef struct spry_draw_result {
    int32_t token;
    uint32_t fault; /* spry_draw_fault */
    double logprob;
    int32_t top[SPRY_DRAW_TOP];
    uint32_t n_top, unused;
    double top_logprob[SPRY_DRAW_TOP];
} spry_draw_result;

/* One draw; lists are offsets into the step's upload. */
typedef struct spry_draw_order {
    uint32_t row;
    uint32_t n_history, n_bias, n_top, wants_logprob, has_mask;
    uint64_t history, bias, mask; /* int32 [n_history]; {int32 token, float bias} [n_bias]; [n_vocab] bits */
    float repeat_penalty, presence_penalty, frequency_penalty;
    float temperature;
    uint32_t top_k;
    float top_p, min_p, typical_p;
    double u;
} spry_draw_order;

/* spry_draw_scan finds the best raw logit of each slice, grid (slices, draws); then spry_draw_tokens has a block for
 * each draw. */
enum { SPRY_DRAW_THREADS = 1024, SPRY_SCAN_THREADS = 256, SPRY_DRAW_SLICES = 64 };

typedef struct spry_draw_args {
    SPRY_AT(const float) logits; /* [rows, n_vocab] */
    SPRY_AT(const spry_draw_order) orders;
    SPRY_AT(const unsigned char) upload;
    SPRY_AT(float) scores;    /* [draws, n_vocab] */
    SPRY_AT(uint64_t) weight; /* [draws, n_vocab] */
    SPRY_AT(uint32_t) count;  /* [draws, n_vocab], zero before and after */
    SPRY_AT(uint64_t) best;   /* [draws, slices]: the best logit and its token as one number; all ones: NaN */
    SPRY_AT(spry_draw_result) results;
    uint32_t n_vocab;
} spry_draw_args;

/* ---- LoRA adapters ----------------------------------------------------------------------------------------------- */

/* What an adapter adds to a matrix: scale * b * a. */
typedef struct spry_lora_pair {
    SPRY_AT(const float) a; /* [rank, n_in] */
    SPRY_AT(const float) b; /* [rank, n_out] */
    uint32_t rank;          /* 0: the adapter does not change the matrix */
    float scale;
} spry_lora_pair;

/* Rows and threads of a block, and matrices of one launch. The rows of a block belong to one expert. */
enum { SPRY_LORA_ROWS = 8, SPRY_LORA_THREADS = 256, SPRY_LORA_PARTS = 3 };

typedef struct spry_lora_part {
    SPRY_AT(const spry_lora_pair) pairs; /* [experts or one, n_adapters]; NULL: none */
    SPRY_AT(float) out;
    uint32_t n_out, stride; /* stride: floats from one row of out to the next */
} spry_lora_part;

/* out[row] += scale * b * (a * in[row]) for every adapter of the row. spry_lora_shrink: grid (ranks / 8, rows /
 * SPRY_LORA_ROWS, parts); then spry_lora_expand: grid (outputs / SPRY_LORA_THREADS, the same). */
typedef struct spry_lora_args {
    spry_lora_part parts[SPRY_LORA_PARTS];
    SPRY_AT(const float) in;        /* [n_rows, n_in] */
    SPRY_AT(float) shrunk;          /* [parts, n_rows, n_ranks]: a * in, the ranks of all adapters */
    SPRY_AT(const float) scales;    /* [rows of the step, n_adapters]; 0: the row does not use the adapter */
    SPRY_AT(const int32_t) source;  /* NULL, or the number of each row in the step, negative: none */
    SPRY_AT(const int32_t) experts; /* NULL, or the expert of each group of `expert_rows` rows, negative: none */
    uint32_t expert_rows;
    uint32_t n_rows, n_in, n_adapters, n_ranks;
} spry_lora_args;

/* ---- multi-head latent attention --------------------------------------------------------------------------------- */

/* A key is [rotated part | latents], one for all heads; its latents are also the value (kernels/attention_mla.cu). */
enum {
    SPRY_MLA_QUERIES = 16, /* queries of a block */
    SPRY_MLA_THREADS = 256,
    SPRY_MLA_KEY_MAX = 640,     /* maximum coordinates of a key, */
    SPRY_MLA_VALUES_MAX = 512,  /* maximum size of the latents */
    SPRY_MLA_SMEM = 19200,      /* bytes of mla_smem, the shared memory of a block */
    SPRY_MLA_QUERY_STRIDE = 20, /* floats of shared memory for each coordinate of a key, one per query and padding */
};

/* Slots of heads: `each` slots of a head follow each other, so that GEMMs treat heads as experts. One thread per slot.
 */
typedef struct spry_mla_slots_args {
    SPRY_AT(int32_t) source; /* [slots]: row * n_heads + head, -1: none */
    SPRY_AT(int32_t) heads;  /* [slots / align] */
    uint32_t n_rows, n_heads, each, align;
} spry_mla_slots_args;

/* Queries become [rotated part | latents] and get RoPE; so do keys, whose latents are normalised and which are stored
 * into their pages. Grid: (rows / SPRY_ROPE_KV_ROWS, heads of q, then the key). */
typedef struct spry_mla_rope_kv_args {
    SPRY_AT(float) q;           /* [rows, n_heads, key] */
    SPRY_AT(const float) raw;   /* [rows, n_heads, raw_dim]: the rotated part is at the end */
    SPRY_AT(const float) taken; /* [slots, n_values]: the other part, projected to latents */
    SPRY_AT(const float) k;     /* [rows, key]: latents, then the rotated part */
    SPRY_AT(const float) norm;  /* [n_values] */
    SPRY_AT(const float) cosine;
    SPRY_AT(const float) sine; /* [rows, pairs] */
    SPRY_AT(const spry_step_row) rows;
    spry_kv_pages kv; /* head_dim: coordinates of a key */
    uint32_t n_rows, n_heads, n_values, raw_dim, each, n_pairs, interleaved;
    float eps;
} spry_mla_rope_kv_args;

/* Grids: split_kv (decode tiles, batches of queries, pages), prefill (prefill tiles, batches). */
typedef struct spry_mla_attend_args {
    spry_attend_args attend; /* kv.head_dim: coordinates of a value; a chunk is one page */
    uint32_t key_dim;
} spry_mla_attend_args;

/* Copies slots of n values back into rows [rows, n_heads * n]. Grid: rows. */
typedef struct spry_mla_join_args {
    SPRY_AT(float) out;
    SPRY_AT(const float) slots;
    uint32_t n, n_heads, each;
} spry_mla_join_args;

/* ---- recurrent layers -------------------------------------------------------------------------------------------- */

/* Short convolutions (cpu/recurrent.c): spry_conv_store stores B * x of each row into its page; spry_convolve
 * computes C times the convolution over the row's last tokens. A token's vector is stored in pieces of head_dim values,
 * in the layer's slots for keys and values. Grid: (rows / SPRY_ROPE_KV_ROWS, pieces). */
typedef struct spry_conv_args {
    SPRY_AT(float) out;          /* [rows, n] */
    SPRY_AT(const float) in;     /* [rows, 3 * n]: B | C | x */
    SPRY_AT(const float) weight; /* [n, reach]: the row's own token is last */
    SPRY_AT(const float) bias;   /* NULL, or [n] */
    SPRY_AT(const spry_step_row) rows;
    SPRY_AT(const spry_step_entry) entries;
    spry_kv_pages kv;     /* pages, at the layer's first slot */
    uint64_t place_bytes; /* from one slot of a page to the next */
    uint32_t n_rows, n, reach;
} spry_conv_args;

/* The rows of one sequence: positions first to first + n_rows. Its state is kept for the beginning of position `from`
 * before the step, and of `next` after it. */
typedef struct spry_delta_run {
    uint32_t first_row, n_rows, first;
    uint32_t from, next;
    uint32_t state; /* number */
} spry_delta_run;

/* Gated delta nets and Mamba-2 (cpu/recurrent.c): spry_delta_gates makes decays and betas of rows, grid rows;
 * spry_delta updates the states over the rows and computes the outputs, grid (columns / SPRY_DELTA_COLUMNS, heads,
 * runs); then spry_delta_keep stores what later steps need of the rows, grid (coordinates of mixed and gates /
 * SPRY_DELTA_ROW_THREADS, runs). */
enum { SPRY_DELTA_ROW_THREADS = 256, SPRY_DELTA_THREADS = 128, SPRY_DELTA_COLUMNS = 32 };

typedef struct spry_delta_args {
    SPRY_AT(float) out;         /* [rows, n_heads, value_dim] */
    SPRY_AT(const float) mixed; /* [rows, n_mixed]: queries and keys of n_keys heads, values of n_heads, in any order */
    SPRY_AT(float) ba; /* [rows, 2, n_heads]: beta and decay before their activation functions; then exp(g), beta */
    SPRY_AT(const float) weight; /* [n_mixed, reach] */
    SPRY_AT(const float) bias;   /* NULL, or [n_mixed] */
    SPRY_AT(const float) skip;   /* NULL, or [n_heads]: factor of the value that is added to the result */
    SPRY_AT(const float) dt;     /* [n_heads] */
    SPRY_AT(const float) fading; /* [n_heads] */
    SPRY_AT(const spry_delta_run) runs;
    SPRY_AT(unsigned char) states; /* address of the layer's floats in state 0 */
    uint64_t state_bytes;
    uint32_t n_heads, n_keys, key_dim, value_dim, n_mixed, reach;
    uint32_t queries, keys, values; /* where they begin in `mixed` */
    uint32_t tiled;                 /* heads h, h + n_keys, ... share a key head; else neighbouring heads */
    uint32_t mamba;   /* Mamba-2: no delta rule, queries and keys as they are, and steps in time for beta */
    float beta_scale; /* factor of the sigmoid that gives beta */
    float time_least, time_largest; /* Mamba-2: limits of steps in time */
} spry_delta_args;

/* ---- Gemma 3n ---------------------------------------------------------------------------------------------------- */

/* A stream is [rows, n]; streams are `step` floats apart. Grids: one block per row (kernels/streams.cu). */
enum { SPRY_STREAMS_MAX = 16 };

/* Inputs of all layers from the row's token: in = (norm(in * scale) + table) * last_scale. Grid: (rows, layers). */
typedef struct spry_layer_inputs_args {
    SPRY_AT(float) in;           /* [rows, n_layers * n] */
    SPRY_AT(const float) table;  /* [rows, n_layers * n]: the token's row of the table */
    SPRY_AT(const float) weight; /* [n] */
    uint32_t n, n_layers;
    float scale, last_scale, eps;
} spry_layer_inputs_args;

/* begin: stream 0 becomes x, the others are scaled to the magnitude of x. end: x = mean of stream 0 and of the others,
 * scaled to its magnitude. */
typedef struct spry_streams_args {
    SPRY_AT(float) x;            /* [rows, n] */
    SPRY_AT(float) streams;      /* end: only stream 0 is read */
    SPRY_AT(const float) others; /* end: the other streams after their projection */
    uint64_t step;
    uint32_t n, n_streams;
} spry_streams_args;

/* Mixes by tanh(modality * scale). predict: predicted[k] = streams[k] + sum over j of coefficients[k][j] * streams[j],
 * x = predicted[active]. correct: streams[k] = predicted[k] + (x - predicted[active]) * (1 + coefficients[k]), y =
 * streams[active] * output_scale. */
typedef struct spry_streams_mix_args {
    SPRY_AT(float) x;
    SPRY_AT(float) y;
    SPRY_AT(float) streams;
    SPRY_AT(float) predicted;
    SPRY_AT(const float) modality; /* [rows, n_streams] */
    SPRY_AT(const float)
    coefficients; /* predict: [n_streams * n_streams, n_streams], correct: [n_streams, n_streams] */
    SPRY_AT(const float) output_scale; /* [n] */
    uint64_t step;
    uint32_t n, n_streams, active;
    float scale;
} spry_streams_mix_args;

/* Adds norm(y) to all streams but the first. */
typedef struct spry_streams_add_args {
    SPRY_AT(float) streams;
    SPRY_AT(const float) y;
    SPRY_AT(const float) weight;
    uint64_t step;
    uint32_t n, n_streams;
    float eps;
} spry_streams_add_args;

/* Attention and its low-rank branch: x = (x + norm(y) + norm(x) + norm(low)) * scale. */
typedef struct spry_laurel_args {
    SPRY_AT(float) x;
    SPRY_AT(const float) y;
    SPRY_AT(const float) low;
    SPRY_AT(const float) x_weight;
    SPRY_AT(const float) y_weight;
    SPRY_AT(const float) low_weight;
    uint32_t n;
    float scale, eps;
} spry_laurel_args;

/* Values below mean + times * standard deviation of their row become 0; the others are reduced by that threshold. */
typedef struct spry_sparsify_args {
    SPRY_AT(float) x;
    uint32_t n;
    float times;
} spry_sparsify_args;

/* ---- Whisper ----------------------------------------------------------------------------------------------------- */

/* x = x, or its activation, plus the position's vector. Grid: rows. */
typedef struct spry_positions_args {
    SPRY_AT(float) x;                  /* [rows, n] */
    SPRY_AT(const float) positions;    /* [positions, n] */
    SPRY_AT(const spry_step_row) rows; /* the rows whose positions are used; NULL: the row numbers */
    uint32_t n;
    uint32_t activated; /* applies activation `gate` (spry_gate) */
    uint32_t gate;
} spry_positions_args;

/* ---- drawn tokens ------------------------------------------------------------------------------------------------ */

/* Copies tokens drawn in the previous step into the rows of this one; 0 if a draw failed. One thread per row. */
enum { SPRY_FEED_THREADS = 128 };

typedef struct spry_feed_args {
    SPRY_AT(spry_step_row) rows;
    SPRY_AT(const uint32_t) drawn; /* [n_rows]: numbers of draws */
    SPRY_AT(const spry_draw_result) results;
    uint32_t n_rows, n_vocab;
} spry_feed_args;

#endif
