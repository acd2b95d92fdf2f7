/* The bytes of the web page; CMake sets the include folder of the files. */
#include "base/embed.S"
#include "web_page.h"

    .macro begin name
    embed spry_web_\name\()_begin
    .endm

    .macro end name
    embed spry_web_\name\()_end
    .byte 0
    .endm

    embed_begin

#define INCLUDE(symbol, path, file, type) begin symbol NEXT .incbin file NEXT end symbol NEXT
    SPRY_WEB_FILES(INCLUDE)

    embed_end
