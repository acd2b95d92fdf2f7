/* Recognises files. The first character shows whether a file is a list of events, which is read line by line, or one
 * object, which has a format. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "report/report.h"

enum { CHUNK_BYTES = 1 << 16 };

static const char expected[] =
    "spry report takes files of `spry bench --save`, of --trace, and of `spry doctor --json`";

/* ---- one file ---------------------------------------------------------------------------------------------------- */

static spry_status read_rest(spry_buffer *out, FILE *file, spry_error *error)
{
    char chunk[CHUNK_BYTES];
    size_t got;
    while ((got = fread(chunk, 1, sizeof chunk, file)) > 0)
        if (!spry_buffer_append(out, chunk, got))
            return spry_fail(error, SPRY_ERR_FORMAT, "has more than %d MB, which no bench and no machine has; %s",
                             SPRY_BENCH_FILE_MAX >> 20, expected);
    return ferror(file) ? spry_fail(error, SPRY_ERR_FILE, "cannot be read: %s", strerror(errno)) : SPRY_OK;
}

static spry_status recognise(spry_report_kind *kind, const json_t *json, spry_error *error)
{
    static const struct {
        const char *format;
        spry_report_kind kind;
    } known[] = {{SPRY_BENCH_FORMAT, SPRY_REPORT_BENCH}, {"spry-machine-1", SPRY_REPORT_MACHINE}};
    const char *format = json_string_value(json_object_get(json, "format"));
    if (!format)
        return spry_fail(error, SPRY_ERR_FORMAT, "does not say its \"format\": %s", expected);
    for (size_t i = 0; i < SPRY_COUNT(known); i++)
        if (strcmp(format, known[i].format) == 0) {
            *kind = known[i].kind;
            return SPRY_OK;
        }
    return spry_fail(error, SPRY_ERR_FORMAT, "has the format \"%.60s\": %s", format, expected);
}

static spry_status load_object(spry_report_input *input, FILE *file, spry_error *error)
{
    spry_buffer text;
    spry_buffer_init(&text, SPRY_BENCH_FILE_MAX);
    spry_status status = read_rest(&text, file, error);
    if (!status)
        status = spry_json_object(&input->json, spry_buffer_view(&text), error);
    if (!status)
        status = recognise(&input->kind, input->json, error);
    if (!status)
        status = spry_report_check(input->json, input->kind, error);
    spry_buffer_deinit(&text);
    return status;
}

static spry_status load_opened(spry_report_input *input, FILE *file, spry_error *error)
{
    int first = getc(file);
    while (first != EOF && isspace(first))
        first = getc(file);
    if (first == EOF && ferror(file))
        return spry_fail(error, SPRY_ERR_FILE, "cannot be read: %s", strerror(errno));
    if (first == EOF)
        return spry_fail(error, SPRY_ERR_FORMAT, "is empty");
    ungetc(first, file);
    if (first == '{')
        return load_object(input, file, error);
    if (first != '[')
        return spry_fail(error, SPRY_ERR_FORMAT, "is not JSON: %s", expected);
    input->kind = SPRY_REPORT_TRACE;
    return spry_report_trace_read(&input->trace, file, error);
}

static spry_status load_input(spry_report_input *input, const char *path, spry_error *error)
{
    input->path = path;
    FILE *file = fopen(path, "rb");
    if (!file)
        return spry_fail(error, SPRY_ERR_FILE, "%s: cannot be opened: %s", path, strerror(errno));
    spry_status status = load_opened(input, file, error);
    fclose(file);
    return status ? spry_fail_prefix(error, status, path) : SPRY_OK;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* The file name without ".json" and unprintable bytes, truncated to whole characters. */
static void name_input(spry_report_input *input)
{
    const char *slash = strrchr(input->path, '/');
    spry_view name = spry_view_of(slash && slash[1] ? slash + 1 : input->path);
    if (name.size > 5 && spry_view_ends(name, SPRY_VIEW(".json")))
        name.size -= 5;
    spry_buffer clean;
    spry_buffer_init(&clean, 1 << 16);
    spry_utf8_append_valid(&clean, name);
    spry_report_cut(input->name, sizeof input->name - 7, spry_buffer_view(&clean).data); /* " (16)" is appended */
    spry_buffer_deinit(&clean);
}

static bool is_taken(const spry_report *report, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(report->inputs[i].name, name) == 0)
            return true;
    return false;
}

/* Files of the same name are distinguished by a number. */
static void name_all(spry_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        spry_report_input *input = &report->inputs[i];
        name_input(input);
        const size_t size = strlen(input->name);
        for (unsigned number = 2; is_taken(report, i, input->name); number++)
            snprintf(input->name + size, sizeof input->name - size, " (%u)", number);
        for (size_t j = 0; j < i; j++)
            input->series += report->inputs[j].kind == input->kind;
    }
}

spry_status spry_report_load(spry_report *report, const char *const *paths, size_t count, spry_error *error)
{
    *report = (spry_report){.count = 0};
    if (count > SPRY_REPORT_INPUTS)
        return spry_fail(error, SPRY_ERR_INPUT, "%zu files are too many for one report: at most %d", count,
                         SPRY_REPORT_INPUTS);
    for (size_t i = 0; i < count; i++) {
        spry_status status = load_input(&report->inputs[report->count++], paths[i], error);
        if (status)
            return status;
    }
    name_all(report);
    return SPRY_OK;
}

void spry_report_deinit(spry_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        json_decref(report->inputs[i].json);
        spry_report_trace_destroy(report->inputs[i].trace);
    }
    report->count = 0;
}
