/* F16 values that BF16 can represent exactly. Most F16 files were made from BF16 checkpoints, so BF16 can represent all
 * their values, including those that became subnormal halves. */
#ifndef SPRY_KERNELS_NARROW_H
#define SPRY_KERNELS_NARROW_H

#include <stdbool.h>
#include <stddef.h>

/* True if BF16 can represent all n values at `halves` (at any address) exactly. */
bool spry_narrow_exact(const void *halves, size_t n);

/* Converts n such values to BF16, in place. */
void spry_narrow(void *halves, size_t n);

#endif
