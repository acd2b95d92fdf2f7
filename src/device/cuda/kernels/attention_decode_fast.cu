/* The decode attention of attention_decode.cuh specialised for the common case: heads of 64 or 128 that RoPE rotates
 * fully, with or without head norms, no sinks, no softcap, no pages used away from where they were computed, one
 * output format. Sums and bits are the same as in attention_decode.cuh. Compute capability 9.0 and later.
 *
 * Grid: (blocks of a cluster, KV heads, rows); block: at most 4 warps. Latency decides: a block runs its code once,
 * and every jump waits for an instruction fetch. Differences to the general kernel: RoPE works in registers; queries
 * and the key are F16 in shared memory, in operand order; a page's words are transposed into operands before the
 * row's key and value are inserted, for short sequences even before pdl_wait; a warp combines two queries at a time.
 *
 * Dynamic shared memory: fast_smem (queries, key, value; scales and probabilities of each warp), then partial
 * results. */
#include "device/cuda/kernels/attention_decode.cuh"

/* HEADS_NORM: head norms, RoPE pairs the halves of a head; HEADS_RAW: no norms; HEADS_PAIRS: no norms, RoPE pairs
 * neighbours. */
enum fast_heads { HEADS_NORM, HEADS_RAW, HEADS_PAIRS };

/* PAGES_SHORT: a block has all pages, each warp at most one; partial results stay in shared memory. PAGES_SINGLE: each
 * warp has at most one page, and the blocks of a cluster share them. PAGES_LONG: any number. */
enum fast_pages { PAGES_SHORT, PAGES_SINGLE, PAGES_LONG };

template <int N, fast_heads HEADS, fast_pages PAGES> struct fast_config : decode_config<N> {
    enum { NORM = HEADS == HEADS_NORM, NEIGHBOURS = HEADS == HEADS_PAIRS };
    enum { SHORT = PAGES == PAGES_SHORT, LONG = PAGES == PAGES_LONG };
    enum { STRIDE = N * 16 + SPRY_FAST_PAD }; /* words of a head; the padding avoids bank conflicts */
};

/* Shared memory of a warp: pairs of probabilities, [query, token]; scales of pages while they are combined. */
template <class S> struct fast_warp_smem {
    float4 factors[SPRY_FAST_SCALES];
    uint32_t weights[SPRY_DECODE_GQA_MAX][S::WEIGHTS_STRIDE];
};

/* Shared memory of a row and KV head, pairs of F16: the queries and the key in operand order; the value. */
template <class S> struct fast_smem {
    uint32_t heads[SPRY_DECODE_GQA_MAX + 1][S::STRIDE];
    uint32_t value[S::BLOCKS * 16];
    fast_warp_smem<S> warps[S::WARPS];
};

/* ---- the row ----------------------------------------------------------------------------------------------------- */

/* Index of coordinate `lane` among 32 coordinates stored as F16: the coordinates that lanes with the same t hold are
 * contiguous. */
SPRY_DEVICE uint32_t half_index(uint32_t lane)
{
    return lane % 8 / 2 * 8 + lane / 8 * 2 + lane % 2;
}

/* Prepares the queries of a row and KV head and, in the block that `stores` them, its key and value; one warp for each.
 */
