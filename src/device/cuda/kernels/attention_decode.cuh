/* Fused decode attention over F16 pages, for rows that are the only new row of their sequence: head norms, RoPE,
 * storing the row's key and value, split-KV attention and combination in one kernel. Compute capability 9.0 and later,
 * heads of 32, 64, 96, 128 and 256, at most 8 queries per KV head (GQA). Kernels: attention_decode.cu and
 * attention_decode_fast.cu.
 *
 * A warp multiplies the 32 keys of a page by up to 8 queries, then the page's values by the probabilities. Keys and
 * values go from global memory straight to registers: with lane = 4 g + t a lane loads, of the keys, the coordinates
 * that lanes with its t hold in an mma operand, for tokens 4g .. 4g + 3; of the values, the coordinates that lanes with
 * its g hold. The order of the sums is that of attention_mma.cuh with the operands exchanged: a step has the same 16
 * coordinates, or tokens.
 *
 * Split-KV: the blocks of a cluster share the pages of a row and KV head, and combine the partial results of all pages
 * in order, as spry_attend_combine_pages does. Before pdl_wait each warp loads its first page; the row's own page is
 * loaded without the new row, whose key and value are inserted later. A block stores them before it reads other pages.
 *
 * Shared memory: decode_heads (queries, new key and value), decode_warp_smem of each warp, partial results.
 *
 * Measured share of the limit (docs/lab/2026-11-16.md, H200, 64 sequences): pages are read at 2.7 of 4.3 TB/s; whole
 * steps reach 37 % of what memory gives at depth 512 and 66 % at depth 4,096. */
#pragma once

#include "device/cuda/kernels/attention_mma.cuh"
#include "device/cuda/smem_sizes.h"

/* The config S of a block. BLOCKS: head size / 32; KEYS: blocks whose keys are loaded together; PART, PARTS: blocks of
 * values per warp, and the number of warps or thread blocks that share a head for that; WARPS per block; WORDS: 4-byte
 * words that a lane loads at once from a token's values, LOADS times. */
template <int N> struct decode_config {
    enum { BLOCKS = N, PART = head_config<N>::PART, PARTS = head_config<N>::PARTS, WARPS = head_config<N>::WARPS };
    enum { KEYS = PART, STEPS = KEYS * 2, WORDS = PART % 2 ? 2 : 4, LOADS = PART * 2 / WORDS, TILES = PART * 2 };
    enum {
        STRIDE = BLOCKS * 32 + SPRY_DECODE_PAD,
        WEIGHTS_STRIDE = SPRY_PROBS_STRIDE
    }; /* padding avoids bank conflicts */
};

/* The heads of a row and KV head. */
template <class S> struct decode_heads {
    float queries[SPRY_DECODE_GQA_MAX][S::STRIDE];
    float key[S::BLOCKS * 32], value[S::BLOCKS * 32];
};

/* Shared memory of a warp: rotated queries, and pairs of probabilities, [query, token]. */
template <class S> struct decode_warp_smem {
    float rotated[SPRY_DECODE_GQA_MAX][S::STRIDE];
    uint32_t weights[SPRY_DECODE_GQA_MAX][S::WEIGHTS_STRIDE];
};

/* Loads a head of the row into shared memory, normalised and rotated; load_rotated_head of kv_pages.cuh with all loads
 * at once. */
