/* Separable resampling: one list of weights for each output column, then one for each output row. */
#include "model/resample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

typedef struct taps {
    size_t first, n; /* as in spry_weighing */
} taps;

/* What one direction needs: a line of weights for each output, as fixed-point numbers with `bits` after the point. */
typedef struct plan {
    taps *taps;       /* [out] */
    int32_t *weights; /* [out, most] */
    size_t most;
    int bits;
} plan;

size_t spry_weighing_most(uint32_t out, uint32_t in, spry_filter filter)
{
    double scale = (double)in / out;
    return (size_t)ceil(filters[filter].reach * (scale > 1 ? scale : 1)) * 2 + 1;
}

void spry_weighing_make(spry_weighing *w, uint32_t at, uint32_t out, uint32_t in, spry_filter filter)
{
    double scale = (double)in / out, wide = scale > 1 ? scale : 1, reach = filters[filter].reach * wide;
    double centre = (at + 0.5) * scale, from = centre - reach + 0.5, to = centre + reach + 0.5, sum = 0;
    w->first = from > 0 ? (size_t)from : 0;
    w->n = (to < in ? (size_t)to : in) - w->first;
    for (size_t i = 0; i < w->n; i++)
        sum += w->weights[i] = filters[filter].weight(((double)(w->first + i) - centre + 0.5) / wide);
    for (size_t i = 0; i < w->n; i++)
        w->weights[i] /= sum;
}

/* torchvision's weights are the largest that fit 16 bits; Pillow, which alone has Lanczos, uses 22 after the point. */
static int bits_of(double largest, spry_filter filter)
{
    int bits = 0;
    if (filter == SPRY_LANCZOS)
        return 22;
    while (bits < 22 && 0.5 + largest * (double)(1 << (bits + 1)) < 1 << 15)
        bits++;
    return bits;
}

static bool make_plan(plan *p, uint32_t out, uint32_t in, spry_filter filter)
{
    double largest = 0;
    p->most = spry_weighing_most(out, in, filter);
    p->taps = malloc(out * sizeof *p->taps);
    p->weights = malloc(out * p->most * sizeof *p->weights);
    spry_weighing w = {.weights = malloc(p->most * sizeof *w.weights)};
    bool fine = p->taps && p->weights && w.weights;
    for (uint32_t i = 0; fine && i < out; i++) {
        spry_weighing_make(&w, i, out, in, filter);
        for (size_t k = 0; k < w.n; k++)
            largest = fmax(largest, w.weights[k]);
    }
    p->bits = bits_of(largest, filter);
    for (uint32_t i = 0; fine && i < out; i++) {
        spry_weighing_make(&w, i, out, in, filter);
        p->taps[i] = (taps){w.first, w.n};
        for (size_t k = 0; k < w.n; k++)
            p->weights[i * p->most + k] = (int32_t)(w.weights[k] * (1 << p->bits) + (w.weights[k] < 0 ? -0.5 : 0.5));
    }
    free(w.weights);
    return fine;
}

static void free_plan(plan *p)
{
    free(p->taps);
    free(p->weights);
}

/* Resamples in one direction, from [lines, in, step] to [lines, out, step] bytes. */
static void resample_lines(unsigned char *to, const unsigned char *from, size_t lines, uint32_t out, uint32_t in,
                           size_t step, const plan *p)
{
    for (uint32_t at = 0; at < out; at++) {
        const taps t = p->taps[at];
        const int32_t *weights = p->weights + at * p->most;
        for (size_t line = 0; line < lines; line++)
            for (size_t k = 0; k < step; k++) {
                const unsigned char *source = from + (line * in + t.first) * step + k;
                int32_t sum = p->bits ? 1 << (p->bits - 1) : 0;
                for (size_t i = 0; i < t.n; i++)
                    sum += weights[i] * source[i * step];
                sum = sum < 0 ? 0 : sum >> p->bits;
                to[(line * out + at) * step + k] = (unsigned char)(sum > 255 ? 255 : sum);
            }
    }
}

spry_status spry_resample(unsigned char *out, uint32_t width, uint32_t height, const unsigned char *in,
                          uint32_t in_width, uint32_t in_height, spry_filter filter, spry_error *error)
{
    plan across = {0}, down = {0};
    if (width == in_width && height == in_height) {
        memcpy(out, in, (size_t)width * height * 3);
        return SPRY_OK;
    }
    unsigned char *narrow = malloc((size_t)width * in_height * 3);
    bool fine = make_plan(&across, width, in_width, filter);
    fine = make_plan(&down, height, in_height, filter) && fine && narrow;
    if (fine) {
        resample_lines(narrow, in, in_height, width, in_width, 3, &across);
        resample_lines(out, narrow, 1, height, in_height, (size_t)width * 3, &down);
    }
    free_plan(&across);
    free_plan(&down);
    free(narrow);
    return fine ? SPRY_OK : spry_fail_memory(error, "a picture", (size_t)width * in_height * 3);
}
