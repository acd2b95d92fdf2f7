/* The public JSON Schema test suite, where it is beside the checkout: of every schema that is taken, each valid
 * instance must match and each invalid one must not, as serialisers write them. Schemas that are refused are counted by
 * file; with -v as first argument the reasons are printed. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "support/schema_testing.h"

#define SUITE PUBLIC_DATA "/JSON-Schema-Test-Suite/tests/"

static bool verbose;

/* Files that test what is decided otherwise here: formats are enforced, contents are not looked into. */
static const char *const other_rules[] = {"draft2020-12/format.json", "draft2019-09/format.json",
                                          "draft7/format.json",       "draft6/format.json",
                                          "draft4/format.json",       "draft7/optional/content.json"};

typedef struct counts {
    unsigned accepted, unsatisfiable, refused, instances, false_accepts, false_rejects;
} counts;

/* Reals with the fewest digits that name the same number. */
static char *dump(const json_t *value, size_t flags)
{
    for (size_t precision = 15;; precision++) {
        char *text = json_dumps(value, flags | JSON_ENCODE_ANY | JSON_REAL_PRECISION(precision));
        json_t *back = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        bool same = back && json_equal(value, back);
        json_decref(back);
        if (same || precision == 17)
            return text;
        free(text);
    }
}

static void check_instance(counts *out, spry_grammar *grammar, const json_t *group, const json_t *test)
{
    static const size_t manners[] = {JSON_COMPACT, 0, JSON_INDENT(2), JSON_INDENT(4) | JSON_ENSURE_ASCII};
    const json_t *data = json_object_get(test, "data");
    bool valid = json_is_true(json_object_get(test, "valid"));
    for (size_t i = 0; i < sizeof manners / sizeof *manners; i++) {
        char *text = dump(data, manners[i]);
        out->instances++;
        if (matches(grammar, text) != valid && (verbose || !valid)) {
            char *schema = json_dumps(json_object_get(group, "schema"), JSON_COMPACT | JSON_ENCODE_ANY);
            print_message("WRONG: %.300s should%s match %.600s (%s)\n", text, valid ? "" : " not", schema,
                          json_string_value(json_object_get(group, "description")));
            free(schema);
        }
        *(valid ? &out->false_rejects : &out->false_accepts) += matches(grammar, text) != valid;
        free(text);
    }
}

static void check_group(counts *out, const json_t *group, const char *dialect)
{
    json_t *schema = json_object_get(group, "schema");
    if (json_is_object(schema) && !json_object_get(schema, "$schema"))
        json_object_set_new(schema, "$schema", json_string(dialect));
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    spry_grammar *grammar;
    spry_error error;
    if (spry_grammar_create(&grammar, SPRY_GRAMMAR_JSON_SCHEMA, spry_view_of(text), &error)) {
        bool unsatisfiable = strstr(error.message, "no JSON value at all");
        *(unsatisfiable ? &out->unsatisfiable : &out->refused) += 1;
        if (verbose && !unsatisfiable)
            print_message("    %s\n      %s\n", error.message, text);
        assert_true(error.status == SPRY_ERR_UNSUPPORTED || error.status == SPRY_ERR_INPUT);
        const json_t *tests = json_object_get(group, "tests");
        for (size_t i = 0; unsatisfiable && i < json_array_size(tests); i++)
            assert_true(json_is_false(json_object_get(json_array_get(tests, i), "valid")));
        free(text);
        return;
    }
    out->accepted++;
    const json_t *tests = json_object_get(group, "tests");
    for (size_t i = 0; i < json_array_size(tests); i++)
        check_instance(out, grammar, group, json_array_get(tests, i));
    spry_grammar_unref(grammar);
    free(text);
}

