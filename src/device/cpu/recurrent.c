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
 *   S = exp(g) * S;  S += k (beta * (v - S k));  out = S q     (kernels/ops.h, recur)
 *
 * Mamba-2's states have no delta rule: with the step in time dt
 *
 *   S = exp(g) * S;  S += B dt x;  out = S C + D x
 *
 * so that B is a key, C a query, x a value, and dt stands for beta.
 *
 * q, k and v come through a short convolution. A table's state (kv/kv_states.h) keeps, in floats, for each layer, the
 * heads' states before the first token of its last page, and what the tokens from there on give: the input of the
 * convolution, exp(g) and beta; inputs also of the few tokens before, which the convolution reaches. So a text goes on
 * after any token of that page: its tokens are learned again, in the same order and with the same bits, whatever was
 * computed together, cached, taken back or restored. */

static const float inner_eps = 1e-6f; /* added to the squared lengths of q and k */

typedef struct delta_job {
    spry_pass *pass;
    const spry_layer *layer;
    uint32_t index;
} delta_job;

/* What a state keeps of one layer. */
typedef struct delta_state {
    float *heads;  /* [n_delta_heads, key_dim, value_dim]: before token `from` of the run */
    float *gates;  /* [SPRY_PAGE_TOKENS, 2, n_delta_heads]: exp(g), beta, of tokens from there on */
    float *inputs; /* [n_conv - 1 + SPRY_PAGE_TOKENS, mixed]: q | k | v of all heads, from n_conv - 1 tokens before */
} delta_state;

/* The rows of a step that one sequence has: segments of the same table, which follow each other. */
typedef struct delta_run {
    delta_state state;
    size_t first_row, first, end; /* rows are positions first to end */
    size_t from, next;            /* for which position the state is kept before the step, and after it */
    size_t begin;                 /* the first position that is learned: `from`, or `first` */
} delta_run;

/* Where the next run is looked for. */
typedef struct run_cursor {
    size_t segment, row;
} run_cursor;

static delta_state state_of(const delta_job *job, const spry_kv_table *table)
{
    const spry_config *c = job->pass->config;
    size_t heads = c->n_delta_heads, size = heads * c->delta_key_dim * c->delta_value_dim;
    float *base = (float *)(void *)spry_host_page(job->pass->states, table->state - 1) +
                  c->state_slot[job->index] * spry_config_delta_floats(c);
    return (delta_state){base, base + size, base + size + SPRY_PAGE_TOKENS * 2 * heads};
}

