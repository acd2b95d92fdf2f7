/* Attention over F16 pages with mma (attention_mma.cuh), compute capability 8.0 and later.
 *
 *   kernel                    grid                                                block         owner
 *   spry_attend_split_kv_mma  (decode tiles, KV heads * batches * parts, pages)   2 or 4 warps  a warp has one page
 *   spry_attend_combine_pages (decode rows, heads)                                4 warps       combines pages
 *   spry_attend_prefill_mma   (KV heads * batches, prefill tiles, splits or 1)    2 or 4 warps  a warp has 16 queries
 *
 * Prefill goes through all pages, or with split-KV through one chunk of 16 pages, whose partial results
 * spry_attend_combine_prefill combines. Dynamic shared memory: split_kv_smem has queries and one page per warp,
 * which the warp copies itself; prefill_smem has queries per warp and two pages, which all threads copy with
 * cp.async: one page is multiplied while the next one is copied. The wgmma prefill replaces prefill_mma on compute
 * capability 9.0. */
#include "device/cuda/kernels/attention_mma.cuh"
#include "device/cuda/smem_sizes.h"

/* ---- split-KV ---------------------------------------------------------------------------------------------------- */

template <int BLOCKS> struct split_kv_smem {
    typedef page_copy<BLOCKS, head_config<BLOCKS>::PART> copy;
    staged_queries<BLOCKS> staged[head_config<BLOCKS>::WARPS];
    unsigned char pages[head_config<BLOCKS>::WARPS][copy::BYTES];
};

/* Grid: (decode tiles, KV heads * batches of queries * parts, pages / warps). */
template <int BLOCKS> SPRY_DEVICE void attend_split_kv_mma(const spry_attend_args &a)
{
    typedef head_config<BLOCKS> config;
    SPRY_SMEM_DYNAMIC(memory, 1024);
    split_kv_smem<BLOCKS> &smem = *(split_kv_smem<BLOCKS> *)memory;
    static_assert(sizeof smem == spry_smem_split_kv(BLOCKS), "as launched");
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    uint32_t group = a.n_heads / a.kv.n_kv_heads, rest = blockIdx.y / a.kv.n_kv_heads, part = rest % config::PARTS;
    const spry_decode_tile tile = a.decode_tiles[blockIdx.x];
    const spry_step_row &row = a.rows[tile.first_row + tile.n_rows - 1];
    uint32_t number = blockIdx.z * config::WARPS + (uint32_t)warp, first = rest / config::PARTS * QUERIES;
    if (number >= row.n_entries) {
        pdl_wait();
        return;
    }
    warp_queries q = {
        tile.first_row, first, at_most(tile.n_rows * group - first), {}, {}, 0, 0, blockIdx.y % a.kv.n_kv_heads};
    find_queries(q, a, group, lane);
    const spry_step_entry entry = a.entries[row.first_entry + number];
    page_output<config::PART> s;
    typename split_kv_smem<BLOCKS>::copy page = {smem.pages[warp]};
    bool seen = page_visible(q, entry), old = entry.start + entry.count <= row.first_new;
    visible_page from = find_page(q, a, entry, part * config::PART * 64);
    if (!old) /* the page holds rows of this step */
        pdl_wait();
    if (seen) {
        page.template copy_keys<WARP>(from, (uint32_t)lane);
        page.template copy_values<WARP>(from, a.kv.token_bytes, (uint32_t)lane);
    }
    if (old)
        pdl_wait();
    if (seen) {
        float scores[4][4];
        stage_rows<BLOCKS>(smem.staged[warp], q, a, group, entry.rotation, lane);
        cp_async_wait_all();
        syncwarp();
        multiply_qk<BLOCKS>(scores, smem.staged[warp], page, lane);
        softmax_page(s, scores, q, a, entry, lane);
        sum_probs(s, pack_probs(scores, 0), pack_probs(scores, 1));
        multiply_pv(s, scores, page, 0, lane);
    }
    store_partial(a, s, seen, q, tile.partial_row, number, part, lane);
}

/* ---- prefill ----------------------------------------------------------------------------------------------------- */

/* Running max and sum over chunks of a lane's two queries. The accumulators are in the output array. */
struct chunk_totals {
    float max[2], sum[2];
};

/* Shared memory: queries of each warp, the page in use and the next one, chunk totals of each thread. */
template <int BLOCKS> struct prefill_smem {
    staged_queries<BLOCKS> staged[head_config<BLOCKS>::WARPS];
    unsigned char pages[2][page_copy<BLOCKS, BLOCKS>::BYTES];
    chunk_totals totals[head_config<BLOCKS>::WARPS * WARP];
};

