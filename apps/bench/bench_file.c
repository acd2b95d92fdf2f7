/* Reads reports from files, which may have been edited: tables define the type of every key that is used later. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "base/json.h"
#include "bench/bench_gate.h"
#include "platform/file.h"
#include "spry_tools.h"

enum { WHERE_MAX = 96, FIGURES_MAX = 1000 };

/* ---- checking ---------------------------------------------------------------------------------------------------- */

/* The type of a key. Numbers have limits: implausible values are refused. */
typedef enum value_kind {
    TEXT,
    TEXT_OR_NOTHING, /* a string, null or missing */
    WHOLE,
    TOKENS, /* number of tokens of a prefill */
    DEPTH,
    BATCH,
    ABOVE_ZERO,
    ZERO_TO_ONE,
    ZERO_AND_MORE,
    NUMBERS,
    OBJECT,
    OBJECT_OR_NOTHING,
    LIST,
    LIST_OR_NOTHING,
} value_kind;

#define SMALLEST 1e-12

static const struct {
    const char *words;
    double least, most;
    bool whole, zero; /* zero: 0 is allowed too */
} kinds[] = {
    [TEXT] = {.words = "a string"},
    [TEXT_OR_NOTHING] = {.words = "a string"},
    [WHOLE] = {"a whole number", 1, UINT32_MAX, .whole = true},
    [TOKENS] = {"a whole number", 1, SPRY_BENCH_TOKENS_MAX, .whole = true},
    [DEPTH] = {"a whole number", 0, SPRY_BENCH_TOKENS_MAX, .whole = true},
    [BATCH] = {"a whole number", 1, SPRY_STEPS_MAX, .whole = true},
    [ABOVE_ZERO] = {.words = "a number", .least = SMALLEST, .most = SPRY_BENCH_LARGEST},
    [ZERO_TO_ONE] = {"a number", SMALLEST, 1 + 1e-6, .zero = true}, /* rounded sums */
    [ZERO_AND_MORE] = {"a number", SMALLEST, SPRY_BENCH_LARGEST, .zero = true},
    [OBJECT] = {.words = "an object"},
    [OBJECT_OR_NOTHING] = {.words = "an object"},
    [LIST] = {.words = "a list"},
    [LIST_OR_NOTHING] = {.words = "a list"},
};

typedef struct rule {
    const char *key; /* NULL: the end */
    value_kind kind;
    const struct rule *inside; /* the rules for an object's keys, or for the keys of every entry of a list */
} rule;

static const rule energy_rules[] = {
    {"joules", ZERO_AND_MORE, NULL}, {"joules_per_100_tokens", ABOVE_ZERO, NULL}, {"watts", ABOVE_ZERO, NULL}, {0}};
static const rule op_rules[] = {{"op", TEXT, NULL},
                                {"kernel", TEXT, NULL},
                                {"ms", ZERO_AND_MORE, NULL},
                                {"share", ZERO_TO_ONE, NULL},
                                {"gb_s", ZERO_AND_MORE, NULL},
                                {"multiply_g_s", ZERO_AND_MORE, NULL},
                                {0}};
static const rule prefill_rules[] = {{"tokens", TOKENS, NULL},
                                     {"tps", ABOVE_ZERO, NULL},
                                     {"ops", LIST_OR_NOTHING, op_rules},
                                     {"energy", OBJECT_OR_NOTHING, energy_rules},
                                     {0}};
static const rule decode_rules[] = {{"depth", DEPTH, NULL},
                                    {"batch", BATCH, NULL},
                                    {"tps", ABOVE_ZERO, NULL},
                                    {"p95_ms", ABOVE_ZERO, NULL},
                                    {"ops", LIST_OR_NOTHING, op_rules},
                                    {"energy", OBJECT_OR_NOTHING, energy_rules},
                                    {0}};
static const rule ttft_rules[] = {
    {"prompt_tokens", WHOLE, NULL}, {"cold_ms", ABOVE_ZERO, NULL}, {"warm_ms", ABOVE_ZERO, NULL}, {0}};
