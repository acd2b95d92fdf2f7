/* Axes, marks and labels. */
#include "report/svg_plot.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "base/compiler.h"
#include "report/html_page.h"

enum {
    WIDTH = 400,
    HEIGHT = 300,
    LEFT = 58, /* of the plot's frame */
    RIGHT = 388,
    TOP = 14,
    BOTTOM = 252,
    GAP = 4, /* between a marker and its label */
    LETTER_WIDTH = 8,
    LETTER_HEIGHT = 13,
    DISTANCES = 6, /* at which a label position is tried */
    AWAY = 7,      /* distance of positions */
    STEPS = 5,     /* maximum number of intervals of an axis */
};

/* ---- axes -------------------------------------------------------------------------------------------------------- */

/* The smallest of 1, 2 and 5 times a power of ten that divides `range` into at most STEPS. */
static double nice_step(double range)
{
    static const double factors[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(range / STEPS)));
    for (size_t i = 0; i < SPRY_COUNT(factors); i++)
        if (range / (power * factors[i]) <= STEPS + 1e-9)
            return power * factors[i];
    return power * 10;
}

void spry_axis_cover(spry_axis *axis, double least, double most)
{
    if (most - least <= fabs(most) * 1e-9)
        most = least + (least > 0 ? least : 1);
    axis->logarithmic = false;
    axis->n_ticks = 0;
    axis->step = nice_step(most - least);
    axis->least = floor(least / axis->step + 1e-9) * axis->step;
    axis->most = ceil(most / axis->step - 1e-9) * axis->step;
}

/* The next of 1, 2 and 5 times a power of ten below `value`, or above it. */
static double round_log(double value, bool up)
{
    static const double factors[] = {1, 2, 5, 10};
    const double power = pow(10, floor(log10(value) + 1e-9));
    double below = power;
    for (size_t i = 0; i < SPRY_COUNT(factors); i++) {
        const double at = power * factors[i];
        if (up && at >= value * (1 - 1e-9))
            return at;
        if (at <= value * (1 + 1e-9))
            below = at;
    }
    return below;
}

void spry_axis_cover_log(spry_axis *axis, double least, double most)
{
    axis->logarithmic = true;
    axis->step = 0;
    axis->n_ticks = 0;
    axis->least = round_log(fmax(least, DBL_MIN), false);
    axis->most = round_log(fmax(most, axis->least * 2), true);
}

void spry_axis_at(spry_axis *axis, const double *values, size_t count)
{
    const double least = count ? values[0] : 0, most = count ? values[count - 1] : 1;
    axis->logarithmic = least > 0 && most >= 4 * least;
    axis->step = 0;
    axis->ticks = values;
    axis->n_ticks = count;
    if (axis->logarithmic) { /* room for markers at both ends */
        const double room = pow(most / least, 0.04);
        axis->least = least / room;
        axis->most = most * room;
    } else {
        const double room = most > least ? 0.04 * (most - least) : fmax(1, 0.5 * most);
        axis->least = least - room;
        axis->most = most + room;
    }
}

double spry_axis_share(const spry_axis *axis, double value)
{
    if (axis->logarithmic)
        return (log(fmax(value, axis->least)) - log(axis->least)) / (log(axis->most) - log(axis->least));
    return (value - axis->least) / (axis->most - axis->least);
}

/* Powers of ten, with 2 and 5 times them if there is room. */
static size_t log_ticks(const spry_axis *axis, double ticks[SPRY_AXIS_TICKS])
{
    static const double factors[] = {1, 2, 5};
    const double decades = log10(axis->most) - log10(axis->least);
    const size_t used = decades > 2 ? 1 : SPRY_COUNT(factors);
    const double stride = pow(10, fmax(1, ceil(decades / 6)));
    size_t count = 0;
    double power = pow(10, floor(log10(axis->least) + 1e-9));
    for (size_t step = 0; step < SPRY_AXIS_TICKS; step++, power *= stride)
        for (size_t i = 0; i < used; i++) {
            const double at = power * factors[i];
            if (at >= axis->least * (1 - 1e-9) && at <= axis->most * (1 + 1e-9) && count < SPRY_AXIS_TICKS)
                ticks[count++] = at;
        }
    return count;
}

size_t spry_axis_ticks(const spry_axis *axis, double ticks[SPRY_AXIS_TICKS])
{
    size_t count = 0;
    if (axis->n_ticks)
        for (; count < axis->n_ticks && count < SPRY_AXIS_TICKS; count++)
            ticks[count] = axis->ticks[count];
    else if (axis->logarithmic)
        count = log_ticks(axis, ticks);
    else
        for (; axis->least + (double)count * axis->step <= axis->most + axis->step * 1e-6 && count < SPRY_AXIS_TICKS;
             count++)
            ticks[count] = axis->least + (double)count * axis->step;
    return count;
}

