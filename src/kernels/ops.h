/* The op table: all arithmetic of the forward pass. Each op exists first as plain C (ref/); instruction sets override
 * entries. No op allocates or uses threads: callers pass ranges.
 *
 * Invariance: a row's result never depends on the other rows of the call or on how ranges were split. Each sum has one
 * fixed order. */
#ifndef SPRY_KERNELS_OPS_H
#define SPRY_KERNELS_OPS_H

#include <stdbool.h>

#include "base/dtype.h"
#include "base/error.h"
#include "kernels/act.h"

/* out[row][o] = sum over i of weight[o][i] * act[row][i], for o in a range of outputs. */
typedef struct spry_matmul {
    float *out;           /* [n_rows, out_stride] */
    size_t out_stride;    /* in floats */
    const void *weight;   /* rows of whole blocks as in the file, at any address; or groups of rows, packed */
    size_t weight_stride; /* bytes from row to row, or from group to group */
    const void *act;      /* [n_rows, n_in]: floats, or spry_act_blocks for integer kernels */
    size_t act_stride;    /* bytes from row to row */
    size_t n_rows, n_in;
    const uint16_t *halves; /* NULL; or the activations as the kernel's `halve` rounds them, once for all calls with the
                             * same activations */
    size_t halves_stride;   /* in values; a multiple of SPRY_HALVES_BLOCK */
} spry_matmul;

enum { SPRY_HALVES_BLOCK = 32 };

/* The best stride for rows of n_in values: an odd number of cache lines, so that the same values of some rows are not
 * in the same set of a cache. */
static inline size_t spry_halves_stride(size_t n_in)
{
    return ((n_in + SPRY_HALVES_BLOCK - 1) / SPRY_HALVES_BLOCK | 1) * SPRY_HALVES_BLOCK;
}

typedef struct spry_matmul_kernel {
    bool integer;   /* activations are of type spry_act_block */
    bool bf16;      /* activations are floats, which the kernel rounds to BF16; subnormal numbers count as zeros */
    uint32_t group; /* rows that are packed together (packed.h); 0: weights are in file layout */
    /* NULL; or rounds n activations to BF16 and adds zeros up to a multiple of SPRY_HALVES_BLOCK. `run` does the same
     * itself when m->halves is NULL. */
    void (*halve)(uint16_t *out, const float *in, size_t n);
    /* A type with a faster kernel and groups of the same number of rows and bytes, or F32: none. A matrix whose values
     * that type can all represent exactly is packed as that type and multiplied by its kernel (packed.h). */
    spry_dtype narrow;
    /* Computes outputs [out_begin, out_end); both are multiples of the group, except at the end of the matrix. */
    void (*run)(const spry_matmul *m, size_t out_begin, size_t out_end);
} spry_matmul_kernel;

/* A page of a sequence's table. */
typedef struct spry_kv_entry {
    uint32_t page;  /* index in the pool */
    uint32_t start; /* position of its first token in the sequence */
    uint32_t count; /* number of tokens it holds */
    uint32_t turn;  /* index into spry_attend.turns: how queries are rotated for this page */
} spry_kv_entry;

/* Keys in a page are rotated for the positions at which the page was computed. When a table uses the page at other
 * positions, queries are rotated back by the difference instead; this is the rotation's cos and sin, [n_pairs]. NULL:
 * no difference. */
typedef struct spry_turn {
    const float *cosine, *sine;
} spry_turn;

/* Attention of consecutive rows of one sequence over its pages, for one key/value head and the query heads that share
 * it. Pages are processed in chunks: a chunk is the pages that start in the same SPRY_ATTEND_CHUNK_TOKENS positions.
 * Each chunk has a softmax of its own; these are combined in ascending order, so that chunks may be computed at the
 * same time. Row r is at position first_position + r and attends to keys at positions up to its own (only at distances
 * 0 .. window - 1 if `window` is not 0), and to the `ahead` positions after it. Keys and values, including the keys and
 * values of this step, are already in the pages. */
