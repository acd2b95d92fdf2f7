/* JSON schemas whose keywords need more than one member or item to be looked at: what they accept and reject. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/schema_testing.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Some member is wrong: a negated additionalProperties, patternProperties or propertyNames. */
static void negated_members(void **state)
{
    (void)state;
    static const schema_example examples[] = {
        {"{\"not\":{\"type\":\"object\",\"additionalProperties\":false}}", {"{\"a\":1}", "1"}, {"{}"}},
        {"{\"type\":\"object\",\"not\":{\"properties\":{\"a\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":"
         "\"string\"}}}",
         {"{\"a\":1}", "{\"b\":1}", "{\"a\":null,\"c\":\"x\",\"b\":1,\"d\":\"x\"}"},
         {"{}", "{\"a\":null}", "{\"b\":\"x\"}", "{\"a\":null,\"b\":\"x\"}"}},
        {"{\"type\":\"object\",\"not\":{\"patternProperties\":{\"^a\":{\"type\":\"integer\"}}},"
         "\"additionalProperties\":{"
         "\"type\":[\"integer\",\"null\"]}}",
         {"{\"ab\":null}", "{\"b\":1,\"a\":null,\"ax\":1}"},
         {"{}", "{\"b\":null}", "{\"a\":1}", "{\"a\":\"x\"}"}},
        {"{\"type\":\"object\",\"not\":{\"propertyNames\":{\"maxLength\":2}}}",
         {"{\"abc\":1}", "{\"a\":1,\"abc\":1,\"b\":1}"},
         {"{}", "{\"a\":1}", "{\"ab\":1,\"b\":1}"}},
        /* closed: only declared names can be the wrong member */
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"additionalProperties\":false,\"not\":{"
         "\"properties\":{"
         "\"a\":{}},\"additionalProperties\":false}}",
         {"{\"b\":1}", "{\"a\":1,\"b\":1}"},
         {"{}", "{\"a\":1}", "{\"c\":1}"}},
        /* two demands, which one member meets or two */
        {"{\"type\":\"object\",\"allOf\":[{\"not\":{\"patternProperties\":{\"a\":false}}},{\"not\":{"
         "\"patternProperties\":{"
         "\"b\":false}}}]}",
         {"{\"ab\":1}", "{\"a\":1,\"b\":1}", "{\"b\":1,\"x\":1,\"a\":1}"},
         {"{}", "{\"a\":1}", "{\"b\":1,\"c\":1}"}},
        {"{\"oneOf\":[{\"properties\":{\"a\":{\"type\":\"string\"}},\"required\":[\"a\"]},{\"properties\":{\"b\":{}},"
         "\"additionalProperties\":false}]}",
         {"{\"a\":\"x\"}", "{\"b\":1}", "{}", "{\"a\":\"x\",\"b\":1}"},
         {"{\"c\":1}", "1", "{\"a\":1}"}},
        {"{\"type\":\"object\",\"if\":{\"additionalProperties\":{\"type\":\"integer\"}},\"then\":{\"required\":[\"a\"]}"
         ","
         "\"else\":{\"required\":[\"b\"]}}",
         {"{\"a\":1}", "{\"b\":\"x\"}", "{\"a\":1,\"c\":2}", "{\"c\":null,\"b\":1}"},
         {"{}", "{\"b\":1}", "{\"a\":\"x\"}", "{\"c\":null,\"a\":1}"}},
    };
    check_schema_examples(examples, COUNT(examples));
}

static void counted_items(void **state)
{
    (void)state;
    static const schema_example examples[] = {
        {"{\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"minContains\":2,\"maxContains\":3}",
         {"[null,null]", "[1,null,2,null]", "[null,null,null,1]"},
         {"[]", "[null]", "[1,2]", "[null,null,null,null]", "[null,1,2]"}},
        {"{\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"minContains\":0,\"maxContains\":1}",
         {"[]", "[1]", "[null]", "[1,null,1]"},
         {"[null,null]", "[null,1,null]"}},
        {"{\"type\":\"array\",\"not\":{\"contains\":{\"const\":1},\"minContains\":2,\"maxContains\":2}}",
         {"[]", "[1]", "[2,2]", "[1,1,1]"},
         {"[1,1]", "[1,2,1]"}},
        /* several, beside other keywords */
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"maxItems\":3,\"allOf\":[{\"contains\":{"
         "\"const\":1}},"
         "{\"contains\":{\"type\":\"string\"}}]}",
         {"[1,\"a\"]", "[2,1,\"a\"]", "[2,\"a\",1]", "[1,null,\"a\"]"},
         {"[1]", "[\"a\",1]", "[2,\"a\"]", "[1,2,3]", "[1,2,3,\"a\"]"}},
        {"{\"type\":\"array\",\"not\":{\"prefixItems\":[{}],\"items\":{\"type\":\"null\"}}}",
         {"[1,2]", "[null,null,1,null]"},
         {"[]", "[1]", "[1,null]", "[1,null,null]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"contains\":{\"minimum\":5}}",
         {"[1,5]", "[7,7,7]", "[9,1]"},
         {"[5]", "[1,2]", "[5,\"a\"]"}},
    };
    check_schema_examples(examples, COUNT(examples));
}

