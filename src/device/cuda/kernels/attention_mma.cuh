/* Attention over F16 pages with mma: the parts that the split-KV and prefill kernels of attention_mma.cu, the wgmma
 * prefill and the decode kernels share. Heads of 32, 64, 96, 128 and 256.
 *
 * A warp multiplies 16 queries by the 32 keys of a page (S = Q K^T), then the probabilities by its values (O = P V).
 * Pages pass through shared memory, from where ldmatrix loads them transposed. With lane = 4 g + t a lane holds
 * scores of queries g and g + 8 with tokens 2t and 2t + 1 of each 8, and accumulators of values 2t and 2t + 1 of
 * each 8. Queries and probabilities are F16, as keys and values are.
 *
 * Order of the sums: each page has its own softmax; SPRY_SPLIT_KV_PAGES pages are combined in order into a chunk,
 * chunks in order into the result. BLOCKS: head size / 32. A warp accumulates at most 128 values; longer heads are
 * split over warps. */
#pragma once

#include "device/cuda/kernels/kv_pages.cuh"
#include "device/cuda/kernels/online_softmax.cuh"

enum { QUERIES = 16, HALF_ONES = 0x3c003c00 }; /* HALF_ONES: two F16, each 1 */

template <int BLOCKS> struct head_config {
    enum { PART = BLOCKS < 4 ? BLOCKS : 4, PARTS = BLOCKS / PART, WARPS = SPRY_HEAD_WARPS(BLOCKS), STEPS = BLOCKS * 2 };
};

/* The queries of a warp as mma operand A: [step of 16 coordinates, lane]. */
template <int BLOCKS> struct staged_queries {
    uint4 words[head_config<BLOCKS>::STEPS][WARP];
};

/* Running max and sum of queries g and g + 8, and the accumulators of values. */
struct softmax_stats {
    float max[2], sum[2];
};

template <int PART> struct page_output : softmax_stats {
    float out[PART * 4][4];
};

struct warp_queries {
    uint32_t first_row, first, count; /* first: the warp's first query, counted from the first query of first_row;
                                       * count: its number of queries */
    uint32_t begin[2], end[2];        /* positions visible to queries g and g + 8 */
    uint32_t lowest, highest;         /* positions visible to any of the queries */
    uint32_t kv_head;
};

/* The number of queries for a warp when `left` queries remain. */
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
    uint32_t position = a.rows[row].position;
    *end = position + 1 + a.ahead + (a.both_ways ? a.rows[row].ahead : 0);
    *begin = first_seen(a, position);
}

/* Rows are in order of position, so the first query has the lowest visible position and the last one the highest. */
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

/* Coordinate d of a query, rotated for a page that is used away from where it was computed. */
SPRY_DEVICE float rotated_value(const spry_attend_args &a, const float *query, uint32_t rotation, uint32_t d)
{
    if (d >= 2 * a.n_pairs)
        return query[d];
    uint32_t pair = a.interleaved ? d / 2 : d % a.n_pairs, first = a.interleaved ? 2 * pair : pair;
    uint32_t second = a.interleaved ? first + 1 : pair + a.n_pairs;
    float cosine = a.rotation_cosine[(uint64_t)rotation * a.n_pairs + pair];
    float sine = a.rotation_sine[(uint64_t)rotation * a.n_pairs + pair];
    return d == first ? query[first] * cosine - query[second] * sine : query[first] * sine + query[second] * cosine;
}

