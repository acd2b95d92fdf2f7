/* Named character sets of regular expressions. */
#ifndef SPRY_GRAMMAR_REGEX_CLASS_H
#define SPRY_GRAMMAR_REGEX_CLASS_H

#include "base/view.h"
#include "grammar/ir/grammar_ir.h"

/* A growing list of ranges; `failed` when memory was short. */
typedef struct spry_code_set {
    spry_code_range *ranges;
    size_t count, room;
    bool failed;
} spry_code_set;

void spry_code_set_add(spry_code_set *set, uint32_t first, uint32_t last);

/* Adds the set of \d \w \s (upper case: its complement); false for other letters. */
bool spry_regex_add_letter(spry_code_set *set, int letter);

/* Adds the characters of a Unicode property: a general category by its short or long name ("Lu", "Letter",
 * "General_Category=Lu"), "Any" or "ASCII". False for unknown names. */
bool spry_regex_add_property(spry_code_set *set, spry_view name, bool negated);

#endif
