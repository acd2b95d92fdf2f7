/* Sound in and out in steps of 10 ms, with one clock: every step that comes in sends one out. In: the microphone, a
 * pipe, or a file at its own speed. Out: the loudspeaker, a pipe, a file, or nothing. */
#ifndef SPRY_APPS_SOUND_PORT_H
#define SPRY_APPS_SOUND_PORT_H

#include <stdint.h>

#include "base/error.h"
#include "spry_voice.h"

typedef struct spry_sound_port spry_sound_port;

/* `in` and `out`: a file, "-" for raw PCM on standard input and output, or NULL for the audio device; `out` NULL with a
 * file or pipe as `in`: no sound. */
spry_status spry_sound_port_open(spry_sound_port **port, const char *in, const char *out, spry_error *error);
spry_status spry_sound_port_close(spry_sound_port *port, spry_error *error);

/* The next step of sound; *more is false at its end. */
spry_status spry_sound_port_read(spry_sound_port *port, float samples[SPRY_VAD_STEP], bool *more, spry_error *error);
spry_status spry_sound_port_write(spry_sound_port *port, const int16_t samples[SPRY_VAD_STEP], spry_error *error);

#endif
