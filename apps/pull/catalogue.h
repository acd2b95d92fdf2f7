/* Models to download, by short name: models/catalogue.json, which is linked in, or the user's own file. */
#ifndef SPRY_PULL_CATALOGUE_H
#define SPRY_PULL_CATALOGUE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buffer.h"
#include "base/error.h"

/* The list of models; every entry has a name, a source and bytes. The caller releases it with json_decref. */
spry_status spry_catalogue_load(json_t **models, spry_error *error);

/* Appends the source of `name` ("qwen3:0.6b", or "phi4" where a family has one size) to `source`; nothing where the
 * catalogue has no such name. A family of several sizes is an error that lists them. */
spry_status spry_catalogue_find(spry_buffer *source, const char *name, spry_error *error);

/* Calls `visit` with every short name of a source. */
void spry_catalogue_names(const char *source, void (*visit)(void *user, const char *name), void *user);

/* How well the model of a shape ("qwen3-0.6b") does what a schema asks, from 0 to 1, and who published that; 0 and "":
 * the list has no judgement. */
double spry_catalogue_schema(const json_t *models, const char *shape, const char **source);

/* Whether a model of this size can run in this machine's memory. */
bool spry_catalogue_fits(const json_t *model);

#endif
