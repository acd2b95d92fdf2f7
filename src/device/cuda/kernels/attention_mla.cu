/* Multi-head latent attention (MLA) over pages of F16, F32 or Q8_0, compute capability 8.0 and later. All heads
 * share one key [rotated part | latents]; the latents are also the value: out = softmax(scale * q K^T) K_latents.
 *
 *   kernel    grid                             block     a block owns
 *   rope_kv   (rows / 16, heads + 1)           8 warps   16 rows of a query head, or of the key
 *   split_kv  (decode tiles, batches, pages)   8 warps   one page for 16 queries; spry_attend_combine combines
 *   prefill   (prefill tiles, batches)         8 warps   all pages for 16 queries
 *
 * Keys are transposed in pages. For scores a lane has a token and a warp a part of the coordinates; the parts are
 * added in order. For values a thread has a coordinate and loops over the page's tokens. Pages are combined in
 * order. Dynamic shared memory: mla_smem, then the queries [key_dim, QUERY_STRIDE]. */
#include "device/cuda/kernel_args.h"
#include "device/cuda/kernels/attention_mma.cuh"

enum {
    MLA_WARPS = SPRY_MLA_THREADS / WARP,
    QUERY_STRIDE = SPRY_MLA_QUERY_STRIDE,            /* more than QUERIES, to avoid bank conflicts */
    VALUES = SPRY_MLA_VALUES_MAX / SPRY_MLA_THREADS, /* coordinates per thread */
};

/* ---- slots of heads ---------------------------------------------------------------------------------------------- */

SPRY_KERNEL(spry_mla_slots, spry_mla_slots_args)
{
    uint32_t slot = blockIdx.x * blockDim.x + threadIdx.x, head = slot / a.each, row = slot % a.each;
    if (head >= a.n_heads)
        return;
    a.source[slot] = row < a.n_rows ? (int32_t)(row * a.n_heads + head) : -1;
    if (slot % a.align == 0)
        a.heads[slot / a.align] = (int32_t)head;
}

SPRY_KERNEL(spry_mla_join, spry_mla_join_args)
{
    for (uint32_t i = threadIdx.x; i < a.n_heads * a.n; i += blockDim.x)
        a.out[(uint64_t)blockIdx.x * a.n_heads * a.n + i] =
            a.slots[((uint64_t)(i / a.n) * a.each + blockIdx.x) * a.n + i % a.n];
}

/* ---- queries and keys -------------------------------------------------------------------------------------------- */

/* A warp prepares a query head, or the key, of a row in `head`; the query is also stored in place. */
template <class KV>
SPRY_DEVICE void prepare_mla_head(const spry_mla_rope_kv_args &a, float *head, uint32_t number, uint32_t row)
{
    bool is_key = number == a.n_heads;
    uint32_t n = a.kv.head_dim, n_rotated = n - a.n_values, at = row * a.n_heads + number;
    int lane = (int)(threadIdx.x % WARP);
    const float *key = a.k + (uint64_t)row * n;
    const float *rotated = is_key ? key + a.n_values : a.raw + (uint64_t)at * a.raw_dim + a.raw_dim - n_rotated;
    const float *rest = is_key ? key : a.taken + ((uint64_t)number * a.each + row) * a.n_values;
    for (uint32_t d = (uint32_t)lane; d < n; d += WARP)
        head[d] = d < n_rotated ? rotated[d] : rest[d - n_rotated];
    syncwarp();
    if (is_key)
        normalise_head(head + n_rotated, a.norm, a.n_values, a.eps, lane);
    rotate_head(head, a.cosine + (uint64_t)row * a.n_pairs, a.sine + (uint64_t)row * a.n_pairs, a.n_pairs,
                a.interleaved, lane);
    syncwarp();
    for (uint32_t d = (uint32_t)lane; !is_key && d < n; d += WARP)
        a.q[(uint64_t)at * n + d] = head[d];
    if (is_key)
        store_key_blocks(head_of_page(a.kv, a.rows[row].page, 0).keys, a.rows[row].slot, head, n, lane, KV());
}

