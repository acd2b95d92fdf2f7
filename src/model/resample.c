/* Separable resampling: one list of weights for each output column, then one for each output row. */
#include "model/resample.h"

#include <math.h>
#include <stdlib.h>

#define PI 3.14159265358979323846

static double bilinear(double x)
{
    return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    return x < 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double sinc(double x)
{
    return x == 0 ? 1 : sin(PI * x) / (PI * x);
}

static double lanczos(double x)
{
    return fabs(x) < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static const struct {
    double (*weight)(double x);
    double reach;
} filters[] = {[SPRY_LANCZOS] = {lanczos, 3}, [SPRY_BILINEAR] = {bilinear, 1}, [SPRY_BICUBIC] = {bicubic, 2}};

/* The source pixels [first, first + n) that an output pixel is made of. */
typedef struct taps {
    size_t first, n;
    float *weights;
} taps;

static size_t most_taps(uint32_t out, uint32_t in, spry_filter filter)
{
    double scale = (double)in / out;
    return (size_t)ceil(filters[filter].reach * (scale > 1 ? scale : 1)) * 2 + 1;
}

static taps taps_of(float *weights, uint32_t at, uint32_t out, uint32_t in, spry_filter filter)
{
    double scale = (double)in / out, wide = scale > 1 ? scale : 1, reach = filters[filter].reach * wide;
    double centre = (at + 0.5) * scale, from = centre - reach + 0.5, to = centre + reach + 0.5, sum = 0;
    taps t = {from > 0 ? (size_t)from : 0, 0, weights};
    size_t end = to < in ? (size_t)to : in;
    t.n = end - t.first;
    for (size_t i = 0; i < t.n; i++)
        sum += filters[filter].weight(((double)(t.first + i) - centre + 0.5) / wide);
    for (size_t i = 0; i < t.n; i++)
        weights[i] = (float)(filters[filter].weight(((double)(t.first + i) - centre + 0.5) / wide) / sum);
    return t;
}

static unsigned char rounded(float value)
{
    return value <= 0 ? 0 : value >= 255 ? 255 : (unsigned char)(value + 0.5f);
}

/* One direction. The picture is [lines, in, step] bytes in, [lines, out, step] bytes out; the sums run over `in`. */
static void resample_lines(unsigned char *to, const unsigned char *from, size_t lines, uint32_t out, uint32_t in,
                           size_t step, spry_filter filter, float *weights)
{
    for (uint32_t at = 0; at < out; at++) {
        const taps t = taps_of(weights, at, out, in, filter);
        for (size_t line = 0; line < lines; line++)
            for (size_t k = 0; k < step; k++) {
                const unsigned char *source = from + (line * in + t.first) * step + k;
                float sum = 0;
                for (size_t i = 0; i < t.n; i++)
                    sum += t.weights[i] * source[i * step];
                to[(line * out + at) * step + k] = rounded(sum);
            }
    }
}

spry_status spry_resample(unsigned char *out, uint32_t width, uint32_t height, const unsigned char *in,
                          uint32_t in_width, uint32_t in_height, spry_filter filter, spry_error *error)
{
    size_t across = most_taps(width, in_width, filter), down = most_taps(height, in_height, filter);
    unsigned char *narrow = malloc((size_t)width * in_height * 3);
    float *weights = malloc((across > down ? across : down) * sizeof *weights);
    if (narrow && weights) {
        resample_lines(narrow, in, in_height, width, in_width, 3, filter, weights);
        resample_lines(out, narrow, 1, height, in_height, (size_t)width * 3, filter, weights);
    }
    bool fine = narrow && weights;
    free(narrow);
    free(weights);
    return fine ? SPRY_OK : spry_fail_memory(error, "a picture", (size_t)width * in_height * 3);
}
