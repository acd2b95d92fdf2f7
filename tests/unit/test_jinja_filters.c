/* Filters and methods: what Jinja2 on Python gives for the same expressions, to the letter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "support/rendering.h"

static const render_case text_filters[] = {
    {"\"  a b  \" | trim", "a b"},
    {"\"xxaxx\" | trim(\"x\")", "a"},
    {"\"abc\" | upper", "ABC"},
    {"\"ABC\" | lower", "abc"},
    {"\"hello wORLD-foo it's (x)\" | title", "Hello World-Foo It's (X)"},
    {"\"hELLO\" | capitalize", "Hello"},
    {"\"a\\nb\\n\\nc\" | indent", "a\n    b\n\n    c"},
    {"\"a\\nb\\n\\nc\" | indent(2, true, true)", "  a\n  b\n  \n  c"},
    {"\"a\\nb\" | indent(width=1, first=true)", " a\n b"},
    {"\"a\\nb\" | indent(\">\")", "a\n>b"},
    {"\"<a&'\\\">\" | e", "&lt;a&amp;&#39;&#34;&gt;"},
    {"\"<a>\" + (\"<b>\" | safe)", "&lt;a&gt;<b>"},
    {"(\"<b>\" | e) ~ \"<c>\"", "&lt;b&gt;<c>"},
    {"\"aaa\" | replace(\"a\", \"b\", 2)", "bba"},
    {"5 | replace(\"5\", \"6\")", "6"},
    {"\"a b  c\" | wordcount", "3"},
    {"\"%s-%d-%.2f-%5s|%-5s|%05d|%x\" | format(\"a\", 3, 2.5, \"x\", \"y\", 42, 255)", "a-3-2.50-    x|y    |00042|ff"},
    {"\"%s %r\" % (\"a\", \"b\")", "a 'b'"},
    {"\"%d%%\" % 5", "5%"},
    {"5 | string ~ \"x\"", "5x"},
    {"\"abc\" | reverse", "cba"},
    {"\"x\" | tojson | length", "3"},
};

static void test_text_filters(void **state)
{
    (void)state;
    rendering_cases(text_filters, SPRY_COUNT(text_filters), true);
}

static const render_case json_filter[] = {
    {"{\"a\": 1, 'b': [1, \"x'y\", none, True, 1.0], \"c\": {}} | tojson",
     "{\"a\": 1, \"b\": [1, \"x'y\", null, true, 1.0], \"c\": {}}"},
    {"[] | tojson(indent=2)", "[]"},
    {"{\"a\": [1, 2], \"b\": {\"c\": {}}} | tojson(indent=2)",
     "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {\n    \"c\": {}\n  }\n}"},
    {"\"\\u00e9\\u2028<>&'\\\"\\n\\x01\\x7f\" | tojson", "\"\xc3\xa9\xe2\x80\xa8<>&'\\\"\\n\\u0001\x7f\""},
    {"\"\\u00e9\\U0001f600\" | tojson(ensure_ascii=true)", "\"\\u00e9\\ud83d\\ude00\""},
    {"{\"b\": 1, \"a\": 2} | tojson(sort_keys=true)", "{\"a\": 2, \"b\": 1}"},
    {"[1, {\"a\": 2}] | tojson(separators=(\",\", \":\"))", "[1,{\"a\":2}]"},
    {"{1: 2, none: 3, 2.5: 4} | tojson", "{\"1\": 2, \"null\": 3, \"2.5\": 4}"},
};

static void test_json_filter(void **state)
{
    (void)state;
    rendering_cases(json_filter, SPRY_COUNT(json_filter), true);
}

static const render_case number_filters[] = {
    {"\"1.7\" | int", "1"},
    {"\"x\" | int", "0"},
    {"\"x\" | int(5)", "5"},
    {"\" -12 \" | int", "-12"},
    {"3.9 | int", "3"},
    {"-3.9 | int", "-3"},
    {"none | int(7)", "7"},
    {"true | int", "1"},
    {"\"1.5\" | float", "1.5"},
    {"\"x\" | float", "0.0"},
    {"3 | float", "3.0"},
    {"7 | round(2)", "7"},
    {"2.5 | round", "2.0"},
    {"3.5 | round", "4.0"},
    {"3.14159 | round(2)", "3.14"},
    {"2.1 | round(0, \"ceil\")", "3.0"},
    {"2.9 | round(method=\"floor\")", "2.0"},
};

static void test_number_filters(void **state)
{
    (void)state;
    rendering_cases(number_filters, SPRY_COUNT(number_filters), true);
}

static const render_case any_filters[] = {
    {"nothing | default(\"x\")", "x"},
    {"none | default(\"x\")", "None"},
    {"\"\" | default(\"x\", true)", "x"},
    {"nothing | d(\"y\")", "y"},
    {"nothing | default", ""},
    {"nothing | length", "0"},
    {"[1, 2] | length", "2"},
    {"{\"a\": 1} | count", "1"},
    {"\"\\u00e9\" | length", "1"},
    {"{\"a\": {\"b\": 2}} | attr(\"x\") is defined", "False"},
};

static void test_any_filters(void **state)
{
    (void)state;
    rendering_cases(any_filters, SPRY_COUNT(any_filters), true);
}

static const render_case sequence_filters[] = {
    {"[3, 1, 2] | sort", "[1, 2, 3]"},
    {"[\"b\", \"A\", \"c\"] | sort", "['A', 'b', 'c']"},
    {"[\"b\", \"A\", \"c\"] | sort(case_sensitive=true)", "['A', 'b', 'c']"},
    {"[3, 1, 2] | sort(reverse=true)", "[3, 2, 1]"},
    {"[{\"k\": 2}, {\"k\": 1}] | sort(attribute=\"k\")", "[{'k': 1}, {'k': 2}]"},
    {"{\"b\": 1, \"a\": 2} | dictsort", "[('a', 2), ('b', 1)]"},
    {"{\"b\": 1, \"a\": 2} | dictsort(by=\"value\")", "[('b', 1), ('a', 2)]"},
    {"{\"b\": 1, \"a\": 2} | dictsort(reverse=true)", "[('b', 1), ('a', 2)]"},
    {"{\"b\": 1, \"a\": 2} | items | list", "[('b', 1), ('a', 2)]"},
    {"[1, 2, 3] | first", "1"},
    {"[1, 2, 3] | last", "3"},
    {"[] | first is defined", "False"},
    {"\"abc\" | list", "['a', 'b', 'c']"},
    {"[1, 2, 2, 1] | unique | list", "[1, 2]"},
    {"[\"a\", \"A\"] | unique | list", "['a']"},
    {"[1, 5, 3] | max", "5"},
    {"[1, 5, 3] | min", "1"},
    {"[\"b\", \"A\"] | min", "A"},
    {"[1, 2, 3] | sum", "6"},
    {"[{\"a\": 1}, {\"a\": 2}] | sum(attribute=\"a\")", "3"},
    {"[[1, 2], [3]] | sum(start=[])", "[1, 2, 3]"},
    {"[1, 2, 3] | reverse | list", "[3, 2, 1]"},
    {"[1, \"a\", none] | join(\"-\")", "1-a-None"},
    {"[{\"a\": 1}, {\"a\": 2}] | join(\",\", attribute=\"a\")", "1,2"},
    {"[{\"a\": {\"b\": 1}}, {\"a\": {\"b\": 2}}] | map(attribute=\"a.b\") | list", "[1, 2]"},
    {"[\"a\", \"b\"] | map(\"upper\") | list", "['A', 'B']"},
    {"[\"a\", \"b\"] | map(\"replace\", \"a\", \"c\") | list", "['c', 'b']"},
    {"[{\"a\": 1}, {}] | map(attribute=\"a\", default=9) | list", "[1, 9]"},
    {"[1, 2, 3, 4] | select(\"even\") | list", "[2, 4]"},
    {"[1, 2, 3, 4] | reject(\"gt\", 2) | list", "[1, 2]"},
    {"[0, 1, \"\"] | select | list", "[1]"},
    {"[{\"a\": 1}, {\"a\": 0}, {}] | selectattr(\"a\") | list", "[{'a': 1}]"},
    {"[{\"a\": 1}, {\"a\": 2}] | selectattr(\"a\", \"equalto\", 2) | list", "[{'a': 2}]"},
    {"[{\"a\": 1}, {\"b\": 2}] | selectattr(\"a\", \"defined\") | list", "[{'a': 1}]"},
    {"[{\"a\": 1}, {\"a\": 2}] | rejectattr(\"a\", \"==\", 2) | list", "[{'a': 1}]"},
    {"none | selectattr(\"a\") | list", "[]"},
    {"\"x\" if [] | map(\"upper\") else \"y\"", "x"},
    {"[1, 2, 3] | batch(2) | list", "[[1, 2], [3]]"},
    {"[1, 2, 3] | batch(2, 0) | list", "[[1, 2], [3, 0]]"},
    {"messages | map(attribute=\"role\") | join(\",\")", "system,user"},
    {"(messages | selectattr(\"role\", \"in\", [\"user\"]) | list)[0].content", "Hi <b>\xc3\xa9"},
};

static void test_sequence_filters(void **state)
{
    (void)state;
    rendering_cases(sequence_filters, SPRY_COUNT(sequence_filters), true);
}

static const render_case string_methods[] = {
    {"\"a-b-c\".split(\"-\")", "['a', 'b', 'c']"},
    {"\"a-b-c\".split(\"-\", 1)", "['a', 'b-c']"},
    {"\"a-b-c\".rsplit(\"-\", 1)", "['a-b', 'c']"},
    {"\" a  b \".split()", "['a', 'b']"},
    {"\"a b c\".split(none, 1)", "['a', 'b c']"},
    {"\"\".split(\"-\")", "['']"},
    {"\"\".split()", "[]"},
    {"\"a\\nb\\r\\nc\\n\".splitlines()", "['a', 'b', 'c']"},
    {"\"ab\".partition(\"x\")", "('ab', '', '')"},
    {"\"a=b=c\".rpartition(\"=\")", "('a=b', '=', 'c')"},
    {"\"  x \".strip() ~ \"|\"", "x|"},
    {"\"xxayx\".lstrip(\"x\")", "ayx"},
    {"\"xxayx\".rstrip(\"xy\")", "xxa"},
    {"\"abc\".startswith(\"ab\")", "True"},
    {"\"abc\".endswith((\"x\", \"c\"))", "True"},
    {"\"abcabc\".find(\"c\")", "2"},
    {"\"abcabc\".rfind(\"c\")", "5"},
    {"\"\\u00e9c\".find(\"c\")", "1"},
    {"\"abc\".find(\"z\")", "-1"},
    {"\"abc\".index(\"b\")", "1"},
    {"\"aXbX\".replace(\"X\", \"-\")", "a-b-"},
    {"\"aXbX\".replace(\"X\", \"-\", 1)", "a-bX"},
    {"\"abc\".replace(\"\", \"-\")", "-a-b-c-"},
    {"\"abab\".count(\"ab\")", "2"},
    {"\"-\".join([\"a\", \"b\"])", "a-b"},
    {"\"12\".isdigit()", "True"},
    {"\"a1\".isdigit()", "False"},
    {"\"aB\".isalpha()", "True"},
    {"\"a1\".isalnum()", "True"},
    {"\"AB\".isupper()", "True"},
    {"\"  \".isspace()", "True"},
    {"\"\\u00e9a\".upper()", "\xc3\x89"
                             "A"},
    {"\"hello wORLD-foo it's\".title()", "Hello World-Foo It'S"},
    {"\"hELLO\".capitalize()", "Hello"},
    {"\"prefix-a\".removeprefix(\"prefix-\")", "a"},
    {"\"a.b\".removesuffix(\".b\")", "a"},
    {"\"{0} {1} {0} {n}\".format(1, \"b\", n=3)", "1 b 1 3"},
    {"\"{} {}\".format(\"a\", 2.5)", "a 2.5"},
    {"\"{:>5}|{:<5}|{:^5}|{:*^7}|{:05d}|{:.2f}|{:,}|{:+d}\".format(\"a\", \"b\", \"c\", \"d\", 42, 3.14159, 1234567, "
     "5)",
     "    a|b    |  c  |***d***|00042|3.14|1,234,567|+5"},
    {"\"{{}}\".format()", "{}"},
    {"\"{!r}\".format(\"a\")", "'a'"},
    {"\"{a[x]}\".format(a={\"x\": 1})", "1"},
};

static void test_string_methods(void **state)
{
    (void)state;
    rendering_cases(string_methods, SPRY_COUNT(string_methods), true);
}

static const render_case other_methods[] = {
    {"{\"a\": 1}.get(\"a\")", "1"},
    {"{\"a\": 1}.get(\"b\")", "None"},
    {"{\"a\": 1}.get(\"b\", 2)", "2"},
    {"{\"a\": 1, \"b\": 2}.keys() | list", "['a', 'b']"},
    {"{\"a\": 1, \"b\": 2}.values() | list", "[1, 2]"},
    {"{\"a\": 1}.copy()", "{'a': 1}"},
    {"[1, 2].index(2)", "1"},
    {"[1, 1, 2].count(1)", "2"},
    {"[1, 2].copy()", "[1, 2]"},
    {"strftime_now(\"%Y-%m-%d %H:%M:%S %B %b %A %a %j %p %I %y %-d %%\")",
     "2026-01-02 03:04:05 January Jan Friday Fri 002 AM 03 26 2 %"},
};

static void test_other_methods(void **state)
{
    (void)state;
    rendering_cases(other_methods, SPRY_COUNT(other_methods), true);
}

/* Methods that change a list or a dict, which Jinja2 allows outside its sandbox. */
static void test_changing(void **state)
{
    (void)state;
    static const render_case cases[] = {
        {"{% set l = [1] %}{% set x = l.append(2) %}{{ l }}{{ x }}", "[1, 2]None"},
        {"{% set l = [1, 2, 3] %}{{ l.pop() }}{{ l.pop(0) }}{{ l }}", "31[2]"},
        {"{% set l = [1] %}{% set x = l.extend([2, 3]) %}{% set x = l.insert(0, 0) %}{{ l }}", "[0, 1, 2, 3]"},
        {"{% set l = [1] %}{% set x = l.insert(-9, 0) %}{% set x = l.insert(9, 2) %}{{ l }}", "[0, 1, 2]"},
        {"{% set d = {'a': 1} %}{% set x = d.update({'b': 2}, c=3) %}{{ d.pop('a') }}{{ d }}{{ d.pop('z', 4) }}",
         "1{'b': 2, 'c': 3}4"},
        {"{% set l = [1] %}{% for x in l %}{% set y = l.append(2) %}{% endfor %}{{ l }}", "[1, 2]"},
    };
    rendering_cases(cases, SPRY_COUNT(cases), false);
}

