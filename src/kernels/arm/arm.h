/* The table for 64-bit ARM. NEON itself is part of every such machine; the table means with the dot-product
 * instructions (ARMv8.2 and later), because integer products without them are not worth a table. */
#ifndef SPRY_KERNELS_ARM_H
#define SPRY_KERNELS_ARM_H

#include "kernels/ops.h"

extern const spry_ops spry_ops_neon;

#endif
