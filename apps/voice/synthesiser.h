/* Text to speech, by any of several ways: one const descriptor each. Sound is 16-bit samples, one channel, 16 kHz. */
#ifndef SPRY_VOICE_SYNTHESISER_H
#define SPRY_VOICE_SYNTHESISER_H

#include <stdint.h>

#include "base/error.h"
#include "base/view.h"

typedef struct spry_synthesiser_options {
    const char *name;     /* name of a synthesiser; "auto": the first one that is installed */
    const char *voice;    /* NULL: its first one */
    const char *command;  /* reads text and writes 16-bit PCM, 16 kHz, one channel; NULL: none */
    const char *language; /* NULL: English */
} spry_synthesiser_options;

/* Sound as it is made; false stops. */
typedef bool (*spry_sound_sink)(void *user, const int16_t *samples, size_t count);

typedef struct spry_synthesiser_kind {
    const char *name;
    bool (*wanted)(const spry_synthesiser_options *options); /* where the name is "auto" */
    spry_status (*open)(void **state, const spry_synthesiser_options *options, spry_error *error);
    void (*close)(void *state);
    spry_status (*speak)(void *state, const char *text, spry_sound_sink sink, void *user, spry_error *error);
} spry_synthesiser_kind;

typedef struct spry_synthesiser {
    const spry_synthesiser_kind *kind;
    void *state;
} spry_synthesiser;

spry_status spry_synthesiser_open(spry_synthesiser *synthesiser, const spry_synthesiser_options *options,
                                  spry_error *error);
void spry_synthesiser_close(spry_synthesiser *synthesiser);

/* Speaks a text; returns when all sound has been passed on. Text without a letter or digit is silent. Any thread; the
 * threads take turns where the synthesiser needs it. SPRY_ERR_CANCELLED: the request of this thread is over. */
spry_status spry_synthesiser_speak(spry_synthesiser *synthesiser, spry_view text, spry_sound_sink sink, void *user,
                                   spry_error *error);

extern const spry_synthesiser_kind spry_synthesiser_command, spry_synthesiser_espeak;
extern const spry_synthesiser_kind spry_synthesiser_flite; /* in the module, see sound.h */

#endif
