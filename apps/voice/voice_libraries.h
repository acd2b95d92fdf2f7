/* Parts that need libraries of their own: PocketSphinx, Flite, libsndfile and libsamplerate, PortAudio, and what those
 * need. They are in a module that is opened when it is first used, so that a program that does not speak starts
 * without them. */
#ifndef SPRY_APPS_VOICE_LIBRARIES_H
#define SPRY_APPS_VOICE_LIBRARIES_H

#include "voice/recogniser.h"
#include "voice/sound_device.h"
#include "voice/sound_file.h"
#include "voice/synthesiser.h"

/* The functions of sound_file.h and sound_device.h. A part that was not built is NULL. */
typedef struct spry_voice_libraries {
    const spry_recogniser_kind *sphinx;
    const spry_synthesiser_kind *flite;
    const struct spry_sound_files {
        spry_status (*open)(spry_sound_file **out, const char *path, spry_error *error);
        spry_status (*open_memory)(spry_sound_file **out, const void *data, size_t size, const char *name,
                                   spry_error *error);
        void (*close)(spry_sound_file *file);
        size_t (*read)(void *file, float *samples, size_t count);
        spry_status (*status)(const spry_sound_file *file, spry_error *error);
        spry_status (*open_writer)(spry_sound_writer **out, const char *path, spry_error *error);
        spry_status (*write)(spry_sound_writer *writer, const int16_t *samples, size_t count, spry_error *error);
        spry_status (*close_writer)(spry_sound_writer *writer, spry_error *error);
        spry_status (*convert)(int16_t **out, size_t *n_out, const int16_t *samples, size_t count, unsigned rate,
                               spry_error *error);
    } * files;
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
