/* Encodes floats to the blocks of 256 that spry writes: q4_k, q5_k, q6_k. Their parts have their own scales (and
 * minima, which are subtracted), integer multiples of the block's. They are found in three steps, each by least
 * squares:
 *
 *   1. each part alone: several ranges for its levels, and for the levels of a range the best scale and minimum;
 *   2. the parts' scales and minima as multiples of the block's, the nearest ones and their neighbours;
 *   3. the block's scale and minimum again, for the current multiples and levels, and step 2 again.
 *
 * Value i of part p is at [i * parts + p], so that the parts are fitted in parallel: every inner loop runs over parts,
 * compilers vectorise it without reordering sums, and the same input always gives the same bytes.
 *
 * As in encode_ref.c, a NaN becomes 0, and overflow the nearest value of the type. */
#include <math.h>

#include "base/compiler.h"
#include "kernels/ref/encode_blocks.h"

enum { VALUES = SPRY_BLOCK_LARGE, PARTS_MAX = 16 };

/* How a type divides its block. */
typedef struct large_type {
    size_t parts;
    spry_level_range levels;
    spry_level_range scales; /* the allowed multiples for a part's scale and minimum */
    bool has_min;
} large_type;

typedef float part_floats[PARTS_MAX];

/* The result of step 1: a value is scale * level - min. */
typedef struct part_fits {
    part_floats scale, min, error;
} part_fits;

/* The sums of a part's values and levels for least squares. */
typedef struct value_sums {
    part_floats values, squares;
} value_sums;

typedef struct level_sums {
    part_floats levels, squares, products; /* products: sums of level * value */
} level_sums;

/* The result of steps 2 and 3: a value is scale * scales * level - min * mins. */
typedef struct block_fit {
    spry_half scale, min;
    part_floats scales, mins;
    float error;
} block_fit;

SPRY_INLINE float within(float value, spry_level_range range)
{
    value = value < range.highest ? value : range.highest;
    return value > range.lowest ? value : range.lowest;
}

/* Levels before rounding; the loop that uses them rounds. */
SPRY_INLINE void clamp_levels(float levels[VALUES], const float values[VALUES], const part_floats inverse_scale,
                              const part_floats min, const large_type *type)
{
    for (size_t i = 0; i < VALUES; i += type->parts)
        for (size_t p = 0; p < type->parts; p++)
            levels[i + p] = within((values[i + p] + min[p]) * inverse_scale[p], type->levels);
}

SPRY_INLINE void sum_values(value_sums *sums, const float values[VALUES], const large_type *type)
{
    *sums = (value_sums){0};
    for (size_t i = 0; i < VALUES; i += type->parts)
        for (size_t p = 0; p < type->parts; p++) {
            sums->values[p] += values[i + p];
            sums->squares[p] += values[i + p] * values[i + p];
        }
}

SPRY_INLINE void sum_levels(level_sums *sums, const float values[VALUES], const part_floats inverse_scale,
                            const part_floats min, const large_type *type)
{
    float clamped[VALUES];
    clamp_levels(clamped, values, inverse_scale, min, type);
    level_sums sum = {0};
    for (size_t i = 0; i < VALUES; i += type->parts)
        for (size_t p = 0; p < type->parts; p++) {
            float level = spry_round_even(clamped[i + p]);
            sum.levels[p] += level;
            sum.squares[p] += level * level;
            sum.products[p] += level * values[i + p];
        }
    *sums = sum;
}

/* ---- step 1 ----------------------------------------------------------------------------------------------------- */

/* The best scale and minimum for given levels. A minimum is never negative; if all levels are zero, only the minimum
 * remains. The error of a least-squares solution follows from the sums. */
SPRY_INLINE void solve_parts(part_fits *fits, const value_sums *v, const level_sums *l, const large_type *type)
{
    const float n = (float)(VALUES / type->parts);
    for (size_t p = 0; p < type->parts; p++) {
        float det = type->has_min ? n * l->squares[p] - l->levels[p] * l->levels[p] : 0;
        float inverse_det = 1 / (det > 0 ? det : 1), inverse_square = 1 / (l->squares[p] > 0 ? l->squares[p] : 1);
        float scale = (n * l->products[p] - v->values[p] * l->levels[p]) * inverse_det;
        float min = (l->levels[p] * l->products[p] - l->squares[p] * v->values[p]) * inverse_det;
        bool solved = det > 0 && min > 0;
        float mean = v->values[p] / -n;
        float lone_min = type->has_min && !(l->squares[p] > 0) && mean > 0 ? mean : 0;
        scale = solved ? scale : l->products[p] * inverse_square;
        min = solved ? min : lone_min;
        fits->scale[p] = scale;
        fits->min[p] = min;
        fits->error[p] = v->squares[p] - scale * l->products[p] + min * v->values[p];
    }
}

