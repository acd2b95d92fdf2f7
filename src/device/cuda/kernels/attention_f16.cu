/* Attention over pages of F16 with matrix instructions (attention_pages.cuh): rows whose pages are spread over warps, and
 * runs of rows. For few rows a warp takes a page, and spry_attend_merge_pages folds. For runs a warp goes through pages for its
 * 16 queries: through all of them where runs are many; otherwise a block takes a chunk, and spry_attend_merge_runs folds. */
#include "device/cuda/kernels/attention_pages.cuh"

/* ---- few rows ---------------------------------------------------------------------------------------------------- */

template <int BLOCKS> struct few_room {
    typedef page_copy<BLOCKS, head_shape<BLOCKS>::PART> copy;
    staged_queries<BLOCKS> staged[head_shape<BLOCKS>::WARPS];
    unsigned char pages[head_shape<BLOCKS>::WARPS][copy::BYTES];
};

/* A grid of (pieces, key heads * batches of queries * parts, pages in groups of warps). */
template <int BLOCKS> SPRY_DEVICE void attend_few_f16(const spry_attend_args &a)
{
    typedef head_shape<BLOCKS> shape;
    SPRY_SHARED_ASKED(memory, 1024);
    few_room<BLOCKS> &room = *(few_room<BLOCKS> *)memory;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    uint32_t group = a.n_heads / a.kv.n_kv_heads, rest = blockIdx.y / a.kv.n_kv_heads, part = rest % shape::PARTS;
    const spry_attend_piece piece = a.pieces[blockIdx.x];
    const spry_step_row &row = a.rows[piece.first_row + piece.n_rows - 1];
    uint32_t number = blockIdx.z * shape::WARPS + (uint32_t)warp, first = rest / shape::PARTS * QUERIES;
    if (number >= row.n_entries) {
        grid_wait();
        return;
    }
    warp_queries q = {piece.first_row, first, at_most(piece.n_rows * group - first), {}, {}, 0, 0,
                      blockIdx.y % a.kv.n_kv_heads};
    find_queries(q, a, group, lane);
    const spry_step_entry entry = a.entries[row.first_entry + number];
    page_sums<shape::PART> s;
    typename few_room<BLOCKS>::copy page = {room.pages[warp]};
    bool seen = page_seen(q, entry), old = entry.start + entry.count <= row.first_new;
    seen_page from = find_page(q, a, entry, part * shape::PART * 64);
    if (!old) /* something of this step is in it */
        grid_wait();
    if (seen) {
        page.template copy_keys<WARP>(from, (uint32_t)lane);
        page.template copy_values<WARP>(from, a.kv.token_bytes, (uint32_t)lane);
    }
    if (old)
        grid_wait();
    if (seen) {
        float scores[4][4];
        stage_rows<BLOCKS>(room.staged[warp], q, a, group, entry.turn, lane);
        copy_wait();
        warp_wait();
        score_page<BLOCKS>(scores, room.staged[warp], page, lane);
        weigh_page(s, scores, q, a, entry, lane);
        sum_weights(s, take_weights(scores, 0), take_weights(scores, 1));
        gather_page(s, scores, page, 0, lane);
    }
    write_partial(a, s, seen, q, piece.few, number, part, lane);
}

/* ---- many rows --------------------------------------------------------------------------------------------------- */

/* What chunks gave so far of a lane's two queries. Sums of values lie where the result goes. */
struct chunk_totals {
    float max[2], sum[2];
};

/* Shared memory of a block: queries, the page in use and the next one; totals of each thread. */
template <int BLOCKS> struct many_room {
    staged_queries<BLOCKS> staged[head_shape<BLOCKS>::WARPS];
    unsigned char pages[2][page_copy<BLOCKS, BLOCKS>::BYTES];
    chunk_totals totals[head_shape<BLOCKS>::WARPS * WARP];
};

/* Goes through the entries that some query of the block sees; the entry behind is on its way. */
struct seen_entries {
    const spry_step_entry *entries;
    uint32_t number, end;
    spry_step_entry now, ahead;

    SPRY_METHOD void step(const warp_queries &all)
    {
        do {
            now = ahead;
            number++;
            ahead = entries[number + 1 < end ? number + 1 : end - 1];
        } while (number < end && !page_seen(all, now));
    }

