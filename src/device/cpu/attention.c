/* Attention over the pages of a sequence. */
#include <math.h>
#include <string.h>

#include "device/cpu/pass_state.h"
#include "platform/clock.h"

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* Attention over the pages, from q to attn. Work is divided into items: a few rows of a segment and one key/value head.
 * If a single sequence is decoded, items are chunks of its pages, whose results are combined afterwards. The kernels
 * combine chunks in the same order when they process all of them, so the division changes no bit. A worker takes
 * adjacent heads of the same rows and chunk together: they are adjacent in a page, and memory is read faster in long
 * pieces. */

typedef struct attend_job {
    const spry_pass *pass;
    uint32_t layer;
    spry_attend_parts parts; /* n is 0: items are not divided into chunks */
    float *sums, *states;    /* memory for partial results */
    size_t rows;             /* rows of a segment in one item of work */
} attend_job;

enum { ATTEND_ROWS = 32, ITEMS_A_WORKER = 4 }; /* maximum rows of an item; half as many if there are few items */
enum { MANY_ROWS = 8 };
enum { BLOCKS_A_WORKER = 2 }; /* minimum number of blocks when heads are taken together */

/* Entries [first, end) that the rows of a segment can see: rows of a two-way picture see all of it, and nothing after
 * it; rows of a window see only that. */
typedef struct seen_entries {
    size_t first, end;
} seen_entries;

static seen_entries find_seen(const spry_segment *g, bool two_way, bool windowed)
{
    const spry_kv_entry *all = g->table->entries;
    seen_entries seen = {0, g->table->n_entries};
    if (two_way || windowed)
        seen.end = (size_t)(spry_kv_table_find(g->table, g->first_position + g->n_rows - 1) - all) + 1;
    if (windowed)
        seen.first = (size_t)(spry_kv_table_find(g->table, g->first_position) - all);
    return seen;
}

/* The number of first rows of a segment that attend to all keys: with an indexer, later ones attend to selected keys.
 */
static size_t dense_rows(const spry_pass *p, const spry_segment *g)
{
    return p->config->index_top ? spry_pass_dense_rows(p, g) : g->n_rows;
}

/* True if the rows of a segment see each other in a layer. */
static bool sees_both_ways(const spry_segment *g, const spry_config *c, uint32_t layer)
{
    return g->picture && g->picture->two_way && (c->sliding[layer] || !c->arch->sliding_two_way);
}

spry_attend spry_pass_attend_rows(const spry_pass *p, uint32_t layer, const spry_segment *g, size_t first_row,
                                  size_t skip)
{
    const spry_config *c = p->config;
    bool two_way = sees_both_ways(g, c, layer);
    spry_heads h = spry_config_heads(c, layer);
    spry_kv_place place = spry_kv_place_of(p->pool, c->sliding[layer] && spry_config_has_kinds(c), c->kv_slot[layer]);
    seen_entries seen = find_seen(g, two_way, c->windowed && c->windowed[layer]);
    size_t stride = (size_t)c->n_heads * h.head_dim;
    return (spry_attend){.out = p->attn + (first_row + skip) * stride,
                         .query = p->q + (first_row + skip) * stride,
                         .row_stride = stride,
                         .n_rows = dense_rows(p, g) - skip,
                         .first_position = g->first_position + (uint32_t)skip,
                         .window = c->sliding[layer] && !c->arch->chunked ? c->window : 0,
                         .block = c->sliding[layer] && c->arch->chunked ? c->window : 0,
                         .ahead = two_way             ? UINT32_MAX
                                  : !c->bidirectional ? 0
                                  : c->sliding[layer] ? c->window - 1
                                                      : UINT32_MAX,
                         .head_dim = h.head_dim,
                         .group = c->n_heads / h.n_kv_heads,
                         .scale = 1 / sqrtf(c->query_scalar),
                         .softcap = c->attn_softcap,
                         .latent = c->n_kv_rank,
                         .sinks = p->weights->layers[layer].sinks,
                         .type = p->pool->shape.type,
                         .pages = p->pages->memory,
                         .page_bytes = p->pool->page_bytes,
                         .key_offset = place.keys,
                         .value_offset = place.values,
                         .head_bytes = place.head_bytes,
                         .token_bytes = place.token_bytes,
                         .entries = g->table->entries + seen.first,
                         .n_entries = seen.end - seen.first,
                         .turns = !c->rotated[layer]  ? NULL
                                  : c->sliding[layer] ? p->sliding.turns
                                                      : p->full.turns,
                         .n_pairs = h.rope_dim / 2,
                         .interleaved = c->interleaved};
}

