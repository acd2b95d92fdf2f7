/* Jobs as programs use them: every kind beside every other gives what it gives alone; rows are shared fairly. Runs
 * under the sanitizers, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/job_scene.h"

enum { LONG = 400, ECHOES = 2, EMBEDDINGS = 4 };

/* ---- kinds ---------------------------------------------------------------------------------------------------------
 */

typedef struct echo {
    spry_job *job;
    int32_t ids[LONG];
    size_t count, rows;
    double logprobs[LONG];
    uint64_t hash; /* of all logits */
} echo;

static bool on_row(void *user, size_t index, const float *logits)
{
    echo *e = user;
    assert_int_equal(index, e->rows++);
    for (size_t i = 0; i < FIXTURE_VOCAB; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        e->hash = (e->hash ^ bits) * 1099511628211u;
    }
    return true;
}

static bool on_logprob(void *user, size_t index, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    echo *e = user;
    assert_int_equal(token.id, e->ids[index]);
    assert_int_equal(n_top, 3);
    assert_true(top[0].logprob >= top[1].logprob && top[0].logprob >= token.logprob);
    e->logprobs[index] = token.logprob;
    return true;
}

static void make_echo(echo *e, spry_engine *engine, size_t count, uint32_t seed)
{
    spry_error error = {0};
    spry_evaluation evaluation;
    *e = (echo){.count = count};
    fixture_ids(e->ids, count, seed);
    spry_evaluation_default(&evaluation);
    evaluation.ids = e->ids;
    evaluation.count = count;
    evaluation.n_logprobs = 3;
    evaluation.on_row = on_row;
    evaluation.on_token = on_logprob;
    evaluation.user = e;
    must(spry_job_create_evaluation(&e->job, engine, &evaluation, NULL, &error), &error);
}

/* Answers, evaluations and embeddings in the same steps, also where pages run short. */
static void kinds_beside_each_other(void **state)
{
    (void)state;
    for (size_t pages = 0; pages <= 24; pages += 24) {
        spry_engine *engine = open_engine("llama", 9, pages), *other = open_engine("llama", 1, 0);
        spry_jobs_options options = plain_options(8);
        start(engine, &options);
        client *chats = clients_new(2);
        echo *echoes = calloc(ECHOES + 1, sizeof *echoes);
        int32_t texts[EMBEDDINGS][LONG];
        spry_job *embeddings[EMBEDDINGS];
        for (uint32_t i = 0; i < 2; i++) {
            ask(&chats[i], 30 + 20 * i, 50 + i, 60);
            submit(engine, &chats[i]);
        }
        for (uint32_t i = 0; i < ECHOES; i++) {
            make_echo(&echoes[i], engine, 150 + 60 * i, 20 + i);
            assert_int_equal(spry_job_submit(echoes[i].job, NULL), SPRY_OK);
        }
        for (uint32_t i = 0; i < EMBEDDINGS; i++) {
            fixture_ids(texts[i], LONG, 30 + i);
            embeddings[i] = make_embedding(engine, texts[i], 60 + 30 * i);
            assert_int_equal(spry_job_submit(embeddings[i], NULL), SPRY_OK);
        }
        wait_for(2);
        spry_session *session = fixture_session(other);
        for (uint32_t i = 0; i < EMBEDDINGS; i++) {
            float alone[WIDTH];
            expect_done(embeddings[i]);
            assert_int_equal(spry_session_embed(session, alone, texts[i], 60 + 30 * i, NULL), SPRY_OK);
            assert_memory_equal(alone, spry_job_embedding(embeddings[i]), sizeof alone);
            spry_job_free(embeddings[i]);
        }
        for (uint32_t i = 0; i < ECHOES; i++) {
            echo *alone = &echoes[ECHOES], *e = &echoes[i];
            expect_done(e->job);
            *alone = (echo){.count = e->count};
            assert_int_equal(spry_session_eval_rows(session, e->ids, e->count, on_row, alone, NULL), SPRY_OK);
            assert_int_equal(e->rows, e->count);
            assert_true(e->hash == alone->hash && e->logprobs[1] < 0 && e->logprobs[e->count - 1] < 0);
            assert_null(spry_job_embedding(e->job));
            spry_job_free(e->job);
        }
        for (uint32_t i = 0; i < 2; i++)
            expect_as_alone("llama", &chats[i]);
        spry_session_destroy(session);
        stop(engine);
        expect_no_page_held(engine);
        close_engine(engine);
        close_engine(other);
        free(chats);
        free(echoes);
    }
}

