/* The distribution a draw uses: against transformers' own probabilities, against a plain reference that sorts, and the
 * rules at the edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sampling_options.h"
#include "sampling/sampler.h"
#include "support/best_ops.h"

static spry_sampling defaults(void)
{
    spry_sampling settings;
    spry_sampling_default(&settings);
    return settings;
}

/* Probabilities of n tokens; the sampler lives only as long as this call. */
static spry_status distribution(float *probabilities, const spry_sampling *settings, const float *logits, size_t n,
                                const int32_t *history, size_t n_history, const uint32_t *mask, spry_error *error)
{
    spry_sampler *sampler;
    assert_int_equal(spry_sampler_create(&sampler, best_ops(), n, error), SPRY_OK);
    spry_status status = spry_sampler_set(sampler, settings, error);
    if (status == SPRY_OK)
        status = spry_sampler_probabilities(sampler, probabilities, logits, history, n_history, mask, error);
    spry_sampler_destroy(sampler);
    return status;
}

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 2 * (double)FLT_EPSILON * fabs(want)))
        fail_msg("%.9g, but expected %.9g", got, want);
}

static void assert_distribution(const spry_sampling *settings, const float *logits, size_t n, const double *want)
{
    float got[64];
    spry_error error = {0};
    assert_true(n <= SPRY_COUNT(got));
    assert_int_equal(distribution(got, settings, logits, n, NULL, 0, NULL, &error), SPRY_OK);
    for (size_t i = 0; i < n; i++)
        assert_near((double)got[i], want[i]);
}

/* ---- transformers ---------------------------------------------------------------------------------------------- */

enum { GOLDEN_VOCAB_MAX = 1000, GOLDEN_HISTORY_MAX = 64 };

typedef struct golden_case {
    spry_sampling settings;
    size_t n, n_history;
    bool ties;
    int32_t history[GOLDEN_HISTORY_MAX];
    float logits[GOLDEN_VOCAB_MAX];
    double want[GOLDEN_VOCAB_MAX];
    float got[GOLDEN_VOCAB_MAX];
} golden_case;

static void read_case(golden_case *c, const json_t *from)
{
    spry_error error = {0};
    const json_t *logits = json_object_get(from, "logits"), *history = json_object_get(from, "history");
    const json_t *probabilities = json_object_get(from, "probabilities");
    c->settings = defaults();
    assert_int_equal(spry_sampling_from_json(&c->settings, NULL, 0, json_object_get(from, "settings"), false, &error),
                     SPRY_OK);
    c->ties = strcmp(json_string_value(json_object_get(from, "kind")), "ties") == 0;
    c->n = json_array_size(logits);
    c->n_history = json_array_size(history);
    assert_true(c->n > 0 && c->n <= GOLDEN_VOCAB_MAX && c->n_history <= GOLDEN_HISTORY_MAX);
    assert_int_equal(json_array_size(probabilities), c->n);
    for (size_t i = 0; i < c->n; i++) {
        c->logits[i] = (float)json_number_value(json_array_get(logits, i));
        c->want[i] = (double)(float)json_number_value(json_array_get(probabilities, i)); /* as ours are */
    }
    for (size_t i = 0; i < c->n_history; i++)
        c->history[i] = (int32_t)json_integer_value(json_array_get(history, i));
}

/* The exponent of a token as float32 arithmetic makes it, up to its two roundings. */
static double exponent(const golden_case *c, size_t token, bool *seen)
{
    double x = (double)c->logits[token], penalty = (double)c->settings.repeat_penalty;
    *seen = false;
    for (size_t i = 0; i < c->n_history && !*seen; i++)
        *seen = c->history[i] == (int32_t)token;
    if (*seen)
        x = x < 0 ? x * penalty : x / penalty;
    return x / (double)c->settings.temperature;
}

/* Bounds of the relative error of the reference's probabilities. With u = 2^-24: an exponent x has two roundings,
 * 2u|x|; subtracting the maximum one more, u|x - max|; exp at most 2u. The sum below has the mean of its terms' errors
 * and one rounding per term; the division has one, as has our own result. Near the smallest float32 numbers their
 * spacing counts. */
