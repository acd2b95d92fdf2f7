/* Bodies of other interfaces, written as bodies of OpenAI's chat completions: from there on one reader and one way to a
 * prompt serve all of them. */
#ifndef SPRY_SERVER_CHAT_BODY_H
#define SPRY_SERVER_CHAT_BODY_H

#include "server/request/request_fields.h"

/* A new body, of Anthropic's Messages and of OpenAI's Responses. A field that is wrong is stored in `fields`; the
 * caller releases the body in any case. `before` (NULL: none): messages of the responses that came before. */
json_t *spry_chat_body_anthropic(spry_fields *fields);
json_t *spry_chat_body_responses(spry_fields *fields, const json_t *before);

/* ---- for the files that make them -------------------------------------------------------------------------------- */

/* Whether obj.key is a string equal to `text`. */
bool spry_chat_body_is(const json_t *object, const char *key, const char *text);

/* Copies fields under new names; `pairs` ends with NULL. */
void spry_chat_body_copy(json_t *body, const spry_fields *fields, const char *const (*pairs)[2], size_t count);

/* Copies spry's own fields. */
void spry_chat_body_copy_own(json_t *body, const spry_fields *fields);

/* Adds a variable of the template. */
void spry_chat_body_variable(json_t *body, const char *name, json_t *value);

/* {"type": "function", "function": {...}}; takes no reference. */
json_t *spry_chat_body_tool(const json_t *name, const json_t *description, const json_t *schema);

/* A call of a tool, as chat completions have it; takes `arguments`, a string. */
json_t *spry_chat_body_call(const json_t *id, const json_t *name, json_t *arguments);

#endif
