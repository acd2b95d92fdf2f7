/* ChatML, the one form known so far. */
#include "template/chat_template.h"

#include <stdlib.h>

struct spry_chat_template {
    bool own;
    spry_buffer source;
};

enum { MAX_SOURCE_BYTES = 1 << 20 };

void spry_chat_text_init(spry_chat_text *text, size_t max)
{
    spry_buffer_init(&text->text, max);
    spry_buffer_init(&text->literal, max);
}

void spry_chat_text_deinit(spry_chat_text *text)
{
    spry_buffer_deinit(&text->text);
    spry_buffer_deinit(&text->literal);
}

static bool contains(spry_view text, spry_view part)
{
    for (size_t i = 0; i + part.size <= text.size; i++)
        if (!memcmp(text.data + i, part.data, part.size))
            return true;
    return false;
}

spry_status spry_chat_template_create(spry_chat_template **out, spry_view source, spry_error *error)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return spry_fail_memory(error, "a chat template", sizeof **out);
    spry_buffer_init(&(*out)->source, MAX_SOURCE_BYTES);
    if (!spry_buffer_append(&(*out)->source, source.data, source.size)) {
        spry_chat_template_destroy(*out);
        *out = NULL;
        return spry_fail(error, SPRY_ERR_FORMAT, "a chat template of %zu bytes is too long (at most %d)", source.size,
                         MAX_SOURCE_BYTES);
    }
    (*out)->own = contains(source, SPRY_VIEW("<|im_start|>")) && contains(source, SPRY_VIEW("<|im_end|>"));
    return SPRY_OK;
}

void spry_chat_template_destroy(spry_chat_template *chat)
{
    if (chat)
        spry_buffer_deinit(&chat->source);
    free(chat);
}

spry_view spry_chat_template_source(const spry_chat_template *chat)
{
    return spry_buffer_view(&chat->source);
}

bool spry_chat_template_is_own(const spry_chat_template *chat)
{
    return chat->own;
}

static void append_literal(spry_chat_text *out, const char *words)
{
    spry_text_range range = {.begin = out->text.size};
    spry_buffer_text(&out->text, words);
    range.end = out->text.size;
    spry_buffer_append(&out->literal, &range, sizeof range);
}

spry_status spry_chat_template_render(const spry_chat_template *chat, spry_chat_text *out, const spry_message *messages,
                                      size_t n_messages, bool answer, spry_error *error)
{
    (void)chat;
    for (size_t i = 0; i < n_messages; i++) {
        spry_buffer_text(&out->text, "<|im_start|>");
        append_literal(out, messages[i].role);
        spry_buffer_text(&out->text, "\n");
        append_literal(out, messages[i].content);
        spry_buffer_text(&out->text, "<|im_end|>\n");
    }
    if (answer)
        spry_buffer_text(&out->text, "<|im_start|>assistant\n");
    if (out->text.failed || out->literal.failed)
        return spry_fail(error, SPRY_ERR_INPUT, "a conversation of more than %zu bytes is too long", out->text.max);
    return SPRY_OK;
}