template <class S>
SPRY_DEVICE void load_rotated_row(float *head, const float *from, const float *norm, bool rotates,
                                  const spry_rope_kv_args &a, uint32_t row, int lane)
{
    enum { PAIRS = (S::BLOCKS + 1) / 2 };
    float v[S::BLOCKS], weight[S::BLOCKS], cosine[PAIRS], sine[PAIRS], sum = 0;
    const float *cosines = a.cosine + (uint64_t)row * a.n_pairs, *sines = a.sine + (uint64_t)row * a.n_pairs;
    SPRY_UNROLL
    for (int k = 0; k < S::BLOCKS; k++) {
        v[k] = from[lane + k * WARP];
        weight[k] = norm ? norm[lane + k * WARP] : 1;
    }
    SPRY_UNROLL
    for (int k = 0; k < PAIRS; k++) {
        bool pair = rotates && (uint32_t)(lane + k * WARP) < a.n_pairs;
        cosine[k] = pair ? cosines[lane + k * WARP] : 1;
        sine[k] = pair ? sines[lane + k * WARP] : 0;
    }
    if (norm) {
        SPRY_UNROLL
        for (int k = 0; k < S::BLOCKS; k++)
            sum = fmaf(v[k], v[k], sum);
        float scale = inverse_rms(warp_sum(sum), S::BLOCKS * WARP, a.eps);
        SPRY_UNROLL
        for (int k = 0; k < S::BLOCKS; k++)
            v[k] = v[k] * scale * weight[k];
    }
    SPRY_UNROLL
    for (int k = 0; k < S::BLOCKS; k++)
        head[lane + k * WARP] = v[k];
    syncwarp();
    SPRY_UNROLL
    for (int k = 0; k < PAIRS; k++) {
        uint32_t i = (uint32_t)(lane + k * WARP), first = a.interleaved ? 2 * i : i;
        uint32_t second = a.interleaved ? first + 1 : i + a.n_pairs;
        if (!rotates || i >= a.n_pairs)
            continue;
        float x = head[first], y = head[second];
        head[first] = x * cosine[k] - y * sine[k];
        head[second] = x * sine[k] + y * cosine[k];
    }
    syncwarp();
}

/* Prepares the queries of a row and KV head and, in the block that `stores` them, its key and value; one warp for each.
 */
template <class S>
SPRY_DEVICE void prepare_row(decode_heads<S> &heads, const spry_rope_kv_args &a, const spry_step_row &at, uint32_t row,
                             uint32_t kv_head, bool stores)
{
    uint32_t n = S::BLOCKS * 32, n_kv = a.kv.n_kv_heads, group = a.n_heads / n_kv;
    int lane = (int)(threadIdx.x % WARP);
    page_head page = head_of_page(a.kv, at.page, kv_head);
    SPRY_UNROLL_BY(1)
    for (uint32_t i = threadIdx.x / WARP; i < group + (stores ? 2 : 0); i += blockDim.x / WARP) {
        bool is_q = i < group, is_k = i == group;
        const float *from = is_q ? a.q + ((uint64_t)row * a.n_heads + kv_head * group + i) * n
                                 : (is_k ? a.k : a.v) + ((uint64_t)row * n_kv + kv_head) * n;
        float *head = is_q ? heads.queries[i] : is_k ? heads.key : heads.value;
        load_rotated_row<S>(head, from,
                            is_q   ? a.q_norm
                            : is_k ? a.k_norm
                                   : (const float *)0,
                            is_q || is_k, a, row, lane);
        if (is_q)
            continue;
        SPRY_UNROLL
        for (int k = 0; k < S::BLOCKS; k++) {
            uint32_t d = (uint32_t)(lane + k * WARP);
            uint16_t *to = is_k ? (uint16_t *)page.keys + d * PAGE_TOKENS + at.slot
                                : (uint16_t *)(page.values + (uint64_t)at.slot * a.kv.token_bytes) + d;
            *to = half_of_float(head[d]);
        }
    }
}

/* The tokens of a page that the row sees. */
struct decode_page {
    page_head at;
    uint32_t begin, end, rotation;

    SPRY_METHOD bool seen() const
    {
        return begin < end;
    }
};

/* Every `step`-th page of a row from `first` on. The lanes hold the entries of 32 pages. */
struct decode_pages {
    const spry_step_entry *entries;
    uint32_t first, step, last, kv_head, lowest, highest; /* lowest, highest: visible positions */
    spry_step_entry held;

    SPRY_METHOD uint32_t number(uint32_t i) const
    {
        return first + i * step;
    }

