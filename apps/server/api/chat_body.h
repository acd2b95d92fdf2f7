/* Bodies of other interfaces, written as bodies of OpenAI's chat completions: from there on one reader and one way to a
 * prompt serve all of them. */
#ifndef SPRY_SERVER_API_CHAT_BODY_H
#define SPRY_SERVER_API_CHAT_BODY_H

#include <jansson.h>

#include "server/fields/fields.h"

/* Whether object.key is a string equal to `text`. */
bool spry_chat_body_is(const json_t *object, const char *key, const char *text);

/* object.key as a string; "" when it is none. */
const char *spry_chat_body_string(const json_t *object, const char *key);

/* ---- parts of messages ------------------------------------------------------------------------------------------- */

/* Appends {"type": "text", "text": ...}; takes no reference. */
void spry_chat_body_add_text(json_t *parts, const json_t *text);
void spry_chat_body_add_sentence(json_t *parts, const char *format, ...) SPRY_PRINTF(2, 3);

/* Appends a picture, which has an address or is data. */
void spry_chat_body_add_image(json_t *parts, const char *url);
void spry_chat_body_add_image_data(json_t *parts, const char *media_type, const char *base64);

/* Appends a sentence in place of something that the model cannot be shown. */
void spry_chat_body_add_notice(json_t *parts, spry_fields *fields, const char *key, const char *type);

/* The texts of all parts as one string. */
json_t *spry_chat_body_joined(const json_t *parts);

/* ---- tools ------------------------------------------------------------------------------------------------------- */

/* {"type": "function", "function": {...}}; takes no reference; NULL or null members are left out. */
json_t *spry_chat_body_tool(const json_t *name, const json_t *description, const json_t *schema);

/* A tool whose input is free text, or text of a grammar, as a function with one argument: the model is told the
 * grammar, which also constrains it. `syntax`: "regex", "lark", or "" for free text. Takes no reference. */
json_t *spry_chat_body_custom_tool(const json_t *name, const char *description, const char *syntax, const char *rule);

/* The text of a call of such a tool: its only argument, or all that the model wrote where that is no JSON. */
json_t *spry_chat_body_custom_input(spry_view arguments);

/* A call of a tool, as chat completions have it; takes `arguments`, a string. */
json_t *spry_chat_body_call(const json_t *id, const json_t *name, json_t *arguments);

/* Adds the definition of a tool, as chat completions have it, to a message. Such a tool can be called, but is not in
 * the list of tools, so that the list is the same in every request of a conversation. */
void spry_chat_body_define(json_t *parts, const json_t *tool);

/* Marks a tool of the list as one that is defined in a message. */
void spry_chat_body_defer(json_t *tool);

/* ---- settings ---------------------------------------------------------------------------------------------------- */

/* Adds a variable of the template; takes `value`. */
void spry_chat_body_variable(json_t *body, const char *name, json_t *value);

/* ---- the interfaces ---------------------------------------------------------------------------------------------- */

/* A new body of Anthropic's Messages. A field that is wrong is stored in `fields`; the caller releases the body in any
 * case. */
json_t *spry_chat_body_anthropic(spry_fields *fields);

/* A new body of OpenAI's Responses; `before` (NULL: none): messages of the responses that came before. */
json_t *spry_chat_body_responses(spry_fields *fields, const json_t *before);

#endif