/* Loads the queries of a warp into shared memory as F16. */
template <int BLOCKS>
SPRY_DEVICE void stage_rows(staged_queries<BLOCKS> &to, const warp_queries &q, const spry_attend_args &a,
                            uint32_t group, uint32_t rotation, int lane)
{
    enum { TOGETHER = 4 }; /* queries that are loaded at once */
    syncwarp();
    SPRY_UNROLL_BY(1)
    for (uint32_t first = 0; first < q.count; first += TOGETHER) {
        float v[TOGETHER][BLOCKS];
        SPRY_UNROLL
        for (uint32_t n = 0; n < TOGETHER; n++) {
            uint32_t i = first + n < q.count ? first + n : q.count - 1;
            const float *values =
                a.q + ((uint64_t)query_row(q, group, i) * a.n_heads + query_head(q, group, i)) * (BLOCKS * 32);
            SPRY_UNROLL
            for (int k = 0; k < BLOCKS; k++)
                v[n][k] = rotation ? rotated_value(a, values, rotation, (uint32_t)(lane + k * WARP))
                                   : values[lane + k * WARP];
        }
        SPRY_UNROLL
        for (uint32_t n = 0; n < TOGETHER; n++) {
            uint32_t i = first + n, in = (uint32_t)lane % 16;
            uint32_t at = (i / 8 + in / 8 * 2) * 2 + in % 2; /* index of the F16 in the lane's 16 bytes */
            SPRY_UNROLL
            for (int k = 0; i < q.count && k < BLOCKS; k++)
                ((uint16_t *)&to.words[k * 2 + lane / 16][i % 8 * 4 + in % 8 / 2])[at] = half_of_float(v[n][k]);
        }
    }
    syncwarp();
}

/* ---- one page ---------------------------------------------------------------------------------------------------- */

/* Addresses of the keys and values of a page, and the tokens that some query sees. */
struct visible_page {
    const unsigned char *keys, *values;
    uint32_t begin, end;
};

/* A page in shared memory in pieces of 16 bytes, swizzled so that rows loaded together are in different banks. KEPT:
 * blocks of 32 values of each token. */
template <int BLOCKS, int KEPT> struct page_copy {
    enum { PIECE = 16, PIECES = KEPT * 4, VALUE_STRIDE = KEPT <= 2 ? 128 : KEPT <= 4 ? 256 : 512 };
    enum { KEYS = BLOCKS * 32 * PAGE_TOKENS * 2, BYTES = KEYS + PAGE_TOKENS * VALUE_STRIDE };
    unsigned char *smem;

    SPRY_METHOD unsigned char *key_piece(uint32_t d, uint32_t piece) const
    {
        return smem + d / 2 * 128 + (d % 2 * 4 + (piece ^ d / 2 % 4)) * PIECE;
    }

    SPRY_METHOD unsigned char *value_piece(uint32_t token, uint32_t piece) const
    {
        return smem + KEYS + token * VALUE_STRIDE + (piece ^ token % 8) * PIECE;
    }

    /* Copies the keys with cp.async, by THREADS threads. The swizzle repeats, so the offsets of the next rows are the
     * same. */
    template <int THREADS> SPRY_METHOD void copy_keys(const visible_page &page, uint32_t thread) const
    {
        unsigned char *to = key_piece(thread / 4, thread % 4);
        const unsigned char *from = page.keys + thread * PIECE;
        SPRY_UNROLL_BY(16)
        for (int i = 0; i < KEYS; i += THREADS * PIECE)
            cp_async(to + i, from + i);
    }

    /* Copies the values with cp.async. Invisible tokens may hold anything, and their probabilities are 0, so a visible
     * token is copied in their place. */
    template <int THREADS>
    SPRY_METHOD void copy_values(const visible_page &page, uint32_t token_bytes, uint32_t thread) const
    {
        SPRY_UNROLL_BY(16)
        for (uint32_t i = thread; i < PAGE_TOKENS * PIECES; i += THREADS) {
            uint32_t token = i / PIECES < page.begin ? page.begin : i / PIECES;
            token = token < page.end ? token : page.end - 1;
            cp_async(value_piece(i / PIECES, i % PIECES), page.values + token * token_bytes + i % PIECES * PIECE);
        }
    }

    /* Keys of tokens 16 * pair .. + 15 for a step of 16 coordinates: b0 and b1 of the first 8 tokens, then of the
     * others. */
    SPRY_METHOD void keys(uint32_t out[4], int step, int pair, int lane) const
    {
        ldmatrix_trans(
            out, key_piece((uint32_t)(step * 16 + lane / 8 % 2 * 8 + lane % 8), (uint32_t)(pair * 2 + lane / 16)));
    }

    /* Coordinates 16 * pair .. + 15 of the 16 tokens from 16 * half on, as mma operand B. */
    SPRY_METHOD void values(uint32_t out[4], int half, int pair, int lane) const
    {
        ldmatrix_trans(
            out, value_piece((uint32_t)(half * 16 + lane / 8 % 2 * 8 + lane % 8), (uint32_t)(pair * 2 + lane / 16)));
    }
};

