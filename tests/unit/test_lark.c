/* Lark's notation for the input of custom tools: what is read and how, what is refused, and as JSON strings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "support/schema_testing.h"

static spry_status compile(spry_grammar **out, const char *text, bool in_json, spry_error *error)
{
    spry_ir *ir;
    assert_int_equal(spry_ir_create(&ir, error), SPRY_OK);
    spry_status status = spry_grammar_from_ir(out, ir, spry_ir_lark(ir, spry_view_of(text), in_json), error);
    spry_ir_destroy(ir);
    return status;
}

/* The inside of a JSON string with this text; the caller frees it. */
static char *spelled(const char *text)
{
    json_t *string = json_string(text);
    char *quoted = json_dumps(string, JSON_ENCODE_ANY);
    assert_non_null(quoted);
    json_decref(string);
    memmove(quoted, quoted + 1, strlen(quoted));
    quoted[strlen(quoted) - 1] = '\0';
    return quoted;
}

#define PATCH                                                                                                          \
    "start: begin hunk+ end\n"                                                                                         \
    "begin: \"*** Begin Patch\" LF\nend: \"*** End Patch\" LF?\n\n"                                                    \
    "hunk: add | delete\n"                                                                                             \
    "add: \"*** Add File: \" name LF line+\ndelete: \"*** Delete File: \" name LF\n"                                   \
    "name: /(.+)/\nline: (\"+\" | \"-\" | \" \") /(.*)/ LF -> line\n\n"                                                \
    "%import common.LF\n"

typedef struct example {
    const char *grammar;
    const char *good[6], *bad[6];
} example;

static const example examples[] = {
    {"start: \"a\" | \"b\" \"c\"\n  | \"d\" -> named", {"a", "bc", "d"}, {"b", "ac", ""}},
    {"start: A b? // a comment\nA: \"x\"~2..3 # another\nb: [\"y\"] \"z\"",
     {"xx", "xxxz", "xxyz"},
     {"x", "xxxxz", "xxy"}},
    {"?start: (\n  \"a\"\n  | \"b\"\n)+\n", {"a", "abab"}, {"", "c"}},
    {"start: \"select\"i \"a\"..\"c\" /[0-9]+/u", {"SELECTb12", "selecta0"}, {"selectd1", "selecta"}},
    {"start: sum\n?sum: product | sum \"+\" product -> add\n?product: NUMBER | \"(\" sum \")\"\n%import common.NUMBER\n"
     "%import common.WS_INLINE\n%ignore WS_INLINE",
     {"1", " 1 + (2+ 3.5) ", "((1))+2"},
     {"1 +", "(1", "1 2x", ""}},
    {"start: WORD (\",\" WORD)*\n%import common (WORD, WS)\n%ignore WS\n%ignore \"--\"",
     {"a,b", " a --, b\n"},
     {"a b", ","}},
    {"start: KEY\nKEY.2: LETTERS \"_\" LETTERS\nLETTERS: \"a\"..\"z\"+", {"ab_c"}, {"ab", "_c"}},
    {"start: \"\\\"\" \"\\\\\" \"\\x41\\u00e9\\n\"", {"\"\\A\xC3\xA9\n"}, {"\"\\A"}},
    {"start: STRING\n%import common.ESCAPED_STRING -> STRING", {"\"a\\\"b\""}, {"\"a\"b\""}},
    {"start: \"a\"{2,3} \"b\"{1}", {"aab", "aaab"}, {"ab", "aaaab"}},
    {PATCH,
     {"*** Begin Patch\n*** Add File: a/b.c\n+\"x\"\n+\n*** End Patch\n",
      "*** Begin Patch\n*** Delete File: x\n*** End Patch"},
     {"*** Begin Patch\n*** End Patch", "*** Begin Patch\n*** Add File: \n+x\n*** End Patch"}},
};

