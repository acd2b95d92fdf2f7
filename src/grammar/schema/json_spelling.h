/* The spellings of JSON texts: characters inside strings, and whitespace between JSON tokens.
 *
 * Characters are spelled as serialisers do: printable ASCII as itself, '"' and '\' with a backslash, '/' with or
 * without, control characters as short escapes or \u00XX, all others as themselves or as \uXXXX (surrogate pairs above
 * U+FFFF). Within these spellings a set of texts and its complement are exact. */
#ifndef SPRY_GRAMMAR_JSON_SPELLING_H
#define SPRY_GRAMMAR_JSON_SPELLING_H

#include "grammar/ir/grammar_ir.h"

/* Exactly this valid UTF-8 text, without quotes. */
spry_ir_node spry_json_spell_text(spry_ir *ir, spry_view text);
/* The spellings of a node of literals, classes, sequences, choices and repeats. */
spry_ir_node spry_json_respell(spry_ir *ir, spry_ir_node node);

/* Any character in the spellings above; with `escapes` also printable ASCII as \uXXXX. */
spry_ir_node spry_json_any_character(spry_ir *ir, bool escapes);

/* Exactly this text in its usual spelling: only characters that must be escaped are. */
spry_ir_node spry_json_spell_usual(spry_ir *ir, spry_view text);
/* The inside of a string as programs write it: characters without needless escapes, and single blanks, except after a
 * line end, where up to SPRY_JSON_INDENT_MAX blanks indent a line. */
spry_ir_node spry_json_prose(spry_ir *ir);

enum { SPRY_JSON_INDENT_MAX = 24 };

/* The regular expression of a string format, for the whole text, and its maximum number of characters; NULL: the format
 * is unknown or not regular (schema_string.c). */
const char *spry_json_format(const char *name, uint32_t *max);

/* One newline and up to 40 spaces. */
spry_ir_node spry_json_line(spry_ir *ir);

/* Whitespace between JSON tokens: nothing, one space, or one newline and up to 40 spaces or tabs. */
spry_ir_node spry_json_gap(spry_ir *ir);

#endif
