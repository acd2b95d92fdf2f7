/* Encodes floats to the types that spry writes. Blocks use the scale (and minimum) with the least squared error among
 * several candidates near the default, so the same input always gives the same bytes.
 *
 * Plain types preserve NaN and infinities. Blocks cannot represent them: a NaN becomes 0, and infinities, like all
 * values beyond the range of the type's half-precision scale, become the nearest representable value. */
#include <math.h>

#include "base/compiler.h"
#include "kernels/grids.h"
#include "kernels/ref/encode_blocks.h"
#include "kernels/ref/lanes.h"

enum { VALUES = SPRY_BLOCK_SMALL };

void spry_ref_encode_f32(void *out, const float *in, size_t n)
{
    if (n)
        memcpy(out, in, n * sizeof *in);
}

void spry_ref_encode_f16(void *out, const float *in, size_t n)
{
    unsigned char *bytes = out;
    for (size_t i = 0; i < n; i++) {
        uint16_t half = spry_f16_encode(in[i]);
        memcpy(bytes + i * sizeof half, &half, sizeof half);
    }
}

void spry_ref_encode_bf16(void *out, const float *in, size_t n)
{
    unsigned char *bytes = out;
    for (size_t i = 0; i < n; i++) {
        uint16_t upper = spry_bf16_encode(in[i]);
        memcpy(bytes + i * sizeof upper, &upper, sizeof upper);
    }
}

/* ---- what all block types share ---------------------------------------------------------------------------------- */

/* The nearest levels for values that are level * scale + min. Two loops, because compilers vectorise each of them but
 * use branches for clamping in a combined loop. */
static void nearest_levels(float levels[VALUES], const float values[VALUES], float inverse_scale, float min,
                           spry_level_range range)
{
    for (int i = 0; i < VALUES; i++) {
        float level = (values[i] - min) * inverse_scale;
        level = level < range.highest ? level : range.highest;
        levels[i] = level > range.lowest ? level : range.lowest;
    }
    for (int i = 0; i < VALUES; i++)
        levels[i] = spry_round_even(levels[i]);
}

typedef struct block_fit {
    spry_half scale, min;
    float error; /* sum of squared differences */
} block_fit;

/* Keeps the candidate if it is better than the best so far. */
static void try_fit(block_fit *best, const float values[VALUES], float scale, float min, spry_level_range range)
{
    block_fit fit = {spry_finite_half(scale), spry_finite_half(min), 0};
    scale = spry_f16_decode(fit.scale);
    min = spry_f16_decode(fit.min);
    float levels[VALUES], errors[VALUES];
    nearest_levels(levels, values, spry_inverse_or_zero(scale), min, range);
    for (int i = 0; i < VALUES; i++)
        errors[i] = levels[i] * scale + min - values[i];
    fit.error = spry_dot(errors, errors, VALUES);
    if (fit.error < best->error)
        *best = fit;
}

/* The quants of a fit, relative to the lowest level. */
static void fit_quants(uint8_t quants[VALUES], const float values[VALUES], const block_fit *fit, spry_level_range range)
{
    float levels[VALUES];
    nearest_levels(levels, values, spry_inverse_or_zero(spry_f16_decode(fit->scale)), spry_f16_decode(fit->min), range);
    for (int i = 0; i < VALUES; i++)
        quants[i] = (uint8_t)(levels[i] - range.lowest);
}

/* Fits levels -half .. half - 1: the value with the largest magnitude gets the lowest level, whose magnitude is the
 * largest. */
static block_fit fit_scale(uint8_t quants[VALUES], const float values[VALUES], float half)
{
    float extreme = 0;
    for (int i = 0; i < VALUES; i++)
        extreme = fabsf(values[i]) > fabsf(extreme) ? values[i] : extreme;
    const spry_level_range range = {-half, half - 1};
    block_fit best = {.error = INFINITY};
    for (int step = -5; step <= 10; step++)
        try_fit(&best, values, extreme / -(half + 0.15f * (float)step), 0, range);
    fit_quants(quants, values, &best, range);
    return best;
}

/* Fits levels 0 .. top; each end of the block's range is varied by fifths of a level. */
static block_fit fit_scale_and_min(uint8_t quants[VALUES], const float values[VALUES], float top)
{
    float min = values[0], max = values[0];
    for (int i = 1; i < VALUES; i++) {
        min = values[i] < min ? values[i] : min;
        max = values[i] > max ? values[i] : max;
    }
    const spry_level_range range = {0, top};
    const float step = 0.2f * (max - min) / top;
    block_fit best = {.error = INFINITY};
    for (int low = -1; low <= 3; low++)
        for (int high = -1; high <= 3; high++) {
            float from = min + step * (float)low, to = max - step * (float)high;
            try_fit(&best, values, (to - from) / top, from, range);
        }
    fit_quants(quants, values, &best, range);
    return best;
}

