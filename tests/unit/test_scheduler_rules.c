/* The rules of a scheduler: turns, limits, prompts beside answers, cancelling, jobs that are refused, memory
 * of an idle engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <time.h>

#include "support/hostile.h"
#include "support/job_clients.h"

static spry_engine *running_now;

/* ---- turns ------------------------------------------------------------------------------------------------------ */

static void test_turns(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 1, 0);
    spry_jobs_options options = plain_options(1);
    spry_engine *s = start(engine, &options);
    client *all = clients_new(9);
    static const uint64_t whose[] = {1, 1, 1, 1, 1, 2, 2, 3, 1};
    static const size_t expected[] = {0, 5, 7, 1, 6, 2, 3, 4, 8};
    pthread_t thread = close_gate(s);
    for (uint32_t i = 0; i < 9; i++) {
        ask(&all[i], 10, i, 3);
        all[i].job.client = whose[i];
        submit(s, &all[i]);
    }
    open_gate(thread);
    wait_for(9);
    for (size_t i = 0; i < 9; i++)
        assert_ptr_equal(order[i], &all[expected[i]]);
    stop(s);
    spry_engine_close(engine);
    free(all);
}

static void test_queue_limit(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 2, 0);
    spry_jobs_options options = plain_options(2);
    options.max_waiting = 3;
    spry_engine *s = start(engine, &options);
    client *all = clients_new(7);
    pthread_t thread = close_gate(s);
    spry_error error = {0};
    for (uint32_t i = 0; i < 7; i++) {
        ask(&all[i], 10, i, 3);
        spry_status status = try_submit(s, &all[i], &error);
        if (i < 5)
            assert_int_equal(status, SPRY_OK);
        else
            hostile_expect(status, &error, SPRY_ERR_BUSY, "5 requests wait");
    }
    spry_jobs_figures f = figures_of(s);
    assert_int_equal(f.waiting, 5);
    assert_int_equal(f.refused, 2);
    open_gate(thread);
    wait_for(5);
    stop(s);
    assert_int_equal(all[5].times_done + all[6].times_done, 0);
    spry_engine_close(engine);
    free(all);
}

/* ---- prompts beside answers ------------------------------------------------------------------------------------- */

static client *talker;
static size_t progress_at_token[TOKENS];
static client *reader;

static void note_progress(client *self)
{
    progress_at_token[self->n_ids] = reader->n_progress ? reader->progress[reader->n_progress - 1] : 0;
    if (self->n_ids == 5)
        submit(running_now, reader);
}

/* With no time to spare a prompt gets one row a step, and every step gives the answer its token. */
static void test_stall_in_rows(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 2, 0);
    spry_jobs_options options = plain_options(2);
    options.max_stall_ms = 0;
    running_now = start(engine, &options);
    client *all = clients_new(2);
    talker = &all[0];
    reader = &all[1];
    ask(talker, 10, 1, 120);
    talker->job.request.speculation = SPRY_DRAFT_NONE;
    talker->at_token = note_progress;
    ask(reader, 70, 2, 3);
    reader->job.request.on_prefill = hear_progress;
    submit(running_now, talker);
    wait_for(2);
    for (size_t i = 7; i <= 70; i++)
        assert_int_equal(progress_at_token[i] - progress_at_token[i - 1], 1);
    expect_as_alone("llama", talker);
    expect_as_alone("llama", reader);
    stop(running_now);
    spry_engine_close(engine);
    free(all);
}

/* Alone a prompt takes whole chunks. */
static void test_alone_whole_chunks(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 2, 0);
    spry_jobs_options options = plain_options(2);
    options.max_stall_ms = 0;
    spry_engine *s = start(engine, &options);
    client *all = clients_new(1);
    ask(&all[0], 200, 1, 1);
    all[0].job.request.on_prefill = hear_progress;
    submit(s, &all[0]);
    wait_for(1);
    assert_int_equal(all[0].n_progress, 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(all[0].progress[i], 64 * i);
    assert_int_equal(figures_of(s).steps, 4);
    stop(s);
    spry_engine_close(engine);
    free(all);
}

/* A short prompt does not wait for a long one. */
static void test_prompts_share(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 2, 0);
    spry_jobs_options options = plain_options(2);
    spry_engine *s = start(engine, &options);
    client *all = clients_new(2);
    ask(&all[0], 400, 1, 1);
    ask(&all[1], 60, 2, 1);
    all[0].job.request.on_prefill = hear_progress;
    pthread_t thread = close_gate(s);
    submit(s, &all[0]);
    submit(s, &all[1]);
    open_gate(thread);
    wait_for(2);
    assert_ptr_equal(order[0], &all[1]);
    static const size_t expected[] = {0, 32, 64, 128, 192};
    for (size_t i = 0; i < SPRY_COUNT(expected); i++)
        assert_int_equal(all[0].progress[i], expected[i]);
    stop(s);
    spry_engine_close(engine);
    free(all);
}

