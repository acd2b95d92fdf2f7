/* `spry grammar`: grammars compiled, matched and timed, and `spry grammar suite`: many schemas with instances of known
 * validity. */
#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "spry_tools.h"

typedef struct spry_suite_settings {
    const char *path;                /* a file or a folder, which is searched for .json files */
    const spry_tokenizer *tokenizer; /* NULL: masks are not measured */
    spry_json_style style;
    bool list; /* print every schema that is refused or judged wrongly */
    bool json;
} spry_suite_settings;

enum { GRAMMAR_BYTES_MAX = 16 << 20 };

/* ---- spry grammar suite ------------------------------------------------------------------------------------------ */

/* Judges the instances of public collections of schemas, and measures compiling and masks. A file has the form of the
 * JSON Schema test suite (a list of groups) or is one group: {"schema": ..., "tests": [{"data": ..., "valid": ...}]}.
 */

enum { REASONS_MAX = 512, REASONS_SHOWN = 25, REASON_SIZE = 120, PATH_SIZE = 4096, SLOW_MS = 100 };

typedef struct time_list {
    double *items;
    size_t count, room;
} time_list;

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
    time_list first, masks; /* first: compiling and the first mask, in ms; masks in us */
} suite;

static void add_time(time_list *list, double value)
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

/* The last step of the schema's path and the error, without names and numbers of the particular schema. */
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
        char *text = spry_json_text(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(precision));
        json_t *back = text ? spry_json_value(spry_view_of(text)) : NULL;
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

/* The dialect of the test suite's folders; NULL: the schemas name it. */
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
    spry_buffer text;
    spry_buffer_init(&text, GRAMMAR_BYTES_MAX);
    json_t *root = spry_file_read(&text, path, NULL) ? NULL : spry_json_value(spry_buffer_view(&text));
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *dialect = dialect_of(path);
    if (json_is_object(root))
        run_group(s, root, name, dialect);
    for (size_t i = 0; i < json_array_size(root); i++)
        run_group(s, json_array_get(root, i), name, dialect);
    s->unread += !root;
    json_decref(root);
    spry_buffer_deinit(&text);
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

static double at(const time_list *list, double part)
{
    size_t index = (size_t)((double)list->count * part);
    return list->count ? list->items[index < list->count ? index : list->count - 1] : 0;
}

static double mean(const time_list *list)
{
    double sum = 0;
    for (size_t i = 0; i < list->count; i++)
        sum += list->items[i];
    return list->count ? sum / (double)list->count : 0;
}

/* How many times are at most each bound. */
static void show_histogram(const time_list *list, const char *unit, bool json)
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
static void show_times(time_list *list, const char *name, const char *unit, bool json)
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

/* Prints the counts; SPRY_ERR_INPUT when nothing was found. *wrong: some invalid instance was accepted. */
static spry_status suite_run(bool *wrong, const spry_suite_settings *settings, spry_error *error)
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

/* ---- spry grammar ------------------------------------------------------------------------------------------------ */

enum { INPUT_BYTES_MAX = 64 << 20 };

static const spry_usage usage = {
    .command = "grammar",
    .arguments = "check|mask|suite [FILE] [options]",
    .about =
        "`check` reads a text from standard input and reports whether it matches: exit code 0, or 1 with the "
        "position where it stops matching and what was expected there.\n"
        "`mask` reports how many tokens of a model's vocabulary are allowed after --text, and the time to compute "
        "that. With --bench it processes a whole text (--text, or standard input) token by token.\n"
        "`suite` judges the instances of the schemas in FILE, or in all .json files of a folder, each of the form "
        "{\"schema\": ..., \"tests\": [{\"data\": ..., \"valid\": true}]} or a list of these: how many schemas "
        "compile, how "
        "many instances are judged wrongly, why schemas are refused; with --model also the times of masks.\n"
        "FILE is a grammar (.gbnf) or a JSON schema (.json); docs/GRAMMARS.md lists the supported features. MODEL is "
        "as for `spry tokenize`.",
    .examples = "echo '{\"a\": 1}' | spry grammar check schema.json\n"
                "echo 2024-05-17 | spry grammar check --regex '\\d{4}-\\d\\d-\\d\\d\\n'\n"
                "spry grammar mask json.gbnf --text '{\"name\": '\n"
                "spry grammar mask --bench --model tokenizer.json --grammar schema.json < answer.json",
};