template <class KV> SPRY_DEVICE void prepare_mla(const spry_mla_rope_kv_args &a)
{
    SPRY_SMEM float heads[SPRY_ROPE_KV_ROWS * (SPRY_MLA_KEY_MAX + 1)];
    uint32_t n = a.kv.head_dim, first = blockIdx.x * SPRY_ROPE_KV_ROWS, own = threadIdx.x % SPRY_ROPE_KV_ROWS;
    for (uint32_t i = threadIdx.x / WARP; i < SPRY_ROPE_KV_ROWS && first + i < a.n_rows;
         i += SPRY_ROPE_KV_THREADS / WARP)
        prepare_mla_head<KV>(a, heads + i * (n + 1), blockIdx.y, first + i);
    syncthreads();
    if (blockIdx.y < a.n_heads || first + own >= a.n_rows)
        return;
    const spry_step_row &row = a.rows[first + own];
    unsigned char *keys = head_of_page(a.kv, row.page, 0).keys;
    for (uint32_t d = threadIdx.x / SPRY_ROPE_KV_ROWS; d < n; d += SPRY_ROPE_KV_THREADS / SPRY_ROPE_KV_ROWS)
        store_coordinate(keys, row.slot, d, heads[own * (n + 1) + d], KV());
}

/* ---- one page ---------------------------------------------------------------------------------------------------- */

/* Shared memory of a block; the queries follow, [key_dim, QUERY_STRIDE]. */
struct mla_smem {
    float parts[MLA_WARPS][QUERIES][WARP]; /* partial scores of each warp */
    float weights[PAGE_TOKENS][QUERY_STRIDE];
    float max[QUERIES], sum[QUERIES];             /* running max and sum */
    float scale_old[QUERIES], scale_new[QUERIES]; /* scales when the page is added */
};

static_assert(sizeof(mla_smem) == SPRY_MLA_SMEM && (int)QUERIES == (int)SPRY_MLA_QUERIES, "as launched");

/* A thread's view of the block's queries, and its accumulators. */
struct mla_queries {
    warp_queries q; /* begin and end: of query threadIdx.x / WARP and of the one MLA_WARPS later */
    float *staged;
    float total[VALUES][QUERIES];
};

SPRY_DEVICE void find_mla_queries(mla_queries &l, mla_smem &smem, const spry_attend_args &a, uint32_t first_row,
                                  uint32_t first, uint32_t count)
{
    warp_queries q = {first_row, first, count, {0, 0}, {0, 0}, 0, 0, 0};
    uint32_t unused;
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t i = threadIdx.x / WARP + half * MLA_WARPS;
        if (i < count)
            see(&q.begin[half], &q.end[half], a, query_row(q, a.n_heads, i));
    }
    see(&q.lowest, &unused, a, query_row(q, a.n_heads, 0));
    see(&unused, &q.highest, a, query_row(q, a.n_heads, count - 1));
    l.q = q;
    l.staged = (float *)(&smem + 1);
    SPRY_UNROLL
    for (int i = 0; i < VALUES * QUERIES; i++)
        l.total[i / QUERIES][i % QUERIES] = 0;
    if (threadIdx.x < QUERIES) {
        smem.max[threadIdx.x] = -INFINITY;
        smem.sum[threadIdx.x] = 0;
    }
}

/* Loads the queries into shared memory, rotated for a page that is used away from where it was computed. */
SPRY_DEVICE void stage_mla(const mla_queries &l, const spry_attend_args &a, uint32_t key_dim, uint32_t rotation)
{
    for (uint32_t at = threadIdx.x; at < QUERIES * key_dim; at += SPRY_MLA_THREADS) {
        uint32_t i = at / key_dim, d = at % key_dim, valid = i < l.q.count ? i : 0;
        const float *query =
            a.q +
            ((uint64_t)query_row(l.q, a.n_heads, valid) * a.n_heads + query_head(l.q, a.n_heads, valid)) * key_dim;
        l.staged[d * QUERY_STRIDE + i] = rotation ? rotated_value(a, query, rotation, d) : query[d];
    }
}

