/* Attention over pages of F16 with matrix instructions (attention_pages.cuh): rows whose pages are spread over warps, and
 * runs of rows. For few rows a warp takes a page, and spry_attend_merge folds; for many rows a warp goes through all pages
 * for its 16 queries. */
#include "device/cuda/kernels/attention_pages.cuh"

/* ---- few rows ---------------------------------------------------------------------------------------------------- */

/* A grid of (pieces, key heads * batches of queries * parts, pages in groups of warps). */
template <int BLOCKS> SPRY_DEVICE void attend_few_f16(const spry_attend_args &a)
{
    typedef head_shape<BLOCKS> shape;
    SPRY_SHARED staged_queries<BLOCKS> staged[shape::WARPS];
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
    page_words<BLOCKS, shape::PART> words;
    bool seen = page_seen(q, entry), old = entry.start + entry.count <= row.first_new;
    seen_page page = find_page(q, a, entry, part * shape::PART * 64);
    if (seen && old) /* nothing of this step is in it */
        load_page(words, page, a.kv.token_bytes, lane);
    grid_wait();
    if (seen && !old)
        load_page(words, page, a.kv.token_bytes, lane);
    if (seen) {
        stage_rows<BLOCKS>(staged[warp], q, a, group, entry.turn, lane);
        attend_words<2, BLOCKS, shape::PART>(s, words, staged[warp], q, a, entry, lane);
    }
    write_partial<2, shape::PART>(a, s, seen, q, piece.few, number, part, lane);
}

/* ---- many rows --------------------------------------------------------------------------------------------------- */

template <int PART> SPRY_DEVICE void fold_page(page_sums<PART> &total, const page_sums<PART> &page)
{
    SPRY_UNROLL
    for (int half = 0; half < 2; half++) {
        if (page.max[half] == -INFINITY)
            continue;
        float larger = fmaxf(total.max[half], page.max[half]);
        float keep = expf(total.max[half] - larger), take = expf(page.max[half] - larger);
        total.max[half] = larger;
        total.sum[half] = fmaf(total.sum[half], keep, page.sum[half] * take);
        SPRY_UNROLL
        for (int i = 0; i < PART * 8; i++) {
            float *out = &total.out[i / 2][half * 2 + i % 2];
            *out = fmaf(*out, keep, page.out[i / 2][half * 2 + i % 2] * take);
        }
    }
}

/* A page in shared memory, in pieces of 16 bytes, permuted so that lanes that load together use different banks. */
template <int BLOCKS> struct page_copy {
    enum { VALUE_STRIDE = BLOCKS <= 2 ? 128 : BLOCKS <= 4 ? 256 : 512, PIECES = BLOCKS * 4 };
    enum { KEYS = BLOCKS * 32 * PAGE_TOKENS * 2, BYTES = KEYS + PAGE_TOKENS * VALUE_STRIDE, PIECE = 16 };
    unsigned char *room;

    SPRY_METHOD unsigned char *key_piece(uint32_t d, uint32_t piece) const
    {
        return room + d / 2 * 128 + ((d % 2 * 4 + piece) ^ (d / 2 % 4 * 2)) * PIECE;
    }

    SPRY_METHOD unsigned char *value_piece(uint32_t token, uint32_t piece) const
    {
        return room + KEYS + token * VALUE_STRIDE + (piece ^ token / 8 * 2) * PIECE;
    }

    /* All threads of the block; of tokens that none of its queries sees the values of one that is seen. */
    SPRY_METHOD void copy(const seen_page &page, uint32_t token_bytes) const
    {
        SPRY_UNROLL
        for (uint32_t i = threadIdx.x; i < KEYS / PIECE; i += head_shape<BLOCKS>::WARPS * WARP)
            copy_ahead(key_piece(i / 4, i % 4), page.keys + i * PIECE);
        SPRY_UNROLL
        for (uint32_t i = threadIdx.x; i < PAGE_TOKENS * PIECES; i += head_shape<BLOCKS>::WARPS * WARP) {
            uint32_t token = i / PIECES < page.begin ? page.begin : i / PIECES;
            token = token < page.end ? token : page.end - 1;
            copy_ahead(value_piece(i / PIECES, i % PIECES), page.values + token * token_bytes + i % PIECES * PIECE);
        }
    }

    /* What load_page gives. */
    SPRY_METHOD uint2 key(int step, int i, int lane) const
    {
        uint32_t d = (uint32_t)(step * 16 + lane % 4 * 2 + i % 2 + i / 2 * 8);
        return *(const uint2 *)(key_piece(d, (uint32_t)(lane / 8)) + lane / 4 % 2 * 8);
    }

    SPRY_METHOD uint2 value(int quarter, int block, int i, int lane) const
    {
        uint32_t token = (uint32_t)(lane % 4 * 8 + quarter * 4 + i);
        return *(const uint2 *)(value_piece(token, (uint32_t)(block * 4 + lane / 8)) + lane / 4 % 2 * 8);
    }
};

