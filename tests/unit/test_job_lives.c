/* Jobs, sessions and engines that are freed, destroyed, closed and set in any order, also in callbacks and while they
 * are in use: everything is defined. Runs under the sanitizers, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/job_scene.h"

/* ---- freed in callbacks --------------------------------------------------------------------------------------------
 */

static atomic_int n_calls;
static spry_job *_Atomic to_free;

static bool free_on_text(void *user, const char *text, size_t size)
{
    (void)user, (void)text, (void)size;
    if (atomic_fetch_add(&n_calls, 1) == 2)
        spry_job_free(atomic_exchange(&to_free, NULL));
    return true;
}

static void free_done(void *user, spry_job *job)
{
    assert_true(spry_job_done(job));
    spry_job_free(job);
    atomic_fetch_add((atomic_int *)user, 1);
}

static void wait_until(atomic_int *value, int at_least)
{
    while (atomic_load(value) < at_least)
        sched_yield();
}

static void freed_in_its_callbacks(void **state)
{
    (void)state;
    atomic_int done = 0;
    spry_engine *engine = open_jobs(4, 4);
    /* its own on_text: no further callback, no on_done */
    atomic_store(&n_calls, 0);
    spry_job *job = make_answer(engine, NULL, count_done, &done, free_on_text);
    atomic_store(&to_free, job);
    assert_int_equal(spry_job_submit(job, NULL), SPRY_OK);
    wait_until(&n_calls, 3);
    wait_idle(engine);
    assert_int_equal(atomic_load(&n_calls), 3);
    assert_int_equal(atomic_load(&done), 0);
    assert_int_equal(figures_of(engine).cancelled, 1);
    /* its own on_done */
    for (int i = 0; i < 8; i++)
        assert_int_equal(spry_job_submit(make_answer(engine, NULL, free_done, &done, NULL), NULL), SPRY_OK);
    wait_until(&done, 8);
    /* a callback of another one */
    atomic_store(&n_calls, 0);
    spry_job *other = make_answer(engine, NULL, count_done, &done, NULL);
    job = make_answer(engine, NULL, NULL, NULL, free_on_text);
    atomic_store(&to_free, other);
    assert_int_equal(spry_job_submit(other, NULL), SPRY_OK);
    assert_int_equal(spry_job_submit(job, NULL), SPRY_OK);
    expect_done(job);
    spry_job_free(job);
    wait_idle(engine);
    assert_int_equal(atomic_load(&done), 8);
    /* never submitted; from this thread, while it runs */
    spry_job_free(make_answer(engine, NULL, count_done, &done, NULL));
    job = make_answer(engine, NULL, count_done, &done, NULL);
    assert_int_equal(spry_job_submit(job, NULL), SPRY_OK);
    spry_job_free(job);
    spry_job_free(NULL);
    assert_int_equal(atomic_load(&done), 8);
    close_engine(engine);
}

static bool stop_row(void *user, size_t index, const float *logits)
{
    (void)logits;
    if (index == 20)
        spry_job_free(*(spry_job **)user);
    assert_true(index <= 20);
    return true;
}

static void evaluation_freed_in_its_callback(void **state)
{
    (void)state;
    spry_engine *engine = open_jobs(1, 1);
    spry_job *job;
    int32_t ids[100];
    spry_evaluation evaluation;
    fixture_ids(ids, 100, 8);
    spry_evaluation_default(&evaluation);
    evaluation.ids = ids;
    evaluation.count = 100;
    evaluation.on_row = stop_row;
    evaluation.user = &job;
    assert_int_equal(spry_job_create_evaluation(&job, engine, &evaluation, NULL, NULL), SPRY_OK);
    assert_int_equal(spry_job_submit(job, NULL), SPRY_OK);
    while (!figures_of(engine).cancelled)
        sched_yield();
    close_engine(engine);
}

/* ---- sessions with jobs, engines with sessions ---------------------------------------------------------------------
 */

static void session_destroyed_with_its_job(void **state)
{
    (void)state;
    atomic_int done = 0;
    spry_engine *engine = open_engine("llama", 3, 0);
    spry_session *session = fixture_session(engine);
    spry_job *job = make_answer(engine, session, count_done, &done, NULL);
    spry_job *second = make_answer(engine, session, count_done, &done, NULL);
    spry_error error = {0};
    spry_result result;
    assert_int_equal(spry_job_submit(job, NULL), SPRY_OK);
    hostile_expect(spry_job_submit(second, &error), &error, SPRY_ERR_BUSY, "in use");
    hostile_expect(spry_job_submit(job, &error), &error, SPRY_ERR_INPUT, "once");
    float vector[WIDTH];
    const int32_t id = 3;
    hostile_expect(spry_session_embed(session, vector, &id, 1, &error), &error, SPRY_ERR_BUSY, "in use");
    spry_session_destroy(session);
    assert_int_equal(atomic_load(&done), 1);
    assert_int_equal(spry_job_result(job, &result, NULL), SPRY_OK);
    assert_int_equal(result.finish, SPRY_FINISH_CANCELLED);
    spry_job_free(job);
    spry_job_free(second);
    close_engine(engine);
}

