/* Warp-specialised prefill attention with wgmma over F16 pages, compute capability 9.0, heads of 64, 96 and 128. It
 * computes what attention_mma.cuh computes, in the same order and with the same bits.
 *
 * Grid: one block per SM, persistent, or with split-KV one block per job. Block: two consumer warpgroups, 16 queries
 * per warp, which go through the same pages; one producer warp; three idle warps, whose registers setmaxnreg gives
 * to the consumers. A job is a batch of 128 queries of a KV head, and all their pages or one chunk of 16.
 *
 * Dynamic shared memory (prefill_smem): ring of STAGES pairs of pages, copied by TMA with 64-byte swizzle: a line is
 * one coordinate of the keys of 32 tokens, or 32 coordinates of the values of a token | accumulators of chunks |
 * queries | running max and sum | page table entries | mbarriers full and empty.
 *
 * The consumers wait for full[stage] and arrive at empty[stage]; the producer does the opposite. Ping-pong: the two
 * warpgroups issue Q K^T in turns, so that one computes softmax while the other multiplies. Q K^T of the next pair
 * overlaps the accumulation of P V.
 *
 * Measured share of the limit (docs/lab/2026-11-17.md, H200, 8,192 tokens): wgmma takes 41 % of the time, 1,024 of
 * 2,500 clocks for a pair of pages. */
#include "device/cuda/kernels/attention_mma.cuh"
#include "device/cuda/smem_sizes.h"

template <int BLOCKS> struct prefill_config {
    enum { WARPS = SPRY_PREFILL_CONSUMERS, THREADS = WARPS * WARP, TOGETHER = 2, STAGES = SPRY_PREFILL_STAGES };
    enum { STEPS = BLOCKS * 2, GROUPS = BLOCKS * 4, VALUES = BLOCKS * 16 };
    enum { LINE = 64, KEYS = BLOCKS * 32 * LINE, VALUE_BLOCK = PAGE_TOKENS * LINE, PAGE = KEYS + BLOCKS * VALUE_BLOCK };
    enum { BYTES = TOGETHER * PAGE };
};

/* Shared memory of a block. totals[i][thread] is an accumulator of one thread. */
template <int BLOCKS> struct prefill_smem {
    typedef prefill_config<BLOCKS> config;
    unsigned char stages[config::STAGES][config::BYTES];
    float totals[config::VALUES][config::THREADS];
    warp_queries queries[config::WARPS]; /* in shared memory to save registers; visible positions are recomputed */
    float4 stats[config::THREADS / 4];   /* running max and sum of two queries, shared by four threads */
    spry_step_entry entries[config::STAGES][config::TOGETHER];
    mbarrier full[config::STAGES], empty[config::STAGES];

    SPRY_METHOD void init_barriers()
    {
        if (threadIdx.x == 0) {
            for (int i = 0; i < config::STAGES; i++) {
                mbarrier_init(&full[i], 1);
                mbarrier_init(&empty[i], config::WARPS);
            }
            fence_mbarrier_init();
        }
        syncthreads();
    }
};

/* The pages [first, end) of a job, where `first` is even. They pass through the ring in pairs; `before` counts the
 * pairs of earlier jobs. */
