/* Attention of runs of rows over pages of F16 with the matrix instructions of four warps. What is computed, in which order and
 * with which bits is that of attention_pages.cuh; here two times four warps, 16 queries each, go through the same pages, which a further warp copies.
 *
 * Pages pass through a ring in shared memory, two of them at a time, as lines of 64 bytes, which the instructions read: a coordinate
 * of the keys of 32 tokens, or 32 coordinates of the values of a token. While the sums of a pair are folded into the chunk's, the
 * scores of the next one are computed. What chunks gave waits in shared memory.
 *
 * Warps wait for stages: that the pages of one are there, and that all warps are done with one before it is copied to again. Of the two times
 * four warps one after the other begins to multiply keys: so while the ones weigh scores the others multiply. */
#include "device/cuda/kernels/attention_pages.cuh"

/* LAUNCHED: threads, with those of the warp that copies and of three more, whose registers the others get. */
template <int BLOCKS> struct cores_shape {
    enum { THREADS = 256, WARPS = THREADS / WARP, LAUNCHED = 384, TOGETHER = 2, STAGES = 5 };
    enum { STEPS = BLOCKS * 2, GROUPS = BLOCKS * 4, VALUES = BLOCKS * 16 };
    enum { LINE = 64, KEYS = BLOCKS * 32 * LINE, VALUE_BLOCK = PAGE_TOKENS * LINE, PAGE = KEYS + BLOCKS * VALUE_BLOCK };
    enum { BYTES = TOGETHER * PAGE };
};

/* Shared memory of a block. A value of `totals` is that of a thread. */
template <int BLOCKS> struct cores_room {
    typedef cores_shape<BLOCKS> shape;
    unsigned char stages[shape::STAGES][shape::BYTES];
    float totals[shape::VALUES][shape::THREADS];
    warp_queries queries[shape::WARPS]; /* here, because registers are few; what they see is found where it is needed */
    float4 figures[shape::THREADS / 4]; /* of two queries, which four threads share: levels, sums of weights */
    spry_step_entry entries[shape::STAGES][shape::TOGETHER];
    copy_barrier full[shape::STAGES], empty[shape::STAGES];

    SPRY_METHOD void make_barriers()
    {
        if (threadIdx.x == 0) {
            for (int i = 0; i < shape::STAGES; i++) {
                barrier_make(&full[i], 1);
                barrier_make(&empty[i], shape::WARPS);
            }
            barriers_made();
        }
        block_wait();
    }
};