static spry_session *_Atomic to_destroy;

static bool destroy_on_text(void *user, const char *text, size_t size)
{
    (void)user, (void)text, (void)size;
    spry_session *session = atomic_exchange(&to_destroy, NULL);
    if (session)
        spry_session_destroy(session);
    return true;
}

/* In a callback of its own job, and of its own call. */
static void session_destroyed_in_its_callback(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 2, 0);
    spry_session *session = fixture_session(engine);
    spry_result result;
    spry_request request;
    int32_t ids[30];
    fixture_ids(ids, 30, 2);
    spry_request_default(&request);
    request.prompt = ids;
    request.n_prompt = 30;
    request.ignore_end = true;
    request.on_text = destroy_on_text;
    atomic_store(&to_destroy, session);
    assert_int_equal(spry_session_generate(session, &result, &request, NULL), SPRY_OK);
    assert_int_equal(result.finish, SPRY_FINISH_CANCELLED);
    session = fixture_session(engine);
    spry_job *job = make_answer(engine, session, NULL, NULL, destroy_on_text);
    atomic_store(&to_destroy, session);
    assert_int_equal(spry_job_submit(job, NULL), SPRY_OK);
    expect_done(job);
    assert_int_equal(spry_job_result(job, &result, NULL), SPRY_OK);
    assert_int_equal(result.finish, SPRY_FINISH_CANCELLED);
    spry_job_free(job);
    while (spry_engine_close(engine) == SPRY_ERR_BUSY) /* the session goes after the job is over */
        sched_yield();
}

typedef struct call {
    spry_session *session;
    spry_status status;
    spry_result result;
} call;

static void *generate_thread(void *argument)
{
    call *t = argument;
    spry_request request;
    int32_t ids[50];
    fixture_ids(ids, 50, 6);
    spry_request_default(&request);
    request.prompt = ids;
    request.n_prompt = 50;
    request.ignore_end = true;
    t->status = spry_session_generate(t->session, &t->result, &request, NULL);
    return NULL;
}

/* A call in another thread ends as cancelled. */
static void session_destroyed_during_a_call(void **state)
{
    (void)state;
    for (int with_thread = 0; with_thread < 2; with_thread++) {
        spry_engine *engine = open_engine("llama", 3, 0);
        call t = {.session = fixture_session(engine)};
        pthread_t thread;
        if (with_thread) {
            spry_job *job = make_answer(engine, NULL, NULL, NULL, NULL);
            assert_int_equal(spry_job_submit(job, NULL), SPRY_OK);
            spry_job_free(job);
        }
        assert_int_equal(pthread_create(&thread, NULL, generate_thread, &t), 0);
        bool runs = false;
        while (!runs) {
            pthread_mutex_lock(&engine->driver->lock);
            runs = t.session->in_use && engine->driver->figures.steps > 4;
            pthread_mutex_unlock(&engine->driver->lock);
        }
        spry_session_destroy(t.session);
        pthread_join(thread, NULL);
        assert_int_equal(t.status, SPRY_OK);
        assert_int_equal(t.result.finish, SPRY_FINISH_CANCELLED);
        close_engine(engine);
    }
}

static spry_engine *closing;
static spry_job *waiting_for;
static spry_session *free_session;

static bool misuse_on_text(void *user, const char *text, size_t size)
{
    spry_error error = {0};
    const int32_t id = 1;
    const float *logits;
    (void)user, (void)text, (void)size;
    if (atomic_fetch_add(&n_calls, 1))
        return true;
    assert_int_equal(spry_engine_close(closing), SPRY_ERR_BUSY);
    hostile_expect(spry_job_wait(waiting_for, -1, &error), &error, SPRY_ERR_BUSY, "callback");
    hostile_expect(spry_session_eval(free_session, &logits, &id, 1, &error), &error, SPRY_ERR_BUSY, "callback");
    return true;
}

