/* Pulling as a person sees it: with a bar, and stopped by Ctrl-C. */
#ifndef SPRY_APPS_PULL_COMMAND_H
#define SPRY_APPS_PULL_COMMAND_H

#include "base/error.h"

/* On a terminal, asks whether a model of a hub shall be downloaded, and does it; elsewhere fails with the command that
 * does. */
spry_status spry_pull_offer(const char *source, const char *folder, spry_error *error);

#endif
