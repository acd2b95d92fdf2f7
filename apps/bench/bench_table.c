/* Tables of JSON rows, and the report of points as text in 100 columns. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"

enum { TOP_OPS = 7, COLUMNS = 100, INDENT = 26, BAR = 32 };

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static double largest(const json_t *rows, const char *key)
{
    double most = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        double value = spry_bench_number(json_array_get(rows, i), key);
        most = value > most ? value : most;
    }
    return most;
}

/* The text of a cell; `out` holds what is formatted here. */
static const char *cell_text(char out[BAR + 1], const spry_bench_column *c, const json_t *row, double most)
{
    const json_t *value = c->key ? spry_bench_at(row, c->key) : NULL;
    if (!c->key)
        return "";
    if (c->unit == SPRY_BENCH_TEXT && json_is_string(value))
        return json_string_value(value);
    if (!json_is_number(value) || (c->unit == SPRY_BENCH_NOT_ZERO && json_number_value(value) == 0))
        return c->none ? c->none : "-";
    if (c->unit == SPRY_BENCH_BAR) {
        size_t length = (size_t)(spry_bench_ratio(json_number_value(value), most) * BAR + 0.5);
        memset(out, '#', length < BAR ? length : BAR);
        out[length < BAR ? length : BAR] = '\0';
        return out;
    }
    spry_bench_unit unit = c->unit == SPRY_BENCH_OF_ROW ? spry_bench_unit_of(spry_bench_text(row, "unit")) : c->unit;
    return spry_bench_value(out, unit < SPRY_BENCH_TEXT ? unit : SPRY_BENCH_COUNT, json_number_value(value));
}

static void print_cell(const spry_bench_column *c, bool first, const char *text)
{
    const char *gap = first || (!c->width && !text[0]) ? "" : c->width ? " " : "  ";
    if (c->width < 0)
        spry_out_quote("%s%-*s", gap, -c->width, text);
    else
        spry_out_quote("%s%*s", gap, c->width, text);
}

static void print_row(const spry_bench_column *columns, size_t count, const json_t *row, const json_t *rows)
{
    static const char *const bad[] = {"dropped", "missing", "missed", "not measured"};
    const char *why = json_string_value(json_object_get(row, "why"));
    bool is_bad = false;
    for (size_t i = 0; i < SPRY_COUNT(bad); i++)
        is_bad = is_bad || strcmp(spry_bench_text(row, "verdict"), bad[i]) == 0;
    spry_out_format("%s", is_bad ? spry_style_begin(stdout, SPRY_STYLE_ERROR) : "");
    for (size_t i = 0; i < count; i++) {
        const spry_bench_column *c = &columns[i];
        char text[BAR + 1];
        if (why && c->key && !spry_bench_at(row, c->key)) {
            spry_out_quote("    skipped: %s", why);
            break;
        }
        print_cell(c, !i, cell_text(text, c, row, c->unit == SPRY_BENCH_BAR ? largest(rows, c->key) : 0));
    }
    spry_out_format("%s\n", is_bad ? spry_style_end(stdout) : "");
}

void spry_bench_table(const spry_bench_column *columns, size_t count, const json_t *rows, const json_t *skipped,
                      const char *after)
{
    if (!json_array_size(rows) && !json_array_size(skipped))
        return;
    spry_out_format("\n%s", spry_style_begin(stdout, SPRY_STYLE_BOLD));
    for (size_t i = 0; i < count; i++)
        print_cell(&columns[i], !i, columns[i].head);
    spry_out_format("%s%s\n", spry_style_end(stdout), after);
    for (size_t i = 0; i < json_array_size(rows); i++)
        print_row(columns, count, json_array_get(rows, i), rows);
    for (size_t i = 0; i < json_array_size(skipped); i++)
        print_row(columns, count, json_array_get(skipped, i), rows);
}

void spry_bench_print_bold(const char *text)
{
    spry_out_format("%s", spry_style_begin(stdout, SPRY_STYLE_BOLD));
    spry_out_quote("%s", text);
    spry_out_format("%s", spry_style_end(stdout));
}

