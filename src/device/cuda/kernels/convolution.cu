/* Short convolutions over tokens whose vectors lie in pages, in pieces of a head's size. */
#include "device/cuda/kernels/kv_pages.cuh"
#include "device/cuda/state_args.h"

enum { CONV_ROWS = SPRY_ROPE_KV_ROWS, CONV_THREADS = SPRY_ROPE_KV_THREADS };
static_assert(CONV_ROWS * CONV_ROWS == CONV_THREADS, "threads are rows by coordinates");

/* Where the piece of a block lies: as keys or as values of a place. */
struct conv_piece {
    spry_kv_pages kv;
    uint32_t head;
    bool is_key;
};

SPRY_DEVICE conv_piece find_piece(const spry_conv_args &a)
{
    uint32_t heads = a.kv.n_kv_heads, side = blockIdx.y / heads;
    conv_piece p = {a.kv, blockIdx.y % heads, side % 2 == 0};
    p.kv.key_offset += side / 2 * a.place_bytes;
    p.kv.value_offset += side / 2 * a.place_bytes;
    return p;
}

template <class KV> SPRY_DEVICE void store_rows(const spry_conv_args &a)
{
    SPRY_SMEM float heads[CONV_ROWS * (HEAD_DIM_MAX + 1)];
    conv_piece p = find_piece(a);
    uint32_t n = a.kv.head_dim, first = blockIdx.x * CONV_ROWS;
    int lane = (int)(threadIdx.x % WARP);
    for (uint32_t i = threadIdx.x / WARP; i < CONV_ROWS && first + i < a.n_rows; i += CONV_THREADS / WARP) {
        const spry_step_row &row = a.rows[first + i];
        const float *b = a.in + (uint64_t)(first + i) * 3 * a.n + blockIdx.y * n, *x = b + 2 * a.n;
        float *head = heads + i * (n + 1);
        page_head page = head_of_page(p.kv, row.page, p.head);
        for (uint32_t d = (uint32_t)lane; d < n; d += WARP)
            head[d] = b[d] * x[d];
        if (p.is_key)
            store_key_blocks(page.keys, row.slot, head, n, lane, KV());
        else
            store_value(page.values + (uint64_t)row.slot * a.kv.token_bytes, head, n, lane, KV());
    }
    syncthreads();
    if (p.is_key)
        store_keys(p.kv, p.head, a.rows + first, a.n_rows - first, heads, KV());
}

/* The sum for a coordinate of a row's piece, tokens ascending; before the first token there is nothing. */
template <class KV>
SPRY_DEVICE float convolved(const spry_conv_args &a, const conv_piece &p, const spry_step_row &row, uint32_t d)
{
    const spry_step_entry *entry = a.entries + row.first_entry + row.n_entries - 1;
    uint32_t n = a.kv.head_dim, at = row.position + 1 > a.reach ? row.position + 1 - a.reach : 0;
    const float *weight = a.weight + (uint64_t)(blockIdx.y * n + d) * a.reach + (at + a.reach - 1 - row.position);
    float sum = 0;
    while (entry->start > at)
        entry--;
    for (; at <= row.position; at++) {
        if (at >= entry->start + entry->count)
            entry++;
        page_head page = head_of_page(p.kv, entry->page, p.head);
        uint32_t token = at - entry->start;
        sum += *weight++ * (p.is_key ? load_key(page.keys, d, token, n, KV())
                                     : load_value(page.values + (uint64_t)token * a.kv.token_bytes, d, KV()));
    }
    return sum;
}

/* Neighbouring threads read what lies together: of keys neighbouring tokens, of values neighbouring coordinates, which
 * is also how rows are written. */
template <class KV> SPRY_DEVICE void convolve_rows(const spry_conv_args &a)
{
    SPRY_SMEM float sums[CONV_ROWS * (HEAD_DIM_MAX + 1)];
    conv_piece p = find_piece(a);
    uint32_t n = a.kv.head_dim, first = blockIdx.x * CONV_ROWS;
    uint32_t own = threadIdx.x / CONV_ROWS, begin = threadIdx.x % CONV_ROWS;
    uint32_t row = p.is_key ? begin : own;
    for (uint32_t d = p.is_key ? own : begin; first + row < a.n_rows && d < n; d += CONV_ROWS)
        sums[row * (n + 1) + d] = convolved<KV>(a, p, a.rows[first + row], d);
    syncthreads();
    for (uint32_t d = begin; first + own < a.n_rows && d < n; d += CONV_ROWS) {
        uint64_t number = first + own, at = blockIdx.y * n + d;
        a.out[number * a.n + at] =
            a.in[number * 3 * a.n + a.n + at] * (sums[own * (n + 1) + d] + (a.bias ? a.bias[at] : 0));
    }
}

#define CONVOLUTION(kv)                                                                                                \
    SPRY_KERNEL(spry_conv_store_##kv, spry_conv_args, CONV_THREADS)                                                    \
    {                                                                                                                  \
        store_rows<kv_##kv>(a);                                                                                        \
    }                                                                                                                  \
    SPRY_KERNEL(spry_convolve_##kv, spry_conv_args, CONV_THREADS)                                                      \
    {                                                                                                                  \
        convolve_rows<kv_##kv>(a);                                                                                     \
    }
CONVOLUTION(f16)
CONVOLUTION(f32)
CONVOLUTION(q8_0)