/* Shared memory of a block: queries, the page in use and the next one. */
template <int BLOCKS> struct many_room {
    staged_queries<BLOCKS> staged[head_shape<BLOCKS>::WARPS];
    unsigned char pages[2][page_copy<BLOCKS>::BYTES];
};

/* The sums of one page alone, of which some query sees some token. */
template <int BLOCKS, int PART>
SPRY_DEVICE void attend_copy(page_sums<PART> &s, const page_copy<BLOCKS> &page, const staged_queries<BLOCKS> &staged,
                             const warp_queries &q, const spry_attend_args &a, const spry_step_entry &entry, int part,
                             int lane)
{
    float scores[4][4];
    score_page<BLOCKS>(scores, staged, [&](int step, int i) { return page.key(step, i, lane); }, lane);
    weigh_page<2>(s, scores, q, a, entry, lane);
    gather_page<2>(s, scores, [&](int quarter, int block, int i) {
        return page.value(quarter, part * PART + block, i, lane);
    });
}

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
    const page_copy<BLOCKS> page = {room};
    if (at.number < at.count)
        page.copy(find_page(all, a, at.now, 0), a.kv.token_bytes);
    copy_commit();
}

/* The sums of all pages that the block's queries see, for those of a warp. A warp without queries helps to copy. */
template <int BLOCKS, int PART>
SPRY_DEVICE void attend_all(page_sums<PART> &total, many_room<BLOCKS> &room, const warp_queries &q,
                            const warp_queries &all, const spry_attend_args &a, const spry_step_row &last, int part,
                            int lane)
{
    staged_queries<BLOCKS> &staged = room.staged[threadIdx.x / WARP];
    uint32_t turn = 0xffffffffu, group = a.n_heads / a.kv.n_kv_heads, which = 0;
    seen_entries at;
    at.start(a, last);
    at.step(all);
    clear_sums(total);
    copy_entry<BLOCKS>(room.pages[0], a, all, at);
    while (at.number < at.count) {
        const spry_step_entry entry = at.now;
        const page_copy<BLOCKS> page = {room.pages[which]};
        which = 1 - which;
        at.step(all);
        copy_entry<BLOCKS>(room.pages[which], a, all, at);
        copy_wait_but<1>();
        block_wait();
        if (q.count && page_seen(q, entry)) {
            page_sums<PART> sums;
            if (turn != entry.turn)
                stage_rows<BLOCKS>(staged, q, a, group, entry.turn, lane);
            turn = entry.turn;
            attend_copy<BLOCKS, PART>(sums, page, staged, q, a, entry, part, lane);
            fold_page(total, sums);
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
    SPRY_KERNEL(spry_attend_pages_many_##blocks, spry_attend_args, head_shape<blocks>::WARPS *WARP)                    \
    {                                                                                                                  \
        attend_many_f16<blocks>(a);                                                                                    \
    }
ATTEND(1)
ATTEND(2)
ATTEND(3)
ATTEND(4)
ATTEND(8)
