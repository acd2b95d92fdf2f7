/* Tokens per second by length, depth and number of sequences; and the distribution of step times. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "report/report.h"

/* One plot: points of a list where the other number is fixed. */
typedef struct against {
    const char *caption, *axis, *column, *list, *key;
    const char *fixed;  /* key of the other number, or NULL */
    double fixed_value; /* and its value */
} against;

static double speed_at(const json_t *bench, const against *a, double value)
{
    const json_t *list = spry_report_at(bench, a->list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *point = json_array_get(list, i);
        if (spry_report_number(point, a->key) == value &&
            (!a->fixed || spry_report_number(point, a->fixed) == a->fixed_value))
            return spry_report_number(point, "tps");
    }
    return NAN;
}

static int by_value(const void *a, const void *b)
{
    const double *first = a, *second = b;
    return (*first > *second) - (*first < *second);
}

/* The distinct values of all benches, ascending. */
static size_t collect_values(double values[SPRY_REPORT_KEYS], const spry_report *report, const against *a)
{
    const spry_report_input *input;
    size_t count = 0;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));) {
        const json_t *list = spry_report_at(input->json, a->list);
        for (size_t i = 0; i < json_array_size(list) && count < SPRY_REPORT_KEYS; i++) {
            const json_t *point = json_array_get(list, i);
            const double value = spry_report_number(point, a->key);
            size_t same = 0;
            while (same < count && values[same] != value)
                same++;
            if (same == count && (!a->fixed || spry_report_number(point, a->fixed) == a->fixed_value))
                values[count++] = value;
        }
    }
    qsort(values, count, sizeof *values, by_value);
    return count;
}

static void draw_against(spry_buffer *out, const spry_report *report, const against *a, const double *values,
                         size_t count)
{
    spry_axis x = {.title = a->axis, .unit = ""}, y = {.title = "tokens/s", .unit = ""};
    spry_plot plot;
    const spry_report_input *input;
    double most = 0;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
        for (size_t i = 0; i < count; i++)
            most = fmax(most, speed_at(input->json, a, values[i]));
    spry_axis_at(&x, values, count);
    spry_axis_cover(&y, 0, most);
    spry_plot_begin(&plot, out, a->caption, &x, &y);
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));) {
        spry_plot_point points[SPRY_REPORT_KEYS];
        size_t n = 0;
        for (size_t i = 0; i < count; i++) {
            const double speed = speed_at(input->json, a, values[i]);
            if (isfinite(speed))
                points[n++] = (spry_plot_point){values[i], speed};
        }
        spry_plot_line(&plot, input->series, NULL, points, n);
        for (size_t i = 0; i < n; i++) {
            char title[SPRY_REPORT_NAME + 80], speed[SPRY_DOC_VALUE];
            snprintf(title, sizeof title, "%s, %s %.0f: %s tokens/s", input->name, a->key, points[i].x,
                     spry_doc_print(speed, SPRY_DOC_SPEED, points[i].y));
            spry_plot_mark(&plot, input->series, points[i], title);
        }
    }
    spry_plot_end(&plot);
}

static void write_against(spry_doc *doc, const spry_report *report, const against *a, const double *values,
                          size_t count)
{
    spry_doc_column columns[1 + SPRY_REPORT_INPUTS] = {{a->column, true, false}};
    const spry_report_input *input;
    size_t n = 0;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
        columns[++n].title = input->name;
    spry_doc_heading(doc, "%s", a->caption);
    spry_doc_table(doc, columns, 1 + n);
    for (size_t i = 0; i < count; i++) {
        double first = NAN;
        spry_doc_value(doc, SPRY_DOC_COUNT, values[i]);
        for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));) {
            const double speed = speed_at(input->json, a, values[i]);
            spry_doc_compared(doc, SPRY_DOC_SPEED, speed, first, 1);
            first = input->series == 0 ? speed : first;
        }
    }
    spry_doc_table_end(doc);
}

void spry_report_speed(spry_doc *doc, const spry_report *report)
{
    size_t at = 0;
    const spry_report_input *first = spry_report_next(report, SPRY_REPORT_BENCH, &at);
    if (!first)
        return;
    char batch_axis[80];
    const double depth = spry_report_main_depth(first->json);
    snprintf(batch_axis, sizeof batch_axis, "sequences at once, at depth %.0f", depth);
    const against plots[] = {
        {"Prefill, tokens/s", "tokens of the prompt", "tokens", "prefill", "tokens", NULL, 0},
        {"Decode of one sequence, tokens/s", "depth: tokens before it", "depth", "decode", "depth", "batch", 1},
        {"Decode of several at once, tokens/s", batch_axis, "at once", "decode", "batch", "depth", depth},
    };
    double values[SPRY_COUNT(plots)][SPRY_REPORT_KEYS];
    size_t counts[SPRY_COUNT(plots)], all = 0;
    for (size_t i = 0; i < SPRY_COUNT(plots); i++)
        all += counts[i] = collect_values(values[i], report, &plots[i]);
    if (!all)
        return;
    spry_doc_section(doc, "Speed");
    spry_report_legend(doc, report, SPRY_REPORT_BENCH);
    spry_buffer *out = spry_doc_drawing(doc);
    if (out)
        spry_buffer_text(out, "<div class=\"plots\">\n");
    for (size_t i = 0; i < SPRY_COUNT(plots) && out; i++)
        if (counts[i] > 1)
            draw_against(out, report, &plots[i], values[i], counts[i]);
    if (out)
        spry_buffer_text(out, "</div>\n");
    for (size_t i = 0; i < SPRY_COUNT(plots); i++)
        if (counts[i]) {
            spry_doc_beside(doc);
            write_against(doc, report, &plots[i], values[i], counts[i]);
        }
    spry_doc_beside_end(doc);
}

