/* Attention without tensor cores, for every KV type (F16, F32, Q8_0) and head size up to 512, compute capability 8.0
 * and later: out = softmax(scale * q K^T, masked) V. Used where attention_mma.cuh has no kernel.
 *
 *   kernel    grid                                       block     a warp owns
 *   split_kv  (decode rows, KV heads * batches, chunks)  8 warps   one page; a block owns a chunk of 8 pages
 *   combine   (decode rows, heads)                       4 warps   combines the chunks of a head (online_softmax.cuh)
 *   prefill   (KV heads, prefill tiles)                  8 warps   all pages for some queries of the tile
 *
 * One order for every number of rows: each page gives a partial softmax of its own; 8 pages are combined in order
 * into a chunk, chunks in order into the result. A page outside of a query's window changes nothing, so it can be
 * skipped. Static shared memory: queries of each warp, partial results of the block's pages.
 *
 * DIMS: values of a head per lane. QUERIES: queries (row and head) that a warp works on together. */
#include "device/cuda/kernels/kv_pages.cuh"
#include "device/cuda/kernels/online_softmax.cuh"

enum { SIMT_WARPS = SPRY_SIMT_CHUNK_PAGES };

template <int DIMS> struct simt_config {
    enum { QUERIES = DIMS <= 4 ? 4 : 16 / DIMS };
};

/* Running state of the online softmax. */
template <int QUERIES, int DIMS> struct attend_state {
    float max[QUERIES], sum[QUERIES], out[QUERIES][DIMS];
};

template <int QUERIES, int DIMS> SPRY_DEVICE void clear_state(attend_state<QUERIES, DIMS> &s)
{
    SPRY_UNROLL
    for (int q = 0; q < QUERIES; q++) {
        s.max[q] = -INFINITY;
        s.sum[q] = 0;
        SPRY_UNROLL
        for (int i = 0; i < DIMS; i++)
            s.out[q][i] = 0;
    }
}

