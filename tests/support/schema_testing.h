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

#endif
