/* Between the products and attention: head norms, rope, keys and values into their pages. A block of one warp for a row
 * and head: heads of q, then of k, then of v. */
#include "device/cuda/kernels/pages.cuh"

SPRY_DEVICE void normalise_head(float *head, const float *weight, uint32_t n, float eps, int lane)
{
    float sum = 0;
    for (uint32_t d = (uint32_t)lane; d < n; d += WARP)
        sum = fmaf(head[d], head[d], sum);
    float scale = 1.0f / sqrtf(warp_sum(sum) / (float)n + eps);
    for (uint32_t d = (uint32_t)lane; d < n; d += WARP)
        head[d] = head[d] * scale * weight[d];
}

template <class KV> SPRY_DEVICE void prepare_head(const spry_prepare_args &a)
{
    SPRY_SHARED float head[HEAD_DIM_MAX];
    uint32_t row = blockIdx.x, n = a.kv.head_dim, number = blockIdx.y;
    int lane = (int)threadIdx.x;
    bool is_q = number < a.n_heads, is_k = !is_q && number < a.n_heads + a.kv.n_kv_heads;
    uint32_t kv_head = is_q ? 0 : is_k ? number - a.n_heads : number - a.n_heads - a.kv.n_kv_heads;
    const float *from = is_q ? a.q + ((uint64_t)row * a.n_heads + number) * n
                             : (is_k ? a.k : a.v) + ((uint64_t)row * a.kv.n_kv_heads + kv_head) * n;
    for (uint32_t d = (uint32_t)lane; d < n; d += WARP)
        head[d] = from[d];
    const float *norm = is_q ? a.q_norm : is_k ? a.k_norm : (const float *)0;
    if (norm)
        normalise_head(head, norm, n, a.eps, lane);
    warp_wait();
    if (is_q || is_k)
        rotate_head(head, a.cosine + (uint64_t)row * a.n_pairs, a.sine + (uint64_t)row * a.n_pairs, a.n_pairs,
                    a.interleaved, lane);
    warp_wait();
    if (is_q) {
        for (uint32_t d = (uint32_t)lane; d < n; d += WARP)
            a.q[((uint64_t)row * a.n_heads + number) * n + d] = head[d];
        return;
    }
    page_head page = head_of_page(a.kv, a.rows[row].page, kv_head);
    if (is_k)
        store_key(page.keys, a.rows[row].slot, head, n, lane, KV());
    else
        store_value(page.values + (uint64_t)a.rows[row].slot * a.kv.token_bytes, head, n, lane, KV());
}

SPRY_KERNEL(spry_prepare_f16, spry_prepare_args, WARP)
{
    prepare_head<kv_f16>(a);
}

SPRY_KERNEL(spry_prepare_f32, spry_prepare_args, WARP)
{
    prepare_head<kv_f32>(a);
}

SPRY_KERNEL(spry_prepare_q8_0, spry_prepare_args, WARP)
{
    prepare_head<kv_q8_0>(a);
}
