/* The summation order of the reference kernels: 16 lanes, lane j sums the terms j, j + 16, j + 32, ..., and one tree
 * adds the lanes at the end. Lanes are independent, so compilers vectorise it without reordering, and a sum may be
 * interrupted at any multiple of 16. */
#ifndef SPRY_KERNELS_LANES_H
#define SPRY_KERNELS_LANES_H

#include <stddef.h>
#include <string.h>

enum { SPRY_LANES = 16 };

/* Adds a[i] * b[i] to the lanes; the first term belongs to lane 0. */
static inline void spry_lanes_dot(float lanes[SPRY_LANES], const float *a, const float *b, size_t n)
{
    float sums[SPRY_LANES]; /* a local copy, which the compiler can keep in registers */
    memcpy(sums, lanes, sizeof sums);
    size_t i = 0;
    for (; i + SPRY_LANES <= n; i += SPRY_LANES)
        for (size_t lane = 0; lane < SPRY_LANES; lane++)
            sums[lane] += a[i + lane] * b[i + lane];
    for (size_t lane = 0; i + lane < n; lane++)
        sums[lane] += a[i + lane] * b[i + lane];
    memcpy(lanes, sums, sizeof sums);
}

static inline float spry_lanes_fold(const float lanes[SPRY_LANES])
{
    float sums[SPRY_LANES];
    memcpy(sums, lanes, sizeof sums);
    for (size_t width = SPRY_LANES / 2; width > 0; width /= 2)
        for (size_t lane = 0; lane < width; lane++)
            sums[lane] += sums[lane + width];
    return sums[0];
}

/* A complete dot product. */
static inline float spry_dot(const float *a, const float *b, size_t n)
{
    float lanes[SPRY_LANES] = {0};
    spry_lanes_dot(lanes, a, b, n);
    return spry_lanes_fold(lanes);
}

#endif
