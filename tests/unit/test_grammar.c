/* The grammar core: objects, counters, undo, forced bytes, ambiguity, limits and errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"
#include "grammar/match/stacks.h"

/* ---- objects, counters ------------------------------------------------------------------------------------------- */

static spry_grammar *compile(spry_grammar_kind kind, const char *source)
{
    spry_grammar *grammar;
    spry_error error;
    if (spry_grammar_create(&grammar, kind, spry_view_of(source), &error))
        fail_msg("%s", error.message);
    return grammar;
}

static size_t fits(spry_grammar *grammar, const char *text, bool *whole)
{
    spry_matcher *matcher;
    spry_error error;
    size_t taken, size = strlen(text), count = 0;
    assert_int_equal(spry_matcher_create(&matcher, grammar, NULL, &error), SPRY_OK);
    for (; count < size; count++) {
        assert_int_equal(spry_matcher_bytes(matcher, &taken, (spry_view){text + count, 1}, &error), SPRY_OK);
        if (!taken)
            break;
    }
    *whole = count == size && spry_matcher_may_end(matcher);
    spry_matcher_destroy(matcher);
    return count;
}

static void expect(spry_grammar *grammar, const char *text, bool whole)
{
    bool found;
    fits(grammar, text, &found);
    if (found != whole)
        fail_msg("'%s' should %smatch", text, whole ? "" : "not ");
}

static spry_grammar *object_grammar(size_t n_keys, bool all_required, uint32_t min, uint32_t max)
{
    spry_ir *ir;
    spry_error error;
    assert_int_equal(spry_ir_create(&ir, &error), SPRY_OK);
    spry_ir_member *members = calloc(n_keys, sizeof *members);
    for (size_t i = 0; i < n_keys; i++) {
        char key[32];
        snprintf(key, sizeof key, "k%zu=", i);
        members[i] = (spry_ir_member){spry_ir_literal(ir, spry_view_of(key)), spry_ir_literal(ir, SPRY_VIEW("v")),
                                      all_required || i == 0, false};
    }
    spry_ir_node node = spry_ir_members(ir, members, n_keys, spry_ir_literal(ir, SPRY_VIEW(",")), min, max);
    spry_grammar *grammar;
    if (spry_grammar_from_ir(&grammar, ir, node, &error))
        fail_msg("%s", error.message);
    free(members);
    spry_ir_destroy(ir);
    return grammar;
}

static void test_objects(void **state)
{
    (void)state;
    spry_grammar *grammar = object_grammar(12, false, 0, SPRY_IR_UNBOUNDED);
    expect(grammar, "k0=v", true);
    expect(grammar, "k11=v,k1=v,k0=v", true);
    expect(grammar, "k11=v,k1=v", false);
    expect(grammar, "", false);
    bool whole;
    assert_int_equal(fits(grammar, "k1=v,k1=v", &whole), 7); /* k10 and k11 may still come */
    assert_int_equal(fits(grammar, "k1=v,k10=v,k11=v,k1", &whole), 18);
    spry_grammar_unref(grammar);

    grammar = object_grammar(12, false, 2, 2);
    expect(grammar, "k5=v,k0=v", true);
    assert_int_equal(fits(grammar, "k5=v,k6=v", &whole), 6); /* only k0 fits in the last place */
    expect(grammar, "k0=v", false);
    spry_grammar_unref(grammar);

    grammar = object_grammar(300, true, 0, SPRY_IR_UNBOUNDED);
    char text[8192];
    size_t size = 0;
    for (int i = 299; i >= 0; i--)
        size += (size_t)snprintf(text + size, sizeof text - size, "%sk%d=v", i == 299 ? "" : ",", i);
    expect(grammar, text, true);
    text[size - 5] = 0;
    expect(grammar, text, false);
    spry_grammar_unref(grammar);
}

/* Going back to before a point at which unneeded states were dropped. */
static void test_collect(void **state)
{
    (void)state;
    static const char *const parts[] = {"k5=v", ",k3=v", ",k0=v", ",k9=v", ",k7=v"};
    spry_grammar *grammar = object_grammar(12, false, 0, SPRY_IR_UNBOUNDED);
    spry_matcher *matcher;
    spry_error error;
    size_t taken;
    assert_int_equal(spry_matcher_create(&matcher, grammar, NULL, &error), SPRY_OK);
    for (size_t i = 0; i < SPRY_COUNT(parts); i++) {
        matcher->collect_at = 0;
        assert_int_equal(spry_matcher_bytes(matcher, &taken, spry_view_of(parts[i]), &error), SPRY_OK);
        assert_int_equal(taken, strlen(parts[i]));
    }
    for (size_t i = SPRY_COUNT(parts); i-- > 1;) {
        matcher->collect_at = 0;
        assert_int_equal(spry_matcher_bytes(matcher, &taken, spry_view_of(parts[i]), &error), SPRY_OK);
        assert_int_equal(taken, 2); /* seen already */
        spry_matcher_undo(matcher, 1);
        assert_int_equal(spry_matcher_may_end(matcher), i > 2);
        assert_int_equal(spry_matcher_bytes(matcher, &taken, spry_view_of(parts[i]), &error), SPRY_OK);
        assert_int_equal(taken, strlen(parts[i]));
        spry_matcher_undo(matcher, 1);
    }
    spry_matcher_destroy(matcher);
    spry_grammar_unref(grammar);
}

