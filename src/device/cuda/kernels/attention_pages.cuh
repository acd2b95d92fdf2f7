/* Attention over pages of F16 with matrix instructions. As in attention.cu every page gives a maximum, a sum and a
 * weighted sum of values of its own; here they are folded in order into the result, with no chunks between. For few rows
 * a warp takes a page, and spry_attend_merge folds; for many rows a warp goes through all pages for its 16 queries.
 *
 * A warp multiplies 16 queries by the 32 keys of a page, then their weights by its values. The
 * columns of a product may stand for any keys or values, so a lane takes those that it can load together: for few rows
 * straight from the page, for many rows from shared memory, where a page arrives while the one before it is used.
 * Lane = 4 g + t holds scores of queries g and g + 8 with tokens 8t .. 8t + 7, and sums of values 8t .. 8t + 7 of each
 * 32. Queries and weights are halves, as keys and values are.
 *
 * BLOCKS: 32 values of a head. A warp adds up at most 128 values; longer heads are split over warps. */
#pragma once

#include "device/cuda/kernels/merge.cuh"
#include "device/cuda/kernels/pages.cuh"

enum { QUERIES = 16, PAGE_SPAN = 8 };

template <int BLOCKS> struct head_shape {
    enum { PART = BLOCKS < 4 ? BLOCKS : 4, PARTS = BLOCKS / PART, WARPS = BLOCKS <= 4 ? 4 : 2, STEPS = BLOCKS * 2 };
};

/* Queries as a warp's lanes want them: [step of 16 values, lane]. */
template <int BLOCKS> struct staged_queries {
    uint4 words[head_shape<BLOCKS>::STEPS][WARP];
};

/* Of queries g and g + 8. */
template <int PART> struct page_sums {
    float max[2], sum[2];
    float out[PART * 4][4];
};

struct warp_queries {
    uint32_t first_row, first, count; /* queries `first` .. of the run that begins with a row */
    uint32_t begin[2], end[2];        /* positions that queries g and g + 8 see */
    uint32_t lowest, highest;         /* that any of the 16 sees */
    uint32_t kv_head;
};

/* Queries that are left, or as many as a warp takes. */
SPRY_DEVICE uint32_t at_most(uint32_t left)
{
    return left < QUERIES ? left : (uint32_t)QUERIES;
}

SPRY_DEVICE uint32_t query_row(const warp_queries &q, uint32_t group, uint32_t i)
{
    return q.first_row + (q.first + i) / group;
}

SPRY_DEVICE uint32_t query_head(const warp_queries &q, uint32_t group, uint32_t i)
{
    return q.kv_head * group + (q.first + i) % group;
}

SPRY_DEVICE void see(uint32_t *begin, uint32_t *end, const spry_attend_args &a, uint32_t row)
{
    *end = a.rows[row].position + 1;
    *begin = a.window && *end > a.window ? *end - a.window : 0;
}

/* Rows of a run stand one behind the other, so its first query sees the lowest position and its last the highest. */
SPRY_DEVICE void find_queries(warp_queries &q, const spry_attend_args &a, uint32_t group, int lane)
{
    uint32_t unused;
    for (int half = 0; half < 2; half++) {
        uint32_t i = (uint32_t)(lane / 4 + half * 8);
        q.begin[half] = q.end[half] = 0;
        if (i < q.count)
            see(&q.begin[half], &q.end[half], a, query_row(q, group, i));
    }
    see(&q.lowest, &unused, a, query_row(q, group, 0));
    see(&unused, &q.highest, a, query_row(q, group, q.count - 1));
}

/* Value d of a query, turned for a page that is used away from where it was computed. */
SPRY_DEVICE float turned_value(const spry_attend_args &a, const float *query, uint32_t turn, uint32_t d)
{
    if (d >= 2 * a.n_pairs)
        return query[d];
    uint32_t pair = a.interleaved ? d / 2 : d % a.n_pairs, first = a.interleaved ? 2 * pair : pair;
    uint32_t second = a.interleaved ? first + 1 : pair + a.n_pairs;
    float cosine = a.turn_cosine[(uint64_t)turn * a.n_pairs + pair];
    float sine = a.turn_sine[(uint64_t)turn * a.n_pairs + pair];
    return d == first ? query[first] * cosine - query[second] * sine : query[first] * sine + query[second] * cosine;
}

