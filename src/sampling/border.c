/* A radix selection on 32-bit keys in digits of 11, 11 and 10 bits. After the last digit one key is left. */
#include "sampling/border.h"

enum { DIGIT_BITS = 11, DIGIT_VALUES = 1 << DIGIT_BITS };

/* Sums of weights per digit, of the keys that agree with `prefix` in `known` (a mask of high bits). */
static void sum_digits(double *sums, const uint32_t *keys, const double *weights, size_t n, uint32_t known,
                       uint32_t prefix, unsigned shift)
{
    for (size_t i = 0; i < DIGIT_VALUES; i++)
        sums[i] = 0;
    for (size_t i = 0; i < n; i++)
        if ((keys[i] & known) == prefix)
            sums[(keys[i] & ~known) >> shift] += weights ? weights[i] : 1.0;
}

spry_border spry_border_find(const uint32_t *keys, const double *weights, size_t n, double goal)
{
    static const unsigned shifts[] = {21, 10, 0};
    double sums[DIGIT_VALUES];
    spry_border border = {0};
    uint32_t known = 0;
    for (size_t level = 0; level < sizeof shifts / sizeof shifts[0]; level++) {
        sum_digits(sums, keys, weights, n, known, border.key, shifts[level]);
        /* Sums of different levels round differently, so the last digit in use must do when none reaches the goal. */
        uint32_t digit = 0;
        double sum = border.before;
        for (uint32_t i = 0; i < DIGIT_VALUES; i++) {
            if (!(sums[i] > 0))
                continue;
            digit = i;
            border.before = sum;
            sum += sums[i];
            if (sum >= goal)
                break;
        }
        border.key |= digit << shifts[level];
        known |= UINT32_MAX << shifts[level];
    }
    return border;
}
