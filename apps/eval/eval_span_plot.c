/* The result as an HTML page: two plots and the table. */
#include <math.h>
#include <stdio.h>

#include "eval/eval_span.h"
#include "report/html_page.h"
#include "report/report_doc.h"
#include "report/svg_plot.h"

/* The value of a result on a plot's vertical axis. */
typedef struct measure {
    const char *caption, *unit;
    double (*value)(const spry_eval_span_result *result);
    double scale;
    double least, most; /* always included in the range */
} measure;

static double mean_divergence(const spry_eval_span_result *result)
{
    return result->divergence.mean;
}

static double same_top(const spry_eval_span_result *result)
{
    return result->top1;
}

static const measure measures[] = {
    {"Mean KL divergence from full prefill, in nats", "", mean_divergence, 1, 0, 1e-6},
    {"Predictions with the same top token", " %", same_top, 100, 0.95, 1},
};

/* ---- points ------------------------------------------------------------------------------------------------------ */

typedef struct point {
    spry_plot_point at;
    const spry_eval_span_result *result;
    const char *repair;
} point;

/* Points of one order, from left to right. */
typedef struct points {
    point items[SPRY_EVAL_REPAIRS];
    size_t count;
} points;

/* Whether an earlier repair has the same number of tokens. */
static bool is_repeated(const spry_eval_span_report *r, size_t repair)
{
    for (size_t i = 0; i < repair; i++)
        if (r->repairs[i].tokens == r->repairs[repair].tokens)
            return true;
    return false;
}

static points points_of(const spry_eval_span_report *r, size_t order, const measure *m)
{
    points p = {.count = 0};
    for (size_t i = 0; i < SPRY_EVAL_REPAIRS; i++) {
        const spry_eval_span_result *result = &r->orders[order].results[i];
        if (is_repeated(r, i))
            continue;
        const point added = {{result->ttft_ratio, m->value(result)}, result, r->repairs[i].name};
        size_t at = p.count++;
        for (; at > 0 && p.items[at - 1].at.x > added.at.x; at--)
            p.items[at] = p.items[at - 1];
        p.items[at] = added;
    }
    return p;
}

/* ---- plots ------------------------------------------------------------------------------------------------------- */

/* The line through one order's points, then the points. */
static void draw_series(spry_plot *plot, const spry_eval_span_report *r, size_t order, const points *p)
{
    spry_plot_point line[SPRY_EVAL_REPAIRS];
    for (size_t i = 0; i < p->count; i++)
        line[i] = p->items[i].at;
    spry_plot_line(plot, order, NULL, line, p->count);
    for (size_t i = 0; i < p->count; i++) {
        const spry_eval_span_result *result = p->items[i].result;
        char title[160];
        snprintf(title, sizeof title, "%s order, repair %s: KL %.6f, same top token %.1f %%, %.1f ms",
                 r->orders[order].name, p->items[i].repair, result->divergence.mean, 100 * result->top1,
                 result->ttft_ms);
        spry_plot_mark(plot, order, p->items[i].at, title);
    }
}

static void draw_plot(spry_buffer *out, const spry_eval_span_report *r, const measure *m)
{
    double slowest = 1, least = m->least, most = m->most;
    for (size_t i = 0; i < r->n_orders * SPRY_EVAL_REPAIRS; i++) {
        const spry_eval_span_result *result = &r->orders[i / SPRY_EVAL_REPAIRS].results[i % SPRY_EVAL_REPAIRS];
        slowest = fmax(slowest, result->ttft_ratio);
        least = fmin(least, m->value(result));
        most = fmax(most, m->value(result));
    }
    spry_axis x = {.title = "time to the first token, of full prefill", .unit = " %", .scale = 100};
    spry_axis y = {.title = m->caption, .unit = m->unit, .scale = m->scale};
    spry_axis_cover(&x, 0, slowest);
    x.step = slowest < 1.5 ? 0.25 : x.step;
    x.most = slowest + 0.05; /* room for a marker */
    spry_axis_cover(&y, least, most);
    spry_plot plot;
    points p[SPRY_EVAL_ORDERS];
    spry_plot_begin(&plot, out, m->caption, &x, &y);
    for (size_t order = 0; order < r->n_orders; order++) {
        p[order] = points_of(r, order, m);
        draw_series(&plot, r, order, &p[order]);
    }
    for (size_t order = 0; order < r->n_orders; order++)
        for (size_t i = 0; i < p[order].count; i++)
            spry_plot_label(&plot, order, p[order].items[i].at, p[order].items[i].repair);
    spry_plot_end(&plot);
}

