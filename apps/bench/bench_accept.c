/* `spry bench --accept`: the acceptance criteria, each with a figure of a run of `spry bench` and a bound. A run is a
 * process of its own, so that none finds what another one cached.
 *
 * A run of which a figure misses its bound is repeated twice, and the figure is the median. If it still misses while
 * other programs use the processors, the machine was too busy to judge it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "bench/bench.h"
#include "cli/interrupt.h"
#include "platform/child.h"
#include "platform/machine_state.h"
#include "platform/os.h"

enum { REPORT_BYTES_MAX = 1 << 24, ARGUMENTS_MAX = 16, PATH_PART = 32, TRIES = 3 };

static const double busy_pressure = 25; /* percent of 10 s in which tasks waited for a processor, as in `spry doctor` */

/* ---- runs -------------------------------------------------------------------------------------------------------- */

typedef enum run_name { POINTS, REUSE, MIX, DRAFT, PRECISE, WITHOUT, POLICY, INSPECT, DOCTOR, RUNS } run_name;

/* Measurements of the model; or `alone`, of the machine or of the bundled model in the sizes of another, because drafts
 * need a drafter that fits. */
static const struct {
    const char *arguments[ARGUMENTS_MAX]; /* of spry bench, if the first is an option */
    double seconds;                       /* about, with the bundled model on two cores */
    bool alone;
} runs[RUNS] = {
    [POINTS] = {{"--prefill", "512", "--decode-depth", "0", "--batch", "1"}, 12, false},
    [REUSE] = {{"--reuse"}, 15, false},
    [MIX] = {{"--mix", "chat", "--mix-scale", "0.2", "--requests", "16", "--together", "1"}, 15, false},
    [DRAFT] = {{"--widen", "qwen3-0.6b", "--draft", "Spry-Tales-Draft-4M", "--tokens", "64", "--repeat", "1"},
               120,
               true},
    [PRECISE] = {{"--widen", "qwen3-0.6b", "--draft", "Spry-Tales-Draft-4M", "--draft-mode", "precise"}, 120, true},
    [WITHOUT] = {{"--without", "all"}, 90, false},
    [POLICY] = {{"--policy"}, 10, false},
    [INSPECT] = {{"inspect"}, 1, false},
    [DOCTOR] = {{"doctor"}, 10, true},
};

static bool collect(void *user, const char *data, size_t size)
{
    spry_buffer_append(user, data, size);
    return !spry_interrupt_seen();
}

static spry_status run_child(json_t **report, run_name which, const char *model, spry_error *error)
{
    char program[SPRY_CHILD_PATH];
    const char *arguments[ARGUMENTS_MAX + 6] = {program};
    size_t n = 1;
    spry_buffer text;
    if (!spry_os_program(program, sizeof program))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "this system does not tell where the program is");
    if (runs[which].arguments[0][0] == '-')
        arguments[n++] = "bench";
    for (size_t i = 0; i < ARGUMENTS_MAX && runs[which].arguments[i]; i++)
        arguments[n++] = runs[which].arguments[i];
    arguments[n++] = "--json";
    if (model && !runs[which].alone) {
        arguments[n++] = "--";
        arguments[n++] = model;
    }
    spry_buffer_init(&text, REPORT_BYTES_MAX);
    const spry_child child = {.arguments = arguments, .is_self = true, .on_output = collect, .user = &text};
    spry_status status = spry_child_run(&child, error);
    if (!status)
        status = spry_json_object(report, spry_buffer_view(&text), error);
    spry_buffer_deinit(&text);
    return spry_interrupt_seen() ? spry_fail(error, SPRY_ERR_CANCELLED, "interrupted; nothing is reported") : status;
}

/* ---- criteria ---------------------------------------------------------------------------------------------------- */

typedef enum bound_kind { AT_LEAST, AT_MOST, REPORTED } bound_kind;