/* Scores over the warp's coordinates only; each lane has one token. */
template <class KV>
SPRY_DEVICE void multiply_qk_mla(mla_smem &smem, const mla_queries &l, const unsigned char *keys, uint32_t key_dim)
{
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, each = (key_dim + MLA_WARPS - 1) / MLA_WARPS;
    uint32_t end = (warp + 1) * each < key_dim ? (warp + 1) * each : key_dim;
    float scores[QUERIES] = {};
    SPRY_UNROLL_BY(8)
    for (uint32_t d = warp * each; d < end; d++) {
        float key = load_key(keys, d, lane, key_dim, KV());
        const float4 *queries = (const float4 *)(l.staged + d * QUERY_STRIDE);
        SPRY_UNROLL
        for (int i = 0; i < QUERIES / 4; i++) {
            float4 four = queries[i];
            scores[i * 4] = fmaf(four.x, key, scores[i * 4]);
            scores[i * 4 + 1] = fmaf(four.y, key, scores[i * 4 + 1]);
            scores[i * 4 + 2] = fmaf(four.z, key, scores[i * 4 + 2]);
            scores[i * 4 + 3] = fmaf(four.w, key, scores[i * 4 + 3]);
        }
    }
    SPRY_UNROLL
    for (int i = 0; i < QUERIES; i++)
        smem.parts[warp][i][lane] = scores[i];
}

/* Turns scores into probabilities and updates the running max and sum; a warp has two queries. `alone`: the page's own
 * max and sum are kept, to be combined later. */
SPRY_DEVICE void softmax_mla(mla_smem &smem, const mla_queries &l, const spry_attend_args &a,
                             const spry_step_entry &entry, bool alone)
{
    uint32_t lane = threadIdx.x % WARP, position = entry.start + lane;
    SPRY_UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t i = threadIdx.x / WARP + half * MLA_WARPS;
        bool seen = lane < entry.count && position >= l.q.begin[half] && position < l.q.end[half];
        float score = 0, max = smem.max[i], sum = smem.sum[i], scale_old = 1, scale_new = 0;
        for (int part = 0; part < MLA_WARPS; part++)
            score += smem.parts[part][i][lane];
        score *= a.scale;
        score = a.softcap != 0 ? a.softcap * tanhf(score / a.softcap) : score;
        float page_max = warp_max(seen ? score : -INFINITY);
        float weight = seen ? expf(score - page_max) : 0, page_sum = warp_sum(weight);
        smem.weights[lane][i] = weight;
        if (alone) {
            max = page_max;
            sum = page_sum;
            scale_new = 1;
        } else if (online_softmax_scales(&max, &scale_old, &scale_new, page_max)) {
            sum = rescaled_add(sum, scale_old, page_sum, scale_new);
        }
        syncwarp();
        if (lane == 0) {
            smem.max[i] = max;
            smem.sum[i] = sum;
            smem.scale_old[i] = scale_old;
            smem.scale_new[i] = scale_new;
        }
    }
}

/* Loads coordinate d of eight tokens. Overloads for some types need fewer loads. */
template <class KV>
SPRY_DEVICE void load_tokens(float out[8], const unsigned char *keys, uint32_t d, uint32_t token, uint32_t key_dim, KV)
{
    for (uint32_t i = 0; i < 8; i++)
        out[i] = load_key(keys, d, token + i, key_dim, KV());
}

SPRY_DEVICE void load_tokens(float out[8], const unsigned char *keys, uint32_t d, uint32_t token, uint32_t, kv_f16)
{
    uint4 words = *(const uint4 *)(keys + (d * PAGE_TOKENS + token) * 2);
    const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
    SPRY_UNROLL
    for (int i = 0; i < 8; i++)
        out[i] = float_of_half((uint16_t)(pairs[i / 2] >> i % 2 * 16));
}

