/* Sequences over one small pool and its cache against a naive model, without a neural network: "computing" a row writes
 * a number made from its token, its position and what the row before it holds, so that a wrong page anywhere in a
 * history shows in every row after it. The naive model knows neither pages that are shared nor a cache: it builds each
 * sequence from its tokens, every time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/sequence.h"
#include "platform/clock.h"
#include "support/hostile.h"
#include "support/naive_sequence.h"
#include "support/pool_pages.h"

enum {
    N_SEQUENCES = 5,
    N_PAGES = 26,
    MAX_PROMPT = 600,
    N_OPERATIONS = 40000,
    N_PINS = 3,
    SALTS = 2,
};

#define TTL_NS 1000000000u

static const spry_kv_shape tiny = {.n_layers = 1, .n_kv_heads = 1, .head_dim = 4, .type = SPRY_F32};

/* ---- the world --------------------------------------------------------------------------------------------------- */

typedef struct pins {
    spry_kv_table table; /* only of entries */
    spry_kv_entry entries[WINDOW];
} pins;

typedef struct tally {
    size_t begun, refused, whole, stopped, stopped_in_span, linked, slid, went_on, appended, full, cut, released;
    size_t pinned, unpinned, reused;
} tally;

typedef struct world {
    spry_kv_pool pool;
    spry_kv_cache cache;
    spry_sequence sequences[N_SEQUENCES];
    text texts[N_SEQUENCES];
    pins pins[N_PINS];
    int32_t documents[3][MAX_PROMPT];
    uint64_t random, prompt_tokens;
    tally n;
    naive v; /* scratch */
} world;

static size_t below(world *w, size_t bound)
{
    return (size_t)(hostile_random(&w->random) % bound);
}

static uint64_t *cell(const world *w, const spry_kv_table *t, size_t position)
{
    const spry_kv_entry *entry = spry_kv_table_find(t, position);
    assert_in_range(position, entry->start, entry->start + entry->count - 1);
    return (uint64_t *)(void *)pool_page(&w->pool, entry->page) + (position - entry->start);
}

static int32_t distance_at(const world *w, const spry_kv_table *t, size_t position)
{
    return w->pool.turns.deltas[spry_kv_table_find(t, position)->turn];
}

/* What a step does. Only pages that are not in the cache may be written to. */
static void compute(world *w, const spry_segment *g)
{
    for (uint32_t i = 0; i < g->n_rows; i++) {
        size_t p = g->first_position + i;
        const spry_kv_entry *entry = spry_kv_table_find(g->table, p);
        assert_false(spry_kv_cache_knows(&w->cache, entry->page));
        assert_int_equal(entry->turn, 0);
        uint64_t before = p ? *cell(w, g->table, p - 1) : 0;
        *cell(w, g->table, p) = mix((uint64_t)g->tokens[i], p, before, p ? distance_at(w, g->table, p - 1) : 0);
    }
}

/* Runs some steps; says whether nothing is left. */
static bool run_steps(world *w, spry_sequence *s, size_t steps)
{
    spry_segment segments[8];
    size_t n;
    while (steps-- && spry_sequence_pending(s)) {
        spry_error error = {0};
        size_t rows = 0, most = 1 + below(w, below(w, 2) ? 8 : 90), want = below(w, MAX_PROMPT);
        spry_status status = spry_sequence_fill(s, segments, &n, 2 + below(w, 7), most, want, 1 + below(w, 16), &error);
        if (status) {
            hostile_expect(status, &error, SPRY_ERR_CONTEXT, "");
            spry_sequence_stop(s);
            return false;
        }
        assert_true(n > 0);
        for (size_t i = 0; i < n; i++) {
            compute(w, &segments[i]);
            rows += segments[i].n_rows;
        }
        assert_in_range(rows, 1, most);
        spry_sequence_computed(s, rows, 0);
    }
    return !spry_sequence_pending(s);
}

/* ---- what must hold ---------------------------------------------------------------------------------------------- */

static void count_table(const world *w, const spry_kv_table *t, uint32_t *pages, uint32_t *turns)
{
    for (size_t i = 0; i < t->n_entries; i++) {
        assert_true(t->entries[i].page < w->pool.n_pages);
        pages[t->entries[i].page]++;
        turns[t->entries[i].turn]++;
    }
}

