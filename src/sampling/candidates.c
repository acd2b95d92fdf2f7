/* Removes candidates without sorting. A large vocabulary is first narrowed by a bound that never removes too much (the
 * k-th largest of the blocks' maxima; or a weight so small that even all smaller ones together could not matter), then
 * the exact border is found among the few candidates that are left. */
#include "sampling/candidates.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "kernels/weigh.h"
#include "sampling/sampler.h"

/* ---- the border of a ranking ------------------------------------------------------------------------------------- */

/* Where a ranking is cut: the key at which a running sum of weights, taken in order of rising keys, reaches a goal.
 * Found digit by digit from sums per digit, so nothing is sorted and the time does not depend on the data's order. */

typedef struct spry_border {
    uint32_t key;  /* the last key to keep */
    double before; /* sum of the weights of smaller keys */
} spry_border;

/* Keys of floats: smaller floats have smaller keys, and the two zeros are one. */
static inline uint32_t spry_border_rising(float value)
{
    uint32_t bits;
    value += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &value, sizeof bits);
    return bits ^ ((0 - (bits >> 31)) | 0x80000000u);
}

/* Larger floats have smaller keys. */
static inline uint32_t spry_border_falling(float value)
{
    return ~spry_border_rising(value);
}

/* A radix selection on 32-bit keys in digits of 11, 11 and 10 bits. After the last digit one key is left. */

enum { DIGIT_BITS = 11, DIGIT_VALUES = 1 << DIGIT_BITS };

/* Sums the weights for each value of a digit, over the keys that agree with `prefix` in the bits of `known` (a mask of
 * high bits). */
static void sum_digits(double *sums, const uint32_t *keys, const double *weights, size_t n, uint32_t known,
                       uint32_t prefix, unsigned shift)
{
    for (size_t i = 0; i < DIGIT_VALUES; i++)
        sums[i] = 0;
    for (size_t i = 0; i < n; i++)
        if ((keys[i] & known) == prefix)
            sums[(keys[i] & ~known) >> shift] += weights ? weights[i] : 1.0;
}

/* Finds the border. `weights` are above 0; NULL: each is 1. n is at least 1. When rounding keeps the sum below the
 * goal, or the goal is above the sum, the border is the largest key. */
