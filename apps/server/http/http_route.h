/* Which function answers which path: one table. */
#ifndef SPRY_SERVER_HTTP_ROUTE_H
#define SPRY_SERVER_HTTP_ROUTE_H

#include "server/http/exchange.h"

/* NULL when there is none; then *allowed has the methods the path knows, as a header lists them, or is empty. `tail`
 * points into the path. */
const spry_route *spry_route_find(const char *method, const char *path, const char **tail, char allowed[64]);

#endif
