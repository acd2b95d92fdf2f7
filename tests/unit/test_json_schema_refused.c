/* JSON schemas that are refused, and how that is said; and schemas made to hurt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "grammar/ir/ir_nodes.h"
#include "support/schema_testing.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void check_refused(spry_view schema, spry_status status, const char *said)
{
    spry_grammar *grammar;
    spry_error error = {0};
    if (!spry_grammar_create(&grammar, SPRY_GRAMMAR_JSON_SCHEMA, schema, &error))
        fail_msg("%.*s is taken", SPRY_VIEW_ARG(schema));
    assert_null(grammar);
    if (error.status != status || !strstr(error.message, said))
        fail_msg("%.*s: \"%s\" (status %d) instead of \"%s\" (%d)", SPRY_VIEW_ARG(schema), error.message,
                 (int)error.status, said, (int)status);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *schema;
        spry_status status;
        const char *said;
    } cases[] = {
        {"", SPRY_ERR_INPUT, "not valid JSON"},
        {"{\"a\":1,\"a\":2}", SPRY_ERR_INPUT, "not valid JSON"},
        {"[]", SPRY_ERR_INPUT, "must be a schema"},
        {"{\"properties\":{\"a\":5}}", SPRY_ERR_INPUT, "#/properties/a: must be a schema"},
        {"{\"properties\":{\"a/b~c\":{\"uniqueItems\":true}}}", SPRY_ERR_UNSUPPORTED,
         "#/properties/a~1b~0c/uniqueItems"},
        {"{\"type\":\"array\",\"contains\":{},\"maxContains\":9999}", SPRY_ERR_UNSUPPORTED, "must be counted"},
        {"{\"type\":\"array\",\"contains\":{},\"minContains\":\"x\"}", SPRY_ERR_INPUT, "#/minContains"},
        {"{\"not\":{\"uniqueItems\":true}}", SPRY_ERR_UNSUPPORTED, "#/not/uniqueItems"},
        {"{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"uniqueItems\":true,\"minItems\":3}", SPRY_ERR_INPUT,
         "no JSON value at all"},
        {"{\"allOf\":[true,{\"$dynamicRef\":\"#a\"}]}", SPRY_ERR_UNSUPPORTED, "#/allOf/1/$dynamicRef"},
        {"{\"$id\":\"r\",\"items\":{\"$ref\":\"x\"},\"$defs\":{\"x\":{\"$id\":\"x\",\"items\":{\"$dynamicRef\":\"#a\"},"
         "\"$defs\":{\"a\":{\"$dynamicAnchor\":\"a\"}}},\"y\":{\"$id\":\"y\",\"$dynamicAnchor\":\"a\"}}}",
         SPRY_ERR_UNSUPPORTED, "can refer to several schemas"},
        {"{\"$schema\":\"https://json-schema.org/draft/2019-09/schema\",\"$recursiveRef\":\"#\"}", SPRY_ERR_INPUT,
         "refers to itself"},
        {"{\"not\":{\"allOf\":[{}],\"unevaluatedProperties\":false}}", SPRY_ERR_UNSUPPORTED,
         "#/not/unevaluatedProperties"},
        {"{\"$ref\":\"http://example.com/other.json\"}", SPRY_ERR_UNSUPPORTED, "is not in this schema"},
        {"{\"$ref\":\"#/$defs/none\"}", SPRY_ERR_UNSUPPORTED, "#/$ref"},
        {"{\"$ref\":\"#nowhere\"}", SPRY_ERR_UNSUPPORTED, "#nowhere"},
        {"{\"$ref\":5}", SPRY_ERR_INPUT, "must be a string"},
        {"{\"$ref\":\"#\"}", SPRY_ERR_INPUT, "refers to itself"},
        {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}", SPRY_ERR_INPUT, "refers to itself"},
        {"{\"$defs\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/b\"}]},\"b\":{\"not\":{\"$ref\":\"#/$defs/"
         "a\"}}},\"$ref\":\"#/$defs/a\"}",
         SPRY_ERR_INPUT, "refers to itself"},
        {"{\"$schema\":\"http://json-schema.org/draft-03/schema#\"}", SPRY_ERR_UNSUPPORTED, "#/$schema"},
        {"{\"type\":\"text\"}", SPRY_ERR_INPUT, "#/type: names no type"},
        {"{\"type\":[\"string\",5]}", SPRY_ERR_INPUT, "names no type"},
        {"{\"enum\":5}", SPRY_ERR_INPUT, "#/enum"},
        {"{\"minimum\":\"5\"}", SPRY_ERR_INPUT, "#/minimum: must be a number"},
        {"{\"minimum\":1e100,\"type\":\"number\"}", SPRY_ERR_UNSUPPORTED, "#/minimum: is too large"},
        {"{\"multipleOf\":0}", SPRY_ERR_INPUT, "greater than 0"},
        {"{\"multipleOf\":-1}", SPRY_ERR_INPUT, "greater than 0"},
        {"{\"multipleOf\":0.123456789}", SPRY_ERR_UNSUPPORTED, "#/multipleOf"},
        {"{\"minLength\":-1}", SPRY_ERR_INPUT, "whole number"},
        {"{\"maxItems\":1.5}", SPRY_ERR_INPUT, "whole number"},
        {"{\"pattern\":\"(a\"}", SPRY_ERR_INPUT, "#/pattern"},
        {"{\"pattern\":\"(a)\\\\1\"}", SPRY_ERR_UNSUPPORTED, "#/pattern"},
        {"{\"pattern\":5}", SPRY_ERR_INPUT, "#/pattern"},
        {"{\"patternProperties\":{\"(a)\\\\1\":{}},\"type\":\"object\"}", SPRY_ERR_UNSUPPORTED, "#/patternProperties"},
        {"{\"prefixItems\":{}}", SPRY_ERR_INPUT, "#/prefixItems"},
        {"{\"properties\":[]}", SPRY_ERR_INPUT, "#/properties"},
        {"{\"required\":\"a\"}", SPRY_ERR_INPUT, "#/required"},
        {"{\"required\":[1]}", SPRY_ERR_INPUT, "#/required"},
        {"{\"required\":[\"a\\u0000b\"]}", SPRY_ERR_INPUT, "#/required"},
        {"{\"not\":{\"const\":1e100}}", SPRY_ERR_UNSUPPORTED, "a number that is excluded"},
        {"{\"anyOf\":[]}", SPRY_ERR_INPUT, "#/anyOf"},
        {"{\"dependentRequired\":[]}", SPRY_ERR_INPUT, "#/dependentRequired"},
        {"{\"type\":\"object\",\"minProperties\":3}", SPRY_ERR_UNSUPPORTED, "#/minProperties: 3"},
        {"false", SPRY_ERR_INPUT, "no JSON value at all"},
        {"{\"not\":{}}", SPRY_ERR_INPUT, "no JSON value at all"},
        {"{\"enum\":[]}", SPRY_ERR_INPUT, "no JSON value at all"},
        {"{\"type\":\"string\",\"const\":5}", SPRY_ERR_INPUT, "no JSON value at all"},
        {"{\"type\":\"integer\",\"minimum\":1.2,\"maximum\":1.8}", SPRY_ERR_INPUT, "no JSON value at all"},
        {"{\"type\":\"string\",\"pattern\":\"^a+$\",\"allOf\":[{\"pattern\":\"^b\"}]}", SPRY_ERR_INPUT,
         "no JSON value at all"},
        {"{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}", SPRY_ERR_INPUT,
         "no JSON value at all"},
        {"{\"type\":\"object\",\"required\":[\"a\",\"b\"],\"maxProperties\":1}", SPRY_ERR_INPUT,
         "no JSON value at all"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", SPRY_ERR_INPUT,
         "no JSON value at all"},
        {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"minItems\":1}", SPRY_ERR_INPUT, "no JSON value at all"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check_refused(spry_view_of(cases[i].schema), cases[i].status, cases[i].said);
}

/* ---- schemas made to hurt ---------------------------------------------------------------------------------------- */