static spry_border border_find(const uint32_t *keys, const double *weights, size_t n, double goal)
{
    static const unsigned shifts[] = {21, 10, 0};
    double sums[DIGIT_VALUES];
    spry_border border = {0};
    uint32_t known = 0;
    for (size_t level = 0; level < sizeof shifts / sizeof shifts[0]; level++) {
        sum_digits(sums, keys, weights, n, known, border.key, shifts[level]);
        /* Sums at different digits round differently, so if no sum reaches the goal, the last digit in use is taken. */
        uint32_t digit = 0;
        double sum = border.before;
        for (uint32_t i = 0; i < DIGIT_VALUES; i++) {
            if (!(sums[i] > 0))
                continue;
            digit = i;
            border.before = sum;
            sum += sums[i];
            if (sum >= goal)
                break;
        }
        border.key |= digit << shifts[level];
        known |= UINT32_MAX << shifts[level];
    }
    return border;
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* Sums of each block into block_sums[spry_softmax_blocks(n)]; returns the sum of all. */
static double softmax_sum(double *block_sums, const double *weights, size_t n)
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

/* Maxima of each block into block_max[spry_softmax_blocks(n)]; returns the largest of all, -INFINITY for n = 0. */
static float softmax_max(float *block_max, const float *scores, size_t n)
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
        softmax_sum(&sum, weights, n);
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

/* ---- cuts -------------------------------------------------------------------------------------------------------- */

static void *allocate(size_t count, size_t size, size_t *bytes)
{
    if (!spry_checked_mul(bytes, count, size)) {
        *bytes = SIZE_MAX;
        return NULL;
    }
    return malloc(*bytes);
}

spry_status spry_candidates_init(spry_candidates *candidates, const spry_ops *ops, size_t n_vocab, spry_error *error)
{
    *candidates = (spry_candidates){.ops = ops, .n_vocab = n_vocab};
    size_t bytes = 0, blocks = spry_softmax_blocks(n_vocab);
    if (!(candidates->scores = allocate(n_vocab, sizeof *candidates->scores, &bytes)) ||
        !(candidates->weights = allocate(n_vocab, sizeof *candidates->weights, &bytes)) ||
        !(candidates->ids = allocate(n_vocab, sizeof *candidates->ids, &bytes)) ||
        !(candidates->scratch = allocate(n_vocab, sizeof *candidates->scratch, &bytes)) ||
        !(candidates->block_max = allocate(blocks, sizeof *candidates->block_max, &bytes)) ||
        !(candidates->block_sum = allocate(blocks, sizeof *candidates->block_sum, &bytes))) {
        spry_candidates_deinit(candidates);
        return spry_fail_memory(error, "the sampler", bytes);
    }
    return SPRY_OK;
}

void spry_candidates_deinit(spry_candidates *candidates)
{
    free(candidates->scores);
    free(candidates->weights);
    free(candidates->ids);
    free(candidates->scratch);
    free(candidates->block_max);
    free(candidates->block_sum);
    *candidates = (spry_candidates){0};
}

bool spry_candidates_start(spry_candidates *candidates)
{
    spry_candidates *c = candidates;
    c->n = c->n_vocab;
    c->whole = true;
    c->max = softmax_max(c->block_max, c->scores, c->n);
    if (c->max == INFINITY) {
        /* Tokens at +INFINITY share the whole probability equally. */
        for (size_t i = 0; i < c->n; i++)
            c->scores[i] = c->scores[i] == INFINITY ? 0 : -INFINITY;
        c->max = softmax_max(c->block_max, c->scores, c->n);
    }
    return c->max > -INFINITY;
}

int32_t spry_candidates_largest(const spry_candidates *candidates)
{
    size_t block = 0;
    while (candidates->block_max[block] != candidates->max)
        block++;
    size_t i = block * SPRY_SOFTMAX_BLOCK;
    while (candidates->scores[i] != candidates->max)
        i++;
    return (int32_t)i;
}

void spry_candidates_temper(spry_candidates *candidates, float temperature)
{
    spry_candidates *c = candidates;
    if (temperature == 1)
        return;
    /* Only differences matter, so a quotient that would overflow is taken from the largest score instead of from 0. */
    float base = isfinite(c->max / temperature) ? 0 : c->max;
    for (size_t i = 0; i < c->n; i++)
        c->scores[i] = (c->scores[i] - base) / temperature;
    for (size_t i = 0; i < spry_softmax_blocks(c->n); i++)
        c->block_max[i] = (c->block_max[i] - base) / temperature;
    c->max = (c->max - base) / temperature;
}

/* Moves a candidate to its new index, which is never larger than the old one. */
static void keep(spry_candidates *c, size_t to, size_t from)
{
    c->ids[to] = spry_candidates_id(c, from);
    c->scores[to] = c->scores[from];
    c->weights[to] = c->weights[from];
}

/* Ends a cut with the first `kept` candidates. */
static void shrink(spry_candidates *c, size_t kept)
{
    c->n = kept;
    c->whole = false;
}

static void sum(spry_candidates *c)
{
    c->total = softmax_sum(c->block_sum, c->weights, c->n);
}

/* ---- top-k ----------------------------------------------------------------------------------------------------- */

static void keep_scores_from(spry_candidates *c, float lowest)
{
    size_t kept = 0;
    for (size_t start = 0, block = 0; start < c->n; start += SPRY_SOFTMAX_BLOCK, block++) {
        if (c->whole && c->block_max[block] < lowest)
            continue;
        size_t end = c->n - start < SPRY_SOFTMAX_BLOCK ? c->n : start + SPRY_SOFTMAX_BLOCK;
        for (size_t i = start; i < end; i++) {
            if (!(c->scores[i] >= lowest) || c->scores[i] == -INFINITY)
                continue;
            c->ids[kept] = spry_candidates_id(c, i);
            c->scores[kept++] = c->scores[i];
        }
    }
    shrink(c, kept);
}

/* The k-th largest of n values, k <= n. */
static float kth_largest(uint32_t *keys, const float *values, size_t n, size_t k)
{
    for (size_t i = 0; i < n; i++)
        keys[i] = spry_border_falling(values[i]);
    uint32_t border = border_find(keys, NULL, n, (double)k).key;
    size_t i = 0;
    while (keys[i] != border)
        i++;
    return values[i];
}

void spry_candidates_top_k(spry_candidates *candidates, uint32_t k)
{
    spry_candidates *c = candidates;
    if (k == 0 || k >= c->n)
        return;
    size_t blocks = spry_softmax_blocks(c->n);
    if (k < blocks) /* k blocks have a maximum from this one on, so at least k scores do */
        keep_scores_from(c, kth_largest(c->scratch, c->block_max, blocks, k));
    if (k < c->n)
        keep_scores_from(c, kth_largest(c->scratch, c->scores, c->n, k));
}

/* ---- weights and the cuts by probability ----------------------------------------------------------------------- */

void spry_candidates_weigh(spry_candidates *candidates)
{
    spry_candidates *c = candidates;
    c->ops->weigh(c->weights, c->scores, c->n, c->max);
    sum(c);
}

/* A score below which no weight reaches `lowest`, with a margin for the rounding of logarithms. */
static float score_of(const spry_candidates *c, double lowest)
{
    return lowest > 0 ? c->max + (float)log(lowest) - 0.01f : -INFINITY;
}

/* The end of the block that begins at `start`, or `start` itself if no score in the block is large enough. */
static size_t block_end(const spry_candidates *c, size_t start, float lowest_score)
{
    if (c->whole && c->block_max[start / SPRY_SOFTMAX_BLOCK] < lowest_score)
        return start;
    return c->n - start < SPRY_SOFTMAX_BLOCK ? c->n : start + SPRY_SOFTMAX_BLOCK;
}

static void keep_weights_from(spry_candidates *c, double lowest)
{
    size_t kept = 0;
    float lowest_score = score_of(c, lowest);
    for (size_t start = 0; start < c->n; start += SPRY_SOFTMAX_BLOCK)
        for (size_t i = start, end = block_end(c, start, lowest_score); i < end; i++)
            if (c->weights[i] >= lowest)
                keep(c, kept++, i);
    shrink(c, kept);
}

/* The sum of all weights that are at least `lowest`. */
static double sum_from(const spry_candidates *c, double lowest)
{
    double sum_of_all = 0;
    float lowest_score = score_of(c, lowest);
    for (size_t start = 0; start < c->n; start += SPRY_SOFTMAX_BLOCK)
        for (size_t i = start, end = block_end(c, start, lowest_score); i < end; i++)
            sum_of_all += c->weights[i] >= lowest ? c->weights[i] : 0;
    return sum_of_all;
}

/* A setting such as 0.8 is given as the nearest float, which is a little larger. Half a unit in its last place is
 * tolerated, so that four of five equal candidates reach 0.8. */
static double forgive(float setting)
{
    return (double)setting * (1 - 0x1p-24);
}

void spry_candidates_top_p(spry_candidates *candidates, float p)
{
    spry_candidates *c = candidates;
    if (p >= 1)
        return;
    /* All candidates lighter than `least` together weigh less than 1 - p, so none of them is needed to reach p. Usually
     * a few heavy candidates reach it; looking for these first skips most blocks. */
    double least = c->total * (1 - (double)p) / (double)c->n, lowest = 1.0 / 16;
    while (lowest > least && sum_from(c, lowest) < c->total * (double)p * (1 + 1e-9))
        lowest /= 16;
    keep_weights_from(c, lowest > least ? lowest : least);

    double goal = c->total * forgive(p);
    for (size_t i = 0; i < c->n; i++)
        c->scratch[i] = spry_border_falling(c->scores[i]);
    spry_border border = border_find(c->scratch, c->weights, c->n, goal);
    size_t kept = 0;
    bool kept_equal = false;
    for (size_t i = 0; i < c->n; i++) {
        if (c->scratch[i] == border.key) {
            if (kept_equal && border.before >= goal)
                continue;
            kept_equal = true;
            border.before += c->weights[i];
        } else if (c->scratch[i] > border.key) {
            continue;
        }
        keep(c, kept++, i);
    }
    shrink(c, kept);
    sum(c);
}

void spry_candidates_min_p(spry_candidates *candidates, float min_p)
{
    if (!(min_p > 0))
        return;
    keep_weights_from(candidates, forgive(min_p)); /* the largest weight is 1 */
    sum(candidates);
}

void spry_candidates_typical(spry_candidates *candidates, float p)
{
    spry_candidates *c = candidates;
    if (p >= 1)
        return;
    keep_weights_from(c, DBL_MIN); /* candidates that cannot be drawn are not ranked */

    /* The surprise of a candidate is log(total) - x, where x is its exponent; the entropy is log(total) - the mean of
     * x. So the difference of both is the difference between x and its mean. */
    double mean = 0;
    for (size_t i = 0; i < c->n; i++)
        mean += c->weights[i] * ((double)c->scores[i] - (double)c->max);
    mean /= c->total;
    for (size_t i = 0; i < c->n; i++)
        c->scratch[i] = spry_border_rising((float)fabs((double)c->scores[i] - (double)c->max - mean));
    uint32_t border = border_find(c->scratch, c->weights, c->n, c->total * forgive(p)).key;
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->scratch[i] <= border)
            keep(c, kept++, i);
    shrink(c, kept);
    sum(c);
}

/* ---- the draw -------------------------------------------------------------------------------------------------- */

size_t spry_candidates_pick(const spry_candidates *candidates, double u)
{
    const spry_candidates *c = candidates;
    double target = u * c->total, before = 0, through = 0; /* sums before the block, and up to its end */
    size_t block = 0;
    for (size_t i = 0; i < spry_softmax_blocks(c->n); i++) {
        if (!(c->block_sum[i] > 0))
            continue;
        block = i;
        before = through;
        through += c->block_sum[i];
        if (target < through)
            break;
    }
    /* The sum inside the block may round to a little less than the block's own sum; then the last candidate with a
     * weight is taken. */
    size_t last = 0;
    for (size_t i = block * SPRY_SOFTMAX_BLOCK; i < c->n; i++) {
        if (!(c->weights[i] > 0))
            continue;
        last = i;
        before += c->weights[i];
        if (target < before)
            break;
    }
    return last;
}