void spry_bench_print_figure(const char *what, const char *value, const char *format, ...)
{
    char text[512];
    size_t room = COLUMNS - INDENT;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    spry_out_format("%-12s %10s   ", what, value);
    const char *at = text;
    while (strlen(at) > room) {
        size_t cut = room;
        while (cut && at[cut] != ' ')
            cut--;
        cut = cut ? cut : room;
        spry_out_quote("%.*s\n%*s", (int)cut, at, INDENT, "");
        at += cut + (at[cut] == ' ');
    }
    spry_out_quote("%s\n", at);
}

/* ---- the report of points: where the time goes ------------------------------------------------------------------- */

/* The largest prefill, or the decode of one sequence at the smallest depth (of several if there is none of one). */
static const json_t *typical(const json_t *report, bool decode)
{
    const json_t *points = json_object_get(report, decode ? "decode" : "prefill"), *best = NULL;
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *p = json_array_get(points, i);
        double batch = spry_bench_number(p, "batch") - spry_bench_number(best, "batch");
        double depth = spry_bench_number(p, "depth") - spry_bench_number(best, "depth");
        double tokens = spry_bench_number(p, "tokens") - spry_bench_number(best, "tokens");
        if (!best || (decode ? batch < 0 || (batch <= 0 && depth < 0) : tokens > 0))
            best = p;
    }
    return best;
}

static double tokens_of(const json_t *point)
{
    return spry_bench_number(point, "tokens") + spry_bench_number(point, "depth");
}

static void print_ops(const json_t *point, const char *what)
{
    const json_t *ops = json_object_get(point, "ops");
    double rest = 1;
    char text[48];
    int column = snprintf(text, sizeof text, "%-8s %6.0f  ", what, tokens_of(point));
    if (!json_array_size(ops))
        return;
    spry_out_format("%s", text);
    for (size_t i = 0; i < json_array_size(ops) && i < TOP_OPS; i++) {
        const json_t *op = json_array_get(ops, i);
        int length = snprintf(text, sizeof text, "%s%.20s %.0f %%", i ? ", " : "", spry_bench_text(op, "op"),
                              100 * spry_bench_number(op, "share"));
        if (column + length > COLUMNS - (int)sizeof ", the rest 99 %")
            break;
        column += length;
        rest -= spry_bench_number(op, "share");
        spry_out_format("%s", text);
    }
    spry_out_format(", the rest %.0f %%\n", 100 * (rest > 0 ? rest : 0));
}

/* Shares that add up to 1 as whole percents that add up to 100: those that lose most by it are rounded up. */
static void whole_percents(int percent[SPRY_BENCH_PLACES], const double shares[SPRY_BENCH_PLACES])
{
    double lost[SPRY_BENCH_PLACES];
    int left = 100;
    for (size_t i = 0; i < SPRY_BENCH_PLACES; i++) {
        percent[i] = (int)(100 * shares[i]);
        lost[i] = 100 * shares[i] - percent[i];
        left -= percent[i];
    }
    for (; left > 0; left--) {
        size_t most = 0;
        for (size_t i = 1; i < SPRY_BENCH_PLACES; i++)
            most = lost[i] > lost[most] ? i : most;
        percent[most]++;
        lost[most] = 0;
    }
}

/* Which ops of a point the CPU computed, and why. */
static void print_on_cpu(const json_t *report, const json_t *point)
{
    const json_t *ops = json_object_get(point, "ops");
    const char *why = spry_bench_text(report, "why_cpu");
    double places[SPRY_BENCH_PLACES];
    char names[256] = "";
    size_t length = 0;
    if (!why[0] || !point)
        return;
    const bool gpu = spry_bench_places(places, point);
    for (size_t i = 0; gpu && i < json_array_size(ops); i++) {
        const json_t *op = json_array_get(ops, i);
        if (strcmp(spry_bench_text(op, "device"), "cpu") != 0 || length >= sizeof names)
            continue;
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%.16s %.1f %%", length ? ", " : "",
                                   spry_bench_text(op, "op"), 100 * spry_bench_number(op, "share"));
    }
    spry_bench_print_figure("On the CPU", "-", "%s: %s", gpu ? names : "all ops", why);
}

