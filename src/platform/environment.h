/* Environment variables about the terminal. Nothing else is read from the environment: settings are flags. */
#ifndef SPRY_PLATFORM_ENVIRONMENT_H
#define SPRY_PLATFORM_ENVIRONMENT_H

#include <stdbool.h>

/* False when NO_COLOR is set to anything (no-color.org), or TERM is missing or "dumb". */
bool spry_environment_wants_colour(void);

#endif
