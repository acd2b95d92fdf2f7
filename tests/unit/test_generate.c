/* The public header, second part: answers. What is drawn is compared with drawing by hand from evaluated logits; where
 * an answer ends and what of it is given out, with what the whole text says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "spry.h"
#include "support/asking.h"
#include "support/hostile.h"
#include "support/made_model.h"

enum { END = 2, SPM_TOKENS = 2000 };

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
    assert_in_range(result.reused_tokens, SPRY_COUNT(prompt) + 19, n - 1); /* others may have computed more of it */
    int32_t warm[10];
    memcpy(warm, got.ids, sizeof warm);
    spry_session_set_salt(session, "another", 7); /* knows nothing */
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
    spry_session_set_salt(session, NULL, 0);
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

/* ---- other tokenizers ------------------------------------------------------------------------------------------- */

/* Puts an engine of random numbers with a tokenizer file beside them in the place of the usual one. */
static void use_made_model(scratch *place, size_t n_vocab, const char *tokenizer, const char *file)
{
    spry_engine_options options;
    spry_error error = {0};
    json_t *config = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "model_type", "llama", "hidden_size", 64,
                               "intermediate_size", 96, "num_hidden_layers", 1, "num_attention_heads", 4,
                               "num_key_value_heads", 2, "vocab_size", (int)n_vocab);
    scratch_init(place);
    made_model_write(place, config);
    assert_int_equal(symlink(tokenizer, scratch_path(place, file)), 0);
    spry_engine_options_default(&options);
    options.threads = 1;
    if (spry_engine_open(&engine, place->folder, &options, &error))
        fail_msg("%s", error.message);
    session = fixture_session(engine);
    json_decref(config);
}

static void leave_made_model(scratch *place, spry_engine *usual, spry_session *usual_session)
{
    spry_session_destroy(session);
    spry_engine_close(engine);
    engine = usual;
    session = usual_session;
    scratch_deinit(place);
}

static void expect_forced(int32_t id, const char *text)
{
    const spry_logit_bias bias = {id, 1000};
    spry_request request = ask(3);
    request.sampling.bias = &bias;
    request.sampling.n_bias = 1;
    spry_result result = answer(&request);
    assert_int_equal(result.generated_tokens, 3);
    assert_true(got.ids[0] == id && got.ids[2] == id);
    assert_string_equal(got.text, text);
}

/* Rows that only pad the embedding have no token: drawing one is no error and says nothing. */
static void test_padded_vocabulary(void **state)
{
    (void)state;
    scratch place;
    spry_engine *usual = engine;
    spry_session *usual_session = session;
    use_made_model(&place, 520, TEST_DATA "/models/llama/tokenizer.json", "tokenizer.json");
    expect_forced(515, "");
    leave_made_model(&place, usual, usual_session);
}

/* An answer goes on from its prompt: the space a SentencePiece token begins with stays, also on the first. */
static void test_leading_space(void **state)
{
    (void)state;
    scratch place;
    spry_engine *usual = engine;
    spry_session *usual_session = session;
    int32_t ids[16];
    size_t count;
    use_made_model(&place, SPM_TOKENS, TEST_DATA "/tokenizers/spm-llama/tokenizer.model", "tokenizer.model");
    assert_int_equal(spry_engine_tokenize(engine, ids, 16, &count, "a the", 5, false, NULL), SPRY_OK);
    assert_in_range(count, 2, 16);
    expect_forced(ids[count - 1], " the the the");
    leave_made_model(&place, usual, usual_session);
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
        cmocka_unit_test(test_padded_vocabulary),
        cmocka_unit_test(test_leading_space),
    };
    return cmocka_run_group_tests(tests, asking_set_up, asking_tear_down);
}
