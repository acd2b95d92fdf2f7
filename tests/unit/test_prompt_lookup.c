/* Prompt lookup against the definition of what it does, spelled out in a few slow lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "draft/prompt_lookup.h"
#include "platform/clock.h"
#include "sampling/sampler.h"

enum { DRAFT = 9 };

static spry_prompt_lookup *create(size_t capacity, uint32_t min_match, uint32_t max_match)
{
    spry_prompt_lookup *lookup;
    spry_error error = {0};
    assert_int_equal(spry_prompt_lookup_create(&lookup, &(spry_lookup_limits){capacity, min_match, max_match}, &error),
                     SPRY_OK);
    return lookup;
}

static void append(spry_prompt_lookup *lookup, const int32_t *tokens, size_t count)
{
    spry_error error = {0};
    assert_int_equal(spry_prompt_lookup_append(lookup, tokens, count, &error), SPRY_OK);
}

/* The longest match first, of equals the latest. The end of the match, 0 for none. */
static size_t slow_match(const int32_t *tokens, size_t n, uint32_t min_match, uint32_t max_match, uint32_t *match)
{
    for (size_t length = max_match; length >= min_match; length--)
        for (size_t end = n; n > length && end-- > length;)
            if (!memcmp(tokens + end - length, tokens + n - length, length * sizeof *tokens)) {
                *match = (uint32_t)length;
                return end;
            }
    *match = 0;
    return 0;
}

static void assert_same(const spry_prompt_lookup *lookup, const int32_t *tokens, size_t n, uint32_t min_match,
                        uint32_t max_match)
{
    uint32_t expected_match, match;
    int32_t draft[DRAFT];
    size_t end = slow_match(tokens, n, min_match, max_match, &expected_match);
    size_t count = spry_prompt_lookup_propose(lookup, draft, &match, DRAFT);
    assert_int_equal(match, expected_match);
    assert_int_equal(count, end ? DRAFT : 0);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(draft[i], tokens[end + i % (n - end)]); /* a copy that reaches the end repeats */
}

/* ---- known answers ------------------------------------------------------------------------------------------------
 */

static void test_known(void **state)
{
    (void)state;
    static const int32_t tokens[] = {1, 2, 3, 10, 11, 2, 3, 20, 21, 1, 2, 3};
    spry_prompt_lookup *lookup = create(12, 2, 4);
    int32_t draft[4];
    uint32_t match = 77;
    assert_int_equal(spry_prompt_lookup_propose(lookup, draft, &match, 4), 0);
    assert_int_equal(match, 0);
    append(lookup, tokens, 7); /* ends with 2 3, which 10 and 11 followed */
    assert_int_equal(spry_prompt_lookup_propose(lookup, draft, &match, 2), 2);
    assert_int_equal(match, 2);
    assert_memory_equal(draft, ((int32_t[]){10, 11}), 2 * sizeof *draft);
    append(lookup, tokens + 7, 5); /* 1 2 3 is longer than the later 2 3 */
    assert_int_equal(spry_prompt_lookup_propose(lookup, draft, &match, 4), 4);
    assert_int_equal(match, 3);
    assert_memory_equal(draft, ((int32_t[]){10, 11, 2, 3}), sizeof draft);
    assert_int_equal(spry_prompt_lookup_propose(lookup, draft, &match, 0), 0);

    spry_error error = {0};
    assert_int_equal(spry_prompt_lookup_append(lookup, tokens, 1, &error), SPRY_ERR_CONTEXT);
    assert_int_equal(spry_prompt_lookup_propose(lookup, draft, &match, 4), 4); /* nothing changed */
    assert_memory_equal(draft, ((int32_t[]){10, 11, 2, 3}), sizeof draft);
    spry_prompt_lookup_destroy(lookup);
    spry_prompt_lookup_destroy(NULL);
}

static void test_repetition_goes_on(void **state)
{
    (void)state;
    static const int32_t tokens[] = {9, 7, 8, 7, 8, 7};
    spry_prompt_lookup *lookup = create(100, 1, 8);
    int32_t draft[5];
    uint32_t match;
    append(lookup, tokens, 6);
    assert_int_equal(spry_prompt_lookup_propose(lookup, draft, &match, 5), 5);
    assert_int_equal(match, 3);
    assert_memory_equal(draft, ((int32_t[]){8, 7, 8, 7, 8}), sizeof draft);
    spry_prompt_lookup_destroy(lookup);
}

