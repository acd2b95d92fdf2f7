/* The gates of feed-forward layers: activation(gate) * up. */
#include <math.h>

#include "kernels/ref/ref.h"

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

/* gpt-oss: gates of at most 7, the rest within 7; (up + 1) * gate * sigmoid(1.702 gate). */
void spry_ref_gate_clamped(float *out, const float *gate, const float *up, size_t n)
{
    const float limit = 7, alpha = 1.702f;
    for (size_t i = 0; i < n; i++) {
        float x = gate[i] > limit ? limit : gate[i];
        float y = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        out[i] = (y + 1) * (x / (1.0f + expf(-alpha * x)));
    }
}
