/* Sparse attention: an indexer rates the keys of a sequence for each row, and the row attends to the best ones only.
 *
 * The indexer has one key per token, which is in the page beside the keys of attention, and some heads of queries. A
 * key's score is the weighted sum over heads of max(q . k, 0). Rows that see no more keys than the indexer selects
 * attend to all of them in the usual way; which way a row goes depends on its position alone. The selected keys of
 * other rows are copied to pages of floats, over which the usual kernel runs. */
#include <math.h>
#include <string.h>

#include "device/cpu/pass_state.h"
#include "kernels/kv_layout.h"

static const float key_eps = 1e-6f; /* independent of the model's other norms */

size_t spry_index_pages(const spry_config *c, size_t session)
{
    size_t n = c->index_top, joined = 0;
    for (uint32_t i = 0; c->arch->compressed && i < c->n_layers; i++)
        if (c->rates[i] && !c->overlaps[i] && session / c->rates[i] > joined)
            joined = session / c->rates[i];
    n = (n > joined ? n : joined) + (c->arch->compressed ? c->window : 0);
    return (n + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
}

/* ---- keys and queries of the indexer ----------------------------------------------------------------------------- */

typedef struct index_job {
    spry_pass *pass;
    const spry_layer *layer;
    uint32_t index;
} index_job;

static spry_kv_place place_of(const spry_pass *p, uint32_t layer)
{
    return spry_kv_place_of(p->pool, true, p->config->index_slot[layer]);
}

/* Normalises and rotates the key of each row, stores it, and rotates the row's queries. */
static void prepare_rows(void *context, size_t begin, size_t end)
{
    const index_job *job = context;
    const spry_pass *p = job->pass;
    const spry_config *c = p->config;
    spry_kv_place place = place_of(p, job->index);
    size_t n_pairs = c->rope_dim / 2, n = c->index_dim, n_q = c->n_index_heads * n;
    for (size_t row = begin; row < end; row++) {
        float *q = p->index_q + row * n_q, *k = p->index_k + row * n;
        const float *cosine = p->full.cosine + row * n_pairs, *sine = p->full.sine + row * n_pairs;
        p->ops->layer_norm(k, k, job->layer->index_k_norm, job->layer->index_k_norm_bias, n, key_eps);
        p->ops->rope(k, cosine, sine, 1, n, n_pairs, c->index_interleaved);
        p->ops->rope(q, cosine, sine, c->n_index_heads, n, n_pairs, c->index_interleaved);
        spry_kv_store_key(p->ops, p->pool->shape.type, p->slots[row].page + place.keys, p->slots[row].token, k, n);
    }
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* Rows of a segment that see more keys than are selected, at most SPRY_INDEX_ROWS at a time. */
typedef struct score_job {
    spry_pass *pass;
    const spry_segment *segment;
    size_t first_row, skip, n_rows; /* of the segment in the step; rows before these in the segment */
    uint32_t index;
} score_job;

static uint32_t position_of(const score_job *job, size_t row)
{
    return job->segment->first_position + (uint32_t)(job->skip + row);
}

/* Rotates a key to the position where its page is used; `turn` rotates queries the other way. */
static void turn_key(const spry_pass *p, float *k, const spry_turn *turn)
{
    size_t n_pairs = p->config->rope_dim / 2;
    for (size_t i = 0; i < n_pairs; i++) {
        size_t a = p->config->index_interleaved ? 2 * i : i, b = p->config->index_interleaved ? a + 1 : i + n_pairs;
        float x = k[a], y = k[b];
        k[a] = x * turn->cosine[i] + y * turn->sine[i];
        k[b] = y * turn->cosine[i] - x * turn->sine[i];
    }
}

/* Loads the keys of a page, transposed: [index_dim, SPRY_PAGE_TOKENS]. */
static void load_page(const spry_pass *p, float *keys, const spry_kv_entry *entry, uint32_t layer)
{
    float key[SPRY_ATTEND_HEAD_DIM_MAX];
    size_t n = p->config->index_dim;
    const unsigned char *from = spry_host_page(p->pages, entry->page) + place_of(p, layer).keys;
    memset(keys, 0, n * SPRY_PAGE_TOKENS * sizeof *keys);
    for (size_t token = 0; token < entry->count; token++) {
        spry_kv_load_key(p->pool->shape.type, key, from, token, n);
        if (entry->turn)
            turn_key(p, key, &p->full.turns[entry->turn]);
        for (size_t i = 0; i < n; i++)
            keys[i * SPRY_PAGE_TOKENS + token] = key[i];
    }
}

void spry_index_score(const spry_pass *p, float scores[SPRY_PAGE_TOKENS], const float *keys, size_t row)
{
    const spry_config *c = p->config;
    const float *q = p->index_q + row * c->n_index_heads * c->index_dim;
    const float *weights = p->index_weights + row * c->n_index_heads;
    float scale = 1 / sqrtf((float)c->index_dim), share = 1 / sqrtf((float)c->n_index_heads);
    memset(scores, 0, SPRY_PAGE_TOKENS * sizeof *scores);
    for (size_t head = 0; head < c->n_index_heads; head++, q += c->index_dim) {
        float products[SPRY_PAGE_TOKENS] = {0};
        for (size_t i = 0; i < c->index_dim; i++)
            p->ops->add_scaled(products, keys + i * SPRY_PAGE_TOKENS, q[i], SPRY_PAGE_TOKENS);
        for (size_t token = 0; token < SPRY_PAGE_TOKENS; token++)
            products[token] = products[token] > 0 ? products[token] * scale : 0;
        p->ops->add_scaled(scores, products, weights[head] * share, SPRY_PAGE_TOKENS);
    }
}

/* An item is an entry of the sequence's table. */
static void score_entries(void *context, size_t begin, size_t end)
{
    const score_job *job = context;
    const spry_pass *p = job->pass;
    const spry_kv_entry *all = job->segment->table->entries;
    float keys[SPRY_MAX_HEAD_DIM * SPRY_PAGE_TOKENS], scores[SPRY_PAGE_TOKENS];
    for (size_t e = begin; e < end; e++) {
        load_page(p, keys, &all[e], job->index);
        for (size_t row = 0; row < job->n_rows; row++) {
            uint32_t seen = position_of(job, row) + 1, start = all[e].start;
            size_t n = start >= seen ? 0 : seen - start < all[e].count ? seen - start : all[e].count;
            if (!n)
                continue;
            spry_index_score(p, scores, keys, job->first_row + job->skip + row);
            memcpy(p->index_scores + row * p->limits.session + (start - all[0].start), scores, n * sizeof *scores);
        }
    }
}

/* ---- selection --------------------------------------------------------------------------------------------------- */

/* Moves the first value of a heap, whose smallest value comes first, to its place. */
static void sink(float *heap, size_t n)
{
    float value = heap[0];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (!(heap[child] < value))
            break;
        heap[at] = heap[child];
    }
    heap[at] = value;
}

/* The smallest of the `top` largest of n scores, n > top. NaN counts as the smallest value. */
static float find_limit(float *heap, size_t top, float *scores, size_t n)
{
    for (size_t i = 0; i < n; i++)
        scores[i] = isnan(scores[i]) ? -INFINITY : scores[i];
    for (size_t i = 0; i < top; i++)
        heap[i] = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (scores[i] > heap[0]) {
            heap[0] = scores[i];
            sink(heap, top);
        }
    return heap[0];
}

/* Of keys with the same score, the earlier ones are selected. */
void spry_index_choose(const spry_pass *p, size_t i, size_t row, size_t n)
{
    size_t top = p->config->index_top, n_above = 0, used = 0;
    float *scores = p->index_scores + i * p->limits.session;
    float limit = find_limit(p->index_heap + i * top, top, scores, n);
    uint32_t *chosen = p->index_chosen + row * top;
    for (size_t k = 0; k < n; k++)
        n_above += scores[k] > limit;
    size_t n_equal = top - n_above;
    for (size_t k = 0; k < n; k++) {
        bool equal = !(scores[k] > limit) && !(scores[k] < limit) && n_equal;
        n_equal -= equal;
        if (scores[k] > limit || equal)
            chosen[used++] = (uint32_t)k;
    }
}

/* An item is a row. */
static void choose_rows(void *context, size_t begin, size_t end)
{
    const score_job *job = context;
    for (size_t i = begin; i < end; i++)
        spry_index_choose(job->pass, i, job->first_row + job->skip + i,
                          position_of(job, i) + 1 - job->segment->table->entries[0].start);
}

size_t spry_pass_dense_rows(const spry_pass *p, const spry_segment *g)
{
    if (p->config->arch->compressed)
        return 0;
    uint64_t before = g->first_position - g->table->entries[0].start, top = p->config->index_top;
    return before >= top ? 0 : top - before < g->n_rows ? (size_t)(top - before) : g->n_rows;
}

void spry_pass_select(spry_pass *p, const spry_layer *l, uint32_t index)
{
    const spry_config *c = p->config;
    size_t n_q = (size_t)c->n_index_heads * c->index_dim, first = 0;
    index_job rows = {p, l, index};
    if (!c->indexes[index])
        return; /* the choice of an earlier layer is used */
    spry_pass_linear(p, SPRY_OP_QKV, p->index_q, n_q, &l->index_q, p->low, p->n_rows);
    const spry_product both[] = {{p->index_k, c->index_dim, &l->index_k},
                                 {p->index_weights, c->n_index_heads, &l->index_weights}};
    for (size_t i = 0; i < SPRY_COUNT(both); i++)
        spry_pass_products(p, SPRY_OP_QKV, &both[i], 1, p->in, p->n_rows);
    spry_threads_share(p->threads, prepare_rows, &rows, p->n_rows, 1);
    spry_pass_charge(p, SPRY_OP_ROPE);
    for (size_t s = 0; s < p->n_segments; first += p->segments[s++].n_rows) {
        const spry_segment *g = &p->segments[s];
        for (size_t skip = spry_pass_dense_rows(p, g), n; skip < g->n_rows; skip += n) {
            n = g->n_rows - skip < SPRY_INDEX_ROWS ? g->n_rows - skip : SPRY_INDEX_ROWS;
            score_job job = {p, g, first, skip, n, index};
            spry_threads_share(p->threads, score_entries, &job, g->table->n_entries, 1);
            spry_threads_share(p->threads, choose_rows, &job, n, 1);
        }
    }
    spry_pass_charge(p, SPRY_OP_ATTEND);
}

/* ---- attention to selected keys ---------------------------------------------------------------------------------- */

/* Items of work are a row and a share of its heads. */
typedef struct selected_job {
    spry_pass *pass;
    uint32_t layer;
    size_t n_shares; /* shares of a row's heads */
    size_t n_workers;
} selected_job;

/* Copies the selected keys of a row to pages of floats. Keys of pages that are used at other positions are rotated. */
static size_t gather(const spry_pass *p, uint32_t layer, const spry_segment *g, size_t row, unsigned char *pages)
{
    const spry_config *c = p->config;
    if (c->arch->compressed)
        return spry_pass_gather_compressed(p, layer, g, row, pages);
    const spry_kv_entry *e = g->table->entries;
    const uint32_t *chosen = p->index_chosen + row * c->index_top;
    spry_kv_place place = spry_kv_place_of(p->pool, false, c->kv_slot[layer]);
    size_t page_bytes = (size_t)c->head_dim * SPRY_PAGE_TOKENS * sizeof(float), n_pairs = c->rope_dim / 2;
    float key[SPRY_ATTEND_HEAD_DIM_MAX], minus[SPRY_ATTEND_HEAD_DIM_MAX / 2];
    uint32_t first = e->start;
    for (size_t i = 0; i < c->index_top; i++) {
        while (first + chosen[i] >= e->start + e->count)
            e++;
        spry_kv_load_key(p->pool->shape.type, key, spry_host_page(p->pages, e->page) + place.keys,
                         first + chosen[i] - e->start, c->head_dim);
        const spry_turn *turn = e->turn && c->rotated[layer] ? &p->full.turns[e->turn] : NULL;
        for (size_t k = 0; turn && k < n_pairs; k++)
            minus[k] = -turn->sine[k];
        if (turn)
            p->ops->rope(key, turn->cosine, minus, 1, c->head_dim, n_pairs, c->interleaved);
        spry_kv_store_key(p->ops, SPRY_F32, pages + i / SPRY_PAGE_TOKENS * page_bytes, i % SPRY_PAGE_TOKENS, key,
                          c->head_dim);
    }
    return c->index_top;
}

/* Selected keys of a row: n in pages, which are a table. */
typedef struct selected_keys {
    unsigned char *pages;
    spry_kv_entry *entries;
    size_t n, n_entries;
} selected_keys;

static void list_pages(selected_keys *keys)
{
    keys->n_entries = (keys->n + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
    for (size_t i = 0; i < keys->n_entries; i++) {
        size_t start = i * SPRY_PAGE_TOKENS, left = keys->n - start;
        keys->entries[i] = (spry_kv_entry){.page = (uint32_t)i,
                                           .start = (uint32_t)start,
                                           .count = left < SPRY_PAGE_TOKENS ? (uint32_t)left : SPRY_PAGE_TOKENS};
    }
}

/* Attends to the selected keys of a row, with heads [head, end). */
static void attend_row(const spry_pass *p, uint32_t layer, const spry_segment *g, size_t first_row, size_t skip,
                       size_t head, size_t end, const selected_keys *keys)
{
    const spry_config *c = p->config;
    spry_attend a = spry_pass_attend_rows(p, layer, g, first_row, skip);
    a.out += head * c->head_dim;
    a.query += head * c->head_dim;
    a.sinks += a.sinks ? head : 0;
    a.n_rows = 1;
    a.group = end - head;
    a.first_position = (uint32_t)keys->n - 1;
    a.window = a.block = a.ahead = 0;
    a.latent = c->arch->compressed ? c->head_dim : c->n_kv_rank;
    a.type = SPRY_F32;
    a.pages = keys->pages;
    a.page_bytes = a.head_bytes = (size_t)c->head_dim * SPRY_PAGE_TOKENS * sizeof(float);
    a.token_bytes = c->head_dim * sizeof(float);
    a.key_offset = a.value_offset = 0;
    a.entries = keys->entries;
    a.n_entries = keys->n_entries;
    a.turns = NULL;
    p->ops->attend(&a, 0, 1);
}

static void attend_items(void *context, size_t worker, size_t n_workers)
{
    const selected_job *job = context;
    const spry_pass *p = job->pass;
    const spry_config *c = p->config;
    size_t item = 0, first = 0, n_pages = spry_index_pages(c, p->limits.session);
    if (worker >= job->n_workers)
        return;
    n_workers = n_workers < job->n_workers ? n_workers : job->n_workers;
    selected_keys keys = {.pages = p->index_pages + worker * n_pages * c->head_dim * SPRY_PAGE_TOKENS * sizeof(float),
                          .entries = p->index_entries + worker * n_pages};
    for (size_t s = 0; s < p->n_segments; first += p->segments[s++].n_rows)
        for (size_t skip = spry_pass_dense_rows(p, &p->segments[s]); skip < p->segments[s].n_rows; skip++) {
            keys.n = 0;
            for (size_t share = 0; share < job->n_shares; share++, item++) {
                if (item % n_workers != worker)
                    continue;
                if (!keys.n) {
                    keys.n = gather(p, job->layer, &p->segments[s], first + skip, keys.pages);
                    list_pages(&keys);
                }
                attend_row(p, job->layer, &p->segments[s], first, skip, c->n_heads * share / job->n_shares,
                           c->n_heads * (share + 1) / job->n_shares, &keys);
            }
        }
}

void spry_pass_attend_selected(spry_pass *p, uint32_t layer)
{
    const spry_config *c = p->config;
    size_t workers = spry_threads_count(p->threads), n_sparse = 0;
    for (size_t s = 0; s < p->n_segments; s++)
        n_sparse += p->segments[s].n_rows - spry_pass_dense_rows(p, &p->segments[s]);
    if (!n_sparse)
        return;
    workers = workers < SPRY_INDEX_SHARES ? workers : SPRY_INDEX_SHARES;
    size_t shares = n_sparse >= workers ? 1 : workers < c->n_heads ? workers : c->n_heads;
    selected_job job = {p, layer, shares, workers};
    spry_threads_run(p->threads, attend_items, &job);
    spry_pass_took_attention(p, layer);
}
