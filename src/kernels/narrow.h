/* F16 values that are BF16 values, too. Most F16 files were made of BF16 checkpoints: BF16 then has each of their
 * values exactly, also those that became subnormal halves. */
#ifndef SPRY_KERNELS_NARROW_H
#define SPRY_KERNELS_NARROW_H

#include <stdbool.h>
#include <stddef.h>

/* Whether BF16 has all n values at `halves` (at any address), bit for bit. */
bool spry_narrow_exact(const void *halves, size_t n);

/* Turns n such values into BF16, in place. */
void spry_narrow(void *halves, size_t n);

#endif