typedef struct grammar_settings {
    const char *grammar, *kind, *regex, *choice, *model, *text, *style;
    bool json, bench, trim, list;
    spry_model_flags models;
} grammar_settings;

#define OPTION(...) SPRY_OPTION(grammar_settings, __VA_ARGS__)

static const char *const kind_names[] = {"auto", "gbnf", "schema", "regex", "choice", "json-object", NULL};

static const char *const style_names[] = {"compact", "pretty", "free", "any", NULL};

static const spry_option grammar_options[] = {
    OPTION("grammar", STRING, grammar, .letter = 'g', .metavar = "FILE",
           .help = "The grammar or schema, instead of FILE", .group = "Grammar"),
    OPTION(
        "kind", CHOICE, kind, .choices = kind_names,
        .help =
            "Kind of the file; auto: a schema when its name ends in .json, else a grammar; json-object needs no file"),
    OPTION("regex", STRING, regex, .metavar = "PATTERN",
           .help = "A regular expression that the whole text must match, instead of a file"),
    OPTION("choice", STRING, choice, .metavar = "JSON",
           .help = "A JSON array of the texts to choose from, instead of a file"),
    OPTION("json-style", CHOICE, style, .choices = style_names,
           .help = "A schema's texts as answers are written; any: every text that is valid against it"),
    OPTION("trim", FLAG, trim, .help = "Ignore newlines at the end of standard input", .group = "Text"),
    OPTION("text", STRING, text, .letter = 't', .help = "mask: the text so far"),
    OPTION("model", STRING, model, .letter = 'm',
           .help = "mask, suite: model with the vocabulary; default: the bundled model; suite: none", .group = "Mask"),
    OPTION("bench", FLAG, bench, .help = "mask: process the whole text and show times"),
    OPTION("json", FLAG, json, .help = "mask, suite: print JSON"),
    OPTION("list", FLAG, list, .help = "suite: list every schema that is refused or judged wrongly"),
};

/* ---- the grammar ------------------------------------------------------------------------------------------------- */

static spry_constraint kind_of(const grammar_settings *settings)
{
    static const spry_constraint kinds[] = {SPRY_GBNF,  SPRY_GBNF,   SPRY_JSON_SCHEMA,
                                            SPRY_REGEX, SPRY_CHOICE, SPRY_JSON_OBJECT};
    size_t i = 0;
    while (kind_names[i + 1] && strcmp(kind_names[i], settings->kind) != 0)
        i++;
    if (settings->regex)
        return SPRY_REGEX;
    if (settings->choice)
        return SPRY_CHOICE;
    if (i == 0 && settings->grammar && spry_view_ends(spry_view_of(settings->grammar), SPRY_VIEW(".json")))
        return SPRY_JSON_SCHEMA;
    return kinds[i];
}

static spry_json_style style_of(const grammar_settings *settings)
{
    unsigned i = 0;
    while (style_names[i + 1] && strcmp(style_names[i], settings->style) != 0)
        i++;
    return (spry_json_style)i;
}