/* The share of time in the kernels of op classes, on the device of the engine. */
static void print_residency(const json_t *point, const char *what)
{
    static const struct {
        const char *name;
        spry_op ops[3];
        size_t count;
    } classes[] = {{"attention", {SPRY_OP_QKV, SPRY_OP_ATTEND, SPRY_OP_OUT}, 3},
                   {"feed-forward", {SPRY_OP_GATE_UP, SPRY_OP_DOWN}, 2},
                   {"output", {SPRY_OP_LOGITS}, 1}};
    const json_t *ops = json_object_get(point, "ops");
    double shares[SPRY_COUNT(classes)] = {0}, all = 0;
    if (!json_array_size(ops))
        return;
    for (size_t i = 0; i < json_array_size(ops); i++)
        for (size_t k = 0; k < SPRY_COUNT(classes); k++)
            for (size_t n = 0; n < classes[k].count; n++) {
                const json_t *op = json_array_get(ops, i);
                bool is = strcmp(spry_bench_text(op, "op"), spry_op_name(classes[k].ops[n])) == 0;
                shares[k] += is ? spry_bench_number(op, "share") : 0;
                all += is ? spry_bench_number(op, "share") : 0;
            }
    spry_out_format("%-8s %6.0f  %.0f %% in kernels: ", what, tokens_of(point), 100 * all);
    for (size_t k = 0; k < SPRY_COUNT(classes); k++)
        spry_out_format("%s%s %.0f %%", k ? ", " : "", classes[k].name, 100 * shares[k]);
    double places[SPRY_BENCH_PLACES];
    int percent[SPRY_BENCH_PLACES];
    spry_bench_places(places, point);
    whole_percents(percent, places);
    spry_out_format("\n%-15s  GPU %d %%, CPU %d %%, host %d %%, copies %d %%\n", "", percent[SPRY_BENCH_ON_GPU],
                    percent[SPRY_BENCH_ON_CPU], percent[SPRY_BENCH_ON_HOST], percent[SPRY_BENCH_ON_THE_WAY]);
}

/* How a device that is not the host is used. */
static void print_device_use(const json_t *point, const char *what)
{
    const json_t *waits = json_object_get(point, "waits_per_token"), *busy = json_object_get(point, "gpu_busy_percent");
    if (!waits)
        return;
    spry_out_format("%-8s %6.0f  the host waits %.3g times a token", what, tokens_of(point), json_number_value(waits));
    if (json_is_number(busy))
        spry_out_format(", the GPU is busy %.0f %% of the time (NVML)", json_number_value(busy));
    spry_out_format("\n");
}

static void print_times_of_ops(const json_t *r)
{
    const json_t *prefill = typical(r, false), *decode = typical(r, true), *answer = json_object_get(r, "answer");
    static const char *const headings[] = {"\nTime of ops", "\nResidency", "\nDevice"};
    void (*const parts[])(const json_t *, const char *) = {print_ops, print_residency, print_device_use};
    const json_t *any = prefill ? prefill : decode;
    size_t count = json_object_get(any, "waits_per_token") ? 3 : any ? 2 : 0;
    for (size_t i = 0; i < count; i++) {
        spry_out_format("%s%s%s\n", spry_style_begin(stdout, SPRY_STYLE_BOLD), headings[i], spry_style_end(stdout));
        parts[i](prefill, "prefill");
        parts[i](decode, "decode");
    }
    print_on_cpu(r, decode ? decode : prefill);
    if (answer)
        spry_out_format("%-8s %6.0f  %.1f tok/s with draws, the host waits %.3g times a token, %.0f %% of the steps "
                        "begin ahead\n",
                        "answer", spry_bench_number(answer, "tokens"), spry_bench_number(answer, "tps"),
                        spry_bench_number(answer, "waits_per_token"), 100 * spry_bench_number(answer, "ahead_share"));
}

/* ---- the report of points: single figures ------------------------------------------------------------------------ */

static void print_time(const json_t *r, const char *what, const char *key, const char *spread, const char *means)
{
    char time[SPRY_AMOUNT_MAX];
    if (json_is_number(json_object_get(r, key)))
        spry_bench_print_figure(what, spry_amount_time(time, spry_bench_number(r, key)), "spread %.1f %%: %s",
                                100 * spry_bench_number(r, spread), means);
    else
        spry_bench_print_figure(what, "-", "spry run cannot answer with this model");
}

