/* Spaces before a word are written with it, or replaced by the newline that moves it to the next line. */
#include "cli/markdown_text.h"

#include <string.h>
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

/* Adds an escape sequence, which takes no columns, at the current position of the text. */
static void word_wrap_style(spry_word_wrap *w, const char *sequence)
{
    spry_buffer_text(&w->word, sequence);
}

void spry_word_wrap_flush(spry_word_wrap *w, spry_buffer *out)
{
    end_word(w, out);
}

/* ---- Markdown ---------------------------------------------------------------------------------------------------- */

/* Marks are ASCII; the text between them is passed on in whole characters. */

enum { LINE_BYTES_MAX = 1 << 16, TABLE_BYTES_MAX = 1 << 20, COLUMNS_MAX = 32, DIGITS_MAX = 3, RULE = 3, FENCE = 3 };

void spry_markdown_init(spry_markdown *m, const spry_markdown_styles *styles, size_t width)
{
    *m = (spry_markdown){.styles = *styles};
    spry_word_wrap_init(&m->wrap, width);
    spry_buffer_init(&m->line, LINE_BYTES_MAX);
    spry_buffer_init(&m->table, TABLE_BYTES_MAX);
}

void spry_markdown_deinit(spry_markdown *m)
{
    spry_word_wrap_deinit(&m->wrap);
    spry_buffer_deinit(&m->line);
    spry_buffer_deinit(&m->table);
}

/* ---- text of a line ---------------------------------------------------------------------------------------------- */

/* Writes the sequences of all styles that are in effect. */
static void restyle(spry_markdown *m)
{
    const spry_markdown_styles *s = &m->styles;
    word_wrap_style(&m->wrap, s->end);
    if (m->heading || m->bold)
        word_wrap_style(&m->wrap, s->bold);
    if (m->italic)
        word_wrap_style(&m->wrap, s->italic);
    if (m->code)
        word_wrap_style(&m->wrap, s->code);
    if (m->quote)
        word_wrap_style(&m->wrap, s->dim);
}

static void put(spry_markdown *m, spry_buffer *out, const char *text, size_t size)
{
    spry_word_wrap_add(&m->wrap, out, (spry_view){text, size});
}

/* Two asterisks are bold, one is italic, where they touch a word on the right side; otherwise they are text. */
static void end_stars(spry_markdown *m, spry_buffer *out, char next)
{
    size_t n = m->stars;
    bool touches_next = next && next != ' ' && next != '\n', touches_before = m->before && m->before != ' ';
    m->stars = 0;
    if (n == 0)
        return;
    bool *style = n == 2 ? &m->bold : &m->italic;
    if (n <= 2 && (*style ? touches_before : touches_next)) {
        *style = !*style;
        restyle(m);
        return;
    }
    for (; n; n--)
        put(m, out, "*", 1);
    m->before = '*';
}

static void end_line(spry_markdown *m, spry_buffer *out)
{
    bool styled = m->heading || m->quote || m->bold || m->italic || m->code;
    end_stars(m, out, '\n');
    m->heading = m->quote = m->bold = m->italic = m->code = false;
    if (styled)
        restyle(m);
    put(m, out, "\n", 1);
    m->wrap.hang = 0;
    m->before = 0;
    m->block = SPRY_MARKDOWN_START;
}

static void add_text(spry_markdown *m, spry_buffer *out, const char *text, size_t size)
{
    for (size_t i = 0, n; i < size; i += n) {
        n = 1;
        if (text[i] == '*' && !m->code) {
            m->stars++;
            continue;
        }
        end_stars(m, out, text[i]);
        if (text[i] == '`') {
            m->code = !m->code;
            restyle(m);
        } else {
            while (i + n < size && text[i + n] != '`' && text[i + n] != '*')
                n++;
            put(m, out, text + i, n);
        }
        m->before = text[i + n - 1];
    }
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

typedef struct row {
    spry_view cells[COLUMNS_MAX];
    size_t n;
} row;

static void read_row(row *r, spry_view line)
{
    r->n = 0;
    line = spry_view_trim(line, " \t\r");
    if (line.size && line.data[0] == '|')
        line = (spry_view){line.data + 1, line.size - 1};
    if (line.size && line.data[line.size - 1] == '|')
        line.size--;
    while (r->n < COLUMNS_MAX) {
        const char *bar = memchr(line.data, '|', line.size);
        size_t size = bar ? (size_t)(bar - line.data) : line.size;
        r->cells[r->n++] = spry_view_trim((spry_view){line.data, size}, " \t\r");
        if (!bar)
            return;
        line = (spry_view){bar + 1, line.size - size - 1};
    }
}

/* "|---|:--:|" */
static bool is_separator(const row *r)
{
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->cells[i].size || k == 0; k++)
            if (!r->cells[i].size || !strchr("-:", r->cells[i].data[k]))
                return false;
    return true;
}