static spry_attend attend_rows(const attend_job *job, const spry_segment *g, size_t first_row, size_t skip)
{
    spry_attend a = spry_pass_attend_rows(job->pass, job->layer, g, first_row, skip);
    a.n_rows = a.n_rows < job->rows ? a.n_rows : job->rows;
    return a;
}

static size_t kv_heads(const attend_job *job)
{
    return spry_config_heads(job->pass->config, job->layer).n_kv_heads;
}

static size_t items_of(const attend_job *job, const spry_segment *g)
{
    return (dense_rows(job->pass, g) + job->rows - 1) / job->rows * kv_heads(job);
}

static size_t count_items(const attend_job *job)
{
    size_t n = 0;
    for (size_t s = 0; s < job->pass->n_segments; s++)
        n += items_of(job, &job->pass->segments[s]);
    return n;
}

/* The number of items from i on (item i is for `head`, the next ones for the following heads) that are for the same
 * rows and chunk. */
static size_t heads_until(size_t i, size_t end, size_t head, size_t n_heads)
{
    return end - i < n_heads - head ? end - i : n_heads - head;
}

/* Later rows have more keys, so their items are in the small blocks at the end. */
static void attend_items(void *context, size_t begin, size_t end)
{
    const attend_job *job = context;
    const spry_pass *p = job->pass;
    size_t first_row = 0, item = 0, n_heads = kv_heads(job);
    for (size_t s = 0; s < p->n_segments && item < end; first_row += p->segments[s++].n_rows) {
        const spry_segment *g = &p->segments[s];
        size_t after = item + items_of(job, g);
        for (size_t i = begin > item ? begin : item, n; i < end && i < after; i += n) {
            spry_attend a = attend_rows(job, g, first_row, (i - item) / n_heads * job->rows);
            size_t head = (i - item) % n_heads;
            n = heads_until(i, end, head, n_heads);
            p->ops->attend(&a, head, head + n);
        }
        item = after;
    }
}

/* The arguments for the only segment of a step that is divided into chunks. */
static spry_attend attend_chunked(const attend_job *job)
{
    spry_attend a = attend_rows(job, &job->pass->segments[0], 0, 0);
    a.state_stride = 2 * (size_t)job->pass->config->n_heads;
    return a;
}

static uint32_t chunk_of(const spry_attend *a, size_t entry)
{
    return a->entries[entry].start / SPRY_ATTEND_CHUNK_TOKENS;
}

/* Reduces the entries to a chunk; `after` becomes the entries that this worker will probably read next, if each worker
 * takes one chunk. */
static void take_chunk(spry_attend *a, size_t chunk, size_t workers)
{
    size_t first = 0, all = a->n_entries;
    while (chunk_of(a, first) < chunk)
        first++;
    size_t end = spry_attend_chunk_end(a, first), after = end;
    while (after < all && chunk_of(a, after) < chunk + workers)
        after++;
    a->after = a->entries + after;
    a->n_after = all - after;
    a->entries += first;
    a->n_entries = end - first;
}

/* Attends to chunks; an item is one key/value head of one chunk. */
static void attend_chunks(void *context, size_t begin, size_t end)
{
    const attend_job *job = context;
    size_t n_heads = kv_heads(job);
    for (size_t i = begin, n; i < end; i += n) {
        spry_attend a = attend_chunked(job);
        size_t number = i / n_heads, head = i % n_heads;
        take_chunk(&a, chunk_of(&a, 0) + number, spry_threads_count(job->pass->threads));
        a.out = job->sums + number * job->parts.n_sums;
        a.states = job->states + number * job->parts.n_states;
        n = heads_until(i, end, head, n_heads);
        job->pass->ops->attend(&a, head, head + n);
    }
}

