/* The resources of an engine: memory, energy, and the gain of batching. */
#include <math.h>
#include <stdio.h>

#include "report/report.h"

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name, *key;
    size_t colour;
} memory_parts[] = {{"weights", "weights", 0},
                    {"keys and values", "kv", 2},
                    {"cache", "cache", 3},
                    {"scratch", "scratch", 1},
                    {"program", "program", 4}};

static const char *const memory_kinds[] = {"estimated", "measured"};

static double memory_of(const json_t *bench, size_t kind, const char *key)
{
    return spry_report_number(spry_report_at(spry_report_at(bench, "memory"), memory_kinds[kind]), key);
}

static double most_memory(const spry_report *report)
{
    const spry_report_input *input;
    double most = 0;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
        for (size_t kind = 0; kind < SPRY_COUNT(memory_kinds); kind++) {
            double sum = 0;
            for (size_t i = 0; i < SPRY_COUNT(memory_parts); i++) {
                const double bytes = memory_of(input->json, kind, memory_parts[i].key);
                sum += isfinite(bytes) ? bytes : 0;
            }
            most = fmax(most, fmax(sum, memory_of(input->json, kind, "whole")));
        }
    return most;
}

static void draw_memory_row(spry_rows *rows, const spry_report *report, const spry_report_input *input, size_t kind)
{
    spry_rows_piece pieces[SPRY_COUNT(memory_parts)];
    char titles[SPRY_COUNT(memory_parts)][80], name[SPRY_REPORT_ROW], text[SPRY_DOC_VALUE];
    size_t count = 0;
    double end = 0;
    for (size_t i = 0; i < SPRY_COUNT(memory_parts); i++) {
        const double bytes = memory_of(input->json, kind, memory_parts[i].key);
        if (!(bytes > 0))
            continue;
        snprintf(titles[count], sizeof titles[count], "%s %s", memory_parts[i].name,
                 spry_doc_print(text, SPRY_DOC_BYTES, bytes));
        pieces[count] =
            (spry_rows_piece){memory_parts[i].name, titles[count], memory_parts[i].colour, end, end + bytes};
        end += bytes;
        count++;
    }
    const double whole = memory_of(input->json, kind, "whole");
    spry_report_row_name(name, report, input, memory_kinds[kind]);
    spry_rows_add(rows, name, spry_doc_print(text, SPRY_DOC_BYTES, isfinite(whole) ? whole : end), pieces, count);
}

static void draw_memory(spry_buffer *out, const spry_report *report)
{
    static const struct {
        double bytes;
        const char *unit;
    } units[] = {{1e9, " GB"}, {1e6, " MB"}, {1e3, " kB"}, {1, " bytes"}};
    const double most = most_memory(report);
    spry_axis x = {.unit = ""};
    spry_rows rows;
    const spry_report_input *input;
    size_t unit = 0;
    while (unit + 1 < SPRY_COUNT(units) && most < units[unit].bytes)
        unit++;
    x.unit = units[unit].unit;
    x.scale = 1 / units[unit].bytes;
    spry_axis_cover(&x, 0, most);
    spry_rows_begin(&rows, out, "Memory by part", &x);
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
        for (size_t kind = 0; kind < SPRY_COUNT(memory_kinds) && spry_report_at(input->json, "memory"); kind++)
            draw_memory_row(&rows, report, input, kind);
    spry_rows_end(&rows);
    spry_buffer_text(out, "<ul class=\"legend\">\n");
    for (size_t i = 0; i < SPRY_COUNT(memory_parts); i++) {
        double bytes = 0;
        for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
            bytes = fmax(bytes, fmax(memory_of(input->json, 0, memory_parts[i].key),
                                     memory_of(input->json, 1, memory_parts[i].key)));
        if (!(bytes > 0))
            continue;
        spry_buffer_text(out, "<li>");
        spry_rows_swatch(out, memory_parts[i].colour);
        spry_buffer_format(out, " %s</li>\n", memory_parts[i].name);
    }
    spry_buffer_text(out, "</ul>\n");
}

static void write_memory_line(spry_doc *doc, const spry_report_input *input, const char *name, const char *key)
{
    const double estimated = memory_of(input->json, 0, key), measured = memory_of(input->json, 1, key);
    if (!isfinite(estimated) && !isfinite(measured))
        return;
    spry_doc_cell(doc, "%s", input->name);
    spry_doc_cell(doc, "%s", name);
    spry_doc_value(doc, SPRY_DOC_BYTES, estimated);
    spry_doc_value(doc, SPRY_DOC_BYTES, measured);
    if (measured > 0 && isfinite(estimated))
        spry_doc_cell(doc, "%+.1f %%", fmin(100 * (estimated / measured - 1), 1e6));
    else
        spry_doc_cell(doc, "–");
}

