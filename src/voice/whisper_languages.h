/* The languages of Whisper models, in the order of their tokens. */
#ifndef SPRY_VOICE_WHISPER_LANGUAGES_H
#define SPRY_VOICE_WHISPER_LANGUAGES_H

#include <stddef.h>

typedef struct spry_whisper_language {
    const char *code, *name;
} spry_whisper_language;

enum { SPRY_WHISPER_LANGUAGES = 100 };
extern const spry_whisper_language spry_whisper_languages[SPRY_WHISPER_LANGUAGES];

/* The index of a code or English name, in any case; SPRY_WHISPER_LANGUAGES: none. */
size_t spry_whisper_language_find(const char *text);

#endif
