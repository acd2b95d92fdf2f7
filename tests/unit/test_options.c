/* Options: values from a command line and by JSON key, refusals and their sentences, help and Markdown; and the numbers
 * they are made of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/options.h"

typedef struct settings {
    bool color, verbose;
    uint32_t count;
    uint64_t seed;
    size_t memory;
    float heat, offset;
    const char *path, *type;
    spry_option_list stop;
    const char *stop_items[3];
} settings;

static const spry_option main_options[] = {
    {.name = "color",
     .letter = 'c',
     .kind = SPRY_OPTION_FLAG,
     .offset = offsetof(settings, color),
     .help = "Use colors",
     .group = "Output"},
    {.name = "verbose",
     .kind = SPRY_OPTION_FLAG,
     .offset = offsetof(settings, verbose),
     .help = "Say more",
     .group = "Output"},
    {.name = "count",
     .letter = 'n',
     .kind = SPRY_OPTION_U32,
     .offset = offsetof(settings, count),
     .min = 1,
     .max = 100,
     .help = "How many",
     .group = "Work"},
    {.name = "seed",
     .kind = SPRY_OPTION_U64,
     .offset = offsetof(settings, seed),
     .help = "Where to start",
     .group = "Work"},
    {.name = "max-memory",
     .alias = "memory",
     .kind = SPRY_OPTION_SIZE,
     .offset = offsetof(settings, memory),
     .min = 1024,
     .max = 1099511627776.0,
     .help = "Bytes to use",
     .group = "Work"},
};
static const spry_option more_options[] = {
    {.name = "temperature",
     .alias = "temp",
     .kind = SPRY_OPTION_FLOAT,
     .offset = offsetof(settings, heat),
     .max = 0.1,
     .help = "How hot",
     .group = "Work"},
    {.name = "offset",
     .kind = SPRY_OPTION_FLOAT,
     .offset = offsetof(settings, offset),
     .help = "Any number, which this sentence explains in so many words that it cannot stay on one line",
     .group = "Work"},
    {.name = "path",
     .letter = 'p',
     .kind = SPRY_OPTION_STRING,
     .offset = offsetof(settings, path),
     .metavar = "FILE",
     .help = "Where",
     .group = "Work"},
    {.name = "kv-type",
     .kind = SPRY_OPTION_CHOICE,
     .offset = offsetof(settings, type),
     .choices = (const char *const[]){"f16", "q8_0", "f32", NULL},
     .help = "Which | type",
     .group = "Work"},
    {.name = "stop",
     .kind = SPRY_OPTION_LIST,
     .offset = offsetof(settings, stop),
     .help = "Stop there",
     .group = "Work"},
};

static void init(settings *s, spry_option_table tables[2])
{
    *s = (settings){.color = true, .count = 7, .memory = 16 << 20, .heat = 0.05f, .type = "f16"};
    s->stop = (spry_option_list){s->stop_items, SPRY_COUNT(s->stop_items), 0};
    tables[0] = (spry_option_table){main_options, SPRY_COUNT(main_options), s};
    tables[1] = (spry_option_table){more_options, SPRY_COUNT(more_options), s};
}

enum { ARGUMENTS_MAX = 32 };

/* Parses a NULL-terminated list of arguments. */
static spry_status parse(settings *s, spry_option_list *positionals, spry_error *error, ...)
{
    spry_option_table tables[2];
    char *argv[ARGUMENTS_MAX] = {(char *)"program"};
    int argc = 1;
    va_list arguments;
    init(s, tables);
    va_start(arguments, error);
    for (char *next; (next = va_arg(arguments, char *)) && argc < ARGUMENTS_MAX;)
        argv[argc++] = next;
    va_end(arguments);
    *error = (spry_error){0};
    return spry_options_parse(tables, 2, positionals, argc, argv, error);
}

#define PARSE(s, error, ...) parse((s), NULL, (error), __VA_ARGS__, (char *)NULL)

/* ---- command line
 * ---------------------------------------------------------------------------------------------------- */

