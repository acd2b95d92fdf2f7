/* What the files of speech recognition share. */
#ifndef SPRY_VOICE_SPEECH_STATE_H
#define SPRY_VOICE_SPEECH_STATE_H

#include "base/buffer.h"
#include "base/number.h"
#include "spry_voice.h"
#include "voice/whisper.h"

enum {
    SPRY_SPEECH_TICKS = 50,          /* timestamps of a second */
    SPRY_SPEECH_TEXT_MAX = 16 << 20, /* bytes of a transcript */
};

/* Ids of the control tokens, which follow the words in this order. */
typedef struct spry_speech_ids {
    int32_t end, start, first_language, translate, transcribe, previous, no_speech, no_timestamps, first_time;
    uint32_t n_languages; /* 0: an English model, which has no tokens for language and task in its prompt */
} spry_speech_ids;

/* What decoding a window gave. */
typedef struct spry_speech_decoding {
    int32_t *ids; /* [n_text_ctx]: words and times */
    size_t n;
    double mean_logprob, no_speech, compression_ratio, temperature;
    bool repeats; /* ended because it repeated itself, or repeats too much */
    bool failed;  /* improbable, or repeats */
    bool silent;  /* nothing was said */
} spry_speech_decoding;

struct spry_speech {
    spry_whisper *whisper;
    const spry_ops *ops;
    spry_speech_ids ids;
    bool *silent;    /* [n_vocab]: tokens that are never written: brackets, notes, control tokens */
    int32_t blank;   /* the token of one space; -1: none */
    float *window;   /* [samples of a window] */
    float *filtered; /* [n_vocab] */
    double *weights; /* [n_vocab] */
    int32_t *prompt; /* [n_text_ctx]: of the window */
    spry_speech_decoding decoding;
    spry_speech_decoding best; /* the best of the failed attempts */
    /* The current transcription. */
    spry_transcribe_options options;
    spry_random random;
    double spoken;    /* seconds from the first to the last loud sample of the window */
    int32_t language; /* token of the language; -1: an English model */
    int32_t *past;    /* [n_text_ctx]: tokens of what was said last, the oldest first */
    size_t n_past;
    spry_transcript *transcript;
    spry_buffer text;
};

/* Sets `language` to the token of the most probable one in the encoded sound. */
spry_status spry_speech_detect(spry_speech *speech, spry_error *error);

/* Decodes the encoded sound; unless `once`, with warmer attempts where one fails. `ticks`: length of the sound. */
spry_status spry_speech_decode(spry_speech *speech, bool timestamps, size_t ticks, bool once, spry_error *error);

/* Appends the bytes of tokens; times and control tokens have none. */
void spry_speech_append(const spry_speech *speech, spry_buffer *out, const int32_t *ids, size_t count);

#endif