static void repeat_text(spry_buffer *out, const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++)
        spry_buffer_text(out, text);
}

/* `open` and `close` this many times around `middle`. */
static spry_buffer nested(const char *open, const char *middle, const char *close, size_t depth)
{
    spry_buffer out;
    spry_buffer_init(&out, 8 << 20);
    repeat_text(&out, open, depth);
    spry_buffer_text(&out, middle);
    repeat_text(&out, close, depth);
    assert_false(out.failed);
    return out;
}

static void deep_schemas(void **state)
{
    (void)state;
    spry_buffer deep = nested("{\"allOf\":[", "{}", "]}", 900);
    check_refused(spry_buffer_view(&deep), SPRY_ERR_UNSUPPORTED, "schemas deep for one value");
    spry_buffer_deinit(&deep);
    deep = nested("{\"not\":", "{}", "}", 100);
    spry_grammar_unref(grammar_of(spry_buffer_view(&deep).data));
    spry_buffer_deinit(&deep);
    deep = nested("{\"type\":\"array\",\"items\":", "true", "}", 900);
    spry_grammar *grammar = grammar_of(spry_buffer_view(&deep).data);
    assert_true(matches(grammar, "[[[]]]"));
    spry_grammar_unref(grammar);
    spry_buffer_deinit(&deep);
    deep = nested("[", "", "]", 100000);
    check_refused(spry_buffer_view(&deep), SPRY_ERR_INPUT, "not valid JSON");
    spry_buffer_deinit(&deep);
}

