/* Plain C. Instruction sets have their own encoders, which give the same bits. */
#include "kernels/act.h"

#include <math.h>
#include <stdbool.h>

void spry_act_encode(spry_act_block *out, const float *in, size_t n)
{
    for (size_t b = 0; b < n / SPRY_ACT_BLOCK; b++, in += SPRY_ACT_BLOCK) {
        spry_act_block *block = &out[b];
        float largest = 0, check = 0;
        for (size_t i = 0; i < SPRY_ACT_BLOCK; i++) {
            largest = fabsf(in[i]) > largest ? fabsf(in[i]) : largest;
            check += in[i] * 0; /* NaN when any value is not finite */
        }
        bool finite = check == 0;
        largest = largest < SPRY_ACT_SMALLEST ? 0 : largest;
        float inverse = largest > 0 ? 127 / largest : 0;
        int sums[2] = {0, 0};
        for (size_t i = 0; i < SPRY_ACT_BLOCK; i++) {
            block->values[i] = (int8_t)(finite ? rintf(in[i] * inverse) : 0);
            sums[i / 16] += block->values[i];
        }
        block->scale = finite ? largest / 127 : NAN;
        block->scaled_sum = block->scale * (float)(sums[0] + sums[1]);
        block->minus_8_sum = -8 * (sums[0] + sums[1]);
        block->half_sum[0] = (int16_t)sums[0];
        block->half_sum[1] = (int16_t)sums[1];
    }
}
