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