static void test_every_kind(void **state)
{
    (void)state;
    settings s;
    spry_error error;
    assert_int_equal(PARSE(&s, &error, "--verbose", "--no-color", "--count", "12", "--seed=18446744073709551615",
                           "--max-memory", "4K", "--temp", "0.1", "--offset", "-2.5e1", "-p", "-", "--kv-type=q8_0",
                           "--stop", "a", "--stop=", "--stop", "-c"),
                     SPRY_OK);
    assert_true(s.verbose && !s.color);
    assert_int_equal(s.count, 12);
    assert_true(s.seed == UINT64_MAX);
    assert_int_equal(s.memory, 4096);
    assert_true(s.heat == 0.1f && s.offset == -25.0f);
    assert_string_equal(s.path, "-");
    assert_ptr_equal(s.type, more_options[3].choices[1]); /* the table's string, not the caller's */
    assert_int_equal(s.stop.count, 3);
    assert_string_equal(s.stop.items[0], "a");
    assert_string_equal(s.stop.items[1], "");
    assert_string_equal(s.stop.items[2], "-c");

    assert_int_equal(PARSE(&s, &error, "-n", "3", "--count=4", "--color=off", "--verbose=yes", "-c", "--no-verbose",
                           "--path=--odd", "--memory=2g"),
                     SPRY_OK);
    assert_int_equal(s.count, 4);
    assert_true(s.color && !s.verbose);
    assert_string_equal(s.path, "--odd");
    assert_true(s.memory == (size_t)2 << 30);
}

static void test_positionals(void **state)
{
    (void)state;
    settings s;
    spry_error error;
    const char *items[3];
    spry_option_list list = {items, SPRY_COUNT(items), 0};
    assert_int_equal(parse(&s, &list, &error, "one", "-n", "2", "-", "--", "--count", NULL), SPRY_OK);
    assert_int_equal(s.count, 2);
    assert_int_equal(list.count, 3);
    assert_string_equal(items[0], "one");
    assert_string_equal(items[1], "-");
    assert_string_equal(items[2], "--count");
    assert_int_equal(parse(&s, &list, &error, "four", NULL), SPRY_ERR_INPUT);
    assert_string_equal(error.message, "unexpected argument 'four'");
    assert_int_equal(PARSE(&s, &error, "one"), SPRY_ERR_INPUT);
}

#define assert_refused(sentence, ...)                                                                                  \
    do {                                                                                                               \
        settings refused;                                                                                              \
        spry_error why;                                                                                                \
        assert_int_equal(PARSE(&refused, &why, __VA_ARGS__), SPRY_ERR_INPUT);                                          \
        assert_string_equal(why.message, sentence);                                                                    \
    } while (0)

static void test_refusals(void **state)
{
    (void)state;
    assert_refused("unknown option --tmep; did you mean --temp?", "--tmep", "1");
    assert_refused("unknown option --tempreature; did you mean --temperature?", "--tempreature=1");
    assert_refused("unknown option --kv_type; did you mean --kv-type?", "--kv_type", "f16");
    assert_refused("unknown option --sed; did you mean --seed?", "--sed", "1");
    assert_refused("unknown option --frobnicate", "--frobnicate");
    assert_refused("unknown option --x", "--x");
    assert_refused("unknown option --no-count; did you mean --count?", "--no-count");
    assert_refused("unknown option -x", "-x");
    assert_refused("unknown option -c5", "-c5"); /* a flag */
    assert_refused("--count is '5x', but must be a whole number from 1 to 100", "-n5x");
    assert_refused("--count is '', but must be a whole number from 1 to 100", "-n=");
    assert_refused("unknown option -5", "-5");
    assert_refused("--no-color takes no value", "--no-color=yes");
    assert_refused("--color is '1', but must be true or false", "--color=1");
    assert_refused("--count is '101', but must be a whole number from 1 to 100", "--count", "101");
    assert_refused("--count is '-1', but must be a whole number from 1 to 100", "-n", "-1");
    assert_refused("--count is '5x', but must be a whole number from 1 to 100", "-n", "5x");
    assert_refused("--count is '', but must be a whole number from 1 to 100", "--count=");
    assert_refused("--count needs a value: a whole number from 1 to 100", "--count");
    assert_refused("--count needs a value: a whole number from 1 to 100", "--count", "--color");
    assert_refused("--path needs a value: text", "-p", "--");
    assert_refused("--seed is '18446744073709551616', but must be a whole number up to 18446744073709551615",
                   "--seed=18446744073709551616");
    assert_refused("--max-memory is '1000', but must be a size in bytes, or with K, M, G or T, from 1K to 1T",
                   "--memory", "1000");
    assert_refused("--temperature is '0.11', but must be a number from 0 to 0.1", "--temp=0.11");
    assert_refused("--temperature is 'nan', but must be a number from 0 to 0.1", "--temp=nan");
    assert_refused("--offset is 'inf', but must be a number", "--offset=inf");
    assert_refused("--offset is '1e39', but must be a number", "--offset=1e39");
    assert_refused("--offset is '1,5', but must be a number", "--offset", "1,5");
    assert_refused("--kv-type is 'f15', but must be one of f16, q8_0, f32", "--kv-type", "f15");
    assert_refused("--stop may be given at most 3 times", "--stop=1", "--stop=2", "--stop=3", "--stop=4");
}