template <int BLOCKS> struct kv_pipeline {
    typedef prefill_config<BLOCKS> config;
    enum { ENTRY = sizeof(spry_step_entry), VALUES = config::PAGE - config::KEYS, HELD = WARP / config::TOGETHER };
    const spry_kv_tensor_maps &maps;
    prefill_smem<BLOCKS> *smem;
    const spry_step_entry *entries;
    uint32_t first, end, before;
    spry_step_entry held; /* in the producer: the entries of 16 pairs, one entry per lane */

    /* Binary search: the first entry that ends after a position; `end` if there is none. */
    SPRY_METHOD static uint32_t find(const spry_step_entry *entries, uint32_t first, uint32_t end, uint32_t position)
    {
        while (first < end) {
            uint32_t middle = first + (end - first) / 2;
            if (entries[middle].start + entries[middle].count > position)
                end = middle;
            else
                first = middle + 1;
        }
        return first;
    }

    /* Starts the next job; returns false if it has no pages. */
    template <class J> SPRY_METHOD bool take(const J &job)
    {
        before += stages();
        entries = job.entries;
        first = job.page / 2 * 2;
        end = job.page < job.end ? job.end : first;
        return first < end;
    }

    SPRY_METHOD uint32_t stages() const
    {
        return (end - first + 1) / config::TOGETHER;
    }

    SPRY_METHOD const unsigned char *stage(uint32_t number) const
    {
        return smem->stages[(before + number) % config::STAGES];
    }

    /* True if the pair has page `page`. */
    SPRY_METHOD bool valid(uint32_t number, uint32_t page) const
    {
        return first + number * config::TOGETHER + page < end;
    }

    SPRY_METHOD const spry_step_entry &entry(uint32_t number, int page) const
    {
        return smem->entries[(before + number) % config::STAGES][page];
    }

    /* Loads the entries of the 16 pairs from pair `number` on. */
    SPRY_METHOD void hold(uint32_t number, int lane)
    {
        uint32_t own = first + number * config::TOGETHER + (uint32_t)lane;
        held = entries[own < end ? own : end - 1];
    }

    /* A warp copies the values of a page that is visible in part. Invisible tokens may hold anything, and their
     * probabilities are 0, so a visible token is copied in their place. */
    SPRY_METHOD static void copy_part(unsigned char *to, const visible_page &from, uint32_t token_bytes, uint32_t lane)
    {
        enum { PIECES = BLOCKS * 4 };
        SPRY_UNROLL_BY(1)
        for (uint32_t i = lane; i < PAGE_TOKENS * PIECES; i += WARP) {
            uint32_t line = i / PIECES, piece = i % PIECES, token = line < from.begin ? from.begin : line;
            token = token < from.end ? token : from.end - 1;
            cp_async(to + piece / 4 * config::VALUE_BLOCK + swizzle_64b(line, piece % 4),
                     from.values + token * token_bytes + piece * 16);
        }
    }

    /* Entry `page` of a pair; count is 0 if there is none. */
    SPRY_METHOD spry_step_entry held_entry(uint32_t number, uint32_t page) const
    {
        int from = (int)(number % HELD * config::TOGETHER + page);
        spry_step_entry entry = {warp_shfl(held.page, from), warp_shfl(held.start, from), warp_shfl(held.count, from),
                                 0};
        entry.count = valid(number, page) ? entry.count : 0;
        return entry;
    }

    /* The producer warp starts the copies of a pair. */
    SPRY_METHOD void copy(const spry_attend_args &a, const warp_queries &all, uint32_t number, int lane)
    {
        uint32_t stage = (before + number) % config::STAGES,
                 times = (before + number) / config::STAGES; /* how often the stage has been used before */
        uint32_t bytes = 0, n = valid(number, 1) ? 2 : 1;
        bool whole[config::TOGETHER];
        if (times)
            mbarrier_wait(&smem->empty[stage], (times - 1) % 2);
        SPRY_UNROLL
        for (uint32_t page = 0; page < config::TOGETHER; page++) {
            const visible_page seen = find_page(all, a, held_entry(number, page), 0);
            whole[page] = seen.begin == 0 && seen.end == PAGE_TOKENS;
            bytes += page < n ? ENTRY + config::KEYS + (whole[page] ? VALUES : 0) : 0;
            if (SPRY_UNLIKELY(!whole[page]) && seen.begin < seen.end)
                copy_part(smem->stages[stage] + page * config::PAGE + config::KEYS, seen, a.kv.token_bytes,
                          (uint32_t)lane);
        }
        if (SPRY_UNLIKELY(!whole[0] || !whole[1])) {
            cp_async_wait_all();
            fence_proxy_async();
            syncwarp();
        }
        if (lane == 0) {
            mbarrier_arrive_expect_tx(&smem->full[stage], bytes);
            cp_async_bulk(smem->entries[stage], entries + first + number * config::TOGETHER, n * ENTRY,
                          &smem->full[stage]);
        }
        SPRY_UNROLL
        for (uint32_t page = 0; page < config::TOGETHER; page++) {
            uint64_t head = (uint64_t)all.kv_head * a.kv.head_bytes;
            uint32_t number_of_page = held_entry(number, page).page;
            unsigned char *to = smem->stages[stage] + page * config::PAGE;
            if (lane || page >= n)
                continue;
            cp_async_bulk_tensor(to, &maps.keys, (uint32_t)((a.kv.key_offset + head) / config::LINE), number_of_page,
                                 &smem->full[stage]);
            if (whole[page])
                cp_async_bulk_tensor(to + config::KEYS, &maps.values,
                                     (uint32_t)((a.kv.value_offset + head) / (BLOCKS * config::LINE)), number_of_page,
                                     &smem->full[stage]);
        }
        if (number % HELD == HELD - 1)
            hold(number + 1, lane);
    }

    /* Copies all pairs of a job. */
    SPRY_METHOD void produce_all(const spry_attend_args &a, const warp_queries &all, int lane)
    {
        hold(0, lane);
        SPRY_UNROLL_BY(1)
        for (uint32_t number = 0; number < stages(); number++)
            copy(a, all, number, lane);
    }

    /* Waits for a pair before its first use. */
    SPRY_METHOD void reach(uint32_t number) const
    {
        if (number < stages())
            mbarrier_wait(&smem->full[(before + number) % config::STAGES], (before + number) / config::STAGES % 2);
    }

    /* Releases a pair after its last use. */
    SPRY_METHOD void leave(uint32_t number, int lane) const
    {
        syncwarp(); /* all lanes have read the entries */
        if (lane == 0)
            mbarrier_arrive(&smem->empty[(before + number) % config::STAGES]);
    }
};