static bool next_run(const delta_job *job, delta_run *run, run_cursor *at)
{
    const spry_pass *p = job->pass;
    while (at->segment < p->n_segments && !p->segments[at->segment].n_rows)
        at->segment++;
    if (at->segment == p->n_segments)
        return false;
    const spry_segment *g = &p->segments[at->segment];
    *run = (delta_run){.state = state_of(job, g->table),
                       .first_row = at->row,
                       .first = g->first_position,
                       .end = g->first_position,
                       .from = g->table->state_from};
    for (; at->segment < p->n_segments && p->segments[at->segment].table == g->table; at->segment++) {
        run->end += p->segments[at->segment].n_rows;
        at->row += p->segments[at->segment].n_rows;
    }
    run->next = spry_kv_table_find(g->table, run->end - 1)->start;
    run->begin = p->is_ahead ? run->first : run->from;
    return true;
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

/* Betas and decays of rows become what states take; texts that begin have nothing before their first token. */
static void prepare_part(void *context, size_t worker, size_t n_workers)
{
    const delta_job *job = context;
    const spry_pass *p = job->pass;
    const spry_config *c = p->config;
    size_t heads = c->n_delta_heads, begin, end;
    spry_threads_part(&begin, &end, p->n_rows, 1, worker, n_workers);
    for (size_t row = begin; row < end; row++) {
        float *ba = p->delta_ba + row * 2 * heads;
        for (size_t h = 0; h < heads; h++) {
            float time = softplus(ba[heads + h] + job->layer->delta_dt[h]), b = ba[h];
            if (c->arch->mamba)
                time = fminf(fmaxf(time, c->time_limit[0]), c->time_limit[1]);
            ba[h] = expf(job->layer->delta_fading[h] * time);
            ba[heads + h] = c->arch->mamba ? time : c->beta_scale / (1 + expf(-b));
        }
    }
    delta_run run;
    for (run_cursor at = {0}; worker == 0 && next_run(job, &run, &at);)
        if (!run.first)
            memset(run.state.inputs, 0, (c->n_conv - 1) * spry_config_delta_mixed(c) * sizeof(float));
}

/* Some runs of a step whose tokens, with those that are learned again, fit the memory of convolutions. */
typedef struct delta_group {
    delta_job job;
    run_cursor begin;
    size_t n_runs, n_tokens;
} delta_group;

static size_t tokens_of(const delta_run *run)
{
    return run->end - run->begin;
}

static delta_group next_group(const delta_job *job, run_cursor *at)
{
    delta_group group = {.job = *job, .begin = *at};
    delta_run run;
    for (run_cursor next = *at; next_run(job, &run, &next); *at = next, group.n_runs++) {
        if (group.n_runs && group.n_tokens + tokens_of(&run) > job->pass->limits.max_rows + SPRY_PAGE_TOKENS)
            break;
        group.n_tokens += tokens_of(&run);
    }
    return group;
}

/* The input of the convolution at a position, of a run's rows or of the tokens that its state has. */
static const float *input_at(const delta_job *job, const delta_run *r, size_t after)
{
    const spry_pass *p = job->pass;
    size_t mixed = spry_config_delta_mixed(p->config), reach = p->config->n_conv; /* `after` is position + reach - 1 */
    return after + 1 < r->first + reach ? r->state.inputs + (after - r->from) * mixed
                                        : p->delta_mixed + (r->first_row + after + 1 - reach - r->first) * mixed;
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

/* The convolution's output at a position: queries, keys and values of all heads. */
static void convolve_token(const delta_job *job, const delta_run *r, float *out, size_t position)
{
    const spry_pass *p = job->pass;
    const spry_config *c = p->config;
    size_t mixed = spry_config_delta_mixed(c), reach = c->n_conv, n_k = c->delta_key_dim;
    const float *taps = p->delta_taps + c->state_slot[job->index] * reach * mixed, *bias = job->layer->delta_conv_bias;
    if (bias)
        memcpy(out, bias, mixed * sizeof *out);
    else
        memset(out, 0, mixed * sizeof *out);
    for (size_t step = 0; step < reach; step++) {
        const float *in = input_at(job, r, position + step), *weight = taps + step * mixed;
        for (size_t i = 0; i < mixed; i++)
            out[i] += weight[i] * in[i];
    }
    p->ops->gate[SPRY_GATE_SILU](out, out, p->ones, mixed);
    for (size_t head = 0; !c->arch->mamba && head < c->n_delta_keys; head++) {
        make_unit(out + head * n_k, n_k, 1 / sqrtf((float)n_k));
        make_unit(out + (c->n_delta_keys + head) * n_k, n_k, 1);
    }
}

/* An item is a token of a run of the group. */
static void convolve_items(void *context, size_t begin, size_t end)
{
    const delta_group *group = context;
    size_t mixed = spry_config_delta_mixed(group->job.pass->config), first = 0, n_runs = 0;
    delta_run run;
    for (run_cursor at = group->begin; n_runs < group->n_runs && next_run(&group->job, &run, &at); n_runs++) {
        for (size_t i = begin > first ? begin : first; i < end && i < first + tokens_of(&run); i++)
            convolve_token(&group->job, &run, group->job.pass->delta_conv + i * mixed, run.begin + i - first);
        first += tokens_of(&run);
    }
}

/* exp(g) and beta of tokens from a position on: of the tokens that the state has, or of rows. */
static const float *gates_at(const delta_job *job, const delta_run *r, size_t position)
{
    size_t width = 2 * (size_t)job->pass->config->n_delta_heads;
    return position < r->first ? r->state.gates + (position - r->from) * width
                               : job->pass->delta_ba + (r->first_row + position - r->first) * width;
}

/* Tokens [begin, end) of a run for one head; these are all rows of the step, or none is. */
static void learn(const delta_job *job, const delta_run *r, const float *conv, float *state, size_t head, size_t begin,
                  size_t end)
{
    const spry_pass *p = job->pass;
    const spry_config *c = p->config;
    size_t mixed = spry_config_delta_mixed(c), width = (size_t)c->n_delta_heads * c->delta_value_dim;
    const spry_mixed_places places = spry_config_mixed_places(c, head);
    const float *rows = conv + (begin - r->begin) * mixed, *gates = gates_at(job, r, begin) + head;
    const float *skip = job->layer->delta_skip;
    bool answers = begin >= r->first;
    if (begin >= end)
        return;
    const spry_recur recur = {
        .state = state,
        .q = rows + places.q,
        .k = rows + places.k,
        .v = rows + places.v,
        .stride = mixed,
        .fade = gates,
        .beta = gates + c->n_delta_heads,
        .gate_stride = 2 * (size_t)c->n_delta_heads,
        .out = answers ? p->delta_result + (r->first_row + begin - r->first) * width + head * c->delta_value_dim : NULL,
        .out_stride = width,
        .n = end - begin,
        .first = answers ? 0 : end - begin,
        .n_k = c->delta_key_dim,
        .n_v = c->delta_value_dim,
        .corrects = !c->arch->mamba,
        .skip = skip ? skip[head] : 0};
    p->ops->recur(&recur);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* A run for one head. First the state learns the tokens before the position for which it is kept after the step, then a
 * copy of it learns the others. A step that goes on from the last one has that copy already. */
static void run_head(const delta_job *job, const delta_run *r, const float *conv, size_t head)
{
    const spry_pass *p = job->pass;
    const spry_config *c = p->config;
    size_t size = (size_t)c->delta_key_dim * c->delta_value_dim, kept = r->next > r->from ? r->next : r->from;
    float *state = r->state.heads + head * size, own[SPRY_MAX_DELTA_DIM * SPRY_MAX_DELTA_DIM];
    float *copy =
        p->leads ? p->delta_ahead + ((size_t)c->state_slot[job->index] * c->n_delta_heads + head) * size : own;
    if (p->is_ahead && kept > r->from) {
        learn(job, r, conv, copy, head, r->first, kept);
        memcpy(state, copy, size * sizeof *state);
    } else if (!p->is_ahead) {
        if (!r->first)
            memset(state, 0, size * sizeof *state);
        learn(job, r, conv, state, head, r->from, least(r->first, kept));
        learn(job, r, conv, state, head, r->first > r->from ? r->first : r->from, kept);
        memcpy(copy, state, size * sizeof *state);
        learn(job, r, conv, copy, head, kept, r->first);
    }
    learn(job, r, conv, copy, head, kept > r->first ? kept : r->first, r->end);
}

static void recur_part(void *context, size_t worker, size_t n_workers)
{
    const delta_group *group = context;
    const spry_config *c = group->job.pass->config;
    size_t item = 0, n_runs = 0;
    const float *conv = group->job.pass->delta_conv;
    delta_run run;
    for (run_cursor at = group->begin; n_runs < group->n_runs && next_run(&group->job, &run, &at); n_runs++) {
        for (size_t head = 0; head < c->n_delta_heads; head++, item++)
            if (item % n_workers == worker)
                run_head(&group->job, &run, conv, head);
        conv += tokens_of(&run) * spry_config_delta_mixed(c);
    }
}

/* What later steps need of the tokens of a run, as far as coordinates [begin, end) of `width` go: the tokens from
 * position `next` on, and `before` tokens before it. `kept` has those from `from` on so far. Ascending: what is read
 * comes after what is written. */
static void keep_tokens(const delta_run *r, float *kept, const float *rows, size_t before, size_t width, size_t begin,
                        size_t end)
{
    size_t n = before + r->end - r->next, moved = r->next - r->from, old = r->first - r->from + before;
    for (size_t i = moved ? 0 : old; i < n; i++) {
        const float *from =
            i + moved < old ? kept + (i + moved) * width : rows + (r->first_row + i + moved - old) * width;
        memcpy(kept + i * width + begin, from + begin, (end - begin) * sizeof *kept);
    }
}

static void keep_part(void *context, size_t worker, size_t n_workers)
{
    const delta_job *job = context;
    const spry_pass *p = job->pass;
    const spry_config *c = p->config;
    size_t mixed = spry_config_delta_mixed(c), gates = 2 * (size_t)c->n_delta_heads, begin, end;
    spry_threads_part(&begin, &end, mixed, 1, worker, n_workers);
    delta_run run;
    for (run_cursor at = {0}; next_run(job, &run, &at);) {
        keep_tokens(&run, run.state.inputs, p->delta_mixed, c->n_conv - 1, mixed, begin, end);
        if (worker == 0)
            keep_tokens(&run, run.state.gates, p->delta_ba, 0, gates, 0, gates);
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

/* The only sequence of a step, as a segment; NULL: there are several. */
static const spry_segment *only_segment(const spry_pass *p)
{
    for (size_t s = 1; s < p->n_segments; s++)
        if (p->segments[s].table != p->segments[0].table)
            return NULL;
    return p->n_rows ? &p->segments[0] : NULL;
}

/* Nothing may have moved states since, and a page that is kept from this step on begins after the last step. */
void spry_pass_recur_begin(spry_pass *p)
{
    const spry_segment *g = only_segment(p);
    p->leads = g && g->table->state;
    p->is_ahead = p->leads && p->ahead_state == g->table->state && p->ahead_end == g->first_position &&
                  p->ahead_changes == p->states->changes && g->first_position > g->table->state_from;
    if (p->is_ahead) {
        size_t next = spry_kv_table_find(g->table, g->first_position + p->n_rows - 1)->start;
        p->is_ahead = next == g->table->state_from || next >= g->first_position;
    }
}

void spry_pass_recur_end(spry_pass *p)
{
    const spry_segment *g = p->leads ? &p->segments[0] : NULL;
    p->ahead_state = g ? g->table->state : 0;
    p->ahead_end = g ? g->first_position + p->n_rows : 0;
    p->ahead_changes = p->states->changes;
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
    spry_threads_run(p->threads, prepare_part, &job);
    for (run_cursor at = {0}; at.segment < p->n_segments;) {
        delta_group group = next_group(&job, &at);
        if (!group.n_runs)
            break;
        spry_threads_share(p->threads, convolve_items, &group, group.n_tokens, 1);
        spry_threads_run(p->threads, recur_part, &group);
    }
    spry_threads_run(p->threads, keep_part, &job);
    spry_threads_run(p->threads, gate_part, &job);
    spry_pass_charge(p, SPRY_OP_ATTEND);
    spry_pass_linear(p, SPRY_OP_OUT, p->y, c->n_embd, &l->delta_out, p->delta_result, p->n_rows);
}
