/* The values of templates: a subset of Python's. Values are small and passed by value; the data they point to lives in
 * the run.
 *
 * A string records which of its bytes are marked: those that come from the conversation. Every function that builds
 * strings from strings uses a builder, which preserves the marks, so the rendered text has them too. */
#ifndef SPRY_TEMPLATE_JINJA_VALUE_H
#define SPRY_TEMPLATE_JINJA_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/view.h"

/* One rendering: its memory, its limits, and its first error. After an error, all operations do nothing and return
 * undefined values, and the caller of the rendering checks the status at the end. So expressions are evaluated without
 * a check after every step.
 *
 * Limits bound every rendering: `steps_left` counts evaluated nodes and processed bytes, `memory_left` all allocations,
 * `depth` the nesting of evaluation. Nothing is freed before the end. */

struct spry_jinja_builder;
struct spry_jinja_scope;

enum {
    SPRY_JINJA_MAX_STEPS = 20 * 1000 * 1000,
    SPRY_JINJA_MAX_DEPTH = 400,
    SPRY_JINJA_DECODED = 64,           /* decoding and examining a byte of UTF-8 costs as much as copying 64 bytes */
    SPRY_JINJA_SEARCHED = 16,          /* and searching it for a text at worst as much as copying 16 */
    SPRY_JINJA_BASE_MEMORY = 64 << 20, /* plus SPRY_JINJA_MEMORY_FACTOR for every byte of the conversation */
    SPRY_JINJA_MEMORY_FACTOR = 32,
};

typedef struct spry_jinja_run {
    spry_arena arena;
    size_t memory_left;
    size_t max_text; /* maximum length of a string in bytes */
    uint64_t steps_left;
    uint32_t depth;
    uint32_t line; /* current template line, for messages */
    spry_status status;
    spry_error *error;              /* may be NULL */
    int64_t now;                    /* for strftime_now: seconds since 1970, local time */
    struct spry_jinja_builder *out; /* output of statements */
    struct spry_jinja_scope *scope; /* current scope */
    bool refused;                   /* the template itself raised the error */
    bool parts_used, parts_printed; /* a list of content parts was iterated, or printed as a list */
} spry_jinja_run;

void spry_jinja_run_init(spry_jinja_run *run, size_t max_text, size_t input_bytes, spry_error *error);
void spry_jinja_run_deinit(spry_jinja_run *run);

/* Zeroed memory that lives as long as the run; when none is left, the run fails and NULL is returned. */
void *spry_jinja_alloc(spry_jinja_run *run, size_t count, size_t size);

/* Counts a step that processes this many bytes. False once the run has failed. */
bool spry_jinja_spend(spry_jinja_run *run, size_t bytes);

/* Increments the depth; when that is too deep, the run fails and false is returned. The caller undoes each success by
 * `run->depth--`. */
bool spry_jinja_enter(spry_jinja_run *run);

/* Records the first failure: "line 12: message". */
void spry_jinja_fail(spry_jinja_run *run, const char *format, ...) SPRY_PRINTF(2, 3);

typedef enum spry_jinja_kind {
    SPRY_JINJA_UNDEFINED,
    SPRY_JINJA_NONE,
    SPRY_JINJA_BOOL,
    SPRY_JINJA_INT,
    SPRY_JINJA_FLOAT,
    SPRY_JINJA_STRING,
    SPRY_JINJA_LIST,
    SPRY_JINJA_TUPLE, /* a list printed with parentheses */
    SPRY_JINJA_DICT,
    SPRY_JINJA_NAMESPACE, /* a dict whose items are assignable attributes */
    SPRY_JINJA_LOOP,
    SPRY_JINJA_CALLABLE, /* macro, method or function */
} spry_jinja_kind;

typedef struct spry_jinja_string {
    const char *data;
    size_t size;
    const spry_text_range *marks; /* ascending, disjoint */
    size_t n_marks;
    spry_text_range whole; /* used by `marks` when the whole string is marked */
    bool escaped;          /* safe for HTML: concatenation with it escapes other strings */
} spry_jinja_string;

