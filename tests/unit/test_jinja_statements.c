/* Statements and white space: what Jinja2 gives for the same templates, to the letter; and what is no template. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "support/rendering.h"

static const render_case statements[] = {
    {"{% for i in range(5) if i is odd %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ "
     "loop.first }}{{ loop.last }}{{ loop.length }}{{ i }};{% else %}none{% endfor %}",
     "1021TrueFalse21;2110FalseTrue23;"},
    {"{% for i in [] %}x{% else %}empty{% endfor %}", "empty"},
    {"{% for k, v in {\"a\": 1, \"b\": 2}.items() %}{{ k }}={{ v }}{{ \",\" if not loop.last }}{% endfor %}",
     "a=1,b=2"},
    {"{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
    {"{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% "
     "endfor %}",
     "0134"},
    {"{% for a in [1, 2, 3] %}{{ loop.previtem }}|{{ loop.nextitem }}|{{ loop.cycle(\"x\", \"y\") }}|{{ loop.changed(a "
     "> 1) }} {% endfor %}",
     "|2|x|True 1|3|y|True 2||x|False "},
    {"{% for x in \"abc\" %}{{ x }}.{% endfor %}{% for x in {\"a\": 1} %}{{ x }}{% endfor %}{% for x in nothing %}{{ x "
     "}}{% else %}e{% endfor %}",
     "a.b.c.ae"},
    {"{% for i in range(2) %}{% for j in range(2) %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
     "121122"},
    {"{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}", "15151"},
    {"{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "2"},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = 1, 2 %}{{ t }}", "12(1, 2)"},
    {"{% set ns = namespace(a=1, b=\"x\") %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ "
     "ns.b }}{{ ns.c is defined }}",
     "4xFalse"},
    {"{% if true %}a{% elif false %}b{% else %}c{% endif %}{% if 0 %}a{% elif \"x\" %}b{% endif %}{% if none %}{% else "
     "%}d{% endif %}",
     "abd"},
    {"{% if 0 %}a{% elif 0 %}b{% elif 0 %}c{% else %}{% if 1 %}e{% endif %}f{% endif %}", "ef"},
    {"{% macro m(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}]{% endmacro %}{{ m(1) }}{{ m(1, 3, 4, "
     "5, z=6) }}{{ m(b=7, a=8) }}{{ m() }}{{ m(*[1, 2], **{\"c\": 3}) }}",
     "[121(){}][134(5,){'z': 6}][878(){}][2(){}][123(){}]"},
    {"{% macro m(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) m(3) %}in {{ y }}{% endcall %}", "<in 3>"},
    {"{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}", "43210"},
    {"{% set b %}  hi {{ 1 }}  {% endset %}[{{ b }}]{% set c | trim | upper %}  hi {% endset %}[{{ c }}]",
     "[  hi 1  ][HI]"},
    {"{% filter upper | replace(\"A\", \"b\") %}aha{% endfilter %}", "bHb"},
    {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "3False"},
    {"{% generation %}words{% endgeneration %}", "words"},
    {"{% if false %}{{ raise_exception(\"x\") }}{% endif %}ok", "ok"},
    {"{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}", "<s></s>True"},
};

static void test_statements(void **state)
{
    (void)state;
    rendering_cases(statements, SPRY_COUNT(statements), false);
}

static const render_case white_space[] = {
    {"a {{- 1 -}} b {{ 2 }}", "a1b 2"},
    {"a {#- c -#} b {# c #} d", "ab  d"},
    {"a {%- if true -%} b {%- endif -%} c", "abc"},
    {"  {% if true %}\n  x\n  {% endif %}\ny\n", "  x\ny"},
    {"  {%+ if true %}z{% endif +%}\nw", "  z\nw"},
    {"{% raw %}{{ x }} {% if %}{% endraw %} {%- raw -%}  {{ y }}  {%- endraw -%} z", "{{ x }} {% if %}{{ y }}z"},
    {"{% if true %}\n  a\n{% endif %}\nb\n", "  a\nb"},
    {"  {# c #}\nx\n", "x"},
    {"a\n\n", "a\n"},
    {"x\r\ny\r{% if 1 %}\r\nz{% endif %}", "x\ny\nz"},
    {"   {{ 1 }}\n", "   1"},
    {"\n  {%- if 1 %}\n  q\n  {%- endif %}\n", "  q"},
    {"a {% if 1 %}b{% endif %}\n  c", "a b  c"},
    {"{% for i in [1,2] %}\n  {{ i }}\n{% endfor %}\n", "  1\n  2\n"},
    {"\t{% set x = 1 %}\n\t{{ x }}", "\t1"},
    {"{{ 'a\nb' }}", "a\nb"},
    {"{%- set x = {\n 'a': 1,\n} %}{{ x }}", "{'a': 1}"},
    {"{%if 1%}a{%endif%}{{1}}", "a1"},
    {"{{-1}}", "1"},
    {"{{ 1 -1 }}", "0"},
    {"{% set x=1 -%}\n\n  y", "y"},
    {"{# multi\nline -#}\n z\n{#- t #}", "z"},
    {"a{% raw %}\n x {% endraw %}\nb", "a\n x b"},
    {"{% raw -%}\n x\n{%- endraw %}\n b", "x b"},
    {"{% macro a() %}\n x\n{% endmacro %}\n[{{ a() }}]", "[ x\n]"},
    {"{{ {'a':{'b':1}} }}", "{'a': {'b': 1}}"},
    {"{{ {'a':{}}}}", "{'a': {}}"},
    {"{% set x %}\n a\n{% endset %}[{{x}}]", "[ a\n]"},
    {"{", "{"},
    {"{ {", "{ {"},
    {"a { % b", "a { % b"},
    {"}} %} #}", "}} %} #}"},
};

static void test_white_space(void **state)
{
    (void)state;
    rendering_cases(white_space, SPRY_COUNT(white_space), false);
}

/* The sentence says what is wrong and in which line; ChatML is used instead. */
static void test_no_template(void **state)
{
    (void)state;
    static const render_case cases[] = {
        {"{% if %}", "line 1: a value is expected"},
        {"\n\n{% if 1 %}", "line 3: 'endif' is missing"},
        {"{% for x in y %}", "'endfor' is missing"},
        {"{% for 5 in y %}{% endfor %}", "a name is expected, not '5'"},
        {"{% for x of y %}{% endfor %}", "'in' is expected, not 'of'"},
        {"{% endif %}", "the statement 'endif' is not known here"},
        {"{% include 'x' %}", "the statement 'include' is not known here"},
        {"{{ a b }}", "the end of the tag is expected, not 'b'"},
        {"{{ (1 }}", "does not end"},
        {"{{ [1 %} }}", "a value is expected"},
        {"{{ [1 2] }}", "',' is expected, not '2'"},
        {"{{ 'a }}", "a string does not end"},
        {"{{ a", "a tag does not end"},
        {"{# a", "a comment does not end"},
        {"{% raw %} a", "a raw block does not end"},
        {"{{ a ? b }}", "no meaning"},
        {"{{ 99999999999999999999 }}", "too large"},
        {"{{ 1e999 }}", "too large"},
        {"{{ a[] }}", "index is missing"},
        {"{{ a. }}", "a name is expected"},
        {"{{ a | }}", "a name is expected, not '}}'"},
        {"{% set %}", "a name is expected, not '%}'"},
        {"{% set a = %}", "a value is expected"},
        {"{% macro m(1) %}{% endmacro %}", "a name is expected"},
        {"{% call x %}{% endcall %}", "a call is expected"},
        {"{% if 1 %}{% else %}{% else %}{% endif %}", "'else' is not known here"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_chat_template *chat;
        assert_int_equal(spry_chat_template_create(&chat, spry_view_of(cases[i].source), NULL), SPRY_OK);
        assert_false(spry_chat_template_is_own(chat));
        if (!strstr(spry_chat_template_problem(chat), cases[i].expected))
            fail_msg("%s: %s", cases[i].source, spry_chat_template_problem(chat));
        json_t *json = rendering_json("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}");
        spry_chat_text text;
        assert_int_equal(rendering_request(&text, chat, json, NULL), SPRY_OK);
        assert_string_equal(text.text.data, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
        spry_chat_text_deinit(&text);
        json_decref(json);
        spry_chat_template_destroy(chat);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const render_case cases[] = {
        {"{% for x in none %}{% endfor %}", "a NoneType cannot be gone through"},
        {"{% for a, b in [1] %}{% endfor %}", "cannot be gone through"},
        {"{% for a, b in [(1, 2, 3)] %}{% endfor %}", "3 values for 2 names"},
        {"{% set x.y = 1 %}", "namespace only"},
        {"{% set x = {} %}{% set x.y = 1 %}", "namespace only|'x' is a dict"},
        {"{% macro m() %}{{ nothing.x }}{% endmacro %}\n{{ m() }}", "line 1"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++)
        rendering_fails(cases[i].source, cases[i].expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statements),
        cmocka_unit_test(test_white_space),
        cmocka_unit_test(test_no_template),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
