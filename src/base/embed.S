/* Bytes of files in a program, for assembler sources of ELF (Linux) and Mach-O (macOS):
 *
 *     embed_begin                  the section of constants
 *     embed NAME, ALIGNMENT        NAME is the address of what follows: extern const unsigned char NAME[];
 *     .incbin "path"
 *     embed_end                    last in the file
 *
 * NEXT is between statements of one line. */
#if defined(__APPLE__)

#if defined(__aarch64__)
#define NEXT %%
#else
#define NEXT ;
#endif

    .macro embed_begin
    .section __TEXT,__const
    .endm

    .macro embed name, alignment=1
    .globl _\name
    .private_extern _\name
    .balign \alignment
_\name:
    .endm

    .macro embed_end
    .subsections_via_symbols
    .endm

#else

#define NEXT ;

    .macro embed_begin
    .section .rodata
    .endm

    .macro embed name, alignment=1
    .global \name
    .hidden \name
    .type \name, %object
    .balign \alignment
\name:
    .endm

    .macro embed_end
    .section .note.GNU-stack, "", %progbits
    .endm

#endif
