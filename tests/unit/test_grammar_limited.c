/* Strings with a pattern or format whose length is counted while matching: what they take, completions, forced text,
 * and masks near the limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/buffer.h"
#include "grammar/compile/program.h"
#include "grammar/ir/grammar_ir.h"
#include "support/schema_testing.h"

#define BUNDLED MODELS_DIR "/Spry-Tales-29M.gguf"

/* Appends `count` times a text. */
static void repeat(spry_buffer *out, const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++)
        spry_buffer_text(out, text);
}

/* Judges a string of `count` times `part` between two ends. */
static bool takes(spry_grammar *grammar, const char *before, const char *part, size_t count, const char *after)
{
    spry_buffer text;
    spry_buffer_init(&text, 1 << 20);
    spry_buffer_text(&text, before);
    repeat(&text, part, count);
    spry_buffer_text(&text, after);
    bool taken = matches(grammar, text.data);
    spry_buffer_deinit(&text);
    return taken;
}

static spry_grammar *counted(const char *schema)
{
    spry_grammar *grammar = grammar_of(schema);
    assert_true(grammar->n_limits > 0);
    return grammar;
}

static void formats(void **state)
{
    (void)state;
    spry_grammar *grammar = counted("{\"type\":\"string\",\"format\":\"email\",\"maxLength\":254}");
    assert_true(matches(grammar, "\"a@b.org\""));
    assert_false(matches(grammar, "\"a b@c.org\""));
    assert_true(takes(grammar, "\"", "a", 248, "@b.org\""));
    assert_false(takes(grammar, "\"", "a", 249, "@b.org\""));
    assert_true(takes(grammar, "\"a@bc", ".d", 125, "\""));
    assert_false(takes(grammar, "\"a@bcd", ".d", 125, "\""));
    spry_grammar_unref(grammar);

    grammar = counted("{\"type\":\"string\",\"format\":\"email\",\"minLength\":100,\"maxLength\":120}");
    for (size_t size = 90; size < 130; size++)
        assert_int_equal(takes(grammar, "\"", "x", size - 6, "@b.org\""), size >= 100 && size <= 120);
    spry_grammar_unref(grammar);
}

/* Characters are counted, in any spelling. */
static void patterns(void **state)
{
    (void)state;
    static const char *const spellings[] = {"a",    "\xC3\xA9",       "\\u00e9", "\xF0\x9F\x98\x80",
                                            "\\n",  "\\ud83d\\ude00", "\\u000A", "\\/",
                                            "\\\\", "\xE4\xB8\xAD"};
    spry_grammar *grammar = counted("{\"type\":\"string\",\"pattern\":\"^[^x]*$\",\"minLength\":5,\"maxLength\":9}");
    for (size_t i = 0; i < SPRY_COUNT(spellings); i++) {
        for (size_t count = 0; count < 14; count++)
            assert_int_equal(takes(grammar, "\"", spellings[i], count, "\""), count >= 5 && count <= 9);
        assert_false(takes(grammar, "\"", spellings[i], 6, "x\""));
    }
    spry_grammar_unref(grammar);

    /* Only multiples of three have the pattern; the length leaves 30 to 45. */
    grammar = counted("{\"type\":\"string\",\"pattern\":\"^([^x]{3})*$\",\"minLength\":28,\"maxLength\":47}");
    for (size_t count = 0; count < 60; count++)
        assert_int_equal(takes(grammar, "\"", "b", count, "\""), count % 3 == 0 && count >= 28 && count <= 47);
    spry_grammar_unref(grammar);

    grammar = counted("{\"type\":\"string\",\"pattern\":\"z.y\",\"minLength\":3000}");
    assert_true(takes(grammar, "\"z.y", "c", 2997, "\""));
    assert_true(takes(grammar, "\"", "c", 5000, "z.y\""));
    assert_false(takes(grammar, "\"z.y", "c", 2996, "\""));
    spry_grammar_unref(grammar);
}

static void completions(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *text;
    } examples[] = {
        {"{\"type\":\"string\",\"format\":\"email\",\"minLength\":60,\"maxLength\":254}", "\"someone.else@[1.2"},
        {"{\"type\":\"string\",\"pattern\":\"^([^x]{3})*$\",\"minLength\":28,\"maxLength\":47}",
         "\"ab\\u00e9d\xC3\xA9"},
        {"{\"type\":\"array\",\"items\":{\"pattern\":\"^[^x]*y$\",\"type\":\"string\",\"maxLength\":7},\"minItems\":3}",
         "[\"abcdefy\", \"\\uD83D\\uDE00y"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"format\":\"uri\",\"minLength\":40,"
         "\"maxLength\":2000}},\"required\":[\"a\"]}",
         "{\"a\":\"http://[::1]:80/x"},
    };
    for (size_t i = 0; i < SPRY_COUNT(examples); i++) {
        spry_grammar *grammar = counted(examples[i].schema);
        check_completions(grammar, examples[i].text);
        spry_grammar_unref(grammar);
    }
}

static void forced(void **state)
{
    (void)state;
    spry_grammar *grammar =
        counted("{\"type\":\"string\",\"pattern\":\"^a+b?$\",\"minLength\":3000,\"maxLength\":3000}");
    spry_matcher *matcher;
    spry_error error;
    spry_buffer text;
    spry_buffer_init(&text, 1 << 14);
    assert_int_equal(spry_matcher_create(&matcher, grammar, NULL, &error), SPRY_OK);
    assert_int_equal(spry_matcher_forced(matcher, &text, &error), SPRY_OK);
    assert_int_equal(text.size, 3000); /* a quote and 2,999 letters; then a or b */
    spry_matcher_destroy(matcher);
    spry_buffer_deinit(&text);
    spry_grammar_unref(grammar);
}