static void check_references(const world *w)
{
    uint32_t pages[N_PAGES] = {0}, turns[SPRY_KV_TURNS_MAX] = {0};
    size_t known = 0, unused = 0, in_use = 0, pinned = 0;
    for (size_t i = 0; i < N_SEQUENCES; i++) {
        count_table(w, &w->sequences[i].table, pages, turns);
        for (size_t k = 0; k < w->sequences[i].n_spans; k++)
            count_table(w, &w->sequences[i].spans[k], pages, turns);
    }
    for (uint32_t i = 0; i < N_PAGES; i++) {
        bool knows = spry_kv_cache_knows(&w->cache, i), is_pinned = false;
        for (size_t k = 0; k < N_PINS; k++)
            for (size_t e = 0; e < w->pins[k].table.n_entries; e++)
                is_pinned = is_pinned || w->pins[k].entries[e].page == i;
        assert_true(knows || !is_pinned);
        known += knows;
        pinned += is_pinned;
        unused += knows && !pages[i];
        in_use += knows || pages[i];
        assert_int_equal(w->pool.references[i], pages[i] + knows);
    }
    for (uint32_t i = 1; i < w->pool.turns.end; i++)
        assert_int_equal(w->pool.turns.references[i], turns[i]);
    assert_int_equal(w->pool.n_free, N_PAGES - in_use);
    spry_kv_cache_figures figures;
    spry_kv_cache_describe(&w->cache, &figures);
    assert_int_equal(figures.pages, known);
    assert_int_equal(figures.unused_pages, unused);
    assert_int_equal(figures.pinned_pages, pinned);
    assert_int_equal(figures.hit_tokens + figures.miss_tokens, w->prompt_tokens);
}

static bool is_pending(const spry_sequence *s, size_t position, bool foreign)
{
    for (size_t i = s->next_work; i < s->n_work; i++)
        if (s->work[i].table == &s->table ? position >= s->work[i].first && position < s->work[i].end : foreign)
            return true;
    return false;
}