static void many_combinations(void **state)
{
    (void)state;
    /* 2^20 ways to have or not have members. */
    spry_buffer text;
    spry_buffer_init(&text, 8 << 20);
    spry_buffer_text(&text, "{\"type\":\"object\",\"dependentRequired\":{");
    for (int i = 0; i < 20; i++)
        spry_buffer_format(&text, "%s\"a%d\":[\"b%d\"]", i ? "," : "", i, i);
    spry_buffer_text(&text, "}}");
    check_refused(spry_buffer_view(&text), SPRY_ERR_UNSUPPORTED, "alternatives");
    spry_buffer_clear(&text);
    /* References that double at each step: seen once each. */
    spry_buffer_text(&text, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < 60; i++)
        spry_buffer_format(&text, "\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]},", i,
                           i + 1, i + 1);
    spry_buffer_text(&text, "\"d60\":{\"type\":\"null\"}}}");
    spry_grammar *grammar = grammar_of(spry_buffer_view(&text).data);
    assert_true(matches(grammar, "null"));
    assert_false(matches(grammar, "1"));
    spry_grammar_unref(grammar);
    spry_buffer_clear(&text);
    spry_buffer_text(&text, "{\"oneOf\":[{}");
    repeat_text(&text, ",{}", 300);
    spry_buffer_text(&text, "]}");
    check_refused(spry_buffer_view(&text), SPRY_ERR_UNSUPPORTED, "branches");
    spry_buffer_deinit(&text);
}

