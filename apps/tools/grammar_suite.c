/* Judges the instances of public collections of schemas, and measures compiling and masks. A file has the form of the
 * JSON Schema test suite (a list of groups) or is one group: {"schema": ..., "tests": [{"data": ..., "valid": ...}]}.
 */
#include "tools/grammar_suite.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "base/buffer.h"
#include "cli/terminal.h"
#include "platform/clock.h"

enum { REASONS_MAX = 512, REASONS_SHOWN = 25, REASON_SIZE = 120, PATH_SIZE = 4096, SLOW_MS = 100 };

typedef struct times {
    double *items;
    size_t count, room;
} times;

typedef struct reason {
    char text[REASON_SIZE];
    size_t count;
} reason;

typedef struct suite {
    const spry_suite_settings *settings;
    spry_matching *matching;
    size_t schemas, compiled, unsatisfiable, right, instances, false_accepts, false_rejects, unread;
    reason reasons[REASONS_MAX];
    size_t n_reasons;
    times first, masks; /* first: compiling and the first mask, in ms; masks in us */
} suite;

static void add_time(times *list, double value)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 4096;
        double *items = realloc(list->items, room * sizeof *items);
        if (!items)
            return;
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = value;
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

/* The last step of the schema's path and what is wrong, without names and numbers of the particular schema. */
static void shorten(char out[REASON_SIZE], const char *message)
{
    const char *colon = strstr(message, ": "), *step = colon;
    if (colon && strncmp(message, "JSON schema at", 14) == 0) {
        while (step > message && step[-1] != '/')
            step--;
    } else {
        step = message;
    }
    size_t size = 0;
    bool quoted = false;
    for (; *step && size + 1 < REASON_SIZE; step++) {
        quoted ^= *step == '"';
        if (!quoted || *step == '"')
            out[size++] = *step;
    }
    out[size] = 0;
}

static void count_reason(suite *s, const char *message)
{
    char text[REASON_SIZE];
    size_t i = 0;
    shorten(text, message);
    while (i < s->n_reasons && strcmp(s->reasons[i].text, text) != 0)
        i++;
    if (i == REASONS_MAX)
        return;
    if (i == s->n_reasons)
        memcpy(s->reasons[s->n_reasons++].text, text, sizeof text);
    s->reasons[i].count++;
}

static int by_count(const void *a, const void *b)
{
    const reason *x = a, *y = b;
    return (x->count < y->count) - (x->count > y->count);
}

/* ---- instances --------------------------------------------------------------------------------------------------- */

/* As serialisers write it: reals with the fewest digits that name the same number. */
static char *dump(const json_t *value)
{
    for (size_t precision = 15;; precision++) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(precision));
        json_t *back = text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
        bool same = !text || (back && json_equal(value, back));
        json_decref(back);
        if (same || precision == 17)
            return text;
        free(text);
    }
}

/* Token by token, each mask measured; a token that the mask does not have ends it. */
static spry_status walk(suite *s, bool *whole, const char *text, spry_error *error)
{
    int32_t *ids = NULL;
    size_t count = 0;
    spry_status status =
        spry_tokenizer_ids(s->settings->tokenizer, &ids, &count, text, strlen(text), false, false, error);
    *whole = true;
    for (size_t i = 0; i < count && !status && *whole; i++) {
        const uint32_t *mask;
        uint64_t begin = spry_clock_cpu_ns();
        status = spry_matching_mask(s->matching, &mask, error);
        add_time(&s->masks, (double)(spry_clock_cpu_ns() - begin) / 1e3);
        *whole = !status && mask[ids[i] / 32] >> ids[i] % 32 & 1;
        if (*whole)
            status = spry_matching_token(s->matching, ids[i], error);
    }
    spry_free(ids);
    return status;
}

static spry_status accepts(suite *s, bool *accepted, const char *text, spry_error *error)
{
    size_t taken = 0;
    bool whole;
    spry_matching_reset(s->matching);
    spry_status status;
    if (s->settings->tokenizer) {
        status = walk(s, &whole, text, error);
    } else {
        status = spry_matching_take(s->matching, &taken, text, strlen(text), error);
        whole = taken == strlen(text);
    }
    *accepted = !status && whole && spry_matching_may_end(s->matching);
    return status;
}