static void join_heads(void *context, size_t begin, size_t end)
{
    const attend_job *job = context;
    spry_attend a = attend_chunked(job);
    for (size_t head = begin; head < end; head++)
        job->pass->ops->attend_join(&a, &job->parts, head);
}

/* Finds memory for partial results in a step with one segment; false: the segment is not divided. */
static bool divide(attend_job *job)
{
    const spry_pass *p = job->pass;
    const spry_segment *g = &p->segments[0];
    size_t n_heads = p->config->n_heads, workers = spry_threads_count(p->threads);
    if (p->n_segments != 1 || g->n_rows > ATTEND_ROWS || dense_rows(p, g) < g->n_rows)
        return false;
    spry_attend a = attend_chunked(job);
    job->parts.n = chunk_of(&a, a.n_entries - 1) - chunk_of(&a, 0) + 1;
    job->parts.n_sums = g->n_rows * n_heads * a.head_dim;
    job->parts.n_states = g->n_rows * 2 * n_heads;
    size_t n_floats = job->parts.n * (job->parts.n_sums + job->parts.n_states);
    if (workers == 1 || job->parts.n == 1 || n_floats > p->limits.max_rows * p->gate_width)
        return false;
    job->parts.sums = job->sums = p->gate; /* p->gate is not used during attention */
    job->parts.states = job->states = p->gate + job->parts.n * job->parts.n_sums;
    return true;
}

/* The number of heads that a worker takes together: as many as leave enough blocks of the n_items items for all
 * workers. Items with many rows are computed one by one. */
static size_t heads_together(const spry_pass *p, size_t heads, size_t n_items)
{
    size_t blocks = BLOCKS_A_WORKER * spry_threads_count(p->threads);
    for (size_t s = 0; s < p->n_segments; s++)
        if (p->segments[s].n_rows > MANY_ROWS)
            return 1;
    while (heads > 1 && n_items < heads * blocks)
        heads /= 2;
    return heads;
}

void spry_pass_attend(spry_pass *p, uint32_t layer)
{
    attend_job job = {.pass = p, .layer = layer, .rows = ATTEND_ROWS};
    uint64_t start = spry_clock_ns();
    size_t n_items, n_heads = kv_heads(&job);
    if (divide(&job)) {
        n_items = job.parts.n * n_heads;
        spry_threads_share(p->threads, attend_chunks, &job, n_items, heads_together(p, n_heads, n_items));
        spry_threads_share(p->threads, join_heads, &job, n_heads, 1);
    } else {
        if (count_items(&job) < ITEMS_A_WORKER * spry_threads_count(p->threads))
            job.rows = ATTEND_ROWS / 2;
        n_items = count_items(&job);
        spry_threads_share(p->threads, attend_items, &job, n_items, heads_together(p, n_heads, n_items));
    }
    p->attention_ns += spry_clock_ns() - start;
    spry_pass_took_attention(p, layer);
}

/* ---- latent attention -------------------------------------------------------------------------------------------- */

/* Multi-head latent attention. A token stores one vector for all heads in its page, [part that RoPE rotates | latents]:
 * keys and values are both made from the latents. Queries are projected to the space of the latents before attention,
 * and results are projected back after it, in prefill as in decode, so that both have the same bits. */

/* Multiplies each head by its own matrix: from rows of n_heads inputs, which are `in_step` apart, to rows of
 * outputs. */
typedef struct heads_job {
    const spry_pass *pass;
    const spry_weight *heads;
    const float *in;
    size_t in_stride, in_step;
    float *out;
    size_t out_stride, out_step;
} heads_job;

static void multiply_heads(void *context, size_t begin, size_t end)
{
    const heads_job *job = context;
    for (size_t head = begin; head < end; head++) {
        const spry_weight *w = &job->heads[head];
        const spry_matmul_kernel *kernel = &job->pass->ops->matmul[spry_weight_kernel_type(w)];
        const spry_matmul m = {.out = job->out + head * job->out_step,
                               .out_stride = job->out_stride,
                               .weight = kernel->group ? w->packed : w->data,
                               .weight_stride = kernel->group ? w->group_bytes : w->row_bytes,
                               .act = job->in + head * job->in_step,
                               .act_stride = job->in_stride * sizeof(float),
                               .n_rows = job->pass->n_rows,
                               .n_in = w->n_in};
        kernel->run(&m, 0, w->n_out);
    }
}

