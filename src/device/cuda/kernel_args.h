/* What kernels are given: one struct each, the same for the C that launches and for the CUDA that computes. An address
 * on the device is a number for the one and a pointer for the other.
 *
 * Rows are tokens of a step, as everywhere; all matrices are row-major floats unless said otherwise. */
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

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* A placed matrix: tiles of 16 outputs, each in units of 64 inputs, in the order in which the lanes of a warp want them
 * (weight_tiles.cuh). Outputs and inputs that fill up the last tile and unit are zeros. Quantised types have planes
 * besides: high bits, scales of the groups, scales of 256. */
enum { SPRY_TILE_ROWS = 16, SPRY_TILE_UNIT = 64, SPRY_TILE_GROUP = 4 };

typedef struct spry_tiles {
    SPRY_AT(unsigned char) base;
    uint64_t high, scale, super; /* where the planes begin, in bytes from the base */
    uint64_t matrix_bytes;       /* all planes; experts of a layer lie one behind the other */
    uint32_t n_out, n_in;
    uint32_t n_tiles, n_units;
} spry_tiles;

/* Lays rows of a file's blocks out as tiles: a grid of (units, tiles), 32 threads. */
typedef struct spry_repack_args {
    spry_tiles to;
    SPRY_AT(const unsigned char) rows; /* of tile `first_tile` on */
    uint64_t row_bytes;
    uint32_t first_tile;
} spry_repack_args;

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* Inputs of products, in groups of 8 rows, in the order in which lanes want them (activations.cuh): as bytes with a
 * scale for 32, or as sums of bf16. Rows that pass a norm are multiplied by its weights; by what the norm divides them
 * the sums of a product are divided. */
enum { SPRY_ACT_ROWS = 8 };

/* In the order of wgmma: bytes of a group of rows and a unit, of a bf16 each, and of bytes with their scales.
 */
enum { SPRY_WGMMA_TERM_BYTES = 1024, SPRY_WGMMA_Q8_BYTES = 1024 + 128 };

typedef enum spry_act_format {
    SPRY_ACT_Q8,
    SPRY_ACT_BF16,
    SPRY_ACT_BF16X2,
    SPRY_ACT_BF16X3,
    SPRY_ACT_FORMATS
} spry_act_format;

typedef struct spry_activations {
    SPRY_AT(unsigned char) values;
    SPRY_AT(float) scales; /* of bytes in the order of lanes: of 8 rows and 32 inputs {scale, sum of the values} */
    SPRY_AT(float)
    norms;                 /* NULL, or [rows]: what sums are multiplied by; in the order of wgmma the squares
                              of units, [units, 8 * cores], from which that is made */
    uint32_t n_units;      /* of 64 inputs */
    uint32_t wgmma_groups; /* groups of rows, a multiple of 8, in the order of wgmma; 0: in the order of lanes */
} spry_activations;

/* Each row is normalised (with a weight), gated (with an `up`, or `ungated`: by its activation alone) or taken as it
 * is, and written in the forms that are wanted; a form that is not wanted has no values. With `source` row i is made
 * from row source[i] of `in`, unless that is negative. A block for a row; of spry_quantise_wgmma, a warp for 8 rows and
 * a unit. */
enum { SPRY_QUANTISE_THREADS = 256, SPRY_QUANTISE_WGMMA_UNITS = 4 };

typedef struct spry_quantise_args {
    SPRY_AT(const float) in;
    SPRY_AT(const float) up;     /* NULL, or like `in`: row = activation(in) * up */
    SPRY_AT(const float) weight; /* NULL, or [n]: row = in / rms(in) * weight */
    SPRY_AT(const float) bias;   /* NULL, or [n]: of a layer norm */
    SPRY_AT(float) plain;        /* NULL, or where the row goes as floats */
    SPRY_AT(const int32_t) source;
    spry_activations to[SPRY_ACT_FORMATS];
    uint32_t n, n_rows, in_stride;
    float eps;
    uint32_t gate; /* spry_gate */
    uint32_t ungated;
    uint32_t centre; /* a layer norm: the mean is subtracted first, and rows are normalised whole */
} spry_quantise_args;

