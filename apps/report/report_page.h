/* Measurements as a page. Text may come from untrusted files. Check out->failed. */
#ifndef SPRY_REPORT_PAGE_H
#define SPRY_REPORT_PAGE_H

#include <jansson.h>

#include "base/buffer.h"

/* One self-contained HTML page that shows `data` with JavaScript: {"document": a document, see report.js} or
 * {"version", "files": checked files with "_name" and "_kind"}. */
void spry_report_page(spry_buffer *out, const json_t *data);

#endif
