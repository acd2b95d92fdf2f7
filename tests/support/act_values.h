/* Encoded activations as floats. */
#ifndef SPRY_TESTS_ACT_VALUES_H
#define SPRY_TESTS_ACT_VALUES_H

#include "kernels/act.h"

/* The values that an integer kernel actually multiplies by. */
static inline void act_values(float *out, const spry_act_block *in, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = in[i / SPRY_ACT_BLOCK].scale * (float)in[i / SPRY_ACT_BLOCK].values[i % SPRY_ACT_BLOCK];
}

#endif
