/* Which model a request means. */
#ifndef SPRY_SERVER_MODEL_NAME_H
#define SPRY_SERVER_MODEL_NAME_H

#include "server/server.h"

enum { SPRY_MODEL_NAME = 256 };

/* The model that `name` (NULL or empty: none) means, as the pool knows it: a name is accepted in any case, and with the
 * tag ":latest". NULL: the first model, which --alias names, and --any-model for any name of no model. Other names of
 * no model stay as they are. */
const char *spry_model_name(char out[SPRY_MODEL_NAME], const spry_server *server, const char *name);

/* Whether it is one of the further names of the first model (--alias). */
bool spry_model_is_alias(const spry_server *server, spry_view name);

#endif
