/* The files that are linked into the program. CMake defines the paths of the first four files and sets the
 * include folders of the others. */
#include "base/embed.S"
#include "web/web_page.h"

    .macro begin name, alignment=1
    embed spry_\name\()_begin, \alignment
    .endm

    .macro end name
    embed spry_\name\()_end
    .byte 0
    .endm

    /* Models are aligned as the mapping of a file would be. */
    .macro bundled name, path
    begin bundled_\name, 4096
    .incbin "\path"
    end bundled_\name
    .endm

    embed_begin

    bundled tales, SPRY_TALES_FILE
    bundled tales_draft, SPRY_TALES_DRAFT_FILE
    bundled catalogue, SPRY_CATALOGUE_FILE
    bundled chips, SPRY_CHIPS_FILE

    /* The web page. */
#define INCLUDE(symbol, path, file, type) begin web_##symbol NEXT .incbin file NEXT end web_##symbol NEXT
    SPRY_WEB_FILES(INCLUDE)

    /* The table of coding agents, then the style and the scripts of reports; each ends with a zero. */
    embed spry_agents_json
    .incbin "server/request/agents.json"
    .byte 0

    embed spry_report_css
    .incbin "report/page.css"
    .byte 0

    embed spry_report_js
    .incbin "report/report.js"
    .incbin "report/page.js"
    .byte 0

    embed_end
