/* The subset of Ollama's Modelfiles that describes a derived model: FROM, PARAMETER, SYSTEM, TEMPLATE. */
#ifndef SPRY_SERVER_MODELFILE_H
#define SPRY_SERVER_MODELFILE_H

#include <jansson.h>

#include "base/error.h"
#include "base/view.h"

/* A new description: {"from", "system", "template", "parameters"}; NULL: the text is wrong. */
json_t *spry_modelfile_parse(spry_view text, spry_error *error);

/* A description as a Modelfile; a new string. */
json_t *spry_modelfile_text(const json_t *description);

/* The parameters as Ollama lists them, one line each; a new string. */
json_t *spry_modelfile_parameters(const json_t *description);

#endif
