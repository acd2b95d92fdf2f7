/* From logits to a token (docs/SAMPLING.md), as cuda/kernels/sampling.cu does it: weights are exp(score - max) in units
 * of 2^-44, so that sums do not depend on their order. A weight of 0 marks a token that was cut. Grid: draws. */
#version 450
#include "common.glsl"
#extension GL_EXT_shader_explicit_arithmetic_types_float64 : require
layout(local_size_x = 512) in;
ARGUMENTS(spry_draw_args);
#include "orders.glsl"
#include "ranks.glsl"

MEMORY(Orders, spry_draw_order, 8);
MEMORY(Results, spry_draw_result, 8);

const uint THREADS = gl_WorkGroupSize.x, DIGITS = 256;
const double WEIGHT_ONE = 17592186044416.0lf;
spry_draw_order order;
uint64_t logits, scores, weights, counts;
uint n;
float most;
uint64_t total;

/* exp of x <= 0, as kernels/weigh.h computes it. */
double weigh_exp(double x)
{
    if (x < -700.0lf)
        return 0.0lf;
    precise double shifted = x * 1.4426950408889634074lf + 6755399441055744.0lf;
    precise double k = shifted - 6755399441055744.0lf;
    precise double r = x - k * 0.69314718036912381649lf - k * 1.9082149292705877e-10lf;
    precise double square = r * r, odd = 1.0lf / 39916800.0lf, even = 1.0lf / 3628800.0lf;
    odd = odd * square + 1.0lf / 362880.0lf;
    even = even * square + 1.0lf / 40320.0lf;
    odd = odd * square + 1.0lf / 5040.0lf;
    even = even * square + 1.0lf / 720.0lf;
    odd = odd * square + 1.0lf / 120.0lf;
    even = even * square + 1.0lf / 24.0lf;
    odd = odd * square + 1.0lf / 6.0lf;
    even = even * square + 0.5lf;
    odd = odd * square + 1.0lf;
    even = even * square + 1.0lf;
    precise double sum = even + odd * r;
    return int64BitsToDouble(doubleBitsToInt64(sum) + (doubleBitsToInt64(shifted) << 52));
}

/* log of x >= 1, by Halley's steps from the float's. */
double precise_log(double x)
{
    int64_t bits = doubleBitsToInt64(x);
    int exponent = int(bits >> 52) - 1022;
    double m = int64BitsToDouble(bits - (int64_t(exponent) << 52)); /* in [1/2, 1) */
    double y = min(double(log(float(m))), 0.0lf);
    for (int i = 0; i < 2; i++) {
        double e = weigh_exp(y);
        y = min(y + 2.0lf * (m - e) / (m + e), 0.0lf);
    }
    return y + double(exponent) * 0.69314718055994530942lf;
}

double block_total_f64(double value)
{
    uint thread = gl_LocalInvocationIndex;
    barrier();
    exchanged[thread] = doubleBitsToUint64(value);
    for (uint apart = THREADS / 2; apart > 0; apart /= 2) {
        barrier();
        if (thread < apart)
            exchanged[thread] = doubleBitsToUint64(uint64BitsToDouble(exchanged[thread]) +
                                                   uint64BitsToDouble(exchanged[thread + apart]));
    }
    barrier();
    return uint64BitsToDouble(exchanged[0]);
}

