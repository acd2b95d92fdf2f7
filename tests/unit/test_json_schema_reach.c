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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(negated_members)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
