/* Where a ranking is cut: the key at which a running sum of weights, taken in order of rising keys, reaches a goal.
 * Found digit by digit from sums per digit, so nothing is sorted and the time does not depend on the data's order. */
#ifndef SPRY_SAMPLING_BORDER_H
#define SPRY_SAMPLING_BORDER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct spry_border {
    uint32_t key;  /* the last key to keep */
    double before; /* sum of the weights of smaller keys */
} spry_border;

/* `weights` are above 0; NULL: each is 1. n is at least 1. When rounding keeps the sum below the goal, or the goal is
 * above the sum, the border is the largest key. */
spry_border spry_border_find(const uint32_t *keys, const double *weights, size_t n, double goal);

/* Keys of floats: smaller floats have smaller keys, and the two zeros are one. */
static inline uint32_t spry_border_rising(float value)
{
    uint32_t bits;
    value += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &value, sizeof bits);
    return bits ^ ((0 - (bits >> 31)) | 0x80000000u);
}

/* Larger floats have smaller keys. */
static inline uint32_t spry_border_falling(float value)
{
    return ~spry_border_rising(value);
}

#endif
