/* The module spry_page: libraries in JavaScript, as CMake found them (page_bytes.S). */
#include <spry.h>

#include "web/web_page.h"

extern const unsigned char spry_page_highlight_begin[], spry_page_highlight_end[];
extern const unsigned char spry_page_katex_begin[], spry_page_katex_end[];
extern const char spry_page_chart[];

SPRY_API extern const spry_page_libraries spry_page_module;

const spry_page_libraries spry_page_module = {
    .highlight = {spry_page_highlight_begin, spry_page_highlight_end},
    .katex = {spry_page_katex_begin, spry_page_katex_end},
    .chart = spry_page_chart,
};
