/* spry report: loads and checks files of measurements, and writes a page about them. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "bench/bench_gate.h"
#include "cli/commands.h"
#include "cli/json_shape.h"
#include "cli/terminal.h"
#include "cli/trace_read.h"
#include "cli/usage.h"
#include "doctor/machine_profile.h"
#include "platform/file.h"
#include "report/report_page.h"

enum { INPUTS_MAX = 16, NAME_BYTES = 41, PAGE_BYTES_MAX = 64 << 20 };

static const char expected[] =
    "spry report takes files of `spry bench --save`, of --trace, and of `spry doctor --json`";

/* ---- one file ---------------------------------------------------------------------------------------------------- */

// clang-format off
#define POINT "tps!": 0, "spread": 0, "read_gb_s": 0, "read_share": 0, "multiply_g_s": 0, "multiply_share": 0, \
    "energy": {"joules": 0, "joules_per_100_tokens": 0, "watts": 0}, "waits_per_token": 0, "gpu_busy_percent": 0, \
    "ops": [{"op!": "", "device": "", "kernel": "", "ms": 0, "share": 0, "calls": 0, "gb_s": 0, "multiply_g_s": 0}]
#define MEMORY {"weights": 0, "kv": 0, "cache": 0, "scratch": 0, "program": 0, "whole": 0}
#define SHAPE(...) SPRY_JSON_SHAPE(__VA_ARGS__)

static const char bench_shape[] = SHAPE({
    "format!": "", "spry": "", "when": "", "model!": "", "architecture": "", "parameters": 0, "weight_bytes": 0, "model_id": "",
    "machine!": {"cpu!": "", "gpu": "", "threads!": 0, "kernels!": "", "read_gb_s!": 0, "multiply_g_s!": 0,
                 "multiply_type": "", "memory_bytes": 0, "id": ""},
    "settings": {"chunk": 0, "kv_type": "", "tokens": 0, "repeat": 0, "context": 0, "quantize": ""},
    "prefill!": [{"tokens!": 0, "ms": 0, POINT}],
    "decode!": [{"depth!": 0, "batch!": 0, "p50_ms": 0, "p95_ms": 0, "p99_ms": 0, POINT}],
    "load_ms": 0, "first_token_ms": 0, "peak_rss_bytes": 0, "peak_rss_batch_bytes": 0,
    "ttft": {"prompt_tokens": 0, "cold_ms": 0, "warm_ms": 0, "parts_ms": {"*": 0}, "warm_parts_ms": {"*": 0},
             "hit_tokens": 0, "miss_tokens": 0},
    "why_no_ttft": "", "first_call": {"ms": 0, "tokens": 0}, "why_no_first_call": "",
    "answer": {"tokens": 0, "tps": 0, "waits_per_token": 0, "ahead_share": 0},
    "memory": {"estimated": MEMORY, "measured": MEMORY},
    "energy": {"cpu": "", "why_no_cpu": "", "gpu": "", "why_no_gpu": ""},
    "policy": {"taken!": 0, "why": "", "batches!": [{"batch!": 0, "tps!": 0, "p50_ms": 0, "p95_ms": 0, "gain": 0, "slower": 0}]}
});
// clang-format on

static spry_status check_bench(const json_t *bench, spry_error *error)
{
    static const char *const lists[] = {"parts_ms", "warm_parts_ms"};
    spry_status status = spry_json_check(bench, bench_shape, error);
    for (size_t i = 0; !status && i < SPRY_COUNT(lists); i++) {
        const char *key;
        json_t *value;
        json_object_foreach(
            json_object_get(json_object_get(bench, "ttft"), lists[i]), key,
            value) if (spry_trace_part(key) ==
                       SPRY_PART_COUNT) return spry_fail(error, SPRY_ERR_FORMAT,
                                                         "\"ttft.%s.%.60s\" is not a known part of a request", lists[i],
                                                         key);
    }
    return status;
}

/* Other measurements of bench than those of points are lists of figures. */
static const struct {
    const char *name, *kind;
    spry_status (*check)(const json_t *file, spry_error *error);
} formats[] = {
    {SPRY_BENCH_FORMAT, "bench", check_bench},
    {SPRY_PROFILE_FORMAT, "machine", spry_profile_check},
    {SPRY_DRAFT_FORMAT, "figures", spry_bench_report_check},
    {SPRY_REUSE_FORMAT, "figures", spry_bench_report_check},
    {SPRY_WITHOUT_FORMAT, "figures", spry_bench_report_check},
    {SPRY_CHUNK_FORMAT, "figures", spry_bench_report_check},
    {SPRY_IMAGE_FORMAT, "figures", spry_bench_report_check},
    {SPRY_MIX_REPORT_FORMAT, "figures", spry_bench_report_check},
    {SPRY_AGENT_FORMAT, "figures", spry_bench_report_check},
};

static spry_status load_object(json_t **out, const char **kind, FILE *file, spry_error *error)
{
    char *text = malloc(SPRY_BENCH_FILE_MAX + 1);
    const size_t size = text ? fread(text, 1, SPRY_BENCH_FILE_MAX + 1, file) : 0;
    spry_status status;
    if (!text)
        status = spry_fail_memory(error, "a file", SPRY_BENCH_FILE_MAX);
    else if (ferror(file))
        status = spry_fail(error, SPRY_ERR_FILE, "cannot be read: %s", strerror(errno));
    else if (size > SPRY_BENCH_FILE_MAX)
        status = spry_fail(error, SPRY_ERR_FORMAT, "has more than %d MB, which no bench and no machine has; %s",
                           SPRY_BENCH_FILE_MAX >> 20, expected);
    else
        status = spry_json_object(out, (spry_view){text, size}, error);
    free(text);
    const char *format = json_string_value(json_object_get(*out, "format"));
    if (status)
        return status;
    if (!format)
        return spry_fail(error, SPRY_ERR_FORMAT, "does not say its \"format\": %s", expected);
    for (size_t i = 0; i < SPRY_COUNT(formats); i++)
        if (strcmp(format, formats[i].name) == 0) {
            *kind = formats[i].kind;
            return formats[i].check(*out, error);
        }
    return spry_fail(error, SPRY_ERR_FORMAT, "has the format \"%.60s\": %s", format, expected);
}