static void pack_low(uint8_t low[VALUES / 2], const uint8_t quants[VALUES])
{
    for (int i = 0; i < VALUES / 2; i++)
        low[i] = (uint8_t)((quants[i] & 15) | (quants[i + VALUES / 2] & 15) << 4);
}

static void pack_high(uint8_t high[VALUES / 8], const uint8_t quants[VALUES])
{
    memset(high, 0, VALUES / 8);
    for (int i = 0; i < VALUES; i++)
        high[i / 8] = (uint8_t)(high[i / 8] | (quants[i] >> 4) << i % 8);
}

/* ---- the blocks ------------------------------------------------------------------------------------------------- */

static void block_q4_0(spry_block_q4_0 *block, const float values[VALUES])
{
    uint8_t quants[VALUES];
    block->scale = fit_scale(quants, values, 8).scale;
    pack_low(block->low, quants);
}

static void block_q4_1(spry_block_q4_1 *block, const float values[VALUES])
{
    uint8_t quants[VALUES];
    block_fit fit = fit_scale_and_min(quants, values, 15);
    block->scale = fit.scale;
    block->min = fit.min;
    pack_low(block->low, quants);
}

static void block_q5_0(spry_block_q5_0 *block, const float values[VALUES])
{
    uint8_t quants[VALUES];
    block->scale = fit_scale(quants, values, 16).scale;
    pack_low(block->low, quants);
    pack_high(block->high, quants);
}

static void block_q5_1(spry_block_q5_1 *block, const float values[VALUES])
{
    uint8_t quants[VALUES];
    block_fit fit = fit_scale_and_min(quants, values, 31);
    block->scale = fit.scale;
    block->min = fit.min;
    pack_low(block->low, quants);
    pack_high(block->high, quants);
}

/* No search for the best scale: this also encodes activations and KV, and at eight bits a search would gain little. */
static void block_q8_0(spry_block_q8_0 *block, const float values[VALUES])
{
    const spry_level_range range = {-127, 127};
    float extreme = 0;
    for (int i = 0; i < VALUES; i++)
        extreme = fabsf(values[i]) > extreme ? fabsf(values[i]) : extreme;
    block->scale = spry_reaching_half(extreme, range.highest);
    float levels[VALUES];
    nearest_levels(levels, values, spry_inverse_or_zero(spry_f16_decode(block->scale)), 0, range);
    for (int i = 0; i < VALUES; i++)
        block->quants[i] = (int8_t)levels[i];
}

/* The 4-bit float nearest to a value in halves; between two of them the one with an even mantissa. */
static uint8_t nearest_e2m1(double halves)
{
    static const double between[] = {0.5, 1.5, 2.5, 3.5, 5, 7, 10};
    double size = fabs(halves);
    uint8_t code = 0;
    while (code < SPRY_COUNT(between) && (code % 2 ? size >= between[code] : size > between[code]))
        code++;
    return (uint8_t)(halves < 0 && code ? code | 8 : code);
}

/* The scale is the power of two that reaches the largest value, or half of it, whichever errs less. */
static void block_mxfp4(spry_block_mxfp4 *block, const float values[VALUES])
{
    float extreme = 0;
    int power;
    double least = INFINITY;
    for (int i = 0; i < VALUES; i++)
        extreme = fabsf(values[i]) > extreme ? fabsf(values[i]) : extreme;
    if (frexp((double)extreme / 6, &power) == 0.5) /* a power of two itself */
        power--;
    for (int exponent = power + 127; exponent >= power + 126; exponent--) {
        uint8_t kept = (uint8_t)(exponent < 0 ? 0 : exponent > 254 ? 254 : exponent), quants[VALUES];
        double error = 0;
        for (int i = 0; i < VALUES; i++) {
            quants[i] = nearest_e2m1(ldexp((double)values[i], 128 - kept));
            double off = ldexp(spry_levels_e2m1[quants[i]], kept - 128) - (double)values[i];
            error += off * off;
        }
        if (error >= least)
            continue;
        least = error;
        block->exponent = kept;
        pack_low(block->low, quants);
    }
}

SPRY_ENCODE_BLOCKS(q4_0, VALUES)
SPRY_ENCODE_BLOCKS(q4_1, VALUES)
SPRY_ENCODE_BLOCKS(q5_0, VALUES)
SPRY_ENCODE_BLOCKS(q5_1, VALUES)
SPRY_ENCODE_BLOCKS(q8_0, VALUES)
SPRY_ENCODE_BLOCKS(mxfp4, VALUES)
