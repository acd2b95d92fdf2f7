/* A self-contained HTML page: well-formed XML, no scripts, light or dark like the reader's system, one column on a
 * phone, unbroken plots on paper. All pages of the program use this head, so that they look the same.
 *
 * Colours are classes. s0 to s7 are series (lines, markers, names), which also differ by shape and words; c0 to c13 are
 * the segments of bars, light enough for dark letters. */
#ifndef SPRY_REPORT_HTML_PAGE_H
#define SPRY_REPORT_HTML_PAGE_H

#include "base/buffer.h"

enum { SPRY_PAGE_SERIES = 8, SPRY_PAGE_PIECES = 14 };

/* Text for elements and for attributes in double quotes; characters that XML does not allow become '?'. */
void spry_page_escape(spry_buffer *out, const char *text);

/* From the document's type to the body's start tag; `title` is escaped here. */
void spry_page_begin(spry_buffer *out, const char *title);
void spry_page_end(spry_buffer *out);

#endif
