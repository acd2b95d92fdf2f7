/* Drafting through the engine: the same tokens with any drafter, at any temperature, cached or cold; and
 * everything that can go wrong in the middle of a guess. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "spry.h"
#include "support/fixed_costs.h"
#include "support/hostile.h"

#if SPRY_SANITIZE_ADDRESS
enum { N_PROMPTS = 12 };
#else
enum { N_PROMPTS = 200 };
#endif
enum { N_TOKENS = 16, PROMPT_MAX = 256, KEPT = 512 };

static spry_engine *target, *drafter;
static spry_session *session;
static bool precise;

static int open_pair(void **state)
{
    (void)state;
    spry_engine_options options;
    spry_error error;
    spry_engine_options_default(&options);
    options.context = 320;
    options.threads = 2;
    if (spry_engine_open(&target, MODELS_DIR "/Spry-Tales-29M.gguf", &options, &error) ||
        spry_engine_open(&drafter, MODELS_DIR "/Spry-Tales-Draft-4M.gguf", &options, &error) ||
        spry_engine_set_drafter(target, drafter, &error) || spry_session_create(&session, target, &error))
        fail_msg("%s", error.message);
    return 0;
}

static int close_pair(void **state)
{
    (void)state;
    spry_session_destroy(session);
    spry_engine_close(target);
    spry_engine_close(drafter);
    return 0;
}

typedef struct kept {
    int32_t ids[KEPT];
    size_t count, stop_after; /* tokens after which the callback says no; 0: never */
} kept;

static bool keep(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    (void)top;
    (void)n_top;
    kept *k = user;
    assert_true(k->count < KEPT);
    k->ids[k->count++] = token.id;
    return !k->stop_after || k->count < k->stop_after;
}

static size_t tokenize(int32_t *ids, const char *text)
{
    size_t count;
    spry_error error;
    if (spry_engine_tokenize(target, ids, PROMPT_MAX, &count, text, strlen(text), false, &error))
        fail_msg("%s", error.message);
    assert_in_range(count, 1, PROMPT_MAX);
    return count;
}

static spry_result answer(kept *out, const int32_t *ids, size_t count, spry_speculation who, float temperature)
{
    spry_request request;
    spry_result result;
    spry_error error;
    spry_request_default(&request);
    request.prompt = ids;
    request.n_prompt = count;
    request.max_tokens = N_TOKENS;
    request.sampling.temperature = temperature;
    if (temperature > 0) { /* everything that decides a draw */
        request.sampling.repeat_penalty = 1.1f;
        request.sampling.frequency_penalty = 0.2f;
        request.sampling.top_k = 40;
        request.sampling.top_p = 0.95f;
    }
    request.sampling.seed = count;
    request.speculation = who;
    request.draft_precise = precise;
    request.on_token = keep;
    request.user = out;
    out->count = 0;
    if (spry_session_generate(session, &result, &request, &error))
        fail_msg("%s", error.message);
    return result;
}

static void same(const kept *a, const kept *b, const char *what)
{
    if (a->count != b->count || memcmp(a->ids, b->ids, a->count * sizeof *a->ids))
        fail_msg("other tokens: %s", what);
}

static void make_prompt(char *out, size_t size, size_t i)
{
    static const char *const who[] = {"fox", "small boat", "girl with a lamp", "cat", "king"};
    static const char *const where[] = {"in a forest", "by the sea", "on a hill", "in an old house"};
    static const char *const how[] = {"Once upon a time there was a",
                                      "Tell me of the",
                                      "The day the",
                                      "Nobody knew the",
                                      "Every morning the",
                                      "Far away lived a",
                                      "When the",
                                      "Long ago a",
                                      "I saw the",
                                      "Listen: the"};
    snprintf(out, size, "%s %s %s", how[i / 20 % SPRY_COUNT(how)], who[i % SPRY_COUNT(who)],
             where[i / 5 % SPRY_COUNT(where)]);
}