/* The default range: with a minimum, levels from the lowest value (or zero) to the highest; without, the value with the
 * largest magnitude is on the lowest level, which has the largest magnitude. */
SPRY_INLINE void plain_range(part_floats inverse_range, part_floats min, const float values[VALUES],
                             const large_type *type)
{
    part_floats low = {0}, high = {0};
    memcpy(high, values, type->parts * sizeof *high);
    for (size_t i = 0; i < VALUES; i += type->parts)
        for (size_t p = 0; p < type->parts; p++) {
            low[p] = values[i + p] < low[p] ? values[i + p] : low[p];
            high[p] = values[i + p] > high[p] ? values[i + p] : high[p];
        }
    for (size_t p = 0; p < type->parts; p++) {
        float range = type->has_min ? high[p] - low[p] : -low[p] > high[p] ? -low[p] : -high[p];
        inverse_range[p] = spry_inverse_or_zero(range);
        min[p] = type->has_min ? -low[p] : 0;
    }
}

/* Fits the parts to the levels of `inverse_scale` and `min`, and keeps the result if it is better. */
SPRY_INLINE void try_parts(part_fits *best, const float values[VALUES], const value_sums *v,
                           const part_floats inverse_scale, const part_floats min, const large_type *type)
{
    level_sums l;
    part_fits fits;
    sum_levels(&l, values, inverse_scale, min, type);
    solve_parts(&fits, v, &l, type);
    for (size_t p = 0; p < type->parts; p++) {
        bool better = fits.error[p] < best->error[p];
        best->scale[p] = better ? fits.scale[p] : best->scale[p];
        best->min[p] = better ? fits.min[p] : best->min[p];
        best->error[p] = better ? fits.error[p] : best->error[p];
    }
}

/* Tries scales from slightly finer to much coarser than the default, then the levels of the best fit. */
SPRY_INLINE void fit_parts(part_fits *best, const float values[VALUES], const value_sums *v, const large_type *type)
{
    const float top = type->has_min ? type->levels.highest : -type->levels.lowest;
    part_floats inverse_range, inverse_scale, min;
    plain_range(inverse_range, min, values, type);
    *best = (part_fits){0};
    for (size_t p = 0; p < type->parts; p++)
        best->error[p] = INFINITY;
    for (int step = -6; step <= 2; step++) {
        for (size_t p = 0; p < type->parts; p++)
            inverse_scale[p] = (top + 0.4f * (float)step) * inverse_range[p];
        try_parts(best, values, v, inverse_scale, min, type);
    }
    for (size_t p = 0; p < type->parts; p++)
        inverse_scale[p] = spry_inverse_or_zero(best->scale[p]);
    memcpy(min, best->min, sizeof min);
    try_parts(best, values, v, inverse_scale, min, type);
}

/* ---- steps 2 and 3 ---------------------------------------------------------------------------------------------- */

/* The squared error of every part when each value has its nearest level. */
SPRY_INLINE void part_errors(part_floats errors, const float values[VALUES], const part_floats scale,
                             const part_floats min, const large_type *type)
{
    float clamped[VALUES];
    part_floats inverse_scale, sums = {0};
    for (size_t p = 0; p < type->parts; p++)
        inverse_scale[p] = spry_inverse_or_zero(scale[p]);
    clamp_levels(clamped, values, inverse_scale, min, type);
    for (size_t i = 0; i < VALUES; i += type->parts)
        for (size_t p = 0; p < type->parts; p++) {
            float error = scale[p] * spry_round_even(clamped[i + p]) - min[p] - values[i + p];
            sums[p] += error * error;
        }
    memcpy(errors, sums, sizeof sums);
}

