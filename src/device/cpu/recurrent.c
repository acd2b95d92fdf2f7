/* Layers that keep a state in place of attention: short convolutions, gated delta nets and Mamba-2. */
#include <math.h>
#include <string.h>

#include "device/cpu/pass_state.h"
#include "kernels/kv_layout.h"

/* ---- short convolutions ------------------------------------------------------------------------------------------ */

/* Short convolutions: of the input come B, C and x, a row each; what is convolved over a few tokens is B * x, and C
 * weighs the result. B * x of every token is kept in its page, in the layer's places for keys and values, head by head,
 * and always read from there: what a row gives has the same bits whether its predecessors came with it or earlier. */

typedef struct conv_job {
    spry_pass *pass;
    const spry_layer *layer;
    uint32_t slot;
} conv_job;

/* The place of piece `piece` of a token's vector; *key: as a key. */
static unsigned char *place(const conv_job *job, unsigned char *page, size_t token, size_t piece, bool *key)
{
    const spry_kv_pool *pool = job->pass->pool;
    size_t heads = pool->shape.n_kv_heads, side = piece / heads % 2;
    unsigned char *at =
        page + spry_kv_offset(pool, job->slot + piece / heads / 2, side) + piece % heads * pool->head_bytes;
    *key = side == 0;
    return *key ? at : at + token * pool->token_bytes;
}

static void store_rows(void *context, size_t begin, size_t end)
{
    const conv_job *job = context;
    const spry_pass *p = job->pass;
    size_t n = p->config->n_embd, dim = p->config->head_dim;
    for (size_t row = begin; row < end; row++) {
        float *b = p->conv + row * 3 * n;
        const float *x = b + 2 * n;
        for (size_t i = 0; i < n; i++)
            b[i] *= x[i];
        for (size_t piece = 0; piece < n / dim; piece++) {
            bool key;
            const spry_slot *slot = &p->slots[row];
            unsigned char *at = place(job, slot->page, slot->token, piece, &key);
            if (key)
                spry_kv_store_key(p->ops, p->pool->shape.type, at, slot->token, b + piece * dim, dim);
            else
                p->ops->encode[p->pool->shape.type](at, b + piece * dim, dim);
        }
    }
}

/* Adds one token's piece, weighed: `weight` of the first coordinate, n_conv apart. */
static void add_token(const conv_job *job, float *sum, const spry_segment *g, size_t position, size_t piece,
                      const float *weight)
{
    const spry_pass *p = job->pass;
    float values[SPRY_MAX_HEAD_DIM];
    size_t dim = p->config->head_dim;
    const spry_kv_entry *entry = spry_kv_table_find(g->table, position);
    size_t token = position - entry->start;
    bool key;
    const unsigned char *at = place(job, spry_host_page(p->pages, entry->page), token, piece, &key);
    if (key)
        spry_kv_load_key(p->pool->shape.type, values, at, token, dim);
    else
        p->ops->decode[p->pool->shape.type](values, at, dim);
    for (size_t i = 0; i < dim; i++)
        sum[i] += weight[i * p->config->n_conv] * values[i];
}

static void convolve_row(const conv_job *job, const spry_segment *g, size_t row, size_t position)
{
    const spry_pass *p = job->pass;
    size_t n = p->config->n_embd, dim = p->config->head_dim, reach = p->config->n_conv;
    const float *c = p->conv + row * 3 * n + n;
    for (size_t piece = 0; piece < n / dim; piece++) {
        float sum[SPRY_MAX_HEAD_DIM];
        for (size_t i = 0; i < dim; i++)
            sum[i] = 0;
        for (size_t k = 0; k < reach; k++) /* before the first token there is nothing */
            if (position + k + 1 >= reach)
                add_token(job, sum, g, position + k + 1 - reach, piece, job->layer->conv + piece * dim * reach + k);
        for (size_t i = 0; i < dim; i++) {
            size_t at = piece * dim + i;
            p->h[row * n + at] = c[at] * (sum[i] + (job->layer->conv_bias ? job->layer->conv_bias[at] : 0));
        }
    }
}

static void convolve_rows(void *context, size_t begin, size_t end)
{
    const conv_job *job = context;
    const spry_pass *p = job->pass;
    size_t row = 0;
    for (size_t s = 0; s < p->n_segments; s++)
        for (uint32_t i = 0; i < p->segments[s].n_rows; i++, row++)
            if (row >= begin && row < end)
                convolve_row(job, &p->segments[s], row, p->positions[row]);
}

