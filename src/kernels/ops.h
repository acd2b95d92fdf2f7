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
    const void *weight;   /* rows of whole blocks as in the file, at any address; or packed groups of rows */
    size_t weight_stride; /* bytes from row to row, or from group to group */
    const void *act;      /* [n_rows, n_in]: floats, or spry_act_blocks for integer kernels */
    size_t act_stride;    /* bytes from row to row */
    size_t n_rows, n_in;
    const uint16_t *halves; /* NULL; or act as `halve` of the kernel gives it, for all calls that share it */
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
    bool integer;   /* activations are spry_act_blocks */
    bool bf16;      /* activations are floats, which the kernel rounds to BF16; subnormal numbers count as zeros */
    uint32_t group; /* rows packed together (packed.h); 0: weights in file layout */
    /* NULL; or rounds n activations to BF16, with zeros after them up to a multiple of SPRY_HALVES_BLOCK, as `run`
     * does where it gets no halves. */
    void (*halve)(uint16_t *out, const float *in, size_t n);
    /* A type with a faster kernel, whose groups have as many rows and bytes: matrices all of whose values it has
     * exactly are packed as such, and its kernel multiplies them (narrow.h). F32, which is 0: none. */
    spry_dtype narrow;
    /* Computes outputs [out_begin, out_end); both are multiples of the group, except at the end of the matrix. */
    void (*run)(const spry_matmul *m, size_t out_begin, size_t out_end);
} spry_matmul_kernel;

/* A page of a sequence's table. */
typedef struct spry_kv_entry {
    uint32_t page;  /* index in the pool */
    uint32_t start; /* position of its first token in the sequence */
    uint32_t count; /* tokens it holds */
    uint32_t turn;  /* index of the rotation for queries */
} spry_kv_entry;

/* Keys in a page are rotated for the page's own positions. When a table uses the page at other positions, queries are
 * rotated back by the difference instead: cos and sin of that rotation, [n_pairs]. NULL: no difference. */
typedef struct spry_turn {
    const float *cosine, *sine;
} spry_turn;

/* Attention of consecutive rows of one sequence over its pages, for one key/value head and the query heads that share
 * it. Pages are taken in chunks: those that start in the same SPRY_ATTEND_CHUNK_TOKENS positions. Each chunk has a
 * softmax of its own, and these are joined in ascending order, so that chunks may be computed at the same time. Row r
 * is at position first_position + r and attends to keys at positions up to its own, within `window` if that is not 0
 * (distance 0 .. window-1), and `ahead` of it. Keys and values, including the keys and values of this step, are already
 * in the pages.
 */
