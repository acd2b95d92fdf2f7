/* Fragments: computed once, used wherever they stand, with the same bits whatever was cached before. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "golden/golden_models.h"
#include "kernels/ops.h"
#include "support/hostile.h"
#include "support/sequence_scene.h"

enum { CONTEXT = 512, PAGE = SPRY_PAGE_TOKENS, N_TEXTS = 4, MOST = 400 };

/* A prompt is pieces: 'a' to 'd' are fragments, a number is a count of tokens of plain text. */
typedef struct prompt {
    int32_t ids[MOST];
    size_t count;
    fragments f;
} prompt;

static const size_t fragment_sizes[N_TEXTS] = {80, 32, 1, 65};

static prompt make_prompt(const char *pieces, size_t repair, uint32_t seed)
{
    prompt p = {.f = {.repair = repair}};
    while (*pieces) {
        if (*pieces >= 'a') {
            size_t which = (size_t)(*pieces++ - 'a');
            fixture_ids(p.ids + p.count, fragment_sizes[which], 500 + (uint32_t)which);
            p.f.spans[p.f.n_spans++] = (spry_span){p.count, p.count + fragment_sizes[which]};
            p.count += fragment_sizes[which];
        } else {
            char *end;
            size_t n = strtoul(pieces, &end, 10);
            fixture_ids(p.ids + p.count, n, seed++);
            p.count += n;
            pieces = end + (*end == ' ');
        }
    }
    assert_true(p.count <= MOST && p.f.n_spans <= SCENE_SPANS);
    return p;
}

/* At the very beginning, the very end, of 1 token, of a page, adjacent, a token apart, the whole prompt, twice the
 * same, permuted. */
static const char *const prompts[] = {"40 a7",  "a7",      "40 a",     "a",        "b",
                                      "c",      "40 c5",   "40 cbda3", "5 abcd",   "a1 b1 d",
                                      "32 a32", "1 b1 b1", "33 a20 b", "20 dcba9", "7 aa3"};
static const size_t repairs[] = {0, 1, 33, SPRY_REPAIR_FIRST + 33, SPRY_REPAIR_SPREAD + 33, SPRY_REPAIR_ALL};

static void cached_or_not_the_bits_are_the_same(const char *model, uint32_t chunk)
{
    spry_engine *engine = scene_engine(model, CONTEXT, chunk, 0);
    spry_session *s = fixture_session(engine);
    for (size_t i = 0; i < SPRY_COUNT(prompts); i++)
        for (size_t r = 0; r < SPRY_COUNT(repairs); r++) {
            prompt p = make_prompt(prompts[i], repairs[r], 1);
            logits cold = scene_cold(model, CONTEXT, false, 0, p.ids, p.count, &p.f);
            logits warm = scene_eval(s, p.ids, p.count, &p.f), again = scene_eval(s, p.ids, p.count, &p.f);
            scene_same(&cold, &warm);
            scene_same(&cold, &again);
            if (repairs[r] == SPRY_REPAIR_ALL) {
                logits plain = scene_cold(model, CONTEXT, false, 0, p.ids, p.count, NULL);
                scene_same(&cold, &plain);
            }
        }
    spry_session_destroy(s);
    scene_close_engine(engine);
}

static void test_bits(void **state)
{
    (void)state;
    cached_or_not_the_bits_are_the_same("llama", 7);
    cached_or_not_the_bits_are_the_same("gemma2", 33); /* windows, interleaved with full layers */
}

static double worst_difference(const logits *a, const logits *b)
{
    double worst = 0;
    for (size_t i = 0; i < FIXTURE_VOCAB; i++) {
        double off = (double)a->of[i] - (double)b->of[i];
        worst = off > worst ? off : -off > worst ? -off : worst;
    }
    return worst;
}

/* How far logits of a fragment with nothing before it may be from plain ones, as a part of their size: its queries are
 * turned, which rounds. Kernels that round queries and keys to bfloat16 round other numbers then, and Gemma 4 does not
 * scale scores down, so it shows twice as much of that. */
