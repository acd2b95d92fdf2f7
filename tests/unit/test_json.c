/* Reading untrusted JSON: against jansson's own parser, at its limits, and with each allocation failing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "base/json.h"
#include "base/number.h"
#include "support/failing_calls.h"

static const char *const good[] = {
    "{}",
    "[]",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "-1",
    "12",
    "1.5",
    "-1.5e-3",
    "1E+2",
    "0.1",
    "\"\"",
    "\"a\"",
    " \t\r\n{ \"a\" : [ 1 , 2 ] } \n",
    "[[],{},[[]],{\"a\":{}}]",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
    "\"\\u00e9\\u20ac\"",
    "\"\\ud83d\\ude00 \xF0\x9F\x98\x80\"",
    "\"a\\u0000b\"",
    "{\"\":1}",
    "9223372036854775807",
    "-9223372036854775807",
    "{\"a\":1,\"b\":{\"a\":2},\"c\":[{\"a\":3}]}",
    "[1e308,-1e308,1e-400]",
    "\"\x7F\"",
};

static const char *const bad[] = {
    "",
    " ",
    "{",
    "[",
    "}",
    "]",
    "{]",
    "[}",
    "[1,]",
    "[,1]",
    "[1 2]",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{a:1}",
    "{1:1}",
    "{\"a\":1 \"b\":2}",
    "nul",
    "nulll",
    "True",
    "tru",
    "01",
    "-",
    "-a",
    "+1",
    ".5",
    "1.",
    "1.e1",
    "1e",
    "1e+",
    "0x1",
    "NaN",
    "Infinity",
    "1e999",
    "\"",
    "\"a",
    "\"\\",
    "\"\\x\"",
    "\"\\u12\"",
    "\"\\u12g4\"",
    "\"\\ud800\"",
    "\"\\ud800\\n\"",
    "\"\\ud800\\u0041\"",
    "\"\\udc00\"",
    "\"\n\"",
    "\"\x01\"",
    "\"\x80\"",
    "\"\xC0\x80\"",
    "\"\xED\xA0\x80\"",
    "\"\xF4\x90\x80\x80\"",
    "\"\xE2\x82\"",
    "{\"a\":1,\"a\":2}",
    "{\"a\\u0000\":1}",
    "1 2",
    "{} {}",
    "[] x",
    "// a\n1",
    "'a'",
    "\xEF\xBB\xBF{}",
    "[1,\n\n  2,,3]",
};

static void compare(spry_view text)
{
    const size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES;
    json_error_t why;
    json_t *ours, *theirs = json_loadb(text.data, text.size, flags, &why);
    if (!theirs && json_error_code(&why) == json_error_numeric_overflow)
        return; /* read as a real */
    spry_error error;
    spry_status status = spry_json_read(&ours, text, 0, 0, &error);
    if ((status == SPRY_OK) != (theirs != NULL))
        fail_msg("%.*s: %s", SPRY_VIEW_ARG(text), theirs ? error.message : "is accepted");
    if (theirs)
        assert_true(json_equal(ours, theirs));
    else
        assert_int_equal(status, SPRY_ERR_FORMAT);
    json_decref(ours);
    json_decref(theirs);
}

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(good); i++) {
        json_t *json;
        compare(spry_view_of(good[i]));
        assert_int_equal(spry_json_read(&json, spry_view_of(good[i]), 0, 0, NULL), SPRY_OK);
        json_decref(json);
    }
    for (size_t i = 0; i < SPRY_COUNT(bad); i++) {
        json_t *json;
        compare(spry_view_of(bad[i]));
        assert_int_equal(spry_json_read(&json, spry_view_of(bad[i]), 0, 0, NULL), SPRY_ERR_FORMAT);
        assert_null(json);
    }
}

