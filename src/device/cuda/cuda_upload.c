/* A step as the GPU receives it: rows with token, position and slot, the entries of their page tables, and the decode
 * and prefill tiles of attention. One copy from pinned memory uploads all of it. */
#include <assert.h>
#include <string.h>

#include "device/cuda/cuda_state.h"
#include "device/cuda/kernel_args.h"

enum { FIRST_ENTRIES = 1 << 14, ALIGNMENT = 256 };

static_assert(sizeof(spry_step_entry) == sizeof(spry_kv_entry), "entries are copied as they are");

static size_t section(size_t *used, size_t count, size_t size)
{
    size_t at = *used;
    *used += (count * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

/* Makes room for `n_entries` entries after the fixed sections. */
static spry_status make_room(spry_cuda_device *d, size_t n_entries, spry_error *error)
{
    spry_cuda_upload *u = &d->upload;
    size_t rows = d->device.limits.max_rows, used = 0;
    void *host = u->both;
    u->rows = section(&used, rows, sizeof(spry_step_row));
    u->window_rows = section(&used, d->config->windowed ? rows : 0, sizeof(spry_step_row));
    u->decode_rows = section(&used, rows, sizeof(uint32_t));
    u->decode_tiles = section(&used, rows, sizeof(spry_decode_tile));
    u->prefill_tiles = section(&used, rows, sizeof(spry_row_range));
    u->runs = section(&used, d->config->n_delta_layers ? rows : 0, sizeof(spry_delta_run));
    u->source = section(&used, rows, sizeof(int32_t));
    u->deltas = section(&used, SPRY_KV_TURNS_MAX, sizeof(int32_t));
    u->drawn = section(&used, rows, sizeof(uint32_t));
    u->scales = section(&used, rows, d->device.limits.n_adapters * sizeof(float));
    u->entries = section(&used, n_entries, sizeof(spry_step_entry));
    spry_status status = SPRY_OK;
    if (used > u->bytes && !(status = spry_cuda_grow(&d->context, &host, &u->memory, 2 * used,
                                                     "allocating room for a step's tables", error)))
        u->bytes = used;
    u->both = host;
    u->host = u->both + d->newest * u->bytes;
    return status;
}

spry_status spry_cuda_upload_init(spry_cuda_device *d, spry_error *error)
{
    return make_room(d, FIRST_ENTRIES, error);
}

void spry_cuda_upload_deinit(spry_cuda_device *d)
{
    spry_cuda_free_host(&d->context, d->upload.both);
    spry_cuda_free(&d->context, &d->upload.memory);
    d->upload.both = d->upload.host = NULL;
    d->upload.bytes = 0;
}

/* The sizes of heads: kind 1, sliding layers whose heads have other sizes; kind 0, all other layers. */
static spry_heads heads_of(const spry_config *c, size_t kind)
{
    return kind && spry_config_has_kinds(c) ? c->slide : (spry_heads){c->n_kv_heads, c->head_dim, c->rope_dim};
}

/* The rows of a tile whose queries for one KV head are at most `queries`, for both kinds of layers. */
static size_t tile_rows(const spry_cuda_device *d, const size_t queries[2])
{
    size_t rows = SIZE_MAX;
    for (size_t kind = 0; kind < 2; kind++) {
        size_t group = d->config->n_heads / heads_of(d->config, kind).n_kv_heads;
        size_t fit = queries[kind] > group ? queries[kind] / group : 1;
        rows = fit < rows ? fit : rows;
    }
    return rows;
}

static size_t table_chunks(const spry_cuda_device *d, const spry_kv_table *table)
{
    return (table->n_entries + d->attention[0].chunk_pages - 1) / d->attention[0].chunk_pages;
}

/* True if a segment's rows are decoded with split-KV; `all`: rows of the step. */
static bool is_decode(const spry_cuda_device *d, const spry_segment *g, size_t all)
{
    size_t chunks = table_chunks(d, g->table), most = SPRY_CUDA_DECODE_ROWS;
    chunks = chunks > d->n_chunks ? chunks : d->n_chunks;
    if (d->attention[0].multi_row && (all <= SPRY_CUDA_DECODE_STEP_ROWS || !d->attention[0].combine_prefill))
        most = SPRY_CUDA_DECODE_TILE_ROWS;
    return g->n_rows <= most &&
           (d->n_decode_rows + g->n_rows) * chunks * spry_cuda_partial_floats(d->config) <= d->scratch.partial_floats;
}

/* Rows of a prefill tile: their queries for one KV head fill the warps of a block. */
static size_t prefill_tile_rows(const spry_cuda_device *d)
{
    size_t queries[2];
    for (size_t kind = 0; kind < 2; kind++) {
        const spry_cuda_attention *attention = &d->attention[kind];
        queries[kind] = attention->prefill_warps / attention->parts * attention->queries;
    }
    return tile_rows(d, queries);
}

static void add_prefill_tiles(spry_cuda_device *d, const spry_segment *g, size_t first_row)
{
    spry_row_range *prefill_tiles = (spry_row_range *)(void *)(d->upload.host + d->upload.prefill_tiles);
    size_t each = prefill_tile_rows(d), chunks = (g->table->n_entries + SPRY_SPLIT_KV_PAGES - 1) / SPRY_SPLIT_KV_PAGES;
    for (size_t row = 0; row < g->n_rows; row += each)
        prefill_tiles[d->n_prefill_tiles++] =
            (spry_row_range){(uint32_t)(first_row + row), (uint32_t)(g->n_rows - row < each ? g->n_rows - row : each)};
    each = each < g->n_rows ? each : g->n_rows;
    d->longest_prefill_tile = each > d->longest_prefill_tile ? each : d->longest_prefill_tile;
    d->n_kv_splits = chunks > d->n_kv_splits ? chunks : d->n_kv_splits;
}

static void add_decode_rows(spry_cuda_device *d, const spry_segment *g, size_t first_row)
{
    uint32_t *decode_rows = (uint32_t *)(void *)(d->upload.host + d->upload.decode_rows);
    spry_decode_tile *decode_tiles = (spry_decode_tile *)(void *)(d->upload.host + d->upload.decode_tiles);
    size_t chunks = table_chunks(d, g->table);
    size_t each = tile_rows(d, (const size_t[]){d->attention[0].queries, d->attention[1].queries});
    for (size_t i = 0; i < g->n_rows; i += each)
        decode_tiles[d->n_decode_tiles++] =
            (spry_decode_tile){(uint32_t)(first_row + i), (uint32_t)(g->n_rows - i < each ? g->n_rows - i : each),
                               (uint32_t)(d->n_decode_rows + i)};
    for (size_t i = 0; i < g->n_rows; i++)
        decode_rows[d->n_decode_rows++] = (uint32_t)(first_row + i);
    d->n_chunks = chunks > d->n_chunks ? chunks : d->n_chunks;
}

/* The first position of the segment's sequence in this step; returns true if the sequence has several segments. */
static bool find_first(uint32_t *first, const spry_device_step *step, const spry_segment *g)
{
    bool several = false;
    *first = g->first_position;
    for (size_t s = 0; s < step->n_segments; s++) {
        const spry_segment *other = &step->segments[s];
        if (other == g || other->table != g->table)
            continue;
        several = true;
        *first = other->first_position < *first ? other->first_position : *first;
    }
    return several;
}

/* The last entry that rows of a segment see: that of the row itself, or of the last row of what they see whole. */
static const spry_kv_entry *last_seen(const spry_cuda_device *d, const spry_segment *g, const spry_kv_entry *own)
{
    if (d->config->bidirectional)
        return g->table->entries + g->table->n_entries - 1;
    return g->picture && g->picture->two_way ? spry_kv_table_find(g->table, g->first_position + g->n_rows - 1) : own;
}

/* The rows as layers with windows see them: nothing but the entries of their segment. */
static void add_window_rows(spry_cuda_device *d, const spry_segment *g, size_t first_row)
{
    const spry_step_row *rows = (const spry_step_row *)(const void *)(d->upload.host + d->upload.rows);
    spry_step_row *out = (spry_step_row *)(void *)(d->upload.host + d->upload.window_rows);
    const spry_kv_entry *first = spry_kv_table_find(g->table, g->first_position);
    const spry_kv_entry *last = spry_kv_table_find(g->table, g->first_position + g->n_rows - 1);
    for (size_t row = first_row; row < first_row + g->n_rows; row++) {
        out[row] = rows[row];
        out[row].first_entry += (uint32_t)(first - g->table->entries);
        out[row].n_entries = (uint32_t)(last - first) + 1;
    }
}

/* Adds the rows of a segment, whose entries begin at `first_entry`. */
static void add_rows(spry_cuda_device *d, const spry_segment *g, size_t first_row, size_t first_entry,
                     uint32_t first_new)
{
    spry_step_row *rows = (spry_step_row *)(void *)(d->upload.host + d->upload.rows);
    uint32_t type = 0;
    bool two_way = g->picture && g->picture->two_way;
    for (size_t i = 0; i < g->n_rows; i++) {
        uint32_t position = g->first_position + (uint32_t)i, place[3];
        const spry_kv_entry *entry = spry_kv_table_find(g->table, position);
        spry_segment_place(place, g, (uint32_t)i);
        rows[first_row + i] = (spry_step_row){.token = g->tokens && !g->picture ? g->tokens[i] : 0,
                                              .position = position,
                                              .page = entry->page,
                                              .slot = position - entry->start,
                                              .first_entry = (uint32_t)first_entry,
                                              .n_entries = (uint32_t)(last_seen(d, g, entry) - g->table->entries) + 1,
                                              .first_new = first_new,
                                              .type = type,
                                              .time = place[0],
                                              .line = place[1],
                                              .column = place[2],
                                              .ahead = two_way ? g->n_rows - 1 - (uint32_t)i : 0};
        if (d->config->second_type && g->tokens && g->tokens[i] == (int32_t)d->config->second_type - 1)
            type = 1;
    }
}

/* The rows of one sequence, which a delta net processes in order; `before`: the segment before this one. */
static void add_segment(spry_cuda_device *d, const spry_segment *g, const spry_segment *before)
{
    if (!d->config->n_delta_layers) {
        d->n_segments++;
        return;
    }
    spry_delta_run *run = (spry_delta_run *)(void *)(d->upload.host + d->upload.runs) + d->n_segments;
    if (before && before->table == g->table) {
        run--;
    } else {
        *run = (spry_delta_run){.first_row = (uint32_t)d->n_rows,
                                .first = g->first_position,
                                .from = (uint32_t)g->table->state_from,
                                .state = g->table->state - 1};
        d->n_segments++;
    }
    run->n_rows += g->n_rows;
    run->next = spry_kv_table_find(g->table, g->first_position + g->n_rows - 1)->start;
}

/* Row numbers of the wanted rows: first those with logits, then those with hidden states. */
static void add_wanted(spry_cuda_device *d, const spry_device_step *step, bool hidden)
{
    int32_t *source = (int32_t *)(void *)(d->upload.host + d->upload.source);
    size_t row = 0;
    for (size_t s = 0; s < step->n_segments; row += step->segments[s++].n_rows) {
        const spry_segment *g = &step->segments[s];
        for (size_t i = spry_segment_unwanted(g); (g->want == SPRY_WANT_HIDDEN) == hidden && i < g->n_rows; i++)
            source[d->n_wanted++] = (int32_t)(row + i);
    }
}

/* Rounds up to a power of two if there is memory, so that a growing sequence has few graph keys. */
static void round_chunks(spry_cuda_device *d)
{
    size_t rounded = 1, each = d->n_decode_rows * spry_cuda_partial_floats(d->config);
    while (rounded < d->n_chunks)
        rounded *= 2;
    if (rounded * each <= d->scratch.partial_floats)
        d->n_chunks = rounded;
}

/* Prefill is split over KV if its grid would leave much of the GPU idle, and there is memory. */
static void split_prefill(spry_cuda_device *d)
{
    size_t floats = (d->n_decode_rows * d->n_chunks + d->n_rows * d->n_kv_splits) * spry_cuda_partial_floats(d->config);
    if (!d->attention[0].combine_prefill || d->n_kv_splits < 2 ||
        d->n_prefill_tiles * d->config->n_kv_heads >= d->attention[0].prefill_full_grid ||
        floats > d->scratch.partial_floats)
        d->n_kv_splits = 0;
}

/* Copies the tokens drawn in the previous step into the uploaded rows. */
static void feed_tokens(spry_cuda_device *d)
{
    const spry_feed_args args = {.rows = d->upload.memory + d->upload.rows,
                                 .drawn = d->upload.memory + d->upload.drawn,
                                 .results = d->draws[!d->newest].results_memory,
                                 .n_rows = (uint32_t)d->n_rows,
                                 .n_vocab = d->config->n_vocab};
    spry_cuda_launch(&d->context, spry_feed_tokens_id, (d->n_rows + SPRY_FEED_THREADS - 1) / SPRY_FEED_THREADS, 1, 1,
                     &args);
}

spry_status spry_cuda_upload_step(spry_cuda_device *d, const spry_device_step *step, const uint32_t *drawn,
                                  spry_error *error)
{
    size_t n_entries = 0, n_rows = 0;
    for (size_t s = 0; s < step->n_segments; s++) {
        n_entries += step->segments[s].table->n_entries;
        n_rows += step->segments[s].n_rows;
    }
    spry_status status = make_room(d, n_entries, error);
    if (status)
        return status;
    spry_cuda_upload *u = &d->upload;
    d->n_rows = d->n_decode_rows = d->n_decode_tiles = d->n_prefill_tiles = d->n_chunks = d->n_wanted = 0;
    d->n_segments = d->n_kv_splits = d->longest_prefill_tile = 0;
    d->alone = true;
    d->adapted = d->sees = false;
    d->segments = step->segments;
    d->n_step_segments = step->n_segments;
    n_entries = 0;
    for (size_t s = 0; s < step->n_segments; s++) {
        const spry_segment *g = &step->segments[s];
        uint32_t first_new;
        d->alone = !find_first(&first_new, step, g) && g->n_rows == 1 && d->alone;
        bool same = s && g->table == g[-1].table; /* windows of a tower have one table */
        size_t first_entry = same ? n_entries - g->table->n_entries : n_entries;
        add_rows(d, g, d->n_rows, first_entry, first_new);
        if (d->config->windowed && g->n_rows)
            add_window_rows(d, g, d->n_rows);
        d->sees = d->sees || (g->picture && !step->inputs);
        spry_cuda_lora_rows(d, g, d->n_rows);
        if (g->n_rows)
            add_segment(d, g, d->n_rows ? g - 1 : NULL);
        if (is_decode(d, g, n_rows))
            add_decode_rows(d, g, d->n_rows);
        else
            add_prefill_tiles(d, g, d->n_rows);
        memcpy(u->host + u->entries + first_entry * sizeof(spry_step_entry), g->table->entries,
               g->table->n_entries * sizeof(spry_step_entry));
        n_entries = first_entry + g->table->n_entries;
        d->n_rows += g->n_rows;
    }
    if (d->n_decode_rows)
        round_chunks(d);
    split_prefill(d);
    add_wanted(d, step, false);
    d->n_logits = d->n_wanted;
    add_wanted(d, step, true);
    memcpy(u->host + u->deltas, d->pool->turns.deltas, d->pool->turns.end * sizeof(int32_t));
    if (drawn)
        memcpy(u->host + u->drawn, drawn, d->n_rows * sizeof *drawn);
    spry_cuda_write(&d->context, u->memory, u->host, u->entries + n_entries * sizeof(spry_step_entry));
    if (drawn)
        feed_tokens(d);
    return spry_cuda_fault(&d->context, "sending a step", error);
}