void settle()
{
    memoryBarrierBuffer();
    barrier();
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* False when a logit is not a number. */
bool copy_logits()
{
    uint64_t bad = 0;
    for (uint i = gl_LocalInvocationID.x; i < n; i += THREADS) {
        Floats(scores).v[i] = float_at(logits, i);
        bad += is_nan(float_at(logits, i)) ? 1 : 0;
    }
    bad = block_total(bad);
    settle();
    return bad == 0;
}

void apply_penalties()
{
    if (order.n_history == 0)
        return;
    for (uint i = gl_LocalInvocationID.x; i < order.n_history; i += THREADS)
        atomicAdd(Words(counts).v[Ints(args.a.upload + order.history).v[i]], 1);
    settle();
    for (uint i = gl_LocalInvocationID.x; i < n; i += THREADS) {
        uint count = Words(counts).v[i];
        if (count == 0)
            continue;
        precise float score = float_at(scores, i);
        score = score < 0 ? score * order.repeat_penalty : score / order.repeat_penalty;
        score = score - order.presence_penalty - float(count) * order.frequency_penalty;
        Floats(scores).v[i] = score;
        Words(counts).v[i] = 0;
    }
    settle();
}

/* The same token may be named twice, so one thread applies them in order. */
void apply_bias()
{
    for (uint i = 0; gl_LocalInvocationID.x == 0 && i < order.n_bias; i++) {
        uint token = Words(args.a.upload + order.bias).v[2 * i];
        float bias = Floats(args.a.upload + order.bias).v[2 * i + 1];
        Floats(scores).v[token] = bias == -INFINITY ? -INFINITY : float_at(scores, token) + bias;
    }
    settle();
}

void apply_mask()
{
    for (uint i = gl_LocalInvocationID.x; i < n; i += THREADS)
        if ((Words(args.a.upload + order.mask).v[i / 32] >> i % 32 & 1) == 0)
            Floats(scores).v[i] = -INFINITY;
    settle();
}

uint64_t best_rank(uint64_t list)
{
    uint64_t best = 0;
    for (uint i = gl_LocalInvocationID.x; i < n; i += THREADS)
        best = max(best, ranked(float_at(list, i), i));
    return block_largest(best);
}

/* The largest score; false when no token can be drawn. Infinite scores share the whole probability. */
bool find_max()
{
    most = float_of_key(uint(best_rank(scores) >> 32));
    if (most != INFINITY)
        return most > -INFINITY;
    for (uint i = gl_LocalInvocationID.x; i < n; i += THREADS)
        Floats(scores).v[i] = float_at(scores, i) == INFINITY ? 0 : -INFINITY;
    most = 0;
    settle();
    return true;
}

void temper()
{
    float temperature = order.temperature;
    if (temperature == 1)
        return;
    float base = isinf(most / temperature) ? most : 0;
    for (uint i = gl_LocalInvocationID.x; i < n; i += THREADS) {
        precise float score = (float_at(scores, i) - base) / temperature;
        Floats(scores).v[i] = score;
    }
    most = (most - base) / temperature;
    settle();
}

/* ---- cuts -------------------------------------------------------------------------------------------------------- */

const uint BY_COUNT = 0, BY_SCORE = 1, BY_DISTANCE = 2;

uint rank_key(uint by, float score, double mean)
{
    if (by == BY_DISTANCE)
        return rising_key(float(abs(double(score) - double(most) - mean)));
    return ~rising_key(score);
}

struct border {
    uint key;        /* the last key to keep */
    uint64_t before; /* sum of the weights of smaller keys */
};

shared uint pieces[DIGITS][4]; /* sums of the weights of a digit, 11 bits of each weight */
shared uint found_key;
shared uint64_t found_before;

/* The first digit at which the weights of all digits up to it, with those of smaller keys, reach the goal; otherwise the
 * last digit in use. */
void find_digit(inout border b, double goal, uint shift)
{
    if (gl_LocalInvocationID.x == 0) {
        uint64_t before = b.before, last_before = before;
        uint last = 0;
        for (uint digit = 0; digit < DIGITS; digit++) {
            uint64_t own = uint64_t(pieces[digit][0]) + (uint64_t(pieces[digit][1]) << 11) +
                           (uint64_t(pieces[digit][2]) << 22) + (uint64_t(pieces[digit][3]) << 33);
            if (own == 0)
                continue;
            last = digit;
            last_before = before;
            before += own;
            if (double(before) >= goal)
                break;
        }
        found_key = b.key | last << shift;
        found_before = last_before;
    }
    barrier();
    b = border(found_key, found_before);
    barrier();
}

border find_border(uint by, double goal, double mean)
{
    border b = border(0, 0);
    uint known = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (uint i = gl_LocalInvocationID.x; i < DIGITS * 4; i += THREADS)
            pieces[i / 4][i % 4] = 0;
        barrier();
        for (uint i = gl_LocalInvocationID.x; i < n; i += THREADS) {
            uint64_t weight = by == BY_COUNT ? 1 : Longs(weights).v[i];
            uint key = rank_key(by, float_at(scores, i), mean);
            if (weight == 0 || (key & known) != b.key)
                continue;
            uint digit = key >> shift & 255;
            atomicAdd(pieces[digit][0], uint(weight) & 2047);
            if (weight > 2047) {
                atomicAdd(pieces[digit][1], uint(weight >> 11) & 2047);
                atomicAdd(pieces[digit][2], uint(weight >> 22) & 2047);
                atomicAdd(pieces[digit][3], uint(weight >> 33));
            }
        }
        barrier();
        find_digit(b, goal, uint(shift));
        known |= 255u << shift;
    }
    return b;
}

