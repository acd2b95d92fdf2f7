/* Pages and tables against a naive model: every sequence is a plain list of stamps, every page's references are counted
 * anew from the tables, and what was written through a table must be read back through it whatever others did since. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "kv/kv_table.h"
#include "support/hostile.h"
#include "support/pool_pages.h"

enum { N_TABLES = 7, MAX_TOKENS = 200, N_PAGES = 17, N_OPERATIONS = 10000 };

static const spry_kv_shape small = {.n_layers = 2, .n_kv_heads = 2, .head_dim = 16, .type = SPRY_F16};

typedef struct world {
    spry_kv_pool pool;
    spry_kv_table tables[N_TABLES];
    uint32_t stamps[N_TABLES][MAX_TOKENS]; /* what each sequence must hold */
    size_t counts[N_TABLES];
    uint32_t next_stamp;
    uint64_t random;
} world;

static size_t below(world *w, size_t bound)
{
    return (size_t)(hostile_random(&w->random) % bound);
}

/* ---- bytes of a token ------------------------------------------------------------------------------------------- */

static unsigned char *slot(const spry_kv_pool *pool, const spry_kv_table *table, size_t position, size_t layer,
                           size_t side, size_t head)
{
    const spry_kv_entry *entry = spry_kv_table_find(table, position);
    assert_in_range(position, entry->start, entry->start + entry->count - 1);
    return pool_page(pool, entry->page) + spry_kv_offset(pool, layer, side) + head * pool->head_bytes +
           (position - entry->start) * pool->token_bytes;
}

static void pattern(unsigned char *out, size_t size, uint32_t stamp, size_t layer, size_t side, size_t head)
{
    uint64_t state = ((uint64_t)stamp << 24) + layer * 4099 + side * 257 + head;
    for (size_t i = 0; i < size; i++)
        out[i] = (unsigned char)hostile_random(&state);
}

/* Calls for every part of a token: each layer's keys and values of each head. */
static void each_part(const spry_kv_pool *pool, const spry_kv_table *table, size_t position, uint32_t stamp, bool write)
{
    unsigned char expected[512];
    assert_true(pool->token_bytes <= sizeof expected);
    for (size_t layer = 0; layer < pool->shape.n_layers; layer++)
        for (size_t side = 0; side < 2; side++)
            for (size_t head = 0; head < pool->shape.n_kv_heads; head++) {
                unsigned char *data = slot(pool, table, position, layer, side, head);
                pattern(expected, pool->token_bytes, stamp, layer, side, head);
                if (write)
                    memcpy(data, expected, pool->token_bytes);
                else
                    assert_memory_equal(data, expected, pool->token_bytes);
            }
}

/* ---- the naive model -------------------------------------------------------------------------------------------- */

static void check_table(const world *w, size_t t)
{
    const spry_kv_table *table = &w->tables[t];
    size_t at = 0;
    assert_int_equal(table->n_tokens, w->counts[t]);
    for (size_t i = 0; i < table->n_entries; i++) {
        const spry_kv_entry *entry = &table->entries[i];
        assert_int_equal(entry->start, at);
        assert_in_range(entry->count, 1, SPRY_PAGE_TOKENS);
        assert_true(i + 1 == table->n_entries || entry->count == SPRY_PAGE_TOKENS);
        at += entry->count;
    }
    assert_int_equal(at, table->n_tokens);
    for (size_t i = 0; i < table->n_tokens; i++)
        each_part(&w->pool, table, i, w->stamps[t][i], false);
}

static void check_pages(const world *w)
{
    uint32_t references[N_PAGES] = {0};
    bool listed[N_PAGES] = {false};
    size_t in_use = 0;
    for (size_t t = 0; t < N_TABLES; t++)
        for (size_t i = 0; i < w->tables[t].n_entries; i++) {
            assert_true(w->tables[t].entries[i].page < N_PAGES);
            references[w->tables[t].entries[i].page]++;
        }
    for (size_t page = 0; page < N_PAGES; page++) {
        assert_int_equal(w->pool.references[page], references[page]);
        in_use += references[page] > 0;
    }
    assert_int_equal(w->pool.n_free, N_PAGES - in_use);
    for (size_t i = 0; i < w->pool.n_free; i++) {
        uint32_t page = w->pool.free[i];
        assert_true(page < N_PAGES && !references[page] && !listed[page]);
        listed[page] = true;
    }
}