/* Pairs of pages from `first`, an even number, up to `end`, as they come to shared memory behind `before` other pairs. */
template <int BLOCKS> struct cores_pages {
    typedef cores_shape<BLOCKS> shape;
    enum { ENTRY = sizeof(spry_step_entry), VALUES = shape::PAGE - shape::KEYS, HELD = WARP / shape::TOGETHER };
    const spry_page_maps &maps;
    cores_room<BLOCKS> *room;
    const spry_step_entry *entries;
    uint32_t first, end, before;
    spry_step_entry held; /* of the warp that copies: entries of 16 pairs, a lane each */

    /* The first of the entries, which have the order of their tokens, that ends behind a position; `end`: none. */
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

    /* Goes on with the pages of a job; whether it has some. */
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
        return (end - first + 1) / shape::TOGETHER;
    }

    SPRY_METHOD const unsigned char *stage(uint32_t number) const
    {
        return room->stages[(before + number) % shape::STAGES];
    }

    /* Whether a pair has a page `page`. */
    SPRY_METHOD bool there(uint32_t number, uint32_t page) const
    {
        return first + number * shape::TOGETHER + page < end;
    }

    SPRY_METHOD const spry_step_entry &entry(uint32_t number, int page) const
    {
        return room->entries[(before + number) % shape::STAGES][page];
    }

    /* Entries of the pairs from a number on. */
    SPRY_METHOD void hold(uint32_t number, int lane)
    {
        uint32_t own = first + number * shape::TOGETHER + (uint32_t)lane;
        held = entries[own < end ? own : end - 1];
    }

    /* Values of a page that is seen in part, by the lanes of a warp. Those of tokens that no query sees may be anything: in their place those of a token that is
     * seen; their weights are zeros. */
    SPRY_METHOD static void copy_part(unsigned char *to, const seen_page &from, uint32_t token_bytes, uint32_t lane)
    {
        enum { PIECES = BLOCKS * 4 };
        SPRY_UNROLL_BY(1)
        for (uint32_t i = lane; i < PAGE_TOKENS * PIECES; i += WARP) {
            uint32_t line = i / PIECES, piece = i % PIECES, token = line < from.begin ? from.begin : line;
            token = token < from.end ? token : from.end - 1;
            copy_ahead(to + piece / 4 * shape::VALUE_BLOCK + core_line(line, piece % 4), from.values + token * token_bytes + piece * 16);
        }
    }

    /* Entry `page` of a pair; where there is none, nothing is seen of it. */
    SPRY_METHOD spry_step_entry held_entry(uint32_t number, uint32_t page) const
    {
        int from = (int)(number % HELD * shape::TOGETHER + page);
        spry_step_entry entry = {warp_from(held.page, from), warp_from(held.start, from), warp_from(held.count, from), 0};
        entry.count = there(number, page) ? entry.count : 0;
        return entry;
    }

    /* Begins to copy a pair. By a warp. */
    SPRY_METHOD void copy(const spry_attend_args &a, const warp_queries &all, uint32_t number, int lane)
    {
        uint32_t stage = (before + number) % shape::STAGES, times = (before + number) / shape::STAGES; /* that it was used before */
        uint32_t bytes = 0, n = there(number, 1) ? 2 : 1;
        bool whole[shape::TOGETHER];
        if (times)
            barrier_wait(&room->empty[stage], (times - 1) % 2);
        SPRY_UNROLL
        for (uint32_t page = 0; page < shape::TOGETHER; page++) {
            const seen_page seen = find_page(all, a, held_entry(number, page), 0);
            whole[page] = seen.begin == 0 && seen.end == PAGE_TOKENS;
            bytes += page < n ? ENTRY + shape::KEYS + (whole[page] ? VALUES : 0) : 0;
            if (SPRY_SELDOM(!whole[page]) && seen.begin < seen.end)
                copy_part(room->stages[stage] + page * shape::PAGE + shape::KEYS, seen, a.kv.token_bytes, (uint32_t)lane);
        }
        if (SPRY_SELDOM(!whole[0] || !whole[1])) {
            copy_wait();
            cores_publish();
            warp_wait();
        }
        if (lane == 0) {
            barrier_expect(&room->full[stage], bytes);
            copy_bulk(room->entries[stage], entries + first + number * shape::TOGETHER, n * ENTRY, &room->full[stage]);
        }
        SPRY_UNROLL
        for (uint32_t page = 0; page < shape::TOGETHER; page++) {
            uint64_t head = (uint64_t)all.kv_head * a.kv.head_bytes;
            uint32_t number_of_page = held_entry(number, page).page;
            unsigned char *to = room->stages[stage] + page * shape::PAGE;
            if (lane || page >= n)
                continue;
            copy_box(to, &maps.keys, (uint32_t)((a.kv.key_offset + head) / shape::LINE), number_of_page, &room->full[stage]);
            if (whole[page])
                copy_box(to + shape::KEYS, &maps.values, (uint32_t)((a.kv.value_offset + head) / (BLOCKS * shape::LINE)), number_of_page,
                         &room->full[stage]);
        }
        if (number % HELD == HELD - 1)
            hold(number + 1, lane);
    }

    /* All pairs, one behind the other. */
    SPRY_METHOD void copy_all(const spry_attend_args &a, const warp_queries &all, int lane)
    {
        hold(0, lane);
        SPRY_UNROLL_BY(1)
        for (uint32_t number = 0; number < stages(); number++)
            copy(a, all, number, lane);
    }

    /* Before the first use of a pair. */
    SPRY_METHOD void reach(uint32_t number) const
    {
        if (number < stages())
            barrier_wait(&room->full[(before + number) % shape::STAGES], (before + number) / shape::STAGES % 2);
    }

    /* Behind the last. */
    SPRY_METHOD void leave(uint32_t number, int lane) const
    {
        warp_wait(); /* for lanes that read entries */
        if (lane == 0)
            barrier_arrive(&room->empty[(before + number) % shape::STAGES]);
    }
};