    /* Page i; called with ascending i. */
    SPRY_METHOD decode_page page(const spry_attend_args &a, uint32_t i, int lane)
    {
        uint32_t own = number(i + (uint32_t)lane), from = i % WARP;
        if (from == 0)
            held = entries[own < last ? own : last];
        const spry_step_entry e = {warp_shfl(held.page, (int)from), warp_shfl(held.start, (int)from),
                                   warp_shfl(held.count, (int)from), warp_shfl(held.rotation, (int)from)};
        uint32_t begin = lowest > e.start ? lowest - e.start : 0, end = highest > e.start ? highest - e.start : 0;
        decode_page p = {head_of_page(a.kv, e.page, kv_head), begin, end < e.count ? end : e.count, e.rotation};
        if (number(i) > last)
            p.end = 0;
        return p;
    }
};

/* Arranges four words of a lane as rows g and g + 8 of mma operand A: first the lower halves, then the upper halves. */
SPRY_DEVICE uint4 both_halves(uint32_t k0, uint32_t k1, uint32_t k8, uint32_t k9)
{
    uint4 rows = {lower_halves(k0, k1), upper_halves(k0, k1), lower_halves(k8, k9), upper_halves(k8, k9)};
    return rows;
}

/* A lane's part of the keys: coordinates 2t, 2t + 1, 2t + 8 and 2t + 9 of each 16, for tokens 4g .. 4g + 3. */
template <class S> struct decode_keys {
    typedef S config;
    uint2 rows[config::STEPS][4];

    SPRY_METHOD void load(const decode_page &page, int first_block, int lane)
    {
        const unsigned char *from = page.at.keys + (first_block * 32 + lane % 4 * 2) * PAGE_TOKENS * 2 + lane / 4 * 8;
        SPRY_UNROLL
        for (int i = 0; i < config::STEPS * 4; i++)
            rows[i / 4][i % 4] = *(const uint2 *)(from + (i / 4 * 16 + i % 2 + i % 4 / 2 * 8) * PAGE_TOKENS * 2);
    }

    /* mma operand A of step s: tokens 4g + 2m and 4g + 2m + 1. */
    SPRY_METHOD uint4 operand(int s, int m) const
    {
        const uint2 *k = rows[s];
        return m ? both_halves(k[0].y, k[1].y, k[2].y, k[3].y) : both_halves(k[0].x, k[1].x, k[2].x, k[3].x);
    }

    /* Inserts the key of token `slot`, which is not in global memory yet. */
    SPRY_METHOD void put(const float *key, uint32_t slot, int lane)
    {
        bool here = (uint32_t)lane / 4 == slot / 4;
        uint32_t lower = slot % 2 ? 0x5410 : 0x3254,
                 upper = slot % 2 ? 0x7610 : 0x3276; /* selectors that replace one half of a pair */
        uint32_t x[2] = {here && slot % 4 < 2 ? lower : 0x3210, here && slot % 4 < 2 ? upper : 0x3210};
        uint32_t y[2] = {here && slot % 4 > 1 ? lower : 0x3210, here && slot % 4 > 1 ? upper : 0x3210};
        SPRY_UNROLL
        for (int i = 0; i < config::STEPS * 2; i++) {
            const float *from = key + i / 2 * 16 + i % 2 * 8 + lane % 4 * 2;
            uint32_t pair = pack_f16x2(from[0], from[1]);
            SPRY_UNROLL
            for (int k = 0; k < 2; k++) {
                uint2 &row = rows[i / 2][i % 2 * 2 + k];
                row.x = byte_perm(row.x, pair, x[k]);
                row.y = byte_perm(row.y, pair, y[k]);
            }
        }
    }
};

/* A lane's part of the values: tokens 2t, 2t + 1, 2t + 8 and 2t + 9 of each 16. Invisible tokens may hold anything, and
 * their probabilities are 0, so a visible token is loaded in their place. */
