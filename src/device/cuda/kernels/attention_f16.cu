/* Attention over pages of F16 with matrix instructions (attention_pages.cuh): rows whose pages are spread over warps, and
 * runs of rows. For few rows a warp takes a page, and spry_attend_merge folds; for many rows a warp goes through all pages
 * for its 16 queries. */
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
    SPRY_SHARED_LARGE(memory, sizeof(few_room<BLOCKS>));
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
        sum_weights(s, scores);
        gather_page(s, scores, page, 0, lane);
    }
    write_partial(a, s, seen, q, piece.few, number, part, lane);
}

/* ---- many rows --------------------------------------------------------------------------------------------------- */

/* What both sides are multiplied by when a page is folded into the sums of those before; nothing of a page that a query does not
 * see. */
struct page_fold {
    float keep[2], take[2];
    bool seen[2];

    template <int PART, int SOME> SPRY_METHOD void weigh(page_sums<PART> &total, const page_sums<SOME> &page)
    {
        SPRY_UNROLL
        for (int half = 0; half < 2; half++) {
            seen[half] = page.max[half] != -INFINITY;
            if (!seen[half])
                continue;
            float larger = fmaxf(total.max[half], page.max[half]);
            keep[half] = expf(total.max[half] - larger);
            take[half] = expf(page.max[half] - larger);
            total.max[half] = larger;
            total.sum[half] = fmaf(total.sum[half], keep[half], page.sum[half] * take[half]);
        }
    }

    /* Blocks of values from `block` on. */
    template <int PART, int SOME> SPRY_METHOD void fold(page_sums<PART> &total, const page_sums<SOME> &page, int block) const
    {
        SPRY_UNROLL
        for (int i = 0; i < SOME * 16; i++) {
            float *out = &total.out[block * 4 + i / 4][i % 4];
            if (seen[i % 4 / 2])
                *out = fmaf(*out, keep[i % 4 / 2], page.out[i / 4][i % 4] * take[i % 4 / 2]);
        }
    }
};

/* Shared memory of a block: queries, the page in use and the next one. */
template <int BLOCKS> struct many_room {
    staged_queries<BLOCKS> staged[head_shape<BLOCKS>::WARPS];
    unsigned char pages[2][page_copy<BLOCKS, BLOCKS>::BYTES];
};

template <int PART> SPRY_DEVICE void clear_sums(page_sums<PART> &total)
{
    for (int half = 0; half < 2; half++) {
        total.max[half] = -INFINITY;
        total.sum[half] = 0;
    }
    SPRY_UNROLL
    for (int i = 0; i < PART * 16; i++)
        total.out[i / 4][i % 4] = 0;
}

/* Goes through the entries that some query of the block sees; the entry behind is on its way. */
struct seen_entries {
    const spry_step_entry *entries;
    uint32_t number, count;
    spry_step_entry now, ahead;

    SPRY_METHOD void step(const warp_queries &all)
    {
        do {
            now = ahead;
            number++;
            ahead = entries[number + 1 < count ? number + 1 : count - 1];
        } while (number < count && !page_seen(all, now));
    }

    /* Before the first one. */
    SPRY_METHOD void start(const spry_attend_args &a, const spry_step_row &last)
    {
        entries = a.entries + last.first_entry;
        number = 0xffffffffu;
        count = last.n_entries;
        ahead = entries[0];
    }
};

template <int BLOCKS>
SPRY_DEVICE void copy_entry(unsigned char *room, const spry_attend_args &a, const warp_queries &all, const seen_entries &at)
{
    enum { THREADS = head_shape<BLOCKS>::WARPS * WARP };
    const page_copy<BLOCKS, BLOCKS> page = {room};
    if (at.number < at.count) {
        seen_page from = find_page(all, a, at.now, 0);
        page.template copy_keys<THREADS>(from, threadIdx.x);
        page.template copy_values<THREADS>(from, a.kv.token_bytes, threadIdx.x);
    }
    copy_commit();
}

/* The sums of all pages that the block's queries see, for those of a warp. A warp without queries helps to copy. */
template <int BLOCKS, int PART>
SPRY_DEVICE void attend_all(page_sums<PART> &total, many_room<BLOCKS> &room, const warp_queries &q,
                            const warp_queries &all, const spry_attend_args &a, const spry_step_row &last, int part,
                            int lane)
{
    enum { SOME = PART == 4 ? 2 : PART };
    staged_queries<BLOCKS> &staged = room.staged[threadIdx.x / WARP];
    uint32_t turn = 0xffffffffu, group = a.n_heads / a.kv.n_kv_heads, which = 0;
    seen_entries at;
    at.start(a, last);
    at.step(all);
    clear_sums(total);
    copy_entry<BLOCKS>(room.pages[0], a, all, at);
    while (at.number < at.count) {
        const spry_step_entry entry = at.now;
        const page_copy<BLOCKS, BLOCKS> page = {room.pages[which]};
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
            sum_weights(sums, scores);
            fold.weigh(total, sums);
            SPRY_UNROLL
            for (int block = 0; block < PART; block += SOME) {
                gather_page(sums, scores, page, part * PART + block, lane);
                fold.fold(total, sums, block);
            }
        }
        block_wait();
    }
}

/* A grid of (runs, key heads), the last runs first, because they see most. */
template <int BLOCKS> SPRY_DEVICE void attend_many_f16(const spry_attend_args &a)
{
    typedef head_shape<BLOCKS> shape;
    SPRY_SHARED_LARGE(memory, sizeof(many_room<BLOCKS>));
    const uint32_t each = shape::WARPS / shape::PARTS * QUERIES;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, part = warp % shape::PARTS;
    spry_attend_run run = a.runs[gridDim.x - 1 - blockIdx.x];
    const spry_step_row &last = a.rows[run.first_row + run.n_rows - 1];
    uint32_t group = a.n_heads / a.kv.n_kv_heads, n = run.n_rows * group;
    for (uint32_t base = 0; base < n; base += each) {
        uint32_t first = base + (uint32_t)(warp / shape::PARTS) * QUERIES;
        warp_queries q = {run.first_row, first, first < n ? at_most(n - first) : 0, {}, {}, 0, 0, blockIdx.y};
        warp_queries all = {run.first_row, base, n - base < each ? n - base : each, {}, {}, 0, 0, blockIdx.y};
        page_sums<shape::PART> total;
        if (q.count)
            find_queries(q, a, group, lane);
        find_queries(all, a, group, lane);
        attend_all<BLOCKS, shape::PART>(total, *(many_room<BLOCKS> *)memory, q, all, a, last, part, lane);
        for (int half = 0; half < 2; half++) {
            uint32_t i = (uint32_t)(lane / 4 + half * 8);
            if (i < q.count)
                write_values(a.out + ((uint64_t)query_row(q, group, i) * a.n_heads + query_head(q, group, i)) * a.kv.head_dim +
                                 part * shape::PART * 32,
                             total, half, last_factor(a, query_head(q, group, i), total.max[half], total.sum[half]), lane);
        }
    }
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
