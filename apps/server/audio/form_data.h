/* The fields of a multipart/form-data body, parsed by libmicrohttpd. */
#ifndef SPRY_SERVER_FORM_DATA_H
#define SPRY_SERVER_FORM_DATA_H

#include "server/http/exchange.h"

enum { SPRY_FORM_FIELDS = 32, SPRY_FORM_NAME = 64 };

typedef struct spry_form_field {
    char name[SPRY_FORM_NAME];
    spry_buffer value;
} spry_form_field;

typedef struct spry_form {
    spry_form_field fields[SPRY_FORM_FIELDS];
    size_t count;
    bool failed; /* memory was short, or there are too many fields */
} spry_form;

/* False: the body is no form, and a reply was given. */
bool spry_form_open(spry_form *form, spry_exchange *exchange);
void spry_form_close(spry_form *form);

/* NULL: there is none. Values end with a zero that is not counted. */
const spry_buffer *spry_form_get(const spry_form *form, const char *name);

#endif