template <class S> struct decode_values {
    typedef S config;
    uint32_t words[2][4][config::LOADS][config::WORDS];

    SPRY_METHOD void load(const decode_page &page, uint32_t token_bytes, uint32_t part, int lane)
    {
        const unsigned char *from = page.at.values + part * config::PART * 64 + lane / 4 * config::WORDS * 4;
        SPRY_UNROLL
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t token = i / 4 * 16 + (uint32_t)lane % 4 * 2 + i % 2 + i % 4 / 2 * 8;
            token = token < page.begin ? page.begin : token < page.end ? token : page.end - 1;
            SPRY_UNROLL
            for (int n = 0; n < config::LOADS; n++)
                load_words(words[i / 4][i % 4][n], from + token * token_bytes + n * config::WORDS * 32);
        }
    }

    /* mma operand A of 16 tokens: two coordinates. */
    SPRY_METHOD uint4 operand(int half, int tile) const
    {
        int n = tile / config::WORDS, w = tile % config::WORDS;
        return both_halves(words[half][0][n][w], words[half][1][n][w], words[half][2][n][w], words[half][3][n][w]);
    }

    /* Inserts the values of token `slot`, which are not in global memory yet, for this token and the ones after it. */
    SPRY_METHOD void put(const float *value, uint32_t slot, uint32_t part, int lane)
    {
        const float *from = value + part * config::PART * 32 + (uint32_t)lane / 4 * config::WORDS * 2;
        SPRY_UNROLL
        for (uint32_t k = 0; k < config::LOADS * config::WORDS; k++) {
            const float *its = from + k / config::WORDS * config::WORDS * 16 + k % config::WORDS * 2;
            uint32_t pair = pack_f16x2(its[0], its[1]);
            SPRY_UNROLL
            for (uint32_t i = 0; i < 8; i++) {
                uint32_t token = i / 4 * 16 + (uint32_t)lane % 4 * 2 + i % 2 + i % 4 / 2 * 8;
                uint32_t &word = words[i / 4][i % 4][k / config::WORDS][k % config::WORDS];
                word = token < slot ? word : pair;
            }
        }
    }

    SPRY_METHOD static void load_words(uint32_t (&to)[4], const unsigned char *from)
    {
        uint4 four = *(const uint4 *)from;
        to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    }

    SPRY_METHOD static void load_words(uint32_t (&to)[2], const unsigned char *from)
    {
        uint2 two = *(const uint2 *)from;
        to[0] = two.x, to[1] = two.y;
    }
};

/* A lane's part of the queries: coordinates 2t, 2t + 1, 2t + 8 and 2t + 9 of each 16, of query g. */
template <class S> struct decode_queries {
    uint2 steps[S::BLOCKS * 2];

    SPRY_METHOD void take(const float (*heads)[S::STRIDE], uint32_t group, int lane)
    {
        const float *from = heads[lane / 4] + lane % 4 * 2;
        SPRY_UNROLL
        for (int s = 0; s < S::BLOCKS * 2; s++) {
            const float *at = from + s * 16;
            uint2 none = {0, 0}, pairs = {pack_f16x2(at[0], at[1]), pack_f16x2(at[8], at[9])};
            steps[s] = (uint32_t)(lane / 4) < group ? pairs : none;
        }
    }
};

/* Rotates the queries for a page that is used away from where it was computed. */
template <class S>
SPRY_DEVICE void rotate_queries(decode_warp_smem<S> &smem, const decode_heads<S> &heads, const spry_attend_args &a,
                                uint32_t group, uint32_t rotation, int lane)
{
    syncwarp();
    SPRY_UNROLL_BY(1)
    for (uint32_t i = (uint32_t)lane; i < group * S::BLOCKS * 32; i += WARP)
        smem.rotated[i / (S::BLOCKS * 32)][i % (S::BLOCKS * 32)] =
            rotated_value(a, heads.queries[i / (S::BLOCKS * 32)], rotation, i % (S::BLOCKS * 32));
    syncwarp();
}

