/* Attention over pages: out = softmax(scale * q K^T, masked) V, in floats; all KV types. A workgroup computes up to
 * QUERIES queries (heads and rows) that share a KV head.
 *   split    grid (decode rows, KV heads * batches, pages): one page; the partial result goes to memory (combine.comp)
 *   prefill  grid (KV heads, prefill tiles): all pages of the tile's rows, added in order
 * In a page, thread 32 p + t adds part p of the coordinates of token t's scores, then the parts are added in order; the
 * weights of a page are summed in the order of its tokens; then a thread has EACH coordinates of the values. A token
 * outside of a query's window has weight 0. Shared memory: queries, scores. */
#version 450
#include "common.glsl"
#include "pages.glsl"
#include "softmax.glsl"
layout(constant_id = 1) const uint QUERIES = 4;
layout(constant_id = 2) const uint EACH = 1; /* coordinates of a thread: head_dim <= 128 * EACH */
layout(constant_id = 3) const uint PREFILL = 0;
layout(local_size_x = 128) in;
ARGUMENTS(spry_attend_args);

const uint THREADS = 128, PARTS = THREADS / PAGE_TOKENS;
shared float queries[QUERIES][EACH * 128];
shared float parts[QUERIES][PARTS][PAGE_TOKENS];
shared float weights[QUERIES][PAGE_TOKENS];
shared uint begins[QUERIES], ends[QUERIES], rows[QUERIES], heads[QUERIES];
shared running pages[QUERIES]; /* of the current page */

/* The queries from `first` on of the tile's: the heads of a row that share a KV head, row after row. */
void find_queries(uint first_row, uint n_rows, uint first, uint kv_head)
{
    uint group = args.a.n_heads / args.a.kv.n_kv_heads, i = gl_LocalInvocationID.x, number = first + i;
    if (i >= QUERIES)
        return;
    bool valid = number < n_rows * group;
    rows[i] = first_row + (valid ? number / group : 0);
    heads[i] = kv_head * group + number % group;
    uint own = Rows(args.a.rows).v[rows[i]].position + 1;
    ends[i] = valid ? own + args.a.ahead : 0;
    uint first_seen = args.a.block != 0                             ? (own - 1) / args.a.block * args.a.block
                      : args.a.window != 0 && own > args.a.window ? own - args.a.window
                                                                  : 0;
    begins[i] = valid ? first_seen : 0;
}

/* Loads the queries, rotated for a page that is used away from where it was computed. */
void load_queries(uint rotation)
{
    uint n = args.a.kv.head_dim, n_pairs = args.a.n_pairs;
    uint64_t cosine = row_at(args.a.rotation_cosine, rotation, n_pairs),
             sine = row_at(args.a.rotation_sine, rotation, n_pairs);
    barrier();
    for (uint q = 0; q < QUERIES; q++)
        for (uint d = gl_LocalInvocationID.x; d < n; d += THREADS)
            queries[q][d] = float_at(row_at(args.a.q, rows[q] * args.a.n_heads + heads[q], n), d);
    barrier();
    if (rotation == 0)
        return;
    for (uint q = 0; q < QUERIES; q++)
        for (uint i = gl_LocalInvocationID.x; i < n_pairs; i += THREADS) {
            uint first = args.a.interleaved != 0 ? 2 * i : i, second = args.a.interleaved != 0 ? first + 1 : i + n_pairs;
            float x = queries[q][first], y = queries[q][second];
            precise float a = x * float_at(cosine, i) - y * float_at(sine, i),
                          b = x * float_at(sine, i) + y * float_at(cosine, i);
            queries[q][first] = a;
            queries[q][second] = b;
        }
    barrier();
}

