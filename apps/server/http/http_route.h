/* The table of paths and their handlers. */
#ifndef SPRY_SERVER_HTTP_ROUTE_H
#define SPRY_SERVER_HTTP_ROUTE_H

#include "server/http/exchange.h"

/* NULL when there is no such route; then `allowed` has the methods of the path in the form of the Allow header, or is
 * empty. *tail points into the path. */
const spry_route *spry_route_find(const char *method, const char *path, const char **tail, char allowed[64]);

#endif
