/* Templates that want to hang, to fill the memory or to break the stack, and templates that were damaged: each ends in
 * a moment with a text or a sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <time.h>

#include "base/compiler.h"
#include "support/rendering.h"

static void test_limits(void **state)
{
    (void)state;
    static const render_case cases[] = {
        /* time */
        {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "steps|memory"},
        {"{% for a in range(100000) %}{% for b in messages %}{% if a %}{% endif %}{% endfor %}{% endfor %}",
         "steps|memory"},
        {"{% set x = range(100000) | list %}{% for a in x %}{% if x[:] == x %}{% endif %}{% endfor %}", "memory|steps"},
        {"{% set x = range(100000) | list %}{{ x | unique | list | length }}", "steps"},
        {"{% set x = 'ab' * 100000 %}{% for a in range(100000) %}{% if 'c' in x %}{% endif %}{% endfor %}", "steps"},
        {"{% set x = 'a' * 100000 %}{% for a in range(100000) %}{% if x | wordcount %}{% endif %}{% endfor %}",
         "steps"},
        {"{% set x = 'a' * 100000 %}{% for a in range(100000) %}{% if x.count('') %}{% endif %}{% endfor %}", "steps"},
        {"{% set x = 'a' * 100000 %}{% for a in range(100000) %}{% if x.split() %}{% endif %}{% endfor %}", "steps"},
        {"{% set x = 'a' * 1000000 %}{% for a in range(100000) %}{% if x.removeprefix(x) %}{% endif %}{% endfor %}",
         "steps"},
        /* memory */
        {"{% set ns = namespace(x='a') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
         "longer|memory"},
        {"{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "memory"},
        {"{{ 'a' * 9223372036854775807 }}", "longer|memory"},
        {"{{ [1] * 9223372036854775807 }}", "memory"},
        {"{{ [[1] * 1000] * 1000000 }}", "memory"},
        {"{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}", "longer|memory"},
        {"{{ 'a\nb' | indent(9223372036854775807) }}", "longer|memory"},
        {"{{ [1] | tojson(indent=9223372036854775807) }}", "longer|memory"},
        {"{{ '%99999999999s' % 'a' * 100000 }}", "longer|memory"},
        {"{{ 'aaaaaaaaaa'.replace('', 'b' * 10000000) }}", "longer|memory"},
        {"{{ [1] | batch(9223372036854775807, 0) | list }}", "memory|steps"},
        /* the stack */
        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nests deeper"},
        {"{% macro m(a) %}{{ n(a) }}{% endmacro %}{% macro n(a) %}{{ m([a]) }}{% endmacro %}{{ m(1) }}",
         "nests deeper"},
        {"{% set l = [] %}{% set x = l.append(l) %}{{ l }}", "nests deeper"},
        {"{% set l = [] %}{% set x = l.append(l) %}{{ l | tojson }}", "nests deeper"},
        {"{% set l = [] %}{% set x = l.append(l) %}{% set k = [] %}{% set x = k.append(k) %}{{ l == k }}",
         "nests deeper"},
        {"{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
         "nests deeper"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_chat_text text;
        spry_error error = {0};
        spry_status status = rendering_source(&text, cases[i].source, rendering_usual, &error);
        char words[64], *second;
        snprintf(words, sizeof words, "%s", cases[i].expected); /* one of them */
        second = strchr(words, '|');
        if (second)
            *second++ = 0;
        if (status != SPRY_ERR_INPUT || (!strstr(error.message, words) && !(second && strstr(error.message, second))))
            fail_msg("%s: %s", cases[i].source, status ? error.message : "no error");
        spry_chat_text_deinit(&text);
    }
}

static void repeat(spry_buffer *out, const char *part, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_true(spry_buffer_text(out, part));
}