/* Columns of a cell on the terminal. */
static size_t width_of(spry_view cell)
{
    size_t columns = 0;
    for (size_t i = 0, n; i < cell.size; i += n ? n : 1) {
        uint32_t character = 0;
        n = spry_utf8_decode(&character, cell.data + i, cell.size - i);
        columns += (size_t)utf8proc_charwidth((utf8proc_int32_t)character);
    }
    return columns;
}

static bool next_line(spry_view *line, spry_view *rest)
{
    const char *end = rest->size ? memchr(rest->data, '\n', rest->size) : NULL;
    if (!end)
        return false;
    *line = (spry_view){rest->data, (size_t)(end - rest->data)};
    *rest = (spry_view){end + 1, rest->size - line->size - 1};
    return true;
}

static size_t measure_table(size_t widths[COLUMNS_MAX], spry_view rest)
{
    spry_view line;
    row r;
    size_t whole = 0;
    memset(widths, 0, COLUMNS_MAX * sizeof *widths);
    while (next_line(&line, &rest)) {
        read_row(&r, line);
        for (size_t i = 0; i < r.n && !is_separator(&r); i++) {
            size_t width = width_of(r.cells[i]);
            widths[i] = width > widths[i] ? width : widths[i];
        }
    }
    for (size_t i = 0; i < COLUMNS_MAX; i++)
        whole += widths[i] ? widths[i] + 2 : 0;
    return whole;
}

/* Columns are aligned, and the first row is bold; a table wider than the terminal is shown as it is. */
static void flush_table(spry_markdown *m, spry_buffer *out)
{
    size_t widths[COLUMNS_MAX];
    spry_view rest = spry_buffer_view(&m->table), line;
    row r;
    bool wide = measure_table(widths, rest) > m->wrap.width, first = true;
    while (next_line(&line, &rest)) {
        read_row(&r, line);
        if (wide || r.n < 2) {
            add_text(m, out, line.data, line.size);
            end_line(m, out);
            continue;
        }
        if (is_separator(&r))
            continue;
        spry_buffer_text(out, first ? m->styles.bold : "");
        for (size_t i = 0; i < r.n; i++) {
            spry_buffer_append(out, r.cells[i].data, r.cells[i].size);
            for (size_t k = width_of(r.cells[i]); i + 1 < r.n && k < widths[i] + 2; k++)
                spry_buffer_text(out, " ");
        }
        spry_buffer_format(out, "%s\n", first ? m->styles.end : "");
        first = false;
    }
    spry_buffer_clear(&m->table);
    m->block = SPRY_MARKDOWN_START;
}

/* ---- the beginning of a line ------------------------------------------------------------------------------------- */

static size_t run_of(spry_view text, const char *of)
{
    size_t n = 0;
    while (n < text.size && strchr(of, text.data[n]))
        n++;
    return n;
}

typedef enum kind { UNDECIDED, PLAIN, HEADING, BULLET, NUMBER, QUOTE, FENCED, ROW } kind;

/* The kind of line that the characters after the indent begin. */
static kind classify(spry_view s)
{
    if (!s.size)
        return UNDECIDED;
    size_t n = run_of(s, (char[]){s.data[0], 0}), digits = run_of(s, "0123456789");
    char next = n < s.size ? s.data[n] : 0;
    switch (s.data[0]) {
    case '#': return n > 6 ? PLAIN : !next ? UNDECIDED : next == ' ' ? HEADING : PLAIN;
    case '|': return ROW;
    case '>': return next == ' ' ? QUOTE : next ? PLAIN : UNDECIDED;
    case '`': return n >= FENCE ? FENCED : next ? PLAIN : UNDECIDED;
    case '-':
    case '+':
    case '*': return !next ? UNDECIDED : n == 1 && next == ' ' ? BULLET : PLAIN;
    default: break;
    }
    if (digits && digits <= DIGITS_MAX) {
        if (digits == s.size || (digits + 1 == s.size && strchr(".)", s.data[digits])))
            return UNDECIDED;
        return strchr(".)", s.data[digits]) && s.data[digits + 1] == ' ' ? NUMBER : PLAIN;
    }
    return PLAIN;
}

static void begin_text(spry_markdown *m, spry_buffer *out, kind what, size_t indent, spry_view s)
{
    m->block = SPRY_MARKDOWN_TEXT;
    for (size_t i = 0; i < indent; i++)
        put(m, out, " ", 1);
    m->heading = what == HEADING;
    m->quote = what == QUOTE;
    if (what == HEADING || what == QUOTE)
        restyle(m);
    if (what == BULLET)
        put(m, out, "\xe2\x80\xa2 ", 4);
    else if (what == QUOTE)
        put(m, out, "\xe2\x94\x82 ", 4);
    else if (what == NUMBER)
        put(m, out, s.data, s.size);
    m->wrap.hang = what == BULLET || what == QUOTE ? indent + 2 : what == NUMBER ? indent + s.size : 0;
    if (what == PLAIN)
        add_text(m, out, s.data, s.size);
}