static void test_many_keys(void **state)
{
    (void)state;
    spry_grammar *grammar = object_grammar(SPRY_IR_MEMBERS_MAX, false, 0, SPRY_IR_UNBOUNDED);
    expect(grammar, "k4095=v,k0=v,k1234=v", true);
    expect(grammar, "k4095=v,k1234=v,k1234=v,k0=v", false);
    spry_grammar_unref(grammar);
}

static void test_counters(void **state)
{
    (void)state;
    spry_grammar *grammar = compile(SPRY_GRAMMAR_REGEX, "[a-z\\u0100-\\uffff]{3,100000}!");
    char *text = malloc(100100);
    memset(text, 'x', 100099);
    text[100099] = 0;
    bool whole;
    assert_int_equal(fits(grammar, text, &whole), 100000);
    text[100000] = '!';
    text[100001] = 0;
    expect(grammar, text, true);
    expect(grammar, "ab!", false);
    expect(grammar, "abc!", true);
    free(text);
    spry_grammar_unref(grammar);
    grammar = compile(SPRY_GRAMMAR_GBNF, "root ::= (\"a\" | \"b\" [0-9]{2000,3000}){2,5000} \"\\n\"");
    expect(grammar, "aa\n", true);
    expect(grammar, "a\n", false);
    spry_grammar_unref(grammar);
}

/* ---- undo, forced, ambiguity ------------------------------------------------------------------------------------- */

static void test_undo(void **state)
{
    (void)state;
    spry_grammar *grammar = compile(SPRY_GRAMMAR_GBNF, "root ::= \"(\" root? \")\"");
    spry_matcher *matcher;
    spry_error error;
    size_t taken;
    assert_int_equal(spry_matcher_create(&matcher, grammar, NULL, &error), SPRY_OK);
    for (int i = 0; i < 20000; i++)
        assert_int_equal(spry_matcher_bytes(matcher, &taken, SPRY_VIEW("("), &error), SPRY_OK);
    for (int i = 0; i < 19999; i++)
        assert_int_equal(spry_matcher_bytes(matcher, &taken, SPRY_VIEW(")"), &error), SPRY_OK);
    assert_false(spry_matcher_may_end(matcher));
    assert_int_equal(spry_matcher_bytes(matcher, &taken, SPRY_VIEW(")"), &error), SPRY_OK);
    assert_true(spry_matcher_must_end(matcher));
    spry_matcher_undo(matcher, 39998);
    assert_int_equal(spry_matcher_bytes(matcher, &taken, SPRY_VIEW("))))"), &error), SPRY_OK);
    assert_int_equal(taken, 2);
    assert_int_equal(spry_matcher_bytes(matcher, &taken, SPRY_VIEW("))"), &error), SPRY_OK);
    assert_true(spry_matcher_must_end(matcher));
    spry_matcher_undo(matcher, 1000000);
    assert_false(spry_matcher_may_end(matcher));
    spry_matcher_destroy(matcher);
    spry_grammar_unref(grammar);
}

static void test_forced(void **state)
{
    (void)state;
    spry_grammar *grammar = compile(SPRY_GRAMMAR_REGEX, "key: (yes, really|yes, perhaps)( end)?");
    spry_matcher *matcher;
    spry_error error;
    size_t taken;
    spry_buffer text;
    spry_buffer_init(&text, 1000);
    assert_int_equal(spry_matcher_create(&matcher, grammar, NULL, &error), SPRY_OK);
    assert_int_equal(spry_matcher_forced(matcher, &text, &error), SPRY_OK);
    assert_string_equal(text.data, "key: yes, ");
    assert_int_equal(spry_matcher_bytes(matcher, &taken, SPRY_VIEW("key: yes, p"), &error), SPRY_OK);
    spry_buffer_clear(&text);
    assert_int_equal(spry_matcher_forced(matcher, &text, &error), SPRY_OK);
    assert_string_equal(text.data, "erhaps");
    spry_buffer_deinit(&text);
    spry_matcher_destroy(matcher);
    spry_grammar_unref(grammar);
}

