/* A Whisper model on a device: features of sound and tokens in, logits out. What device.h is for language models: the
 * device holds the placed weights and what it computes, steps are asynchronous, and results are host memory. One window
 * of sound and one sequence of tokens at a time; at most one step is under way. Calls on one device come from one
 * thread at a time. Everything a step needs is allocated when the device is opened.
 *
 * Keys and values of sound are no KV pages of an engine: they belong to one window and are never shared. */
#ifndef SPRY_DEVICE_WHISPER_DEVICE_H
#define SPRY_DEVICE_WHISPER_DEVICE_H

#include "base/error.h"
#include "model/whisper_weights.h"
#include "platform/threads.h"

/* Borrowed while the device is open. */
typedef struct spry_whisper_setup {
    const spry_whisper_weights *weights; /* on the host, in the layout of */
    const spry_ops *ops;                 /* the host's kernels; and */
    spry_threads *threads;               /* worker threads of the device */
} spry_whisper_setup;

/* Sound to encode, or else tokens to decode. */
typedef struct spry_whisper_step {
    const float *features; /* [1 + 2 * n_states + 1, n_bands], zeros in the first and last row; NULL: tokens */
    size_t n_states;       /* 1 to n_audio_ctx; tokens attend to these states until other sound comes */
    const int32_t *tokens; /* [n_tokens], each below n_vocab */
    size_t n_tokens, past; /* at least 1; tokens of earlier steps that these follow. Together at most n_text_ctx */
} spry_whisper_step;

typedef struct spry_whisper_device spry_whisper_device;

typedef struct spry_whisper_device_ops {
    void (*close)(spry_whisper_device *device);
    /* Starts a step; its inputs are borrowed until wait. */
    spry_status (*submit)(spry_whisper_device *device, const spry_whisper_step *step, spry_error *error);
    /* Returns when the step is done. Fails when the hardware did. */
    spry_status (*wait)(spry_whisper_device *device, spry_error *error);
    /* The logits after the last token of a step with tokens, [n_vocab]; valid until the next call on the device. */
    spry_status (*logits)(spry_whisper_device *device, const float **logits, spry_error *error);
    /* The same of a step with sound: the encoder's states, [n_states, n_audio_state]. */
    spry_status (*states)(spry_whisper_device *device, const float **states, spry_error *error);
} spry_whisper_device_ops;

/* What an implementation's own state begins with. */
struct spry_whisper_device {
    const spry_whisper_device_ops *ops;
};

/* Whether such a device is there and takes matrices as their file has them: then it is best given `ops` that pack none.
 */
bool spry_whisper_device_takes_rows(const char *name);

/* Places the weights on a device named as for spry_device_open. Where that device is not there, or computes no Whisper
 * models, the CPU does, and the log says so. */
spry_status spry_whisper_device_open(spry_whisper_device **out, const char *name, const spry_whisper_setup *setup,
                                     const spry_log *log, spry_error *error);

#endif
