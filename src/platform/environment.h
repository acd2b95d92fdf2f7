/* Environment variables about the terminal and the launcher of ranks. Nothing else is read from the environment:
 * settings are flags. */
#ifndef SPRY_PLATFORM_ENVIRONMENT_H
#define SPRY_PLATFORM_ENVIRONMENT_H

#include <stdbool.h>

/* False when NO_COLOR is set to anything (no-color.org), or TERM is missing or "dumb". */
bool spry_environment_wants_colour(void);

/* The processes that mpirun has started together, 1 when it has not, and the seconds that they wait for each other
 * (SPRY_RANK_TIMEOUT, else 60). Processes that this one starts compute alone. */
long spry_environment_take_ranks(double *timeout_s);

#endif
