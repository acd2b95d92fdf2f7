/* Pulling as a person sees it: with a bar, and stopped by Ctrl-C. */
#ifndef SPRY_APPS_PULL_COMMAND_H
#define SPRY_APPS_PULL_COMMAND_H

#include "base/error.h"

/* Pulls and says where the model is; `name` may be NULL. SPRY_ERR_CANCELLED after Ctrl-C. */
spry_status spry_pull_shown(const char *source, const char *name, const char *folder, spry_error *error);

/* On a terminal, asks whether a model of a hub shall be downloaded, and does it; elsewhere fails with the command that
 * does. */
spry_status spry_pull_offer(const char *source, const char *folder, spry_error *error);

#endif