void spry_pass_convolution(spry_pass *p, const spry_layer *l, uint32_t index)
{
    size_t n = p->config->n_embd;
    conv_job job = {p, l, p->config->kv_slot[index]};
    spry_pass_linear(p, SPRY_OP_QKV, p->conv, 3 * n, &l->conv_in, p->in, p->n_rows);
    spry_threads_share(p->threads, store_rows, &job, p->n_rows, 1);
    spry_threads_share(p->threads, convolve_rows, &job, p->n_rows, 1);
    spry_pass_charge(p, SPRY_OP_ATTEND);
    spry_pass_linear(p, SPRY_OP_OUT, p->y, n, &l->conv_out, p->h, p->n_rows);
}

/* ---- gated delta nets -------------------------------------------------------------------------------------------- */

/* Gated delta nets. Each head has a state, [key_dim, value_dim]; a token makes it fade, replaces what the state gives
 * for the token's key by its value, as far as beta says, and is answered by its query:
 *
 *   S = exp(g) * S;  S += k (beta * (v - S k));  out = S q
 *
 * Mamba-2's states have no delta rule: with the step in time dt
 *
 *   S = exp(g) * S;  S += B dt x;  out = S C + D x
 *
 * so that B is a key, C a query, x a value, and dt stands for beta.
 *
 * q, k and v come through a short convolution. A page keeps, in floats and after its keys and values, what its tokens
 * give: the input of the convolution, exp(g) and beta; and the state before its first token. So pages hold all that is
 * needed to go on after any token: states are made again from the beginning of a page, at most a page of tokens, in
 * the same order and with the same bits, whatever was computed together, cached, taken back or restored. */

static const float inner_eps = 1e-6f; /* of the lengths of q and k */

typedef struct delta_job {
    spry_pass *pass;
    const spry_layer *layer;
    uint32_t index;
} delta_job;

/* What a page keeps of one layer. */
typedef struct delta_page {
    float *state; /* [n_delta_heads, key_dim, value_dim]: before the first token */
    float *gates; /* [SPRY_PAGE_TOKENS, 2, n_delta_heads]: exp(g), beta */
    float *mixed; /* [SPRY_PAGE_TOKENS, mixed]: inputs of the convolution, q | k | v of all heads */
} delta_page;

static delta_page page_of(const delta_job *job, unsigned char *page)
{
    const spry_config *c = job->pass->config;
    const spry_kv_pool *pool = job->pass->pool;
    size_t heads = c->n_delta_heads, state = heads * c->delta_key_dim * c->delta_value_dim;
    float *base =
        (float *)(void *)(page + spry_kv_extra_offset(pool)) + c->state_slot[job->index] * spry_config_delta_floats(c);
    return (delta_page){base, base + state, base + state + SPRY_PAGE_TOKENS * 2 * heads};
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

/* Into pages. */
static void store_part(void *context, size_t worker, size_t n_workers)
{
    const delta_job *job = context;
    const spry_pass *p = job->pass;
    const spry_config *c = p->config;
    size_t mixed = spry_config_delta_mixed(c), heads = c->n_delta_heads, begin, end;
    spry_threads_part(&begin, &end, p->n_rows, 1, worker, n_workers);
    for (size_t row = begin; row < end; row++) {
        const spry_slot *slot = &p->slots[row];
        delta_page page = page_of(job, slot->page);
        const float *ba = p->delta_ba + row * 2 * heads;
        float *gates = page.gates + slot->token * 2 * heads;
        memcpy(page.mixed + slot->token * mixed, p->delta_mixed + row * mixed, mixed * sizeof(float));
        for (size_t h = 0; h < heads; h++) {
            float time = softplus(ba[heads + h] + job->layer->delta_dt[h]);
            if (c->arch->mamba)
                time = fminf(fmaxf(time, c->time_limit[0]), c->time_limit[1]);
            gates[h] = expf(job->layer->delta_fading[h] * time);
            gates[heads + h] = c->arch->mamba ? time : c->beta_scale / (1 + expf(-ba[h]));
        }
    }
}

/* One head at work. */
typedef struct head_work {
    const delta_job *job;
    const spry_kv_table *table;
    size_t head;
    float state[SPRY_MAX_DELTA_DIM * SPRY_MAX_DELTA_DIM];
    float q[SPRY_MAX_DELTA_DIM], k[SPRY_MAX_DELTA_DIM], v[SPRY_MAX_DELTA_DIM], change[SPRY_MAX_DELTA_DIM];
} head_work;

static delta_page entry_page(const head_work *w, const spry_kv_entry *entry)
{
    return page_of(w->job, spry_host_page(w->job->pass->pages, entry->page));
}

/* n coordinates of the convolution's output at a position, from number `first` on. */
static void convolve(const head_work *w, float *out, size_t position, size_t first, size_t n)
{
    const spry_config *c = w->job->pass->config;
    size_t mixed = spry_config_delta_mixed(c), reach = c->n_conv;
    const float *weight = w->job->layer->delta_conv + first * reach;
    const float *bias = w->job->layer->delta_conv_bias;
    for (size_t i = 0; i < n; i++)
        out[i] = bias ? bias[first + i] : 0;
    for (size_t step = 0; step < reach; step++) {
        if (position + step + 1 < reach) /* before the first token there is nothing */
            continue;
        size_t at = position + step + 1 - reach;
        const spry_kv_entry *entry = spry_kv_table_find(w->table, at);
        const float *in = entry_page(w, entry).mixed + (at - entry->start) * mixed + first;
        for (size_t i = 0; i < n; i++)
            out[i] += weight[i * reach + step] * in[i];
    }
    for (size_t i = 0; i < n; i++)
        out[i] = out[i] / (1 + expf(-out[i]));
}

/* To length 1, times `scale`. */
static void make_unit(float *x, size_t n, float scale)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    scale /= sqrtf(sum + inner_eps);
    for (size_t i = 0; i < n; i++)
        x[i] *= scale;
}

