/* Streamed text on a terminal, broken between words instead of anywhere. The word that is being written is held back
 * until it is known whether it fits. Files and pipes get the text as it is. */
#ifndef SPRY_CLI_MARKDOWN_TEXT_H
#define SPRY_CLI_MARKDOWN_TEXT_H

#include <stdbool.h>

#include "base/buffer.h"
#include "base/view.h"

typedef struct spry_word_wrap {
    size_t width;          /* columns of the terminal; 0: there is none */
    size_t hang;           /* columns by which lines after a break are indented */
    size_t column, spaces; /* column of the cursor; spaces not written yet */
    size_t word_columns;   /* columns that `word` takes */
    spry_buffer word;      /* the current word, not written yet */
} spry_word_wrap;

/* The cursor must be at the beginning of a line. `width` 0: text is not changed. */
void spry_word_wrap_init(spry_word_wrap *wrap, size_t width);
void spry_word_wrap_deinit(spry_word_wrap *wrap);

/* Appends valid UTF-8, broken, to `out`. */
void spry_word_wrap_add(spry_word_wrap *wrap, spry_buffer *out, spry_view text);

/* Appends the text that is held back. */
void spry_word_wrap_flush(spry_word_wrap *wrap, spry_buffer *out);

/* ---- Markdown ---------------------------------------------------------------------------------------------------- */

/* Markdown on a terminal, as it is generated: headings, lists, quotes, code, tables, bold, italic. The kind
 * of a line is known after its first characters, which are held back until then. Tables are held back until they end,
 * lines of code until their newline. Other text appears at once, broken between words. Text without Markdown is not
 * changed. */

/* Escape sequences; `end` ends all. */
typedef struct spry_markdown_styles {
    const char *bold, *italic, *code, *dim, *end;
} spry_markdown_styles;

typedef enum spry_markdown_block {
    SPRY_MARKDOWN_START, /* at the start of a line, whose kind is not known yet */
    SPRY_MARKDOWN_TEXT,
    SPRY_MARKDOWN_CODE,
    SPRY_MARKDOWN_ROW, /* in a row of a table */
} spry_markdown_block;

typedef struct spry_markdown {
    spry_markdown_styles styles;
    spry_word_wrap wrap;
    spry_markdown_block block;
    spry_buffer line;                        /* held back: the beginning of a line, a line of code, a row */
    spry_buffer table;                       /* rows, each with its newline */
    bool heading, quote, bold, italic, code; /* in effect */
    bool in_code;                            /* between fences */
    size_t stars;                            /* asterisks that were not interpreted yet */
    char before;                             /* the last byte of text in this line; 0: none */
} spry_markdown;

void spry_markdown_init(spry_markdown *markdown, const spry_markdown_styles *styles, size_t width);
void spry_markdown_deinit(spry_markdown *markdown);

/* Appends what valid UTF-8 text without control characters, except newlines and tabs, looks like. */
void spry_markdown_add(spry_markdown *markdown, spry_buffer *out, spry_view text);

/* Appends the text that is held back, at the end of the answer. */
void spry_markdown_finish(spry_markdown *markdown, spry_buffer *out);

#endif
