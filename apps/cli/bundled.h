/* The bundled models: GGUF files linked in by bundled.S. */
#ifndef SPRY_APPS_BUNDLED_H
#define SPRY_APPS_BUNDLED_H

#define SPRY_BUNDLED_MODEL   "Spry-Tales-29M"
#define SPRY_BUNDLED_DRAFTER "Spry-Tales-Draft-4M"

extern const unsigned char spry_bundled_tales_begin[], spry_bundled_tales_end[];
extern const unsigned char spry_bundled_tales_draft_begin[], spry_bundled_tales_draft_end[];

#endif
