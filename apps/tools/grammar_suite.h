/* `spry grammar suite`: many schemas with instances of known validity. */
#ifndef SPRY_APPS_GRAMMAR_SUITE_H
#define SPRY_APPS_GRAMMAR_SUITE_H

#include <stdbool.h>

#include "spry_tools.h"

typedef struct spry_suite_settings {
    const char *path;                /* a file or a folder, which is searched for .json files */
    const spry_tokenizer *tokenizer; /* NULL: masks are not measured */
    spry_json_style style;
    bool list; /* print every schema that is refused or judged wrongly */
    bool json;
} spry_suite_settings;

/* Prints the counts; SPRY_ERR_INPUT when nothing was found. *wrong: some invalid instance was accepted. */
spry_status spry_suite_run(bool *wrong, const spry_suite_settings *settings, spry_error *error);

#endif