/* A whole line that was undecided, or a rule. */
static void end_undecided(spry_markdown *m, spry_buffer *out, spry_view s, size_t indent)
{
    bool rule = s.size >= RULE && strchr("-*_", s.data[0]) && run_of(s, (char[]){s.data[0], 0}) == s.size;
    size_t width = m->wrap.width < 40 ? m->wrap.width : 40;
    m->block = SPRY_MARKDOWN_TEXT;
    if (!rule)
        begin_text(m, out, PLAIN, indent, s);
    for (size_t i = 0; rule && i < width; i++)
        put(m, out, "\xe2\x94\x80", 3);
    end_line(m, out);
}

/* One character. */
static void begin_line(spry_markdown *m, spry_buffer *out, spry_view character)
{
    if (character.data[0] == '\n') {
        spry_view held = spry_buffer_view(&m->line);
        size_t indent = run_of(held, " ");
        if (m->table.size)
            flush_table(m, out);
        end_undecided(m, out, (spry_view){held.data + indent, held.size - indent}, indent);
        spry_buffer_clear(&m->line);
        return;
    }
    spry_buffer_append(&m->line, character.data, character.size);
    spry_view held = spry_buffer_view(&m->line);
    size_t indent = run_of(held, " ");
    spry_view s = {held.data + indent, held.size - indent};
    kind what = classify(s);
    if (what == UNDECIDED)
        return;
    if (m->table.size && what != ROW)
        flush_table(m, out);
    if (what == FENCED) {
        m->block = SPRY_MARKDOWN_CODE; /* the rest of this line names the language */
        return;
    }
    if (what == ROW) {
        m->block = SPRY_MARKDOWN_ROW;
        return;
    }
    begin_text(m, out, what, indent, s);
    spry_buffer_clear(&m->line);
}

/* ---- lines that are held back ------------------------------------------------------------------------------------ */

/* The first line is that of the fence. */
static void end_code_line(spry_markdown *m, spry_buffer *out)
{
    spry_view line = spry_buffer_view(&m->line);
    bool fence = run_of(spry_view_trim(line, " \t\r"), "`") >= FENCE;
    if (m->in_code && !fence) {
        spry_buffer_format(out, "    %s", m->styles.code);
        spry_buffer_append(out, line.data, line.size);
        spry_buffer_format(out, "%s\n", m->styles.end);
    } else {
        m->block = m->in_code ? SPRY_MARKDOWN_START : SPRY_MARKDOWN_CODE;
        m->in_code = !m->in_code;
    }
    spry_buffer_clear(&m->line);
}

static void end_row(spry_markdown *m)
{
    spry_buffer_append(&m->table, m->line.data, m->line.size);
    spry_buffer_append(&m->table, "\n", 1);
    spry_buffer_clear(&m->line);
    m->block = SPRY_MARKDOWN_START;
}

void spry_markdown_add(spry_markdown *m, spry_buffer *out, spry_view text)
{
    for (size_t i = 0, n; i < text.size; i += n) {
        const char *at = text.data + i, *end = memchr(at, '\n', text.size - i);
        uint32_t character = 0;
        n = end ? (size_t)(end - at) : text.size - i; /* up to the line's end */
        if (m->block == SPRY_MARKDOWN_START) {
            n = spry_utf8_decode(&character, at, text.size - i);
            n = n ? n : 1;
            begin_line(m, out, (spry_view){at, n});
            continue;
        }
        if (m->block == SPRY_MARKDOWN_TEXT)
            add_text(m, out, at, n);
        else
            spry_buffer_append(&m->line, at, n);
        if (!end)
            continue;
        n++;
        if (m->block == SPRY_MARKDOWN_TEXT)
            end_line(m, out);
        else if (m->block == SPRY_MARKDOWN_CODE)
            end_code_line(m, out);
        else
            end_row(m);
    }
}

void spry_markdown_finish(spry_markdown *m, spry_buffer *out)
{
    if (m->block == SPRY_MARKDOWN_ROW)
        end_row(m);
    if (m->block == SPRY_MARKDOWN_CODE && m->in_code && m->line.size)
        end_code_line(m, out);
    if (m->table.size)
        flush_table(m, out);
    if (m->block == SPRY_MARKDOWN_START && m->line.size) {
        spry_view held = spry_buffer_view(&m->line);
        begin_text(m, out, PLAIN, 0, held);
    }
    end_stars(m, out, 0);
    bool styled = m->heading || m->quote || m->bold || m->italic || m->code;
    m->heading = m->quote = m->bold = m->italic = m->code = false;
    if (styled)
        restyle(m);
    spry_word_wrap_flush(&m->wrap, out);
    spry_buffer_clear(&m->line);
}
