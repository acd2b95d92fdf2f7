/* Compressed attention (DeepSeek V4). Each token has one vector, which is key and value of all heads. A row attends to
 * the tokens of a window before it and, in most layers, to entries: each joins the tokens of a fixed number of
 * positions, coordinate by coordinate with a softmax over learned gates. Entries of overlapping layers take the tokens
 * of two such numbers, and an indexer, with entries of its own, selects the best.
 *
 * Pages hold, for every token, its vector and what its entry is made of; the entry is stored at the last of its tokens.
 * Everything is read from pages, so that results have the same bits whatever was computed together. */
#include <math.h>
#include <string.h>

#include "device/cpu/pass_state.h"
#include "kernels/kv_layout.h"

/* Places of a token's vectors after the first place of a layer. Those of the indexer begin with the parts of entries.
 * The last place has the entry. */
enum { PLACE_KEY, PLACE_PARTS, PLACES_INDEX = 5 };

typedef struct compressed_job {
    spry_pass *pass;
    const spry_layer *layer;
    uint32_t index;
} compressed_job;

/* The vectors of one kind that a layer has in pages. */
typedef struct vectors {
    const spry_pass *pass;
    bool other; /* the indexer's */
    size_t first, n;
} vectors;

static vectors keys_of(const spry_pass *p, uint32_t layer)
{
    return (vectors){p, false, p->config->kv_slot[layer], p->config->head_dim};
}

static vectors index_of(const spry_pass *p, uint32_t layer)
{
    return (vectors){p, true, p->config->index_slot[layer], p->config->index_dim};
}

static void store(const vectors *v, size_t place, size_t row, const float *from)
{
    const spry_slot *slot = &v->pass->slots[row];
    unsigned char *to = slot->page + spry_kv_place_of(v->pass->pool, v->other, v->first + place).keys;
    spry_kv_store_key(v->pass->ops, v->pass->pool->shape.type, to, slot->token, from, v->n);
}