static bool judge(suite *s, const json_t *tests, const char *name)
{
    bool right = true;
    for (size_t i = 0; i < json_array_size(tests); i++) {
        const json_t *test = json_array_get(tests, i);
        bool valid = json_is_true(json_object_get(test, "valid")), accepted = false;
        char *text = dump(json_object_get(test, "data"));
        spry_error error = {0};
        spry_status status = text ? accepts(s, &accepted, text, &error) : SPRY_ERR_MEMORY;
        s->instances++;
        s->false_accepts += accepted && !valid;
        s->false_rejects += !accepted && valid;
        right = right && accepted == valid;
        if (s->settings->list && accepted != valid)
            spry_out_format("%s: test %zu: %s%s %.200s\n", name, i,
                            valid ? "valid but not accepted" : "invalid but accepted", status ? error.message : "",
                            text ? text : "");
        free(text);
    }
    return right;
}

/* ---- schemas ----------------------------------------------------------------------------------------------------- */

static double now_ms(void)
{
    return (double)spry_clock_cpu_ns() / 1e6;
}

static spry_status compile(suite *s, const char *schema, spry_error *error)
{
    double begin = now_ms();
    const uint32_t *mask;
    spry_status status =
        spry_matching_replace(s->matching, SPRY_JSON_SCHEMA, s->settings->style, schema, strlen(schema), error);
    if (!status && s->settings->tokenizer)
        status = spry_matching_mask(s->matching, &mask, error);
    add_time(&s->first, now_ms() - begin);
    return status;
}

static bool all_invalid(const json_t *tests)
{
    for (size_t i = 0; i < json_array_size(tests); i++)
        if (!json_is_false(json_object_get(json_array_get(tests, i), "valid")))
            return false;
    return true;
}

static void run_group(suite *s, json_t *group, const char *name, const char *dialect)
{
    json_t *schema = json_object_get(group, "schema"), *tests = json_object_get(group, "tests");
    if (dialect && json_is_object(schema) && !json_object_get(schema, "$schema"))
        json_object_set_new(schema, "$schema", json_string(dialect));
    char *text = schema ? dump(schema) : NULL;
    spry_error error = {0};
    if (!text)
        return;
    s->schemas++;
    spry_status status = compile(s, text, &error);
    double took = s->first.count ? s->first.items[s->first.count - 1] : 0;
    if (s->settings->list && took > SLOW_MS)
        spry_out_format("%s: compiling took %.0f ms\n", name, took);
    if (!status) {
        s->compiled++;
        s->right += judge(s, tests, name);
    } else if (strstr(error.message, "no JSON value at all")) {
        s->unsatisfiable++;
        s->right += all_invalid(tests);
    } else {
        count_reason(s, error.message);
    }
    if (status && s->settings->list)
        spry_out_format("%s: refused: %s\n", name, error.message);
    free(text);
}

/* The dialect of the test suite's folders; NULL: what the schemas say. */
static const char *dialect_of(const char *path)
{
    static const struct {
        const char *folder, *dialect;
    } drafts[] = {
        {"/draft4/", "http://json-schema.org/draft-04/schema#"},
        {"/draft6/", "http://json-schema.org/draft-06/schema#"},
        {"/draft7/", "http://json-schema.org/draft-07/schema#"},
        {"/draft2019-09/", "https://json-schema.org/draft/2019-09/schema"},
        {"/draft2020-12/", "https://json-schema.org/draft/2020-12/schema"},
    };
    for (size_t i = 0; i < SPRY_COUNT(drafts); i++)
        if (strstr(path, drafts[i].folder))
            return drafts[i].dialect;
    return NULL;
}

static void run_file(suite *s, const char *path)
{
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, NULL);
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *dialect = dialect_of(path);
    if (json_is_object(root))
        run_group(s, root, name, dialect);
    for (size_t i = 0; i < json_array_size(root); i++)
        run_group(s, json_array_get(root, i), name, dialect);
    s->unread += !root;
    json_decref(root);
}