/* Chooses the best multiples for each part among those given and their neighbours, and sums up the errors. */
SPRY_INLINE void choose_multiples(block_fit *fit, const float values[VALUES], const large_type *type)
{
    const float block_scale = spry_f16_decode(fit->scale), block_min = spry_f16_decode(fit->min);
    const block_fit given = *fit;
    const float min_reach = type->has_min ? 1 : 0;
    part_floats best, scales, mins, scale, min, errors;
    for (size_t p = 0; p < type->parts; p++)
        best[p] = INFINITY;
    for (float up = -1; up <= 1; up++)
        for (float down = -min_reach; down <= min_reach; down++) {
            for (size_t p = 0; p < type->parts; p++) {
                scales[p] = within(given.scales[p] + up, type->scales);
                mins[p] = within(given.mins[p] + down, type->scales);
                scale[p] = block_scale * scales[p];
                min[p] = block_min * mins[p];
            }
            part_errors(errors, values, scale, min, type);
            for (size_t p = 0; p < type->parts; p++) {
                bool better = errors[p] < best[p];
                best[p] = better ? errors[p] : best[p];
                fit->scales[p] = better ? scales[p] : fit->scales[p];
                fit->mins[p] = better ? mins[p] : fit->mins[p];
            }
        }
    fit->error = 0;
    for (size_t p = 0; p < type->parts; p++)
        fit->error += best[p];
}

/* The largest scale becomes the largest allowed multiple of the block's scale. If both signs are allowed, it takes the
 * sign with the longer range. */
SPRY_INLINE block_fit first_fit(const part_fits *parts, const large_type *type)
{
    block_fit fit = {0};
    float scale = 0, min = 0;
    for (size_t p = 0; p < type->parts; p++) {
        scale = fabsf(parts->scale[p]) > fabsf(scale) ? parts->scale[p] : scale;
        min = parts->min[p] > min ? parts->min[p] : min;
    }
    bool negative = type->scales.lowest < 0 && scale > 0;
    float reach = type->scales.lowest < 0 ? -type->scales.lowest : type->scales.highest;
    fit.scale = (spry_half)(spry_reaching_half(fabsf(scale), reach) | (negative ? 0x8000 : 0));
    fit.min = spry_reaching_half(min, reach);
    float inverse_scale = spry_inverse_or_zero(spry_f16_decode(fit.scale));
    float inverse_min = spry_inverse_or_zero(spry_f16_decode(fit.min));
    for (size_t p = 0; p < type->parts; p++) {
        fit.scales[p] = spry_round_even(within(parts->scale[p] * inverse_scale, type->scales));
        fit.mins[p] = spry_round_even(within(parts->min[p] * inverse_min, type->scales));
    }
    return fit;
}

/* The inverse scales of a fit, and its minima, as clamp_levels needs them. */
SPRY_INLINE void level_factors(part_floats inverse_scale, part_floats min, const block_fit *fit, const large_type *type)
{
    const float block_scale = spry_f16_decode(fit->scale), block_min = spry_f16_decode(fit->min);
    for (size_t p = 0; p < type->parts; p++) {
        inverse_scale[p] = spry_inverse_or_zero(block_scale * fit->scales[p]);
        min[p] = block_min * fit->mins[p];
    }
}

/* Finds the block's scale and minimum with the least error for the given multiples and levels: a system with two
 * unknowns, or with one. */
SPRY_INLINE void solve_block(block_fit *fit, const float values[VALUES], const value_sums *v, const large_type *type)
{
    const float n = (float)(VALUES / type->parts);
    level_sums l;
    part_floats inverse_scale, min;
    level_factors(inverse_scale, min, fit, type);
    sum_levels(&l, values, inverse_scale, min, type);
    float ss = 0, sm = 0, mm = 0, sv = 0, mv = 0;
    for (size_t p = 0; p < type->parts; p++) {
        float s = fit->scales[p], m = fit->mins[p];
        ss += s * s * l.squares[p];
        sm += s * m * l.levels[p];
        mm += m * m * n;
        sv += s * l.products[p];
        mv += m * v->values[p];
    }
    float det = ss * mm - sm * sm;
    if (mm > 0 && det > 0) {
        fit->scale = spry_finite_half((sv * mm - mv * sm) / det);
        fit->min = spry_finite_half((sv * sm - mv * ss) / det);
    } else if (ss > 0 && !(mm > 0)) {
        fit->scale = spry_finite_half(sv / ss);
    }
}

SPRY_INLINE block_fit fit_block(const float values[VALUES], const large_type *type)
{
    value_sums v;
    part_fits parts;
    sum_values(&v, values, type);
    fit_parts(&parts, values, &v, type);
    block_fit fit = first_fit(&parts, type);
    choose_multiples(&fit, values, type);
    block_fit again = fit;
    solve_block(&again, values, &v, type);
    choose_multiples(&again, values, type);
    return again.error < fit.error ? again : fit;
}

