/* The public header, third part: answers that are stopped, from wherever, and requests that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "spry.h"
#include "support/asking.h"
#include "support/hostile.h"

/* ---- cancelling ------------------------------------------------------------------------------------------------- */

static void test_cancel_from_callbacks(void **state)
{
    (void)state;
    spry_request request = ask(50);
    got.stop_at_piece = 4;
    spry_result result = answer(&request);
    assert_int_equal(result.finish, SPRY_FINISH_CANCELLED);
    assert_int_equal(got.pieces, 4); /* and not once more */
    request = ask(50);
    got.stop_at_token = 7;
    result = answer(&request);
    assert_int_equal(result.finish, SPRY_FINISH_CANCELLED);
    assert_true(got.n_ids == 7 && result.generated_tokens == 7);
}

/* Also when text was held back at that moment: nothing comes after a no. */
static void test_no_text_after_no(void **state)
{
    (void)state;
    spry_request request = ask(30);
    answer(&request);
    char whole[HEARD_TEXT];
    memcpy(whole, got.text, got.size + 1);
    size_t held_back = 0;
    for (size_t at = 0; whole[at]; at++)
        for (size_t piece = 1; piece < 6; piece++) {
            char begins[] = {whole[at], 1, 0}; /* the text there, and then a text that is never there */
            const char *stops[] = {begins};
            if ((unsigned char)whole[at] >= 0x80)
                break;
            request = ask(30);
            request.stop = stops;
            request.n_stop = 1;
            got.stop_at_piece = piece;
            spry_result result = answer(&request);
            assert_int_equal(result.finish, SPRY_FINISH_CANCELLED);
            assert_int_equal(got.pieces, piece);
            assert_memory_equal(got.text, whole, got.size);
            held_back += whole[got.size] == whole[at];
        }
    assert_true(held_back > 0);
}

static void test_cancel_prefill(void **state)
{
    (void)state;
    spry_engine_options options;
    spry_engine *mine = engine;
    spry_session *my_session = session;
    spry_engine_options_default(&options);
    options.chunk = 6;
    options.threads = 1;
    engine = fixture_open("llama", &options);
    session = fixture_session(engine);
    spry_request request = ask(5);
    request.on_prefill = heard_prefill;
    got.stop_at_prefill = 3;
    spry_result result = answer(&request);
    assert_int_equal(result.finish, SPRY_FINISH_CANCELLED);
    assert_int_equal(got.prefill_done, 12);
    assert_true(result.generated_tokens == 0 && got.n_ids == 0 && got.pieces == 0);
    request = ask(5);
    request.on_prefill = heard_prefill;
    result = answer(&request);
    assert_int_equal(result.finish, SPRY_FINISH_LENGTH);
    assert_int_equal(result.reused_tokens, 12); /* what was done stays done */
    assert_int_equal(got.prefill_calls, 2);
    spry_session_destroy(session);
    spry_engine_close(engine);
    engine = mine;
    session = my_session;
}

static void cancel_by_signal(int number)
{
    (void)number;
    spry_session_cancel(session);
}

static void raise_at_five(size_t n)
{
    if (n == 5)
        raise(SIGUSR1);
}

static void test_cancel_from_a_signal(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = cancel_by_signal}, before;
    sigaction(SIGUSR1, &action, &before);
    spry_request request = ask(50);
    got.at_token = raise_at_five;
    spry_result result = answer(&request);
    sigaction(SIGUSR1, &before, NULL);
    assert_int_equal(result.finish, SPRY_FINISH_CANCELLED);
    assert_int_equal(result.generated_tokens, 5);
    expect_text(got.ids, 5, false); /* its text still comes */
}

static atomic_int stage; /* 0: not there yet, 1: cancel now, 2: cancelled */

static void *cancel_by_thread(void *unused)
{
    while (atomic_load(&stage) != 1)
        sched_yield();
    spry_session_cancel(session);
    atomic_store(&stage, 2);
    return unused;
}

static void wait_for_cancel(size_t n)
{
    if (n != 9)
        return;
    atomic_store(&stage, 1);
    while (atomic_load(&stage) != 2)
        sched_yield();
}

