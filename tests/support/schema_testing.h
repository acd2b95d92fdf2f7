/* A JSON schema as a grammar, and whether a text is valid against it. Include cmocka before. */
#ifndef SPRY_TESTS_SCHEMA_TESTING_H
#define SPRY_TESTS_SCHEMA_TESTING_H

#include <string.h>

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