static void bound_errors(double *bounds, const golden_case *c)
{
    const double u = 0x1p-24;
    double max = -INFINITY, mean = 0;
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++) {
        bool seen;
        double x = exponent(c, i, &seen);
        bounds[i] = x;
        max = c->got[i] > 0 && x > max ? x : max;
    }
    for (size_t i = 0; i < c->n; i++) {
        bounds[i] = u * (2 * fabs(bounds[i]) + fabs(bounds[i] - max) + 2);
        mean += (double)c->got[i] * bounds[i];
        kept += c->got[i] > 0;
    }
    for (size_t i = 0; i < c->n; i++)
        bounds[i] += mean + u * (double)(kept + 2);
}

/* Of equals at a border any may have been kept, so they are compared by their number and sum. */
static void assert_ties(const golden_case *c, const double *bounds, size_t which)
{
    for (size_t i = 0; i < c->n; i++) {
        bool seen, other_seen;
        double x = exponent(c, i, &seen), got = 0, want = 0;
        size_t got_kept = 0, want_kept = 0;
        for (size_t j = 0; j < c->n; j++) {
            if (exponent(c, j, &other_seen) != x)
                continue;
            got += (double)c->got[j];
            want += c->want[j];
            got_kept += c->got[j] > 0;
            want_kept += c->want[j] > 0;
        }
        if (got_kept != want_kept || fabs(got - want) > bounds[i] * want + FLT_TRUE_MIN * (double)want_kept)
            fail_msg("case %zu, equals of token %zu: %zu kept with %.9g, expected %zu with %.9g", which, i, got_kept,
                     got, want_kept, want);
    }
}

static void assert_each(const golden_case *c, const double *bounds, size_t which)
{
    for (size_t i = 0; i < c->n; i++)
        if ((c->got[i] > 0) != (c->want[i] > 0) ||
            fabs((double)c->got[i] - c->want[i]) > bounds[i] * c->want[i] + FLT_TRUE_MIN)
            fail_msg("case %zu, token %zu: %.9g, expected %.9g within %.2g of it", which, i, (double)c->got[i],
                     c->want[i], bounds[i]);
}

static void test_golden(void **state)
{
    (void)state;
    static golden_case c;
    static double bounds[GOLDEN_VOCAB_MAX];
    json_error_t json_error;
    json_t *root = json_load_file(TEST_DATA "/sampling/golden.json", 0, &json_error);
    assert_non_null(root);
    json_t *cases = json_object_get(root, "cases"), *one;
    assert_int_equal(json_array_size(cases), 300);
    size_t i;
    json_array_foreach(cases, i, one)
    {
        spry_error error = {0};
        read_case(&c, one);
        if (distribution(c.got, &c.settings, c.logits, c.n, c.history, c.n_history, NULL, &error) != SPRY_OK)
            fail_msg("case %zu: %s", i, error.message);
        bound_errors(bounds, &c);
        if (c.ties)
            assert_ties(&c, bounds, i);
        else
            assert_each(&c, bounds, i);
    }
    json_decref(root);
}

/* ---- a reference that sorts
 * ------------------------------------------------------------------------------------------ */

typedef struct ranked {
    double rank, weight; /* small ranks first */
    size_t token;
} ranked;

static int by_rank(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

/* Sorts those that are left (weight > 0) and cuts where their weights reach p of the total. */
static void cut_at(double *weights, ranked *order, const double *ranks, size_t n, double p, bool keep_equals)
{
    size_t count = 0, last = 0;
    double total = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (weights[i] > 0)
            order[count++] = (ranked){ranks[i], weights[i], i};
        total += weights[i];
    }
    qsort(order, count, sizeof *order, by_rank);
    while (last + 1 < count && (sum += order[last].weight) < total * p)
        last++;
    while (keep_equals && last + 1 < count && order[last + 1].rank == order[last].rank)
        last++;
    for (size_t i = last + 1; i < count; i++)
        weights[order[i].token] = 0;
}

/* Half a unit in the last place of a float setting is forgiven: docs/SAMPLING.md. */
static double forgiven(float p)
{
    return (double)p * (1 - 0x1p-24);
}

