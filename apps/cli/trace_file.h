/* --trace: one file per command. Opening a model opens it; main closes it after the command, when its engines are
 * closed. */
#ifndef SPRY_APPS_TRACE_FILE_H
#define SPRY_APPS_TRACE_FILE_H

#include "base/options.h"
#include "spry.h"

typedef struct spry_trace_flags {
    const char *file; /* NULL: none */
    bool ops;
} spry_trace_flags;

spry_option_table spry_trace_flags_table(spry_trace_flags *flags);

/* Checks the combination of flags. */
spry_status spry_trace_flags_check(const spry_trace_flags *flags, spry_error *error);

/* The trace, opened by the first call; NULL when the flags name no file. */
spry_status spry_trace_file_open(spry_trace **trace, const spry_trace_flags *flags, spry_error *error);

/* Closes the trace. Returns `code`, or a failure's code when the file is incomplete, after a message. */
int spry_trace_file_close(int code);

#endif
