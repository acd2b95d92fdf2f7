/* A report as a flat list of named figures. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench_gate.h"
#include "cli/terminal.h"

static double get(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void add(spry_bench_figures *figures, const spry_bench_figure *figure)
{
    if (figures->count == figures->capacity) {
        size_t capacity = figures->capacity ? 2 * figures->capacity : 64;
        spry_bench_figure *list = realloc(figures->list, capacity * sizeof *list);
        if (!list) {
            figures->failed = true;
            return;
        }
        figures->list = list;
        figures->capacity = capacity;
    }
    if (figure->value > 0 || figure->may_be_zero)
        figures->list[figures->count++] = *figure;
}

/* ---- ops -----------------------------------------------------------------------------------------------------------
 */

/* The op classes with kernels for the machine: the rest is bookkeeping. */
static const spry_op kernels[] = {SPRY_OP_QKV,     SPRY_OP_ATTEND, SPRY_OP_OUT,
                                  SPRY_OP_GATE_UP, SPRY_OP_DOWN,   SPRY_OP_LOGITS};

/* An op class of a point, over all matrix types. */
typedef struct op_class {
    double ms, share, work; /* work: gigabytes, or billions of products, times 1000 */
} op_class;

static op_class sum_class(const json_t *ops, const char *name, const char *speed)
{
    op_class sum = {0};
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const json_t *op = json_array_get(ops, i);
        if (strcmp(json_string_value(json_object_get(op, "op")), name) != 0)
            continue;
        sum.ms += get(op, "ms");
        sum.share += get(op, "share");
        sum.work += get(op, "ms") * get(op, speed);
    }
    return sum;
}

static void add_ops(spry_bench_figures *figures, const json_t *point, const char *name, bool decode)
{
    const json_t *ops = json_object_get(point, "ops");
    double resident = 0;
    for (size_t i = 0; i < SPRY_COUNT(kernels); i++)
        resident += sum_class(ops, spry_op_name(kernels[i]), "gb_s").share;
    const spry_bench_of of = decode ? SPRY_BENCH_OF_DECODE : SPRY_BENCH_OF_PREFILL;
    spry_bench_figure figure = {.unit = SPRY_BENCH_SHARE, .of = of, .op_share = 1, .value = resident};
    snprintf(figure.what, sizeof figure.what, "%.40s, time in kernels", name);
    add(figures, &figure);
    for (size_t i = 0; i < SPRY_COUNT(kernels); i++) {
        op_class sum = sum_class(ops, spry_op_name(kernels[i]), decode ? "gb_s" : "multiply_g_s");
        figure = (spry_bench_figure){.unit = decode ? SPRY_BENCH_GB_S : SPRY_BENCH_G_S,
                                     .of = of,
                                     .op_share = sum.share,
                                     .value = sum.ms > 0 ? sum.work / sum.ms : 0};
        snprintf(figure.what, sizeof figure.what, "%.40s, %.16s", name, spry_op_name(kernels[i]));
        add(figures, &figure);
    }
}

/* ---- all of it -----------------------------------------------------------------------------------------------------
 */

static void add_point(spry_bench_figures *figures, const json_t *point, bool decode)
{
    spry_bench_figure figure = {.unit = SPRY_BENCH_TPS,
                                .of = decode ? SPRY_BENCH_OF_DECODE : SPRY_BENCH_OF_PREFILL,
                                .of_point = true,
                                .op_share = 1,
                                .value = get(point, "tps")};
    if (decode)
        snprintf(figure.what, sizeof figure.what, "decode %.0f x %.0f", get(point, "depth"), get(point, "batch"));
    else
        snprintf(figure.what, sizeof figure.what, "prefill %.0f", get(point, "tokens"));
    if (spry_bench_figures_find(figures, figure.what))
        return; /* measured twice */
    add(figures, &figure);
    char name[64];
    memcpy(name, figure.what, sizeof name);
    if (decode) {
        figure = (spry_bench_figure){.unit = SPRY_BENCH_MS,
                                     .less_is_better = true,
                                     .of = SPRY_BENCH_OF_DECODE,
                                     .op_share = 1,
                                     .value = get(point, "p95_ms")};
        snprintf(figure.what, sizeof figure.what, "%.40s, p95 of steps", name);
        add(figures, &figure);
    }
    add_ops(figures, point, name, decode);
}

static void add_points(spry_bench_figures *figures, const json_t *points, bool decode)
{
    for (size_t i = 0; i < json_array_size(points); i++)
        add_point(figures, json_array_get(points, i), decode);
}

