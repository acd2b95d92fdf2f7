/* Builds strings. Appended strings keep their marks; finished strings live in the run. */
#ifndef SPRY_TEMPLATE_JINJA_BUILDER_H
#define SPRY_TEMPLATE_JINJA_BUILDER_H

#include "template/jinja_value.h"

typedef struct spry_jinja_builder {
    spry_jinja_run *run;
    char *data;
    size_t size, capacity;
    spry_text_range *marks;
    size_t n_marks, marks_capacity;
} spry_jinja_builder;

/* Needs no deinit: memory belongs to the run. Appending has no effect once the run has failed. */
void spry_jinja_builder_init(spry_jinja_builder *builder, spry_jinja_run *run);

void spry_jinja_append(spry_jinja_builder *builder, spry_view text, bool marked);
void spry_jinja_append_text(spry_jinja_builder *builder, const char *zero_terminated); /* not marked */
/* Bytes [begin, end) of a string. */
void spry_jinja_append_part(spry_jinja_builder *builder, const spry_jinja_string *string, size_t begin, size_t end);
void spry_jinja_append_string(spry_jinja_builder *builder, const spry_jinja_string *string);
/* Appends a string with & < > " ' escaped for HTML. */
void spry_jinja_append_escaped(spry_jinja_builder *builder, const spry_jinja_string *string);
/* Appends the value as str() prints it; undefined is empty. */
void spry_jinja_append_value(spry_jinja_builder *builder, spry_jinja_value v);
/* Appends the value as repr() prints it. */
void spry_jinja_append_repr(spry_jinja_builder *builder, spry_jinja_value v);

spry_jinja_value spry_jinja_builder_string(spry_jinja_builder *builder);

/* ---- strings ----------------------------------------------------------------------------------------------------- */

/* A string unchanged; any other value as str() prints it. */
spry_jinja_value spry_jinja_to_string(spry_jinja_run *run, spry_jinja_value v);

spry_jinja_value spry_jinja_substring(spry_jinja_run *run, spry_jinja_value string, size_t begin, size_t end);
bool spry_jinja_is_marked(const spry_jinja_string *string, size_t at);

/* Length of the character at `at`: 1 for invalid UTF-8, with *character set to U+FFFD. */
size_t spry_jinja_character(uint32_t *character, spry_view text, size_t at);
size_t spry_jinja_count_characters(spry_view text);
bool spry_jinja_is_space(uint32_t character); /* as str.isspace() */

/* The index of `part` in text[from..]; text.size when it is not found. An empty part is found at `from`. */
size_t spry_jinja_find(spry_jinja_run *run, spry_view text, spry_view part, size_t from);

enum { SPRY_JINJA_LEFT = 1, SPRY_JINJA_RIGHT = 2 };
/* Removes whitespace, or the characters of `set` if not NULL, at the ends. */
spry_jinja_value spry_jinja_strip(spry_jinja_run *run, spry_jinja_value string, const spry_view *set, int sides);

spry_jinja_value spry_jinja_replace(spry_jinja_run *run, spry_jinja_value string, spry_jinja_value old,
                                    spry_jinja_value with, int64_t limit);

typedef enum spry_jinja_case {
    SPRY_JINJA_UPPER,
    SPRY_JINJA_LOWER,
    SPRY_JINJA_CAPITALIZE, /* the first letter upper case, the others lower case */
    SPRY_JINJA_TITLE,      /* every word capitalised: letters after a non-letter */
    SPRY_JINJA_WORDS,      /* words after a space, hyphen or bracket capitalised: the filter "title" */
} spry_jinja_case;
spry_jinja_value spry_jinja_change_case(spry_jinja_run *run, spry_jinja_value string, spry_jinja_case how);

#endif
