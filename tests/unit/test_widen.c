/* Widened models: larger in every size, and the same function: logits equal up to rounding, greedy answers token for
 * token, also with the small model as the drafter of the wide one; and what cannot be widened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "model/gguf_export.h"
#include "support/engine_fixture.h"
#include "support/must.h"
#include "support/place.h"

enum { ANSWER = 32, PROMPT = 40 };

#define SHAPE(layers, embd, ff, heads, kv_heads, head)                                                                 \
    {                                                                                                                  \
        .name = "wide", .config = {                                                                                    \
            .n_layers = layers,                                                                                        \
            .n_embd = embd,                                                                                            \
            .n_ff = ff,                                                                                                \
            .n_heads = heads,                                                                                          \
            .n_kv_heads = kv_heads,                                                                                    \
            .head_dim = head                                                                                           \
        }                                                                                                              \
    }

/* Writes the widened model as `name`; the path stays valid until the next one is made. */
static spry_status widen(const char *from, const spry_shape *shape, const char *name, spry_error *error)
{
    spry_model *model;
    const spry_widen job = {.shape = shape, .name = "wide"};
    must(spry_model_open(&model, from, error), error);
    spry_status status = spry_model_widen(model, scratch_path(&place, name), &job, error);
    spry_model_close(model);
    return status;
}

static spry_engine *open_engine(const char *path)
{
    spry_engine_options options;
    spry_engine *engine;
    spry_error error = {0};
    spry_engine_options_default(&options);
    options.threads = 2;
    options.kv_type = "f32";
    options.context = 256;
    must(spry_engine_open(&engine, path, &options, &error), &error);
    return engine;
}

/* What rounding may change, as a part of the largest logit: sums of floats in another order; and, where activations are
 * in 8 bits, some of them by one step. */
static const float of_floats = 1e-4f, of_bytes = 3e-2f;

/* Logits of both models after the same ids; fails where they are further apart. Returns the bound. */
static float same_logits(const float **a, const float **b, spry_session *small, spry_session *wide, const int32_t *ids,
                         size_t count, size_t n_vocab, float part)
{
    spry_error error = {0};
    must(spry_session_eval(small, a, ids, count, &error), &error);
    must(spry_session_eval(wide, b, ids, count, &error), &error);
    float most = 0, apart = 0;
    for (size_t i = 0; i < n_vocab; i++) {
        most = fmaxf(most, fabsf((*a)[i]));
        apart = fmaxf(apart, fabsf((*a)[i] - (*b)[i]));
    }
    assert_true(most > 0);
    if (apart > most * part)
        fail_msg("logits up to %g are %g apart", (double)most, (double)apart);
    return most * part;
}

static void answer(int32_t out[ANSWER], spry_engine *engine, const int32_t *ids, spry_speculation speculation)
{
    spry_session *session = fixture_session(engine);
    spry_request request;
    spry_result result;
    spry_error error = {0};
    size_t held;
    spry_request_default(&request);
    request.prompt = ids;
    request.n_prompt = PROMPT;
    request.max_tokens = ANSWER + 1; /* the session does not hold the last one */
    request.ignore_end = true;
    request.sampling.temperature = 0;
    request.speculation = speculation;
    must(spry_session_generate(session, &result, &request, &error), &error);
    const int32_t *all = spry_session_tokens(session, &held);
    assert_int_equal(held, PROMPT + ANSWER);
    memcpy(out, all + PROMPT, ANSWER * sizeof *out);
    spry_session_destroy(session);
}

/* The answers are equal; or they part where two tokens are as good as each other, as far as rounding can tell. Returns
 * whether all tokens are equal. */