void weigh_top_k()
{
    float lowest = -INFINITY;
    uint64_t sum = 0;
    if (order.top_k != 0 && order.top_k < n)
        lowest = float_of_key(~find_border(BY_COUNT, double(order.top_k), 0.0lf).key);
    for (uint i = gl_LocalInvocationID.x; i < n; i += THREADS) {
        float score = float_at(scores, i);
        uint64_t weight = 0;
        if (score >= lowest && score > -INFINITY)
            weight = uint64_t(weigh_exp(double(score) - double(most)) * WEIGHT_ONE + 0.5lf);
        Longs(weights).v[i] = weight;
        sum += weight;
    }
    total = block_total(sum);
    settle();
}

/* A setting such as 0.8 arrives as the nearest float. */
double forgive(float setting)
{
    return double(setting) * (1.0lf - 1.0lf / 16777216.0lf);
}

/* Sums the weights again. */
void sum_weights()
{
    uint64_t sum = 0;
    for (uint i = gl_LocalInvocationID.x; i < n; i += THREADS)
        sum += Longs(weights).v[i];
    total = block_total(sum);
}

void cut_by_key(uint by, uint key, double mean)
{
    for (uint i = gl_LocalInvocationID.x; i < n; i += THREADS)
        if (rank_key(by, float_at(scores, i), mean) > key)
            Longs(weights).v[i] = 0;
    settle();
    sum_weights();
}

/* Among tokens whose key equals the border's, keeps the first, and more until the goal is reached. */
void cut_equals(border b, double goal)
{
    uint64_t equals = 0, sum = b.before;
    bool kept = false;
    for (uint i = gl_LocalInvocationID.x; i < n; i += THREADS)
        equals += Longs(weights).v[i] != 0 && rank_key(BY_SCORE, float_at(scores, i), 0.0lf) == b.key ? 1 : 0;
    if (block_total(equals) <= 1)
        return;
    for (uint i = 0; gl_LocalInvocationID.x == 0 && i < n; i++) {
        uint64_t weight = Longs(weights).v[i];
        if (weight == 0 || rank_key(BY_SCORE, float_at(scores, i), 0.0lf) != b.key)
            continue;
        if (kept && double(sum) >= goal) {
            Longs(weights).v[i] = 0;
            continue;
        }
        kept = true;
        sum += weight;
    }
    settle();
    sum_weights();
}

void cut_top_p()
{
    if (order.top_p >= 1)
        return;
    double goal = double(total) * forgive(order.top_p);
    border b = find_border(BY_SCORE, goal, 0.0lf);
    cut_by_key(BY_SCORE, b.key, 0.0lf);
    cut_equals(b, goal);
}

void cut_min_p()
{
    if (!(order.min_p > 0))
        return;
    double lowest = forgive(order.min_p) * WEIGHT_ONE;
    for (uint i = gl_LocalInvocationID.x; i < n; i += THREADS)
        if (double(Longs(weights).v[i]) < lowest)
            Longs(weights).v[i] = 0;
    settle();
    sum_weights();
}

void cut_typical()
{
    if (order.typical_p >= 1)
        return;
    double mean = 0.0lf;
    for (uint i = gl_LocalInvocationID.x; i < n; i += THREADS)
        if (Longs(weights).v[i] != 0)
            mean += double(Longs(weights).v[i]) * (double(float_at(scores, i)) - double(most));
    mean = block_total_f64(mean) / double(total);
    cut_by_key(BY_DISTANCE, find_border(BY_DISTANCE, double(total) * forgive(order.typical_p), mean).key, mean);
}

/* ---- the draw ---------------------------------------------------------------------------------------------------- */

shared int picked;