static void print_requests(const json_t *r)
{
    char cold[SPRY_AMOUNT_MAX], warm[SPRY_AMOUNT_MAX];
    const json_t *ttft = json_object_get(r, "ttft"), *call = json_object_get(r, "first_call");
    if (json_is_object(ttft))
        spry_bench_print_figure(
            "Request", spry_amount_time(cold, spry_bench_number(ttft, "cold_ms")),
            "to the first token after %.0f; %s with %.0f of them cached", spry_bench_number(ttft, "prompt_tokens"),
            spry_amount_time(warm, spry_bench_number(ttft, "warm_ms")), spry_bench_number(ttft, "hit_tokens"));
    else
        spry_bench_print_figure("Request", "-", "not measured: %s", spry_bench_text(r, "why_no_ttft"));
    if (json_is_object(call))
        spry_bench_print_figure("First call", spry_amount_time(cold, spry_bench_number(call, "ms")),
                                "until a call of a tool is complete, after %.0f tokens",
                                spry_bench_number(call, "tokens"));
    else
        spry_bench_print_figure("First call", "-", "not measured: %s", spry_bench_text(r, "why_no_first_call"));
}

static void print_memory(const json_t *r)
{
    static const char *const parts[] = {"weights", "kv", "cache", "scratch", "program", "whole"};
    static const char *const sides[] = {"estimated", "measured"};
    char one[SPRY_AMOUNT_MAX], all[SPRY_AMOUNT_MAX], path[40];
    spry_bench_print_figure("Memory", spry_amount_bytes(one, (size_t)spry_bench_number(r, "peak_rss_bytes")),
                            "for one sequence; %s in all, at most",
                            spry_amount_bytes(all, (size_t)spry_bench_number(r, "peak_rss_batch_bytes")));
    if (!json_is_object(json_object_get(r, "memory"))) {
        spry_bench_print_figure("", "-", "by part, not measured: %s", spry_bench_text(r, "why_no_memory"));
        return;
    }
    spry_out_format("%-12s %10s  ", "", "MB");
    for (size_t i = 0; i < SPRY_COUNT(parts); i++)
        spry_out_format(" %9s", parts[i]);
    for (size_t side = 0; side < SPRY_COUNT(sides); side++) {
        spry_out_format("\n%-12s %10s  ", "", sides[side]);
        for (size_t i = 0; i < SPRY_COUNT(parts); i++) {
            snprintf(path, sizeof path, "memory.%s.%s", sides[side], parts[i]);
            spry_out_format(" %9.1f", spry_bench_number(r, path) / 1e6);
        }
    }
    spry_out_format("\n");
}

/* Prints the energy of the first decode of one sequence, or of the first point with energy. */
static void print_energy(const json_t *r)
{
    const json_t *found = NULL, *facts = json_object_get(r, "energy");
    const char *cpu = spry_bench_text(facts, "cpu"), *gpu = spry_bench_text(facts, "gpu");
    for (size_t list = 0; list < 2; list++) {
        const json_t *points = json_object_get(r, list ? "prefill" : "decode");
        for (size_t i = 0; i < json_array_size(points); i++) {
            const json_t *p = json_array_get(points, i);
            bool of_one = !list && spry_bench_number(p, "batch") == 1;
            if (json_is_object(json_object_get(p, "energy")) &&
                (!found || (of_one && spry_bench_number(found, "batch") != 1)))
                found = p;
        }
    }
    if (!found && (cpu[0] || gpu[0]))
        spry_bench_print_figure("Energy", "-", "not measured: too short for the counters");
    else if (!found)
        spry_bench_print_figure("Energy", "-", "not measured: %s; %s", spry_bench_text(facts, "why_no_cpu"),
                                spry_bench_text(facts, "why_no_gpu"));
    if (!found)
        return;
    const json_t *used = json_object_get(found, "energy");
    bool has_cpu = json_is_number(json_object_get(used, "cpu_joules"));
    bool has_gpu = json_is_number(json_object_get(used, "gpu_joules"));
    char joules[SPRY_BENCH_VALUE];
    spry_bench_print_figure(
        "Energy", spry_bench_value(joules, SPRY_BENCH_JOULES, spry_bench_number(used, "joules_per_100_tokens")),
        "for 100 tokens of %s at %.0f, %.0f W%s: %s%s%s", json_object_get(found, "batch") ? "decode" : "prefill",
        tokens_of(found), spry_bench_number(used, "watts"), has_cpu ? "" : " of the GPU alone", has_cpu ? cpu : "",
        has_cpu && has_gpu ? " and " : "", has_gpu ? gpu : "");
}