static bool same_answer(spry_engine *small, spry_engine *wide, const int32_t *ids, float part)
{
    int32_t a[ANSWER], b[ANSWER], text[PROMPT + ANSWER];
    const float *logits, *others;
    spry_engine_info info;
    size_t same = 0;
    spry_engine_describe(small, &info);
    answer(a, small, ids, SPRY_DRAFT_NONE);
    answer(b, wide, ids, SPRY_DRAFT_NONE);
    memcpy(text, ids, PROMPT * sizeof *text);
    memcpy(text + PROMPT, a, sizeof a);
    while (same < ANSWER && a[same] == b[same])
        same++;
    spry_session *s = fixture_session(small), *w = fixture_session(wide);
    float bound =
        same_logits(&logits, &others, s, w, text, PROMPT + (same < ANSWER ? same : ANSWER - 1), info.vocabulary, part);
    if (same < ANSWER)
        assert_true(logits[a[same]] - logits[b[same]] <= 2 * bound);
    spry_session_destroy(s);
    spry_session_destroy(w);
    return same == ANSWER;
}

static void compare(const char *small_path, const char *wide_path, float part)
{
    spry_engine *small = open_engine(small_path), *wide = open_engine(wide_path);
    int32_t ids[PROMPT];
    size_t n_same = 0;
    for (uint32_t seed = 1; seed <= 3; seed++) {
        fixture_ids(ids, PROMPT, seed);
        n_same += same_answer(small, wide, ids, part);
    }
    assert_true(n_same > 0);
    spry_engine_close(wide);
    spry_engine_close(small);
}

/* A model of the tests' data as GGUF, in floats. */
static const char *fixture(const char *name)
{
    static char path[1024];
    spry_model *model;
    spry_error error = {0};
    spry_export options = {0};
    snprintf(path, sizeof path, TEST_DATA "/models/%s", name);
    must(spry_threads_create(&options.threads, 1, &error), &error);
    must(spry_model_open(&model, path, &error), &error);
    must(spry_recipe_find(&options.recipe, "f32", &error), &error);
    must(spry_model_export(model, scratch_path(&place, "small.gguf"), &options, &error), &error);
    spry_model_close(model);
    spry_threads_destroy(options.threads);
    snprintf(path, sizeof path, "%s", place.path);
    return path;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Two query heads a key/value head, as before; four; and one, so that key/value heads are copied. */
static void test_architectures(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "qwen2", "qwen3"};
    static const spry_shape shapes[] = {SHAPE(5, 128, 192, 16, 8, 32), SHAPE(3, 96, 160, 16, 4, 32),
                                        SHAPE(4, 64, 256, 8, 8, 32)};
    for (size_t m = 0; m < SPRY_COUNT(models); m++)
        for (size_t i = 0; i < SPRY_COUNT(shapes); i++) {
            spry_error error = {0};
            const char *small = fixture(models[m]);
            must(widen(small, &shapes[i], "wide.gguf", &error), &error);
            compare(small, place.path, of_floats);
        }
}

static void test_sizes(void **state)
{
    (void)state;
    static const spry_shape shape = SHAPE(5, 128, 192, 16, 8, 32);
    spry_model *model;
    spry_error error = {0};
    must(widen(fixture("qwen3"), &shape, "wide.gguf", &error), &error);
    must(spry_model_open(&model, place.path, &error), &error);
    const spry_config *c = &model->config;
    assert_int_equal(c->n_layers, 5);
    assert_int_equal(c->n_embd, 128);
    assert_int_equal(c->n_ff, 192);
    assert_int_equal(c->n_heads, 16);
    assert_int_equal(c->n_kv_heads, 8);
    assert_int_equal(c->head_dim, 32);
    assert_int_equal(c->n_vocab, FIXTURE_VOCAB);
    spry_model_close(model);
}