/* Loads queries g and g + 8 of a warp as mma operands A, rotated for pages that are used away from where they were
 * computed. */
template <int BLOCKS>
SPRY_DEVICE void take_queries(uint32_t (*words)[4], const warp_queries &q, const spry_attend_args &a, uint32_t rotation,
                              int lane)
{
    enum { HALVES = BLOCKS * 8 };
    uint32_t group = a.n_heads / a.kv.n_kv_heads,
             rotated[HALVES]; /* in local memory: this code is short and rarely runs */
    const float *from[2];
    SPRY_UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t i = (uint32_t)lane / 4 + half * 8;
        i = i < q.count ? i : 0;
        from[half] = a.q + ((uint64_t)query_row(q, group, i) * a.n_heads + query_head(q, group, i)) * (BLOCKS * 32) +
                     lane % 4 * 2;
    }
    bool whole = !a.interleaved && a.n_pairs == BLOCKS * 16; /* RoPE pairs the two halves of the whole head */
    SPRY_UNROLL_BY(4)
    for (uint32_t k = 0; rotation && whole && k < HALVES / 2; k++) {
        const float *query = (k % 2 ? from[1] : from[0]) + k / 2 * 8;
        uint64_t pair = (uint64_t)rotation * a.n_pairs + k / 2 * 8 + (uint32_t)lane % 4 * 2;
        const float2 q = *(const float2 *)query, r = *(const float2 *)(query + BLOCKS * 16);
        const float2 c = *(const float2 *)(a.rotation_cosine + pair), s = *(const float2 *)(a.rotation_sine + pair);
        rotated[k] = pack_f16x2(q.x * c.x - r.x * s.x, q.y * c.y - r.y * s.y);
        rotated[k + HALVES / 2] = pack_f16x2(q.x * s.x + r.x * c.x, q.y * s.y + r.y * c.y);
    }
    SPRY_UNROLL_BY(1)
    for (uint32_t k = 0; rotation && !whole && k < HALVES; k++) {
        uint32_t d = k / 2 * 8 + (uint32_t)lane % 4 * 2;
        const float *query = (k % 2 ? from[1] : from[0]) - lane % 4 * 2;
        rotated[k] = pack_f16x2(rotated_value(a, query, rotation, d), rotated_value(a, query, rotation, d + 1));
    }
    SPRY_UNROLL
    for (int k = 0; k < HALVES; k++) {
        if (rotation) {
            words[k / 4][k % 4] = rotated[k];
            continue;
        }
        const float2 v = *(const float2 *)(from[k % 2] + k / 2 * 8);
        words[k / 4][k % 4] = pack_f16x2(v.x, v.y);
    }
}

/* Issues S = Q K^T of a pair; the scores of the second page follow the scores of the first. */
template <int BLOCKS>
SPRY_DEVICE void issue_qk(float scores[8][4], const uint32_t (*queries)[4], const unsigned char *stage)
{
    typedef prefill_config<BLOCKS> config;
    const swizzled_matrix keys(stage, 8 * config::LINE, config::PAGE);
    wgmma_fence();
    SPRY_UNROLL
    for (int step = 0; step < config::STEPS; step++)
        wgmma_f16<8>(scores, queries[step], keys.advance((uint32_t)step * 16 * config::LINE), step == 0);
    wgmma_commit();
}

