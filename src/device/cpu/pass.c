/* The step on the CPU, and its working memory. */
#include "device/cpu/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "device/cpu/pass_state.h"
#include "device/cpu/team.h"
#include "device/device_impl.h"
#include "kernels/packed.h"
#include "kernels/ref/ref.h"
#include "model/config.h"
#include "platform/clock.h"
#include "platform/memory.h"

/* ---- cost of ops ------------------------------------------------------------------------------------------------- */

void spry_pass_charge(spry_pass *p, spry_op op)
{
    if (p->watch)
        spry_op_watch_add(p->watch, op, SPRY_F32, p->ops->name, 0, 0);
}

void spry_pass_took_products(spry_pass *p, spry_op op, const spry_product *products, size_t n_products, size_t n_rows)
{
    double bytes = 0, multiplied = 0;
    if (!p->watch)
        return;
    for (size_t i = 0; i < n_products; i++) {
        const spry_weight *w = products[i].w;
        bytes += spry_weight_read_bytes(w, p->ops->matmul[spry_weight_kernel_type(w)].group);
        multiplied += (double)w->n_out * (double)w->n_in * (double)n_rows;
    }
    spry_op_watch_add(p->watch, op, spry_weight_kernel_type(products[0].w), p->ops->name, bytes, multiplied);
}

void spry_pass_took_attention(spry_pass *p, uint32_t layer)
{
    double bytes, products;
    if (!p->watch)
        return;
    spry_device_attention_work(&bytes, &products, p->segments, p->n_segments, p->config, p->pool, layer);
    spry_op_watch_add(p->watch, SPRY_OP_ATTEND, p->pool->shape.type, p->ops->name, bytes, products);
}

/* ---- exchange of rows in a team ---------------------------------------------------------------------------------- */

/* Interleaves the shares of all ranks, [n_rows, width of the rank] each, to complete rows. */
static void interleave(float *whole, const float *shares, const spry_team *team, const size_t *starts, size_t n_rows)
{
    size_t total = starts[team->size];
    for (size_t rank = 0; rank < team->size; rank++) {
        size_t width = starts[rank + 1] - starts[rank];
        for (size_t row = 0; row < n_rows; row++, shares += width)
            memcpy(whole + row * total + starts[rank], shares, width * sizeof *whole);
    }
}

/* Exchanges rows. Only rank 0 draws tokens, so only rank 0 needs logits. */
static const float *join(spry_pass *p, float *whole, const float *part, const size_t *starts, size_t n_rows)
{
    spry_team *team = p->team;
    size_t bytes[SPRY_TEAM_MAX];
    bool to_first = whole == p->logits;
    for (size_t rank = 0; rank < team->size; rank++)
        bytes[rank] = (starts[rank + 1] - starts[rank]) * n_rows * sizeof *part;
    team->gather(team, n_rows == 1 ? whole : p->exchanged, part, bytes, to_first);
    if (n_rows > 1 && !(to_first && team->rank))
        interleave(whole, p->exchanged, team, starts, n_rows);
    spry_pass_charge(p, SPRY_OP_EXCHANGE);
    return whole;
}

const float *spry_pass_join_heads(spry_pass *p, const float *part, size_t each)
{
    size_t starts[SPRY_TEAM_MAX + 1];
    if (!p->team)
        return part;
    spry_team_head_outputs(starts, p->team, each);
    return join(p, p->joined, part, starts, p->n_rows);
}

const float *spry_pass_join_outputs(spry_pass *p, float *whole, const float *part, size_t total, size_t n_rows)
{
    size_t starts[SPRY_TEAM_MAX + 1];
    if (!p->team)
        return part;
    spry_team_outputs(starts, p->team, total);
    return join(p, whole, part, starts, n_rows);
}

static void norm_columns(spry_pass *p, float *own, const size_t *starts, const float *weight, size_t begin, size_t end)
{
    size_t total = starts[p->team->size];
    join(p, p->joined, own, starts, p->n_rows);
    spry_pass_norm(p, p->joined, p->joined, weight, NULL, p->n_rows, total);
    for (size_t row = 0; row < p->n_rows; row++)
        memcpy(own + row * (end - begin), p->joined + row * total + begin, (end - begin) * sizeof *own);
}

void spry_pass_join_norms(spry_pass *p, const spry_layer *l)
{
    size_t starts[SPRY_TEAM_MAX + 1], n = p->config->head_dim;
    spry_team_heads h = spry_team_heads_of(p->team, p->team->rank);
    spry_team_head_outputs(starts, p->team, n);
    norm_columns(p, p->q, starts, l->q_norm, h.q_begin * n, h.q_end * n);
    spry_team_key_outputs(starts, p->team, n);
    norm_columns(p, p->k, starts, l->k_norm, h.kv_begin * n, h.kv_end * n);
}

/* ---- adapters ---------------------------------------------------------------------------------------------------- */

