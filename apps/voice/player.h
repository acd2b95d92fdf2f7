/* Sound that waits to be heard: written by the speaker's thread, taken step by step by the thread that has the clock.
 * It knows how much of the text has been heard. */
#ifndef SPRY_APPS_PLAYER_H
#define SPRY_APPS_PLAYER_H

#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

typedef struct spry_player spry_player;

spry_status spry_player_create(spry_player **out, spry_error *error);
void spry_player_destroy(spry_player *player);

/* A new answer: nothing waits and nothing was heard. `held`: sound waits until it is released. */
void spry_player_begin(spry_player *player, bool held);
void spry_player_release(spry_player *player);

/* Waits while more than a minute waits to be heard. False: stopped. */
bool spry_player_push(void *player, const int16_t *samples, size_t count);
/* The text of the sound pushed so far, clause by clause. */
void spry_player_clause(void *player, spry_view text);

/* The next samples, silence where there are none; returns how many are sound. */
size_t spry_player_pull(spry_player *player, int16_t *samples, size_t count);

/* Drops what waits; pushes fail until the next begin. */
void spry_player_stop(spry_player *player);

/* Whether sound waits, held or not. */
bool spry_player_busy(spry_player *player);

/* Appends the clauses of which at least half was heard. */
void spry_player_heard(spry_player *player, spry_buffer *out);

#endif
