/* The bytes of the bundled models, aligned like the mapping of a file would be, of the catalogue and of the families of
 * chips. CMake defines the
 * paths. */
#include "base/embed.S"

    .macro file name, path
    embed spry_bundled_\name\()_begin, 4096
    .incbin "\path"
    embed spry_bundled_\name\()_end
    .byte 0
    .endm

    embed_begin
    file tales, SPRY_TALES_FILE
    file tales_draft, SPRY_TALES_DRAFT_FILE
    file catalogue, SPRY_CATALOGUE_FILE
    file chips, SPRY_CHIPS_FILE
    embed_end
