/* Cuts text that is still being written into clauses that can be spoken. The first is short, so that speech begins
 * early; later ones are whole sentences where possible, which sound better. */
#ifndef SPRY_APPS_CLAUSES_H
#define SPRY_APPS_CLAUSES_H

#include <stdbool.h>

#include "base/buffer.h"

typedef struct spry_clauses {
    spry_buffer text; /* not given out yet */
    size_t given;     /* clauses given out */
} spry_clauses;

void spry_clauses_init(spry_clauses *clauses);
void spry_clauses_deinit(spry_clauses *clauses);
void spry_clauses_clear(spry_clauses *clauses);

bool spry_clauses_add(spry_clauses *clauses, spry_view text);

/* Replaces `out` with the next clause, with its spaces, so that clauses add up to the text. `over`: no more text comes,
 * so the rest is one, too. False: none yet. */
bool spry_clauses_take(spry_clauses *clauses, spry_buffer *out, bool over);

#endif