SPRY_DEVICE void load_tokens(float out[8], const unsigned char *keys, uint32_t d, uint32_t token, uint32_t, kv_f32)
{
    SPRY_UNROLL
    for (int i = 0; i < 2; i++) {
        float4 four = ((const float4 *)(keys + (d * PAGE_TOKENS + token) * 4))[i];
        out[i * 4] = four.x;
        out[i * 4 + 1] = four.y;
        out[i * 4 + 2] = four.z;
        out[i * 4 + 3] = four.w;
    }
}

SPRY_DEVICE void load_tokens(float out[8], const unsigned char *keys, uint32_t d, uint32_t token, uint32_t key_dim,
                             kv_q8_0)
{
    uint2 words = *(const uint2 *)(keys + d * PAGE_TOKENS + token);
    load_tokens(out, keys + key_dim * PAGE_TOKENS, d / 32, token, 0, kv_f16()); /* the scales */
    SPRY_UNROLL
    for (int i = 0; i < 8; i++)
        out[i] *= (float)(int8_t)((i < 4 ? words.x : words.y) >> i % 4 * 8);
}

/* Accumulates the page's values; a thread has a coordinate. Tokens outside of [begin, end) may hold anything, because
 * no query sees them. */
template <class KV>
SPRY_DEVICE void multiply_pv_mla(const mla_smem &smem, mla_queries &l, const unsigned char *keys, uint32_t n_values,
                                 uint32_t key_dim, uint32_t begin, uint32_t end)
{
    SPRY_UNROLL
    for (int v = 0; v < VALUES; v++) {
        uint32_t d = threadIdx.x + (uint32_t)v * SPRY_MLA_THREADS;
        float page[QUERIES] = {};
        if (d >= n_values)
            break;
        SPRY_UNROLL_BY(1)
        for (uint32_t first = begin / 8 * 8; first < end; first += 8) {
            float values[8];
            load_tokens(values, keys, key_dim - n_values + d, first, key_dim, KV());
            SPRY_UNROLL
            for (uint32_t j = 0; j < 8; j++) {
                const float4 *weights = (const float4 *)smem.weights[first + j];
                if (first + j < begin || first + j >= end)
                    continue;
                SPRY_UNROLL
                for (int i = 0; i < QUERIES / 4; i++) {
                    float4 four = weights[i];
                    page[i * 4] = fmaf(four.x, values[j], page[i * 4]);
                    page[i * 4 + 1] = fmaf(four.y, values[j], page[i * 4 + 1]);
                    page[i * 4 + 2] = fmaf(four.z, values[j], page[i * 4 + 2]);
                    page[i * 4 + 3] = fmaf(four.w, values[j], page[i * 4 + 3]);
                }
            }
        }
        SPRY_UNROLL
        for (int i = 0; i < QUERIES; i++)
            l.total[v][i] = rescaled_add(l.total[v][i], smem.scale_old[i], page[i], smem.scale_new[i]);
    }
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* Attends to pages [first, end) of a table; `alone`: there is only one page, and its result is combined later. */
template <class KV>
SPRY_DEVICE void attend_mla(mla_smem &smem, mla_queries &l, const spry_mla_attend_args &args,
                            const spry_step_entry *entries, uint32_t first, uint32_t end, bool alone)
{
    const spry_attend_args &a = args.attend;
    uint32_t staged = 0xffffffffu;
    for (uint32_t number = first; number < end; number++) {
        const spry_step_entry entry = entries[number];
        if (!page_visible(l.q, entry))
            continue;
        visible_page page = find_page(l.q, a, entry, 0);
        if (staged != entry.rotation) {
            stage_mla(l, a, args.key_dim, entry.rotation);
            staged = entry.rotation;
            syncthreads();
        }
        multiply_qk_mla<KV>(smem, l, page.keys, args.key_dim);
        syncthreads();
        softmax_mla(smem, l, a, entry, alone);
        syncthreads();
        multiply_pv_mla<KV>(smem, l, page.keys, a.kv.head_dim, args.key_dim, page.begin, page.end);
    }
    syncthreads();
}

/* Stores the accumulators of query i, times `factor`. */
SPRY_DEVICE void store_mla(float *to, const mla_queries &l, int i, uint32_t n_values, float factor)
{
    SPRY_UNROLL
    for (int v = 0; v < VALUES; v++)
        if (threadIdx.x + (uint32_t)v * SPRY_MLA_THREADS < n_values)
            to[threadIdx.x + (uint32_t)v * SPRY_MLA_THREADS] = l.total[v][i] * factor;
}

template <class KV> SPRY_DEVICE void attend_mla_split_kv(const spry_mla_attend_args &args)
{
    SPRY_SMEM_DYNAMIC(memory, 1024);
    mla_smem &smem = *(mla_smem *)memory;
    const spry_attend_args &a = args.attend;
    const spry_decode_tile tile = a.decode_tiles[blockIdx.x];
    const spry_step_row &last = a.rows[tile.first_row + tile.n_rows - 1];
    uint32_t first = blockIdx.y * QUERIES, number = blockIdx.z;
    if (first >= tile.n_rows * a.n_heads || number >= last.n_entries)
        return;
    mla_queries l;
    find_mla_queries(l, smem, a, tile.first_row, first, at_most(tile.n_rows * a.n_heads - first));
    attend_mla<KV>(smem, l, args, a.entries + last.first_entry, number, number + 1, true);
    SPRY_UNROLL
    for (int i = 0; i < QUERIES; i++) {
        if ((uint32_t)i >= l.q.count)
            continue;
        float *to = partial_at(a, tile.partial_row + (first + (uint32_t)i) / a.n_heads,
                               query_head(l.q, a.n_heads, (uint32_t)i), number);
        if (threadIdx.x < 2)
            to[threadIdx.x] = threadIdx.x ? smem.sum[i] : smem.max[i];
        if (smem.max[i] != -INFINITY)
            store_mla(to + SPRY_PARTIAL_HEADER, l, i, a.kv.head_dim, 1);
    }
}

template <class KV> SPRY_DEVICE void attend_mla_prefill(const spry_mla_attend_args &args)
{
    SPRY_SMEM_DYNAMIC(memory, 1024);
    mla_smem &smem = *(mla_smem *)memory;
    const spry_attend_args &a = args.attend;
    const spry_row_range run = a.prefill_tiles[blockIdx.x];
    const spry_step_row &last = a.rows[run.first_row + run.n_rows - 1];
    uint32_t first = blockIdx.y * QUERIES;
    if (first >= run.n_rows * a.n_heads)
        return;
    mla_queries l;
    find_mla_queries(l, smem, a, run.first_row, first, at_most(run.n_rows * a.n_heads - first));
    attend_mla<KV>(smem, l, args, a.entries + last.first_entry, 0, last.n_entries, false);
    SPRY_UNROLL
    for (int i = 0; i < QUERIES; i++) {
        if ((uint32_t)i >= l.q.count)
            continue;
        uint32_t row = query_row(l.q, a.n_heads, (uint32_t)i), head = query_head(l.q, a.n_heads, (uint32_t)i);
        store_mla(a.out + ((uint64_t)row * a.n_heads + head) * a.kv.head_dim, l, i, a.kv.head_dim,
                  final_scale(a, head, smem.max[i], smem.sum[i]));
    }
}

#define MLA(type, ...)                                                                                                 \
    SPRY_KERNEL(spry_mla_rope_kv_##type, spry_mla_rope_kv_args)                                                        \
    {                                                                                                                  \
        prepare_mla<kv_##type>(a);                                                                                     \
    }                                                                                                                  \
    SPRY_KERNEL(spry_mla_split_kv_##type, spry_mla_attend_args, 2)                                                     \
    {                                                                                                                  \
        attend_mla_split_kv<kv_##type>(a);                                                                             \
    }                                                                                                                  \
    SPRY_KERNEL(spry_mla_prefill_##type, spry_mla_attend_args, 2)                                                      \
    {                                                                                                                  \
        attend_mla_prefill<kv_##type>(a);                                                                              \
    }
SPRY_KV_TYPES(MLA)
