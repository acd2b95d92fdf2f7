/* The vector ops of the table, written once over simd_*.h. Include a simd_*.h and define OP(name), which makes the
 * function names of this instruction set, first. */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "kernels/ops.h"
#include "kernels/simd/simd_math.h"
#include "kernels/weigh.h"

/* Calls body(i) for every whole vector, then tail(i, n) for the rest. */
#define EACH(n, body, tail)                                                                                            \
    do {                                                                                                               \
        size_t i = 0;                                                                                                  \
        for (; i + LANES <= (n); i += LANES)                                                                           \
            body;                                                                                                      \
        size_t rest = (n)-i;                                                                                           \
        if (rest)                                                                                                      \
            tail;                                                                                                      \
    } while (0)

static void OP(add)(float *x, const float *y, size_t n)
{
    EACH(n, v_store(x + i, v_add(v_load(x + i), v_load(y + i))),
         v_store_part(x + i, v_add(v_load_part(x + i, rest), v_load_part(y + i, rest)), rest));
}

static void OP(add_scaled)(float *x, const float *y, float scale, size_t n)
{
    vec s = v_set(scale);
    EACH(n, v_store(x + i, v_fma(v_load(y + i), s, v_load(x + i))),
         v_store_part(x + i, v_fma(v_load_part(y + i, rest), s, v_load_part(x + i, rest)), rest));
}

static void OP(scale)(float *x, float scale, size_t n)
{
    vec s = v_set(scale);
    EACH(n, v_store(x + i, v_mul(v_load(x + i), s)), v_store_part(x + i, v_mul(v_load_part(x + i, rest), s), rest));
}

/* Recurrent heads: some columns of the state at a time, which stay in the nearest cache while the tokens pass. A sum
 * over the keys has two parts, of even and of odd keys. */

enum { RECUR_VECTORS = 2 };

SPRY_INLINE vec load_columns(const float *from, size_t n)
{
    return n < LANES ? v_load_part(from, n) : v_load(from);
}

SPRY_INLINE void store_columns(float *to, vec x, size_t n)
{
    if (n < LANES)
        v_store_part(to, x, n);
    else
        v_store(to, x);
}

/* One row of the state learns a token; its answer is added to the sums. */
SPRY_INLINE void recur_row(float *row, float k, float q, vec fade, const vec *change, vec *sums, size_t n_vectors,
                           size_t n)
{
    for (size_t j = 0; j < n_vectors; j++) {
        vec s = v_fma(v_set(k), change[j], v_mul(fade, load_columns(row + j * LANES, n)));
        sums[j] = v_fma(v_set(q), s, sums[j]);
        store_columns(row + j * LANES, s, n);
    }
}

/* Columns [column, column + n_vectors * LANES) of the state, or with n < LANES one vector with n columns. */
SPRY_INLINE void recur_columns(const spry_recur *r, size_t column, size_t n_vectors, size_t n)
{
    float *state = r->state + column;
    size_t step = r->n_v, even = r->n_k / 2 * 2;
    for (size_t t = 0; t < r->n; t++) {
        const float *k = r->k + t * r->stride, *q = r->q + t * r->stride, *v = r->v + t * r->stride + column;
        vec fade = v_set(r->fade[t * r->gate_stride]), beta = v_set(r->beta[t * r->gate_stride]);
        vec change[RECUR_VECTORS], first[RECUR_VECTORS], second[RECUR_VECTORS];
        for (size_t j = 0; j < n_vectors; j++)
            first[j] = second[j] = v_set(0);
        for (size_t i = 0; r->corrects && i < r->n_k; i += 2)
            for (size_t j = 0; j < n_vectors; j++) {
                const float *at = state + i * step + j * LANES;
                first[j] = v_fma(v_set(k[i]), load_columns(at, n), first[j]);
                if (i + 1 < r->n_k)
                    second[j] = v_fma(v_set(k[i + 1]), load_columns(at + step, n), second[j]);
            }
        for (size_t j = 0; j < n_vectors; j++) {
            vec value = load_columns(v + j * LANES, n);
            change[j] = v_mul(v_sub(value, v_mul(fade, v_add(first[j], second[j]))), beta);
            first[j] = v_mul(v_set(r->skip), value);
            second[j] = v_set(0);
        }
        for (size_t i = 0; i < even; i += 2) {
            recur_row(state + i * step, k[i], q[i], fade, change, first, n_vectors, n);
            recur_row(state + (i + 1) * step, k[i + 1], q[i + 1], fade, change, second, n_vectors, n);
        }
        if (even < r->n_k)
            recur_row(state + even * step, k[even], q[even], fade, change, first, n_vectors, n);
        for (size_t j = 0; t >= r->first && j < n_vectors; j++)
            store_columns(r->out + (t - r->first) * r->out_stride + column + j * LANES, v_add(first[j], second[j]), n);
    }
}

static void OP(recur)(const spry_recur *r)
{
    size_t column = 0;
    for (; column + RECUR_VECTORS * LANES <= r->n_v; column += RECUR_VECTORS * LANES)
        recur_columns(r, column, RECUR_VECTORS, LANES);
    for (; column + LANES <= r->n_v; column += LANES)
        recur_columns(r, column, 1, LANES);
    if (column < r->n_v)
        recur_columns(r, column, 1, r->n_v - column);
}

static vec capped(vec x, vec cap)
{
    return v_mul(v_tanh(v_div(x, cap)), cap);
}