template <class S>
SPRY_DEVICE void prepare_row_fast(fast_smem<S> &smem, const spry_rope_kv_args &a, const spry_step_row &at, uint32_t row,
                                  uint32_t kv_head, uint32_t group, bool stores)
{
    uint32_t n = S::BLOCKS * 32, n_kv = a.kv.n_kv_heads;
    int lane = (int)(threadIdx.x % WARP);
    page_head page = head_of_page(a.kv, at.page, kv_head);
    SPRY_UNROLL_BY(1)
    for (uint32_t i = threadIdx.x / WARP; i < group + (stores ? 2 : 0); i += blockDim.x / WARP) {
        bool is_q = i < group, is_k = i == group;
        const float *from = is_q ? a.q + ((uint64_t)row * a.n_heads + kv_head * group + i) * n
                                 : (is_k ? a.k : a.v) + ((uint64_t)row * n_kv + kv_head) * n;
        float v[S::BLOCKS];
        load_rotated_full<S::BLOCKS, S::NORM, S::NEIGHBOURS>(v, from, is_q ? a.q_norm : a.k_norm, is_q || is_k, a, row,
                                                             lane);
        uint16_t *halves = (uint16_t *)(is_q ? smem.heads[i] : is_k ? smem.heads[SPRY_DECODE_GQA_MAX] : smem.value);
        uint16_t *to = is_k ? (uint16_t *)page.keys + lane * PAGE_TOKENS + at.slot
                            : (uint16_t *)(page.values + (uint64_t)at.slot * a.kv.token_bytes) + lane;
        uint32_t step = is_k ? WARP * PAGE_TOKENS : WARP;
        halves += is_q || is_k ? half_index((uint32_t)lane) : (uint32_t)lane;
        SPRY_UNROLL
        for (uint32_t k = 0; k < S::BLOCKS; k++) {
            uint16_t half = half_of_float(v[k]);
            halves[k * WARP] = half;
            if (!is_q)
                to[k * step] = half;
        }
    }
}

/* A lane's part of the queries: coordinates 2t, 2t + 1, 2t + 8 and 2t + 9 of each 16, of query g. Queries that do not
 * exist hold anything: they only affect their own sums. */
template <class S> struct fast_queries {
    uint2 steps[S::BLOCKS * 2];

    SPRY_METHOD void take(const uint32_t (*heads)[S::STRIDE], int lane)
    {
        const uint4 *from = (const uint4 *)heads[lane / 4] + lane % 4;
        SPRY_UNROLL
        for (int k = 0; k < S::BLOCKS; k++) {
            const uint4 four = from[k * 4];
            uint2 first = {four.x, four.y}, second = {four.z, four.w};
            steps[k * 2] = first;
            steps[k * 2 + 1] = second;
        }
    }
};

/* ---- a page ------------------------------------------------------------------------------------------------------ */

/* Arranges four words of a lane as rows of mma operand A: first the lower halves, then the upper halves. */
SPRY_DEVICE void transpose_words(uint32_t &k0, uint32_t &k1, uint32_t &k8, uint32_t &k9)
{
    const uint4 rows = both_halves(k0, k1, k8, k9);
    k0 = rows.x, k1 = rows.y, k8 = rows.z, k9 = rows.w;
}

/* decode_keys. After transpose() the four words of a lane are: two coordinates of one token, the same two of the next
 * token, then two other coordinates of both tokens. */
template <class S> struct fast_keys {
    typedef S config;
    uint32_t words[config::STEPS][2][4];

    SPRY_METHOD void load(const decode_page &page, int lane)
    {
        const unsigned char *from = page.at.keys + lane % 4 * 2 * PAGE_TOKENS * 2 + lane / 4 * 8;
        SPRY_UNROLL
        for (int i = 0; i < config::STEPS * 4; i++) {
            uint2 four = *(const uint2 *)(from + (i / 4 * 16 + i % 2 + i % 4 / 2 * 8) * PAGE_TOKENS * 2);
            words[i / 4][0][i % 4] = four.x;
            words[i / 4][1][i % 4] = four.y;
        }
    }

    SPRY_METHOD void transpose()
    {
        SPRY_UNROLL
        for (int i = 0; i < config::STEPS * 2; i++) {
            uint32_t *w = words[i / 2][i % 2];
            transpose_words(w[0], w[1], w[2], w[3]);
        }
    }

    SPRY_METHOD uint4 operand(int s, int m) const
    {
        const uint4 rows = {words[s][m][0], words[s][m][1], words[s][m][2], words[s][m][3]};
        return rows;
    }

    /* Inserts the key of token `slot`, which is not in global memory yet, into transposed words. */
    SPRY_METHOD void put(const uint32_t *key, uint32_t slot, int lane)
    {
        uint32_t token = (uint32_t)lane / 4 * 4;
        SPRY_UNROLL
        for (int i = 0; i < config::BLOCKS; i++) {
            const uint4 four = ((const uint4 *)key)[i * 4 + lane % 4];
            SPRY_UNROLL
            for (uint32_t k = 0; k < 4; k++) {
                bool here = token + k == slot;
                uint32_t *first = words[i * 2][k / 2], *second = words[i * 2 + 1][k / 2];
                first[k % 2] = here ? four.x : first[k % 2];
                first[k % 2 + 2] = here ? four.y : first[k % 2 + 2];
                second[k % 2] = here ? four.z : second[k % 2];
                second[k % 2 + 2] = here ? four.w : second[k % 2 + 2];
            }
        }
    }
};