/* The part of the scores of a page that this thread adds. */
void multiply_keys(uint64_t keys)
{
    uint token = gl_LocalInvocationID.x % PAGE_TOKENS, part = gl_LocalInvocationID.x / PAGE_TOKENS;
    uint n = args.a.kv.head_dim, begin = n * part / PARTS, end = n * (part + 1) / PARTS;
    precise float sums[QUERIES];
    [[unroll]] for (uint q = 0; q < QUERIES; q++)
        sums[q] = 0;
    for (uint d = begin; d < end; d++) {
        float key = load_key(keys, d, token, n);
        [[unroll]] for (uint q = 0; q < QUERIES; q++)
            sums[q] += queries[q][d] * key;
    }
    [[unroll]] for (uint q = 0; q < QUERIES; q++)
        parts[q][part][token] = sums[q];
}

/* The score of a token, -INFINITY outside of the query's window. */
float score_at(uint q, uint token, spry_step_entry entry)
{
    uint position = entry.start + token;
    bool seen = token < entry.count && position >= begins[q] && position < ends[q];
    precise float score = parts[q][0][token];
    for (uint p = 1; p < PARTS; p++)
        score += parts[q][p][token];
    score *= args.a.scale;
    if (args.a.softcap != 0)
        score = args.a.softcap * tanh(clamp(score / args.a.softcap, -15.0, 15.0));
    return seen ? score : -INFINITY;
}

/* Max, weights and their sum for each query. */
void weigh(spry_step_entry entry)
{
    uint thread = gl_LocalInvocationID.x;
    barrier();
    for (uint i = thread; i < QUERIES * PAGE_TOKENS; i += THREADS)
        weights[i / PAGE_TOKENS][i % PAGE_TOKENS] = score_at(i / PAGE_TOKENS, i % PAGE_TOKENS, entry);
    barrier();
    for (uint q = thread; q < QUERIES; q += THREADS) {
        float most = weights[q][0];
        for (uint t = 1; t < PAGE_TOKENS; t++)
            most = max(most, weights[q][t]);
        pages[q].max = most;
    }
    barrier();
    for (uint i = thread; i < QUERIES * PAGE_TOKENS; i += THREADS) {
        uint q = i / PAGE_TOKENS, t = i % PAGE_TOKENS;
        weights[q][t] = weights[q][t] == -INFINITY ? 0 : exp(weights[q][t] - pages[q].max);
    }
    barrier();
    for (uint q = thread; q < QUERIES; q += THREADS) {
        precise float sum = 0;
        for (uint t = 0; t < PAGE_TOKENS; t++)
            sum += weights[q][t];
        pages[q].sum = sum;
    }
    barrier();
}

/* The values of a page, weighted. */
void multiply_values(out float values[QUERIES][EACH], uint64_t from, uint count)
{
    precise float sums[QUERIES][EACH];
    [[unroll]] for (uint q = 0; q < QUERIES; q++)
        [[unroll]] for (uint i = 0; i < EACH; i++)
            sums[q][i] = 0;
    for (uint t = 0; t < count; t++)
        [[unroll]] for (uint i = 0; i < EACH; i++) {
            uint d = gl_LocalInvocationID.x + i * THREADS;
            float value = d < args.a.kv.head_dim ? load_value(from + uint64_t(t) * args.a.kv.token_bytes, d) : 0;
            [[unroll]] for (uint q = 0; q < QUERIES; q++)
                sums[q][i] += weights[q][t] * value;
        }
    [[unroll]] for (uint q = 0; q < QUERIES; q++)
        [[unroll]] for (uint i = 0; i < EACH; i++)
            values[q][i] = sums[q][i];
}

/* Whether some query sees tokens of the page. */
bool page_seen(spry_step_entry entry)
{
    bool seen = false;
    for (uint q = 0; q < QUERIES; q++)
        seen = seen || (begins[q] < ends[q] && ends[q] > entry.start && begins[q] < entry.start + entry.count);
    return seen;
}

void attend_page(out float values[QUERIES][EACH], spry_step_entry entry, uint kv_head)
{
    multiply_keys(head_address(args.a.kv, args.a.kv.key_offset, entry.page, kv_head));
    weigh(entry);
    multiply_values(values, head_address(args.a.kv, args.a.kv.value_offset, entry.page, kv_head), entry.count);
}