typedef struct spry_jinja_value {
    spry_jinja_kind kind;
    union {
        const spry_view *name; /* name of an undefined value, for messages; may be NULL */
        bool boolean;
        int64_t integer;
        double real;
        const spry_jinja_string *string;
        struct spry_jinja_list *list;
        struct spry_jinja_dict *dict;
        const struct spry_jinja_loop *loop;
        const struct spry_jinja_callable *callable;
    };
} spry_jinja_value;

typedef struct spry_jinja_list {
    spry_jinja_value *items;
    size_t count, capacity;
    bool lazy;  /* a generator in Python: always true, without length or index */
    bool parts; /* the list has the parts of a message's content */
} spry_jinja_list;

typedef struct spry_jinja_entry {
    spry_jinja_value key, value;
} spry_jinja_entry;

typedef struct spry_jinja_dict {
    spry_jinja_entry *entries; /* in insertion order */
    size_t count, capacity;
} spry_jinja_dict;

typedef struct spry_jinja_loop {
    const spry_jinja_list *items;
    size_t index;
    spry_jinja_value changed; /* last value of loop.changed */
} spry_jinja_loop;

typedef struct spry_jinja_args {
    spry_jinja_value *items;
    size_t count;
    const spry_jinja_dict *named; /* never NULL */
} spry_jinja_args;

/* One call of a filter, test, method, global function or macro. */
typedef struct spry_jinja_frame {
    spry_jinja_run *run;
    spry_jinja_value self; /* the value before the filter, test or method */
    const spry_jinja_args *args;
    const char *name;
    int how;                                  /* distinguishes names that share this implementation */
    const struct spry_jinja_callable *callee; /* NULL for filters and tests */
} spry_jinja_frame;

typedef spry_jinja_value spry_jinja_builtin(const spry_jinja_frame *frame);

typedef struct spry_jinja_callable {
    const char *name;
    spry_jinja_builtin *call;
    int how;
    spry_jinja_value self;               /* for a method */
    const struct spry_jinja_node *macro; /* for a macro, with */
    struct spry_jinja_scope *scope;      /* the scope in which the macro was defined */
} spry_jinja_callable;

/* One row of the tables of filters and tests. */
typedef struct spry_jinja_named {
    const char *name;
    spry_jinja_builtin *call;
    int how;
} spry_jinja_named;

/* ---- creation ---------------------------------------------------------------------------------------------------- */

#define SPRY_JINJA_NOTHING     ((spry_jinja_value){.kind = SPRY_JINJA_UNDEFINED})
#define SPRY_JINJA_NULL        ((spry_jinja_value){.kind = SPRY_JINJA_NONE})
#define SPRY_JINJA_BOOLEAN(x)  ((spry_jinja_value){.kind = SPRY_JINJA_BOOL, .boolean = (x)})
#define SPRY_JINJA_INTEGER(x)  ((spry_jinja_value){.kind = SPRY_JINJA_INT, .integer = (x)})
#define SPRY_JINJA_REAL(x)     ((spry_jinja_value){.kind = SPRY_JINJA_FLOAT, .real = (x)})
#define SPRY_JINJA_DICT_OF(x)  ((spry_jinja_value){.kind = SPRY_JINJA_DICT, .dict = (x)})
#define SPRY_JINJA_SEQUENCE(x) ((spry_jinja_value){.kind = SPRY_JINJA_LIST, .list = (x)})

/* A string over bytes that outlive the run, marked entirely or not at all. */
spry_jinja_value spry_jinja_text(spry_jinja_run *run, spry_view text, bool marked);

spry_jinja_list *spry_jinja_list_create(spry_jinja_run *run, size_t capacity);
void spry_jinja_list_push(spry_jinja_run *run, spry_jinja_list *list, spry_jinja_value item);
/* A tuple of two. */
spry_jinja_value spry_jinja_pair(spry_jinja_run *run, spry_jinja_value a, spry_jinja_value b);