/* decode_values. After transpose() the four words of a lane are: one coordinate of two tokens, the next coordinate of
 * them, then both coordinates of two other tokens. */
template <class S> struct fast_values : decode_values<S> {
    typedef S config;
    typedef decode_values<S> loaded;

    SPRY_METHOD void transpose()
    {
        SPRY_UNROLL
        for (int i = 0; i < 2 * config::TILES; i++) {
            int half = i / config::TILES, n = i % config::TILES / config::WORDS, w = i % config::WORDS;
            transpose_words(loaded::words[half][0][n][w], loaded::words[half][1][n][w], loaded::words[half][2][n][w],
                            loaded::words[half][3][n][w]);
        }
    }

    SPRY_METHOD uint4 operand(int half, int tile) const
    {
        int n = tile / config::WORDS, w = tile % config::WORDS;
        const uint4 rows = {loaded::words[half][0][n][w], loaded::words[half][1][n][w], loaded::words[half][2][n][w],
                            loaded::words[half][3][n][w]};
        return rows;
    }

    /* Inserts the values of token `slot`, which are not in global memory yet, for this token and the ones after it,
     * into transposed words. */
    SPRY_METHOD void put(const uint32_t *value, uint32_t slot, int lane)
    {
        uint32_t own[config::LOADS][config::WORDS];
        SPRY_UNROLL
        for (int n = 0; n < config::LOADS; n++)
            loaded::load_words(own[n],
                               (const unsigned char *)(value + lane / 4 * config::WORDS + n * config::WORDS * 8));
        SPRY_UNROLL
        for (uint32_t i = 0; i < 4; i++) { /* two of each 8 tokens are the lane's */
            uint32_t token = i * 8 + (uint32_t)lane % 4 * 2;
            if (slot >= i * 8 + 8)
                continue;
            uint32_t low = token >= slot ? 0x5454 : token + 1 >= slot ? 0x5410 : 0x3210;
            uint32_t high = token >= slot ? 0x7676 : token + 1 >= slot ? 0x7610 : 0x3210;
            SPRY_UNROLL
            for (int k = 0; k < config::TILES; k++) {
                int n = k / config::WORDS, w = k % config::WORDS;
                uint32_t *first = &loaded::words[i / 2][i % 2 * 2][n][w],
                         *second = &loaded::words[i / 2][i % 2 * 2 + 1][n][w];
                *first = byte_perm(*first, own[n][w], low);
                *second = byte_perm(*second, own[n][w], high);
            }
        }
    }
};

/* ---- combination of pages ---------------------------------------------------------------------------------------- */

/* The partial results of a chunk's pages for one coordinate of two queries; lane = 16 u + i has max and sum of page i
 * for query u. */
template <class S> struct chunk_partials {
    enum { CHUNK = SPRY_SPLIT_KV_PAGES, MOST = S::SHORT ? (int)S::WARPS : (int)CHUNK };
    float max, sum;
    float2 outs[MOST];

    /* Loads the chunk that begins with partial result `first`; n pages are left. */
    SPRY_METHOD void load(const float *first, uint32_t n, uint32_t d, int lane)
    {
        uint32_t u = (uint32_t)lane / CHUNK, page = (uint32_t)lane % CHUNK;
        const float *its = first + (page < n ? page : 0) * pair_partials<S>::SIZE,
                    *values = first + SPRY_PARTIAL_HEADER + d * 2;
        const float2 none = {0, 0};
        max = page < n ? its[u] : -INFINITY;
        sum = its[2 + u];
        SPRY_UNROLL
        for (uint32_t i = 0; i < MOST; i++)
            outs[i] = i < n ? *(const float2 *)(values + i * pair_partials<S>::SIZE) : none;
    }
};

