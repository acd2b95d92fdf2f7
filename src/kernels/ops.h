/* The op table: everything the forward pass does with numbers. Each op exists first as plain C (ref/); instruction sets
 * overwrite entries of the table upward. No op allocates, and none knows about threads: callers hand out ranges.
 *
 * Invariance: a row's result never depends on the other rows of the call or on how ranges were split. Each sum runs in
 * one fixed order. */
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
    const void *weight;   /* rows of whole blocks as in a file, at any address; or groups of rows, packed */
    size_t weight_stride; /* bytes from row to row, or from group to group */
    const void *act;      /* [n_rows, n_in]: floats, or spry_act_blocks for integer kernels */
    size_t act_stride;    /* bytes from row to row */
    size_t n_rows, n_in;
} spry_matmul;

typedef struct spry_matmul_kernel {
    bool integer;   /* activations are spry_act_blocks */
    uint32_t group; /* rows that are packed together (packed.h); 0: weights as they lie in the file */
    /* Outputs [out_begin, out_end); both whole groups, but for the matrix' own end. */
    void (*run)(const spry_matmul *m, size_t out_begin, size_t out_end);
} spry_matmul_kernel;

/* A page of a sequence's table, as attention sees it. */
typedef struct spry_kv_entry {
    uint32_t page;  /* index in the pool */
    uint32_t start; /* position of its first token in the sequence */
    uint32_t count; /* tokens it holds */
    uint32_t turn;  /* which of the turns brings queries to it */
} spry_kv_entry;

/* Keys stand in a page turned to positions of their own. Where a table uses the page elsewhere, queries are turned back
 * by the difference instead: cos and sin of that rotation, [n_pairs]. NULL: the page is used where it stands. */
typedef struct spry_turn {
    const float *cosine, *sine;
} spry_turn;

/* Attention of consecutive rows of one sequence over its pages, for one key/value head and the query heads that share
 * it. Row r stands at position first_position + r and sees keys at positions p <= its own, within `window` when that is
 * not 0 (distance 0 .. window-1). Keys and values are in the pages already, this step's too. */
typedef struct spry_attend {
    float *out;         /* [n_rows, row_stride]: head h of a row at h * head_dim */
    const float *query; /* the same layout, rotated */
    size_t row_stride;  /* in floats */
    size_t n_rows;
    uint32_t first_position;
    uint32_t window; /* 0: none */
    size_t head_dim;
    size_t group;               /* query heads per key/value head */
    float scale;                /* multiplies scores */
    float softcap;              /* 0: none; else cap * tanh(score / cap) */
    spry_dtype type;            /* of keys and values: F32, F16 or Q8_0 */
    const unsigned char *pages; /* aligned for floats, and so is all within when the type is F32 */
    size_t page_bytes;
    size_t key_offset, value_offset; /* of this layer's heads in a page; kv_layout.h says how each lies */
    size_t head_bytes;               /* of a head's keys, or values */
    size_t token_bytes;              /* of one token's values */
    const spry_kv_entry *entries;    /* ascending by start, without gaps */
    size_t n_entries;
    const spry_turn *turns; /* by an entry's number; NULL: every page is used where it stands */
    size_t n_pairs;         /* of a turn, as in rope; so is interleaved */
    bool interleaved;
} spry_attend;

enum { SPRY_ATTEND_HEAD_DIM_MAX = 512 }; /* largest head_dim attend takes */

typedef enum spry_gate { SPRY_GATE_SILU, SPRY_GATE_GELU_TANH, SPRY_GATE_COUNT } spry_gate;

typedef struct spry_ops {
    const char *name; /* "ref" */

    /* n values of a type to floats and back; n is whole blocks, at any address. Every table gives the same bits. encode
     * is NULL for types we only read; in blocks a NaN becomes 0, and what is too large the largest the type can hold.
     */
    void (*decode[SPRY_DTYPE_COUNT])(float *out, const void *in, size_t n);
    void (*encode[SPRY_DTYPE_COUNT])(void *out, const float *in, size_t n);

    spry_matmul_kernel matmul[SPRY_DTYPE_COUNT];

    /* n floats (whole blocks) as integer kernels want them. Every table gives the same bits. */
    void (*encode_act)(spry_act_block *out, const float *in, size_t n);

    /* out = in / sqrt(mean(in^2) + eps) * weight, over n values; out may be in. */
    void (*rms_norm)(float *out, const float *in, const float *weight, size_t n, float eps);

    /* Rotates the first 2 * n_pairs values of each of n_heads heads in place by cos/sin [n_pairs]. Pairs are (i, i +
     * n_pairs), or (2i, 2i + 1) when interleaved. */
    void (*rope)(float *x, const float *cosine, const float *sine, size_t n_heads, size_t head_dim, size_t n_pairs,
                 bool interleaved);

    void (*attend)(const spry_attend *a, size_t kv_head);

    /* out = activation(gate) * up; out may be gate. */
    void (*gate[SPRY_GATE_COUNT])(float *out, const float *gate, const float *up, size_t n);

    void (*add)(float *x, const float *y, size_t n);                     /* x += y */
    void (*add_scaled)(float *x, const float *y, float scale, size_t n); /* x += scale * y */
    void (*scale)(float *x, float scale, size_t n);                      /* x *= scale */
    void (*softcap)(float *x, float cap, size_t n);                      /* x = cap * tanh(x / cap) */
    void (*softmax)(float *x, size_t n);                                 /* in place, max subtracted */

    /* weights[i] = exp(scores[i] - max), as kernels/weigh.h says. Every table gives the same bits. */
    void (*weigh)(double *weights, const float *scores, size_t n, float max);
} spry_ops;

/* The table for a mask: "auto" (all this machine has) or a name of it ("ref"). An unknown name lists the known ones. */
spry_status spry_ops_get(const spry_ops **out, const char *mask, spry_error *error);

/* Names separated by ", ". */
const char *spry_ops_names(void);

#endif