/* Texts made of pieces of others, so that most are nearly JSON. */
static void test_mutated(void **state)
{
    (void)state;
    static const char pieces[] = "{}[]\",:\\u0e-+.19tnf \n\xC3\xA9\xF0\x9F\x98\x80";
    spry_random random;
    spry_random_seed(&random, 7);
    for (size_t round = 0; round < 200000; round++) {
        char text[96];
        size_t size = 0;
        for (size_t i = 0; i < 2; i++) {
            const char *from = spry_random_next(&random) % 4 ? good[spry_random_next(&random) % SPRY_COUNT(good)]
                                                             : bad[spry_random_next(&random) % SPRY_COUNT(bad)];
            size_t length = strlen(from), begin = length && i ? spry_random_next(&random) % length : 0;
            memcpy(text + size, from + begin, length - begin);
            size += length - begin;
            size = i || !size ? size : spry_random_next(&random) % size + 1;
        }
        for (size_t i = spry_random_next(&random) % 3; size && i; i--)
            text[spry_random_next(&random) % size] = pieces[spry_random_next(&random) % (sizeof pieces - 1)];
        compare((spry_view){text, size});
    }
}

static void test_numbers(void **state)
{
    (void)state;
    json_t *json;
    spry_error error;
    assert_int_equal(spry_json_read(&json, SPRY_VIEW("[1000000000000000000000000000000, 3, 1e400]"), 0, 0, &error),
                     SPRY_ERR_FORMAT);
    assert_non_null(strstr(error.message, "line 1, column 38"));
    assert_int_equal(spry_json_read(&json, SPRY_VIEW("[1000000000000000000000000000000, 3]"), 0, 0, &error), SPRY_OK);
    assert_true(json_real_value(json_array_get(json, 0)) == 1e30);
    assert_true(json_is_integer(json_array_get(json, 1)));
    json_decref(json);
    char digits[800] = "0.";
    memset(digits + 2, '3', sizeof digits - 3);
    json = spry_json_value((spry_view){digits, sizeof digits - 1});
    assert_true(json_real_value(json) == 1 / 3.0);
    json_decref(json);
}

static void test_equal_keys(void **state)
{
    (void)state;
    spry_error error;
    json_t *json = spry_json_value(SPRY_VIEW("{\"a\": 1, \"b\": {}, \"a\": [2]}"));
    assert_int_equal(json_integer_value(json_array_get(json_object_get(json, "a"), 0)), 2);
    json_decref(json);
    assert_int_equal(spry_json_object(&json, SPRY_VIEW("{\"a\": 1,\n \"a\": 2}"), &error), SPRY_ERR_FORMAT);
    assert_string_equal(error.message, "not valid JSON at line 2, column 7: an object has a duplicate key");
    assert_int_equal(spry_json_object(&json, SPRY_VIEW("[]"), &error), SPRY_ERR_FORMAT);
    assert_string_equal(error.message, "not a JSON object");
}

static spry_status nested(size_t depth, const char *open, const char *inner, const char *close)
{
    spry_buffer text;
    json_t *json;
    spry_buffer_init(&text, 1 << 26);
    for (size_t i = 0; i < depth; i++)
        spry_buffer_text(&text, open);
    spry_buffer_text(&text, inner);
    for (size_t i = 0; i < depth; i++)
        spry_buffer_text(&text, close);
    spry_status status = spry_json_read(&json, spry_buffer_view(&text), 0, 0, NULL);
    json_decref(json);
    spry_buffer_deinit(&text);
    return status;
}