static void reference(double *weights, const spry_sampling *settings, const float *logits, size_t n)
{
    ranked *order = calloc(n, sizeof *order);
    double *ranks = calloc(n, sizeof *ranks), max = -INFINITY, total = 0, mean = 0;
    assert_non_null(order);
    assert_non_null(ranks);
    for (size_t i = 0; i < n; i++) {
        weights[i] = 1;
        ranks[i] = -(double)(logits[i] / settings->temperature);
        max = -ranks[i] > max ? -ranks[i] : max;
    }
    if (settings->top_k && settings->top_k < n)
        cut_at(weights, order, ranks, n, (double)settings->top_k / (double)n, true);
    for (size_t i = 0; i < n; i++)
        weights[i] *= exp(-ranks[i] - max);
    if (settings->top_p < 1)
        cut_at(weights, order, ranks, n, forgiven(settings->top_p), false);
    for (size_t i = 0; i < n; i++) {
        weights[i] *= weights[i] >= forgiven(settings->min_p);
        total += weights[i];
        mean -= weights[i] * ranks[i];
    }
    for (size_t i = 0; i < n; i++)
        ranks[i] = (double)(float)fabs(-ranks[i] - mean / total);
    if (settings->typical_p < 1)
        cut_at(weights, order, ranks, n, forgiven(settings->typical_p), true);
    total = 0;
    for (size_t i = 0; i < n; i++)
        total += weights[i];
    for (size_t i = 0; i < n; i++)
        weights[i] /= total;
    free(ranks);
    free(order);
}

/* Logits about as wide as a model's; `step` > 0 rounds them, which makes many equals. */
static void fill_logits(float *logits, size_t n, uint64_t seed, double step)
{
    spry_random random;
    spry_random_seed(&random, seed);
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t k = 0; k < 12; k++)
            sum += spry_random_unit(&random);
        sum = (sum - 6) * 3;
        logits[i] = (float)(step > 0 ? step * nearbyint(sum / step) : sum);
    }
}

static void test_large_vocabularies(void **state)
{
    (void)state;
    enum { N = 20011 }; /* not whole blocks */
    float *logits = malloc(N * sizeof *logits), *got = malloc(N * sizeof *got);
    double *want = malloc(N * sizeof *want);
    assert_true(logits && got && want);
    static const struct {
        uint32_t top_k;
        float temperature, top_p, min_p, typical_p;
    } settings[] = {
        {1, 1, 1, 0, 1},        {40, 1, 1, 0, 1},      {312, 1, 1, 0, 1},       {313, 1, 1, 0, 1},
        {5000, 1, 1, 0, 1},     {20010, 1, 1, 0, 1},   {0, 1, 0.95f, 0, 1},     {0, 3, 0.6f, 0, 1},
        {0, 1, 0, 0, 1},        {0, 1, 0.9999f, 0, 1}, {0, 1, 1, 0.07f, 1},     {0, 1, 1, 0, 0.9f},
        {0, 2, 1, 0, 0.3f},     {0, 1, 1, 0, 0},       {100, 0.7f, 0.9f, 0, 1}, {50, 1.3f, 0.97f, 0.02f, 0.8f},
        {0, 0.2f, 1, 0, 0.99f}, {0, 2, 1, 0.1f, 0.5f}, {0, 50, 0.5f, 0.9f, 1},
    };
    for (size_t kind = 0; kind < 3; kind++) {
        static const double steps[] = {0, 0.25, 4};
        fill_logits(logits, N, 11 + kind, steps[kind]);
        for (size_t s = 0; s < SPRY_COUNT(settings); s++) {
            spry_sampling set = defaults();
            spry_error error = {0};
            set.top_k = settings[s].top_k;
            set.temperature = settings[s].temperature;
            set.top_p = settings[s].top_p;
            set.min_p = settings[s].min_p;
            set.typical_p = settings[s].typical_p;
            assert_int_equal(distribution(got, &set, logits, N, NULL, 0, NULL, &error), SPRY_OK);
            reference(want, &set, logits, N);
            for (size_t i = 0; i < N; i++)
                if (!(fabs((double)got[i] - want[i]) <= (double)FLT_EPSILON * want[i]))
                    fail_msg("logits %zu, settings %zu, token %zu: %.9g, expected %.9g", kind, s, i, (double)got[i],
                             want[i]);
        }
    }
    free(want);
    free(got);
    free(logits);
}