static const struct {
    const char *what;
    run_name run;
    const char *path, *by; /* where the report has the figure, such as decode.0.tps, and its divisor; NULL: none. A
                            * divisor may be the product of several, separated by spaces */
    bound_kind kind;
    double bound;
    spry_bench_unit unit;
    const char *why; /* path of the reason where there is no figure, or after '=' the reason itself; NULL: none */
} criteria[] = {
    {"Cached prefix of 1,000 tokens, share of cold", REUSE, "prefix.ratio", NULL, AT_MOST, 0.7, SPRY_BENCH_SHARE, NULL},
    {"The same after a restart", REUSE, "restart.ratio", NULL, AT_MOST, 0.7, SPRY_BENCH_SHARE, NULL},
    {"Four documents in another order, share of cold", REUSE, "fragments.ratio", NULL, AT_MOST, 0.12, SPRY_BENCH_SHARE,
     NULL},
    {"Known system prompts found", MIX, "runs.0.found_share", NULL, AT_LEAST, 0.95, SPRY_BENCH_SHARE, NULL},
    {"Decode with drafts, memory-bound target", DRAFT, "drafts.speedup", NULL, AT_LEAST, 1.25, SPRY_BENCH_TIMES,
     "drafts.why"},
    {"First token with a drafter, relative to without", DRAFT, "drafts.ttft", NULL, AT_MOST, 1.10, SPRY_BENCH_TIMES,
     NULL},
    {"Precise drafts refused, p95 of answers", PRECISE, "drafts.refused_p95", NULL, AT_MOST, 0.1, SPRY_BENCH_SHARE,
     "drafts.why"},
    {"Decode with precise drafts", PRECISE, "drafts.speedup", NULL, REPORTED, 0, SPRY_BENCH_TIMES, "drafts.why"},
    {"Decode step in attention and products", POINTS, "decode.0.ops", NULL, AT_LEAST, 0.8, SPRY_BENCH_SHARE, NULL},
    {"Tokenizer, share of the first token's time", POINTS, "ttft.parts_ms.tokenize", "ttft.cold_ms", AT_MOST, 0.01,
     SPRY_BENCH_SHARE, "why_no_ttft"},
    {"Answers together, interactive", POLICY, "policy.choices.interactive.batch", NULL, REPORTED, 0, SPRY_BENCH_COUNT,
     NULL},
    {"Answers together, offline", POLICY, "policy.choices.offline.batch", NULL, REPORTED, 0, SPRY_BENCH_COUNT, NULL},
    {"512 tokens without KV memory", WITHOUT, "without.kv.ratio", NULL, AT_LEAST, 40, SPRY_BENCH_TIMES, NULL},
    {"8 answers without batching", WITHOUT, "without.batching.ratio", NULL, AT_LEAST, 3, SPRY_BENCH_TIMES, NULL},
    {"A known prompt without the cache", WITHOUT, "without.cache.ratio", NULL, AT_LEAST, 2, SPRY_BENCH_TIMES, NULL},
    {"Attention at 512 unfused, on the CPU", WITHOUT, "without.fused-512.ratio", NULL, REPORTED, 0, SPRY_BENCH_TIMES,
     NULL},
    {"Attention at 2,048 unfused, on the CPU", WITHOUT, "without.fused-2048.ratio", NULL, REPORTED, 0, SPRY_BENCH_TIMES,
     NULL},
    {"Attention at 8,192 unfused, on the CPU", WITHOUT, "without.fused-8192.ratio", NULL, REPORTED, 0, SPRY_BENCH_TIMES,
     NULL},
    {"Time of a token with a grammar", WITHOUT, "without.grammar.with_ms", "without.grammar.without_ms", AT_MOST, 1.05,
     SPRY_BENCH_TIMES, NULL},
    {"KV bytes / (tokens x layers x heads x size)", INSPECT, "memory.kv.f16",
     "memory.context shape.layers shape.kv_heads shape.head_size", AT_MOST, 4, SPRY_BENCH_HUNDREDTHS, NULL},
    {"Smallest alignment of a tensor, bytes", INSPECT, "layout.smallest_alignment", NULL, REPORTED, 0, SPRY_BENCH_COUNT,
     NULL},
    {"Temperature, degrees", DOCTOR, "now.temperature_celsius", NULL, REPORTED, 0, SPRY_BENCH_COUNT, "=no sensor"},
    {"Energy of 100 tokens", POINTS, "decode.0.energy.joules_per_100_tokens", NULL, REPORTED, 0, SPRY_BENCH_JOULES,
     "energy.why_no_cpu"},
    {"First call of a tool", POINTS, "first_call.ms", NULL, REPORTED, 0, SPRY_BENCH_MS, "why_no_first_call"},
};

