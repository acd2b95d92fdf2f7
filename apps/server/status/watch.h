/* What the server does at this moment, as JSON; apps/web/WATCH.md says what is in it. */
#ifndef SPRY_SERVER_WATCH_H
#define SPRY_SERVER_WATCH_H

#include <jansson.h>

#include "server/server.h"

/* The text of one snapshot, to be freed; NULL when memory is short. Requests of other keys than `key` are left out. */
char *spry_watch_snapshot(spry_server *server, spry_view key);

/* Requests of one key: under way, and, with `ended`, those that ended a moment ago. */
json_t *spry_watch_requests(spry_server *server, spry_view key, bool ended);

/* What the machine used since the server began. A reading costs milliseconds, so there is one a second at most, whoever
 * asks. */
void spry_watch_energy(spry_server *server, spry_joules *used);

#endif
