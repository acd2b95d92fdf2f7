/* The time of a step by op, and the speed of each op relative to the machine's limits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/html_page.h"
#include "report/report.h"
#include "spry_tools.h"

enum { PIECES_MAX = SPRY_REPORT_OPS, NAMES_MAX = 48, WORD = 41 };

static bool has_ops(const json_t *point)
{
    return json_array_size(spry_report_at(point, "ops")) > 0;
}

/* ---- residency --------------------------------------------------------------------------------------------------- */

/* The ops in any bar, for the legend. */
typedef struct op_names {
    const char *items[NAMES_MAX];
    size_t count;
} op_names;

static void note(op_names *names, const char *op)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->items[i], op) == 0)
            return;
    if (names->count < NAMES_MAX)
        names->items[names->count++] = op;
}

/* An op of a point or of a trace. */
typedef struct part {
    const char *op, *kernel;
    double share;
} part;

/* In execution order, so that bars are comparable. */
static void draw_bar(spry_rows *rows, op_names *names, const char *name, double ms, const part *parts, size_t n_parts)
{
    spry_rows_piece pieces[PIECES_MAX];
    char titles[PIECES_MAX][2 * WORD + SPRY_DOC_VALUE + 4], text[SPRY_DOC_VALUE];
    size_t count = 0;
    double end = 0;
    for (size_t rank = 0; rank <= SPRY_OP_COUNT; rank++)
        for (size_t i = 0; i < n_parts && count < PIECES_MAX; i++) {
            const part *p = &parts[i];
            if (!(p->share > 0) || spry_report_op_rank(p->op) != rank)
                continue;
            char op[WORD], kernel[WORD];
            snprintf(titles[count], sizeof titles[count], "%s %s (%s)", spry_report_cut(op, sizeof op, p->op),
                     spry_doc_print(text, SPRY_DOC_SHARE, p->share), spry_report_cut(kernel, sizeof kernel, p->kernel));
            pieces[count] =
                (spry_rows_piece){p->op, titles[count], spry_report_op_colour(p->op), end, fmin(end + p->share, 1)};
            end = pieces[count++].end;
            note(names, p->op);
        }
    spry_rows_add(rows, name, spry_doc_print(text, SPRY_DOC_MS, ms > 0 ? ms : NAN), pieces, count);
}

static void draw_point(spry_rows *rows, op_names *names, const char *name, const json_t *point)
{
    const json_t *ops = spry_report_at(point, "ops");
    part parts[PIECES_MAX];
    size_t count = 0;
    double ms = 0;
    for (size_t i = 0; i < json_array_size(ops) && count < PIECES_MAX; i++) {
        const json_t *op = json_array_get(ops, i);
        const char *kernel = spry_report_text(op, "kernel"), *device = spry_report_text(op, "device");
        const double op_ms = spry_report_number(op, "ms");
        parts[count++] = (part){spry_report_text(op, "op"),
                                kernel   ? kernel
                                : device ? device
                                         : "",
                                spry_report_number(op, "share")};
        ms += isfinite(op_ms) ? op_ms : 0;
    }
    draw_bar(rows, names, name, ms, parts, count);
}

static void draw_trace(spry_rows *rows, op_names *names, const spry_report_input *input)
{
    const spry_report_trace *trace = input->trace;
    part parts[SPRY_REPORT_OPS];
    char name[SPRY_REPORT_NAME + 16];
    double all = 0;
    for (size_t i = 0; i < trace->n_ops; i++)
        all += trace->ops[i].ms;
    for (size_t i = 0; i < trace->n_ops; i++)
        parts[i] = (part){trace->ops[i].name, trace->ops[i].kernel, all > 0 ? trace->ops[i].ms / all : 0};
    snprintf(name, sizeof name, "all steps: %s", input->name);
    draw_bar(rows, names, name, all, parts, trace->n_ops);
}

