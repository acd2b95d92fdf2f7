/* Writes measurements as a page. */
#include "report/report_page.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "web/web_page.h"

/* cli/bundled.S */
extern const char spry_report_css[], spry_report_js[];

/* The data cannot end its element, since '<' is escaped; and nothing on the page can reach the network. */
void spry_report_page(spry_buffer *out, const json_t *data)
{
    char *json = spry_json_text(data, JSON_COMPACT | JSON_REAL_PRECISION(12));
    out->failed |= !json;
    spry_buffer_text(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri 'none'; "
                          "form-action 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'\">\n"
                          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                          "<title>Report</title>\n<style>\n");
    spry_buffer_text(out, spry_report_css);
    spry_buffer_text(out, "</style></head>\n<body><noscript>This page needs JavaScript.</noscript>\n"
                          "<script type=\"application/json\" id=\"data\">");
    for (const char *at = json, *end; at && *at; at = end) {
        end = at + strcspn(at, "<");
        spry_buffer_append(out, at, (size_t)(end - at));
        if (*end == '<' && end++)
            spry_buffer_text(out, "\\u003c");
    }
    free(json);
    spry_buffer_text(out, "</script>\n<script>\n");
    spry_buffer_text(out, spry_page_libraries_get()->chart);
    spry_buffer_text(out, "\n</script>\n<script>\n");
    spry_buffer_text(out, spry_report_js);
    spry_buffer_text(out, "</script></body></html>\n");
}
