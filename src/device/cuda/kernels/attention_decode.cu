/* Attention of rows that are the only new ones of their sequences, over pages of F16, in one kernel: head norms, rope, the
 * row's own keys and values into their page, attention and the folding of pages. The blocks of a cluster share the pages
 * of a row and key head; what they leave of each page the same blocks fold in order, as spry_attend_merge does.
 *
 * Pages without this row are loaded before the kernels that made its queries are done. The block that has the row's own
 * page stores into it before it reads it. */
#include "device/cuda/kernels/attention_pages.cuh"

template <int BLOCKS> struct decode_room {
    staged_queries<BLOCKS> staged[head_shape<BLOCKS>::WARPS];
    float heads[SPRY_DECODE_GROUP][BLOCKS * 32];
    float key[BLOCKS * 32], value[BLOCKS * 32];
};

/* The queries of the block, and, in the block that `owns` the row's page, its key and value. */
template <int BLOCKS>
SPRY_DEVICE void prepare_row(decode_room<BLOCKS> &room, const spry_prepare_args &a, uint32_t row, uint32_t kv_head, bool owns)
{
    uint32_t n = BLOCKS * 32, n_kv = a.kv.n_kv_heads, group = a.n_heads / n_kv, warp = threadIdx.x / WARP;
    int lane = (int)(threadIdx.x % WARP);
    for (uint32_t i = warp; i < group; i += head_shape<BLOCKS>::WARPS)
        turn_head(room.heads[i], a.q + ((uint64_t)row * a.n_heads + kv_head * group + i) * n, a.q_norm, true, a, row, lane);
    if (!owns)
        return;
    const spry_step_row &at = a.rows[row];
    page_head page = head_of_page(a.kv, at.page, kv_head);
    uint64_t from = ((uint64_t)row * n_kv + kv_head) * n;
    if (warp == head_shape<BLOCKS>::WARPS - 1) {
        turn_head(room.key, a.k + from, a.k_norm, true, a, row, lane);
        for (uint32_t d = (uint32_t)lane; d < n; d += WARP)
            store_coordinate(page.keys, at.slot, d, room.key[d], kv_f16());
    }
    if (warp == head_shape<BLOCKS>::WARPS - 2) {
        turn_head(room.value, a.v + from, (const float *)0, false, a, row, lane);
        store_value(page.values + (uint64_t)at.slot * a.kv.token_bytes, room.value, n, lane, kv_f16());
    }
}

/* A page that a warp works on. */
struct decode_page {
    spry_step_entry entry;
    seen_page page;
    bool seen;
};

template <int PART>
SPRY_DEVICE decode_page find_number(const warp_queries &q, const spry_attend_args &a, const spry_step_row &row,
                                    uint32_t number, uint32_t part)
{
    decode_page p = {a.entries[row.first_entry + number], {}, false};
    p.seen = page_seen(q, p.entry);
    p.page = find_page(q, a, p.entry, part * PART * 64);
    return p;
}

/* A grid of (blocks of a cluster, key heads, rows). Long heads are split over PARTS blocks. */
template <int BLOCKS> SPRY_DEVICE void attend_decode(const spry_decode_args &d)
{
    typedef head_shape<BLOCKS> shape;
    SPRY_SHARED decode_room<BLOCKS> room;
    const spry_attend_args &a = d.attend;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    uint32_t group = a.n_heads / a.kv.n_kv_heads, kv_head = blockIdx.y, part = blockIdx.x % shape::PARTS;
    uint32_t number_of_row = a.few[blockIdx.z];
    const spry_step_row row = a.rows[number_of_row];
    uint32_t rank = blockIdx.x / shape::PARTS, ranks = gridDim.x / shape::PARTS;
    uint32_t first = (uint32_t)warp * ranks + rank, last = row.n_entries - 1;
    warp_queries q = {number_of_row, 0, group, {}, {}, 0, 0, kv_head};
    find_queries(q, a, group, lane);
    decode_page now = {};
    page_words<BLOCKS, shape::PART> words;
    if (first <= last)
        now = find_number<shape::PART>(q, a, row, first, part);
    if (now.seen && first != last)
        load_page(words, now.page, a.kv.token_bytes, lane);
    grid_wait();
    prepare_row<BLOCKS>(room, d.prepare, number_of_row, kv_head, last % ranks == rank);
    block_wait();
    for (uint32_t number = first; number <= last; number += ranks * shape::WARPS) {
        page_sums<shape::PART> s;
        if (number != first)
            now = find_number<shape::PART>(q, a, row, number, part);
        if (now.seen && (number != first || number == last))
            load_page(words, now.page, a.kv.token_bytes, lane);
        if (now.seen) {
            stage_queries<BLOCKS>(room.staged[warp], group, [&](uint32_t i) { return (const float *)room.heads[i]; }, a,
                                  now.entry.turn, lane);
            attend_words<BLOCKS, shape::PART>(s, words, room.staged[warp], q, a, now.entry, lane);
        }
        write_partial<shape::PART>(a, s, now.seen, q, blockIdx.z, number, part, lane);
    }
    cluster_wait();
    const uint32_t n = BLOCKS * 32;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < group * n; i += gridDim.x * blockDim.x)
        merge_value(a, blockIdx.z, number_of_row, kv_head * group + i / n, row.n_entries, i % n);
}

#define ATTEND(blocks)                                                                                                 \
    SPRY_KERNEL_EARLY(spry_attend_decode_##blocks, spry_decode_args, head_shape<blocks>::WARPS *WARP)                  \
    {                                                                                                                  \
        attend_decode<blocks>(a);                                                                                      \
    }
ATTEND(1)
ATTEND(2)
ATTEND(3)
ATTEND(4)
ATTEND(8)