/* Walks the entries that some query of the block sees; the next entry is loaded ahead. */
struct visible_entries {
    const spry_step_entry *entries;
    uint32_t number, end;
    spry_step_entry now, ahead;

    SPRY_METHOD void step(const warp_queries &all)
    {
        do {
            now = ahead;
            number++;
            ahead = entries[number + 1 < end ? number + 1 : end - 1];
        } while (number < end && !page_visible(all, now));
    }

    /* Positions before the first visible entry. */
    SPRY_METHOD void start(const spry_attend_args &a, const spry_step_row &last, uint32_t first, uint32_t limit)
    {
        entries = a.entries + last.first_entry;
        number = first - 1;
        end = limit;
        ahead = entries[first];
    }
};

template <int BLOCKS>
SPRY_DEVICE void copy_entry(unsigned char *smem, const spry_attend_args &a, const warp_queries &all,
                            const visible_entries &at)
{
    enum { THREADS = head_config<BLOCKS>::WARPS * WARP };
    const page_copy<BLOCKS, BLOCKS> page = {smem};
    if (at.number < at.end) {
        visible_page from = find_page(all, a, at.now, 0);
        page.template copy_keys<THREADS>(from, threadIdx.x);
        page.template copy_values<THREADS>(from, a.kv.token_bytes, threadIdx.x);
    }
    cp_async_commit();
}

/* Adds a chunk to the totals of a warp's queries; after the `last` one the result is complete. */
template <int PART>
SPRY_DEVICE void end_chunk(chunk_totals &total, const page_output<PART> &chunk, const warp_queries &q,
                           const spry_attend_args &a, uint32_t part, bool last, int lane)
{
    uint32_t group = a.n_heads / a.kv.n_kv_heads;
    SPRY_UNROLL
    for (int half = 0; half < 2; half++) {
        uint32_t i = (uint32_t)(lane / 4 + half * 8), head = query_head(q, group, i);
        float *to = a.out + ((uint64_t)query_row(q, group, i) * a.n_heads + head) * a.kv.head_dim + part * PART * 32;
        float2 *pairs = (float2 *)(to + lane % 4 * 2);
        float scale_old = 1, scale_new = 0;
        bool old = total.max[half] != -INFINITY,
             seen = online_softmax_scales(&total.max[half], &scale_old, &scale_new, chunk.max[half]);
        if (i >= q.count || !(seen || last))
            continue;
        if (seen)
            total.sum[half] = rescaled_add(total.sum[half], scale_old, chunk.sum[half], scale_new);
        float factor = last ? final_scale(a, head, total.max[half], total.sum[half]) : 1;
        SPRY_UNROLL
        for (int k = 0; k < PART * 4; k++) {
            float2 v = {0, 0};
            if (old)
                v = pairs[k * 4];
            if (seen) {
                v.x = rescaled_add(v.x, scale_old, chunk.out[k][half * 2], scale_new);
                v.y = rescaled_add(v.y, scale_old, chunk.out[k][half * 2 + 1], scale_new);
            }
            v.x *= factor;
            v.y *= factor;
            pairs[k * 4] = v;
        }
    }
}

/* Attends the queries of a warp to the block's visible pages from `first` on: to all chunks, or with split-KV to one. A
 * warp without queries helps to copy. */
