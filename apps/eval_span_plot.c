/* The result as a page of HTML: two plots in SVG, and the table. Well-formed XML, no scripts, nothing from outside,
 * light or dark as the reader's system is, one column on a phone.
 *
 * Plots are drawn in units that are about pixels on a phone. Labels go where they cover neither a marker nor another
 * label; one that finds no place is left out, as every marker says what it is when it is pointed at. */
#include <math.h>
#include <stdio.h>

#include "eval_span.h"

enum {
    WIDTH = 400,
    HEIGHT = 300,
    LEFT = 58, /* of the plot's frame */
    RIGHT = 388,
    TOP = 14,
    BOTTOM = 252,
    MARKER = 6, /* half of its size */
    GAP = 4,    /* between it and its label */
    LETTER_WIDTH = 8,
    LETTER_HEIGHT = 13,
    TICKS = 5,
};

static const char style[] =
    ":root{color-scheme:light dark;--back:#fcfcfa;--text:#1c1c1a;--soft:#64645e;--line:#deded8;"
    "--original:#1d5fae;--shuffled:#b4480f}\n"
    "@media(prefers-color-scheme:dark){:root{--back:#161615;--text:#eceae4;--soft:#a3a29b;--line:#383834;"
    "--original:#7db4f5;--shuffled:#f5a26b}}\n"
    "body{margin:0 auto;padding:1rem;max-width:64rem;background:var(--back);color:var(--text);"
    "font:16px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.4rem;margin:.2rem 0}\n"
    "h2{font-size:1rem;margin:0 0 .3rem}\n"
    "p{margin:.4rem 0;max-width:44rem}\n"
    ".plots{display:grid;gap:1.2rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));margin:1rem 0}\n"
    "svg{display:block;width:100%;height:auto}\n"
    "svg text{font:13px system-ui,sans-serif;fill:var(--soft)}\n"
    ".grid{stroke:var(--line);stroke-width:1}\n"
    ".original{--colour:var(--original)}.shuffled{--colour:var(--shuffled)}\n"
    ".path{fill:none;stroke:var(--colour);stroke-width:1.5;opacity:.55}\n"
    ".mark{fill:var(--colour);stroke:var(--back);stroke-width:1.5}\n"
    "svg text.label{fill:var(--colour);font-weight:600;paint-order:stroke;stroke:var(--back);stroke-width:3px}\n"
    ".legend{display:flex;gap:.2rem 1.4rem;flex-wrap:wrap}\n"
    ".legend svg{display:inline-block;width:1em;height:1em;vertical-align:-.12em}\n"
    ".scroll{overflow-x:auto}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;white-space:nowrap}\n"
    "th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid var(--line)}\n"
    "th{color:var(--soft);font-weight:600}\n"
    "th:nth-child(-n+2),td:nth-child(-n+2){text-align:left}\n";

/* ---- axes -------------------------------------------------------------------------------------------------------- */

/* What a plot shows of a result, upwards. */
typedef struct axis {
    const char *title, *unit;
    double (*value)(const spry_eval_span_result *result);
    double scale;       /* of values that are printed */
    double least, most; /* of the axis */
    double step;        /* from tick to tick */
} axis;

static double mean_divergence(const spry_eval_span_result *result)
{
    return result->divergence.mean;
}

static double same_top(const spry_eval_span_result *result)
{
    return result->top1;
}

/* The smallest of 1, 2 and 5 times a power of ten that divides `range` into at most TICKS. */
static double nice_step(double range)
{
    static const double factors[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(range / TICKS)));
    for (size_t i = 0; i < SPRY_COUNT(factors); i++)
        if (range / (power * factors[i]) <= TICKS + 1e-9)
            return power * factors[i];
    return power * 10;
}

/* Covers [least, most] in whole steps. */
static void set_range(axis *a, double least, double most)
{
    a->step = nice_step(most - least);
    a->least = floor(least / a->step + 1e-9) * a->step;
    a->most = ceil(most / a->step - 1e-9) * a->step;
}

static double along(const axis *a, double value, double from, double to)
{
    return from + (value - a->least) / (a->most - a->least) * (to - from);
}

static int decimals(const axis *a)
{
    int digits = (int)ceil(-log10(a->step * a->scale) - 1e-9);
    return digits < 0 ? 0 : digits;
}

