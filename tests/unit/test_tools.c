/* spry_tools.h as a tool uses it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "spry_tools.h"
#include "support/engine_fixture.h"
#include "support/scratch.h"

static const spry_model_file folder = {.path = TEST_DATA "/models/llama", .name = "tiny"};
static const spry_model_file missing = {.path = TEST_DATA "/models/nowhere"};

static void test_checkpoint(void **state)
{
    (void)state;
    spry_checkpoint c;
    spry_error error = {0};
    char one[SPRY_FINGERPRINT_TEXT], two[SPRY_FINGERPRINT_TEXT];
    assert_int_equal(spry_checkpoint_read(&c, &folder, "f16", &error), SPRY_OK);
    assert_string_equal(c.architecture, "Llama");
    assert_true(c.size == offsetof(spry_checkpoint, reserved) && c.vocabulary == FIXTURE_VOCAB &&
                c.context == FIXTURE_CONTEXT && c.kv_token_bytes > 0 && c.main_type == SPRY_F32);
    size_t half = c.kv_token_bytes;
    assert_int_equal(spry_checkpoint_read(&c, &folder, "f32", &error), SPRY_OK);
    assert_int_equal(c.kv_token_bytes, 2 * half);
    assert_int_equal(spry_checkpoint_read(&c, &folder, "f17", &error), SPRY_ERR_INPUT);
    assert_int_equal(spry_checkpoint_read(&c, &missing, "f16", &error), SPRY_ERR_FILE);
    assert_int_equal(spry_checkpoint_fingerprint(one, &folder, 1, &error), SPRY_OK);
    assert_int_equal(spry_checkpoint_fingerprint(two, &folder, 2, &error), SPRY_OK);
    assert_int_equal(strlen(one), 32);
    assert_string_equal(one, two);
    assert_int_equal(spry_checkpoint_fingerprint(one, &missing, 1, &error), SPRY_ERR_FILE);
}

static void test_inspect(void **state)
{
    (void)state;
    char *json;
    spry_error error = {0};
    assert_int_equal(spry_inspect_json(&json, &folder, 0, true, &error), SPRY_OK);
    static const char *const keys[] = {"\"tiny\"", "\"safetensors\"", "\"memory\"", "\"tensors\"", "\"tokenizer\""};
    for (size_t i = 0; i < SPRY_COUNT(keys); i++)
        assert_non_null(strstr(json, keys[i]));
    spry_free(json);
    assert_int_equal(spry_inspect_json(&json, &missing, 0, false, &error) != SPRY_OK, 1);
    assert_null(json);
    spry_free(json);
}

static bool stop(void *user, size_t done, size_t total)
{
    (void)done, (void)total;
    return --*(int *)user > 0;
}

static void test_convert(void **state)
{
    (void)state;
    scratch place;
    spry_error error = {0};
    spry_checkpoint c;
    spry_convert_options options;
    scratch_init(&place);
    spry_convert_options_default(&options);
    options.type = "q8_0";
    options.threads = 1;
    assert_int_equal(spry_convert(scratch_path(&place, "out.gguf"), &folder, &options, &error), SPRY_OK);
    assert_int_equal(spry_checkpoint_read(&c, &(spry_model_file){.path = place.path}, "f16", &error), SPRY_OK);
    assert_int_equal(c.main_type, SPRY_Q8_0);

    int calls = 2;
    options.progress = stop;
    options.user = &calls;
    assert_int_equal(spry_convert(scratch_path(&place, "stopped.gguf"), &folder, &options, &error), SPRY_ERR_CANCELLED);
    calls = 2;
    assert_int_equal(spry_convert_random(place.path, "qwen3-0.6b", &options, &error), SPRY_ERR_CANCELLED);
    assert_int_equal(scratch_count(&place), 1);
    assert_int_equal(spry_convert_random(place.path, "qwen9", &options, &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "qwen9"));
    options.type = "q9";
    assert_int_equal(spry_convert(place.path, &folder, &options, &error), SPRY_ERR_INPUT);
    options.size = 0;
    assert_int_equal(spry_convert(place.path, &folder, &options, &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "spry_convert_options_default"));
    assert_true(spry_shape_published("qwen3-0.6b") && !spry_shape_published("qwen9"));
    scratch_deinit(&place);
}

static void test_tokenizer(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer;
    spry_error error = {0};
    int32_t *ids, *whole;
    size_t count, n_whole, size;
    char *text;
    static const char said[] = "once upon a time";
    assert_int_equal(spry_tokenizer_load(&tokenizer, &folder, &error), SPRY_OK);
    assert_true(spry_tokenizer_count(tokenizer) > 0);
    assert_int_equal(spry_tokenizer_ids(tokenizer, &ids, &count, said, strlen(said), false, false, &error), SPRY_OK);
    assert_int_equal(spry_tokenizer_text(tokenizer, &text, &size, ids, count, false, &error), SPRY_OK);
    assert_int_equal(size, strlen(said));
    assert_memory_equal(text, said, size);
    assert_int_equal(spry_tokenizer_ids(tokenizer, &whole, &n_whole, said, strlen(said), false, true, &error), SPRY_OK);
    assert_true(n_whole >= count);
    spry_free(text);
    spry_free(ids);
    spry_free(whole);
    const int32_t bad = 1 << 20;
    assert_int_equal(spry_tokenizer_text(tokenizer, &text, &size, &bad, 1, false, &error), SPRY_ERR_INPUT);
    assert_null(text);
    spry_tokenizer_free(tokenizer);
    assert_int_equal(spry_tokenizer_load(&tokenizer, &missing, &error) != SPRY_OK, 1);
    assert_null(tokenizer);
    spry_tokenizer_free(tokenizer);
}

static void test_matching(void **state)
{
    (void)state;
    spry_matching *matching;
    spry_tokenizer *tokenizer;
    spry_error error = {0};
    const uint32_t *mask;
    uint64_t bytes[4];
    size_t taken;
    assert_int_equal(spry_matching_create(&matching, SPRY_REGEX, SPRY_JSON_ANY, "ab+", 3, NULL, &error), SPRY_OK);
    assert_int_equal(spry_matching_take(matching, &taken, "abbc", 4, &error), SPRY_OK);
    assert_int_equal(taken, 3);
    assert_true(spry_matching_may_end(matching));
    spry_matching_next_bytes(matching, bytes);
    assert_true(bytes[1] == (uint64_t)1 << ('b' - 64) && !bytes[0] && !bytes[2] && !bytes[3]);
    assert_int_equal(spry_matching_mask(matching, &mask, &error), SPRY_ERR_INPUT);
    spry_matching_destroy(matching);
    assert_int_equal(spry_tokenizer_load(&tokenizer, &folder, &error), SPRY_OK);
    assert_int_equal(spry_matching_create(&matching, SPRY_JSON_OBJECT, SPRY_JSON_ANY, "", 0, tokenizer, &error),
                     SPRY_OK);
    assert_int_equal(spry_matching_mask(matching, &mask, &error), SPRY_OK);
    assert_true(spry_matching_get_times(matching).compile_ms >= 0);
    spry_matching_destroy(matching);
    spry_tokenizer_free(tokenizer);
    assert_int_equal(spry_matching_create(&matching, SPRY_REGEX, SPRY_JSON_ANY, "(", 1, NULL, &error), SPRY_ERR_INPUT);
    assert_int_equal(spry_matching_create(&matching, SPRY_ANY_TEXT, SPRY_JSON_ANY, "", 0, NULL, &error),
                     SPRY_ERR_INPUT);
    assert_null(matching);
    spry_matching_destroy(matching);
}

static void test_sample(void **state)
{
    (void)state;
    static const float logits[] = {1, 3, 2};
    int32_t tokens[4];
    float probabilities[3];
    spry_sampling settings;
    spry_error error = {0};
    spry_sampling_default(&settings);
    settings.temperature = 0;
    assert_int_equal(spry_sample_logits(tokens, 4, probabilities, &settings, logits, 3, NULL, 0, &error), SPRY_OK);
    assert_true(tokens[0] == 1 && tokens[3] == 1 && probabilities[1] == 1 && probabilities[0] == 0);
    settings.top_p = 2;
    assert_int_equal(spry_sample_logits(tokens, 1, NULL, &settings, logits, 3, NULL, 0, &error), SPRY_ERR_INPUT);
}

static void test_machine(void **state)
{
    (void)state;
    char name[SPRY_KERNELS_NAME];
    double read, multiply;
    spry_error error = {0};
    assert_int_equal(spry_kernels_name(name, "ref", &error), SPRY_OK);
    assert_string_equal(name, "ref");
    assert_int_equal(spry_kernels_name(name, "abacus", &error), SPRY_ERR_INPUT);
    assert_int_equal(spry_machine_peaks(&read, &multiply, "auto", 1, 999, &error), SPRY_ERR_INPUT);
    assert_true((int)SPRY_DTYPE_COUNT <= (int)SPRY_TYPES_ROOM);
    for (int op = 0; op < SPRY_OP_COUNT; op++)
        assert_true(strlen(spry_op_name((spry_op)op)) > 0);
}

/* Sequences, their ops and their work; the policy; lookups. */
static void test_steps(void **state)
{
    (void)state;
    spry_engine *engine = fixture_open("llama", NULL);
    spry_steps *steps;
    spry_op_sum sums[SPRY_OP_COUNT * SPRY_TYPES_ROOM];
    spry_error error = {0};
    int32_t ids[40];
    fixture_ids(ids, SPRY_COUNT(ids), 1);
    assert_int_equal(spry_steps_create(&steps, engine, SPRY_STEPS_MAX + 1, &error), SPRY_ERR_INPUT);
    assert_null(steps);
    assert_int_equal(spry_steps_create(&steps, engine, 3, &error), SPRY_OK);
    assert_int_equal(spry_steps_prefill(steps, ids, 40, true, &error), SPRY_OK);
    assert_int_equal(spry_steps_held(steps), 40);
    assert_int_equal(spry_steps_spread(steps, 3, &error), SPRY_OK);
    spry_steps_watch(steps, true);
    assert_int_equal(spry_steps_decode(steps, ids, 3, &error), SPRY_OK);
    spry_steps_watch(steps, false);
    size_t count = spry_steps_ops(steps, sums, SPRY_COUNT(sums)), products = 0;
    assert_true(count > 5 && count <= SPRY_COUNT(sums) && spry_steps_ops(steps, NULL, 0) == count);
    for (size_t i = 0; i < count; i++) {
        assert_true(sums[i].calls > 0);
        products += sums[i].products > 0;
    }
    assert_true(products > 3);
    spry_steps_truncate(steps, 10);
    assert_int_equal(spry_steps_held(steps), 10);
    spry_steps_destroy(steps);
    spry_steps_destroy(NULL);
    assert_true(spry_engine_decode_work(engine, 10, 1).bytes > 0 &&
                spry_engine_prefill_work(engine, 10).products > spry_engine_decode_work(engine, 10, 1).products);
    assert_int_equal(spry_engine_main_type(engine), SPRY_F32);
    assert_string_equal(spry_engine_device_kind(engine), "cpu");
    spry_engine_close(engine);
}