/* The token at a position into the state. */
static void learn(head_work *w, size_t position)
{
    const spry_config *c = w->job->pass->config;
    size_t n_k = c->delta_key_dim, n_v = c->delta_value_dim;
    const spry_mixed_places places = spry_config_mixed_places(c, w->head);
    const spry_kv_entry *entry = spry_kv_table_find(w->table, position);
    const float *gates = entry_page(w, entry).gates + (position - entry->start) * 2 * c->n_delta_heads;
    float fade = gates[w->head], beta = gates[c->n_delta_heads + w->head];
    bool corrects = !c->arch->mamba;
    convolve(w, w->k, position, places.k, n_k);
    convolve(w, w->v, position, places.v, n_v);
    if (corrects)
        make_unit(w->k, n_k, 1);
    for (size_t j = 0; j < n_v; j++)
        w->change[j] = 0;
    for (size_t i = 0; i < n_k; i++) {
        float *row = w->state + i * n_v, key = corrects ? w->k[i] : 0;
        for (size_t j = 0; j < n_v; j++) {
            row[j] *= fade;
            w->change[j] += row[j] * key;
        }
    }
    for (size_t j = 0; j < n_v; j++)
        w->change[j] = (w->v[j] - w->change[j]) * beta;
    for (size_t i = 0; i < n_k; i++) {
        float *row = w->state + i * n_v, key = w->k[i];
        for (size_t j = 0; j < n_v; j++)
            row[j] += key * w->change[j];
    }
}

/* What the state gives for the query at a position, the last one it learned. */
static void answer(head_work *w, float *out, size_t position)
{
    const spry_config *c = w->job->pass->config;
    size_t n_k = c->delta_key_dim, n_v = c->delta_value_dim;
    const float *skip = w->job->layer->delta_skip;
    convolve(w, w->q, position, spry_config_mixed_places(c, w->head).q, n_k);
    if (!c->arch->mamba)
        make_unit(w->q, n_k, 1 / sqrtf((float)n_k));
    for (size_t j = 0; j < n_v; j++)
        out[j] = skip ? skip[w->head] * w->v[j] : 0;
    for (size_t i = 0; i < n_k; i++)
        for (size_t j = 0; j < n_v; j++)
            out[j] += w->state[i * n_v + j] * w->q[i];
}

/* The state after the first `count` tokens of an entry. */
static void restore(head_work *w, const spry_kv_entry *entry, size_t count)
{
    const spry_config *c = w->job->pass->config;
    size_t size = (size_t)c->delta_key_dim * c->delta_value_dim;
    memcpy(w->state, entry_page(w, entry).state + w->head * size, size * sizeof *w->state);
    for (size_t i = 0; i < count; i++)
        learn(w, entry->start + i);
}

