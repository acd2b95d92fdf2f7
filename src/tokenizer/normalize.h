/* Changes made to text before it is split: a list of steps, as tokenizer.json's normalizers, SentencePiece's own rules
 * and the text-changing parts of pre-tokenizers ask for. */
#ifndef SPRY_TOKENIZER_NORMALIZE_H
#define SPRY_TOKENIZER_NORMALIZE_H

#include "tokenizer/unicode.h"

typedef enum spry_change {
    SPRY_CHANGE_FORM,    /* to a normal form */
    SPRY_CHANGE_PREPEND, /* `to` before text that is not empty */
    SPRY_CHANGE_PREFIX,  /* the same unless the text starts with `to` already */
    SPRY_CHANGE_REPLACE, /* every `from` by `to` */
    SPRY_CHANGE_STRIP,   /* white space off the ends */
    SPRY_CHANGE_SQUEEZE, /* spaces off the ends, several spaces to one (SentencePiece's remove_extra_whitespaces) */
} spry_change;

typedef struct spry_change_step {
    spry_change change;
    spry_normal_form form;
    spry_view from, to;
    bool left, right; /* STRIP: which ends */
    bool only_first;  /* PREFIX: only where the whole text begins */
} spry_change_step;

enum { SPRY_CHANGE_STEPS_MAX = 16 };

typedef struct spry_changes {
    spry_change_step steps[SPRY_CHANGE_STEPS_MAX];
    size_t count;
} spry_changes;

/* Adds a step; false when there are too many. */
bool spry_changes_add(spry_changes *changes, spry_change_step step);

/* Applies the steps. The result is `text` itself or lies in one of the two buffers, which the caller owns and which
 * hold nothing else. `first` tells whether the whole text begins here. False when memory is short. */
bool spry_changes_apply(spry_view *result, const spry_changes *changes, const spry_unicode *unicode,
                        spry_buffer scratch[2], spry_view text, bool first);

#endif
