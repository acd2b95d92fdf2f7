/* The formulas are transformers'; so is the arithmetic, in single precision where theirs is. */
#include "model/rope.h"

#include <math.h>

static const float TWO_PI = 6.283185307179586f;

/* llama3: long wavelengths are divided by the factor, short ones kept, those between blended. */
static float llama3_frequency(float frequency, const spry_rope *rope)
{
    float context = (float)rope->original_context;
    float wavelength = TWO_PI / frequency;
    if (wavelength < context / rope->high_freq_factor)
        return frequency;
    if (wavelength > context / rope->low_freq_factor)
        return frequency / rope->factor;
    float smooth = (context / wavelength - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * frequency / rope->factor + smooth * frequency;
}

/* yarn: the dimension whose pairs turn `rotations` times within the original context. */
static double yarn_dimension(const spry_rope *rope, double rotations, size_t rope_dim)
{
    double context = rope->original_context;
    return (double)rope_dim * log(context / (rotations * 6.283185307179586)) / (2 * log((double)rope->theta));
}

static void yarn(float *frequencies, const spry_rope *rope, size_t rope_dim)
{
    double low = yarn_dimension(rope, (double)rope->beta_fast, rope_dim);
    double high = yarn_dimension(rope, (double)rope->beta_slow, rope_dim);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = low > 0 ? low : 0;
    high = high < (double)rope_dim - 1 ? high : (double)rope_dim - 1;
    if (low == high)
        high += 0.001;
    for (size_t i = 0; i < rope_dim / 2; i++) {
        float ramp = ((float)i - (float)low) / (float)(high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        float keep = 1 - ramp;
        frequencies[i] = frequencies[i] / rope->factor * (1 - keep) + frequencies[i] * keep;
    }
}

static float magnitude(const spry_rope *rope)
{
    if (rope->kind != SPRY_ROPE_YARN && rope->kind != SPRY_ROPE_LONG)
        return 1;
    if (rope->attention_factor > 0)
        return rope->attention_factor;
    if (rope->kind == SPRY_ROPE_YARN)
        return rope->factor <= 1 ? 1 : (float)(0.1 * log((double)rope->factor) + 1);
    if (rope->factor <= 1)
        return 1;
    return (float)sqrt(1 + log((double)rope->factor) / log((double)rope->original_context));
}

float spry_rope_frequencies(float *frequencies, const spry_rope *rope, size_t rope_dim, uint32_t session)
{
    const float *factors = rope->long_factors && session > rope->original_context ? rope->long_factors : rope->factors;
    for (size_t i = 0; i < rope_dim / 2; i++) {
        float power = powf(rope->theta, (float)(2 * i) / (float)rope_dim);
        frequencies[i] = 1 / (factors ? factors[i] * power : power);
        if (rope->kind == SPRY_ROPE_LINEAR)
            frequencies[i] /= rope->factor;
        else if (rope->kind == SPRY_ROPE_LLAMA3)
            frequencies[i] = llama3_frequency(frequencies[i], rope);
    }
    if (rope->kind == SPRY_ROPE_YARN)
        yarn(frequencies, rope, rope_dim);
    return magnitude(rope);
}

void spry_rope_angles(float *cosine, float *sine, const float *frequencies, float scale, size_t n_pairs,
                      uint32_t position)
{
    for (size_t i = 0; i < n_pairs; i++) {
        float angle = (float)position * frequencies[i];
        cosine[i] = cosf(angle) * scale;
        sine[i] = sinf(angle) * scale;
    }
}
