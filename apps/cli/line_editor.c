/* The message is one buffer of UTF-8, drawn below the prompt and redrawn as a whole after each key. Of a message that
 * is taller than the terminal, the rows around the cursor are drawn. */
#include "cli/line_editor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "cli/interrupt.h"
#include "cli/keyboard.h"
#include "cli/terminal.h"
#include "platform/environment.h"

enum { TEXT_BYTES_MAX = 16 << 20, SCREEN_BYTES_MAX = 1 << 24, INDENT = 2, TAB_COLUMNS = 4, ROWS_MAX = 512 };

#define SEARCH_BEGIN "search '"
#define SEARCH_END   "': "

struct spry_line_editor {
    spry_line_editor_options options;
    spry_keyboard keyboard;
    FILE *screen;
    spry_buffer text; /* the message */
    size_t cursor;    /* byte in it */
    spry_buffer cut;  /* what Ctrl-K, Ctrl-U and Ctrl-W removed last */
    spry_line_history *history;
    size_t shown;      /* entry of the history that is edited; its count: the new message */
    spry_buffer draft; /* the new message meanwhile */
    bool searching;
    spry_buffer sought;
    /* What is on the screen: columns of each row down to the cursor's, and the cursor's column. */
    size_t width, columns[ROWS_MAX], cursor_row, cursor_column;
};

/* ---- layout ------------------------------------------------------------------------------------------------------ */

typedef struct place {
    size_t row, column;
} place;

/* The character at `at` and the columns it takes. Control characters are shown as '?'. */
static size_t character_at(const spry_line_editor *e, size_t at, uint32_t *character, size_t *columns)
{
    size_t size = spry_utf8_decode(character, e->text.data + at, e->text.size - at);
    int wide =
        *character < 0x20 ? *character == '\t' ? TAB_COLUMNS : 1 : utf8proc_charwidth((utf8proc_int32_t)*character);
    *columns = wide < 0 || (*character >= 0x7F && *character < 0xA0) ? 1 : (size_t)wide;
    return size ? size : 1;
}

/* Begins a row where the character does not fit the current one. */
static void make_room(const spry_line_editor *e, place *p, size_t columns)
{
    if (p->column + columns > e->width && p->column) {
        p->row++;
        p->column = 0;
    }
}

/* Moves `p` over the character at `at`; returns where the next one begins. */
static size_t step(const spry_line_editor *e, place *p, size_t at)
{
    uint32_t character;
    size_t columns, size = character_at(e, at, &character, &columns);
    if (character == '\n') {
        p->row++;
        p->column = INDENT;
    } else {
        make_room(e, p, columns);
        p->column += columns;
    }
    return at + size;
}

static size_t prompt_columns(const spry_line_editor *e)
{
    size_t columns = sizeof SEARCH_BEGIN SEARCH_END - 1;
    for (size_t at = 0, size; e->searching && at < e->sought.size; at += size) {
        uint32_t character = 0;
        size = spry_utf8_decode(&character, e->sought.data + at, e->sought.size - at);
        columns += (size_t)utf8proc_charwidth((utf8proc_int32_t)character);
    }
    return e->searching ? columns : INDENT;
}

/* Where the cursor is when it is before byte `end`. */
static place place_of(const spry_line_editor *e, size_t end)
{
    place p = {prompt_columns(e) / e->width, prompt_columns(e) % e->width};
    for (size_t at = 0; at < end;)
        at = step(e, &p, at);
    make_room(e, &p, 1);
    return p;
}

/* The byte nearest to a column of a row. */
static size_t byte_at(const spry_line_editor *e, place wanted)
{
    place p = place_of(e, 0);
    size_t at = 0;
    while (at < e->text.size) {
        place next = p;
        size_t after = step(e, &next, at);
        if (p.row == wanted.row && (p.column >= wanted.column || next.row > wanted.row))
            break;
        p = next;
        at = after;
    }
    return at;
}

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

static void begin_row(spry_line_editor *e, spry_buffer *out, size_t row, size_t first, bool hard)
{
    spry_buffer_text(out, row > first ? "\r\n\033[K" : "\033[K");
    if (hard)
        spry_buffer_format(out, "%s%s%s", spry_style_begin(e->screen, SPRY_STYLE_PROMPT), row ? ". " : "> ",
                           spry_style_end(e->screen));
}

