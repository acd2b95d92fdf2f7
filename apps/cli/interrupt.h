/* Ctrl-C: cancels the current answer and sets a flag. */
#ifndef SPRY_APPS_INTERRUPT_H
#define SPRY_APPS_INTERRUPT_H

#include <stdbool.h>

#include "spry.h"

/* From now on Ctrl-C cancels `session` instead of ending the program. `once`: a second Ctrl-C ends it. */
void spry_interrupt_install(spry_session *session, bool once);

/* Restores the default behaviour; call before the session is destroyed. */
void spry_interrupt_remove(void);

/* Whether Ctrl-C was pressed since the last clear. */
bool spry_interrupt_seen(void);
void spry_interrupt_clear(void);

#endif