/* query(i): where the values of query i lie. */
template <int BLOCKS, class Q>
SPRY_DEVICE void stage_queries(staged_queries<BLOCKS> &to, uint32_t count, Q query, const spry_attend_args &a,
                               uint32_t turn, int lane)
{
    warp_wait();
    SPRY_UNROLL_BY(1)
    for (uint32_t i = 0; i < count; i++) {
        const float *values = query(i);
        float v[BLOCKS];
        SPRY_UNROLL
        for (int k = 0; k < BLOCKS; k++)
            v[k] = values[lane + k * WARP];
        if (turn) {
            SPRY_UNROLL
            for (int k = 0; k < BLOCKS; k++)
                v[k] = turned_value(a, values, turn, (uint32_t)(lane + k * WARP));
        }
        SPRY_UNROLL
        for (int k = 0; k < BLOCKS; k++) {
            uint32_t in = (uint32_t)lane % 16, step = (uint32_t)(k * 2 + lane / 16);
            uint32_t at = (i / 8 + in / 8 * 2) * 2 + in % 2; /* half of the lane's 16 bytes */
            ((uint16_t *)&to.words[step][i % 8 * 4 + in % 8 / 2])[at] = half_of_float(v[k]);
        }
    }
    warp_wait();
}

/* Those of a warp, as rows have them. */
template <int BLOCKS>
SPRY_DEVICE void stage_rows(staged_queries<BLOCKS> &to, const warp_queries &q, const spry_attend_args &a, uint32_t group,
                            uint32_t turn, int lane)
{
    stage_queries<BLOCKS>(
        to, q.count,
        [&](uint32_t i) {
            return a.q + ((uint64_t)query_row(q, group, i) * a.n_heads + query_head(q, group, i)) * (BLOCKS * 32);
        },
        a, turn, lane);
}

/* ---- one page ---------------------------------------------------------------------------------------------------- */

/* The j-th of four halves of both: the first below, the second above. */
SPRY_DEVICE uint32_t pair_halves(uint2 a, uint2 b, int j)
{
    uint32_t first = j < 2 ? a.x : a.y, second = j < 2 ? b.x : b.y;
    return j % 2 ? upper_halves(first, second) : lower_halves(first, second);
}

/* Key i of four that a lane needs for a step of 16 values: values 2t, 2t + 1, 2t + 8, 2t + 9 of four tokens. */
SPRY_DEVICE uint2 load_keys(const unsigned char *keys, int step, int i, int lane)
{
    int d = step * 16 + lane % 4 * 2 + i % 2 + i / 2 * 8;
    return ((const uint2 *)keys)[d * PAGE_SPAN + lane / 4];
}

/* Where the values of number i of the lane's eight tokens begin. Those of tokens that no query sees may be anything: they
 * are not read, but a token's instead that is seen; their weights are zeros. */
SPRY_DEVICE const unsigned char *token_values(const unsigned char *values, uint32_t token_bytes, uint32_t begin,
                                              uint32_t end, int i, int lane)
{
    uint32_t token = (uint32_t)(lane % 4 * 8 + i);
    token = token < begin ? begin : token;
    return values + (token < end ? token : end - 1) * token_bytes + lane / 4 * 8;
}

/* Scores of token 8t + u are scores[u % 4][query half * 2 + u / 4]. keys(step, i) gives what load_keys does. */
template <int BLOCKS, class K>
SPRY_DEVICE void score_page(float scores[4][4], const staged_queries<BLOCKS> &q, K keys, int lane)
{
    SPRY_UNROLL
    for (int j = 0; j < 4; j++)
        scores[j][0] = scores[j][1] = scores[j][2] = scores[j][3] = 0;
    SPRY_UNROLL
    for (int step = 0; step < head_shape<BLOCKS>::STEPS; step++) {
        uint2 k0 = keys(step, 0), k1 = keys(step, 1), k8 = keys(step, 2), k9 = keys(step, 3);
        uint4 query = q.words[step][lane];
        SPRY_UNROLL
        for (int j = 0; j < 4; j++) {
            uint32_t b0 = pair_halves(k0, k1, j), b1 = pair_halves(k8, k9, j);
            multiply_f16(scores[j], query, b0, b1);
        }
    }
}