/* The text in rows [first, last], each after its prompt; *end: where it ends. */
static void draw_rows(spry_line_editor *e, spry_buffer *out, size_t first, size_t last, place *end)
{
    place p = place_of(e, 0);
    if (e->searching)
        spry_buffer_format(out, "\033[K" SEARCH_BEGIN "%s" SEARCH_END, spry_buffer_view(&e->sought).data);
    else if (first == 0)
        begin_row(e, out, 0, 0, true);
    for (size_t at = 0; at < e->text.size && p.row <= last;) {
        uint32_t character;
        size_t columns, size = character_at(e, at, &character, &columns), row = p.row;
        size_t after = step(e, &p, at);
        if (p.row > row && p.row >= first && p.row <= last)
            begin_row(e, out, p.row, first, character == '\n');
        if (p.row >= first && p.row <= last) {
            e->columns[p.row - first] = p.column;
            if (character == '\t')
                spry_buffer_format(out, "%*s", TAB_COLUMNS, "");
            else if (character < 0x20 || (character >= 0x7F && character < 0xA0))
                spry_buffer_append(out, "?", character != '\n');
            else
                spry_buffer_append(out, e->text.data + at, size);
        }
        at = after;
    }
    make_room(e, &p, 1);
    if (p.row <= last && e->text.size && p.column == 0)
        begin_row(e, out, p.row, first, false);
    *end = p;
}

/* Moves to the first row that is drawn. After the terminal has changed its width, terminals break rows that are too
 * long now, so they take more. */
static void move_to_begin(spry_line_editor *e, spry_buffer *out, size_t width)
{
    size_t up = e->cursor_column / width;
    for (size_t i = 0; i < e->cursor_row; i++)
        up += e->columns[i] ? (e->columns[i] - 1) / width + 1 : 1;
    if (up)
        spry_buffer_format(out, "\033[%zuA", up);
    spry_buffer_text(out, "\r");
}

static void send(spry_line_editor *e, spry_buffer *out)
{
    fwrite(spry_buffer_view(out).data, 1, out->size, e->screen);
    fflush(e->screen);
    spry_buffer_deinit(out);
}

static void draw(spry_line_editor *e)
{
    spry_buffer out;
    spry_buffer_init(&out, SCREEN_BYTES_MAX);
    size_t height = spry_terminal_height(e->screen), width = spry_terminal_width(e->screen);
    move_to_begin(e, &out, e->width == width ? SIZE_MAX : width);
    e->width = width < 4 ? 4 : width;
    height = height > ROWS_MAX ? ROWS_MAX : height;
    place cursor = place_of(e, e->cursor), end;
    size_t first = cursor.row < height ? 0 : cursor.row - height + 1;
    memset(e->columns, 0, sizeof e->columns);
    draw_rows(e, &out, first, first + height - 1, &end);
    size_t last = end.row < first + height ? end.row : first + height - 1;
    spry_buffer_text(&out, end.row == last ? "\033[J" : ""); /* erases what was drawn before below the text */
    if (last > cursor.row)
        spry_buffer_format(&out, "\033[%zuA", last - cursor.row);
    spry_buffer_text(&out, "\r");
    if (cursor.column)
        spry_buffer_format(&out, "\033[%zuC", cursor.column);
    e->cursor_row = cursor.row - first;
    e->cursor_column = cursor.column;
    send(e, &out);
}

/* Leaves the message on the screen, with the cursor on a new line. */
static void end_drawing(spry_line_editor *e)
{
    e->cursor = e->text.size;
    draw(e);
    e->cursor_row = e->cursor_column = 0;
}

static void complain_long(spry_line_editor *e)
{
    size_t at = e->cursor;
    end_drawing(e);
    e->cursor = at;
    fputs("\n", e->screen);
    fflush(e->screen);
    spry_complain("a message has at most %d bytes; nothing was added", TEXT_BYTES_MAX);
}

/* ---- changing the text ------------------------------------------------------------------------------------------- */

static bool is_word(uint32_t character)
{
    return character > 0x7F || (character | 32) - 'a' < 26 || character - '0' < 10 || character == '_';
}

