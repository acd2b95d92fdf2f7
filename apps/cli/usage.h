/* What every command does first: read its options, and show its help page when asked. The page is made from the options
 * tables, for a terminal or, for docs/OPTIONS.md, as Markdown. */
#ifndef SPRY_APPS_USAGE_H
#define SPRY_APPS_USAGE_H

#include <stdbool.h>

#include "base/compiler.h"
#include "base/options.h"

typedef struct spry_usage {
    const char *command;   /* "run" */
    const char *arguments; /* "[MODEL] [options]" */
    const char *about;     /* paragraphs, one a line */
    const char *examples;  /* one a line */
} spry_usage;

/* Parses into the tables' structs, which hold the defaults. True: go on. False: return *code, because help was asked
 * for and shown, or because the arguments are wrong and a sentence said so. */
bool spry_usage_parse(int *code, const spry_usage *usage, const spry_option_table *tables, size_t n_tables,
                      spry_option_list *positionals, int argc, char **argv);

/* Complains about a wrong use that the tables cannot see, and returns the exit code for it. */
int spry_usage_wrong(const spry_usage *usage, const char *format, ...) SPRY_PRINTF(2, 3);

/* The argument that makes a command print its page as Markdown; only `spry help --markdown` gives it. */
#define SPRY_USAGE_MARKDOWN "--help=markdown"

#endif