/* Thousands and millions are abbreviated, uniformly on a linear axis. */
void spry_axis_print(char out[SPRY_AXIS_TEXT], const spry_axis *axis, double value)
{
    static const char *const letters[] = {"", "k", "M", "G"};
    const double scale = axis->scale != 0 ? axis->scale : 1;
    const double largest = fabs((axis->step > 0 ? axis->most : value) * scale);
    const double finest = fabs((axis->step > 0 ? axis->step : value) * scale);
    size_t letter = 0;
    double by = 1;
    for (; !axis->n_ticks && letter + 1 < SPRY_COUNT(letters) && largest / by >= 1e4; letter++)
        by *= 1e3;
    const int digits = finest > 0 && !axis->n_ticks ? (int)ceil(-log10(finest / by) - 1e-9) : 0;
    const double shown = value * scale / by;
    snprintf(out, SPRY_AXIS_TEXT, "%.*f%s%s",
             digits < 0   ? 0
             : digits > 9 ? 9
                          : digits,
             fabs(shown) < 1e15 ? shown : 0, letters[letter], axis->unit);
}

/* ---- the frame --------------------------------------------------------------------------------------------------- */

static double place_x(const spry_plot *plot, double value)
{
    return LEFT + fmin(fmax(spry_axis_share(&plot->x, value), 0), 1) * (RIGHT - LEFT);
}

static double place_y(const spry_plot *plot, double value)
{
    return BOTTOM + fmin(fmax(spry_axis_share(&plot->y, value), 0), 1) * (TOP - BOTTOM);
}

static void draw_rows(const spry_plot *plot)
{
    double ticks[SPRY_AXIS_TICKS];
    const size_t count = spry_axis_ticks(&plot->y, ticks);
    for (size_t i = 0; i < count; i++) {
        char text[SPRY_AXIS_TEXT];
        const double at = place_y(plot, ticks[i]);
        spry_axis_print(text, &plot->y, ticks[i]);
        spry_buffer_format(plot->out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", LEFT,
                           RIGHT, at, at);
        spry_buffer_format(plot->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 7, at + 4,
                           text);
    }
}

/* Every tick has a line; text only where it does not overlap the previous one. */
static void draw_columns(const spry_plot *plot)
{
    double ticks[SPRY_AXIS_TICKS], end = 0;
    const size_t count = spry_axis_ticks(&plot->x, ticks);
    for (size_t i = 0; i < count; i++) {
        char text[SPRY_AXIS_TEXT];
        const double at = place_x(plot, ticks[i]);
        spry_axis_print(text, &plot->x, ticks[i]);
        const double half = (double)strlen(text) * LETTER_WIDTH / 2;
        spry_buffer_format(plot->out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n", at, at,
                           TOP, BOTTOM);
        if (at - half < end)
            continue;
        end = at + half + GAP;
        spry_buffer_format(plot->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%s</text>\n",
                           at + half > WIDTH ? WIDTH : at, BOTTOM + 17, at + half > WIDTH ? "end" : "middle", text);
    }
    spry_buffer_format(plot->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + RIGHT) / 2, BOTTOM + 38);
    spry_page_escape(plot->out, plot->x.title);
    spry_buffer_text(plot->out, "</text>\n");
}

