/* How models write tool calls. A style is data; templates are recognised by texts that they contain.
 *
 * Calls are written in a section or without one:
 *
 *   section_open { open HEADER arguments_open ARGUMENTS close } section_close
 *
 * Whitespace between these is ignored, and a model may leave out the marks of the section. Absent marks are NULL. */
#ifndef SPRY_TEMPLATE_TOOL_STYLES_H
#define SPRY_TEMPLATE_TOOL_STYLES_H

#include <jansson.h>

#include "base/error.h"
#include "base/view.h"

typedef enum spry_call_syntax {
    SPRY_CALL_JSON,   /* {"name": NAME, "arguments": {...}}: one, a list, or several one after the other */
    SPRY_CALL_NAMED,  /* NAME in the header, then a JSON object */
    SPRY_CALL_TAGGED, /* NAME in the header, then parameters between marks */
    SPRY_CALL_TREE,   /* NAME in the header, then nested elements named like the parameters */
    SPRY_CALL_PYTHON, /* NAME(key=value, ...), one or a list */
    SPRY_CALL_BRACED, /* NAME in the header, then key:value, ..., strings between quote marks */
} spry_call_syntax;

/* Marks of a parameter: key_open KEY key_close value_open VALUE value_close. */
typedef struct spry_parameter_marks {
    const char *key_open, *key_close, *value_open, *value_close;
} spry_parameter_marks;

typedef struct spry_tool_style {
    const char *name;
    const char *in_template[2]; /* texts that only templates of this style contain */
    spry_call_syntax syntax;
    const char *section_open, *section_close;
    const char *open, *close;
    const char *arguments_open;  /* ends the header; NULL: the header ends where arguments or `close` begin */
    const char *arguments_close; /* may be between the arguments and `close` */
    const char *name_mark;       /* the name begins after it; text before it is not a part of the name */
    const char *id_mark;         /* the id begins after it, and the name ends there; NULL: none */
    const char *name_prefix;     /* dropped from the name; NULL: none */
    const char *name_tails[2];   /* one of them follows the name, if any is given */
    spry_parameter_marks parameter;
    const char *string_attribute; /* TAGGED: follows the key if the value is a string */
    const char *other_attribute;  /* follows the key if the value is not a string; NULL while string_attribute is set:
                                   * the value's type follows */
    const char *quote;            /* BRACED: around strings; TREE: before every tag */
    const char *name_key;         /* JSON: the keys that the model uses; NULL: "name", "arguments" */
    const char *arguments_key;
    bool keyed;      /* JSON: the name is the key of the arguments */
    bool list;       /* JSON: calls are written as a list */
    bool bare;       /* an answer may begin with a JSON call without marks */
    bool lines;      /* TAGGED: a line break at either end of a value is a part of the marks */
    bool numbered;   /* the name ends with ":" and a number, and the header is the call's id */
    bool id_first;   /* the text before name_mark is the id */
    bool prompted;   /* the prompt ends with `open` */
    bool close_ends; /* `close` is a token that ends the answer */
} spry_tool_style;

/* The style of a template, by its source; a style for JSON in any of the common forms if there is none. */
const spry_tool_style *spry_tool_style_find(spry_view source);
/* The style of a name; NULL: there is none. */
const spry_tool_style *spry_tool_style_named(const char *name);
/* Style number `index`; NULL after the last one. */
const spry_tool_style *spry_tool_style_at(size_t index);

/* How models write thoughts, and which marks around messages are not content. Recognised like tool styles. */

enum { SPRY_THOUGHT_HIDDEN = 9 };

typedef struct spry_thought_style {
    const char *in_template;
    const char *open, *close;
    bool anywhere; /* thoughts may also follow content; otherwise they come first */
    /* Marks that are dropped from content; '*' matches a word. NULL after the last one. */
    const char *hidden[SPRY_THOUGHT_HIDDEN];
} spry_thought_style;

/* The style of a template, by its source; <think> if there is none. */
const spry_thought_style *spry_thought_style_find(spry_view source);
const spry_thought_style *spry_thought_style_default(void);

/* Marks that end a model's turn. The engine stops at them when they are tokens; a model that spells them out, or a
 * file that does not say which tokens end a turn, leaves them at the end of the answer. */
enum { SPRY_TURN_ENDS = 8 };
/* Writes the marks that a template's source contains and returns their number. `eos`: the model's own mark, or NULL. */
size_t spry_turn_ends_find(const char *ends[SPRY_TURN_ENDS], spry_view source, const char *eos);

/* Which tools a model may or must call. */

typedef struct spry_tool_choice {
    json_t *functions; /* the functions that may be called, a list; NULL: none */
    bool required;     /* the answer must be a call */
} spry_tool_choice;

/* Reads OpenAI's `tools` and `tool_choice`: NULL, "auto", "none", "required", an object that names a function, or one
 * of type "allowed_tools". Fails for tools without a name, two tools of one name, and a choice that names another. */
spry_status spry_tool_choice_read(spry_tool_choice *out, const json_t *tools, const json_t *choice, spry_error *error);
void spry_tool_choice_deinit(spry_tool_choice *choice);

#endif
