/* A decode step allocates nothing. Every allocation of the process is counted (support/failing_calls.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/compiler.h"
#include "spry.h"
#include "support/engine_fixture.h"
#include "support/failing_calls.h"
#include "support/hostile.h"

enum { N_TOKENS = 150, SETTLED = 8 }; /* the first tokens may still make room for their text */

#ifdef TEST_FAILING_CALLS

static size_t allocations(void)
{
    return (size_t)failing_calls_here()->calls[FAILING_MEMORY];
}

typedef struct counter {
    size_t tokens, settled, last;
} counter;

static bool on_token(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    counter *c = user;
    (void)token, (void)top, (void)n_top;
    c->last = allocations();
    if (++c->tokens == SETTLED)
        c->settled = c->last;
    return true;
}

static bool on_text(void *user, const char *text, size_t size)
{
    (void)user, (void)text, (void)size;
    return true;
}

static size_t allocations_of_decoding(spry_session *session, const spry_sampling *sampling)
{
    static const char *const stop[] = {"never in it", "nor this"};
    int32_t prompt[40];
    counter c = {0};
    spry_request request;
    spry_result result;
    fixture_ids(prompt, SPRY_COUNT(prompt), 6);
    spry_request_default(&request);
    request.prompt = prompt;
    request.n_prompt = SPRY_COUNT(prompt);
    request.max_tokens = N_TOKENS;
    request.sampling = *sampling;
    request.stop = stop;
    request.n_stop = SPRY_COUNT(stop);
    request.logprobs = 5;
    request.ignore_end = true;
    request.on_token = on_token;
    request.on_text = on_text;
    request.user = &c;
    assert_int_equal(spry_session_generate(session, &result, &request, NULL), SPRY_OK);
    assert_int_equal(c.tokens, N_TOKENS);
    return c.last - c.settled;
}

static void test_counting_works(void **state)
{
    (void)state;
    size_t before = allocations();
    void *volatile memory = malloc(100);
    free(memory);
    memory = calloc(3, 5);
    memory = realloc(memory, 50);
    free(memory);
    assert_int_equal(allocations() - before, 3);
    before = allocations();
    spry_engine_close(fixture_open("llama", NULL));
    assert_true(allocations() - before > 100); /* the library's own are counted too */
}

static void test_decode_allocates_nothing(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "mixtral", "qwen2-moe", "gemma3", "phi3"};
    for (size_t i = 0; i < SPRY_COUNT(models); i++)
        for (uint32_t threads = 1; threads <= 2; threads++) {
            spry_engine_options options;
            spry_sampling sampling;
            spry_engine_options_default(&options);
            options.threads = threads;
            spry_engine *engine = fixture_open(models[i], &options);
            spry_session *session = fixture_session(engine);
            spry_sampling_default(&sampling);
            sampling.temperature = 0;
            assert_int_equal(allocations_of_decoding(session, &sampling), 0);
            sampling = (spry_sampling){.repeat_penalty = 1.1f,
                                       .presence_penalty = 0.2f,
                                       .frequency_penalty = 0.1f,
                                       .temperature = 0.9f,
                                       .top_k = 50,
                                       .top_p = 0.95f,
                                       .min_p = 0.01f,
                                       .typical_p = 0.98f,
                                       .seed = 5};
            assert_int_equal(allocations_of_decoding(session, &sampling), 0);
            spry_session_destroy(session);
            spry_engine_close(engine);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counting_works),
        cmocka_unit_test(test_decode_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    puts("SKIPPED test_allocations: allocations are not counted under AddressSanitizer and on macOS");
    return 0;
}

#endif
