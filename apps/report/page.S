/* The style and the scripts of the page, and Chart.js of the system; each ends with a zero. CMake sets the include
 * folder and, when the library was found, SPRY_CHART_FILE. */
#include "base/embed.S"

    embed_begin

    embed spry_report_css
    .incbin "page.css"
    .byte 0

    embed spry_report_js
    .incbin "report.js"
    .incbin "page.js"
    .byte 0

    embed spry_report_library
#ifdef SPRY_CHART_FILE
    .incbin SPRY_CHART_FILE
#endif
    .byte 0

    embed_end
