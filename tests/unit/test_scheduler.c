/* Many jobs on one engine: the same answers as alone, whatever runs beside, also where pages run short. Real models,
 * small ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/fixed_costs.h"
#include "support/job_clients.h"

/* ---- the same answers ------------------------------------------------------------------------------------------- */

static const char schema[] = "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},"
                             "\"kind\":{\"enum\":[\"small\",\"large\"]}},\"required\":[\"name\",\"kind\"]}";
static const char *const stops[] = {"e", "the"};

/* Eight requests as different as they come. */
static void mix(client *all, uint32_t round)
{
    for (uint32_t i = 0; i < 8; i++)
        ask(&all[i], 20 + 37 * i % 150, 100 * round + i / 2, 40 + 5 * i);
    all[1].job.request.sampling.temperature = 1;
    all[1].job.request.sampling.seed = 7 + round;
    all[2].job.request.constraint = SPRY_JSON_SCHEMA;
    all[2].job.request.constraint_text = schema;
    all[2].job.request.on_token = NULL; /* then tokens are forced */
    all[2].job.request.ignore_end = false;
    all[3].job.request.stop = stops;
    all[3].job.request.n_stop = 2;
    all[3].job.request.sampling.temperature = 0.8f;
    all[4].job.request.speculation = SPRY_DRAFT_LOOKUP;
    all[4].job.request.max_tokens = 150;
    all[5].job.salt = "other";
    all[5].job.salt_size = 5;
    all[5].job.request.speculation = SPRY_DRAFT_NONE;
    all[6].spans[0] = (spry_span){3, 50};
    all[6].spans[1] = (spry_span){60, all[6].job.request.n_prompt}; /* to the very end */
    all[6].job.request.spans = all[6].spans;
    all[6].job.request.n_spans = 2;
    all[7].job.slide = true;
    all[7].job.keep = 16;
    all[7].job.request.max_tokens = 560; /* past the context */
    for (uint32_t i = 0; i < 8; i++)
        all[i].job.client = i % 3;
}

static void test_same_answers(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "qwen3", "gemma3"};
    for (size_t m = 0; m < SPRY_COUNT(models); m++) {
        spry_engine *engine = open_engine(models[m], 8, 0);
        spry_jobs_options options = plain_options(8);
        options.max_stall_ms = m ? 0.2 : 50;
        spry_engine *s = start(engine, &options);
        client *all = clients_new(16);
        mix(all, 1);
        mix(all + 8, 2);
        for (size_t i = 0; i < 16; i++)
            submit(s, &all[i]);
        wait_for(16);
        spry_jobs_figures f = figures_of(s);
        assert_int_equal(f.finished, 16);
        assert_true(f.steps && f.rows > f.decode_rows && f.decode_rows > f.steps); /* several at a time */
        for (size_t i = 0; i < 16; i++)
            expect_as_alone(models[m], &all[i]);
        stop(s);
        expect_no_page_held(engine);
        spry_engine_close(engine);
        free(all);
    }
}

/* With a model that drafts: for the first job while it is alone. */
static void test_drafter(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama-256", 4, 0), *drafter = open_engine("llama", 1, 0);
    spry_error error = {0};
    if (spry_engine_set_drafter(engine, drafter, &error))
        fail_msg("%s", error.message);
    spry_jobs_options options = plain_options(4);
    spry_engine *s = start(engine, &options);
    client *all = clients_new(4);
    for (uint32_t i = 0; i < 4; i++) {
        ask(&all[i], 30 + i, i, 60);
        all[i].job.request.speculation = i % 2 ? SPRY_DRAFT_AUTO : SPRY_DRAFT_MODEL;
    }
    submit(s, &all[0]);
    wait_for(1);
    for (uint32_t i = 1; i < 4; i++)
        submit(s, &all[i]);
    wait_for(4);
    for (uint32_t i = 0; i < 4; i++)
        expect_as_alone("llama-256", &all[i]);
    stop(s);
    expect_no_page_held(engine);
    spry_engine_close(engine);
    spry_engine_close(drafter);
    free(all);
}

/* ---- pages run short -------------------------------------------------------------------------------------------- */

static void test_preemption(void **state)
{
    (void)state;
    size_t preempted = 0;
    for (size_t pages = 16; pages <= 24; pages += 4) { /* 16 are one context */
        spry_engine *engine = open_engine("llama", 8, pages);
        spry_jobs_options options = plain_options(8);
        spry_engine *s = start(engine, &options);
        client *all = clients_new(8);
        mix(all, (uint32_t)pages);
        for (size_t i = 0; i < 7; i++)
            all[i].job.request.max_tokens += 60;
        all[7].job.request.max_tokens = 540;
        for (size_t i = 0; i < 8; i++)
            submit(s, &all[i]);
        wait_for(8);
        spry_jobs_figures f = figures_of(s);
        preempted += f.preempted;
        for (size_t i = 0; i < 8; i++)
            if (all[i].job.status)
                fail_msg("job %zu of %zu pages: %s", i, pages, all[i].job.error.message);
        assert_int_equal(f.finished, 8);
        for (size_t i = 0; i < 8; i++)
            expect_as_alone("llama", &all[i]);
        stop(s);
        expect_no_page_held(engine);
        spry_engine_close(engine);
        free(all);
    }
    assert_true(preempted >= 3);
}

