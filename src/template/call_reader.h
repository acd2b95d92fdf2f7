/* Reads tool calls out of the text of an answer, as far as it has arrived, and reports names and arguments as soon as
 * they are certain. */
#ifndef SPRY_TEMPLATE_CALL_READER_H
#define SPRY_TEMPLATE_CALL_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "template/arguments.h"
#include "template/tool_styles.h"

/* Validates JSON byte by byte as it arrives, so that a call can be passed on before it is complete. */

enum { SPRY_JSON_WALK_DEPTH = 512 };

typedef enum spry_json_place {
    SPRY_JSON_VALUE,       /* a value must come; a zeroed struct starts here */
    SPRY_JSON_FIRST_VALUE, /* a value, or the end of an empty array */
    SPRY_JSON_FIRST_KEY,   /* a key, or the end of an empty object */
    SPRY_JSON_KEY,         /* a key must come */
    SPRY_JSON_COLON,       /* after a key */
    SPRY_JSON_AFTER,       /* after a value: a comma or the end of its container */
    SPRY_JSON_IN_KEY,      /* inside the string of a key */
    SPRY_JSON_IN_STRING,   /* inside a string */
    SPRY_JSON_IN_NUMBER,
    SPRY_JSON_IN_WORD, /* true, false, null */
} spry_json_place;

/* Starts zeroed. */
typedef struct spry_json_walk {
    spry_json_place place;
    uint32_t depth;
    uint8_t part;     /* state inside a number, a word or an escape */
    uint8_t escape;   /* 0: none; 1: after a backslash; 2 to 5: hexadecimal digits left, plus 1 */
    const char *word; /* rest of a word */
    uint8_t is_array[SPRY_JSON_WALK_DEPTH / 8];
} spry_json_walk;

/* Processes one byte; false: the text is not JSON. The value is complete when the depth is 0 and the place is AFTER;
 * for a number at depth 0 that never happens. */
bool spry_json_walk_byte(spry_json_walk *walk, char byte);

static inline bool spry_json_walk_done(const spry_json_walk *walk)
{
    return walk->depth == 0 && walk->place == SPRY_JSON_AFTER;
}

typedef enum spry_call_state {
    SPRY_CALL_MORE,  /* incomplete: more text is needed */
    SPRY_CALL_WRONG, /* not a call, or no longer one */
    SPRY_CALL_WHOLE, /* complete */
    SPRY_CALL_ON,    /* used inside the reader: continue with the next stage */
} spry_call_state;

typedef enum spry_call_stage {
    SPRY_CALL_ENTER,  /* after the mark of a section */
    SPRY_CALL_HEADER, /* after `open` */
    SPRY_CALL_ARGUMENTS,
    SPRY_CALL_CLOSE,
} spry_call_stage;

/* Position inside a call that is JSON. Offsets are into the text of the call. */
typedef struct spry_json_call {
    spry_json_walk walk;
    uint32_t list_depth;  /* depth at which objects are calls */
    uint32_t call_depth;  /* depth of the call's members; 0: not inside a call */
    uint8_t field;        /* the member to which the current value belongs */
    size_t token;         /* where the current key or value begins */
    spry_text_range held; /* arguments that came before the name, so they could not be reported yet */
    bool has_arguments;   /* arguments have been read completely */
    bool streams;         /* inside arguments that are being reported as they come */
    bool first_key_seen;
    size_t sent; /* arguments up to here have been reported */
    size_t n_calls;
} spry_json_call;

typedef struct spry_call_reader {
    /* set by the caller */
    const spry_tool_style *style;
    const json_t *tools;                                        /* the declared tools; NULL: unknown */
    void (*on_begin)(void *user, spry_view name, spry_view id); /* id is empty if the model gave none */
    void (*on_arguments)(void *user, spry_view text);
    void (*on_end)(void *user);
    void *user;

    /* progress */
    spry_call_stage stage;
    spry_call_syntax syntax;
    bool marked;          /* a mark opened the call */
    bool begun;           /* the beginning of a call has been reported, but not its end */
    size_t at;            /* number of bytes of the text that have been read */
    size_t done;          /* number of bytes of complete calls */
    spry_buffer name, id; /* name and id of the current call */
    const json_t *function;
    bool named;
    size_t n_arguments;
    bool in_list, expects_name; /* for SPRY_CALL_PYTHON */
    size_t search;              /* the end of the value is not before this offset */
    spry_literal_scan scan;
    spry_json_call json;
} spry_call_reader;

void spry_call_reader_init(spry_call_reader *reader, const spry_tool_style *style, const json_t *tools);
void spry_call_reader_deinit(spry_call_reader *reader);

/* Starts reading a call: the first `mark` bytes of the text are its opening mark, or that of its section. */
void spry_call_reader_start(spry_call_reader *reader, size_t mark, bool section);

/* Reads on; `text` is everything from the start of the call. `final`: no more text follows. */
spry_call_state spry_call_read(spry_call_reader *reader, spry_view text, bool final);

/* ---- functions for the syntaxes ---------------------------------------------------------------------------------- */

/* Read on from the reader's current stage; `text` is as above. */
spry_call_state spry_call_read_json(spry_call_reader *reader, spry_view text, bool final);
spry_call_state spry_call_read_object(spry_call_reader *reader, spry_view text, bool final); /* NAMED */
spry_call_state spry_call_read_tagged(spry_call_reader *reader, spry_view text, bool final);
spry_call_state spry_call_read_tree(spry_call_reader *reader, spry_view text, bool final);
spry_call_state spry_call_read_python(spry_call_reader *reader, spry_view text, bool final);
spry_call_state spry_call_read_braced(spry_call_reader *reader, spry_view text, bool final);

/* Reports the beginning of the call; false: this cannot be a call. */
bool spry_call_begin(spry_call_reader *reader);
/* Reports the key and the value `json` of an argument, after "{" or ", "; before the first argument it also reports the
 * beginning of the call. */
bool spry_call_argument(spry_call_reader *reader, spry_view key, spry_view json);
/* Reports the end of a call whose arguments were reported one by one. */
bool spry_call_end(spry_call_reader *reader);

typedef enum spry_mark_match { SPRY_MARK_NO, SPRY_MARK_PERHAPS, SPRY_MARK_YES } spry_mark_match;

/* Whether a mark is at `at`; PERHAPS: the text ends inside a possible mark. NULL is a mark that never matches; '*' in a
 * mark matches a word. *end becomes the offset after the mark. */
spry_mark_match spry_mark_at(size_t *end, spry_view text, size_t at, const char *mark, bool final);
/* The offset of the first mark from `at` on; text.size: there is none. */
size_t spry_mark_find(spry_view text, size_t at, const char *mark);
size_t spry_space_skip(spry_view text, size_t at);

#endif
