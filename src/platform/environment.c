/* The only reads of environment variables about the terminal. */
#include "platform/environment.h"

#include <stdlib.h>
#include <string.h>

bool spry_environment_wants_colour(void)
{
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (no_colour && no_colour[0])
        return false;
    return terminal && terminal[0] && strcmp(terminal, "dumb") != 0;
}

long spry_environment_take_ranks(double *timeout_s)
{
    static const char size_variable[] = "OMPI_COMM_WORLD_SIZE"; /* of Open MPI */
    const char *size = getenv(size_variable), *timeout = getenv("SPRY_RANK_TIMEOUT");
    long ranks = size ? strtol(size, NULL, 10) : 1;
    *timeout_s = timeout ? strtod(timeout, NULL) : 0;
    if (!(*timeout_s > 0))
        *timeout_s = 60;
    if (ranks > 1)
        unsetenv(size_variable);
    return ranks;
}
