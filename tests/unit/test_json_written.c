/* JSON schemas for writing: the order of members, integers as digits, blanks by style; and completions of every
 * prefix. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "support/schema_testing.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct example {
    const char *schema;
    spry_json_style style;
    const char *yes[12], *no[14]; /* texts, up to the first NULL */
} example;

static spry_grammar *written(const char *schema, spry_json_style style)
{
    spry_grammar *grammar;
    spry_error error;
    if (spry_grammar_create_styled(&grammar, SPRY_GRAMMAR_JSON_SCHEMA, style, spry_view_of(schema), &error))
        fail_msg("%s: %s", schema, error.message);
    return grammar;
}

static void check_examples(const example *examples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        spry_grammar *grammar = written(examples[i].schema, examples[i].style);
        for (size_t k = 0; k < COUNT(examples->yes) && examples[i].yes[k]; k++) {
            if (!matches(grammar, examples[i].yes[k]))
                fail_msg("%s does not take %s", examples[i].schema, examples[i].yes[k]);
            check_completions(grammar, examples[i].yes[k]);
        }
        for (size_t k = 0; k < COUNT(examples->no) && examples[i].no[k]; k++)
            if (matches(grammar, examples[i].no[k]))
                fail_msg("%s takes %s", examples[i].schema, examples[i].no[k]);
        spry_grammar_unref(grammar);
    }
}

#define PERSON                                                                                                         \
    "{\"type\":\"object\",\"properties\":{\"reasoning\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\"},"         \
    "\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"a/b\",\"\\u00e9\"]}}},\"required\":[\"reasoning\",\"age\"]}"

static void members(void **state)
{
    (void)state;
    static const example examples[] = {
        {PERSON,
         SPRY_JSON_COMPACT,
         {"{\"reasoning\":\"x\",\"age\":13}",
          "{\"reasoning\": \"x y\", \"age\": -1, \"tags\": [\"a/b\", \"\xC3\xA9\"]}"},
         {"{\"age\":1,\"reasoning\":\"x\"}", "{\"reasoning\":\"x\"}", "{\"reasoning\":\"x\",\"age\":1,\"other\":1}",
          "{\"reasoning\":\"x\",\"tags\":[],\"age\":1}", "{\"reasoning\":\"x\",\"age\":1,\"tags\":[\"a\\/b\"]}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"minProperties\":2}",
         SPRY_JSON_COMPACT,
         {"{\"a\":1,\"b\":2}", "{\"b\":1,\"c\":2}", "{\"a\":1,\"c\":2}", "{\"a\":null,\"b\":2,\"c\":3}"},
         {"{\"a\":1}", "{\"c\":1,\"a\":2}", "{}", "{\"c\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"required\":[\"c\"],\"maxProperties\":2}",
         SPRY_JSON_COMPACT,
         {"{\"c\":1}", "{\"a\":1,\"c\":2}", "{\"b\":1,\"c\":2}"},
         {"{\"a\":1,\"b\":2}", "{\"a\":1,\"b\":2,\"c\":3}", "{\"c\":1,\"a\":2}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":"
         "\"integer\"}}",
         SPRY_JSON_COMPACT,
         {"{\"a\":null,\"x\":1,\"y\":2}", "{\"x\":1}", "{}"},
         {"{\"x\":1,\"a\":null}", "{\"x\":null}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"patternProperties\":{\"^x\":{\"type\":\"null\"}}}",
         SPRY_JSON_COMPACT,
         {"{\"a\":1,\"xy\":null}", "{\"x\":null}"},
         {"{\"b\":1}", "{\"x\":1}"}},
        {"{\"type\":\"object\"}", SPRY_JSON_COMPACT, {"{\"any\":{\"b\":[1, 2]}}", "{}"}, {"[]", "{ }"}},
        {"{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"name\":{\"pattern\":\"^[a-z]{1,8}$\",\"type\":"
         "\"string\"},"
         "\"children\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
         "n\"},\"maxItems\":2}},\"required\":[\"name\"]}},"
         "\"$ref\":\"#/$defs/n\"}",
         SPRY_JSON_COMPACT,
         {"{\"name\":\"a\",\"children\":[{\"name\":\"b\",\"children\":[]}, {\"name\": \"c\"}]}"},
         {"{\"children\":[]}"}},
    };
    check_examples(examples, COUNT(examples));
}

static void numbers(void **state)
{
    (void)state;
    static const example examples[] = {
        {"{\"type\":\"integer\"}", SPRY_JSON_COMPACT, {"0", "7", "-12"}, {"1.0", "1e16", "-0", "12345678901234567890"}},
        {"{\"type\":\"integer\",\"minimum\":-5,\"maximum\":120}", SPRY_JSON_FREE, {"0", "-5", "120"}, {"-6", "5.0"}},
        {"{\"type\":\"number\"}", SPRY_JSON_COMPACT, {"0", "-0.5", "3.25"}, {"1e5", "1.0e2", "0.1234567890123456"}},
        {"{\"type\":\"number\",\"minimum\":1e30}", SPRY_JSON_COMPACT, {"1e31"}, {"5"}},
        {"{\"enum\":[1,2.5,1e300,0]}", SPRY_JSON_COMPACT, {"1", "2.5", "1e300", "0"}, {"1.0", "2.50", "-0"}},
        {"{\"type\":\"integer\"}", SPRY_JSON_ANY, {"1.0", "1e16"}, {"1.5"}},
    };
    check_examples(examples, COUNT(examples));
}

static void blanks(void **state)
{
    (void)state;
    static const example examples[] = {
        {"{\"type\":\"string\"}",
         SPRY_JSON_COMPACT,
         {"\"\"", "\"a b c\"", "\" a \"", "\"def f():\\n    return 1\\n\"", "\"\\t\\t\"", "\"\xC3\xA9 \\u00e9\""},
         {"\"a  b\"", "\"  \"", "\"\\u0041\""}},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":9}",
         SPRY_JSON_COMPACT,
         {"\"ab\"", "\"a b c d e\"", "\" a \"", "\"a\\n     b\"", "\"\\n\\n\\n\\n\\n\\n\\n\\n\\n\""},
         {"\"a\"", "\"a  b\"", "\"a b c d ef\"", "\"  \"", "\"\\u0041b\"", "\"a\\n       b\""}},
        {PERSON,
         SPRY_JSON_PRETTY,
         {"{\n  \"reasoning\": \"x\",\n  \"age\": 1,\n  \"tags\": []\n}",
          "{\n    \"reasoning\": \"x\",\n    \"age\": 1,\n    \"tags\": [\n        \"a/b\"\n    ]\n}"},
         {"{\"reasoning\":\"x\",\"age\":1}", "{\n\"reasoning\":\"x\",\n\"age\": 1\n}"}},
        {PERSON,
         SPRY_JSON_FREE,
         {"{ \"reasoning\" : \"x\",\n \"age\":1}", "{\"reasoning\":\"x\",\"age\":1}"},
         {"{\"age\":1,\"reasoning\":\"x\"}", "{  \"reasoning\":\"x\",\"age\":1}"}},
        {"{\"type\":\"array\",\"items\":{}}", SPRY_JSON_COMPACT, {"[]", "[1, 2]", "[1,2]"}, {"[ ]", "[1 ,2]", "[ 1]"}},
    };
    check_examples(examples, COUNT(examples));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(members), cmocka_unit_test(numbers), cmocka_unit_test(blanks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
