/* Messages in the forms that templates take, and as values of a rendering. */
#ifndef SPRY_TEMPLATE_CHAT_MESSAGES_H
#define SPRY_TEMPLATE_CHAT_MESSAGES_H

#include <jansson.h>

#include "template/jinja_value.h"

/* In the order in which they are tried. */
typedef enum spry_chat_form {
    SPRY_CHAT_AS_GIVEN,       /* but arguments of tool calls that are JSON text become objects */
    SPRY_CHAT_PLAIN_CONTENT,  /* and lists of text parts become text, a content of null an empty one */
    SPRY_CHAT_TEXT_ARGUMENTS, /* contents as before, arguments untouched */
    SPRY_CHAT_FORMS
} spry_chat_form;

/* *out is the caller's, to json_decref. *differs: not the same as the form before. */
spry_status spry_chat_messages_form(json_t **out, bool *differs, const json_t *messages, spry_chat_form form,
                                    spry_error *error);

/* Whether a message's content is a list of text parts. */
bool spry_chat_messages_have_parts(const json_t *messages);

/* Marked throughout, except roles that everybody knows: templates make control tokens of those, "<|user|>". */
spry_jinja_value spry_chat_messages_value(spry_jinja_run *run, const json_t *messages);

/* About how many bytes of JSON; 0 for NULL. */
size_t spry_chat_json_bytes(const json_t *json);

#endif
