/* Streamed text on a terminal, broken between words instead of anywhere. The word that is being written is held back
 * until it is known whether it fits. Files and pipes get the text as it is. */
#ifndef SPRY_APPS_WORD_WRAP_H
#define SPRY_APPS_WORD_WRAP_H

#include <stdbool.h>

#include "base/buffer.h"
#include "base/view.h"

typedef struct spry_word_wrap {
    size_t width;          /* of the terminal; 0: there is none */
    size_t hang;           /* columns by which lines after a break are indented */
    size_t column, spaces; /* where the cursor stands; spaces not written yet */
    size_t word_columns;   /* of `word` */
    spry_buffer word;      /* not written yet */
} spry_word_wrap;

/* The cursor stands at the beginning of a line. `width` 0: text passes as it is. */
void spry_word_wrap_init(spry_word_wrap *wrap, size_t width);
void spry_word_wrap_deinit(spry_word_wrap *wrap);

/* Appends valid UTF-8, broken, to `out`. */
void spry_word_wrap_add(spry_word_wrap *wrap, spry_buffer *out, spry_view text);

/* An escape sequence, which takes no room, where the text stands now. */
void spry_word_wrap_style(spry_word_wrap *wrap, const char *sequence);

/* Appends what is held back. */
void spry_word_wrap_flush(spry_word_wrap *wrap, spry_buffer *out);

#endif