/* Issues O = P V of one page of a pair. */
template <int BLOCKS>
SPRY_DEVICE void issue_pv(float (*out)[4], const uint4 weights[2], const unsigned char *stage, int page)
{
    typedef prefill_config<BLOCKS> config;
    const swizzled_matrix values(stage + page * config::PAGE + config::KEYS, 8 * config::LINE, config::VALUE_BLOCK);
    wgmma_fence();
    SPRY_UNROLL
    for (int half = 0; half < 2; half++) {
        const uint32_t w[4] = {weights[half].x, weights[half].y, weights[half].z, weights[half].w};
        wgmma_f16<config::GROUPS>(out, w, values.advance((uint32_t)(half * 16 * config::LINE)), half == 0);
    }
    wgmma_commit();
}

/* The totals over chunks of a lane's two queries; the accumulators are in shared memory. */
template <int BLOCKS> struct chunk_totals {
    enum { EACH = BLOCKS * 8 };

    SPRY_METHOD static void put(prefill_smem<BLOCKS> &smem, float4 stats)
    {
        syncwarp();
        if (threadIdx.x % 4 == 0)
            smem.stats[threadIdx.x / 4] = stats;
        syncwarp();
    }

    SPRY_METHOD static void clear(prefill_smem<BLOCKS> &smem)
    {
        put(smem, float4{-INFINITY, -INFINITY, 0, 0});
        SPRY_UNROLL
        for (int i = 0; i < 2 * EACH; i++)
            smem.totals[i][threadIdx.x] = 0;
    }

    /* Adds a chunk; after the `last` one the result is stored. */
    SPRY_METHOD static void add_chunk(prefill_smem<BLOCKS> &smem, const page_output<BLOCKS> &chunk,
                                      const warp_queries &q, const spry_attend_args &a, bool last, int lane)
    {
        const float4 old = smem.stats[threadIdx.x / 4];
        float max[2] = {old.x, old.y}, sum[2] = {old.z, old.w};
        uint32_t group = a.n_heads / a.kv.n_kv_heads;
        SPRY_UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t i = (uint32_t)lane / 4 + half * 8, head = query_head(q, group, i);
            float *to = a.out + ((uint64_t)query_row(q, group, i) * a.n_heads + head) * (BLOCKS * 32) + lane % 4 * 2;
            float scale_old = 1, scale_new = 0, v[EACH];
            bool seen = online_softmax_scales(&max[half], &scale_old, &scale_new, chunk.max[half]);
            sum[half] = seen ? rescaled_add(sum[half], scale_old, chunk.sum[half], scale_new) : sum[half];
            SPRY_UNROLL
            for (int k = 0; k < EACH; k++) {
                float old = smem.totals[half * EACH + k][threadIdx.x],
                      sum = rescaled_add(old, scale_old, chunk.out[k / 2][half * 2 + k % 2], scale_new);
                v[k] = seen ? sum : old;
            }
            if (!last) {
                SPRY_UNROLL
                for (int k = 0; k < EACH; k++)
                    smem.totals[half * EACH + k][threadIdx.x] = v[k];
            } else if (i < q.count) {
                float factor = final_scale(a, head, max[half], sum[half]);
                SPRY_UNROLL
                for (int k = 0; k < EACH; k += 2)
                    *(float2 *)(to + k * 4) = float2{v[k] * factor, v[k + 1] * factor};
            }
        }
        if (!last)
            put(smem, float4{max[0], max[1], sum[0], sum[1]});
    }
};

/* Positions visible to every query of a warp. */
struct visible_range {
    uint32_t begin, end;

    /* Rows are in order of position: the last query has the highest begin, the first one the lowest end. */
    SPRY_METHOD visible_range(const warp_queries &q, const spry_attend_args &a) : begin(0), end(0)
    {
        uint32_t group = a.n_heads / a.kv.n_kv_heads, unused;
        if (q.count == QUERIES) {
            see(&begin, &unused, a, query_row(q, group, QUERIES - 1));
            see(&unused, &end, a, query_row(q, group, 0));
        }
    }
};