/* The first character tells a list of events, read line by line, from one object, which has a format. */
static spry_status load_file(json_t **out, const char **kind, const char *path, spry_error *error)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return spry_fail(error, SPRY_ERR_FILE, "cannot be opened: %s", strerror(errno));
    spry_status status;
    int first = getc(file);
    while (first != EOF && isspace(first))
        first = getc(file);
    ungetc(first, file);
    *kind = "trace";
    if (first == EOF && ferror(file))
        status = spry_fail(error, SPRY_ERR_FILE, "cannot be read: %s", strerror(errno));
    else if (first == EOF)
        status = spry_fail(error, SPRY_ERR_FORMAT, "is empty");
    else if (first == '{')
        status = load_object(out, kind, file, error);
    else if (first == '[')
        status = spry_trace_read(out, file, error);
    else
        status = spry_fail(error, SPRY_ERR_FORMAT, "is not JSON: %s", expected);
    fclose(file);
    return status;
}

/* ---- all files --------------------------------------------------------------------------------------------------- */

static bool is_taken(const json_t *files, const char *name)
{
    for (size_t i = 0; i < json_array_size(files); i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(files, i), "_name")), name) == 0)
            return true;
    return false;
}

/* The file name without ".json", cut to whole characters; files of the same name are told apart by a number. */
static void name_file(char name[NAME_BYTES + 8], const json_t *files, const char *path)
{
    const char *slash = strrchr(path, '/');
    spry_view view = spry_view_of(slash && slash[1] ? slash + 1 : path);
    if (view.size > 5 && spry_view_ends(view, SPRY_VIEW(".json")))
        view.size -= 5;
    spry_buffer clean;
    spry_buffer_init(&clean, 1 << 16);
    spry_utf8_append_valid(&clean, view);
    view = spry_buffer_view(&clean);
    if (view.size >= NAME_BYTES)
        view.size = NAME_BYTES - 1 - spry_utf8_incomplete_tail(view.data, NAME_BYTES - 1);
    snprintf(name, NAME_BYTES, "%.*s", (int)view.size, view.data);
    for (unsigned number = 2; is_taken(files, name); number++)
        snprintf(name + view.size, 8, " (%u)", number);
    spry_buffer_deinit(&clean);
}

static spry_status load_all(json_t *files, const char *const *paths, size_t count, spry_error *error)
{
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < count; i++) {
        char name[NAME_BYTES + 8];
        const char *kind = "trace";
        json_t *file = NULL;
        status = load_file(&file, &kind, paths[i], error);
        if (status)
            spry_fail_prefix(error, status, paths[i]);
        name_file(name, files, paths[i]);
        json_object_set_new(file, "_name", json_string(name));
        json_object_set_new(file, "_kind", json_string(kind));
        json_array_append_new(files, file);
    }
    return status;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static const spry_usage usage = {
    .command = "report",
    .arguments = "FILE... [options]",
    .about =
        "Writes one page about measurements: the parts of the time to the first token, speed by depth and "
        "number of sequences, each op relative to the machine's limits, cache, memory, energy. Several files "
        "are shown side by side; ratios are relative to the first.\n"
        "A FILE comes from `spry bench --save` (of points, --reuse, --draft, --mix, --agent, --chunk or --without), "
        "--trace or `spry doctor --json`. The page is "
        "self-contained.",
    .examples = "spry bench --save now.json && spry report now.json\n"
                "spry report before.json after.json -o change.html\n"
                "spry report trace.json machine.json -o - | gzip > report.html.gz",
};

typedef struct report_settings {
    const char *output;
} report_settings;

static const spry_option report_options[] = {
    SPRY_OPTION(report_settings, "output", STRING, output, .letter = 'o', .metavar = "FILE",
                .help = "Output file; - is standard output. Default: report.html in the current folder",
                .group = "Report"),
};

static spry_status write_report(const report_settings *settings, const char *const *paths, size_t count,
                                spry_error *error)
{
    json_t *files = json_array();
    const char *path = settings->output ? settings->output : "report.html";
    spry_buffer page;
    spry_buffer_init(&page, PAGE_BYTES_MAX);
    spry_status status = load_all(files, paths, count, error);
    for (size_t i = 0; !status && i < count; i++)
        if (spry_path_same(path, paths[i]))
            status = spry_fail(error, SPRY_ERR_INPUT, "%s is an input file: name another file with -o", path);
    json_t *data = json_pack("{s:s, s:O}", "version", SPRY_VERSION, "files", files);
    if (!status)
        spry_report_page(&page, data);
    if (!status && page.failed)
        status = spry_fail(error, SPRY_ERR_MEMORY, "there is not enough memory for the report");
    if (!status && strcmp(path, "-") == 0)
        spry_out_write(page.data, page.size);
    else if (!status && !(status = spry_file_write(path, spry_buffer_view(&page), error)))
        spry_out_format("The report is in %s\n", path);
    spry_buffer_deinit(&page);
    json_decref(data);
    json_decref(files);
    return status;
}

int spry_cmd_report(int argc, char **argv)
{
    report_settings settings = {0};
    const spry_option_table table = {report_options, SPRY_COUNT(report_options), &settings};
    const char *paths[INPUTS_MAX];
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