/* The next character with columns of its own; combining characters belong to the one before. */
static size_t after(const spry_line_editor *e, size_t at)
{
    uint32_t character;
    size_t columns;
    if (at < e->text.size)
        at += character_at(e, at, &character, &columns);
    while (at < e->text.size) {
        size_t size = character_at(e, at, &character, &columns);
        if (columns || character == '\n')
            break;
        at += size;
    }
    return at;
}

static size_t before(const spry_line_editor *e, size_t at)
{
    uint32_t character = 0;
    size_t columns = 0;
    while (at && !columns) {
        do
            at--;
        while (at && (e->text.data[at] & 0xC0) == 0x80);
        character_at(e, at, &character, &columns);
        columns += character == '\n';
    }
    return at;
}

static bool word_at(const spry_line_editor *e, size_t at)
{
    uint32_t character;
    size_t columns;
    character_at(e, at, &character, &columns);
    return is_word(character);
}

static size_t word_begin(const spry_line_editor *e, size_t at)
{
    while (at && !word_at(e, before(e, at)))
        at = before(e, at);
    while (at && word_at(e, before(e, at)))
        at = before(e, at);
    return at;
}

static size_t word_end(const spry_line_editor *e, size_t at)
{
    while (at < e->text.size && !word_at(e, at))
        at = after(e, at);
    while (at < e->text.size && word_at(e, at))
        at = after(e, at);
    return at;
}

static size_t line_begin(const spry_line_editor *e, size_t at)
{
    while (at && e->text.data[at - 1] != '\n')
        at--;
    return at;
}

static size_t line_end(const spry_line_editor *e, size_t at)
{
    const char *newline = at < e->text.size ? memchr(e->text.data + at, '\n', e->text.size - at) : NULL;
    return newline ? (size_t)(newline - e->text.data) : e->text.size;
}

/* Text that is too long leaves the message as it was. */
static void insert(spry_line_editor *e, spry_view what)
{
    size_t tail = e->text.size - e->cursor;
    if (!what.size)
        return;
    if (!spry_buffer_extend(&e->text, what.size)) {
        e->text.failed = false;
        complain_long(e);
        return;
    }
    memmove(e->text.data + e->cursor + what.size, e->text.data + e->cursor, tail);
    memcpy(e->text.data + e->cursor, what.data, what.size);
    e->text.data[e->text.size] = '\0';
    e->cursor += what.size;
}

static void remove_range(spry_line_editor *e, size_t begin, size_t end)
{
    if (begin == end)
        return;
    memmove(e->text.data + begin, e->text.data + end, e->text.size - end + 1);
    e->text.size -= end - begin;
    e->cursor = begin;
}

static void cut_range(spry_line_editor *e, size_t begin, size_t end)
{
    spry_buffer_clear(&e->cut);
    spry_buffer_append(&e->cut, spry_buffer_view(&e->text).data + begin, end - begin);
    remove_range(e, begin, end);
}

static void set_text(spry_line_editor *e, spry_view text)
{
    spry_buffer_clear(&e->text);
    spry_buffer_append(&e->text, text.data, text.size);
    e->cursor = e->text.size;
}

/* ---- history ----------------------------------------------------------------------------------------------------- */

static void show_entry(spry_line_editor *e, size_t index)
{
    size_t count = spry_line_history_count(e->history);
    if (e->shown == count) {
        spry_buffer_clear(&e->draft);
        spry_buffer_append(&e->draft, spry_buffer_view(&e->text).data, e->text.size);
    }
    e->shown = index;
    set_text(e, index < count ? spry_line_history_at(e->history, index) : spry_buffer_view(&e->draft));
}

static void move_in_history(spry_line_editor *e, bool older)
{
    if (older ? e->shown > 0 : e->shown < spry_line_history_count(e->history))
        show_entry(e, older ? e->shown - 1 : e->shown + 1);
}

/* Up and down move in the message, and at its ends in the history. */
static void move_row(spry_line_editor *e, bool up)
{
    place p = place_of(e, e->cursor), end = place_of(e, e->text.size);
    if (up ? p.row == 0 : p.row == end.row) {
        move_in_history(e, up);
        return;
    }
    p.row += up ? (size_t)-1 : 1;
    e->cursor = byte_at(e, p);
}

/* ---- searching the history --------------------------------------------------------------------------------------- */