/* The pair that is multiplied, and which of its pages are used: both if their queries have the same rotation, otherwise
 * one after the other. */
struct pair_cursor {
    uint32_t pair, rotation;
    bool used[2];

    template <int BLOCKS> SPRY_METHOD void take(const kv_pipeline<BLOCKS> &pages, uint32_t number)
    {
        pair = number;
        if (pair >= pages.stages())
            return;
        rotation = pages.entry(pair, 0).rotation;
        used[0] = true;
        used[1] = !pages.valid(pair, 1) || pages.entry(pair, 1).rotation == rotation;
    }

    /* An entry of the pair; count is 0 for a page that is not used. */
    template <int BLOCKS> SPRY_METHOD spry_step_entry entry(const kv_pipeline<BLOCKS> &pages, int page) const
    {
        spry_step_entry entry = pages.entry(pair, page);
        entry.count = used[page] && pages.valid(pair, (uint32_t)page) ? entry.count : 0;
        return entry;
    }

    /* True if both pages are full and all their positions are in the range. */
    template <int BLOCKS>
    SPRY_METHOD bool fully_visible(const kv_pipeline<BLOCKS> &pages, const visible_range &range) const
    {
        const spry_step_entry first = entry(pages, 0), second = entry(pages, 1);
        return first.count == PAGE_TOKENS && second.count == PAGE_TOKENS && first.start >= range.begin &&
               second.start + PAGE_TOKENS <= range.end;
    }

    /* Goes to the next page or pair, and waits until it is in shared memory. */
    template <int BLOCKS> SPRY_METHOD void step(const kv_pipeline<BLOCKS> &pages)
    {
        if (used[1]) {
            pages.reach(pair + 1);
            take(pages, pair + 1);
            return;
        }
        used[0] = false;
        used[1] = true;
        rotation = pages.entry(pair, 1).rotation;
    }
};

/* Ping-pong of the two consumer warpgroups by two named barriers. The barrier number is recomputed to save registers.
 */
struct pingpong {
    enum { THREADS = 8 * WARP };

    SPRY_METHOD static void begin()
    {
        if (threadIdx.x >= THREADS / 2)
            named_barrier_arrive(1, THREADS);
    }

    SPRY_METHOD static void wait()
    {
        named_barrier_sync(1 + (int)threadIdx.x / (THREADS / 2), THREADS);
    }

    SPRY_METHOD static void pass()
    {
        named_barrier_arrive(2 - (int)threadIdx.x / (THREADS / 2), THREADS);
    }

    /* The first warpgroup waits for the last arrival of the second one, so that no barrier is left half complete. */
    SPRY_METHOD static void end()
    {
        if (threadIdx.x < THREADS / 2)
            named_barrier_sync(1, THREADS);
    }
};

/* Attends the queries of a warp to the pages of a job: to all chunks, or with split-KV to one. A warp without queries
 * takes part in the warpgroup's instructions. P V of a pair's second page overlaps the softmax of the next first page
 * and is accumulated after that. */
