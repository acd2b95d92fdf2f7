/* SVG plots: axes, lines, markers and labels, in a frame whose units are about pixels on a phone.
 *
 * Labels are placed where they cover neither a marker nor another label; one without room is omitted, since every
 * marker has a tooltip. So draw all lines and markers first, then labels. */
#ifndef SPRY_REPORT_SVG_PLOT_H
#define SPRY_REPORT_SVG_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

/* ---- axes -------------------------------------------------------------------------------------------------------- */

typedef struct spry_axis {
    const char *title;
    const char *unit;    /* appended to every tick: " %" */
    double scale;        /* factor for printed values; 0: 1 */
    double least, most;  /* range */
    double step;         /* between ticks; 0: irregular */
    const double *ticks; /* explicit ticks, if any */
    size_t n_ticks;
    bool logarithmic; /* ticks are powers of ten, and 2 and 5 times them if there is room */
} spry_axis;

/* Whole steps (1, 2 or 5 times a power of ten) over [least, most], which may be empty. */
void spry_axis_cover(spry_axis *axis, double least, double most);

/* Like spry_axis_cover for a logarithmic axis; both bounds are above 0. */
void spry_axis_cover_log(spry_axis *axis, double least, double most);

/* Ticks at the values of a series, from left to right, borrowed. Logarithmic if they are far apart. */
void spry_axis_at(spry_axis *axis, const double *values, size_t count);

/* The position of a value, from 0 to 1. */
double spry_axis_share(const spry_axis *axis, double value);

/* The values of the axis's ticks, at most SPRY_AXIS_TICKS. */
enum { SPRY_AXIS_TICKS = 24, SPRY_AXIS_TEXT = 48 };
size_t spry_axis_ticks(const spry_axis *axis, double ticks[SPRY_AXIS_TICKS]);
void spry_axis_print(char out[SPRY_AXIS_TEXT], const spry_axis *axis, double value);

/* ---- the plot ---------------------------------------------------------------------------------------------------- */

typedef struct spry_plot_box {
    double left, top, right, bottom;
} spry_plot_box;

enum { SPRY_PLOT_BOXES = 256, SPRY_PLOT_MARKER = 6 };

typedef struct spry_plot {
    spry_buffer *out;
    spry_axis x, y;
    spry_plot_box taken[SPRY_PLOT_BOXES]; /* occupied areas */
    size_t n_taken;
} spry_plot;

typedef struct spry_plot_point {
    double x, y; /* values, not positions */
} spry_plot_point;

/* A figure with a caption and a frame. Axes are copied. */
void spry_plot_begin(spry_plot *plot, spry_buffer *out, const char *caption, const spry_axis *x, const spry_axis *y);
void spry_plot_end(spry_plot *plot);

/* A line through the points; `style` is its class, NULL: that of the series. */
void spry_plot_line(spry_plot *plot, size_t series, const char *style, const spry_plot_point *points, size_t count);

/* A marker: circle, diamond, square or triangle by series. `title` is its tooltip. */
void spry_plot_mark(spry_plot *plot, size_t series, spry_plot_point at, const char *title);

/* A ring around a marker. */
void spry_plot_ring(spry_plot *plot, spry_plot_point at);

/* A label beside a marker. False: no room. */
bool spry_plot_label(spry_plot *plot, size_t series, spry_plot_point at, const char *text);

/* A series' marker alone, for legends. */
void spry_plot_swatch(spry_buffer *out, size_t series);

#endif
