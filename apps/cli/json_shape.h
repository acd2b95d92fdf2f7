/* Checks a JSON document from outside against a shape: an example of the document, as JSON text. In a shape "" is a
 * string, 0 a number that is not negative, true a flag, and [x] a list of x. A key that ends in '!' is required, any
 * other may be null or missing. "*" is every key of the document; keys that the shape lacks are ignored. */
#ifndef SPRY_APPS_JSON_SHAPE_H
#define SPRY_APPS_JSON_SHAPE_H

#include <jansson.h>

#include "base/error.h"

/* Writes a shape in C without escaped quotes. */
#define SPRY_JSON_SHAPE(...) #__VA_ARGS__

/* The message names the wrong value by its path: "prefill[2].ops[0].share". */
spry_status spry_json_check(const json_t *json, const char *shape, spry_error *error);

#endif
