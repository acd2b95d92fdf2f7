/* What `spry voice` does, by where sound comes from. */
#ifndef SPRY_APPS_VOICE_H
#define SPRY_APPS_VOICE_H

#include "chat/chat.h"
#include "voice/voice_flags.h"

typedef struct spry_voice_parts {
    const spry_voice_flags *flags;
    spry_recogniser *recogniser;
    spry_synthesiser *synthesiser; /* with no kind: answers are not spoken */
} spry_voice_parts;

/* One question from the file of --in, its answer to the file of --out. */
spry_status spry_voice_file(const spry_chat_job *job, const spry_voice_parts *parts, spry_error *error);

/* A conversation, until sound ends or Ctrl-C. */
spry_status spry_voice_live(const spry_chat_job *job, const spry_voice_parts *parts, spry_error *error);

/* Only speaks the text of --say. */
spry_status spry_voice_say(const spry_voice_flags *flags, spry_synthesiser *synthesiser, spry_error *error);

/* Only writes down what is said. */
spry_status spry_voice_transcribe(const spry_voice_flags *flags, spry_recogniser *recogniser, spry_error *error);

#endif