static void unique_items(void **state)
{
    (void)state;
    static const schema_example examples[] = {
        {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"ab\",1,null,1.0]},\"uniqueItems\":true}",
         {"[]", "[\"ab\"]", "[\"ab\",\"a\"]", "[null, 1, \"a\"]", "[1.0]", "[\"a\",1,null,\"ab\"]"},
         {"[1,1.0]", "[\"a\",\"a\"]", "[\"a\",1,\"a\"]", "[null,null]", "[2]", "[\"a\",]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"uniqueItems\":true,\"minItems\":1}",
         {"[true]", "[false,true]"},
         {"[]", "[true,true]", "[true,false,true]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":-1,\"exclusiveMaximum\":12},\"uniqueItems\":"
         "true}",
         {"[1,11,-1]", "[11,1]", "[0]"},
         {"[1,1]", "[12]", "[11,1,11]", "[0,-0]"}},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":1}", {"[]", "[{\"a\":[1,1]}]"}, {"[1,2]"}},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"null\"}],"
         "\"items\":false}",
         {"[]", "[\"a\"]", "[\"a\",null]"},
         {"[null]", "[\"a\",\"b\"]", "[\"a\",null,1]"}},
        {"{\"type\":\"array\",\"items\":{\"enum\":[\"x\",\"y\",\"xyz\"],\"maxLength\":2},\"uniqueItems\":true,"
         "\"maxItems\":2}",
         {"[\"x\",\"y\"]"},
         {"[\"xyz\"]", "[\"x\",\"x\"]"}},
    };
    check_schema_examples(examples, COUNT(examples));
}

static void unevaluated(void **state)
{
    (void)state;
    static const schema_example examples[] = {
        {"{\"type\":\"object\",\"allOf\":[{\"properties\":{\"a\":{\"type\":\"string\"}}}],\"properties\":{\"b\":{}},"
         "\"unevaluatedProperties\":false}",
         {"{}", "{\"a\":\"x\"}", "{\"b\":1,\"a\":\"x\"}"},
         {"{\"c\":1}", "{\"a\":1}", "{\"a\":\"x\",\"c\":1}"}},
        /* every branch that is valid evaluates */
        {"{\"type\":\"object\",\"anyOf\":[{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},{\"properties\":{"
         "\"b\":{"
         "\"const\":2}},\"required\":[\"b\"]}],\"unevaluatedProperties\":{\"type\":\"null\"}}",
         {"{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}", "{\"a\":1,\"b\":null}", "{\"c\":null,\"a\":1}"},
         {"{}", "{\"a\":1,\"b\":3}", "{\"a\":1,\"c\":1}"}},
        {"{\"type\":\"object\",\"if\":{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},\"then\":{"
         "\"properties\":{"
         "\"b\":{}}},\"else\":{\"properties\":{\"c\":{}}},\"unevaluatedProperties\":false}",
         {"{}", "{\"a\":1,\"b\":2}", "{\"c\":1}"},
         {"{\"a\":1,\"c\":1}", "{\"b\":1}", "{\"a\":2}"}},
        {"{\"type\":\"object\",\"not\":{\"not\":{\"properties\":{\"a\":{}}}},\"patternProperties\":{\"^x\":{}},"
         "\"unevaluatedProperties\":false,\"$ref\":\"#/$defs/d\",\"$defs\":{\"d\":{\"properties\":{\"d\":{}}}}}",
         {"{}", "{\"d\":1,\"xy\":1}"},
         {"{\"a\":1}", "{\"yx\":1}"}},
        {"{\"type\":\"array\",\"allOf\":[{\"prefixItems\":[{\"type\":\"null\"},true]}],\"contains\":{\"const\":5},"
         "\"unevaluatedItems\":{\"type\":\"string\"}}",
         {"[null,5]", "[null,1,5]", "[null,1,\"x\",5]", "[null,5,\"x\"]"},
         {"[]", "[null,1,6,5]", "[null,1,\"x\"]"}},
    };
    check_schema_examples(examples, COUNT(examples));
}

static void dynamic_references(void **state)
{
    (void)state;
    static const schema_example examples[] = {
        {"{\"$id\":\"http://x/"
         "strict\",\"$dynamicAnchor\":\"node\",\"$ref\":\"tree\",\"unevaluatedProperties\":false,\"$defs\":{"
         "\"t\":{\"$id\":\"tree\",\"$dynamicAnchor\":\"node\",\"type\":\"object\",\"properties\":{\"kids\":{\"type\":"
         "\"array\","
         "\"items\":{\"$dynamicRef\":\"#node\"}}}}}}",
         {"{}", "{\"kids\":[{\"kids\":[]}]}"},
         {"{\"kid\":[]}", "{\"kids\":[{\"kid\":1}]}", "{\"kids\":[1]}"}},
        {"{\"$schema\":\"https://json-schema.org/draft/2019-09/"
         "schema\",\"$recursiveAnchor\":true,\"type\":[\"integer\",\"array\"],"
         "\"items\":{\"$recursiveRef\":\"#\"}}",
         {"1", "[[1],2]"},
         {"\"x\"", "[[null]]"}},
    };
    check_schema_examples(examples, COUNT(examples));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(negated_members), cmocka_unit_test(counted_items),
                                       cmocka_unit_test(unique_items), cmocka_unit_test(unevaluated),
                                       cmocka_unit_test(dynamic_references)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