/* Queries g and g + 8 of a warp as the instructions take them, turned for pages that are used elsewhere. */
template <int BLOCKS>
SPRY_DEVICE void take_queries(uint32_t (*words)[4], const warp_queries &q, const spry_attend_args &a, uint32_t turn, int lane)
{
    enum { HALVES = BLOCKS * 8 };
    uint32_t group = a.n_heads / a.kv.n_kv_heads, turned[HALVES]; /* in memory: their code is short and seldom runs */
    const float *from[2];
    SPRY_UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t i = (uint32_t)lane / 4 + half * 8;
        i = i < q.count ? i : 0;
        from[half] = a.q + ((uint64_t)query_row(q, group, i) * a.n_heads + query_head(q, group, i)) * (BLOCKS * 32) + lane % 4 * 2;
    }
    bool whole = !a.interleaved && a.n_pairs == BLOCKS * 16; /* rope turns both halves of a head */
    SPRY_UNROLL_BY(4)
    for (uint32_t k = 0; turn && whole && k < HALVES / 2; k++) {
        const float *query = (k % 2 ? from[1] : from[0]) + k / 2 * 8;
        uint64_t pair = (uint64_t)turn * a.n_pairs + k / 2 * 8 + (uint32_t)lane % 4 * 2;
        const float2 q = *(const float2 *)query, r = *(const float2 *)(query + BLOCKS * 16);
        const float2 c = *(const float2 *)(a.turn_cosine + pair), s = *(const float2 *)(a.turn_sine + pair);
        turned[k] = half_pair(q.x * c.x - r.x * s.x, q.y * c.y - r.y * s.y);
        turned[k + HALVES / 2] = half_pair(q.x * s.x + r.x * c.x, q.y * s.y + r.y * c.y);
    }
    SPRY_UNROLL_BY(1)
    for (uint32_t k = 0; turn && !whole && k < HALVES; k++) {
        uint32_t d = k / 2 * 8 + (uint32_t)lane % 4 * 2;
        const float *query = (k % 2 ? from[1] : from[0]) - lane % 4 * 2;
        turned[k] = half_pair(turned_value(a, query, turn, d), turned_value(a, query, turn, d + 1));
    }
    SPRY_UNROLL
    for (int k = 0; k < HALVES; k++) {
        if (turn) {
            words[k / 4][k % 4] = turned[k];
            continue;
        }
        const float2 v = *(const float2 *)(from[k % 2] + k / 2 * 8);
        words[k / 4][k % 4] = half_pair(v.x, v.y);
    }
}

/* Begins to multiply queries by the keys of a pair; scores of its second page follow those of the first. */
template <int BLOCKS> SPRY_DEVICE void score_cores(float scores[8][4], const uint32_t (*queries)[4], const unsigned char *stage)
{
    typedef cores_shape<BLOCKS> shape;
    const core_lines keys(stage, 8 * shape::LINE, shape::PAGE);
    cores_begin();
    SPRY_UNROLL
    for (int step = 0; step < shape::STEPS; step++)
        multiply_cores_f16<8>(scores, queries[step], keys.behind((uint32_t)step * 16 * shape::LINE), step == 0);
    cores_run();
}

