#include "cli/shown_text.h"

#include <string.h>
#include <unistd.h>

#include "cli/terminal.h"
#include "platform/clock.h"

enum { OUT_BYTES_MAX = 1 << 26, DRAW_NS = 250000000 };

void spry_shown_text_init(spry_shown_text *s, bool plain, bool rated)
{
    const spry_markdown_styles styles = {.bold = spry_style_begin(stdout, SPRY_STYLE_BOLD),
                                         .italic = spry_style_begin(stdout, SPRY_STYLE_ITALIC),
                                         .code = spry_style_begin(stdout, SPRY_STYLE_CODE),
                                         .dim = spry_style_begin(stdout, SPRY_STYLE_DIM),
                                         .end = spry_style_end(stdout)};
    size_t width = spry_terminal_width(stdout);
    s->terminal = isatty(STDOUT_FILENO);
    s->styled = s->terminal && !plain && *styles.end;
    s->rated = rated && s->terminal && *styles.end;
    s->drawn = false;
    s->pieces = 0;
    spry_word_wrap_init(&s->wrap, width);
    spry_markdown_init(&s->markdown, &styles, width);
}

/* Removes the speed: everything behind the cursor. */
static bool clear_rate(spry_shown_text *s)
{
    bool was = s->drawn;
    s->drawn = false;
    return !was || spry_out_format("\033[J");
}

/* Makes room for a line below, without moving to its beginning, and writes there; the cursor returns. */
static bool draw_rate(spry_shown_text *s)
{
    uint64_t now = spry_clock_ns();
    s->first_ns = s->pieces++ ? s->first_ns : now;
    if (!s->rated || s->pieces < 2 || (s->drawn && now - s->drawn_ns < DRAW_NS))
        return true;
    s->drawn = true;
    s->drawn_ns = now;
    return spry_out_format(
        "\033D\033[A\0337\033[E\033[2K%s%.1f tokens/s%s\0338", spry_style_begin(stdout, SPRY_STYLE_DIM),
        (double)(s->pieces - 1) * 1e9 / (double)(now > s->first_ns ? now - s->first_ns : 1), spry_style_end(stdout));
}

/* New lines go where the speed stands. */
static bool write_out(spry_shown_text *s, spry_buffer *out)
{
    spry_view text = spry_buffer_view(out);
    bool written = !memchr(text.data, '\n', text.size) || clear_rate(s);
    written = written && spry_out_write(text.data, text.size);
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
    return write_out(s, &out) && draw_rate(s) && spry_out_flush();
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
    return clear_rate(s) && write_out(s, &out) && spry_out_flush();
}
