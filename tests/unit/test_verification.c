/* That drafting leaves the distribution of an answer alone. A small model, whose next token depends on the last one, is
 * answered for many times with drafts; the first three tokens must be distributed as the definition says, jointly, with
 * penalties that look at accepted drafts and masks that follow them. Rules that are a little wrong must not pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "draft/verification.h"
#include "support/best_ops.h"

enum { VOCAB = 12, ANSWER = 3, PROMPT = 3, DRAFTS = 2, DRAWS = 100000, CELLS = VOCAB * VOCAB * VOCAB };

static const int32_t prompt[PROMPT] = {3, 5, 3};

/* ---- a model, a drafter, a mask -----------------------------------------------------------------------------------
 */

typedef struct world {
    float target[VOCAB][VOCAB]; /* logits after each token */
    float q[VOCAB][VOCAB];      /* the drafter's distribution after each token */
    uint32_t mask[VOCAB];       /* allowed after each token */
    bool masked;
    bool certain; /* the drafter names its most probable token instead of drawing */
    spry_sampling settings;
} world;

static spry_sampling plain_settings(void)
{
    spry_sampling settings;
    spry_sampling_default(&settings);
    settings.seed = 11;
    return settings;
}

static spry_sampling full_settings(void)
{
    spry_sampling settings = plain_settings();
    settings.temperature = 0.9f;
    settings.top_p = 0.93f;
    settings.repeat_penalty = 1.2f;
    settings.presence_penalty = 0.5f;
    settings.frequency_penalty = 0.4f;
    return settings;
}

static spry_sampler *create(const spry_sampling *settings)
{
    spry_sampler *sampler;
    spry_error error = {0};
    assert_int_equal(spry_sampler_create(&sampler, best_ops(), VOCAB, &error), SPRY_OK);
    assert_int_equal(spry_sampler_set(sampler, settings, &error), SPRY_OK);
    return sampler;
}

/* The drafter knows the target's logits, but for an error of up to `error` each, and leaves out two tokens. It knows
 * nothing of penalties and masks. */
static void make_world(world *w, const spry_sampling *settings, bool masked, bool certain, float error_size)
{
    spry_random random;
    spry_random_seed(&random, 3);
    *w = (world){.masked = masked, .certain = certain, .settings = *settings};
    spry_sampling drafting = plain_settings();
    drafting.top_k = VOCAB - 2;
    spry_sampler *drafter = create(&drafting);
    for (size_t last = 0; last < VOCAB; last++) {
        float guess[VOCAB];
        for (size_t i = 0; i < VOCAB; i++) {
            w->target[last][i] = (float)(4 * spry_random_unit(&random) - 2);
            guess[i] = w->target[last][i] + error_size * (float)(2 * spry_random_unit(&random) - 1);
        }
        w->mask[last] = 0xfffu & ~(1u << (last + 1) % VOCAB) & ~(1u << (last * 5 + 2) % VOCAB);
        spry_error error = {0};
        assert_int_equal(spry_sampler_probabilities(drafter, w->q[last], guess, NULL, 0, NULL, &error), SPRY_OK);
    }
    spry_sampler_destroy(drafter);
}

static spry_target_row row_after(const world *w, const int32_t *history, size_t n)
{
    int32_t last = history[n - 1];
    return (spry_target_row){w->target[last], history, n, w->masked ? &w->mask[last] : NULL};
}

static int32_t most_probable(const float *p)
{
    int32_t best = 0;
    for (int32_t i = 1; i < VOCAB; i++)
        best = p[i] > p[best] ? i : best;
    return best;
}

/* Probabilities of every answer of three tokens. */
static void expect(double *answers, const world *w)
{
    spry_sampler *sampler = create(&w->settings);
    spry_error error = {0};
    int32_t history[PROMPT + ANSWER];
    memcpy(history, prompt, sizeof prompt);
    for (size_t cell = 0; cell < CELLS; cell++) {
        size_t tokens[ANSWER] = {cell / VOCAB / VOCAB, cell / VOCAB % VOCAB, cell % VOCAB};
        answers[cell] = 1;
        for (size_t i = 0; i < ANSWER && answers[cell] > 0; i++) {
            float p[VOCAB];
            spry_target_row row = row_after(w, history, PROMPT + i);
            assert_int_equal(
                spry_sampler_probabilities(sampler, p, row.logits, row.history, row.n_history, row.mask, &error),
                SPRY_OK);
            answers[cell] *= (double)p[tokens[i]];
            history[PROMPT + i] = (int32_t)tokens[i];
        }
    }
    spry_sampler_destroy(sampler);
}

/* ---- answering with drafts ----------------------------------------------------------------------------------------
 */

typedef spry_status judge(spry_verifier *verifier, int32_t *token, bool *accepted, const spry_target_row *row,
                          const spry_drafted *draft, spry_error *error);

