/* JSON schemas: what they accept and reject. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/schema_testing.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- what is accepted -------------------------------------------------------------------------------------------- */

static void numbers(void **state)
{
    (void)state;
    static const schema_example examples[] = {
        {"{\"type\":\"integer\"}",
         {"0", "-0", "7", "-12", "1.0", "1e16", "1.5e+20", "123456789012345678901234567890"},
         {"01", "+1", "1.", ".5", "1.5", "1e3", "1e-3", "1.00", "1e309", "9e308", "--1", " 1"}},
        {"{\"type\":\"number\"}",
         {"0", "-0.0", "1.25", "1e5", "1E-7", "1.5e+300", "1e308"},
         {"00", "1e", "e5", "0e1", "10e1", "1e999", "NaN", "Infinity", "0x1", "1,5"}},
        {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":100}",
         {"0", "-0", "7", "42", "99", "100", "100.0"},
         {"-1", "101", "1000", "99.5", "1e2", "007"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":-13,\"exclusiveMaximum\":-7}",
         {"-12", "-8", "-10.0"},
         {"-13", "-7", "0", "12", "-6", "-70", "-1"}},
        {"{\"type\":\"integer\",\"minimum\":1.5,\"maximum\":3.5}", {"2", "3", "3.0"}, {"1", "4", "1.5", "2.5"}},
        {"{\"type\":\"number\",\"minimum\":1.25,\"exclusiveMaximum\":10.5}",
         {"1.25", "1.250", "1.3", "2", "9.99", "10", "10.4999", "1.25e0", "1.3e0", "9e0", "1.04e1"},
         {"1.2", "1.249999", "10.5", "10.50", "11", "0", "-5", "1.24e0", "1.05e1", "1e2", "9e-1"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0}",
         {"0.001", "1e-7", "5", "1e300"},
         {"0", "0.0", "0.000", "-0", "-1", "-1e-7"}},
        {"{\"type\":\"number\",\"minimum\":-0.5,\"maximum\":0.5}",
         {"0", "-0.5", "0.5", "-0.0", "0.49999", "5e-1", "-5E-1", "1e-300"},
         {"0.51", "-0.500001", "1", "-1", "5.1e-1", "1e0"}},
        {"{\"minimum\":3}", {"3", "\"a\"", "null", "[]", "{}", "true"}, {"2.9"}},
        {"{\"const\":2}", {"2", "2.0"}, {"2.00", "3", "-2", "\"2\"", "20", "2.1"}},
        {"{\"enum\":[0, 1.5, -3e20, 0.00001]}",
         {"0", "-0.0", "1.5", "-3e20", "-3e+20", "-300000000000000000000", "1e-05", "0.00001"},
         {"1", "1.50", "3e20", "1e-6", "15"}},
        {"{\"type\":\"integer\",\"multipleOf\":7}", {"0", "7", "-14", "1001", "21.0"}, {"1", "8", "15", "7.5", "-20"}},
        {"{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":0}",
         {"0", "0.25", "1.5", "1.50", "3", "1000000.75", "1e20"},
         {"0.1", "0.26", "1.125", "-0.25", "1.251"}},
        {"{\"type\":\"number\",\"multipleOf\":0.01}", {"1.23", "4", "-0.1", "1.230"}, {"1.234", "0.001", "1e-3"}},
        {"{\"type\":\"integer\",\"multipleOf\":50,\"minimum\":100,\"maximum\":200}",
         {"100", "150", "200"},
         {"50", "120", "250"}},
        {"{\"format\":\"uint8\"}", {"0", "255", "\"x\""}, {"256", "-1", "1.5"}},
        {"{\"type\":\"integer\",\"format\":\"int64\"}",
         {"9223372036854775807", "-9223372036854775808"},
         {"9223372036854775808", "-9223372036854775809", "1e19"}},
        {"{\"type\":\"number\",\"maximum\":1.25}",
         {"1.25", "1.2", "1", "-7", "1e-3"},
         {"1.", "1.26", "1.2.", "1.3", "-"}},
        {"{\"type\":\"number\",\"allOf\":[{\"minimum\":5},{\"exclusiveMinimum\":5},{\"exclusiveMaximum\":7},{"
         "\"maximum\":7}]}",
         {"5.1", "6.9"},
         {"5", "7", "5.0"}},
        {"{\"type\":\"number\",\"not\":{\"enum\":[1,2.5,2.5,-3]}}",
         {"0", "2", "3", "1.5", "-2"},
         {"1", "1.0", "2.5", "-3"}},
    };
    check_schema_examples(examples, COUNT(examples));
}