/* `tokenizer` NULL: for bytes alone. */
static spry_status open_matching(spry_matching **out, const spry_tokenizer *tokenizer, const grammar_settings *settings,
                                 spry_error *error)
{
    spry_buffer source;
    spry_buffer_init(&source, GRAMMAR_BYTES_MAX);
    spry_status status = SPRY_OK;
    const char *given = settings->regex ? settings->regex : settings->choice;
    if (given)
        spry_buffer_text(&source, given);
    else if (settings->grammar)
        status = spry_file_read(&source, settings->grammar, error);
    if (!status && source.failed)
        status = spry_fail_memory(error, "a grammar", source.size);
    if (!status) {
        spry_view text = spry_buffer_view(&source);
        status =
            spry_matching_create(out, kind_of(settings), style_of(settings), text.data, text.size, tokenizer, error);
        if (status && settings->grammar && !given)
            spry_fail_prefix(error, status, settings->grammar);
    }
    spry_buffer_deinit(&source);
    return status;
}

static spry_status read_text(spry_buffer *text, const grammar_settings *settings, spry_error *error)
{
    if (settings->text) {
        spry_buffer_text(text, settings->text);
        return text->failed ? spry_fail_memory(error, "a text", strlen(settings->text)) : SPRY_OK;
    }
    spry_status status = spry_input_read(text, error);
    while (!status && settings->trim && text->size && strchr("\r\n", text->data[text->size - 1]))
        text->data[--text->size] = 0;
    return status;
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

static void name_byte(spry_buffer *out, unsigned byte)
{
    static const char *const names[] = {
        ['\t'] = "tab", ['\n'] = "line end", ['\r'] = "carriage return", [' '] = "space"};
    if (byte < SPRY_COUNT(names) && names[byte])
        spry_buffer_text(out, names[byte]);
    else if (byte > ' ' && byte < 0x7F)
        spry_buffer_format(out, "'%c'", (char)byte);
    else
        spry_buffer_format(out, "byte 0x%02X", byte);
}

/* Describes the bytes that may come next: runs of letters and digits, and one phrase for everything that is not
 * ASCII. */
static void name_next(spry_buffer *out, const spry_matching *matching)
{
    uint64_t bytes[4];
    spry_matching_next_bytes(matching, bytes);
    const char *between = "";
    for (unsigned byte = 0; byte < 0x80; byte++) {
        if (!(bytes[byte / 64] >> byte % 64 & 1))
            continue;
        unsigned last = byte;
        while (last + 1 < 0x80 && bytes[(last + 1) / 64] >> (last + 1) % 64 & 1)
            last++;
        spry_buffer_text(out, between);
        name_byte(out, byte);
        if (last > byte)
            spry_buffer_text(out, last > byte + 1 ? " to " : ", ");
        if (last > byte)
            name_byte(out, last);
        byte = last;
        between = ", ";
    }
    if (bytes[2] | bytes[3]) {
        spry_buffer_format(out, "%s%s", between, bytes[2] ? "the rest of a character" : "a character beyond ASCII");
        between = ", ";
    }
    if (spry_matching_may_end(matching))
        spry_buffer_format(out, "%sthe end", between);
}

static int say_place(const spry_matching *matching, spry_view text, size_t at)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        column = text.data[i] == '\n' ? 1 : column + ((text.data[i] & 0xC0) != 0x80);
        line += text.data[i] == '\n';
    }
    spry_buffer words;
    spry_buffer_init(&words, 1 << 16);
    name_next(&words, matching);
    spry_complain("%s at byte %zu (line %zu, column %zu); expected %s",
                  at < text.size ? "the text stops matching" : "the text is not complete", at, line, column,
                  words.size ? words.data : "nothing more");
    spry_buffer_deinit(&words);
    return SPRY_EXIT_FAILURE;
}

static int check(const grammar_settings *settings)
{
    spry_buffer text;
    spry_buffer_init(&text, INPUT_BYTES_MAX);
    spry_matching *matching = NULL;
    spry_error error;
    size_t taken = 0;
    spry_status status = open_matching(&matching, NULL, settings, &error);
    if (!status)
        status = read_text(&text, settings, &error);
    if (!status)
        status = spry_matching_take(matching, &taken, spry_buffer_view(&text).data, text.size, &error);
    int code = SPRY_EXIT_OK;
    if (status)
        code = spry_complain_error(&error);
    else if (taken < text.size || !spry_matching_may_end(matching))
        code = say_place(matching, spry_buffer_view(&text), taken);
    spry_matching_destroy(matching);
    spry_buffer_deinit(&text);
    return code;
}

