/* Bars, one below the other on one axis: a name, pieces that follow each other, what they come to. Lengths are shares
 * of the width there is, so that letters stay as they are on a phone and on a wide screen. */
#ifndef SPRY_REPORT_SVG_ROWS_H
#define SPRY_REPORT_SVG_ROWS_H

#include "report/svg_plot.h"

/* A figure with its caption. The axis begins at 0. */
typedef struct spry_rows {
    spry_buffer *out;
    spry_axis x;
} spry_rows;

typedef struct spry_rows_piece {
    const char *name;  /* written into it where there is room */
    const char *title; /* what it says when it is pointed at */
    size_t colour;     /* c0 to c13 */
    double begin, end;
} spry_rows_piece;

void spry_rows_begin(spry_rows *rows, spry_buffer *out, const char *caption, const spry_axis *x);

/* A row; `sum` stands behind it. */
void spry_rows_add(spry_rows *rows, const char *name, const char *sum, const spry_rows_piece *pieces, size_t count);

/* The same with markers, of the series 0, 1, 2..., on a line from the first to the last. */
void spry_rows_add_marks(spry_rows *rows, const char *name, const char *sum, const spry_rows_piece *marks,
                         size_t count);

void spry_rows_end(spry_rows *rows);

/* One of a legend's colours; the legend is a list of class "legend". */
void spry_rows_swatch(spry_buffer *out, size_t colour);

#endif
