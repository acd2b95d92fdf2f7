#include "cli/shown_text.h"

#include <unistd.h>

#include "cli/terminal.h"

enum { OUT_BYTES_MAX = 1 << 26 };

void spry_shown_text_init(spry_shown_text *s, bool plain)
{
    const spry_markdown_styles styles = {.bold = spry_style_begin(stdout, SPRY_STYLE_BOLD),
                                         .italic = spry_style_begin(stdout, SPRY_STYLE_ITALIC),
                                         .code = spry_style_begin(stdout, SPRY_STYLE_CODE),
                                         .dim = spry_style_begin(stdout, SPRY_STYLE_DIM),
                                         .end = spry_style_end(stdout)};
    size_t width = spry_terminal_width(stdout);
    s->terminal = isatty(STDOUT_FILENO);
    s->styled = s->terminal && !plain && *styles.end;
    spry_word_wrap_init(&s->wrap, width);
    spry_markdown_init(&s->markdown, &styles, width);
}

static bool write_out(spry_buffer *out)
{
    spry_view text = spry_buffer_view(out);
    bool written = spry_out_write(text.data, text.size) && spry_out_flush();
    spry_buffer_deinit(out);
    return written;
}

bool spry_shown_text_write(spry_shown_text *s, spry_view text)
{
    if (!s->terminal)
        return spry_out_answer(text);
    spry_buffer safe, out;
    spry_buffer_init(&safe, text.size);
    spry_buffer_init(&out, OUT_BYTES_MAX);
    spry_terminal_defuse(&safe, text, "\n\t");
    if (s->styled)
        spry_markdown_add(&s->markdown, &out, spry_buffer_view(&safe));
    else
        spry_word_wrap_add(&s->wrap, &out, spry_buffer_view(&safe));
    spry_buffer_deinit(&safe);
    return write_out(&out);
}

bool spry_shown_text_finish(spry_shown_text *s)
{
    spry_buffer out;
    spry_buffer_init(&out, OUT_BYTES_MAX);
    if (s->styled)
        spry_markdown_finish(&s->markdown, &out);
    else
        spry_word_wrap_flush(&s->wrap, &out);
    spry_word_wrap_deinit(&s->wrap);
    spry_markdown_deinit(&s->markdown);
    return write_out(&out);
}