/* The state before a position that begins a page, into that page. */
static void begin_page(head_work *w, const spry_kv_entry *entry)
{
    const spry_config *c = w->job->pass->config;
    size_t size = (size_t)c->delta_key_dim * c->delta_value_dim;
    memcpy(entry_page(w, entry).state + w->head * size, w->state, size * sizeof *w->state);
}

/* The rows of a segment, one after another, for one head. */
static void run_head(head_work *w, const spry_segment *g, size_t first_row)
{
    const spry_pass *p = w->job->pass;
    const spry_config *c = p->config;
    size_t stride = (size_t)c->n_delta_heads * c->delta_value_dim, first = g->first_position;
    const spry_kv_entry *entry = spry_kv_table_find(g->table, first);
    if (first > entry->start)
        restore(w, entry, first - entry->start);
    else if (first)
        restore(w, entry - 1, entry[-1].count);
    else
        memset(w->state, 0, (size_t)c->delta_key_dim * c->delta_value_dim * sizeof *w->state);
    for (size_t i = 0; i < g->n_rows; i++) {
        if (first + i >= entry->start + entry->count)
            entry++;
        if (first + i == entry->start)
            begin_page(w, entry);
        learn(w, first + i);
        answer(w, p->delta_result + (first_row + i) * stride + w->head * c->delta_value_dim, first + i);
    }
}

static void recur_part(void *context, size_t worker, size_t n_workers)
{
    const delta_job *job = context;
    const spry_pass *p = job->pass;
    head_work w; /* large: not cleared */
    size_t first_row = 0, item = 0;
    w.job = job;
    for (size_t s = 0; s < p->n_segments; first_row += p->segments[s++].n_rows)
        for (w.head = 0; w.head < p->config->n_delta_heads; w.head++, item++)
            if (item % n_workers == worker && p->segments[s].n_rows) {
                w.table = p->segments[s].table;
                run_head(&w, &p->segments[s], first_row);
            }
}

/* Results are normalised, group by group, and gated. */
static void gate_part(void *context, size_t worker, size_t n_workers)
{
    const delta_job *job = context;
    const spry_pass *p = job->pass;
    const spry_config *c = p->config;
    size_t n = c->delta_norm_size, width = (size_t)c->n_delta_heads * c->delta_value_dim, begin, end;
    float eps = c->delta_norm_eps > 0 ? c->delta_norm_eps : c->norm_eps;
    spry_threads_part(&begin, &end, p->n_rows, 1, worker, n_workers);
    for (size_t row = begin; row < end; row++) {
        float *out = p->delta_result + row * width, *gate = p->delta_gate + row * width;
        if (c->delta_gate_first)
            p->ops->gate[SPRY_GATE_SILU](out, gate, out, width);
        for (size_t at = 0; n && at < width; at += n) /* heads of a delta net share their weights */
            p->ops->rms_norm(out + at, out + at, job->layer->delta_norm + (c->arch->mamba ? at : 0), n, eps);
        if (!c->delta_gate_first)
            p->ops->gate[SPRY_GATE_SILU](out, gate, out, width);
    }
}

void spry_pass_delta(spry_pass *p, const spry_layer *l, uint32_t index)
{
    const spry_config *c = p->config;
    size_t heads = c->n_delta_heads, width = heads * c->delta_value_dim, mixed = spry_config_delta_mixed(c), n = 0;
    delta_job job = {p, l, index};
    spry_product inputs[SPRY_PASS_ADAPTED];
    for (size_t i = 0, at = 0; i < SPRY_COUNT(l->delta_qkv) && l->delta_qkv[i].data; at += l->delta_qkv[i++].n_out)
        inputs[n++] = (spry_product){p->delta_mixed + at, mixed, &l->delta_qkv[i]};
    inputs[n++] = (spry_product){p->delta_gate, width, &l->delta_gate};
    if (l->delta_b.data)
        inputs[n++] = (spry_product){p->delta_ba, 2 * heads, &l->delta_b};
    inputs[n++] = (spry_product){p->delta_ba + heads, 2 * heads, &l->delta_a};
    spry_pass_products(p, SPRY_OP_QKV, inputs, n, p->in, p->n_rows);
    spry_threads_run(p->threads, store_part, &job);
    spry_threads_run(p->threads, recur_part, &job);
    spry_threads_run(p->threads, gate_part, &job);
    spry_pass_charge(p, SPRY_OP_ATTEND);
    spry_pass_linear(p, SPRY_OP_OUT, p->y, c->n_embd, &l->delta_out, p->delta_result, p->n_rows);
}
