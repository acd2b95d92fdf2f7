/* Log-mel features of speech at 16 kHz, as Whisper takes them: frames of 25 ms every 10 ms, a Hann window, the power
 * spectrum summed over mel bands, log10, cut off 8 below the largest value, and scaled. */
#ifndef SPRY_VOICE_MEL_H
#define SPRY_VOICE_MEL_H

#include "base/error.h"
#include "platform/threads.h"

enum {
    SPRY_VOICE_RATE = 16000,
    SPRY_MEL_FRAME = 400, /* samples of a frame */
    SPRY_MEL_HOP = 160,   /* from frame to frame */
    SPRY_MEL_BINS = SPRY_MEL_FRAME / 2 + 1,
    SPRY_MEL_BANDS_MAX = 128,
};

typedef struct spry_mel spry_mel;

spry_status spry_mel_create(spry_mel **out, size_t n_bands, spry_error *error);
void spry_mel_destroy(spry_mel *mel);

/* Writes out[n_frames, n_bands]. The sound is `samples`, followed by zeros up to n_frames * SPRY_MEL_HOP samples;
 * beyond both ends it is mirrored. */
void spry_mel_compute(const spry_mel *mel, float *out, const float *samples, size_t n_samples, size_t n_frames,
                      spry_threads *threads);

/* Writes log10 of the power in each band of one frame, not scaled. */
void spry_mel_frame(const spry_mel *mel, float *out, const float samples[SPRY_MEL_FRAME]);

#endif