static void test_cancel_from_a_thread(void **state)
{
    (void)state;
    pthread_t thread;
    atomic_store(&stage, 0);
    assert_int_equal(pthread_create(&thread, NULL, cancel_by_thread, NULL), 0);
    spry_request request = ask(50);
    got.at_token = wait_for_cancel;
    spry_result result = answer(&request);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(result.finish, SPRY_FINISH_CANCELLED);
    assert_int_equal(result.generated_tokens, 9);
    spry_session_cancel(session); /* of nothing: the next answer does not know of it */
    request = ask(10);
    result = answer(&request);
    assert_int_equal(result.finish, SPRY_FINISH_LENGTH);
}

/* ---- wrong requests --------------------------------------------------------------------------------------------- */

static void test_wrong_requests(void **state)
{
    (void)state;
    static const char *const empty[] = {"fine", ""}, *const broken[] = {"\xe2\x82"};
    const char *many[65];
    int32_t long_prompt[FIXTURE_CONTEXT + 1], outside[] = {5, 512};
    const spry_logit_bias bias = {600, 1};
    for (size_t i = 0; i < SPRY_COUNT(many); i++)
        many[i] = "x";
    fixture_ids(long_prompt, SPRY_COUNT(long_prompt), 4);
    const struct {
        spry_request change; /* what is not 0 replaces */
        spry_status status;
        const char *words;
    } cases[] = {
        {{.stop = empty, .n_stop = 2}, SPRY_ERR_INPUT, "stop string 2|empty"},
        {{.stop = broken, .n_stop = 1}, SPRY_ERR_INPUT, "stop string 1|UTF-8"},
        {{.stop = many, .n_stop = 65}, SPRY_ERR_INPUT, "65 stop strings|64"},
        {{.logprobs = 21}, SPRY_ERR_INPUT, "logprobs is 21|20"},
        {{.prompt = long_prompt, .n_prompt = FIXTURE_CONTEXT + 1}, SPRY_ERR_CONTEXT, "513 tokens|512"},
        {{.prompt = outside, .n_prompt = 2}, SPRY_ERR_INPUT, "token id 512"},
        {{.sampling.temperature = -1}, SPRY_ERR_INPUT, "temperature"},
        {{.sampling.temperature = NAN}, SPRY_ERR_INPUT, "temperature"},
        {{.sampling.top_p = 1.5f}, SPRY_ERR_INPUT, "top_p"},
        {{.sampling.bias = &bias, .sampling.n_bias = 1}, SPRY_ERR_INPUT, "600"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        const spry_request *c = &cases[i].change;
        spry_request request = ask(5);
        spry_result result;
        spry_error error = {0};
        request.stop = c->stop;
        request.n_stop = c->n_stop;
        request.logprobs = c->logprobs;
        request.prompt = c->prompt ? c->prompt : prompt;
        request.n_prompt = c->prompt ? c->n_prompt : SPRY_COUNT(prompt);
        request.sampling.temperature = c->sampling.temperature;
        request.sampling.top_p = c->sampling.top_p > 0 ? c->sampling.top_p : 1;
        request.sampling.bias = c->sampling.bias;
        request.sampling.n_bias = c->sampling.n_bias;
        hostile_expect(spry_session_generate(session, &result, &request, &error), &error, cases[i].status,
                       cases[i].words);
        assert_int_equal(spry_session_generate(session, &result, &request, NULL), cases[i].status);
        assert_true(got.n_ids == 0 && got.pieces == 0 && result.generated_tokens == 0);
    }
    spry_request request = ask(3);
    request.n_prompt = 0;
    spry_result result;
    assert_int_equal(spry_session_generate(session, &result, &request, NULL), SPRY_ERR_INPUT);
    request = ask(3); /* and then all is well */
    result = answer(&request);
    assert_int_equal(result.generated_tokens, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel_from_callbacks), cmocka_unit_test(test_no_text_after_no),
        cmocka_unit_test(test_cancel_prefill),        cmocka_unit_test(test_cancel_from_a_signal),
        cmocka_unit_test(test_cancel_from_a_thread),  cmocka_unit_test(test_wrong_requests),
    };
    return cmocka_run_group_tests(tests, asking_set_up, asking_tear_down);
}
