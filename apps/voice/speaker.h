/* Speaks text while it is being written: a thread takes clause by clause, synthesises it and passes its sound on. */
#ifndef SPRY_VOICE_SPEAKER_H
#define SPRY_VOICE_SPEAKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "voice/synthesiser.h"

typedef struct spry_speaker spry_speaker;

/* Where sound goes; called on the speaker's thread. Both may be slow. */
typedef struct spry_speaker_sink {
    bool (*sound)(void *user, const int16_t *samples, size_t count); /* false: stop speaking */
    void (*clause)(void *user, spry_view text); /* called when the sound of a clause has been passed on; may be NULL */
    void *user;
} spry_speaker_sink;

spry_status spry_speaker_create(spry_speaker **out, spry_synthesiser *synthesiser, const spry_speaker_sink *sink,
                                spry_error *error);
void spry_speaker_destroy(spry_speaker *speaker);

/* Begins a new text; the rest of the last one is dropped. */
void spry_speaker_begin(spry_speaker *speaker);
void spry_speaker_write(spry_speaker *speaker, spry_view text);

/* No more text comes: the rest is spoken. Returns when the sound of all of it has been passed on. */
spry_status spry_speaker_finish(spry_speaker *speaker, spry_error *error);

/* Drops the text that has not been spoken. Any thread. */
void spry_speaker_stop(spry_speaker *speaker);

/* When the first sound of the text was passed on (spry_clock_ns), 0: not yet; time spent synthesising; samples. */
typedef struct spry_speaker_figures {
    uint64_t first_ns, busy_ns, samples;
} spry_speaker_figures;

spry_speaker_figures spry_speaker_report(spry_speaker *speaker);

/* ---- clauses ----------------------------------------------------------------------------------------------------- */

/* Cuts text that is still being written into clauses that can be spoken. The first is short, so that speech begins
 * early; later ones are whole sentences where possible, which sound better. */

typedef struct spry_clauses {
    spry_buffer text; /* not given out yet */
    size_t given;     /* clauses given out */
} spry_clauses;

void spry_clauses_init(spry_clauses *clauses);
void spry_clauses_deinit(spry_clauses *clauses);

bool spry_clauses_add(spry_clauses *clauses, spry_view text);

/* Replaces `out` with the next clause, with its spaces, so that clauses add up to the text. `over`: no more text comes,
 * so the rest is one, too. False: none yet. */
bool spry_clauses_take(spry_clauses *clauses, spry_buffer *out, bool over);

/* ---- sound that waits to be heard -------------------------------------------------------------------------------- */

/* Sound that waits to be heard: written by the speaker's thread, taken step by step by the thread that has the clock.
 * It knows how much of the text has been heard. */

typedef struct spry_player spry_player;

spry_status spry_player_create(spry_player **out, spry_error *error);
void spry_player_destroy(spry_player *player);

/* A new answer: nothing waits and nothing was heard. `held`: sound waits until it is released. */
void spry_player_begin(spry_player *player, bool held);
void spry_player_release(spry_player *player);

/* Adds sound; blocks while more than a minute of sound is queued. False: stopped. */
bool spry_player_push(void *player, const int16_t *samples, size_t count);
/* The text of the sound pushed so far, clause by clause. */
void spry_player_clause(void *player, spry_view text);

/* The next samples, silence where there are none; returns how many are sound. */
size_t spry_player_pull(spry_player *player, int16_t *samples, size_t count);

/* Drops the sound that waits; pushes fail until the next begin. */
void spry_player_stop(spry_player *player);

/* Whether sound waits, held or not. */
bool spry_player_busy(spry_player *player);

/* Appends the clauses of which at least half was heard. */
void spry_player_heard(spry_player *player, spry_buffer *out);

#endif