static void OP(softcap)(float *x, float cap, size_t n)
{
    vec c = v_set(cap);
    EACH(n, v_store(x + i, capped(v_load(x + i), c)), v_store_part(x + i, capped(v_load_part(x + i, rest), c), rest));
}

static void OP(rms_norm)(float *out, const float *in, const float *weight, size_t n, float eps)
{
    vec squares = v_set(0);
    EACH(n, squares = v_fma(v_load(in + i), v_load(in + i), squares),
         squares = v_fma(v_load_part(in + i, rest), v_load_part(in + i, rest), squares));
    vec s = v_set(1 / sqrtf(v_sum(squares) / (float)n + eps));
    EACH(n, v_store(out + i, v_mul(v_mul(v_load(in + i), s), v_load(weight + i))),
         v_store_part(out + i, v_mul(v_mul(v_load_part(in + i, rest), s), v_load_part(weight + i, rest)), rest));
}

/* Subtracts the mean from n values; lanes past the end become 0. */
static vec less_mean(const float *in, vec mean, size_t n)
{
    float part[LANES];
    if (n == LANES)
        return v_sub(v_load(in), mean);
    v_store(part, mean);
    memcpy(part, in, n * sizeof *in);
    return v_sub(v_load(part), mean);
}

static void OP(layer_norm)(float *out, const float *in, const float *weight, const float *bias, size_t n, float eps)
{
    vec sum = v_set(0), squares = v_set(0), zero = v_set(0);
    EACH(n, sum = v_add(sum, v_load(in + i)), sum = v_add(sum, v_load_part(in + i, rest)));
    vec mean = v_set(v_sum(sum) / (float)n);
    EACH(n, squares = v_fma(less_mean(in + i, mean, LANES), less_mean(in + i, mean, LANES), squares),
         squares = v_fma(less_mean(in + i, mean, rest), less_mean(in + i, mean, rest), squares));
    vec s = v_set(1 / sqrtf(v_sum(squares) / (float)n + eps));
    EACH(n,
         v_store(out + i,
                 v_fma(v_mul(less_mean(in + i, mean, LANES), s), v_load(weight + i), bias ? v_load(bias + i) : zero)),
         v_store_part(out + i,
                      v_fma(v_mul(less_mean(in + i, mean, rest), s), v_load_part(weight + i, rest),
                            bias ? v_load_part(bias + i, rest) : zero),
                      rest));
}

/* x / (1 + exp(-x)) */
static vec silu(vec x)
{
    return v_div(x, v_add(v_set(1), v_exp(v_sub(v_set(0), x))));
}

static vec gelu_tanh(vec x)
{
    vec cube = v_mul(v_mul(x, x), x);
    vec inner = v_mul(v_set(0.7978845608028654f), v_fma(v_set(0.044715f), cube, x));
    return v_mul(v_mul(v_set(0.5f), x), v_add(v_set(1), v_tanh(inner)));
}

static void OP(gate_silu)(float *out, const float *gate, const float *up, size_t n)
{
    EACH(n, v_store(out + i, v_mul(silu(v_load(gate + i)), v_load(up + i))),
         v_store_part(out + i, v_mul(silu(v_load_part(gate + i, rest)), v_load_part(up + i, rest)), rest));
}

static void OP(gate_gelu_tanh)(float *out, const float *gate, const float *up, size_t n)
{
    EACH(n, v_store(out + i, v_mul(gelu_tanh(v_load(gate + i)), v_load(up + i))),
         v_store_part(out + i, v_mul(gelu_tanh(v_load_part(gate + i, rest)), v_load_part(up + i, rest)), rest));
}

static void OP(gate_gelu)(float *out, const float *gate, const float *up, size_t n)
{
    EACH(n, v_store(out + i, v_mul(v_gelu(v_load(gate + i)), v_load(up + i))),
         v_store_part(out + i, v_mul(v_gelu(v_load_part(gate + i, rest)), v_load_part(up + i, rest)), rest));
}

static vec relu_squared(vec gate, vec up)
{
    vec x = v_max(v_set(0), gate);
    return v_mul(v_mul(x, x), up);
}

static void OP(gate_relu_squared)(float *out, const float *gate, const float *up, size_t n)
{
    EACH(n, v_store(out + i, relu_squared(v_load(gate + i), v_load(up + i))),
         v_store_part(out + i, relu_squared(v_load_part(gate + i, rest), v_load_part(up + i, rest)), rest));
}

static vec clamped(vec gate, vec up)
{
    vec limit = v_set(7), x = v_min(limit, gate), y = v_clamp(v_set(-7), limit, up);
    vec slope = v_exp(v_mul(v_set(-1.702f), x));
    return v_mul(v_add(y, v_set(1)), v_div(x, v_add(v_set(1), slope)));
}

static void OP(gate_clamped)(float *out, const float *gate, const float *up, size_t n)
{
    EACH(n, v_store(out + i, clamped(v_load(gate + i), v_load(up + i))),
         v_store_part(out + i, clamped(v_load_part(gate + i, rest), v_load_part(up + i, rest)), rest));
}

static void OP(encode_f16)(void *out, const float *in, size_t n)
{
    unsigned char *bytes = out;
    EACH(n, v_store_f16(bytes + 2 * i, v_load(in + i)), spry_ref_encode_f16(bytes + 2 * i, in + i, rest));
}

static void OP(weigh)(double *weights, const float *scores, size_t n, float max)
{
    spry_weigh(weights, scores, n, max);
}

#undef EACH