static void test_same_tokens(void **state)
{
    (void)state;
    size_t drafted = 0, accepted = 0;
    for (size_t i = 0; i < N_PROMPTS; i++) {
        char text[128];
        int32_t ids[PROMPT_MAX];
        kept plain, other;
        make_prompt(text, sizeof text, i);
        size_t count = tokenize(ids, text);
        float temperature = i % 4 == 3 ? 0.9f : 0;
        answer(&plain, ids, count, SPRY_DRAFT_NONE, temperature);
        spry_result lookup = answer(&other, ids, count, SPRY_DRAFT_LOOKUP, temperature);
        same(&plain, &other, "lookup, cached");
        spry_session_set_salt(session, &i, sizeof i); /* cold from here on */
        spry_result model = answer(&other, ids, count, SPRY_DRAFT_MODEL, temperature);
        same(&plain, &other, "a drafter, cold");
        answer(&other, ids, count, SPRY_DRAFT_AUTO, temperature);
        same(&plain, &other, "auto, cached");
        drafted += lookup.drafts.drafted + model.drafts.drafted;
        accepted += lookup.drafts.accepted + model.drafts.accepted;
        assert_true(model.drafts.accepted <= model.drafts.drafted);
    }
    print_message("%zu drafted, %zu accepted\n", drafted, accepted);
    assert_true(drafted > N_PROMPTS / 4 && accepted > 0 && accepted < drafted);
}

/* In precise mode hardly a draft is refused: the drafter stops where it is not sure. */
static void test_precise(void **state)
{
    (void)state;
    size_t drafted[2] = {0}, accepted[2] = {0};
    for (size_t i = 0; i < N_PROMPTS / 2; i++) {
        char text[128];
        int32_t ids[PROMPT_MAX];
        kept plain, other;
        make_prompt(text, sizeof text, 2 * i);
        size_t count = tokenize(ids, text);
        answer(&plain, ids, count, SPRY_DRAFT_NONE, 0);
        for (size_t way = 0; way < 2; way++) {
            precise = way;
            spry_result result = answer(&other, ids, count, SPRY_DRAFT_MODEL, 0);
            same(&plain, &other, precise ? "precise" : "fast");
            drafted[way] += result.drafts.drafted;
            accepted[way] += result.drafts.accepted;
        }
    }
    precise = false;
    print_message("fast: %zu of %zu accepted; precise: %zu of %zu\n", accepted[0], drafted[0], accepted[1], drafted[1]);
    assert_true(10 * accepted[0] < 9 * drafted[0]);
    assert_true(drafted[1] && 10 * accepted[1] >= 9 * drafted[1]);
}

/* How many tokens are guessed at once is bounded by what was asked for, whatever that is. */
static void test_most(void **state)
{
    (void)state;
    static const uint32_t most[] = {0, 1, 2, 64, UINT32_MAX};
    int32_t ids[PROMPT_MAX];
    size_t count = tokenize(ids, "a b c d a b c d a b c d a b c d a b");
    kept plain, other;
    answer(&plain, ids, count, SPRY_DRAFT_NONE, 0);
    for (size_t i = 0; i < SPRY_COUNT(most); i++) {
        spry_request request;
        spry_result result;
        spry_request_default(&request);
        request.prompt = ids;
        request.n_prompt = count;
        request.max_tokens = N_TOKENS;
        request.sampling.temperature = 0;
        request.sampling.seed = count;
        request.speculation = SPRY_DRAFT_LOOKUP;
        request.draft_most = most[i];
        request.on_token = keep;
        request.user = &other;
        other.count = 0;
        assert_int_equal(spry_session_generate(session, &result, &request, NULL), SPRY_OK);
        same(&plain, &other, "a bounded guess");
        for (size_t k = most[i] ? (size_t)most[i] + 1 : SPRY_DRAFT_MOST + 1; k <= SPRY_DRAFT_MOST; k++)
            assert_int_equal(result.drafts.lengths[k], 0);
    }
}

/* The context ends, a stop string comes, a callback returns false: each in the middle of a draft. */
static void test_ends(void **state)
{
    (void)state;
    int32_t ids[320];
    kept plain, other = {.count = 0};
    for (size_t i = 0; i < 320; i++)
        ids[i] = (int32_t)(300 + i % 7);
    for (size_t left = 1; left < 24; left += 5) {
        spry_request request;
        spry_result result;
        spry_request_default(&request);
        request.prompt = ids;
        request.n_prompt = 320 - left;
        request.ignore_end = true;
        request.sampling.temperature = 0;
        request.on_token = keep;
        for (int guess = 0; guess < 2; guess++) {
            kept *out = guess ? &other : &plain;
            *out = (kept){.stop_after = left > 15 ? left / 2 : 0};
            request.user = out;
            request.speculation = guess ? SPRY_DRAFT_LOOKUP : SPRY_DRAFT_NONE;
            assert_int_equal(spry_session_generate(session, &result, &request, NULL), SPRY_OK);
            assert_int_equal(result.finish, left > 15 ? SPRY_FINISH_CANCELLED : SPRY_FINISH_CONTEXT);
        }
        same(&plain, &other, "at the end of the context");
    }
}

