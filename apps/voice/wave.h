/* WAV files in memory, and conversion of sample rates. No library is needed for either. */
#ifndef SPRY_APPS_WAVE_H
#define SPRY_APPS_WAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "spry_voice.h"

enum { SPRY_SOUND_CHANNELS_MAX = 64, SPRY_SOUND_RATE_LEAST = 1000, SPRY_SOUND_RATE_MOST = 768000 };

typedef enum spry_wave_coding { SPRY_WAVE_PCM, SPRY_WAVE_FLOAT, SPRY_WAVE_ALAW, SPRY_WAVE_ULAW } spry_wave_coding;

/* A file whose bytes outlive it. */
typedef struct spry_wave {
    const unsigned char *frames;
    size_t n_frames, at; /* at: the next frame to read */
    unsigned channels, rate, sample_bytes;
    spry_wave_coding coding;
} spry_wave;

/* Reads the header. Integers of 8 to 32 bits, floats of 32 and 64 bits, A-law and u-law are understood; a file that
 * ends early has the frames that are there. `name` is the file's name in messages. */
spry_status spry_wave_open(spry_wave *wave, const void *data, size_t size, const char *name, spry_error *error);

/* A spry_sound_reader: the next samples, each the mean of its channels, from -1 to 1; 0 at the end. */
size_t spry_wave_read(void *wave, float *samples, size_t count);

enum { SPRY_WAVE_HEADER = 44 };

/* The header of a file of 16-bit samples, one channel, SPRY_SOUND_RATE; `bytes` of samples follow it. */
void spry_wave_header(unsigned char header[SPRY_WAVE_HEADER], uint32_t bytes);

/* Converts one channel from any rate to SPRY_SOUND_RATE: a sum of 48 or more inputs around each output, weighted by a
 * sinc function in a Kaiser window, which removes what the lower of both rates cannot hold. */
typedef struct spry_resampler spry_resampler;

spry_status spry_resampler_create(spry_resampler **out, unsigned rate, spry_sound_reader read, void *user,
                                  spry_error *error);
void spry_resampler_destroy(spry_resampler *resampler);

/* A spry_sound_reader. */
size_t spry_resampler_read(void *resampler, float *samples, size_t count);

/* Converts 16-bit sound of another rate as a whole. The caller frees *out. */
spry_status spry_sound_convert(int16_t **out, size_t *n_out, const int16_t *samples, size_t count, unsigned rate,
                               spry_error *error);

#endif