/* The partial result of a page: max, sum and accumulators of queries 2t and 2t + 1. scores[m]: tokens 4g + 2m and the
 * next; out[tile]: two coordinates; each for both queries. */
template <class S> struct decode_sums {
    typedef S config;
    float max[2], sum[4], scores[2][4], out[config::TILES][4];

    SPRY_METHOD void clear()
    {
        SPRY_UNROLL
        for (int i = 0; i < 8; i++)
            scores[i / 4][i % 4] = 0;
    }

    template <class K> SPRY_METHOD void multiply_qk(const K &keys, const uint2 *queries)
    {
        SPRY_UNROLL
        for (int i = 0; i < config::STEPS * 2; i++)
            mma_f16(scores[i % 2], keys.operand(i / 2, i % 2), queries[i / 2].x, queries[i / 2].y);
    }

    /* softmax_page of attention_mma.cuh for this layout. */
    SPRY_METHOD void softmax(const spry_attend_args &a, const decode_page &page, int lane)
    {
        softmax_scaled(score_scale<2>(scores, a), page, lane);
    }

    /* `factor` turns products into scores. */
    SPRY_METHOD void softmax_scaled(float factor, const decode_page &page, int lane)
    {
        float power = factor * LOG2E;
        max[0] = max[1] = -INFINITY;
        SPRY_UNROLL
        for (int i = 0; i < 8; i++) {
            uint32_t token = (uint32_t)(lane / 4 * 4 + i / 2);
            float *score = &scores[i / 4][i % 4];
            *score = token - page.begin < page.end - page.begin ? *score : -INFINITY;
            max[i % 2] = fmaxf(max[i % 2], *score);
        }
        SPRY_UNROLL
        for (int mask = 4; mask < WARP; mask *= 2) {
            max[0] = fmaxf(max[0], warp_shfl_xor(max[0], mask));
            max[1] = fmaxf(max[1], warp_shfl_xor(max[1], mask));
        }
        SPRY_UNROLL
        for (int i = 0; i < 8; i++)
            scores[i / 4][i % 4] = ex2_approx(fmaf(scores[i / 4][i % 4], power, exponent_base(max[i % 2], power)));
        max[0] *= factor;
        max[1] *= factor;
    }

    /* O = P V and the sums of P. The probabilities are transposed through shared memory: a lane needs the probabilities
     * of all its tokens for one query. */
    template <class V>
    SPRY_METHOD void multiply_pv(const V &values, uint32_t (*weights)[config::WEIGHTS_STRIDE], int lane)
    {
        const uint4 ones = {HALF_ONES, HALF_ONES, HALF_ONES, HALF_ONES};
        uint32_t pairs[4], g = (uint32_t)lane / 4, t = (uint32_t)lane % 4;
        SPRY_UNROLL
        for (int u = 0; u < 2; u++) {
            weights[t * 2 + u][g * 2] = pack_f16x2(scores[0][u], scores[0][u + 2]);
            weights[t * 2 + u][g * 2 + 1] = pack_f16x2(scores[1][u], scores[1][u + 2]);
        }
        syncwarp();
        SPRY_UNROLL
        for (int i = 0; i < 4; i++) {
            pairs[i] = weights[g][i * 4 + t];
            sum[i] = 0;
        }
        syncwarp();
        SPRY_UNROLL
        for (int i = 0; i < config::TILES * 4; i++)
            out[i / 4][i % 4] = 0;
        SPRY_UNROLL
        for (int half = 0; half < 2; half++) {
            mma_f16(sum, ones, pairs[half * 2], pairs[half * 2 + 1]);
            SPRY_UNROLL
            for (int tile = 0; tile < config::TILES; tile++)
                mma_f16(out[tile], values.operand(half, tile), pairs[half * 2], pairs[half * 2 + 1]);
        }
    }

    /* Stores the partial result; see pair_partials for the layout. */
    SPRY_METHOD void write(float *to, bool seen, uint32_t part, int lane) const
    {
        if (part == 0 && lane < 4) {
            const float4 stats = {seen ? max[0] : -INFINITY, seen ? max[1] : -INFINITY, seen ? sum[0] : 0,
                                  seen ? sum[1] : 0};
            *(float4 *)to = stats;
        }
        if (!seen)
            return;
        to += SPRY_PARTIAL_HEADER + (part * config::PART * 32 + (uint32_t)lane / 4 * config::WORDS * 2) * 2;
        SPRY_UNROLL
        for (int tile = 0; tile < config::TILES; tile++) {
            const float4 both = {out[tile][0], out[tile][1], out[tile][2], out[tile][3]};
            *(float4 *)(to + (tile / config::WORDS * config::WORDS * 16 + tile % config::WORDS * 2) * 2) = both;
        }
    }
};