static void large_schemas(void **state)
{
    (void)state;
    spry_buffer text;
    spry_buffer_init(&text, 8 << 20);
    spry_buffer_text(&text, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 1000; i++)
        spry_buffer_format(&text, "%s\"property_%d\":{\"type\":\"integer\",\"minimum\":%d}", i ? "," : "", i, i);
    spry_buffer_text(&text, "},\"required\":[\"property_0\",\"property_999\"]}");
    spry_grammar *grammar = grammar_of(spry_buffer_view(&text).data);
    assert_true(matches(grammar, "{\"property_999\":999,\"property_0\":0,\"property_50\":50,\"property_\":null}"));
    assert_false(matches(grammar, "{\"property_999\":998,\"property_0\":0}"));
    assert_false(matches(grammar, "{\"property_999\":999,\"property_1\":1}"));
    assert_false(matches(grammar, "{\"property_999\":999,\"property_0\":0,\"property_50\":\"x\"}"));
    spry_grammar_unref(grammar);
    spry_buffer_clear(&text);
    spry_buffer_text(&text, "{\"properties\":{\"");
    repeat_text(&text, "name", 1000);
    spry_buffer_text(&text, "\":{}}}");
    check_refused(spry_buffer_view(&text), SPRY_ERR_UNSUPPORTED, "has more than 1000 bytes");
    spry_buffer_clear(&text);
    repeat_text(&text, " ", (4 << 20) + 1);
    check_refused(spry_buffer_view(&text), SPRY_ERR_INPUT, "bytes, more than");
    spry_buffer_deinit(&text);
}

static uint64_t work_of(spry_status *status, const char *schema)
{
    spry_ir *ir;
    spry_grammar *grammar = NULL;
    assert_int_equal(spry_ir_create(&ir, NULL), SPRY_OK);
    spry_ir_node root = spry_ir_json_schema(ir, spry_view_of(schema), SPRY_JSON_COMPACT);
    *status = spry_grammar_from_ir(&grammar, ir, root, NULL);
    uint64_t work = *ir->spent;
    spry_grammar_unref(grammar);
    spry_ir_destroy(ir);
    return work;
}

/* What is refused does not depend on what other grammars have left in the cache of automata. */
static void same_budget(void **state)
{
    (void)state;
    static const char *const schemas[] = {
        "{\"type\":\"string\",\"pattern\":\"^budget(a|b)*a(a|b){6}$\",\"maxLength\":300}",
        "{\"type\":\"string\",\"format\":\"iri\",\"minLength\":7}",
        "{\"type\":\"number\",\"minimum\":17.25,\"maximum\":991.5,\"multipleOf\":0.25}",
        "{\"properties\":{\"budget\":{\"type\":\"integer\"}},\"patternProperties\":{\"^b.*t$\":{\"minimum\":3}}}",
        "{\"type\":\"string\",\"pattern\":\"^budget(a|b)*a(a|b){24}$\"}",
    };
    for (size_t i = 0; i < COUNT(schemas); i++) {
        spry_status first, again;
        uint64_t work = work_of(&first, schemas[i]);
        assert_true(work > 0);
        assert_int_equal(work_of(&again, schemas[i]), work);
        assert_int_equal(again, first);
    }
}

/* All work is counted: a schema of a few hundred bytes does not compile for long, whatever it is made of. */
static void bounded_work(void **state)
{
    (void)state;
    spry_buffer text;
    spry_buffer_init(&text, 8 << 20);
    spry_buffer_text(&text, "{\"allOf\":[{\"type\":\"number\"}");
    for (int i = 0; i < 24; i++)
        spry_buffer_format(&text, ",{\"oneOf\":[{\"multipleOf\":%d.%d},{\"maximum\":%d7.5}]}", i + 3, i + 1, i + 1);
    spry_buffer_text(&text, "]}");
    spry_status status;
    uint64_t work = work_of(&status, spry_buffer_view(&text).data);
    assert_int_equal(status, SPRY_ERR_UNSUPPORTED);
    assert_true(work < SPRY_AUTOMATON_WORK_MAX + SPRY_AUTOMATON_WORK_MAX / 4);
    spry_buffer_deinit(&text);
}

