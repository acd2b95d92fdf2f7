/* Which bytes of a rendered text are the conversation's own, however a template took them apart and put them together.
 * In the expected texts they stand between [ and ]. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "support/rendering.h"

static const char conversation[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"  Hello World \"}, {\"role\": \"pirate\", \"content\": "
    "\"a-b-c\"}],"
    "\"tools\": [{\"name\": \"add\", \"n\": 3, \"list\": [\"x\", true]}], \"extra\": {\"word\": \"w\\n'\"}}";

/* The text with its ranges drawn in. */
static void draw(spry_buffer *out, const spry_chat_text *text)
{
    size_t n = text->literal.size / sizeof(spry_text_range), done = 0;
    for (size_t i = 0; i < n; i++) {
        spry_text_range range;
        memcpy(&range, text->literal.data + i * sizeof range, sizeof range);
        assert_true(range.begin >= done && range.begin < range.end && range.end <= text->text.size);
        spry_buffer_append(out, text->text.data + done, range.begin - done);
        spry_buffer_text(out, "[");
        spry_buffer_append(out, text->text.data + range.begin, range.end - range.begin);
        spry_buffer_text(out, "]");
        done = range.end;
    }
    spry_buffer_append(out, spry_buffer_view(&text->text).data + done, text->text.size - done);
}

static void test_marks(void **state)
{
    (void)state;
    static const render_case cases[] = {
        {"<{{ messages[0].content }}>", "<[  Hello World ]>"},
        {"{{ '<' + messages[0].content | trim + '>' }}", "<[Hello World]>"},
        {"{{ '<' ~ messages[1].content ~ '>' ~ word }}", "<[a-b-c]>[w\n']"},
        /* Known roles are part of control tokens in some templates; others are words like any. */
        {"<|{{ messages[0].role }}|><|{{ messages[1].role }}|>", "<|user|><|[pirate]|>"},
        {"{{ (messages[1].content ~ '+d')[2:7] }}", "[b-c]+d"},
        {"{{ ('x' ~ messages[1].content)[::-1] }}", "[c-b-a]x"},
        {"{{ messages[1].content.replace('-', '+') }}", "[a]+[b]+[c]"},
        {"{{ 'x.y'.replace('.', messages[1].content) }}", "x[a-b-c]y"},
        {"{{ messages[1].content | replace('a-', '') }}", "[b-c]"},
        {"{{ messages[1].content.split('-') | join('/') }}", "[a]/[b]/[c]"},
        {"{{ messages[1].content.split('-')[1] ~ 'z' }}", "[b]z"},
        {"{{ messages[1].content | upper ~ 'z' | upper }}", "[A-B-C]Z"},
        {"{{ (messages[1].content ~ 'z') | title }}", "[A-B-C]z"},
        {"{{ '%s!%5s' % (messages[1].content, 'a') }}", "[a-b-c]!    a"},
        {"{{ '{}!{:>6}'.format('x', messages[1].content) }}", "x! [a-b-c]"},
        {"{{ messages[1].content * 2 ~ 'x' }}", "[a-b-ca-b-c]x"},
        {"{{ messages[1].content | list | first ~ messages[1].content | last ~ '.' }}", "[ac]."},
        {"{{ [messages[1].content, 'x'] }}", "['[a-b-c]', 'x']"},
        {"{{ word | tojson }}{{ [word] }}", "\"[w\\n']\"[\"[w\\n']\"]"},
        {"{{ tools | tojson }}", "[{\"[name]\": \"[add]\", \"[n]\": 3, \"[list]\": [\"[x]\", true]}]"},
        {"{% for t in tools %}{% for k, v in t.items() %}{{ k }}={{ v }};{% endfor %}{% endfor %}",
         "[name]=[add];[n]=3;[list]=['[x]', True];"},
        {"{{ messages[1].content | indent(2, true) }}", "  [a-b-c]"},
        {"{{ ('<' ~ messages[1].content ~ '>') | e }}", "&lt;[a-b-c]&gt;"},
        {"{{ word | e }}", "[w\n&#39;]"},
        {"{% set x %}({{ messages[1].content }}){% endset %}{{ x }}", "([a-b-c])"},
        {"{% macro m(a) %}({{ a }}){% endmacro %}{{ m(messages[1].content) | upper }}", "([A-B-C])"},
        {"{% filter upper %}x{{ messages[1].content }}{% endfilter %}", "X[A-B-C]"},
        {"{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + '|' + m.content %}{% endfor %}{{ "
         "ns.t }}",
         "|[  Hello World ]|[a-b-c]"},
        {"{{ messages | map(attribute='content') | sort | join('|') }}", "[  Hello World ]|[a-b-c]"},
        {"{{ bos_token }}{{ eos_token }}{{ 1 + 2 }}{{ messages | length }}", "<s></s>32"},
        {"{{ 'yes' if messages[1].content == 'a-b-c' else 'no' }}", "yes"},
        {"{{ {'a-b-c': '<|end|>'}[messages[1].content] }}", "<|end|>"},
        {"{{ '-'.join(messages[1].content) }}", "[a]-[-]-[b]-[-]-[c]"},
        {"{{ messages[1].content.strip('a') ~ messages[1].content.partition('-')[2] }}", "[-b-cb-c]"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_chat_text text;
        spry_buffer drawn;
        spry_error error = {0};
        if (rendering_source(&text, cases[i].source, conversation, &error))
            fail_msg("%s: %s", cases[i].source, error.message);
        spry_buffer_init(&drawn, 1 << 16);
        draw(&drawn, &text);
        if (!spry_view_is(spry_buffer_view(&drawn), cases[i].expected))
            fail_msg("%s\n  gave     %s\n  and not  %s", cases[i].source, drawn.data, cases[i].expected);
        spry_buffer_deinit(&drawn);
        spry_chat_text_deinit(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