static void test_examples(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * SPRY_COUNT(examples); i++) {
        const example *one = &examples[i / 2];
        bool in_json = i % 2;
        spry_grammar *grammar;
        spry_error error;
        if (compile(&grammar, one->grammar, in_json, &error))
            fail_msg("%s: %s", one->grammar, error.message);
        for (size_t j = 0; j < 12; j++) {
            const char *text = j < 6 ? one->good[j] : one->bad[j - 6];
            if (!text)
                continue;
            char *written = in_json ? spelled(text) : strdup(text);
            if (matches(grammar, written) != (j < 6))
                fail_msg("%s should %smatch '%s'", one->grammar, j < 6 ? "" : "not ", written);
            free(written);
        }
        spry_grammar_unref(grammar);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *sentence;
        spry_status status;
    } cases[] = {
        {"", "no rule 'start'", SPRY_ERR_INPUT},
        {"root: \"a\"", "no rule 'start'", SPRY_ERR_INPUT},
        {"start \"a\"", "expected \":\" after start", SPRY_ERR_INPUT},
        {"start: \"a", "no closing \"", SPRY_ERR_INPUT},
        {"start: /a", "no closing /", SPRY_ERR_INPUT},
        {"start: (\"a\"", "not closed", SPRY_ERR_INPUT},
        {"start: (\"a\"]", "do not match", SPRY_ERR_INPUT},
        {"start: \"a\")", "expected a new line", SPRY_ERR_INPUT},
        {"start: * \"a\"", "expected a new line", SPRY_ERR_INPUT},
        {"start: \"\\q\"", "unknown escape", SPRY_ERR_INPUT},
        {"start: \"\\uD800\"", "unknown escape", SPRY_ERR_INPUT},
        {"start: \"ab\"..\"c\"", "a range is", SPRY_ERR_INPUT},
        {"start: \"c\"..\"a\"", "a range is", SPRY_ERR_INPUT},
        {"start: \"a\"~3..1", "a repetition is", SPRY_ERR_INPUT},
        {"start: \"a\"~99999999999", "expected a number", SPRY_ERR_INPUT},
        {"start: A\nA: B\nB: A", "refers to itself", SPRY_ERR_INPUT},
        {"start: A\nA: start", "refers to the rule start", SPRY_ERR_INPUT},
        {"start: MISSING", "MISSING is not defined", SPRY_ERR_INPUT},
        {"start: A\nA: \"a\"\nA: \"b\"", "defined twice", SPRY_ERR_INPUT},
        {"start: missing", "is used but not defined", SPRY_ERR_INPUT},
        {"start: \"a\"\nstart: \"b\"", "defined twice", SPRY_ERR_INPUT},
        {"start: /a/i", "cannot be enforced", SPRY_ERR_UNSUPPORTED},
        {"start: x{A}\nx{y}: y", "cannot be enforced", SPRY_ERR_UNSUPPORTED},
        {"start: \"a\"\n%import other.A", "cannot be enforced", SPRY_ERR_UNSUPPORTED},
        {"start: \"a\"\n%declare A", "cannot be enforced", SPRY_ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_grammar *grammar;
        spry_error error;
        spry_status status = compile(&grammar, cases[i].grammar, i % 2, &error);
        if (!status)
            fail_msg("'%s' was taken", cases[i].grammar);
        if (!strstr(error.message, cases[i].sentence) || status != cases[i].status)
            fail_msg("'%s': '%s' does not say '%s'", cases[i].grammar, error.message, cases[i].sentence);
    }
}

/* Terminals within terminals, deeply: an error, and no deep recursion. */
static void test_deep(void **state)
{
    (void)state;
    char text[8192] = "start: T0\n";
    for (int i = 0; i < 200; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "T%d: T%d \"x\"\n", i, i + 1);
    spry_grammar *grammar;
    spry_error error;
    assert_int_equal(compile(&grammar, text, true, &error), SPRY_ERR_INPUT);
    size_t size = 1 << 20;
    char *brackets = malloc(size + 1);
    memset(brackets, '(', size);
    memcpy(brackets, "start: ", 7);
    brackets[size] = '\0';
    assert_int_not_equal(compile(&grammar, brackets, false, &error), SPRY_OK);
    free(brackets);
}

static void test_in_a_schema(void **state)
{
    (void)state;
    json_t *schema = json_pack("{s:s, s:s}", "type", "string", "x-spry-lark", PATCH);
    char *text = json_dumps(schema, 0);
    spry_grammar *grammar = grammar_of(text);
    assert_true(matches(grammar, "\"*** Begin Patch\\n*** Add File: a\\n+\\\"x\\\"\\n*** End Patch\\n\""));
    assert_false(matches(grammar, "\"*** Begin Patch\\n*** Add File: a\\n*** End Patch\\n\""));
    spry_grammar_unref(grammar);
    free(text);
    json_decref(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_in_a_schema),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