/* Everything that is not still to be computed is what the naive model says. */
static void check_sequence(world *w, size_t i)
{
    const spry_sequence *s = &w->sequences[i];
    const text *t = &w->texts[i];
    const spry_kv_table *table = &s->table;
    naive *v = &w->v;
    naive_build(v, t, s->n_tokens, s->keep, s->n_dropped);
    assert_memory_equal(s->tokens, t->ids, s->n_tokens * sizeof *s->tokens);
    assert_int_equal(table->n_tokens, v->n);
    assert_int_equal(table->n_tokens + s->n_dropped, s->n_tokens);
    assert_int_equal(table->n_entries, v->n_chunks);
    for (size_t k = 0; k < v->n_chunks; k++) {
        assert_int_equal(table->entries[k].start, v->chunks[k].start);
        assert_int_equal(table->entries[k].count, v->chunks[k].count);
    }
    for (size_t p = 0; p < v->n; p++) {
        assert_int_equal(distance_at(w, table, p), v->distance[p]);
        if (*cell(w, table, p) != v->value[p] && !is_pending(s, p, v->linked[p]))
            fail_msg("sequence %zu: token %zu of %zu is not what it must be (%zu fragments, repair %zu, %zu dropped)",
                     i, p, v->n, t->n_spans, t->repair, v->dropped);
    }
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

static void add_ids(text *t, const int32_t *ids, size_t count, size_t most)
{
    count = count < most - t->count ? count : most - t->count;
    memcpy(t->ids + t->count, ids, count * sizeof *ids);
    t->count += count;
}

/* Fragments of these sizes are the ends of the first document, each its own place. */
static void add_fragment(world *w, text *t, size_t most)
{
    static const size_t sizes[] = {1, 5, 31, 32, 33, 64, 70};
    size_t which = below(w, SPRY_COUNT(sizes)), begin = t->count;
    add_ids(t, w->documents[0] + which * 80, sizes[which], most);
    if (t->count > begin)
        t->spans[t->n_spans++] = (spry_span){begin, t->count};
}

static void make_text(world *w, text *t, const spry_sequence *own, size_t most)
{
    static const size_t repairs[] = {0, SPRY_REPAIR_FIRST + 1, SPRY_REPAIR_FIRST + 32, SPRY_REPAIR_FIRST + 40,
                                     SPRY_REPAIR_ALL};
    const spry_sequence *other = &w->sequences[below(w, N_SEQUENCES)];
    size_t kind = below(w, 8);
    int32_t more[40];
    for (size_t i = 0; i < SPRY_COUNT(more); i++)
        more[i] = (int32_t)below(w, 3);
    *t = (text){.repair = repairs[below(w, SPRY_COUNT(repairs))]};
    if (kind < 3) /* its own continuation, or another's */
        add_ids(t, (kind ? own : other)->tokens, (kind ? own : other)->n_tokens, most);
    else
        add_ids(t, w->documents[below(w, 3)], below(w, below(w, 4) ? 120 : MAX_PROMPT), most);
    if (kind == 3 && t->count) /* another in one place */
        t->ids[below(w, t->count)] = 7;
    if (kind > 4 && most <= WINDOW) {
        t->count = t->count < 50 ? t->count : 50;
        for (size_t i = 1 + below(w, MAX_SPANS); i--;) {
            add_fragment(w, t, most);
            add_ids(t, more, below(w, 3) ? 0 : below(w, 9), most);
        }
    }
    if (kind != 7)
        add_ids(t, more, 1 + below(w, 20), most);
    if (!t->count)
        add_ids(t, more, 1, most);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* Pages that nothing this sequence does can free. */
static size_t pages_of_others(const world *w, const spry_sequence *own)
{
    size_t held = 0;
    for (uint32_t page = 0; page < N_PAGES; page++) {
        bool is_held = false;
        for (size_t i = 0; i < N_SEQUENCES; i++)
            for (size_t e = 0; &w->sequences[i] != own && e < w->sequences[i].table.n_entries; e++)
                is_held = is_held || w->sequences[i].table.entries[e].page == page;
        for (size_t k = 0; k < N_PINS; k++)
            for (size_t e = 0; e < w->pins[k].table.n_entries; e++)
                is_held = is_held || w->pins[k].entries[e].page == page;
        held += is_held;
    }
    return held;
}

static size_t pages_wanted(world *w, const text *t)
{
    size_t pages = 0;
    naive_build(&w->v, t, t->count < WINDOW ? t->count : WINDOW, 0, 0);
    for (size_t i = 0; i < t->n_spans; i++) /* computed on their own meanwhile */
        pages += (t->spans[i].end - t->spans[i].begin + PAGE - 1) / PAGE;
    return pages + w->v.n_chunks;
}

static void begin(world *w, size_t i)
{
    spry_sequence *s = &w->sequences[i];
    text *t = &w->texts[i], made;
    spry_found found;
    spry_error error = {0};
    make_text(w, &made, s, s->slides ? MAX_PROMPT : WINDOW);
    bool has_slid = s->n_dropped > 0;
    *t = made;
    size_t from = below(w, 6) || t->n_spans ? t->count - 1 : below(w, t->count);
    const spry_prompt prompt = {.ids = t->ids,
                                .count = t->count,
                                .compute_from = from,
                                .spans = t->spans,
                                .n_spans = t->n_spans,
                                .repair = t->repair};
    spry_status status = spry_sequence_begin(s, &found, &prompt, &error);
    if (status) {
        hostile_expect(status, &error, SPRY_ERR_CONTEXT, "KV pool is full");
        assert_true(pages_of_others(w, s) + pages_wanted(w, t) > N_PAGES); /* or it had no reason to give up */
        assert_int_equal(s->n_tokens + s->table.n_tokens + s->n_dropped + spry_sequence_pending(s), 0);
        t->count = t->n_spans = 0;
        w->n.refused++;
        return;
    }
    w->prompt_tokens += t->count;
    w->n.begun++;
    w->n.reused += found.reused > 0;
    w->n.linked += found.spans > 0;
    w->n.went_on += has_slid && s->n_dropped;
    if (s->n_rest == 0)
        check_sequence(w, i);
    check_references(w);
    if (run_steps(w, s, below(w, 3) ? SIZE_MAX : below(w, 4))) {
        w->n.whole++;
    } else {
        for (size_t k = s->next_work; k < s->n_work; k++)
            w->n.stopped_in_span += s->work[k].table != &s->table;
        spry_sequence_stop(s);
        w->n.stopped++;
    }
    w->n.slid += s->n_dropped > 0;
}

static void append(world *w, size_t i)
{
    spry_sequence *s = &w->sequences[i];
    text *t = &w->texts[i];
    for (size_t n = 1 + below(w, 60); n--;) {
        spry_error error = {0};
        int32_t id = (int32_t)below(w, 3);
        if (s->n_tokens == HISTORY)
            return;
        spry_status status = spry_sequence_append(s, &id, 1, &error);
        if (status) {
            hostile_expect(status, &error, SPRY_ERR_CONTEXT, "");
            w->n.full++;
            return;
        }
        t->ids[s->n_tokens - 1] = id;
        if (t->count > s->n_tokens - 1) { /* it was stopped: what it was to become no longer matters */
            t->count = s->n_tokens - 1;
            assert_int_equal(t->n_spans, 0);
        }
        assert_true(run_steps(w, s, SIZE_MAX));
        w->n.appended++;
    }
}

/* Drafts: several rows appended, computed or not, and some of them taken back. */
static void draft(world *w, size_t i)
{
    spry_sequence *s = &w->sequences[i];
    size_t before = s->n_tokens, n = 1 + below(w, 9), kept = below(w, n + 1);
    int32_t ids[9] = {0};
    if (s->table.n_tokens + n > WINDOW || s->n_tokens + n > HISTORY || w->texts[i].count > s->n_tokens)
        return;
    for (size_t k = 0; k < n; k++)
        ids[k] = (int32_t)below(w, 3);
    if (spry_sequence_append(s, ids, n, NULL))
        return;
    memcpy(w->texts[i].ids + before, ids, n * sizeof *ids);
    if (below(w, 2))
        run_steps(w, s, 1);
    spry_sequence_truncate(s, before + kept);
    assert_true(run_steps(w, s, SIZE_MAX));
    w->n.cut++;
}

static void release(world *w, size_t i)
{
    spry_sequence *s = &w->sequences[i];
    spry_sequence_release(s);
    assert_int_equal(s->table.n_tokens, 0);
    w->texts[i].count = w->texts[i].n_spans = 0;
    s->slides = below(w, 2);
    s->keep = (const size_t[]){0, 1, 40}[below(w, 3)];
    char salt = (char)below(w, SALTS);
    s->root = spry_kv_key_root((spry_kv_key){1, 2}, &salt, 1);
    w->n.released++;
}

static void pin(world *w, size_t i)
{
    pins *p = &w->pins[below(w, N_PINS)];
    const spry_kv_table *t = &w->sequences[i].table;
    if (p->table.n_entries) {
        assert_true(spry_kv_cache_pin(&w->cache, &p->table, false) > 0);
        p->table.n_entries = 0;
        w->n.unpinned++;
    } else if (t->n_entries < 4) {
        size_t tokens = 0;
        for (size_t e = 0; e < t->n_entries; e++)
            if (spry_kv_cache_knows(&w->cache, t->entries[e].page)) {
                p->entries[p->table.n_entries++] = t->entries[e];
                tokens += t->entries[e].count;
            }
        p->table.entries = p->entries;
        assert_int_equal(spry_kv_cache_pin(&w->cache, t, true), tokens);
        w->n.pinned++;
    }
}

static void tidy(world *w)
{
    w->cache.options.max_bytes = below(w, 4) ? SIZE_MAX : below(w, N_PAGES) * w->pool.page_bytes;
    w->cache.options.ttl_ns = below(w, 2) ? 0 : TTL_NS;
    uint64_t now = spry_clock_ns();
    now = below(w, 8) ? now + below(w, 3) * TTL_NS : 0; /* a clock may jump */
    spry_kv_cache_tidy(&w->cache, now);
    size_t most = w->cache.options.max_bytes / w->pool.page_bytes;
    spry_kv_cache_figures figures;
    spry_kv_cache_describe(&w->cache, &figures);
    for (uint32_t page = 0; figures.pages > most && page < N_PAGES; page++)
        if (spry_kv_cache_knows(&w->cache, page) && w->pool.references[page] == 1) {
            bool kept = false;
            for (size_t k = 0; k < N_PINS; k++)
                for (size_t e = 0; e < w->pins[k].table.n_entries; e++)
                    kept = kept || w->pins[k].entries[e].page == page;
            assert_true(kept);
        }
}

static void operate(world *w)
{
    size_t i = below(w, N_SEQUENCES), what = below(w, 40);
    if (what < 16)
        begin(w, i);
    else if (what < 22 && (!w->texts[i].n_spans || w->texts[i].count <= w->sequences[i].n_tokens))
        append(w, i);
    else if (what < 26)
        draft(w, i);
    else if (what < 32)
        release(w, i);
    else if (what < 35)
        pin(w, i);
    else if (what < 38)
        tidy(w);
    else {
        size_t wanted = below(w, N_PAGES);
        bool made = spry_kv_cache_make_room(&w->cache, wanted);
        assert_true(made == (w->pool.n_free >= wanted));
    }
    check_references(w);
    check_sequence(w, i);
}

static void open_world(world *w)
{
    const spry_kv_cache_options options = {.max_bytes = SIZE_MAX};
    pool_open(&w->pool, &tiny, N_PAGES);
    assert_int_equal(spry_kv_cache_init(&w->cache, &w->pool, &options, NULL), SPRY_OK);
    for (size_t d = 0; d < SPRY_COUNT(w->documents); d++)
        for (size_t i = 0; i < MAX_PROMPT; i++)
            w->documents[d][i] = d && i < 70 ? w->documents[0][i] : (int32_t)(10 + below(w, 1000));
    for (size_t i = 0; i < N_SEQUENCES; i++) {
        assert_int_equal(spry_sequence_init(&w->sequences[i], &w->cache, (spry_kv_key){0}, WINDOW, NULL), SPRY_OK);
        release(w, i);
    }
}

static void close_world(world *w)
{
    for (size_t k = 0; k < N_PINS; k++)
        if (w->pins[k].table.n_entries)
            spry_kv_cache_pin(&w->cache, &w->pins[k].table, false);
    for (size_t i = 0; i < N_SEQUENCES; i++)
        spry_sequence_deinit(&w->sequences[i]);
    assert_true(spry_kv_cache_make_room(&w->cache, N_PAGES)); /* nothing is referenced */
    assert_int_equal(w->cache.figures.pages, 0);
    for (uint32_t i = 0; i < w->pool.turns.end; i++)
        assert_int_equal(w->pool.turns.references[i], 0);
    spry_kv_cache_deinit(&w->cache);
    assert_int_equal(w->pool.n_free, N_PAGES);
    pool_close(&w->pool);
}

static void test_random_operations(void **state)
{
    (void)state;
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->random = 20250101;
    open_world(w);
    for (size_t i = 0; i < N_OPERATIONS; i++) {
        operate(w);
        if (i % 20 == 0)
            for (size_t k = 0; k < N_SEQUENCES; k++)
                check_sequence(w, k);
    }
    const tally *n = &w->n;
    print_message("begun %zu (reused %zu, linked %zu, whole %zu, stopped %zu, in a span %zu, refused %zu), slid %zu, "
                  "went on %zu, appended %zu, full %zu, cut %zu, released %zu, pinned %zu, unpinned %zu, evicted %zu, "
                  "expired %zu\n",
                  n->begun, n->reused, n->linked, n->whole, n->stopped, n->stopped_in_span, n->refused, n->slid,
                  n->went_on, n->appended, n->full, n->cut, n->released, n->pinned, n->unpinned,
                  (size_t)w->cache.figures.evicted, (size_t)w->cache.figures.expired);
    /* All of it has really happened. */
    assert_true(n->begun > 2000 && n->reused > 1000 && n->linked > 300 && n->whole > 1000 && n->stopped > 300);
    assert_true(n->stopped_in_span > 30 && n->refused > 50 && n->slid > 200 && n->went_on > 20 && n->full > 100);
    assert_true(n->appended > 5000 && n->cut > 300 && n->released > 1000 && n->pinned > 50 && n->unpinned > 50);
    assert_true(w->cache.figures.evicted > 500 && w->cache.figures.expired > 100);
    close_world(w);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_operations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
