/* Attention of runs of rows over pages of F16 with the matrix instructions of four warps. What is computed, in which order and
 * with which bits is that of attention_pages.cuh; here two times four warps, 16 queries each, go through the same pages.
 *
 * Pages pass through a ring in shared memory, two of them at a time, as lines of 64 bytes, which the instructions read: a coordinate
 * of the keys of 32 tokens, or 32 coordinates of the values of a token. While the sums of a pair are folded into the chunk's, the
 * scores of the next one are computed. What chunks gave waits in shared memory.
 *
 * Warps do not wait for each other but for stages: that all threads' copies to one are there, and that all warps are done with one before it is
 * copied to again. So while four warps weigh scores the other four can multiply. */
#include "device/cuda/kernels/attention_pages.cuh"

template <int BLOCKS> struct cores_shape {
    enum { THREADS = 256, TOGETHER = 2, STAGES = 5, STEPS = BLOCKS * 2, GROUPS = BLOCKS * 4, VALUES = BLOCKS * 16 };
    enum { LINE = 64, KEYS = BLOCKS * 32 * LINE, VALUE_BLOCK = PAGE_TOKENS * LINE, PAGE = KEYS + BLOCKS * VALUE_BLOCK };
    enum { BYTES = TOGETHER * PAGE };
};

/* Shared memory of a block. A value of `totals` is that of a thread. */
template <int BLOCKS> struct cores_room {
    typedef cores_shape<BLOCKS> shape;
    unsigned char stages[shape::STAGES][shape::BYTES];
    float totals[shape::VALUES][shape::THREADS];
    spry_step_entry entries[shape::STAGES][shape::TOGETHER];
    copy_barrier full[shape::STAGES], empty[shape::STAGES];

    SPRY_METHOD void make_barriers()
    {
        if (threadIdx.x == 0) {
            for (int i = 0; i < shape::STAGES; i++) {
                barrier_make(&full[i], shape::THREADS + shape::TOGETHER);
                barrier_make(&empty[i], shape::THREADS / WARP);
            }
            barriers_made();
        }
        block_wait();
    }
};