static void load(const vectors *v, float *out, size_t place, const spry_segment *g, size_t position)
{
    const spry_kv_entry *e = spry_kv_table_find(g->table, position);
    const unsigned char *from =
        spry_host_page(v->pass->pages, e->page) + spry_kv_place_of(v->pass->pool, v->other, v->first + place).keys;
    spry_kv_load_key(v->pass->pool->shape.type, out, from, position - e->start, v->n);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Rotates the last coordinates of heads. */
static void turn(const spry_pass *p, float *x, const float *cosine, const float *sine, size_t n_heads, size_t n)
{
    p->ops->rope(x + n - p->config->rope_dim, cosine, sine, n_heads, n, p->config->rope_dim / 2,
                 p->config->interleaved);
}

static const spry_angles *angles_of(const spry_pass *p, uint32_t layer)
{
    return p->config->sliding[layer] ? &p->sliding : &p->full;
}

/* Stores what an entry is made of: values, and gates plus what the place in the window adds; `width` of each. */
static void store_parts(const vectors *v, size_t row, const float *values, float *gates, const float *added,
                        size_t width, size_t first)
{
    size_t halves = width / v->n;
    v->pass->ops->add(gates, added, width);
    for (size_t half = 0; half < halves; half++) {
        store(v, first + half, row, values + half * v->n);
        store(v, first + halves + half, row, gates + half * v->n);
    }
}

static void prepare_rows(void *context, size_t begin, size_t end)
{
    const compressed_job *job = context;
    const spry_pass *p = job->pass;
    const spry_config *c = p->config;
    const spry_layer *l = job->layer;
    const spry_angles *angles = angles_of(p, job->index);
    uint32_t rate = c->rates[job->index];
    bool overlaps = c->overlaps[job->index];
    vectors keys = keys_of(p, job->index), index = index_of(p, job->index);
    size_t n = c->head_dim, width = overlaps ? 2 * n : n, n_index = c->index_dim, n_pairs = c->rope_dim / 2;
    for (size_t row = begin; row < end; row++) {
        float *q = p->q + row * c->n_heads * n, *k = p->k + row * n;
        const float *cosine = angles->cosine + row * n_pairs, *sine = angles->sine + row * n_pairs;
        for (size_t head = 0; head < c->n_heads; head++)
            p->ops->rms_norm(q + head * n, q + head * n, p->ones, n, c->norm_eps);
        p->ops->rms_norm(k, k, l->kv_a_norm, n, c->norm_eps);
        turn(p, q, cosine, sine, c->n_heads, n);
        turn(p, k, cosine, sine, 1, n);
        store(&keys, PLACE_KEY, row, k);
        if (!rate)
            continue;
        size_t at = p->positions[row] % rate;
        store_parts(&keys, row, p->joined_values + row * width, p->joined_gates + row * width,
                    l->join_added + at * width, width, PLACE_PARTS);
        if (!overlaps)
            continue;
        store_parts(&index, row, p->index_values + row * 2 * n_index, p->index_gates + row * 2 * n_index,
                    l->index_join_added + at * 2 * n_index, 2 * n_index, 0);
        turn(p, p->index_q + row * c->n_index_heads * n_index, cosine, sine, c->n_index_heads, n_index);
    }
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

/* Makes the entry whose last token is a row. */
static void join_window(const vectors *v, const spry_segment *g, size_t row, uint32_t rate, bool overlaps,
                        size_t first_place, const float *norm)
{
    const spry_pass *p = v->pass;
    const spry_config *c = p->config;
    float most[SPRY_ATTEND_HEAD_DIM_MAX], sum[SPRY_ATTEND_HEAD_DIM_MAX], out[SPRY_ATTEND_HEAD_DIM_MAX];
    float gate[SPRY_ATTEND_HEAD_DIM_MAX], value[SPRY_ATTEND_HEAD_DIM_MAX];
    float cosine[SPRY_ATTEND_HEAD_DIM_MAX / 2], sine[SPRY_ATTEND_HEAD_DIM_MAX / 2];
    size_t end = (size_t)p->positions[row] + 1, own = end - rate, n = v->n, halves = overlaps ? 2 : 1;
    size_t begin = overlaps && own ? own - rate : own;
    for (size_t i = 0; i < n; i++) {
        most[i] = -INFINITY;
        sum[i] = out[i] = 0;
    }
    for (size_t at = begin; at < end; at++) {
        load(v, gate, first_place + halves + (overlaps && at >= own), g, at);
        for (size_t i = 0; i < n; i++)
            most[i] = gate[i] > most[i] ? gate[i] : most[i];
    }
    for (size_t at = begin; at < end; at++) {
        size_t half = overlaps && at >= own;
        load(v, gate, first_place + halves + half, g, at);
        load(v, value, first_place + half, g, at);
        for (size_t i = 0; i < n; i++) {
            float weight = expf(gate[i] - most[i]);
            sum[i] += weight;
            out[i] += weight * value[i];
        }
    }
    for (size_t i = 0; i < n; i++)
        out[i] /= sum[i];
    p->ops->rms_norm(out, out, norm, n, c->norm_eps);
    spry_rope_angles(cosine, sine, p->full.frequencies, p->full.magnitude, c->rope_dim / 2, (uint32_t)own);
    turn(p, out, cosine, sine, 1, n);
    store(v, first_place + 2 * halves, row, out);
}

static void join_rows(void *context, size_t begin, size_t end)
{
    const compressed_job *job = context;
    const spry_pass *p = job->pass;
    uint32_t rate = p->config->rates[job->index];
    bool overlaps = p->config->overlaps[job->index];
    vectors keys = keys_of(p, job->index), index = index_of(p, job->index);
    size_t row = 0;
    for (size_t s = 0; s < p->n_segments; s++)
        for (uint32_t i = 0; i < p->segments[s].n_rows; i++, row++) {
            if (row < begin || row >= end || (p->positions[row] + 1) % rate)
                continue;
            join_window(&keys, &p->segments[s], row, rate, overlaps, PLACE_PARTS, job->layer->join_norm);
            if (overlaps)
                join_window(&index, &p->segments[s], row, rate, true, 0, job->layer->index_k_norm);
        }
}

/* ---- selection --------------------------------------------------------------------------------------------------- */

typedef struct select_job {
    spry_pass *pass;
    const spry_segment *segment;
    size_t first_row, n_rows; /* in the step */
    uint32_t index;
} select_job;

static size_t entries_at(const spry_pass *p, uint32_t layer, size_t row)
{
    return ((size_t)p->positions[row] + 1) / p->config->rates[layer];
}

/* An item is SPRY_PAGE_TOKENS entries. */
static void score_items(void *context, size_t begin, size_t end)
{
    const select_job *job = context;
    const spry_pass *p = job->pass;
    vectors index = index_of(p, job->index);
    size_t rate = p->config->rates[job->index], n = p->config->index_dim;
    float keys[SPRY_MAX_HEAD_DIM * SPRY_PAGE_TOKENS], scores[SPRY_PAGE_TOKENS], key[SPRY_ATTEND_HEAD_DIM_MAX];
    for (size_t item = begin; item < end; item++) {
        size_t first = item * SPRY_PAGE_TOKENS, last = entries_at(p, job->index, job->first_row + job->n_rows - 1);
        memset(keys, 0, n * SPRY_PAGE_TOKENS * sizeof *keys);
        for (size_t i = 0; i < SPRY_PAGE_TOKENS && first + i < last; i++) {
            load(&index, key, PLACES_INDEX - 1, job->segment, (first + i + 1) * rate - 1);
            for (size_t k = 0; k < n; k++)
                keys[k * SPRY_PAGE_TOKENS + i] = key[k];
        }
        for (size_t row = 0; row < job->n_rows; row++) {
            size_t seen = entries_at(p, job->index, job->first_row + row), left = seen > first ? seen - first : 0;
            if (!left)
                continue;
            spry_index_score(p, scores, keys, job->first_row + row);
            memcpy(p->index_scores + row * p->limits.session + first, scores,
                   (left < SPRY_PAGE_TOKENS ? left : SPRY_PAGE_TOKENS) * sizeof *scores);
        }
    }
}

static void choose_items(void *context, size_t begin, size_t end)
{
    const select_job *job = context;
    for (size_t i = begin; i < end; i++) {
        size_t n = entries_at(job->pass, job->index, job->first_row + i);
        if (n > job->pass->config->index_top)
            spry_index_choose(job->pass, i, job->first_row + i, n);
    }
}

static void select_entries(spry_pass *p, uint32_t index)
{
    size_t first = 0;
    for (size_t s = 0; s < p->n_segments; first += p->segments[s++].n_rows)
        for (size_t done = 0, n; done < p->segments[s].n_rows; done += n) {
            size_t left = p->segments[s].n_rows - done;
            n = left < SPRY_INDEX_ROWS ? left : SPRY_INDEX_ROWS;
            select_job job = {p, &p->segments[s], first + done, n, index};
            size_t last = entries_at(p, index, first + done + n - 1);
            if (last <= p->config->index_top)
                continue;
            spry_threads_share(p->threads, score_items, &job, (last + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS, 1);
            spry_threads_share(p->threads, choose_items, &job, n, 1);
        }
    spry_pass_charge(p, SPRY_OP_ATTEND);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

size_t spry_pass_gather_compressed(const spry_pass *p, uint32_t layer, const spry_segment *g, size_t row,
                                   unsigned char *pages)
{
    const spry_config *c = p->config;
    vectors keys = keys_of(p, layer);
    size_t n = 0, rate = c->rates[layer], page_bytes = keys.n * SPRY_PAGE_TOKENS * sizeof(float);
    size_t end = (size_t)p->positions[row] + 1, begin = end > c->window ? end - c->window : 0;
    size_t seen = rate ? end / rate : 0, n_used = seen;
    bool selects = rate && c->overlaps[layer] && seen > c->index_top;
    float key[SPRY_ATTEND_HEAD_DIM_MAX];
    if (selects)
        n_used = c->index_top;
    for (size_t i = begin; i < end + n_used; i++, n++) {
        size_t entry = i < end ? 0 : selects ? p->index_chosen[row * c->index_top + i - end] : i - end;
        load(&keys, key, i < end ? PLACE_KEY : spry_config_places(c, layer) - 1, g,
             i < end ? i : (entry + 1) * rate - 1);
        spry_kv_store_key(p->ops, SPRY_F32, pages + n / SPRY_PAGE_TOKENS * page_bytes, n % SPRY_PAGE_TOKENS, key,
                          keys.n);
    }
    return n;
}

/* Rotates results back by the position of the row, because values are rotated as keys are. */
static void turn_back_rows(void *context, size_t begin, size_t end)
{
    const compressed_job *job = context;
    const spry_pass *p = job->pass;
    const spry_angles *angles = angles_of(p, job->index);
    float minus[SPRY_ATTEND_HEAD_DIM_MAX / 2];
    size_t n_pairs = p->config->rope_dim / 2;
    for (size_t row = begin; row < end; row++) {
        for (size_t i = 0; i < n_pairs; i++)
            minus[i] = -angles->sine[row * n_pairs + i];
        turn(p, p->attn + row * p->config->n_heads * p->config->head_dim, angles->cosine + row * n_pairs, minus,
             p->config->n_heads, p->config->head_dim);
    }
}

/* Each group of heads has an output matrix of its own, and their results another one. */
static void project(spry_pass *p, const spry_layer *l)
{
    const spry_config *c = p->config;
    size_t groups = c->n_out_groups, each = (size_t)c->n_heads * c->head_dim / groups, rank = c->out_rank;
    for (size_t g = 0; g < groups; g++) {
        for (size_t row = 0; row < p->n_rows; row++)
            memcpy(p->group_in + row * each, p->attn + (row * groups + g) * each, each * sizeof *p->attn);
        spry_pass_linear(p, SPRY_OP_OUT, p->group_out + g * rank, groups * rank, &l->out_groups[g], p->group_in,
                         p->n_rows);
    }
    spry_pass_linear(p, SPRY_OP_OUT, p->y, c->n_embd, &l->o, p->group_out, p->n_rows);
}

void spry_pass_compressed(spry_pass *p, const spry_layer *l, uint32_t index)
{
    const spry_config *c = p->config;
    compressed_job job = {p, l, index};
    bool overlaps = c->overlaps[index];
    size_t n = c->head_dim, width = overlaps ? 2 * n : n, n_index = c->index_dim;
    const spry_product products[] = {{p->low, c->n_q_rank, &l->q_a},
                                     {p->k, n, &l->k},
                                     {p->joined_values, width, &l->join_values},
                                     {p->joined_gates, width, &l->join_gates},
                                     {p->index_values, 2 * n_index, &l->index_join_values},
                                     {p->index_gates, 2 * n_index, &l->index_join_gates},
                                     {p->index_weights, c->n_index_heads, &l->index_weights}};
    for (size_t i = 0; i < SPRY_COUNT(products); i++)
        if (products[i].w->data)
            spry_pass_products(p, SPRY_OP_QKV, &products[i], 1, p->in, p->n_rows);
    spry_pass_norm(p, p->low, p->low, l->q_a_norm, NULL, p->n_rows, c->n_q_rank);
    spry_pass_linear(p, SPRY_OP_QKV, p->q, c->n_heads * n, &l->q, p->low, p->n_rows);
    if (overlaps)
        spry_pass_linear(p, SPRY_OP_QKV, p->index_q, c->n_index_heads * n_index, &l->index_q, p->low, p->n_rows);
    spry_threads_share(p->threads, prepare_rows, &job, p->n_rows, 1);
    if (c->rates[index])
        spry_threads_share(p->threads, join_rows, &job, p->n_rows, 1);
    spry_pass_charge(p, SPRY_OP_ROPE);
    if (overlaps)
        select_entries(p, index);
    spry_pass_attend_selected(p, index);
    spry_threads_share(p->threads, turn_back_rows, &job, p->n_rows, 1);
    project(p, l);
}
