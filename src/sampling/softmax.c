#include "sampling/softmax.h"

#include <math.h>

#include "kernels/weigh.h"
#include "sampling/sampler.h"

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
    if (max == INFINITY || max == -INFINITY) { /* tokens with this value share the whole probability, as in a draw */
        for (size_t i = 0; i < n_vocab; i++)
            total += logits[i] == max;
        return logits[token] == INFINITY ? -log(total) : -INFINITY;
    }
    for (size_t start = 0; start < n_vocab; start += SPRY_SOFTMAX_BLOCK) {
        size_t n = n_vocab - start < SPRY_SOFTMAX_BLOCK ? n_vocab - start : SPRY_SOFTMAX_BLOCK;
        double weights[SPRY_SOFTMAX_BLOCK], sum;
        spry_weigh(weights, logits + start, n, max);
        spry_softmax_sum(&sum, weights, n);
        total += sum;
    }
    return (double)logits[token] - (double)max - log(total);
}

size_t spry_logprob_top(spry_logprob_entry *top, size_t most, const float *logits, size_t n_vocab, double log_sum)
{
    size_t count = 0;
    for (size_t id = 0; id < n_vocab; id++) {
        double logprob = (double)logits[id] - log_sum;
        if (count == most && (!most || logprob <= top[count - 1].logprob))
            continue;
        size_t at = count < most ? count++ : count - 1;
        for (; at > 0 && top[at - 1].logprob < logprob; at--)
            top[at] = top[at - 1];
        top[at] = (spry_logprob_entry){(int32_t)id, logprob};
    }
    return count;
}
