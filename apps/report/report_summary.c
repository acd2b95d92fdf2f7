/* The inputs and their most important figures, side by side. */
#include <math.h>
#include <stdio.h>

#include "report/html_page.h"
#include "report/report.h"

static const char *or_dash(const char *text)
{
    return text ? text : "–";
}

/* ---- the files --------------------------------------------------------------------------------------------------- */

static void describe(spry_doc *doc, const spry_report_input *input)
{
    char one[SPRY_DOC_VALUE], other[SPRY_DOC_VALUE];
    if (input->kind == SPRY_REPORT_TRACE) {
        spry_doc_cell(doc, "trace");
        spry_doc_cell(doc, "%s, %s%s", spry_doc_plural(one, (double)input->trace->requests, "request"),
                      spry_doc_plural(other, (double)input->trace->steps, "step"),
                      input->trace->is_cut ? "; its last line is not whole and was left out" : "");
        spry_doc_cell(doc, "–");
        return;
    }
    const bool bench = input->kind == SPRY_REPORT_BENCH;
    spry_doc_cell(doc, bench ? "bench" : "machine");
    if (bench)
        spry_doc_cell(doc, "%s on %s", spry_report_text(input->json, "model"),
                      spry_report_text(input->json, "machine.cpu"));
    else
        spry_doc_cell(doc, "%s", spry_report_text(input->json, "cpu.name"));
    spry_doc_cell(doc, "%s", or_dash(spry_report_text(input->json, "when")));
}

static void write_files(spry_doc *doc, const spry_report *report)
{
    const spry_doc_column columns[] = {
        {"File", true, false}, {"Kind", true, false}, {"Of what", true, true}, {"When", true, false}};
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t i = 0; i < report->count; i++) {
        spry_doc_cell(doc, "%s", report->inputs[i].name);
        describe(doc, &report->inputs[i]);
    }
    spry_doc_table_end(doc);
}

/* ---- figures of benches ------------------------------------------------------------------------------------------ */

typedef struct figure {
    char title[80];
    spry_doc_unit unit;
    int better;
    double values[SPRY_REPORT_INPUTS]; /* per bench */
} figure;

enum { FIGURES = 20 };

typedef struct figures {
    figure items[FIGURES];
    size_t count;
} figures;

/* By its path in the whole file, or in one of its points. */
static figure *begin_figure(figures *f, spry_doc_unit unit, int better)
{
    figure *added = &f->items[f->count++];
    added->unit = unit;
    added->better = better;
    return added;
}

static void add_plain(figures *f, const spry_report *report, const char *title, const char *path, spry_doc_unit unit,
                      int better)
{
    figure *added = begin_figure(f, unit, better);
    const spry_report_input *input;
    size_t i = 0;
    snprintf(added->title, sizeof added->title, "%s", title);
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
        added->values[i++] = spry_report_number(input->json, path);
}

/* The share of a point's time in products and attention; NAN: its ops were not measured. */
static double residency(const json_t *point)
{
    static const char *const kernels[] = {"qkv", "attend", "out", "gate_up", "down", "logits"};
    const json_t *ops = json_object_get(point, "ops");
    double sum = json_array_size(ops) ? 0 : NAN;
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(ops, i), "op"));
        for (size_t k = 0; name && k < SPRY_COUNT(kernels); k++)
            if (strcmp(name, kernels[k]) == 0)
                sum += json_number_value(json_object_get(json_array_get(ops, i), "share"));
    }
    return sum;
}

/* Points are the representative ones of the first bench; others have the same one or none. */
static void add_points(figures *f, const spry_report *report)
{
    size_t at = 0, i = 0;
    const spry_report_input *input = spry_report_next(report, SPRY_REPORT_BENCH, &at);
    const double tokens = spry_report_main_prefill(input->json), depth = spry_report_main_depth(input->json);
    const double batch = spry_report_main_batch(input->json);
    figure *prefill = begin_figure(f, SPRY_DOC_SPEED, 1), *decode = begin_figure(f, SPRY_DOC_SPEED, 1);
    figure *together = begin_figure(f, SPRY_DOC_SPEED, 1), *late = begin_figure(f, SPRY_DOC_MS, -1);
    figure *joules = begin_figure(f, SPRY_DOC_JOULES, -1);
    figure *first = begin_figure(f, SPRY_DOC_SHARE, 1), *later = begin_figure(f, SPRY_DOC_SHARE, 1);
    figure *busy = begin_figure(f, SPRY_DOC_SHARE, 1);
    snprintf(busy->title, sizeof busy->title, "GPU busy while decoding (NVML)");
    snprintf(first->title, sizeof first->title, "Prefill, time in kernels");
    snprintf(later->title, sizeof later->title, "Decode, time in kernels");
    snprintf(prefill->title, sizeof prefill->title, "Prefill of %.0f tokens, tokens/s", tokens);
    snprintf(decode->title, sizeof decode->title, "Decode at depth %.0f, tokens/s", depth);
    snprintf(together->title, sizeof together->title, "Decode of %.0f at once, tokens/s", batch);
    snprintf(late->title, sizeof late->title, "Between steps, 95 %% within");
    snprintf(joules->title, sizeof joules->title, "Energy of 100 tokens");
    for (at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at)); i++) {
        const json_t *one = spry_report_decode(input->json, depth, 1);
        prefill->values[i] = spry_report_number(spry_report_prefill(input->json, tokens), "tps");
        decode->values[i] = spry_report_number(one, "tps");
        together->values[i] = spry_report_number(spry_report_decode(input->json, depth, batch), "tps");
        late->values[i] = spry_report_number(one, "p95_ms");
        joules->values[i] = spry_report_number(one, "energy.joules_per_100_tokens");
        first->values[i] = residency(spry_report_prefill(input->json, tokens));
        later->values[i] = residency(one);
        busy->values[i] = spry_report_number(one, "gpu_busy_percent") / 100;
    }
}

