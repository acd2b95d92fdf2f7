/* Values and operators: what Jinja2 on Python gives for the same expressions, to the letter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "support/rendering.h"

static const render_case arithmetic[] = {
    {"1 + 2", "3"},
    {"7 // 2", "3"},
    {"-7 // 2", "-4"},
    {"-7 % 3", "2"},
    {"7 / 2", "3.5"},
    {"6 / 3", "2.0"},
    {"2 ** 10", "1024"},
    {"2 ** -1", "0.5"},
    {"2 ** 3 ** 2", "64"},
    {"10 - 2 - 3", "5"},
    {"7.5 // 2", "3.0"},
    {"-7.5 % 2", "0.5"},
    {"0.1 + 0.2", "0.30000000000000004"},
    {"true + 1", "2"},
    {"- 3 | abs", "3"},
    {"-2.5 | abs", "2.5"},
    {"+3", "3"},
    {"-0.0", "-0.0"},
    {"\"a\" * 3", "aaa"},
    {"2 * \"ab\"", "abab"},
    {"[1] * 2", "[1, 1]"},
    {"(1, 2) + (3,)", "(1, 2, 3)"},
    {"[1] + [2, [3]]", "[1, 2, [3]]"},
    {"\"a\" ~ none ~ 1.5 ~ true ~ nothing", "aNone1.5True"},
    {"9223372036854775807 - 1", "9223372036854775806"},
};

static void test_arithmetic(void **state)
{
    (void)state;
    rendering_cases(arithmetic, SPRY_COUNT(arithmetic), true);
}

static const render_case numbers[] = {
    {"1e3", "1000.0"},
    {"1.5e-7", "1.5e-07"},
    {"1e16", "1e+16"},
    {"1e22", "1e+22"},
    {"100000000000000000.0", "1e+17"},
    {"123456789012345.678", "123456789012345.67"},
    {"0.0001", "0.0001"},
    {"0.00001", "1e-05"},
    {"1/3", "0.3333333333333333"},
    {"2.5e10", "25000000000.0"},
    {"1_000", "1000"},
    {"12345.678", "12345.678"},
    {"5e-324", "5e-324"},
    {"1.7976931348623157e308", "1.7976931348623157e+308"},
};

static void test_numbers(void **state)
{
    (void)state;
    rendering_cases(numbers, SPRY_COUNT(numbers), true);
}

static const render_case comparing[] = {
    {"1 == 1.0", "True"},
    {"1 < 2 < 3", "True"},
    {"1 < 3 < 2", "False"},
    {"\"a\" < \"b\"", "True"},
    {"[1, 2] < [1, 3]", "True"},
    {"[\"a\"] == [\"a\"]", "True"},
    {"{\"a\": 1} == {\"a\": 1.0}", "True"},
    {"\"1\" == 1", "False"},
    {"none == false", "False"},
    {"nothing == nothing2", "True"},
    {"nothing == none", "False"},
    {"(1,) == [1]", "False"},
    {"not 1 == 2", "True"},
    {"1 == 1 and 2 == 3 or true", "True"},
    {"1 and \"x\"", "x"},
    {"\"\" or \"y\"", "y"},
    {"not not 1", "True"},
    {"1 in [1, 2]", "True"},
    {"\"b\" not in \"abc\"", "False"},
    {"\"a\" in {\"a\": 1}", "True"},
    {"\"a\" in nothing", "False"},
    {"messages[0] in messages", "True"},
    {"1 if true else 2 if false else 3", "1"},
    {"(1 if false) is defined", "False"},
    {"'a' if 1 else 'b' ~ 'c'", "a"},
};

static void test_comparing(void **state)
{
    (void)state;
    rendering_cases(comparing, SPRY_COUNT(comparing), true);
}

static const render_case literals[] = {
    {"{\"a\": 1, 'b': [1, \"x'y\", none, True, 1.0]}", "{'a': 1, 'b': [1, \"x'y\", None, True, 1.0]}"},
    {"(\"a\",)", "('a',)"},
    {"()", "()"},
    {"[1, 2,]", "[1, 2]"},
    {"{\"a\": 1,}", "{'a': 1}"},
    {"{\"a\": 1, \"a\": 2}", "{'a': 2}"},
    {"{1: \"x\"}[1]", "x"},
    {"[\"a\\\"b'c\\n\\t\\\\\\x01\"]", "['a\"b\\'c\\n\\t\\\\\\x01']"},
    {"[\"it's\"]", "[\"it's\"]"},
    {"'a' 'b' \"c\"", "abc"},
    {"'x\\ty\\\\n\\x41\\u00e9\\''", "x\ty\\nA\xc3\xa9'"},
    {"\"\\q\"", "\\q"},
    {"\"\\101\"", "A"},
    {"[nothing]", "[Undefined]"},
    {"range(3) | list", "[0, 1, 2]"},
    {"range(5, 0, -2) | list", "[5, 3, 1]"},
    {"dict(a=1, b=2)", "{'a': 1, 'b': 2}"},
    {"dict({\"a\": 1}, c=3)", "{'a': 1, 'c': 3}"},
    {"dict([(\"a\", 1)])", "{'a': 1}"},
};

static void test_literals(void **state)
{
    (void)state;
    rendering_cases(literals, SPRY_COUNT(literals), true);
}

static const render_case parts[] = {
    {"[1, 2, 3][::-1]", "[3, 2, 1]"},
    {"\"hello\"[1:3]", "el"},
    {"\"hello\"[-3:]", "llo"},
    {"\"hello\"[::2]", "hlo"},
    {"\"hello\"[::-1]", "olleh"},
    {"\"hello\"[10:]", ""},
    {"\"hello\"[3:1]", ""},
    {"\"hello\"[-99:99]", "hello"},
    {"[1, 2, 3, 4][1:-1]", "[2, 3]"},
    {"[1, 2, 3, 4][-1:0:-2]", "[4, 2]"},
    {"[1, 2, 3, 4][9223372036854775807:]", "[]"},
    {"[1, 2, 3][::9223372036854775807]", "[1]"},
    {"[1, 2][5] is defined", "False"},
    {"\"abc\".0", "a"},
    {"\"abc\"[-1]", "c"},
    {"{\"a\": {\"b\": [10, 20]}}.a.b.1", "20"},
    {"{\"a\": 1}[\"b\"] is defined", "False"},
    {"none.x is defined", "False"},
    {"\"s\".x is defined", "False"},
    {"{\"items\": 5}[\"items\"]", "5"},
    {"{\"items\": 5}.items is callable", "True"},
    {"messages[-1].role", "user"},
    {"messages[1][\"content\"] | length", "7"},
    {"messages == messages[:]", "True"},
};

static void test_parts(void **state)
{
    (void)state;
    rendering_cases(parts, SPRY_COUNT(parts), true);
}

static const render_case asked[] = {
    {"1 is number", "True"},
    {"true is number", "True"},
    {"1.5 is float", "True"},
    {"1 is integer", "True"},
    {"true is integer", "False"},
    {"true is boolean", "True"},
    {"\"a\" is string", "True"},
    {"{} is mapping", "True"},
    {"[] is sequence", "True"},
    {"\"a\" is sequence", "True"},
    {"{} is sequence", "True"},
    {"1 is iterable", "False"},
    {"\"\" is iterable", "True"},
    {"nothing is iterable", "True"},
    {"none is none", "True"},
    {"nothing is undefined", "True"},
    {"nothing is not defined", "True"},
    {"4 is divisibleby 2", "True"},
    {"4 is divisibleby(3)", "False"},
    {"3 is odd", "True"},
    {"3 is not odd", "False"},
    {"3 is even", "False"},
    {"1 is eq 1", "True"},
    {"1 is ne 1", "False"},
    {"2 is gt 1", "True"},
    {"2 is le 1", "False"},
    {"2 is in [1, 2]", "True"},
    {"\"a\" is lower", "True"},
    {"\"A1\" is upper", "True"},
    {"true is true", "True"},
    {"1 is true", "False"},
    {"false is false", "True"},
    {"none is sameas none", "True"},
    {"\"upper\" is filter", "True"},
    {"\"nope\" is filter", "False"},
    {"\"odd\" is test", "True"},
};

static void test_asked(void **state)
{
    (void)state;
    rendering_cases(asked, SPRY_COUNT(asked), true);
}

/* Where Python would go on with numbers of any size, or has no meaning either. */
static void test_refused(void **state)
{
    (void)state;
    static const render_case cases[] = {
        {"{{ 9223372036854775807 + 1 }}", "line 1|64 bits"},
        {"{{ -9223372036854775807 - 2 }}", "64 bits"},
        {"{{ 9223372036854775807 * 2 }}", "64 bits"},
        {"{{ -9223372036854775807 * 9223372036854775807 }}", "64 bits"},
        {"{{ (-9223372036854775807 - 1) // -1 }}", "64 bits"},
        {"{{ 10 ** 19 }}", "64 bits"},
        {"{{ (-9223372036854775807 - 1) | abs }}", "64 bits"},
        {"{{ 1 / 0 }}", "division by zero"},
        {"{{ 1 % 0 }}", "division by zero"},
        {"{{ 1.5 // 0 }}", "division by zero"},
        {"{{ 'a' + 1 }}", "a str and a int have no '+'"},
        {"{{ none + 'a' }}", "NoneType|str"},
        {"{{ nothing + 1 }}", "'nothing' is undefined"},
        {"{{ nothing.x }}", "'nothing' is undefined"},
        {"{{ messages[0].nothing.x }}", "'nothing' is undefined"},
        {"{{ nothing() }}", "'nothing' is undefined and cannot be called"},
        {"{{ 3() }}", "a int cannot be called"},
        {"{{ 'a' in 5 }}", "a int cannot be gone through"},
        {"{{ 5 in 'a' }}", "a str holds no int"},
        {"{{ 'a' < 1 }}", "have no order"},
        {"{{ {[]: 1} }}", "a list cannot be a key"},
        {"{{ 'abc'['a':] }}", "bound of a slice"},
        {"{{ 'abc'[::0] }}", "step of a slice"},
        {"{{ none[1:] }}", "a NoneType has no slices"},
        {"{{ none | length }}", "a NoneType has no length"},
        {"{{ [] | map('upper') | length }}", "generator"},
        {"{{ range(100001) }}", "100000"},
        {"{{ range(0, 9223372036854775807, 9223372036854775807) | length }}{{ range('a') }}", "whole numbers"},
        {"\n\n{{ raise_exception('no such role: ' ~ 5) }}", "line 3|no such role: 5"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++)
        rendering_fails(cases[i].source, cases[i].expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_numbers), cmocka_unit_test(test_comparing),
        cmocka_unit_test(test_literals),   cmocka_unit_test(test_parts),   cmocka_unit_test(test_asked),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