/* Begins to multiply weights by the values of page `page` of a pair. */
template <int BLOCKS> SPRY_DEVICE void gather_cores(float (*out)[4], const uint4 weights[2], const unsigned char *stage, int page)
{
    typedef cores_shape<BLOCKS> shape;
    const core_lines values(stage + page * shape::PAGE + shape::KEYS, 8 * shape::LINE, shape::VALUE_BLOCK);
    cores_begin();
    SPRY_UNROLL
    for (int half = 0; half < 2; half++) {
        const uint32_t w[4] = {weights[half].x, weights[half].y, weights[half].z, weights[half].w};
        multiply_cores_f16<shape::GROUPS>(out, w, values.behind((uint32_t)(half * 16 * shape::LINE)), half == 0);
    }
    cores_run();
}

/* What chunks gave so far of a lane's two queries; its values are in shared memory. */
template <int BLOCKS> struct cores_totals {
    enum { EACH = BLOCKS * 8 };

    SPRY_METHOD static void put(cores_room<BLOCKS> &room, float4 figures)
    {
        warp_wait();
        if (threadIdx.x % 4 == 0)
            room.figures[threadIdx.x / 4] = figures;
        warp_wait();
    }

    SPRY_METHOD static void clear(cores_room<BLOCKS> &room)
    {
        put(room, float4{-INFINITY, -INFINITY, 0, 0});
        SPRY_UNROLL
        for (int i = 0; i < 2 * EACH; i++)
            room.totals[i][threadIdx.x] = 0;
    }

    /* Folds a chunk; behind the `last` one is the result. */
    SPRY_METHOD static void fold(cores_room<BLOCKS> &room, const page_sums<BLOCKS> &chunk, const warp_queries &q, const spry_attend_args &a,
                                 bool last, int lane)
    {
        const float4 old = room.figures[threadIdx.x / 4];
        float max[2] = {old.x, old.y}, sum[2] = {old.z, old.w};
        uint32_t group = a.n_heads / a.kv.n_kv_heads;
        SPRY_UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t i = (uint32_t)lane / 4 + half * 8, head = query_head(q, group, i);
            float *to = a.out + ((uint64_t)query_row(q, group, i) * a.n_heads + head) * (BLOCKS * 32) + lane % 4 * 2;
            float keep = 1, take = 0, v[EACH];
            bool seen = fold_factors(&max[half], &keep, &take, chunk.max[half]);
            sum[half] = seen ? folded(sum[half], keep, chunk.sum[half], take) : sum[half];
            SPRY_UNROLL
            for (int k = 0; k < EACH; k++) {
                float old = room.totals[half * EACH + k][threadIdx.x], sum = folded(old, keep, chunk.out[k / 2][half * 2 + k % 2], take);
                v[k] = seen ? sum : old;
            }
            if (!last) {
                SPRY_UNROLL
                for (int k = 0; k < EACH; k++)
                    room.totals[half * EACH + k][threadIdx.x] = v[k];
            } else if (i < q.count) {
                float factor = last_factor(a, head, max[half], sum[half]);
                SPRY_UNROLL
                for (int k = 0; k < EACH; k += 2)
                    *(float2 *)(to + k * 4) = float2{v[k] * factor, v[k + 1] * factor};
            }
        }
        if (!last)
            put(room, float4{max[0], max[1], sum[0], sum[1]});
    }
};

/* Positions that every query of a warp sees. */
struct seen_range {
    uint32_t begin, end;

    /* Of rows one behind the other: the last sees from the highest one on, the first up to the lowest. */
    SPRY_METHOD seen_range(const warp_queries &q, const spry_attend_args &a) : begin(0), end(0)
    {
        uint32_t group = a.n_heads / a.kv.n_kv_heads, unused;
        if (q.count == QUERIES) {
            see(&begin, &unused, a, query_row(q, group, QUERIES - 1));
            see(&unused, &end, a, query_row(q, group, 0));
        }
    }
};