void spry_report_memory(spry_doc *doc, const spry_report *report)
{
    static const spry_doc_column columns[] = {{"File", true, false},
                                              {"Part", true, false},
                                              {"Estimated", false, false},
                                              {"Measured", false, false},
                                              {"Estimate is off by", false, false}};
    const spry_report_input *input;
    if (!(most_memory(report) > 0))
        return;
    spry_doc_section(doc, "Memory");
    if (spry_doc_drawing(doc))
        draw_memory(spry_doc_drawing(doc), report);
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));) {
        for (size_t i = 0; i < SPRY_COUNT(memory_parts); i++)
            write_memory_line(doc, input, memory_parts[i].name, memory_parts[i].key);
        write_memory_line(doc, input, "whole", "whole");
    }
    spry_doc_table_end(doc);
}

/* ---- energy ------------------------------------------------------------------------------------------------------ */

typedef struct energy_row {
    char name[SPRY_REPORT_ROW];
    const spry_report_input *input;
    bool is_prefill;
    double joules, watts, speed; /* joules: per 100 tokens */
} energy_row;

static size_t collect_energy(energy_row rows[SPRY_REPORT_ROWS], size_t *more, const spry_report *report)
{
    spry_report_key keys[SPRY_REPORT_KEYS];
    const size_t n_keys = spry_report_keys(keys, report);
    const spry_report_input *input;
    size_t count = 0;
    for (size_t i = 0; i < n_keys; i++)
        for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));) {
            const json_t *point = spry_report_point(input->json, &keys[i]);
            energy_row row = {.input = input,
                              .is_prefill = !isnan(keys[i].tokens),
                              .joules = spry_report_number(point, "energy.joules_per_100_tokens"),
                              .watts = spry_report_number(point, "energy.watts"),
                              .speed = spry_report_number(point, "tps")};
            if (isnan(row.joules) && isnan(row.watts))
                continue;
            spry_report_point_name(row.name, point);
            if (count < SPRY_REPORT_ROWS)
                rows[count++] = row;
            else
                (*more)++;
        }
    return count;
}

/* The sources of energy values, or why there are none, per device. */
static bool say_meters(spry_doc *doc, const spry_report_input *input, bool write)
{
    static const char *const devices[][3] = {{"Processor", "energy.cpu", "energy.why_no_cpu"},
                                             {"GPU", "energy.gpu", "energy.why_no_gpu"}};
    bool any = false;
    for (size_t i = 0; i < SPRY_COUNT(devices); i++) {
        const char *meter = spry_report_text(input->json, devices[i][1]);
        const char *why = spry_report_text(input->json, devices[i][2]);
        any |= meter || why;
        if (write && meter)
            spry_doc_say(doc, "%s, %s: %s.", input->name, devices[i][0], meter);
        else if (write && why)
            spry_doc_say(doc, "%s, %s: not measured: %s", input->name, devices[i][0], why);
    }
    return any;
}

static void draw_energy(spry_buffer *out, const spry_report *report, const energy_row *list, size_t count)
{
    spry_axis x = {.unit = " J"};
    spry_rows rows;
    double most = 0;
    for (size_t i = 0; i < count; i++)
        most = fmax(most, list[i].joules);
    if (!(most > 0))
        return;
    spry_axis_cover(&x, 0, most);
    spry_rows_begin(&rows, out, "Energy of 100 tokens", &x);
    for (size_t i = 0; i < count; i++) {
        char name[SPRY_REPORT_ROW], sum[SPRY_DOC_VALUE];
        spry_report_row_name(name, report, list[i].input, list[i].name);
        spry_doc_print(sum, SPRY_DOC_JOULES, list[i].joules);
        const spry_rows_piece piece = {"", sum, list[i].is_prefill ? 0 : 2, 0, list[i].joules};
        spry_rows_add(&rows, name, sum, &piece, isfinite(list[i].joules) ? 1 : 0);
    }
    spry_rows_end(&rows);
}