/* ---- rules
 * ----------------------------------------------------------------------------------------------------------- */

static void test_ties(void **state)
{
    (void)state;
    const float equal[5] = {2, 2, 2, 2, 2}, mixed[6] = {0, 3, -0.0f, 3, 0, -1};
    spry_sampling s = defaults();
    s.top_k = 1; /* all equal to the k-th stay */
    assert_distribution(&s, equal, 5, (const double[]){0.2, 0.2, 0.2, 0.2, 0.2});
    s.top_k = 3; /* the two zeros are equal */
    double total = 2 + 3 * exp(-3), top = 1 / total, zero = exp(-3) / total;
    assert_distribution(&s, mixed, 6, (const double[]){zero, top, zero, top, zero, 0});
    s = defaults();
    s.top_p = 0.8f; /* four of five are 0.8: lowest ids stay */
    assert_distribution(&s, equal, 5, (const double[]){0.25, 0.25, 0.25, 0.25, 0});
    s.top_p = 0.81f;
    assert_distribution(&s, equal, 5, (const double[]){0.2, 0.2, 0.2, 0.2, 0.2});
    s.top_p = 0;
    assert_distribution(&s, equal, 5, (const double[]){1, 0, 0, 0, 0});
    assert_distribution(&s, mixed, 6, (const double[]){0, 1, 0, 0, 0, 0});
    s = defaults();
    s.min_p = 1;
    assert_distribution(&s, mixed, 6, (const double[]){0, 0.5, 0, 0.5, 0, 0});
    s = defaults();
    s.typical_p = 0.1f; /* all as near to the entropy as the last one stay */
    assert_distribution(&s, equal, 5, (const double[]){0.2, 0.2, 0.2, 0.2, 0.2});
}

static void test_typical_prefers_the_expected_surprise(void **state)
{
    (void)state;
    float logits[9] = {logf(0.6f)}; /* surprises of 0.74 and 4.32 bits, entropy 2.17: the one is nearer */
    for (size_t i = 1; i < 9; i++)
        logits[i] = logf(0.4f / 8);
    spry_sampling s = defaults();
    s.typical_p = 0.4f;
    assert_distribution(&s, logits, 9, (const double[]){1, 0, 0, 0, 0, 0, 0, 0, 0});
    logits[0] = logf(0.3f); /* 1.74 and 3.51 bits, entropy 2.98: the many are nearer */
    for (size_t i = 1; i < 9; i++)
        logits[i] = logf(0.7f / 8);
    const double eighth = 0.125;
    assert_distribution(&s, logits, 9,
                        (const double[]){0, eighth, eighth, eighth, eighth, eighth, eighth, eighth, eighth});
}

static void test_penalties(void **state)
{
    (void)state;
    const float logits[5] = {2, -2, 1, 1, 0};
    const int32_t history[6] = {3, 0, 1, 0, 4, 0};
    float got[5];
    spry_error error = {0};
    spry_sampling s = defaults();
    s.repeat_penalty = 2;
    s.presence_penalty = 0.5f;
    s.frequency_penalty = 0.25f;
    const double all[5] = {2.0 / 2 - 0.5 - 0.75, -2.0 * 2 - 0.75, 1, 1.0 / 2 - 0.75, -0.75};
    const double last_three[5] = {2.0 / 2 - 0.5 - 0.5, -2, 1, 1, -0.75};
    for (uint32_t window = 0; window <= 7; window++) {
        s.penalty_window = window;
        if (window != 0 && window != 3 && window < 6)
            continue;
        const double *scores = window == 3 ? last_three : all;
        assert_int_equal(distribution(got, &s, logits, 5, history, 6, NULL, &error), SPRY_OK);
        double total = 0;
        for (size_t i = 0; i < 5; i++)
            total += exp(scores[i]);
        for (size_t i = 0; i < 5; i++)
            assert_near((double)got[i], exp(scores[i]) / total);
    }
    s.frequency_penalty = -1; /* rewards */
    s.repeat_penalty = 1;
    s.presence_penalty = 0;
    s.penalty_window = 1;
    assert_int_equal(distribution(got, &s, logits, 5, history, 6, NULL, &error), SPRY_OK);
    assert_near((double)got[0] / (double)got[2], exp(2));

    const int32_t outside[2] = {5, 1}, negative[1] = {-1};
    s.penalty_window = 0;
    assert_int_equal(distribution(got, &s, logits, 5, outside, 2, NULL, &error), SPRY_ERR_INPUT);
    assert_string_equal(error.message, "token 5 of the history is not in the vocabulary of 5");
    assert_int_equal(distribution(got, &s, logits, 5, negative, 1, NULL, &error), SPRY_ERR_INPUT);
    s.penalty_window = 1; /* now the wrong token does not count */
    assert_int_equal(distribution(got, &s, logits, 5, outside, 2, NULL, &error), SPRY_OK);
}

