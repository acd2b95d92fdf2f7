#include "run/answer.h"

#include <string.h>
#include <unistd.h>

#include "platform/clock.h"

enum { OUT_BYTES_MAX = 1 << 26, DRAW_NS = 250000000 };

void spry_shown_text_init(spry_shown_text *s, const spry_shown_options *how)
{
    const spry_markdown_styles styles = {.bold = spry_style_begin(stdout, SPRY_STYLE_BOLD),
                                         .italic = spry_style_begin(stdout, SPRY_STYLE_ITALIC),
                                         .code = spry_style_begin(stdout, SPRY_STYLE_CODE),
                                         .dim = spry_style_begin(stdout, SPRY_STYLE_DIM),
                                         .end = spry_style_end(stdout)};
    size_t width = spry_terminal_width(stdout);
    *s = (spry_shown_text){.how = *how, .terminal = isatty(STDOUT_FILENO)};
    s->styled = s->terminal && !how->plain && *styles.end;
    s->how.rated = how->rated && s->terminal && *styles.end;
    spry_word_wrap_init(&s->wrap, s->terminal ? width : 0);
    spry_markdown_init(&s->markdown, &styles, width);
    spry_progress_begin(&s->progress, "reading the prompt");
}

void spry_shown_text_prompt(spry_shown_text *s, size_t done, size_t total)
{
    spry_progress_update(&s->progress, done, total);
}

/* ---- the speed --------------------------------------------------------------------------------------------------- */

/* Removes the speed: clears the screen from the cursor on. */
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
    if (!s->how.rated || s->pieces < 2 || (s->drawn && now - s->drawn_ns < DRAW_NS))
        return true;
    s->drawn = true;
    s->drawn_ns = now;
    return spry_out_format(
        "\033D\033[A\0337\033[E\033[2K%s%.1f tokens/s%s\0338", spry_style_begin(stdout, SPRY_STYLE_DIM),
        (double)(s->pieces - 1) * 1e9 / (double)(now > s->first_ns ? now - s->first_ns : 1), spry_style_end(stdout));
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Removes the speed before a newline, because the next line of text takes its place. */
static bool write_out(spry_shown_text *s, spry_buffer *out)
{
    spry_view text = spry_buffer_view(out);
    bool written = !memchr(text.data, '\n', text.size) || clear_rate(s);
    written = written && spry_out_write(text.data, text.size);
    spry_buffer_deinit(out);
    return written;
}

static bool write_dim(spry_shown_text *s, spry_view text)
{
    spry_buffer safe, out;
    spry_buffer_init(&safe, text.size);
    spry_buffer_init(&out, OUT_BYTES_MAX);
    spry_terminal_defuse(&safe, text, "\n\t");
    spry_buffer_text(&out, spry_style_begin(stdout, SPRY_STYLE_DIM));
    spry_word_wrap_add(&s->wrap, &out, spry_buffer_view(&safe));
    spry_buffer_text(&out, spry_style_end(stdout));
    spry_buffer_deinit(&safe);
    return write_out(s, &out) && spry_out_flush();
}

/* Writes the held-back end of a thought, or how long it took. */
static bool end_thought(spry_shown_text *s)
{
    if (!s->thinking)
        return true;
    s->thinking = false;
    s->thought = true;
    spry_buffer out;
    spry_buffer_init(&out, OUT_BYTES_MAX);
    const char *dim = spry_style_begin(stdout, SPRY_STYLE_DIM), *end = spry_style_end(stdout);
    if (s->how.thoughts) {
        spry_buffer_text(&out, dim);
        spry_word_wrap_flush(&s->wrap, &out);
        spry_buffer_format(&out, "%s\n\n", end);
        s->wrap.column = 0;
    } else if (s->terminal) {
        char time[SPRY_AMOUNT_MAX];
        spry_buffer_format(&out, "%sthought for %s%s\n", dim,
                           spry_amount_time(time, (double)(spry_clock_ns() - s->thinking_ns) / 1e6), end);
    }
    return write_out(s, &out) && spry_out_flush();
}

bool spry_shown_text_think(spry_shown_text *s, spry_view text)
{
    if (!s->thinking) {
        s->thinking = true;
        s->thinking_ns = spry_clock_ns();
        spry_progress_end(&s->progress);
        if (!s->how.thoughts)
            spry_progress_begin(&s->progress, "thinking");
    }
    if (!s->how.streamed || !s->how.thoughts)
        return true;
    if (!s->terminal)
        return spry_out_answer(text);
    return write_dim(s, text) && draw_rate(s) && spry_out_flush();
}

bool spry_shown_text_add(spry_shown_text *s, spry_view text)
{
    spry_progress_end(&s->progress);
    if (!s->how.streamed)
        return true;
    if (!end_thought(s))
        return false;
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
    spry_progress_end(&s->progress);
    bool written = clear_rate(s) && (!s->how.streamed || end_thought(s));
    if (s->styled)
        spry_markdown_finish(&s->markdown, &out);
    else
        spry_word_wrap_flush(&s->wrap, &out);
    spry_word_wrap_deinit(&s->wrap);
    spry_markdown_deinit(&s->markdown);
    return write_out(s, &out) && written && spry_out_flush();
}
