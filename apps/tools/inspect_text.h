/* A model's description as text, generated from the JSON object of inspect_model.h. */
#ifndef SPRY_APPS_INSPECT_TEXT_H
#define SPRY_APPS_INSPECT_TEXT_H

#include <jansson.h>

/* Prints to standard output. */
void spry_inspect_print(const json_t *description);

#endif