/* A warp's walk through its pages. */
template <class S> struct page_walk {
    typedef S config;
    decode_pages pages;
    uint32_t i, part, group, rotation; /* rotation: the one that the queries in registers have */
    decode_page now;
    decode_keys<S> keys;
    decode_values<S> values;
    decode_queries<S> queries;
    int lane;

    SPRY_METHOD void start(const spry_attend_args &a, const spry_step_row &row, uint32_t number_of_row)
    {
        pages.entries = a.entries + row.first_entry;
        pages.last = row.n_entries - 1;
        see(&pages.lowest, &pages.highest, a, number_of_row);
        group = a.n_heads / a.kv.n_kv_heads;
        rotation = 0xffffffffu;
        i = 0;
        now = pages.page(a, 0, lane);
    }

    SPRY_METHOD void load(const spry_attend_args &a)
    {
        if (now.seen()) {
            keys.load(now, 0, lane);
            values.load(now, a.kv.token_bytes, part, lane);
        }
    }

    SPRY_METHOD void score(decode_sums<S> &sums, decode_warp_smem<S> &smem, const decode_heads<S> &heads,
                           const spry_attend_args &a)
    {
        if (rotation != now.rotation) {
            if (now.rotation)
                rotate_queries<S>(smem, heads, a, group, now.rotation, lane);
            queries.take(now.rotation ? smem.rotated : heads.queries, group, lane);
            rotation = now.rotation;
        }
        sums.clear();
        sums.multiply_qk(keys, queries.steps);
        SPRY_UNROLL
        for (int block = config::KEYS; block < S::BLOCKS; block += config::KEYS) {
            keys.load(now, block, lane);
            sums.multiply_qk(keys, queries.steps + block * 2);
        }
    }

    /* Computes the partial result of the current page and starts the loads of the next one; false if the row does not
     * see the page. */
    SPRY_METHOD bool take(decode_sums<S> &sums, decode_warp_smem<S> &smem, const decode_heads<S> &heads,
                          const spry_attend_args &a)
    {
        const decode_page page = now;
        if (page.seen())
            score(sums, smem, heads, a);
        now = pages.page(a, ++i, lane);
        if (now.seen())
            keys.load(now, 0, lane);
        if (page.seen()) {
            sums.softmax(a, page, lane);
            sums.multiply_pv(values, smem.weights, lane);
        }
        if (now.seen())
            values.load(now, a.kv.token_bytes, part, lane);
        return page.seen();
    }
};

template <class S> struct decode_smem {
    decode_heads<S> heads;
    decode_warp_smem<S> warps[S::WARPS];
};

/* Layout of the partial results of queries 2 * pair and 2 * pair + 1 of a KV head: both maxima, both sums, then both
 * values of each coordinate. The partial results stay in shared memory if one block has all pages and each warp at most
 * one. */