static void engine_closed_too_early(void **state)
{
    (void)state;
    spry_engine *engine = closing = open_engine("llama", 2, 0);
    spry_session *session = free_session = fixture_session(engine);
    assert_int_equal(spry_engine_close(engine), SPRY_ERR_BUSY);
    atomic_store(&n_calls, 0);
    spry_job *job = waiting_for = make_answer(engine, NULL, NULL, NULL, misuse_on_text);
    spry_error error = {0};
    hostile_expect(spry_job_result(job, NULL, &error), &error, SPRY_ERR_BUSY, "not over");
    hostile_expect(spry_job_wait(job, 5, &error), &error, SPRY_ERR_BUSY, "not submitted");
    assert_int_equal(spry_job_submit(job, NULL), SPRY_OK);
    expect_done(job);
    spry_session_destroy(session);
    assert_int_equal(spry_engine_close(engine), SPRY_ERR_BUSY); /* the job */
    spry_job_cancel(job);
    spry_job_cancel(job);
    assert_int_equal(spry_job_result(job, NULL, NULL), SPRY_OK);
    spry_job_free(job);
    /* cancelled before it is submitted, and freed while it runs */
    job = make_answer(engine, NULL, NULL, NULL, NULL);
    spry_job_cancel(job);
    assert_int_equal(spry_job_submit(job, NULL), SPRY_OK);
    spry_result result;
    expect_done(job);
    spry_job_result(job, &result, NULL);
    assert_int_equal(result.finish, SPRY_FINISH_CANCELLED);
    spry_job_free(job);
    job = make_answer(engine, NULL, NULL, NULL, NULL);
    assert_int_equal(spry_job_submit(job, NULL), SPRY_OK);
    spry_job_free(job);
    close_engine(engine);
    close_engine(NULL);
}

/* ---- settings of a session that is in use --------------------------------------------------------------------------
 */

static void expect_settings(spry_session *session, spry_status status)
{
    size_t count = 7;
    assert_int_equal(spry_session_set_slide(session, true, 32), status);
    assert_int_equal(spry_session_pin(session, &count, true), status);
    assert_true(status == SPRY_OK || count == 0);
    count = 7;
    assert_int_equal(spry_session_tokens(session, &count) != NULL, status == SPRY_OK && count);
    assert_true(status == SPRY_OK || count == 0);
    assert_int_equal(spry_session_pin(session, &count, false), status);
    assert_int_equal(spry_session_set_slide(session, false, 0), status);
    assert_int_equal(spry_session_set_salt(session, "x", 1), status);
}

static spry_session *own_session, *other_session;

static bool set_on_text(void *user, const char *text, size_t size)
{
    (void)user, (void)text, (void)size;
    if (!atomic_fetch_add(&n_calls, 1)) {
        expect_settings(own_session, SPRY_ERR_BUSY);
        expect_settings(other_session, SPRY_OK);
    }
    return true;
}

static void session_set_while_in_use(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 3, 0);
    spry_session *session = own_session = fixture_session(engine);
    spry_result result;
    size_t count;
    other_session = fixture_session(engine);
    atomic_store(&n_calls, 0);
    spry_job *job = make_answer(engine, session, NULL, NULL, set_on_text);
    spry_driver_enter(engine->driver); /* the job waits, and has its session */
    assert_int_equal(spry_job_submit(job, NULL), SPRY_OK);
    expect_settings(session, SPRY_ERR_BUSY);
    spry_driver_leave(engine->driver);
    expect_done(job);
    assert_true(atomic_load(&n_calls) > 0);
    assert_int_equal(spry_job_result(job, &result, NULL), SPRY_OK);
    assert_non_null(spry_session_tokens(session, &count));                       /* nothing was set meanwhile */
    assert_int_equal(count + 1, result.prompt_tokens + result.generated_tokens); /* the last one is not computed */
    expect_settings(session, SPRY_OK);
    spry_session_tokens(session, &count);
    assert_int_equal(count, 0); /* the salt empties it */
    spry_job_free(job);
    spry_session_destroy(session);
    spry_session_destroy(other_session);
    close_engine(engine);
}

/* A job takes the salt and the window that its session has when it is submitted. */
static void session_set_before_submit(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 2, 0);
    spry_session *session = fixture_session(engine);
    for (int i = 0; i < 2; i++) {
        spry_result result;
        spry_job *job = make_answer(engine, session, NULL, NULL, NULL);
        assert_int_equal(spry_session_set_salt(session, i ? "b" : "a", 1), SPRY_OK);
        assert_int_equal(spry_job_submit(job, NULL), SPRY_OK);
        assert_true(spry_kv_key_equal(job->root, spry_kv_key_root(engine->fingerprint, i ? "b" : "a", 1)));
        expect_done(job);
        assert_int_equal(spry_job_result(job, &result, NULL), SPRY_OK);
        assert_int_equal(result.reused_tokens, 0);
        spry_job_free(job);
    }
    spry_session_destroy(session);
    close_engine(engine);
}

