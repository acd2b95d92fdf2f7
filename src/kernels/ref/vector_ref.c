/* Ops over vectors: norm, sums, scaling, softcap, softmax; the gates of feed-forward layers, activation(gate) * up;
 * rope. */
#include <math.h>

#include "kernels/ref/lanes.h"
#include "kernels/ref/ref.h"
#include "kernels/weigh.h"

/* ---- norms, sums, softmax ---------------------------------------------------------------------------------------- */

void spry_ref_rms_norm(float *out, const float *in, const float *weight, size_t n, float eps)
{
    float mean = spry_dot(in, in, n) / (float)n;
    float scale = 1.0f / sqrtf(mean + eps);
    for (size_t i = 0; i < n; i++)
        out[i] = in[i] * scale * weight[i];
}

void spry_ref_layer_norm(float *out, const float *in, const float *weight, const float *bias, size_t n, float eps)
{
    float lanes[SPRY_LANES] = {0}, squares[SPRY_LANES] = {0};
    for (size_t i = 0; i < n; i++)
        lanes[i % SPRY_LANES] += in[i];
    float mean = spry_lanes_fold(lanes) / (float)n;
    for (size_t i = 0; i < n; i++)
        squares[i % SPRY_LANES] += (in[i] - mean) * (in[i] - mean);
    float scale = 1.0f / sqrtf(spry_lanes_fold(squares) / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        out[i] = (in[i] - mean) * scale * weight[i] + (bias ? bias[i] : 0);
}

void spry_ref_add(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

void spry_ref_add_scaled(float *x, const float *y, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += scale * y[i];
}

void spry_ref_scale(float *x, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= scale;
}

/* One column of a head's state. */
static void recur_column(const spry_recur *r, size_t column)
{
    float *state = r->state + column;
    for (size_t t = 0; t < r->n; t++) {
        const float *k = r->k + t * r->stride, *q = r->q + t * r->stride;
        float fade = r->fade[t * r->gate_stride], v = r->v[t * r->stride + column], known = 0, sum = 0;
        for (size_t i = 0; r->corrects && i < r->n_k; i++)
            known += k[i] * state[i * r->n_v];
        float change = (v - fade * known) * r->beta[t * r->gate_stride];
        for (size_t i = 0; i < r->n_k; i++) {
            state[i * r->n_v] = fade * state[i * r->n_v] + k[i] * change;
            sum += q[i] * state[i * r->n_v];
        }
        if (t >= r->first)
            r->out[(t - r->first) * r->out_stride + column] = sum + r->skip * v;
    }
}

void spry_ref_recur(const spry_recur *r)
{
    for (size_t column = 0; column < r->n_v; column++)
        recur_column(r, column);
}

void spry_ref_softcap(float *x, float cap, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = cap * tanhf(x[i] / cap);
}

void spry_ref_softmax(float *x, size_t n)
{
    float max = -INFINITY;
    for (size_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    float lanes[SPRY_LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - max);
        lanes[i % SPRY_LANES] += x[i];
    }
    spry_ref_scale(x, 1.0f / spry_lanes_fold(lanes), n);
}

void spry_ref_weigh(double *weights, const float *scores, size_t n, float max)
{
    spry_weigh(weights, scores, n, max);
}

/* ---- gates ------------------------------------------------------------------------------------------------------- */

void spry_ref_gate_silu(float *out, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

/* The tanh approximation, as in gelu_pytorch_tanh. */
void spry_ref_gate_gelu_tanh(float *out, const float *gate, const float *up, size_t n)
{
    const float sqrt_2_over_pi = 0.79788456080286535588f;
    for (size_t i = 0; i < n; i++) {
        float x = gate[i];
        float inner = sqrt_2_over_pi * (x + 0.044715f * (x * x * x));
        out[i] = 0.5f * x * (1.0f + tanhf(inner)) * up[i];
    }
}

void spry_ref_gate_gelu(float *out, const float *gate, const float *up, size_t n)
{
    const float sqrt_half = 0.70710678118654752440f;
    for (size_t i = 0; i < n; i++)
        out[i] = 0.5f * gate[i] * (1.0f + erff(gate[i] * sqrt_half)) * up[i];
}

void spry_ref_gate_relu_squared(float *out, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = gate[i] < 0 ? 0 : gate[i];
        out[i] = x * x * up[i];
    }
}

/* The gate of gpt-oss: (up + 1) * gate * sigmoid(1.702 gate), with gate limited to at most 7 and up to -7 .. 7. */
void spry_ref_gate_clamped(float *out, const float *gate, const float *up, size_t n)
{
    const float limit = 7, alpha = 1.702f;
    for (size_t i = 0; i < n; i++) {
        float x = gate[i] > limit ? limit : gate[i];
        float y = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        out[i] = (y + 1) * (x / (1.0f + expf(-alpha * x)));
    }
}

/* ---- rotary position embedding ----------------------------------------------------------------------------------- */

void spry_ref_rope(float *x, const float *cosine, const float *sine, size_t n_heads, size_t head_dim, size_t n_pairs,
                   bool interleaved)
{
    size_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : n_pairs;
    for (size_t head = 0; head < n_heads; head++, x += head_dim)
        for (size_t i = 0; i < n_pairs; i++) {
            float *first = x + i * step, *second = first + apart;
            float a = *first, b = *second;
            *first = a * cosine[i] - b * sine[i];
            *second = a * sine[i] + b * cosine[i];
        }
}
