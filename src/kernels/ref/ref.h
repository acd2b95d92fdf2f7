/* The plain C kernels of ops.h: the base of every other table and the reference in tests. Contracts: see the
 * table's entries. */
#ifndef SPRY_KERNELS_REF_H
#define SPRY_KERNELS_REF_H

#include "kernels/ops.h"

typedef void (*spry_decode_fn)(float *out, const void *in, size_t n);

/* The table of all plain kernels; defined in ops.c. */
extern const spry_ops spry_ops_ref;

/* The types that can also be encoded. */
#define SPRY_REF_ENCODED_TYPES(X) SPRY_DTYPES_FLOAT(X) SPRY_DTYPES_WRITTEN(X)

/* spry_ref_decode_f32 and so on; decode_ref.c */
#define SPRY_REF_DECLARE(NAME, name, ...) void spry_ref_decode_##name(float *out, const void *in, size_t n);
SPRY_DTYPES_KNOWN(SPRY_REF_DECLARE)
#undef SPRY_REF_DECLARE

/* spry_ref_encode_f32 and so on; encode_ref.c and encode_large_ref.c */
#define SPRY_REF_DECLARE(NAME, name, ...) void spry_ref_encode_##name(void *out, const float *in, size_t n);
SPRY_REF_ENCODED_TYPES(SPRY_REF_DECLARE)
#undef SPRY_REF_DECLARE

/* spry_ref_matmul_f32 and so on; matmul_ref.c. All take float activations and weights in file layout. */
#define SPRY_REF_DECLARE(NAME, name, ...)                                                                              \
    void spry_ref_matmul_##name(const spry_matmul *m, size_t out_begin, size_t out_end);
SPRY_DTYPES_KNOWN(SPRY_REF_DECLARE)
#undef SPRY_REF_DECLARE

void spry_ref_attend(const spry_attend *a, size_t kv_begin, size_t kv_end);
void spry_ref_attend_join(const spry_attend *a, const spry_attend_parts *parts, size_t kv_head);

void spry_ref_rope(float *x, const float *cosine, const float *sine, size_t n_heads, size_t head_dim, size_t n_pairs,
                   bool interleaved);

void spry_ref_gate_silu(float *out, const float *gate, const float *up, size_t n);
void spry_ref_gate_gelu_tanh(float *out, const float *gate, const float *up, size_t n);
void spry_ref_gate_clamped(float *out, const float *gate, const float *up, size_t n);
void spry_ref_gate_gelu(float *out, const float *gate, const float *up, size_t n);
void spry_ref_gate_relu_squared(float *out, const float *gate, const float *up, size_t n);

void spry_ref_rms_norm(float *out, const float *in, const float *weight, size_t n, float eps);
void spry_ref_layer_norm(float *out, const float *in, const float *weight, const float *bias, size_t n, float eps);
void spry_ref_add(float *x, const float *y, size_t n);
void spry_ref_add_scaled(float *x, const float *y, float scale, size_t n);
void spry_ref_scale(float *x, float scale, size_t n);
void spry_ref_recur(const spry_recur *r);
void spry_ref_softcap(float *x, float cap, size_t n);
void spry_ref_softmax(float *x, size_t n);
void spry_ref_weigh(double *weights, const float *scores, size_t n, float max);

/* ---- the table's entries, for initialisers ---------------------------------------------------------------------- */

#define SPRY_REF_DECODE_ENTRY(NAME, name, ...) [SPRY_##NAME] = spry_ref_decode_##name,
#define SPRY_REF_ENCODE_ENTRY(NAME, name, ...) [SPRY_##NAME] = spry_ref_encode_##name,
#define SPRY_REF_MATMUL_ENTRY(NAME, name, ...) [SPRY_##NAME] = {.run = spry_ref_matmul_##name},

/* All entries except the name. The table of an instruction set is an initialiser that starts with these entries and
 * adds its own; if an entry is initialised twice, C uses the later value. */
#define SPRY_REF_OPS                                                                                                   \
    .decode = {SPRY_DTYPES_KNOWN(SPRY_REF_DECODE_ENTRY)}, .encode = {SPRY_REF_ENCODED_TYPES(SPRY_REF_ENCODE_ENTRY)},   \
    .matmul = {SPRY_DTYPES_KNOWN(SPRY_REF_MATMUL_ENTRY)}, .rms_norm = spry_ref_rms_norm,                               \
    .layer_norm = spry_ref_layer_norm, .rope = spry_ref_rope, .encode_act = spry_act_encode,                           \
    .attend = spry_ref_attend, .attend_join = spry_ref_attend_join,                                                    \
    .gate = {[SPRY_GATE_SILU] = spry_ref_gate_silu,                                                                    \
             [SPRY_GATE_GELU_TANH] = spry_ref_gate_gelu_tanh,                                                          \
             [SPRY_GATE_CLAMPED] = spry_ref_gate_clamped,                                                              \
             [SPRY_GATE_GELU] = spry_ref_gate_gelu,                                                                    \
             [SPRY_GATE_RELU_SQUARED] = spry_ref_gate_relu_squared},                                                   \
    .add = spry_ref_add, .add_scaled = spry_ref_add_scaled, .scale = spry_ref_scale, .softcap = spry_ref_softcap,      \
    .recur = spry_ref_recur, .softmax = spry_ref_softmax, .weigh = spry_ref_weigh

#endif
