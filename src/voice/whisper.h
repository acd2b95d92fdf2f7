/* A Whisper model that computes: sound to encoder states, tokens to logits, on any device. One window of sound and one
 * sequence of tokens at a time; one thread calls. Nothing is allocated after creation. */
#ifndef SPRY_VOICE_WHISPER_H
#define SPRY_VOICE_WHISPER_H

#include "base/error.h"
#include "model/whisper_weights.h"
#include "platform/threads.h"

/* Log-mel features of speech at 16 kHz, as Whisper takes them: frames of 25 ms every 10 ms, a Hann window, the power
 * spectrum summed over mel bands, log10, cut off 8 below the largest value, and scaled. */

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

/* Writes log10 of the power in each band of one frame, not scaled. */
void spry_mel_frame(const spry_mel *mel, float *out, const float samples[SPRY_MEL_FRAME]);

typedef struct spry_whisper spry_whisper;

typedef struct spry_whisper_options {
    const char *device;  /* as in spry_engine_options */
    const char *kernels; /* a name of spry_ops_get */
    size_t threads;      /* 0: every processor this process may use */
    spry_dtype type;     /* as in spry_whisper_weights_open */
    spry_log log;
} spry_whisper_options;

spry_status spry_whisper_open(spry_whisper **out, const char *path, const spry_whisper_options *options,
                              spry_error *error);
void spry_whisper_close(spry_whisper *whisper);

const spry_whisper_weights *spry_whisper_model(const spry_whisper *whisper);

/* Samples of a whole window. */
size_t spry_whisper_window(const spry_whisper *whisper);

/* Encodes sound at 16 kHz, at most a window; the rest of `n_states` is silence. A state is 20 ms; n_states is at most
 * n_audio_ctx, which is what the model was trained with. Afterwards decoding attends to these states. */
spry_status spry_whisper_encode(spry_whisper *whisper, const float *samples, size_t n_samples, size_t n_states,
                                spry_error *error);

/* The logits after `ids`, which follow the `past` tokens of earlier calls: [n_vocab], valid until the next call.
 * past + count is at most n_text_ctx, count at least 1, and every id below n_vocab. */
spry_status spry_whisper_decode(spry_whisper *whisper, const float **logits, const int32_t *ids, size_t count,
                                size_t past, spry_error *error);

/* For tests: the last features [2 * n_states, n_bands] and, after encoding, encoder states [n_states, n_audio_state].
 */
const float *spry_whisper_features(const spry_whisper *whisper);
spry_status spry_whisper_states(spry_whisper *whisper, const float **states, spry_error *error);

#endif
