/* --trace: one file for everything a command does. Whoever opens a model asks for it; main closes it when the command
 * is over and its engines are gone. */
#ifndef SPRY_APPS_TRACE_FILE_H
#define SPRY_APPS_TRACE_FILE_H

#include "base/options.h"
#include "spry.h"

typedef struct spry_trace_flags {
    const char *file; /* NULL: none */
    bool ops;
} spry_trace_flags;

spry_option_table spry_trace_flags_table(spry_trace_flags *flags);

/* Whether the flags go together. */
spry_status spry_trace_flags_check(const spry_trace_flags *flags, spry_error *error);

/* The trace, opened by the first who asks; NULL when the flags name none. */
spry_status spry_trace_file_open(spry_trace **trace, const spry_trace_flags *flags, spry_error *error);

/* The command's exit code, or a failure's when the file is not whole, which is said. */
int spry_trace_file_close(int code);

#endif