template <int BLOCKS>
SPRY_DEVICE void attend_prefill_chunks(prefill_smem<BLOCKS> &smem, const warp_queries &q, const warp_queries &all,
                                       const spry_attend_args &a, const spry_step_row &last, uint32_t first,
                                       uint32_t part, int lane)
{
    enum { PART = head_config<BLOCKS>::PART, SOME = PART == 4 ? 2 : PART };
    staged_queries<BLOCKS> &staged = smem.staged[threadIdx.x / WARP];
    uint32_t rotation = 0xffffffffu, group = a.n_heads / a.kv.n_kv_heads, which = 0;
    page_output<PART> chunk;
    chunk_totals &total = smem.totals[threadIdx.x], none = {{-INFINITY, -INFINITY}, {0, 0}};
    bool split_kv = gridDim.z > 1;
    visible_entries at;
    total = none;
    at.start(a, last, first,
             split_kv && last.n_entries - first > SPRY_SPLIT_KV_PAGES ? first + SPRY_SPLIT_KV_PAGES : last.n_entries);
    at.step(all);
    clear_output(chunk);
    copy_entry<BLOCKS>(smem.pages[0], a, all, at);
    while (at.number < at.end) {
        const spry_step_entry entry = at.now;
        const page_copy<BLOCKS, BLOCKS> page = {smem.pages[which]};
        uint32_t limit = (at.number / SPRY_SPLIT_KV_PAGES + 1) * SPRY_SPLIT_KV_PAGES;
        which = 1 - which;
        at.step(all);
        copy_entry<BLOCKS>(smem.pages[which], a, all, at);
        cp_async_wait_group<1>();
        syncthreads();
        if (q.count && page_visible(q, entry)) {
            page_output<SOME> sums; /* a part of the head at a time */
            softmax_update update;
            float scores[4][4];
            if (rotation != entry.rotation)
                stage_rows<BLOCKS>(staged, q, a, group, entry.rotation, lane);
            rotation = entry.rotation;
            multiply_qk<BLOCKS>(scores, staged, page, lane);
            softmax_page(sums, scores, q, a, entry, lane);
            sum_probs(sums, pack_probs(scores, 0), pack_probs(scores, 1));
            update.update_max(chunk, sums);
            if (!warp_all(update.max_unchanged()))
                update.rescale(chunk);
            update.accumulate_sums(chunk, sums);
            SPRY_UNROLL
            for (int block = 0; block < PART; block += SOME) {
                multiply_pv(sums, scores, page, (int)part * PART + block, lane);
                update.accumulate<SOME * 4>(chunk.out + block * 4, sums.out, false);
            }
        }
        if (q.count && !split_kv && (at.number >= limit || at.number >= at.end)) {
            end_chunk(total, chunk, q, a, part, at.number >= at.end, lane);
            clear_output(chunk);
        }
        syncthreads();
    }
    if (q.count && split_kv)
        store_partial(a, chunk, rotation != 0xffffffffu, q, q.first_row, blockIdx.z, part, lane);
}

/* Grid: (KV heads * batches of queries, prefill tiles, splits or 1); the last tiles come first, because they see most.
 */
template <int BLOCKS> SPRY_DEVICE void attend_prefill_mma(const spry_attend_args &a)
{
    typedef head_config<BLOCKS> config;
    SPRY_SMEM_DYNAMIC(memory, 1024);
    static_assert(sizeof(prefill_smem<BLOCKS>) == spry_smem_prefill_mma(BLOCKS), "as launched");
    const uint32_t each = config::WARPS / config::PARTS * QUERIES;
    uint32_t warp = threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP;
    spry_row_range run = a.prefill_tiles[gridDim.y - 1 - blockIdx.y];
    const spry_step_row &last = a.rows[run.first_row + run.n_rows - 1];
    uint32_t group = a.n_heads / a.kv.n_kv_heads, n = run.n_rows * group, page = blockIdx.z * SPRY_SPLIT_KV_PAGES;
    uint32_t kv_head = blockIdx.x % a.kv.n_kv_heads, base = blockIdx.x / a.kv.n_kv_heads * each;
    uint32_t first = base + warp / config::PARTS * QUERIES;
    if (page >= last.n_entries || base >= n)
        return;
    warp_queries q = {run.first_row, first, first < n ? at_most(n - first) : 0, {}, {}, 0, 0, kv_head};
    warp_queries all = {run.first_row, base, n - base < each ? n - base : each, {}, {}, 0, 0, kv_head};
    if (q.count)
        find_queries(q, a, group, lane);
    find_queries(all, a, group, lane);
    attend_prefill_chunks<BLOCKS>(*(prefill_smem<BLOCKS> *)memory, q, all, a, last, page, warp % config::PARTS, lane);
}

/* Grid: (decode rows, heads). */
SPRY_KERNEL(spry_attend_combine_pages, spry_attend_args)
{
    combine_head<SPRY_SPLIT_KV_PAGES>(a, a.decode_rows[blockIdx.x], blockIdx.x, blockIdx.y);
}

/* Grid: (prefill tiles, heads, rows of a tile). */
SPRY_KERNEL(spry_attend_combine_prefill, spry_attend_args)
{
    const spry_row_range run = a.prefill_tiles[blockIdx.x];
    if (blockIdx.z < run.n_rows)
        combine_head<1>(a, run.first_row + blockIdx.z, run.first_row + blockIdx.z, blockIdx.y);
}

#define ATTEND(blocks)                                                                                                 \
    SPRY_KERNEL_PDL(spry_attend_split_kv_mma_##blocks, spry_attend_args)                                               \
    {                                                                                                                  \
        attend_split_kv_mma<blocks>(a);                                                                                \
    }                                                                                                                  \
    SPRY_KERNEL(spry_attend_prefill_mma_##blocks, spry_attend_args, 3)                                                 \
    {                                                                                                                  \
        attend_prefill_mma<blocks>(a);                                                                                 \
    }
ATTEND(1)
ATTEND(2)
ATTEND(3)
ATTEND(4)
ATTEND(8)