static void draw_legend(spry_buffer *out, const op_names *names)
{
    spry_buffer_text(out, "<ul class=\"legend\">\n");
    for (size_t i = 0; i < names->count; i++) {
        spry_buffer_text(out, "<li>");
        spry_rows_swatch(out, spry_report_op_colour(names->items[i]));
        spry_buffer_text(out, " ");
        spry_page_escape(out, names->items[i]);
        spry_buffer_text(out, "</li>\n");
    }
    spry_buffer_text(out, "</ul>\n");
}

/* Returns the number of points without room. */
static size_t draw_residency(spry_buffer *out, const spry_report *report)
{
    const spry_axis x = {.unit = " %", .scale = 100, .least = 0, .most = 1, .step = 0.25};
    spry_report_key keys[SPRY_REPORT_KEYS];
    const size_t n_keys = spry_report_keys(keys, report);
    const spry_report_input *input;
    op_names names = {.count = 0};
    spry_rows rows;
    size_t drawn = 0, more = 0;
    spry_rows_begin(&rows, out, "Share of the time of one prefill, and of one step, by op", &x);
    for (size_t i = 0; i < n_keys; i++)
        for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));) {
            const json_t *point = spry_report_point(input->json, &keys[i]);
            char name[SPRY_REPORT_ROW], what[SPRY_REPORT_ROW];
            if (!has_ops(point))
                continue;
            if (drawn == SPRY_REPORT_ROWS) {
                more++;
                continue;
            }
            spry_report_row_name(name, report, input, spry_report_point_name(what, point));
            draw_point(&rows, &names, name, point);
            drawn++;
        }
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_TRACE, &at));)
        if (input->trace->n_ops)
            draw_trace(&rows, &names, input);
    spry_rows_end(&rows);
    draw_legend(out, &names);
    return more;
}

static void write_ops(spry_doc *doc, const json_t *point)
{
    static const spry_doc_column columns[] = {
        {"Op", true, false},     {"Device", true, false}, {"Kernel", true, false}, {"Time", false, false},
        {"Share", false, false}, {"Calls", false, false}, {"Reads", false, false}, {"Multiplies", false, false}};
    const json_t *ops = spry_report_at(point, "ops");
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const json_t *op = json_array_get(ops, i);
        const char *kernel = spry_report_text(op, "kernel"), *device = spry_report_text(op, "device");
        const double reads = spry_report_number(op, "gb_s"), products = spry_report_number(op, "multiply_g_s");
        spry_doc_cell(doc, "%s", spry_report_text(op, "op"));
        spry_doc_cell(doc, "%s", device ? device : "–");
        spry_doc_cell(doc, "%s", kernel ? kernel : "–");
        spry_doc_value(doc, SPRY_DOC_MS, spry_report_number(op, "ms"));
        spry_doc_value(doc, SPRY_DOC_SHARE, spry_report_number(op, "share"));
        spry_doc_value(doc, SPRY_DOC_COUNT, spry_report_number(op, "calls"));
        spry_doc_value(doc, SPRY_DOC_GB_S, reads > 0 ? reads : NAN);
        spry_doc_value(doc, SPRY_DOC_PRODUCTS, products > 0 ? products : NAN);
    }
    spry_doc_table_end(doc);
}

/* Milliseconds of all ops of a rank; NAN if there are none. */
static double ms_of(const json_t *point, size_t rank)
{
    const json_t *ops = spry_report_at(point, "ops");
    double sum = NAN;
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const json_t *op = json_array_get(ops, i);
        const double ms = spry_report_number(op, "ms");
        if (isfinite(ms) && spry_report_op_rank(spry_report_text(op, "op")) == rank)
            sum = isnan(sum) ? ms : sum + ms;
    }
    return sum;
}

