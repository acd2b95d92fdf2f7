/* Work for a request ends soon after the request: every reader whose length its input decides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/json.h"
#include "grammar/grammar.h"
#include "support/rendering.h"

/* The request is over when it is asked for the `after`-th time. */
typedef struct request {
    int asked, after;
} request;

static bool is_over(void *user)
{
    return ++((request *)user)->asked >= ((request *)user)->after;
}

static void begin(request *r, int after)
{
    *r = (request){.after = after};
    spry_interrupt_begin(is_over, r);
}

static void end(const request *r)
{
    assert_int_equal(r->asked, r->after); /* once it is over it is not asked again */
    spry_interrupt_end();
    assert_false(spry_interrupted(SIZE_MAX));
}

static void test_polling(void **state)
{
    (void)state;
    request r;
    assert_false(spry_interrupted(SIZE_MAX));
    begin(&r, 2);
    for (size_t i = 1; i < 2 * (size_t)SPRY_INTERRUPT_WORK; i++)
        assert_false(spry_interrupted(1));
    assert_int_equal(r.asked, 1);
    assert_true(spry_interrupted(1));
    assert_true(spry_interrupted(0));
    end(&r);
    begin(&r, 1);
    assert_true(spry_interrupted(SIZE_MAX));
    end(&r);
}

static void test_templates(void **state)
{
    (void)state;
    static const char source[] = "{% for a in range(4000) %}{% for b in range(4000) %}{{ a }}{% endfor %}{% endfor %}";
    spry_chat_text text;
    spry_error error;
    request r;
    begin(&r, 3);
    assert_int_equal(rendering_source(&text, source, rendering_usual, &error), SPRY_ERR_CANCELLED);
    spry_chat_text_deinit(&text);
    end(&r);
}

static void test_grammars(void **state)
{
    (void)state;
    char source[40000] = "root ::= a0\n";
    size_t size = strlen(source);
    for (int i = 0; i < 500; i++)
        size += (size_t)snprintf(source + size, sizeof source - size,
                                 "a%d ::= [a-z]{0,200} | \"x\" a%d b | [0-9]{1,90}\n", i, i + 1);
    snprintf(source + size, sizeof source - size, "a500 ::= \"y\"\nb ::= [a-f]{3,300}\n");
    spry_grammar *grammar;
    spry_error error;
    request r;
    begin(&r, 1);
    assert_int_equal(spry_grammar_create(&grammar, SPRY_GRAMMAR_GBNF, spry_view_of(source), &error),
                     SPRY_ERR_CANCELLED);
    end(&r);
    assert_int_equal(spry_grammar_create(&grammar, SPRY_GRAMMAR_GBNF, spry_view_of(source), &error), SPRY_OK);
    spry_grammar_unref(grammar);
}

static void test_json(void **state)
{
    (void)state;
    spry_buffer text;
    json_t *json;
    spry_error error;
    request r;
    spry_buffer_init(&text, 1 << 24);
    spry_buffer_text(&text, "[0");
    for (size_t i = 0; i < 1000000; i++)
        spry_buffer_text(&text, ",1");
    spry_buffer_text(&text, "]");
    begin(&r, 2);
    assert_int_equal(spry_json_read(&json, spry_buffer_view(&text), 0, 0, &error), SPRY_ERR_CANCELLED);
    assert_null(json);
    end(&r);
    spry_buffer_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_polling),
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_grammars),
        cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