/* ---- mask -------------------------------------------------------------------------------------------------------- */

/* A tokenizer, and a matching over its tokens. */
typedef struct mask_work {
    spry_model_source source;
    spry_tokenizer *tokenizer;
    spry_matching *matching;
    spry_matching_times times;
} mask_work;

static spry_status open_work(mask_work *work, const grammar_settings *settings, spry_error *error)
{
    spry_status status = spry_model_source_find(&work->source, settings->model, settings->models.models_folder, error);
    const spry_model_file file = spry_model_source_file(&work->source);
    if (!status)
        status = spry_tokenizer_load(&work->tokenizer, &file, error);
    if (!status)
        status = open_matching(&work->matching, work->tokenizer, settings, error);
    if (!status)
        work->times = spry_matching_get_times(work->matching);
    return status;
}

static void close_work(mask_work *work)
{
    spry_matching_destroy(work->matching);
    spry_tokenizer_free(work->tokenizer);
    spry_model_source_deinit(&work->source);
}

static spry_status timed_mask(const mask_work *work, double *microseconds, size_t *allowed, spry_error *error)
{
    const uint32_t *mask;
    uint64_t began = spry_clock_ns();
    spry_status status = spry_matching_mask(work->matching, &mask, error);
    *microseconds = (double)(spry_clock_ns() - began) / 1e3;
    *allowed = 0;
    for (size_t id = 0; !status && id < spry_tokenizer_count(work->tokenizer); id++)
        *allowed += mask[id / 32] >> id % 32 & 1;
    return status;
}

static spry_status show_mask(const mask_work *work, const grammar_settings *settings, spry_error *error)
{
    spry_view text = spry_view_of(settings->text ? settings->text : "");
    size_t taken, allowed;
    double microseconds;
    spry_status status = spry_matching_take(work->matching, &taken, text.data, text.size, error);
    if (!status && taken < text.size)
        return spry_fail(error, SPRY_ERR_INPUT, "the text stops matching at byte %zu", taken);
    if (!status)
        status = timed_mask(work, &microseconds, &allowed, error);
    if (status)
        return status;
    size_t size = spry_tokenizer_count(work->tokenizer);
    bool may_end = spry_matching_may_end(work->matching);
    if (settings->json)
        spry_out_format("{\"allowed\": %zu, \"vocabulary\": %zu, \"may_end\": %s, \"microseconds\": %.1f, "
                        "\"compile_ms\": %.3f, \"prepare_ms\": %.3f}\n",
                        allowed, size, may_end ? "true" : "false", microseconds, work->times.compile_ms,
                        work->times.prepare_ms);
    else
        spry_out_format("%zu of %zu tokens are allowed next%s; %.1f us\n", allowed, size,
                        may_end ? ", and the text may end" : "", microseconds);
    return SPRY_OK;
}

static void show_bench(const mask_work *work, double *times, size_t count, bool json)
{
    qsort(times, count, sizeof *times, compare_doubles);
    double median = times[count / 2], p99 = times[count * 99 / 100], most = times[count - 1];
    if (json)
        spry_out_format("{\"tokens\": %zu, \"compile_ms\": %.3f, \"vocabulary_ms\": %.3f, \"prepare_ms\": %.3f, "
                        "\"median_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
                        count, work->times.compile_ms, work->times.vocabulary_ms, work->times.prepare_ms, median, p99,
                        most);
    else
        spry_out_format("grammar compiled in %.2f ms, vocabulary sorted in %.1f ms, first masks in %.2f ms\n"
                        "%zu tokens: mask median %.1f us, 99%% %.1f us, longest %.1f us\n",
                        work->times.compile_ms, work->times.vocabulary_ms, work->times.prepare_ms, count, median, p99,
                        most);
}