static double allowed_difference(double of_floats)
{
    const spry_ops *ops;
    spry_error error;
    assert_int_equal(spry_ops_get(&ops, "auto", &error), SPRY_OK);
    return ops->attend_halves ? 0x1p-5 : of_floats;
}

/* A fragment is computed after the model's start token: with that token alone before it, it is what it is in the whole
 * prompt, up to the rounding of sums over other pages. A repair by a bound keeps the estimate below it. */
static void test_start_token(void **state)
{
    enum { START = 7 };
    spry_engine *engine = scene_engine("llama", CONTEXT, 48, 0);
    spry_session *with = fixture_session(engine), *without = fixture_session(engine);
    prompt p = make_prompt("1 a7", 0, 1), many = make_prompt("1 adad", SPRY_REPAIR_BOUND + 100, 1);
    spry_error error;
    spry_found found;
    (void)state;
    p.ids[0] = many.ids[0] = START;
    with->sequence.span_start = START;
    without->sequence.span_start = -1;
    logits plain = scene_cold("llama", CONTEXT, false, 0, p.ids, p.count, NULL);
    logits after = scene_eval(with, p.ids, p.count, &p.f), again = scene_eval(with, p.ids, p.count, &p.f);
    logits alone = scene_eval(without, p.ids, p.count, &p.f);
    scene_same(&after, &again);
    assert_true(8 * worst_difference(&after, &plain) < worst_difference(&alone, &plain));
    const spry_prompt whole = {.ids = many.ids,
                               .count = many.count,
                               .compute_from = many.count - 1,
                               .spans = many.f.spans,
                               .n_spans = many.f.n_spans,
                               .repair = many.f.repair};
    assert_int_equal(spry_sequence_begin(&with->sequence, &found, &whole, &error), SPRY_OK);
    assert_true(found.repaired && found.spans && found.divergence <= 0.1);
    spry_session_destroy(with);
    spry_session_destroy(without);
    scene_close_engine(engine);
}

/* Every architecture: rope of all kinds, windows, layers without rope, norms before and after it, sinks, experts,
 * latents, shared layers, convolutions. Encoders have no sequences to go on with. */
static void test_every_architecture(void **state)
{
    (void)state;
    char model[512];
    for (size_t i = 0; golden_models[i]; i++) {
        if (!golden_folder(model, golden_models[i]))
            continue;
        bool ordinary = golden_recurs(golden_models[i]); /* states cannot be moved */
        spry_engine *engine = scene_engine(model, CONTEXT, 48, 0);
        spry_session *s = fixture_session(engine);
        prompt elsewhere = make_prompt("7 da9", 0, 9), p = make_prompt("40 ad7", 0, 1);
        scene_eval(s, elsewhere.ids, elsewhere.count, &elsewhere.f);
        logits plain = scene_cold(model, CONTEXT, false, 0, p.ids, p.count, NULL);
        for (size_t repair = 0; repair <= 2 * PAGE;
             repair += PAGE) { /* what was computed elsewhere, in another place */
            p.f.repair = repair;
            logits cold = scene_cold(model, CONTEXT, false, 0, p.ids, p.count, &p.f);
            logits warm = scene_eval(s, p.ids, p.count, &p.f);
            scene_same(&cold, &warm);
            /* Two repaired pages may leave less than the bfloat16 of AMX can show. */
            bool same = memcmp(&cold, &plain, sizeof plain) == 0;
            if (ordinary ? !same : same && repair == 0)
                fail_msg("%s, repair %zu: fragments %s", model, repair, same ? "change nothing" : "change the result");
        }
        p.f.repair = SPRY_REPAIR_ALL;
        logits all = scene_eval(s, p.ids, p.count, &p.f);
        scene_same(&all, &plain);
        /* At the very beginning a fragment misses nothing. */
        prompt alone = make_prompt("a7", 0, 1);
        logits linked = scene_cold(model, CONTEXT, false, 0, alone.ids, alone.count, &alone.f);
        plain = scene_cold(model, CONTEXT, false, 0, alone.ids, alone.count, NULL);
        double worst = worst_difference(&linked, &plain), size = worst_difference(&plain, &(logits){{0}});
        if (worst > allowed_difference(1e-3) * size)
            fail_msg("%s: a fragment with nothing before it is %g away, of %g", model, worst, size);
        spry_session_destroy(s);
        scene_close_engine(engine);
    }
}

