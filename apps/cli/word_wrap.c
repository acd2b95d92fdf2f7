/* Spaces before a word are written with it, or replaced by the newline that moves it to the next line. */
#include "cli/word_wrap.h"

#include <utf8proc.h>

#include "base/utf8.h"

enum { WORD_BYTES_MAX = 1 << 16, TAB = 8 };

void spry_word_wrap_init(spry_word_wrap *w, size_t width)
{
    *w = (spry_word_wrap){.width = width};
    spry_buffer_init(&w->word, WORD_BYTES_MAX);
}

void spry_word_wrap_deinit(spry_word_wrap *w)
{
    spry_buffer_deinit(&w->word);
}

static void end_word(spry_word_wrap *w, spry_buffer *out)
{
    if (w->word.size == 0)
        return;
    if (w->column > w->hang && w->column + w->spaces + w->word_columns > w->width) {
        spry_buffer_text(out, "\n");
        w->column = 0;
        w->spaces = w->hang;
    }
    for (; w->spaces; w->spaces--, w->column++)
        spry_buffer_text(out, " ");
    spry_buffer_append(out, w->word.data, w->word.size);
    w->column += w->word_columns;
    w->word_columns = 0;
    spry_buffer_clear(&w->word);
}

/* A character as wide as two, of a script without spaces, is a word by itself. */
static void add_character(spry_word_wrap *w, spry_buffer *out, uint32_t character, spry_view bytes)
{
    size_t columns = character < 0x20 ? 1 : (size_t)utf8proc_charwidth((utf8proc_int32_t)character);
    if (columns > 1)
        end_word(w, out);
    spry_buffer_append(&w->word, bytes.data, bytes.size);
    w->word_columns += columns;
    if (columns > 1 || w->word_columns >= w->width)
        end_word(w, out);
}

void spry_word_wrap_add(spry_word_wrap *w, spry_buffer *out, spry_view text)
{
    if (!w->width) {
        spry_buffer_append(out, text.data, text.size);
        return;
    }
    for (size_t i = 0, n; i < text.size; i += n) {
        uint32_t character = 0;
        n = spry_utf8_decode(&character, text.data + i, text.size - i);
        n = n ? n : 1;
        if (character == ' ') {
            end_word(w, out);
            w->spaces++;
        } else if (character == '\t') {
            end_word(w, out);
            w->spaces += TAB - (w->column + w->spaces) % TAB;
        } else if (character == '\n') {
            end_word(w, out);
            spry_buffer_text(out, "\n");
            w->column = w->spaces = 0;
        } else {
            add_character(w, out, character, (spry_view){text.data + i, n});
        }
    }
}

void spry_word_wrap_style(spry_word_wrap *w, const char *sequence)
{
    spry_buffer_text(&w->word, sequence);
}

void spry_word_wrap_flush(spry_word_wrap *w, spry_buffer *out)
{
    end_word(w, out);
}
