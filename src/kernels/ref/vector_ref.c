/* Ops over one vector: norm, sums, scaling, softcap, softmax. */
#include <math.h>

#include "kernels/ref/lanes.h"
#include "kernels/ref/ref.h"
#include "kernels/weigh.h"

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
