/* One table of options defines the command-line flags, the JSON keys of the server, environment variables, the help and
 * the documentation. A table describes the fields of one settings struct. The option "top-k" is the flag --top-k, the
 * JSON key top_k and the variable SPRY_TOP_K.
 * Nothing is allocated and nothing is printed: values go into the caller's struct, text into the caller's buffer.
 * Strings are borrowed from the input. */
#ifndef SPRY_BASE_OPTIONS_H
#define SPRY_BASE_OPTIONS_H

#include <jansson.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

/* The kind determines the type of the field. */
typedef enum spry_option_kind {
    SPRY_OPTION_FLAG,   /* bool: --name, --no-name, --name=true|false (also on, off, yes, no; in variables 1, 0) */
    SPRY_OPTION_U32,    /* uint32_t */
    SPRY_OPTION_U64,    /* uint64_t */
    SPRY_OPTION_SIZE,   /* size_t, in bytes: 512, 4K, 16M, 2G, 1T */
    SPRY_OPTION_FLOAT,  /* float, finite */
    SPRY_OPTION_STRING, /* const char *, borrowed */
    SPRY_OPTION_CHOICE, /* const char *: one of `choices` */
    SPRY_OPTION_LIST,   /* spry_option_list: may be repeated */
} spry_option_kind;

typedef struct spry_option {
    const char *name;  /* "top-k"; never starts with "no-" */
    const char *alias; /* a second name, or NULL */
    char letter;       /* 'k' for -k, or 0 */
    spry_option_kind kind;
    size_t offset;              /* offset of the field, from offsetof */
    double min, max;            /* inclusive range of numbers; both 0: any value of the field's type */
    const char *const *choices; /* CHOICE: its words; STRING: words that shells complete; ends with NULL */
    const char *metavar;        /* placeholder for the value in help; NULL: chosen by kind */
    const char *unset;          /* what help shows for a default that is NaN, or the largest number; NULL: the number */
    const char *help;           /* a sentence without its full stop */
    const char *group;          /* heading in help of this option and those after it; NULL: that of the one before */
    bool common;                /* on the short help page: one of the dozen options that most users of a command need */
    bool flag_only;      /* set by its flag only, never by a variable or a profile: it says what to do, not how */
    bool negative_unset; /* in requests to a server, a negative number leaves the value as it is */
} spry_option;

/* A row of a table: SPRY_OPTION(struct, "name", KIND, field, .help = "...", ...). */
#define SPRY_OPTION(struct_type, option_name, option_kind, field, ...)                                                 \
    {                                                                                                                  \
        .name = option_name, .kind = SPRY_OPTION_##option_kind, .offset = offsetof(struct_type, field), __VA_ARGS__    \
    }

/* Strings in the caller's array. */
typedef struct spry_option_list {
    const char **items;
    size_t capacity, count;
} spry_option_list;

/* A table and the struct it fills. Help shows the values that the struct has before parsing as defaults. Of two tables
 * with an option of the same name the command line sets the first one's, and help shows only that. */
typedef struct spry_option_table {
    const spry_option *options;
    size_t count;
    void *target;
} spry_option_table;

/* Parses argv[1] to argv[argc - 1]: `--name value`, `--name=value`, `-n value`, `-nvalue`, `-n=value`, `--flag`,
 * `--no-flag`. The argument after a name is its value, unless it starts with `--`; such a value must be joined by `=`.
 * `--` ends the options; every other argument, including `-`, is positional and goes to `positionals` (NULL: none are
 * allowed). A later value replaces an earlier one. On failure some fields may already be set. */
spry_status spry_options_parse(const spry_option_table *tables, size_t n_tables, spry_option_list *positionals,
                               int argc, char *const *argv, spry_error *error);

/* The value of a variable, or NULL; it must stay valid. */
typedef const char *(*spry_options_lookup)(const char *variable);

