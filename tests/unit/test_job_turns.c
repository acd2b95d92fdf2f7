/* Jobs that continue a session: as soon as one is over the session is free for the next, and can be destroyed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/engine_fixture.h"

enum { TURNS = 1500, PROMPT = 6, LIVES = 60 };

static spry_engine *engine;

static int open_engine(void **state)
{
    (void)state;
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.threads = 1;
    options.sessions = 4;
    engine = fixture_open("llama", &options);
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    return spry_engine_close(engine) ? -1 : 0;
}

static spry_job *submit_turn(spry_session *session)
{
    static int32_t ids[PROMPT];
    spry_error error = {0};
    spry_job *job;
    spry_request request;
    spry_job_options options;
    spry_request_default(&request);
    spry_job_options_default(&options);
    fixture_ids(ids, PROMPT, 7);
    request.prompt = ids;
    request.n_prompt = PROMPT;
    request.max_tokens = 1;
    options.session = session;
    if (spry_job_create_answer(&job, engine, &request, &options, &error) || spry_job_submit(job, &error))
        fail_msg("%s", error.message);
    return job;
}

static void a_turn_follows_at_once(void **state)
{
    (void)state;
    spry_session *session = fixture_session(engine);
    for (int turn = 0; turn < TURNS; turn++) {
        spry_job *job = submit_turn(session);
        assert_int_equal(spry_job_wait(job, -1, NULL), SPRY_OK);
        assert_int_equal(spry_job_result(job, NULL, NULL), SPRY_OK);
        spry_job_free(job);
    }
    spry_session_destroy(session);
}

/* Freeing the job first leaves the session nothing to look at. */
static void a_session_ends_after_its_job(void **state)
{
    (void)state;
    for (int life = 0; life < LIVES; life++) {
        spry_session *session = fixture_session(engine);
        spry_job *job = submit_turn(session);
        assert_int_equal(spry_job_wait(job, -1, NULL), SPRY_OK);
        spry_job_free(job);
        spry_session_destroy(session);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_turn_follows_at_once),
        cmocka_unit_test(a_session_ends_after_its_job),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