static const rule call_rules[] = {{"ms", ABOVE_ZERO, NULL}, {"tokens", WHOLE, NULL}, {0}};
static const rule measured_rules[] = {{"whole", ABOVE_ZERO, NULL}, {0}};
static const rule memory_rules[] = {{"measured", OBJECT, measured_rules}, {0}};
static const rule points_rules[] = {{"peak_rss_bytes", ABOVE_ZERO, NULL},
                                    {"peak_rss_batch_bytes", ABOVE_ZERO, NULL},
                                    {"prefill", LIST, prefill_rules},
                                    {"decode", LIST, decode_rules},
                                    {"ttft", OBJECT_OR_NOTHING, ttft_rules},
                                    {"first_call", OBJECT_OR_NOTHING, call_rules},
                                    {"memory", OBJECT_OR_NOTHING, memory_rules},
                                    {0}};
static const rule figure_rules[] = {
    {"what", TEXT, NULL}, {"unit", TEXT, NULL}, {"better", TEXT, NULL}, {"value", ZERO_AND_MORE, NULL}, {0}};
static const rule figures_rules[] = {{"figures", LIST, figure_rules}, {0}};

/* Keys that every kind of report has. */
static const rule machine_rules[] = {
    {"cpu", TEXT, NULL}, {"kernels", TEXT, NULL}, {"id", TEXT, NULL}, {"threads", WHOLE, NULL}, {0}};
static const rule settings_rules[] = {{"chunk", WHOLE, NULL},
                                      {"tokens", WHOLE, NULL},
                                      {"repeat", WHOLE, NULL},
                                      {"kv_type", TEXT, NULL},
                                      {"quantize", TEXT_OR_NOTHING, NULL},
                                      {0}};
static const rule head_rules[] = {{"model", TEXT, NULL},
                                  {"model_id", TEXT, NULL},
                                  {"machine", OBJECT, machine_rules},
                                  {"settings", OBJECT, settings_rules},
                                  {0}};

static bool has_type(const json_t *value, value_kind kind)
{
    const double number = json_number_value(value);
    return kind <= TEXT_OR_NOTHING ? json_is_string(value)
           : kind < NUMBERS        ? json_is_number(value) && (!kinds[kind].whole || number == floor(number))
           : kind == LIST || kind == LIST_OR_NOTHING ? json_is_array(value)
                                                     : json_is_object(value);
}

static spry_status check_keys(const json_t *object, const char *where, const rule *rules, spry_error *error);

static spry_status check_entries(const json_t *list, const char *where, const rule *r, spry_error *error)
{
    const size_t most = r->inside == figure_rules ? FIGURES_MAX : SPRY_BENCH_POINTS_MAX;
    spry_status status = SPRY_OK;
    if (json_array_size(list) > most)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s%s has %zu entries, more than %zu", where, r->key,
                         json_array_size(list), most);
    for (size_t i = 0; !status && i < json_array_size(list); i++) {
        char inside[WHERE_MAX];
        snprintf(inside, sizeof inside, "%s%s[%zu].", where, r->key, i);
        status = check_keys(json_array_get(list, i), inside, r->inside, error);
    }
    return status;
}

static spry_status check_value(const json_t *value, const char *where, const rule *r, spry_error *error)
{
    char inside[WHERE_MAX];
    double number = json_number_value(value);
    bool optional = r->kind == TEXT_OR_NOTHING || r->kind == OBJECT_OR_NOTHING;
    if ((!value && (optional || r->kind == LIST_OR_NOTHING)) || (json_is_null(value) && optional))
        return SPRY_OK;
    if (!value)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s%s is missing", where, r->key);
    if (!has_type(value, r->kind))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s%s is not %s", where, r->key, kinds[r->kind].words);
    if (json_is_array(value))
        return check_entries(value, where, r, error);
    snprintf(inside, sizeof inside, "%s%s.", where, r->key);
    if (json_is_object(value))
        return check_keys(value, inside, r->inside, error);
    if (json_is_string(value) || (kinds[r->kind].zero && number == 0))
        return SPRY_OK;
    if (number < kinds[r->kind].least || number > kinds[r->kind].most)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s%s is %g, which cannot have been measured", where, r->key, number);
    return SPRY_OK;
}