/* One point of all benches, op by op; ratios are relative to the first bench. */
static void compare_ops(spry_doc *doc, const spry_report *report, const json_t *first)
{
    const json_t *points[SPRY_REPORT_INPUTS];
    spry_doc_column columns[1 + SPRY_REPORT_INPUTS] = {{"Op", true, false}};
    const spry_report_key key = spry_report_key_of(first);
    const spry_report_input *input;
    char name[SPRY_REPORT_ROW];
    size_t n = 0;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));) {
        const json_t *point = spry_report_point(input->json, &key);
        if (!has_ops(point))
            continue;
        points[n] = point;
        columns[++n].title = input->name;
    }
    if (n < 2)
        return;
    spry_doc_beside(doc);
    spry_doc_heading(doc, "Time of ops: %s", spry_report_point_name(name, first));
    spry_doc_table(doc, columns, 1 + n);
    for (size_t rank = 0; rank <= SPRY_OP_COUNT; rank++) {
        double most = 0;
        for (size_t i = 0; i < n; i++)
            most = fmax(most, ms_of(points[i], rank));
        if (!(most > 0))
            continue;
        spry_doc_cell(doc, "%s", rank < SPRY_OP_COUNT ? spry_op_name((spry_op)rank) : "others");
        for (size_t i = 0; i < n; i++)
            spry_doc_compared(doc, SPRY_DOC_MS, ms_of(points[i], rank), i ? ms_of(points[0], rank) : NAN, -1);
    }
    spry_doc_table_end(doc);
}

static void write_trace_ops(spry_doc *doc, const spry_report_input *input)
{
    static const spry_doc_column columns[] = {{"Op", true, false},
                                              {"Kernel", true, false},
                                              {"Time", false, false},
                                              {"Share", false, false},
                                              {"Calls", false, false}};
    const spry_report_trace *trace = input->trace;
    double all = 0;
    for (size_t i = 0; i < trace->n_ops; i++)
        all += trace->ops[i].ms;
    spry_doc_heading(doc, "%s: all steps", input->name);
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t i = 0; i < trace->n_ops; i++) {
        spry_doc_cell(doc, "%s", trace->ops[i].name);
        spry_doc_cell(doc, "%s", trace->ops[i].kernel);
        spry_doc_value(doc, SPRY_DOC_MS, trace->ops[i].ms);
        spry_doc_value(doc, SPRY_DOC_SHARE, all > 0 ? trace->ops[i].ms / all : NAN);
        spry_doc_value(doc, SPRY_DOC_COUNT, trace->ops[i].calls);
    }
    spry_doc_table_end(doc);
}

/* The representative points of a bench that have ops. */
static size_t main_points(const json_t *points[2], const json_t *bench)
{
    const json_t *prefill = spry_report_prefill(bench, spry_report_main_prefill(bench));
    const json_t *decode = spry_report_decode(bench, spry_report_main_depth(bench), 1);
    size_t count = 0;
    if (has_ops(prefill))
        points[count++] = prefill;
    if (has_ops(decode))
        points[count++] = decode;
    return count;
}

static bool any_ops(const spry_report *report)
{
    spry_report_key keys[SPRY_REPORT_KEYS];
    const size_t n_keys = spry_report_keys(keys, report);
    const spry_report_input *input;
    for (size_t i = 0; i < n_keys; i++)
        for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
            if (has_ops(spry_report_point(input->json, &keys[i])))
                return true;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_TRACE, &at));)
        if (input->trace->n_ops)
            return true;
    return false;
}