static void test_a_hostile_name_does_not_flood(void **state)
{
    (void)state;
    static char name[5000] = "--";
    settings s;
    spry_error error;
    memset(name + 2, 'x', sizeof name - 3);
    assert_int_equal(PARSE(&s, &error, name), SPRY_ERR_INPUT);
    assert_true(strlen(error.message) < 300);
    memcpy(name, "--seed=", 7);
    assert_int_equal(PARSE(&s, &error, name), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "but must be a whole number"));
}

/* ---- by key
 * ---------------------------------------------------------------------------------------------------------- */

static void test_keys(void **state)
{
    (void)state;
    settings s;
    spry_option_table tables[2];
    spry_error error = {0};
    init(&s, tables);
    assert_int_equal(spry_options_set(&tables[0], "max_memory", "2M", &error), SPRY_OK);
    assert_int_equal(s.memory, 2 << 20);
    assert_int_equal(spry_options_set(&tables[1], "temp", "0.02", &error), SPRY_OK);
    assert_true(s.heat == 0.02f);
    assert_int_equal(spry_options_set(&tables[0], "max-memory", "2M", &error), SPRY_ERR_INPUT);
    assert_string_equal(error.message, "unknown setting \"max-memory\"; did you mean \"max_memory\"?");
    assert_int_equal(spry_options_set(&tables[0], "count", "0", &error), SPRY_ERR_INPUT);
    assert_string_equal(error.message, "count is '0', but must be a whole number from 1 to 100");
    assert_null(spry_options_find(&tables[0], "temp"));
    assert_ptr_equal(spry_options_find(&tables[1], "kv_type"), &more_options[3]);

    assert_int_equal(spry_options_check(&tables[0], &error), SPRY_OK);
    s.memory = 1;
    assert_int_equal(spry_options_check(&tables[0], &error), SPRY_ERR_INPUT);
    assert_string_equal(error.message,
                        "max_memory is '1', but must be a size in bytes, or with K, M, G or T, from 1K to 1T");
    s.heat = 0.1f; /* the float above 0.1 that 0.1 becomes */
    assert_int_equal(spry_options_check(&tables[1], &error), SPRY_OK);
    s.heat = NAN;
    assert_int_equal(spry_options_check(&tables[1], &error), SPRY_ERR_INPUT);
}

static spry_status set_json(const spry_option_table *table, const char *key, const char *json, spry_error *error)
{
    json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    spry_status status = spry_options_set_json(table, key, value, error);
    json_decref(value);
    return status;
}

