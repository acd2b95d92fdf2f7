/* Sound files as one channel at 16 kHz, read piece by piece; WAV files written; the audio device. WAV needs no library;
 * FLAC, Ogg and the other formats of libsndfile are read where the module has it. */
#ifndef SPRY_VOICE_SOUND_H
#define SPRY_VOICE_SOUND_H

#include <stdint.h>

#include "base/error.h"
#include "spry_voice.h"
#include "voice/recogniser.h"
#include "voice/synthesiser.h"
#include "voice/wave.h"

typedef struct spry_sound_file spry_sound_file;

/* Opens a file, or bytes that outlive the result; `name` replaces the path in messages. */
spry_status spry_sound_file_open(spry_sound_file **out, const char *path, spry_error *error);
spry_status spry_sound_file_open_memory(spry_sound_file **out, const void *data, size_t size, const char *name,
                                        spry_error *error);
void spry_sound_file_close(spry_sound_file *file);

/* A spry_sound_reader: the next samples; 0 at the end, and where the file cannot be read on. */
size_t spry_sound_file_read(void *file, float *samples, size_t count);

/* Why reading ended: SPRY_OK at the end of the file. */
spry_status spry_sound_file_status(const spry_sound_file *file, spry_error *error);

typedef struct spry_sound_writer spry_sound_writer;

/* A WAV file of 16-bit samples, one channel, 16 kHz. It is complete when it is closed. */
spry_status spry_sound_writer_open(spry_sound_writer **out, const char *path, spry_error *error);
spry_status spry_sound_writer_write(spry_sound_writer *writer, const int16_t *samples, size_t count, spry_error *error);
spry_status spry_sound_writer_close(spry_sound_writer *writer, spry_error *error);

/* ---- the audio device -------------------------------------------------------------------------------------------- */

/* The machine's microphone and loudspeaker, through PortAudio. Without PortAudio opening fails and says so. */

typedef struct spry_sound_device spry_sound_device;

/* One channel of 16 bits at 16 kHz. */
spry_status spry_sound_device_open(spry_sound_device **out, bool loudspeaker, spry_error *error);
void spry_sound_device_close(spry_sound_device *device);

/* Both wait for the device. A device that is unplugged is an error. */
spry_status spry_sound_device_read(spry_sound_device *device, int16_t *samples, size_t count, spry_error *error);
spry_status spry_sound_device_write(spry_sound_device *device, const int16_t *samples, size_t count, spry_error *error);

/* ---- sound in and out -------------------------------------------------------------------------------------------- */

/* Sound in and out in steps of 10 ms, with one clock: every step that comes in sends one out. In: the microphone, a
 * pipe, or a file at its own speed. Out: the loudspeaker, a pipe, a file, or nothing. */

typedef struct spry_sound_port spry_sound_port;

/* `in` and `out`: a file, "-" for raw PCM on standard input and output, or NULL for the audio device; `out` NULL with a
 * file or pipe as `in`: no sound. */
spry_status spry_sound_port_open(spry_sound_port **port, const char *in, const char *out, spry_error *error);
spry_status spry_sound_port_close(spry_sound_port *port, spry_error *error);

/* The next step of sound; *more is false at its end. */
spry_status spry_sound_port_read(spry_sound_port *port, float samples[SPRY_VAD_STEP], bool *more, spry_error *error);
spry_status spry_sound_port_write(spry_sound_port *port, const int16_t samples[SPRY_VAD_STEP], spry_error *error);

/* ---- the module -------------------------------------------------------------------------------------------------- */

/* Parts that need libraries of their own: PocketSphinx, Flite, libsndfile, PortAudio, and the libraries those need.
 * They are in a module that is opened when it is first used, so that a program that does not speak starts without them.
 */

/* Reads formats other than WAV, from bytes that outlive it: one channel at the file's own rate. `failure` returns why
 * reading ended early, or NULL. */
typedef struct spry_sound_decoder {
    spry_status (*open)(void **state, unsigned *rate, const void *data, size_t size, const char *name,
                        spry_error *error);
    size_t (*read)(void *state, float *samples, size_t count);
    const char *(*failure)(void *state);
    void (*close)(void *state);
} spry_sound_decoder;

/* A part that was not built is NULL. */
typedef struct spry_voice_libraries {
    const spry_recogniser_kind *sphinx;
    const spry_synthesiser_kind *flite;
    const spry_sound_decoder *decoder;
    const struct spry_sound_devices {
        spry_status (*open)(spry_sound_device **out, bool loudspeaker, spry_error *error);
        void (*close)(spry_sound_device *device);
        spry_status (*read)(spry_sound_device *device, int16_t *samples, size_t count, spry_error *error);
        spry_status (*write)(spry_sound_device *device, const int16_t *samples, size_t count, spry_error *error);
    } * devices;
} spry_voice_libraries;

/* Opens the module. Where there is none, every part is NULL. Any thread. */
const spry_voice_libraries *spry_voice_libraries_get(void);

#endif
