/* Regular expressions: random patterns against PCRE2, then what random patterns do not reach. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "grammar/grammar.h"

static spry_grammar *compile(const char *pattern, bool search, spry_error *error)
{
    spry_ir *ir;
    spry_grammar *grammar;
    assert_int_equal(spry_ir_create(&ir, error), SPRY_OK);
    spry_ir_node node = spry_ir_regex(ir, spry_view_of(pattern), search);
    spry_grammar_from_ir(&grammar, ir, node, error);
    spry_ir_destroy(ir);
    return grammar;
}

static bool matches(spry_matcher *matcher, spry_view text)
{
    spry_error error;
    size_t taken;
    assert_int_equal(spry_matcher_bytes(matcher, &taken, text, &error), SPRY_OK);
    if (taken < text.size)
        return false;
    bool whole = spry_matcher_may_end(matcher);
    spry_matcher_undo(matcher, 1);
    return whole;
}

/* ---- against PCRE2 -------------------------------------------------------------------------------------------------
 */

static uint64_t seed = 7;

static unsigned any(unsigned below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % below;
}

static void random_pattern(spry_buffer *out, int depth)
{
    static const char *const atoms[] = {"a",   "b",   "c",   "\xC3\xA9", ".",       "[ab]",   "[^a]", "[a-c\\d]",
                                        "\\d", "\\w", "\\s", "[^\\w]",   "\\u00e9", "[\\s1]", "[-a]", "\\."};
    static const char *const counts[] = {"*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "*?", "+?", "??", "{1,3}?"};
    unsigned parts = 1 + any(3);
    for (unsigned i = 0; i < parts; i++) {
        unsigned pick = any(14);
        bool repeats = any(3) == 0;
        if (pick == 0) {
            spry_buffer_text(out, any(2) ? "^" : "$");
            continue;
        }
        if (pick == 4) {
            static const char *const looks[] = {"\\b", "\\B", "(?<=a)", "(?<!b)", "(?<=a|b1)", "(?<!^a)"};
            spry_buffer_text(out, looks[any(SPRY_COUNT(looks))]);
            continue;
        }
        if (pick == 5 && depth > 0) {
            spry_buffer_text(out, any(2) ? "(?=" : "(?!");
            random_pattern(out, depth - 1);
            spry_buffer_text(out, ")");
            continue;
        }
        if (pick < 4 && depth > 0) {
            spry_buffer_text(out, any(2) ? "(" : "(?:");
            random_pattern(out, depth - 1);
            for (unsigned more = any(3); more; more--) {
                spry_buffer_text(out, "|");
                random_pattern(out, depth - 1);
            }
            spry_buffer_text(out, ")");
        } else {
            spry_buffer_text(out, atoms[any(SPRY_COUNT(atoms))]);
        }
        if (repeats)
            spry_buffer_text(out, counts[any(SPRY_COUNT(counts))]);
    }
}

static void random_text(spry_buffer *out)
{
    static const char *const letters[] = {"a", "b", "c", "\xC3\xA9", "1", " ", "-", ".", "\n"};
    for (unsigned size = any(7); size; size--)
        spry_buffer_text(out, letters[any(SPRY_COUNT(letters))]);
}

static void compare(const char *pattern, bool search, size_t *found, size_t *refused)
{
    int number;
    size_t place;
    uint32_t options = PCRE2_UTF | PCRE2_ALT_BSUX | PCRE2_DOLLAR_ENDONLY | PCRE2_MATCH_UNSET_BACKREF;
    if (!search)
        options |= PCRE2_ANCHORED | PCRE2_ENDANCHORED;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, strlen(pattern), options, &number, &place, NULL);
    assert_non_null(code);
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    spry_error error;
    spry_matcher *matcher = NULL;
    spry_grammar *grammar = compile(pattern, search, &error);
    bool look = !grammar && error.status == SPRY_ERR_UNSUPPORTED; /* one inside of the other */
    *refused += look;
    if (!grammar && !look && !strstr(error.message, "no text at all"))
        fail_msg("%s: %s", pattern, error.message);
    if (grammar)
        assert_int_equal(spry_matcher_create(&matcher, grammar, NULL, &error), SPRY_OK);
    for (int i = 0; i < 60 && !look; i++) {
        spry_buffer text;
        spry_buffer_init(&text, 1000);
        random_text(&text);
        spry_view view = spry_buffer_view(&text);
        bool expected = pcre2_match(code, (PCRE2_SPTR)view.data, view.size, 0, 0, data, NULL) >= 0;
        bool taken = grammar && matches(matcher, view);
        if (taken != expected)
            fail_msg("%s should %smatch '%s'%s", pattern, expected ? "" : "not ", view.data, search ? " (search)" : "");
        *found += taken;
        spry_buffer_deinit(&text);
    }
    spry_matcher_destroy(matcher);
    spry_grammar_unref(grammar);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
}

static void test_random(void **state)
{
    (void)state;
    size_t found = 0, refused = 0;
    for (int i = 0; i < 1500; i++) {
        spry_buffer pattern;
        spry_buffer_init(&pattern, 10000);
        random_pattern(&pattern, 2);
        for (unsigned more = any(2); more; more--) {
            spry_buffer_text(&pattern, "|");
            random_pattern(&pattern, 1);
        }
        compare(pattern.data, i % 2, &found, &refused);
        spry_buffer_deinit(&pattern);
    }
    print_message("%zu texts matched, %zu patterns refused\n", found, refused);
    assert_true(found > 5000 && refused < 200);
}

