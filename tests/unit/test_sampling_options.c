/* Sampling settings from flags and JSON, and that docs/SAMPLING.md shows the table they come from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/sampling_options.h"

enum { BIAS_MAX = 3 };

static spry_status read_settings(spry_sampling *settings, spry_logit_bias *bias, const char *json, bool ignore_unknown,
                                 spry_error *error)
{
    json_t *object = json_loads(json, JSON_DECODE_ANY, NULL);
    assert_non_null(object);
    spry_sampling_default(settings);
    spry_status status = spry_sampling_from_json(settings, bias, bias ? BIAS_MAX : 0, object, ignore_unknown, error);
    json_decref(object);
    return status;
}

static void test_json_settings(void **state)
{
    (void)state;
    spry_sampling s;
    spry_error error = {0};
    assert_int_equal(read_settings(&s, NULL, "{}", false, &error), SPRY_OK);
    assert_true(s.temperature == 1 && s.top_k == 0 && s.top_p == 1 && s.min_p == 0 && s.typical_p == 1);
    assert_true(s.repeat_penalty == 1 && s.presence_penalty == 0 && s.frequency_penalty == 0);
    assert_true(s.penalty_window == 0 && s.seed == 0 && s.n_bias == 0);

    assert_int_equal(
        read_settings(&s, NULL,
                      "{\"temperature\": 0.7, \"top_k\": 40, \"top_p\": 0.9, \"min_p\": 0.05, \"typical_p\": 0.5, "
                      "\"repeat_penalty\": 1.1, \"presence_penalty\": -1, \"frequency_penalty\": 2, "
                      "\"penalty_window\": 64, \"seed\": 9007199254740993}",
                      false, &error),
        SPRY_OK);
    assert_true(s.temperature == 0.7f && s.top_k == 40 && s.top_p == 0.9f && s.min_p == 0.05f && s.typical_p == 0.5f);
    assert_true(s.repeat_penalty == 1.1f && s.presence_penalty == -1 && s.frequency_penalty == 2);
    assert_true(s.penalty_window == 64 && s.seed == 9007199254740993);

    assert_int_equal(
        read_settings(&s, NULL,
                      "{\"temp\": 0, \"typical\": 0.25, \"repetition_penalty\": 1.5, \"repeat_last_n\": 8, "
                      "\"top_p\": null}",
                      false, &error),
        SPRY_OK);
    assert_true(s.temperature == 0 && s.typical_p == 0.25f && s.repeat_penalty == 1.5f && s.penalty_window == 8);
    assert_true(s.top_p == 1);
}

static void test_json_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *json, *sentence;
    } refused[] = {
        {"[]", "sampling settings must be a JSON object"},
        {"{\"top_kk\": 1}", "unknown setting \"top_kk\"; did you mean \"top_k\"?"},
        {"{\"zzz\": 1}", "unknown setting \"zzz\""},
        {"{\"top-k\": 1}", "unknown setting \"top-k\"; did you mean \"top_k\"?"},
        {"{\"top_p\": 1.5}", "top_p is '1.5', but must be a number from 0 to 1"},
        {"{\"top_k\": -1}", "top_k is '-1', but must be a whole number up to 4294967295"},
        {"{\"top_p\": \"0.5\"}", "top_p is a string, but must be a number from 0 to 1"},
        {"{\"logit_bias\": [1]}", "logit_bias must be an object from token ids to numbers"},
        {"{\"logit_bias\": {\"x\": 1}}", "logit_bias names \"x\", which is not a token id"},
        {"{\"logit_bias\": {\"2147483648\": 1}}", "logit_bias names \"2147483648\", which is not a token id"},
        {"{\"logit_bias\": {\"1\": \"x\"}}",
         "logit_bias of token 1 must be a number that fits a float32, or null or \"-Infinity\" to ban it"},
        {"{\"logit_bias\": {\"1\": 1e39}}",
         "logit_bias of token 1 must be a number that fits a float32, or null or \"-Infinity\" to ban it"},
        {"{\"logit_bias\": {\"1\": 1, \"2\": 1, \"3\": 1, \"4\": 1}}",
         "logit_bias names 4 tokens, but at most 3 are allowed"},
    };
    spry_sampling s;
    spry_logit_bias bias[BIAS_MAX];
    for (size_t i = 0; i < SPRY_COUNT(refused); i++) {
        spry_error error = {0};
        assert_int_equal(read_settings(&s, bias, refused[i].json, false, &error), SPRY_ERR_INPUT);
        assert_string_equal(error.message, refused[i].sentence);
    }
    spry_error error = {0};
    assert_int_equal(read_settings(&s, NULL, "{\"logit_bias\": {}}", false, &error), SPRY_ERR_INPUT);
    assert_int_equal(read_settings(&s, NULL, "{\"logit_bias\": {}, \"model\": \"m\", \"top_k\": 3}", true, &error),
                     SPRY_OK);
    assert_int_equal(s.top_k, 3);
    assert_int_equal(read_settings(&s, NULL, "{\"model\": \"m\", \"top_k\": -3}", true, &error), SPRY_ERR_INPUT);
}

static void test_logit_bias(void **state)
{
    (void)state;
    spry_sampling s;
    spry_logit_bias bias[BIAS_MAX];
    spry_error error = {0};
    assert_int_equal(
        read_settings(&s, bias, "{\"logit_bias\": {\"5\": -1.5, \"0\": null, \"7\": \"-Infinity\"}}", false, &error),
        SPRY_OK);
    assert_ptr_equal(s.bias, bias);
    assert_int_equal(s.n_bias, 3);
    float sums[8] = {0};
    for (size_t i = 0; i < s.n_bias; i++)
        sums[bias[i].token] += bias[i].bias;
    assert_true(sums[5] == -1.5f && sums[0] == -INFINITY && sums[7] == -INFINITY);
    assert_int_equal(spry_sampling_check(&s, 8, &error), SPRY_OK);
    assert_int_equal(spry_sampling_check(&s, 7, &error), SPRY_ERR_INPUT);
    assert_int_equal(read_settings(&s, bias, "{\"logit_bias\": null}", false, &error), SPRY_OK);
    assert_int_equal(s.n_bias, 0);
}

static void test_flags(void **state)
{
    (void)state;
    spry_sampling s;
    spry_error error = {0};
    spry_sampling_default(&s);
    spry_option_table table = spry_sampling_options(&s);
    char *argv[] = {(char *)"x",
                    (char *)"--temp",
                    (char *)"0.6",
                    (char *)"--top-k=20",
                    (char *)"--repetition-penalty",
                    (char *)"1.2",
                    (char *)"--presence-penalty",
                    (char *)"-0.5"};
    assert_int_equal(spry_options_parse(&table, 1, NULL, SPRY_COUNT(argv), argv, &error), SPRY_OK);
    assert_true(s.temperature == 0.6f && s.top_k == 20 && s.repeat_penalty == 1.2f && s.presence_penalty == -0.5f);
}

/* When this fails, put the text that spry_options_markdown gives into docs/SAMPLING.md. */
static void test_documentation_shows_the_table(void **state)
{
    (void)state;
    static char document[1 << 16];
    FILE *file = fopen(TEST_DATA "/../../docs/SAMPLING.md", "rb");
    assert_non_null(file);
    size_t size = fread(document, 1, sizeof document - 1, file);
    fclose(file);
    assert_true(size > 0 && size < sizeof document - 1);
    spry_sampling s;
    spry_sampling_default(&s);
    spry_option_table table = spry_sampling_options(&s);
    spry_buffer out;
    spry_buffer_init(&out, 1 << 16);
    spry_options_markdown(&out, &table, 1);
    assert_false(out.failed);
    if (!strstr(document, out.data))
        fail_msg("docs/SAMPLING.md lacks this table:\n%s", out.data);
    spry_buffer_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_settings),
        cmocka_unit_test(test_json_refusals),
        cmocka_unit_test(test_logit_bias),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_documentation_shows_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
