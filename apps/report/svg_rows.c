/* Rows, pieces and the axis below. */
#include "report/svg_rows.h"

#include <math.h>

#include "report/html_page.h"

/* Widths of a letter, of a bar on a phone, and of one where the style rule "wide" applies; in pixels. */
enum { LETTER_WIDTH = 7, NARROW = 320, WIDE = 520, HEIGHT = 26 };

void spry_rows_begin(spry_rows *rows, spry_buffer *out, const char *caption, const spry_axis *x)
{
    *rows = (spry_rows){.out = out, .x = *x};
    spry_buffer_text(out, "<figure class=\"rows\"><figcaption>");
    spry_page_escape(out, caption);
    spry_buffer_text(out, "</figcaption>\n");
}

static double percent(const spry_rows *rows, double value)
{
    return 100 * fmin(fmax(spry_axis_share(&rows->x, value), 0), 1);
}

static void begin_row(spry_rows *rows, const char *name, const char *sum)
{
    spry_buffer *out = rows->out;
    spry_buffer_text(out, "<span class=\"name\">");
    spry_page_escape(out, name);
    spry_buffer_text(out, "</span><span class=\"sum\">");
    spry_page_escape(out, sum);
    spry_buffer_format(out,
                       "</span><svg xmlns=\"http://www.w3.org/2000/svg\" class=\"bar\" height=\"%d\" role=\"img\" "
                       "aria-label=\"",
                       HEIGHT);
    spry_page_escape(out, name);
    spry_buffer_text(out, ": ");
    spry_page_escape(out, sum);
    spry_buffer_text(out, "\">\n");
}

static void draw_piece(spry_rows *rows, const spry_rows_piece *piece)
{
    spry_buffer *out = rows->out;
    const double from = percent(rows, piece->begin), width = percent(rows, piece->end) - from;
    spry_buffer_format(out,
                       "<rect class=\"piece c%zu\" x=\"%.3f%%\" width=\"%.3f%%\" y=\"0\" height=\"%d\" "
                       "rx=\"2\"><title>",
                       piece->colour % SPRY_PAGE_PIECES, from, width, HEIGHT);
    spry_page_escape(out, piece->title);
    spry_buffer_text(out, "</title></rect>\n");
    const double needed = (double)strlen(piece->name) * LETTER_WIDTH + 8;
    if (width * WIDE / 100 < needed)
        return;
    spry_buffer_format(out, "<text class=\"in%s\" x=\"%.3f%%\" y=\"17\" text-anchor=\"middle\" aria-hidden=\"true\">",
                       width * NARROW / 100 < needed ? " wide" : "", from + width / 2);
    spry_page_escape(out, piece->name);
    spry_buffer_text(out, "</text>\n");
}

void spry_rows_add(spry_rows *rows, const char *name, const char *sum, const spry_rows_piece *pieces, size_t count)
{
    begin_row(rows, name, sum);
    spry_buffer_format(rows->out, "<rect class=\"base\" width=\"100%%\" height=\"%d\" rx=\"2\"/>\n", HEIGHT);
    for (size_t i = 0; i < count; i++)
        draw_piece(rows, &pieces[i]);
    spry_buffer_text(rows->out, "</svg>\n");
}

void spry_rows_add_marks(spry_rows *rows, const char *name, const char *sum, const spry_rows_piece *marks, size_t count)
{
    begin_row(rows, name, sum);
    spry_buffer_format(rows->out, "<rect class=\"base\" width=\"100%%\" height=\"%d\" rx=\"2\"/>\n", HEIGHT);
    if (count > 1)
        spry_buffer_format(rows->out, "<line class=\"roof\" x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"13\" y2=\"13\"/>\n",
                           percent(rows, marks[0].begin), percent(rows, marks[count - 1].begin));
    for (size_t i = 0; i < count; i++) {
        spry_buffer_format(rows->out,
                           "<svg x=\"%.3f%%\" y=\"5\" width=\"16\" height=\"16\" overflow=\"visible\">"
                           "<g transform=\"translate(-8)\">",
                           percent(rows, marks[i].begin));
        spry_plot_swatch(rows->out, marks[i].colour);
        spry_buffer_text(rows->out, "<title>");
        spry_page_escape(rows->out, marks[i].title);
        spry_buffer_text(rows->out, "</title></g></svg>\n");
    }
    spry_buffer_text(rows->out, "</svg>\n");
}

/* The first tick's text starts at it and the last one's ends there, so that none overflows; only the last has the unit,
 * and on a phone its neighbour is hidden. */
void spry_rows_end(spry_rows *rows)
{
    double ticks[SPRY_AXIS_TICKS];
    const size_t count = spry_axis_ticks(&rows->x, ticks);
    spry_axis plain = rows->x;
    plain.unit = "";
    spry_buffer_format(rows->out,
                       "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"bar axis\" height=\"%d\" "
                       "aria-hidden=\"true\">\n",
                       HEIGHT);
    for (size_t i = 0; i < count; i++) {
        char text[SPRY_AXIS_TEXT];
        const double at = percent(rows, ticks[i]);
        spry_axis_print(text, i + 1 < count ? &plain : &rows->x, ticks[i]);
        spry_buffer_format(rows->out,
                           "<line class=\"grid\" x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"0\" y2=\"5\"/>"
                           "<text%s x=\"%.3f%%\" y=\"19\" text-anchor=\"%s\">%s</text>\n",
                           at, at, count > 3 && i + 2 == count ? " class=\"near\"" : "", at,
                           at < 1    ? "start"
                           : at > 99 ? "end"
                                     : "middle",
                           text);
    }
    spry_buffer_text(rows->out, "</svg></figure>\n");
}

void spry_rows_swatch(spry_buffer *out, size_t colour)
{
    spry_buffer_format(out,
                       "<svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><rect class=\"piece c%zu\" x=\"1\" y=\"1\" "
                       "width=\"14\" height=\"14\" rx=\"3\"/></svg>",
                       colour % SPRY_PAGE_PIECES);
}