/* Drafts that fill the last page of all and are refused: the answer goes on without another page. */
static void test_drafts_in_a_full_pool(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 1, 16); /* one context */
    spry_jobs_options options = plain_options(1);
    spry_engine *s = start(engine, &options);
    client *all = clients_new(12);
    size_t refused = 0;
    for (uint32_t i = 0; i < 12; i++) {
        ask(&all[i], 440, i, 100);
        for (size_t at = 6; at < 440; at++)
            all[i].prompt[at] = all[i].prompt[at - 6];
        all[i].job.request.speculation = SPRY_DRAFT_LOOKUP;
        all[i].job.request.sampling.temperature = 0.5f;
        all[i].job.request.sampling.seed = i;
        all[i].job.slide = i % 2;
        submit(s, &all[i]);
    }
    wait_for(12);
    for (size_t i = 0; i < 12; i++) {
        expect_as_alone("llama", &all[i]);
        refused += all[i].job.result.drafts.drafted - all[i].job.result.drafts.accepted;
    }
    assert_true(refused > 12);
    stop(s);
    expect_no_page_held(engine);
    spry_engine_close(engine);
    free(all);
}

/* A job that does not fit even alone fails, and no other job does. */
static void pin_all(const client *c, spry_engine *engine)
{
    spry_session *session = fixture_session(engine);
    const float *logits;
    assert_int_equal(spry_session_eval(session, &logits, c->prompt, 400, NULL), SPRY_OK);
    size_t tokens;
    assert_int_equal(spry_session_pin(session, &tokens, true), SPRY_OK);
    assert_true(tokens >= 384);
    spry_session_destroy(session);
}

static void test_never_enough_pages(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 3, 16);
    spry_jobs_options options = plain_options(2);
    spry_engine *s = start(engine, &options);
    client *all = clients_new(4);
    ask(&all[0], 400, 9, 1);
    pin_all(&all[0], engine);
    ask(&all[1], 30, 1, 60);
    ask(&all[2], 300, 2, 10);
    ask(&all[3], 30, 3, 60);
    for (size_t i = 1; i < 4; i++)
        submit(s, &all[i]);
    wait_for(3);
    assert_int_equal(all[2].job.status, SPRY_ERR_CONTEXT);
    assert_non_null(strstr(all[2].job.error.message, "pool is full"));
    expect_as_alone("llama", &all[1]);
    expect_as_alone("llama", &all[3]);
    stop(s);
    spry_engine_close(engine);
    free(all);
}

static client *reader;
static size_t reader_at_first;

static void note_reader(client *self, size_t done)
{
    (void)done;
    if (self->n_progress == 1)
        reader_at_first = reader->progress[reader->n_progress - 1];
}

/* A job whose text is being computed for another job waits for it, and nothing is computed twice. */
static void test_nothing_twice(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 8, 0);
    spry_jobs_options options = plain_options(8);
    spry_engine *s = start(engine, &options);
    client *all = clients_new(8);
    pthread_t thread = close_gate(s);
    for (uint32_t i = 0; i < 8; i++) {
        ask(&all[i], 300 + i, 5, 10);
        all[i].prompt[200 + i] = 7;            /* then they differ */
        all[i].job.salt = i == 7 ? "x" : NULL; /* it may share nothing */
        all[i].job.salt_size = i == 7;
        all[i].job.request.on_prefill = hear_progress;
        submit(s, &all[i]);
    }
    reader = &all[0];
    all[7].at_progress = note_reader;
    open_gate(thread);
    wait_for(8);
    assert_true(reader_at_first < 192); /* nor does it wait for text that it may not share */
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(all[i].job.result.reused_tokens >= 192, i > 0 && i < 7);
        expect_as_alone("llama", &all[i]);
    }
    stop(s);
    expect_no_page_held(engine);
    spry_engine_close(engine);
    free(all);
}

/* Who has another salt shares nothing, neither at once nor later. */
static void test_salts(void **state)
{
    (void)state;
    static const char *const salts[] = {"", "a", "a", "b", "", "ab"};
    spry_engine *engine = open_engine("llama", 1, 0);
    spry_jobs_options options = plain_options(1);
    spry_engine *s = start(engine, &options);
    client *all = clients_new(SPRY_COUNT(salts));
    for (size_t i = 0; i < SPRY_COUNT(salts); i++) {
        ask(&all[i], 100, 5, 5);
        all[i].job.salt = salts[i];
        all[i].job.salt_size = strlen(salts[i]);
        submit(s, &all[i]);
        wait_for(i + 1);
        assert_int_equal(all[i].job.result.reused_tokens, i == 2 || i == 4 ? 99 : 0);
    }
    stop(s);
    spry_engine_close(engine);
    free(all);
}

