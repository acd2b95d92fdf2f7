/* From logits to a token (docs/SAMPLING.md): penalties, bias and mask, temperature, top-k, top-p, min-p, typical,
 * draw. Grid: spry_draw_scan (slices, draws), 8 warps, finds the best raw logit of a slice; spry_draw_tokens one
 * block of 32 warps per draw. `u` comes from the host's generator.
 *
 * Weights are exp(score - max) in units of 2^-44. Sums of integers do not depend on their order, so cuts and draws
 * do not depend on how threads run, and they agree with the host's unless a decision depends on the last bits of a
 * sum. A weight of 0 marks a token that was cut. */
#include "device/cuda/kernels/primitives.cuh"

#include "device/cuda/kernel_args.h"
#define SPRY_WEIGH_INLINE SPRY_DEVICE
#include "kernels/weigh.h"

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS, THREADS = SPRY_DRAW_THREADS };
#define WEIGHT_ONE 0x1p44

/* ---- over the whole block ---------------------------------------------------------------------------------------- */

SPRY_DEVICE uint64_t block_largest(uint64_t value)
{
    SPRY_SMEM uint64_t smem[WARPS_MAX];
    for (int mask = WARP / 2; mask > 0; mask /= 2) {
        uint64_t other = warp_shfl_xor(value, mask);
        value = other > value ? other : value;
    }
    syncthreads();
    if (threadIdx.x % WARP == 0)
        smem[threadIdx.x / WARP] = value;
    syncthreads();
    for (uint32_t i = 0; i < blockDim.x / WARP; i++)
        value = smem[i] > value ? smem[i] : value;
    return value;
}

SPRY_DEVICE uint64_t block_total(uint64_t value)
{
    SPRY_SMEM uint64_t smem[WARPS_MAX];
    return block_sum(value, smem);
}

/* Exclusive prefix sum: the sum over all lower threads. */
SPRY_DEVICE uint64_t block_before(uint64_t value)
{
    SPRY_SMEM uint64_t smem[WARPS_MAX];
    int lane = (int)threadIdx.x % WARP;
    uint64_t through = value;
    for (int apart = 1; apart < WARP; apart *= 2) {
        uint64_t lower = warp_shfl(through, lane >= apart ? lane - apart : lane);
        through += lane >= apart ? lower : 0;
    }
    syncthreads();
    if (lane == WARP - 1)
        smem[threadIdx.x / WARP] = through;
    syncthreads();
    uint64_t before = through - value;
    for (uint32_t i = 0; i < threadIdx.x / WARP; i++)
        before += smem[i];
    return before;
}

/* ---- keys: smaller floats have smaller keys, and the two zeros are one ------------------------------------------- */

SPRY_DEVICE uint32_t rising_key(float value)
{
    uint32_t bits = bits_of_float(value + 0.0f);
    return bits ^ ((0 - (bits >> 31)) | 0x80000000u);
}

SPRY_DEVICE float float_of_key(uint32_t key)
{
    return float_of_bits(key >> 31 ? key ^ 0x80000000u : ~key);
}

/* Orders tokens by value, the lower one first among equals: the largest is the best. */
SPRY_DEVICE uint64_t ranked(float value, uint32_t token)
{
    return (uint64_t)rising_key(value) << 32 | (0xffffffffu - token);
}

SPRY_DEVICE uint32_t ranked_token(uint64_t rank)
{
    return 0xffffffffu - (uint32_t)rank;
}

/* ---- what a draw works on ---------------------------------------------------------------------------------------- */

struct draw_state {
    const spry_draw_order *order;
    const float *logits; /* [n] */
    float *scores;       /* [n] */
    uint64_t *weight;    /* [n] */
    uint32_t *count;     /* [n] */
    uint32_t n;
    float max;
    uint64_t total;
};

