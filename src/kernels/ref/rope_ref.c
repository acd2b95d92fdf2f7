/* Rotary position embedding. */
#include "kernels/ref/ref.h"

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