    /* Before the first one. */
    SPRY_METHOD void start(const spry_attend_args &a, const spry_step_row &last, uint32_t first, uint32_t behind)
    {
        entries = a.entries + last.first_entry;
        number = first - 1;
        end = behind;
        ahead = entries[first];
    }
};

template <int BLOCKS>
SPRY_DEVICE void copy_entry(unsigned char *room, const spry_attend_args &a, const warp_queries &all, const seen_entries &at)
{
    enum { THREADS = head_shape<BLOCKS>::WARPS * WARP };
    const page_copy<BLOCKS, BLOCKS> page = {room};
    if (at.number < at.end) {
        seen_page from = find_page(all, a, at.now, 0);
        page.template copy_keys<THREADS>(from, threadIdx.x);
        page.template copy_values<THREADS>(from, a.kv.token_bytes, threadIdx.x);
    }
    copy_commit();
}

/* Folds a chunk of a warp's queries; behind the `last` one is the result. */
template <int PART>
SPRY_DEVICE void end_chunk(chunk_totals &total, const page_sums<PART> &chunk, const warp_queries &q, const spry_attend_args &a,
                           uint32_t part, bool last, int lane)
{
    uint32_t group = a.n_heads / a.kv.n_kv_heads;
    SPRY_UNROLL
    for (int half = 0; half < 2; half++) {
        uint32_t i = (uint32_t)(lane / 4 + half * 8), head = query_head(q, group, i);
        float *to = a.out + ((uint64_t)query_row(q, group, i) * a.n_heads + head) * a.kv.head_dim + part * PART * 32;
        float2 *pairs = (float2 *)(to + lane % 4 * 2);
        float keep = 1, take = 0;
        bool old = total.max[half] != -INFINITY, seen = fold_factors(&total.max[half], &keep, &take, chunk.max[half]);
        if (i >= q.count || !(seen || last))
            continue;
        if (seen)
            total.sum[half] = folded(total.sum[half], keep, chunk.sum[half], take);
        float factor = last ? last_factor(a, head, total.max[half], total.sum[half]) : 1;
        SPRY_UNROLL
        for (int k = 0; k < PART * 4; k++) {
            float2 v = {0, 0};
            if (old)
                v = pairs[k * 4];
            if (seen) {
                v.x = folded(v.x, keep, chunk.out[k][half * 2], take);
                v.y = folded(v.y, keep, chunk.out[k][half * 2 + 1], take);
            }
            v.x *= factor;
            v.y *= factor;
            pairs[k * 4] = v;
        }
    }
}

/* The pages from `first` on that the block's queries see, for those of a warp: of all chunks, or, where they are spread over
 * blocks, of one. A warp without queries helps to copy. */
template <int BLOCKS>
SPRY_DEVICE void attend_chunks(many_room<BLOCKS> &room, const warp_queries &q, const warp_queries &all,
                               const spry_attend_args &a, const spry_step_row &last, uint32_t first, uint32_t part, int lane)
{
    enum { PART = head_shape<BLOCKS>::PART, SOME = PART == 4 ? 2 : PART };
    staged_queries<BLOCKS> &staged = room.staged[threadIdx.x / WARP];
    uint32_t turn = 0xffffffffu, group = a.n_heads / a.kv.n_kv_heads, which = 0;
    page_sums<PART> chunk;
    chunk_totals &total = room.totals[threadIdx.x], none = {{-INFINITY, -INFINITY}, {0, 0}};
    bool spread = gridDim.z > 1;
    seen_entries at;
    total = none;
    at.start(a, last, first, spread && last.n_entries - first > SPRY_PAGES_CHUNK ? first + SPRY_PAGES_CHUNK : last.n_entries);
    at.step(all);
    clear_sums(chunk);
    copy_entry<BLOCKS>(room.pages[0], a, all, at);
    while (at.number < at.end) {
        const spry_step_entry entry = at.now;
        const page_copy<BLOCKS, BLOCKS> page = {room.pages[which]};
        uint32_t behind = (at.number / SPRY_PAGES_CHUNK + 1) * SPRY_PAGES_CHUNK;
        which = 1 - which;
        at.step(all);
        copy_entry<BLOCKS>(room.pages[which], a, all, at);
        copy_wait_but<1>();
        block_wait();
        if (q.count && page_seen(q, entry)) {
            page_sums<SOME> sums; /* of some blocks at a time */
            page_fold fold;
            float scores[4][4];
            if (turn != entry.turn)
                stage_rows<BLOCKS>(staged, q, a, group, entry.turn, lane);
            turn = entry.turn;
            score_page<BLOCKS>(scores, staged, page, lane);
            weigh_page(sums, scores, q, a, entry, lane);
            sum_weights(sums, take_weights(scores, 0), take_weights(scores, 1));
            fold.weigh(chunk, sums);
            if (!warp_all(fold.keeps()))
                fold.rescale(chunk);
            fold.fold_sums(chunk, sums);
            SPRY_UNROLL
            for (int block = 0; block < PART; block += SOME) {
                gather_page(sums, scores, page, (int)part * PART + block, lane);
                fold.fold<SOME * 4>(chunk.out + block * 4, sums.out, false);
            }
        }
        if (q.count && !spread && (at.number >= behind || at.number >= at.end)) {
            end_chunk(total, chunk, q, a, part, at.number >= at.end, lane);
            clear_sums(chunk);
        }
        block_wait();
    }
    if (q.count && spread)
        write_partial(a, chunk, turn != 0xffffffffu, q, q.first_row, blockIdx.z, part, lane);
}

