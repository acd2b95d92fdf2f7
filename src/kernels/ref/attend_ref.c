/* Attention over a table of pages with an online softmax. A tile is one table entry, and ops.h defines chunks, so
 * the sums of a query depend on the table alone: its bits do not depend on the other rows of the call. A tile without a
 * visible key does not change a query's state, so it may be processed or skipped.
 *
 * Queries (a row's heads of the group, row after row) are processed a few at a time, so that a key or value is decoded
 * once for all of them. Their state is on the stack: about 60 KiB. */
#include <math.h>
#include <string.h>

#include "kernels/kv_layout.h"
#include "kernels/ref/lanes.h"
#include "kernels/ref/ref.h"

enum { BATCH = 8 };

typedef struct query_state {
    const float *own, *query; /* [head_dim]: the query as given, and rotated for the current page */
    float turned[SPRY_ATTEND_HEAD_DIM_MAX];
    float *out;                               /* [head_dim]: sums of all chunks so far */
    float *state;                             /* where a partial result's state is stored; NULL: the result is
                                               * complete */
    uint64_t first, end;                      /* visible positions */
    float max, sum;                           /* largest score of the chunk so far, and sum of exp(score - max) */
    float weighted[SPRY_ATTEND_HEAD_DIM_MAX]; /* the chunk's sum of exp(score - max) * value */
    float total_max, total_sum;
    float scores[SPRY_PAGE_TOKENS]; /* scores of the tile, then exp(score - max) */
    size_t tile_begin, tile_end;    /* visible tokens of the tile */
} query_state;

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Number of coordinates of a value. */
static size_t value_dim(const spry_attend *a)
{
    return a->latent ? a->latent : a->head_dim;
}

/* Query `index` of the call: head index % group of row index / group. */
static void start_query(query_state *q, const spry_attend *a, size_t kv_head, size_t index)
{
    size_t row = index / a->group, head = kv_head * a->group + index % a->group;
    size_t offset = row * a->row_stride + head * a->head_dim;
    q->own = q->query = a->query + offset;
    q->out = a->out + offset;
    q->state = a->states ? a->states + row * a->state_stride + 2 * head : NULL;
    uint64_t past = (uint64_t)a->first_position + row + 1;
    q->end = past + a->ahead;
    q->first = spry_attend_first(a, row);
    q->total_max = a->sinks && !a->states ? a->sinks[head] : -INFINITY;
    q->total_sum = a->sinks && !a->states ? 1 : 0;
    memset(q->out, 0, value_dim(a) * sizeof *q->out);
}

static void start_chunk(query_state *q, const spry_attend *a)
{
    q->max = -INFINITY;
    q->sum = 0;
    memset(q->weighted, 0, value_dim(a) * sizeof *q->weighted);
}

/* Adds a chunk's sums to the sums so far. A chunk of which the query sees nothing changes nothing. */
static void join_chunk(float *out, float *total_max, float *total_sum, const float *weighted, float max, float sum,
                       size_t n)
{
    if (max == -INFINITY && sum == 0)
        return;
    float top = max > *total_max ? max : *total_max, keep = expf(*total_max - top), take = expf(max - top);
    *total_max = top;
    *total_sum = *total_sum * keep + sum * take;
    for (size_t i = 0; i < n; i++)
        out[i] = out[i] * keep + weighted[i] * take;
}

static void divide_by(float *out, float sum, size_t n)
{
    float inverse = 1.0f / sum;
    for (size_t i = 0; i < n; i++)
        out[i] *= inverse;
}

static void turn_query(query_state *q, const spry_attend *a, const spry_turn *turn)
{
    q->query = q->own;
    if (!turn->cosine)
        return;
    memcpy(q->turned, q->own, a->head_dim * sizeof *q->turned);
    spry_ref_rope(q->turned, turn->cosine, turn->sine, 1, a->head_dim, a->n_pairs, a->interleaved);
    q->query = q->turned;
}

/* Finds the tokens of the tile that each query sees; false when no query sees any. [*begin, *end) covers all of
 * them. */
static bool place_tile(query_state *queries, size_t n, const spry_kv_entry *entry, size_t *begin, size_t *end)
{
    *begin = entry->count;
    *end = 0;
    for (size_t i = 0; i < n; i++) {
        query_state *q = &queries[i];
        q->tile_begin = q->first > entry->start ? (size_t)(q->first - entry->start) : 0;
        q->tile_end = q->end > entry->start ? min_size((size_t)(q->end - entry->start), entry->count) : 0;
        if (q->tile_begin >= q->tile_end) {
            q->tile_begin = q->tile_end = 0;
            continue;
        }
        *begin = min_size(*begin, q->tile_begin);
        *end = max_size(*end, q->tile_end);
    }
    return *begin < *end;
}

static const float *value_floats(float buffer[SPRY_ATTEND_HEAD_DIM_MAX], const spry_attend *a,
                                 const unsigned char *bytes)
{
    if (a->type == SPRY_F32)
        return (const float *)(const void *)bytes;
    spry_kv_load_value(a->type, buffer, bytes, a->head_dim);
    return buffer;
}

