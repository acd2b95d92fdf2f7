/* Typed reading of the fields of a request's body. The first field that is wrong is stored with a sentence that names
 * it; later reads return their fallback. A field that is absent or null has its fallback; unknown fields are ignored.
 */
#ifndef SPRY_SERVER_REQUEST_FIELDS_H
#define SPRY_SERVER_REQUEST_FIELDS_H

#include <jansson.h>

#include "server/http/exchange.h"

typedef struct spry_fields {
    const json_t *object;
    const char *within; /* the prefix of names in messages: "options.", or "" */
    char wrong[64];     /* the first wrong field; empty: none */
    spry_error error;
} spry_fields;

/* Parses the body. False when it is not a JSON object, and a reply was given. `fields` borrows *root, which the caller
 * owns. */
bool spry_fields_open(spry_fields *fields, json_t **root, spry_exchange *exchange);

/* True when no field was wrong; otherwise replies. */
bool spry_fields_fine(const spry_fields *fields, spry_exchange *exchange);

/* Stores a sentence about a wrong field. */
void spry_fields_refuse(spry_fields *fields, const char *key, const char *format, ...) SPRY_PRINTF(3, 4);

/* Stores that a field has the wrong type; `wanted`: "a string". */
void spry_fields_refuse_type(spry_fields *fields, const char *key, const json_t *value, const char *wanted);

/* NULL when absent or null. */
const json_t *spry_fields_get(const spry_fields *fields, const char *key);

bool spry_fields_bool(spry_fields *fields, const char *key, bool fallback);
int64_t spry_fields_integer(spry_fields *fields, const char *key, int64_t fallback, int64_t min, int64_t max);
/* Text without zero bytes. */
const char *spry_fields_string(spry_fields *fields, const char *key, const char *fallback);
const json_t *spry_fields_object(spry_fields *fields, const char *key); /* NULL: absent */
const json_t *spry_fields_array(spry_fields *fields, const char *key);  /* NULL: absent */

/* "tools", a list of bounded length; NULL: absent. */
const json_t *spry_fields_tools(spry_fields *fields);

/* Checks that messages have the form that templates expect. */
void spry_fields_messages(spry_fields *fields, const json_t *messages);

#endif
