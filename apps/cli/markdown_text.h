/* Markdown on a terminal, as it is generated: headings, lists, quotes, code, tables, bold, italic. What a line is, is
 * known after its first characters, which are held back; so are tables, until they end, and the line of code that is
 * being written. Everything else appears at once, broken between words. Text that is no Markdown passes unchanged. */
#ifndef SPRY_APPS_MARKDOWN_TEXT_H
#define SPRY_APPS_MARKDOWN_TEXT_H

#include "cli/word_wrap.h"

/* Escape sequences; `end` ends all. */
typedef struct spry_markdown_styles {
    const char *bold, *italic, *code, *dim, *end;
} spry_markdown_styles;

typedef enum spry_markdown_block {
    SPRY_MARKDOWN_START, /* of a line: not known yet */
    SPRY_MARKDOWN_TEXT,
    SPRY_MARKDOWN_CODE,
    SPRY_MARKDOWN_ROW, /* of a table */
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

/* Appends what is held back; the answer is over. */
void spry_markdown_finish(spry_markdown *markdown, spry_buffer *out);

#endif