/* S = Q K^T: the score of token 8 j + 2t + u is scores[j][query half * 2 + u]. */
template <int BLOCKS, class P>
SPRY_DEVICE void multiply_qk(float scores[4][4], const staged_queries<BLOCKS> &q, const P &page, int lane)
{
    SPRY_UNROLL
    for (int j = 0; j < 4; j++)
        scores[j][0] = scores[j][1] = scores[j][2] = scores[j][3] = 0;
    SPRY_UNROLL
    for (int step = 0; step < head_config<BLOCKS>::STEPS; step++) {
        uint4 query = q.words[step][lane];
        SPRY_UNROLL
        for (int pair = 0; pair < 2; pair++) {
            uint32_t keys[4];
            page.keys(keys, step, pair, lane);
            mma_f16(scores[pair * 2], query, keys[0], keys[1]);
            mma_f16(scores[pair * 2 + 1], query, keys[2], keys[3]);
        }
    }
}

/* Applies the softcap to N * 4 products of queries and keys; returns the factor that turns products into scores. */
template <int N> SPRY_DEVICE float score_scale(float (*products)[4], const spry_attend_args &a)
{
    if (!SPRY_UNLIKELY(a.softcap != 0))
        return a.scale;
    SPRY_UNROLL
    for (int i = 0; i < N * 4; i++)
        products[i / 4][i % 4] = a.softcap * tanhf(products[i / 4][i % 4] * a.scale / a.softcap);
    return 1;
}

/* The summand that makes the largest exponent 0; 0 if nothing is visible. */
SPRY_DEVICE float exponent_base(float max, float power)
{
    return max == -INFINITY ? 0 : -(max * power);
}

/* Tokens of a page that are visible to the lane's two queries, relative to the page's first token. */
struct visible_tokens {
    uint32_t begin[2], count[2];

    SPRY_METHOD visible_tokens(const warp_queries &q, const spry_step_entry &entry)
    {
        SPRY_UNROLL
        for (int half = 0; half < 2; half++) {
            uint32_t end = q.end[half] > entry.start ? q.end[half] - entry.start : 0;
            begin[half] = q.begin[half] > entry.start ? q.begin[half] - entry.start : 0;
            end = end < entry.count ? end : entry.count;
            count[half] = end > begin[half] ? end - begin[half] : 0;
        }
    }

    /* Sets the scores of invisible tokens to -INFINITY. */
    SPRY_METHOD void mask(float (*scores)[4], int lane) const
    {
        SPRY_UNROLL
        for (uint32_t i = 0; i < 16; i++) {
            uint32_t token = i / 4 * 8 + (uint32_t)lane % 4 * 2 + i % 2;
            float *score = &scores[i / 4][i % 4];
            *score = token - begin[i % 4 / 2] < count[i % 4 / 2] ? *score : -INFINITY;
        }
    }
};

/* Replaces scores by probabilities relative to the largest score; `factor` turns products into scores. */
SPRY_DEVICE void softmax_scores(softmax_stats &s, float (*scores)[4], float factor)
{
    float power = factor * LOG2E;
    SPRY_UNROLL
    for (int half = 0; half < 2; half++) {
        float max = fmaxf(scores[0][half * 2], scores[0][half * 2 + 1]);
        SPRY_UNROLL
        for (int j = 1; j < 4; j++)
            max = fmaxf(max, fmaxf(scores[j][half * 2], scores[j][half * 2 + 1]));
        max = fmaxf(max, warp_shfl_xor(max, 1));
        max = fmaxf(max, warp_shfl_xor(max, 2));
        float base = exponent_base(max, power);
        s.max[half] = max * factor;
        SPRY_UNROLL
        for (int u = 0; u < 8; u++) {
            float *score = &scores[u / 2][half * 2 + u % 2];
            *score = ex2_approx(fmaf(*score, power, base));
        }
    }
}