static void print_head(const json_t *r)
{
    const json_t *m = json_object_get(r, "machine");
    const char *gpu = spry_bench_text(m, "gpu");
    char parameters[SPRY_AMOUNT_MAX], bytes[SPRY_AMOUNT_MAX];
    double threads = spry_bench_number(m, "threads");
    spry_bench_print_bold(spry_bench_text(r, "model"));
    spry_out_format("\n%s, %s parameters, %s of weights, mostly %s\n", spry_bench_text(r, "architecture"),
                    spry_amount_count(parameters, (size_t)spry_bench_number(r, "parameters")),
                    spry_amount_bytes(bytes, (size_t)spry_bench_number(r, "weight_bytes")),
                    spry_bench_text(r, "main_type"));
    if (gpu[0])
        spry_out_quote("%s, beside %s\n", gpu, spry_bench_text(m, "cpu"));
    else
        spry_out_quote("%s, %.0f %s, %s kernels\n", spry_bench_text(m, "cpu"), threads,
                       threads > 1 ? "threads" : "thread", spry_bench_text(m, "kernels"));
    spry_out_format("reads %.1f GB/s from memory, computes %.0f G products/s %s\n", spry_bench_number(m, "read_gb_s"),
                    spry_bench_number(m, "multiply_g_s"), gpu[0] ? "of F16, at most" : "in cache");
}

/* `skipped` of the report has points of both kinds. */
static void print_points(const json_t *r, bool decode)
{
    const spry_bench_column columns[] = {
        {decode ? "Decode" : "Prefill", -8, NULL, SPRY_BENCH_TEXT, NULL},
        {decode ? "depth" : "tokens", 8, decode ? "depth" : "tokens", SPRY_BENCH_COUNT, NULL},
        {decode ? "together" : "", 9, decode ? "batch" : NULL, SPRY_BENCH_COUNT, NULL},
        {"tokens/s", 12, "tps", SPRY_BENCH_TENTHS, NULL},
        {"spread", 9, "spread", SPRY_BENCH_SHARE, NULL},
        {decode ? "step p95" : "time", 11, decode ? "p95_ms" : "ms", SPRY_BENCH_TIME, NULL},
        {"read", 11, "read_share", SPRY_BENCH_PERCENT, NULL},
        {"multiply", 11, "multiply_share", SPRY_BENCH_PERCENT, NULL},
    };
    const json_t *all = json_object_get(r, "skipped");
    json_t *skipped = json_array();
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!json_object_get(json_array_get(all, i), "depth") == !decode)
            json_array_append(skipped, json_array_get(all, i));
    spry_bench_table(columns, SPRY_COUNT(columns), json_object_get(r, decode ? "decode" : "prefill"), skipped, "");
    json_decref(skipped);
}

void spry_bench_points_print(const json_t *r)
{
    print_head(r);
    print_points(r, false);
    print_points(r, true);
    print_times_of_ops(r);
    spry_bench_policy_print(json_object_get(r, "policy"));
    spry_out_format("\n");
    print_time(r, "First token", "first_token_ms", "first_token_spread", "from the start of a new process");
    print_requests(r);
    print_time(r, "Load", "load_ms", "load_spread", "the model, until it is ready");
    print_memory(r);
    print_energy(r);
    if (json_array_size(json_object_get(r, "prefill")) || json_array_size(json_object_get(r, "decode")))
        spry_out_format(
            "\n"
            "Spread is the range of the repeats; 95 %% of the steps are at most p95. Read and multiply are shares\n"
            "of the machine's limits; a model that fits the caches is read faster than memory.\n");
}
