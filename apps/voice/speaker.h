/* Speaks text while it is being written: a thread takes clause by clause, synthesises it and passes its sound on. */
#ifndef SPRY_APPS_SPEAKER_H
#define SPRY_APPS_SPEAKER_H

#include "voice/synthesiser.h"

typedef struct spry_speaker spry_speaker;

/* Where sound goes; called on the speaker's thread. Both may be slow. */
typedef struct spry_speaker_sink {
    bool (*sound)(void *user, const int16_t *samples, size_t count); /* false: it is not wanted any more */
    void (*clause)(void *user, spry_view text);                      /* its sound has been passed on; may be NULL */
    void *user;
} spry_speaker_sink;

spry_status spry_speaker_create(spry_speaker **out, spry_synthesiser *synthesiser, const spry_speaker_sink *sink,
                                spry_error *error);
void spry_speaker_destroy(spry_speaker *speaker);

/* A new text begins; what was left of the last one is dropped. */
void spry_speaker_begin(spry_speaker *speaker);
void spry_speaker_write(spry_speaker *speaker, spry_view text);

/* No more text comes: the rest is spoken. Returns when the sound of all of it has been passed on. */
spry_status spry_speaker_finish(spry_speaker *speaker, spry_error *error);

/* Drops what has not been spoken. Any thread. */
void spry_speaker_stop(spry_speaker *speaker);

/* When the first sound of the text was passed on (spry_clock_ns), 0: not yet; time spent synthesising; samples. */
typedef struct spry_speaker_figures {
    uint64_t first_ns, busy_ns, samples;
} spry_speaker_figures;

spry_speaker_figures spry_speaker_report(spry_speaker *speaker);

#endif