typedef struct latent_job {
    spry_pass *pass;
    const spry_layer *layer;
    uint32_t index;
} latent_job;

static const float inner_eps = 1e-6f; /* independent of the model's other norms */

/* Applies RoPE and the norm of the latents, and stores the row in its page. */
static void prepare_rows(void *context, size_t begin, size_t end)
{
    const latent_job *job = context;
    const spry_pass *p = job->pass;
    const spry_config *c = p->config;
    size_t n_pairs = c->rope_dim / 2, each = (size_t)c->nope_dim + c->rope_dim;
    for (size_t row = begin; row < end; row++) {
        float *q = p->q + row * c->n_heads * c->head_dim, *k = p->k + row * c->head_dim;
        const float *raw = p->raw + row * c->n_heads * each, *given = p->v + row * c->head_dim;
        const float *cosine = p->full.cosine + row * n_pairs, *sine = p->full.sine + row * n_pairs;
        for (size_t head = 0; head < c->n_heads; head++)
            memcpy(q + head * c->head_dim, raw + head * each + c->nope_dim, c->rope_dim * sizeof *q);
        memcpy(k, given + c->n_kv_rank, c->rope_dim * sizeof *k);
        p->ops->rms_norm(k + c->rope_dim, given, job->layer->kv_a_norm, c->n_kv_rank, inner_eps);
        p->ops->rope(q, cosine, sine, c->n_heads, c->head_dim, n_pairs, c->interleaved);
        spry_pass_cool(p, q, row, job->index);
        p->ops->rope(k, cosine, sine, 1, c->head_dim, n_pairs, c->interleaved);
        spry_pass_store_row(p, row, job->index);
    }
}

static void inner_norm(spry_pass *p, const float *weight, size_t n)
{
    for (size_t row = 0; row < p->n_rows; row++)
        p->ops->rms_norm(p->low + row * n, p->low + row * n, weight, n, inner_eps);
    spry_pass_charge(p, SPRY_OP_NORM);
}

void spry_pass_latent(spry_pass *p, const spry_layer *l, uint32_t index)
{
    const spry_config *c = p->config;
    size_t each = (size_t)c->nope_dim + c->rope_dim, n_q = c->n_heads * each, wide = (size_t)c->n_heads * c->head_dim;
    latent_job job = {p, l, index};
    const float *in = p->in;
    if (l->q_a.data) {
        spry_pass_linear(p, SPRY_OP_QKV, p->low, c->n_q_rank, &l->q_a, p->in, p->n_rows);
        inner_norm(p, l->q_a_norm, c->n_q_rank);
        in = p->low;
    }
    spry_pass_linear(p, SPRY_OP_QKV, p->raw, n_q, &l->q, in, p->n_rows);
    spry_pass_linear(p, SPRY_OP_QKV, p->v, c->head_dim, &l->k, p->in, p->n_rows);
    heads_job into = {p, l->k_b, p->raw, n_q, each, p->q + c->rope_dim, wide, c->head_dim};
    spry_threads_share(p->threads, multiply_heads, &into, c->n_heads, 1);
    spry_pass_charge(p, SPRY_OP_QKV);
    spry_threads_share(p->threads, prepare_rows, &job, p->n_rows, 1);
    spry_pass_charge(p, SPRY_OP_ROPE);
    if (c->index_top)
        spry_pass_select(p, l, index);
    spry_pass_attend(p, index);
    if (c->index_top)
        spry_pass_attend_selected(p, index);
    size_t n_values = (size_t)c->n_heads * c->value_dim;
    heads_job out_of = {p, l->v_b, p->attn, wide, c->head_dim, p->raw, n_values, c->value_dim};
    spry_threads_share(p->threads, multiply_heads, &out_of, c->n_heads, 1);
    const float *values = spry_pass_join_heads(p, p->raw, c->value_dim);
    spry_pass_linear_whole(p, SPRY_OP_OUT, p->y, c->n_embd, &l->o, values, p->n_rows);
}
