/* The style and the scripts of the page; each ends with a zero. CMake sets the include folder. */
#include "base/embed.S"

    embed_begin

    embed spry_report_css
    .incbin "page.css"
    .byte 0

    embed spry_report_js
    .incbin "report.js"
    .incbin "page.js"
    .byte 0

    embed_end