static void test_refused(void **state)
{
    (void)state;
    static const render_case cases[] = {
        {"{{ 1 | nofilter }}", "no filter 'nofilter'"},
        {"{{ 1 is notest }}", "no test 'notest'"},
        {"{{ nothing | int }}", "'nothing' is undefined"},
        {"{{ nothing | float }}", "'nothing' is undefined"},
        {"{{ 5 | indent }}", "indent takes a str, not a int"},
        {"{{ [1] | map }}", "map()"},
        {"{{ [1] | select(5) }}", "names of attributes and tests"},
        {"{{ 5 | items | list }}", "items takes a dict"},
        {"{{ 'a'.split('') }}", "separator"},
        {"{{ 'a'.index('b') }}", "index()"},
        {"{{ [].pop() }}", "pop()"},
        {"{{ {}.pop('a') }}", "pop()"},
        {"{{ ','.join([1]) }}", "join()"},
        {"{{ '%d' % 'a' }}", "cannot be formatted"},
        {"{{ '%s %s' % 'a' }}", "too few values"},
        {"{{ '%s' % ('a', 'b') }}", "1 of 2 values"},
        {"{{ '%' % 1 }}", "not understood"},
        {"{{ '{}'.format() }}", "no value for"},
        {"{{ '{'.format() }}", "single '{'"},
        {"{{ '{:?}'.format(1) }}", "does not understand"},
        {"{{ range | tojson }}", "no form in JSON"},
        {"{{ nothing | tojson }}", "no form in JSON"},
        {"{{ {(1,): 2} | tojson }}", "key in JSON"},
        {"{{ 'a' | round }}", "cannot be rounded"},
        {"{{ [1] | batch(0) }}", "batch()"},
        {"{{ [1, 'a'] | sort }}", "no order"},
        {"{{ strftime_now(5) }}", "strftime_now"},
        {"{{ dict([1]) }}", "cannot be gone through"},
        {"{{ dict([(1, 2, 3)]) }}", "pairs"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++)
        rendering_fails(cases[i].source, cases[i].expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_filters),     cmocka_unit_test(test_json_filter),
        cmocka_unit_test(test_number_filters),   cmocka_unit_test(test_any_filters),
        cmocka_unit_test(test_sequence_filters), cmocka_unit_test(test_string_methods),
        cmocka_unit_test(test_other_methods),    cmocka_unit_test(test_changing),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
