/* Between the QKV product and attention: q = rope(norm(q)), k = rope(norm(k)); keys and values are stored into their
 * pages. Grid: (rows / 16, query heads + key heads + value heads); block: 8 warps. A block owns 16 rows of one head,
 * a warp 2 rows; keys pass through static shared memory, so that neighbouring threads store neighbouring tokens. All
 * KV types; heads of 64 and 128 that RoPE rotates fully, over F16 pages, have kernels of their own. Decode attention
 * fuses this step. */
#include "device/cuda/kernels/kv_pages.cuh"

enum { ROPE_KV_WARPS = SPRY_ROPE_KV_THREADS / WARP };

/* The head that a block works on. */
struct head_task {
    uint32_t number, kv_head; /* index of the head; KV head if it is a key or value */
    bool is_q, is_k;
    const float *norm;
};

SPRY_DEVICE head_task find_head(const spry_rope_kv_args &a)
{
    uint32_t number = blockIdx.y, n_kv = a.kv.n_kv_heads;
    bool is_q = number < a.n_heads, is_k = !is_q && number < a.n_heads + n_kv;
    head_task p = {number, is_q ? 0 : (number - a.n_heads) % n_kv, is_q, is_k,
                   is_q   ? a.q_norm
                   : is_k ? a.k_norm
                          : (const float *)0};
    return p;
}

template <class KV>
SPRY_DEVICE void prepare_head(const spry_rope_kv_args &a, const head_task &p, float *head, uint32_t row)
{
    uint32_t n = a.kv.head_dim;
    int lane = (int)(threadIdx.x % WARP);
    float *query = a.q + ((uint64_t)row * a.n_heads + p.number) * n;
    const float *from = p.is_q ? query : (p.is_k ? a.k : a.v) + ((uint64_t)row * a.kv.n_kv_heads + p.kv_head) * n;
    load_rotated_head(head, from, p.norm, p.is_q || p.is_k, a, row, lane);
    for (uint32_t d = (uint32_t)lane; p.is_q && d < n; d += WARP)
        query[d] = head[d];
    if (p.is_q)
        return;
    page_head page = head_of_page(a.kv, a.rows[row].page, p.kv_head);
    if (p.is_k)
        store_key_blocks(page.keys, a.rows[row].slot, head, n, lane, KV());
    else
        store_value(page.values + (uint64_t)a.rows[row].slot * a.kv.token_bytes, head, n, lane, KV());
}

template <class KV> SPRY_DEVICE void prepare_heads(const spry_rope_kv_args &a)
{
    SPRY_SMEM float heads[SPRY_ROPE_KV_ROWS * (HEAD_DIM_MAX + 1)];
    uint32_t n = a.kv.head_dim, first = blockIdx.x * SPRY_ROPE_KV_ROWS;
    head_task p = find_head(a);
    for (uint32_t i = threadIdx.x / WARP; i < SPRY_ROPE_KV_ROWS && first + i < a.n_rows; i += ROPE_KV_WARPS)
        prepare_head<KV>(a, p, heads + i * (n + 1), first + i);
    syncthreads();
    if (p.is_k)
        store_keys(a.kv, p.kv_head, a.rows + first, a.n_rows - first, heads, KV());
}

/* Heads that RoPE rotates fully, over F16 pages; all rows of a warp at once. */
template <int BLOCKS, bool NORM, bool NEIGHBOURS> SPRY_DEVICE void prepare_full_heads(const spry_rope_kv_args &a)
{
    enum { EACH = SPRY_ROPE_KV_ROWS / ROPE_KV_WARPS, N = BLOCKS * WARP };
    SPRY_SMEM float heads[SPRY_ROPE_KV_ROWS * (N + 1)];
    const head_task p = find_head(a);
    uint32_t first = blockIdx.x * SPRY_ROPE_KV_ROWS, own = threadIdx.x / WARP * EACH, n_kv = a.kv.n_kv_heads;
    int lane = (int)(threadIdx.x % WARP);
    float v[EACH][BLOCKS];
    SPRY_UNROLL
    for (uint32_t i = 0; i < EACH; i++) {
        uint32_t row = first + own + i < a.n_rows ? first + own + i : a.n_rows - 1;
        const float *from = p.is_q ? a.q + ((uint64_t)row * a.n_heads + p.number) * N
                                   : (p.is_k ? a.k : a.v) + ((uint64_t)row * n_kv + p.kv_head) * N;
        load_rotated_full<BLOCKS, NORM, NEIGHBOURS>(v[i], from, p.norm, p.is_q || p.is_k, a, row, lane);
    }
    SPRY_UNROLL
    for (uint32_t i = 0; i < EACH; i++) {
        uint32_t row = first + own + i;
        if (row >= a.n_rows)
            continue;
        float *to = p.is_q ? a.q + ((uint64_t)row * a.n_heads + p.number) * N : heads + (own + i) * (N + 1);
        SPRY_UNROLL
        for (int k = 0; k < BLOCKS; k++)
            to[lane + k * WARP] = v[i][k];
        if (p.is_q || p.is_k)
            continue;
        page_head page = head_of_page(a.kv, a.rows[row].page, p.kv_head);
        uint16_t *token = (uint16_t *)(page.values + (uint64_t)a.rows[row].slot * a.kv.token_bytes);
        SPRY_UNROLL
        for (int k = 0; k < BLOCKS; k++)
            token[lane + k * WARP] = half_of_float(v[i][k]);
    }
    syncthreads();
    if (p.is_k)
        store_keys(a.kv, p.kv_head, a.rows + first, a.n_rows - first, heads, kv_f16());
}

/* The name says the kind of heads, as in attention_decode_fast.cu. */
#define ROPE_KV_FULL(heads, blocks, norm, neighbours)                                                                  \
    SPRY_KERNEL(spry_rope_kv_##heads##_##blocks, spry_rope_kv_args)                                                    \
    {                                                                                                                  \
        prepare_full_heads<blocks, norm, neighbours>(a);                                                               \
    }
ROPE_KV_FULL(norm, 2, true, false)
ROPE_KV_FULL(norm, 4, true, false)
ROPE_KV_FULL(raw, 2, false, false)
ROPE_KV_FULL(raw, 4, false, false)
ROPE_KV_FULL(pairs, 2, false, true)
ROPE_KV_FULL(pairs, 4, false, true)

#define ROPE_KV(type, ...)                                                                                             \
    SPRY_KERNEL(spry_rope_kv_##type, spry_rope_kv_args)                                                                \
    {                                                                                                                  \
        prepare_heads<kv_##type>(a);                                                                                   \
    }
SPRY_KV_TYPES(ROPE_KV)
