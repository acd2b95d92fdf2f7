/* Parses the options of every command and prints its help page. The page is generated from the option tables, for a
 * terminal or as Markdown for docs/OPTIONS.md. */
#ifndef SPRY_APPS_USAGE_H
#define SPRY_APPS_USAGE_H

#include <stdbool.h>

#include "base/compiler.h"
#include "base/options.h"

typedef struct spry_usage {
    const char *command;   /* "run" */
    const char *arguments; /* "[MODEL] [options]" */
    const char *about;     /* paragraphs, one per line; the short page has the first */
    const char *examples;  /* one per line; the short page has the first three */
    bool exact;            /* it measures a model's results: no setting of a profile may cost accuracy */
} spry_usage;

/* Fills the tables' structs, which hold the defaults: from the machine's profile, then from variables, then from the
 * arguments. True: continue. False: return *code, because help was
 * shown, or because the arguments are wrong and a message was printed. */
bool spry_usage_parse(int *code, const spry_usage *usage, const spry_option_table *tables, size_t n_tables,
                      spry_option_list *positionals, int argc, char **argv);

/* The options that every command has, for commands that parse their arguments twice. */
typedef struct spry_usage_general {
    bool help, help_all;
    const char *profile; /* NULL: the user's own */
    bool sandbox;
} spry_usage_general;

spry_option_table spry_usage_general_table(spry_usage_general *general);

/* Prints a message about wrong arguments that the tables cannot detect, and returns the exit code for it. */
int spry_usage_wrong(const spry_usage *usage, const char *format, ...) SPRY_PRINTF(2, 3);

/* While a visitor is set, a command's spry_usage_parse calls it with its page and tables, and the command ends. */
typedef void (*spry_usage_visit)(void *user, const spry_usage *usage, const spry_option_table *tables, size_t n_tables);
void spry_usage_set_visit(spry_usage_visit visit, void *user); /* NULL: none */
bool spry_usage_visiting(void);

/* Appends a command's section of docs/OPTIONS.md. */
void spry_usage_markdown(spry_buffer *out, const spry_usage *usage, const spry_option_table *tables, size_t n_tables);

/* How help is written to standard output here: 20 to 100 columns, coloured on terminals. */
spry_help_style spry_usage_style(void);

/* Prints a page, through $PAGER or less where it is longer than the terminal. Frees it and returns the exit code. */
int spry_usage_page(spry_buffer *page);

#endif