/* ---- cancelling ------------------------------------------------------------------------------------------------- */

static void cancel_self(client *self)
{
    if (self->n_ids == 4)
        spry_job_cancel(self->job.handle);
}

static void cancel_reading(client *self, size_t done)
{
    if (done)
        spry_job_cancel(self->job.handle);
}

static void test_cancel_at_every_stage(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 2, 0);
    spry_jobs_options options = plain_options(1);
    spry_engine *s = running_now = start(engine, &options);
    client *all = clients_new(5);
    for (uint32_t i = 0; i < 5; i++) {
        ask(&all[i], 150, i, 100);
        all[i].job.request.speculation = SPRY_DRAFT_NONE;
        all[i].job.request.on_prefill = hear_progress;
    }
    all[0].at_token = cancel_self;
    all[1].at_progress = cancel_reading;
    all[3].stop_at = 6;
    all[4].job.request.max_tokens = 5;
    pthread_t thread = close_gate(s);
    for (uint32_t i = 0; i < 5; i++)
        submit(s, &all[i]);
    spry_job_cancel(all[2].job.handle); /* while it waits */
    open_gate(thread);
    wait_for(5);
    static const size_t tokens[] = {4, 0, 0, 6, 5};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(all[i].job.status, SPRY_OK);
        assert_int_equal(all[i].job.result.finish, i < 4 ? SPRY_FINISH_CANCELLED : SPRY_FINISH_LENGTH);
        assert_int_equal(all[i].n_ids, tokens[i]);
        assert_int_equal(all[i].times_done, 1);
    }
    assert_true(order[0] == &all[2]);       /* at once */
    assert_int_equal(all[1].n_progress, 2); /* not a step more */
    spry_jobs_figures f = figures_of(s);
    assert_int_equal(f.cancelled, 4);
    assert_int_equal(f.finished, 1);
    spry_job_cancel(all[0].job.handle); /* too late: nothing happens */
    expect_as_alone("llama", &all[4]);
    stop(s);
    expect_no_page_held(engine);
    spry_engine_close(engine);
    free(all);
}

static void cancel_waiting(client *self)
{
    if (self->n_ids == 3)
        spry_job_cancel(reader->job.handle);
}

/* A waiting job ends at once, not when its turn comes. */
static void test_cancel_waiting(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 1, 0);
    spry_jobs_options options = plain_options(1);
    spry_engine *s = running_now = start(engine, &options);
    client *all = clients_new(3);
    for (uint32_t i = 0; i < 3; i++)
        ask(&all[i], 20, i, 50);
    all[0].at_token = cancel_waiting;
    reader = &all[2];
    pthread_t thread = close_gate(s);
    for (uint32_t i = 0; i < 3; i++)
        submit(s, &all[i]);
    open_gate(thread);
    wait_for(3);
    assert_ptr_equal(order[0], reader);
    assert_int_equal(reader->job.result.finish, SPRY_FINISH_CANCELLED);
    expect_as_alone("llama", &all[0]);
    expect_as_alone("llama", &all[1]);
    stop(s);
    spry_engine_close(engine);
    free(all);
}

/* From another thread, at whatever moment. */
static void test_cancel_from_outside(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 4, 18);
    spry_jobs_options options = plain_options(4);
    spry_engine *s = start(engine, &options);
    client *all = clients_new(40);
    for (uint32_t i = 0; i < 40; i++)
        ask(&all[i], 20 + i, i, 150);
    for (uint32_t i = 0; i < 40; i++) {
        submit(s, &all[i]);
        if (i % 2)
            spry_job_cancel(all[i / 2].job.handle);
    }
    for (uint32_t i = 20; i < 40; i++)
        spry_job_cancel(all[i].job.handle);
    wait_for(40);
    for (uint32_t i = 0; i < 40; i++) {
        assert_int_equal(all[i].times_done, 1);
        assert_int_equal(all[i].job.status, SPRY_OK);
    }
    stop(s);
    expect_no_page_held(engine);
    spry_engine_close(engine);
    free(all);
}

