/* The bytes of the bundled models, aligned like the mapping of a file would be, and of the catalogue. CMake defines the
 * paths. */
    .section .rodata

    .macro model name, path
    .global spry_bundled_\name\()_begin
    .hidden spry_bundled_\name\()_begin
    .type spry_bundled_\name\()_begin, %object
    .balign 4096
spry_bundled_\name\()_begin:
    .incbin "\path"
    .global spry_bundled_\name\()_end
    .hidden spry_bundled_\name\()_end
    .type spry_bundled_\name\()_end, %object
spry_bundled_\name\()_end:
    .byte 0
    .endm

    model tales, SPRY_TALES_FILE
    model tales_draft, SPRY_TALES_DRAFT_FILE
    model catalogue, SPRY_CATALOGUE_FILE

    .section .note.GNU-stack, "", %progbits