template <int BLOCKS>
SPRY_DEVICE void attend_pages(const kv_pipeline<BLOCKS> &pages, const spry_attend_args &a, uint32_t part, bool split_kv,
                              int lane)
{
    enum { GROUPS = prefill_config<BLOCKS>::GROUPS };
    page_output<BLOCKS> chunk, sums;
    float scores[8][4];
    uint32_t queries[BLOCKS * 2][4], before = 0; /* the pair of the previous iteration */
    uint4 weights[2][2];
    softmax_update update[2] = {{}, {{1, 1}, {-1, -1}}}; /* there is no page before the first one */
    pair_cursor item = {};
    const warp_queries &q = pages.smem->queries[threadIdx.x / WARP];
    const visible_range common(q, a);
    bool whole = false;
    clear_output(chunk);
    pages.reach(0);
    item.take(pages, 0);
    take_queries<BLOCKS>(queries, q, a, item.rotation, lane);
    issue_qk<BLOCKS>(scores, queries, pages.stage(0));
    chunk_totals<BLOCKS>::clear(*pages.smem);
    wgmma_wait<0, 8>(scores);
    while (item.pair < pages.stages()) {
        const unsigned char *stage = pages.stage(item.pair);
        uint32_t rotation = item.rotation;
        softmax_stats page[2];
        float factor = score_scale<8>(scores, a);
        bool now_whole =
            warp_all(item.fully_visible(pages, common)); /* warp_all tells the compiler that the branch is uniform */
        if (SPRY_UNLIKELY(!now_whole)) {
            warp_queries own = q;
            if (own.count)
                find_queries(own, a, a.n_heads / a.kv.n_kv_heads, lane);
            visible_tokens(own, item.entry(pages, 0)).mask(scores, lane);
            visible_tokens(own, item.entry(pages, 1)).mask(scores + 4, lane);
        }
        softmax_scores(page[0], scores, factor);
        pack_page_probs(weights[0], page[0], scores);
        wgmma_wait<0, GROUPS>(sums.out);
        update[1].template accumulate<GROUPS>(chunk.out, sums.out, whole);
        issue_pv<BLOCKS>(sums.out, weights[0], stage, 0);
        whole = now_whole;
        if (item.pair != before) {
            pages.leave(before, lane);
            if (!split_kv && (pages.first + item.pair * 2) % SPRY_SPLIT_KV_PAGES == 0) {
                chunk_totals<BLOCKS>::add_chunk(*pages.smem, chunk, q, a, false, lane);
                clear_output(chunk);
            }
        }
        before = item.pair;
        softmax_scores(page[1], scores + 4, factor); /* overlaps the P V of the first page */
        pack_page_probs(weights[1], page[1], scores + 4);
        item.step(pages);
        if (SPRY_UNLIKELY(item.rotation != rotation))
            take_queries<BLOCKS>(queries, q, a, item.rotation, lane);
        pingpong::wait();
        issue_qk<BLOCKS>(scores, queries,
                         pages.stage(item.pair)); /* past the last pair: multiplies stale data, which is not used */
        update[0].update_max(chunk, page[0]);
        update[1].update_max(chunk, page[1]);
        bool steady = warp_all(update[0].max_unchanged() && update[1].max_unchanged());
        if (SPRY_UNLIKELY(!steady))
            update[0].rescale(chunk);
        pingpong::pass();
        wgmma_wait<1, GROUPS>(sums.out);
        update[0].template accumulate<GROUPS>(chunk.out, sums.out, whole);
        update[0].accumulate_sums(chunk, page[0]);
        issue_pv<BLOCKS>(sums.out, weights[1], stage, 1);
        if (SPRY_UNLIKELY(!steady))
            update[1].rescale(chunk);
        update[1].accumulate_sums(chunk, page[1]);
        wgmma_wait<1, 8>(scores);
    }
    wgmma_wait<0, GROUPS>(sums.out);
    pages.leave(before, lane);
    update[1].template accumulate<GROUPS>(chunk.out, sums.out, whole);
    if (!split_kv)
        chunk_totals<BLOCKS>::add_chunk(*pages.smem, chunk, q, a, true, lane);
    else if (q.count)
        store_partial(a, chunk, true, q, q.first_row, part, 0, lane);
}

/* A job: the pages of a prefill tile, or of one chunk of it, for a batch of queries of a KV head. The last tiles come
 * first, because they see most. */
template <int BLOCKS> struct prefill_job {
    enum { EACH = prefill_config<BLOCKS>::WARPS * QUERIES };
    warp_queries all;
    const spry_step_entry *entries;
    uint32_t part, page, end; /* part: index of the chunk; [page, end): its pages, none if no query sees one */

    /* Finds the pages and queries of job `number`; returns false if there is nothing to do. */
    SPRY_METHOD bool find(const spry_attend_tma_args &c, uint32_t number, int lane)
    {
        const spry_attend_args &a = c.attend;
        uint32_t group = a.n_heads / a.kv.n_kv_heads, heads = a.kv.n_kv_heads * c.n_batches,
                 run_number = number / (heads * c.n_parts);
        const spry_row_range run = a.prefill_tiles[c.n_prefill_tiles - 1 - run_number];
        const spry_step_row last = a.rows[run.first_row + run.n_rows - 1];
        uint32_t n = run.n_rows * group, base = number % heads / a.kv.n_kv_heads * EACH;
        part = number / heads % c.n_parts;
        page = part * SPRY_SPLIT_KV_PAGES;
        entries = a.entries + last.first_entry;
        end = last.n_entries;
        if (page >= end || base >= n)
            return false;
        all = {run.first_row,           base, n - base < EACH ? n - base : (uint32_t)EACH, {}, {}, 0, 0,
               number % a.kv.n_kv_heads};
        find_queries(all, a, group, lane);
        if (c.n_parts > 1 && end - page > SPRY_SPLIT_KV_PAGES)
            end = page + SPRY_SPLIT_KV_PAGES;
        if (a.window || a.ahead) {
            page = kv_pipeline<BLOCKS>::find(entries, page, end, all.lowest);
            uint32_t highest = kv_pipeline<BLOCKS>::find(entries, page, end, all.highest - 1);
            end = highest < end ? highest + 1 : end;
        }
        return true;
    }

    /* The queries of a warp. */
    SPRY_METHOD warp_queries of_warp(uint32_t warp) const
    {
        warp_queries q = {all.first_row, 0, 0, {}, {}, 0, 0, all.kv_head};
        if (warp * QUERIES < all.count) {
            q.first = all.first + warp * QUERIES;
            q.count = at_most(all.count - warp * QUERIES);
        }
        return q;
    }
};

