/* Attention of rows that are the only new ones of their sequences, over pages of F16, in one kernel: head norms, rope, the
 * row's own keys and values into their page, attention and the folding of pages. The blocks of a cluster share the pages
 * of a row and key head; what they leave of each page the same blocks fold in order, as spry_attend_merge does.
 *
 * Pages without this row are loaded before the kernels that made its queries are done. The block that has the row's own
 * page stores into it before it reads it. */
#include "device/cuda/kernels/attention_pages.cuh"

template <int BLOCKS> struct decode_room {
    typedef page_copy<BLOCKS, head_shape<BLOCKS>::PART> copy;
    staged_queries<BLOCKS> staged[head_shape<BLOCKS>::WARPS];
    unsigned char pages[head_shape<BLOCKS>::WARPS][copy::BYTES];
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

/* The pages of a warp, one behind the other: the keys of the next one are on their way as soon as those of this one were
 * used, so are its values. */
template <int BLOCKS> struct decode_pages {
    typedef head_shape<BLOCKS> shape;
    typename decode_room<BLOCKS>::copy copy;
    const spry_step_entry *entries;
    uint32_t number, last, step, part;
    spry_step_entry now, next;
    int lane;

    SPRY_METHOD spry_step_entry entry(uint32_t i) const
    {
        return entries[i <= last ? i : last];
    }

    SPRY_METHOD void copy_keys(const spry_attend_args &a, const warp_queries &q, uint32_t of, const spry_step_entry &e) const
    {
        if (of <= last && page_seen(q, e))
            copy.template copy_keys<WARP, 4>(find_page(q, a, e, part * shape::PART * 64), (uint32_t)lane);
        copy_commit();
    }

    SPRY_METHOD void copy_values(const spry_attend_args &a, const warp_queries &q, uint32_t of, const spry_step_entry &e) const
    {
        if (of <= last && page_seen(q, e))
            copy.template copy_values<WARP, 4>(find_page(q, a, e, part * shape::PART * 64), a.kv.token_bytes, (uint32_t)lane);
        copy_commit();
    }

    SPRY_METHOD void copy_both(const spry_attend_args &a, const warp_queries &q) const
    {
        copy_keys(a, q, number, now);
        copy_values(a, q, number, now);
    }

    /* What has arrived is there for all lanes; what was used by all may be written over. */
    SPRY_METHOD void arrive() const
    {
        copy_wait_but<1>();
        warp_wait();
    }
};

/* A grid of (blocks of a cluster, key heads, rows). Long heads are split over PARTS blocks. */
template <int BLOCKS> SPRY_DEVICE void attend_decode(const spry_decode_args &d)
{
    typedef head_shape<BLOCKS> shape;
    SPRY_SHARED_LARGE(memory, sizeof(decode_room<BLOCKS>));
    decode_room<BLOCKS> &room = *(decode_room<BLOCKS> *)memory;
    const spry_attend_args &a = d.attend;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    uint32_t group = a.n_heads / a.kv.n_kv_heads, kv_head = blockIdx.y, part = blockIdx.x % shape::PARTS;
    uint32_t number_of_row = a.few[blockIdx.z], turn = 0xffffffffu; /* of the staged queries */
    const spry_step_row row = a.rows[number_of_row];
    uint32_t rank = blockIdx.x / shape::PARTS, ranks = gridDim.x / shape::PARTS;
    warp_queries q = {number_of_row, 0, group, {}, {}, 0, 0, kv_head};
    find_queries(q, a, group, lane);
    decode_pages<BLOCKS> p = {{room.pages[warp]}, a.entries + row.first_entry, (uint32_t)warp * ranks + rank,
                              row.n_entries - 1, ranks * shape::WARPS, part, {}, {}, lane};
    p.now = p.entry(p.number);
    p.next = p.entry(p.number + p.step);
    uint32_t own = p.number == p.last; /* the row's own page, which is not written yet */
    SPRY_UNROLL_BY(1)
    for (uint32_t round = 0; round < 2; round++) {
        if (round == own)
            p.copy_both(a, q);
        if (round)
            break;
        if (d.prepare.q_norm && warp < 2)
            ask_ahead((warp ? d.prepare.k_norm : d.prepare.q_norm) + lane * BLOCKS);
        grid_wait();
        prepare_row<BLOCKS>(room, d.prepare, number_of_row, kv_head, p.last % ranks == rank);
        block_wait();
    }
    SPRY_UNROLL_BY(1)
    for (; p.number <= p.last; p.number += p.step, p.now = p.next, p.next = p.entry(p.number + p.step)) {
        page_sums<shape::PART> s;
        float scores[4][4];
        bool seen = page_seen(q, p.now);
        if (seen && p.now.turn != turn) {
            stage_queries<BLOCKS, 1>(room.staged[warp], group, [&](uint32_t i) { return (const float *)room.heads[i]; }, a,
                                  p.now.turn, lane);
            turn = p.now.turn;
        }
        p.arrive();
        if (seen)
            score_page<BLOCKS>(scores, room.staged[warp], p.copy, lane);
        warp_wait();
        p.copy_keys(a, q, p.number + p.step, p.next);
        if (seen)
            weigh_page<1>(s, scores, q, a, p.now, lane);
        p.arrive();
        if (seen)
            gather_page<1>(s, scores, p.copy, 0, lane);
        warp_wait();
        p.copy_values(a, q, p.number + p.step, p.next);
        write_partial<1, shape::PART>(a, s, seen, q, blockIdx.z, p.number, part, lane);
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
