/* Derived models: a name for another model with a system message, a chat template and settings of its own. Each is a
 * file NAME.derived.json in the models folder, with the members of Ollama's /api/create: "from", "system", "template",
 * "parameters". */
#ifndef SPRY_SERVER_MODELS_DERIVED_MODEL_H
#define SPRY_SERVER_MODELS_DERIVED_MODEL_H

#include <jansson.h>

#include "base/error.h"
#include "base/view.h"
#include "server/server.h"

/* The description of a derived model, a new reference; NULL: there is none of this name, with or without ":latest". */
json_t *spry_derived_load(const spry_server *server, const char *name);

/* Writes it; one that exists is replaced. */
spry_status spry_derived_save(const spry_server *server, const char *name, const json_t *description,
                              spry_error *error);

/* False: there is none of this name. */
bool spry_derived_remove(const spry_server *server, const char *name);

/* Calls `visit` with the name of every derived model. */
void spry_derived_each(const spry_server *server, void (*visit)(void *context, const char *name), void *context);

/* Adds the description's settings to the body of a request, except fields that the request has; `ollama`: settings are
 * in "options". */
void spry_derived_apply(const json_t *description, json_t *body, bool ollama);

/* The settings of --defaults, as the description of a model; fails when one is unknown or wrong. */
spry_status spry_derived_defaults(json_t **out, const char *text, spry_error *error);

/* ---- Modelfiles -------------------------------------------------------------------------------------------------- */

/* The subset of Ollama's Modelfiles that describes a derived model: FROM, PARAMETER, SYSTEM, TEMPLATE. */

/* A new description: {"from", "system", "template", "parameters"}; NULL: the text is wrong. */
json_t *spry_modelfile_parse(spry_view text, spry_error *error);

/* A description as a Modelfile; a new string. */
json_t *spry_modelfile_text(const json_t *description);

/* The parameters as Ollama lists them, one line each; a new string. */
json_t *spry_modelfile_parameters(const json_t *description);

/* ---- names ------------------------------------------------------------------------------------------------------- */

enum { SPRY_MODEL_NAME = 256 };

/* The model that `name` (NULL or empty: none) means, as the pool knows it: a name is accepted in any case, and with the
 * tag ":latest". NULL: the first model, which --alias names, and --any-model for any name of no model. Other names of
 * no model stay as they are. */
const char *spry_model_name(char out[SPRY_MODEL_NAME], const spry_server *server, const char *name);

/* Whether it is one of the further names of the first model (--alias). */
bool spry_model_is_alias(const spry_server *server, spry_view name);

#endif
