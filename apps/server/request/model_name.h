/* Which model a request means. */
#ifndef SPRY_SERVER_MODEL_NAME_H
#define SPRY_SERVER_MODEL_NAME_H

#include "server/server.h"

enum { SPRY_MODEL_NAME = 256 };

/* The model that `name` (NULL or empty: none) means, as the pool knows it: a name is accepted in any case, and with the
 * tag ":latest". A name of no model stays as it is or, with --any-model, means the first model: NULL. */
const char *spry_model_name(char out[SPRY_MODEL_NAME], const spry_server *server, const char *name);

#endif