/* Calls use(i, load(i)) for the tokens of this thread; several loads are in flight before the first is used. */
template <class L, class U> SPRY_DEVICE void every_token(uint32_t n, L load, U use)
{
    enum { AHEAD = 8 };
    for (uint32_t first = threadIdx.x; first < n; first += AHEAD * THREADS) {
        decltype(load(first)) loaded[AHEAD];
        SPRY_UNROLL
        for (uint32_t j = 0; j < AHEAD; j++)
            if (first + j * THREADS < n)
                loaded[j] = load(first + j * THREADS);
        SPRY_UNROLL
        for (uint32_t j = 0; j < AHEAD; j++)
            if (first + j * THREADS < n)
                use(first + j * THREADS, loaded[j]);
    }
}

/* The rank of the best token. */
SPRY_DEVICE uint64_t best_rank(const float *scores, uint32_t n)
{
    uint64_t best = 0;
    every_token(
        n, [=](uint32_t i) { return scores[i]; },
        [&](uint32_t i, float score) {
            uint64_t rank = ranked(score, i);
            best = rank > best ? rank : best;
        });
    return block_largest(best);
}

SPRY_DEVICE float largest_score(const float *scores, uint32_t n)
{
    return float_of_key((uint32_t)(best_rank(scores, n) >> 32));
}

/* Copies the logits to the scores; false when one is not a number. */
SPRY_DEVICE bool copy_logits(const draw_state &d)
{
    uint64_t bad = 0;
    every_token(
        d.n, [&](uint32_t i) { return d.logits[i]; },
        [&](uint32_t i, float logit) {
            d.scores[i] = logit;
            bad += logit != logit;
        });
    return block_total(bad) == 0;
}

SPRY_DEVICE void apply_penalties(const draw_state &d, const int32_t *history)
{
    const spry_draw_order &o = *d.order;
    if (!o.n_history)
        return;
    for (uint32_t i = threadIdx.x; i < o.n_history; i += THREADS)
        atomic_add(&d.count[history[i]], 1);
    syncthreads();
    every_token(
        d.n, [&](uint32_t i) { return d.count[i]; },
        [&](uint32_t i, uint32_t count) {
            if (count == 0)
                return;
            float score = d.scores[i];
            score = score < 0 ? score * o.repeat_penalty : score / o.repeat_penalty;
            d.scores[i] = score - o.presence_penalty - (float)count * o.frequency_penalty;
            d.count[i] = 0;
        });
    syncthreads();
}

/* The same token may be named twice, so one thread applies them in order. */
SPRY_DEVICE void apply_bias(const draw_state &d, const unsigned char *list)
{
    const int32_t *tokens = (const int32_t *)list;
    const float *biases = (const float *)list;
    for (uint32_t i = 0; threadIdx.x == 0 && i < d.order->n_bias; i++) {
        float *score = &d.scores[tokens[2 * i]], bias = biases[2 * i + 1];
        *score = bias == -INFINITY ? -INFINITY : *score + bias; /* a ban beats a logit of infinity */
    }
    syncthreads();
}

SPRY_DEVICE void apply_mask(const draw_state &d, const uint32_t *mask)
{
    every_token(
        d.n, [&](uint32_t i) { return mask[i / 32]; },
        [&](uint32_t i, uint32_t allowed) {
            if (!(allowed >> i % 32 & 1))
                d.scores[i] = -INFINITY;
        });
    syncthreads();
}

/* Finds the largest score; false when no token can be drawn. */
SPRY_DEVICE bool find_max(draw_state &d)
{
    d.max = largest_score(d.scores, d.n);
    if (d.max != INFINITY)
        return d.max > -INFINITY;
    for (uint32_t i = threadIdx.x; i < d.n;
         i += THREADS) /* the limit of growing logits: the infinite ones share the whole probability */
        d.scores[i] = d.scores[i] == INFINITY ? 0 : -INFINITY;
    d.max = 0;
    syncthreads();
    return true;
}

SPRY_DEVICE int32_t first_of_largest(const draw_state &d)
{
    return (int32_t)ranked_token(best_rank(d.scores, d.n));
}