static void draw_axes(spry_buffer *out, const axis *x, const axis *y)
{
    const size_t columns = (size_t)((x->most - x->least) / x->step + 1e-9);
    const size_t rows = (size_t)((y->most - y->least) / y->step + 1e-9);
    for (size_t i = 0; i <= rows; i++) {
        double value = y->least + (double)i * y->step, at = along(y, value, BOTTOM, TOP);
        spry_buffer_format(out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", LEFT, RIGHT, at,
                           at);
        spry_buffer_format(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.*f%s</text>\n", LEFT - 7, at + 4,
                           decimals(y), value * y->scale, y->unit);
    }
    for (size_t i = 0; i <= columns; i++) {
        double value = x->least + (double)i * x->step, at = along(x, value, LEFT, RIGHT);
        spry_buffer_format(out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n", at, at, TOP,
                           BOTTOM);
        spry_buffer_format(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.*f%s</text>\n", at, BOTTOM + 17,
                           decimals(x), value * x->scale, x->unit);
    }
    spry_buffer_format(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", (LEFT + RIGHT) / 2,
                       BOTTOM + 38, x->title);
}

/* ---- markers and labels ------------------------------------------------------------------------------------------ */

typedef struct point {
    double x, y;
    const spry_eval_span_result *result;
    const char *repair;
    size_t order;
} point;

/* Of one plot, order by order, each from left to right. */
typedef struct points {
    point items[SPRY_EVAL_ORDERS * SPRY_EVAL_REPAIRS];
    size_t count;
} points;

typedef struct box {
    double left, top, right, bottom;
} box;

/* What is drawn already. */
typedef struct taken {
    box boxes[2 * SPRY_EVAL_ORDERS * SPRY_EVAL_REPAIRS];
    size_t count;
} taken;

static bool is_free(const taken *t, const box *b)
{
    if (b->left < LEFT || b->right > RIGHT || b->top < 0 || b->bottom > BOTTOM)
        return false;
    for (size_t i = 0; i < t->count; i++) {
        const box *other = &t->boxes[i];
        if (b->left < other->right && other->left < b->right && b->top < other->bottom && other->top < b->bottom)
            return false;
    }
    return true;
}

/* Around a marker: right, left, above, below, then corner by corner. */
static bool place_label(taken *t, box *place, double x, double y, size_t letters)
{
    static const double sides[][2] = {{1, 0}, {-1, 0}, {0, -1}, {0, 1}, {1, -1}, {1, 1}, {-1, -1}, {-1, 1}};
    const double half_width = (double)letters * LETTER_WIDTH / 2, half_height = LETTER_HEIGHT / 2.0;
    for (size_t i = 0; i < SPRY_COUNT(sides); i++) {
        double centre_x = x + sides[i][0] * (MARKER + GAP + half_width);
        double centre_y = y + sides[i][1] * (MARKER + half_height);
        *place = (box){centre_x - half_width, centre_y - half_height, centre_x + half_width, centre_y + half_height};
        if (is_free(t, place)) {
            t->boxes[t->count++] = *place;
            return true;
        }
    }
    return false;
}

/* A circle for the documents' own order, a diamond for others. */
static void draw_shape(spry_buffer *out, double x, double y, double size, bool diamond, const char *title)
{
    if (diamond)
        spry_buffer_format(out, "<path class=\"mark\" d=\"M%.1f %.1fl%.1f %.1fl%.1f %.1fl%.1f %.1fz\">", x - size, y,
                           size, -size, size, size, -size, size);
    else
        spry_buffer_format(out, "<circle class=\"mark\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\">", x, y, size * 0.85);
    spry_buffer_format(out, "<title>%s</title></%s>\n", title, diamond ? "path" : "circle");
}

/* The line through one order's points, then the points. */
static void draw_series(spry_buffer *out, const spry_eval_span_report *r, const points *p, size_t order)
{
    char title[160];
    spry_buffer_format(out, "<g class=\"%s\">\n<polyline class=\"path\" points=\"", r->orders[order].name);
    for (size_t i = 0; i < p->count; i++)
        if (p->items[i].order == order)
            spry_buffer_format(out, "%.1f,%.1f ", p->items[i].x, p->items[i].y);
    spry_buffer_text(out, "\"/>\n");
    for (size_t i = 0; i < p->count; i++) {
        const point *at = &p->items[i];
        if (at->order != order)
            continue;
        snprintf(title, sizeof title, "%s order, repair %s: KL %.6f, same top token %.1f %%, %.1f ms",
                 r->orders[order].name, at->repair, at->result->divergence.mean, 100 * at->result->top1,
                 at->result->ttft_ms);
        draw_shape(out, at->x, at->y, MARKER, order > 0, title);
    }
    spry_buffer_text(out, "</g>\n");
}