/* An evaluation without callbacks leaves its ids cached for answers. */
static void evaluation_warms_the_cache(void **state)
{
    (void)state;
    spry_engine *engine = open_jobs(2, 2);
    client *c = clients_new(1);
    spry_job *job;
    spry_error error = {0};
    spry_evaluation evaluation;
    ask(c, 200, 5, 4);
    spry_evaluation_default(&evaluation);
    evaluation.ids = c->prompt;
    evaluation.count = 200;
    must(spry_job_create_evaluation(&job, engine, &evaluation, NULL, &error), &error);
    assert_int_equal(spry_job_submit(job, NULL), SPRY_OK);
    expect_done(job);
    spry_job_free(job);
    submit(engine, c);
    wait_for(1);
    assert_true(c->job.result.reused_tokens >= 192);
    stop(engine);
    close_engine(engine);
    free(c);
}

/* ---- fairness ------------------------------------------------------------------------------------------------------
 */

/* A chat beside 4 embeddings and 2 evaluations that never end. Steps are made by hand, and no clock decides: with
 * max_stall 0 a step takes one row of the others. The chat gets a token in every step, and the others the same number
 * of rows, to within one. */
static void rows_are_shared_fairly(void **state)
{
    (void)state;
    enum { OTHERS = EMBEDDINGS + ECHOES, STEPS = 300 };
    spry_engine *engine = open_engine("llama", 7, 0);
    spry_jobs_options options = plain_options(7);
    options.max_stall_ms = 0;
    start(engine, &options);
    client *chat = clients_new(1);
    echo *echoes = calloc(ECHOES, sizeof *echoes);
    int32_t ids[LONG];
    spry_job *others[OTHERS];
    size_t rows[OTHERS] = {0}, least = SIZE_MAX, most = 0;
    fixture_ids(ids, LONG, 3);
    ask(chat, 10, 1, 400);
    chat->job.request.speculation = SPRY_DRAFT_NONE;
    spry_driver_enter(engine->driver); /* the engine's thread waits */
    submit(engine, chat);
    while (!chat->n_ids)
        spry_driver_round(engine->driver);
    for (uint32_t i = 0; i < OTHERS; i++) {
        if (i < EMBEDDINGS)
            others[i] = make_embedding(engine, ids, LONG - i);
        else
            make_echo(&echoes[i - EMBEDDINGS], engine, LONG - i, i), others[i] = echoes[i - EMBEDDINGS].job;
        assert_int_equal(spry_job_submit(others[i], NULL), SPRY_OK);
    }
    for (size_t step = 0, before = chat->n_ids; step < STEPS; step++, before++) {
        spry_driver_round(engine->driver);
        assert_int_equal(chat->n_ids, before + 1); /* nothing comes between two steps of the chat */
        assert_int_equal(engine->driver->step.n_rows, 2);
        for (size_t i = 0; i < OTHERS; i++)
            rows[i] += others[i]->rows.n_rows;
    }
    for (size_t i = 0; i < OTHERS; i++) {
        least = rows[i] < least ? rows[i] : least;
        most = rows[i] > most ? rows[i] : most;
    }
    assert_int_equal(least, STEPS / OTHERS);
    assert_int_equal(most, STEPS / OTHERS);
    spry_driver_leave(engine->driver);
    for (size_t i = 0; i < OTHERS; i++)
        spry_job_free(others[i]);
    stop(engine);
    expect_no_page_held(engine);
    close_engine(engine);
    free(echoes);
    free(chat);
}

/* However long a step may take, its rows are bounded and the chat is in it. */
static void a_step_is_bounded(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 7, 0);
    spry_jobs_options options = plain_options(7);
    options.max_stall_ms = 1e9;
    options.gentle = false;
    start(engine, &options);
    client *chat = clients_new(1);
    int32_t ids[LONG];
    spry_job *others[6];
    fixture_ids(ids, LONG, 3);
    ask(chat, 10, 1, 100);
    chat->job.request.speculation = SPRY_DRAFT_NONE;
    spry_driver_enter(engine->driver);
    submit(engine, chat);
    while (!chat->n_ids)
        spry_driver_round(engine->driver);
    for (size_t i = 0; i < 6; i++) {
        others[i] = make_embedding(engine, ids, LONG);
        assert_int_equal(spry_job_submit(others[i], NULL), SPRY_OK);
    }
    for (size_t before = chat->n_ids; before < 40; before++) {
        spry_driver_round(engine->driver);
        assert_int_equal(chat->n_ids, before + 1);
        assert_true(engine->driver->step.n_rows <= engine->chunk);
        for (size_t i = 0; i < 6; i++) /* shared evenly: none takes more than its part */
            assert_true(others[i]->rows.n_rows <= engine->chunk / 6 + 1 || engine->driver->n_running < 7);
    }
    spry_driver_leave(engine->driver);
    for (size_t i = 0; i < 6; i++)
        spry_job_free(others[i]);
    stop(engine);
    close_engine(engine);
    free(chat);
}