/* Processes the text with the tokens of the model's tokenizer. */
static spry_status bench(const mask_work *work, spry_view text, const grammar_settings *settings, spry_error *error)
{
    spry_tokens ids = {0};
    size_t allowed, count = 0;
    spry_status status =
        spry_tokenizer_ids(work->tokenizer, &ids.ids, &ids.count, text.data, text.size, false, false, error);
    double *times = malloc((ids.count + 1) * sizeof *times);
    if (!status && !times)
        status = spry_fail_memory(error, "the times", ids.count * sizeof *times);
    for (size_t i = 0; i < ids.count && !status; i++) {
        status = timed_mask(work, &times[count++], &allowed, error);
        if (!status)
            status = spry_matching_token(work->matching, ids.ids[i], error);
    }
    if (!status && !count)
        status = spry_fail(error, SPRY_ERR_INPUT, "there is no text");
    if (!status)
        show_bench(work, times, count, settings->json);
    free(times);
    spry_free(ids.ids);
    return status;
}

static int mask(const grammar_settings *settings)
{
    mask_work work = {0};
    spry_buffer text;
    spry_buffer_init(&text, INPUT_BYTES_MAX);
    spry_error error;
    spry_status status = open_work(&work, settings, &error);
    if (!status && settings->bench) {
        status = read_text(&text, settings, &error);
        if (!status)
            status = bench(&work, spry_buffer_view(&text), settings, &error);
    } else if (!status) {
        status = show_mask(&work, settings, &error);
    }
    close_work(&work);
    spry_buffer_deinit(&text);
    return status ? spry_complain_error(&error) : SPRY_EXIT_OK;
}

static int grammar_suite(const grammar_settings *settings)
{
    spry_suite_settings wanted = {
        .path = settings->grammar, .style = style_of(settings), .list = settings->list, .json = settings->json};
    mask_work work = {0};
    spry_error error;
    spry_status status = SPRY_OK;
    bool wrong = false;
    if (settings->model)
        status = spry_model_source_find(&work.source, settings->model, settings->models.models_folder, &error);
    if (!status && settings->model) {
        const spry_model_file file = spry_model_source_file(&work.source);
        status = spry_tokenizer_load(&work.tokenizer, &file, &error);
        wanted.tokenizer = work.tokenizer;
    }
    if (!status)
        status = suite_run(&wrong, &wanted, &error);
    close_work(&work);
    return status ? spry_complain_error(&error) : wrong ? SPRY_EXIT_FAILURE : SPRY_EXIT_OK;
}

int spry_cmd_grammar(int argc, char **argv)
{
    grammar_settings settings = {.kind = "auto", .style = "any"};
    const spry_option_table tables[] = {{grammar_options, SPRY_COUNT(grammar_options), &settings},
                                        spry_model_flags_table(&settings.models)};
    const char *words[2] = {NULL, NULL};
    spry_option_list positionals = {words, 2, 0};
    int code = SPRY_EXIT_OK;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    static const struct {
        const char *name;
        int (*run)(const grammar_settings *settings);
    } subcommands[] = {{"check", check}, {"mask", mask}, {"suite", grammar_suite}};
    size_t chosen = 0;
    while (chosen < SPRY_COUNT(subcommands) && (!words[0] || strcmp(words[0], subcommands[chosen].name) != 0))
        chosen++;
    if (chosen == SPRY_COUNT(subcommands))
        return spry_usage_wrong(&usage, "give a subcommand: check, mask or suite");
    if (words[1])
        settings.grammar = words[1];
    if (!settings.grammar && !settings.regex && !settings.choice && strcmp(settings.kind, "json-object") != 0)
        return spry_usage_wrong(&usage, "give a grammar: a file, --regex, --choice or --kind json-object");
    return spry_out_finish(subcommands[chosen].run(&settings));
}
