/* The fields of a multipart/form-data body. */
#ifndef SPRY_SERVER_FORM_DATA_H
#define SPRY_SERVER_FORM_DATA_H

#include "server/http/exchange.h"

enum { SPRY_FORM_FIELDS = 32, SPRY_FORM_NAME = 64 };

typedef struct spry_form {
    struct {
        char name[SPRY_FORM_NAME];
        spry_view value; /* a part of the body; a zero byte, which is not counted, follows it */
    } fields[SPRY_FORM_FIELDS];
    size_t count;
} spry_form;

/* Splits a body in place; `type` is its Content-Type. False: it is not a complete form, or has too many fields. */
bool spry_form_split(spry_form *form, const char *type, char *body, size_t size);

/* Splits the body of a request. False: it is no form, and a reply was given. */
bool spry_form_open(spry_form *form, spry_exchange *exchange);

/* The first field of that name; `data` NULL: there is none. */
spry_view spry_form_get(const spry_form *form, const char *name);

#endif