/* x is normalised in place: `n_groups` of n values a row, each with weights `step` behind those of the one before, all
 * with one bias. A block for a group. */
typedef struct spry_norm_args {
    SPRY_AT(float) x;
    SPRY_AT(const float) weight; /* NULL: ones */
    SPRY_AT(const float) bias;   /* NULL, or [n] */
    uint32_t n, n_groups, step;
    float eps;
    uint32_t centre;
} spry_norm_args;

/* x += y * scale; where there is a weight y is normalised first, or the sum afterwards. A block for a row. */
typedef struct spry_residual_args {
    SPRY_AT(float) x;
    SPRY_AT(const float) y;
    SPRY_AT(const float) weight; /* NULL, or [n] */
    SPRY_AT(const float) bias;   /* NULL, or [n] */
    uint32_t n;
    float eps, scale;
    uint32_t centre;
    uint32_t of_sum; /* the norm is the sum's */
} spry_residual_args;

/* ---- products ---------------------------------------------------------------------------------------------------- */

enum { SPRY_GEMM_PARTS = 3, SPRY_SPLIT_K = 16 };
enum { SPRY_GEMM_PREFETCH = 3, SPRY_GEMM_PREFETCH_SMALL = 2 }; /* units that wait for each warp */
/* Blocks of wgmma: rows, at most; bytes of barriers, and of all that lies before the stages; stages, by groups
 * of rows, 8 or 16, of these with activations in two terms fewer. */
enum {
    SPRY_WGMMA_ROWS = 128,
    SPRY_WGMMA_BARRIER_BYTES = 256,
    SPRY_WGMMA_HEAD_BYTES = SPRY_WGMMA_BARRIER_BYTES + 2 * SPRY_WGMMA_ROWS * 4
};
enum { SPRY_WGMMA_STAGES_64 = 5, SPRY_WGMMA_STAGES_128 = 4, SPRY_WGMMA_STAGES_128_X2 = 3 };
enum { SPRY_GEMV_SMEM_MAX = 216 << 10 }; /* of shared memory, at most, for a product of one row */

/* out[row][o] = sum of weight[o][i] * act[row][i], plus bias, plus what was there where `add` says so. Up to three
 * matrices of one type and one input; blocks take tiles of all of them in order. */
typedef struct spry_gemm_part {
    spry_tiles weight;
    SPRY_AT(float) out;
    SPRY_AT(const float) bias; /* NULL, or [n_out]; of experts one behind the other */
    uint32_t stride;           /* of out, in floats */
    uint32_t first_tile;       /* number of its first tile among those of all parts */
} spry_gemm_part;

typedef struct spry_gemm_args {
    spry_gemm_part parts[SPRY_GEMM_PARTS];
    spry_activations act;
    SPRY_AT(const int32_t) experts; /* NULL, or for each group of `expert_rows` rows its expert, negative: none */
    uint32_t expert_rows;
    uint32_t n_parts, n_tiles, n_rows;
    uint32_t add;
    spry_quantise_args from; /* at most 8 rows: the norm they pass, in place of `act`; `to`: where gated values go. Of
                              wgmma `to`: where gates go, or, with a weight, the results once more */
} spry_gemm_args;

/* ---- rows of a step ---------------------------------------------------------------------------------------------- */

typedef struct spry_step_row {
    int32_t token;
    uint32_t position;
    uint32_t page, slot;             /* where its keys and values go */
    uint32_t first_entry, n_entries; /* of its table, up to the entry that holds the row itself */
    uint32_t first_new;              /* position of its sequence's first row in this step */
} spry_step_row;

/* spry_kv_entry of kernels/ops.h */
typedef struct spry_step_entry {
    uint32_t page, start, count, rotation;
} spry_step_entry;

/* A row of a table for each row, by its token, its position or neither, times `scale`: a block for a row. */
typedef enum spry_embed_by { SPRY_EMBED_TOKEN, SPRY_EMBED_POSITION, SPRY_EMBED_SAME } spry_embed_by;

