/* Layers that keep a recurrent state in place of attention: short convolutions (LFM2), gated delta nets (Qwen3-Next)
 * and Mamba-2. Convolutions keep their inputs in KV pages. Compute capability 8.0 and later.
 *
 *   kernel        grid                                    block     a block owns
 *   conv_store    (rows / 16, pieces of head_dim)         8 warps   B * x of 16 rows, into pages
 *   convolve      (rows / 16, pieces of head_dim)         8 warps   C * (sum over the last tokens) of 16 rows
 *   delta_gates   rows                                    8 warps   decays and betas of a row
 *   delta         (columns / 32, heads, runs)             4 warps   32 columns of a head's state, a run's rows
 *   delta_keep    (coordinates / 256, runs)               8 warps   256 coordinates of a run's last tokens
 */
#include "device/cuda/kernels/kv_pages.cuh"

/* ---- short convolutions ------------------------------------------------------------------------------------------ */

enum { CONV_ROWS = SPRY_ROPE_KV_ROWS, CONV_THREADS = SPRY_ROPE_KV_THREADS };
static_assert(CONV_ROWS * CONV_ROWS == CONV_THREADS, "threads are rows by coordinates");

/* A piece of head_dim values of the token's vector, and where pages store it: in place of a head's keys or values. */
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

/* The convolution for one coordinate of a row, tokens ascending; before the first token there are zeros. */
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

/* Neighbouring threads read contiguous data: neighbouring tokens of keys, neighbouring coordinates of values, which is
 * also the order of the output. */
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