/* A fragment that was computed without the text before it cannot give the logits of one that was. */
static void test_fragments_are_what_they_say(void **state)
{
    (void)state;
    prompt p = make_prompt("40 a7", 0, 1);
    logits linked = scene_cold("llama", CONTEXT, false, 0, p.ids, p.count, &p.f);
    p.f.repair = PAGE;
    logits repaired = scene_cold("llama", CONTEXT, false, 0, p.ids, p.count, &p.f);
    logits plain = scene_cold("llama", CONTEXT, false, 0, p.ids, p.count, NULL);
    assert_true(memcmp(&linked, &plain, sizeof plain) && memcmp(&repaired, &plain, sizeof plain));
    assert_true(memcmp(&linked, &repaired, sizeof plain));
    /* At the very beginning there is no text before it. */
    p = make_prompt("a7", 0, 1);
    linked = scene_cold("llama", CONTEXT, false, 0, p.ids, p.count, &p.f);
    plain = scene_cold("llama", CONTEXT, false, 0, p.ids, p.count, NULL);
    assert_true(worst_difference(&linked, &plain) <
                allowed_difference(1e-4) * fmax(1, worst_difference(&plain, &(logits){{0}})));
}

static spry_kv_figures figures_of(spry_engine *engine)
{
    spry_kv_figures figures;
    spry_engine_kv_figures(engine, &figures);
    return figures;
}

/* What was found is what the figures say, in another place too. */
static void test_fragments_are_found_anywhere(void **state)
{
    (void)state;
    spry_engine *engine = scene_engine("llama", CONTEXT, 128, 0);
    spry_session *s = fixture_session(engine);
    prompt p = make_prompt("40 ab7", 0, 1);
    scene_eval(s, p.ids, p.count, &p.f);
    spry_kv_figures before = figures_of(engine);
    assert_int_equal(before.hit_tokens, 0);
    assert_int_equal(before.span_tokens, 112);
    assert_int_equal(before.miss_tokens, p.count);
    p = make_prompt("13 b5 a9", 0, 77);
    scene_eval(s, p.ids, p.count, &p.f);
    spry_kv_figures after = figures_of(engine);
    assert_int_equal(after.hit_tokens - before.hit_tokens, 112);
    assert_int_equal(after.miss_tokens - before.miss_tokens, 27);
    p = make_prompt("13 b5 a9", PAGE + SPRY_REPAIR_FIRST, 99); /* a page of each is computed in place */
    scene_eval(s, p.ids, p.count, &p.f);
    before = after;
    after = figures_of(engine);
    assert_int_equal(after.hit_tokens - before.hit_tokens, 48);
    assert_int_equal(after.span_tokens - before.span_tokens, 48);
    assert_int_equal(after.repaired_tokens - before.repaired_tokens, 64);
    spry_session_destroy(s);
    scene_close_engine(engine);
}

/* The end of a prompt is computed in place, so a fragment is computed alone when it is first used elsewhere; in a
 * third order all are found. */
static void test_orders(void **state)
{
    (void)state;
    static const char *const orders[] = {"abd7", "dab7", "bda7"};
    spry_engine *engine = scene_engine("llama", CONTEXT, 128, 0);
    spry_session *s = fixture_session(engine);
    spry_kv_figures before, after = figures_of(engine);
    for (size_t i = 0; i < SPRY_COUNT(orders); i++) {
        prompt p = make_prompt(orders[i], 11, 1);
        scene_eval(s, p.ids, p.count, &p.f);
        before = after;
        after = figures_of(engine);
        size_t computed = after.miss_tokens - before.miss_tokens,
               in_place = after.repaired_tokens - before.repaired_tokens;
        if (i == 1)
            assert_true(computed > in_place + 7);
    }
    assert_int_equal(after.hit_tokens - before.hit_tokens, after.span_tokens - before.span_tokens);
    assert_int_equal(after.miss_tokens - before.miss_tokens, after.repaired_tokens - before.repaired_tokens + 7);
    spry_session_destroy(s);
    scene_close_engine(engine);
}