SPRY_DEVICE void temper(draw_state &d)
{
    float temperature = d.order->temperature;
    if (temperature == 1)
        return;
    float base = isfinite(d.max / temperature) ? 0 : d.max;
    every_token(
        d.n, [&](uint32_t i) { return d.scores[i]; },
        [&](uint32_t i, float score) { d.scores[i] = (score - base) / temperature; });
    d.max = (d.max - base) / temperature;
    syncthreads();
}

/* ---- cuts -------------------------------------------------------------------------------------------------------- */

/* The keys of a ranking. */
enum ranking { BY_COUNT, BY_SCORE, BY_DISTANCE };

SPRY_DEVICE uint32_t rank_key(const draw_state &d, ranking by, float score, double mean)
{
    if (by == BY_DISTANCE)
        return rising_key((float)fabs((double)score - (double)d.max - mean));
    return ~rising_key(score);
}

/* A token that is not cut: its score and weight. */
struct candidate {
    float score;
    uint64_t weight;
};

SPRY_DEVICE candidate candidate_at(const draw_state &d, uint32_t i)
{
    candidate c = {d.scores[i], d.weight[i]};
    return c;
}

struct border {
    uint32_t key;    /* the last key to keep */
    uint64_t before; /* sum of the weights of smaller keys */
};

/* Finds the first digit at which the weights of all digits up to it, with those of smaller keys, reach the goal;
 * otherwise the last digit in use. */
SPRY_DEVICE void find_digit(border *b, const uint64_t *sums, double goal, int shift)
{
    SPRY_SMEM uint64_t lowest;
    SPRY_SMEM border found;
    uint32_t digit = threadIdx.x * 2;
    uint64_t first = sums[digit], second = sums[digit + 1], before = b->before + block_before(first + second);
    /* Digits in use as candidates: those that reach the goal come first, in order; else the last one. */
    uint64_t candidate = 0;
    if (second)
        candidate = (double)(before + first + second) >= goal ? (uint64_t)1 << 32 | (DIGITS - digit - 1) : digit + 2;
    if (first && ((double)(before + first) >= goal || !second))
        candidate = (double)(before + first) >= goal ? (uint64_t)1 << 32 | (DIGITS - digit) : digit + 1;
    uint64_t best = block_largest(candidate);
    if (threadIdx.x == 0)
        lowest = best >> 32 ? DIGITS - (best & 0xffffffffu) : (best ? best - 1 : 0);
    syncthreads();
    if (lowest / 2 == threadIdx.x) {
        found.key = b->key | (uint32_t)lowest << shift;
        found.before = before + (lowest % 2 ? first : 0);
    }
    syncthreads();
    *b = found;
}

/* The key at which a sum of weights (of ones, BY_COUNT), in order of rising keys, reaches a goal. */
SPRY_DEVICE border find_border(const draw_state &d, ranking by, double goal, double mean)
{
    SPRY_SMEM uint64_t sums[DIGITS];
    SPRY_SMEM uint32_t counts[DIGITS]; /* 32-bit atomics are much faster, and every token is counted */
    border b = {0, 0};
    uint32_t known = 0;
    for (int level = 0; level < 3; level++) {
        int shift = level == 0 ? 21 : level == 1 ? 10 : 0;
        syncthreads();
        for (uint32_t i = threadIdx.x; i < DIGITS; i += THREADS)
            sums[i] = counts[i] = 0;
        syncthreads();
        every_token(
            d.n,
            [&](uint32_t i) {
                candidate c = {d.scores[i], by == BY_COUNT ? 1 : d.weight[i]};
                return c;
            },
            [&](uint32_t, candidate c) {
                uint32_t key = rank_key(d, by, c.score, mean);
                if (!c.weight || (key & known) != b.key)
                    return;
                if (by == BY_COUNT)
                    atomic_add(&counts[(key & ~known) >> shift], 1);
                else
                    atomic_add_u64(&sums[(key & ~known) >> shift], c.weight);
            });
        syncthreads();
        for (uint32_t i = threadIdx.x; i < DIGITS; i += THREADS)
            sums[i] += counts[i];
        syncthreads();
        find_digit(&b, sums, goal, shift);
        known |= 0xffffffffu << shift;
    }
    return b;
}