/* LoRA adapters: out += scale * b * (a * in), for each row with the adapters of its own segment. Rows of a step may
 * have different adapters. The weights stay as they are, so rows without adapters cost nothing and keep their bits.
 *
 * First a * in is computed, divided among workers by ranks, then b times that is added, divided by outputs of the
 * matrix. A row's sums have one order: adapter after adapter, rank after rank. */

typedef struct adapt_job {
    const spry_pass *pass;
    const spry_product *products;
    size_t n_products, n_rows;
    const float *in;
} adapt_job;

static const spry_adapter_scales *scales_of(const spry_pass *p, size_t row)
{
    return p->scales[p->row_numbers ? p->row_numbers[row] : row];
}

/* True if rows with these scales use an adapter of the matrix. */
static bool uses(const spry_weight *w, const spry_adapter_scales *scales, size_t adapter)
{
    return w->adapters[adapter].rank && (scales->of[adapter] < 0 || scales->of[adapter] > 0);
}

static float *narrow_row(const adapt_job *job, size_t product, size_t row)
{
    const spry_pass *p = job->pass;
    return p->narrow + (product * p->limits.max_rows + row) * p->limits.adapter_ranks;
}

/* The number of rows from `first` on that have the same scales. */
static size_t run_length(const adapt_job *job, size_t first)
{
    const spry_adapter_scales *scales = scales_of(job->pass, first);
    size_t row = first + 1;
    while (row < job->n_rows && scales_of(job->pass, row) == scales)
        row++;
    return row - first;
}

/* A worker's part of multiplying rows [first, first + n) by `a` of every adapter they use. */
static void narrow_rows(const adapt_job *job, size_t product, size_t first, size_t n, size_t worker, size_t n_workers)
{
    const spry_weight *w = job->products[product].w;
    const spry_adapter_scales *scales = scales_of(job->pass, first);
    float *out = narrow_row(job, product, first);
    for (size_t i = 0; i < job->pass->limits.n_adapters; i++) {
        const spry_adapter_pair *pair = &w->adapters[i];
        size_t begin, end;
        if (!uses(w, scales, i))
            continue;
        const spry_matmul m = {.out = out,
                               .out_stride = job->pass->limits.adapter_ranks,
                               .weight = pair->a,
                               .weight_stride = w->n_in * sizeof *pair->a,
                               .act = job->in + first * w->n_in,
                               .act_stride = w->n_in * sizeof(float),
                               .n_rows = n,
                               .n_in = w->n_in};
        spry_threads_part(&begin, &end, pair->rank, 1, worker, n_workers);
        spry_ref_matmul_f32(&m, begin, end);
        out += pair->rank;
    }
}

static void narrow_part(void *context, size_t worker, size_t n_workers)
{
    const adapt_job *job = context;
    for (size_t i = 0; i < job->n_products; i++)
        for (size_t row = 0, n; job->products[i].w->adapters && row < job->n_rows; row += n) {
            n = run_length(job, row);
            if (scales_of(job->pass, row))
                narrow_rows(job, i, row, n, worker, n_workers);
        }
}

static void adapter_add_row(const adapt_job *job, size_t product, size_t row, size_t begin, size_t end)
{
    const spry_product *to = &job->products[product];
    const spry_adapter_scales *scales = scales_of(job->pass, row);
    const float *narrow = narrow_row(job, product, row);
    float factor = to->w->scale != 0 ? to->w->scale : 1; /* the adapter's part is multiplied by it, too */
    for (size_t i = 0; i < job->pass->limits.n_adapters; i++) {
        const spry_adapter_pair *pair = &to->w->adapters[i];
        if (!uses(to->w, scales, i))
            continue;
        for (size_t j = 0; j < pair->rank; j++)
            job->pass->ops->add_scaled(to->out + row * to->stride + begin, pair->b + j * to->w->n_out + begin,
                                       *narrow++ * (scales->of[i] * pair->scale * factor), end - begin);
    }
}

static void add_part(void *context, size_t worker, size_t n_workers)
{
    const adapt_job *job = context;
    for (size_t i = 0; i < job->n_products; i++) {
        size_t begin, end;
        spry_threads_part(&begin, &end, job->products[i].w->n_out, SPRY_OUTPUT_GRAIN, worker, n_workers);
        for (size_t row = 0; job->products[i].w->adapters && begin < end && row < job->n_rows; row++)
            if (scales_of(job->pass, row))
                adapter_add_row(job, i, row, begin, end);
    }
}

enum {
    WORTH_WAKING = 1 << 16
}; /* minimum number of multiplications; for fewer, waking the other threads takes
    * longer */

static void run_part(spry_pass *p, spry_threads_fn part, adapt_job *job, size_t width)
{
    if (job->n_rows * p->limits.adapter_ranks * width >= WORTH_WAKING)
        spry_threads_run(p->threads, part, job);
    else
        part(job, 0, 1);
}

