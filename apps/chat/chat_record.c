/* Owned strings, and titles. */
#include "chat/chat_record.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

bool spry_chat_set(char **field, spry_view text)
{
    char *copy = strndup(text.data, text.size);
    if (!copy)
        return false;
    free(*field);
    *field = copy;
    return true;
}

void spry_chat_deinit(spry_chat *chat)
{
    free(chat->title);
    free(chat->model);
    free(chat->model_path);
    free(chat->settings);
    *chat = (spry_chat){0};
}

static bool is_gap(uint32_t character)
{
    return character <= 0x20 || (character >= 0x7F && character <= 0xA0);
}

void spry_chat_make_title(spry_buffer *out, spry_view message)
{
    size_t characters = 0, word_end = 0; /* word_end: where a long title can be truncated */
    bool gap = false;
    spry_buffer_clear(out);
    for (size_t i = 0, n; i < message.size; i += n) {
        uint32_t character = 0;
        n = spry_utf8_decode(&character, message.data + i, message.size - i);
        if (n == 0 || is_gap(character)) {
            n = n ? n : 1;
            gap = out->size > 0;
            continue;
        }
        if (gap)
            word_end = out->size;
        if (characters + gap + 1 > SPRY_CHAT_TITLE_MAX) {
            if (word_end)
                out->data[out->size = word_end] = 0;
            return;
        }
        if (gap)
            spry_buffer_append(out, " ", 1);
        spry_buffer_append(out, message.data + i, n);
        characters += gap + (size_t)1;
        gap = false;
    }
}