/* Which pair is multiplied, and which of its pages are used: both where queries are turned alike for them, else one after the
 * other. */
struct cores_item {
    uint32_t pair, turn;
    bool used[2];

    template <int BLOCKS> SPRY_METHOD void take(const cores_pages<BLOCKS> &pages, uint32_t number)
    {
        pair = number;
        if (pair >= pages.stages())
            return;
        turn = pages.entry(pair, 0).turn;
        used[0] = true;
        used[1] = !pages.there(pair, 1) || pages.entry(pair, 1).turn == turn;
    }

    /* An entry of its pair; of a page that is not used nothing is seen. */
    template <int BLOCKS> SPRY_METHOD spry_step_entry entry(const cores_pages<BLOCKS> &pages, int page) const
    {
        spry_step_entry entry = pages.entry(pair, page);
        entry.count = used[page] && pages.there(pair, (uint32_t)page) ? entry.count : 0;
        return entry;
    }

    /* Whether both pages are full, and all their positions lie within a range. */
    template <int BLOCKS> SPRY_METHOD bool seen_whole(const cores_pages<BLOCKS> &pages, const seen_range &range) const
    {
        const spry_step_entry first = entry(pages, 0), second = entry(pages, 1);
        return first.count == PAGE_TOKENS && second.count == PAGE_TOKENS && first.start >= range.begin &&
               second.start + PAGE_TOKENS <= range.end;
    }

    /* To the next one, which is in shared memory then. */
    template <int BLOCKS> SPRY_METHOD void step(const cores_pages<BLOCKS> &pages)
    {
        if (used[1]) {
            pages.reach(pair + 1);
            take(pages, pair + 1);
            return;
        }
        used[0] = false;
        used[1] = true;
        turn = pages.entry(pair, 1).turn;
    }
};

/* Turns of the two times four warps, which go through the same pages. Each has a barrier; which is computed anew, because registers are few. */
struct cores_turns {
    enum { THREADS = 8 * WARP };

    SPRY_METHOD static void begin()
    {
        if (threadIdx.x >= THREADS / 2)
            threads_arrive(1, THREADS);
    }

    SPRY_METHOD static void wait()
    {
        threads_wait(1 + (int)threadIdx.x / (THREADS / 2), THREADS);
    }

    SPRY_METHOD static void pass()
    {
        threads_arrive(2 - (int)threadIdx.x / (THREADS / 2), THREADS);
    }

    /* Behind the last turn: for the one that was passed and is not taken. */
    SPRY_METHOD static void end()
    {
        if (threadIdx.x < THREADS / 2)
            threads_wait(1, THREADS);
    }
};

/* The pages that `pages` has for the queries of a warp: of all chunks, or, where they are spread over blocks, of one. A warp without
 * queries takes part in what four do together. The values of a second page are multiplied while the scores of the next first one are
 * weighed, and folded then. */
