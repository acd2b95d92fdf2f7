/* The table for 64-bit ARM with the dot-product instructions (ARMv8.2 and later). All 64-bit ARM machines have NEON,
 * but integer products without dot products are too slow to be useful. */
#ifndef SPRY_KERNELS_ARM_H
#define SPRY_KERNELS_ARM_H

#include "kernels/ops.h"

extern const spry_ops spry_ops_neon;

#endif