typedef struct spry_attend {
    float *out;         /* [n_rows, row_stride]: head h of a row at h * head_dim */
    const float *query; /* same layout as out; RoPE has been applied */
    size_t row_stride;  /* in floats, of out and query */
    size_t n_rows;
    uint32_t first_position;
    uint32_t window; /* 0: none */
    uint32_t block;  /* 0: none; else positions are divided into blocks of this size, and a row sees only keys of its
                      * own block */
    uint32_t ahead;  /* number of positions after its own that a row sees, up to the end of the table; 0: none */
    size_t head_dim;
    size_t group;               /* query heads per key/value head */
    float scale;                /* scores are multiplied by this */
    float softcap;              /* 0: none; else a score becomes softcap * tanh(score / softcap) */
    spry_dtype type;            /* of keys and values: F32, F16, Q8_0 or Q4_0 */
    const unsigned char *pages; /* aligned for floats; with F32 every offset inside a page is a multiple of 4, too */
    size_t page_bytes;
    size_t key_offset, value_offset; /* where this layer's heads begin in a page; see kv_layout.h */
    size_t head_bytes;               /* bytes of one head's keys, or values */
    size_t token_bytes;              /* bytes of one token's values */
    size_t latent; /* 0: values are stored beside keys; else the last `latent` coordinates of a key are its value, and
                    * only the first `latent` coordinates of a head in out are written */
    float *states; /* NULL: results are complete. Else the entries are one part of the sequence, whose results
                    * attend_join combines: out gets weighted sums, and states the largest score and the sum of weights
                    * of each head of each row; sinks are left out */
    size_t state_stride; /* floats from one row of states to the next */
    const float *sinks;  /* NULL, or one score per query head that takes a share of the weights and adds no value */
    const spry_kv_entry *entries; /* ascending by start, without gaps */
    size_t n_entries;
    const spry_kv_entry *after; /* entries that this thread will probably read next; they are only prefetched */
    size_t n_after;
    const spry_turn *turns; /* indexed by an entry's turn; NULL: no page is rotated */
    size_t n_pairs;         /* pairs of a rotation, and their order (interleaved), as in rope */
    bool interleaved;
} spry_attend;

/* The first position that a row sees. */
static inline uint64_t spry_attend_first(const spry_attend *a, size_t row)
{
    uint64_t position = (uint64_t)a->first_position + row;
    if (a->block)
        return position - position % a->block;
    return a->window && position + 1 > a->window ? position + 1 - a->window : 0;
}

enum { SPRY_ATTEND_HEAD_DIM_MAX = 640 }; /* largest head_dim that attend supports */
enum { SPRY_ATTEND_CHUNK_TOKENS = 512 };

/* Partial results, one for each chunk, in ascending order: sums have the layout of spry_attend.out, states the layout
 * of spry_attend.states. */
typedef struct spry_attend_parts {
    const float *sums, *states;
    size_t n_sums, n_states; /* floats of one chunk's sums, and of one chunk's states */
    size_t n;
} spry_attend_parts;

/* The index of the first entry after the chunk that begins with entry e. */
static inline size_t spry_attend_chunk_end(const spry_attend *a, size_t e)
{
    uint32_t chunk = a->entries[e].start / SPRY_ATTEND_CHUNK_TOKENS;
    while (e < a->n_entries && a->entries[e].start / SPRY_ATTEND_CHUNK_TOKENS == chunk)
        e++;
    return e;
}

/* One head of a recurrent layer, over n tokens. S is the head's state, [n_k, n_v]; a token has a factor `fade`, a
 * factor `beta`, a key k, a value v and a query q:
 *
 *   S = fade * S;  S += k (beta * (v - S k));  out = S q            with `corrects` (the delta rule)
 *   S = fade * S;  S += k (beta * v);          out = S q + skip * v  otherwise (Mamba-2)
 *
 * Every column of S is computed by itself, token after token, so that splitting the tokens changes no bit. */
typedef struct spry_recur {
    float *state;           /* [n_k, n_v] */
    const float *q, *k, *v; /* [n, stride] */
    size_t stride;
    const float *fade, *beta; /* [n, gate_stride]: one of each per token */
    size_t gate_stride;
    float *out; /* [n - first, out_stride]: only tokens from number `first` on have results */
    size_t out_stride;
    size_t n, first;
    size_t n_k, n_v;
    bool corrects;
    float skip;
} spry_recur;

