/* Answers as they are generated: on a terminal broken between words and, where it has styles, as Markdown; files and
 * pipes get the text as it is. */
#ifndef SPRY_APPS_SHOWN_TEXT_H
#define SPRY_APPS_SHOWN_TEXT_H

#include "cli/markdown_text.h"

typedef struct spry_shown_text {
    bool terminal, styled;
    spry_word_wrap wrap;    /* of a terminal without styles */
    spry_markdown markdown; /* of one with styles */
} spry_shown_text;

/* The cursor stands at the beginning of a line of standard output. `plain`: the text as it is, only broken. */
void spry_shown_text_init(spry_shown_text *shown, bool plain);

/* Writes valid UTF-8; false once any write has failed. */
bool spry_shown_text_write(spry_shown_text *shown, spry_view text);

/* Writes what is held back and frees. */
bool spry_shown_text_finish(spry_shown_text *shown);

#endif