/* Ambiguous grammars: the number of ways to read the text grows without bound, the work does not. */
static void test_ambiguous(void **state)
{
    (void)state;
    static const char *const grammars[] = {
        "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"a\"", "root ::= \"a\" root root | \"a\"",
        "root ::= x*\nx ::= \"a\" | \"a\" x | \"aa\"",          "root ::= (\"a\"* \"a\"*)* (\"a\"? \"a\"?)*",
        "root ::= x x x x x x x x\nx ::= \"a\"{0,50}",
    };
    char text[301];
    memset(text, 'a', 300);
    text[300] = 0;
    for (size_t i = 0; i < SPRY_COUNT(grammars); i++) {
        spry_grammar *grammar = compile(SPRY_GRAMMAR_GBNF, grammars[i]);
        bool whole;
        assert_int_equal(fits(grammar, text, &whole), 300);
        spry_grammar_unref(grammar);
    }
}

/* ---- errors and limits ------------------------------------------------------------------------------------------- */

static void refused(spry_grammar_kind kind, const char *source, const char *sentence)
{
    spry_grammar *grammar;
    spry_error error;
    assert_int_not_equal(spry_grammar_create(&grammar, kind, spry_view_of(source), &error), SPRY_OK);
    assert_null(grammar);
    if (!strstr(error.message, sentence))
        fail_msg("'%s' does not say '%s'", error.message, sentence);
}

static void test_errors(void **state)
{
    (void)state;
    refused(SPRY_GRAMMAR_GBNF, "root ::= root \"a\" | \"b\"", "'root' reaches itself");
    refused(SPRY_GRAMMAR_GBNF, "root ::= e x\ne ::= \"\"\nx ::= e y\ny ::= x \"c\" | \"d\"", "left recursion");
    refused(SPRY_GRAMMAR_GBNF, "root ::= \"a\" root", "no text at all");
    refused(SPRY_GRAMMAR_GBNF, "root ::= \"a\" other", "'other' is used but not defined");
    refused(SPRY_GRAMMAR_GBNF, "root ::= [^\\x00-\\U0010FFFF]", "no text at all");
    refused(SPRY_GRAMMAR_CHOICE, "[]", "array of at least one string");
    refused(SPRY_GRAMMAR_CHOICE, "[\"a\", 1]", "item 2");
    spry_grammar *grammar = compile(SPRY_GRAMMAR_CHOICE, "[\"yes\", \"no\", \"\\u0000\"]");
    expect(grammar, "yes", true);
    expect(grammar, "maybe", false);
    spry_grammar_unref(grammar);
}

/* A rule that cannot end is no reason to refuse the rest, but nothing may lead into it. */
static void test_dead_alternatives(void **state)
{
    (void)state;
    spry_grammar *grammar = compile(SPRY_GRAMMAR_GBNF, "root ::= \"ab\" | \"ac\" loop\nloop ::= \"x\" loop");
    bool whole;
    assert_int_equal(fits(grammar, "acx", &whole), 1);
    expect(grammar, "ab", true);
    spry_grammar_unref(grammar);
}

static char *repeated(const char *part, size_t count, const char *end)
{
    size_t size = strlen(part), tail = strlen(end);
    char *text = malloc(size * count + tail + 1);
    for (size_t i = 0; i < count; i++)
        memcpy(text + i * size, part, size);
    memcpy(text + size * count, end, tail + 1);
    return text;
}

static void test_large(void **state)
{
    (void)state;
    spry_buffer text;
    spry_buffer_init(&text, 1 << 24);
    spry_buffer_text(&text, "root ::= r0\n");
    for (int i = 0; i < 10000; i++)
        spry_buffer_format(&text, "r%d ::= \"a%d\" r%d | \"b\" r%d \"c\"\n", i, i % 10, (i + 1) % 10000,
                           (i * 7) % 10000);
    spry_buffer_text(&text, "unused ::= \"x\"\n");
    refused(SPRY_GRAMMAR_GBNF, text.data, "no text at all");
    spry_buffer_clear(&text);
    for (int i = 0; i < 10000; i++)
        spry_buffer_format(&text, "%s%d ::= \"%d(\" r%d \")\" | \"end\"\n", i ? "r" : "root ::= r0\nr", i, i % 10,
                           (i + 1) % 10000);
    spry_grammar *grammar = compile(SPRY_GRAMMAR_GBNF, text.data);
    expect(grammar, "0(1(2(end)))", true);
    spry_grammar_unref(grammar);
    spry_buffer_deinit(&text);

    char *deep = repeated("(", 10000, "\"x\""), *closing = repeated(")", 10000, "\n");
    spry_buffer_init(&text, 1 << 24);
    spry_buffer_format(&text, "root ::= %s%s", deep, closing);
    grammar = compile(SPRY_GRAMMAR_GBNF, text.data);
    expect(grammar, "x", true);
    spry_grammar_unref(grammar);
    free(deep);
    free(closing);
    spry_buffer_deinit(&text);

    char *names = repeated("\"abcdefgh\" | ", 80000, "\"\"");
    spry_buffer_init(&text, 1 << 24);
    spry_buffer_format(&text, "root ::= %s", names);
    assert_true(text.size > 1000000);
    grammar = compile(SPRY_GRAMMAR_GBNF, text.data);
    expect(grammar, "abcdefgh", true);
    spry_grammar_unref(grammar);
    free(names);
    spry_buffer_deinit(&text);
}

