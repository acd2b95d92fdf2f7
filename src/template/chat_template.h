/* Converts messages to the text format a model was trained on. Rendering also reports which ranges of the text come
 * from the messages: those are literal and never become control tokens.
 *
 * A template is parsed once and then immutable, so many threads may render with it. */
#ifndef SPRY_TEMPLATE_CHAT_TEMPLATE_H
#define SPRY_TEMPLATE_CHAT_TEMPLATE_H

#include <jansson.h>

#include "base/buffer.h"
#include "base/error.h"
#include "template/tool_styles.h"

typedef struct spry_chat_text {
    spry_buffer text;
    spry_buffer literal; /* array of spry_text_range, ascending */
} spry_chat_text;

void spry_chat_text_init(spry_chat_text *text, size_t max);
void spry_chat_text_deinit(spry_chat_text *text);

typedef struct spry_chat_template spry_chat_template;

/* `source`: the model's own template, empty when it has none. An invalid template is not an error: ChatML is used
 * instead, and spry_chat_template_problem gives the reason. */
spry_status spry_chat_template_create(spry_chat_template **out, spry_view source, spry_error *error);
void spry_chat_template_destroy(spry_chat_template *chat);

/* Adds a second template, which replaces the first one in conversations with tools. An invalid template is ignored. */
spry_status spry_chat_template_add_tool_use(spry_chat_template *chat, spry_view source, spry_error *error);

/* The model's own template; empty when it has none. */
spry_view spry_chat_template_source(const spry_chat_template *chat);

/* The source of the template in use, which may be the fallback's; with `tools` the one for tools, if there is one. */
spry_view spry_chat_template_used_source(const spry_chat_template *chat, bool tools);

/* How the model writes calls, and thoughts, according to that source. */
const spry_tool_style *spry_chat_template_tool_style(const spry_chat_template *chat, bool tools);
const spry_thought_style *spry_chat_template_thought_style(const spry_chat_template *chat, bool tools);

/* True if the spelling of a control token is a part of a mark of calls or thoughts. */
bool spry_chat_template_needs_token(const spry_chat_template *chat, spry_view spelling);

/* True if the model's own template is used; otherwise ChatML is, and users should be told. */
bool spry_chat_template_is_own(const spry_chat_template *chat);

/* The error in the model's own template, with its line; empty when there is none. */
const char *spry_chat_template_problem(const spry_chat_template *chat);

typedef struct spry_chat_input {
    const json_t *messages; /* an array in OpenAI's format; content may be text, null, or a list of parts */
    const json_t *tools;    /* an array, or NULL */
    const json_t *extra;    /* an object of further variables ("enable_thinking"), or NULL */
    spry_view source;       /* data is NULL; or a template to use in place of the model's */
    bool add_generation_prompt;
    spry_view continuation;         /* the beginning of the answer, appended after the rendered text; not an input of
                                     * the template */
    spry_view bos_token, eos_token; /* data is NULL: the model has none, and templates get an empty text */
    int64_t now;                    /* for dates: seconds since 1970, local time */
    bool dates; /* sets `date_string` and `datetime` to that time, and `functions` to the tools as text, unless `extra`
                 * sets them */
} spry_chat_input;

/* Appends the conversation and, if requested, the start of the assistant's next message. Templates differ in the input
 * they accept: tool-call arguments that are JSON text are passed as objects; if a template does not accept lists of
 * text parts or null content, it gets plain text, and then unchanged arguments; if it fails for tools without
 * descriptions or parameters, it gets empty ones. Instructions at the beginning are joined. If the template would fail
 * or omit them, the role developer becomes system, and instructions become text of the user. */
spry_status spry_chat_template_render(const spry_chat_template *chat, spry_chat_text *out, const spry_chat_input *input,
                                      spry_error *error);

#endif