/* One step: drafts behind `history`, judged in turn. Appends what was decided; returns how many drafts were accepted.
 */
static size_t step(const world *w, spry_verifier *verifier, spry_sampler *drafter, judge *rule, int32_t *history,
                   size_t *n)
{
    spry_drafted drafts[DRAFTS];
    spry_error error = {0};
    size_t start = *n, accepted_count = 0;
    for (size_t i = 0; i < DRAFTS; i++) { /* as a session does: drafts lie behind the tokens, judged or not */
        const float *q = w->q[history[start + i - 1]];
        drafts[i] = (spry_drafted){most_probable(q), w->certain ? NULL : q};
        if (!w->certain)
            assert_int_equal(spry_sampler_draw_weighted(drafter, &drafts[i].token, q, &error), SPRY_OK);
        history[start + i] = drafts[i].token;
    }
    for (size_t i = 0; i <= DRAFTS; i++) {
        spry_target_row row = row_after(w, history, start + i);
        int32_t token;
        bool accepted;
        assert_int_equal(rule(verifier, &token, &accepted, &row, i < DRAFTS ? &drafts[i] : NULL, &error), SPRY_OK);
        history[(*n)++] = token;
        if (!accepted)
            break;
        accepted_count++;
    }
    return accepted_count;
}

/* Counts answers; returns the share of drafts that were accepted. */
static double answer_many(size_t *counts, const world *w, judge *rule, size_t draws)
{
    spry_sampler *sampler = create(&w->settings);
    spry_sampling drafting = plain_settings();
    drafting.seed = 12;
    spry_sampler *drafter = create(&drafting);
    spry_verifier verifier;
    spry_error error = {0};
    size_t accepted = 0, drafted = 0;
    assert_int_equal(spry_verifier_init(&verifier, sampler, &error), SPRY_OK);
    memset(counts, 0, CELLS * sizeof *counts);
    for (size_t draw = 0; draw < draws; draw++) {
        int32_t history[PROMPT + ANSWER + DRAFTS + 1];
        size_t n = PROMPT;
        memcpy(history, prompt, sizeof prompt);
        for (; n < PROMPT + ANSWER; drafted += DRAFTS)
            accepted += step(w, &verifier, drafter, rule, history, &n);
        const int32_t *a = history + PROMPT;
        counts[(a[0] * VOCAB + a[1]) * VOCAB + a[2]]++;
    }
    spry_verifier_deinit(&verifier);
    spry_sampler_destroy(drafter);
    spry_sampler_destroy(sampler);
    return (double)accepted / (double)drafted;
}

/* ---- chi-square ---------------------------------------------------------------------------------------------------
 */

/* How far the counts are from what is expected, in standard deviations (Wilson and Hilferty). `width` answers share a
 * cell: all that begin alike. Cells expected fewer than 5 times are put together. */
static double deviation(const size_t *counts, const double *expected, size_t draws, size_t width)
{
    double statistic = 0, cells = 0, rare = 0, rare_expected = 0;
    for (size_t cell = 0; cell < CELLS; cell += width) {
        double count = 0, p = 0;
        for (size_t i = cell; i < cell + width; i++) {
            count += (double)counts[i];
            p += expected[i];
        }
        double mean = p * (double)draws;
        if (count > 0 && mean == 0)
            return INFINITY;
        if (mean < 5) {
            rare += count;
            rare_expected += mean;
            continue;
        }
        statistic += (count - mean) * (count - mean) / mean;
        cells++;
    }
    if (rare_expected >= 5) {
        statistic += (rare - rare_expected) * (rare - rare_expected) / rare_expected;
        cells++;
    }
    double freedom = cells - 1, spread = 2 / (9 * freedom);
    return (cbrt(statistic / freedom) - (1 - spread)) / sqrt(spread);
}

/* The worst of: the first token; the first two; all three. */
static double worst_deviation(const world *w, judge *rule, size_t draws, double *acceptance)
{
    static double expected[CELLS];
    static size_t counts[CELLS];
    double worst = -INFINITY;
    expect(expected, w);
    *acceptance = answer_many(counts, w, rule, draws);
    for (size_t width = 1; width < CELLS; width *= VOCAB)
        worst = fmax(worst, deviation(counts, expected, draws, width));
    return worst;
}

static void test_distribution(void **state)
{
    (void)state;
    const struct {
        spry_sampling settings;
        bool masked, certain;
        float error;
    } cases[] = {
        {plain_settings(), false, false, 1}, {plain_settings(), false, true, 1}, {full_settings(), true, false, 1},
        {plain_settings(), true, false, 4},  {full_settings(), true, true, 1},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        world w;
        double acceptance;
        make_world(&w, &cases[i].settings, cases[i].masked, cases[i].certain, cases[i].error);
        assert_true(worst_deviation(&w, spry_verifier_judge, DRAWS, &acceptance) < 4);
        assert_true(acceptance > 0.02 && acceptance < 0.9); /* both ways were taken */
    }
}