/* The value at a path; a number selects an entry of a list. */
static const json_t *at(const json_t *json, const char *path)
{
    while (json && *path) {
        char part[PATH_PART];
        size_t length = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)length, path);
        json = json_is_array(json) ? json_array_get(json, strtoul(part, NULL, 10)) : json_object_get(json, part);
        path += length + (path[length] == '.');
    }
    return json;
}

/* A number; of a list of ops the share of attention and products. False: there is none. */
static bool number_at(double *out, const json_t *report, const char *path)
{
    static const spry_op products[] = {SPRY_OP_QKV,  SPRY_OP_ATTEND, SPRY_OP_OUT,   SPRY_OP_GATE_UP,
                                       SPRY_OP_GATE, SPRY_OP_DOWN,   SPRY_OP_LOGITS};
    const json_t *value = at(report, path);
    *out = json_number_value(value);
    for (size_t i = 0; i < json_array_size(value); i++)
        for (size_t k = 0; k < SPRY_COUNT(products); k++)
            if (strcmp(spry_bench_text(json_array_get(value, i), "op"), spry_op_name(products[k])) == 0)
                *out += spry_bench_number(json_array_get(value, i), "share");
    return json_is_number(value) || json_array_size(value);
}

/* The product of the numbers at paths separated by spaces. */
static bool product_at(double *out, const json_t *report, const char *paths)
{
    *out = 1;
    for (size_t length; *paths; paths += length + (paths[length] == ' ')) {
        char path[2 * PATH_PART];
        double factor;
        length = strcspn(paths, " ");
        snprintf(path, sizeof path, "%.*s", (int)length, paths);
        if (!number_at(&factor, report, path))
            return false;
        *out *= factor;
    }
    return *out > 0;
}

/* What the tries of a run gave. */
typedef struct tries {
    json_t *reports[TRIES]; /* NULL: that try failed */
    size_t count;
    bool busy; /* others used the processors in one of them */
    char failure[SPRY_ERROR_MAX];
} tries;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the figure over all tries that have it. False: none has. */
static bool figure_of(double *out, size_t i, const tries *t)
{
    double values[TRIES], divisor = 1;
    size_t n = 0;
    for (size_t k = 0; k < t->count; k++)
        if (number_at(&values[n], t->reports[k], criteria[i].path) &&
            (!criteria[i].by || product_at(&divisor, t->reports[k], criteria[i].by)))
            values[n++] /= divisor;
    qsort(values, n, sizeof *values, by_value);
    *out = n ? values[n / 2] : 0;
    return n;
}

static bool is_good(size_t i, const tries *t)
{
    double value;
    return criteria[i].kind == REPORTED ||
           (figure_of(&value, i, t) &&
            (criteria[i].kind == AT_LEAST ? value >= criteria[i].bound : value <= criteria[i].bound));
}

static const char *verdict_of(size_t i, const tries *t, bool known)
{
    if (criteria[i].kind == REPORTED)
        return known ? "reported" : "not measured";
    if (is_good(i, t))
        return "passed";
    return !known ? "FAILED: not measured" : t->busy ? "machine too busy" : "FAILED";
}