SPRY_DEVICE void softmax_page(softmax_stats &s, float (*scores)[4], const warp_queries &q, const spry_attend_args &a,
                              const spry_step_entry &entry, int lane)
{
    float factor = score_scale<4>(scores, a);
    visible_tokens(q, entry).mask(scores, lane);
    softmax_scores(s, scores, factor);
}

/* The probabilities of 16 tokens and both queries as mma operand A. */
SPRY_DEVICE uint4 pack_probs(const float (*w)[4], int half)
{
    const float *low = w[half * 2], *high = w[half * 2 + 1];
    uint4 halves = {pack_f16x2(low[0], low[1]), pack_f16x2(low[2], low[3]), pack_f16x2(high[0], high[1]),
                    pack_f16x2(high[2], high[3])};
    return halves;
}

/* Sums the probabilities as they are multiplied: as F16, with mma, in the same order. */
SPRY_DEVICE void sum_probs(softmax_stats &s, uint4 first, uint4 second)
{
    float sums[4] = {0, 0, 0, 0};
    mma_f16(sums, first, HALF_ONES, HALF_ONES);
    mma_f16(sums, second, HALF_ONES, HALF_ONES);
    s.sum[0] = sums[0];
    s.sum[1] = sums[2];
}

/* Packs the probabilities of a page and sums them. */
SPRY_DEVICE void pack_page_probs(uint4 weights[2], softmax_stats &page, const float (*scores)[4])
{
    weights[0] = pack_probs(scores, 0);
    weights[1] = pack_probs(scores, 1);
    sum_probs(page, weights[0], weights[1]);
}

/* O = P V for the blocks of values from first_block on. */
template <int PART, class P>
SPRY_DEVICE void multiply_pv(page_output<PART> &s, const float weights[4][4], const P &page, int first_block, int lane)
{
    SPRY_UNROLL
    for (int i = 0; i < PART * 4; i++)
        s.out[i][0] = s.out[i][1] = s.out[i][2] = s.out[i][3] = 0;
    SPRY_UNROLL
    for (int half = 0; half < 2; half++) {
        uint4 weight = pack_probs(weights, half);
        SPRY_UNROLL
        for (int pair = 0; pair < PART * 2; pair++) {
            uint32_t values[4];
            page.values(values, half, first_block * 2 + pair, lane);
            mma_f16(s.out[pair * 2], weight, values[0], values[1]);
            mma_f16(s.out[pair * 2 + 1], weight, values[2], values[3]);
        }
    }
}

/* ---- several pages ----------------------------------------------------------------------------------------------- */

template <int PART> SPRY_DEVICE void clear_output(page_output<PART> &total)
{
    for (int half = 0; half < 2; half++) {
        total.max[half] = -INFINITY;
        total.sum[half] = 0;
    }
    SPRY_UNROLL
    for (int i = 0; i < PART * 16; i++)
        total.out[i / 4][i % 4] = 0;
}

/* The scales of both sides when a page is added to the sums so far; scale_new is negative if a query does not see the
 * page. The calls after update_max complete rescaled_add of online_softmax.cuh. */
struct softmax_update {
    float scale_old[2], scale_new[2];

    /* Updates the running max: online_softmax_scales without branches. */
    SPRY_METHOD void update_max(softmax_stats &total, const softmax_stats &page)
    {
        SPRY_UNROLL
        for (int half = 0; half < 2; half++) {
            float old = total.max[half], level = fmaxf(old, rounded_max(page.max[half]));
            float kept = softmax_exp(old, level), taken = softmax_exp(page.max[half], level);
            scale_old[half] = old == level || old == -INFINITY ? 1 : kept;
            scale_new[half] = page.max[half] == -INFINITY ? -1 : taken;
            total.max[half] = level;
        }
    }