/* Patterns and nests whose automata or alternatives grow exponentially are refused by name, in bounded time. */
static void explosions(void **state)
{
    (void)state;
    check_refused(
        SPRY_VIEW("{\"type\":\"string\",\"pattern\":\"^(a|b)*a(a|b){24}$\",\"allOf\":[{\"pattern\":\"b(a|b){23}$\"}]}"),
        SPRY_ERR_UNSUPPORTED, "");
    spry_buffer text;
    spry_buffer_init(&text, 8 << 20);
    spry_buffer_text(&text, "{\"allOf\":[{}");
    for (int i = 0; i < 40; i++)
        spry_buffer_format(&text, ",{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}", i, i);
    spry_buffer_text(&text, "]}");
    check_refused(spry_buffer_view(&text), SPRY_ERR_UNSUPPORTED, "alternatives");
    spry_buffer_clear(&text);
    spry_buffer_text(&text, "{\"type\":\"object\",\"properties\":{\"x\":null");
    text.size -= 4;
    spry_buffer_text(&text, "{}");
    for (int i = 0; i < 400; i++)
        spry_buffer_format(&text, ",\"p%d\":{\"type\":\"string\",\"pattern\":\"^([a-z]|%d)*x.{9}y\",\"maxLength\":%d}",
                           i, i, 500 + i);
    spry_buffer_text(&text, "}}");
    check_refused(spry_buffer_view(&text), SPRY_ERR_UNSUPPORTED, "");
    spry_buffer_clear(&text);
    spry_buffer_text(&text, "{\"enum\":[\"a\"");
    for (int i = 0; i < 10000; i++)
        spry_buffer_format(&text, ",\"value number %d\"", i);
    spry_buffer_text(&text, "]}");
    spry_grammar *grammar = grammar_of(spry_buffer_view(&text).data);
    assert_true(matches(grammar, "\"value number 9999\""));
    assert_false(matches(grammar, "\"value number 10000\""));
    spry_grammar_unref(grammar);
    spry_buffer_deinit(&text);
}

/* Schemas of 10 MB, nests of 10,000, and references in circles. */
static void bad_inputs(void **state)
{
    (void)state;
    static const char *const circles[] = {
        "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}}}",
        "{\"allOf\":[{\"anyOf\":[{\"$ref\":\"#\"}]}]}",
        "{\"not\":{\"$ref\":\"#\"}}",
        "{\"oneOf\":[{\"$ref\":\"#/oneOf/1\"},{\"$ref\":\"#/oneOf/0\"}]}",
        "{\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":\"#\"}}",
    };
    static const char *const nests[][2] = {
        {"{\"items\":", "}"}, {"{\"allOf\":[", "]}"}, {"{\"anyOf\":[{},", "]}"}, {"{\"properties\":{\"a\":", "}}"}};
    for (size_t i = 0; i < COUNT(circles); i++) {
        spry_grammar *grammar;
        spry_error error = {0};
        assert_int_not_equal(spry_grammar_create(&grammar, SPRY_GRAMMAR_JSON_SCHEMA, spry_view_of(circles[i]), &error),
                             SPRY_OK);
        assert_true(error.message[0]);
    }
    for (size_t i = 0; i < COUNT(nests); i++) {
        spry_buffer deep = nested(nests[i][0], "{}", nests[i][1], 10000);
        check_refused(spry_buffer_view(&deep), SPRY_ERR_INPUT, "not valid JSON");
        spry_buffer_deinit(&deep);
    }
    spry_buffer text;
    spry_buffer_init(&text, 16 << 20);
    spry_buffer_text(&text, "{\"properties\":{");
    for (int i = 0; text.size < 10 << 20; i++)
        spry_buffer_format(&text, "%s\"property %d\":{\"type\":\"string\",\"maxLength\":%d}", i ? "," : "", i, i);
    spry_buffer_text(&text, "}}");
    check_refused(spry_buffer_view(&text), SPRY_ERR_INPUT, "bytes, more than");
    spry_buffer_deinit(&text);
}

