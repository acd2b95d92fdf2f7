/* Steps that are started before the tokens of the step before are read: answers, their log probabilities, their ends
 * and what they leave in the cache are those of a device that does not do so, in every bit. The far device goes ahead,
 * the CPU does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/fixed_costs.h"
#include "support/job_clients.h"

enum { ASKED = 12, LIKELY = 3 };

static const char *const stops[] = {"q", "z"};
static const char schema[] = "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12}},"
                             "\"required\":[\"name\"]}";
static const spry_logit_bias to_the_end[] = {{2, 4.0f}};

/* What an answer says besides its tokens. */
typedef struct heard {
    client client;
    double logprobs[TOKENS];
    spry_logprob_entry top[TOKENS][LIKELY];
} heard;

static bool hear_likely(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    heard *h = user;
    size_t at = h->client.n_ids;
    h->logprobs[at] = token.logprob;
    if (n_top)
        memcpy(h->top[at], top, (n_top < LIKELY ? n_top : LIKELY) * sizeof *top);
    return hear_token(&h->client, token, top, n_top);
}

/* Requests as different as they come. */
static heard *make_requests(void)
{
    heard *all = calloc(ASKED, sizeof *all);
    assert_non_null(all);
    for (uint32_t i = 0; i < ASKED; i++) {
        ask(&all[i].client, 20 + 7 * i, i, 70 + i);
        all[i].client.job.request.speculation = SPRY_DRAFT_NONE;
        all[i].client.job.request.user = &all[i];
        all[i].client.job.request.on_token = hear_likely;
    }
    all[1].client.job.request.sampling.temperature = 1;
    all[1].client.job.request.sampling.seed = 7;
    all[1].client.job.request.logprobs = LIKELY;
    all[2].client.job.request.sampling.temperature = 0.8f;
    all[2].client.job.request.stop = stops;
    all[2].client.job.request.n_stop = 2;
    all[3].client.job.request.sampling.temperature = 1;
    all[3].client.job.request.sampling.bias = to_the_end;
    all[3].client.job.request.sampling.n_bias = 1;
    all[3].client.job.request.ignore_end = false;
    all[4].client.job.request.sampling.presence_penalty = 0.5f;
    all[5].client.job.request.constraint = SPRY_JSON_SCHEMA;
    all[5].client.job.request.constraint_text = schema;
    all[5].client.job.request.ignore_end = false;
    all[6].client.job.request.speculation = SPRY_DRAFT_LOOKUP;
    all[7].client.job.slide = true;
    all[7].client.job.keep = 16;
    all[7].client.job.request.max_tokens = 560; /* past the context */
    all[8].client.job.request.max_tokens = 1;
    all[9].client.job.request.max_tokens = 2;
    all[10].client.stop_at = 9;
    all[11].client.job.request.on_token = NULL;
    return all;
}

/* Whether a request's steps can be known before its tokens, and which cannot. */
static const bool goes_ahead[ASKED] = {[0] = true, [1] = true, [7] = true, [10] = true, [11] = true};
static const bool never[ASKED] = {[4] = true, [5] = true, [8] = true, [9] = true};

static spry_engine *open_on(const char *device)
{
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.device = device;
    options.cpu = "ref"; /* answers end at the same token on every machine */
    options.threads = 1;
    options.sessions = ASKED;
    options.chunk = 64;
    return fixture_open("llama", &options);
}

/* The answer, and a second one that continues it with what the first left. */
static uint64_t answer_alone_on(const char *device, heard *first, heard *second)
{
    spry_error error = {0};
    spry_engine *engine = open_on(device);
    spry_session *session = fixture_session(engine);
    client *c = &first->client;
    spry_session_set_slide(session, c->job.slide, c->job.keep);
    c->job.status = spry_session_generate(session, &c->job.result, &c->job.request, &error);
    if (c->job.status)
        fail_msg("%s", error.message);
    uint64_t ahead = engine->driver->figures.ahead;
    ask(&second->client, 1, 0, 10);
    size_t n = c->job.request.n_prompt;
    memcpy(second->client.prompt, c->prompt, n * sizeof *c->prompt);
    for (size_t i = 0; i < c->n_ids && n < PROMPT - 1; i++)
        second->client.prompt[n++] = c->ids[i];
    second->client.prompt[n++] = 2; /* the end, which a step ahead may have computed */
    second->client.job.request.n_prompt = n;
    second->client.job.request.user = second;
    second->client.job.request.on_token = hear_likely;
    c = &second->client;
    c->job.status = spry_session_generate(session, &c->job.result, &c->job.request, &error);
    spry_session_destroy(session);
    expect_no_page_held(engine);
    spry_engine_close(engine);
    return ahead;
}

static void expect_same(const heard *a, const heard *b)
{
    assert_int_equal(a->client.job.status, b->client.job.status);
    assert_int_equal(a->client.job.result.finish, b->client.job.result.finish);
    assert_int_equal(a->client.job.result.generated_tokens, b->client.job.result.generated_tokens);
    assert_int_equal(a->client.n_ids, b->client.n_ids);
    assert_memory_equal(a->client.ids, b->client.ids, sizeof a->client.ids);
    assert_int_equal(a->client.size, b->client.size);
    assert_memory_equal(a->client.text, b->client.text, a->client.size);
    assert_memory_equal(a->logprobs, b->logprobs, sizeof a->logprobs);
    assert_memory_equal(a->top, b->top, sizeof a->top);
}