static void test_limits(void **state)
{
    (void)state;
    static const spry_lookup_limits wrong[] = {
        {0, 2, 8},        {100, 0, 8},           {100, 3, 2}, {100, 1, SPRY_LOOKUP_MATCH_MOST + 1},
        {SIZE_MAX, 1, 1}, {SIZE_MAX / 8, 1, 16},
    };
    for (size_t i = 0; i < SPRY_COUNT(wrong); i++) {
        spry_prompt_lookup *lookup;
        spry_error error = {0};
        assert_int_equal(spry_prompt_lookup_create(&lookup, &wrong[i], &error), SPRY_ERR_INPUT);
        assert_null(lookup);
    }
    size_t bytes;
    assert_true(spry_prompt_lookup_bytes(&bytes, &(spry_lookup_limits){32768, 2, 8}));
    assert_true(bytes < 3u << 20);
}

/* ---- against the slow lines ---------------------------------------------------------------------------------------
 */

/* Random appends and rollbacks over few tokens, so that matches of every length are common. */
static void test_random_edits(void **state)
{
    (void)state;
    enum { CAPACITY = 300 };
    static const struct {
        uint32_t min_match, max_match, n_tokens;
    } kinds[] = {{1, 1, 3}, {2, 8, 2}, {2, 8, 4}, {3, 5, 3}, {1, 16, 2}, {16, 16, 1}, {2, 4, 30}};
    for (size_t kind = 0; kind < SPRY_COUNT(kinds); kind++) {
        spry_random random;
        spry_random_seed(&random, kind);
        int32_t tokens[CAPACITY];
        size_t n = 0;
        spry_prompt_lookup *lookup = create(CAPACITY, kinds[kind].min_match, kinds[kind].max_match);
        for (int edit = 0; edit < 400; edit++) {
            uint64_t what = spry_random_next(&random) % 16;
            if (what == 0) {
                n = spry_random_next(&random) % (n + 1);
                spry_prompt_lookup_truncate(lookup, n);
            } else if (what == 1) {
                spry_prompt_lookup_truncate(lookup, n + 5); /* nothing to forget */
            } else {
                size_t first = n;
                for (size_t more = what; more && n < CAPACITY; more--)
                    tokens[n++] = (int32_t)(spry_random_next(&random) % kinds[kind].n_tokens);
                append(lookup, tokens + first, n - first);
            }
            assert_same(lookup, tokens, n, kinds[kind].min_match, kinds[kind].max_match);
        }
        spry_prompt_lookup_destroy(lookup);
    }
}

/* What was appended and forgotten leaves no trace: neither in matches nor in the room for new ones. */
static void test_rollback_leaves_nothing(void **state)
{
    (void)state;
    enum { N = 64 };
    int32_t kept[N], other[N];
    for (int32_t i = 0; i < N; i++) {
        kept[i] = i % 23;
        other[i] = 1000 + i % 17;
    }
    spry_prompt_lookup *lookup = create(2 * N, 2, 8);
    append(lookup, kept, N);
    for (int round = 0; round < 200; round++) {
        append(lookup, other, N);
        spry_prompt_lookup_truncate(lookup, N);
        for (int32_t i = 0; i < N; i++)
            other[i] += 17;
        assert_same(lookup, kept, N, 2, 8);
    }
    int32_t draft[1];
    uint32_t match;
    append(lookup, other, 17);
    assert_int_equal(spry_prompt_lookup_propose(lookup, draft, &match, 1), 0);
    spry_prompt_lookup_truncate(lookup, 0);
    append(lookup, kept, 23);
    assert_int_equal(spry_prompt_lookup_propose(lookup, draft, &match, 1), 0);
    spry_prompt_lookup_destroy(lookup);
}

static void test_follow(void **state)
{
    (void)state;
    static const int32_t first[] = {1, 2, 3, 4, 1, 2}, second[] = {1, 2, 5, 6, 1, 2, 5};
    spry_prompt_lookup *lookup = create(8, 2, 8);
    spry_error error = {0};
    assert_int_equal(spry_prompt_lookup_follow(lookup, first, 6, &error), SPRY_OK);
    assert_same(lookup, first, 6, 2, 8);
    assert_int_equal(spry_prompt_lookup_follow(lookup, second, 7, &error), SPRY_OK);
    assert_same(lookup, second, 7, 2, 8);
    assert_int_equal(spry_prompt_lookup_follow(lookup, second, 2, &error), SPRY_OK);
    assert_same(lookup, second, 2, 2, 8);
    assert_int_equal(spry_prompt_lookup_follow(lookup, NULL, 0, &error), SPRY_OK);
    assert_same(lookup, NULL, 0, 2, 8);
    spry_prompt_lookup_destroy(lookup);
}