typedef struct spry_embed_args {
    spry_tiles weight;
    SPRY_AT(float) x;
    SPRY_AT(const spry_step_row) rows;
    uint32_t n;
    float scale;
    uint32_t by;     /* spry_embed_by, */
    uint32_t offset; /* and what is added to that */
    uint32_t add;    /* onto what is there */
} spry_embed_args;

/* cos and sin of positions, and of turns: one kind of rope. A block for a row or turn; rows first. */
typedef struct spry_rope_angles_args {
    SPRY_AT(const float) frequencies;
    SPRY_AT(float) cosine; /* [rows, pairs] */
    SPRY_AT(float) sine;
    SPRY_AT(float) rotation_cosine; /* [turns, pairs] */
    SPRY_AT(float) rotation_sine;
    SPRY_AT(const spry_step_row) rows;
    SPRY_AT(const int32_t) deltas; /* of turns: how far a page is used from where it was computed */
    uint32_t n_rows, n_pairs;
    float magnitude;
} spry_rope_angles_args;

/* ---- attention --------------------------------------------------------------------------------------------------- */

typedef struct spry_kv_pages {
    SPRY_AT(unsigned char) pages;
    uint64_t page_bytes;
    uint64_t key_offset, value_offset; /* of the layer */
    uint32_t head_bytes, token_bytes;
    uint32_t n_kv_heads, head_dim;
} spry_kv_pages;

/* q and k normalised per head, turned to their positions; keys and values into their pages. Blocks of
 * SPRY_ROPE_KV_THREADS for (SPRY_ROPE_KV_ROWS rows, head): heads of q, then of k, then of v. */
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

/* Pages whose sums are added up before they are added to the rest, but for latent attention, which adds each page
 * alone. */
enum { SPRY_SIMT_CHUNK_PAGES = 8, SPRY_PARTIAL_HEADER = 4 };
enum { SPRY_SPLIT_KV_PAGES = 16 }; /* the same of attention_mma.cuh */

/* A run of consecutive rows of one sequence. */
typedef struct spry_row_range {
    uint32_t first_row, n_rows;
} spry_row_range;

/* The same of rows that are attended one by one, so few that a warp takes all their queries; `few`: number of the first
 * among such rows. */
typedef struct spry_decode_tile {
    uint32_t first_row, n_rows, partial_row;
} spry_decode_tile;

typedef struct spry_attend_args {
    SPRY_AT(float) out; /* [rows, n_heads * head_dim] */
    SPRY_AT(const float) q;
    SPRY_AT(float) partial; /* [few rows, or rows, n_heads, chunks, SPRY_PARTIAL_HEADER + head_dim] */
    SPRY_AT(const spry_step_row) rows;
    SPRY_AT(const spry_step_entry) entries;
    SPRY_AT(const uint32_t) decode_rows;          /* numbers of rows that are attended one by one */
    SPRY_AT(const spry_decode_tile) decode_tiles; /* the same rows */
    SPRY_AT(const spry_row_range) prefill_tiles;  /* and runs of the others */
    SPRY_AT(const float) rotation_cosine;         /* [turns, pairs] */
    SPRY_AT(const float) rotation_sine;
    SPRY_AT(const float) sinks; /* NULL, or [n_heads]: scores that take their share of the weights and give nothing */
    spry_kv_pages kv;
    spry_activations to[SPRY_ACT_FORMATS]; /* written besides, where there are values, of few rows, and of runs whose
                                     chunks are folded; heads are whole blocks then */
    uint32_t n_heads, n_pairs, interleaved;
    uint32_t window;                /* 0: none */
    uint32_t ahead;                 /* later positions that a row sees; their sum is below 2^32 */
    uint32_t n_chunks, chunk_pages; /* that leave something in `partial`: of the longest table, and their pages */
    float scale, softcap;
} spry_attend_args;