#define CONVOLUTION(kv, ...)                                                                                           \
    SPRY_KERNEL(spry_conv_store_##kv, spry_conv_args)                                                                  \
    {                                                                                                                  \
        store_rows<kv_##kv>(a);                                                                                        \
    }                                                                                                                  \
    SPRY_KERNEL(spry_convolve_##kv, spry_conv_args)                                                                    \
    {                                                                                                                  \
        convolve_rows<kv_##kv>(a);                                                                                     \
    }
SPRY_KV_TYPES(CONVOLUTION)

/* ---- gated delta nets -------------------------------------------------------------------------------------------- */

/* Columns of a head's state are independent: four lanes of a warp hold one in registers. A block goes through the
 * tokens of its sequence in order, from the token that the state is kept before; queries,
 * keys and values of 16 tokens at a time are computed into shared memory. */

enum {
    DELTA_WARPS = SPRY_DELTA_THREADS / WARP,
    DELTA_LANES = WARP * DELTA_WARPS / SPRY_DELTA_COLUMNS, /* lanes per column */
    DELTA_TOKENS = 16,                                     /* computed at a time */
    DELTA_PAGE_TOKENS = 32,
};
static_assert(DELTA_LANES == 4, "lanes add up what they have in two exchanges");
#define DELTA_EPS 1e-6f /* epsilon of the lengths of q and k */

/* The layer's part of a table's state. */
struct delta_state {
    float *heads;  /* [n_heads, key_dim, value_dim]: before token `from` of the run */
    float *gates;  /* [DELTA_PAGE_TOKENS, 2, n_heads]: exp(g), beta, of tokens from there on */
    float *inputs; /* [reach - 1 + DELTA_PAGE_TOKENS, mixed]: q | k | v of all heads, from reach - 1 tokens before */
};

SPRY_DEVICE delta_state state_of(const spry_delta_args &a, const spry_delta_run &run)
{
    float *at = (float *)(a.states + run.state * a.state_bytes);
    delta_state s = {at, at + (uint64_t)a.n_heads * a.key_dim * a.value_dim, (float *)0};
    s.inputs = s.gates + DELTA_PAGE_TOKENS * 2 * a.n_heads;
    return s;
}

/* ---- gates of rows ----------------------------------------------------------------------------------------------- */

SPRY_KERNEL(spry_delta_gates, spry_delta_args)
{
    float *ba = a.ba + (uint64_t)blockIdx.x * 2 * a.n_heads;
    for (uint32_t h = threadIdx.x; h < a.n_heads; h += blockDim.x) {
        float time = ba[a.n_heads + h] + a.dt[h], b = ba[h];
        time = time > 20 ? time : log1pf(expf(time));
        if (a.mamba)
            time = fminf(fmaxf(time, a.time_least), a.time_largest);
        ba[h] = expf(a.fading[h] * time);
        ba[a.n_heads + h] = a.mamba ? time : a.beta_scale / (1 + expf(-b));
    }
}

/* ---- what later steps need --------------------------------------------------------------------------------------- */

/* Replaces the kept tokens, which begin at run.from, by the tokens from run.next on and `before` tokens before it; one
 * coordinate i of `width`. In ascending order, because reads are ahead of writes. */
SPRY_DEVICE void keep_tokens(const spry_delta_run &run, float *kept, const float *rows, uint32_t before, uint32_t width,
                             uint32_t i)
{
    uint32_t end = run.first + run.n_rows, n = before + end - run.next, moved = run.next - run.from;
    uint32_t old = run.first - run.from + before; /* tokens that are kept so far */
    for (uint32_t t = moved || !run.first ? 0 : old; t < n; t++) {
        float value = 0; /* before the first token */
        if (t + moved >= old)
            value = rows[(uint64_t)(run.first_row + t + moved - old) * width + i];
        else if (run.first)
            value = kept[(uint64_t)(t + moved) * width + i];
        kept[(uint64_t)t * width + i] = value;
    }
}

SPRY_KERNEL(spry_delta_keep, spry_delta_args)
{
    const spry_delta_run run = a.runs[blockIdx.y];
    const delta_state state = state_of(a, run);
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.n_mixed)
        keep_tokens(run, state.inputs, a.mixed, a.reach - 1, a.n_mixed, i);
    else if (i < a.n_mixed + 2 * a.n_heads)
        keep_tokens(run, state.gates, a.ba, 0, 2 * a.n_heads, i - a.n_mixed);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* Inputs of some tokens for a head and a block's columns of it. Keys past key_dim are zeros. */
template <int KEYS> struct delta_tokens {
    float4 q[DELTA_TOKENS][KEYS / 4], k[DELTA_TOKENS][KEYS / 4];
    float v[DELTA_TOKENS][SPRY_DELTA_COLUMNS], fade[DELTA_TOKENS], beta[DELTA_TOKENS];
};

/* One coordinate of the convolution's output at a position; before the first token there are zeros. */
SPRY_DEVICE float mixed_value(const spry_delta_args &a, const spry_delta_run &run, uint32_t position, uint32_t i)
{
    const float *weight = a.weight + (uint64_t)i * a.reach, *inputs = state_of(a, run).inputs;
    float sum = a.bias ? a.bias[i] : 0;
    for (uint32_t step = 0; step < a.reach; step++) {
        uint32_t after = position + step + 1; /* the token's position and `reach` */
        float value = 0;
        if (after >= run.first + a.reach)
            value = a.mixed[(uint64_t)(run.first_row + after - a.reach - run.first) * a.n_mixed + i];
        else if (run.first)
            value = inputs[(uint64_t)(after - 1 - run.from) * a.n_mixed + i];
        sum += weight[step] * value;
    }
    return sum / (1 + expf(-sum));
}

/* A warp computes a head of a query or key, from coordinate `first` on; of delta nets normalised to length 1, times
 * `scale`. */
template <int KEYS>
SPRY_DEVICE void make_head(float *out, const spry_delta_args &a, const spry_delta_run &run, uint32_t position,
                           uint32_t first, float scale, uint32_t lane)
{
    float sum = 0;
    for (uint32_t i = lane; i < KEYS; i += WARP) {
        float value = i < a.key_dim ? mixed_value(a, run, position, first + i) : 0;
        out[i] = value;
        sum = fmaf(value, value, sum);
    }
    scale /= sqrtf(warp_sum(sum) + DELTA_EPS);
    for (uint32_t i = lane; !a.mamba && i < KEYS; i += WARP)
        out[i] *= scale;
}

/* Computes n tokens from position `begin` on. Queries are computed only for rows. */
template <int KEYS>
SPRY_DEVICE void make_tokens(delta_tokens<KEYS> &s, const spry_delta_args &a, const spry_delta_run &run, uint32_t begin,
                             uint32_t n)
{
    uint32_t head = blockIdx.y, lane = threadIdx.x % WARP;
    uint32_t key_head = a.tiled ? head % a.n_keys : head / (a.n_heads / a.n_keys);
    uint32_t column = blockIdx.x * SPRY_DELTA_COLUMNS;
    uint32_t query = a.queries + key_head * a.key_dim, key = a.keys + key_head * a.key_dim;
    for (uint32_t t = threadIdx.x / WARP; t < n; t += DELTA_WARPS) {
        uint32_t position = begin + t;
        if (position >= run.first)
            make_head<KEYS>((float *)s.q[t], a, run, position, query, 1 / sqrtf((float)a.key_dim), lane);
        make_head<KEYS>((float *)s.k[t], a, run, position, key, 1, lane);
        for (uint32_t j = lane; j < SPRY_DELTA_COLUMNS; j += WARP)
            s.v[t][j] = column + j < a.value_dim
                            ? mixed_value(a, run, position, a.values + head * a.value_dim + column + j)
                            : 0;
        if (lane == 0) {
            const float *gates = position < run.first
                                     ? state_of(a, run).gates + (position - run.from) * 2 * a.n_heads
                                     : a.ba + (uint64_t)(run.first_row + position - run.first) * 2 * a.n_heads;
            s.fade[t] = gates[head];
            s.beta[t] = gates[a.n_heads + head];
        }
    }
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

/* A lane's part of a column: keys 16 r + 4 part .. + 3. */
template <int KEYS> struct delta_column {
    float x[KEYS / DELTA_LANES];
    uint32_t column, part;

    SPRY_METHOD uint32_t key(int i) const
    {
        return (uint32_t)(i / 4) * 16 + part * 4 + (uint32_t)(i % 4);
    }

    SPRY_METHOD float *address(const spry_delta_args &a, float *heads, int i) const
    {
        return heads + ((uint64_t)blockIdx.y * a.key_dim + key(i)) * a.value_dim + column;
    }

    SPRY_METHOD bool has(const spry_delta_args &a, int i) const
    {
        return column < a.value_dim && key(i) < a.key_dim;
    }

    SPRY_METHOD void clear()
    {
        SPRY_UNROLL
        for (int i = 0; i < KEYS / DELTA_LANES; i++)
            x[i] = 0;
    }

    SPRY_METHOD void load(const spry_delta_args &a, float *heads)
    {
        SPRY_UNROLL
        for (int i = 0; i < KEYS / DELTA_LANES; i++)
            x[i] = has(a, i) ? *address(a, heads, i) : 0;
    }

    SPRY_METHOD void store(const spry_delta_args &a, float *heads) const
    {
        SPRY_UNROLL
        for (int i = 0; i < KEYS / DELTA_LANES; i++)
            if (has(a, i))
                *address(a, heads, i) = x[i];
    }

    /* Dot product of the column and a vector; every lane of the column gets it. */
    SPRY_METHOD float times(const float4 *vector) const
    {
        float sums[4] = {0, 0, 0, 0};
        SPRY_UNROLL
        for (int r = 0; r < KEYS / 16; r++) {
            float4 v = vector[r * 4 + part];
            sums[0] = fmaf(x[r * 4], v.x, sums[0]);
            sums[1] = fmaf(x[r * 4 + 1], v.y, sums[1]);
            sums[2] = fmaf(x[r * 4 + 2], v.z, sums[2]);
            sums[3] = fmaf(x[r * 4 + 3], v.w, sums[3]);
        }
        float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        sum += warp_shfl_xor(sum, 1);
        return sum + warp_shfl_xor(sum, 2);
    }

    /* The column decays; then by the delta rule its value for the key moves towards v by beta, or without it v times
     * beta is added. */
    SPRY_METHOD void learn(const float4 *k, float v, float fade, float beta, bool mamba)
    {
        SPRY_UNROLL
        for (int i = 0; i < KEYS / DELTA_LANES; i++)
            x[i] *= fade;
        float change = (mamba ? v : v - times(k)) * beta;
        SPRY_UNROLL
        for (int r = 0; r < KEYS / 16; r++) {
            float4 key = k[r * 4 + part];
            x[r * 4] = fmaf(key.x, change, x[r * 4]);
            x[r * 4 + 1] = fmaf(key.y, change, x[r * 4 + 1]);
            x[r * 4 + 2] = fmaf(key.z, change, x[r * 4 + 2]);
            x[r * 4 + 3] = fmaf(key.w, change, x[r * 4 + 3]);
        }
    }
};

/* Processes all rows of a run, for one head and 32 of its columns, after the tokens that the state does not have yet.
 */
template <int KEYS> SPRY_DEVICE void run_head(const spry_delta_args &a)
{
    SPRY_SMEM delta_tokens<KEYS> s;
    const spry_delta_run run = a.runs[blockIdx.z];
    const delta_state state = state_of(a, run);
    uint32_t local = threadIdx.x / DELTA_LANES, end = run.first + run.n_rows;
    delta_column<KEYS> c;
    c.column = blockIdx.x * SPRY_DELTA_COLUMNS + local;
    c.part = threadIdx.x % DELTA_LANES;
    c.clear();
    if (run.first)
        c.load(a, state.heads);
    for (uint32_t begin = run.from; begin < end; begin += DELTA_TOKENS) {
        uint32_t n = end - begin < DELTA_TOKENS ? end - begin : (uint32_t)DELTA_TOKENS;
        syncthreads();
        make_tokens(s, a, run, begin, n);
        syncthreads();
        for (uint32_t t = 0; t < n; t++) {
            uint32_t position = begin + t;
            if (position == run.next && (position > run.from || !run.first))
                c.store(a, state.heads);
            c.learn(s.k[t], s.v[t][local], s.fade[t], s.beta[t], a.mamba);
            if (position < run.first)
                continue;
            float answer = c.times(s.q[t]) + (a.skip ? a.skip[blockIdx.y] * s.v[t][local] : 0);
            if (c.part == 0 && c.column < a.value_dim)
                a.out[((uint64_t)(run.first_row + position - run.first) * a.n_heads + blockIdx.y) * a.value_dim +
                      c.column] = answer;
        }
    }
}

#define DELTA(keys)                                                                                                    \
    SPRY_KERNEL(spry_delta_##keys, spry_delta_args)                                                                    \
    {                                                                                                                  \
        run_head<keys>(a);                                                                                             \
    }
DELTA(32)
DELTA(64)
DELTA(128)
DELTA(256)