static void check_file(counts *total, const char *folder, const char *name, const char *dialect)
{
    char path[600];
    snprintf(path, sizeof path, "%s%s/%s", SUITE, folder, name);
    for (size_t i = 0; i < sizeof other_rules / sizeof *other_rules; i++)
        if (strcmp(path + strlen(SUITE), other_rules[i]) == 0)
            return;
    json_error_t why;
    json_t *groups = json_load_file(path, JSON_ALLOW_NUL, &why);
    if (!groups) { /* numbers that need more than 64 bits */
        print_message("  %-32s not read: %s\n", name, why.text);
        assert_int_equal(json_error_code(&why), json_error_numeric_overflow);
        return;
    }
    counts here = {0};
    for (size_t i = 0; i < json_array_size(groups); i++)
        check_group(&here, json_array_get(groups, i), dialect);
    print_message("  %-32s schemas: %3u taken, %2u unsatisfiable, %3u refused; %4u instances, %u false "
                  "accepts, %u false rejects\n",
                  name, here.accepted, here.unsatisfiable, here.refused, here.instances, here.false_accepts,
                  here.false_rejects);
    total->accepted += here.accepted;
    total->unsatisfiable += here.unsatisfiable;
    total->refused += here.refused;
    total->instances += here.instances;
    total->false_accepts += here.false_accepts;
    total->false_rejects += here.false_rejects;
    json_decref(groups);
}

static int is_json(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && strcmp(dot, ".json") == 0;
}

static void check_folder(counts *total, const char *folder, const char *dialect)
{
    char path[600];
    struct dirent **entries;
    snprintf(path, sizeof path, "%s%s", SUITE, folder);
    int count = scandir(path, &entries, is_json, alphasort);
    assert_true(count > 0);
    print_message("%s\n", folder);
    for (int i = 0; i < count; i++) {
        check_file(total, folder, entries[i]->d_name, dialect);
        free(entries[i]);
    }
    free(entries);
}

/* `left_out`: the valid instances that are not accepted, four spellings each, as docs/GRAMMARS.md says: leap seconds
 * away from UTC, host names in Punycode, names of groups in regular expressions. */
static void check_draft(const char *draft, const char *dialect, unsigned at_least, unsigned left_out)
{
    static const char *const folders[] = {"", "/optional", "/optional/format"};
    counts total = {0};
    DIR *there = opendir(SUITE);
    if (!there) {
        print_message("SKIPPED test_json_schema_suite: ../shared/public is not there\n");
        skip();
    }
    closedir(there);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char folder[100];
        snprintf(folder, sizeof folder, "%s%s", draft, folders[i]);
        check_folder(&total, folder, dialect);
    }
    print_message("%s: %u schemas taken, %u unsatisfiable, %u refused; %u instances, %u false accepts, %u false "
                  "rejects\n",
                  draft, total.accepted, total.unsatisfiable, total.refused, total.instances, total.false_accepts,
                  total.false_rejects);
    assert_int_equal(total.false_accepts, 0);
    assert_true(total.false_rejects <= left_out);
    assert_true(total.accepted >= at_least);
}

static void draft_2020_12(void **state)
{
    (void)state;
    check_draft("draft2020-12", "https://json-schema.org/draft/2020-12/schema", 385, 196);
}

static void draft_2019_09(void **state)
{
    (void)state;
    check_draft("draft2019-09", "https://json-schema.org/draft/2019-09/schema", 380, 196);
}

static void draft_07(void **state)
{
    (void)state;
    check_draft("draft7", "http://json-schema.org/draft-07/schema#", 265, 196);
}

static void draft_06(void **state)
{
    (void)state;
    check_draft("draft6", "http://json-schema.org/draft-06/schema#", 232, 16);
}

static void draft_04(void **state)
{
    (void)state;
    check_draft("draft4", "http://json-schema.org/draft-04/schema#", 170, 12);
}

int main(int argc, char **argv)
{
    verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(draft_2020_12), cmocka_unit_test(draft_2019_09),
                                       cmocka_unit_test(draft_07), cmocka_unit_test(draft_06),
                                       cmocka_unit_test(draft_04)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
