/* The options of `spry voice`; those of recognisers and synthesisers also of `spry serve`. */
#ifndef SPRY_APPS_VOICE_FLAGS_H
#define SPRY_APPS_VOICE_FLAGS_H

#include "chat/chat_flags.h"
#include "voice/recogniser.h"
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
    const char *format;   /* of transcripts */
    uint32_t pause_ms;    /* of silence that end an utterance */
    float threshold;      /* of speech above noise, in decibels */
    bool transcribe, json, live, barge_in;
    spry_speech_flags speech;
    spry_chat_flags chat;
} spry_voice_flags;

void spry_voice_flags_default(spry_voice_flags *flags); /* the struct must not move afterwards */
spry_option_table spry_voice_flags_table(spry_voice_flags *flags);

#endif