void spry_plot_begin(spry_plot *plot, spry_buffer *out, const char *caption, const spry_axis *x, const spry_axis *y)
{
    *plot = (spry_plot){.out = out, .x = *x, .y = *y};
    spry_buffer_text(out, "<figure><figcaption>");
    spry_page_escape(out, caption);
    spry_buffer_format(out,
                       "</figcaption>\n<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"xy\" viewBox=\"0 0 %d %d\" "
                       "role=\"img\" aria-label=\"",
                       WIDTH, HEIGHT);
    spry_page_escape(out, caption);
    spry_buffer_text(out, "\">\n");
    spry_buffer_format(out, "<path class=\"grid\" fill=\"none\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, BOTTOM, RIGHT);
    draw_rows(plot);
    draw_columns(plot);
}

void spry_plot_end(spry_plot *plot)
{
    spry_buffer_text(plot->out, "</svg></figure>\n");
}

/* ---- lines and markers ------------------------------------------------------------------------------------------- */

void spry_plot_line(spry_plot *plot, size_t series, const char *style, const spry_plot_point *points, size_t count)
{
    spry_buffer_format(plot->out, "<polyline class=\"s%zu %s\" points=\"", series % SPRY_PAGE_SERIES,
                       style ? style : "path");
    for (size_t i = 0; i < count; i++)
        spry_buffer_format(plot->out, "%.1f,%.1f ", place_x(plot, points[i].x), place_y(plot, points[i].y));
    spry_buffer_text(plot->out, "\"/>\n");
}

static void draw_shape(spry_buffer *out, double x, double y, double size, size_t series, const char *title)
{
    const char *element = "path";
    spry_buffer_format(out, "<g class=\"s%zu\">", series % SPRY_PAGE_SERIES);
    switch (series % 4) {
    case 0:
        element = "circle";
        spry_buffer_format(out, "<circle class=\"mark\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\">", x, y, size * 0.85);
        break;
    case 1:
        spry_buffer_format(out, "<path class=\"mark\" d=\"M%.1f %.1fl%.1f %.1fl%.1f %.1fl%.1f %.1fz\">", x - size, y,
                           size, -size, size, size, -size, size);
        break;
    case 2:
        spry_buffer_format(out, "<path class=\"mark\" d=\"M%.1f %.1fh%.1fv%.1fh%.1fz\">", x - size * 0.75,
                           y - size * 0.75, size * 1.5, size * 1.5, -size * 1.5);
        break;
    default:
        spry_buffer_format(out, "<path class=\"mark\" d=\"M%.1f %.1fl%.1f %.1fh%.1fz\">", x, y - size * 0.95,
                           size * 0.95, size * 1.7, -size * 1.9);
    }
    spry_buffer_text(out, "<title>");
    spry_page_escape(out, title);
    spry_buffer_format(out, "</title></%s></g>\n", element);
}

static void take(spry_plot *plot, const spry_plot_box *box)
{
    if (plot->n_taken < SPRY_PLOT_BOXES)
        plot->taken[plot->n_taken++] = *box;
}

void spry_plot_mark(spry_plot *plot, size_t series, spry_plot_point at, const char *title)
{
    const double x = place_x(plot, at.x), y = place_y(plot, at.y), size = SPRY_PLOT_MARKER;
    draw_shape(plot->out, x, y, size, series, title);
    take(plot, &(spry_plot_box){x - size, y - size, x + size, y + size});
}

void spry_plot_ring(spry_plot *plot, spry_plot_point at)
{
    const double x = place_x(plot, at.x), y = place_y(plot, at.y), size = SPRY_PLOT_MARKER + 4;
    spry_buffer_format(plot->out, "<circle class=\"here\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.0f\"/>\n", x, y, size);
    take(plot, &(spry_plot_box){x - size - 3, y - size - 3, x + size + 3, y + size + 3});
}

void spry_plot_swatch(spry_buffer *out, size_t series)
{
    spry_buffer_text(out, "<svg viewBox=\"0 0 16 16\" aria-hidden=\"true\">");
    draw_shape(out, 8, 8, 7.5, series, "");
    spry_buffer_text(out, "</svg>");
}

/* ---- labels ------------------------------------------------------------------------------------------------------ */

static bool is_free(const spry_plot *plot, const spry_plot_box *b)
{
    if (b->left < LEFT || b->right > RIGHT || b->top < 0 || b->bottom > BOTTOM)
        return false;
    for (size_t i = 0; i < plot->n_taken; i++) {
        const spry_plot_box *other = &plot->taken[i];
        if (b->left < other->right && other->left < b->right && b->top < other->bottom && other->top < b->bottom)
            return false;
    }
    return true;
}

/* A line from the marker's edge to the label's. */
static void draw_lead(const spry_plot *plot, double x, double y, const spry_plot_box *box)
{
    const double to_x = fmin(fmax(x, box->left), box->right), to_y = fmin(fmax(y, box->top), box->bottom);
    const double length = hypot(to_x - x, to_y - y), part = length > 0 ? SPRY_PLOT_MARKER / length : 0;
    spry_buffer_format(plot->out, "<line class=\"lead\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>",
                       x + part * (to_x - x), y + part * (to_y - y), to_x, to_y);
}

/* Tries positions around a marker: right, left, above, below, then the corners; then the same further away. */
bool spry_plot_label(spry_plot *plot, size_t series, spry_plot_point at, const char *text)
{
    static const double sides[][2] = {{1, 0}, {-1, 0}, {0, -1}, {0, 1}, {1, -1}, {1, 1}, {-1, -1}, {-1, 1}};
    const double half_width = (double)strlen(text) * LETTER_WIDTH / 2, half_height = LETTER_HEIGHT / 2.0;
    const double marker_x = place_x(plot, at.x), marker_y = place_y(plot, at.y);
    for (size_t i = 0; i < DISTANCES * SPRY_COUNT(sides); i++) {
        const double *side = sides[i % SPRY_COUNT(sides)], away = (double)(i / SPRY_COUNT(sides)) * AWAY;
        const double x = marker_x + side[0] * (SPRY_PLOT_MARKER + GAP + half_width + away);
        const double y = marker_y + side[1] * (SPRY_PLOT_MARKER + half_height + away);
        const spry_plot_box box = {x - half_width, y - half_height, x + half_width, y + half_height};
        if (!is_free(plot, &box))
            continue;
        take(plot, &box);
        spry_buffer_format(plot->out, "<g class=\"s%zu\">", series % SPRY_PAGE_SERIES);
        if (away > AWAY)
            draw_lead(plot, marker_x, marker_y, &box);
        spry_buffer_format(plot->out, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", x,
                           box.bottom - 3);
        spry_page_escape(plot->out, text);
        spry_buffer_text(plot->out, "</text></g>\n");
        return true;
    }
    return false;
}