template <int BLOCKS>
SPRY_DEVICE void attend_cores(const cores_pages<BLOCKS> &pages, const spry_attend_args &a, uint32_t part, bool spread, int lane)
{
    enum { GROUPS = cores_shape<BLOCKS>::GROUPS };
    page_sums<BLOCKS> chunk, sums;
    float scores[8][4];
    uint32_t queries[BLOCKS * 2][4], before = 0; /* the pair of the item before */
    uint4 weights[2][2];
    page_fold fold[2] = {{}, {{1, 1}, {-1, -1}}}; /* before the first page there is none */
    cores_item item = {};
    const warp_queries &q = pages.room->queries[threadIdx.x / WARP];
    const seen_range common(q, a);
    bool whole = false;
    clear_sums(chunk);
    pages.reach(0);
    item.take(pages, 0);
    take_queries<BLOCKS>(queries, q, a, item.turn, lane);
    score_cores<BLOCKS>(scores, queries, pages.stage(0));
    cores_totals<BLOCKS>::clear(*pages.room);
    cores_wait<0, 8>(scores);
    while (item.pair < pages.stages()) {
        const unsigned char *stage = pages.stage(item.pair);
        uint32_t turn = item.turn;
        page_weight page[2];
        float factor = score_factor<8>(scores, a);
        bool now_whole = warp_all(item.seen_whole(pages, common)); /* asked so, the compiler knows that all lanes go one way */
        if (SPRY_SELDOM(!now_whole)) {
            warp_queries own = q;
            if (own.count)
                find_queries(own, a, a.n_heads / a.kv.n_kv_heads, lane);
            seen_tokens(own, item.entry(pages, 0)).hide(scores, lane);
            seen_tokens(own, item.entry(pages, 1)).hide(scores + 4, lane);
        }
        weigh_scores(page[0], scores, factor);
        take_page(weights[0], page[0], scores);
        cores_wait<0, GROUPS>(sums.out);
        fold[1].template fold<GROUPS>(chunk.out, sums.out, whole);
        gather_cores<BLOCKS>(sums.out, weights[0], stage, 0);
        whole = now_whole;
        if (item.pair != before) {
            pages.leave(before, lane);
            if (!spread && (pages.first + item.pair * 2) % SPRY_PAGES_CHUNK == 0) {
                cores_totals<BLOCKS>::fold(*pages.room, chunk, q, a, false, lane);
                clear_sums(chunk);
            }
        }
        before = item.pair;
        weigh_scores(page[1], scores + 4, factor); /* while those are multiplied */
        take_page(weights[1], page[1], scores + 4);
        item.step(pages);
        if (SPRY_SELDOM(item.turn != turn))
            take_queries<BLOCKS>(queries, q, a, item.turn, lane);
        cores_turns::wait();
        score_cores<BLOCKS>(scores, queries, pages.stage(item.pair)); /* behind the last pair: of what is there */
        fold[0].weigh(chunk, page[0]);
        fold[1].weigh(chunk, page[1]);
        bool steady = warp_all(fold[0].keeps() && fold[1].keeps());
        if (SPRY_SELDOM(!steady))
            fold[0].rescale(chunk);
        cores_turns::pass();
        cores_wait<1, GROUPS>(sums.out);
        fold[0].template fold<GROUPS>(chunk.out, sums.out, whole);
        fold[0].fold_sums(chunk, page[0]);
        gather_cores<BLOCKS>(sums.out, weights[1], stage, 1);
        if (SPRY_SELDOM(!steady))
            fold[1].rescale(chunk);
        fold[1].fold_sums(chunk, page[1]);
        cores_wait<1, 8>(scores);
    }
    cores_wait<0, GROUPS>(sums.out);
    pages.leave(before, lane);
    fold[1].template fold<GROUPS>(chunk.out, sums.out, whole);
    if (!spread)
        cores_totals<BLOCKS>::fold(*pages.room, chunk, q, a, true, lane);
    else if (q.count)
        write_partial(a, chunk, true, q, q.first_row, part, 0, lane);
}

/* What a block does at a time: pages of a run, or of a chunk of it, for a batch of queries of a key head. The last runs come first, because they
 * see most. */
