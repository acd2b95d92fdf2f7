/* From messages to the text a model was trained on. Rendering also says which parts of the text are the messages' own
 * words: those are literal and can never become control tokens.
 *
 * A template is parsed once and then immutable, so many threads may render with it. */
#ifndef SPRY_TEMPLATE_CHAT_TEMPLATE_H
#define SPRY_TEMPLATE_CHAT_TEMPLATE_H

#include <jansson.h>

#include "base/buffer.h"
#include "base/error.h"

typedef struct spry_chat_text {
    spry_buffer text;
    spry_buffer literal; /* spry_text_range after spry_text_range, ascending */
} spry_chat_text;

void spry_chat_text_init(spry_chat_text *text, size_t max);
void spry_chat_text_deinit(spry_chat_text *text);

typedef struct spry_chat_template spry_chat_template;

/* `source`: the model's own template, empty when it has none. One that cannot be parsed is no error: ChatML stands in
 * for it, and spry_chat_template_problem says why. */
spry_status spry_chat_template_create(spry_chat_template **out, spry_view source, spry_error *error);
void spry_chat_template_destroy(spry_chat_template *chat);

/* A second template, which takes the place of the first in conversations with tools. One that cannot be parsed is
 * passed over. */
spry_status spry_chat_template_add_tool_use(spry_chat_template *chat, spry_view source, spry_error *error);

/* The model's own template as it was given; empty when it had none. */
spry_view spry_chat_template_source(const spry_chat_template *chat);

/* The source of what renders: that of the stand-in, or of the template for tools where one is there. */
spry_view spry_chat_template_used_source(const spry_chat_template *chat, bool tools);

/* Whether the template is the model's own; if not, ChatML stands in for it and people should be told. */
bool spry_chat_template_is_own(const spry_chat_template *chat);

/* What is wrong with the model's own template and in which line; empty when nothing is. */
const char *spry_chat_template_problem(const spry_chat_template *chat);

typedef struct spry_chat_input {
    const json_t *messages; /* an array as OpenAI's interface has it; a content may be text, null, or a list of parts */
    const json_t *tools;    /* an array, or NULL */
    const json_t *extra;    /* an object of further variables ("enable_thinking"), or NULL */
    bool add_generation_prompt;
    spry_view bos_token, eos_token; /* data NULL: the model has none */
    int64_t now;                    /* for dates: seconds since 1970 on the clock on the wall */
} spry_chat_input;

/* Appends the conversation and, when asked for, the opening of the assistant's next message. Templates differ in what
 * they take: arguments of tool calls are handed over as objects where they are JSON text; when a template cannot take
 * lists of text parts, or a content of null, it gets plain text, and then arguments as they were. */
spry_status spry_chat_template_render(const spry_chat_template *chat, spry_chat_text *out, const spry_chat_input *input,
                                      spry_error *error);

#endif