/* Cuts the tokens for which keep(candidate) is false, and sums the others. */
template <class K> SPRY_DEVICE void cut(draw_state &d, K keep)
{
    uint64_t sum = 0;
    every_token(
        d.n, [&](uint32_t i) { return candidate_at(d, i); },
        [&](uint32_t i, candidate c) {
            if (c.weight && !keep(c))
                d.weight[i] = c.weight = 0;
            sum += c.weight;
        });
    d.total = block_total(sum);
}

/* Computes the weights of the top_k tokens, 0 for the others. */
SPRY_DEVICE void weigh_top_k(draw_state &d)
{
    float lowest = -INFINITY;
    uint64_t sum = 0;
    if (d.order->top_k && d.order->top_k < d.n)
        lowest = float_of_key(~find_border(d, BY_COUNT, (double)d.order->top_k, 0).key);
    every_token(
        d.n, [&](uint32_t i) { return d.scores[i]; },
        [&](uint32_t i, float score) {
            bool kept = score >= lowest && score > -INFINITY;
            uint64_t weight = kept ? (uint64_t)(spry_weigh_exp((double)score - (double)d.max) * WEIGHT_ONE + 0.5) : 0;
            d.weight[i] = weight;
            sum += weight;
        });
    d.total = block_total(sum);
}

/* A setting such as 0.8 arrives as the nearest float; an error of half a unit in the last place is allowed for. */
SPRY_DEVICE double forgive(float setting)
{
    return (double)setting * (1 - 0x1p-24);
}

/* Among tokens whose key equals the border's, keeps the first, and more until the goal is reached. */
SPRY_DEVICE void cut_equals(const draw_state &d, border b, double goal)
{
    uint64_t sum = b.before;
    bool kept = false;
    for (uint32_t i = 0; i < d.n; i++) {
        if (!d.weight[i] || rank_key(d, BY_SCORE, d.scores[i], 0) != b.key)
            continue;
        if (kept && (double)sum >= goal) {
            d.weight[i] = 0;
            continue;
        }
        kept = true;
        sum += d.weight[i];
    }
}

SPRY_DEVICE void cut_top_p(draw_state &d)
{
    if (d.order->top_p >= 1)
        return;
    double goal = (double)d.total * forgive(d.order->top_p);
    border b = find_border(d, BY_SCORE, goal, 0);
    uint64_t equals = 0;
    cut(d, [&](candidate c) {
        uint32_t key = rank_key(d, BY_SCORE, c.score, 0);
        equals += key == b.key;
        return key <= b.key;
    });
    if (block_total(equals) <= 1)
        return;
    if (threadIdx.x == 0)
        cut_equals(d, b, goal);
    syncthreads();
    cut(d, [](candidate) { return true; });
}

SPRY_DEVICE void cut_min_p(draw_state &d)
{
    if (!(d.order->min_p > 0))
        return;
    double lowest = forgive(d.order->min_p) * WEIGHT_ONE;
    cut(d, [=](candidate c) { return (double)c.weight >= lowest; });
}

SPRY_DEVICE void cut_typical(draw_state &d)
{
    SPRY_SMEM double smem[WARPS_MAX];
    if (d.order->typical_p >= 1)
        return;
    double mean = 0;
    every_token(
        d.n, [&](uint32_t i) { return candidate_at(d, i); },
        [&](uint32_t, candidate c) {
            if (c.weight)
                mean += (double)c.weight * ((double)c.score - (double)d.max);
        });
    mean = block_sum(mean, smem) / (double)d.total;
    uint32_t last = find_border(d, BY_DISTANCE, (double)d.total * forgive(d.order->typical_p), mean).key;
    cut(d, [&](candidate c) { return rank_key(d, BY_DISTANCE, c.score, mean) <= last; });
}

