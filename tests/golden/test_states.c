/* Recurrent states: which are kept, and that what goes on from one has the bits of what is computed from the beginning,
 * where states are many, where they are as few as can be, and after a restart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/engine_state.h"
#include "golden/golden_models.h"
#include "kv/kv_states.h"
#include "support/engine_fixture.h"
#include "support/pool_pages.h"
#include "support/scratch.h"

enum { PAGE = SPRY_PAGE_TOKENS, CONTEXT = 4096, IDS = 2600, SHARED = 2300 };

/* Computing costs so much that pages and states of the disk are always restored, whatever the clock says. The program
 * is linked with --wrap. */
void __real_spry_kv_cache_computed(spry_kv_cache *cache, size_t rows, uint64_t ns);
void __wrap_spry_kv_cache_computed(spry_kv_cache *cache, size_t rows, uint64_t ns);

void __wrap_spry_kv_cache_computed(spry_kv_cache *cache, size_t rows, uint64_t ns)
{
    (void)ns;
    __real_spry_kv_cache_computed(cache, rows, rows * 60000000000u);
}

/* ---- states of a pool -------------------------------------------------------------------------------------------- */

typedef struct scene {
    spry_kv_pool pool;
    spry_host_pages bytes;
} scene;

static void open_scene(scene *s, size_t n_states)
{
    const spry_kv_shape shape = {
        .n_layers = 1, .n_kv_heads = 1, .head_dim = 4, .type = SPRY_F32, .state = 64, .n_states = n_states};
    pool_open(&s->pool, &shape, 256);
    assert_int_equal(spry_host_pages_init(&s->bytes, &s->pool.states->pool, NULL), SPRY_OK);
    s->pool.states->pool.mover = spry_host_pages_mover(&s->bytes);
}

static void close_scene(scene *s)
{
    assert_int_equal(s->pool.n_free, s->pool.n_pages);
    assert_int_equal(s->pool.states->pool.n_free, s->pool.states->pool.n_pages);
    spry_host_pages_deinit(&s->bytes);
    pool_close(&s->pool);
}

/* What a step does for the table: its state is for the beginning of the last page. */
static void grow(scene *s, spry_kv_table *t, size_t count)
{
    if (!t->entries)
        assert_int_equal(spry_kv_table_init(t, CONTEXT, NULL), SPRY_OK);
    assert_int_equal(spry_kv_table_extend(t, &s->pool, count, NULL), SPRY_OK);
    t->state_from = t->entries[t->n_entries - 1].start;
    memset(spry_host_page(&s->bytes, t->state - 1), (int)(t->n_tokens % 251), 64);
}

static void tables_have_one_each(void **state)
{
    (void)state;
    scene s;
    spry_kv_table a = {0}, b = {0}, c = {0};
    spry_error error = {0};
    open_scene(&s, 2);
    grow(&s, &a, 40);
    grow(&s, &b, 40);
    assert_int_not_equal(a.state, b.state);
    assert_int_equal(spry_kv_table_init(&c, CONTEXT, NULL), SPRY_OK);
    assert_int_equal(spry_kv_table_extend(&c, &s.pool, 1, &error), SPRY_ERR_CONTEXT);
    assert_non_null(strstr(error.message, "all 2 recurrent states are in use"));
    assert_false(spry_kv_state_room(&s.pool));
    spry_kv_table_truncate(&b, &s.pool, 32); /* the beginning of its last page: still there */
    assert_int_not_equal(b.state, 0);
    spry_kv_table_truncate(&b, &s.pool, 31);
    assert_int_equal(b.state, 0);
    assert_int_equal(spry_kv_table_extend(&c, &s.pool, 1, NULL), SPRY_OK);
    spry_kv_table_deinit(&a, &s.pool);
    spry_kv_table_deinit(&b, &s.pool);
    spry_kv_table_deinit(&c, &s.pool);
    close_scene(&s);
}

/* A long text keeps states spread over it, and its last ones. */
static void the_least_valuable_is_dropped(void **state)
{
    (void)state;
    scene s;
    spry_kv_table t = {0};
    size_t count, last = 0, n = 0;
    open_scene(&s, 4);
    for (size_t i = 0; i < 8; i++) {
        grow(&s, &t, 8 * PAGE);
        assert_true(spry_kv_state_save(&s.pool, &t, t.n_tokens, false));
    }
    for (size_t i = 0; i < t.n_entries; i++)
        if (spry_kv_state_find(&s.pool, &count, t.entries[i].page)) {
            assert_int_equal(count, PAGE);
            last = t.entries[i].start + count;
            n++;
        }
    assert_int_equal(n, 3);
    assert_int_equal(last, t.n_tokens);
    spry_kv_table_deinit(&t, &s.pool);
    close_scene(&s);
}

