/* From messages to the text a model was trained on. Rendering also says which parts of the text are the messages' own
 * words: those are literal and can never become control tokens. */
#ifndef SPRY_TEMPLATE_CHAT_TEMPLATE_H
#define SPRY_TEMPLATE_CHAT_TEMPLATE_H

#include "base/buffer.h"
#include "base/error.h"

typedef struct spry_chat_text {
    spry_buffer text;
    spry_buffer literal; /* spry_text_range after spry_text_range, ascending */
} spry_chat_text;

void spry_chat_text_init(spry_chat_text *text, size_t max);
void spry_chat_text_deinit(spry_chat_text *text);

typedef struct spry_chat_template spry_chat_template;

/* `source`: the model's own template, empty when it has none. */
spry_status spry_chat_template_create(spry_chat_template **out, spry_view source, spry_error *error);
void spry_chat_template_destroy(spry_chat_template *chat);

/* The model's own template as it was given; empty when it had none. */
spry_view spry_chat_template_source(const spry_chat_template *chat);

/* Whether the template is the model's own; if not, ChatML stands in for it and people should be told. */
bool spry_chat_template_is_own(const spry_chat_template *chat);

/* Appends the conversation and, with `answer`, the opening of the assistant's next message. */
spry_status spry_chat_template_render(const spry_chat_template *chat, spry_chat_text *out, const spry_message *messages,
                                      size_t n_messages, bool answer, spry_error *error);

#endif