/* The quantised model that comes with the program, and its own small self as the drafter. */
static void test_bundled(void **state)
{
    (void)state;
    static const spry_shape shape = SHAPE(4, 512, 1024, 4, 2, 128);
    static const char small_path[] = MODELS_DIR "/Spry-Tales-Draft-4M.gguf";
    static const char *const texts[] = {
        "Once upon a time there was a little girl named Lily. She loved to play outside in the park with her dog Max. "
        "One "
        "day she saw a big red ball near the tree and she wanted to play with it. She asked her mom if she could take "
        "it "
        "home, and her mom said that they should look for its owner first.",
        "Tom and his sister Anna were in the kitchen. Mom was making a cake for the birthday of their grandmother. Tom "
        "wanted to help, but he was too small to reach the table, so he took a chair and climbed on it. Anna gave him "
        "a "
        "spoon, and he began to stir. It was a lot of fun, and everyone was happy."};
    spry_error error = {0};
    size_t count;
    int32_t ids[PROMPT], plain[ANSWER], drafted[ANSWER];
    must(widen(small_path, &shape, "wide.gguf", &error), &error);
    spry_engine *small = open_engine(small_path), *wide = open_engine(place.path);
    size_t n_same = 0;
    for (size_t i = 0; i < SPRY_COUNT(texts); i++) {
        must(spry_engine_tokenize(small, ids, PROMPT, &count, texts[i], strlen(texts[i]), false, &error), &error);
        assert_true(count >= PROMPT);
        n_same += same_answer(small, wide, ids, of_bytes);
    }
    assert_true(n_same > 0);
    must(spry_engine_set_drafter(wide, small, &error), &error);
    answer(plain, wide, ids, SPRY_DRAFT_NONE);
    answer(drafted, wide, ids, SPRY_DRAFT_MODEL);
    assert_memory_equal(plain, drafted, sizeof plain);
    spry_engine_close(wide);
    spry_engine_close(small);
}

static void refuse(const char *from, const spry_shape *shape, const char *words)
{
    spry_error error = {0};
    assert_int_not_equal(widen(from, shape, "refused.gguf", &error), SPRY_OK);
    if (!strstr(error.message, words))
        fail_msg("%s", error.message);
    assert_int_not_equal(access(scratch_path(&place, "refused.gguf"), F_OK), 0);
}

static void test_what_cannot_be_widened(void **state)
{
    (void)state;
    static const spry_shape fine = SHAPE(5, 128, 192, 16, 8, 32), few_layers = SHAPE(2, 128, 192, 16, 8, 32),
                            narrow = SHAPE(5, 32, 192, 16, 8, 32), flat = SHAPE(5, 128, 128, 16, 8, 32),
                            few_heads = SHAPE(5, 128, 192, 2, 1, 32), odd = SHAPE(5, 128, 192, 5, 5, 10);
    spry_shape experts = fine;
    experts.config.n_experts = 4;
    const char *small = fixture("qwen3");
    refuse(small, &few_layers, "3 layers, the shape 2");
    refuse(small, &narrow, "64 columns, the shape 32");
    refuse(small, &flat, "160 columns of feed-forward, the shape 128");
    refuse(small, &few_heads, "key/value heads");
    refuse(small, &odd, "do not divide evenly");
    refuse(small, &experts, "experts");
    refuse(TEST_DATA "/models/qwen3", &fine, "no GGUF file");
    refuse(TEST_DATA "/models/gemma3/model-f32.gguf", &fine, "plain Llama, Qwen2 and Qwen3 only");
}

static bool stop(void *user, size_t done, size_t total)
{
    (void)user;
    assert_true(done <= total);
    return false;
}

static void test_stopped(void **state)
{
    (void)state;
    static const spry_shape shape = SHAPE(5, 128, 192, 16, 8, 32);
    const spry_widen job = {.shape = &shape, .name = "wide", .progress = stop};
    spry_model *model;
    spry_error error = {0};
    must(spry_model_open(&model, fixture("qwen3"), &error), &error);
    assert_int_equal(spry_model_widen(model, scratch_path(&place, "stopped.gguf"), &job, &error), SPRY_ERR_CANCELLED);
    assert_int_not_equal(access(scratch_path(&place, "stopped.gguf"), F_OK), 0);
    spry_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_architectures),          cmocka_unit_test(test_sizes),   cmocka_unit_test(test_bundled),
        cmocka_unit_test(test_what_cannot_be_widened), cmocka_unit_test(test_stopped),
    };
    return cmocka_run_group_tests(tests, place_make, place_remove);
}