/* What would be exponential if written out. */
static void test_explosions(void **state)
{
    (void)state;
    spry_buffer text;
    spry_buffer_init(&text, 1 << 20);
    spry_buffer_text(&text, "root ::= r40 \".\"\nr0 ::= \"a\"?\n");
    for (int i = 1; i <= 40; i++)
        spry_buffer_format(&text, "r%d ::= r%d r%d\n", i, i - 1, i - 1);
    spry_grammar *grammar = compile(SPRY_GRAMMAR_GBNF, text.data);
    expect(grammar, "aaaa.", true);
    spry_grammar_unref(grammar);
    spry_buffer_deinit(&text);
    grammar = compile(SPRY_GRAMMAR_REGEX, "(a|b)*a(a|b){30}");
    char *tail = repeated("b", 30, "");
    spry_buffer_init(&text, 1000);
    spry_buffer_format(&text, "abaa%s", tail);
    expect(grammar, text.data, true);
    expect(grammar, tail, false);
    spry_buffer_deinit(&text);
    free(tail);
    spry_grammar_unref(grammar);
    grammar = compile(SPRY_GRAMMAR_REGEX, "((a{1,1000}){1,1000}){1,1000}b");
    expect(grammar, "aaaab", true);
    spry_grammar_unref(grammar);
}

static void test_cache(void **state)
{
    (void)state;
    spry_grammar_cache *cache;
    spry_error error;
    spry_grammar *first, *again, *other;
    assert_int_equal(spry_grammar_cache_create(&cache, &error), SPRY_OK);
    assert_int_equal(spry_grammar_cache_get(cache, &first, SPRY_GRAMMAR_REGEX, SPRY_JSON_ANY, SPRY_VIEW("ab*"), &error),
                     SPRY_OK);
    assert_int_equal(spry_grammar_cache_get(cache, &again, SPRY_GRAMMAR_REGEX, SPRY_JSON_ANY, SPRY_VIEW("ab*"), &error),
                     SPRY_OK);
    assert_ptr_equal(first, again);
    assert_int_equal(
        spry_grammar_cache_get(cache, &other, SPRY_GRAMMAR_REGEX, SPRY_JSON_ANY, SPRY_VIEW("(ab*"), &error),
        SPRY_ERR_INPUT);
    for (int i = 0; i < SPRY_GRAMMAR_CACHE_ENTRIES; i++) {
        char source[32];
        snprintf(source, sizeof source, "x{%d}", i);
        assert_int_equal(
            spry_grammar_cache_get(cache, &other, SPRY_GRAMMAR_REGEX, SPRY_JSON_ANY, spry_view_of(source), &error),
            SPRY_OK);
        spry_grammar_unref(other);
    }
    spry_grammar_unref(again);
    assert_int_equal(spry_grammar_cache_get(cache, &again, SPRY_GRAMMAR_REGEX, SPRY_JSON_ANY, SPRY_VIEW("ab*"), &error),
                     SPRY_OK);
    assert_ptr_not_equal(first, again);
    spry_grammar_cache_destroy(cache);
    expect(first, "abbb", true);
    spry_grammar_unref(first);
    spry_grammar_unref(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collect),   cmocka_unit_test(test_objects),    cmocka_unit_test(test_many_keys),
        cmocka_unit_test(test_counters),  cmocka_unit_test(test_undo),       cmocka_unit_test(test_forced),
        cmocka_unit_test(test_ambiguous), cmocka_unit_test(test_errors),     cmocka_unit_test(test_dead_alternatives),
        cmocka_unit_test(test_large),     cmocka_unit_test(test_explosions), cmocka_unit_test(test_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
