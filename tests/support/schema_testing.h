/* A JSON schema as a grammar, whether a text is valid against it, and how its beginnings are completed. Include cmocka
 * before. */
#ifndef SPRY_TESTS_SCHEMA_TESTING_H
#define SPRY_TESTS_SCHEMA_TESTING_H

#include <string.h>

#include "base/buffer.h"
#include "grammar/grammar.h"

static inline spry_grammar *grammar_of(const char *schema)
{
    spry_grammar *grammar;
    spry_error error;
    if (spry_grammar_create(&grammar, SPRY_GRAMMAR_JSON_SCHEMA, spry_view_of(schema), &error))
        fail_msg("%.500s: %s", schema, error.message);
    return grammar;
}

static inline bool matches(spry_grammar *grammar, const char *text)
{
    spry_matcher *matcher;
    spry_error error;
    size_t taken;
    assert_int_equal(spry_matcher_create(&matcher, grammar, NULL, &error), SPRY_OK);
    assert_int_equal(spry_matcher_bytes(matcher, &taken, spry_view_of(text), &error), SPRY_OK);
    bool whole = taken == strlen(text) && spry_matcher_may_end(matcher);
    spry_matcher_destroy(matcher);
    return whole;
}

/* After every prefix of a text the completion makes it whole, and has the length that was announced. */
static inline void check_completions(spry_grammar *grammar, const char *text)
{
    spry_matcher *matcher;
    spry_error error;
    spry_buffer rest;
    size_t taken;
    spry_buffer_init(&rest, SPRY_COMPLETION_MAX);
    assert_int_equal(spry_matcher_create(&matcher, grammar, NULL, &error), SPRY_OK);
    for (size_t i = 0; i <= strlen(text); i++) {
        spry_buffer_clear(&rest);
        size_t bound = spry_matcher_completion_bound(matcher);
        if (spry_matcher_completion(matcher, &rest, &error))
            fail_msg("%.*s: %s", (int)i, text, error.message);
        assert_int_equal(bound, rest.size);
        assert_int_equal(spry_matcher_bytes(matcher, &taken, spry_buffer_view(&rest), &error), SPRY_OK);
        if (taken < rest.size || !spry_matcher_may_end(matcher))
            fail_msg("%.*s is not completed by %.*s", (int)i, text, (int)rest.size, rest.data);
        spry_matcher_undo(matcher, 1);
        if (text[i])
            assert_int_equal(spry_matcher_bytes(matcher, &taken, (spry_view){text + i, 1}, &error), SPRY_OK);
    }
    spry_matcher_destroy(matcher);
    spry_buffer_deinit(&rest);
}

/* A schema with texts that it accepts and rejects. */
typedef struct schema_example {
    const char *schema;
    const char *yes[12], *no[12]; /* texts, up to the first NULL */
} schema_example;

static inline void check_schema_examples(const schema_example *examples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        spry_grammar *grammar = grammar_of(examples[i].schema);
        for (size_t k = 0; k < 12 && examples[i].yes[k]; k++)
            if (!matches(grammar, examples[i].yes[k]))
                fail_msg("%s does not take %s", examples[i].schema, examples[i].yes[k]);
        for (size_t k = 0; k < 12 && examples[i].no[k]; k++)
            if (matches(grammar, examples[i].no[k]))
                fail_msg("%s takes %s", examples[i].schema, examples[i].no[k]);
        spry_grammar_unref(grammar);
    }
}

#endif
