/* Engines and jobs for tests of jobs. Include after cmocka.h. */
#ifndef SPRY_TESTS_JOB_SCENE_H
#define SPRY_TESTS_JOB_SCENE_H

#include "support/hostile.h"
#include "support/job_clients.h"

enum { WIDTH = 64 };

static inline spry_engine *open_jobs(uint32_t sessions, uint32_t max_running)
{
    spry_engine *engine = open_engine("llama", sessions, 0);
    spry_jobs_options options = plain_options(max_running);
    return start(engine, &options);
}

static inline void close_engine(spry_engine *engine)
{
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
}

static inline void must(spry_status status, const spry_error *error)
{
    if (status)
        fail_msg("%s", error->message);
}

static inline spry_job *make_embedding(spry_engine *engine, const int32_t *ids, size_t count)
{
    spry_job *job;
    spry_error error = {0};
    must(spry_job_create_embedding(&job, engine, ids, count, NULL, &error), &error);
    return job;
}

static inline void expect_done(spry_job *job)
{
    spry_result result;
    spry_error error = {0};
    assert_int_equal(spry_job_wait(job, -1, NULL), SPRY_OK);
    must(spry_job_result(job, &result, &error), &error);
    assert_true(result.prompt_tokens > 0 && spry_job_done(job));
}

static inline void count_done(void *user, spry_job *job)
{
    (void)job;
    atomic_fetch_add((atomic_int *)user, 1);
}

static inline spry_job *make_answer(spry_engine *engine, spry_session *session, void (*on_done)(void *, spry_job *),
                                    atomic_int *times, bool (*on_text)(void *, const char *, size_t))
{
    int32_t ids[40];
    spry_job *job;
    spry_request request;
    spry_job_options options;
    spry_error error = {0};
    fixture_ids(ids, 40, 4);
    spry_request_default(&request);
    request.prompt = ids;
    request.n_prompt = 40;
    request.max_tokens = 300;
    request.ignore_end = true;
    request.on_text = on_text;
    spry_job_options_default(&options);
    options.session = session;
    options.on_done = on_done;
    options.user = times;
    must(spry_job_create_answer(&job, engine, &request, &options, &error), &error);
    return job;
}

/* Waits until nothing runs. */
static inline void wait_idle(spry_engine *engine)
{
    while (figures_of(engine).running || figures_of(engine).waiting)
        sched_yield();
}

#endif