static void draw_labels(spry_buffer *out, const spry_eval_span_report *r, const points *p)
{
    taken t = {.count = 0};
    for (size_t i = 0; i < p->count; i++) {
        const point *at = &p->items[i];
        t.boxes[t.count++] = (box){at->x - MARKER, at->y - MARKER, at->x + MARKER, at->y + MARKER};
    }
    for (size_t i = 0; i < p->count; i++) {
        const point *at = &p->items[i];
        box place;
        if (place_label(&t, &place, at->x, at->y, strlen(at->repair)))
            spry_buffer_format(out,
                               "<g class=\"%s\"><text class=\"label\" x=\"%.1f\" y=\"%.1f\" "
                               "text-anchor=\"middle\">%s</text></g>\n",
                               r->orders[at->order].name, (place.left + place.right) / 2, place.bottom - 3, at->repair);
    }
}

/* Whether an earlier repair is the same number of tokens. */
static bool is_repeated(const spry_eval_span_report *r, size_t repair)
{
    for (size_t i = 0; i < repair; i++)
        if (r->repairs[i].tokens == r->repairs[repair].tokens)
            return true;
    return false;
}

static points points_of(const spry_eval_span_report *r, const axis *x, const axis *y)
{
    points p = {.count = 0};
    for (size_t order = 0; order < r->n_orders; order++) {
        const size_t first = p.count;
        for (size_t i = 0; i < SPRY_EVAL_REPAIRS; i++) {
            const spry_eval_span_result *result = &r->orders[order].results[i];
            if (is_repeated(r, i))
                continue;
            const point added = {along(x, result->ttft_ratio, LEFT, RIGHT), along(y, y->value(result), BOTTOM, TOP),
                                 result, r->repairs[i].name, order};
            size_t at = p.count++;
            for (; at > first && p.items[at - 1].x > added.x; at--)
                p.items[at] = p.items[at - 1];
            p.items[at] = added;
        }
    }
    return p;
}