/* Pages an extension takes, by the rules alone: a copy of a shared last page that is not full, and new ones. */
static size_t pages_taken(const world *w, size_t t, size_t count)
{
    size_t have = w->counts[t], total = have + count;
    size_t before = (have + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
    size_t after = (total + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
    if (!count)
        return 0;
    bool shared =
        have % SPRY_PAGE_TOKENS && w->pool.references[w->tables[t].entries[w->tables[t].n_entries - 1].page] > 1;
    return after - before + shared;
}

typedef struct snapshot {
    spry_kv_entry entries[MAX_TOKENS / SPRY_PAGE_TOKENS + 1];
    uint32_t references[N_PAGES], free[N_PAGES];
    size_t n_entries, n_tokens, n_free;
} snapshot;

static void take_snapshot(snapshot *s, const world *w, size_t t)
{
    memset(s, 0, sizeof *s);
    s->n_entries = w->tables[t].n_entries;
    s->n_tokens = w->tables[t].n_tokens;
    s->n_free = w->pool.n_free;
    memcpy(s->entries, w->tables[t].entries, s->n_entries * sizeof *s->entries);
    memcpy(s->references, w->pool.references, sizeof s->references);
    memcpy(s->free, w->pool.free, s->n_free * sizeof *s->free);
}

/* ---- operations ------------------------------------------------------------------------------------------------- */

typedef struct tally {
    size_t extended, full, too_long, truncated, shared, copied, renewed;
} tally;

static void extend(world *w, size_t t, tally *n)
{
    size_t count = below(w, 4) ? below(w, 12) : below(w, 90), taken = pages_taken(w, t, count);
    snapshot before, after;
    spry_error error = {0};
    take_snapshot(&before, w, t);
    spry_status status = spry_kv_table_extend(&w->tables[t], &w->pool, count, &error);
    if (count > MAX_TOKENS - w->counts[t] || taken > before.n_free) {
        bool too_long = count > MAX_TOKENS - w->counts[t];
        hostile_expect(status, &error, SPRY_ERR_CONTEXT,
                       too_long ? "tokens do not fit|of 200" : "KV pool is full|of 17");
        take_snapshot(&after, w, t);
        assert_memory_equal(&before, &after, sizeof before); /* nothing changed */
        n->full += !too_long;
        n->too_long += too_long;
        return;
    }
    assert_int_equal(status, SPRY_OK);
    assert_int_equal(w->pool.n_free, before.n_free - taken);
    n->extended++;
    n->copied += before.n_entries &&
                 before.entries[before.n_entries - 1].page != w->tables[t].entries[before.n_entries - 1].page;
    for (size_t i = 0; i < count; i++) {
        w->stamps[t][w->counts[t]] = ++w->next_stamp;
        each_part(&w->pool, &w->tables[t], w->counts[t]++, w->next_stamp, true);
    }
}

static void truncate_table(world *w, size_t t, tally *n)
{
    size_t keep = below(w, 3) ? w->counts[t] - below(w, w->counts[t] < 40 ? w->counts[t] + 1 : 40)
                              : below(w, MAX_TOKENS + 20); /* sometimes more than there are: keeps all */
    spry_kv_table_truncate(&w->tables[t], &w->pool, keep);
    w->counts[t] = keep < w->counts[t] ? keep : w->counts[t];
    n->truncated++;
}

static void renew(world *w, size_t t)
{
    spry_kv_table_deinit(&w->tables[t], &w->pool);
    assert_null(w->tables[t].entries);
    spry_kv_table_deinit(&w->tables[t], &w->pool); /* of an empty one: nothing */
    assert_int_equal(spry_kv_table_init(&w->tables[t], MAX_TOKENS, NULL), SPRY_OK);
    w->counts[t] = 0;
}

/* Makes an empty table hold the first tokens of another. */
static void share_tokens(spry_kv_table *table, const spry_kv_table *from, spry_kv_pool *pool, size_t n_tokens)
{
    for (size_t i = 0; table->n_tokens < n_tokens; i++) {
        const spry_kv_entry *entry = &from->entries[i];
        size_t left = n_tokens - table->n_tokens, count = left < entry->count ? left : entry->count;
        assert_int_equal(spry_kv_table_append(table, pool, entry->page, count, entry->start, &(spry_kv_mark){0}, NULL),
                         SPRY_OK);
    }
}

static void share(world *w, size_t t, tally *n)
{
    size_t from = below(w, N_TABLES), count = below(w, w->counts[from] + 1);
    if (from == t)
        return;
    renew(w, t);
    size_t free_before = w->pool.n_free;
    share_tokens(&w->tables[t], &w->tables[from], &w->pool, count);
    assert_int_equal(w->pool.n_free, free_before);
    memcpy(w->stamps[t], w->stamps[from], count * sizeof **w->stamps);
    w->counts[t] = count;
    n->shared++;
}

static void operate(world *w, tally *n)
{
    size_t t = below(w, N_TABLES), what = below(w, 32);
    if (what < 23)
        extend(w, t, n);
    else if (what < 27)
        truncate_table(w, t, n);
    else if (what < 31)
        share(w, t, n);
    else {
        renew(w, t);
        n->renewed++;
    }
}

static void test_random_operations(void **state)
{
    (void)state;
    world w = {.random = 20240607};
    tally n = {0};
    pool_open(&w.pool, &small, N_PAGES);
    for (size_t t = 0; t < N_TABLES; t++)
        assert_int_equal(spry_kv_table_init(&w.tables[t], MAX_TOKENS, NULL), SPRY_OK);
    for (size_t i = 0; i < N_OPERATIONS; i++) {
        operate(&w, &n);
        check_pages(&w);
        check_table(&w, i % N_TABLES);
        if (i % 50 == 0)
            for (size_t t = 0; t < N_TABLES; t++)
                check_table(&w, t);
    }
    for (size_t t = 0; t < N_TABLES; t++)
        spry_kv_table_deinit(&w.tables[t], &w.pool);
    assert_int_equal(w.pool.n_free, N_PAGES);
    pool_close(&w.pool);
    print_message("extended %zu, full %zu, too long %zu, truncated %zu, shared %zu, copied %zu, renewed %zu\n",
                  n.extended, n.full, n.too_long, n.truncated, n.shared, n.copied, n.renewed);
    /* All of it has really happened. */
    assert_true(n.extended > 1000 && n.full > 100 && n.too_long > 20 && n.truncated > 500);
    assert_true(n.shared > 500 && n.copied > 100 && n.renewed > 100);
}

/* ---- single cases ----------------------------------------------------------------------------------------------- */

/* A shared half page and one free page: the copy would fit, the new page would not. */
static void test_full_pool_takes_no_copy(void **state)
{
    (void)state;
    spry_kv_pool pool;
    spry_kv_table a, b;
    spry_error error = {0};
    pool_open(&pool, &small, 2);
    assert_int_equal(spry_kv_table_init(&a, 64, NULL), SPRY_OK);
    assert_int_equal(spry_kv_table_init(&b, 64, NULL), SPRY_OK);
    assert_int_equal(spry_kv_table_extend(&a, &pool, 10, NULL), SPRY_OK);
    share_tokens(&b, &a, &pool, 10);
    hostile_expect(spry_kv_table_extend(&b, &pool, 30, &error), &error, SPRY_ERR_CONTEXT, "KV pool is full|1 of 2");
    assert_int_equal(pool.n_free, 1);
    assert_int_equal(a.entries[0].page, b.entries[0].page);
    assert_int_equal(spry_kv_table_extend(&b, &pool, 22, NULL), SPRY_OK);
    assert_int_not_equal(a.entries[0].page, b.entries[0].page);
    assert_int_equal(a.n_tokens, 10);
    /* Alone again, the first extends its own page without a copy. */
    assert_int_equal(spry_kv_table_extend(&a, &pool, 22, NULL), SPRY_OK);
    assert_int_equal(pool.n_free, 0);
    spry_kv_table_deinit(&a, &pool);
    spry_kv_table_deinit(&b, &pool);
    pool_close(&pool);
}

typedef struct released {
    size_t calls, first[8], count[8];
} released;

static void on_release(void *self, uint32_t first, size_t count)
{
    released *r = self;
    r->first[r->calls] = first;
    r->count[r->calls++] = count;
}

/* Free pages that were in use return as runs; those in use and those never used stay as they are. */
static void test_memory_returns(void **state)
{
    (void)state;
    spry_kv_pool pool;
    uint32_t pages[10];
    released r = {0};
    assert_int_equal(spry_kv_pool_init(&pool, &small, 12, NULL), SPRY_OK);
    for (size_t i = 0; i < SPRY_COUNT(pages); i++)
        assert_true(spry_kv_page_take(&pool, &pages[i]) && pages[i] == i);
    assert_int_equal(pool.n_held, 10);
    static const uint32_t freed[] = {1, 9, 2, 5};
    for (size_t i = 0; i < SPRY_COUNT(freed); i++)
        spry_kv_page_unref(&pool, freed[i]);
    assert_int_equal(pool.n_held, 10); /* free pages keep their memory for the next sequence */
    spry_kv_pool_release(&pool);       /* a device that returns nothing */
    assert_int_equal(pool.n_held, 10);
    pool.mover = (spry_kv_mover){.self = &r, .release = on_release};
    spry_kv_pool_release(&pool);
    spry_kv_pool_release(&pool); /* nothing is left to return */
    assert_int_equal(r.calls, 3);
    static const size_t first[] = {1, 5, 9}, count[] = {2, 1, 3};
    assert_memory_equal(r.first, first, sizeof first);
    assert_memory_equal(r.count, count, sizeof count);
    assert_int_equal(pool.n_held, 6);
    assert_int_equal(pool.n_free, 6);
    static const uint32_t in_order[] = {1, 2, 5, 9, 10, 11};
    for (size_t i = 0; i < SPRY_COUNT(in_order); i++) {
        uint32_t page;
        assert_true(spry_kv_page_take(&pool, &page));
        assert_int_equal(page, in_order[i]);
    }
    assert_int_equal(pool.n_held, 12);
    spry_kv_pool_deinit(&pool);
}

static void test_context_limit(void **state)
{
    (void)state;
    static const size_t limits[] = {1, 31, 32, 33, 64, 100};
    spry_kv_pool pool;
    pool_open(&pool, &small, 4);
    for (size_t i = 0; i < SPRY_COUNT(limits); i++) {
        spry_kv_table table;
        spry_error error = {0};
        char words[64];
        assert_int_equal(spry_kv_table_init(&table, limits[i], NULL), SPRY_OK);
        snprintf(words, sizeof words, "%zu tokens do not fit a context of %zu", limits[i] + 1, limits[i]);
        hostile_expect(spry_kv_table_extend(&table, &pool, limits[i] + 1, &error), &error, SPRY_ERR_CONTEXT, words);
        assert_int_equal(pool.n_free, 4);
        assert_int_equal(spry_kv_table_extend(&table, &pool, limits[i], NULL), SPRY_OK);
        assert_int_equal(spry_kv_table_extend(&table, &pool, 0, NULL), SPRY_OK);
        assert_true(table.n_entries <= table.capacity);
        hostile_expect(spry_kv_table_extend(&table, &pool, 1, &error), &error, SPRY_ERR_CONTEXT, words);
        assert_int_equal(spry_kv_table_extend(&table, &pool, SIZE_MAX, NULL), SPRY_ERR_CONTEXT);
        spry_kv_table_deinit(&table, &pool);
    }
    pool_close(&pool);
}

static void test_find(void **state)
{
    (void)state;
    spry_kv_pool pool;
    spry_kv_table table;
    pool_open(&pool, &small, 8);
    assert_int_equal(spry_kv_table_init(&table, 256, NULL), SPRY_OK);
    for (size_t count = 1; count <= 256; count++) {
        assert_int_equal(spry_kv_table_extend(&table, &pool, 1, NULL), SPRY_OK);
        for (size_t i = 0; i < count; i++)
            assert_ptr_equal(spry_kv_table_find(&table, i), &table.entries[i / SPRY_PAGE_TOKENS]);
    }
    spry_kv_table_deinit(&table, &pool);
    pool_close(&pool);
}

/* Pages come in order, the last one given back is the next one taken, and an empty pool says no. */
static void test_take_and_give_back(void **state)
{
    (void)state;
    spry_kv_pool pool;
    uint32_t page = 99;
    pool_open(&pool, &small, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(spry_kv_page_take(&pool, &page));
        assert_int_equal(page, i);
    }
    assert_false(spry_kv_page_take(&pool, &page));
    assert_int_equal(page, 2);
    spry_kv_page_ref(&pool, 1);
    spry_kv_page_unref(&pool, 1);
    assert_int_equal(pool.n_free, 0);
    spry_kv_page_unref(&pool, 1);
    assert_int_equal(pool.n_free, 1);
    assert_true(spry_kv_page_take(&pool, &page));
    assert_int_equal(page, 1);
    pool_close(&pool);
    spry_kv_pool_deinit(&pool); /* of a closed one: nothing */
}

/* ---- sizes ------------------------------------------------------------------------------------------------------ */

static size_t head_bytes(spry_dtype type, size_t head_dim)
{
    return type == SPRY_F32 ? head_dim * 4 : type == SPRY_F16 ? head_dim * 2 : head_dim / 32 * 34;
}

static void test_sizes(void **state)
{
    (void)state;
    static const spry_dtype types[] = {SPRY_F32, SPRY_F16, SPRY_Q8_0};
    static const size_t head_dims[] = {16, 32, 64, 128};
    for (size_t i = 0; i < SPRY_COUNT(types); i++)
        for (size_t j = 0; j < SPRY_COUNT(head_dims); j++) {
            spry_kv_shape shape = {.n_layers = 3, .n_kv_heads = 5, .head_dim = head_dims[j], .type = types[i]};
            spry_kv_pool pool;
            spry_error error = {0};
            size_t bytes = 0, token = head_bytes(types[i], head_dims[j]);
            spry_status status = spry_kv_pool_init(&pool, &shape, 2, &error);
            if (types[i] == SPRY_Q8_0 && head_dims[j] % 32) {
                hostile_expect(status, &error, SPRY_ERR_UNSUPPORTED, "Q8_0|multiple of 32|not 16");
                assert_false(spry_kv_token_bytes(&bytes, &shape));
                continue;
            }
            assert_int_equal(status, SPRY_OK);
            assert_true(spry_kv_token_bytes(&bytes, &shape));
            assert_int_equal(bytes, 3 * 5 * 2 * token);
            assert_int_equal(pool.token_bytes, token);
            assert_int_equal(pool.head_bytes, token * SPRY_PAGE_TOKENS);
            assert_int_equal(pool.side_bytes, token * SPRY_PAGE_TOKENS * 5);
            assert_int_equal(pool.page_bytes, bytes * SPRY_PAGE_TOKENS);
            assert_int_equal(spry_kv_offset(&pool, 2, 1) + pool.side_bytes, pool.page_bytes);
            spry_host_pages pages;
            assert_int_equal(spry_host_pages_init(&pages, &pool, NULL), SPRY_OK);
            memset(pages.memory, 0xab, 2 * pool.page_bytes); /* all of it is there */
            spry_host_pages_deinit(&pages);
            spry_kv_pool_deinit(&pool);
        }
}

static void test_odd_heads_of_q8_0(void **state)
{
    (void)state;
    for (size_t head_dim = 1; head_dim < 100; head_dim++) {
        spry_kv_shape shape = {.n_layers = 1, .n_kv_heads = 1, .head_dim = head_dim, .type = SPRY_Q8_0};
        spry_kv_pool pool;
        spry_status status = spry_kv_pool_init(&pool, &shape, 1, NULL);
        assert_int_equal(status, head_dim % 32 ? SPRY_ERR_UNSUPPORTED : SPRY_OK);
        spry_kv_pool_deinit(&pool); /* safe after a failure too */
    }
}

static void test_shapes_too_large(void **state)
{
    (void)state;
    static const struct {
        spry_kv_shape shape;
        size_t n_pages;
    } cases[] = {
        {{.n_layers = SIZE_MAX / 2, .n_kv_heads = 8, .head_dim = 128, .type = SPRY_F16}, 1},
        {{.n_layers = 32, .n_kv_heads = SIZE_MAX / 2 + 1, .head_dim = 128, .type = SPRY_F16}, 1},
        {{.n_layers = 32, .n_kv_heads = 8, .head_dim = SIZE_MAX / 3, .type = SPRY_F32}, 1},
        {{.n_layers = 32, .n_kv_heads = 8, .head_dim = SIZE_MAX - 31, .type = SPRY_Q8_0}, 1},
        {{.n_layers = (size_t)1 << 29, .n_kv_heads = (size_t)1 << 29, .head_dim = 128, .type = SPRY_F16}, 1},
        {{.n_layers = 32, .n_kv_heads = 8, .head_dim = 128, .type = SPRY_F16}, SIZE_MAX / 64},
        {{.n_layers = 1, .n_kv_heads = 1, .head_dim = 1, .type = SPRY_F16}, (size_t)UINT32_MAX + 1},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_kv_pool pool;
        spry_error error = {0};
        hostile_expect(spry_kv_pool_init(&pool, &cases[i].shape, cases[i].n_pages, &error), &error, SPRY_ERR_MEMORY,
                       "KV pool|larger than any memory");
        assert_null(pool.references);
        spry_kv_pool_deinit(&pool);
    }
    spry_kv_table table;
    spry_error error = {0};
    hostile_expect(spry_kv_table_init(&table, SIZE_MAX, &error), &error, SPRY_ERR_MEMORY, "KV table");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations),  cmocka_unit_test(test_full_pool_takes_no_copy),
        cmocka_unit_test(test_context_limit),      cmocka_unit_test(test_find),
        cmocka_unit_test(test_take_and_give_back), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_odd_heads_of_q8_0),  cmocka_unit_test(test_shapes_too_large),
        cmocka_unit_test(test_memory_returns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
