/* The style and the scripts of the page, and Chart.js of the system; each ends with a zero. CMake sets the include
 * folder and, when the library was found, SPRY_CHART_FILE. */
    .section .rodata

    .macro begin name
    .global spry_report_\name
    .hidden spry_report_\name
    .type spry_report_\name, %object
spry_report_\name:
    .endm

    begin css
    .incbin "page.css"
    .byte 0

    begin js
    .incbin "report.js"
    .incbin "page.js"
    .byte 0

    begin library
#ifdef SPRY_CHART_FILE
    .incbin SPRY_CHART_FILE
#endif
    .byte 0

    .section .note.GNU-stack, "", %progbits
