/* Pictures by address: fetched from hosts that --allow-fetch names, from no others. */
#ifndef SPRY_SERVER_FETCH_H
#define SPRY_SERVER_FETCH_H

#include <jansson.h>

#include "server/http/exchange.h"

/* Checks the value of --allow-fetch. */
spry_status spry_fetch_check(const char *allowed, spry_error *error);

/* Puts data: URLs in place of http: and https: addresses of pictures in these messages. Without --allow-fetch they
 * stay, and the engine refuses them. */
spry_status spry_fetch_pictures(spry_exchange *x, const json_t *messages, spry_error *error);

#endif