static void what_is_saved_goes_with_its_page(void **state)
{
    (void)state;
    scene s;
    spry_kv_table t = {0}, other = {0};
    size_t count;
    open_scene(&s, 3);
    grow(&s, &t, 50);
    assert_true(spry_kv_state_save(&s.pool, &t, 50, true));
    assert_false(spry_kv_state_save(&s.pool, &t, 50, true)); /* it is there */
    uint32_t page = t.entries[1].page;
    spry_kv_table_truncate(&t, &s.pool, 40); /* other tokens follow: their inputs are not those that are saved */
    grow(&s, &t, 20);
    assert_true(spry_kv_state_find(&s.pool, &count, page));
    assert_int_equal(count, 8);
    spry_kv_state_move(&s.pool, t.entries[0].page, page);
    assert_false(spry_kv_state_find(&s.pool, &count, page));
    assert_true(spry_kv_state_find(&s.pool, &count, t.entries[0].page));
    assert_int_equal(spry_kv_table_init(&other, CONTEXT, NULL), SPRY_OK);
    assert_true(spry_kv_state_load(&s.pool, &other, t.entries[0].page, 0));
    assert_int_equal(*spry_host_page(&s.bytes, other.state - 1), 50); /* as it was when it was saved */
    spry_kv_state_give(&s.pool, &other);
    spry_kv_state_leave(&s.pool, &t);
    assert_int_equal(t.state, 0);
    assert_true(spry_kv_state_find(&s.pool, &count, page));
    assert_int_equal(count, 60 - PAGE);
    spry_kv_table_deinit(&t, &s.pool);
    spry_kv_table_deinit(&other, &s.pool);
    close_scene(&s);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static spry_engine *open_engine(size_t kv_bytes, uint32_t chunk, const char *folder)
{
    char path[512];
    spry_engine_options o;
    spry_engine_options_default(&o);
    golden_folder(path, "mamba2");
    o.context = CONTEXT;
    o.chunk = chunk;
    o.threads = 3;
    o.sessions = 1;
    o.kv_bytes = kv_bytes;
    o.cache_dir = folder;
    return fixture_open(path, &o);
}

typedef struct logits {
    float of[FIXTURE_VOCAB];
} logits;

static logits eval(spry_engine *engine, const int32_t *ids, size_t count, size_t *reused)
{
    logits out;
    const float *got;
    spry_error error = {0};
    spry_kv_figures before = {0}, after = {0};
    spry_session *session = fixture_session(engine);
    spry_engine_kv_figures(engine, &before);
    if (spry_session_eval(session, &got, ids, count, &error))
        fail_msg("%s", error.message);
    memcpy(out.of, got, sizeof out.of);
    spry_engine_kv_figures(engine, &after);
    *reused = (size_t)(after.hit_tokens - before.hit_tokens);
    spry_session_destroy(session);
    return out;
}

typedef struct texts {
    int32_t a[IDS], b[IDS]; /* SHARED tokens are the same */
    logits cold_a, cold_b, cold_part;
    size_t part; /* of a */
} texts;

static texts *make_texts(void)
{
    texts *t = calloc(1, sizeof *t);
    size_t reused;
    assert_non_null(t);
    fixture_ids(t->a, IDS, 3);
    fixture_ids(t->b, IDS, 4);
    memcpy(t->b, t->a, SHARED * sizeof *t->a);
    t->part = 1500;
    spry_engine *engines[3];
    for (size_t i = 0; i < 3; i++)
        engines[i] = open_engine(0, 4096, NULL);
    t->cold_a = eval(engines[0], t->a, IDS, &reused);
    t->cold_b = eval(engines[1], t->b, IDS, &reused);
    t->cold_part = eval(engines[2], t->a, t->part, &reused);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(spry_engine_close(engines[i]), SPRY_OK);
    return t;
}

/* A text goes on from the last state that is saved within it. */
static void texts_go_on_from_saved_states(void **state)
{
    (void)state;
    texts *t = make_texts();
    size_t reused;
    spry_engine *engine = open_engine(0, 100, NULL);
    logits got = eval(engine, t->a, IDS, &reused);
    assert_int_equal(reused, 0);
    assert_memory_equal(&got, &t->cold_a, sizeof got);
    got = eval(engine, t->b, IDS, &reused);
    assert_int_equal(reused, SHARED / SPRY_KV_STATE_TOKENS * SPRY_KV_STATE_TOKENS);
    assert_memory_equal(&got, &t->cold_b, sizeof got);
    got = eval(engine, t->a, IDS, &reused); /* the state of its end */
    assert_int_equal(reused, IDS - 1);
    assert_memory_equal(&got, &t->cold_a, sizeof got);
    got = eval(engine, t->a, t->part, &reused);
    assert_int_equal(reused, SPRY_KV_STATE_TOKENS);
    assert_memory_equal(&got, &t->cold_part, sizeof got);
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
    free(t);
}

/* A declared fragment is text like any other, and a text that is the same up to its end goes on from there. */
static void fragments_end_with_a_state(void **state)
{
    (void)state;
    enum { END = 1300 };
    texts *t = make_texts();
    const spry_span spans[] = {{0, 40}, {40, END}};
    const float *whole;
    size_t reused;
    spry_error error = {0};
    fixture_ids(t->b + END, IDS - END, 6);
    spry_engine *cold = open_engine(0, 512, NULL), *engine = open_engine(0, 512, NULL);
    spry_session *session = fixture_session(engine);
    if (spry_session_eval_spans(session, &whole, t->a, t->part, spans, 2, PAGE, &error))
        fail_msg("%s", error.message);
    assert_memory_equal(whole, &t->cold_part, sizeof t->cold_part);
    spry_session_destroy(session);
    logits expected = eval(cold, t->b, IDS, &reused), got = eval(engine, t->b, IDS, &reused);
    assert_int_equal(reused, END);
    assert_memory_equal(&got, &expected, sizeof got);
    assert_int_equal(spry_engine_close(cold), SPRY_OK);
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
    free(t);
}

/* With one state besides that of the text, too. */
static void two_states_are_enough(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    texts *t = make_texts();
    size_t reused;
    spry_engine *engine = open_engine(BYTES, 500, NULL);
    assert_int_equal(engine->pool.shape.n_states, 2);
    for (size_t round = 0; round < 2; round++) {
        logits got = eval(engine, t->a, t->part, &reused);
        assert_memory_equal(&got, &t->cold_part, sizeof got);
        got = eval(engine, t->a, IDS, &reused); /* goes on from the end of the first */
        assert_true(reused >= t->part - 1);
        assert_memory_equal(&got, &t->cold_a, sizeof got);
        got = eval(engine, t->b, IDS, &reused);
        assert_memory_equal(&got, &t->cold_b, sizeof got);
    }
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
    free(t);
}

/* States are restored from disk with the pages before them. The texts have fewer pages than may wait for the disk. */
static void states_survive_a_restart(void **state)
{
    (void)state;
    enum { SAME = 1200 };
    scratch place;
    scratch_init(&place);
    texts *t = make_texts();
    size_t reused;
    memcpy(t->b, t->a, SAME * sizeof *t->a);
    fixture_ids(t->b + SAME, t->part - SAME, 5);
    spry_engine *engine = open_engine(0, 512, NULL);
    logits cold = eval(engine, t->b, t->part, &reused), got;
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
    engine = open_engine(0, 300, place.folder);
    got = eval(engine, t->a, t->part, &reused);
    assert_memory_equal(&got, &t->cold_part, sizeof got);
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
    engine = open_engine(0, 300, place.folder);
    got = eval(engine, t->b, t->part, &reused);
    assert_int_equal(reused, SPRY_KV_STATE_TOKENS - PAGE); /* on disk a state is for the beginning of its page */
    assert_memory_equal(&got, &cold, sizeof got);
    got = eval(engine, t->a, t->part, &reused);
    assert_int_equal(reused, t->part / PAGE * PAGE);
    assert_memory_equal(&got, &t->cold_part, sizeof got);
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
    free(t);
    scratch_deinit(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_have_one_each),
        cmocka_unit_test(the_least_valuable_is_dropped),
        cmocka_unit_test(what_is_saved_goes_with_its_page),
        cmocka_unit_test(texts_go_on_from_saved_states),
        cmocka_unit_test(fragments_end_with_a_state),
        cmocka_unit_test(two_states_are_enough),
        cmocka_unit_test(states_survive_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
