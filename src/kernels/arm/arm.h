/* The tables for 64-bit ARM. All such machines have NEON; dotprod (ARMv8.2 and later) multiplies bytes four at a time,
 * i8mm (ARMv8.6) by tiles of two rows and two outputs, and all three give the same bits. The bf16 table adds products
 * of BF16 weights with activations rounded to BF16. Vectors are of 128 bits everywhere: see docs/SPEED.md for SVE. */
#ifndef SPRY_KERNELS_ARM_H
#define SPRY_KERNELS_ARM_H

#include "kernels/ops.h"

extern const spry_ops spry_ops_neon, spry_ops_dotprod, spry_ops_i8mm, spry_ops_bf16;

#endif
