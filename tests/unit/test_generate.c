/* The public header, second half: answers. What is drawn is compared with drawing by hand from evaluated logits; where
 * an answer ends and what of it is given out, with what the whole text says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "spry.h"
#include "support/heard.h"
#include "support/hostile.h"
#include "support/made_model.h"
#include "support/model_folder.h"

enum { END = 2 };

static spry_engine *engine;
static spry_session *session;
static int32_t prompt[20];

static heard got;

static spry_request ask(uint32_t max_tokens)
{
    spry_request request;
    spry_request_default(&request);
    request.prompt = prompt;
    request.n_prompt = SPRY_COUNT(prompt);
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    request.on_text = heard_text;
    request.on_token = heard_token;
    request.user = &got;
    request.ignore_end = true;
    memset(&got, 0, sizeof got);
    return request;
}

static spry_result answer(const spry_request *request)
{
    spry_result result;
    spry_error error = {0};
    memset(&result, 0xab, sizeof result);
    if (spry_session_generate(session, &result, request, &error))
        fail_msg("%s", error.message);
    got.text[got.size] = 0;
    assert_int_equal(result.prompt_tokens, request->n_prompt);
    assert_true(result.prefill_ms >= 0 && result.first_step_ms >= 0 && result.decode_ms >= 0);
    assert_true(result.total_ms >= result.prefill_ms);
    return result;
}

/* The most likely token after `ids`, evaluated afresh. */
static int32_t greedy_after(const int32_t *ids, size_t count)
{
    const float *logits;
    int32_t best = 0;
    assert_int_equal(spry_session_eval(session, &logits, ids, count, NULL), SPRY_OK);
    for (int32_t i = 1; i < FIXTURE_VOCAB; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* The text of ids with what is not UTF-8 replaced, as a stream gives it. */
static void expect_text(const int32_t *ids, size_t count, bool special)
{
    char raw[HEARD_TEXT];
    size_t size;
    spry_buffer whole;
    spry_buffer_init(&whole, HEARD_TEXT);
    assert_int_equal(spry_engine_detokenize(engine, raw, sizeof raw, &size, ids, count, special, NULL), SPRY_OK);
    spry_utf8_append_valid(&whole, (spry_view){raw, size});
    assert_int_equal(got.size, whole.size);
    assert_memory_equal(got.text, spry_buffer_view(&whole).data, whole.size);
    spry_buffer_deinit(&whole);
}

/* ---- drawing ---------------------------------------------------------------------------------------------------- */

static void test_greedy(void **state)
{
    (void)state;
    enum { N = 40 };
    spry_request request = ask(N);
    spry_result result = answer(&request);
    int32_t ids[SPRY_COUNT(prompt) + N];
    assert_int_equal(result.finish, SPRY_FINISH_LENGTH);
    assert_int_equal(result.generated_tokens, N);
    assert_int_equal(got.n_ids, N);
    expect_text(got.ids, N, false);
    memcpy(ids, prompt, sizeof prompt);
    memcpy(ids + SPRY_COUNT(prompt), got.ids, N * sizeof *ids);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(greedy_after(ids, SPRY_COUNT(prompt) + i), ids[SPRY_COUNT(prompt) + i]);
    request = ask(N); /* again, and with nothing listening but the text */
    request.on_token = NULL;
    answer(&request);
    expect_text(ids + SPRY_COUNT(prompt), N, false);
    request = ask(N);
    request.on_text = NULL;
    answer(&request);
    assert_memory_equal(got.ids, ids + SPRY_COUNT(prompt), N * sizeof *ids);
}

static void test_threads_and_chunks(void **state)
{
    (void)state;
    spry_request request = ask(30);
    answer(&request);
    int32_t expected[30];
    spry_engine *first = engine;
    spry_session *first_session = session;
    memcpy(expected, got.ids, sizeof expected);
    for (uint32_t i = 1; i < 4; i++) {
        spry_engine_options options;
        spry_engine_options_default(&options);
        options.threads = i;
        options.chunk = i * 3;
        engine = fixture_open("llama", &options);
        session = fixture_session(engine);
        request = ask(30);
        answer(&request);
        assert_memory_equal(got.ids, expected, sizeof expected);
        spry_session_destroy(session);
        spry_engine_close(engine);
    }
    engine = first;
    session = first_session;
}

static void test_seeds(void **state)
{
    (void)state;
    int32_t first[30];
    size_t different = 0;
    for (uint64_t seed = 1; seed < 4; seed++)
        for (int again = 0; again < 2; again++) {
            spry_request request = ask(30);
            request.sampling.temperature = 1;
            request.sampling.seed = seed;
            answer(&request);
            if (again)
                assert_memory_equal(got.ids, first, sizeof first);
            else
                different += memcmp(got.ids, first, sizeof first) != 0;
            memcpy(first, got.ids, sizeof first);
        }
    assert_int_equal(different, 3);
}

static void test_logprobs(void **state)
{
    (void)state;
    enum { N = 12 };
    int32_t ids[SPRY_COUNT(prompt) + N];
    for (uint32_t n_top = 0; n_top <= SPRY_TOP_LOGPROBS_MAX; n_top += 5) {
        spry_request request = ask(N);
        request.logprobs = n_top;
        request.sampling.temperature = 1.5f; /* not the most likely ones alone */
        answer(&request);
        assert_int_equal(got.n_top, n_top);
        memcpy(ids, prompt, sizeof prompt);
        memcpy(ids + SPRY_COUNT(prompt), got.ids, N * sizeof *ids);
        for (size_t t = 0; t < N; t++) {
            const float *logits;
            double sum = 0, largest = -INFINITY;
            assert_int_equal(spry_session_eval(session, &logits, ids, SPRY_COUNT(prompt) + t, NULL), SPRY_OK);
            for (size_t i = 0; i < FIXTURE_VOCAB; i++)
                largest = fmax(largest, (double)logits[i]);
            for (size_t i = 0; i < FIXTURE_VOCAB; i++)
                sum += exp((double)logits[i] - largest);
            double log_sum = log(sum) + largest;
            assert_true(fabs(got.tokens[t].logprob - ((double)logits[got.ids[t]] - log_sum)) < 1e-9);
            for (size_t k = 0; k < n_top; k++) {
                size_t better = 0; /* the k-th has k before it, by value and then by id */
                const spry_logprob_entry *e = &got.top[t][k];
                assert_true(fabs(e->logprob - ((double)logits[e->id] - log_sum)) < 1e-9);
                for (int32_t i = 0; i < FIXTURE_VOCAB; i++)
                    better += logits[i] > logits[e->id] || (logits[i] >= logits[e->id] && i < e->id);
                assert_int_equal(better, k);
            }
        }
    }
}

/* ---- ends ------------------------------------------------------------------------------------------------------- */

static void test_end_token(void **state)
{
    (void)state;
    const spry_logit_bias bias = {END, 1000};
    spry_request request = ask(8);
    request.sampling.bias = &bias;
    request.sampling.n_bias = 1;
    request.ignore_end = false;
    spry_result result = answer(&request);
    assert_int_equal(result.finish, SPRY_FINISH_END);
    assert_int_equal(result.generated_tokens, 0);
    assert_true(got.n_ids == 0 && got.pieces == 0);
    for (int special = 0; special < 2; special++) {
        request = ask(3);
        request.sampling.bias = &bias;
        request.sampling.n_bias = 1;
        request.special = special;
        result = answer(&request);
        assert_int_equal(result.finish, SPRY_FINISH_LENGTH);
        assert_int_equal(got.n_ids, 3);
        assert_string_equal(got.text, special ? "<|im_end|><|im_end|><|im_end|>" : "");
    }
}

static void test_full_context(void **state)
{
    (void)state;
    int32_t long_prompt[FIXTURE_CONTEXT];
    fixture_ids(long_prompt, FIXTURE_CONTEXT, 3);
    for (size_t n = FIXTURE_CONTEXT - 12; n <= FIXTURE_CONTEXT; n += 6) {
        spry_request request = ask(0);
        request.prompt = long_prompt;
        request.n_prompt = n;
        spry_result result = answer(&request);
        assert_int_equal(result.finish, SPRY_FINISH_CONTEXT);
        assert_int_equal(result.generated_tokens, FIXTURE_CONTEXT - n + 1); /* the last one needs no room */
        expect_text(got.ids, got.n_ids, false);
        size_t held;
        spry_session_tokens(session, &held);
        assert_int_equal(held, FIXTURE_CONTEXT);
    }
    spry_request request = ask(5); /* asked for less than there is room for */
    request.prompt = long_prompt;
    request.n_prompt = FIXTURE_CONTEXT - 5;
    spry_result result = answer(&request);
    assert_int_equal(result.finish, SPRY_FINISH_LENGTH);
}

/* The next question holds the last answer: all of it but its last token has been computed. */
static void test_next_turn(void **state)
{
    (void)state;
    int32_t ids[100];
    spry_request request = ask(20);
    answer(&request);
    memcpy(ids, prompt, sizeof prompt);
    memcpy(ids + SPRY_COUNT(prompt), got.ids, 20 * sizeof *ids);
    fixture_ids(ids + SPRY_COUNT(prompt) + 20, 10, 8);
    size_t held, n = SPRY_COUNT(prompt) + 30;
    const int32_t *tokens = spry_session_tokens(session, &held);
    assert_int_equal(held, SPRY_COUNT(prompt) + 19);
    assert_memory_equal(tokens, ids, held * sizeof *ids);
    request = ask(10);
    request.prompt = ids;
    request.n_prompt = n;
    spry_result result = answer(&request);
    assert_int_equal(result.reused_tokens, SPRY_COUNT(prompt) + 19);
    int32_t warm[10];
    memcpy(warm, got.ids, sizeof warm);
    greedy_after(ids + 5, 20); /* forgets */
    request = ask(10);
    request.prompt = ids;
    request.n_prompt = n;
    result = answer(&request);
    assert_int_equal(result.reused_tokens, 0);
    assert_memory_equal(got.ids, warm, sizeof warm);
    request = ask(10); /* the same prompt again: only its last token is computed */
    request.prompt = ids;
    request.n_prompt = n;
    result = answer(&request);
    assert_int_equal(result.reused_tokens, n - 1);
}

/* ---- stop strings ----------------------------------------------------------------------------------------------- */

static void test_stop_strings(void **state)
{
    (void)state;
    enum { N = 60 };
    static char whole[HEARD_TEXT];
    spry_request request = ask(N);
    answer(&request);
    memcpy(whole, got.text, got.size + 1);
    size_t size = got.size, stopped = 0;
    for (size_t begin = 0; begin < size; begin++)
        for (size_t length = 1; length <= 7; length += 3) { /* within a token, and over the borders of some */
            char stop[8];
            const char *stops[] = {"never in it", stop};
            if (begin + length > size || !spry_utf8_valid((spry_view){whole + begin, length}) ||
                memchr(whole + begin, 0, length))
                continue;
            memcpy(stop, whole + begin, length);
            stop[length] = 0;
            request = ask(N);
            request.stop = stops;
            request.n_stop = 2;
            spry_result result = answer(&request);
            size_t expected = (size_t)(strstr(whole, stop) - whole);
            assert_int_equal(result.finish, SPRY_FINISH_STOP);
            assert_int_equal(got.size, expected);
            assert_memory_equal(got.text, whole, expected);
            stopped++;
        }
    assert_true(stopped > 50);
    /* What might have become a stop string comes out when the answer ends otherwise. */
    char almost[HEARD_TEXT + 2];
    for (size_t tail = 1; tail < 9 && tail < size; tail++) {
        if (!spry_utf8_valid(spry_view_of(whole + size - tail)))
            continue;
        snprintf(almost, sizeof almost, "%sX", whole + size - tail);
        const char *stops[] = {almost};
        request = ask(N);
        request.stop = stops;
        request.n_stop = 1;
        spry_result result = answer(&request);
        assert_int_equal(result.finish, SPRY_FINISH_LENGTH);
        assert_string_equal(got.text, whole);
    }
}

/* A stop string inside the beginning of a longer one still counts when the text ends there. */
static void test_undecided_at_the_end(void **state)
{
    (void)state;
    static char whole[HEARD_TEXT], longer[HEARD_TEXT + 2], inner[8];
    spry_request request = ask(60);
    answer(&request);
    memcpy(whole, got.text, got.size + 1);
    size_t begin = got.size - 6;
    while (!spry_utf8_valid(spry_view_of(whole + begin)) || !spry_utf8_valid(spry_view_of(whole + begin + 3)) ||
           strstr(whole, whole + begin + 3) != whole + begin + 3)
        assert_true(--begin > 0);
    snprintf(longer, sizeof longer, "%sX", whole + begin);
    snprintf(inner, sizeof inner, "%.7s", whole + begin + 3);
    const char *stops[] = {longer, inner};
    request = ask(60);
    request.stop = stops;
    request.n_stop = 2;
    spry_result result = answer(&request);
    size_t expected = (size_t)(strstr(whole, inner) - whole);
    assert_int_equal(result.finish, SPRY_FINISH_STOP);
    assert_int_equal(got.size, expected);
}

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

/* Rows that only pad the embedding have no token: drawing one is no error and says nothing. */
static void test_padded_vocabulary(void **state)
{
    (void)state;
    scratch place;
    char source[SCRATCH_PATH];
    spry_engine_options options;
    spry_error error = {0};
    spry_engine *mine = engine;
    spry_session *my_session = session;
    const spry_logit_bias bias = {515, 1000};
    json_t *config =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "model_type", "llama", "hidden_size", 64, "intermediate_size",
                  96, "num_hidden_layers", 1, "num_attention_heads", 4, "num_key_value_heads", 2, "vocab_size", 520);
    scratch_init(&place);
    made_model_write(&place, config);
    assert_int_equal(symlink(model_path(source, "llama", "tokenizer.json"), scratch_path(&place, "tokenizer.json")), 0);
    spry_engine_options_default(&options);
    if (spry_engine_open(&engine, place.folder, &options, &error))
        fail_msg("%s", error.message);
    session = fixture_session(engine);
    spry_request request = ask(4);
    request.sampling.bias = &bias;
    request.sampling.n_bias = 1;
    spry_result result = answer(&request);
    assert_int_equal(result.generated_tokens, 4);
    assert_true(got.ids[3] == 515 && got.size == 0);
    spry_session_destroy(session);
    spry_engine_close(engine);
    engine = mine;
    session = my_session;
    scratch_deinit(&place);
    json_decref(config);
}

static int set_up(void **state)
{
    (void)state;
    engine = fixture_open("llama", NULL);
    session = fixture_session(engine);
    fixture_ids(prompt, SPRY_COUNT(prompt), 77);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    spry_session_destroy(session);
    spry_engine_close(engine);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_threads_and_chunks),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_end_token),
        cmocka_unit_test(test_full_context),
        cmocka_unit_test(test_next_turn),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_undecided_at_the_end),
        cmocka_unit_test(test_cancel_from_callbacks),
        cmocka_unit_test(test_cancel_prefill),
        cmocka_unit_test(test_cancel_from_a_signal),
        cmocka_unit_test(test_cancel_from_a_thread),
        cmocka_unit_test(test_wrong_requests),
        cmocka_unit_test(test_padded_vocabulary),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