/* ---- the draw ---------------------------------------------------------------------------------------------------- */

/* A warp finds the first token of [begin, end) at which the running sum of weights passes the target. */
SPRY_DEVICE void pick_in_range(int32_t *token, const uint64_t *weight, uint32_t begin, uint32_t end, uint64_t target,
                               uint32_t lane)
{
    for (uint32_t i = begin; i < end; i += WARP) {
        uint64_t own = i + lane < end ? weight[i + lane] : 0, all = warp_sum(own), through = own;
        if (target >= all) {
            target -= all;
            continue;
        }
        for (int apart = 1; apart < WARP; apart *= 2) {
            uint64_t lower = warp_shfl(through, (int)lane >= apart ? (int)lane - apart : (int)lane);
            through += (int)lane >= apart ? lower : 0;
        }
        if (target >= through - own && target < through)
            *token = (int32_t)(i + lane);
        return;
    }
}

/* Finds the first token at which the running sum of weights passes u * total: each warp sums a range of tokens, then
 * the warp of the right range finds the token. */
SPRY_DEVICE int32_t pick(const draw_state &d)
{
    enum { AHEAD = 8 };
    SPRY_SMEM uint64_t warp_sums[THREADS / WARP];
    SPRY_SMEM int32_t token;
    uint64_t target = (uint64_t)(d.order->u * (double)d.total);
    target = target < d.total ? target : d.total - 1;
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, each = (d.n + THREADS - 1) / THREADS * WARP;
    uint32_t begin = warp * each, range_end = begin + each, end = range_end < d.n ? range_end : d.n;
    uint64_t sum = 0;
    for (uint32_t i = begin + lane; i < end; i += AHEAD * WARP) {
        uint64_t loaded[AHEAD];
        SPRY_UNROLL
        for (uint32_t j = 0; j < AHEAD; j++)
            loaded[j] = i + j * WARP < end ? d.weight[i + j * WARP] : 0;
        SPRY_UNROLL
        for (uint32_t j = 0; j < AHEAD; j++)
            sum += loaded[j];
    }
    sum = warp_sum(sum);
    if (lane == 0)
        warp_sums[warp] = sum;
    syncthreads();
    uint64_t before = 0;
    for (uint32_t i = 0; i < warp; i++)
        before += warp_sums[i];
    if (target >= before && target < before + sum)
        pick_in_range(&token, d.weight, begin, end, target - before, lane);
    syncthreads();
    return token;
}

/* ---- log probabilities of raw logits ----------------------------------------------------------------------------- */

SPRY_DEVICE double logprob_of(float logit, float max, double log_total)
{
    if (max == INFINITY || max == -INFINITY)
        return logit == INFINITY ? -log_total : -INFINITY;
    return (double)logit - (double)max - log_total;
}