void spry_report_residency(spry_doc *doc, const spry_report *report)
{
    const spry_report_input *input;
    if (!any_ops(report))
        return;
    spry_doc_section(doc, "Where the steps' time goes");
    if (spry_doc_drawing(doc))
        spry_report_say_left_out(doc, draw_residency(spry_doc_drawing(doc), report));
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));) {
        const json_t *points[2];
        const size_t count = main_points(points, input->json);
        for (size_t i = 0; i < count && input->series == 0; i++)
            compare_ops(doc, report, points[i]);
        for (size_t i = 0; i < count; i++) {
            char name[SPRY_REPORT_ROW];
            spry_doc_beside(doc);
            spry_doc_heading(doc, "%s: %s", input->name, spry_report_point_name(name, points[i]));
            write_ops(doc, points[i]);
        }
    }
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_TRACE, &at));)
        if (input->trace->n_ops) {
            spry_doc_beside(doc);
            write_trace_ops(doc, input);
        }
    spry_doc_beside_end(doc);
}

/* ---- roofline ---------------------------------------------------------------------------------------------------- */

/* Whether the number of products per byte is plausible. */
static bool can_be_placed(double intensity)
{
    return intensity > 1e-6 && intensity < 1e9;
}

/* An op that reads and multiplies. */
static bool place_op(spry_plot_point *at, const json_t *op)
{
    const double reads = spry_report_number(op, "gb_s"), products = spry_report_number(op, "multiply_g_s");
    if (!(reads > 0) || !(products > 0))
        return false;
    *at = (spry_plot_point){products / reads, products};
    return can_be_placed(at->x);
}

/* Prefill and decode have different markers. */
static size_t series_of(const json_t *point)
{
    return spry_report_at(point, "depth") ? 1 : 0;
}

/* Each op of each point, NULL after the last; `which` is the index of its point. */
static const json_t *next_op(const json_t *const *points, size_t n_points, size_t *which, size_t *at,
                             spry_plot_point *place)
{
    for (; *which < n_points; (*which)++, *at = 0) {
        const json_t *ops = spry_report_at(points[*which], "ops");
        while (*at < json_array_size(ops)) {
            const json_t *op = json_array_get(ops, (*at)++);
            if (place_op(place, op))
                return op;
        }
    }
    return NULL;
}

/* The machine's limits: bandwidth up to the ridge, then multiply speed. */
static void draw_roof(spry_plot *plot, double read, double multiply)
{
    const double left = plot->x.least, right = plot->x.most, ridge = fmin(fmax(multiply / read, left), right);
    const spry_plot_point roof[] = {{left, fmin(multiply, read * left)},
                                    {ridge, fmin(multiply, read * ridge)},
                                    {right, fmin(multiply, read * right)}};
    spry_plot_line(plot, 0, "roof", roof, SPRY_COUNT(roof));
}

static void draw_roofline(spry_buffer *out, const spry_report_input *input, const json_t *const *points,
                          size_t n_points)
{
    const double read = spry_report_number(input->json, "machine.read_gb_s");
    const double multiply = spry_report_number(input->json, "machine.multiply_g_s");
    spry_axis x = {.title = "products for each byte that is read", .unit = ""},
              y = {.title = "G products/s", .unit = ""};
    double left = multiply / read, right = left, low = multiply, high = multiply;
    spry_plot_point place;
    spry_plot plot;
    char caption[SPRY_REPORT_NAME + 48];
    const json_t *op;
    for (size_t which = 0, at = 0; next_op(points, n_points, &which, &at, &place);) {
        left = fmin(left, place.x);
        right = fmax(right, place.x);
        low = fmin(low, place.y);
        high = fmax(high, place.y);
    }
    spry_axis_cover_log(&x, left / 1.5, right * 1.5);
    spry_axis_cover_log(&y, low / 1.3, high * 1.3);
    snprintf(caption, sizeof caption, "%s: G products/s", input->name);
    spry_plot_begin(&plot, out, caption, &x, &y);
    draw_roof(&plot, read, multiply);
    for (size_t which = 0, at = 0; (op = next_op(points, n_points, &which, &at, &place));) {
        char title[160], word[WORD], one[SPRY_DOC_VALUE], other[SPRY_DOC_VALUE];
        snprintf(title, sizeof title, "%s: %s, %s", spry_report_cut(word, sizeof word, spry_report_text(op, "op")),
                 spry_doc_print(one, SPRY_DOC_PRODUCTS, place.y),
                 spry_doc_print(other, SPRY_DOC_GB_S, spry_report_number(op, "gb_s")));
        spry_plot_mark(&plot, series_of(points[which]), place, title);
    }
    for (size_t which = 0, at = 0; (op = next_op(points, n_points, &which, &at, &place));)
        spry_plot_label(&plot, series_of(points[which]), place, spry_report_text(op, "op"));
    spry_plot_end(&plot);
}