/* ---- tokens chosen to do harm -------------------------------------------------------------------------------------
 */

/* Tokens that all want the same slots of a table of 512, by the hash of prompt_lookup.c. Some of their matches are
 * missed, but none is wrong, and forgetting them is exact. */
static void test_collisions(void **state)
{
    (void)state;
    enum { N = 100, CAPACITY = 256, SLOTS = 512 };
    int32_t tokens[2 * N];
    size_t n = 0;
    for (uint32_t token = 0; n < N; token++) {
        uint64_t hash = token * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
        if (((hash ^ (hash >> 47)) & (SLOTS - 1)) == 5 && (((hash >> 32) | 1) & (SLOTS - 1)) == 3)
            tokens[n++] = (int32_t)token;
    }
    memcpy(tokens + N, tokens, N * sizeof *tokens);
    spry_prompt_lookup *lookup = create(CAPACITY, 1, 1);
    size_t found = 0;
    for (int round = 0; round < 3; round++, spry_prompt_lookup_truncate(lookup, 0)) {
        found = 0;
        for (size_t i = 0; i < 2 * N; i++) {
            int32_t draft;
            uint32_t match;
            append(lookup, &tokens[i], 1);
            if (!spry_prompt_lookup_propose(lookup, &draft, &match, 1))
                continue;
            assert_true(i >= N);
            assert_int_equal(draft, tokens[i + 1 - N]);
            found++;
        }
        assert_in_range(found, 1, N - 1);
        for (size_t i = 2 * N; i-- > N;)
            spry_prompt_lookup_truncate(lookup, i);
    }
    static const int32_t fresh[] = {1, 2, 3, 1};
    append(lookup, fresh, 4);
    assert_same(lookup, fresh, 4, 1, 1);
    spry_prompt_lookup_destroy(lookup);
}

typedef int32_t token_at(size_t i);

static int32_t scattered(size_t i)
{
    return (int32_t)((i * 0x9e3779b97f4a7c15u >> 40) % 5000);
}

static int32_t equal(size_t i)
{
    (void)i;
    return 7;
}

static int32_t periodic(size_t i)
{
    return (int32_t)(i % 100);
}

/* Long runs that agree and then do not. */
static int32_t nearly_equal(size_t i)
{
    return i % 1000 == 999 ? (int32_t)i : 7;
}

static double milliseconds_once(token_at *token)
{
    enum { N = 32768 };
    spry_prompt_lookup *lookup = create(N, 2, 8);
    int32_t draft[DRAFT];
    uint32_t match;
    uint64_t start = spry_clock_ns();
    for (size_t i = 0; i < N; i++) {
        int32_t next = token(i);
        append(lookup, &next, 1);
        spry_prompt_lookup_propose(lookup, draft, &match, DRAFT);
    }
    double taken = (double)(spry_clock_ns() - start) / 1e6;
    spry_prompt_lookup_destroy(lookup);
    return taken;
}

/* The best of several, because the machine may be busy. */
static double milliseconds(token_at *token)
{
    double best = milliseconds_once(token);
    for (int i = 0; i < 4; i++)
        best = fmin(best, milliseconds_once(token));
    return best;
}

/* Whatever the text, the time is that of ordinary text or so. Quadratic time would be thousands of times as long. */
static void test_no_slow_text(void **state)
{
    (void)state;
    double ordinary = milliseconds(scattered);
    static token_at *const texts[] = {equal, periodic, nearly_equal};
    for (size_t i = 0; i < SPRY_COUNT(texts); i++)
        assert_true(milliseconds(texts[i]) < 20 * ordinary + 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_repetition_goes_on),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_random_edits),
        cmocka_unit_test(test_rollback_leaves_nothing),
        cmocka_unit_test(test_follow),
        cmocka_unit_test(test_collisions),
        cmocka_unit_test(test_no_slow_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