/* Sets every option whose variable has a value. Call it before spry_options_parse: flags override variables. */
spry_status spry_options_variables(const spry_option_table *tables, size_t n_tables, spry_options_lookup lookup,
                                   spry_error *error);

/* Whether a variable ("SPRY_THREDS") sets no option here but looks like a misspelt one, whose variable goes to `out`.
 * Names that are not close to any may belong to other commands. */
bool spry_options_misspelt(char *out, size_t size, const spry_option_table *tables, size_t n_tables,
                           const char *variable);

/* Sets the option with JSON key or alias `key` from text; unknown keys fail. STRING and LIST borrow `text`. */
spry_status spry_options_set(const spry_option_table *table, const char *key, const char *text, spry_error *error);

/* The option with this JSON key or alias, or NULL. */
const spry_option *spry_options_find(const spry_option_table *table, const char *key);

/* Fails with a message that names the unknown key and the closest known one. */
spry_status spry_options_unknown(const spry_option_table *table, const char *key, spry_error *error);

/* The name or alias in the tables that is closest to `given`, or NULL when none is close. */
const char *spry_options_nearest(const spry_option_table *tables, size_t n_tables, spry_view given);

/* Checks that every number in the struct is in range; for values set by code. */
spry_status spry_options_check(const spry_option_table *table, spry_error *error);

/* The JSON key of an option's name or alias: dashes become underscores; truncated to fit. */
void spry_options_key(char *out, size_t size, const char *name);

/* The variable of an option's name: "SPRY_TOP_K"; truncated to fit. */
void spry_options_variable(char *out, size_t size, const char *name);

/* The accepted values in words: "a number from 0 to 1". */
enum { SPRY_OPTION_VALUES_MAX = 1024 };
void spry_options_values(char *out, size_t size, const spry_option *option);

/* Bytes of the option's field. */
size_t spry_option_bytes(const spry_option *option);

/* The current value as text; empty for a missing string and for lists. */
void spry_options_print(char *out, size_t size, const spry_option_table *table, const spry_option *option);

/* How help is written. Escape sequences are "" where there is no colour. */
typedef struct spry_help_style {
    size_t width;                     /* columns */
    bool common;                      /* only common options, each with the first clause of its help */
    const char *heading, *flag, *end; /* escape sequences */
} spry_help_style;

/* Appends the words of `text`, wrapped to `width`, and a newline. The cursor is in column `indent`, where every further
 * line begins, too. The caller checks out->failed once at the end, here and below. */
void spry_text_wrap(spry_buffer *out, spry_view text, size_t indent, size_t width);

/* Appends command-line help: one heading per group, then a flag and its meaning in two columns, or below each other
 * where the lines are short. */
void spry_options_help(spry_buffer *out, const spry_option_table *tables, size_t n_tables,
                       const spry_help_style *style);

/* Appends everything about one option: flag, meaning, values, default, variable and JSON key. */
void spry_options_explain(spry_buffer *out, const spry_option_table *table, const spry_option *option,
                          const spry_help_style *style);

/* The first clause of an option's help. */
spry_view spry_options_clause(const spry_option *option);

/* Appends a Markdown table per group: flag, variable, JSON key, values, default and meaning. */
void spry_options_markdown(spry_buffer *out, const spry_option_table *tables, size_t n_tables);

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

/* Sets the option with JSON key or alias `key`. Numbers must be JSON numbers, except that sizes and 64-bit numbers may
 * be strings ("4G", "18446744073709551615"); 40.0 is 40; null leaves the option unchanged; a list accepts a string or
 * an array of strings, which replaces it. Strings are borrowed from `value`. Unknown keys fail. */
spry_status spry_options_set_json(const spry_option_table *table, const char *key, const json_t *value,
                                  spry_error *error);

/* The current value, a new reference: null for a number that is not set; a string for text, for a missing text null,
 * and for whole numbers that a JSON integer cannot hold. NULL: no memory. */
json_t *spry_options_get_json(const spry_option_table *table, const spry_option *option);

#endif