static void write_roofs(spry_doc *doc, const spry_report_input *input, const json_t *const *points, size_t n_points)
{
    static const spry_doc_column columns[] = {
        {"Op", true, false},       {"Of", true, false},        {"Products a byte", false, false},
        {"Reached", false, false}, {"Possible", false, false}, {"Share", false, false}};
    const double read = spry_report_number(input->json, "machine.read_gb_s");
    const double multiply = spry_report_number(input->json, "machine.multiply_g_s");
    spry_plot_point place;
    const json_t *op;
    spry_doc_heading(doc, "%s", input->name);
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t which = 0, at = 0; (op = next_op(points, n_points, &which, &at, &place));) {
        const double roof = fmin(multiply, read * place.x);
        char name[SPRY_REPORT_ROW];
        spry_doc_cell(doc, "%s", spry_report_text(op, "op"));
        spry_doc_cell(doc, "%s", spry_report_point_name(name, points[which]));
        spry_doc_value(doc, SPRY_DOC_SPEED, place.x);
        spry_doc_value(doc, SPRY_DOC_PRODUCTS, place.y);
        spry_doc_value(doc, SPRY_DOC_PRODUCTS, roof);
        spry_doc_value(doc, SPRY_DOC_SHARE, roof > 0 ? place.y / roof : NAN);
    }
    spry_doc_table_end(doc);
}

static size_t roof_points(const json_t *points[2], const spry_report_input *input)
{
    spry_plot_point place;
    size_t which = 0, at = 0;
    const size_t count = main_points(points, input->json);
    const double read = spry_report_number(input->json, "machine.read_gb_s");
    const double multiply = spry_report_number(input->json, "machine.multiply_g_s");
    return read > 0 && multiply > 0 && can_be_placed(multiply / read) && next_op(points, count, &which, &at, &place)
               ? count
               : 0;
}

static void draw_rooflines(spry_buffer *out, const spry_report *report)
{
    const spry_report_input *input;
    const json_t *points[2];
    size_t count;
    spry_buffer_text(out, "<ul class=\"legend\"><li>");
    spry_plot_swatch(out, 0);
    spry_buffer_text(out, " prefill</li><li>");
    spry_plot_swatch(out, 1);
    spry_buffer_text(out, " decode</li></ul>\n<div class=\"plots large\">\n");
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
        if ((count = roof_points(points, input)))
            draw_roofline(out, input, points, count);
    spry_buffer_text(out, "</div>\n");
}

void spry_report_roofline(spry_doc *doc, const spry_report *report)
{
    const spry_report_input *input;
    const json_t *points[2];
    size_t count;
    bool any = false;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
        any |= roof_points(points, input) > 0;
    if (!any)
        return;
    spry_doc_section(doc, "How near the machine's limits");
    spry_doc_say(doc, "The line is what the machine can do: on its slope memory is the limit, on its flat part "
                      "arithmetic, at the peak of the products of the model's main type; attention multiplies floats "
                      "and stays below it. Weights and keys that stay in a cache are read faster than memory, and may "
                      "lie above it.");
    if (spry_doc_drawing(doc))
        draw_rooflines(spry_doc_drawing(doc), report);
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
        if ((count = roof_points(points, input))) {
            spry_doc_beside(doc);
            write_roofs(doc, input, points, count);
        }
    spry_doc_beside_end(doc);
}