/* The job of a block in a round. Every other round is reversed, so that no block has the longest job each time. */
SPRY_DEVICE uint32_t job_number(uint32_t round)
{
    return round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

/* Producer: copies the pages of all jobs of the block, ahead of the consumers. */
template <int BLOCKS>
SPRY_DEVICE void produce_jobs(kv_pipeline<BLOCKS> &pages, const spry_attend_tma_args &c, uint32_t n, int lane)
{
    prefill_job<BLOCKS> job;
    SPRY_UNROLL_BY(1)
    for (uint32_t round = 0; job_number(round) < n; round++)
        if (job.find(c, job_number(round), lane) && pages.take(job))
            pages.produce_all(c.attend, job.all, lane);
}

template <int BLOCKS>
SPRY_DEVICE void consume_jobs(kv_pipeline<BLOCKS> &pages, const spry_attend_tma_args &c, uint32_t n, int lane)
{
    prefill_job<BLOCKS> job;
    uint32_t warp = threadIdx.x / WARP;
    pingpong::begin();
    SPRY_UNROLL_BY(1)
    for (uint32_t round = 0; job_number(round) < n; round++) {
        if (!job.find(c, job_number(round), lane))
            continue;
        const warp_queries q = job.of_warp(warp);
        if (pages.take(job)) {
            syncwarp();
            if (lane == 0)
                pages.smem->queries[warp] = q;
            syncwarp();
            attend_pages(pages, c.attend, job.part, c.n_parts > 1, lane);
        } else if (q.count && c.n_parts > 1) { /* a chunk that none of the queries sees */
            const page_output<1> none = {};
            store_partial(c.attend, none, false, q, q.first_row, job.part, 0, lane);
        }
    }
    pingpong::end();
}

/* The blocks take jobs in turns. */
template <int BLOCKS> SPRY_DEVICE void attend_prefill(const spry_attend_tma_args &c)
{
    SPRY_SMEM_DYNAMIC(memory, 1024);
    static_assert(sizeof(prefill_smem<BLOCKS>) == spry_smem_prefill_wgmma(BLOCKS), "as launched");
    int lane = (int)threadIdx.x % WARP;
    uint32_t warp = threadIdx.x / WARP, n = c.attend.kv.n_kv_heads * c.n_batches * c.n_parts * c.n_prefill_tiles;
    kv_pipeline<BLOCKS> pages = {c.maps, (prefill_smem<BLOCKS> *)memory, NULL, 0, 0, 0, {}};
    pages.smem->init_barriers();
    if (warp < prefill_config<BLOCKS>::WARPS) {
        setmaxnreg_inc<240>();
        consume_jobs(pages, c, n, lane);
    } else {
        setmaxnreg_dec<24>();
        if (warp == prefill_config<BLOCKS>::WARPS)
            produce_jobs(pages, c, n, lane);
    }
}

#define ATTEND(blocks)                                                                                                 \
    SPRY_KERNEL(spry_attend_prefill_wgmma_##blocks, spry_attend_tma_args, 1)                                           \
    {                                                                                                                  \
        attend_prefill<blocks>(a);                                                                                     \
    }
ATTEND(2)
ATTEND(3)
ATTEND(4)
