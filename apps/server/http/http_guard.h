/* Access checks: keys, and the Origin and Host headers. */
#ifndef SPRY_SERVER_HTTP_GUARD_H
#define SPRY_SERVER_HTTP_GUARD_H

#include "server/http/exchange.h"

/* Sets exchange->key and exchange->client. False when a reply was given: a refusal, or the reply to a CORS preflight.
 */
bool spry_http_guard(spry_exchange *exchange);

/* Adds the headers that let a page of the request's origin read the reply, if --cors allows the origin. */
void spry_http_cors_add(spry_exchange *exchange, struct MHD_Response *response);

#endif