void split()
{
    uint kv_head = gl_WorkGroupID.y % args.a.kv.n_kv_heads, batch = gl_WorkGroupID.y / args.a.kv.n_kv_heads;
    uint number = Words(args.a.decode_rows).v[gl_WorkGroupID.x], page = gl_WorkGroupID.z;
    spry_step_row row = Rows(args.a.rows).v[number];
    float values[QUERIES][EACH];
    if (page >= row.n_entries)
        return;
    spry_step_entry entry = Entries(args.a.entries).v[row.first_entry + page];
    find_queries(number, 1, batch * QUERIES, kv_head);
    barrier();
    bool seen = page_seen(entry);
    if (seen) {
        load_queries(entry.rotation);
        attend_page(values, entry, kv_head);
    }
    for (uint q = 0; q < QUERIES; q++) {
        if (ends[q] == 0)
            continue;
        uint64_t to = args.a.partial + ((uint64_t(gl_WorkGroupID.x) * args.a.n_heads + heads[q]) * args.a.n_chunks + page) *
                                           (args.a.kv.head_dim + SPRY_PARTIAL_HEADER) * 4;
        if (gl_LocalInvocationID.x == 0) {
            Floats(to).v[0] = seen ? pages[q].max : -INFINITY;
            Floats(to).v[1] = seen ? pages[q].sum : 0;
        }
        [[unroll]] for (uint i = 0; i < EACH; i++) {
            uint d = gl_LocalInvocationID.x + i * THREADS;
            if (d < args.a.kv.head_dim)
                Floats(to).v[SPRY_PARTIAL_HEADER + d] = seen ? values[q][i] : 0;
        }
    }
}

/* All pages for the queries from `first` on. */
void prefill_queries(spry_row_range run, uint first, uint kv_head)
{
    float values[QUERIES][EACH], sums[QUERIES][EACH];
    running state[QUERIES];
    uint rotation = 0xffffffff;
    spry_step_row last = Rows(args.a.rows).v[run.first_row + run.n_rows - 1];
    [[unroll]] for (uint q = 0; q < QUERIES; q++) {
        state[q] = running(-INFINITY, 0);
        [[unroll]] for (uint i = 0; i < EACH; i++)
            sums[q][i] = 0;
    }
    barrier();
    find_queries(run.first_row, run.n_rows, first, kv_head);
    barrier();
    for (uint e = 0; e < last.n_entries; e++) {
        spry_step_entry entry = Entries(args.a.entries).v[last.first_entry + e];
        if (!page_seen(entry))
            continue;
        if (rotation != entry.rotation)
            load_queries(entry.rotation);
        rotation = entry.rotation;
        attend_page(values, entry, kv_head);
        [[unroll]] for (uint q = 0; q < QUERIES; q++) {
            vec2 factors = add_part(state[q], pages[q].max, pages[q].sum);
            [[unroll]] for (uint i = 0; i < EACH; i++)
                sums[q][i] = pages[q].max == -INFINITY ? sums[q][i] : add_value(sums[q][i], values[q][i], factors);
        }
        barrier();
    }
    [[unroll]] for (uint q = 0; q < QUERIES; q++) {
        float scale = final_scale(args.a.sinks, heads[q], state[q]);
        [[unroll]] for (uint i = 0; i < EACH; i++) {
            uint d = gl_LocalInvocationID.x + i * THREADS;
            if (ends[q] != 0 && d < args.a.kv.head_dim)
                Floats(row_at(args.a.out_, rows[q] * args.a.n_heads + heads[q], args.a.kv.head_dim)).v[d] =
                    sums[q][i] * scale;
        }
    }
}

MEMORY(Ranges, spry_row_range, 4);

void main()
{
    if (PREFILL == 0) {
        split();
        return;
    }
    spry_row_range run = Ranges(args.a.prefill_tiles).v[gl_NumWorkGroups.y - 1 - gl_WorkGroupID.y];
    uint n_queries = run.n_rows * (args.a.n_heads / args.a.kv.n_kv_heads);
    for (uint first = 0; first < n_queries; first += QUERIES)
        prefill_queries(run, first, gl_WorkGroupID.x);
}