/* Pairs of pages from `first`, an even number, up to `end`, as they come to shared memory. Half of the threads copy a page. */
template <int BLOCKS> struct cores_pages {
    typedef cores_shape<BLOCKS> shape;
    cores_room<BLOCKS> *room;
    const spry_step_entry *entries;
    uint32_t first, end;
    spry_step_entry ahead; /* of the page that the thread copies next */

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

    SPRY_METHOD uint32_t stages() const
    {
        return (end - first + 1) / shape::TOGETHER;
    }

    SPRY_METHOD const unsigned char *stage(uint32_t number) const
    {
        return room->stages[number % shape::STAGES];
    }

    SPRY_METHOD const spry_step_entry &entry(uint32_t number, int page) const
    {
        return room->entries[number % shape::STAGES][page];
    }

    /* The page of a pair that the thread copies. */
    SPRY_METHOD uint32_t own(uint32_t number) const
    {
        return first + number * shape::TOGETHER + threadIdx.x / (shape::THREADS / shape::TOGETHER);
    }

    SPRY_METHOD void look_ahead(uint32_t number)
    {
        ahead = entries[own(number) < end ? own(number) : end - 1];
    }

    /* Begins to copy a pair. Values of tokens that no query sees may be anything: in their place those of a token that is seen; their
     * weights are zeros. */
    SPRY_METHOD void copy(const spry_attend_args &a, const warp_queries &all, uint32_t number)
    {
        uint32_t page = threadIdx.x / (shape::THREADS / shape::TOGETHER);
        uint32_t line = threadIdx.x / 4 % 32, part = threadIdx.x % 4;
        spry_step_entry entry = ahead;
        if (number < stages()) {
            uint32_t stage = number % shape::STAGES, times = number / shape::STAGES; /* that the stage was used before */
            if (times)
                barrier_wait(&room->empty[stage], (times - 1) % 2);
            entry.count = own(number) < end ? entry.count : 0; /* of a page that is not there nothing is seen */
            const seen_page from = find_page(all, a, entry, 0);
            unsigned char *to = room->stages[stage] + page * shape::PAGE + core_line(line, part);
            uint32_t token = line < from.begin ? from.begin : line;
            token = token < from.end ? token : from.end - 1;
            const unsigned char *keys = from.keys + line * shape::LINE + part * 16;
            const unsigned char *values = from.values + token * a.kv.token_bytes + part * 16;
            if (threadIdx.x % (shape::THREADS / shape::TOGETHER) == 0) {
                room->entries[stage][page] = entry;
                barrier_arrive(&room->full[stage]);
            }
            SPRY_UNROLL
            for (uint32_t i = 0; from.begin < from.end && i < BLOCKS; i++) {
                copy_ahead(to + i * 32 * shape::LINE, keys + i * 32 * shape::LINE);
                copy_ahead(to + shape::KEYS + i * shape::VALUE_BLOCK, values + i * shape::LINE);
            }
            barrier_arrive_copied(&room->full[stage]);
        }
        look_ahead(number + 1);
    }

    /* Pairs that are copied ahead: the one that is used, and that before it, whose values may be in use, stay. */
    enum { AHEAD = shape::STAGES - 2 };

    SPRY_METHOD void start(const spry_attend_args &a, const warp_queries &all)
    {
        look_ahead(0);
        SPRY_UNROLL_BY(1)
        for (uint32_t number = 0; number < AHEAD; number++)
            copy(a, all, number);
    }

    /* Before the first use of a pair. */
    SPRY_METHOD void reach(uint32_t number) const
    {
        if (number >= stages())
            return;
        barrier_wait(&room->full[number % shape::STAGES], number / shape::STAGES % 2);
        cores_publish();
    }

    /* Behind the last. */
    SPRY_METHOD void leave(uint32_t number, int lane) const
    {
        if (lane == 0)
            barrier_arrive(&room->empty[number % shape::STAGES]);
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

/* Begins to multiply weights by GROUPS times 8 values, from FIRST times 8 on, of page `page` of a pair. */
template <int BLOCKS, int FIRST, int GROUPS>
SPRY_DEVICE void gather_cores(float (*out)[4], const uint4 weights[2], const unsigned char *stage, int page)
{
    typedef cores_shape<BLOCKS> shape;
    const core_lines values(stage + page * shape::PAGE + shape::KEYS, 8 * shape::LINE, shape::VALUE_BLOCK);
    cores_begin();
    SPRY_UNROLL
    for (int half = 0; half < 2; half++) {
        const uint32_t w[4] = {weights[half].x, weights[half].y, weights[half].z, weights[half].w};
        multiply_cores_f16<GROUPS>(out + FIRST, w, values.behind((uint32_t)(half * 16 * shape::LINE + FIRST / 4 * shape::VALUE_BLOCK)), half == 0);
    }
    cores_run();
}

/* Folds GROUPS times 8 values of a page into the chunk's. */
template <int FIRST, int GROUPS>
SPRY_DEVICE void fold_cores(float (*chunk)[4], const float (*page)[4], const page_fold &fold, bool all)
{
    if (all) { /* queries of the warp see it */
        SPRY_UNROLL
        for (int i = FIRST * 4; i < (FIRST + GROUPS) * 4; i++)
            chunk[i / 4][i % 4] = fmaf(chunk[i / 4][i % 4], fold.keep[i % 4 / 2], page[i / 4][i % 4] * fold.take[i % 4 / 2]);
        return;
    }
    SPRY_UNROLL
    for (int i = FIRST * 4; i < (FIRST + GROUPS) * 4; i++)
        if (fold.seen[i % 4 / 2])
            chunk[i / 4][i % 4] = fmaf(chunk[i / 4][i % 4], fold.keep[i % 4 / 2], page[i / 4][i % 4] * fold.take[i % 4 / 2]);
}

/* What chunks gave so far of a lane's two queries; its values are in shared memory. */
template <int BLOCKS> struct cores_totals {
    enum { EACH = BLOCKS * 8 };
    float max[2], sum[2];

    SPRY_METHOD void clear(cores_room<BLOCKS> &room) const
    {
        SPRY_UNROLL
        for (int i = 0; i < 2 * EACH; i++)
            room.totals[i][threadIdx.x] = 0;
    }

    /* Folds a chunk; behind the `last` one is the result. */
    SPRY_METHOD void fold(cores_room<BLOCKS> &room, const page_sums<BLOCKS> &chunk, const warp_queries &q, const spry_attend_args &a,
                          bool last, int lane)
    {
        uint32_t group = a.n_heads / a.kv.n_kv_heads;
        SPRY_UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t i = (uint32_t)lane / 4 + half * 8, head = query_head(q, group, i);
            float *to = a.out + ((uint64_t)query_row(q, group, i) * a.n_heads + head) * (BLOCKS * 32) + lane % 4 * 2;
            float keep = 1, take = 0, v[EACH];
            bool seen = fold_factors(&max[half], &keep, &take, chunk.max[half]);
            sum[half] = seen ? fmaf(sum[half], keep, chunk.sum[half] * take) : sum[half];
            SPRY_UNROLL
            for (int k = 0; k < EACH; k++) {
                float old = room.totals[half * EACH + k][threadIdx.x], sum = fmaf(old, keep, chunk.out[k / 2][half * 2 + k % 2] * take);
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
        used[1] = pages.entry(pair, 1).turn == turn;
    }

    /* An entry of its pair; of a page that is not used nothing is seen. */
    template <int BLOCKS> SPRY_METHOD spry_step_entry entry(const cores_pages<BLOCKS> &pages, int page) const
    {
        spry_step_entry entry = pages.entry(pair, page);
        entry.count = used[page] ? entry.count : 0;
        return entry;
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

/* The pages that `pages` has for the queries of a warp: of all chunks, or, where they are spread over blocks, of one. A warp without
 * queries takes part in what four do together. */
template <int BLOCKS>
SPRY_DEVICE void attend_cores(cores_pages<BLOCKS> &pages, const warp_queries &q, const warp_queries &all, const spry_attend_args &a,
                              int lane)
{
    enum { LOW = BLOCKS < 3 ? BLOCKS * 4 : 8, HIGH = BLOCKS * 4 - LOW }; /* groups of values that are multiplied together */
    bool spread = gridDim.z > 1;
    cores_totals<BLOCKS> total = {{-INFINITY, -INFINITY}, {0, 0}};
    page_sums<BLOCKS> chunk, sums;
    float scores[8][4];
    uint32_t queries[BLOCKS * 2][4];
    cores_item item = {};
    clear_sums(chunk);
    pages.start(a, all);
    pages.reach(0);
    item.take(pages, 0);
    take_queries<BLOCKS>(queries, q, a, item.turn, lane);
    score_cores<BLOCKS>(scores, queries, pages.stage(0));
    pages.copy(a, all, pages.AHEAD);
    total.clear(*pages.room);
    while (item.pair < pages.stages()) {
        const unsigned char *stage = pages.stage(item.pair);
        uint32_t pair = item.pair, turn = item.turn;
        page_weight page[2];
        uint4 weights[2][2];
        page_fold fold[2];
        cores_wait<0, 8>(scores);
        float factor = score_factor<8>(scores, a);
        const seen_tokens first(q, item.entry(pages, 0)), second(q, item.entry(pages, 1));
        bool whole = warp_all(first.all() && second.all());
        if (!whole) {
            first.hide(scores, lane);
            second.hide(scores + 4, lane);
        }
        weigh_scores(page[0], scores, factor);
        weigh_scores(page[1], scores + 4, factor);
        SPRY_UNROLL
        for (int i = 0; i < 2; i++) {
            weights[i][0] = take_weights(scores + i * 4, 0);
            weights[i][1] = take_weights(scores + i * 4, 1);
            sum_weights(page[i], weights[i][0], weights[i][1]);
        }
        gather_cores<BLOCKS, 0, LOW>(sums.out, weights[0], stage, 0);
        gather_cores<BLOCKS, LOW, HIGH>(sums.out, weights[0], stage, 0);
        item.step(pages);
        if (item.turn != turn)
            take_queries<BLOCKS>(queries, q, a, item.turn, lane);
        score_cores<BLOCKS>(scores, queries, pages.stage(item.pair)); /* behind the last pair: of what is there */
        if (item.pair != pair && item.pair < pages.stages())
            pages.copy(a, all, item.pair + pages.AHEAD);
        fold[0].weigh(chunk, page[0]);
        fold[1].weigh(chunk, page[1]);
        cores_wait<2, LOW>(sums.out);
        fold_cores<0, LOW>(chunk.out, sums.out, fold[0], whole);
        gather_cores<BLOCKS, 0, LOW>(sums.out, weights[1], stage, 1);
        cores_wait<2, HIGH>(sums.out + LOW);
        fold_cores<LOW, HIGH>(chunk.out, sums.out, fold[0], whole);
        gather_cores<BLOCKS, LOW, HIGH>(sums.out, weights[1], stage, 1);
        cores_wait<1, LOW>(sums.out);
        fold_cores<0, LOW>(chunk.out, sums.out, fold[1], whole);
        cores_wait<0, HIGH>(sums.out + LOW);
        fold_cores<LOW, HIGH>(chunk.out, sums.out, fold[1], whole);
        if (item.pair != pair)
            pages.leave(pair, lane);
        bool last = item.pair >= pages.stages();
        if (!spread && (last || (item.pair != pair && (pages.first + item.pair * 2) % SPRY_PAGES_CHUNK == 0))) {
            total.fold(*pages.room, chunk, q, a, last, lane);
            clear_sums(chunk);
        }
    }
    cores_wait<0, 8>(scores);
    if (q.count && spread)
        write_partial(a, chunk, true, q, q.first_row, blockIdx.z, 0, lane);
}

/* A grid of (key heads * batches of queries, runs, chunks or 1), the last runs first, because they see most. */
template <int BLOCKS> SPRY_DEVICE void attend_runs_cores(const spry_attend_args &a)
{
    enum { EACH = cores_shape<BLOCKS>::THREADS / WARP * QUERIES };
    SPRY_SHARED_LARGE(memory, sizeof(cores_room<BLOCKS>));
    int lane = (int)threadIdx.x % WARP;
    spry_attend_run run = a.runs[gridDim.y - 1 - blockIdx.y];
    const spry_step_row last = a.rows[run.first_row + run.n_rows - 1];
    const spry_step_entry *entries = a.entries + last.first_entry;
    uint32_t group = a.n_heads / a.kv.n_kv_heads, n = run.n_rows * group, page = blockIdx.z * SPRY_PAGES_CHUNK;
    uint32_t kv_head = blockIdx.x % a.kv.n_kv_heads, base = blockIdx.x / a.kv.n_kv_heads * EACH;
    uint32_t first = base + threadIdx.x / WARP * QUERIES, end = last.n_entries;
    if (page >= end || base >= n)
        return;
    warp_queries q = {run.first_row, first < n ? first : 0, first < n ? at_most(n - first) : 0, {}, {}, 0, 0, kv_head};
    warp_queries all = {run.first_row, base, n - base < EACH ? n - base : (uint32_t)EACH, {}, {}, 0, 0, kv_head};
    find_queries(all, a, group, lane);
    if (q.count)
        find_queries(q, a, group, lane);
    if (gridDim.z > 1 && end - page > SPRY_PAGES_CHUNK)
        end = page + SPRY_PAGES_CHUNK;
    if (a.window || a.ahead) {
        page = cores_pages<BLOCKS>::find(entries, page, end, all.lowest);
        uint32_t highest = cores_pages<BLOCKS>::find(entries, page, end, all.highest - 1);
        end = highest < end ? highest + 1 : end;
    }
    cores_pages<BLOCKS> pages = {(cores_room<BLOCKS> *)memory, entries, page / 2 * 2, end, {}};
    if (page < end) {
        pages.room->make_barriers();
        attend_cores<BLOCKS>(pages, q, all, a, lane);
    } else if (q.count && gridDim.z > 1) { /* a chunk that none of the queries sees */
        const page_sums<1> none = {};
        write_partial(a, none, false, q, q.first_row, blockIdx.z, 0, lane);
    }
}

#define ATTEND(blocks)                                                                                                 \
    SPRY_KERNEL(spry_attend_cores_##blocks, spry_attend_args, cores_shape<blocks>::THREADS, 1)                             \
    {                                                                                                                  \
        attend_runs_cores<blocks>(a);                                                                                  \
    }
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
ATTEND(2)
ATTEND(3)
ATTEND(4)
#else
/* An image without a kernel cannot be loaded. */
SPRY_KERNEL(spry_attend_no_cores, spry_attend_args, WARP)
{
    (void)a;
}
#endif