/* Nesting in the source itself: refused by the parser or while rendering, and never by a crash. */
static void test_nesting(void **state)
{
    (void)state;
    static const struct {
        const char *open, *middle, *close;
    } cases[] = {
        {"{{ ", "(", "1 }}"},
        {"{{ ", "[", "1 }}"},
        {"{{ ", "{1:", "1 }}"},
        {"{{ ", "-", "1 }}"},
        {"{{ ", "not ", "1 }}"},
        {"", "{% if 1 %}", ""},
        {"", "{% for x in y %}", ""},
        {"{{ 1", " + 1", " }}"},
        {"{{ a", ".a", " }}"},
        {"{{ a", "[0]", " }}"},
        {"{{ a", "()", " }}"},
        {"{{ 1", " | abs", " }}"},
        {"{{ 1", " if 1 else 1", " }}"},
        {"{{ 1", " is odd", " }}"},
        {"{{ a", "[a", " }}"},
        {"{{ f", "(f", " }}"},
        {"{% for ", "(", " %}"},
        {"{{ 1", " and 1", " }}"},
        {"{{ 'a'", " ~ 'a'", " }}"},
        {"{{ 1", " < 2", " }}"},
        {"{% macro m(", "a=", " %}"},
        {"{% if 1 %}", "{% elif 1 %}", "{% endif %}"},
        {"{% set a", " | upper", " %}{% endset %}"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_buffer source;
        spry_chat_template *chat;
        spry_chat_text text;
        json_t *json = rendering_json(rendering_usual);
        spry_buffer_init(&source, 1 << 20);
        repeat(&source, cases[i].open, 1);
        repeat(&source, cases[i].middle, 50000);
        repeat(&source, cases[i].close, 1);
        assert_int_equal(spry_chat_template_create(&chat, spry_buffer_view(&source), NULL), SPRY_OK);
        if (rendering_request(&text, chat, json, NULL) == SPRY_OK)
            assert_true(text.text.size < 200000);
        spry_chat_text_deinit(&text);
        spry_chat_template_destroy(chat);
        spry_buffer_deinit(&source);
        json_decref(json);
    }
}

/* Processor time of a template over one message of a few megabytes, until it ends or its steps do. */
static double cost(const char *expression, const json_t *request)
{
    char source[512];
    spry_chat_text text;
    snprintf(
        source, sizeof source,
        "{%% set t = messages[0].content %%}{%% set x = range(100000) | list %%}{%% set y = range(100000) | list %%}"
        "{%% set d = messages[0].many %%}{%% set ns = namespace(t=t ~ '') %%}"
        "{%% for i in x %%}{%% if %s %%}{%% endif %%}{%% endfor %%}",
        expression);
    spry_chat_template *chat = rendering_template(source);
    clock_t began = clock();
    (void)rendering_request(&text, chat, request, NULL);
    double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
    spry_chat_text_deinit(&text);
    spry_chat_template_destroy(chat);
    return seconds;
}

/* `t`: the text; `x` and `y`: equal lists of 100,000 numbers; `d`: a dict with long keys. */
static const char *const expressions[] = {"t | length",
                                          "t | wordcount",
                                          "t | trim",
                                          "t.strip('x ')",
                                          "t[-1]",
                                          "'x x x x y' in t",
                                          "t.count('')",
                                          "t.count('x x y')",
                                          "t.rfind('x')",
                                          "t.split()",
                                          "t.splitlines()",
                                          "t.startswith(t)",
                                          "t.removesuffix(t)",
                                          "t.isdigit()",
                                          "t | int",
                                          "('0' * 1000000) | int",
                                          "t == ns.t",
                                          "t is upper",
                                          "t | escape",
                                          "t | tojson",
                                          "t | replace('', '')",
                                          "t[::-1]",
                                          "t | indent",
                                          "strftime_now(t)",
                                          "messages | map(attribute=t) | list",
                                          "x | attr(t)",
                                          "x.insert(0, 1)",
                                          "x.pop(0)",
                                          "x.count(5)",
                                          "x == y",
                                          "x < y",
                                          "x | sum",
                                          "x | sort",
                                          "x | unique",
                                          "d.get('none')",
                                          "d[d.keys() | last]",
                                          "d.pop(d.keys() | first)",
                                          "d | dictsort",
                                          "d | tojson(sort_keys=true)",
                                          "d == d.copy()",
                                          "loop.changed(t)",
                                          "(t, t) == (t, ns.t)"};

/* A step costs about as much in whatever a template does: no expression takes many times as long as the plainest until
 * all steps are used. */
static void test_steps_have_one_price(void **state)
{
    (void)state;
    enum { TEXT = 4 << 20, KEYS = 2000, KEY = 2000 };
    char *large = malloc(TEXT), key[KEY];
    assert_non_null(large);
    for (size_t i = 0; i < TEXT; i++)
        large[i] = i % 2 ? ' ' : 'x';
    json_t *many = json_object();
    memset(key, 'k', sizeof key);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key + KEY - 10, 10, "%09d", i); /* they differ at their ends */
        json_object_set_new(many, key, json_integer(i));
    }
    json_t *request = json_pack("{s: [{s: s, s: o, s: o}]}", "messages", "role", "user", "content",
                                json_stringn(large, TEXT), "many", many);
    assert_non_null(request);
    double plain = cost("x == y and x == y", request);
    for (size_t i = 0; i < SPRY_COUNT(expressions); i++) {
        double taken = cost(expressions[i], request);
        if (taken > 20 * plain + 0.5)
            fail_msg("%s: %.2f s of processor time, and %.2f s for comparisons", expressions[i], taken, plain);
    }
    json_decref(request);
    free(large);
}

