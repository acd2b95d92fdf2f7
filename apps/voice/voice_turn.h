/* A turn of a spoken conversation: words in, an answer that is spoken while it is generated, and what each part took.
 */
#ifndef SPRY_APPS_VOICE_TURN_H
#define SPRY_APPS_VOICE_TURN_H

#include "chat/chat.h"
#include "run/answer.h"
#include "voice/speaker.h"
#include "voice/voice_flags.h"

/* Times since the end of speech, in milliseconds; 0: it did not come to that. */
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

/* Computes the prompt of the conversation with these words, so that the answer to them begins sooner. */
spry_status spry_voice_prefill(spry_voice *voice, spry_view words, spry_error *error);

/* Adds the words to the conversation and answers them: returns when the answer is complete and all its sound has been
 * passed on. Times count from `ended_ns`. The conversation ends with the words; the answer's text is in
 * voice->answer. */
spry_status spry_voice_answer(spry_voice *voice, spry_turn_figures *figures, spry_view words, uint64_t ended_ns,
                              spry_error *error);

/* Adds what was heard of the answer to the conversation and stores it. */
spry_status spry_voice_keep(spry_voice *voice, spry_view heard, spry_error *error);

/* Prints or writes a turn as the flags ask, and adds it to the trace: `stream` for JSON. */
void spry_voice_report(const spry_voice *voice, FILE *stream, const spry_turn_figures *figures, spry_view words,
                       spry_view heard);

#endif
