/* Which F16 values have at most eight significant bits, as BF16 values do (seven of them stored), and their
 * conversion. */
#include "kernels/narrow.h"

#include "kernels/half.h"

enum { AT_A_TIME = 1024 };

/* The bits after the eighth significant one. The smaller a subnormal number is, the fewer such bits it has. */
static inline uint16_t spare_bits(uint16_t half)
{
    uint16_t top = half >> 8 & 3; /* the upper two bits of the mantissa */
    uint16_t subnormal = (uint16_t)(top | top >> 1), exponent = half & 0x7c00;
    return exponent ? 7 : subnormal;
}

bool spry_narrow_exact(const void *halves, size_t n)
{
    const unsigned char *in = halves;
    uint16_t lost = 0;
    for (size_t first = 0; first < n && !lost; first += AT_A_TIME) {
        size_t end = n - first < AT_A_TIME ? n : first + AT_A_TIME;
        for (size_t i = first; i < end; i++) {
            uint16_t half;
            memcpy(&half, in + 2 * i, sizeof half);
            lost = (uint16_t)(lost | (half & spare_bits(half)));
        }
    }
    return !lost;
}

void spry_narrow(void *halves, size_t n)
{
    unsigned char *values = halves;
    for (size_t i = 0; i < n; i++) {
        uint16_t value;
        memcpy(&value, values + 2 * i, sizeof value);
        value = (uint16_t)(spry_float_bits(spry_f16_decode(value)) >> 16);
        memcpy(values + 2 * i, &value, sizeof value);
    }
}