/* Conversations are from outside too. */
static void test_messages(void **state)
{
    (void)state;
    static const struct {
        const char *request, *words;
    } cases[] = {
        {"{}", "messages must be a list"},
        {"{\"messages\": {}}", "messages must be a list"},
        {"{\"messages\": [5]}", "line 1"},
        {"{\"messages\": [{\"role\": 5, \"content\": \"a\"}]}", "have no '+'"},
        {"{\"messages\": [{\"content\": \"a\"}]}", "'role' is undefined"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_chat_text text;
        spry_error error = {0};
        hostile_expect(rendering_source(&text, "{% for m in messages %}{{ '<' + m.role + m.content }}{% endfor %}",
                                        cases[i].request, &error),
                       &error, SPRY_ERR_INPUT, cases[i].words);
        spry_chat_text_deinit(&text);
    }
    spry_buffer deep;
    spry_chat_text text;
    spry_buffer_init(&deep, 1 << 16);
    repeat(&deep, "{\"messages\": ", 1);
    repeat(&deep, "[", 1000);
    repeat(&deep, "]", 1000);
    repeat(&deep, "}", 1);
    assert_int_equal(rendering_source(&text, "{{ messages }}", deep.data, NULL), SPRY_ERR_INPUT);
    spry_chat_text_deinit(&text);
    spry_buffer_deinit(&deep);
}

/* Any damage to a template that uses everything: no crash, no leak, and the limits hold. */
static void test_damaged(void **state)
{
    (void)state;
    static const char whole[] =
        "{%- set ns = namespace(a=1, b=[]) -%}{% macro m(x, y='z') %}[{{ x ~ y | upper }}]{% endmacro %}\n"
        "{% for k, v in {'a': 1, \"b\": [2, 3.5, none]}.items() if v is defined %}{{ loop.index }}{{ k }}\n"
        "{%- if v is mapping or (v is sequence and v is not string) %}{{ v | tojson(indent=2) }}{% elif v > 0 %}"
        "{{ '%s-%d' % (k, v) }}{% else %}{% break %}{% endif %}{% set ns.a = ns.a * 3 // 2 + -1 %}{% endfor %}"
        "{# comment #}{% raw %}{{ }}{% endraw %}{{ m('q', y='w')[::-1].split('[')[0] | trim }}{{ messages[0]['content']"
        ".replace('e', 'a').strip('.') | default('x') }}{% filter lower %}ABC{% endfilter %}{{ 'a' if 1 < 2 <= 3 else "
        "'b' }}{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(', ') }}"
        "{{ '{:>5}|{}'.format(1, 2) }}{% macro w() %}{{ caller() }}{% endmacro %}{% call w() %}c{% endcall %}{{ "
        "range(3) | sum ** 2 }}{{ 'x\\u00e9\\n' }}";
    static const char letters[] = "{}%#-+()[]'\"|.,:=<>~*/\\ \n019ax_\xff";
    uint64_t random = 7;
    json_t *json = rendering_json(rendering_usual);
    size_t own = 0;
    for (int round = 0; round < 3000; round++) {
        unsigned char *damaged = hostile_copy(whole, sizeof whole - 1);
        size_t size = sizeof whole - 1;
        for (uint64_t n = hostile_random(&random) % 4 + 1; n > 0; n--) {
            size_t at = hostile_random(&random) % size;
            if (hostile_random(&random) % 3) {
                damaged[at] = (unsigned char)letters[hostile_random(&random) % (sizeof letters - 1)];
            } else {
                size_t cut = hostile_random(&random) % 20 % (size - at);
                memmove(damaged + at, damaged + at + cut, size - at - cut);
                size -= cut;
            }
        }
        spry_chat_template *chat;
        spry_chat_text text;
        assert_int_equal(spry_chat_template_create(&chat, (spry_view){(char *)damaged, size}, NULL), SPRY_OK);
        own += spry_chat_template_is_own(chat);
        rendering_request(&text, chat, json, NULL);
        spry_chat_text_deinit(&text);
        spry_chat_template_destroy(chat);
        free(damaged);
    }
    json_decref(json);
    assert_true(own > 300 && own < 2900); /* the damage is neither none nor all */
    rendering_check(whole, rendering_usual,
                    "1aa-12b[\n  2,\n  3.5,\n  null\n]{{ }}]Wq"
                    "Ba briafabcaHi <b>\xc3\xa9    1|2c9x\xc3\xa9\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),  cmocka_unit_test(test_steps_have_one_price),
        cmocka_unit_test(test_nesting), cmocka_unit_test(test_messages),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