/* Combines one coordinate of two queries, chunk by chunk, with the sums of `combined` of online_softmax.cuh. */
template <class S> struct pair_combine {
    enum {
        CHUNK = SPRY_SPLIT_KV_PAGES,
        GROUP = 4,
        MOST = chunk_partials<S>::MOST
    };         /* GROUP: pages whose code is skipped together */
    float max; /* max: for query lane / 16; sum and out: for both queries */
    float sum[2], out[2];

    /* Adds a chunk; n pages are left. `smem`: the warp's. */
    SPRY_METHOD void add(float4 *smem, const chunk_partials<S> &partials, uint32_t n, int lane)
    {
        uint32_t u = (uint32_t)lane / CHUNK, page = (uint32_t)lane % CHUNK;
        float upto = prefix_max(rounded_max(partials.max), 1, MOST, lane),
              before = warp_shfl(upto, lane ? lane - 1 : 0);
        float chunk_max = warp_shfl(upto, lane / CHUNK * CHUNK + MOST - 1), larger = fmaxf(max, chunk_max);
        const float4 factors = {softmax_exp(page ? before : -INFINITY, upto),
                                partials.max == -INFINITY ? -1.0f : softmax_exp(partials.max, upto), partials.sum, 0};
        const float4 last = {softmax_exp(max, larger), chunk_max == -INFINITY ? -1.0f : softmax_exp(chunk_max, larger),
                             0, 0};
        float chunk_sum[2] = {0, 0}, chunk_out[2] = {0, 0};
        max = larger;
        syncwarp();
        smem[lane] = factors;
        if (page == 0)
            smem[WARP + u] = last;
        syncwarp();
        SPRY_UNROLL
        for (uint32_t group = 0; group < (uint32_t)MOST; group += GROUP) {
            if (group && group >= n)
                continue;
            SPRY_UNROLL
            for (uint32_t k = 0; k < GROUP * 2; k++) {
                uint32_t i = group + k / 2, q = k % 2;
                const float4 f = smem[q * CHUNK + i];
                merge(chunk_sum[q], chunk_out[q], f, f.z, q ? partials.outs[i].y : partials.outs[i].x);
            }
        }
        SPRY_UNROLL
        for (int q = 0; q < 2; q++)
            merge(sum[q], out[q], smem[WARP + q], chunk_sum[q], chunk_out[q]);
    }

    /* factors: the scales of both sides; the second is negative if there is nothing to add. */
    SPRY_METHOD static void merge(float &sum, float &out, const float4 &factors, float part_sum, float part_out)
    {
        float next_sum = rescaled_add(sum, factors.x, part_sum, factors.y),
              next_out = rescaled_add(out, factors.x, part_out, factors.y);
        sum = factors.y >= 0 ? next_sum : sum;
        out = factors.y >= 0 ? next_out : out;
    }

    /* Combines all n pages from partial result `first` on; the next chunk is loaded ahead. */
    SPRY_METHOD void add_all(float4 *smem, const float *first, uint32_t n, uint32_t d, int lane)
    {
        chunk_partials<S> partials, next;
        max = -INFINITY;
        sum[0] = sum[1] = out[0] = out[1] = 0;
        partials.load(first, n, d, lane);
        if (S::SHORT) {
            add(smem, partials, n, lane);
            return;
        }
        SPRY_UNROLL_BY(1)
        for (uint32_t i = 0; i < n; i += CHUNK) {
            if (i + CHUNK < n)
                next.load(first + (i + CHUNK) * pair_partials<S>::SIZE, n - i - CHUNK, d, lane);
            add(smem, partials, n - i, lane);
            partials = next;
        }
    }
};