/* Settings and computing calls of one session from several threads: each takes place whole or is refused. */
static void *set_thread(void *argument)
{
    spry_session *session = argument;
    int32_t ids[64];
    fixture_ids(ids, 64, 8);
    for (int i = 0; i < 200; i++) {
        const float *logits;
        size_t count;
        spry_status statuses[] = {spry_session_set_slide(session, i % 2, 0), spry_session_set_salt(session, &i, 1),
                                  spry_session_pin(session, &count, i % 2 == 0), SPRY_OK};
        if (i % 16 == 0)
            statuses[3] = spry_session_eval(session, &logits, ids, 64, NULL);
        spry_session_tokens(session, &count);
        for (size_t k = 0; k < SPRY_COUNT(statuses); k++)
            assert_true(statuses[k] == SPRY_OK || statuses[k] == SPRY_ERR_BUSY);
    }
    return NULL;
}

static void session_set_from_threads(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 2, 0);
    spry_session *session = fixture_session(engine);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, set_thread, session), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    expect_settings(session, SPRY_OK);
    spry_session_destroy(session);
    close_engine(engine);
}

/* ---- bad input -----------------------------------------------------------------------------------------------------
 */

static void structs_of_other_sizes(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 2, 0), *other = open_engine("llama", 1, 0);
    spry_error error = {0};
    struct {
        spry_jobs_options options;
        uint64_t later;
    } newer;
    spry_jobs_options_default(&newer.options);
    newer.options.size = sizeof newer;
    newer.later = 1;
    hostile_expect(spry_engine_set_jobs(engine, &newer.options, &error), &error, SPRY_ERR_INPUT, "spry_jobs_options");
    newer.later = 0;
    must(spry_engine_set_jobs(engine, &newer.options, &error), &error);
    newer.options.size = offsetof(spry_jobs_options, max_waiting); /* older: all but max_running is the default */
    newer.options.max_running = 1;
    newer.options.max_stall_ms = -5;
    must(spry_engine_set_jobs(engine, &newer.options, &error), &error);
    assert_int_equal(engine->driver->options.max_waiting, 256);
    spry_job *job;
    int32_t ids[4] = {1, 2, 3, FIXTURE_VOCAB};
    spry_job_options options = {.size = 3};
    hostile_expect(spry_job_create_embedding(&job, engine, ids, 3, &options, &error), &error, SPRY_ERR_INPUT, "size");
    assert_null(job);
    spry_job_options_default(&options);
    hostile_expect(spry_job_create_embedding(&job, engine, ids, 4, &options, &error), &error, SPRY_ERR_INPUT, "id 512");
    hostile_expect(spry_job_create_embedding(&job, engine, ids, 0, NULL, &error), &error, SPRY_ERR_INPUT, "empty");
    options.session = fixture_session(other);
    hostile_expect(spry_job_create_embedding(&job, engine, ids, 3, &options, &error), &error, SPRY_ERR_INPUT,
                   "another");
    spry_session_destroy(options.session);
    spry_evaluation evaluation;
    spry_evaluation_default(&evaluation);
    evaluation.ids = ids;
    evaluation.count = 3;
    evaluation.first = 3;
    evaluation.on_row = stop_row;
    hostile_expect(spry_job_create_evaluation(&job, engine, &evaluation, NULL, &error), &error, SPRY_ERR_INPUT, "rows");
    evaluation.first = 0;
    evaluation.n_logprobs = 21;
    hostile_expect(spry_job_create_evaluation(&job, engine, &evaluation, NULL, &error), &error, SPRY_ERR_INPUT, "21");
    assert_null(job);
    close_engine(engine);
    close_engine(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(freed_in_its_callbacks),          cmocka_unit_test(evaluation_freed_in_its_callback),
        cmocka_unit_test(session_destroyed_with_its_job),  cmocka_unit_test(session_destroyed_in_its_callback),
        cmocka_unit_test(session_destroyed_during_a_call), cmocka_unit_test(session_set_while_in_use),
        cmocka_unit_test(session_set_before_submit),       cmocka_unit_test(session_set_from_threads),
        cmocka_unit_test(engine_closed_too_early),         cmocka_unit_test(structs_of_other_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