static spry_status check_keys(const json_t *object, const char *where, const rule *rules, spry_error *error)
{
    spry_status status = SPRY_OK;
    for (const rule *r = rules; !status && r->key; r++)
        status = check_value(json_object_get(object, r->key), where, r, error);
    return status;
}

/* Figures have a known unit, and no name twice. */
static spry_status check_figures(const json_t *figures, spry_error *error)
{
    for (size_t i = 0; i < json_array_size(figures); i++) {
        const json_t *figure = json_array_get(figures, i);
        const char *what = spry_bench_text(figure, "what"), *better = spry_bench_text(figure, "better");
        if (spry_bench_unit_of(spry_bench_text(figure, "unit")) == SPRY_BENCH_FIGURE_UNITS)
            return spry_fail(error, SPRY_ERR_FORMAT, "figures[%zu].unit is not a known unit", i);
        if (strcmp(better, "less") != 0 && strcmp(better, "more") != 0)
            return spry_fail(error, SPRY_ERR_FORMAT, "figures[%zu].better is neither \"less\" nor \"more\"", i);
        for (size_t k = 0; k < i; k++)
            if (strcmp(spry_bench_text(json_array_get(figures, k), "what"), what) == 0)
                return spry_fail(error, SPRY_ERR_FORMAT, "figures[%zu] and figures[%zu] have the same name", k, i);
    }
    return SPRY_OK;
}

/* Files of every kind of measurement are read alike. */
static spry_status check_format(bool *of_points, const json_t *report, spry_error *error)
{
    static const char *const known[] = {SPRY_BENCH_FORMAT, SPRY_DRAFT_FORMAT,   SPRY_REUSE_FORMAT,
                                        SPRY_CHUNK_FORMAT, SPRY_WITHOUT_FORMAT, SPRY_MIX_REPORT_FORMAT,
                                        SPRY_AGENT_FORMAT, SPRY_IMAGE_FORMAT};
    const char *format = json_string_value(json_object_get(report, "format"));
    if (!format)
        return spry_fail(error, SPRY_ERR_FORMAT, "it is not a report of spry bench: \"format\" is missing");
    *of_points = strcmp(format, SPRY_BENCH_FORMAT) == 0;
    for (size_t i = 0; i < SPRY_COUNT(known); i++)
        if (strcmp(format, known[i]) == 0)
            return SPRY_OK;
    return spry_fail(error, SPRY_ERR_FORMAT, "its format is '%.40s', not '%s'", format, SPRY_BENCH_FORMAT);
}

spry_status spry_bench_report_check(const json_t *report, spry_error *error)
{
    bool of_points = false;
    spry_status status = check_format(&of_points, report, error);
    if (!status && !of_points && !json_object_get(report, "figures"))
        return spry_fail(error, SPRY_ERR_FORMAT, "it has no figures: an earlier version of spry saved it");
    if (!status)
        status = check_keys(report, "", head_rules, error);
    if (!status)
        status = check_keys(report, "", of_points ? points_rules : figures_rules, error);
    return status || of_points ? status : check_figures(json_object_get(report, "figures"), error);
}

/* ---- reading and writing ----------------------------------------------------------------------------------------- */

spry_status spry_bench_file_open(json_t **out, const char *path, spry_bench_file_check check, spry_error *error)
{
    spry_buffer text;
    *out = NULL;
    spry_buffer_init(&text, SPRY_BENCH_FILE_MAX);
    spry_status status = spry_file_read(&text, path, error);
    bool opened = !status;
    if (!status)
        status = spry_json_object(out, spry_buffer_view(&text), error);
    if (!status)
        status = check(*out, error);
    spry_buffer_deinit(&text);
    if (!status)
        return SPRY_OK;
    json_decref(*out);
    *out = NULL;
    return opened ? spry_fail_prefix(error, status, path) : status;
}