static void strings(void **state)
{
    (void)state;
    static const schema_example examples[] = {
        {"{\"type\":\"string\"}",
         {"\"\"", "\"a b\"", "\"\\n\\t\\\"\\\\\\/\"", "\"\\u0041\"", "\"\xC3\xA9\"", "\"\\ud83d\\udca9\"",
          "\"\xF0\x9F\x92\xA9\""},
         {"\"", "\"a\nb\"", "\"\\x\"", "\"\\u12\"", "\"\\ud83d\"", "\"\\udca9\"", "\"\xFF\"", "'a'", "\"a\"\""}},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"\\u0041\\n\"", "\"\\ud83d\\udca9x\"", "\"\xC3\xA9\xC3\xA9\xC3\xA9\""},
         {"\"a\"", "\"abcd\"", "\"\\u0041\"", "\"\\ud83d\\udca9\"", "\"\xC3\xA9\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]+-\\\\d{2}$\"}",
         {"\"abc-12\"", "\"z-00\""},
         {"\"abc-1\"", "\"Abc-12\"", "\"abc-12 \"", "\"-12\"", "\"\\u0061-12\""}},
        {"{\"type\":\"string\",\"pattern\":\"b\"}",
         {"\"abc\"", "\"b\"", "\"\\nb\\u00e9\""},
         {"\"\"", "\"ac\"", "\"\\\\u0062\""}},
        {"{\"type\":\"string\",\"pattern\":\"^.\\n\\\"\\\\u00e9$\"}",
         {"\"a\\n\\\"\\u00E9\"", "\"\xF0\x9F\x92\xA9\\n\\\"\xC3\xA9\"", "\"\\ud83d\\udca9\\u000A\\\"\xC3\xA9\""},
         {"\"a\\n\\\"e\"", "\"aa\\n\\\"\xC3\xA9\"", "\"\\n\\n\\\"\xC3\xA9\""}},
        {"{\"type\":\"string\",\"pattern\":\"^a|b$\"}", {"\"ax\"", "\"xb\"", "\"a\""}, {"\"xa\"", "\"bx\"", "\"\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[\\\\u00e0-\\\\u00ff]|x$\"}",
         {"\"\\u00e9\"", "\"\xC3\xA9q\"", "\"yx\""},
         {"\"e\"", "\"\\u0100\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]*$\",\"minLength\":3,\"maxLength\":4}",
         {"\"abc\"", "\"abcd\""},
         {"\"ab\"", "\"abcde\"", "\"ab1\""}},
        {"{\"enum\":[\"a\\\"b\", \"\xC3\xA9\", \"x/y\", \"tab\\t\"]}",
         {"\"a\\\"b\"", "\"\xC3\xA9\"", "\"\\u00e9\"", "\"x/y\"", "\"x\\/y\"", "\"tab\\t\"", "\"tab\\u0009\""},
         {"\"a\"", "\"e\"", "\"x\"", "\"tab \"", "\"\""}},
        {"{\"type\":\"string\",\"not\":{\"enum\":[\"no\",\"never\"]}}",
         {"\"yes\"", "\"n\"", "\"nope\"", "\"neve\"", "\"nevers\"", "\"\""},
         {"\"no\"", "\"never\"", "3"}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"[0-9]\"}}", {"\"abc\"", "\"\""}, {"\"a1\"", "\"9\""}},
        {"{\"format\":\"date\"}",
         {"\"2024-02-29\"", "\"1999-12-31\"", "5"},
         {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"24-01-01\""}},
        {"{\"type\":\"string\",\"format\":\"date-time\"}",
         {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01t00:00:00.5+01:30\"", "\"1998-12-31T23:59:60Z\""},
         {"\"2024-02-29 23:59:59Z\"", "\"2024-02-29T24:00:00Z\"", "\"2024-02-29T10:00:00\"",
          "\"1998-12-31T22:59:60Z\""}},
        {"{\"type\":\"string\",\"format\":\"email\",\"maxLength\":12}",
         {"\"a@b.example\""},
         {"\"ab\"", "\"ab@cd.example\"", "\"a@@b.com\""}},
        {"{\"enum\":[\"\\u00e9\\u00e9\",\"abc\"],\"maxLength\":2}", {"\"\\u00e9\\u00e9\""}, {"\"abc\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[\\ud83d\\ude01-\\ud83d\\ude4f]$\"}",
         {"\"\\ud83d\\ude01\"", "\"\\uD83D\\uDE4F\"", "\"\\ud83d\\ude20\""},
         {"\"\\ud83d\\ude00\"", "\"\\ud83d\\ude50\"", "\"\\ud83d\\ud83d\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[\\ud83d\\ude01-\\ud83f\\udc10]$\"}",
         {"\"\\ud83d\\ude01\"", "\"\\ud83e\\udc00\"", "\"\\ud83f\\udc10\""},
         {"\"\\ud83d\\ude00\"", "\"\\ud83f\\udc11\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[\\u0430-\\u044f]|^[\\u4e00-\\u9fa5]x|^\\ud83d\\ude01|q$\"}",
         {"\"\\u0431\"", "\"\\u044fz\"", "\"\\u4e01x\"", "\"\\ud83d\\ude01\"", "\"zq\""},
         {"\"\\u0031\"", "\"\\u0450\"", "\"\\u4e01y\"", "\"\\ud83d\\ude02\"", "\"\\u0231\""}},
    };
    check_schema_examples(examples, COUNT(examples));
}

static void arrays(void **state)
{
    (void)state;
    static const schema_example examples[] = {
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
         {"[]", "[1]", "[1,2,3]", "[1, 2]", "[\n  1,\n  2\n]", "[ ]", "[ 1 ]", "[\r\n\t1\r\n]"},
         {"[1,]", "[,1]", "[1 2]", "[\"a\"]", "[1,\"a\"]", "[\n\n1]", "[  1]", "[1"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
         {"[1,2]", "[1,2,3]"},
         {"[]", "[1]", "[1,2,3,4]"}},
        {"{\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"integer\"}],\"items\":{\"type\":\"null\"},\"minItems\":"
         "1}",
         {"[\"a\"]", "[\"a\",1]", "[\"a\",1,null]", "[\"a\",1,null,null]", "3"},
         {"[]", "[1]", "[\"a\",\"b\"]", "[\"a\",1,2]"}},
        {"{\"items\":[{\"type\":\"string\"}],\"additionalItems\":false}", {"[]", "[\"a\"]"}, {"[\"a\",1]", "[1]"}},
        {"{\"type\":\"array\",\"prefixItems\":[true,false],\"maxItems\":5}", {"[]", "[1]"}, {"[1,2]"}},
        {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
        {"{\"allOf\":[{\"items\":{\"minimum\":2}},{\"items\":{\"type\":\"integer\"},\"maxItems\":2},{\"type\":"
         "\"array\"}]}",
         {"[2,3]", "[]"},
         {"[1]", "[2.5]", "[2,3,4]"}},
        {"{\"type\":\"array\",\"not\":{\"maxItems\":1}}", {"[1,2]"}, {"[]", "[1]"}},
        {"{\"const\":[1,{\"a\":[]}]}",
         {"[1,{\"a\":[]}]", "[1.0, {\"a\": [ ]}]"},
         {"[1]", "[1,{\"a\":[1]}]", "[1,{}]", "[{\"a\":[]},1]"}},
        {"{\"not\":{\"const\":[1,2]}}", {"[]", "[1]", "[1,3]", "[0,2]", "[1,2,3]", "7", "{}"}, {"[1,2]", "[1.0,2]"}},
        {"{\"unevaluatedItems\":false,\"prefixItems\":[true]}", {"[]", "[1]"}, {"[1,2]"}},
        {"{\"uniqueItems\":false}", {"[1,1]"}, {NULL}},
    };
    check_schema_examples(examples, COUNT(examples));
}

static void containing_arrays(void **state)
{
    (void)state;
    static const schema_example examples[] = {
        {"{\"contains\":{\"type\":\"null\"}}",
         {"[null]", "[1,null]", "[null, 2, 3]", "[1, null, null]", "\"a\"", "{}"},
         {"[]", "[1]", "[[null]]", "[1, 2]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"minimum\":5}}",
         {"[5]", "[1, 9, 2]"},
         {"[]", "[1, 2]", "[9, \"x\"]"}},
        {"{\"not\":{\"contains\":{\"const\":1}}}", {"[]", "[2]"}, {"[1]", "[2, 1]", "5"}},
        {"{\"not\":{\"items\":{\"type\":\"string\"}}}", {"[1]", "[\"a\", 1]"}, {"[]", "[\"a\"]", "5"}},
        {"{\"type\":\"array\",\"contains\":false,\"minContains\":0}", {"[]", "[1]"}, {"1"}},
        {"{\"type\":[\"array\",\"null\"],\"contains\":false}", {"null"}, {"[]", "[1]"}},
    };
    check_schema_examples(examples, COUNT(examples));
}

static void objects(void **state)
{
    (void)state;
    static const schema_example examples[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"}},\"required\":["
         "\"a\"],"
         "\"additionalProperties\":false}",
         {"{\"a\":1}", "{\"a\":1,\"b\":\"x\"}", "{\"b\":\"x\",\"a\":1}", "{ \"a\" : 1 }",
          "{\n  \"a\": 1,\n  \"b\": \"\"\n}"},
         {"{}", "{\"b\":\"x\"}", "{\"a\":1,\"a\":2}", "{\"a\":1,\"c\":2}", "{\"a\":\"x\"}", "{\"a\":1,}",
          "{\"a\":1 \"b\":\"\"}", "{\"\\u0061\":1}", "{a:1}", "[]"}},
        {"{\"type\":\"object\",\"properties\":{\"abc\":{\"type\":\"integer\"},\"abd\":{\"type\":\"integer\"}}}",
         {"{}", "{\"abc\":1,\"x\":\"y\",\"z\":null}", "{\"ab\":\"s\"}", "{\"abcd\":\"s\"}", "{\"abe\":[]}", "{\"\":1}",
          "{\"\\u00e9\":1}"},
         {"{\"abc\":\"s\"}", "{\"x\":1,\"abd\":\"s\"}", "{\"\\u0061bc\":\"s\"}", "{\"a\\u0062c\":\"s\"}"}},
        {"{\"type\":\"object\",\"properties\":{\"\xC3\xA9\\n\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":"
         "\"integer\"}}",
         {"{\"\xC3\xA9\\n\":null}", "{\"\\u00e9\\n\":null}", "{\"\\u00E9\\u000a\":null}", "{\"\xC3\xA9\":1}"},
         {"{\"\xC3\xA9\\n\":1}", "{\"\\u00e9\\n\":1}", "{\"\xC3\xA9\":null}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^x-\":{\"type\":\"string\"},\"-n$\":{\"maxLength\":2}},"
         "\"additionalProperties\":false}",
         {"{\"x-a\":\"long one\"}", "{\"x-n\":\"ab\"}", "{\"a-n\":7,\"x-y\":\"\"}"},
         {"{\"x-a\":1}", "{\"x-n\":\"abc\"}", "{\"y\":1}", "{\"b-n\":\"abc\"}"}},
        {"{\"type\":\"object\",\"properties\":{\"x-1\":{\"type\":\"string\"}},\"patternProperties\":{\"^x\":{"
         "\"minLength\":2}}}",
         {"{\"x-1\":\"ab\"}", "{\"x-2\":5}"},
         {"{\"x-1\":\"a\"}", "{\"x-1\":5}", "{\"x-2\":\"a\"}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-z]+$\",\"maxLength\":3},\"minProperties\":1}",
         {"{\"abc\":1}", "{\"a\":1,\"b\":2}"},
         {"{}", "{\"abcd\":1}", "{\"A\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"additionalProperties\":false,"
         "\"minProperties\":2,"
         "\"maxProperties\":2}",
         {"{\"a\":1,\"c\":2}", "{\"b\":1,\"a\":2}"},
         {"{}", "{\"a\":1}", "{\"a\":1,\"b\":2,\"c\":3}", "{\"a\":1,\"a\":2}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":true}}",
         {"{}", "{\"b\":1}", "{\"c\":1}"},
         {"{\"a\":1}"}},
        {"{\"type\":\"object\",\"required\":[\"k\"]}", {"{\"k\":1}", "{\"j\":2,\"k\":1}"}, {"{}", "{\"j\":1}"}},
        {"{\"type\":\"object\",\"maxProperties\":0}", {"{}", "{ }"}, {"{\"a\":1}"}},
        {"{\"const\":{\"a\":1,\"b\":null}}",
         {"{\"a\":1,\"b\":null}", "{\"b\":null,\"a\":1.0}"},
         {"{}", "{\"a\":1}", "{\"a\":1,\"b\":null,\"c\":1}"}},
        {"{\"type\":\"object\",\"not\":{\"const\":{\"a\":1}}}",
         {"{}", "{\"a\":2}", "{\"b\":1}", "{\"a\":1,\"b\":1}"},
         {"{\"a\":1}", "1"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"unevaluatedProperties\":false}",
         {"{\"a\":1}"},
         {"{\"b\":1}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"}},\"required\":[\"x1\"],"
         "\"additionalProperties\":false}",
         {"{\"x1\":1}", "{\"x2\":2,\"x1\":1}"},
         {"{}", "{\"x1\":\"s\"}", "{\"y\":1,\"x1\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"\\u0015a\":{}},\"patternProperties\":{\"^\\\\u0015\":{\"type\":"
         "\"integer\"}}}",
         {"{\"\\u0015a\":1}", "{}"},
         {"{\"\\u0015a\":\"s\"}", "{\"\\u0015b\":\"s\"}"}},
    };
    check_schema_examples(examples, COUNT(examples));
}

static void combinations(void **state)
{
    (void)state;
    static const schema_example examples[] = {
        {"true", {"1", "{}", "[[]]", "\"a\"", "{\"a\":{\"b\":[1,null]}}"}, {"", "nul", "1 2"}},
        {"{}", {"null"}, {"nil"}},
        {"{\"type\":[\"string\",\"null\"]}", {"\"a\"", "null"}, {"1", "true"}},
        {"{\"anyOf\":[{\"type\":\"string\",\"maxLength\":1},{\"type\":\"integer\",\"minimum\":5}]}",
         {"\"a\"", "5"},
         {"\"ab\"", "4"}},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2}]}", {"1", "2.5", "\"a\"", "-3"}, {"3", "1.5"}},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"a\"},\"n\":{\"type\":\"integer\"}},"
         "\"required\":[\"kind\"],"
         "\"additionalProperties\":false},{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"b\"},\"n\":{"
         "\"type\":\"string\"}},"
         "\"required\":[\"kind\"],\"additionalProperties\":false}]}",
         {"{\"kind\":\"a\",\"n\":1}", "{\"n\":\"x\",\"kind\":\"b\"}", "{\"kind\":\"b\"}"},
         {"{\"kind\":\"a\",\"n\":\"x\"}", "{\"n\":1,\"kind\":\"b\"}", "{\"n\":1}", "{\"kind\":\"c\"}"}},
        {"{\"type\":\"object\",\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
         {"{\"a\":1}", "{\"c\":1,\"b\":2}"},
         {"{}", "{\"a\":1,\"b\":2}", "{\"b\":2,\"c\":1,\"a\":1}"}},
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
         "{\"properties\":{\"a\":{\"maximum\":5},\"b\":{\"type\":\"boolean\"}}}]}",
         {"{\"a\":5}", "{\"a\":1,\"b\":true}", "{\"a\":1,\"z\":[]}"},
         {"{\"a\":6}", "{\"b\":true}", "{\"a\":1,\"b\":1}", "{\"a\":\"x\"}"}},
        {"{\"properties\":{\"a\":{}},\"allOf\":[{\"additionalProperties\":{\"type\":\"integer\"}}],\"type\":"
         "\"object\"}",
         {"{\"a\":1}", "{\"b\":2}"},
         {"{\"a\":\"x\"}"}},
        {"{\"not\":{\"type\":[\"object\",\"array\",\"string\"]}}", {"1", "null", "true"}, {"{}", "[]", "\"\""}},
        {"{\"not\":{\"type\":\"integer\"}}", {"1.5", "\"a\"", "1e-3"}, {"1", "2.0", "1e20"}},
        {"{\"not\":{\"anyOf\":[{\"type\":\"string\"},{\"minimum\":5,\"maximum\":6}]},\"type\":[\"number\",\"string\"]}",
         {"4", "7", "6.1"},
         {"5", "5.5", "\"a\""}},
        {"{\"type\":\"object\",\"if\":{\"properties\":{\"t\":{\"const\":1}},\"required\":[\"t\"]},\"then\":{"
         "\"required\":[\"x\"]},"
         "\"else\":{\"required\":[\"y\"]}}",
         {"{\"t\":1,\"x\":0}", "{\"t\":2,\"y\":0}", "{\"y\":0}"},
         {"{\"t\":1}", "{\"t\":1,\"y\":0}", "{\"x\":0}", "{}"}},
        {"{\"type\":\"object\",\"dependentRequired\":{\"card\":[\"address\",\"name\"]}}",
         {"{}", "{\"name\":1}", "{\"card\":1,\"address\":2,\"name\":3}", "{\"name\":3,\"card\":1,\"address\":2}"},
         {"{\"card\":1}", "{\"card\":1,\"address\":2}"}},
        {"{\"type\":\"object\",\"dependentSchemas\":{\"a\":{\"properties\":{\"b\":{\"type\":\"integer\"}}}}}",
         {"{\"b\":\"x\"}", "{\"a\":1,\"b\":2}"},
         {"{\"a\":1,\"b\":\"x\"}", "{\"b\":\"x\",\"a\":1}"}},
        {"{\"enum\":[1,\"one\",null,true,[],{\"a\":1}]}",
         {"1", "1.0", "\"one\"", "null", "true", "[]", "{\"a\":1}"},
         {"2", "false", "[1]", "{}", "\"two\""}},
        {"{\"type\":\"string\",\"description\":\"d\",\"title\":\"t\",\"default\":3,\"examples\":[1],\"$comment\":\"c\","
         "\"nullable\":true,"
         "\"x-unknown\":{\"type\":5},\"readOnly\":true,\"deprecated\":true,\"contentEncoding\":\"base64\"}",
         {"\"a\""},
         {"null", "3"}},
        {"{\"not\":{\"allOf\":[{\"type\":\"string\"},{\"minLength\":2}]}}", {"\"a\"", "5", "{}"}, {"\"ab\""}},
        {"{\"not\":{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2}]},\"type\":\"number\"}",
         {"3", "1.5"},
         {"1", "2.5"}},
    };
    check_schema_examples(examples, COUNT(examples));
}

static void references(void **state)
{
    (void)state;
    static const schema_example examples[] = {
        {"{\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"kids\":{\"type\":"
         "\"array\",\"items\":"
         "{\"$ref\":\"#/$defs/tree\"}}},\"required\":[\"v\"],\"additionalProperties\":false}},\"$ref\":\"#/$defs/"
         "tree\"}",
         {"{\"v\":1}", "{\"v\":1,\"kids\":[]}", "{\"kids\":[{\"v\":2,\"kids\":[{\"v\":3}]},{\"v\":4}],\"v\":1}"},
         {"{}", "{\"v\":1,\"kids\":[{}]}", "{\"v\":1,\"kids\":[1]}"}},
        {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", {"[]", "[[],[[]]]"}, {"[1]", "[[1]]"}},
        {"{\"$defs\":{\"n\":{\"$anchor\":\"num\",\"type\":\"number\"}},\"$ref\":\"#num\",\"minimum\":2}",
         {"2"},
         {"1", "\"a\""}},
        {"{\"$schema\":\"http://json-schema.org/draft-07/"
         "schema#\",\"definitions\":{\"n\":{\"type\":\"number\"}},\"$ref\":\"#/definitions/n\","
         "\"minimum\":2}",
         {"2", "1"},
         {"\"a\""}},
        {"{\"$id\":\"http://a.example/b/"
         "c.json\",\"$defs\":{\"x\":{\"$id\":\"d.json\",\"type\":\"null\"}},\"$ref\":\"http://a.example/b/d.json\"}",
         {"null"},
         {"1"}},
        /* The part that never ends is left out, the rest is kept. */
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/"
         "endless\"},\"b\":{\"type\":\"integer\"}},\"additionalProperties\":false,"
         "\"$defs\":{\"endless\":{\"type\":\"object\",\"properties\":{\"again\":{\"$ref\":\"#/$defs/"
         "endless\"}},\"required\":[\"again\"]}}}",
         {"{}", "{\"b\":1}"},
         {"{\"a\":{}}", "{\"a\":1}"}},
    };
    check_schema_examples(examples, COUNT(examples));
}

/* Each draft has its own keywords. */
static void drafts(void **state)
{
    (void)state;
#define DRAFT_04 "{\"$schema\":\"http://json-schema.org/draft-04/schema#\","
    static const schema_example examples[] = {
        {DRAFT_04 "\"type\":\"integer\"}", {"1", "-7"}, {"1.0", "1e16", "1.5"}},
        {DRAFT_04 "\"minimum\":1,\"exclusiveMinimum\":true,\"maximum\":9,\"exclusiveMaximum\":false}",
         {"1.5", "9"},
         {"1", "9.5", "0"}},
        {DRAFT_04 "\"const\":1,\"if\":true,\"then\":false,\"contains\":false,\"propertyNames\":false}",
         {"2", "[]", "{\"a\":1}"},
         {""}},
        {DRAFT_04 "\"id\":\"http://a.b/c\",\"items\":{\"$ref\":\"d#/definitions/e\"},\"definitions\":{\"x\":{"
                  "\"id\":\"d\",\"definitions\":{\"e\":{\"type\":\"null\"}}}}}",
         {"[null]"},
         {"[1]"}},
        {DRAFT_04 "\"$ref\":\"#/definitions/a\",\"maximum\":1,\"definitions\":{\"a\":{\"minimum\":3}}}", {"5"}, {"2"}},
        {"{\"minimum\":1,\"exclusiveMinimum\":true}", {"2"}, {"1"}},
        {"{\"$schema\":\"http://json-schema.org/draft-06/schema#\",\"const\":1,\"if\":true,\"then\":false}",
         {"1"},
         {"2"}},
        {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"dependentRequired\":{\"a\":[\"b\"]}}",
         {"{\"a\":1}"},
         {""}},
        {"{\"maximum\":18446744073709551616,\"minimum\":-20000000000000000000}",
         {"18446744073709551616", "-20000000000000000000", "\"9\""},
         {"18446744073709551617", "-20000000000000000001"}},
    };
    check_schema_examples(examples, COUNT(examples));
}

static void formats(void **state)
{
    (void)state;
    static const schema_example examples[] = {
        {"{\"type\":\"string\",\"format\":\"no such format\"}", {"\"x\"", "\"\""}, {"1"}},
        {"{\"format\":\"byte\"}", {"\"%\"", "1"}, {""}},
        {"{\"format\":\"hostname\"}",
         {"\"a\"", "\"www.example.com\"", "\"a-b.c-d\"", "\"1.2\"", "5"},
         {"\"\"", "\"-a\"", "\"a-\"", "\"a..b\"", "\"a_b\"", "\"xn--X\""}},
        {"{\"format\":\"idn-hostname\"}", {"\"\u4f8b\u5b50\"", "\"a.b\""}, {"\"a b\"", "\"-\""}},
        {"{\"format\":\"regex\"}",
         {"\"^(a|[b-d]+)*$\"", "\"\"", "\"(?:x(?=y)){2,5}?\"", "\"\\\\d{3}\""},
         {"\"(\"", "\"a)\"", "\"[z-a]\"", "\"*\"", "\"a**\"", "\"\\\\\""}},
        {"{\"format\":\"iri\"}", {"\"http://\u00e9.de/\u00fc?\u00e4#x\""}, {"\"\u00e9\"", "\"a b:c\""}},
        {"{\"format\":\"uri-template\"}", {"\"/a/{b}{?c,d*}\"", "\"\""}, {"\"{a\"", "\"a}\"", "\"{,}\""}},
    };
    check_schema_examples(examples, COUNT(examples));
}

/* What cannot be enforced is left out, with a warning; what can be enforced still is. */
static void lenient_schemas(void **state)
{
    (void)state;
    spry_grammar *grammar =
        grammar_of("{\"x-spry-lenient\":true,\"items\":{\"type\":\"integer\",\"multipleOf\":0.123456789},"
                   "\"not\":{\"pattern\":\"(a)\\\\1\"},\"maxItems\":2}");
    assert_true(matches(grammar, "[1,2]"));
    assert_false(matches(grammar, "[1,2,3]"));
    assert_false(matches(grammar, "[\"a\"]"));
    assert_non_null(strstr(spry_grammar_warnings(grammar), "#/items/multipleOf: "));
    assert_non_null(strstr(spry_grammar_warnings(grammar), "#/not/pattern: "));
    spry_grammar_unref(grammar);
    grammar = grammar_of("{\"x-spry-lenient\":true,\"type\":\"null\"}");
    assert_string_equal(spry_grammar_warnings(grammar), "");
    spry_grammar_unref(grammar);
}

static void objects_of_any_kind(void **state)
{
    (void)state;
    spry_grammar *grammar;
    spry_error error;
    assert_int_equal(spry_grammar_create(&grammar, SPRY_GRAMMAR_JSON_OBJECT, SPRY_VIEW(""), &error), SPRY_OK);
    assert_true(matches(grammar, "{}"));
    assert_true(matches(grammar, "{\"a\": {\"b\": [1, 2.5, \"x\", null, true, false, {}]}}"));
    assert_false(matches(grammar, "[]"));
    assert_false(matches(grammar, "{\"a\":}"));
    assert_false(matches(grammar, "{{}}"));
    spry_grammar_unref(grammar);
}

/* Two long schemas that differ in the name of their last member only. */
static void long_schemas_are_told_apart(void **state)
{
    (void)state;
    enum { LONGEST = 300 };
    char schema[4 * LONGEST];
    for (int length = 150; length < LONGEST; length++) {
        char about[LONGEST + 1];
        memset(about, 'd', (size_t)length);
        about[length] = '\0';
        snprintf(
            schema, sizeof schema,
            "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"description\":\"%s\",\"minLength\":9},"
            "\"b\":{\"type\":\"string\",\"description\":\"%s\",\"maxLength\":9}}}",
            about, about);
        spry_grammar *grammar = grammar_of(schema);
        assert_true(matches(grammar, "{\"a\":\"0123456789\",\"b\":\"0\"}"));
        assert_false(matches(grammar, "{\"b\":\"0123456789\"}"));
        spry_grammar_unref(grammar);
    }
}

/* Several schemas may go into one grammar. */
static void schemas_together(void **state)
{
    (void)state;
    spry_ir *ir;
    spry_error error;
    spry_grammar *grammar;
    assert_int_equal(spry_ir_create(&ir, &error), SPRY_OK);
    spry_ir_node nodes[] = {
        spry_ir_json_schema(ir, SPRY_VIEW("{\"type\":\"array\",\"items\":{\"type\":\"null\"}}"), SPRY_JSON_ANY),
        spry_ir_literal(ir, SPRY_VIEW(";")),
        spry_ir_json_schema(ir, SPRY_VIEW("{\"type\":\"array\",\"items\":{\"type\":\"boolean\"}}"), SPRY_JSON_ANY)};
    assert_int_equal(spry_grammar_from_ir(&grammar, ir, spry_ir_sequence(ir, nodes, 3), &error), SPRY_OK);
    spry_ir_destroy(ir);
    assert_true(matches(grammar, "[null];[true,false]"));
    assert_false(matches(grammar, "[null];[null]"));
    assert_false(matches(grammar, "[true];[true]"));
    spry_grammar_unref(grammar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),
        cmocka_unit_test(strings),
        cmocka_unit_test(arrays),
        cmocka_unit_test(containing_arrays),
        cmocka_unit_test(objects),
        cmocka_unit_test(combinations),
        cmocka_unit_test(references),
        cmocka_unit_test(drafts),
        cmocka_unit_test(formats),
        cmocka_unit_test(lenient_schemas),
        cmocka_unit_test(objects_of_any_kind),
        cmocka_unit_test(schemas_together),
        cmocka_unit_test(long_schemas_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