static void test_bias_and_mask(void **state)
{
    (void)state;
    float logits[70], got[70];
    for (size_t i = 0; i < 70; i++)
        logits[i] = 0;
    logits[7] = INFINITY;
    const spry_logit_bias bias[] = {{69, 1}, {7, -INFINITY}, {3, -INFINITY}, {69, 1}, {68, -2}};
    uint32_t mask[3] = {0x88, 0, 0xffffffff}; /* tokens 3, 7, 64 to 69; bits past the vocabulary do not matter */
    spry_error error = {0};
    spry_sampling s = defaults();
    s.bias = bias;
    s.n_bias = SPRY_COUNT(bias);
    assert_int_equal(distribution(got, &s, logits, 70, NULL, 0, mask, &error), SPRY_OK);
    double total = 4 + exp(2) + exp(-2);
    for (size_t i = 0; i < 70; i++)
        assert_near((double)got[i], i < 64 ? 0 : (i == 69 ? exp(2) : i == 68 ? exp(-2) : 1) / total);

    mask[2] = 0; /* only the banned are allowed */
    assert_int_equal(distribution(got, &s, logits, 70, NULL, 0, mask, &error), SPRY_ERR_INPUT);
    assert_string_equal(error.message, "no token can be drawn: logits, bias and mask leave none of the 70 tokens above "
                                       "-infinity");
}

static void test_greedy(void **state)
{
    (void)state;
    enum { N = 200 };
    float logits[N], got[N];
    for (size_t i = 0; i < N; i++)
        logits[i] = -5;
    logits[150] = 0;
    logits[130] = -0.0f;
    logits[199] = 0;
    spry_error error = {0};
    spry_sampling s = defaults();
    s.temperature = 0;
    s.top_k = 7; /* cuts change nothing */
    s.typical_p = 0.1f;
    assert_int_equal(distribution(got, &s, logits, N, NULL, 0, NULL, &error), SPRY_OK);
    for (size_t i = 0; i < N; i++)
        assert_true(got[i] == (i == 130 ? 1 : 0));
}

static void test_extreme_logits(void **state)
{
    (void)state;
    spry_error error = {0};
    float got[4];
    spry_sampling s = defaults();
    const float nan_logits[4] = {1, -INFINITY, NAN, NAN};
    assert_int_equal(distribution(got, &s, nan_logits, 4, NULL, 0, NULL, &error), SPRY_ERR_INPUT);
    assert_string_equal(error.message, "the logit of token 2 is not a number");
    const float none[3] = {-INFINITY, -INFINITY, -INFINITY};
    assert_int_equal(distribution(got, &s, none, 3, NULL, 0, NULL, &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "no token can be drawn"));

    const float some[4] = {-INFINITY, 1, -INFINITY, 1}, infinite[4] = {INFINITY, 1, INFINITY, -INFINITY};
    const float wide[4] = {-FLT_MAX, FLT_MAX, FLT_MAX, 0};
    const double odd[4] = {0, 0.5, 0, 0.5}, even[4] = {0.5, 0, 0.5, 0}, middle[4] = {0, 0.5, 0.5, 0};
    for (size_t i = 0; i < 5; i++) {
        static const float temperatures[5] = {1, 100, 1e-30f, FLT_TRUE_MIN, 0.5f};
        s.temperature = temperatures[i];
        s.top_k = i == 4 ? 3 : 0; /* reaches into what cannot be drawn */
        s.typical_p = i == 4 ? 0.99f : 1;
        assert_distribution(&s, some, 4, odd);
        assert_distribution(&s, infinite, 4, even);
        assert_distribution(&s, wide, 4, middle);
    }
}