/* From `least` to `most` in any case. */
static void draw_plot(spry_buffer *out, const spry_eval_span_report *r, axis *y, double least, double most)
{
    double slowest = 1;
    for (size_t i = 0; i < r->n_orders * SPRY_EVAL_REPAIRS; i++) {
        const spry_eval_span_result *result = &r->orders[i / SPRY_EVAL_REPAIRS].results[i % SPRY_EVAL_REPAIRS];
        slowest = fmax(slowest, result->ttft_ratio);
        least = fmin(least, y->value(result));
        most = fmax(most, y->value(result));
    }
    const axis x = {.title = "time to the first token, of full prefill",
                    .unit = " %",
                    .scale = 100,
                    .most = slowest + 0.05, /* room for a marker */
                    .step = slowest < 1.5 ? 0.25 : nice_step(slowest)};
    set_range(y, least, most);
    spry_buffer_format(out,
                       "<figure style=\"margin:0\"><h2>%s</h2>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
                       "viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n",
                       y->title, WIDTH, HEIGHT, y->title);
    draw_axes(out, &x, y);
    const points p = points_of(r, &x, y);
    for (size_t order = 0; order < r->n_orders; order++)
        draw_series(out, r, &p, order);
    draw_labels(out, r, &p);
    spry_buffer_text(out, "</svg></figure>\n");
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static void append_escaped(spry_buffer *out, const char *text)
{
    for (; *text; text++) {
        const char c = *text;
        if (c == '<' || c == '>' || c == '&' || c == '"')
            spry_buffer_format(out, "&#%d;", c);
        else
            spry_buffer_append(out, (unsigned char)c < ' ' ? "?" : &c, 1);
    }
}

static void append_legend(spry_buffer *out, const spry_eval_span_report *r)
{
    spry_buffer_text(out, "<p class=\"legend\">");
    for (size_t kind = 0; kind < r->n_orders; kind++) {
        const spry_eval_span_order *order = &r->orders[kind];
        spry_buffer_format(out, "<span class=\"%s\"><svg viewBox=\"0 0 16 16\">", order->name);
        draw_shape(out, 8, 8, 7, kind > 0, order->name);
        spry_buffer_text(out, "</svg> ");
        if (kind == 0)
            spry_buffer_text(out, "documents in their own order</span>\n");
        else
            spry_buffer_format(out, "in %zu other %s</span>\n", order->n_orders,
                               order->n_orders == 1 ? "order" : "orders");
    }
    spry_buffer_text(out, "</p>\n");
}

static void append_rows(spry_buffer *out, const spry_eval_span_report *r, const spry_eval_span_order *order)
{
    spry_buffer_format(
        out,
        "<tr><td>%s</td><td>full prefill</td><td></td><td></td><td></td><td></td><td>%.1f ms</td><td>100 %%</td>"
        "<td></td></tr>\n",
        order->name, order->full_ttft_ms);
    for (size_t i = 0; i < SPRY_EVAL_REPAIRS; i++) {
        const spry_eval_span_result *result = &order->results[i];
        const spry_eval_summary *d = &result->divergence;
        spry_buffer_format(out,
                           "<tr><td>%s</td><td>%s</td><td>%.6f</td><td>%.6f</td><td>%.6f</td><td>%.1f %%</td>"
                           "<td>%.1f ms</td><td>%.0f %%</td><td>%.0f</td></tr>\n",
                           order->name, r->repairs[i].name, d->mean, d->p99, d->max, 100 * result->top1,
                           result->ttft_ms, 100 * result->ttft_ratio, result->repaired_tokens);
    }
}

static void append_head(spry_buffer *out, const spry_eval_span_report *r)
{
    const spry_eval_corpus *c = r->corpus;
    spry_buffer_text(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
                          "content=\"width=device-width, initial-scale=1\"/>\n<title>Reused spans: ");
    append_escaped(out, r->model);
    spry_buffer_format(out, "</title>\n<style>\n%s</style></head>\n<body>\n<h1>Reused spans: ", style);
    append_escaped(out, r->model);
    spry_buffer_format(out,
                       "</h1>\n<p>%zu %s of %zu to %zu tokens and %zu %s: prompts of %.0f tokens. Each document "
                       "was computed once, alone; labels say how much of each was computed again in place. A page is "
                       "%zu tokens; 15 %% is of the mean document, in whole pages: %zu tokens. Lower and further left "
                       "is better in the first plot, higher and further left in the second.</p>\n",
                       c->documents.count, c->documents.count == 1 ? "document" : "documents", c->shortest_document,
                       c->longest_document, c->questions.count, c->questions.count == 1 ? "question" : "questions",
                       r->prompt_tokens, r->page_tokens, r->repairs[SPRY_EVAL_REPAIR_SHARE].tokens);
}

void spry_eval_span_plot(spry_buffer *out, const spry_eval_span_report *r)
{
    axis divergence = {
        .title = "Mean KL divergence from full prefill, in nats", .unit = "", .value = mean_divergence, .scale = 1};
    axis top = {.title = "Predictions with the same top token", .unit = " %", .value = same_top, .scale = 100};
    append_head(out, r);
    append_legend(out, r);
    spry_buffer_text(out, "<div class=\"plots\">\n");
    draw_plot(out, r, &divergence, 0, 1e-6);
    draw_plot(out, r, &top, 0.95, 1);
    spry_buffer_text(out,
                     "</div>\n<div class=\"scroll\"><table>\n<tr><th>order</th><th>repair</th><th>KL mean</th>"
                     "<th>99 %</th><th>max</th><th>top-1</th><th>TTFT</th><th>of full</th><th>repaired</th></tr>\n");
    for (size_t kind = 0; kind < r->n_orders; kind++)
        append_rows(out, r, &r->orders[kind]);
    spry_buffer_format(
        out,
        "</table></div>\n<p>TTFT: median of %zu runs for each line, %zu where shuffled; documents were "
        "computed before and nothing else was. Full prefill found nothing. Repaired: tokens of documents "
        "computed in place, of a prompt.</p>\n</body></html>\n",
        r->corpus->questions.count, r->corpus->questions.count * (r->n_orders > 1 ? r->orders[1].n_orders : 0));
}