static void test_limits(void **state)
{
    (void)state;
    assert_int_equal(nested(SPRY_JSON_DEPTH, "[", "1", "]"), SPRY_OK);
    assert_int_equal(nested(SPRY_JSON_DEPTH, "{\"a\":", "1", "}"), SPRY_OK);
    assert_int_equal(nested(SPRY_JSON_DEPTH + 1, "[", "1", "]"), SPRY_ERR_FORMAT);
    assert_int_equal(nested(4000000, "[", "", ""), SPRY_ERR_FORMAT);
    /* "{}," takes 80 times its text. */
    spry_buffer text;
    json_t *json;
    spry_error error;
    spry_buffer_init(&text, 1 << 26);
    spry_buffer_text(&text, "[{}");
    for (size_t i = 0; i < 100000; i++)
        spry_buffer_text(&text, ",{}");
    spry_buffer_text(&text, "]");
    assert_int_equal(spry_json_read(&json, spry_buffer_view(&text), 0, 0, &error), SPRY_OK);
    json_decref(json);
    assert_int_equal(spry_json_read(&json, spry_buffer_view(&text), 0, 8 << 20, &error), SPRY_ERR_INPUT);
    assert_string_equal(error.message, "the values of the JSON text take more than 8 MiB of memory");
    spry_buffer_deinit(&text);
}

/* Every allocation fails once, alone and with all that follow: no crash, no leak, no value. jansson's parser aborts. */
static void test_failing_allocations(void **state)
{
    (void)state;
#ifndef TEST_FAILING_CALLS
    print_message("SKIPPED test_failing_allocations: malloc is not replaced under AddressSanitizer and on macOS\n");
#else
    spry_buffer text;
    spry_buffer_init(&text, 1 << 20);
    spry_buffer_text(&text, "{\"plain\": [1, 2.5, true, null, \"x\"], \"escaped \\u00e9\": \"\\n");
    for (size_t i = 0; i < 5000; i++)
        spry_buffer_text(&text, "long \\\" ");
    spry_buffer_text(&text, "\", \"inner\": {\"a\": {\"b\": [[], {}, [{}]]}}, \"c\": {\"d\": \"e\", \"f\": 9}}");
    failing_calls *calls = failing_calls_here();
    long long before = calls->live;
    json_t *json = NULL;
    for (int stays = 0; stays < 2; stays++) {
        spry_status status = SPRY_ERR_MEMORY;
        long n = 0;
        for (calls->stays = stays; status; n++) {
            spry_error error = {0};
            calls->kind = FAILING_MEMORY;
            calls->left = n + 1;
            status = spry_json_object(&json, spry_buffer_view(&text), &error);
            calls->left = 0;
            assert_true(status == SPRY_OK || status == SPRY_ERR_MEMORY);
            assert_true(status == SPRY_OK || (!json && strstr(error.message, "not enough memory")));
            assert_true(status == SPRY_OK || calls->live == before);
        }
        print_message("%ld allocations failed\n", n - 1);
        assert_true(n > 40);
        json_decref(json);
        assert_int_equal(calls->live, before);
    }
    spry_buffer_deinit(&text);
#endif
}

/* Whichever allocation fails, the text is whole, or there is none. */
static void test_failing_text(void **state)
{
    (void)state;
#ifndef TEST_FAILING_CALLS
    print_message("SKIPPED test_failing_text: malloc is not replaced under AddressSanitizer and on macOS\n");
#else
    json_t *json = json_object();
    char key[64];
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "%d is a key of this object, which is long%.*s", i, i % 20, "....................");
        json_object_set_new(json, key, json_integer(i));
    }
    char *whole = spry_json_text(json, JSON_INDENT(2)), *text = NULL;
    failing_calls *calls = failing_calls_here();
    long n = 0;
    assert_non_null(strstr(whole, "39 is a key"));
    for (calls->stays = 0; !text; n++) {
        spry_json_forget();
        calls->kind = FAILING_MEMORY;
        calls->left = n + 1;
        text = spry_json_text(json, JSON_INDENT(2));
        calls->left = 0;
        assert_int_equal(spry_json_short(), !text);
        if (text)
            assert_string_equal(text, whole);
    }
    assert_true(n > 4);
    assert_null(spry_json_text(NULL, 0));
    free(text);
    free(whole);
    json_decref(json);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),       cmocka_unit_test(test_mutated), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_equal_keys),   cmocka_unit_test(test_limits),  cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_failing_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