static void test_destroy_while_busy(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 4; round++) {
        spry_engine *engine = open_engine("llama", 4, round == 3 ? 18 : 0);
        spry_jobs_options options = plain_options(4);
        spry_engine *s = start(engine, &options);
        client *all = clients_new(20);
        for (uint32_t i = 0; i < 20; i++) {
            ask(&all[i], 30 + 5 * i, i, 400);
            submit(s, &all[i]);
        }
        if (round > 1)
            wait_for(1);
        stop(s);
        for (uint32_t i = 0; i < 20; i++)
            assert_int_equal(all[i].times_done, 1);
        expect_no_page_held(engine);
        spry_engine_close(engine);
        free(all);
    }
}

/* ---- bad jobs --------------------------------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 2, 0);
    spry_jobs_options options = plain_options(2);
    spry_engine *s = start(engine, &options);
    client *all = clients_new(8);
    spry_error error = {0};
    for (uint32_t i = 0; i < 8; i++)
        ask(&all[i], 20, i, 5);
    all[0].job.request.n_prompt = 0;
    all[1].prompt[7] = FIXTURE_VOCAB;
    all[2].job.request.sampling.top_p = 7;
    all[3].job.request.constraint = SPRY_REGEX;
    all[3].job.request.constraint_text = "(";
    all[4].job.request.speculation = SPRY_DRAFT_MODEL;
    all[5].job.request.n_prompt = PROMPT + 100;
    static const char *const words[] = {"empty prompt", "token id 512", "top", "", "no drafter", "holds 512"};
    for (uint32_t i = 0; i < 6; i++) {
        spry_status status = try_submit(s, &all[i], &error);
        hostile_expect(status, &error, i == 5 ? SPRY_ERR_CONTEXT : SPRY_ERR_INPUT, words[i]);
        assert_null(all[i].job.handle);
    }
    all[6].spans[0] = (spry_span){5, 4}; /* found when it begins */
    all[6].job.request.spans = all[6].spans;
    all[6].job.request.n_spans = 1;
    submit(s, &all[6]);
    submit(s, &all[7]);
    wait_for(2);
    hostile_expect(all[6].job.status, &all[6].job.error, SPRY_ERR_INPUT, "fragment 1");
    expect_as_alone("llama", &all[7]);
    assert_int_equal(figures_of(s).failed, 1);
    hostile_expect(spry_engine_set_jobs(engine, &options, &error), &error, SPRY_ERR_BUSY, "has jobs");
    stop(s);
    options.max_running = 3;
    hostile_expect(spry_engine_set_jobs(engine, &options, &error), &error, SPRY_ERR_INPUT, "max-running is 3");
    options.max_running = 1;
    options.max_stall_ms = -1;
    hostile_expect(spry_engine_set_jobs(engine, &options, &error), &error, SPRY_ERR_INPUT, "max-stall");
    spry_engine_close(engine);
    free(all);
}

static void submit_and_spoil(client *self)
{
    if (self->n_ids != 5)
        return;
    submit(running_now, reader);
    ((int32_t *)reader->job.handle->ids)[3] = -1; /* what submit had checked */
}

/* A step that is refused for one job is refused for that job only. */
static void test_one_bad_job(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 4, 0);
    spry_jobs_options options = plain_options(4);
    spry_engine *s = running_now = start(engine, &options);
    client *all = clients_new(4);
    for (uint32_t i = 0; i < 4; i++)
        ask(&all[i], 20, i, 50);
    reader = &all[3];
    all[1].at_token = submit_and_spoil;
    pthread_t thread = close_gate(s);
    for (uint32_t i = 0; i < 3; i++)
        submit(s, &all[i]);
    open_gate(thread);
    wait_for(4);
    hostile_expect(all[3].job.status, &all[3].job.error, SPRY_ERR_INPUT, "token id -1");
    for (uint32_t i = 0; i < 3; i++)
        expect_as_alone("llama", &all[i]);
    stop(s);
    expect_no_page_held(engine);
    spry_engine_close(engine);
    free(all);
}

/* Nothing to do costs nothing: the thread of an idle scheduler does not run. */
static void test_idle(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 1, 0);
    spry_jobs_options options = plain_options(1);
    spry_engine *s = start(engine, &options);
    client *all = clients_new(1);
    ask(&all[0], 10, 1, 3);
    submit(s, &all[0]);
    wait_for(1);
    const struct timespec pause = {.tv_nsec = 200000000};
    clock_t before = clock();
    nanosleep(&pause, NULL);
    assert_true(clock() - before < CLOCKS_PER_SEC / 50);
    stop(s);
    spry_engine_close(engine);
    free(all);
}

/* ---- priorities ------------------------------------------------------------------------------------------------- */

static client *urgent;

static void submit_urgent(client *self)
{
    if (self->n_ids == 10)
        submit(running_now, urgent);
}

/* A job that is not a batch job takes the place of one at once, although all places are taken and others wait; batch
 * jobs go on afterwards and give what they give alone. */