    /* True if the running max has not changed, so that nothing is rescaled. */
    SPRY_METHOD bool max_unchanged() const
    {
        return scale_old[0] == 1 && scale_old[1] == 1;
    }

    template <int PART> SPRY_METHOD void rescale(page_output<PART> &total) const
    {
        SPRY_UNROLL
        for (int i = 0; i < PART * 16; i++)
            total.out[i / 4][i % 4] *= scale_old[i % 4 / 2];
        total.sum[0] *= scale_old[0];
        total.sum[1] *= scale_old[1];
    }

    /* Adds the sums of probabilities, which are known later than the maxima. */
    SPRY_METHOD void accumulate_sums(softmax_stats &total, const softmax_stats &page) const
    {
        SPRY_UNROLL
        for (int half = 0; half < 2; half++)
            if (scale_new[half] >= 0)
                total.sum[half] = fmaf(page.sum[half], scale_new[half], total.sum[half]);
    }

    /* Adds N * 4 accumulators; `all`: the page is visible to every query of the warp. */
    template <int N> SPRY_METHOD void accumulate(float (*total)[4], const float (*page)[4], bool all) const
    {
        SPRY_UNROLL
        for (int i = 0; all && i < N * 4; i++)
            total[i / 4][i % 4] = fmaf(page[i / 4][i % 4], scale_new[i % 4 / 2], total[i / 4][i % 4]);
        SPRY_UNROLL
        for (int i = 0; !all && i < N * 4; i++)
            if (scale_new[i % 4 / 2] >= 0)
                total[i / 4][i % 4] = fmaf(page[i / 4][i % 4], scale_new[i % 4 / 2], total[i / 4][i % 4]);
    }
};

SPRY_DEVICE visible_page find_page(const warp_queries &q, const spry_attend_args &a, const spry_step_entry &entry,
                                   uint32_t offset)
{
    page_head page = head_of_page(a.kv, entry.page, q.kv_head);
    visible_page p = {page.keys, page.values + offset, q.lowest > entry.start ? q.lowest - entry.start : 0,
                      q.highest - entry.start < entry.count ? q.highest - entry.start : entry.count};
    return p;
}

SPRY_DEVICE bool page_visible(const warp_queries &q, const spry_step_entry &entry)
{
    return q.highest > entry.start && q.lowest < entry.start + entry.count;
}

/* Stores the accumulators of a query times `factor`. */
template <int PART>
SPRY_DEVICE void store_values(float *to, const page_output<PART> &s, int half, float factor, int lane)
{
    SPRY_UNROLL
    for (int i = 0; i < PART * 8; i++)
        to[i / 2 * 8 + lane % 4 * 2 + i % 2] = s.out[i / 2][half * 2 + i % 2] * factor;
}

/* Stores the partial result of page `number` for the rows from partial_row on; an invisible page is marked as empty. */
template <int PART>
SPRY_DEVICE void store_partial(const spry_attend_args &a, const page_output<PART> &s, bool seen, const warp_queries &q,
                               uint32_t partial_row, uint32_t number, uint32_t part, int lane)
{
    uint32_t group = a.n_heads / a.kv.n_kv_heads;
    SPRY_UNROLL
    for (int half = 0; half < 2; half++) {
        uint32_t i = (uint32_t)(lane / 4 + half * 8);
        if (i >= q.count)
            continue;
        float *to = partial_at(a, partial_row + (q.first + i) / group, query_head(q, group, i), number);
        if (part == 0 && lane % 4 == 0) {
            to[0] = seen ? s.max[half] : -INFINITY;
            to[1] = seen ? s.sum[half] : 0;
        }
        if (seen)
            store_values(to + SPRY_PARTIAL_HEADER + part * PART * 32, s, half, 1, lane);
    }
}
