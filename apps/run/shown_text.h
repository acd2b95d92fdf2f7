/* An answer on standard output as it is generated. A terminal shows what is done before the first word, and Markdown
 * broken between words; files and pipes get the text as it is. */
#ifndef SPRY_RUN_SHOWN_TEXT_H
#define SPRY_RUN_SHOWN_TEXT_H

#include <stdint.h>

#include "cli/markdown_text.h"
#include "cli/terminal.h"

typedef struct spry_shown_options {
    bool streamed; /* false: only what is done is shown, no text */
    bool plain;    /* Markdown is shown as it is written */
    bool rated;    /* show the speed below the text, in pieces per second */
    bool thoughts; /* show thoughts, dimmed; otherwise one line says how long they took */
} spry_shown_options;

typedef struct spry_shown_text {
    spry_shown_options how;
    spry_progress_line progress;
    bool terminal, styled;
    bool thinking, thought; /* now; before */
    uint64_t thinking_ns;   /* when the thought began */
    spry_word_wrap wrap;    /* for a terminal without styles, and for thoughts */
    spry_markdown markdown; /* for a terminal with styles */
    bool drawn;             /* the speed is below the text */
    size_t pieces;          /* written so far */
    uint64_t first_ns, drawn_ns;
} spry_shown_text;

/* The cursor must be at the beginning of a line of standard output. */
void spry_shown_text_init(spry_shown_text *shown, const spry_shown_options *how);

/* How much of the prompt is computed. */
void spry_shown_text_prompt(spry_shown_text *shown, size_t done, size_t total);

/* The next piece of a thought or of the answer, valid UTF-8; false once any write has failed. */
bool spry_shown_text_think(spry_shown_text *shown, spry_view text);
bool spry_shown_text_add(spry_shown_text *shown, spry_view text);

/* Writes the text that is held back and removes everything else. */
bool spry_shown_text_finish(spry_shown_text *shown);

#endif
