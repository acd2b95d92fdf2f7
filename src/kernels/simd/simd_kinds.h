/* Properties of quantised types that the integer products depend on. */
#ifndef SPRY_KERNELS_SIMD_KINDS_H
#define SPRY_KERNELS_SIMD_KINDS_H

#include <stdbool.h>

#include "base/dtype.h"

/* True if every 16 values have a scale. */
static inline bool has_sixteens(spry_dtype type)
{
    return type == SPRY_Q6_K || type == SPRY_Q3_K || type == SPRY_Q2_K;
}

/* True if every block of 32 has a minimum. (Q2_K has two per block.) */
static inline bool has_min(spry_dtype type)
{
    return type == SPRY_Q4_1 || type == SPRY_Q5_1 || type == SPRY_Q4_K || type == SPRY_Q5_K;
}

/* True if the type's blocks have 256 values. */
static inline bool is_large(spry_dtype type)
{
    return has_sixteens(type) || type == SPRY_Q4_K || type == SPRY_Q5_K || type == SPRY_IQ4_XS || type == SPRY_TQ1_0 ||
           type == SPRY_TQ2_0;
}

/* The level that means 0, for types whose levels are unsigned. */
static inline int zero_point(spry_dtype type)
{
    switch (type) {
    case SPRY_Q4_0: return 8;
    case SPRY_Q5_0: return 16;
    case SPRY_Q8_0:
    case SPRY_IQ4_NL:
    case SPRY_IQ4_XS:
    case SPRY_MXFP4: return 128;
    case SPRY_TQ1_0:
    case SPRY_TQ2_0: return 1;
    case SPRY_Q6_K: return 32;
    case SPRY_Q3_K: return 4;
    default: return 0;
    }
}

#endif