/* From scores to weights, with their maximum and sum. HALVES: 1 where there are at most 8 queries. */
template <int HALVES, int PART>
SPRY_DEVICE void weigh_page(page_sums<PART> &s, float scores[4][4], const warp_queries &q, const spry_attend_args &a,
                            const spry_step_entry &entry, int lane)
{
    SPRY_UNROLL
    for (int i = 0; i < 16; i++)
        scores[i / 4][i % 4] *= a.scale;
    if (a.softcap != 0) {
        SPRY_UNROLL
        for (int i = 0; i < 16; i++)
            scores[i / 4][i % 4] = a.softcap * tanhf(scores[i / 4][i % 4] / a.softcap);
    }
    SPRY_UNROLL
    for (int half = 0; half < HALVES; half++) {
        float max = -INFINITY, sum = 0;
        uint32_t begin = q.begin[half] > entry.start ? q.begin[half] - entry.start : 0;
        uint32_t end = q.end[half] > entry.start ? q.end[half] - entry.start : 0;
        end = end < entry.count ? end : entry.count;
        end = end > begin ? end : begin;
        SPRY_UNROLL
        for (int u = 0; u < 8; u++) {
            uint32_t token = (uint32_t)(lane % 4 * 8 + u);
            float *score = &scores[u % 4][half * 2 + u / 4];
            *score = token - begin < end - begin ? *score : -INFINITY;
            max = fmaxf(max, *score);
        }
        max = fmaxf(max, warp_across(max, 1));
        s.max[half] = max = fmaxf(max, warp_across(max, 2));
        float base = max == -INFINITY ? 0 : max; /* of what is not seen remains nothing */
        SPRY_UNROLL
        for (int u = 0; u < 8; u++) {
            float *score = &scores[u % 4][half * 2 + u / 4];
            *score = quick_exp(*score - base);
            sum += *score;
        }
        sum += warp_across(sum, 1);
        s.sum[half] = sum + warp_across(sum, 2);
    }
}

/* Weights of four tokens from 4 * quarter on, of both queries, as a lane's part of a matrix. */
template <int HALVES> SPRY_DEVICE uint4 take_weights(const float w[4][4], int quarter)
{
    uint4 halves = {half_pair(w[0][quarter], w[1][quarter]), 0, half_pair(w[2][quarter], w[3][quarter]), 0};
    if (HALVES > 1) {
        halves.y = half_pair(w[0][2 + quarter], w[1][2 + quarter]);
        halves.w = half_pair(w[2][2 + quarter], w[3][2 + quarter]);
    }
    return halves;
}

/* Sums of values; values(quarter, block, i) gives four of the lane's values of a block, of token i of four from 4 * quarter
 * of its eight on. */
template <int HALVES, int PART, class V> SPRY_DEVICE void gather_page(page_sums<PART> &s, const float weights[4][4], V values)
{
    SPRY_UNROLL
    for (int i = 0; i < PART * 4; i++)
        s.out[i][0] = s.out[i][1] = s.out[i][2] = s.out[i][3] = 0;
    SPRY_UNROLL
    for (int quarter = 0; quarter < 2; quarter++) {
        uint4 weight = take_weights<HALVES>(weights, quarter);
        SPRY_UNROLL
        for (int block = 0; block < PART; block++) {
            uint2 v0 = values(quarter, block, 0), v1 = values(quarter, block, 1);
            uint2 v2 = values(quarter, block, 2), v3 = values(quarter, block, 3);
            SPRY_UNROLL
            for (int j = 0; j < 4; j++) {
                uint32_t b0 = pair_halves(v0, v1, j), b1 = pair_halves(v2, v3, j);
                multiply_f16(s.out[block * 4 + j], weight, b0, b1);
            }
        }
    }
}