/* A length that no text of the pattern has, and a minimum that is too large to be counted. */
static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *sentence;
    } examples[] = {
        {"{\"type\":\"string\",\"pattern\":\"^([^x]{3})*$\",\"minLength\":28,\"maxLength\":29}", "no JSON value"},
        {"{\"type\":\"string\",\"pattern\":\"^([^x]{7})*$\",\"minLength\":2000000}", "the length of patterns"},
    };
    for (size_t i = 0; i < SPRY_COUNT(examples); i++) {
        spry_grammar *grammar;
        spry_error error;
        assert_int_not_equal(
            spry_grammar_create(&grammar, SPRY_GRAMMAR_JSON_SCHEMA, spry_view_of(examples[i].schema), &error), SPRY_OK);
        if (!strstr(error.message, examples[i].sentence))
            fail_msg("%s: %s", examples[i].schema, error.message);
    }
}

/* Every token is tried at the state of the text after each of its bytes. */
static void compare(const spry_tokenizer *tokenizer, const spry_vocabulary *vocabulary, spry_grammar *grammar,
                    const char *text, size_t first)
{
    size_t n_ids = spry_tokenizer_size(tokenizer), taken;
    spry_matcher *matcher;
    spry_error error;
    uint32_t *copy = calloc(n_ids / 32 + 1, sizeof *copy);
    assert_int_equal(spry_matcher_create(&matcher, grammar, vocabulary, &error), SPRY_OK);
    assert_int_equal(spry_matcher_bytes(matcher, &taken, (spry_view){text, first}, &error), SPRY_OK);
    assert_int_equal(taken, first);
    for (size_t at = first; at <= strlen(text); at++) {
        const uint32_t *mask;
        if (spry_matcher_mask(matcher, &mask, &error))
            fail_msg("%.*s: %s", (int)at, text, error.message);
        memcpy(copy, mask, (n_ids + 31) / 32 * sizeof *copy);
        for (size_t id = 0; id < n_ids; id++) {
            bool fits = spry_matcher_token(matcher, (int32_t)id, NULL) == SPRY_OK;
            if (fits)
                spry_matcher_undo(matcher, 1);
            if (fits != (copy[id / 32] >> id % 32 & 1))
                fail_msg("%.*s: token %zu is %sallowed", (int)at, text, id, fits ? "" : "not ");
        }
        if (text[at])
            assert_int_equal(spry_matcher_bytes(matcher, &taken, (spry_view){text + at, 1}, &error), SPRY_OK);
        assert_true(!text[at] || taken == 1);
    }
    spry_matcher_destroy(matcher);
    free(copy);
}

static void masks(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *text;
        size_t first;
        bool written;
    } examples[] = {
        {"{\"type\":\"string\",\"format\":\"email\",\"maxLength\":40}", "\"a@b.org\"", 0, false},
        {"{\"type\":\"string\",\"format\":\"email\",\"minLength\":8,\"maxLength\":254}", "\"ab@b.org\"", 0, false},
        {"{\"type\":\"string\",\"pattern\":\"^[^x]*$\",\"minLength\":5,\"maxLength\":30}",
         "\"one \\u00e9 t\xC3\xA9 and twenty-two.\\n\"", 0, false},
        {"{\"type\":\"string\",\"maxLength\":24}", "\"Once upon a time, there\"", 12, true},
        {"{\"type\":\"string\",\"minLength\":12,\"maxLength\":400}", "\"Once upon a\\n  t\"", 0, true},
        {"{\"type\":\"string\",\"pattern\":\"^([^x]{3})*$\",\"minLength\":10,\"maxLength\":20}", "\"abcdefghijkl\"", 0,
         true},
    };
    spry_gguf *gguf;
    spry_error error;
    spry_tokenizer *tokenizer;
    spry_vocabulary *vocabulary;
    if (spry_gguf_open(&gguf, BUNDLED, &error) || spry_tokenizer_from_gguf(&tokenizer, gguf, &error))
        fail_msg("%s", error.message);
    spry_gguf_close(gguf);
    assert_int_equal(spry_vocabulary_create(&vocabulary, tokenizer, spry_tokenizer_size(tokenizer), &error), SPRY_OK);
    for (size_t i = 0; i < SPRY_COUNT(examples); i++) {
        spry_grammar *grammar;
        if (spry_grammar_create_styled(&grammar, SPRY_GRAMMAR_JSON_SCHEMA,
                                       examples[i].written ? SPRY_JSON_COMPACT : SPRY_JSON_ANY,
                                       spry_view_of(examples[i].schema), &error))
            fail_msg("%s: %s", examples[i].schema, error.message);
        assert_true(grammar->n_limits > 0);
        compare(tokenizer, vocabulary, grammar, examples[i].text, examples[i].first);
        spry_grammar_unref(grammar);
    }
    spry_vocabulary_destroy(vocabulary);
    spry_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats), cmocka_unit_test(patterns), cmocka_unit_test(completions),
        cmocka_unit_test(forced),  cmocka_unit_test(refused),  cmocka_unit_test(masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