static void collect(figures *f, const spry_report *report)
{
    add_points(f, report);
    add_plain(f, report, "First token, nothing known before", "ttft.cold_ms", SPRY_DOC_MS, -1);
    add_plain(f, report, "First token, prompt known before", "ttft.warm_ms", SPRY_DOC_MS, -1);
    add_plain(f, report, "First token of a new process", "first_token_ms", SPRY_DOC_MS, -1);
    add_plain(f, report, "First call of a tool", "first_call.ms", SPRY_DOC_MS, -1);
    add_plain(f, report, "Answer with draws on the device, tokens/s", "answer.tps", SPRY_DOC_SPEED, 1);
    add_plain(f, report, "Waits for the device, a token", "answer.waits_per_token", SPRY_DOC_SPEED, -1);
    add_plain(f, report, "Steps begun ahead", "answer.ahead_share", SPRY_DOC_SHARE, 1);
    add_plain(f, report, "Loading", "load_ms", SPRY_DOC_MS, -1);
    add_plain(f, report, "Memory, one sequence", "peak_rss_bytes", SPRY_DOC_BYTES, -1);
    add_plain(f, report, "Memory, most of it", "peak_rss_batch_bytes", SPRY_DOC_BYTES, -1);
    add_plain(f, report, "Machine reads", "machine.read_gb_s", SPRY_DOC_GB_S, 1);
    add_plain(f, report, "Machine multiplies", "machine.multiply_g_s", SPRY_DOC_PRODUCTS, 1);
}

static bool is_known(const figure *f, size_t n_benches)
{
    for (size_t i = 0; i < n_benches; i++)
        if (isfinite(f->values[i]))
            return true;
    return false;
}

static void write_words(spry_doc *doc, const spry_report *report, const char *title, const char *path)
{
    const spry_report_input *input;
    bool known = false;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
        known = known || spry_report_at(input->json, path);
    if (!known)
        return;
    spry_doc_cell(doc, "%s", title);
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));) {
        const json_t *value = spry_report_at(input->json, path);
        char text[SPRY_REPORT_WORDS];
        if (json_is_number(value))
            spry_doc_value(doc, SPRY_DOC_COUNT, json_number_value(value));
        else
            spry_doc_cell(doc, "%s", spry_report_cut(text, sizeof text, or_dash(json_string_value(value))));
    }
}

static void write_figures(spry_doc *doc, const spry_report *report, const figures *f)
{
    static const char *const words[][2] = {{"Model", "model"},
                                           {"Processor", "machine.cpu"},
                                           {"GPU", "machine.gpu"},
                                           {"Threads", "machine.threads"},
                                           {"Kernels", "machine.kernels"},
                                           {"Keys and values", "settings.kv_type"}};
    spry_doc_column columns[1 + SPRY_REPORT_INPUTS] = {{"Figure", true, false}};
    const spry_report_input *input;
    size_t n = 0;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
        columns[++n].title = input->name;
    spry_doc_table(doc, columns, 1 + n);
    for (size_t i = 0; i < f->count; i++) {
        const figure *one = &f->items[i];
        if (!is_known(one, n))
            continue;
        spry_doc_cell(doc, "%s", one->title);
        for (size_t j = 0; j < n; j++)
            spry_doc_compared(doc, one->unit, one->values[j], j ? one->values[0] : NAN, one->better);
    }
    for (size_t i = 0; i < SPRY_COUNT(words); i++)
        write_words(doc, report, words[i][0], words[i][1]);
    spry_doc_table_end(doc);
    if (n > 1)
        spry_doc_say(doc, "Ratios are to %s, the first.", columns[1].title);
}