spry_status spry_bench_file_read(json_t **out, const char *path, spry_error *error)
{
    return spry_bench_file_open(out, path, spry_bench_report_check, error);
}

void spry_bench_file_lists(spry_bench_list *prefill, spry_bench_list *depth, spry_bench_list *batch,
                           const json_t *report)
{
    const json_t *prefills = json_object_get(report, "prefill"), *decodes = json_object_get(report, "decode");
    for (size_t i = 0; i < json_array_size(prefills); i++)
        spry_bench_list_add(prefill, (uint32_t)spry_bench_number(json_array_get(prefills, i), "tokens"));
    for (size_t i = 0; i < json_array_size(decodes); i++) {
        spry_bench_list_add(depth, (uint32_t)spry_bench_number(json_array_get(decodes, i), "depth"));
        spry_bench_list_add(batch, (uint32_t)spry_bench_number(json_array_get(decodes, i), "batch"));
    }
}

/* ---- whether two are comparable ---------------------------------------------------------------------------------- */

/* Appends how a value differs: a text, or a number; a missing one counts as "" or 0. */
static void note(spry_buffer *out, const char *what, const char *path, const json_t *there, const json_t *here)
{
    const json_t *a = spry_bench_at(there, path), *b = spry_bench_at(here, path);
    const char *comma = out->size ? ", " : "";
    if (json_is_number(a) || json_is_number(b)) {
        if (json_number_value(a) != json_number_value(b))
            spry_buffer_format(out, "%s%s is %.10g there and %.10g here", comma, what, json_number_value(a),
                               json_number_value(b));
    } else if (strcmp(spry_bench_text(there, path), spry_bench_text(here, path)) != 0) {
        spry_buffer_format(out, "%s%s is '%s' there and '%s' here", comma, what, spry_bench_text(there, path),
                           spry_bench_text(here, path));
    }
}

bool spry_bench_differs(char out[SPRY_BENCH_DIFFERENCES], const json_t *there, const json_t *here)
{
    static const char *const settings[][2] = {{"quantize", "settings.quantize"},
                                              {"chunk", "settings.chunk"},
                                              {"kv-type", "settings.kv_type"},
                                              {"tokens", "settings.tokens"},
                                              {"the drafter", "draft"},
                                              {"the mix", "mix"},
                                              {"requests", "requests"},
                                              {"together", "together"},
                                              {"mix-scale", "scale"},
                                              {"seed", "seed"}};
    spry_buffer all;
    spry_buffer_init(&all, 1 << 12);
    note(&all, "what was measured", "format", there, here);
    note(&all, "the processor", "machine.cpu", there, here);
    note(&all, "threads", "machine.threads", there, here);
    note(&all, "the kernel set", "machine.kernels", there, here);
    if (!all.size) /* it consists of these and the memory */
        note(&all, "the machine's id, with its memory,", "machine.id", there, here);
    if (strcmp(spry_bench_text(there, "model_id"), spry_bench_text(here, "model_id")) != 0) {
        bool same_name = strcmp(spry_bench_text(there, "model"), spry_bench_text(here, "model")) == 0;
        note(&all, same_name ? "the model's id" : "the model", same_name ? "model_id" : "model", there, here);
    }
    for (size_t i = 0; i < SPRY_COUNT(settings); i++)
        note(&all, settings[i][0], settings[i][1], there, here);
    snprintf(out, SPRY_BENCH_DIFFERENCES, "%s", spry_buffer_view(&all).data);
    spry_buffer_deinit(&all);
    return out[0] != '\0';
}

spry_status spry_bench_check_same(const json_t *there, const char *file, const json_t *here, spry_error *error)
{
    char differences[SPRY_BENCH_DIFFERENCES];
    if (!spry_bench_differs(differences, there, here))
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_INPUT, "%s: not comparable, because %s; use --force to compare anyway", file,
                     differences);
}
