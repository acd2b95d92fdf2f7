/* Clients of an engine's jobs: each submits one request and records every callback. Include after cmocka.h. */
#ifndef SPRY_TESTS_JOB_CLIENTS_H
#define SPRY_TESTS_JOB_CLIENTS_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/engine_state.h"
#include "sched/driver.h"
#include "support/engine_fixture.h"

enum { TEXT = 4096, TOKENS = 600, PROMPT = 480 };

/* ---- clients ---------------------------------------------------------------------------------------------------- */

typedef struct client {
    struct {
        spry_job *handle; /* NULL: not submitted */
        spry_request request;
        const void *salt;
        size_t salt_size;
        uint64_t client;
        bool slide, batch;
        size_t keep;
        spry_status status;
        spry_error error;
        spry_result result;
    } job;
    int32_t prompt[PROMPT];
    spry_span spans[2];
    char text[TEXT];
    size_t size;
    int32_t ids[TOKENS];
    size_t n_ids, stop_at; /* says stop at this number of tokens; 0: never */
    size_t progress[TOKENS];
    size_t n_progress;
    int times_done;
    void (*at_token)(struct client *self);
    void (*at_progress)(struct client *self, size_t done);
} client;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t someone_done = PTHREAD_COND_INITIALIZER;
static client *order[1024]; /* who was done when */
static size_t n_done;

static inline bool hear_text(void *user, const char *text, size_t size)
{
    client *c = user;
    assert_true(c->size + size < TEXT);
    memcpy(c->text + c->size, text, size);
    c->size += size;
    return true;
}

static inline bool hear_token(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    client *c = user;
    (void)top;
    (void)n_top;
    assert_true(c->n_ids < TOKENS);
    c->ids[c->n_ids++] = token.id;
    if (c->at_token)
        c->at_token(c);
    return c->n_ids != c->stop_at;
}

static inline bool hear_progress(void *user, size_t done, size_t total)
{
    client *c = user;
    assert_true(done <= total);
    if (c->n_progress < TOKENS)
        c->progress[c->n_progress++] = done;
    if (c->at_progress)
        c->at_progress(c, done);
    return true;
}

static inline void hear_done(void *user, spry_job *job)
{
    client *c = user;
    c->job.status = spry_job_result(job, &c->job.result, &c->job.error);
    pthread_mutex_lock(&lock);
    c->times_done++;
    order[n_done++ % SPRY_COUNT(order)] = c;
    pthread_cond_broadcast(&someone_done);
    pthread_mutex_unlock(&lock);
}

static inline void wait_for(size_t count)
{
    pthread_mutex_lock(&lock);
    while (n_done < count)
        pthread_cond_wait(&someone_done, &lock);
    pthread_mutex_unlock(&lock);
}

static inline void ask(client *c, size_t n_prompt, uint32_t seed, uint32_t max_tokens)
{
    memset(c, 0, sizeof *c);
    fixture_ids(c->prompt, n_prompt, seed);
    spry_request *r = &c->job.request;
    spry_request_default(r);
    r->prompt = c->prompt;
    r->n_prompt = n_prompt;
    r->max_tokens = max_tokens;
    r->sampling.temperature = 0;
    r->ignore_end = true;
    r->on_text = hear_text;
    r->on_token = hear_token;
    r->user = c;
}

static inline client *clients_new(size_t count)
{
    client *all = calloc(count, sizeof *all);
    assert_non_null(all);
    n_done = 0;
    return all;
}

/* ---- engines and schedulers ------------------------------------------------------------------------------------- */

/* `pages` 0: plenty; `context` 0: the model's own. */
static inline spry_engine *open_engine_of(const char *model, uint32_t sessions, size_t pages, uint32_t context)
{
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.threads = 1;
    options.sessions = sessions;
    options.chunk = 64;
    options.kv_bytes = (size_t)16 << 20;
    options.context = context;
    if (pages) { /* a first engine tells what a page costs */
        spry_engine *probe = fixture_open(model, &options);
        options.kv_bytes = pages * probe->pool.page_bytes;
        spry_engine_close(probe);
    }
    return fixture_open(model, &options);
}

static inline spry_engine *open_engine(const char *model, uint32_t sessions, size_t pages)
{
    return open_engine_of(model, sessions, pages, 0);
}

static inline spry_jobs_options plain_options(uint32_t max_running)
{
    spry_jobs_options options;
    spry_jobs_options_default(&options);
    options.max_running = max_running;
    options.policy = SPRY_POLICY_AUTO;
    return options;
}

static inline spry_engine *start(spry_engine *engine, const spry_jobs_options *options)
{
    spry_error error = {0};
    if (spry_engine_set_jobs(engine, options, &error))
        fail_msg("%s", error.message);
    return engine;
}

