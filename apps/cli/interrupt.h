/* Ctrl-C, turned into a question that can be asked and into the end of an answer in progress. */
#ifndef SPRY_APPS_INTERRUPT_H
#define SPRY_APPS_INTERRUPT_H

#include <stdbool.h>

#include "spry.h"

/* From now on Ctrl-C cancels `session` instead of ending the program. `once`: a second Ctrl-C ends it after all. */
void spry_interrupt_install(spry_session *session, bool once);

/* Back to the system's own behaviour; call before the session goes away. */
void spry_interrupt_remove(void);

/* Whether Ctrl-C came since the last clear. */
bool spry_interrupt_seen(void);
void spry_interrupt_clear(void);

#endif
