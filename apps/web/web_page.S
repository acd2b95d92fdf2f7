/* The bytes of the web page; CMake sets the include folder of the files. */
#include "web_page.h"

    .section .rodata

    .macro begin name
    .global spry_web_\name\()_begin
    .hidden spry_web_\name\()_begin
    .type spry_web_\name\()_begin, %object
spry_web_\name\()_begin:
    .endm

    .macro end name
    .global spry_web_\name\()_end
    .hidden spry_web_\name\()_end
    .type spry_web_\name\()_end, %object
spry_web_\name\()_end:
    .byte 0
    .endm

#define INCLUDE(symbol, path, file, type) begin symbol; .incbin file; end symbol;
    SPRY_WEB_FILES(INCLUDE)

    /* SPRY_WEB_LIBRARIES */
    begin highlight
#ifdef SPRY_HIGHLIGHT_FILE
    .incbin SPRY_HIGHLIGHT_FILE
#endif
    end highlight

    begin katex
#ifdef SPRY_KATEX_FILE
    .incbin SPRY_KATEX_FILE
#endif
    end katex

    .section .note.GNU-stack, "", %progbits