/* ---- threads -------------------------------------------------------------------------------------------------------
 */

typedef struct crowd {
    spry_engine *engine;
    uint32_t seed;
    float vectors[4][WIDTH];
} crowd;

/* Submits, polls, cancels some, and waits. */
static void *submit_many(void *argument)
{
    crowd *c = argument;
    for (uint32_t round = 0; round < 4; round++) {
        int32_t ids[80];
        spry_job *jobs[6];
        atomic_int done = 0;
        fixture_ids(ids, 80, 70 + round);
        for (int i = 0; i < 6; i++) {
            jobs[i] =
                i % 3 ? make_answer(c->engine, NULL, count_done, &done, NULL) : make_embedding(c->engine, ids, 80);
            assert_int_equal(spry_job_submit(jobs[i], NULL), SPRY_OK);
        }
        for (int i = 0; i < 6; i++)
            if (i % 3) {
                spry_job_cancel(jobs[i]);
                spry_job_cancel(jobs[i]);
            }
        for (int i = 0; i < 6; i++) {
            while (!spry_job_done(jobs[i]) && spry_job_wait(jobs[i], 1, NULL) == SPRY_ERR_BUSY)
                ;
            if (i == 0)
                memcpy(c->vectors[round], spry_job_embedding(jobs[i]), sizeof c->vectors[round]);
            spry_job_free(jobs[i]);
        }
        assert_int_equal(atomic_load(&done), 4);
    }
    return NULL;
}

static void several_threads_submit(void **state)
{
    (void)state;
    spry_engine *engine = open_jobs(3, 3);
    crowd crowds[3] = {{engine, 1, {{0}}}, {engine, 2, {{0}}}, {engine, 3, {{0}}}};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, submit_many, &crowds[i]), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_memory_equal(crowds[0].vectors, crowds[1].vectors, sizeof crowds[0].vectors);
    assert_memory_equal(crowds[0].vectors, crowds[2].vectors, sizeof crowds[0].vectors);
    wait_idle(engine);
    close_engine(engine);
}

typedef struct talk {
    spry_session *session;
    float vector[WIDTH];
    spry_status status;
    spry_result result;
    size_t n_text;
} talk;

static bool hear(void *user, const char *text, size_t size)
{
    (void)text;
    ((talk *)user)->n_text += size;
    return true;
}

static void *talk_thread(void *argument)
{
    talk *t = argument;
    int32_t ids[120];
    spry_request request;
    fixture_ids(ids, 120, 9);
    assert_int_equal(spry_session_embed(t->session, t->vector, ids, 120, NULL), SPRY_OK);
    spry_request_default(&request);
    request.prompt = ids;
    request.n_prompt = 50;
    request.max_tokens = 60;
    request.ignore_end = true;
    request.sampling.temperature = 0;
    request.on_text = hear;
    request.user = t;
    t->status = spry_session_generate(t->session, &t->result, &request, NULL);
    return NULL;
}

/* Calls on sessions in several threads: without the engine's thread, and beside jobs. */
static void sessions_in_several_threads(void **state)
{
    (void)state;
    for (int with_jobs = 0; with_jobs < 2; with_jobs++) {
        spry_engine *engine = open_engine("llama", 4, 0);
        talk talks[3] = {{0}};
        pthread_t threads[3];
        atomic_int done = 0;
        for (int i = 0; i < 3; i++)
            talks[i].session = fixture_session(engine);
        spry_job *job = with_jobs ? make_answer(engine, NULL, count_done, &done, NULL) : NULL;
        if (job)
            assert_int_equal(spry_job_submit(job, NULL), SPRY_OK);
        assert_int_equal(engine->driver->has_thread, with_jobs);
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, talk_thread, &talks[i]), 0);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(talks[i].status, SPRY_OK);
            assert_int_equal(talks[i].n_text, talks[0].n_text);
            assert_int_equal(talks[i].result.generated_tokens, 60);
            assert_memory_equal(talks[i].vector, talks[0].vector, sizeof talks[0].vector);
            spry_session_destroy(talks[i].session);
        }
        if (job)
            expect_done(job);
        spry_job_free(job);
        close_engine(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_beside_each_other), cmocka_unit_test(evaluation_warms_the_cache),
        cmocka_unit_test(rows_are_shared_fairly),  cmocka_unit_test(a_step_is_bounded),
        cmocka_unit_test(several_threads_submit),  cmocka_unit_test(sessions_in_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
