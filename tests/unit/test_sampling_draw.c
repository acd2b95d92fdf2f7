/* The draw itself: the generator's known answers, known tokens for known seeds, and chi-square tests of many draws. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "sampling/candidates.h"
#include "sampling/sampler.h"
#include "support/best_ops.h"

static spry_sampling defaults(void)
{
    spry_sampling settings;
    spry_sampling_default(&settings);
    return settings;
}

static spry_sampler *create(size_t n_vocab, const spry_sampling *settings)
{
    spry_sampler *sampler;
    spry_error error = {0};
    assert_int_equal(spry_sampler_create(&sampler, best_ops(), n_vocab, &error), SPRY_OK);
    assert_int_equal(spry_sampler_set(sampler, settings, &error), SPRY_OK);
    return sampler;
}

static int32_t draw(spry_sampler *sampler, const float *logits)
{
    int32_t token = -1;
    spry_error error = {0};
    assert_int_equal(spry_sampler_draw(sampler, &token, logits, NULL, 0, NULL, &error), SPRY_OK);
    return token;
}

/* ---- known answers --------------------------------------------------------------------------------------------- */

/* Expected numbers come from a separate program that follows the published definition of xoshiro256** and splitmix64.
 */
static void test_generator(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed, first[4];
    } known[] = {
        {0, {0x99ec5f36cb75f2b4, 0xbf6e1f784956452a, 0x1a5f849d4933e6e0, 0x6aa594f1262d2d2c}},
        {1, {0xb3f2af6d0fc710c5, 0x853b559647364cea, 0x92f89756082a4514, 0x642e1c7bc266a3a7}},
        {42, {0x15780b2e0c2ec716, 0x6104d9866d113a7e, 0xae17533239e499a1, 0xecb8ad4703b360a1}},
    };
    spry_random random;
    for (size_t i = 0; i < SPRY_COUNT(known); i++) {
        spry_random_seed(&random, known[i].seed);
        for (size_t k = 0; k < 4; k++)
            assert_true(spry_random_next(&random) == known[i].first[k]);
    }
    spry_random_seed(&random, 42);
    assert_true(spry_random_unit(&random) == (double)(0x15780b2e0c2ec716u >> 11) / 9007199254740992.0);
}

enum { KNOWN_VOCAB = 300, KNOWN_DRAWS = 12 };

static void fill_known_logits(float *logits)
{
    for (size_t i = 0; i < KNOWN_VOCAB; i++)
        logits[i] = (float)(i * 37 % 101) / 10.0f;
}

/* Expected tokens come from the same separate program, which walks the exact distribution in order of token id. */
static void test_known_tokens(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed;
        uint32_t top_k;
        int32_t tokens[KNOWN_DRAWS];
    } known[] = {
        {42, 0, {27, 117, 204, 278, 297, 232, 218, 253, 229, 174, 206, 87}},
        {7, 0, {210, 84, 251, 292, 296, 262, 19, 30, 121, 46, 161, 221}},
        {42, 20, {19, 120, 210, 281, 292, 232, 221, 251, 232, 180, 210, 90}},
    };
    float logits[KNOWN_VOCAB];
    fill_known_logits(logits);
    for (size_t i = 0; i < SPRY_COUNT(known); i++) {
        spry_sampling s = defaults();
        s.temperature = 2;
        s.seed = known[i].seed;
        s.top_k = known[i].top_k;
        spry_sampler *sampler = create(KNOWN_VOCAB, &s);
        for (size_t k = 0; k < KNOWN_DRAWS; k++)
            assert_int_equal(draw(sampler, logits), known[i].tokens[k]);
        spry_sampler_destroy(sampler);
    }
}

/* One number a draw, none for looking or failing; setting starts over. */
static void test_stream(void **state)
{
    (void)state;
    float logits[KNOWN_VOCAB], probabilities[KNOWN_VOCAB], bad[KNOWN_VOCAB];
    fill_known_logits(logits);
    fill_known_logits(bad);
    bad[3] = NAN;
    spry_sampling s = defaults();
    spry_error error = {0};
    s.temperature = 2;
    s.seed = 42;
    spry_sampler *sampler = create(KNOWN_VOCAB, &s);
    assert_int_equal(draw(sampler, logits), 27);
    assert_int_equal(spry_sampler_probabilities(sampler, probabilities, logits, NULL, 0, NULL, &error), SPRY_OK);
    int32_t token;
    assert_int_equal(spry_sampler_draw(sampler, &token, bad, NULL, 0, NULL, &error), SPRY_ERR_INPUT);
    assert_int_equal(draw(sampler, logits), 117);
    assert_int_equal(spry_sampler_set(sampler, &s, &error), SPRY_OK);
    assert_int_equal(draw(sampler, logits), 27);
    s.temperature = 0;
    assert_int_equal(spry_sampler_set(sampler, &s, &error), SPRY_OK);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(draw(sampler, logits), 30); /* 30 * 37 % 101 is 100, the first of the largest */
    s.top_p = 7;
    assert_int_equal(spry_sampler_set(sampler, &s, &error), SPRY_ERR_INPUT); /* refused: the old settings stay */
    assert_int_equal(draw(sampler, logits), 30);
    spry_sampler_destroy(sampler);
}

