/* Short forms for the rows of field tables. A file that binds rows to storage defines TARGET, the struct. */
#ifndef SPRY_SERVER_FIELDS_FIELD_ROW_H
#define SPRY_SERVER_FIELDS_FIELD_ROW_H

#include <stddef.h>

#include "server/fields/fields.h"

enum {
    BOOL = SPRY_TYPE_BOOL,
    INTEGER = SPRY_TYPE_INTEGER,
    NUMBER = SPRY_TYPE_NUMBER,
    STRING = SPRY_TYPE_STRING,
    LIST = SPRY_TYPE_LIST,
    OBJECT = SPRY_TYPE_OBJECT,
};

/* A field with storage: the last arguments are one of the forms below, or members of spry_field. */
#define BOUND(name_, types_, example_, about_, ...)                                                                    \
    {                                                                                                                  \
        .name = (name_), .types = (types_), .example = (example_), .about = (about_), __VA_ARGS__                      \
    }
#define HONOURED(name, types, example, about)  BOUND(name, types, example, about, .use = SPRY_FIELD_HONOURED)
#define NO_EFFECT(name, types, example, about) BOUND(name, types, example, about, .use = SPRY_FIELD_ACCEPTED)
#define REFUSED(name, types, example, about, neutral_)                                                                 \
    BOUND(name, types, example, about, .use = SPRY_FIELD_REFUSED, .neutral = (neutral_))
/* A field that other interfaces have, too: it becomes the field `chat_` of a body of chat completions. */
#define SHARED(name, types, example, about, chat_) BOUND(name, types, example, about, .chat = (chat_))

#define TO_BOOL(member) .read = spry_read_bool, .offset = offsetof(TARGET, member)
#define TO_NOT(member)  .read = spry_read_not, .offset = offsetof(TARGET, member)
#define TO_TEXT(member) .read = spry_read_text, .offset = offsetof(TARGET, member)
#define TO_JSON(member) .read = spry_read_json, .offset = offsetof(TARGET, member)
#define TO_U32(member, min_, max_)                                                                                     \
    .read = spry_read_u32, .offset = offsetof(TARGET, member), .min = (min_), .max = (max_)
#define TO_WORD(member, words_) .read = spry_read_word, .offset = offsetof(TARGET, member), .words = (words_)

#define NO_STORE   "prompts and answers are not stored"
#define NO_CLIENTS "clients are told apart by key and address"
#define NO_CHOICE  "this server has one way to serve requests"

#endif