static void draw_legend(spry_buffer *out, const spry_eval_span_report *r)
{
    spry_buffer_text(out, "<ul class=\"legend\">\n");
    for (size_t kind = 0; kind < r->n_orders; kind++) {
        const size_t n_orders = r->orders[kind].n_orders;
        spry_buffer_text(out, "<li>");
        spry_plot_swatch(out, kind);
        if (kind == 0)
            spry_buffer_text(out, " documents in their own order</li>\n");
        else
            spry_buffer_format(out, " in %zu other %s</li>\n", n_orders, n_orders == 1 ? "order" : "orders");
    }
    spry_buffer_text(out, "</ul>\n");
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static void write_order(spry_doc *doc, const spry_eval_span_report *r, const spry_eval_span_order *order)
{
    spry_doc_cell(doc, "%s", order->name);
    spry_doc_cell(doc, "full prefill");
    for (size_t i = 0; i < 4; i++)
        spry_doc_cell(doc, " ");
    spry_doc_cell(doc, "%.1f ms", order->full_ttft_ms);
    spry_doc_cell(doc, "100 %%");
    spry_doc_cell(doc, " ");
    for (size_t i = 0; i < SPRY_EVAL_REPAIRS; i++) {
        const spry_eval_span_result *result = &order->results[i];
        const spry_eval_summary *d = &result->divergence;
        spry_doc_cell(doc, "%s", order->name);
        spry_doc_cell(doc, "%s", r->repairs[i].name);
        spry_doc_cell(doc, "%.6f", d->mean);
        spry_doc_cell(doc, "%.6f", d->p99);
        spry_doc_cell(doc, "%.6f", d->max);
        spry_doc_cell(doc, "%.1f %%", 100 * result->top1);
        spry_doc_cell(doc, "%.1f ms", result->ttft_ms);
        spry_doc_cell(doc, "%.0f %%", 100 * result->ttft_ratio);
        spry_doc_cell(doc, "%.0f", result->repaired_tokens);
    }
}

static void write_table(spry_doc *doc, const spry_eval_span_report *r)
{
    static const spry_doc_column columns[] = {
        {"order", true, false}, {"repair", true, false},   {"KL mean", false, false},
        {"99 %", false, false}, {"max", false, false},     {"top-1", false, false},
        {"TTFT", false, false}, {"of full", false, false}, {"repaired", false, false}};
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t kind = 0; kind < r->n_orders; kind++)
        write_order(doc, r, &r->orders[kind]);
    spry_doc_table_end(doc);
}

static void describe(spry_doc *doc, const spry_eval_span_report *r)
{
    const spry_eval_corpus *c = r->corpus;
    spry_doc_say(
        doc,
        "%zu %s of %zu to %zu tokens and %zu %s: prompts of %.0f tokens. Each document was computed once, "
        "alone; labels say how much of each was computed again in place. A page is %zu tokens; 15 %% is of the "
        "mean document, in whole pages: %zu tokens. Lower and further left is better in the first plot, higher "
        "and further left in the second.",
        c->documents.count, c->documents.count == 1 ? "document" : "documents", c->shortest_document,
        c->longest_document, c->questions.count, c->questions.count == 1 ? "question" : "questions", r->prompt_tokens,
        r->page_tokens, r->repairs[SPRY_EVAL_REPAIR_SHARE].tokens);
}

void spry_eval_span_plot(spry_buffer *out, const spry_eval_span_report *r)
{
    spry_doc doc;
    char title[1024], footer[400];
    snprintf(title, sizeof title, "Reused spans: %s", r->model);
    spry_doc_begin(&doc, out, false, title);
    describe(&doc, r);
    draw_legend(out, r);
    spry_buffer_text(out, "<div class=\"plots\">\n");
    for (size_t i = 0; i < SPRY_COUNT(measures); i++)
        draw_plot(out, r, &measures[i]);
    spry_buffer_text(out, "</div>\n");
    write_table(&doc, r);
    snprintf(footer, sizeof footer,
             "TTFT: median of %zu runs for each line, %zu where shuffled; documents were computed before and nothing "
             "else was. Full prefill found nothing. Repaired: tokens of documents computed in place, of a prompt.",
             r->corpus->questions.count, r->corpus->questions.count * (r->n_orders > 1 ? r->orders[1].n_orders : 0));
    spry_doc_end(&doc, footer);
}