static void test_json(void **state)
{
    (void)state;
    settings s;
    spry_option_table tables[2];
    spry_error error = {0};
    init(&s, tables);
    assert_int_equal(set_json(&tables[0], "count", "40", &error), SPRY_OK);
    assert_int_equal(s.count, 40);
    assert_int_equal(set_json(&tables[0], "count", "41.0", &error), SPRY_OK);
    assert_int_equal(s.count, 41);
    assert_int_equal(set_json(&tables[0], "count", "null", &error), SPRY_OK);
    assert_int_equal(s.count, 41);
    assert_int_equal(set_json(&tables[0], "color", "false", &error), SPRY_OK);
    assert_false(s.color);
    assert_int_equal(set_json(&tables[0], "seed", "\"18446744073709551615\"", &error), SPRY_OK);
    assert_true(s.seed == UINT64_MAX);
    assert_int_equal(set_json(&tables[0], "memory", "\"4K\"", &error), SPRY_OK);
    assert_int_equal(s.memory, 4096);
    assert_int_equal(set_json(&tables[1], "offset", "-0.3", &error), SPRY_OK);
    assert_true(s.offset == -0.3f);
    assert_int_equal(set_json(&tables[1], "kv_type", "\"f32\"", &error), SPRY_OK);
    assert_string_equal(s.type, "f32");

    json_t *list = json_pack("[s, s]", "a", "b");
    assert_int_equal(spry_options_set_json(&tables[1], "stop", list, &error), SPRY_OK);
    assert_int_equal(spry_options_set_json(&tables[1], "stop", list, &error), SPRY_OK); /* replaced, not added to */
    assert_int_equal(s.stop.count, 2);
    assert_string_equal(s.stop.items[1], "b");
    json_decref(list);

    static const struct {
        size_t table;
        const char *key, *json, *sentence;
    } refused[] = {
        {0, "count", "40.5", "count is '40.5', but must be a whole number from 1 to 100"},
        {0, "count", "\"40\"", "count is a string, but must be a whole number from 1 to 100"},
        {0, "count", "-3", "count is '-3', but must be a whole number from 1 to 100"},
        {0, "color", "1", "color is a number, but must be true or false"},
        {0, "cuont", "1", "unknown setting \"cuont\"; did you mean \"count\"?"},
        {1, "temp", "true", "temp is true or false, but must be a number from 0 to 0.1"},
        {1, "offset", "1e300", "offset is '1e+300', but must be a number"},
        {1, "path", "[]", "path is an array, but must be text"},
        {1, "path", "{}", "path is an object, but must be text"},
        {1, "path", "\"a\\u0000b\"", "path has a zero byte in its text"},
        {1, "stop", "[1]", "stop is a number, but must be text, any number of times"},
    };
    for (size_t i = 0; i < SPRY_COUNT(refused); i++) {
        json_t *value = json_loads(refused[i].json, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(value);
        assert_int_equal(spry_options_set_json(&tables[refused[i].table], refused[i].key, value, &error),
                         SPRY_ERR_INPUT);
        assert_string_equal(error.message, refused[i].sentence);
        json_decref(value);
    }
}

/* ---- text
 * ------------------------------------------------------------------------------------------------------------ */

static void test_help(void **state)
{
    (void)state;
    static const char expected[] = //
        "Output:\n"
        "  -c, --[no-]color             Use colors (default on)\n"
        "      --verbose                Say more\n"
        "\n"
        "Work:\n"
        "  -n, --count N                How many (a whole number from 1 to 100; default\n"
        "                               7)\n"
        "      --seed N                 Where to start (default 0)\n"
        "      --max-memory, --memory SIZE\n"
        "                               Bytes to use (a size in bytes, or with K, M, G or\n"
        "                               T, from 1K to 1T; default 16M)\n"
        "      --temperature, --temp X  How hot (a number from 0 to 0.1; default 0.05)\n"
        "      --offset X               Any number, which this sentence explains in so\n"
        "                               many words that it cannot stay on one line\n"
        "                               (default 0)\n"
        "  -p, --path FILE              Where\n"
        "      --kv-type NAME           Which | type (one of f16, q8_0, f32; default f16)\n"
        "      --stop TEXT              Stop there (text, any number of times)\n";
    settings s;
    spry_option_table tables[2];
    spry_buffer out;
    init(&s, tables);
    spry_buffer_init(&out, 1 << 16);
    spry_options_help(&out, tables, 2, &(spry_help_style){80, false, "", "", ""});
    assert_false(out.failed);
    assert_string_equal(out.data, expected);
    spry_buffer_clear(&out);
    spry_options_help(&out, tables, 2,
                      &(spry_help_style){1, false, "", "", ""}); /* a silly width ends, one word a line */
    assert_false(out.failed);
    spry_buffer_deinit(&out);
    spry_buffer_init(&out, 10); /* a full buffer is no more than a failed one */
    spry_options_help(&out, tables, 2, &(spry_help_style){80, false, "", "", ""});
    spry_options_markdown(&out, tables, 2);
    assert_true(out.failed);
    spry_buffer_deinit(&out);
}

static void test_markdown(void **state)
{
    (void)state;
    settings s;
    spry_option_table tables[2];
    spry_buffer out;
    init(&s, tables);
    spry_buffer_init(&out, 1 << 16);
    spry_options_markdown(&out, tables, 2);
    assert_false(out.failed);
    assert_memory_equal(out.data, "### Output\n\n| flag | variable | JSON key | values | default | meaning |\n|---|",
                        76);
    assert_non_null(strstr(
        out.data, "| `--count`, `-n` | `SPRY_COUNT` | `count` | a whole number from 1 to 100 | 7 | How many |\n"));
    assert_non_null(strstr(out.data, "\n\n### Work\n\n| flag |"));
    assert_non_null(strstr(out.data,
                           "| `--temperature`, `--temp` | `SPRY_TEMPERATURE` | `temperature`, `temp` | a number from "
                           "0 to 0.1 | 0.05 | How hot |\n"));
    assert_non_null(strstr(out.data, "| one of f16, q8_0, f32 | f16 | Which \\| type |\n"));
    spry_buffer_deinit(&out);
}

/* ---- numbers
 * --------------------------------------------------------------------------------------------------------- */

static void check_doubles(void)
{
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0},   {"-0.5", -0.5}, {"+3", 3},         {".25", 0.25},
                {"5.", 5},  {"1e3", 1000},  {"1.5E-2", 0.015}, {"1e+2", 100},
                {"007", 7}, {"0.1", 0.1},   {"1e-400", 0},     {"123456789.125", 123456789.125}};
    static const char *const bad[] = {"",  " 1", "1 ",  "1x",  "0x10", "nan",   "inf",   "Infinity", "1e",   "1e+",
                                      ".", "-",  "+-1", "--1", "1,5",  "1.5.2", "1e400", "e5",       "1_000"};
    double value;
    for (size_t i = 0; i < SPRY_COUNT(good); i++) {
        assert_true(spry_number_double(&value, spry_view_of(good[i].text)));
        assert_true(value == good[i].value);
    }
    for (size_t i = 0; i < SPRY_COUNT(bad); i++)
        if (spry_number_double(&value, spry_view_of(bad[i])))
            fail_msg("'%s' was read as %g", bad[i], value);
    char text[SPRY_NUMBER_TEXT];
    spry_number_print(text, (double)0.95f);
    assert_string_equal(text, "0.95");
}

