/* A model's description for people, made of the JSON object that inspect_model.h describes. */
#ifndef SPRY_APPS_INSPECT_TEXT_H
#define SPRY_APPS_INSPECT_TEXT_H

#include <jansson.h>

/* Prints to standard output. */
void spry_inspect_print(const json_t *description);

#endif