/* How pages come to shared memory, as the driver encodes it. */
typedef struct spry_tensor_map {
    SPRY_ALIGNED(64) uint64_t words[16];
} spry_tensor_map;

/* Lines of 64 bytes of a head: its keys, a coordinate each; of its values 32 coordinates of a token, token after token.
 */
typedef struct spry_kv_tensor_maps {
    spry_tensor_map keys, values;
} spry_kv_tensor_maps;

typedef struct spry_attend_tma_args {
    spry_kv_tensor_maps maps;
    spry_attend_args attend;
    uint32_t n_batches, n_prefill_tiles, n_parts; /* batches of queries of a run; chunks that are spread, or 1 */
} spry_attend_tma_args;

/* Both at once, for rows that are the only new ones of their sequences (attention_decode.cu); `few` numbers them. Heads
 * that share keys and values are at most SPRY_DECODE_GQA_MAX. */
enum { SPRY_DECODE_GQA_MAX = 8 };

typedef struct spry_decode_args {
    spry_rope_kv_args rope_kv;
    spry_attend_args attend;
} spry_decode_args;

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* Chooses experts from router logits: a block of one warp for a row. */
typedef struct spry_moe_route_args {
    SPRY_AT(float) router;     /* [rows, n_experts] */
    SPRY_AT(uint32_t) chosen;  /* [rows, n_used], ascending */
    SPRY_AT(float) weight;     /* [rows, n_used] */
    SPRY_AT(const float) bias; /* NULL, or [n_experts]: added to scores to choose by */
    uint32_t n_experts, n_used, normalise;
    uint32_t sigmoid;                 /* scores are sigmoids; else a softmax */
    uint32_t n_groups, n_groups_used; /* experts are chosen from the best groups; 1 or 0: from all */
    float scale;                      /* of the weights */
} spry_moe_route_args;

/* Puts (row, expert) pairs into slots, grouped by expert in multiples of `align`: one block. */
typedef struct spry_moe_group_args {
    SPRY_AT(const uint32_t) chosen;
    SPRY_AT(int32_t) source;  /* [slots]: the slot's row, -1: none */
    SPRY_AT(int32_t) experts; /* [slots / align]: the slots' expert, -1: none */
    SPRY_AT(uint32_t) slot;   /* [rows, n_used]: a pair's slot */
    uint32_t n_rows, n_experts, n_used, n_slots, align;
} spry_moe_group_args;

/* y[row] = sum of weight * out[slot], experts ascending; then the shared expert times the sigmoid of its gate. A block
 * for a row. */
typedef struct spry_moe_combine_args {
    SPRY_AT(float) y;
    SPRY_AT(const float) out; /* [slots, n] */
    SPRY_AT(const uint32_t) slot;
    SPRY_AT(const float) weight;
    SPRY_AT(const float) shared;      /* NULL, or [rows, n] */
    SPRY_AT(const float) shared_gate; /* NULL, or [rows] */
    uint32_t n, n_used;
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

/* One draw; lists lie in the step's upload, as offsets from its beginning. */
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

/* First the best raw logit of each slice, blocks of (slices, draws), SPRY_SCAN_THREADS; then a block of
 * SPRY_DRAW_THREADS for a draw. */
enum { SPRY_DRAW_THREADS = 1024, SPRY_SCAN_THREADS = 256, SPRY_DRAW_SLICES = 64 };

typedef struct spry_draw_args {
    SPRY_AT(const float) logits; /* [rows, n_vocab] */
    SPRY_AT(const spry_draw_order) orders;
    SPRY_AT(const unsigned char) upload;
    SPRY_AT(float) scores;    /* [draws, n_vocab] */
    SPRY_AT(uint64_t) weight; /* [draws, n_vocab] */
    SPRY_AT(uint32_t) count;  /* [draws, n_vocab], zeros, and zeros again afterwards */
    SPRY_AT(uint64_t) best;   /* [draws, slices]: the best logit and its token as one number; the largest of all: NaN */
    SPRY_AT(spry_draw_result) results;
    uint32_t n_vocab;
} spry_draw_args;

#endif