spry_jinja_dict *spry_jinja_dict_create(spry_jinja_run *run, size_t capacity);
void spry_jinja_dict_set(spry_jinja_run *run, spry_jinja_dict *dict, spry_jinja_value key, spry_jinja_value value);
/* NULL: not found. */
spry_jinja_value *spry_jinja_dict_find(spry_jinja_run *run, const spry_jinja_dict *dict, spry_jinja_value key);
/* The same without counting steps: for names of arguments, which are short. */
spry_jinja_value *spry_jinja_dict_find_text(const spry_jinja_dict *dict, spry_view key);

/* ---- queries ----------------------------------------------------------------------------------------------------- */

static inline bool spry_jinja_is_number(spry_jinja_value v)
{
    return v.kind == SPRY_JINJA_BOOL || v.kind == SPRY_JINJA_INT || v.kind == SPRY_JINJA_FLOAT;
}

static inline bool spry_jinja_is_sequence(spry_jinja_value v)
{
    return v.kind == SPRY_JINJA_LIST || v.kind == SPRY_JINJA_TUPLE;
}

static inline spry_view spry_jinja_view(spry_jinja_value string)
{
    return (spry_view){string.string->data, string.string->size};
}

const char *spry_jinja_kind_name(spry_jinja_value v); /* Python's name: "str", "NoneType" */
bool spry_jinja_truth(spry_jinja_value v);
/* An integer: an int or a bool. */
bool spry_jinja_to_int(spry_jinja_value v, int64_t *out);
double spry_jinja_to_real(spry_jinja_value number);

bool spry_jinja_equal(spry_jinja_run *run, spry_jinja_value a, spry_jinja_value b);
/* Compares: -1, 0 or 1; fails for values without an order. `fold`: ignores case. */
int spry_jinja_order(spry_jinja_run *run, spry_jinja_value a, spry_jinja_value b, bool fold);
bool spry_jinja_contains(spry_jinja_run *run, spry_jinja_value where, spry_jinja_value what);

/* True if a for loop can iterate over the value; never fails. */
bool spry_jinja_is_iterable(spry_jinja_value v);
/* The items of a for loop over the value: items, keys or characters. Never NULL; empty when the run fails. The list may
 * be the value's own. */
const spry_jinja_list *spry_jinja_items(spry_jinja_run *run, spry_jinja_value v);
/* Fails for values without a length. */
size_t spry_jinja_length(spry_jinja_run *run, spry_jinja_value v);

/* Positional argument `index`, or the argument `name` (which may be NULL); otherwise `fallback`. */
spry_jinja_value spry_jinja_arg(const spry_jinja_args *args, size_t index, const char *name, spry_jinja_value fallback);

/* The truth value of an argument; false where it is missing. */
static inline bool spry_jinja_flag(const spry_jinja_args *args, size_t index, const char *name)
{
    return spry_jinja_truth(spry_jinja_arg(args, index, name, SPRY_JINJA_NULL));
}

/* Builds strings. Appended strings keep their marks; finished strings live in the run. */

typedef struct spry_jinja_builder {
    spry_jinja_run *run;
    char *data;
    size_t size, capacity;
    spry_text_range *marks;
    size_t n_marks, marks_capacity;
} spry_jinja_builder;

/* Needs no deinit, because the memory belongs to the run. Appending has no effect once the run has failed. */
void spry_jinja_builder_init(spry_jinja_builder *builder, spry_jinja_run *run);

void spry_jinja_append(spry_jinja_builder *builder, spry_view text, bool marked);
void spry_jinja_append_text(spry_jinja_builder *builder, const char *zero_terminated); /* unmarked text */
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
size_t spry_jinja_count_characters(spry_jinja_run *run, spry_view text); /* 0 once the run has failed */
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

enum { SPRY_JINJA_NUMBER_TEXT = 48 };

/* Conversion between JSON and values. */

/* The value of a JSON tree that outlives the run; every string, including keys, is marked. */
spry_jinja_value spry_jinja_from_json(spry_jinja_run *run, const json_t *json);

typedef struct spry_jinja_json_style {
    bool ascii, sort;
    int64_t indent;      /* negative: on one line */
    spry_view item, key; /* separators; NULL: as json.dumps */
} spry_jinja_json_style;

/* Writes JSON like json.dumps; fails for values without a JSON form. */
spry_jinja_value spry_jinja_to_json(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_json_style *style);

#endif
