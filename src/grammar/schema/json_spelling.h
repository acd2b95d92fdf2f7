/* How JSON texts may be written: the spellings of characters inside strings, and the blanks between tokens.
 *
 * Characters are spelled as serialisers spell them: printable ASCII as itself, '"' and '\' behind a backslash, '/'
 * either way, control characters as short escapes or \u00XX, all others as themselves or as \uXXXX (pairs above
 * U+FFFF). Within these spellings a set of texts and its complement stay exact. */
#ifndef SPRY_GRAMMAR_JSON_SPELLING_H
#define SPRY_GRAMMAR_JSON_SPELLING_H

#include "grammar/ir/grammar_ir.h"

/* One character of the ranges (any order), without quotes. */
spry_ir_node spry_json_spell_class(spry_ir *ir, const spry_code_range *ranges, size_t count);
/* Exactly this valid UTF-8 text, without quotes. */
spry_ir_node spry_json_spell_text(spry_ir *ir, spry_view text);
/* What a node of literals, classes, sequences, choices and repeats matches, spelled. */
spry_ir_node spry_json_respell(spry_ir *ir, spry_ir_node node);

/* Any one character in the spellings above; with `escapes` also printable ASCII as \uXXXX. */
spry_ir_node spry_json_any_character(spry_ir *ir, bool escapes);

/* Blanks where a text may be broken: nothing, one space, or one newline and up to 40 spaces or tabs. */
spry_ir_node spry_json_gap(spry_ir *ir);

#endif
