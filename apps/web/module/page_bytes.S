/* The bytes of the libraries that CMake found; nothing for the others. The library of reports ends with a zero. */
#include "base/embed.S"

    embed_begin

    embed spry_page_highlight_begin
#ifdef SPRY_HIGHLIGHT_FILE
    .incbin SPRY_HIGHLIGHT_FILE
#endif
    embed spry_page_highlight_end
    .byte 0

    embed spry_page_katex_begin
#ifdef SPRY_KATEX_FILE
    .incbin SPRY_KATEX_FILE
#endif
    embed spry_page_katex_end
    .byte 0

    embed spry_page_chart
#ifdef SPRY_CHART_FILE
    .incbin SPRY_CHART_FILE
#endif
    .byte 0

    embed_end