template <int QUERIES, int DIMS>
SPRY_DEVICE void merge_state(attend_state<QUERIES, DIMS> &s, const attend_state<QUERIES, DIMS> &part)
{
    SPRY_UNROLL
    for (int q = 0; q < QUERIES; q++) {
        float scale_old, scale_new;
        if (!online_softmax_scales(&s.max[q], &scale_old, &scale_new, part.max[q]))
            continue;
        s.sum[q] = rescaled_add(s.sum[q], scale_old, part.sum[q], scale_new);
        SPRY_UNROLL
        for (int i = 0; i < DIMS; i++)
            s.out[q][i] = rescaled_add(s.out[q][i], scale_old, part.out[q][i], scale_new);
    }
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

/* The queries of a warp: the heads of a row that share a KV head, row after row. */
template <int QUERIES> struct attend_queries {
    uint32_t row[QUERIES], head[QUERIES];
    uint32_t begin[QUERIES], end[QUERIES]; /* visible positions; empty if there is no query */
};

template <int QUERIES>
SPRY_DEVICE void find_queries(attend_queries<QUERIES> &q, const spry_attend_args &a, spry_row_range run, uint32_t first,
                              uint32_t kv_head)
{
    uint32_t group = a.n_heads / a.kv.n_kv_heads;
    SPRY_UNROLL
    for (int i = 0; i < QUERIES; i++) {
        uint32_t number = first + (uint32_t)i;
        bool valid = number < run.n_rows * group;
        q.row[i] = run.first_row + (valid ? number / group : 0);
        q.head[i] = kv_head * group + number % group;
        uint32_t position = a.rows[q.row[i]].position;
        q.end[i] = valid ? position + 1 + a.ahead + (a.both_ways ? a.rows[q.row[i]].ahead : 0) : 0;
        q.begin[i] = valid ? first_seen(a, position) : 0;
    }
}

/* Loads the queries into `to` [QUERIES, head_dim], rotated if the page is used away from where it was computed. */
template <int QUERIES>
SPRY_DEVICE void stage_queries(float *to, const attend_queries<QUERIES> &q, const spry_attend_args &a,
                               uint32_t rotation, int lane)
{
    uint32_t n = a.kv.head_dim;
    syncwarp();
    for (int i = 0; i < QUERIES; i++)
        for (uint32_t d = (uint32_t)lane; d < n; d += WARP)
            to[i * n + d] = a.q[((uint64_t)q.row[i] * a.n_heads + q.head[i]) * n + d];
    syncwarp();
    for (int i = 0; rotation && i < QUERIES; i++)
        rotate_head(to + i * n, a.rotation_cosine + (uint64_t)rotation * a.n_pairs,
                    a.rotation_sine + (uint64_t)rotation * a.n_pairs, a.n_pairs, a.interleaved, lane);
    syncwarp();
}

/* True if some query sees tokens of the page; tokens from *begin to *end are visible to some query. */
template <int QUERIES>
SPRY_DEVICE bool page_visible(uint32_t *begin, uint32_t *end, const attend_queries<QUERIES> &q,
                              const spry_step_entry &entry)
{
    uint32_t lowest = 0xffffffffu, highest = 0;
    SPRY_UNROLL
    for (int i = 0; i < QUERIES; i++) {
        if (q.begin[i] >= q.end[i] || q.end[i] <= entry.start || q.begin[i] >= entry.start + entry.count)
            continue;
        lowest = q.begin[i] < lowest ? q.begin[i] : lowest;
        highest = q.end[i] > highest ? q.end[i] : highest;
    }
    *begin = lowest > entry.start ? lowest - entry.start : 0;
    *end = highest > entry.start ? highest - entry.start : 0;
    *end = *end < entry.count ? *end : entry.count;
    return highest > 0 && *begin < *end;
}

/* ---- one page ---------------------------------------------------------------------------------------------------- */

/* Computes the scores of a page's tokens, one token per lane. */
template <class KV, int QUERIES>
SPRY_DEVICE void multiply_qk(float scores[QUERIES], const float *queries, const unsigned char *keys, uint32_t head_dim,
                             uint32_t token)
{
    SPRY_UNROLL
    for (int i = 0; i < QUERIES; i++)
        scores[i] = 0;
    for (uint32_t d = 0; d < head_dim; d += 4) {
        float key[4];
        SPRY_UNROLL
        for (int j = 0; j < 4; j++)
            key[j] = load_key(keys, d + (uint32_t)j, token, head_dim, KV());
        SPRY_UNROLL
        for (int i = 0; i < QUERIES; i++) {
            SPRY_UNROLL
            for (int j = 0; j < 4; j++)
                scores[i] = fmaf(queries[(uint32_t)i * head_dim + d + (uint32_t)j], key[j], scores[i]);
        }
    }
}

/* Adds the values of visible tokens, times their weights; a lane has DIMS neighbouring coordinates. */
template <class KV, int QUERIES, int DIMS>
SPRY_DEVICE void multiply_pv(attend_state<QUERIES, DIMS> &s, const float weights[QUERIES], const unsigned char *values,
                             const spry_attend_args &a, uint32_t begin, uint32_t end, int lane)
{
    uint32_t first = (uint32_t)lane * DIMS;
    for (uint32_t token = begin; token < end; token++) {
        const unsigned char *from = values + (uint64_t)token * a.kv.token_bytes;
        float value[DIMS];
        SPRY_UNROLL
        for (int i = 0; i < DIMS; i++)
            value[i] = first < a.kv.head_dim ? load_value(from, first + (uint32_t)i, KV()) : 0;
        SPRY_UNROLL
        for (int q = 0; q < QUERIES; q++) {
            float weight = warp_shfl(weights[q], (int)token);
            SPRY_UNROLL
            for (int i = 0; i < DIMS; i++)
                s.out[q][i] = fmaf(weight, value[i], s.out[q][i]);
        }
    }
}

/* The softmax of one page. Tokens [begin, end) are visible to some query. */
template <class KV, int QUERIES, int DIMS>
SPRY_DEVICE void attend_page(attend_state<QUERIES, DIMS> &s, const float *queries, const attend_queries<QUERIES> &q,
                             const spry_attend_args &a, const spry_step_entry &entry, uint32_t kv_head, uint32_t begin,
                             uint32_t end, int lane)
{
    page_head page = head_of_page(a.kv, entry.page, kv_head);
    float scores[QUERIES];
    clear_state(s);
    multiply_qk<KV, QUERIES>(scores, queries, page.keys, a.kv.head_dim, (uint32_t)lane);
    SPRY_UNROLL
    for (int i = 0; i < QUERIES; i++) {
        uint32_t position = entry.start + (uint32_t)lane;
        bool seen = (uint32_t)lane < entry.count && position >= q.begin[i] && position < q.end[i];
        float score = scores[i] * a.scale;
        score = a.softcap != 0 ? a.softcap * tanhf(score / a.softcap) : score;
        s.max[i] = warp_max(seen ? score : -INFINITY);
        scores[i] = seen ? expf(score - s.max[i]) : 0;
        s.sum[i] = warp_sum(scores[i]);
    }
    multiply_pv<KV, QUERIES, DIMS>(s, scores, page.values, a, begin, end, lane);
}

/* ---- split-KV ---------------------------------------------------------------------------------------------------- */

/* Combines the pages of a chunk; warp i has query i. */
template <int QUERIES, int DIMS>
SPRY_DEVICE void write_chunk(const spry_attend_args &a, const attend_state<QUERIES, DIMS> &page,
                             const attend_queries<QUERIES> &q, uint32_t chunk, int warp, int lane)
{
    SPRY_SMEM float stats[SIMT_WARPS][QUERIES][2];
    SPRY_SMEM float outs[SIMT_WARPS][QUERIES][DIMS * WARP];
    SPRY_UNROLL
    for (int i = 0; i < QUERIES; i++) {
        stats[warp][i][0] = page.max[i];
        stats[warp][i][1] = page.sum[i];
        SPRY_UNROLL
        for (int d = 0; d < DIMS; d++)
            outs[warp][i][lane * DIMS + d] = page.out[i][d];
    }
    syncthreads();
    if (warp >= QUERIES)
        return;
    attend_state<1, DIMS> chunk_state, part;
    clear_state(chunk_state);
    for (int p = 0; p < SIMT_WARPS; p++) {
        part.max[0] = stats[p][warp][0];
        part.sum[0] = stats[p][warp][1];
        SPRY_UNROLL
        for (int d = 0; d < DIMS; d++)
            part.out[0][d] = outs[p][warp][lane * DIMS + d];
        merge_state(chunk_state, part);
    }
    if (q.end[warp] == 0)
        return;
    float *to = partial_at(a, blockIdx.x, q.head[warp], chunk);
    if (lane == 0) {
        to[0] = chunk_state.max[0];
        to[1] = chunk_state.sum[0];
    }
    SPRY_UNROLL
    for (int d = 0; d < DIMS; d++)
        if ((uint32_t)(lane * DIMS + d) < a.kv.head_dim)
            to[SPRY_PARTIAL_HEADER + lane * DIMS + d] = chunk_state.out[0][d];
}

/* Grid: (decode rows, KV heads * batches of queries, chunks); a warp has one page. */
template <class KV, int DIMS> SPRY_DEVICE void attend_split_kv(const spry_attend_args &a)
{
    enum { QUERIES = simt_config<DIMS>::QUERIES };
    SPRY_SMEM float queries[SIMT_WARPS][QUERIES * DIMS * WARP];
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    uint32_t kv_head = blockIdx.y % a.kv.n_kv_heads, batch = blockIdx.y / a.kv.n_kv_heads, chunk = blockIdx.z;
    const spry_step_row &row = a.rows[a.decode_rows[blockIdx.x]];
    if (chunk * SPRY_SIMT_CHUNK_PAGES >= row.n_entries)
        return;
    spry_row_range run = {a.decode_rows[blockIdx.x], 1};
    attend_queries<QUERIES> q;
    attend_state<QUERIES, DIMS> page;
    find_queries(q, a, run, batch * QUERIES, kv_head);
    clear_state(page);
    uint32_t number = chunk * SPRY_SIMT_CHUNK_PAGES + (uint32_t)warp, begin, end;
    if (number < row.n_entries) {
        const spry_step_entry entry = a.entries[row.first_entry + number];
        if (page_visible(&begin, &end, q, entry)) {
            stage_queries(queries[warp], q, a, entry.rotation, lane);
            attend_page<KV, QUERIES, DIMS>(page, queries[warp], q, a, entry, kv_head, begin, end, lane);
        }
    }
    write_chunk(a, page, q, chunk, warp, lane);
}

/* Grid: (decode rows, heads). */
SPRY_KERNEL(spry_attend_combine, spry_attend_args)
{
    combine_head<1>(a, a.decode_rows[blockIdx.x], blockIdx.x, blockIdx.y);
}

/* ---- prefill ----------------------------------------------------------------------------------------------------- */

/* Attends the queries of a warp to all pages. */
template <class KV, int QUERIES, int DIMS>
SPRY_DEVICE void attend_all(attend_state<QUERIES, DIMS> &total, float *queries, const attend_queries<QUERIES> &q,
                            const spry_attend_args &a, const spry_step_row &last, uint32_t kv_head, int lane)
{
    uint32_t staged = 0xffffffffu;
    clear_state(total);
    for (uint32_t chunk = 0; chunk < last.n_entries; chunk += SPRY_SIMT_CHUNK_PAGES) {
        attend_state<QUERIES, DIMS> sum, page;
        clear_state(sum);
        for (uint32_t e = chunk; e < chunk + SPRY_SIMT_CHUNK_PAGES && e < last.n_entries; e++) {
            const spry_step_entry entry = a.entries[last.first_entry + e];
            uint32_t begin, end;
            if (!page_visible(&begin, &end, q, entry))
                continue;
            if (staged != entry.rotation)
                stage_queries(queries, q, a, entry.rotation, lane);
            staged = entry.rotation;
            attend_page<KV, QUERIES, DIMS>(page, queries, q, a, entry, kv_head, begin, end, lane);
            merge_state(sum, page);
        }
        merge_state(total, sum);
    }
}

/* Grid: (KV heads, prefill tiles), the last tiles first; a warp takes QUERIES queries of the tile at a time. */
template <class KV, int DIMS> SPRY_DEVICE void attend_prefill_simt(const spry_attend_args &a)
{
    enum { QUERIES = simt_config<DIMS>::QUERIES };
    SPRY_SMEM float queries[SIMT_WARPS][QUERIES * DIMS * WARP];
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    spry_row_range run = a.prefill_tiles[gridDim.y - 1 - blockIdx.y];
    const spry_step_row &last = a.rows[run.first_row + run.n_rows - 1];
    uint32_t n_queries = run.n_rows * (a.n_heads / a.kv.n_kv_heads);
    for (uint32_t first = (uint32_t)warp * QUERIES; first < n_queries; first += SIMT_WARPS * QUERIES) {
        attend_queries<QUERIES> q;
        attend_state<QUERIES, DIMS> total;
        find_queries(q, a, run, first, blockIdx.x);
        attend_all<KV, QUERIES, DIMS>(total, queries[warp], q, a, last, blockIdx.x, lane);
        for (int i = 0; i < QUERIES; i++)
            for (int d = 0; d < DIMS; d++)
                if (q.end[i] && (uint32_t)(lane * DIMS + d) < a.kv.head_dim)
                    a.out[((uint64_t)q.row[i] * a.n_heads + q.head[i]) * a.kv.head_dim + (uint32_t)(lane * DIMS + d)] =
                        total.out[i][d] * final_scale(a, q.head[i], total.max[i], total.sum[i]);
    }
}

#define ATTEND(type, dims)                                                                                             \
    SPRY_KERNEL(spry_attend_split_kv_##type##_##dims, spry_attend_args)                                                \
    {                                                                                                                  \
        attend_split_kv<kv_##type, dims>(a);                                                                           \
    }                                                                                                                  \
    SPRY_KERNEL(spry_attend_prefill_##type##_##dims, spry_attend_args)                                                 \
    {                                                                                                                  \
        attend_prefill_simt<kv_##type, dims>(a);                                                                       \
    }
#define ATTENDS(type, ...) ATTEND(type, 1) ATTEND(type, 2) ATTEND(type, 4) ATTEND(type, 8) ATTEND(type, 16)
SPRY_KV_TYPES(ATTENDS)