/* Fits the block and returns its quants, relative to the lowest level, in the order of the values. */
SPRY_INLINE block_fit encode_block(uint8_t quants[VALUES], const float in[VALUES], const large_type *type)
{
    const size_t n = VALUES / type->parts;
    float values[VALUES], levels[VALUES];
    for (size_t p = 0; p < type->parts; p++)
        for (size_t i = 0; i < n; i++)
            values[i * type->parts + p] = in[p * n + i];
    block_fit fit = fit_block(values, type);
    part_floats inverse_scale, min;
    level_factors(inverse_scale, min, &fit, type);
    clamp_levels(levels, values, inverse_scale, min, type);
    for (size_t p = 0; p < type->parts; p++)
        for (size_t i = 0; i < n; i++)
            quants[p * n + i] = (uint8_t)(spry_round_even(levels[i * type->parts + p]) - type->levels.lowest);
    return fit;
}

/* ---- the blocks ------------------------------------------------------------------------------------------------- */

static const large_type q4_k = {8, {0, 15}, {0, 63}, true};
static const large_type q5_k = {8, {0, 31}, {0, 63}, true};
static const large_type q6_k = {16, {-32, 31}, {-128, 127}, false};

/* Six bits each: the first four parts are stored whole, the last four in nibbles and in the upper bits. */
static void pack_multiples(uint8_t packed[12], const block_fit *fit)
{
    for (size_t p = 0; p < 4; p++) {
        int scale = (int)fit->scales[p], min = (int)fit->mins[p];
        int later_scale = (int)fit->scales[p + 4], later_min = (int)fit->mins[p + 4];
        packed[p] = (uint8_t)(scale | later_scale >> 4 << 6);
        packed[p + 4] = (uint8_t)(min | later_min >> 4 << 6);
        packed[p + 8] = (uint8_t)((later_scale & 15) | (later_min & 15) << 4);
    }
}

/* Nibbles of each chunk, its first half in the low ones and its second half in the high ones. */
static void pack_nibbles(uint8_t low[VALUES / 2], const uint8_t quants[VALUES], size_t chunk)
{
    for (size_t begin = 0; begin < VALUES; begin += chunk)
        for (size_t i = 0; i < chunk / 2; i++) {
            int first = quants[begin + i] & 15, second = quants[begin + chunk / 2 + i] & 15;
            low[begin / 2 + i] = (uint8_t)(first | second << 4);
        }
}

static void block_q4_k(spry_block_q4_k *block, const float values[VALUES])
{
    uint8_t quants[VALUES];
    block_fit fit = encode_block(quants, values, &q4_k);
    block->scale = fit.scale;
    block->min = fit.min;
    pack_multiples(block->scales, &fit);
    pack_nibbles(block->low, quants, 64);
}
SPRY_ENCODE_BLOCKS(q4_k, VALUES)

static void block_q5_k(spry_block_q5_k *block, const float values[VALUES])
{
    uint8_t quants[VALUES];
    block_fit fit = encode_block(quants, values, &q5_k);
    block->scale = fit.scale;
    block->min = fit.min;
    pack_multiples(block->scales, &fit);
    pack_nibbles(block->low, quants, 64);
    memset(block->high, 0, sizeof block->high);
    for (size_t i = 0; i < VALUES; i++)
        block->high[i % 32] = (uint8_t)(block->high[i % 32] | quants[i] >> 4 << i / 32);
}
SPRY_ENCODE_BLOCKS(q5_k, VALUES)

static void block_q6_k(spry_block_q6_k *block, const float values[VALUES])
{
    uint8_t quants[VALUES];
    block_fit fit = encode_block(quants, values, &q6_k);
    block->scale = fit.scale;
    for (size_t p = 0; p < q6_k.parts; p++)
        block->scales[p] = (int8_t)fit.scales[p];
    pack_nibbles(block->low, quants, 128);
    memset(block->high, 0, sizeof block->high);
    for (size_t i = 0; i < VALUES; i++) {
        uint8_t *high = &block->high[i / 128 * 32 + i % 32];
        *high = (uint8_t)(*high | quants[i] >> 4 << i % 128 / 32 * 2);
    }
}
SPRY_ENCODE_BLOCKS(q6_k, VALUES)
