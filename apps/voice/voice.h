/* The options and parts of `spry voice`. `spry serve` has the options of recognisers and synthesisers, too. */
#ifndef SPRY_VOICE_VOICE_H
#define SPRY_VOICE_VOICE_H

#include "chat/chat.h"
#include "run/answer.h"
#include "voice/recogniser.h"
#include "voice/speaker.h"
#include "voice/synthesiser.h"

typedef struct spry_speech_flags {
    spry_recogniser_options recogniser;
    spry_synthesiser_options synthesiser;
} spry_speech_flags;

void spry_speech_flags_default(spry_speech_flags *flags);
spry_option_table spry_speech_flags_table(spry_speech_flags *flags);

typedef struct spry_voice_flags {
    const char *in, *out; /* files, or "-" for raw PCM; NULL: the audio device, or no sound */
    const char *say;      /* a text to speak; NULL: none */
    const char *format;   /* format of transcripts */
    uint32_t pause_ms;    /* milliseconds of silence that end an utterance */
    float threshold;      /* level of speech above noise, in decibels */
    bool transcribe, json, live, barge_in;
    spry_speech_flags speech;
    spry_chat_flags chat;
} spry_voice_flags;

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* A turn of a spoken conversation: words in, an answer that is spoken while it is generated, and times. */

/* Times since the end of speech, in milliseconds; 0: not reached. */
typedef struct spry_turn_figures {
    uint64_t ended_ns;                                          /* the end of speech, by the clock */
    double speech_s;                                            /* length of the utterance */
    double recognise_ms;                                        /* spent recognising, also before the end of speech */
    double words_ms, first_token_ms, first_sound_ms, answer_ms; /* words known, ..., answer complete */
    double synthesise_ms, sound_s;                              /* spent speaking, and how long that sounds */
    bool interrupted;                                           /* by speech */
} spry_turn_figures;

typedef struct spry_voice {
    const spry_chat_job *job;
    const spry_voice_flags *flags;
    spry_recogniser *recogniser;
    spry_speaker *speaker; /* NULL: answers are only written */
    spry_answer answer;
    spry_tokens ids;
    uint64_t seed;
    /* Whether to go on; NULL: always. */
    bool (*proceed)(void *user);
    void *user;
} spry_voice;

void spry_voice_init(spry_voice *voice, const spry_chat_job *job, const spry_voice_flags *flags,
                     spry_recogniser *recogniser, spry_speaker *speaker);
void spry_voice_deinit(spry_voice *voice);

/* Adds the words to the conversation and answers them: returns when the answer is complete and all its sound has been
 * passed on. Times count from `ended_ns`. The conversation ends with the words; the answer's text is in
 * voice->answer. */
spry_status spry_voice_answer(spry_voice *voice, spry_turn_figures *figures, spry_view words, uint64_t ended_ns,
                              spry_error *error);

/* Adds the heard part of the answer to the conversation and stores it. */
spry_status spry_voice_keep(spry_voice *voice, spry_view heard, spry_error *error);

/* Prints or writes a turn as the flags ask, and adds it to the trace: `stream` for JSON. */
void spry_voice_report(const spry_voice *voice, FILE *stream, const spry_turn_figures *figures, spry_view words,
                       spry_view heard);

/* ---- the command ------------------------------------------------------------------------------------------------- */

typedef struct spry_voice_parts {
    const spry_voice_flags *flags;
    spry_recogniser *recogniser;
    spry_synthesiser *synthesiser; /* with no kind: answers are not spoken */
} spry_voice_parts;

/* A conversation, until sound ends or Ctrl-C. */
spry_status spry_voice_live(const spry_chat_job *job, const spry_voice_parts *parts, spry_error *error);

#endif