template <class S> struct pair_partials {
    enum { SIZE = SPRY_PARTIAL_HEADER + 2 * S::BLOCKS * 32 };
    float *first;
    uint32_t n; /* capacity in pages */

    /* `alone`: one block has all pages. */
    SPRY_METHOD void locate(float *smem, const spry_attend_args &a, uint32_t decode_row, uint32_t kv_head,
                            uint32_t n_entries, bool alone)
    {
        uint32_t pairs = (a.n_heads / a.kv.n_kv_heads + 1) / 2, warps = S::WARPS;
        bool here = alone && n_entries <= warps;
        n = here ? warps : a.n_chunks;
        first = here ? smem : a.partial + ((uint64_t)decode_row * a.kv.n_kv_heads + kv_head) * pairs * n * SIZE;
    }

    SPRY_METHOD float *at(uint32_t pair, uint32_t page) const
    {
        return first + ((uint64_t)pair * n + page) * SIZE;
    }
};

/* The work of a warp for a row and KV head: pages walker * ranks + rank, then every (walkers * ranks)-th, and a part of
 * the head's values. */
struct decode_work {
    uint32_t decode_row, kv_head, rank, ranks, walker, walkers, part;
};

template <class S> struct decode_job {
    page_walk<S> walk;
    spry_step_row row;
    uint32_t number_of_row, last, kv_head, rank, ranks;

    /* The part of the work that does not need the row's queries: starts the loads of the first page. */
    SPRY_METHOD void start(const spry_decode_args &d, const decode_work &p)
    {
        const spry_attend_args &a = d.attend;
        int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
        kv_head = p.kv_head;
        rank = p.rank;
        ranks = p.ranks;
        number_of_row = a.decode_rows[p.decode_row];
        row = a.rows[number_of_row];
        last = row.n_entries - 1;
        walk.lane = lane;
        walk.part = p.part;
        walk.pages.first = p.walker * ranks + rank;
        walk.pages.step = ranks * p.walkers;
        walk.pages.kv_head = kv_head;
        walk.start(a, row, number_of_row);
        walk.load(a);
        if (d.rope_kv.q_norm && warp < 2)
            prefetch_l2((warp ? d.rope_kv.k_norm : d.rope_kv.q_norm) + lane * S::BLOCKS);
    }

    /* Computes the partial results of the warp's pages. */
    SPRY_METHOD void work(decode_smem<S> &smem, const pair_partials<S> &partials, const spry_decode_args &d)
    {
        const spry_attend_args &a = d.attend;
        int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
        prepare_row<S>(smem.heads, d.rope_kv, row, number_of_row, kv_head, last % ranks == rank);
        syncthreads();
        bool own = walk.pages.first == last && walk.now.at.keys == head_of_page(a.kv, row.page, kv_head).keys;
        if (own) { /* the row's own page was loaded without the new row */
            walk.keys.put(smem.heads.key, row.slot, lane);
            walk.values.put(smem.heads.value, row.slot, walk.part, lane);
        }
        SPRY_UNROLL_BY(1)
        while (walk.pages.number(walk.i) <= last) {
            decode_sums<S> sums;
            uint32_t number = walk.pages.number(walk.i), pair = (uint32_t)lane % 4;
            bool seen = walk.take(sums, smem.warps[warp], smem.heads, a);
            if (pair * 2 < walk.group)
                sums.write(partials.at(pair, number), seen, walk.part, lane);
        }
    }

    /* Combines all pages; this is thread `thread` of `threads`. */
    SPRY_METHOD void combine(const pair_partials<S> &partials, const spry_attend_args &a, uint32_t thread,
                             uint32_t threads) const
    {
        const uint32_t n = S::BLOCKS * 32;
        SPRY_UNROLL_BY(1)
        for (uint32_t i = thread; i < walk.group * n; i += threads) {
            uint32_t query = i / n, head = kv_head * walk.group + query, u = query % 2;
            const partial_list list = {partials.at(query / 2, 0), SPRY_PARTIAL_HEADER + 2 * n, u, 2 + u,
                                       SPRY_PARTIAL_HEADER + i % n * 2 + u};
            store_output(a, number_of_row, head, i % n, combined<SPRY_SPLIT_KV_PAGES>(a, list, head, row.n_entries));
        }
    }
};
