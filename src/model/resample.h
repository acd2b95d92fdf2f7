/* Pictures at another size, with the filters and the rounding of the references: every pixel is a sum over all source
 * pixels that its filter covers when the picture shrinks (antialiasing), columns first, rounded to 8 bits after each
 * direction. Weights are fixed-point numbers as in torchvision and Pillow, so pixels are the same. */
#ifndef SPRY_MODEL_RESAMPLE_H
#define SPRY_MODEL_RESAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The numbers are those in preprocessor_config.json. */
typedef enum spry_filter { SPRY_LANCZOS = 1, SPRY_BILINEAR = 2, SPRY_BICUBIC = 3 } spry_filter;

/* The source values [first, first + n) that an output depends on, and their weights, whose sum is 1. */
typedef struct spry_weighing {
    size_t first, n;
    double *weights; /* [spry_weighing_most] */
} spry_weighing;

size_t spry_weighing_most(uint32_t out, uint32_t in, spry_filter filter);
/* Output `at` of `out`, made of `in` values. */
void spry_weighing_make(spry_weighing *weighing, uint32_t at, uint32_t out, uint32_t in, spry_filter filter);

/* Resamples an image; out: [height, width, 3]. */
spry_status spry_resample(unsigned char *out, uint32_t width, uint32_t height, const unsigned char *in,
                          uint32_t in_width, uint32_t in_height, spry_filter filter, spry_error *error);

#endif