/* Shows the newest entry before `limit` that contains what is sought. */
static void search_before(spry_line_editor *e, size_t limit)
{
    for (size_t i = limit; e->sought.size && i-- > 0;) {
        spry_view entry = spry_line_history_at(e->history, i);
        const char *found = strstr(entry.data, e->sought.data);
        if (!found)
            continue;
        show_entry(e, i);
        e->cursor = (size_t)(found - entry.data);
        return;
    }
}

static void begin_search(spry_line_editor *e)
{
    if (e->searching) {
        search_before(e, e->shown);
        return;
    }
    show_entry(e, spry_line_history_count(e->history));
    e->searching = true;
    spry_buffer_clear(&e->sought);
}

/* A key while searching. False: it ended the search and is used as always. */
static bool search_key(spry_line_editor *e, spry_key key)
{
    char bytes[4];
    size_t count = spry_line_history_count(e->history);
    switch (key) {
    case SPRY_KEY_CHARACTER:
        spry_buffer_append(&e->sought, bytes, spry_utf8_encode(bytes, e->keyboard.character));
        search_before(e, e->shown < count ? e->shown + 1 : count);
        return true;
    case SPRY_KEY_BACKSPACE:
        while (e->sought.size && (e->sought.data[--e->sought.size] & 0xC0) == 0x80)
            ;
        if (e->sought.data)
            e->sought.data[e->sought.size] = '\0';
        search_before(e, count);
        return true;
    case SPRY_KEY_SEARCH: begin_search(e); return true;
    case SPRY_KEY_REDRAW: return true;
    case SPRY_KEY_CANCEL:
        e->searching = false;
        show_entry(e, count);
        return true;
    default: e->searching = false; return false;
    }
}

/* ---- completion -------------------------------------------------------------------------------------------------- */

static size_t next_word(spry_view *words, spry_view *word)
{
    const char *end = memchr(words->data, '\n', words->size);
    word->data = words->data;
    word->size = end ? (size_t)(end - words->data) : 0;
    words->data += word->size + 1;
    words->size -= word->size + 1;
    return word->size;
}

/* Below the text, as many columns as fit. */
static void list_words(spry_line_editor *e, spry_view words)
{
    enum { MOST = 200 };
    size_t widest = 0, column = 0, n = 0, at = e->cursor;
    spry_view word;
    for (spry_view rest = words; rest.size && next_word(&rest, &word);)
        widest = word.size > widest ? word.size : widest;
    end_drawing(e);
    spry_buffer out;
    spry_buffer_init(&out, SCREEN_BYTES_MAX);
    while (words.size && next_word(&words, &word) && n++ < MOST) {
        bool fits = column && column + widest <= e->width;
        spry_buffer_text(&out, fits ? "" : "\r\n");
        column = (fits ? column : 0) + widest + INDENT;
        spry_terminal_defuse(&out, word, "");
        spry_buffer_format(&out, "%*s", column <= e->width ? (int)(widest + INDENT - word.size) : 0, "");
    }
    spry_buffer_text(&out, words.size ? "\r\n...\r\n" : "\r\n");
    send(e, &out);
    e->cursor = at;
}

