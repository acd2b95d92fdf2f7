/* Sound files (WAV, FLAC, Ogg and what else libsndfile reads) as one channel at 16 kHz, read piece by piece, so that
 * memory does not depend on their length; and WAV files written. Without libsndfile and libsamplerate every function
 * fails with a sentence that says so. */
#ifndef SPRY_APPS_SOUND_FILE_H
#define SPRY_APPS_SOUND_FILE_H

#include <stdint.h>

#include "base/error.h"

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

/* Converts 16-bit sound of another rate to 16 kHz. The caller frees *out. */
spry_status spry_sound_convert(int16_t **out, size_t *n_out, const int16_t *samples, size_t count, unsigned rate,
                               spry_error *error);

#endif
