/* Short forms for the rows of field tables. */
#ifndef SPRY_SERVER_FIELD_ROW_H
#define SPRY_SERVER_FIELD_ROW_H

#include "server/fields/fields.h"

enum {
    BOOL = SPRY_TYPE_BOOL,
    INTEGER = SPRY_TYPE_INTEGER,
    NUMBER = SPRY_TYPE_NUMBER,
    STRING = SPRY_TYPE_STRING,
    LIST = SPRY_TYPE_LIST,
    OBJECT = SPRY_TYPE_OBJECT,
};

#define HONOURED(name, types, example, about)                                                                          \
    {                                                                                                                  \
        (name), (types), SPRY_FIELD_HONOURED, (example), (about), NULL                                                 \
    }
#define NO_EFFECT(name, types, example, about)                                                                         \
    {                                                                                                                  \
        (name), (types), SPRY_FIELD_ACCEPTED, (example), (about), NULL                                                 \
    }
#define REFUSED(name, types, example, about, neutral)                                                                  \
    {                                                                                                                  \
        (name), (types), SPRY_FIELD_REFUSED, (example), (about), (neutral)                                             \
    }

#define NO_STORE   "prompts and answers are not stored"
#define NO_CLIENTS "clients are told apart by key and address"
#define NO_CHOICE  "this server has one way to serve requests"

#endif