static void answers_are_the_same(void **state)
{
    (void)state;
    heard *near = make_requests(), *far = make_requests(), *more = calloc(2, sizeof *more);
    assert_non_null(more);
    for (size_t i = 0; i < ASKED; i++) {
        assert_int_equal(answer_alone_on("cpu", &near[i], &more[0]), 0);
        uint64_t ahead = answer_alone_on("far", &far[i], &more[1]);
        expect_same(&near[i], &far[i]);
        expect_same(&more[0], &more[1]);
        assert_int_equal(more[0].client.job.result.reused_tokens, more[1].client.job.result.reused_tokens);
        print_message("request %zu: %llu of %zu tokens came of steps ahead\n", i, (unsigned long long)ahead,
                      (size_t)far[i].client.job.result.generated_tokens);
        if (goes_ahead[i])
            assert_true(ahead > 0 && ahead < far[i].client.job.result.generated_tokens);
        if (never[i])
            assert_int_equal(ahead, 0);
        memset(more, 0, 2 * sizeof *more);
    }
    assert_int_equal(near[3].client.job.result.finish, SPRY_FINISH_END);
    assert_int_equal(near[2].client.job.result.finish, SPRY_FINISH_STOP);
    free(near);
    free(far);
    free(more);
}

/* Answers beside each other: they end at different times, and others begin when the first ones end. */
static void many_answers_are_the_same(void **state)
{
    (void)state;
    heard *near = make_requests(), *far = make_requests(), *more = calloc(1, sizeof *more);
    assert_non_null(more);
    for (size_t i = 0; i < ASKED; i++)
        answer_alone_on("cpu", &near[i], more);
    for (uint32_t places = 4; places <= ASKED; places += 8) {
        free(far);
        far = make_requests();
        spry_engine *engine = open_on("far");
        spry_jobs_options options = plain_options(places);
        spry_engine *s = start(engine, &options);
        n_done = 0;
        pthread_t thread = close_gate(engine);
        spry_job_options job;
        spry_job_options_default(&job);
        job.on_done = hear_done;
        for (size_t i = 0; i < ASKED; i++) {
            spry_error error = {0};
            client *c = &far[i].client;
            job.slide = c->job.slide;
            job.keep = c->job.keep;
            job.user = c;
            if (spry_job_create_answer(&c->job.handle, s, &c->job.request, &job, &error) ||
                spry_job_submit(c->job.handle, &error))
                fail_msg("%s", error.message);
            handles[n_handles++] = c->job.handle;
        }
        open_gate(thread);
        wait_for(ASKED);
        for (size_t i = 0; i < ASKED; i++)
            expect_same(&near[i], &far[i]);
        stop(s);
        expect_no_page_held(engine);
        spry_engine_close(engine);
    }
    free(near);
    free(far);
    free(more);
}

/* The first of two answers ends where nothing could know it, while a step ahead draws for both: the second goes on with
 * its own token. */
static void answers_go_on_beside_one_that_ends(void **state)
{
    (void)state;
    enum { FIRST = 10, SECOND = 0 };
    heard *near = make_requests(), *more = calloc(1, sizeof *more);
    assert_non_null(more);
    answer_alone_on("cpu", &near[SECOND], more);
    for (size_t end = 3; end < 12; end++) {
        heard *far = make_requests();
        client *clients[] = {&far[FIRST].client, &far[SECOND].client};
        far[FIRST].client.stop_at = end;
        spry_engine *engine = open_on("far");
        spry_jobs_options options = plain_options(2);
        spry_engine *s = start(engine, &options);
        n_done = 0;
        pthread_t thread = close_gate(engine);
        for (size_t i = 0; i < SPRY_COUNT(clients); i++)
            submit(s, clients[i]);
        open_gate(thread);
        wait_for(SPRY_COUNT(clients));
        expect_same(&near[SECOND], &far[SECOND]);
        stop(s);
        expect_no_page_held(engine);
        spry_engine_close(engine);
        free(far);
    }
    free(near);
    free(more);
}

/* Jobs that are cancelled while a step is ahead leave nothing behind, and others go on. */
static void cancelled_answers_leave(void **state)
{
    (void)state;
    heard *near = make_requests(), *far = make_requests(), *more = calloc(1, sizeof *more);
    assert_non_null(more);
    answer_alone_on("cpu", &near[0], more);
    spry_engine *engine = open_on("far");
    spry_jobs_options options = plain_options(4);
    spry_engine *s = start(engine, &options);
    n_done = 0;
    client *clients[] = {&far[0].client, &far[7].client, &far[11].client};
    for (size_t i = 0; i < SPRY_COUNT(clients); i++)
        submit(s, clients[i]);
    spry_job_cancel(clients[1]->job.handle);
    spry_job_cancel(clients[2]->job.handle);
    wait_for(SPRY_COUNT(clients));
    expect_same(&near[0], &far[0]);
    stop(s);
    expect_no_page_held(engine);
    spry_engine_close(engine);
    free(near);
    free(far);
    free(more);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_the_same),
        cmocka_unit_test(many_answers_are_the_same),
        cmocka_unit_test(answers_go_on_beside_one_that_ends),
        cmocka_unit_test(cancelled_answers_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
