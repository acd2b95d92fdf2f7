/* Answers as they are generated: on a terminal broken between words and, where it has styles, as Markdown; files and
 * pipes get the text as it is. */
#ifndef SPRY_APPS_SHOWN_TEXT_H
#define SPRY_APPS_SHOWN_TEXT_H

#include <stdint.h>

#include "cli/markdown_text.h"

typedef struct spry_shown_text {
    bool terminal, styled;
    spry_word_wrap wrap;    /* of a terminal without styles */
    spry_markdown markdown; /* of one with styles */
    bool rated;             /* shows its speed in the line below the text */
    bool drawn;             /* that line is there */
    size_t pieces;          /* written so far */
    uint64_t first_ns, drawn_ns;
} spry_shown_text;

/* The cursor stands at the beginning of a line of standard output. `plain`: the text as it is, only broken. `rated`: a
 * terminal with styles shows the pieces a second in the line below the text while it is written. */
void spry_shown_text_init(spry_shown_text *shown, bool plain, bool rated);

/* Writes valid UTF-8, a piece for each token; false once any write has failed. */
bool spry_shown_text_write(spry_shown_text *shown, spry_view text);

/* Writes what is held back, removes the speed and frees. */
bool spry_shown_text_finish(spry_shown_text *shown);

#endif