/* ---- from step to step ------------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *key;
    double share;
} levels[] = {{"p50: half within", "p50_ms", 0.5}, {"p95", "p95_ms", 0.95}, {"p99", "p99_ms", 0.99}};

enum { LEVELS = SPRY_COUNT(levels) };

typedef struct evenness {
    char name[SPRY_REPORT_ROW];
    double ms[LEVELS];
} evenness;

/* Adds a row if there is room; `more` counts the others. */
static void add_row(evenness rows[SPRY_REPORT_ROWS], size_t *count, size_t *more, const evenness *row)
{
    if (*count < SPRY_REPORT_ROWS)
        rows[(*count)++] = *row;
    else
        (*more)++;
}

static void collect_benches(evenness rows[SPRY_REPORT_ROWS], size_t *count, size_t *more, const spry_report *report)
{
    spry_report_key keys[SPRY_REPORT_KEYS];
    const size_t n_keys = spry_report_keys(keys, report);
    const spry_report_input *input;
    for (size_t i = 0; i < n_keys; i++)
        for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));) {
            const json_t *point = spry_report_point(input->json, &keys[i]);
            evenness row;
            char what[SPRY_REPORT_ROW];
            for (size_t level = 0; level < LEVELS; level++)
                row.ms[level] = spry_report_number(point, levels[level].key);
            if (isnan(row.ms[0]))
                continue;
            spry_report_row_name(row.name, report, input, spry_report_point_name(what, point));
            add_row(rows, count, more, &row);
        }
}

static void collect_traces(evenness rows[SPRY_REPORT_ROWS], size_t *count, size_t *more, const spry_report *report)
{
    const spry_report_input *input;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_TRACE, &at));) {
        evenness row;
        for (size_t level = 0; level < LEVELS; level++)
            row.ms[level] = spry_spread_at(&input->trace->between_ms, levels[level].share);
        snprintf(row.name, sizeof row.name, "all answers: %s", input->name);
        if (input->trace->between_ms.count)
            add_row(rows, count, more, &row);
    }
}

static void draw_steps(spry_buffer *out, const evenness *steps, size_t count)
{
    spry_rows rows;
    spry_axis x = {.unit = " ms"};
    double most = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t level = 0; level < LEVELS; level++)
            most = fmax(most, steps[i].ms[level]);
    spry_buffer_text(out, "<ul class=\"legend\">\n");
    for (size_t level = 0; level < LEVELS; level++) {
        spry_buffer_text(out, "<li>");
        spry_plot_swatch(out, level);
        spry_buffer_format(out, " %s</li>\n", levels[level].name);
    }
    spry_buffer_text(out, "</ul>\n");
    spry_axis_cover(&x, 0, most);
    spry_rows_begin(&rows, out, "From one step of an answer to the next", &x);
    for (size_t i = 0; i < count; i++) {
        spry_rows_piece marks[LEVELS];
        char titles[LEVELS][80], sum[SPRY_DOC_VALUE];
        size_t n = 0;
        for (size_t level = 0; level < LEVELS; level++) {
            if (!isfinite(steps[i].ms[level]))
                continue;
            snprintf(titles[n], sizeof titles[n], "%s %s", levels[level].name,
                     spry_doc_print(sum, SPRY_DOC_MS, steps[i].ms[level]));
            marks[n] = (spry_rows_piece){"", titles[n], level, steps[i].ms[level], steps[i].ms[level]};
            n++;
        }
        spry_rows_add_marks(&rows, steps[i].name, spry_doc_print(sum, SPRY_DOC_MS, steps[i].ms[0]), marks, n);
    }
    spry_rows_end(&rows);
}

void spry_report_between_tokens(spry_doc *doc, const spry_report *report)
{
    static const spry_doc_column columns[] = {
        {"Answers", true, false}, {"p50", false, false}, {"p95", false, false}, {"p99", false, false}};
    evenness steps[SPRY_REPORT_ROWS];
    size_t count = 0, more = 0;
    collect_benches(steps, &count, &more, report);
    collect_traces(steps, &count, &more, report);
    if (!count)
        return;
    spry_doc_section(doc, "Between tokens");
    spry_doc_say(doc, "A step gives an answer one token, or several where guesses were right.");
    if (spry_doc_drawing(doc))
        draw_steps(spry_doc_drawing(doc), steps, count);
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t i = 0; i < count; i++) {
        spry_doc_cell(doc, "%s", steps[i].name);
        for (size_t level = 0; level < LEVELS; level++)
            spry_doc_value(doc, SPRY_DOC_MS, steps[i].ms[level]);
    }
    spry_doc_table_end(doc);
    spry_report_say_left_out(doc, more);
}