template <int BLOCKS> struct cores_job {
    enum { EACH = cores_shape<BLOCKS>::WARPS * QUERIES };
    warp_queries all;
    const spry_step_entry *entries;
    uint32_t part, page, end; /* the chunk; pages, none where nothing is seen */

    /* false: there is nothing to do. */
    SPRY_METHOD bool find(const spry_attend_cores_args &c, uint32_t number, int lane)
    {
        const spry_attend_args &a = c.attend;
        uint32_t group = a.n_heads / a.kv.n_kv_heads, heads = a.kv.n_kv_heads * c.n_batches, run_number = number / (heads * c.n_parts);
        const spry_attend_run run = a.runs[c.n_runs - 1 - run_number];
        const spry_step_row last = a.rows[run.first_row + run.n_rows - 1];
        uint32_t n = run.n_rows * group, base = number % heads / a.kv.n_kv_heads * EACH;
        part = number / heads % c.n_parts;
        page = part * SPRY_PAGES_CHUNK;
        entries = a.entries + last.first_entry;
        end = last.n_entries;
        if (page >= end || base >= n)
            return false;
        all = {run.first_row, base, n - base < EACH ? n - base : (uint32_t)EACH, {}, {}, 0, 0, number % a.kv.n_kv_heads};
        find_queries(all, a, group, lane);
        if (c.n_parts > 1 && end - page > SPRY_PAGES_CHUNK)
            end = page + SPRY_PAGES_CHUNK;
        if (a.window || a.ahead) {
            page = cores_pages<BLOCKS>::find(entries, page, end, all.lowest);
            uint32_t highest = cores_pages<BLOCKS>::find(entries, page, end, all.highest - 1);
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

/* The number of what a block does next. Blocks take turns there and back, so that none has the longest each time. */
SPRY_DEVICE uint32_t job_number(uint32_t round)
{
    return round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

/* Copies the pages of all that the block does, also for what comes next. */
template <int BLOCKS> SPRY_DEVICE void copy_jobs(cores_pages<BLOCKS> &pages, const spry_attend_cores_args &c, uint32_t n, int lane)
{
    cores_job<BLOCKS> job;
    SPRY_UNROLL_BY(1)
    for (uint32_t round = 0; job_number(round) < n; round++)
        if (job.find(c, job_number(round), lane) && pages.take(job))
            pages.copy_all(c.attend, job.all, lane);
}

template <int BLOCKS> SPRY_DEVICE void attend_jobs(cores_pages<BLOCKS> &pages, const spry_attend_cores_args &c, uint32_t n, int lane)
{
    cores_job<BLOCKS> job;
    uint32_t warp = threadIdx.x / WARP;
    cores_turns::begin();
    SPRY_UNROLL_BY(1)
    for (uint32_t round = 0; job_number(round) < n; round++) {
        if (!job.find(c, job_number(round), lane))
            continue;
        const warp_queries q = job.of_warp(warp);
        if (pages.take(job)) {
            warp_wait();
            if (lane == 0)
                pages.room->queries[warp] = q;
            warp_wait();
            attend_cores(pages, c.attend, job.part, c.n_parts > 1, lane);
        } else if (q.count && c.n_parts > 1) { /* a chunk that none of the queries sees */
            const page_sums<1> none = {};
            write_partial(c.attend, none, false, q, q.first_row, job.part, 0, lane);
        }
    }
    cores_turns::end();
}

/* Blocks take what there is to do in turns. */
template <int BLOCKS> SPRY_DEVICE void attend_runs_cores(const spry_attend_cores_args &c)
{
    SPRY_SHARED_ASKED(memory, 1024);
    int lane = (int)threadIdx.x % WARP;
    uint32_t warp = threadIdx.x / WARP, n = c.attend.kv.n_kv_heads * c.n_batches * c.n_parts * c.n_runs;
    cores_pages<BLOCKS> pages = {c.maps, (cores_room<BLOCKS> *)memory, NULL, 0, 0, 0, {}};
    pages.room->make_barriers();
    if (warp < cores_shape<BLOCKS>::WARPS) {
        registers_more<240>();
        attend_jobs(pages, c, n, lane);
    } else {
        registers_fewer<24>();
        if (warp == cores_shape<BLOCKS>::WARPS)
            copy_jobs(pages, c, n, lane);
    }
}

#define ATTEND(blocks)                                                                                                 \
    SPRY_KERNEL(spry_attend_cores_##blocks, spry_attend_cores_args, cores_shape<blocks>::LAUNCHED, 1)                      \
    {                                                                                                                  \
        attend_runs_cores<blocks>(a);                                                                                  \
    }
ATTEND(2)
ATTEND(3)
ATTEND(4)