typedef struct spry_attend {
    float *out;         /* [n_rows, row_stride]: head h of a row at h * head_dim */
    const float *query; /* same layout, rotated */
    size_t row_stride;  /* in floats */
    size_t n_rows;
    uint32_t first_position;
    uint32_t window; /* 0: none */
    uint32_t block;  /* 0: none; or a row sees only keys of its own block of so many positions */
    uint32_t ahead;  /* positions after its own that a row sees, as far as the table goes; 0: none */
    size_t head_dim;
    size_t group;               /* query heads per key/value head */
    float scale;                /* factor of the scores */
    float softcap;              /* 0: none; else cap * tanh(score / cap) */
    spry_dtype type;            /* of keys and values: F32, F16 or Q8_0 */
    const unsigned char *pages; /* aligned for floats; with F32 every address within is too */
    size_t page_bytes;
    size_t key_offset, value_offset; /* of this layer's heads in a page; see kv_layout.h */
    size_t head_bytes;               /* of a head's keys, or values */
    size_t token_bytes;              /* of one token's values */
    size_t latent; /* 0: values have their own place; else the last `latent` coordinates of a key are its value, and
                    * values of out are the first of a head */
    float *states; /* NULL; or results stay unfinished, a part to be joined: out has weighted sums, and this, for each
                    * head of each row, the largest score and the sum of the weights. Sinks are then left out */
    size_t state_stride; /* from row to row, in floats */
    const float *sinks;  /* NULL, or a score a query head that takes its share of the weights and gives nothing */
    const spry_kv_entry *entries; /* ascending by start, without gaps */
    size_t n_entries;
    const spry_kv_entry *after; /* entries that this thread is likely to read next: requested ahead, no more */
    size_t n_after;
    const spry_turn *turns; /* indexed by an entry's turn; NULL: no page is rotated */
    size_t n_pairs;         /* pairs of a rotation, and their order, as in rope */
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

/* Unfinished results over one chunk each, ascending: sums have the layout of out, states that of spry_attend. */
typedef struct spry_attend_parts {
    const float *sums, *states;
    size_t n_sums, n_states; /* of each, in floats */
    size_t n;
} spry_attend_parts;

/* The first entry after that of the chunk which begins with entry e. */
static inline size_t spry_attend_chunk_end(const spry_attend *a, size_t e)
{
    uint32_t chunk = a->entries[e].start / SPRY_ATTEND_CHUNK_TOKENS;
    while (e < a->n_entries && a->entries[e].start / SPRY_ATTEND_CHUNK_TOKENS == chunk)
        e++;
    return e;
}

typedef enum spry_gate {
    SPRY_GATE_SILU,
    SPRY_GATE_GELU_TANH,
    SPRY_GATE_CLAMPED,
    SPRY_GATE_GELU,         /* by the error function */
    SPRY_GATE_RELU_SQUARED, /* max(x, 0)^2 */
    SPRY_GATE_COUNT
} spry_gate;

/* Bump it by hand with every change that alters a bit of what any kernel gives: pages on disk that were computed by
 * another revision are not used. */
enum { SPRY_KERNEL_REVISION = 12 };

typedef struct spry_ops {
    const char *name; /* "ref" */

    /* Converts n values (whole blocks, at any address) to floats and back. All tables give the same bits. encode is
     * NULL for read-only types; in blocks a NaN becomes 0, and overflow the largest value of the type. */
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

    /* Of key/value heads [kv_begin, kv_end): heads of a page that are side by side are best read together. */
    void (*attend)(const spry_attend *a, size_t kv_begin, size_t kv_end);
    bool attend_bytes;  /* with Q8_0 pages, attend encodes queries as activations are, and weights in 14 bits a page */
    bool attend_halves; /* with F16 keys and values, attend rounds these, queries and weights to bfloat16 */
    /* out = what attend would have given for all pages at once, bit for bit. */
    void (*attend_join)(const spry_attend *a, const spry_attend_parts *parts, size_t kv_head);

    /* out = activation(gate) * up; out may be gate. SPRY_GATE_CLAMPED is gpt-oss's, see ref/vector_ref.c. */
    void (*gate[SPRY_GATE_COUNT])(float *out, const float *gate, const float *up, size_t n);

    void (*add)(float *x, const float *y, size_t n);                     /* x += y */
    void (*add_scaled)(float *x, const float *y, float scale, size_t n); /* x += scale * y */
    void (*scale)(float *x, float scale, size_t n);                      /* x *= scale */
    void (*softcap)(float *x, float cap, size_t n);                      /* x = cap * tanh(x / cap) */
    void (*softmax)(float *x, size_t n);                                 /* in place, max subtracted */

    /* weights[i] = exp(scores[i] - max), see kernels/weigh.h. All tables give the same bits. */
    void (*weigh)(double *weights, const float *scores, size_t n, float max);
} spry_ops;

/* The table for a mask: "auto" (the best this machine supports) or a name ("ref"). The error for an unknown name lists
 * the known ones. */
spry_status spry_ops_get(const spry_ops **out, const char *mask, spry_error *error);

/* Names separated by ", ". */
const char *spry_ops_names(void);

#endif
