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

/* Brings a head of the row to shared memory as attention wants it; what turn_head of pages.cuh does, with all loads at
 * once. */
template <int BLOCKS>
SPRY_DEVICE void turn_row(float *head, const float *from, const float *norm, bool turns, const spry_prepare_args &a,
                          uint32_t row, int lane)
{
    enum { PAIRS = (BLOCKS + 1) / 2 };
    float v[BLOCKS], weight[BLOCKS], cosine[PAIRS], sine[PAIRS], sum = 0;
    const float *cosines = a.cosine + (uint64_t)row * a.n_pairs, *sines = a.sine + (uint64_t)row * a.n_pairs;
    SPRY_UNROLL
    for (int k = 0; k < BLOCKS; k++) {
        v[k] = from[lane + k * WARP];
        weight[k] = norm ? norm[lane + k * WARP] : 1;
    }
    SPRY_UNROLL
    for (int k = 0; k < PAIRS; k++) {
        bool pair = turns && (uint32_t)(lane + k * WARP) < a.n_pairs;
        cosine[k] = pair ? cosines[lane + k * WARP] : 1;
        sine[k] = pair ? sines[lane + k * WARP] : 0;
    }
    if (norm) {
        SPRY_UNROLL
        for (int k = 0; k < BLOCKS; k++)
            sum = fmaf(v[k], v[k], sum);
        float scale = 1.0f / sqrtf(warp_sum(sum) / (float)(BLOCKS * WARP) + a.eps);
        SPRY_UNROLL
        for (int k = 0; k < BLOCKS; k++)
            v[k] = v[k] * scale * weight[k];
    }
    SPRY_UNROLL
    for (int k = 0; k < BLOCKS; k++)
        head[lane + k * WARP] = v[k];
    warp_wait();
    SPRY_UNROLL
    for (int k = 0; k < PAIRS; k++) {
        uint32_t i = (uint32_t)(lane + k * WARP), first = a.interleaved ? 2 * i : i;
        uint32_t second = a.interleaved ? first + 1 : i + a.n_pairs;
        if (!turns || i >= a.n_pairs)
            continue;
        float x = head[first], y = head[second];
        head[first] = x * cosine[k] - y * sine[k];
        head[second] = x * sine[k] + y * cosine[k];
    }
    warp_wait();
}

/* The queries of the block, and, in the block that `owns` the row's page, its key and value: a warp for each. */
template <int BLOCKS>
SPRY_DEVICE void prepare_row(decode_room<BLOCKS> &room, const spry_prepare_args &a, uint32_t row, uint32_t kv_head, bool owns)
{
    uint32_t n = BLOCKS * 32, n_kv = a.kv.n_kv_heads, group = a.n_heads / n_kv;
    int lane = (int)(threadIdx.x % WARP);
    const spry_step_row &at = a.rows[row];
    page_head page = head_of_page(a.kv, at.page, kv_head);
    SPRY_UNROLL_BY(1)
    for (uint32_t i = threadIdx.x / WARP; i < group + (owns ? 2 : 0); i += head_shape<BLOCKS>::WARPS) {
        bool is_q = i < group, is_k = i == group;
        const float *from = is_q ? a.q + ((uint64_t)row * a.n_heads + kv_head * group + i) * n
                                 : (is_k ? a.k : a.v) + ((uint64_t)row * n_kv + kv_head) * n;
        float *head = is_q ? room.heads[i] : is_k ? room.key : room.value;
        turn_row<BLOCKS>(head, from, is_q ? a.q_norm : is_k ? a.k_norm : (const float *)0, is_q || is_k, a, row, lane);
        SPRY_UNROLL
        for (int k = 0; !is_q && k < BLOCKS; k++) {
            uint32_t d = (uint32_t)(lane + k * WARP);
            uint16_t *to = is_k ? (uint16_t *)page.keys + d * PAGE_TOKENS + at.slot
                                : (uint16_t *)(page.values + (uint64_t)at.slot * a.kv.token_bytes) + d;
            *to = half_of_float(head[d]);
        }
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
    uint32_t first = (uint32_t)warp * ranks + rank, last = row.n_entries - 1, turn = 0xffffffffu; /* of the staged queries */
    warp_queries q = {number_of_row, 0, group, {}, {}, 0, 0, kv_head};
    find_queries(q, a, group, lane);
    decode_page now = {};
    page_words<BLOCKS, shape::PART> words;
    if (first <= last)
        now = find_number<shape::PART>(q, a, row, first, part);
    if (now.seen && first != last)
        load_page(words, now.page, a.kv.token_bytes, lane);
    if (d.prepare.q_norm && warp < 2)
        ask_ahead((warp ? d.prepare.k_norm : d.prepare.q_norm) + lane * BLOCKS);
    grid_wait();
    prepare_row<BLOCKS>(room, d.prepare, number_of_row, kv_head, last % ranks == rank);
    block_wait();
    SPRY_UNROLL_BY(1)
    for (uint32_t number = first; number <= last; number += ranks * shape::WARPS) {
        page_sums<shape::PART> s;
        if (number != first)
            now = find_number<shape::PART>(q, a, row, number, part);
        if (now.seen && (number != first || number == last))
            load_page(words, now.page, a.kv.token_bytes, lane);
        if (now.seen && now.entry.turn != turn)
            stage_queries<BLOCKS>(room.staged[warp], group, [&](uint32_t i) { return (const float *)room.heads[i]; }, a,
                                  now.entry.turn, lane);
        if (now.seen) {
            turn = now.entry.turn;
            attend_words<1, BLOCKS, shape::PART>(s, words, room.staged[warp], q, a, now.entry, lane);
        }
        write_partial<1, shape::PART>(a, s, now.seen, q, blockIdx.z, number, part, lane);
    }
    cluster_wait();
    const uint32_t n = BLOCKS * 32;
    SPRY_UNROLL_BY(1)
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
