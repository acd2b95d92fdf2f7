/* GBNF: what is read and how, what is refused and where, and the public grammars. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"
#include "platform/file.h"

static bool matches(spry_grammar *grammar, spry_view text)
{
    spry_matcher *matcher;
    spry_error error;
    size_t taken;
    assert_int_equal(spry_matcher_create(&matcher, grammar, NULL, &error), SPRY_OK);
    assert_int_equal(spry_matcher_bytes(matcher, &taken, text, &error), SPRY_OK);
    bool whole = taken == text.size && spry_matcher_may_end(matcher);
    spry_matcher_destroy(matcher);
    return whole;
}

typedef struct example {
    const char *grammar;
    const char *good[6], *bad[6];
} example;

static const example examples[] = {
    {"root ::= \"abc\"", {"abc"}, {"ab", "abcd", ""}},
    {"root ::= \"a\" | \"b\" \"c\" |\n \"d\"", {"a", "bc", "d"}, {"b", "ac"}},
    {"root ::= (\"a\"\n  | \"b\"\n  \"c\") # groups run over lines\n\n# end", {"a", "bc"}, {"b"}},
    {"root ::= [a-c-] [^a-c\\n] [\\]x] .", {"adxz", "-\xC3\xA9]\n"}, {"bb]c", "dx]c", "a\nxx"}},
    {"root ::= \"\\x41\\u00e9\\U0001F600\\t\\\"\\\\\"", {"A\xC3\xA9\xF0\x9F\x98\x80\t\"\\"}, {"A"}},
    {"root ::= [\\x00-\\x1F\\u2028]+", {"\x01\x02", "\xE2\x80\xA8"}, {" ", "\xE2\x80\xA9"}},
    {"root ::= \"a\"* \"b\"+ \"c\"?", {"b", "aabbc"}, {"a", "abcc"}},
    {"root ::= \"ab\"{2} [0-9]{2,} x{1,3}\nx ::= \"x\" | \"y\"", {"abab12x", "abab999xyx"}, {"abab1x", "abab12xxxx"}},
    {"root ::= (\"a\" \"b\")* \"ab\"{0}", {"", "abab"}, {"aba"}},
    {"root ::= a-b_2 | \"\"\na-b_2 ::= \"x\"", {"x", ""}, {"a"}},
    {"root ::= ws \"x\" ws\nws ::= | \" \" ws", {"x", " x  "}, {" ", "xx"}},
    {"root ::=\n  \"x\"\r\n", {"x"}, {""}},
    {"root ::= e (\"+\" e)*\ne ::= [0-9]+ | \"(\" root \")\"", {"1+(2+3)", "((1))"}, {"1+", "(1"}},
    {"a ::= \"a\"\nroot ::= a a", {"aa"}, {"a"}},
};

static void test_examples(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(examples); i++) {
        spry_grammar *grammar;
        spry_error error;
        if (spry_grammar_create(&grammar, SPRY_GRAMMAR_GBNF, spry_view_of(examples[i].grammar), &error))
            fail_msg("%s: %s", examples[i].grammar, error.message);
        for (size_t j = 0; j < 6 && examples[i].good[j]; j++)
            if (!matches(grammar, spry_view_of(examples[i].good[j])))
                fail_msg("%s should match '%s'", examples[i].grammar, examples[i].good[j]);
        for (size_t j = 0; j < 6 && examples[i].bad[j]; j++)
            if (matches(grammar, spry_view_of(examples[i].bad[j])))
                fail_msg("%s should not match '%s'", examples[i].grammar, examples[i].bad[j]);
        spry_grammar_unref(grammar);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *sentence;
    } cases[] = {
        {"", "no rule 'root'"},
        {"start ::= \"a\"", "no rule 'root'"},
        {"root = \"a\"", "line 1, column 6 of the grammar: a rule begins"},
        {"root ::= \"a\"\nroot ::= \"b\"", "'root' is defined twice"},
        {"root ::= \"a", "line 1, column 12 of the grammar: the literal has no closing quote"},
        {"root ::= [a", "no closing bracket"},
        {"root ::= [z-a]", "backwards"},
        {"root ::= (\"a\"", "not closed"},
        {"root ::= \"a\")", "without an opening one"},
        {"root ::= * \"a\"", "nothing to repeat"},
        {"root ::= (* \"a\")", "nothing to repeat"},
        {"root ::= \"a\"{3,1}", "runs from 3 to 1"},
        {"root ::= \"a\"{x}", "a repetition is"},
        {"root ::= \"a\"{99999999999}", "a repetition is"},
        {"root ::= \"\\q\"", "unknown escape"},
        {"root ::= \"\\u12\"", "4 hexadecimal digits"},
        {"root ::= \"\\UFFFFFFFF\"", "at most 10FFFF"},
        {"root ::= \"\\uD800\"", "surrogate"},
        {"root ::= <[1000]>", "tokens in a grammar"},
        {"root ::= !<think>", "tokens in a grammar"},
        {"root ::= \"a\" $", "expected a new line"},
        {"root ::= \"\xFF\"", "not UTF-8"},
        {"root ::= missing", "'missing' is used but not defined"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_grammar *grammar;
        spry_error error;
        if (!spry_grammar_create(&grammar, SPRY_GRAMMAR_GBNF, spry_view_of(cases[i].grammar), &error))
            fail_msg("'%s' was taken", cases[i].grammar);
        if (!strstr(error.message, cases[i].sentence))
            fail_msg("'%s': '%s' does not say '%s'", cases[i].grammar, error.message, cases[i].sentence);
    }
}

static void test_public(void **state)
{
    (void)state;
    static const struct {
        const char *name, *good, *bad;
    } cases[] = {
        {"arithmetic", "x+(1*y)=z\n12=a\n", "x+=1\n"},
        {"c", "int f(int x){return x+1;}", "int f({}"},
        {"chess", "1. e4 e5\n2. Nf3 Nc6\n3. Bb5 a6\n", "1. e9 e5\n"},
        {"english", "Hello, World! 1 2", "H\xC3\xA9llo"},
        {"japanese", "\xE6\x97\xA5\xE6\x9C\xAC\xE3\x81\xAE", "abc"},
        {"json", "{\"a\": [1, -2.5e3, {\"b\": \"x\\u00e4\"}], \"c\": null}", "{\"a\": [1, }"},
        {"json_arr", "[\n1,\n\"x\",\n{\"a\": []}]", "[1]"},
        {"list", "- one\n- two \xC3\xA9\n", "- one"},
    };
    if (!spry_path_exists(PUBLIC_DATA "/grammars/json.gbnf")) {
        print_message("SKIPPED test_public: ../shared/public is not there\n");
        return;
    }
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        char path[512];
        spry_buffer text;
        spry_error error;
        spry_grammar *grammar = NULL;
        snprintf(path, sizeof path, "%s/grammars/%s.gbnf", PUBLIC_DATA, cases[i].name);
        spry_buffer_init(&text, 1 << 20);
        if (spry_file_read(&text, path, &error) ||
            spry_grammar_create(&grammar, SPRY_GRAMMAR_GBNF, spry_buffer_view(&text), &error))
            fail_msg("%s: %s", path, error.message);
        if (!matches(grammar, spry_view_of(cases[i].good)))
            fail_msg("%s should match %s", path, cases[i].good);
        if (matches(grammar, spry_view_of(cases[i].bad)))
            fail_msg("%s should not match %s", path, cases[i].bad);
        spry_grammar_unref(grammar);
        spry_buffer_deinit(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_public),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
