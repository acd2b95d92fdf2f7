/* Messages in the forms that templates accept, and as values for rendering. */
#ifndef SPRY_TEMPLATE_CHAT_MESSAGES_H
#define SPRY_TEMPLATE_CHAT_MESSAGES_H

#include <jansson.h>

#include "template/jinja_value.h"

/* In the order in which they are tried. */
typedef enum spry_chat_form {
    SPRY_CHAT_AS_GIVEN,       /* JSON text in tool-call arguments becomes an object */
    SPRY_CHAT_PLAIN_CONTENT,  /* in addition, text parts are joined with line breaks, and null content is an empty text
                               */
    SPRY_CHAT_TEXT_ARGUMENTS, /* contents as above, arguments unchanged */
    SPRY_CHAT_FORMS
} spry_chat_form;

/* The caller releases *out with json_decref. *differs: whether it differs from the previous form. */
spry_status spry_chat_messages_form(json_t **out, bool *differs, const json_t *messages, spry_chat_form form,
                                    spry_error *error);

/* Tools with an empty description, and no parameters, where they have none. The caller releases *out with json_decref.
 */
spry_status spry_chat_tools_described(json_t **out, bool *differs, const json_t *tools, spry_error *error);

/* Whether a message's content is a list of text parts. */
bool spry_chat_messages_have_parts(const json_t *messages);

/* All strings are marked as literal, except well-known roles: templates build control tokens from those, "<|user|>". */
spry_jinja_value spry_chat_messages_value(spry_jinja_run *run, const json_t *messages);

/* Approximate size of the JSON text; 0 for NULL. */
size_t spry_chat_json_bytes(const json_t *json);

#endif
