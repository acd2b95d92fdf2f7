/* A page of HTML that needs nothing from outside: well-formed XML, no scripts, light or dark as the reader's system is,
 * one column on a phone, whole plots on paper. Everything the program draws for people begins with this head, so that
 * all of it looks the same.
 *
 * Colours are classes. s0 to s7 are series (lines, markers, names), which are told apart by colour, shape and words; c0
 * to c13 are the pieces of bars, light enough for dark letters on them. */
#ifndef SPRY_REPORT_HTML_PAGE_H
#define SPRY_REPORT_HTML_PAGE_H

#include "base/buffer.h"

enum { SPRY_PAGE_SERIES = 8, SPRY_PAGE_PIECES = 14 };

/* Text for elements and for attributes in double quotes; what XML cannot hold becomes '?'. */
void spry_page_escape(spry_buffer *out, const char *text);

/* From the document's type to the body's start tag; `title` is escaped here. */
void spry_page_begin(spry_buffer *out, const char *title);
void spry_page_end(spry_buffer *out);

#endif