static json_t *judge(size_t i, const tries *t, bool *passed)
{
    double value;
    const bool known = figure_of(&value, i, t);
    char bound[SPRY_BENCH_VALUE + 16] = "", shown[SPRY_BENCH_VALUE] = "-", text[SPRY_BENCH_VALUE];
    if (known)
        spry_bench_value(shown, criteria[i].unit, value);
    if (criteria[i].kind != REPORTED)
        snprintf(bound, sizeof bound, "%s %s", criteria[i].kind == AT_LEAST ? "at least" : "at most",
                 spry_bench_value(text, criteria[i].unit, criteria[i].bound));
    const json_t *report = t->count ? t->reports[0] : NULL;
    const char *why = criteria[i].why;
    const char *reason = !why || !report ? NULL : why[0] == '=' ? why + 1 : json_string_value(at(report, why));
    const char *verdict = verdict_of(i, t, known);
    *passed = *passed && is_good(i, t);
    return json_pack("{s:s, s:o, s:s, s:s, s:s, s:I, s:s?}", "what", criteria[i].what, "value",
                     known ? json_real(value) : json_null(), "shown", shown, "bound", bound, "verdict", verdict,
                     "tries", (json_int_t)t->count, "why",
                     known           ? NULL
                     : t->failure[0] ? t->failure
                                     : reason);
}

/* Repeats the run while a figure of it misses its bound. */
static void try_run(tries *t, run_name which, const char *model)
{
    bool misses = true;
    while (misses && t->count < TRIES && !spry_interrupt_seen()) {
        spry_error failure = {0};
        spry_machine_state state;
        double value;
        if (run_child(&t->reports[t->count], which, model, &failure))
            snprintf(t->failure, sizeof t->failure, "%s", failure.message);
        spry_machine_state_read(&state, "");
        t->busy = t->busy || state.cpu_pressure > busy_pressure;
        t->count++;
        misses = false;
        for (size_t i = 0; i < SPRY_COUNT(criteria); i++)
            misses = misses || (criteria[i].run == which && figure_of(&value, i, t) && !is_good(i, t));
        if (!t->reports[t->count - 1])
            return; /* another try would fail as well */
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void print(const json_t *rows)
{
    static const spry_bench_column columns[] = {{"Criterion", -47, "what", SPRY_BENCH_TEXT, NULL},
                                                {"figure", 12, "shown", SPRY_BENCH_TEXT, NULL},
                                                {"bound", 16, "bound", SPRY_BENCH_TEXT, NULL},
                                                {"  verdict", 0, "verdict", SPRY_BENCH_TEXT, NULL}};
    spry_bench_table(columns, SPRY_COUNT(columns), rows, NULL, "");
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (spry_bench_text(json_array_get(rows, i), "why")[0])
            spry_out_quote("%s: %s\n", spry_bench_text(json_array_get(rows, i), "what"),
                           spry_bench_text(json_array_get(rows, i), "why"));
}

spry_status spry_bench_accept(bool *passed, const char *model, bool json, spry_error *error)
{
    char doing[64];
    tries *all_tries = calloc(RUNS, sizeof *all_tries);
    json_t *rows = json_array();
    double all = 0;
    spry_progress_line line;
    spry_status status =
        all_tries && rows ? SPRY_OK : spry_fail_memory(error, "the criteria", RUNS * sizeof *all_tries);
    for (size_t i = 0; i < RUNS; i++)
        all += runs[i].seconds;
    snprintf(doing, sizeof doing, "%d runs, about %.0f minutes:", RUNS, all / 60 + 0.5);
    spry_progress_begin(&line, doing);
    for (run_name i = 0; !status && i < RUNS; i++) {
        spry_progress_update(&line, i, RUNS);
        try_run(&all_tries[i], i, model);
        if (spry_interrupt_seen())
            status = spry_fail(error, SPRY_ERR_CANCELLED, "interrupted; nothing is reported");
    }
    spry_progress_end(&line);
    *passed = true;
    for (size_t i = 0; !status && i < SPRY_COUNT(criteria); i++)
        json_array_append_new(rows, judge(i, &all_tries[criteria[i].run], passed));
    if (!status && json) {
        json_t *object = json_pack("{s:s, s:b, s:O}", "format", "spry-accept-1", "passed", *passed, "criteria", rows);
        status = spry_out_json(object, JSON_REAL_PRECISION(6), "the verdicts", error);
        json_decref(object);
    } else if (!status) {
        print(rows);
    }
    for (size_t i = 0; all_tries && i < RUNS; i++)
        for (size_t k = 0; k < TRIES; k++)
            json_decref(all_tries[i].reports[k]);
    free(all_tries);
    json_decref(rows);
    return status;
}
