/* Horizontal bars on one axis: a name, segments, and a total. Lengths are relative to the available width, so that
 * letters keep their size on phones and wide screens. */
#ifndef SPRY_REPORT_SVG_ROWS_H
#define SPRY_REPORT_SVG_ROWS_H

#include "report/svg_plot.h"

/* A figure with its caption. The axis begins at 0. */
typedef struct spry_rows {
    spry_buffer *out;
    spry_axis x;
} spry_rows;

typedef struct spry_rows_piece {
    const char *name;  /* written inside if there is room */
    const char *title; /* tooltip */
    size_t colour;     /* c0 to c13 */
    double begin, end;
} spry_rows_piece;

void spry_rows_begin(spry_rows *rows, spry_buffer *out, const char *caption, const spry_axis *x);

/* Adds a row; `sum` is shown after it. */
void spry_rows_add(spry_rows *rows, const char *name, const char *sum, const spry_rows_piece *pieces, size_t count);

/* Adds a row of markers, of the series 0, 1, 2..., on a line from the first to the last. */
void spry_rows_add_marks(spry_rows *rows, const char *name, const char *sum, const spry_rows_piece *marks,
                         size_t count);

void spry_rows_end(spry_rows *rows);

/* One colour of a legend, which is a list of class "legend". */
void spry_rows_swatch(spry_buffer *out, size_t colour);

#endif