static bool add_text(void *user, const char *text, size_t size)
{
    char *out = user;
    size_t used = strlen(out);
    assert_true(used + size < 1000);
    memcpy(out + used, text, size);
    out[used + size] = 0;
    return true;
}

static void test_stop_strings(void **state)
{
    (void)state;
    int32_t ids[PROMPT_MAX];
    char whole[1000] = "", plain[1000], guessed[1000];
    size_t count = tokenize(ids, "The fox and the bear. The fox and the bear. The fox and");
    spry_request request;
    spry_result result;
    spry_request_default(&request);
    request.prompt = ids;
    request.n_prompt = count;
    request.max_tokens = 30;
    request.sampling.temperature = 0;
    request.on_text = add_text;
    request.user = whole;
    assert_int_equal(spry_session_generate(session, &result, &request, NULL), SPRY_OK);
    for (size_t at = 0; at + 3 < strlen(whole); at += 2) {
        char stop[8];
        snprintf(stop, sizeof stop, "%.3s", whole + at);
        if ((unsigned char)stop[0] >= 0x80 || (unsigned char)stop[2] >= 0x80)
            continue;
        const char *const stops[] = {stop};
        request.stop = stops;
        request.n_stop = 1;
        for (int guess = 0; guess < 2; guess++) {
            char *out = guess ? guessed : plain;
            out[0] = 0;
            request.user = out;
            request.speculation = guess ? SPRY_DRAFT_MODEL : SPRY_DRAFT_NONE;
            assert_int_equal(spry_session_generate(session, &result, &request, NULL), SPRY_OK);
            assert_int_equal(result.finish, SPRY_FINISH_STOP);
        }
        assert_string_equal(plain, guessed);
        assert_null(strstr(guessed, stop));
    }
}

static void test_wrong_drafters(void **state)
{
    (void)state;
    spry_engine_options options;
    spry_engine *other, *small;
    spry_error error = {0};
    spry_engine_options_default(&options);
    assert_int_equal(spry_engine_open(&small, MODELS_DIR "/Spry-Tales-Draft-4M.gguf", &options, &error), SPRY_OK);
    assert_int_equal(spry_engine_open(&other, TEST_DATA "/models/qwen3", &options, &error), SPRY_OK);
    hostile_expect(spry_engine_set_drafter(small, other, &error), &error, SPRY_ERR_UNSUPPORTED,
                   "cannot draft|7929 of 8192|vocabularies");
    spry_engine_close(other);
    assert_int_equal(spry_engine_open(&other, MODELS_DIR "/Spry-Tales-29M.gguf", &options, &error), SPRY_OK);
    hostile_expect(spry_engine_set_drafter(small, other, &error), &error, SPRY_ERR_UNSUPPORTED, "not smaller");
    assert_int_equal(spry_engine_set_drafter(other, small, &error), SPRY_OK);
    assert_int_equal(spry_engine_set_drafter(other, NULL, &error), SPRY_OK);
    spry_session *lonely;
    spry_result result;
    spry_request request;
    int32_t ids[PROMPT_MAX];
    spry_request_default(&request);
    request.n_prompt = tokenize(ids, "A tale");
    request.prompt = ids;
    request.speculation = SPRY_DRAFT_MODEL;
    assert_int_equal(spry_session_create(&lonely, other, &error), SPRY_OK);
    hostile_expect(spry_session_generate(lonely, &result, &request, &error), &error, SPRY_ERR_INPUT, "no drafter");
    spry_session_destroy(lonely);
    spry_engine_close(other);
    spry_engine_close(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_tokens), cmocka_unit_test(test_precise),      cmocka_unit_test(test_most),
        cmocka_unit_test(test_ends),        cmocka_unit_test(test_stop_strings), cmocka_unit_test(test_wrong_drafters),
    };
    return cmocka_run_group_tests(tests, open_pair, close_pair);
}