/* A grid of (key heads * batches of queries, runs, chunks or 1), the last runs first, because they see most. */
template <int BLOCKS> SPRY_DEVICE void attend_many_f16(const spry_attend_args &a)
{
    typedef head_shape<BLOCKS> shape;
    SPRY_SHARED_ASKED(memory, 1024);
    const uint32_t each = shape::WARPS / shape::PARTS * QUERIES;
    uint32_t warp = threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP;
    spry_attend_run run = a.runs[gridDim.y - 1 - blockIdx.y];
    const spry_step_row &last = a.rows[run.first_row + run.n_rows - 1];
    uint32_t group = a.n_heads / a.kv.n_kv_heads, n = run.n_rows * group, page = blockIdx.z * SPRY_PAGES_CHUNK;
    uint32_t kv_head = blockIdx.x % a.kv.n_kv_heads, base = blockIdx.x / a.kv.n_kv_heads * each;
    uint32_t first = base + warp / shape::PARTS * QUERIES;
    if (page >= last.n_entries || base >= n)
        return;
    warp_queries q = {run.first_row, first, first < n ? at_most(n - first) : 0, {}, {}, 0, 0, kv_head};
    warp_queries all = {run.first_row, base, n - base < each ? n - base : each, {}, {}, 0, 0, kv_head};
    if (q.count)
        find_queries(q, a, group, lane);
    find_queries(all, a, group, lane);
    attend_chunks<BLOCKS>(*(many_room<BLOCKS> *)memory, q, all, a, last, page, warp % shape::PARTS, lane);
}

/* A block for (row, head): what its pages left. */
SPRY_KERNEL(spry_attend_merge_pages, spry_attend_args, MERGE_THREADS)
{
    merge_head<SPRY_PAGES_CHUNK>(a, a.few[blockIdx.x], blockIdx.x, blockIdx.y);
}

/* A block for (run, head, row of the run): what its chunks left. */
SPRY_KERNEL(spry_attend_merge_runs, spry_attend_args, MERGE_THREADS)
{
    const spry_attend_run run = a.runs[blockIdx.x];
    if (blockIdx.z < run.n_rows)
        merge_head<1>(a, run.first_row + blockIdx.z, run.first_row + blockIdx.z, blockIdx.y);
}

#define ATTEND(blocks)                                                                                                 \
    SPRY_KERNEL_EARLY(spry_attend_pages_few_##blocks, spry_attend_args, head_shape<blocks>::WARPS *WARP)                     \
    {                                                                                                                  \
        attend_few_f16<blocks>(a);                                                                                     \
    }                                                                                                                  \
    SPRY_KERNEL(spry_attend_pages_many_##blocks, spry_attend_args, head_shape<blocks>::WARPS *WARP, 3)                    \
    {                                                                                                                  \
        attend_many_f16<blocks>(a);                                                                                    \
    }
ATTEND(1)
ATTEND(2)
ATTEND(3)
ATTEND(4)
ATTEND(8)