/* The first token at which the running sum of weights passes u * total; a thread sums a range of tokens. */
int pick()
{
    uint64_t target = uint64_t(order.u * double(total)), sum = 0, before = 0;
    target = target < total ? target : total - 1;
    uint thread = gl_LocalInvocationID.x, each = (n + THREADS - 1) / THREADS, begin = min(thread * each, n),
         end = min(begin + each, n);
    for (uint i = begin; i < end; i++)
        sum += Longs(weights).v[i];
    barrier();
    exchanged[thread] = sum;
    barrier();
    for (uint i = 0; i < thread; i++)
        before += exchanged[i];
    if (target >= before && target < before + sum)
        for (uint i = begin; i < end; i++) {
            before += Longs(weights).v[i];
            if (target < before) {
                picked = int(i);
                break;
            }
        }
    barrier();
    return picked;
}

double logprob_of(float logit, float largest, double log_total)
{
    if (isinf(largest))
        return logit == INFINITY ? -log_total : -double(INFINITY);
    return double(logit) - double(largest) - log_total;
}

/* Log probabilities of the raw logits. */
void write_logprobs(uint draw)
{
    float largest = float_of_key(uint(best_rank(logits) >> 32));
    bool infinite = isinf(largest);
    double sum = 0.0lf;
    for (uint i = gl_LocalInvocationID.x; i < n; i += THREADS) {
        float logit = float_at(logits, i);
        sum += infinite ? double(logit == largest ? 1 : 0) : weigh_exp(double(logit) - double(largest));
    }
    double log_total = precise_log(block_total_f64(sum));
    uint n_top = min(order.n_top, n);
    settle();
    if (gl_LocalInvocationID.x == 0) {
        Results(args.a.results).v[draw].logprob =
            logprob_of(float_at(logits, Results(args.a.results).v[draw].token), largest, log_total);
        Results(args.a.results).v[draw].n_top = n_top;
    }
    uint64_t last = ~uint64_t(0);
    for (uint k = 0; k < n_top; k++) {
        uint64_t best = 0;
        for (uint i = gl_LocalInvocationID.x; i < n; i += THREADS) {
            uint64_t rank = ranked(float_at(logits, i), i);
            best = rank < last && rank > best ? rank : best;
        }
        last = block_largest(best);
        if (gl_LocalInvocationID.x == 0) {
            Results(args.a.results).v[draw].top[k] = int(ranked_token(last));
            Results(args.a.results).v[draw].top_logprob[k] =
                logprob_of(float_at(logits, ranked_token(last)), largest, log_total);
        }
    }
}

uint draw_token(out int token)
{
    token = 0;
    if (!copy_logits())
        return SPRY_DRAW_NAN;
    apply_penalties();
    apply_bias();
    if (order.has_mask != 0)
        apply_mask();
    if (!find_max())
        return SPRY_DRAW_NOTHING;
    if (order.temperature == 0) {
        token = int(ranked_token(best_rank(scores)));
        return SPRY_DRAW_OK;
    }
    temper();
    weigh_top_k();
    cut_top_p();
    cut_min_p();
    cut_typical();
    token = pick();
    return SPRY_DRAW_OK;
}

/* The best token of all slices. */
uint plain_token(uint draw, out int token)
{
    uint thread = gl_LocalInvocationID.x;
    uint64_t rank =
        block_largest(thread < SPRY_DRAW_SLICES ? Longs(args.a.best).v[draw * SPRY_DRAW_SLICES + thread] : 0);
    token = rank == RANK_NAN ? 0 : int(ranked_token(rank));
    if (rank == RANK_NAN)
        return SPRY_DRAW_NAN;
    return float_at(logits, token) == -INFINITY ? SPRY_DRAW_NOTHING : SPRY_DRAW_OK;
}

void main()
{
    uint draw = gl_WorkGroupID.x;
    uint64_t first = uint64_t(draw) * args.a.n_vocab;
    int token;
    order = Orders(args.a.orders).v[draw];
    n = args.a.n_vocab;
    logits = row_at(args.a.logits, order.row, n);
    scores = args.a.scores + first * 4;
    weights = args.a.weight + first * 8;
    counts = args.a.count + first * 4;
    bool plain = order.temperature == 0 && order.n_history == 0 && order.n_bias == 0 && order.has_mask == 0;
    uint fault = plain ? plain_token(draw, token) : draw_token(token);
    if (gl_LocalInvocationID.x == 0) {
        Results(args.a.results).v[draw].fault = fault;
        Results(args.a.results).v[draw].token = token;
        Results(args.a.results).v[draw].n_top = 0;
    }
    settle();
    if (fault == SPRY_DRAW_OK && (order.wants_logprob != 0 || order.n_top != 0))
        write_logprobs(draw);
}