/* ---- a block ----------------------------------------------------------------------------------------------------- */

template <class S> struct fast_job {
    decode_pages pages;
    decode_page now;
    fast_keys<S> keys;
    fast_values<S> values;
    fast_queries<S> queries;
    spry_step_row row;
    uint32_t number_of_row, last, group, i;
    int lane, warp;
    bool transposed; /* with PAGES_LONG: the page's words are transposed */

    /* The part of the work that does not need the row's queries: starts the loads of the first page. The blocks of a
     * cluster take pages in turns. */
    SPRY_METHOD void start(const spry_decode_args &d)
    {
        const spry_attend_args &a = d.attend;
        lane = (int)(threadIdx.x % WARP);
        warp = (int)(threadIdx.x / WARP);
        number_of_row = a.decode_rows[blockIdx.z];
        row = a.rows[number_of_row];
        last = row.n_entries - 1;
        group = a.n_heads / a.kv.n_kv_heads;
        i = 0;
        transposed = false;
        pages.first = (uint32_t)warp * gridDim.x + blockIdx.x;
        pages.step = gridDim.x * (blockDim.x / WARP);
        pages.kv_head = blockIdx.y;
        pages.entries = a.entries + row.first_entry;
        pages.last = last;
        see(&pages.lowest, &pages.highest, a, number_of_row);
        now = pages.page(a, 0, lane);
        if (now.seen()) {
            keys.load(now, lane);
            values.load(now, a.kv.token_bytes, 0, lane);
        }
        if (S::SHORT && now.seen()) /* pages of long sequences have not arrived yet */
            transpose();
        if (S::NORM && warp < 2)
            prefetch_l2((warp ? d.rope_kv.k_norm : d.rope_kv.q_norm) + lane * S::BLOCKS);
    }

    SPRY_METHOD void transpose()
    {
        keys.transpose();
        values.transpose();
        transposed = true;
    }

    /* Computes the partial results of the warp's pages. */
    SPRY_METHOD void work(fast_smem<S> &smem, const pair_partials<S> &partials, const spry_decode_args &d)
    {
        const spry_attend_args &a = d.attend;
        bool own = pages.first == last && now.at.keys == head_of_page(a.kv, row.page, blockIdx.y).keys;
        prepare_row_fast<S>(smem, d.rope_kv, row, number_of_row, blockIdx.y, group, last % gridDim.x == blockIdx.x);
        syncthreads();
        if (S::LONG ? own : !S::SHORT && now.seen())
            transpose();
        if (own) { /* the row's own page was loaded without the new row */
            keys.put(smem.heads[SPRY_DECODE_GQA_MAX], row.slot, lane);
            values.put(smem.value, row.slot, lane);
        }
        if (pages.first <= last)
            queries.take(smem.heads, lane);
        if (!S::LONG && pages.first <= last)
            leave(smem.warps[warp], partials, a);
        SPRY_UNROLL_BY(1)
        while (S::LONG && pages.number(i) <= last)
            leave(smem.warps[warp], partials, a);
    }

    /* Computes the partial result of the current page and starts the loads of the next one. */
    SPRY_METHOD void leave(fast_warp_smem<S> &smem, const pair_partials<S> &partials, const spry_attend_args &a)
    {
        decode_sums<S> sums;
        const decode_page page = now;
        uint32_t pair = (uint32_t)lane % 4, number = pages.number(i);
        bool transposes = S::LONG && !transposed;
        if (page.seen()) {
            sums.clear();
            if (transposes)
                keys.transpose();
            sums.multiply_qk(keys, queries.steps);
        }
        transposed = false;
        if (S::LONG)
            now = pages.page(a, ++i, lane);
        if (S::LONG && now.seen())
            keys.load(now, lane);
        if (page.seen()) {
            sums.softmax_scaled(a.scale, page, lane);
            if (transposes)
                values.transpose();
            sums.multiply_pv(values, smem.weights, lane);
        }
        if (S::LONG && now.seen())
            values.load(now, a.kv.token_bytes, 0, lane);
        if (pair * 2 < group)
            sums.write(partials.at(pair, number), page.seen(), 0, lane);
    }

    /* Stores a coordinate of a head as a float and as bf16, as store_output of online_softmax.cuh does. */
    SPRY_METHOD void write(const spry_attend_args &a, uint32_t head, uint32_t d, float value) const
    {
        uint32_t at = head * S::BLOCKS * 32 + d;
        a.out[(uint64_t)number_of_row * a.n_heads * S::BLOCKS * 32 + at] = value;
        store_terms<1>(a.to[SPRY_ACT_BF16], number_of_row, at / ACT_BLOCK, (int)(at % ACT_BLOCK), value,
                       a.to[SPRY_ACT_BF16].wgmma_groups);
    }

    /* Combines all pages, a pair of queries and 32 coordinates at a time, with all warps of the cluster. */
    SPRY_METHOD void merge(fast_smem<S> &smem, const pair_partials<S> &partials, const spry_attend_args &a) const
    {
        uint32_t first = (uint32_t)warp * gridDim.x + blockIdx.x, step = gridDim.x * (blockDim.x / WARP);
        SPRY_UNROLL_BY(1)
        for (uint32_t job = first; job < (group + 1) / 2 * S::BLOCKS; job += step) {
            uint32_t pair = job / S::BLOCKS, d = job % S::BLOCKS * WARP + (uint32_t)lane;
            pair_combine<S> sums;
            sums.add_all(smem.warps[warp].factors, partials.at(pair, 0), row.n_entries, d, lane);
            SPRY_UNROLL_BY(1)
            for (uint32_t u = 0; u < 2 && pair * 2 + u < group; u++) {
                float out = u ? sums.out[1] : sums.out[0], sum = u ? sums.sum[1] : sums.sum[0];
                write(a, blockIdx.y * group + pair * 2 + u, d, out * (1.0f / sum));
            }
        }
    }
};

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* Grid: (blocks of a cluster, KV heads, rows); at most WARPS warps. */
template <class S> SPRY_DEVICE void attend_decode_fast(const spry_decode_args &d)
{
    SPRY_SMEM_DYNAMIC(memory, 1024);
    fast_smem<S> &smem = *(fast_smem<S> *)memory;
    static_assert(sizeof smem == spry_smem_decode_fast(S::BLOCKS, S::WARPS), "as launched");
    float *left = (float *)(memory + sizeof smem);
    pair_partials<S> partials = {left, S::WARPS};
    fast_job<S> job;
    job.start(d);
    if (!S::SHORT)
        partials.locate(left, d.attend, blockIdx.z, blockIdx.y, job.row.n_entries, gridDim.x == 1);
    pdl_wait();
    job.work(smem, partials, d);
    if (!S::SHORT && gridDim.x > 1)
        cluster_sync();
    else
        syncthreads();
    job.merge(smem, partials, d.attend);
}

/* The name says heads and pages. */
#define ATTEND(blocks, heads, HEADS, pages, PAGES)                                                                     \
    SPRY_KERNEL_PDL(spry_attend_decode_##heads##_##pages##_##blocks, spry_decode_args, 2)                              \
    {                                                                                                                  \
        attend_decode_fast<fast_config<blocks, HEADS, PAGES>>(a);                                                      \
    }
#define ATTEND_HEADS(blocks, heads, HEADS)                                                                             \
    ATTEND(blocks, heads, HEADS, short, PAGES_SHORT)                                                                   \
    ATTEND(blocks, heads, HEADS, single, PAGES_SINGLE)                                                                 \
    ATTEND(blocks, heads, HEADS, long, PAGES_LONG)
#define ATTEND_BLOCKS(blocks)                                                                                          \
    ATTEND_HEADS(blocks, norm, HEADS_NORM) ATTEND_HEADS(blocks, raw, HEADS_RAW) ATTEND_HEADS(blocks, pairs, HEADS_PAIRS)
ATTEND_BLOCKS(2)
ATTEND_BLOCKS(4)