static void assert_refused(spry_sampling settings, const char *sentence)
{
    spry_error error = {0};
    spry_sampler *sampler;
    assert_int_equal(spry_sampler_create(&sampler, best_ops(), 10, &error), SPRY_OK);
    assert_int_equal(spry_sampler_set(sampler, &settings, &error), SPRY_ERR_INPUT);
    assert_string_equal(error.message, sentence);
    spry_sampler_destroy(sampler);
}

static void test_settings_check(void **state)
{
    (void)state;
    spry_sampling s = defaults();
    spry_error error = {0};
    assert_int_equal(spry_sampling_check(&s, 10, &error), SPRY_OK);
    s.temperature = -1;
    assert_refused(s, "temperature is '-1', but must be a number from 0 to 100");
    s.temperature = NAN;
    assert_int_equal(spry_sampling_check(&s, 10, &error), SPRY_ERR_INPUT);
    s = defaults();
    s.top_p = 1.5f;
    assert_refused(s, "top_p is '1.5', but must be a number from 0 to 1");
    s = defaults();
    s.min_p = -0.1f;
    assert_refused(s, "min_p is '-0.1', but must be a number from 0 to 1");
    s = defaults();
    s.typical_p = 2;
    assert_refused(s, "typical_p is '2', but must be a number from 0 to 1");
    s = defaults();
    s.repeat_penalty = 0;
    assert_refused(s, "repeat_penalty is '0', but must be a number from 0.01 to 100");
    s.repeat_penalty = 0.01f; /* the bound as a float is the bound */
    assert_int_equal(spry_sampling_check(&s, 10, &error), SPRY_OK);
    s = defaults();
    s.presence_penalty = 101;
    assert_refused(s, "presence_penalty is '101', but must be a number from -100 to 100");
    s = defaults();
    s.frequency_penalty = INFINITY;
    assert_int_equal(spry_sampling_check(&s, 10, &error), SPRY_ERR_INPUT);
    spry_logit_bias bias = {10, 1};
    s = defaults();
    s.bias = &bias;
    s.n_bias = 1;
    assert_refused(s, "logit_bias names token 10, but the vocabulary has tokens 0 to 9");
    bias = (spry_logit_bias){9, INFINITY};
    assert_refused(s, "logit_bias of token 9 is infinity, but must be a finite number, or -infinity to ban it");

    spry_sampler *sampler;
    assert_int_equal(spry_sampler_create(&sampler, best_ops(), 0, &error), SPRY_ERR_INPUT);
    assert_null(sampler);
}

static void test_logprob(void **state)
{
    (void)state;
    enum { N = 200 };
    float logits[N];
    double total = 0;
    fill_logits(logits, N, 3, 0);
    for (size_t i = 0; i < N; i++)
        total += exp((double)logits[i]);
    for (int32_t i = 0; i < N; i++)
        assert_true(fabs(spry_logprob(logits, N, i) - ((double)logits[i] - log(total))) < 1e-12);
    assert_true(spry_logprob(logits, N, N) == -INFINITY && spry_logprob(logits, N, -1) == -INFINITY);
    logits[5] = logits[9] = INFINITY;
    logits[6] = -INFINITY;
    assert_true(fabs(spry_logprob(logits, N, 9) - log(0.5)) < 1e-12);
    assert_true(spry_logprob(logits, N, 6) == -INFINITY && spry_logprob(logits, N, 7) == -INFINITY);
    logits[5] = logits[9] = -INFINITY;
    assert_true(spry_logprob(logits, N, 6) == -INFINITY && spry_logprob(logits, 1, 0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),         cmocka_unit_test(test_large_vocabularies),
        cmocka_unit_test(test_ties),           cmocka_unit_test(test_typical_prefers_the_expected_surprise),
        cmocka_unit_test(test_penalties),      cmocka_unit_test(test_bias_and_mask),
        cmocka_unit_test(test_greedy),         cmocka_unit_test(test_extreme_logits),
        cmocka_unit_test(test_settings_check), cmocka_unit_test(test_logprob),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
