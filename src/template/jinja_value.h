/* The values of templates: a subset of Python's. Values are small and passed by value; the data they point to lives in
 * the run.
 *
 * A string records which of its bytes are marked: those that come from the conversation. Every function that builds
 * strings from strings uses a builder, which preserves the marks, so the rendered text has them too. */
#ifndef SPRY_TEMPLATE_JINJA_VALUE_H
#define SPRY_TEMPLATE_JINJA_VALUE_H

#include "base/view.h"
#include "template/jinja_run.h"

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
        const spry_view *name; /* of an undefined value, for messages; may be NULL */
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
    bool parts; /* the parts of a message's content */
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

typedef struct spry_jinja_callable {
    const char *name;
    spry_jinja_value (*call)(spry_jinja_run *run, const struct spry_jinja_callable *callee,
                             const spry_jinja_args *args);
    spry_jinja_value self;               /* of a method */
    const struct spry_jinja_node *macro; /* of a macro, with */
    struct spry_jinja_scope *scope;      /* its enclosing scope */
} spry_jinja_callable;

/* ---- making ------------------------------------------------------------------------------------------------------ */

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
spry_jinja_value *spry_jinja_dict_find_text(const spry_jinja_dict *dict, spry_view key);

/* ---- asking ------------------------------------------------------------------------------------------------------ */

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
/* -1, 0 or 1; fails for values without an order. `fold`: ignores case. */
int spry_jinja_order(spry_jinja_run *run, spry_jinja_value a, spry_jinja_value b, bool fold);
bool spry_jinja_contains(spry_jinja_run *run, spry_jinja_value where, spry_jinja_value what);

/* Whether a for loop can iterate over it; never fails. */
bool spry_jinja_is_iterable(spry_jinja_value v);
/* The items of a for loop over it: items, keys or characters. Never NULL, empty when the run fails. The list may belong
 * to the value. */
const spry_jinja_list *spry_jinja_items(spry_jinja_run *run, spry_jinja_value v);
/* Fails for values without a length. */
size_t spry_jinja_length(spry_jinja_run *run, spry_jinja_value v);

/* Positional argument `index`, or the argument `name` (which may be NULL); otherwise `fallback`. */
spry_jinja_value spry_jinja_arg(const spry_jinja_args *args, size_t index, const char *name, spry_jinja_value fallback);

#endif