/* Of a report of --draft. */
static void add_drafts(spry_bench_figures *figures, const json_t *drafts)
{
    const struct {
        const char *key;
        spry_bench_figure figure;
    } list[] = {{"acceptance", {.what = "drafts accepted", .unit = SPRY_BENCH_SHARE, .less_is_better = false}},
                {"refused_p50", {.what = "drafts refused, p50", .unit = SPRY_BENCH_SHARE, .less_is_better = true}},
                {"refused_p95", {.what = "drafts refused, p95", .unit = SPRY_BENCH_SHARE, .less_is_better = true}},
                {"prefill_ms", {.what = "drafter's prefill", .unit = SPRY_BENCH_MS, .less_is_better = true}},
                {"speedup", {.what = "decode with drafts", .unit = SPRY_BENCH_TIMES, .less_is_better = false}}};
    for (size_t i = 0; i < SPRY_COUNT(list); i++) {
        const json_t *value = json_object_get(drafts, list[i].key);
        spry_bench_figure figure = list[i].figure;
        figure.op_share = 1;
        figure.value = json_number_value(value);
        figure.may_be_zero = json_is_number(value);
        add(figures, &figure);
    }
}

void spry_bench_figures_init(spry_bench_figures *figures, const json_t *report)
{
    const json_t *ttft = json_object_get(report, "ttft"), *call = json_object_get(report, "first_call");
    const json_t *measured = json_object_get(json_object_get(report, "memory"), "measured");
    const double prompt = get(ttft, "prompt_tokens");
    const spry_bench_figure whole[] = {
        {"first token, cold", SPRY_BENCH_MS, true, .prompt = prompt, .value = get(ttft, "cold_ms")},
        {"first token, warm", SPRY_BENCH_MS, true, .prompt = prompt, .value = get(ttft, "warm_ms")},
        {"first call", SPRY_BENCH_MS, true, .value = get(call, "ms")},
        {"first call, tokens", SPRY_BENCH_TOKENS, true, .value = get(call, "tokens")},
        {"memory", SPRY_BENCH_BYTES, true, .of_points = true, .value = get(measured, "whole")},
        {"memory, one sequence", SPRY_BENCH_BYTES, true, .of_points = true, .value = get(report, "peak_rss_bytes")},
        {"memory, peak", SPRY_BENCH_BYTES, true, .of_points = true, .value = get(report, "peak_rss_batch_bytes")},
    };
    *figures = (spry_bench_figures){0};
    for (size_t i = 0; i < SPRY_COUNT(whole); i++) {
        spry_bench_figure figure = whole[i];
        figure.op_share = 1;
        add(figures, &figure);
    }
    add_drafts(figures, json_object_get(report, "drafts"));
    add_points(figures, json_object_get(report, "prefill"), false);
    add_points(figures, json_object_get(report, "decode"), true);
}

void spry_bench_figures_deinit(spry_bench_figures *figures)
{
    free(figures->list);
    *figures = (spry_bench_figures){0};
}

const spry_bench_figure *spry_bench_figures_find(const spry_bench_figures *figures, const char *what)
{
    for (size_t i = 0; i < figures->count; i++)
        if (strcmp(figures->list[i].what, what) == 0)
            return &figures->list[i];
    return NULL;
}

const char *spry_bench_value(char out[SPRY_BENCH_VALUE], spry_bench_unit unit, double value)
{
    static const char *const formats[] = {
        [SPRY_BENCH_TPS] = "%.1f tok/s", [SPRY_BENCH_MS] = "%.4g ms",         [SPRY_BENCH_BYTES] = "%.1f MB",
        [SPRY_BENCH_SHARE] = "%.1f %%",  [SPRY_BENCH_GB_S] = "%.3g GB/s",     [SPRY_BENCH_G_S] = "%.3g G/s",
        [SPRY_BENCH_JOULES] = "%.3g J",  [SPRY_BENCH_TOKENS] = "%.0f tokens", [SPRY_BENCH_TIMES] = "%.2fx",
    };
    static const double scales[] = {[SPRY_BENCH_TPS] = 1,     [SPRY_BENCH_MS] = 1,     [SPRY_BENCH_BYTES] = 1e-6,
                                    [SPRY_BENCH_SHARE] = 100, [SPRY_BENCH_GB_S] = 1,   [SPRY_BENCH_G_S] = 1,
                                    [SPRY_BENCH_JOULES] = 1,  [SPRY_BENCH_TOKENS] = 1, [SPRY_BENCH_TIMES] = 1};
    snprintf(out, SPRY_BENCH_VALUE, formats[unit], value * scales[unit]);
    return out;
}