static void complete(spry_line_editor *e)
{
    spry_buffer out;
    spry_view word, common = {0};
    size_t n = 0;
    if (!e->options.complete)
        return;
    spry_buffer_init(&out, SCREEN_BYTES_MAX);
    spry_view typed = {spry_buffer_view(&e->text).data, e->cursor};
    size_t begin = e->options.complete(e->options.user, &out, typed);
    for (spry_view rest = spry_buffer_view(&out); rest.size && next_word(&rest, &word); n++) {
        size_t same = 0;
        while (same < common.size && same < word.size && common.data[same] == word.data[same])
            same++;
        common = n ? (spry_view){common.data, same} : word;
    }
    while (n > 1 && common.size && spry_utf8_incomplete_tail(common.data, common.size))
        common.size--;
    if (n > 1 && common.size <= e->cursor - begin) {
        list_words(e, spry_buffer_view(&out));
    } else if (n) {
        remove_range(e, begin, e->cursor);
        e->cursor = begin;
        insert(e, common);
        if (n == 1 && !spry_view_ends(common, SPRY_VIEW("/")))
            insert(e, SPRY_VIEW(" "));
    }
    spry_buffer_deinit(&out);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static const spry_view quotes = {"\"\"\"", 3};

/* Whether the message has ended. A backslash at its end becomes a new line. */
static bool enter(spry_line_editor *e)
{
    spry_view text = spry_buffer_view(&e->text);
    if (spry_view_starts(text, quotes) && (text.size < 2 * quotes.size || !spry_view_ends(text, quotes))) {
        e->cursor = text.size;
        insert(e, SPRY_VIEW("\n"));
        return false;
    }
    if (!spry_view_ends(text, SPRY_VIEW("\\")))
        return true;
    e->cursor = text.size;
    remove_range(e, text.size - 1, text.size);
    insert(e, SPRY_VIEW("\n"));
    return false;
}

/* Keys that only move the cursor or change the text. */
static void edit(spry_line_editor *e, spry_key key)
{
    char bytes[4];
    switch (key) {
    case SPRY_KEY_CHARACTER: insert(e, (spry_view){bytes, spry_utf8_encode(bytes, e->keyboard.character)}); break;
    case SPRY_KEY_PASTE:
        if (e->keyboard.paste.failed)
            complain_long(e);
        else
            insert(e, spry_buffer_view(&e->keyboard.paste));
        break;
    case SPRY_KEY_NEWLINE: insert(e, SPRY_VIEW("\n")); break;
    case SPRY_KEY_TAB: complete(e); break;
    case SPRY_KEY_LEFT: e->cursor = before(e, e->cursor); break;
    case SPRY_KEY_RIGHT: e->cursor = after(e, e->cursor); break;
    case SPRY_KEY_UP: move_row(e, true); break;
    case SPRY_KEY_DOWN: move_row(e, false); break;
    case SPRY_KEY_PREVIOUS: move_in_history(e, true); break;
    case SPRY_KEY_NEXT: move_in_history(e, false); break;
    case SPRY_KEY_HOME: e->cursor = line_begin(e, e->cursor); break;
    case SPRY_KEY_END: e->cursor = line_end(e, e->cursor); break;
    case SPRY_KEY_WORD_LEFT: e->cursor = word_begin(e, e->cursor); break;
    case SPRY_KEY_WORD_RIGHT: e->cursor = word_end(e, e->cursor); break;
    case SPRY_KEY_BACKSPACE: remove_range(e, before(e, e->cursor), e->cursor); break;
    case SPRY_KEY_DELETE:
    case SPRY_KEY_END_OF_INPUT: remove_range(e, e->cursor, after(e, e->cursor)); break;
    case SPRY_KEY_CUT_WORD: cut_range(e, word_begin(e, e->cursor), e->cursor); break;
    case SPRY_KEY_CUT_NEXT_WORD: cut_range(e, e->cursor, word_end(e, e->cursor)); break;
    case SPRY_KEY_CUT_TO_BEGIN: cut_range(e, line_begin(e, e->cursor), e->cursor); break;
    case SPRY_KEY_CUT_TO_END: cut_range(e, e->cursor, line_end(e, e->cursor)); break;
    case SPRY_KEY_YANK: insert(e, spry_buffer_view(&e->cut)); break;
    case SPRY_KEY_SEARCH: begin_search(e); break;
    case SPRY_KEY_CLEAR:
        fputs("\033[H\033[2J", e->screen);
        e->cursor_row = e->cursor_column = 0;
        break;
    default: break;
    }
}

/* Edits until the message is sent or given up. */
static spry_line edit_message(spry_line_editor *e)
{
    for (;;) {
        if (!spry_keyboard_pending(&e->keyboard))
            draw(e);
        spry_key key = spry_keyboard_read(&e->keyboard);
        if (key == SPRY_KEY_INTERRUPT || key == SPRY_KEY_CLOSED) {
            e->searching = false;
            end_drawing(e);
            return key == SPRY_KEY_CLOSED ? SPRY_LINE_END : SPRY_LINE_INTERRUPTED;
        }
        if (e->searching && search_key(e, key))
            continue;
        if (key == SPRY_KEY_END_OF_INPUT && !e->text.size)
            return SPRY_LINE_END;
        if (key == SPRY_KEY_ENTER && enter(e))
            return SPRY_LINE_TEXT;
        edit(e, key);
    }
}

/* The terminal edits the line. */
static spry_line read_plain(spry_line_editor *e)
{
    spry_keyboard *keyboard = &e->keyboard;
    bool ended = false;
    do {
        fputs(e->text.size ? ". " : "> ", e->screen);
        fflush(e->screen);
        for (ended = false; !ended;) {
            spry_key key = spry_keyboard_read(keyboard);
            if (key == SPRY_KEY_INTERRUPT)
                return SPRY_LINE_INTERRUPTED;
            if (key == SPRY_KEY_CLOSED)
                return SPRY_LINE_END;
            ended = key == SPRY_KEY_ENTER;
            if (!ended)
                edit(e, key == SPRY_KEY_CHARACTER ? key : SPRY_KEY_NONE);
        }
    } while (!enter(e));
    return SPRY_LINE_TEXT;
}

/* The text between """, or the whole message, without newlines at its end. */
static spry_view message_of(const spry_line_editor *e)
{
    spry_view text = spry_buffer_view(&e->text);
    if (spry_view_starts(text, quotes) && text.size >= 2 * quotes.size) {
        text = (spry_view){text.data + quotes.size, text.size - 2 * quotes.size};
        if (spry_view_starts(text, SPRY_VIEW("\n")))
            text = (spry_view){text.data + 1, text.size - 1};
    }
    while (text.size && text.data[text.size - 1] == '\n')
        text.size--;
    return text;
}

void spry_line_editor_release(spry_line_editor *editor, bool release)
{
    spry_keyboard_release(&editor->keyboard, release);
}

spry_line spry_line_editor_ask(spry_line_editor *e, spry_buffer *text)
{
    spry_buffer_clear(text);
    set_text(e, (spry_view){"", 0});
    e->shown = spry_line_history_count(e->history);
    e->searching = false;
    e->cursor_row = e->cursor_column = 0;
    e->width = spry_terminal_width(e->screen);
    spry_line line = e->keyboard.plain ? read_plain(e) : edit_message(e);
    if (line == SPRY_LINE_INTERRUPTED)
        spry_interrupt_clear();
    if (line != SPRY_LINE_TEXT)
        return line;
    if (!e->keyboard.plain) {
        end_drawing(e);
        fputs("\n", e->screen);
        fflush(e->screen);
    }
    spry_view message = message_of(e);
    spry_buffer_append(text, message.data, message.size);
    return SPRY_LINE_TEXT;
}

spry_line spry_line_editor_read(spry_line_editor *e, spry_buffer *text)
{
    spry_error error;
    spry_line line = spry_line_editor_ask(e, text);
    if (line != SPRY_LINE_TEXT)
        return line;
    if (spry_line_history_add(e->history, spry_buffer_view(&e->text), &error) != SPRY_OK)
        spry_complain("the history is not saved: %s", error.message);
    return SPRY_LINE_TEXT;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

spry_status spry_line_editor_create(spry_line_editor **out, const spry_line_editor_options *options, spry_error *error)
{
    spry_line_editor *e = calloc(1, sizeof *e);
    if (!e || spry_line_history_create(&e->history, options->history_path, error) != SPRY_OK) {
        free(e);
        return spry_fail_memory(error, "the line editor", sizeof *e);
    }
    e->options = *options;
    e->screen = isatty(STDOUT_FILENO) ? stdout : stderr;
    spry_buffer_init(&e->text, TEXT_BYTES_MAX);
    spry_buffer_init(&e->cut, TEXT_BYTES_MAX);
    spry_buffer_init(&e->draft, TEXT_BYTES_MAX);
    spry_buffer_init(&e->sought, TEXT_BYTES_MAX);
    spry_keyboard_open(&e->keyboard, fileno(e->screen), !spry_environment_knows_escapes());
    *out = e;
    return SPRY_OK;
}

void spry_line_editor_destroy(spry_line_editor *e)
{
    if (!e)
        return;
    spry_keyboard_close(&e->keyboard);
    spry_line_history_destroy(e->history);
    spry_buffer_deinit(&e->text);
    spry_buffer_deinit(&e->cut);
    spry_buffer_deinit(&e->draft);
    spry_buffer_deinit(&e->sought);
    free(e);
}