static int is_wanted(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Files in the order of their names; `depth` bounds the folders below. */
static void run_path(suite *s, const char *path, unsigned depth)
{
    struct stat is;
    if (stat(path, &is) || !S_ISDIR(is.st_mode)) {
        size_t size = strlen(path);
        if (size > 5 && strcmp(path + size - 5, ".json") == 0)
            run_file(s, path);
        return;
    }
    struct dirent **entries;
    int count = depth ? scandir(path, &entries, is_wanted, alphasort) : 0;
    for (int i = 0; i < count; i++) {
        char inner[PATH_SIZE];
        if ((size_t)snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name) < sizeof inner)
            run_path(s, inner, depth - 1);
        free(entries[i]);
    }
    if (count > 0)
        free(entries);
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double at(const times *list, double part)
{
    size_t index = (size_t)((double)list->count * part);
    return list->count ? list->items[index < list->count ? index : list->count - 1] : 0;
}

static double mean(const times *list)
{
    double sum = 0;
    for (size_t i = 0; i < list->count; i++)
        sum += list->items[i];
    return list->count ? sum / (double)list->count : 0;
}

/* How many times are at most each bound. */
static void show_histogram(const times *list, const char *unit, bool json)
{
    static const double bounds[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000};
    size_t at = 0;
    spry_out_format(json ? ", \"histogram_%s\": {" : "%s", unit);
    for (size_t i = 0; i < SPRY_COUNT(bounds); i++) {
        size_t before = at;
        while (at < list->count && list->items[at] <= bounds[i])
            at++;
        spry_out_format(json ? "%s\"%g\": %zu" : "%s <= %g: %zu", i ? json ? ", " : "," : "", bounds[i], at - before);
    }
    spry_out_format(json ? ", \"more\": %zu}" : ", more: %zu\n", list->count - at);
}

static double percent(size_t part, size_t of)
{
    return of ? 100.0 * (double)part / (double)of : 0;
}

/* Sorts and prints one list of times. */
static void show_times(times *list, const char *name, const char *unit, bool json)
{
    qsort(list->items, list->count, sizeof *list->items, compare_doubles);
    spry_out_format(json ? ", \"%s_%s\": {\"mean\": %.3f, \"median\": %.3f, \"p95\": %.3f, \"p99\": %.3f, "
                           "\"p99.9\": %.3f, \"max\": %.3f}"
                         : "%s (%s): mean %.3f, median %.3f, 95 %% %.3f, 99 %% %.3f, 99.9 %% %.3f, longest %.3f\n",
                    name, unit, mean(list), at(list, 0.5), at(list, 0.95), at(list, 0.99), at(list, 0.999),
                    at(list, 1.0));
    show_histogram(list, unit, json);
}

static void show(suite *s)
{
    bool json = s->settings->json;
    spry_out_format(json ? "{\"schemas\": %zu, \"compiled\": %zu, \"unsatisfiable\": %zu, \"right\": %zu, "
                           "\"right_percent\": %.2f, \"instances\": %zu, \"false_accepts\": %zu, "
                           "\"false_rejects\": %zu, \"unread\": %zu"
                         : "%zu schemas: %zu compiled, %zu unsatisfiable, %zu (%.2f %%) with every instance right\n"
                           "%zu instances: %zu false accepts, %zu false rejects; %zu files not read\n",
                    s->schemas, s->compiled, s->unsatisfiable, s->right, percent(s->right, s->schemas), s->instances,
                    s->false_accepts, s->false_rejects, s->unread);
    show_times(&s->first, s->settings->tokenizer ? "first mask" : "compiling", "ms", json);
    if (s->settings->tokenizer)
        show_times(&s->masks, "mask", "us", json);
    qsort(s->reasons, s->n_reasons, sizeof *s->reasons, by_count);
    for (size_t i = 0; !json && i < s->n_reasons && i < REASONS_SHOWN; i++)
        spry_out_format("%6zu refused: %s\n", s->reasons[i].count, s->reasons[i].text);
    if (json)
        spry_out_format("}\n");
}

spry_status spry_suite_run(bool *wrong, const spry_suite_settings *settings, spry_error *error)
{
    suite *s = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "a suite", sizeof *s);
    s->settings = settings;
    spry_status status =
        spry_matching_create(&s->matching, SPRY_JSON_OBJECT, settings->style, "", 0, settings->tokenizer, error);
    if (!status)
        run_path(s, settings->path, 8);
    if (!status && !s->schemas)
        status = spry_fail(error, SPRY_ERR_INPUT, "%s: no schemas with tests are there", settings->path);
    if (!status)
        show(s);
    *wrong = s->false_accepts > 0;
    spry_matching_destroy(s->matching);
    free(s->first.items);
    free(s->masks.items);
    free(s);
    return status;
}