void spry_pass_adapt(spry_pass *p, const spry_product *products, size_t n_products, const float *in, size_t n_rows)
{
    adapt_job job = {p, products, n_products, n_rows, in};
    bool any = false;
    for (size_t i = 0; i < n_products; i++)
        any = any || products[i].w->adapters;
    if (!any)
        return;
    run_part(p, narrow_part, &job, n_products * products[0].w->n_in);
    run_part(p, add_part, &job, n_products * products[0].w->n_out);
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

/* Carving memory: the same code first counts bytes (base is NULL), then assigns pointers. */
typedef struct carver {
    unsigned char *base;
    size_t used;
    bool overflow;
    size_t live, live_logits; /* number of rows that steps touch; 0: not counted */
    spry_rounded_acts acts;   /* activation encodings that their products need */
    spry_memory_tally tally;  /* memory touched by those rows */
} carver;

static void *carve(carver *c, size_t rows, size_t width, size_t size)
{
    size_t bytes;
    if (!spry_checked_mul(&bytes, rows, width) || !spry_checked_mul(&bytes, bytes, size) ||
        !spry_checked_align(&bytes, bytes, 64) || !spry_checked_add(&bytes, bytes, c->used)) {
        c->overflow = true;
        return NULL;
    }
    void *out = c->base ? c->base + c->used : NULL;
    if (c->live)
        spry_memory_tally_add(&c->tally, c->used, c->used + (rows < c->live ? rows : c->live) * width * size);
    c->used = bytes;
    return out;
}

/* Carves memory that steps touch only if `used`. */
static void *carve_for(carver *c, bool used, size_t rows, size_t width, size_t size)
{
    size_t live = c->live;
    c->live = used ? live : 0;
    void *out = carve(c, rows, width, size);
    c->live = live;
    return out;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void carve_angles(carver *c, spry_angles *angles, bool used, size_t rows, size_t n_pairs)
{
    angles->n_pairs = n_pairs;
    angles->frequencies = carve(c, 1, n_pairs, sizeof(float));
    angles->cosine = carve_for(c, used, rows, n_pairs, sizeof(float));
    angles->sine = carve_for(c, used, rows, n_pairs, sizeof(float));
    angles->turn_cosine = carve_for(c, false, SPRY_KV_TURNS_MAX, n_pairs, sizeof(float)); /* rarely used */
    angles->turn_sine = carve_for(c, false, SPRY_KV_TURNS_MAX, n_pairs, sizeof(float));
}

/* Carves memory for exchanging rows with the other processes of a team. */
static void carve_shares(spry_pass *p, carver *c, size_t widest)
{
    size_t rows = p->limits.max_rows, values, logits;
    widest = larger(widest, p->config->n_embd);
    c->overflow = c->overflow || !spry_checked_mul(&values, rows, widest) ||
                  !spry_checked_mul(&logits, p->limits.max_logits, p->config->n_vocab);
    if (c->overflow)
        return;
    p->joined = carve(c, rows, widest, sizeof(float));
    p->part = carve(c, 1, larger(values, logits), sizeof(float));
    p->exchanged = carve(c, 1, larger(values, logits), sizeof(float));
}

/* The largest number of ones that an op needs: gates of feed-forward, heads, convolutions. */
static size_t count_ones(const spry_config *f)
{
    size_t ff = larger(larger(f->n_ff, f->n_ff_shared), larger(f->n_expert_ff, f->n_shared_ff));
    ff = larger(ff, (size_t)f->n_hyper * f->n_embd);
    return larger(larger(ff, larger(f->head_dim, f->slide.head_dim)), f->arch->delta ? spry_config_delta_mixed(f) : 0);
}

/* Transposes the weights of convolutions, so that channels are contiguous. */
static void make_taps(spry_pass *p)
{
    const spry_config *c = p->config;
    size_t mixed = spry_config_delta_mixed(c);
    float *taps = p->delta_taps;
    for (uint32_t layer = 0; layer < c->n_layers; layer++)
        for (size_t step = 0; spry_config_recurs(c, layer) && step < c->n_conv; step++, taps += mixed)
            for (size_t i = 0; i < mixed; i++)
                taps[i] = p->weights->layers[layer].delta_conv[i * c->n_conv + step];
}

static void carve_compressed(spry_pass *p, carver *c)
{
    const spry_config *f = p->config;
    size_t rows = f->arch->compressed ? p->limits.max_rows : 0, wide = (size_t)f->n_hyper * f->n_embd;
    p->joined_values = carve(c, rows, 2 * (size_t)f->head_dim, sizeof(float));
    p->joined_gates = carve(c, rows, 2 * (size_t)f->head_dim, sizeof(float));
    p->index_values = carve(c, rows, 2 * (size_t)f->index_dim, sizeof(float));
    p->index_gates = carve(c, rows, 2 * (size_t)f->index_dim, sizeof(float));
    p->group_in =
        carve(c, rows, f->n_out_groups ? (size_t)f->n_heads * f->head_dim / f->n_out_groups : 0, sizeof(float));
    p->group_out = carve(c, rows, (size_t)f->n_out_groups * f->out_rank, sizeof(float));
    p->hyper = carve(c, rows, wide, sizeof(float));
    p->hyper_flat = carve(c, rows, wide, sizeof(float));
    p->hyper_mix = carve(c, rows, (size_t)f->n_hyper * (2 + f->n_hyper), sizeof(float));
}

static void carve_all(spry_pass *p, carver *c)
{
    const spry_config *f = p->config;
    size_t widest_head = larger(f->head_dim, f->slide.head_dim);
    size_t rows = p->limits.max_rows, n_q = (size_t)f->n_heads * widest_head;
    size_t n_kv = larger((size_t)f->n_kv_heads * f->head_dim, (size_t)f->slide.n_kv_heads * f->slide.head_dim);
    size_t ff = larger(larger(f->n_ff, f->n_ff_shared), larger(f->n_expert_ff, f->n_shared_ff));
    size_t whole_q = (size_t)(p->team ? p->team->whole : f)->n_heads * larger(widest_head, f->value_dim);
    size_t moe_rows = f->n_experts ? rows : 0;
    p->tokens = carve(c, rows, 1, sizeof *p->tokens);
    p->positions = carve(c, rows, 1, sizeof *p->positions);
    p->slots = carve(c, rows, 1, sizeof *p->slots);
    size_t adapted = p->limits.adapter_ranks ? rows : 0;
    p->scales = carve(c, adapted, 1, sizeof(spry_adapter_scales *));
    p->gathered = carve(c, adapted, 1, sizeof *p->gathered);
    p->narrow = carve(c, adapted, (size_t)SPRY_PASS_ADAPTED * p->limits.adapter_ranks, sizeof(float));
    p->x = carve(c, rows, f->n_embd, sizeof(float));
    p->h = carve(c, rows, f->n_embd, sizeof(float));
    p->y = carve(c, rows, f->n_embd, sizeof(float));
    p->taps = carve(c, rows, (size_t)f->n_taps * f->n_embd, sizeof(float));
    p->draft_in = carve(c, rows, f->n_draft_in, sizeof(float));
    p->q = carve(c, rows, n_q, sizeof(float));
    p->attn = carve(c, rows, n_q, sizeof(float));
    p->k = carve(c, rows, n_kv, sizeof(float));
    p->v = carve(c, rows, n_kv, sizeof(float));
    size_t n_raw = (size_t)f->n_heads * larger(f->nope_dim + f->rope_dim, f->value_dim);
    n_raw = f->arch->latent ? n_raw : f->arch->gated_attention || f->arch->attention_gate ? 2 * n_q : 0;
    p->raw = carve(c, rows, n_raw, sizeof(float));
    size_t index_rows = f->index_top ? rows : 0, shares = f->index_top ? SPRY_INDEX_SHARES : 0;
    size_t n_pages = f->index_top ? spry_index_pages(f, p->limits.session) : 0;
    carve_compressed(p, c);
    size_t n_scores = f->index_top ? p->limits.session : 0, n_chosen = f->index_top;
    p->index_q = carve(c, index_rows, (size_t)f->n_index_heads * f->index_dim, sizeof(float));
    p->index_k = carve(c, index_rows, f->index_dim, sizeof(float));
    p->index_weights = carve(c, index_rows, f->n_index_heads, sizeof(float));
    p->index_scores = carve_for(c, false, SPRY_INDEX_ROWS, n_scores, sizeof(float));
    p->index_heap = carve_for(c, false, SPRY_INDEX_ROWS, n_chosen, sizeof(float));
    p->index_chosen = carve_for(c, false, rows, n_chosen, sizeof(uint32_t));
    p->index_pages = carve_for(c, false, shares, n_pages * f->head_dim * SPRY_PAGE_TOKENS, sizeof(float));
    p->index_entries = carve_for(c, false, 1, shares * n_pages, sizeof(spry_kv_entry));
    size_t streams = f->arch->streams ? f->n_streams : 0, layer_rows = streams ? rows : 0;
    size_t n_layer_in = (size_t)f->n_layers * f->n_layer_embd;
    p->low = carve(c, rows, larger(f->n_q_rank, streams ? f->n_embd : 0), sizeof(float));
    p->conv = carve(c, f->arch->convolutions ? rows : 0, 3 * (size_t)f->n_embd, sizeof(float));
    size_t delta_rows = f->arch->delta ? rows : 0, n_delta = (size_t)f->n_delta_heads * f->delta_value_dim;
    p->delta_mixed = carve(c, delta_rows, spry_config_delta_mixed(f), sizeof(float));
    p->delta_gate = carve(c, delta_rows, n_delta, sizeof(float));
    p->delta_ba = carve(c, delta_rows, 2 * (size_t)f->n_delta_heads, sizeof(float));
    size_t conv_rows = f->arch->delta ? rows + 2 * SPRY_PAGE_TOKENS : 0;
    p->delta_conv = carve(c, conv_rows, spry_config_delta_mixed(f), sizeof(float));
    size_t n_delta_layers = f->arch->delta ? f->n_delta_layers : 0;
    p->delta_ahead = carve(c, 1, n_delta_layers * n_delta * f->delta_key_dim, sizeof(float));
    p->delta_taps = carve(c, 1, n_delta_layers * spry_config_delta_mixed(f) * f->n_conv, sizeof(float));
    p->delta_result = carve(c, delta_rows, n_delta, sizeof(float));
    p->beside_state = carve(c, f->arch->both_mixers ? rows : 0, f->n_embd, sizeof(float));
    size_t block_rows = f->arch->shared_blocks ? rows : 0;
    p->embedded = carve(c, block_rows, f->n_embd, sizeof(float));
    p->wide = carve(c, block_rows, 2 * (size_t)f->n_embd, sizeof(float));
    p->low_rows = carve(c, block_rows, f->block_rank, sizeof(float));
    p->low_out = carve(c, block_rows, larger(n_q, ff), sizeof(float));
    p->latent = carve(c, 2 * rows, f->n_latent, sizeof(float));
    p->streams = carve(c, rows * streams, f->n_embd, sizeof(float));
    p->predicted = carve(c, rows * streams, f->n_embd, sizeof(float));
    p->laurel = carve(c, layer_rows, f->n_embd, sizeof(float));
    p->modality = carve(c, layer_rows, streams, sizeof(float));
    p->layer_in = carve(c, rows, n_layer_in, sizeof(float));
    p->layer_row = carve(c, 1, n_layer_in, sizeof(float));
    p->gate_width = larger(ff, f->n_layer_embd);
    p->gate = carve(c, rows, p->gate_width, sizeof(float));
    p->up = carve(c, rows, ff, sizeof(float));
    p->ones = carve(c, 1, count_ones(f), sizeof(float));
    size_t widest = larger(larger(f->n_embd, f->n_q_rank), larger(ff, larger(whole_q, larger(n_raw, n_delta))));
    widest = larger(widest, f->n_draft_in);
    widest = larger(widest, larger((size_t)f->n_hyper * f->n_embd, (size_t)f->n_out_groups * f->out_rank));
    widest = larger(widest, f->arch->shared_blocks ? larger(2 * (size_t)f->n_embd, f->block_rank) : 0);
    p->act = carve_for(c, c->acts.integers, rows, widest / SPRY_ACT_BLOCK, sizeof *p->act);
    p->halves = carve_for(c, c->acts.halves, rows, spry_halves_stride(widest), sizeof *p->halves);
    p->router = carve(c, moe_rows, f->n_experts, sizeof(float));
    p->choice = carve(c, 1, f->n_experts, sizeof(float));
    p->chosen = carve(c, moe_rows, f->n_experts_used, sizeof *p->chosen);
    p->chosen_weight = carve(c, moe_rows, f->n_experts_used, sizeof(float));
    p->expert_rows = carve(c, moe_rows, 1, sizeof *p->expert_rows);
    p->expert_weight = carve(c, moe_rows, 1, sizeof(float));
    p->expert_in = carve(c, moe_rows, f->n_embd, sizeof(float));
    p->expert_out = carve(c, moe_rows, f->n_embd, sizeof(float));
    p->beside = carve(c, f->arch->beside ? moe_rows : 0, f->n_embd, sizeof(float));
    carve_angles(c, &p->full, true, rows, f->rope_dim / 2);
    carve_angles(c, &p->sliding, f->window, rows, f->slide.rope_dim / 2);
    c->live = c->live_logits;
    p->logits = carve(c, p->limits.max_logits, f->n_vocab, sizeof(float));
    p->limited = carve(c, f->arch->limited ? rows : 0, larger(larger(ff, whole_q), f->n_embd), sizeof(float));
    if (p->team)
        carve_shares(p, c, larger(ff, whole_q));
}

static bool count_bytes(size_t *bytes, spry_pass sizes)
{
    carver counting = {0};
    carve_all(&sizes, &counting);
    *bytes = counting.used;
    return !counting.overflow;
}

bool spry_pass_bytes(size_t *bytes, const spry_config *config, const spry_step_limits *limits)
{
    return count_bytes(bytes, (spry_pass){.config = config, .limits = *limits});
}

bool spry_pass_touched_bytes(size_t *bytes, const spry_config *config, const spry_step_limits *limits, size_t rows,
                             size_t logits, spry_rounded_acts acts)
{
    spry_pass sizes = {.config = config, .limits = *limits};
    carver counting = {.live = rows, .live_logits = logits, .acts = acts};
    if (!spry_pass_bytes(bytes, config, limits))
        return false;
    spry_memory_tally_init(&counting.tally, *bytes);
    carve_all(&sizes, &counting);
    *bytes = counting.tally.bytes;
    return true;
}

spry_status spry_pass_create(spry_pass **out, const spry_device_setup *setup, const spry_weights *weights,
                             const spry_host_pages *pages, const spry_host_pages *states, spry_team *team,
                             spry_error *error)
{
    const spry_config *config = setup->config;
    const spry_step_limits *limits = &setup->limits;
    *out = NULL;
    size_t bytes;
    if (!count_bytes(&bytes, (spry_pass){.config = config, .limits = *limits, .team = team}))
        return spry_fail(error, SPRY_ERR_MEMORY, "a step of %u rows needs more than any memory", limits->max_rows);
    spry_pass *p = calloc(1, sizeof *p);
    unsigned char *memory = spry_memory_map(bytes);
    if (!p || !memory) {
        free(p);
        if (memory)
            spry_memory_unmap(memory, bytes);
        return spry_fail_memory(error, "a step's working memory", bytes);
    }
    *p = (spry_pass){.config = config,
                     .weights = weights,
                     .pool = setup->pool,
                     .pages = pages,
                     .states = states,
                     .ops = setup->ops,
                     .threads = setup->threads,
                     .limits = *limits,
                     .team = team,
                     .memory = memory,
                     .memory_bytes = bytes};
    carver carving = {.base = memory};
    carve_all(p, &carving);
    for (size_t i = 0; i < count_ones(config); i++)
        p->ones[i] = 1;
    if (config->arch->delta)
        make_taps(p);
    p->full.magnitude = spry_rope_frequencies(p->full.frequencies, &config->rope, config->rope_dim, limits->session);
    p->sliding.magnitude =
        spry_rope_frequencies(p->sliding.frequencies, &config->rope_sliding, config->slide.rope_dim, limits->session);
    *out = p;
    return SPRY_OK;
}

void spry_pass_destroy(spry_pass *pass)
{
    if (!pass)
        return;
    spry_memory_unmap(pass->memory, pass->memory_bytes);
    free(pass);
}

/* Lays out the segments as rows: token, position, and the slot of its keys and values. */
static void lay_out(spry_pass *p, const spry_segment *segments, size_t n_segments)
{
    size_t row = 0;
    p->adapted = false;
    for (size_t s = 0; s < n_segments; s++) {
        const spry_segment *g = &segments[s];
        bool adapted = p->limits.adapter_ranks && spry_adapter_scales_any(&g->adapters);
        for (uint32_t i = 0; i < g->n_rows; i++, row++) {
            uint32_t position = g->first_position + i;
            const spry_kv_entry *entry = spry_kv_table_find(g->table, position);
            p->tokens[row] = g->picture ? 0 : g->tokens[i]; /* for inputs by layer: padding */
            p->positions[row] = position;
            p->slots[row] = (spry_slot){spry_host_page(p->pages, entry->page), position - entry->start};
            if (p->limits.adapter_ranks)
                p->scales[row] = adapted ? &g->adapters : NULL;
        }
        p->adapted = p->adapted || adapted;
    }
    p->segments = segments;
    p->n_segments = n_segments;
    p->n_rows = row;
}

/* Decodes a token's row of the embedding. */
static void decode_embedding(spry_pass *p, float *x, size_t token)
{
    const spry_weight *w = &p->weights->embedding;
    const unsigned char *groups = spry_weight_groups(w);
    if (!groups) {
        p->ops->decode[w->type](x, w->data + token * w->row_bytes, w->n_in);
        return;
    }
    size_t group = p->ops->matmul[w->group_type].group;
    void *row = p->y; /* y is unused before the first block; a row of floats is large enough for a row of any type */
    spry_unpack_row(w->group_type, row, groups + token / group * w->group_bytes, token % group, w->n_in, group);
    p->ops->decode[w->group_type](x, row, w->n_in);
}

/* Adds a row of a table; y is unused before the first block. */
static void add_row(spry_pass *p, float *x, const spry_weight *table, size_t row)
{
    if (!table->data)
        return;
    p->ops->decode[table->type](p->y, table->data + row * table->row_bytes, table->n_in);
    p->ops->add(x, p->y, table->n_in);
}

static void embed_row(spry_pass *p, size_t row, size_t type)
{
    const spry_config *c = p->config;
    float *x = p->x + row * c->n_embd;
    decode_embedding(p, x, (size_t)p->tokens[row]);
    if (c->arch->scaled_embedding || c->embedding_scale != 1)
        p->ops->scale(x, c->arch->scaled_embedding ? sqrtf((float)c->n_embd) : c->embedding_scale, c->n_embd);
    add_row(p, x, &p->weights->token_types, type);
    add_row(p, x, &p->weights->positions, (size_t)p->positions[row] + c->position_offset);
}

static void make_angles(const spry_angles *angles, const spry_config *c, size_t row, const uint32_t place[3])
{
    size_t n_pairs = angles->n_pairs;
    spry_rope_angles_at(angles->cosine + row * n_pairs, angles->sine + row * n_pairs, angles->frequencies,
                        angles->magnitude, n_pairs, place, c->rope_axes);
}

static void embed_segment(spry_pass *p, const spry_segment *g, size_t row)
{
    const spry_config *c = p->config;
    bool tokens = !g->picture && (!p->inputs || c->n_draft_in);
    if (g->picture && !p->inputs)
        memcpy(p->x + row * c->n_embd, spry_picture_values(g->picture, 0, g->picture_row),
               (size_t)g->n_rows * c->n_embd * sizeof *p->x);
    size_t type = 0; /* encoders compute all rows of a text in one step */
    for (uint32_t i = 0; i < g->n_rows; i++, row++) {
        uint32_t place[3];
        if (tokens)
            embed_row(p, row, type);
        if (c->second_type && p->tokens[row] == (int32_t)c->second_type - 1)
            type = 1;
        spry_segment_place(place, g, i);
        make_angles(&p->full, c, row, place);
        if (c->window)
            make_angles(&p->sliding, c, row, place);
    }
}

/* True if x is read between a layer and the next one. */
static bool reads_between(const spry_pass *p, uint32_t layer)
{
    bool reads = false;
    for (size_t i = 0; i < p->config->n_taps; i++)
        reads = reads || p->config->taps[i] == layer;
    for (size_t s = 0; s < p->n_segments; s++)
        reads = reads || (p->segments[s].picture && layer < p->segments[s].picture->n_deep);
    return reads;
}

/* Adds the values that pictures have for the rows after layer number `layer` - 1. */
static void deepen(spry_pass *p, uint32_t layer)
{
    size_t n_embd = p->config->n_embd, row = 0;
    for (size_t s = 0; s < p->n_segments; row += p->segments[s++].n_rows) {
        const spry_segment *g = &p->segments[s];
        if (g->picture && !p->inputs && layer <= g->picture->n_deep)
            p->ops->add(p->x + row * n_embd, spry_picture_values(g->picture, layer, g->picture_row),
                        g->n_rows * n_embd);
    }
}

static void keep_taps(spry_pass *p, uint32_t layer)
{
    const spry_config *c = p->config;
    for (size_t i = 0; i < c->n_taps; i++)
        if (c->taps[i] == layer)
            memcpy(p->taps + i * p->n_rows * c->n_embd, p->x, p->n_rows * c->n_embd * sizeof *p->x);
}

/* The last tap may be of the state after the last norm. */
static void keep_normed_taps(spry_pass *p)
{
    const spry_config *c = p->config;
    for (size_t i = 0; p->weights->output_norm && i < c->n_taps; i++)
        if (c->taps[i] == c->n_layers)
            spry_pass_norm(p, p->taps + i * p->n_rows * c->n_embd, p->x, p->weights->output_norm,
                           p->weights->output_norm_bias, p->n_rows, c->n_embd);
}

/* A head that drafts: x = draft_in * [norm(embedding) | norm(inputs)]. */
static void join_inputs(spry_pass *p)
{
    const spry_weights *w = p->weights;
    size_t n = p->config->n_embd, step = p->config->n_draft_in;
    for (size_t row = 0; row < p->n_rows; row++) {
        float *joined = p->draft_in + row * step;
        spry_pass_norm(p, joined, p->x + row * n, w->draft_embedding_norm, NULL, 1, n);
        spry_pass_norm(p, joined + n, p->inputs + row * n, w->draft_hidden_norm, NULL, 1, n);
    }
    spry_pass_linear(p, SPRY_OP_EMBED, p->x, n, &w->draft_in, p->draft_in, p->n_rows);
}

static void embed(spry_pass *p)
{
    const spry_config *c = p->config;
    if (p->inputs && !c->n_draft_in)
        memcpy(p->x, p->inputs, p->n_rows * c->n_embd * sizeof *p->x);
    for (size_t s = 0, row = 0; s < p->n_segments; row += p->segments[s++].n_rows)
        embed_segment(p, &p->segments[s], row);
    if (p->weights->embedding_norm)
        spry_pass_norm(p, p->x, p->x, p->weights->embedding_norm, p->weights->embedding_norm_bias, p->n_rows,
                       c->n_embd);
}

/* Computes the rotation of queries for pages that are used `delta` positions away from where they were computed. */
static void make_turn(spry_angles *angles, uint32_t number, int32_t delta)
{
    size_t n_pairs = angles->n_pairs;
    float *cosine = angles->turn_cosine + number * n_pairs, *sine = angles->turn_sine + number * n_pairs;
    uint32_t distance = delta < 0 ? (uint32_t) - (int64_t)delta : (uint32_t)delta;
    spry_rope_angles(cosine, sine, angles->frequencies, 1, n_pairs, distance);
    for (size_t i = 0; delta > 0 && i < n_pairs; i++)
        sine[i] = -sine[i];
    angles->turns[number] = (spry_turn){cosine, sine};
}

/* Computes the rotations to which table entries refer, unless they have been computed already. */
static void make_turns(spry_pass *p)
{
    const spry_kv_turns *turns = &p->pool->turns;
    for (uint32_t i = 1; i < turns->end; i++)
        if (p->turned[i] != turns->deltas[i]) {
            make_turn(&p->full, i, turns->deltas[i]);
            make_turn(&p->sliding, i, turns->deltas[i]);
            p->turned[i] = turns->deltas[i];
        }
}

/* Copies the rows whose hidden states (or whose logits) are wanted to h, after its first n rows; returns their
 * number. */
static size_t gather(spry_pass *p, size_t n, bool hidden)
{
    size_t row = 0, width = p->config->n_embd;
    for (size_t s = 0; s < p->n_segments; row += p->segments[s++].n_rows) {
        const spry_segment *g = &p->segments[s];
        for (size_t i = spry_segment_unwanted(g); (g->want == SPRY_WANT_HIDDEN) == hidden && i < g->n_rows; i++) {
            if (p->adapted)
                p->gathered[n] = (uint32_t)(row + i);
            memcpy(p->h + n++ * width, p->x + (row + i) * width, width * sizeof(float));
        }
    }
    return n;
}

/* Normalises the wanted rows, and multiplies those whose logits are wanted by the output matrix. */
static void unembed(spry_pass *p)
{
    const spry_config *c = p->config;
    p->n_logits = gather(p, 0, false);
    size_t wanted = gather(p, p->n_logits, true);
    p->n_hidden = wanted - p->n_logits;
    spry_pass_charge(p, SPRY_OP_LAYOUT);
    if (wanted && p->weights->output_norm)
        spry_pass_norm(p, p->h, p->h, p->weights->output_norm, p->weights->output_norm_bias, wanted, c->n_embd);
    p->row_numbers = p->gathered;
    if (p->n_logits)
        spry_pass_linear_whole(p, SPRY_OP_LOGITS, p->logits, c->n_vocab, &p->weights->output, p->h, p->n_logits);
    p->row_numbers = NULL;
    if (p->n_logits && c->logit_scale != 1) {
        p->ops->scale(p->logits, c->logit_scale, p->n_logits * c->n_vocab);
        spry_pass_charge(p, SPRY_OP_LOGITS);
    }
    if (p->n_logits && c->final_softcap > 0) {
        p->ops->softcap(p->logits, c->final_softcap, p->n_logits * c->n_vocab);
        spry_pass_charge(p, SPRY_OP_LOGITS);
    }
}

static void run(spry_pass *p, const spry_segment *segments, size_t n_segments)
{
    lay_out(p, segments, n_segments);
    make_turns(p);
    spry_pass_charge(p, SPRY_OP_LAYOUT);
    embed(p);
    spry_pass_charge(p, SPRY_OP_EMBED);
    if (p->config->arch->shared_blocks)
        memcpy(p->embedded, p->x, p->n_rows * p->config->n_embd * sizeof *p->x);
    if (p->config->n_draft_in)
        join_inputs(p);
    if (p->config->n_layer_embd)
        spry_pass_layer_inputs(p);
    if (p->config->arch->streams)
        spry_pass_streams_begin(p);
    if (p->config->n_hyper)
        spry_pass_hyper_begin(p);
    if (p->config->arch->delta)
        spry_pass_recur_begin(p);
    for (uint32_t layer = 0; layer < p->config->n_layers; layer++) {
        p->reads_x = reads_between(p, layer);
        spry_pass_block(p, layer);
        deepen(p, layer + 1);
        keep_taps(p, layer);
    }
    if (p->config->arch->delta)
        spry_pass_recur_end(p);
    if (p->config->arch->streams)
        spry_pass_streams_end(p);
    if (p->config->n_hyper)
        spry_pass_hyper_end(p);
    keep_normed_taps(p);
    unembed(p);
}

void spry_pass_step(spry_pass *p, const spry_segment *segments, size_t n_segments)
{
    uint64_t start = p->trace || p->watch ? spry_clock_ns() : 0;
    if (p->watch)
        p->watch->last_ns = start;
    p->packed = false;
    p->attention_ns = 0;
    run(p, segments, n_segments);
    if (p->watch)
        spry_op_watch_flush(p->watch);
    if (p->trace) {
        const spry_trace_span span = {.name = "step",
                                      .category = "step",
                                      .lane = p->lane,
                                      .begin_ns = start,
                                      .end_ns = p->watch ? p->watch->last_ns : spry_clock_ns(),
                                      .args = {{"rows", (int64_t)p->n_rows},
                                               {"logits", (int64_t)p->n_logits},
                                               {"sequences", (int64_t)n_segments}}};
        spry_trace_add(p->trace, &span);
    }
}

uint64_t spry_pass_attention_ns(const spry_pass *pass)
{
    return pass->attention_ns;
}

const float *spry_pass_logits(const spry_pass *pass, size_t index)
{
    return pass->logits + index * pass->config->n_vocab;
}

const float *spry_pass_hidden(const spry_pass *pass, size_t index)
{
    size_t n_embd = pass->config->n_embd, wanted = pass->n_hidden;
    return index < wanted ? pass->h + (pass->n_logits + index) * n_embd : pass->taps + (index - wanted) * n_embd;
}