/* The ends of the line, with tokens that cannot be drawn before, between and after others, within and across blocks. */
static void test_pick_ends(void **state)
{
    (void)state;
    enum { N = 400 };
    static const size_t alive[] = {70, 71, 130, 199, 260};
    spry_candidates c;
    spry_error error = {0};
    assert_int_equal(spry_candidates_init(&c, best_ops(), N, &error), SPRY_OK);
    for (size_t i = 0; i < N; i++)
        c.scores[i] = -INFINITY;
    for (size_t i = 0; i < SPRY_COUNT(alive); i++)
        c.scores[alive[i]] = (float)i / 3;
    assert_true(spry_candidates_start(&c));
    spry_candidates_temper(&c, 0.7f);
    spry_candidates_weigh(&c);
    assert_int_equal(spry_candidates_pick(&c, 0), 70);
    assert_int_equal(spry_candidates_pick(&c, 1 - 0x1p-53), 260);
    assert_int_equal(spry_candidates_pick(&c, 1), 260); /* as rounding could make it */
    double before = 0;
    for (size_t i = 0; i < SPRY_COUNT(alive); i++) {
        double share = c.weights[alive[i]] / c.total;
        assert_int_equal(spry_candidates_pick(&c, before + share * 0.001), alive[i]);
        assert_int_equal(spry_candidates_pick(&c, before + share * 0.999), alive[i]);
        before += share;
    }
    spry_candidates_deinit(&c);
}

/* ---- chi-square
 * ------------------------------------------------------------------------------------------------------ */

enum { DRAWS = 100000, VOCAB = 60 };

static void fill_logits(float *logits)
{
    spry_random random;
    spry_random_seed(&random, 5);
    for (size_t i = 0; i < VOCAB; i++)
        logits[i] = (float)(6 * spry_random_unit(&random) - 3);
    logits[17] = logits[18]; /* equals */
    logits[40] = -INFINITY;
}

static void count_draws(size_t *counts, const spry_sampling *settings, const float *logits)
{
    spry_sampler *sampler = create(VOCAB, settings);
    for (size_t i = 0; i < VOCAB; i++)
        counts[i] = 0;
    for (size_t i = 0; i < DRAWS; i++)
        counts[draw(sampler, logits)]++;
    spry_sampler_destroy(sampler);
}

/* Sum of (count - expected)^2 / expected. Tokens expected fewer than 5 times share a cell. A draw of what has
 * probability 0 counts as infinitely bad. */
static double chi_square(size_t *cells, const size_t *counts, const float *probabilities)
{
    double statistic = 0, rare_expected = 0, rare_counts = 0;
    *cells = 0;
    for (size_t i = 0; i < VOCAB; i++) {
        double expected = (double)probabilities[i] * DRAWS;
        if (expected == 0 && counts[i] > 0)
            return INFINITY;
        if (expected < 5) {
            rare_expected += expected;
            rare_counts += (double)counts[i];
            continue;
        }
        statistic += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
        ++*cells;
    }
    if (rare_expected >= 1) {
        statistic += (rare_counts - rare_expected) * (rare_counts - rare_expected) / rare_expected;
        ++*cells;
    }
    return statistic;
}

/* What a correct sampler passes only once in a million: the quantile of the chi-square distribution at 1 - 1e-6, after
 * Wilson and Hilferty, with 4.7534 the normal distribution's. */
static double chi_square_limit(size_t cells)
{
    double freedom = (double)cells - 1, ninth = 2 / (9 * freedom);
    return freedom * pow(1 - ninth + 4.753424 * sqrt(ninth), 3);
}

static double excess(const spry_sampling *drawn, const spry_sampling *expected, const float *logits)
{
    float probabilities[VOCAB];
    size_t counts[VOCAB], cells;
    spry_error error = {0};
    spry_sampler *sampler = create(VOCAB, expected);
    assert_int_equal(spry_sampler_probabilities(sampler, probabilities, logits, NULL, 0, NULL, &error), SPRY_OK);
    spry_sampler_destroy(sampler);
    count_draws(counts, drawn, logits);
    double statistic = chi_square(&cells, counts, probabilities);
    assert_true(cells >= 3);
    return statistic / chi_square_limit(cells);
}

static void test_draws_follow_the_distribution(void **state)
{
    (void)state;
    float logits[VOCAB];
    fill_logits(logits);
    spry_sampling settings[7];
    for (size_t i = 0; i < SPRY_COUNT(settings); i++) {
        settings[i] = defaults();
        settings[i].seed = 100 + i;
    }
    settings[1].temperature = 0.5f;
    settings[2].temperature = 5;
    settings[3].top_k = 9;
    settings[4].top_p = 0.8f;
    settings[5].min_p = 0.2f;
    settings[6].typical_p = 0.6f;
    settings[6].top_k = 40;
    for (size_t i = 0; i < SPRY_COUNT(settings); i++) {
        double got = excess(&settings[i], &settings[i], logits);
        if (!(got < 1))
            fail_msg("settings %zu: chi-square is %.2f times its limit", i, got);
    }
}

/* The test above can fail: draws from slightly wrong distributions do. */
static void test_wrong_draws_are_noticed(void **state)
{
    (void)state;
    float logits[VOCAB];
    fill_logits(logits);
    spry_sampling right = defaults(), wrong = right;
    wrong.temperature = 1.05f;
    assert_true(excess(&wrong, &right, logits) > 1);
    wrong = right;
    spry_logit_bias bias = {0, -0.1f}; /* for the most probable token */
    for (int32_t i = 1; i < VOCAB; i++)
        if (logits[i] > logits[bias.token])
            bias.token = i;
    wrong.bias = &bias;
    wrong.n_bias = 1;
    assert_true(excess(&wrong, &right, logits) > 1);
    wrong = right;
    right.top_k = 58; /* one token too many */
    assert_true(excess(&wrong, &right, logits) > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generator),
        cmocka_unit_test(test_known_tokens),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_pick_ends),
        cmocka_unit_test(test_draws_follow_the_distribution),
        cmocka_unit_test(test_wrong_draws_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
