/* spry report: makes one page from files of measurements. */
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/file.h"
#include "report/report.h"

enum { PAGE_BYTES_MAX = 64 << 20 };

static const spry_usage usage = {
    .command = "report",
    .arguments = "FILE... [options]",
    .about = "Writes one page about measurements: the parts of the time to the first token, speed by depth and "
             "number of sequences, each op relative to the machine's limits, cache, memory, energy. Several files "
             "are shown side by side; ratios are relative to the first.\n"
             "FILEs are those of `spry bench --save`, of --trace, and of `spry doctor --json`. The page is "
             "self-contained.",
    .examples = "spry bench --save now.json && spry report now.json\n"
                "spry report before.json after.json -o change.html\n"
                "spry report trace.json machine.json --markdown -o -",
};

typedef struct report_settings {
    const char *output;
    bool markdown;
} report_settings;

#define FIELD(name) offsetof(report_settings, name)

static const spry_option report_options[] = {
    {.name = "output",
     .letter = 'o',
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(output),
     .metavar = "FILE",
     .help = "Output file; - is standard output. Default: report.html, or report.md, in the current folder",
     .group = "Report"},
    {.name = "markdown",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(markdown),
     .help = "Write Markdown: the same sections, tables instead of plots"},
};

/* A report must not overwrite its inputs. */
static spry_status check_output(const char *path, const char *const *inputs, size_t count, spry_error *error)
{
    for (size_t i = 0; i < count; i++)
        if (spry_path_same(path, inputs[i]))
            return spry_fail(error, SPRY_ERR_INPUT, "%s is an input file: name another file with -o", path);
    return SPRY_OK;
}

static spry_status write_file(const char *path, spry_view text, spry_error *error)
{
    spry_file_writer writer = {0};
    spry_status status = spry_file_writer_open(&writer, path, error);
    if (!status)
        status = spry_file_writer_write(&writer, text.data, text.size, error);
    if (!status)
        status = spry_file_writer_commit(&writer, error);
    spry_file_writer_abandon(&writer);
    if (!status)
        spry_out_format("The report is in %s\n", path);
    return status;
}

static spry_status write_report(const report_settings *settings, const char *const *paths, size_t count,
                                spry_error *error)
{
    spry_report report;
    spry_buffer page;
    const char *fallback = settings->markdown ? "report.md" : "report.html";
    const char *path = settings->output ? settings->output : fallback;
    spry_buffer_init(&page, PAGE_BYTES_MAX);
    spry_status status = spry_report_load(&report, paths, count, error);
    if (!status)
        status = check_output(path, paths, count, error);
    if (!status)
        spry_report_write(&page, &report, settings->markdown);
    if (!status && page.failed)
        status = spry_fail(error, SPRY_ERR_MEMORY, "there is not enough memory for the report");
    if (!status && strcmp(path, "-") == 0)
        spry_out_write(page.data, page.size);
    else if (!status)
        status = write_file(path, spry_buffer_view(&page), error);
    spry_buffer_deinit(&page);
    spry_report_deinit(&report);
    return status;
}

int spry_cmd_report(int argc, char **argv)
{
    report_settings settings = {0};
    const spry_option_table table = {report_options, SPRY_COUNT(report_options), &settings};
    const char *paths[SPRY_REPORT_INPUTS];
    spry_option_list positionals = {paths, SPRY_COUNT(paths), 0};
    int code = SPRY_EXIT_OK;
    if (!spry_usage_parse(&code, &usage, &table, 1, &positionals, argc, argv))
        return code;
    if (!positionals.count)
        return spry_usage_wrong(&usage, "no FILE is named");
    spry_error error;
    if (write_report(&settings, paths, positionals.count, &error) != SPRY_OK)
        code = spry_complain_error(&error);
    return spry_out_finish(code);
}
