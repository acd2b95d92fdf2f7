/* Speech to text, by any of several ways: one const descriptor each. A recogniser hears one utterance at a time, while
 * it is spoken; it can be asked for the words so far. One thread at a time. */
#ifndef SPRY_VOICE_RECOGNISER_H
#define SPRY_VOICE_RECOGNISER_H

#include <jansson.h>

#include "base/buffer.h"
#include "base/error.h"
#include "spry_voice.h"

typedef struct spry_recogniser_options {
    const char *name;                  /* name of a recogniser; "auto": the first one that is installed */
    const char *whisper;               /* a Whisper model; NULL: none */
    const char *type;                  /* type to which matrices are converted; NULL: not converted */
    const char *command;               /* reads 16-bit PCM, 16 kHz, one channel, and writes the text; NULL: none */
    const char *sphinx;                /* folder of PocketSphinx' models of a language */
    const char *language;              /* NULL: detected, or the recogniser's only one */
    const char *prompt;                /* names and spellings to expect; NULL: none */
    const spry_engine_options *engine; /* device, kernels, threads and log of a Whisper model; NULL: the defaults */
    bool translate, whole_window;
} spry_recogniser_options;

enum { SPRY_UTTERANCE_MAX = 300 * SPRY_SOUND_RATE }; /* samples of an utterance; more are not heard */

typedef struct spry_recogniser_kind {
    const char *name;
    /* Whether these options ask for it, where the name is "auto". */
    bool (*wanted)(const spry_recogniser_options *options);
    spry_status (*open)(void **state, const spry_recogniser_options *options, spry_error *error);
    void (*close)(void *state);
    spry_status (*begin)(void *state, spry_error *error);
    spry_status (*hear)(void *state, const float *samples, size_t count, spry_error *error);
    /* Replaces `text` with the words so far, or, when the utterance is over, with all of them. */
    spry_status (*words)(void *state, spry_buffer *text, bool over, bool (*proceed)(void *user), void *user,
                         spry_error *error);
    /* The whole of a sound, with segments; NULL: only the words of utterances. */
    spry_status (*transcribe)(void *state, spry_transcript *transcript, spry_sound_reader read, void *read_user,
                              const spry_transcribe_options *options, spry_error *error);
    bool partial; /* has words before the utterance is over */
} spry_recogniser_kind;

typedef struct spry_recogniser {
    const spry_recogniser_kind *kind;
    void *state;
} spry_recogniser;

/* The one that these options choose; NULL: none. */
const spry_recogniser_kind *spry_recogniser_find(const spry_recogniser_options *options);
spry_status spry_recogniser_open(spry_recogniser *recogniser, const spry_recogniser_options *options,
                                 spry_error *error);
void spry_recogniser_close(spry_recogniser *recogniser);

/* The text of a sound of any length. The transcript's text is freed with spry_free. */
spry_status spry_recogniser_transcribe(spry_recogniser *recogniser, spry_transcript *transcript, spry_sound_reader read,
                                       void *read_user, const spry_transcribe_options *options, spry_error *error);

extern const spry_recogniser_kind spry_recogniser_whisper, spry_recogniser_command;
extern const spry_recogniser_kind spry_recogniser_sphinx; /* in the module, see sound.h */

/* The samples of an utterance, for recognisers that take it whole. */
typedef struct spry_utterance {
    float *samples;
    size_t count, capacity;
} spry_utterance;

spry_status spry_utterance_add(spry_utterance *utterance, const float *samples, size_t count, spry_error *error);

/* 16-bit samples, in the machine's order. */
void spry_sound_to_pcm(int16_t *out, const float *samples, size_t count);

/* Removes spaces at both ends. */
void spry_text_trim(spry_buffer *text);

/* ---- transcripts as text ----------------------------------------------------------------------------------------- */

/* Transcripts as text, JSON and subtitles, as OpenAI's interface names these formats. */

typedef enum spry_transcript_format {
    SPRY_TRANSCRIPT_JSON,
    SPRY_TRANSCRIPT_TEXT,
    SPRY_TRANSCRIPT_SRT,
    SPRY_TRANSCRIPT_VERBOSE_JSON,
    SPRY_TRANSCRIPT_VTT,
    SPRY_TRANSCRIPT_FORMATS
} spry_transcript_format;

extern const char *const spry_transcript_formats[SPRY_TRANSCRIPT_FORMATS + 1]; /* names; the last is NULL */

/* SPRY_TRANSCRIPT_FORMATS: not known. */
spry_transcript_format spry_transcript_format_find(const char *name);

/* Collects segments; pass it to spry_transcript_segment as `user`. */
typedef struct spry_transcript_writer {
    spry_transcript_format format;
    json_t *segments; /* segments for verbose_json */
    spry_buffer out;  /* text of the other formats, written as segments come */
    size_t n_segments;
} spry_transcript_writer;

void spry_transcript_writer_init(spry_transcript_writer *writer, spry_transcript_format format);
void spry_transcript_writer_deinit(spry_transcript_writer *writer);

/* Whether the format needs the times of segments. */
bool spry_transcript_needs_times(spry_transcript_format format);

/* An on_segment callback. */
bool spry_transcript_segment(void *user, const spry_speech_segment *segment);

/* Completes `out`. False: memory is short. */
bool spry_transcript_finish(spry_transcript_writer *writer, const spry_transcript *transcript, const char *task);

#endif