/* The next turn of a conversation: all that was said, again. */
static void say_all(client *self, const client *before)
{
    ask(self, 20, 3, 60);
    memcpy(self->prompt + 20, before->ids, before->n_ids * sizeof *before->ids);
    self->job.request.n_prompt = 20 + before->n_ids;
    self->job.slide = true;
}

static void say_and_wait(spry_engine *s, client *all, size_t i, const char *salt)
{
    say_all(&all[i], &all[0]);
    all[i].job.salt = salt;
    all[i].job.salt_size = strlen(salt);
    submit(s, &all[i]);
    wait_for(i + 1);
    assert_int_equal(all[i].job.status, SPRY_OK);
    if (i > 1)
        assert_memory_equal(all[i].ids, all[1].ids, sizeof all[1].ids);
}

/* A conversation that has slid continues at its position, as long as its pages are not needed. */
static void test_slid_conversation(void **state)
{
    (void)state;
    spry_engine *engine = open_engine_of("llama", 2, 11, 160);
    spry_jobs_options options = plain_options(2);
    spry_engine *s = start(engine, &options);
    client *all = clients_new(6);
    ask(&all[0], 20, 3, 300);
    all[0].job.slide = true;
    submit(s, &all[0]);
    wait_for(1);
    say_and_wait(s, all, 1, "other"); /* beside it, not from it */
    assert_true(all[1].job.result.reused_tokens < 160);
    say_and_wait(s, all, 2, "");
    assert_true(all[2].job.result.reused_tokens >= 300);
    ask(&all[3], 150, 9, 5);
    submit(s, &all[3]);
    wait_for(4);
    assert_int_equal(all[3].job.status, SPRY_OK);
    say_and_wait(s, all, 4, "");
    say_and_wait(s, all, 5, "other");
    assert_true(all[5].job.result.reused_tokens < 160);
    stop(s);
    expect_no_page_held(engine);
    spry_engine_close(engine);
    free(all);
}

/* Two conversations that have slid hold all pages; who comes then needs some of them. */
static void test_idle_gives_pages(void **state)
{
    (void)state;
    spry_engine *engine = open_engine_of("llama", 3, 10, 160);
    spry_jobs_options options = plain_options(3);
    spry_engine *s = start(engine, &options);
    client *all = clients_new(3);
    for (uint32_t i = 0; i < 2; i++) {
        ask(&all[i], 20, 3 + i, 300);
        all[i].job.slide = true;
        submit(s, &all[i]);
        wait_for(i + 1);
    }
    ask(&all[2], 150, 9, 5);
    submit(s, &all[2]);
    wait_for(3);
    expect_as_alone("llama", &all[2]);
    stop(s);
    expect_no_page_held(engine);
    spry_engine_close(engine);
    free(all);
}

/* ---- many ------------------------------------------------------------------------------------------------------- */

typedef struct crowd {
    spry_engine *scheduler;
    client *clients;
    size_t count;
} crowd;

static void *submit_all(void *argument)
{
    const crowd *c = argument;
    for (size_t i = 0; i < c->count; i++)
        submit(c->scheduler, &c->clients[i]);
    return NULL;
}

static void test_two_hundred(void **state)
{
    (void)state;
    enum { THREADS = 4, EACH = 50 };
    spry_engine *engine = open_engine("llama", 8, 40);
    spry_jobs_options options = plain_options(8);
    options.policy = SPRY_POLICY_AUTO;
    spry_engine *s = start(engine, &options);
    client *all = clients_new(THREADS * EACH);
    pthread_t threads[THREADS];
    crowd crowds[THREADS];
    for (uint32_t i = 0; i < THREADS * EACH; i++) {
        ask(&all[i], 10 + i % 40, i, 6 + i % 7);
        all[i].job.client = i / EACH;
        all[i].job.request.sampling.temperature = i % 2 ? 1.0f : 0.0f;
        all[i].job.request.sampling.seed = i;
    }
    for (size_t t = 0; t < THREADS; t++) {
        crowds[t] = (crowd){s, all + t * EACH, EACH};
        assert_int_equal(pthread_create(&threads[t], NULL, submit_all, &crowds[t]), 0);
    }
    for (size_t t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    wait_for(THREADS * EACH);
    for (uint32_t i = 0; i < THREADS * EACH; i++)
        if (i % 10 == 0)
            expect_as_alone("llama", &all[i]);
    spry_jobs_figures f = figures_of(s);
    assert_int_equal(f.finished, THREADS * EACH);
    assert_int_equal(f.running + f.waiting, 0);
    stop(s);
    expect_no_page_held(engine);
    spry_engine_close(engine);
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_answers),
        cmocka_unit_test(test_drafter),
        cmocka_unit_test(test_drafts_in_a_full_pool),
        cmocka_unit_test(test_preemption),
        cmocka_unit_test(test_never_enough_pages),
        cmocka_unit_test(test_nothing_twice),
        cmocka_unit_test(test_salts),
        cmocka_unit_test(test_slid_conversation),
        cmocka_unit_test(test_idle_gives_pages),
        cmocka_unit_test(test_two_hundred),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
