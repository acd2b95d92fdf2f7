/* Streamed text on a terminal, broken between words instead of anywhere. The word that is being written is held back
 * until it is known whether it fits. Files and pipes get the text as it is. */
#ifndef SPRY_APPS_WORD_WRAP_H
#define SPRY_APPS_WORD_WRAP_H

#include <stdbool.h>

#include "base/buffer.h"
#include "base/view.h"

typedef struct spry_word_wrap {
    size_t width;          /* of standard output; 0: it is no terminal */
    size_t column, spaces; /* where the cursor stands; spaces not written yet */
    size_t word_columns;   /* of `word` */
    spry_buffer word;      /* not written yet */
} spry_word_wrap;

/* The cursor stands at the beginning of a line. */
void spry_word_wrap_init(spry_word_wrap *wrap);

/* Writes valid UTF-8 through spry_out_answer; false once any write has failed. */
bool spry_word_wrap_write(spry_word_wrap *wrap, spry_view text);

/* Writes what is held back and frees. */
bool spry_word_wrap_finish(spry_word_wrap *wrap);

#endif