/* The subject of the figures of a single bench. */
static void introduce(spry_doc *doc, const json_t *bench)
{
    char parameters[SPRY_DOC_VALUE], bytes[SPRY_DOC_VALUE], threads[SPRY_DOC_VALUE];
    const char *architecture = spry_report_text(bench, "architecture"), *when = spry_report_text(bench, "when");
    spry_doc_say(doc, "%s: %s, %s million parameters, %s of weights. %s, %s, %s kernels%s%s.",
                 spry_report_text(bench, "model"), architecture ? architecture : "unknown architecture",
                 spry_doc_print(parameters, SPRY_DOC_SPEED, spry_report_number(bench, "parameters") / 1e6),
                 spry_doc_print(bytes, SPRY_DOC_BYTES, spry_report_number(bench, "weight_bytes")),
                 spry_report_text(bench, "machine.cpu"),
                 spry_doc_plural(threads, spry_report_number(bench, "machine.threads"), "thread"),
                 spry_report_text(bench, "machine.kernels"), when ? "; measured at " : "", when ? when : "");
}

/* The figures of a single bench as cards. */
static void draw_cards(spry_buffer *out, const figures *f)
{
    spry_buffer_text(out, "<ul class=\"cards\">\n");
    for (size_t i = 0; i < f->count; i++) {
        char value[SPRY_DOC_VALUE];
        if (!isfinite(f->items[i].values[0]))
            continue;
        spry_doc_print(value, f->items[i].unit, f->items[i].values[0]);
        spry_buffer_format(out, "<li><b>%s</b><span>%s</span></li>\n", value, f->items[i].title);
    }
    spry_buffer_text(out, "</ul>\n");
}

/* ---- figures of traces ------------------------------------------------------------------------------------------- */

static double median_first(const spry_report_trace *t)
{
    return spry_spread_at(&t->first_ms, 0.5);
}

static double late_first(const spry_report_trace *t)
{
    return spry_spread_at(&t->first_ms, 0.95);
}

static double median_between(const spry_report_trace *t)
{
    return spry_spread_at(&t->between_ms, 0.5);
}

static double late_between(const spry_report_trace *t)
{
    return spry_spread_at(&t->between_ms, 0.95);
}

static double generated(const spry_report_trace *t)
{
    return t->generated_tokens;
}

static double rows_a_step(const spry_report_trace *t)
{
    return t->steps ? t->rows / (double)t->steps : NAN;
}

static double waits_a_token(const spry_report_trace *t)
{
    return t->device_steps && t->generated_tokens > 0 ? t->waits / t->generated_tokens : NAN;
}

static double begun_ahead(const spry_report_trace *t)
{
    return t->device_steps ? t->ahead / (double)t->device_steps : NAN;
}

static void write_traces(spry_doc *doc, const spry_report *report)
{
    static const struct {
        const char *title;
        double (*value)(const spry_report_trace *trace);
        spry_doc_unit unit;
        int better;
    } lines[] = {{"First token, median", median_first, SPRY_DOC_MS, -1},
                 {"First token, 95 % within", late_first, SPRY_DOC_MS, -1},
                 {"Between steps, median", median_between, SPRY_DOC_MS, -1},
                 {"Between steps, 95 % within", late_between, SPRY_DOC_MS, -1},
                 {"Generated tokens", generated, SPRY_DOC_COUNT, 0},
                 {"Rows a step", rows_a_step, SPRY_DOC_SPEED, 0},
                 {"Waits for the device, a token", waits_a_token, SPRY_DOC_SPEED, -1},
                 {"Steps begun ahead", begun_ahead, SPRY_DOC_SHARE, 1}};
    spry_doc_column columns[1 + SPRY_REPORT_INPUTS] = {{"Trace", true, false}};
    const spry_report_trace *traces[SPRY_REPORT_INPUTS];
    const spry_report_input *input;
    size_t n = 0;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_TRACE, &at));) {
        traces[n] = input->trace;
        columns[++n].title = input->name;
    }
    if (!n)
        return;
    spry_doc_table(doc, columns, 1 + n);
    for (size_t i = 0; i < SPRY_COUNT(lines); i++) {
        bool known = false;
        for (size_t j = 0; j < n; j++)
            known = known || isfinite(lines[i].value(traces[j]));
        if (!known)
            continue;
        spry_doc_cell(doc, "%s", lines[i].title);
        for (size_t j = 0; j < n; j++)
            spry_doc_compared(doc, lines[i].unit, lines[i].value(traces[j]), j ? lines[i].value(traces[0]) : NAN,
                              lines[i].better);
    }
    spry_doc_table_end(doc);
}

void spry_report_summary(spry_doc *doc, const spry_report *report)
{
    const size_t benches = spry_report_count(report, SPRY_REPORT_BENCH);
    figures f = {.count = 0};
    if (benches)
        collect(&f, report);
    spry_doc_section(doc, "Summary");
    if (report->count > 1 || !benches)
        write_files(doc, report);
    if (benches == 1) {
        size_t at = 0;
        introduce(doc, spry_report_next(report, SPRY_REPORT_BENCH, &at)->json);
    }
    if (benches == 1 && spry_doc_drawing(doc))
        draw_cards(spry_doc_drawing(doc), &f);
    else if (benches)
        write_figures(doc, report, &f);
    write_traces(doc, report);
}