/* ---- rules that are a little wrong --------------------------------------------------------------------------------
 */

typedef struct mistake {
    double eager;       /* drafts are accepted this many times as often as they should be */
    bool whole;         /* a refused draft is replaced by a draw from p, not from what q left of it */
    bool ignore_q;      /* accepted with probability p, not p / q */
    bool stale_history; /* penalties do not see the last accepted draft */
    bool stale_mask;    /* the mask is that of the token before */
} mistake;

static mistake made;
static const world *made_in;

/* The rule as the definition has it, with a mistake. */
static spry_status mistaken_judge(spry_verifier *verifier, int32_t *token, bool *accepted, const spry_target_row *row,
                                  const spry_drafted *draft, spry_error *error)
{
    float p[VOCAB];
    spry_target_row seen = *row;
    if (made.stale_history)
        seen.n_history--;
    if (made.stale_mask)
        seen.mask = &made_in->mask[row->history[row->n_history - 2]];
    *accepted = false;
    spry_status status =
        spry_sampler_probabilities(verifier->sampler, p, seen.logits, seen.history, seen.n_history, seen.mask, error);
    if (status)
        return status;
    if (!draft)
        return spry_sampler_draw_weighted(verifier->sampler, token, p, error);
    double q = made.ignore_q ? 1 : (double)draft->q[draft->token];
    *accepted = spry_sampler_unit(verifier->sampler) < made.eager * (double)p[draft->token] / q;
    *token = draft->token;
    if (*accepted)
        return SPRY_OK;
    for (size_t i = 0; i < VOCAB && !made.whole; i++)
        p[i] = fmaxf(0, p[i] - draft->q[i]);
    return spry_sampler_draw_weighted(verifier->sampler, token, p, error);
}

static void test_mistakes_are_noticed(void **state)
{
    (void)state;
    static const mistake mistakes[] = {
        {.eager = 1.05},         {.eager = 0.95}, {1, .whole = true}, {1, .ignore_q = true}, {1, .stale_history = true},
        {1, .stale_mask = true},
    };
    spry_sampling settings = full_settings();
    settings.top_p = 1;
    world w;
    double acceptance;
    make_world(&w, &settings, true, false, 1);
    made_in = &w;
    made = (mistake){.eager = 1};
    assert_true(worst_deviation(&w, mistaken_judge, DRAWS, &acceptance) < 4);
    for (size_t i = 0; i < SPRY_COUNT(mistakes); i++) {
        made = mistakes[i];
        assert_true(worst_deviation(&w, mistaken_judge, DRAWS * 2 / 5, &acceptance) > 5);
    }
}

/* ---- the same tokens ----------------------------------------------------------------------------------------------
 */

enum { LONG = 500 };

static void answer_plainly(int32_t *history, const world *w)
{
    spry_sampler *sampler = create(&w->settings);
    spry_error error = {0};
    memcpy(history, prompt, sizeof prompt);
    for (size_t n = PROMPT; n < LONG; n++) {
        spry_target_row row = row_after(w, history, n);
        assert_int_equal(
            spry_sampler_draw(sampler, &history[n], row.logits, row.history, row.n_history, row.mask, &error), SPRY_OK);
    }
    spry_sampler_destroy(sampler);
}

static void assert_same_tokens(const world *w)
{
    int32_t expected[LONG], history[LONG + DRAFTS + 1];
    spry_sampler *sampler = create(&w->settings), *drafter = create(&w->settings);
    spry_verifier verifier;
    spry_error error = {0};
    size_t n = PROMPT, accepted = 0;
    answer_plainly(expected, w);
    assert_int_equal(spry_verifier_init(&verifier, sampler, &error), SPRY_OK);
    memcpy(history, prompt, sizeof prompt);
    while (n < LONG)
        accepted += step(w, &verifier, drafter, spry_verifier_judge, history, &n);
    assert_memory_equal(history, expected, sizeof expected);
    assert_true(accepted > 10);
    if (spry_sampler_greedy(sampler)) { /* the generator was left alone */
        spry_sampler *fresh = create(&w->settings);
        assert_true(spry_sampler_unit(sampler) == spry_sampler_unit(fresh));
        spry_sampler_destroy(fresh);
    }
    spry_verifier_deinit(&verifier);
    spry_sampler_destroy(drafter);
    spry_sampler_destroy(sampler);
}

/* At temperature 0, and wherever the drafter does not draw, the tokens are those of a plain answer. */
static void test_same_tokens(void **state)
{
    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        bool greedy = kind & 1, certain = kind & 2, masked = kind & 4;
        if (!greedy && !certain)
            continue;
        spry_sampling settings = full_settings();
        settings.temperature = greedy ? 0 : 1;
        world w;
        make_world(&w, &settings, masked, certain, 0.5f);
        assert_same_tokens(&w);
    }
}