/* Tokens of each span that are computed in place. */
static void test_choice(void **state)
{
    (void)state;
    const struct {
        const char *pieces;
        size_t repair, spans, repaired;
    } cases[] = {
        {"40 ab7", 0, 112, 0},
        {"40 ab7", 1, 80, 32},                                 /* all of b, the last */
        {"40 ba7", 1, 80, 32},                                 /* the first page of a */
        {"40 ba7", PAGE, 32, 80},                              /* 64 tokens: all of a, nearly */
        {"40 ba7", 11, 80, 32},                                /* a quarter of a second page does not fit */
        {"40 ba7", 20, 64, 48},                                /* the first and the last page of a */
        {"40 a40 b7", 15, 48, 64},                             /* apart: each its own */
        {"40 ab7", 1000, 0, 112},                              /* all */
        {"40 ab7", SPRY_REPAIR_FIRST + 1, 48, 64},             /* a page of each */
        {"40 dd7", SPRY_REPAIR_SPREAD + 2 * PAGE, 64, 2 * 33}, /* of three pages every second */
        {"40 ba", 0, 96, 16},                                  /* the prompt's last page */
        {"40 ba7", SIZE_MAX - 1, 0, 112},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_engine *engine = scene_engine("llama", CONTEXT, 128, 0);
        spry_session *s = fixture_session(engine);
        prompt p = make_prompt(cases[i].pieces, cases[i].repair, 1);
        scene_eval(s, p.ids, p.count, &p.f);
        spry_kv_figures now = figures_of(engine);
        assert_int_equal(now.span_tokens, cases[i].spans);
        assert_int_equal(now.repaired_tokens, cases[i].repaired);
        spry_session_destroy(s);
        scene_close_engine(engine);
    }
}

/* A later question with fragments of its own changes no choice that was made before, so all of it is found. */
static void test_later_fragments_change_nothing_before(void **state)
{
    (void)state;
    spry_engine *engine = scene_engine("llama", CONTEXT, 128, 0);
    spry_session *s = fixture_session(engine);
    prompt p = make_prompt("40 ab40", PAGE, 1), longer = make_prompt("40 ab40 d7", PAGE, 1);
    scene_eval(s, p.ids, p.count, &p.f);
    spry_kv_figures before = figures_of(engine);
    scene_eval(s, longer.ids, longer.count, &longer.f);
    assert_in_range(figures_of(engine).hit_tokens - before.hit_tokens, p.count - PAGE, p.count);
    spry_session_destroy(s);
    scene_close_engine(engine);
}

/* Plain prompts find nothing that was computed after a fragment, in either order. */
static void test_plain_text_is_not_polluted(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(prompts); i++)
        for (size_t repair = 0; repair <= PAGE; repair += PAGE) {
            prompt p = make_prompt(prompts[i], repair, 3);
            logits plain = scene_cold("llama", CONTEXT, false, 0, p.ids, p.count, NULL);
            logits with = scene_cold("llama", CONTEXT, false, 0, p.ids, p.count, &p.f);
            spry_engine *engine = scene_engine("llama", CONTEXT, 64, 0);
            spry_session *a = fixture_session(engine), *b = fixture_session(engine);
            logits got = scene_eval(a, p.ids, p.count, &p.f);
            scene_same(&got, &with);
            got = scene_eval(b, p.ids, p.count, NULL);
            scene_same(&got, &plain);
            got = scene_eval(a, p.ids, p.count, NULL);
            scene_same(&got, &plain);
            got = scene_eval(b, p.ids, p.count, &p.f);
            scene_same(&got, &with);
            spry_session_destroy(a);
            spry_session_destroy(b);
            scene_close_engine(engine);
        }
}