SPRY_DEVICE void write_logprobs(const draw_state &d, spry_draw_result *result)
{
    SPRY_SMEM double smem[WARPS_MAX];
    float max = largest_score(d.logits, d.n);
    bool infinite = max == INFINITY || max == -INFINITY;
    double total = 0;
    every_token(
        d.n, [&](uint32_t i) { return d.logits[i]; },
        [&](uint32_t, float logit) {
            total += infinite ? (double)(logit == max) : spry_weigh_exp((double)logit - (double)max);
        });
    double log_total = log(block_sum(total, smem));
    uint32_t n_top = d.order->n_top < d.n ? d.order->n_top : d.n;
    if (threadIdx.x == 0) {
        result->logprob = logprob_of(d.logits[result->token], max, log_total);
        result->n_top = n_top;
    }
    uint64_t last = ~(uint64_t)0;
    for (uint32_t k = 0; k < n_top; k++) {
        uint64_t best = 0;
        every_token(
            d.n, [&](uint32_t i) { return d.logits[i]; },
            [&](uint32_t i, float logit) {
                uint64_t rank = ranked(logit, i);
                best = rank < last && rank > best ? rank : best;
            });
        last = block_largest(best);
        if (threadIdx.x == 0) {
            result->top[k] = (int32_t)ranked_token(last);
            result->top_logprob[k] = logprob_of(d.logits[ranked_token(last)], max, log_total);
        }
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Draws a token, or returns a fault. */
SPRY_DEVICE uint32_t draw_token(draw_state &d, const unsigned char *upload, int32_t *token)
{
    const spry_draw_order &o = *d.order;
    if (!copy_logits(d))
        return SPRY_DRAW_NAN;
    syncthreads();
    apply_penalties(d, (const int32_t *)(upload + o.history));
    apply_bias(d, upload + o.bias);
    if (o.has_mask)
        apply_mask(d, (const uint32_t *)(upload + o.mask));
    if (!find_max(d))
        return SPRY_DRAW_NOTHING;
    if (o.temperature == 0) {
        *token = first_of_largest(d);
        return SPRY_DRAW_OK;
    }
    temper(d);
    weigh_top_k(d);
    cut_top_p(d);
    cut_min_p(d);
    cut_typical(d);
    *token = pick(d);
    return SPRY_DRAW_OK;
}

SPRY_KERNEL(spry_draw_scan, spry_draw_args)
{
    const float *logits = a.logits + (uint64_t)a.orders[blockIdx.y].row * a.n_vocab;
    uint32_t each = (a.n_vocab + SPRY_DRAW_SLICES - 1) / SPRY_DRAW_SLICES, begin = blockIdx.x * each;
    uint32_t slice_end = begin + each, end = slice_end < a.n_vocab ? slice_end : a.n_vocab;
    uint64_t best = 0;
    for (uint32_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        uint64_t rank = logits[i] == logits[i] ? ranked(logits[i], i) : ~(uint64_t)0;
        best = rank > best ? rank : best;
    }
    best = block_largest(best);
    if (threadIdx.x == 0)
        a.best[blockIdx.y * SPRY_DRAW_SLICES + blockIdx.x] = best;
}

/* True if the answer is the largest raw logit. */
SPRY_DEVICE bool is_plain(const spry_draw_order &o)
{
    return o.temperature == 0 && !o.n_history && !o.n_bias && !o.has_mask;
}

/* Picks the best token of all slices. */
SPRY_DEVICE uint32_t plain_token(const draw_state &d, const uint64_t *best, int32_t *token)
{
    uint64_t rank = block_largest(threadIdx.x < SPRY_DRAW_SLICES ? best[threadIdx.x] : 0);
    if (rank == ~(uint64_t)0)
        return SPRY_DRAW_NAN;
    *token = (int32_t)ranked_token(rank);
    return d.logits[*token] == -INFINITY ? SPRY_DRAW_NOTHING : SPRY_DRAW_OK;
}

SPRY_KERNEL(spry_draw_tokens, spry_draw_args)
{
    uint64_t first = (uint64_t)blockIdx.x * a.n_vocab;
    const spry_draw_order *order = a.orders + blockIdx.x;
    spry_draw_result *result = a.results + blockIdx.x;
    draw_state d = {order,
                    a.logits + (uint64_t)order->row * a.n_vocab,
                    a.scores + first,
                    a.weight + first,
                    a.count + first,
                    a.n_vocab,
                    0,
                    0};
    int32_t token = 0;
    uint32_t fault = is_plain(*order) ? plain_token(d, a.best + blockIdx.x * SPRY_DRAW_SLICES, &token)
                                      : draw_token(d, a.upload, &token);
    if (threadIdx.x == 0) {
        result->fault = fault;
        result->token = token;
        result->n_top = 0;
    }
    syncthreads();
    if (fault == SPRY_DRAW_OK && (order->wants_logprob || order->n_top))
        write_logprobs(d, result);
}
