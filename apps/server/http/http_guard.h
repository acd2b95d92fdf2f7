/* Who may ask: keys, and pages of other sites that a browser shows. */
#ifndef SPRY_SERVER_HTTP_GUARD_H
#define SPRY_SERVER_HTTP_GUARD_H

#include "server/http/exchange.h"

/* False when a reply was given instead: a refusal, or the answer to a browser's preflight. Otherwise exchange->key and
 * exchange->client are set. */
bool spry_http_guard(spry_exchange *exchange);

#endif
