/* The models inside the program: GGUF files, linked in as they are by bundled.S. */
#ifndef SPRY_APPS_BUNDLED_H
#define SPRY_APPS_BUNDLED_H

extern const unsigned char spry_bundled_tales_begin[], spry_bundled_tales_end[];
extern const unsigned char spry_bundled_tales_draft_begin[], spry_bundled_tales_draft_end[];

#endif