typedef enum spry_gate {
    SPRY_GATE_SILU,
    SPRY_GATE_GELU_TANH,
    SPRY_GATE_CLAMPED,
    SPRY_GATE_GELU,         /* the exact form, with the error function */
    SPRY_GATE_RELU_SQUARED, /* max(x, 0)^2 */
    SPRY_GATE_COUNT
} spry_gate;

/* Increase it by hand with every change that alters a bit of any kernel's result: pages on disk that another revision
 * computed are not used. */
enum { SPRY_KERNEL_REVISION = 14 };

typedef struct spry_ops {
    const char *name; /* "ref" */

    /* Converts n values (whole blocks, at any address) to floats and back. All tables give the same bits. encode is
     * NULL for read-only types. In blocks a NaN is encoded as 0, and a value out of range as the largest value of the
     * type. */
    void (*decode[SPRY_DTYPE_COUNT])(float *out, const void *in, size_t n);
    void (*encode[SPRY_DTYPE_COUNT])(void *out, const float *in, size_t n);

    spry_matmul_kernel matmul[SPRY_DTYPE_COUNT];

    /* Encodes n floats (whole blocks) for integer kernels. All tables give the same bits. */
    void (*encode_act)(spry_act_block *out, const float *in, size_t n);

    /* out = in / sqrt(mean(in^2) + eps) * weight, over n values; out may be in. */
    void (*rms_norm)(float *out, const float *in, const float *weight, size_t n, float eps);

    /* out = (in - mean(in)) / sqrt(variance(in) + eps) * weight + bias, over n values; bias may be NULL, out may be in.
     */
    void (*layer_norm)(float *out, const float *in, const float *weight, const float *bias, size_t n, float eps);

    /* Rotates the first 2 * n_pairs values of each of n_heads heads in place by cos/sin [n_pairs]. Pairs are (i, i +
     * n_pairs), or (2i, 2i + 1) when interleaved. */
    void (*rope)(float *x, const float *cosine, const float *sine, size_t n_heads, size_t head_dim, size_t n_pairs,
                 bool interleaved);

    /* Attention for key/value heads [kv_begin, kv_end). Heads that are adjacent in a page are best read together. */
    void (*attend)(const spry_attend *a, size_t kv_begin, size_t kv_end);
    bool attend_bytes;  /* with Q8_0 pages, attend encodes queries like activations, and rounds a page's weights to 14
                         * bits */
    bool attend_halves; /* with F16 pages, attend rounds keys, values, queries and weights to bfloat16 */
    /* Combines partial results: out = what attend would have given for all pages at once, bit for bit. */
    void (*attend_join)(const spry_attend *a, const spry_attend_parts *parts, size_t kv_head);

    /* out = activation(gate) * up; out may be gate. SPRY_GATE_CLAMPED is gpt-oss's, see ref/vector_ref.c. */
    void (*gate[SPRY_GATE_COUNT])(float *out, const float *gate, const float *up, size_t n);

    void (*add)(float *x, const float *y, size_t n);                     /* x += y */
    void (*add_scaled)(float *x, const float *y, float scale, size_t n); /* x += scale * y */
    void (*scale)(float *x, float scale, size_t n);                      /* x *= scale */
    void (*softcap)(float *x, float cap, size_t n);                      /* x = cap * tanh(x / cap) */
    void (*softmax)(float *x, size_t n);                                 /* in place, max subtracted */

    void (*recur)(const spry_recur *r);

    /* weights[i] = exp(scores[i] - max), see kernels/weigh.h. All tables give the same bits. */
    void (*weigh)(double *weights, const float *scores, size_t n, float max);
} spry_ops;

/* The table for a mask: "auto" (the best this machine supports) or a name ("ref"). The error for an unknown name lists
 * the known ones. */
spry_status spry_ops_get(const spry_ops **out, const char *mask, spry_error *error);

/* Names separated by ", ". */
const char *spry_ops_names(void);

#endif