/* A schema that is taken has a text: the completion from its beginning matches it. */
static void check_completion(spry_grammar *grammar, spry_view schema)
{
    spry_matcher *matcher;
    spry_error error = {0};
    spry_buffer text;
    size_t taken = 0;
    spry_buffer_init(&text, SPRY_COMPLETION_MAX);
    assert_int_equal(spry_matcher_create(&matcher, grammar, NULL, &error), SPRY_OK);
    if (spry_matcher_completion(matcher, &text, &error))
        fail_msg("%.*s: %s", SPRY_VIEW_ARG(schema), error.message);
    assert_int_equal(spry_matcher_bytes(matcher, &taken, spry_buffer_view(&text), &error), SPRY_OK);
    if (taken != text.size || !spry_matcher_may_end(matcher))
        fail_msg("%.*s: %.*s is not complete", SPRY_VIEW_ARG(schema), SPRY_VIEW_ARG(spry_buffer_view(&text)));
    spry_matcher_destroy(matcher);
    spry_buffer_deinit(&text);
}

/* Every prefix of a schema, and every schema with one byte changed, is taken or refused, and nothing else happens. */
static size_t damage(const char *source)
{
    static const char bytes[] = {'"', '}', '#', '0', '\\', 'a', (char)0xC3};
    char schema[800];
    size_t size = strlen(source), taken = 0;
    assert_true(size < sizeof schema);
    memcpy(schema, source, size);
    for (size_t i = 0; i < size; i++) {
        for (size_t k = 0; k <= sizeof bytes; k++) {
            spry_grammar *grammar = NULL;
            spry_error error = {0};
            char saved = schema[i];
            if (k < sizeof bytes)
                schema[i] = bytes[k];
            spry_view text = {schema, k < sizeof bytes ? size : i};
            spry_status status = spry_grammar_create(&grammar, SPRY_GRAMMAR_JSON_SCHEMA, text, &error);
            assert_true(status ? error.message[0] && !grammar : grammar != NULL);
            if (!status)
                check_completion(grammar, text);
            schema[i] = saved;
            taken += !status;
            spry_grammar_unref(grammar);
        }
    }
    return taken;
}

static void damaged_schemas(void **state)
{
    (void)state;
    static const char *const schemas[] = {
        "{\"$defs\":{\"t\":{\"type\":\"string\",\"pattern\":\"^a*$\"}},\"properties\":{\"a\":{\"$ref\":\"#/$defs/t\"},"
        "\"b\":{\"enum\":[1,\"x\"]}},\"required\":[\"a\"],\"oneOf\":[{\"minProperties\":1},{\"maxItems\":2}]}",
        "{\"type\":\"object\",\"not\":{\"patternProperties\":{\"^a\":{\"const\":1}},\"additionalProperties\":false},"
        "\"anyOf\":[{\"properties\":{\"ab\":{\"type\":\"array\",\"contains\":{\"const\":7},\"maxContains\":2,\"items\":"
        "{\"enum\":["
        "7,8]}}}},{\"required\":[\"c\"]}],\"unevaluatedProperties\":{\"$dynamicRef\":\"#n\"},\"$defs\":{\"n\":{\"$"
        "dynamicAnchor\":"
        "\"n\",\"type\":\"array\",\"items\":{\"enum\":[1,2,\"x\"]},\"uniqueItems\":true,\"minItems\":2}}}",
        "{\"type\":\"string\",\"pattern\":\"^(?=.{2,4}$)(?!ab)(\\\\w|(?<!b)-)+\\\\b[^\\\\d]?$\",\"maxLength\":9}",
        "{\"type\":\"array\",\"minItems\":2,\"contains\":{\"maxLength\":90,\"pattern\":\"@b\"},\"minContains\":1,"
        "\"items\":{\"type\":\"string\",\"format\":\"email\",\"minLength\":6,\"maxLength\":254}}",
    };
    size_t taken = 0;
    for (size_t i = 0; i < COUNT(schemas); i++)
        taken += damage(schemas[i]);
    assert_true(taken > 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),      cmocka_unit_test(deep_schemas), cmocka_unit_test(many_combinations),
        cmocka_unit_test(large_schemas), cmocka_unit_test(explosions),   cmocka_unit_test(damaged_schemas),
        cmocka_unit_test(bad_inputs),    cmocka_unit_test(same_budget),  cmocka_unit_test(bounded_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