/* ---- by hand
 * --------------------------------------------------------------------------------------------------------- */

static void test_examples(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        bool search;
        const char *good[4], *bad[4];
    } cases[] = {
        {"^\\d{4}-\\d\\d$", true, {"2024-05"}, {"2024-5", "x2024-05"}},
        {"b", true, {"b", "abc"}, {"", "ac"}},
        {"^(?!foo)[a-z]+$", true, {"fo", "bar", "xfoo"}, {"foo", "foox", ""}},
        {"^(?=.{2,3}$)(?=.*\\d)\\w+$", true, {"a1", "12", "ab1"}, {"1", "abc", "abc1"}},
        {"^((?!ab).)*$", true, {"", "a", "ba", "aac"}, {"ab", "xaby"}},
        {"(?<!a)b", true, {"b", "bb", "cb"}, {"ab", "a"}},
        {"\\bfoo\\b", true, {"foo", "a foo.", "-foo"}, {"foos", "afoo"}},
        {"\\B", true, {"ab", "", " "}, {"a"}},
        {"^a", true, {"a", "abc"}, {"ba"}},
        {"a$", true, {"a", "ba"}, {"ab"}},
        {"^(a|b)$|^c", true, {"a", "b", "cxx"}, {"ab", "xc"}},
        {"(^a|b)c", true, {"ac", "xbc"}, {"xac"}},
        {"", true, {"", "anything"}, {NULL}},
        {"(?<year>\\d+)x", false, {"12x"}, {"x"}},
        {"\\u{1F600}|\\uD83D\\uDE01", false, {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x81"}, {"\xF0\x9F\x98\x82"}},
        {"\\p{Lu}\\p{Ll}+\\P{L}", false, {"\xC3\x89t\xC3\xA9!", "Ab1"}, {"ab1", "Abc"}},
        {"[\\p{Uppercase_Letter}\\d]+", false, {"A1\xC3\x89"}, {"a"}},
        {"[^\\p{L}]", false, {"1", "\xE2\x82\xAC"}, {"x"}},
        {"\\x41\\cJ\\0", false, {NULL}, {"A"}},
        {"a{,2}b{x}{", false, {"a{,2}b{x}{"}, {"aab"}},
        {"[a-z]{0,100000}", false, {"", "abc"}, {"A"}},
        {"[]|a", false, {"a"}, {"", "]"}},
        {"[^]", false, {"\n", "\xC3\xA9"}, {""}},
        {".", false, {"x", "\xC3\xA9"}, {"\n", "\r", "\xE2\x80\xA8"}},
        {"[\\b]|\\/|\\-", false, {"\b", "/", "-"}, {"b"}},
        {"(a*)*b", false, {"b", "aab"}, {"a"}},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_error error;
        spry_matcher *matcher;
        spry_grammar *grammar = compile(cases[i].pattern, cases[i].search, &error);
        if (!grammar)
            fail_msg("%s: %s", cases[i].pattern, error.message);
        assert_int_equal(spry_matcher_create(&matcher, grammar, NULL, &error), SPRY_OK);
        for (size_t j = 0; j < 4 && cases[i].good[j]; j++)
            if (!matches(matcher, spry_view_of(cases[i].good[j])))
                fail_msg("%s should match '%s'", cases[i].pattern, cases[i].good[j]);
        for (size_t j = 0; j < 4 && cases[i].bad[j]; j++)
            if (matches(matcher, spry_view_of(cases[i].bad[j])))
                fail_msg("%s should not match '%s'", cases[i].pattern, cases[i].bad[j]);
        spry_matcher_destroy(matcher);
        spry_grammar_unref(grammar);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *sentence;
    } cases[] = {
        {"a(?=b\\b)", "character 8 of the pattern: word boundaries"},
        {"(?<!a(?=b))b", "look-ahead inside of look-behind"},
        {"(?=^a)b", "inside of look-ahead"},
        {"(?=a", "not closed"},
        {"(a)\\1", "back references"},
        {"(?<n>a)\\k<n>", "back references"},
        {"(a", "not closed"},
        {"a)", "without an opening one"},
        {"[a", "no closing bracket"},
        {"[z-a]", "backwards"},
        {"*a", "nothing to repeat"},
        {"a|+", "nothing to repeat"},
        {"a{3,2}", "runs from 3 to 2"},
        {"a{99999999999}", "more than"},
        {"\\", "backslash at the end"},
        {"\\u12", "not known"},
        {"\\u{110000}", "not known"},
        {"\\uD800", "surrogate"},
        {"\\q", "not known"},
        {"\\p{Klingon}", "known properties"},
        {"\\p{L", "known properties"},
        {"(?i)a", "groups are"},
        {"\xC3", "not UTF-8"},
        {"a^b", "no text at all"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_error error;
        spry_grammar *grammar = compile(cases[i].pattern, false, &error);
        if (grammar)
            fail_msg("%s was taken", cases[i].pattern);
        if (!strstr(error.message, cases[i].sentence))
            fail_msg("%s: '%s' does not say '%s'", cases[i].pattern, error.message, cases[i].sentence);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
