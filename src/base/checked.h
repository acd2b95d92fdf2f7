/* Arithmetic on untrusted sizes. Each function returns false and leaves *out unchanged when the result does not fit. */
#ifndef SPRY_BASE_CHECKED_H
#define SPRY_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool spry_checked_add(size_t *out, size_t a, size_t b)
{
    if (a > SIZE_MAX - b)
        return false;
    *out = a + b;
    return true;
}

static inline bool spry_checked_mul(size_t *out, size_t a, size_t b)
{
    if (b != 0 && a > SIZE_MAX / b)
        return false;
    *out = a * b;
    return true;
}

/* Rounds up to a multiple of `step`, a power of two. */
static inline bool spry_checked_align(size_t *out, size_t a, size_t step)
{
    size_t sum;
    if (!spry_checked_add(&sum, a, step - 1))
        return false;
    *out = sum & ~(step - 1);
    return true;
}

#endif