static void test_policy_and_lookup(void **state)
{
    (void)state;
    spry_policy_step steps[2 * SPRY_POLICY_STEPS];
    char why[200] = "";
    double us[3] = {-1, -1, -1};
    size_t pages = 100;
    spry_error error = {0};
    for (uint32_t i = 0; i < SPRY_COUNT(steps); i++) /* two together take as long as one */
        steps[i] = (spry_policy_step){i < SPRY_POLICY_STEPS ? 1 : 2, 1.0};
    for (int policy = SPRY_POLICY_INTERACTIVE; policy <= SPRY_POLICY_THROUGHPUT; policy++)
        assert_int_equal(spry_policy_choose(why, sizeof why, (spry_policy)policy, 2, steps, SPRY_COUNT(steps)), 2);
    assert_true(strlen(why) > 0);
    assert_int_equal(spry_lookup_measure(us, 3, 320, &pages, &error), SPRY_OK);
    assert_true(pages >= 90 && us[0] >= 0 && us[2] >= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint), cmocka_unit_test(test_inspect),  cmocka_unit_test(test_convert),
        cmocka_unit_test(test_tokenizer),  cmocka_unit_test(test_matching), cmocka_unit_test(test_sample),
        cmocka_unit_test(test_machine),    cmocka_unit_test(test_steps),    cmocka_unit_test(test_policy_and_lookup)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