/* Where the keys and values of a page lie, and which of its tokens any query of the warp sees. */
struct seen_page {
    const unsigned char *keys, *values;
    uint32_t begin, end;
};

SPRY_DEVICE seen_page find_page(const warp_queries &q, const spry_attend_args &a, const spry_step_entry &entry,
                                uint32_t offset)
{
    page_head page = head_of_page(a.kv, entry.page, q.kv_head);
    seen_page p = {page.keys, page.values + offset, q.lowest > entry.start ? q.lowest - entry.start : 0,
                   q.highest - entry.start < entry.count ? q.highest - entry.start : entry.count};
    return p;
}

/* All that a lane needs of a page, loaded at once. */
template <int BLOCKS, int PART> struct page_words {
    uint2 keys[head_shape<BLOCKS>::STEPS][4], values[2][PART][4];
};

template <int BLOCKS, int PART>
SPRY_DEVICE void load_page(page_words<BLOCKS, PART> &w, const seen_page &p, uint32_t token_bytes, int lane)
{
    SPRY_UNROLL
    for (int i = 0; i < head_shape<BLOCKS>::STEPS * 4; i++)
        w.keys[i / 4][i % 4] = load_keys(p.keys, i / 4, i % 4, lane);
    SPRY_UNROLL
    for (int i = 0; i < 8; i++) {
        const unsigned char *from = token_values(p.values, token_bytes, p.begin, p.end, i, lane);
        SPRY_UNROLL
        for (int block = 0; block < PART; block++)
            w.values[i / 4][block][i % 4] = *(const uint2 *)(from + block * 64);
    }
}

template <int HALVES, int BLOCKS, int PART>
SPRY_DEVICE void attend_words(page_sums<PART> &s, const page_words<BLOCKS, PART> &w, const staged_queries<BLOCKS> &staged,
                              const warp_queries &q, const spry_attend_args &a, const spry_step_entry &entry, int lane)
{
    float scores[4][4];
    score_page<BLOCKS>(scores, staged, [&](int step, int i) { return w.keys[step][i]; }, lane);
    weigh_page<HALVES>(s, scores, q, a, entry, lane);
    gather_page<HALVES>(s, scores, [&](int quarter, int block, int i) { return w.values[quarter][block][i]; });
}

SPRY_DEVICE bool page_seen(const warp_queries &q, const spry_step_entry &entry)
{
    return q.highest > entry.start && q.lowest < entry.start + entry.count;
}

/* Sums of a query at value d: lane's value u of a block is out[block * 4 + u % 4][half * 2 + u / 4]. */
template <int PART>
SPRY_DEVICE void write_values(float *to, const page_sums<PART> &s, int half, float factor, int lane)
{
    SPRY_UNROLL
    for (int block = 0; block < PART; block++) {
        SPRY_UNROLL
        for (int u = 0; u < 8; u++)
            to[block * 32 + lane % 4 * 8 + u] = s.out[block * 4 + u % 4][half * 2 + u / 4] * factor;
    }
}

/* What page `number` gives for the rows from number `few` on; a page that is not seen says so. */
template <int HALVES, int PART>
SPRY_DEVICE void write_partial(const spry_attend_args &a, const page_sums<PART> &s, bool seen, const warp_queries &q,
                               uint32_t few, uint32_t number, uint32_t part, int lane)
{
    uint32_t group = a.n_heads / a.kv.n_kv_heads;
    SPRY_UNROLL
    for (int half = 0; half < HALVES; half++) {
        uint32_t i = (uint32_t)(lane / 4 + half * 8);
        if (i >= q.count)
            continue;
        float *to = chunk_partial(a, few + (q.first + i) / group, query_head(q, group, i), number);
        if (part == 0 && lane % 4 == 0) {
            to[0] = seen ? s.max[half] : -INFINITY;
            to[1] = seen ? s.sum[half] : 0;
        }
        if (seen)
            write_values(to + 2 + part * PART * 32, s, half, 1, lane);
    }
}