static void score_tile(query_state *queries, size_t n, const spry_attend *a, const unsigned char *keys, size_t begin,
                       size_t end)
{
    float buffer[SPRY_ATTEND_HEAD_DIM_MAX];
    for (size_t t = begin; t < end; t++) {
        const float *key = buffer;
        spry_kv_load_key(a->type, buffer, keys, t, a->head_dim);
        for (size_t i = 0; i < n; i++) {
            query_state *q = &queries[i];
            if (t < q->tile_begin || t >= q->tile_end)
                continue;
            float score = spry_dot(q->query, key, a->head_dim) * a->scale;
            q->scores[t] = a->softcap != 0 ? a->softcap * tanhf(score / a->softcap) : score;
        }
    }
}

/* Converts the tile's scores to weights under the new maximum, and rescales the sums so far. */
static void weigh_tile(query_state *q, size_t n_values)
{
    if (q->tile_begin == q->tile_end)
        return;
    float max = q->max;
    for (size_t t = q->tile_begin; t < q->tile_end; t++)
        max = q->scores[t] > max ? q->scores[t] : max;
    float keep = expf(q->max - max);
    q->max = max;
    q->sum *= keep;
    for (size_t i = 0; i < n_values; i++)
        q->weighted[i] *= keep;
    for (size_t t = q->tile_begin; t < q->tile_end; t++) {
        q->scores[t] = expf(q->scores[t] - max);
        q->sum += q->scores[t];
    }
}

static void gather_tile(query_state *queries, size_t n, const spry_attend *a, const unsigned char *page, size_t begin,
                        size_t end)
{
    float buffer[SPRY_ATTEND_HEAD_DIM_MAX];
    size_t n_values = value_dim(a);
    for (size_t t = begin; t < end; t++) {
        const float *value = buffer + a->head_dim - n_values;
        if (a->latent)
            spry_kv_load_key(a->type, buffer, page + a->key_offset, t, a->head_dim);
        else
            value = value_floats(buffer, a, page + a->value_offset + t * a->token_bytes);
        for (size_t i = 0; i < n; i++) {
            query_state *q = &queries[i];
            if (t < q->tile_begin || t >= q->tile_end)
                continue;
            float weight = q->scores[t];
            for (size_t d = 0; d < n_values; d++)
                q->weighted[d] += weight * value[d];
        }
    }
}

static void attend_page(query_state *queries, size_t n, const spry_attend *a, size_t kv_head,
                        const spry_kv_entry *entry)
{
    size_t begin, end;
    if (!place_tile(queries, n, entry, &begin, &end))
        return;
    for (size_t i = 0; a->turns && i < n; i++)
        turn_query(&queries[i], a, &a->turns[entry->turn]);
    const unsigned char *page = a->pages + entry->page * a->page_bytes + kv_head * a->head_bytes;
    score_tile(queries, n, a, page + a->key_offset, begin, end);
    for (size_t i = 0; i < n; i++)
        weigh_tile(&queries[i], value_dim(a));
    gather_tile(queries, n, a, page, begin, end);
}

static void end_query(query_state *q, size_t n_values)
{
    if (!q->state) {
        divide_by(q->out, q->total_sum, n_values);
        return;
    }
    q->state[0] = q->total_max;
    q->state[1] = q->total_sum;
}

static void attend_batch(const spry_attend *a, size_t kv_head, size_t first_query, size_t n)
{
    query_state queries[BATCH];
    for (size_t i = 0; i < n; i++)
        start_query(&queries[i], a, kv_head, first_query + i);
    for (size_t e = 0, end; e < a->n_entries; e = end) {
        end = spry_attend_chunk_end(a, e);
        for (size_t i = 0; i < n; i++)
            start_chunk(&queries[i], a);
        for (size_t at = e; at < end; at++)
            attend_page(queries, n, a, kv_head, &a->entries[at]);
        for (size_t i = 0; i < n; i++) {
            query_state *q = &queries[i];
            join_chunk(q->out, &q->total_max, &q->total_sum, q->weighted, q->max, q->sum, value_dim(a));
        }
    }
    for (size_t i = 0; i < n; i++)
        end_query(&queries[i], value_dim(a));
}

void spry_ref_attend(const spry_attend *a, size_t kv_begin, size_t kv_end)
{
    size_t n_queries = a->n_rows * a->group;
    for (size_t head = kv_begin; head < kv_end; head++)
        for (size_t i = 0; i < n_queries; i += BATCH)
            attend_batch(a, head, i, min_size(BATCH, n_queries - i));
}

void spry_ref_attend_join(const spry_attend *a, const spry_attend_parts *parts, size_t kv_head)
{
    for (size_t query = 0; query < a->n_rows * a->group; query++) {
        size_t row = query / a->group, head = kv_head * a->group + query % a->group, n = value_dim(a);
        float max = a->sinks ? a->sinks[head] : -INFINITY, sum = a->sinks ? 1 : 0;
        float *out = a->out + row * a->row_stride + head * a->head_dim;
        memset(out, 0, n * sizeof *out);
        for (size_t i = 0; i < parts->n; i++) {
            const float *state = parts->states + i * parts->n_states + row * a->state_stride + 2 * head;
            join_chunk(out, &max, &sum, parts->sums + i * parts->n_sums + (out - a->out), state[0], state[1], n);
        }
        divide_by(out, sum, n);
    }
}