static void test_numbers(void **state)
{
    (void)state;
    uint64_t whole;
    assert_true(spry_number_u64(&whole, SPRY_VIEW("18446744073709551615")) && whole == UINT64_MAX);
    assert_false(spry_number_u64(&whole, SPRY_VIEW("18446744073709551616")));
    assert_false(spry_number_u64(&whole, SPRY_VIEW("")) || spry_number_u64(&whole, SPRY_VIEW("-1")) ||
                 spry_number_u64(&whole, SPRY_VIEW("+1")) || spry_number_u64(&whole, SPRY_VIEW("1.0")));
    assert_true(spry_number_bytes(&whole, SPRY_VIEW("3t")) && whole == (uint64_t)3 << 40);
    assert_true(spry_number_bytes(&whole, SPRY_VIEW("0")) && whole == 0);
    assert_true(spry_number_bytes(&whole, SPRY_VIEW("16777215T")) && whole == (uint64_t)16777215 << 40);
    assert_false(spry_number_bytes(&whole, SPRY_VIEW("16777216T")));
    assert_false(spry_number_bytes(&whole, SPRY_VIEW("K")) || spry_number_bytes(&whole, SPRY_VIEW("1KB")) ||
                 spry_number_bytes(&whole, SPRY_VIEW("1.5G")) || spry_number_bytes(&whole, SPRY_VIEW("")));
    check_doubles();

    static const struct {
        double value;
        const char *text;
    } printed[] = {{0, "0"},       {-0.0, "0"},     {1.5, "1.5"},      {-100, "-100"}, {4294967295.0, "4294967295"},
                   {0.01, "0.01"}, {1e20, "1e+20"}, {1e300, "1e+300"}, {NAN, "nan"},   {INFINITY, "inf"}};
    char text[SPRY_NUMBER_TEXT];
    for (size_t i = 0; i < SPRY_COUNT(printed); i++) {
        spry_number_print(text, printed[i].value);
        assert_string_equal(text, printed[i].text);
    }
    spry_number_print_bytes(text, 1536);
    assert_string_equal(text, "1536");
    spry_number_print_bytes(text, 3 << 10);
    assert_string_equal(text, "3K");
    spry_number_print_bytes(text, (uint64_t)1 << 50);
    assert_string_equal(text, "1024T");
    spry_number_print_bytes(text, 0);
    assert_string_equal(text, "0");
}

/* The decimal sign is a point even where people write a comma. */
static void test_numbers_in_other_locales(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ps_AF.UTF-8"};
    size_t tried = 0;
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        if (!setlocale(LC_NUMERIC, names[i]))
            continue;
        tried++;
        check_doubles();
        setlocale(LC_NUMERIC, "C");
    }
    if (!tried)
        print_message("SKIPPED test_numbers_in_other_locales: no locale with a decimal comma is installed\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind), cmocka_unit_test(test_positionals),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_a_hostile_name_does_not_flood),
        cmocka_unit_test(test_keys),       cmocka_unit_test(test_json),
        cmocka_unit_test(test_help),       cmocka_unit_test(test_markdown),
        cmocka_unit_test(test_numbers),    cmocka_unit_test(test_numbers_in_other_locales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