/* ---- edges --------------------------------------------------------------------------------------------------------
 */

/* A drafter that is the target is always right; one that claims twice its share is replaced by plain draws. */
static void test_equal_distributions(void **state)
{
    (void)state;
    spry_sampling settings = plain_settings();
    world w;
    make_world(&w, &settings, false, false, 1);
    spry_sampler *sampler = create(&settings);
    spry_verifier verifier;
    spry_error error = {0};
    assert_int_equal(spry_verifier_init(&verifier, sampler, &error), SPRY_OK);
    spry_target_row row = row_after(&w, prompt, PROMPT);
    float p[VOCAB], twice[VOCAB];
    assert_int_equal(spry_sampler_probabilities(sampler, p, row.logits, NULL, 0, NULL, &error), SPRY_OK);
    for (size_t i = 0; i < VOCAB; i++)
        twice[i] = 2 * p[i];
    int refused = 0;
    for (int i = 0; i < 1000; i++) {
        int32_t token;
        bool accepted;
        spry_drafted draft = {i % VOCAB, p};
        assert_int_equal(spry_verifier_judge(&verifier, &token, &accepted, &row, &draft, &error), SPRY_OK);
        assert_true(accepted && token == draft.token);
        draft.q = twice;
        assert_int_equal(spry_verifier_judge(&verifier, &token, &accepted, &row, &draft, &error), SPRY_OK);
        assert_in_range(token, 0, VOCAB - 1);
        refused += !accepted;
    }
    assert_in_range(refused, 400, 600);
    spry_verifier_deinit(&verifier);
    spry_sampler_destroy(sampler);
}

static void test_failures(void **state)
{
    (void)state;
    spry_sampling settings = plain_settings();
    world w;
    make_world(&w, &settings, false, false, 1);
    spry_sampler *sampler = create(&settings);
    spry_verifier verifier;
    spry_error error = {0};
    assert_int_equal(spry_verifier_init(&verifier, sampler, &error), SPRY_OK);
    float q[VOCAB] = {[1] = 1}, strange[VOCAB] = {[2] = NAN}, logits[VOCAB] = {[4] = NAN};
    spry_target_row row = row_after(&w, prompt, PROMPT), broken = {logits, NULL, 0, NULL};
    const struct {
        const spry_target_row *row;
        spry_drafted draft;
    } cases[] = {{&row, {0, q}},       {&row, {-1, q}},   {&row, {VOCAB, q}},
                 {&row, {2, strange}}, {&broken, {1, q}}, {&broken, {1, NULL}}};
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        int32_t token;
        bool accepted = true;
        assert_int_equal(spry_verifier_judge(&verifier, &token, &accepted, cases[i].row, &cases[i].draft, &error),
                         SPRY_ERR_INPUT);
        assert_false(accepted);
    }
    int32_t token;
    bool accepted;
    spry_drafted outside = {VOCAB + 5, NULL}; /* from a drafter with a larger vocabulary: refused like any other */
    assert_int_equal(spry_verifier_judge(&verifier, &token, &accepted, &row, &outside, &error), SPRY_OK);
    assert_false(accepted);
    assert_in_range(token, 0, VOCAB - 1);
    spry_verifier_deinit(&verifier);
    spry_sampler_destroy(sampler);
}

static void test_draw_weighted(void **state)
{
    (void)state;
    spry_sampling settings = plain_settings();
    spry_sampler *sampler = create(&settings), *same = create(&settings);
    spry_error error = {0};
    float weights[VOCAB] = {[2] = -3, [5] = 0.001f};
    int32_t token;
    assert_int_equal(spry_sampler_draw_weighted(sampler, &token, weights, &error), SPRY_OK);
    assert_int_equal(token, 5);
    static const float bad[] = {0, NAN, INFINITY};
    for (size_t i = 0; i < SPRY_COUNT(bad); i++) {
        weights[5] = bad[i];
        assert_int_equal(spry_sampler_draw_weighted(sampler, &token, weights, &error), SPRY_ERR_INPUT);
    }
    spry_sampler_unit(same); /* one number for the draw, none for the failures */
    assert_true(spry_sampler_unit(sampler) == spry_sampler_unit(same));
    assert_int_equal(spry_sampler_vocab(sampler), VOCAB);
    assert_false(spry_sampler_greedy(sampler));
    spry_sampler_destroy(same);
    spry_sampler_destroy(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distribution), cmocka_unit_test(test_mistakes_are_noticed),
        cmocka_unit_test(test_same_tokens),  cmocka_unit_test(test_equal_distributions),
        cmocka_unit_test(test_failures),     cmocka_unit_test(test_draw_weighted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