/* What follows a fragment is kept like any text: the next question to the same documents finds all of it. */
static void test_the_next_question(void **state)
{
    (void)state;
    spry_engine *engine = scene_engine("llama", CONTEXT, 64, 0);
    spry_session *s = fixture_session(engine);
    prompt p = make_prompt("40 ad50", PAGE, 5);
    scene_eval(s, p.ids, p.count, &p.f);
    size_t held = p.count;
    fixture_ids(p.ids + p.count, 30, 9);
    p.count += 30;
    logits cold = scene_cold("llama", CONTEXT, false, 0, p.ids, p.count, &p.f);
    spry_kv_figures before = figures_of(engine);
    logits warm = scene_eval(s, p.ids, p.count, &p.f);
    scene_same(&cold, &warm);
    assert_int_equal(figures_of(engine).hit_tokens - before.hit_tokens, held);
    spry_session_destroy(s);
    scene_close_engine(engine);
}

static void test_bad_fragments_are_refused(void **state)
{
    (void)state;
    static const fragments bad[] = {
        {{{5, 5}}, 1, 0},
        {{{6, 5}}, 1, 0},
        {{{0, 101}}, 1, 0},
        {{{100, 101}}, 1, 0},
        {{{0, SIZE_MAX}}, 1, 0},
        {{{SIZE_MAX, SIZE_MAX}}, 1, 0},
        {{{10, 20}, {19, 30}}, 2, 0},
        {{{50, 60}, {10, 20}}, 2, 0},
        {{{10, 20}, {10, 20}}, 2, SPRY_REPAIR_ALL},
    };
    spry_engine *engine = scene_engine("llama", CONTEXT, 64, 0);
    spry_session *s = fixture_session(engine);
    int32_t ids[100];
    fixture_ids(ids, 100, 1);
    logits before = scene_eval(s, ids, 100, NULL);
    for (size_t i = 0; i < SPRY_COUNT(bad); i++) {
        const float *out;
        spry_error error = {0};
        spry_status status =
            spry_session_eval_spans(s, &out, ids, 100, bad[i].spans, bad[i].n_spans, bad[i].repair, &error);
        hostile_expect(status, &error, SPRY_ERR_INPUT, "fragment|empty, out of order or outside|100");
        assert_null(out);
        logits after = scene_eval(s, ids, 100, NULL);
        scene_same(&before, &after);
    }
    spry_session_destroy(s);
    scene_close_engine(engine);
}

/* No room for what fragments take besides: said so, and nothing is left behind. */
static void test_no_room_for_fragments(void **state)
{
    (void)state;
    spry_engine *engine = scene_engine("llama", 128, 64, 4);
    spry_session *s = fixture_session(engine);
    spry_error error = {0};
    const float *out;
    prompt p = make_prompt("7 d1 b1 c5", 1, 5);
    hostile_expect(spry_session_eval_spans(s, &out, p.ids, p.count, p.f.spans, p.f.n_spans, p.f.repair, &error), &error,
                   SPRY_ERR_CONTEXT, "KV pool is full");
    p = make_prompt("60 b2", 0, 5);
    logits cold = scene_cold("llama", 128, false, 0, p.ids, p.count, &p.f), got = scene_eval(s, p.ids, p.count, &p.f);
    scene_same(&cold, &got);
    spry_session_destroy(s);
    scene_close_engine(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_start_token),
        cmocka_unit_test(test_every_architecture),
        cmocka_unit_test(test_fragments_are_what_they_say),
        cmocka_unit_test(test_fragments_are_found_anywhere),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_later_fragments_change_nothing_before),
        cmocka_unit_test(test_plain_text_is_not_polluted),
        cmocka_unit_test(test_the_next_question),
        cmocka_unit_test(test_bad_fragments_are_refused),
        cmocka_unit_test(test_no_room_for_fragments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