static void test_batch_gives_way(void **state)
{
    (void)state;
    for (size_t short_of_pages = 0; short_of_pages < 2; short_of_pages++) {
        spry_engine *engine = open_engine_of("llama", 2, short_of_pages ? 8 : 0, 160);
        spry_jobs_options options = plain_options(2);
        spry_engine *s = running_now = start(engine, &options);
        client *all = clients_new(6);
        for (uint32_t i = 0; i < 6; i++) {
            ask(&all[i], 60, i, i < 5 ? 80 : 20);
            all[i].job.batch = i < 5;
            all[i].job.client = i;
        }
        urgent = &all[5];
        all[0].at_token = submit_urgent;
        pthread_t thread = close_gate(s);
        for (uint32_t i = 0; i < 5; i++)
            submit(s, &all[i]);
        open_gate(thread);
        wait_for(6);
        assert_ptr_equal(order[0], urgent);
        assert_true(figures_of(s).preempted > 0);
        for (uint32_t i = 0; i < 6; i++)
            expect_as_alone("llama", &all[i]);
        stop(s);
        expect_no_page_held(engine);
        spry_engine_close(engine);
        free(all);
    }
}

static size_t tokens_of_others;
static client *watched;

static void count_others(client *self)
{
    if (self->n_ids == 5)
        tokens_of_others = watched->n_ids;
    if (self->n_ids == 35)
        tokens_of_others = watched->n_ids - tokens_of_others;
}

/* Beside an answer that is not a batch job, one that is takes no more rows than prompts may; it still goes on. Without
 * it, it takes a row in every step. */
static void test_batch_beside_others(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 8, 0);
    spry_jobs_options options = plain_options(8);
    options.max_stall_ms = 0; /* one row beside answers */
    spry_engine *s = start(engine, &options);
    client *all = clients_new(8);
    for (uint32_t i = 0; i < 8; i++) {
        ask(&all[i], 4, i, 60);
        all[i].job.batch = i > 0;
    }
    watched = &all[3];
    all[0].at_token = count_others;
    pthread_t thread = close_gate(s);
    for (uint32_t i = 0; i < 8; i++)
        submit(s, &all[i]);
    open_gate(thread);
    wait_for(8);
    assert_ptr_equal(order[0], &all[0]);
    assert_true(tokens_of_others >= 1 && tokens_of_others <= 8); /* about one step in seven, of 30 */
    for (uint32_t i = 0; i < 8; i++)
        expect_as_alone("llama", &all[i]);
    stop(s);
    spry_engine_close(engine);
    free(all);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static size_t held_pages(spry_engine *engine, size_t *cached)
{
    spry_kv_figures f;
    spry_engine_kv_figures(engine, &f);
    *cached = f.cached_pages;
    return f.held_pages;
}

/* Without work for the set time, all but a share of the pages return to the system; the same question then gets the
 * same answer. */
static void idle_memory_returns(void **state)
{
    (void)state;
    const size_t pages = 40;
    spry_jobs_options options = plain_options(2);
    spry_engine *engine = start(open_engine("llama", 2, pages), &options);
    engine->kv_idle = 1;
    engine->kv_idle_share = 10;
    client *all = clients_new(2);
    size_t cached, taken;
    for (size_t i = 0; i < 2; i++) {
        ask(&all[i], 200, 7, 40);
        submit(engine, &all[i]);
        wait_for(i + 1);
        if (i == 0) {
            taken = held_pages(engine, &cached);
            assert_true(taken > pages / 10 && cached > pages / 10);
            while (held_pages(engine, &cached) == taken) /* asking wakes the engine's thread, which must not defer it */
                sched_yield();
            assert_int_equal(cached, pages / 10);
            assert_int_equal(held_pages(engine, &cached), pages / 10);
        }
    }
    assert_int_equal(all[0].n_ids, all[1].n_ids);
    assert_memory_equal(all[0].ids, all[1].ids, all[0].n_ids * sizeof *all[0].ids);
    stop(engine);
    free(all);
    spry_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_queue_limit),
        cmocka_unit_test(test_stall_in_rows),
        cmocka_unit_test(test_alone_whole_chunks),
        cmocka_unit_test(test_prompts_share),
        cmocka_unit_test(test_cancel_at_every_stage),
        cmocka_unit_test(test_cancel_waiting),
        cmocka_unit_test(test_cancel_from_outside),
        cmocka_unit_test(test_destroy_while_busy),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_one_bad_job),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_batch_gives_way),
        cmocka_unit_test(test_batch_beside_others),
        cmocka_unit_test(idle_memory_returns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
