/* exp by the usual reduction: x = k ln 2 + r with |r| <= ln 2 / 2, a Taylor polynomial for exp(r), and k added to the
 * exponent bits. Twelve terms leave a relative error of 0.347^12 / 12! = 6e-15. */
#include "sampling/softmax.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "sampling/sampler.h"

/* Below this the result would leave the normal numbers, where adding to the exponent bits is wrong. */
#define EXP_LOWEST (-700.0)

static inline uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* exp of x <= 0. Selections are masks, not branches, so that the loop around it vectorises. */
static inline double exp_negative(double x)
{
    const double log2_e = 0x1.71547652b82fep+0;
    const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    const double round_shift = 0x1.8p52;                 /* adding it leaves the nearest integer in the low bits */
    uint64_t mask = (bits_of(x - EXP_LOWEST) >> 63) - 1; /* all ones unless x is lower */
    double inside = from_bits(bits_of(x) & mask);
    double shifted = inside * log2_e + round_shift;
    double k = shifted - round_shift;
    double r = inside - k * ln2_high - k * ln2_low;
    double square = r * r; /* even and odd terms apart: two short chains instead of a long one */
    double odd = 1.0 / 39916800, even = 1.0 / 3628800;
    odd = odd * square + 1.0 / 362880;
    even = even * square + 1.0 / 40320;
    odd = odd * square + 1.0 / 5040;
    even = even * square + 1.0 / 720;
    odd = odd * square + 1.0 / 120;
    even = even * square + 1.0 / 24;
    odd = odd * square + 1.0 / 6;
    even = even * square + 0.5;
    odd = odd * square + 1.0;
    even = even * square + 1.0;
    double sum = even + odd * r;
    return from_bits((bits_of(sum) + (bits_of(shifted) << 52)) & mask);
}

void spry_softmax_weigh(double *weights, const float *scores, size_t n, float max)
{
    for (size_t i = 0; i < n; i++)
        weights[i] = (double)scores[i] - (double)max;
    for (size_t i = 0; i < n; i++)
        weights[i] = exp_negative(weights[i]);
}

double spry_softmax_sum(double *block_sums, const double *weights, size_t n)
{
    double total = 0;
    for (size_t start = 0, block = 0; start < n; start += SPRY_SOFTMAX_BLOCK, block++) {
        const double *in = weights + start;
        double sum = 0;
        if (n - start >= SPRY_SOFTMAX_BLOCK) {
            double lanes[4] = {0};
            for (size_t i = 0; i < SPRY_SOFTMAX_BLOCK; i += 4)
                for (size_t lane = 0; lane < 4; lane++)
                    lanes[lane] += in[i + lane];
            sum = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
        } else {
            for (size_t i = 0; i < n - start; i++)
                sum += in[i];
        }
        block_sums[block] = sum;
        total += sum;
    }
    return total;
}

float spry_softmax_max(float *block_max, const float *scores, size_t n)
{
    float max = -INFINITY;
    for (size_t start = 0, block = 0; start < n; start += SPRY_SOFTMAX_BLOCK, block++) {
        const float *in = scores + start;
        size_t count = n - start < SPRY_SOFTMAX_BLOCK ? n - start : SPRY_SOFTMAX_BLOCK;
        float lanes[8] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
        size_t i = 0;
        for (; i + 8 <= count; i += 8)
            for (size_t lane = 0; lane < 8; lane++)
                lanes[lane] = in[i + lane] > lanes[lane] ? in[i + lane] : lanes[lane];
        for (; i < count; i++)
            lanes[0] = in[i] > lanes[0] ? in[i] : lanes[0];
        for (size_t lane = 1; lane < 8; lane++)
            lanes[0] = lanes[lane] > lanes[0] ? lanes[lane] : lanes[0];
        block_max[block] = lanes[0];
        max = lanes[0] > max ? lanes[0] : max;
    }
    return max;
}

double spry_logprob(const float *logits, size_t n_vocab, int32_t token)
{
    if (token < 0 || (size_t)token >= n_vocab)
        return -INFINITY;
    float max = -INFINITY;
    for (size_t i = 0; i < n_vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    double total = 0;
    if (max == INFINITY || max == -INFINITY) { /* equals share everything, as in a draw */
        for (size_t i = 0; i < n_vocab; i++)
            total += logits[i] == max;
        return logits[token] == INFINITY ? -log(total) : -INFINITY;
    }
    for (size_t start = 0; start < n_vocab; start += SPRY_SOFTMAX_BLOCK) {
        size_t n = n_vocab - start < SPRY_SOFTMAX_BLOCK ? n_vocab - start : SPRY_SOFTMAX_BLOCK;
        double weights[SPRY_SOFTMAX_BLOCK], sum;
        spry_softmax_weigh(weights, logits + start, n, max);
        spry_softmax_sum(&sum, weights, n);
        total += sum;
    }
    return (double)logits[token] - (double)max - log(total);
}
