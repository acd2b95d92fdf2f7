/* Spaces before a word are written with it, or replaced by the newline that moves it to the next line. */
#include "cli/word_wrap.h"

#include <unistd.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "cli/terminal.h"

enum { WORD_BYTES_MAX = 1 << 16, TAB = 8 };

void spry_word_wrap_init(spry_word_wrap *w)
{
    *w = (spry_word_wrap){.width = isatty(STDOUT_FILENO) ? spry_terminal_width(stdout) : 0};
    spry_buffer_init(&w->word, WORD_BYTES_MAX);
}

static void end_word(spry_word_wrap *w, spry_buffer *out)
{
    if (w->word.size == 0)
        return;
    if (w->column && w->column + w->spaces + w->word_columns > w->width) {
        spry_buffer_text(out, "\n");
        w->column = w->spaces = 0;
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

bool spry_word_wrap_write(spry_word_wrap *w, spry_view text)
{
    if (!w->width)
        return spry_out_answer(text);
    spry_buffer out;
    spry_buffer_init(&out, 4 * (text.size + w->word.size + w->spaces) + WORD_BYTES_MAX);
    for (size_t i = 0, n; i < text.size; i += n) {
        uint32_t character = 0;
        n = spry_utf8_decode(&character, text.data + i, text.size - i);
        n = n ? n : 1;
        if (character == ' ') {
            end_word(w, &out);
            w->spaces++;
        } else if (character == '\t') {
            end_word(w, &out);
            w->spaces += TAB - (w->column + w->spaces) % TAB;
        } else if (character == '\n') {
            end_word(w, &out);
            spry_buffer_text(&out, "\n");
            w->column = w->spaces = 0;
        } else {
            add_character(w, &out, character, (spry_view){text.data + i, n});
        }
    }
    bool written = spry_out_answer(spry_buffer_view(&out));
    spry_buffer_deinit(&out);
    return written;
}

bool spry_word_wrap_finish(spry_word_wrap *w)
{
    spry_buffer out;
    spry_buffer_init(&out, w->word.size + w->spaces + 1);
    end_word(w, &out);
    bool written = spry_out_answer(spry_buffer_view(&out));
    spry_buffer_deinit(&out);
    spry_buffer_deinit(&w->word);
    return written;
}