static spry_job *handles[1024]; /* to be freed by stop() */
static atomic_size_t n_handles;

static inline spry_status try_submit(spry_engine *engine, client *c, spry_error *error)
{
    spry_job_options options;
    spry_job_options_default(&options);
    options.salt = c->job.salt;
    options.salt_size = c->job.salt_size;
    options.slide = c->job.slide;
    options.keep = c->job.keep;
    options.client = c->job.client;
    options.batch = c->job.batch;
    options.on_done = hear_done;
    options.user = c;
    spry_status status = spry_job_create_answer(&c->job.handle, engine, &c->job.request, &options, error);
    if (!status) {
        handles[atomic_fetch_add(&n_handles, 1) % SPRY_COUNT(handles)] = c->job.handle;
        status = spry_job_submit(c->job.handle, error);
    }
    return status;
}

static inline void submit(spry_engine *engine, client *c)
{
    spry_error error = {0};
    if (try_submit(engine, c, &error))
        fail_msg("%s", error.message);
}

/* Cancels what is not over and waits for every on_done. */
static inline void stop(spry_engine *engine)
{
    for (size_t i = 0; i < n_handles; i++)
        spry_job_cancel(handles[i]);
    for (size_t i = 0; i < n_handles; i++) {
        if (handles[i]->submitted)
            assert_int_equal(spry_job_wait(handles[i], -1, NULL), SPRY_OK);
        spry_job_free(handles[i]);
    }
    n_handles = 0;
    spry_driver_enter(engine->driver);
    spry_driver_drop_idle(engine->driver);
    spry_driver_leave(engine->driver);
}

static inline spry_jobs_figures figures_of(spry_engine *engine)
{
    spry_jobs_figures figures;
    spry_engine_jobs_figures(engine, &figures);
    return figures;
}

/* Every page is free or kept by the cache alone. */
static inline void expect_no_page_held(spry_engine *engine)
{
    spry_kv_figures f;
    spry_engine_kv_figures(engine, &f);
    assert_int_equal(f.free_pages + f.idle_pages, f.pages);
    assert_int_equal(engine->n_sessions, engine->driver->configured ? engine->driver->options.max_running : 0);
}

/* What the same request gives alone, on an engine of its own. */
static inline void answer_alone(const char *model, client *alone, const client *c)
{
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.threads = 1;
    spry_engine *engine = fixture_open(model, &options);
    spry_session *session = fixture_session(engine);
    *alone = *c;
    alone->size = alone->n_ids = alone->n_progress = 0;
    alone->at_token = NULL;
    alone->at_progress = NULL;
    alone->job.request.user = alone;
    alone->job.request.speculation = SPRY_DRAFT_NONE;
    spry_session_set_salt(session, c->job.salt, c->job.salt_size);
    spry_session_set_slide(session, c->job.slide, c->job.keep);
    spry_error error = {0};
    alone->job.status = spry_session_generate(session, &alone->job.result, &alone->job.request, &error);
    spry_session_destroy(session);
    spry_engine_close(engine);
}

static inline void expect_as_alone(const char *model, const client *c)
{
    client *alone = calloc(1, sizeof *alone);
    answer_alone(model, alone, c);
    assert_int_equal(c->times_done, 1);
    if (c->job.status)
        fail_msg("%s", c->job.error.message);
    assert_int_equal(alone->job.status, SPRY_OK);
    assert_int_equal(c->job.result.finish, alone->job.result.finish);
    assert_int_equal(c->job.result.generated_tokens, alone->job.result.generated_tokens);
    assert_int_equal(c->n_ids, alone->n_ids);
    assert_memory_equal(c->ids, alone->ids, c->n_ids * sizeof *c->ids);
    assert_int_equal(c->size, alone->size);
    assert_memory_equal(c->text, alone->text, c->size);
    free(alone);
}

/* ---- the gate --------------------------------------------------------------------------------------------------- */

/* Blocks the thread until all jobs have been submitted. */
static atomic_bool gate, held;

static inline void *hold_thread(void *argument)
{
    spry_driver_enter(argument);
    atomic_store(&held, true);
    while (!atomic_load(&gate))
        sched_yield();
    spry_driver_leave(argument);
    return NULL;
}

static inline pthread_t close_gate(spry_engine *engine)
{
    pthread_t thread;
    atomic_store(&gate, false);
    atomic_store(&held, false);
    assert_int_equal(pthread_create(&thread, NULL, hold_thread, engine->driver), 0);
    while (!atomic_load(&held))
        sched_yield();
    return thread;
}

static inline void open_gate(pthread_t thread)
{
    atomic_store(&gate, true);
    pthread_join(thread, NULL);
}

#endif