void spry_report_energy(spry_doc *doc, const spry_report *report)
{
    static const spry_doc_column columns[] = {{"File", true, false},
                                              {"Work", true, false},
                                              {"Of 100 tokens", false, false},
                                              {"Power", false, false},
                                              {"Tokens/s", false, false}};
    energy_row rows[SPRY_REPORT_ROWS];
    const spry_report_input *input;
    size_t more = 0;
    const size_t count = collect_energy(rows, &more, report);
    bool any = count > 0;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
        any |= say_meters(doc, input, false);
    if (!any)
        return;
    spry_doc_section(doc, "Energy");
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
        say_meters(doc, input, true);
    if (!count)
        return;
    if (spry_doc_drawing(doc))
        draw_energy(spry_doc_drawing(doc), report, rows, count);
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t i = 0; i < count; i++) {
        spry_doc_cell(doc, "%s", rows[i].input->name);
        spry_doc_cell(doc, "%s", rows[i].name);
        spry_doc_value(doc, SPRY_DOC_JOULES, rows[i].joules);
        spry_doc_value(doc, SPRY_DOC_WATTS, rows[i].watts);
        spry_doc_value(doc, SPRY_DOC_SPEED, rows[i].speed);
    }
    spry_doc_table_end(doc);
    spry_report_say_left_out(doc, more);
}

/* ---- policy ------------------------------------------------------------------------------------------------------ */

enum { BATCHES_MAX = 64 };

/* For one bench: `key` of every batch size, the chosen one in a ring. */
static void draw_batches(spry_buffer *out, const spry_report_input *input, const char *caption, const char *key)
{
    const json_t *list = spry_report_at(input->json, "policy.batches");
    const double taken = spry_report_number(input->json, "policy.taken");
    spry_plot_point points[BATCHES_MAX];
    double batches[BATCHES_MAX], most = 0;
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(list) && count < BATCHES_MAX; i++) {
        const json_t *one = json_array_get(list, i);
        const spry_plot_point at = {spry_report_number(one, "batch"), spry_report_number(one, key)};
        if (!isfinite(at.y) || (count && at.x <= batches[count - 1]))
            continue;
        points[count] = at;
        batches[count++] = at.x;
        most = fmax(most, at.y);
    }
    if (count < 2)
        return;
    spry_axis x = {.title = "sequences at once (batch)", .unit = ""}, y = {.title = caption, .unit = ""};
    spry_plot plot;
    spry_axis_at(&x, batches, count);
    spry_axis_cover(&y, 0, most);
    spry_plot_begin(&plot, out, caption, &x, &y);
    spry_plot_line(&plot, input->series, NULL, points, count);
    for (size_t i = 0; i < count; i++) {
        char title[80];
        snprintf(title, sizeof title, "%.0f at once: %.1f", points[i].x, points[i].y);
        spry_plot_mark(&plot, input->series, points[i], title);
    }
    for (size_t i = 0; i < count; i++)
        if (points[i].x == taken) {
            spry_plot_ring(&plot, points[i]);
            spry_plot_label(&plot, input->series, points[i], "taken");
        }
    spry_plot_end(&plot);
}

static void write_batches(spry_doc *doc, const spry_report_input *input)
{
    static const spry_doc_column columns[] = {{"At once", true, false},
                                              {"Tokens/s", false, false},
                                              {"Half within", false, false},
                                              {"95 % within", false, false},
                                              {"Gain", false, false},
                                              {"Slower", false, false},
                                              {"", true, false}};
    const json_t *list = spry_report_at(input->json, "policy.batches");
    const double taken = spry_report_number(input->json, "policy.taken");
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const double batch = spry_report_number(one, "batch");
        spry_doc_value(doc, SPRY_DOC_COUNT, batch);
        spry_doc_value(doc, SPRY_DOC_SPEED, spry_report_number(one, "tps"));
        spry_doc_value(doc, SPRY_DOC_MS, spry_report_number(one, "p50_ms"));
        spry_doc_value(doc, SPRY_DOC_MS, spry_report_number(one, "p95_ms"));
        spry_doc_value(doc, SPRY_DOC_TIMES, spry_report_number(one, "gain"));
        spry_doc_value(doc, SPRY_DOC_TIMES, spry_report_number(one, "slower"));
        spry_doc_cell(doc, "%s", batch == taken ? "taken" : "");
    }
    spry_doc_table_end(doc);
}

void spry_report_policy(spry_doc *doc, const spry_report *report)
{
    const spry_report_input *input;
    bool any = false;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));) {
        const char *why = spry_report_text(input->json, "policy.why");
        spry_buffer *out = spry_doc_drawing(doc);
        if (!spry_report_at(input->json, "policy"))
            continue;
        if (!any)
            spry_doc_section(doc, "How many at once");
        any = true;
        spry_doc_heading(doc, "%s: %.0f at once", input->name, spry_report_number(input->json, "policy.taken"));
        if (why)
            spry_doc_say(doc, "%s", why);
        if (out) {
            spry_buffer_text(out, "<div class=\"plots\">\n");
            draw_batches(out, input, "All sequences together, tokens/s", "tps");
            draw_batches(out, input, "95 % of the steps within, ms", "p95_ms");
            spry_buffer_text(out, "</div>\n");
        }
        write_batches(doc, input);
    }
}
