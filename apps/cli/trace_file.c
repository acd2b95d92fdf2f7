#include "cli/trace_file.h"

#include "cli/terminal.h"

static spry_trace *opened;

static const spry_option trace_options[] = {
    {.name = "trace",
     .kind = SPRY_OPTION_STRING,
     .offset = offsetof(spry_trace_flags, file),
     .metavar = "FILE",
     .help = "Write a trace of the time spent to FILE as Chrome trace events, for ui.perfetto.dev and `spry report`",
     .group = "Trace"},
    {.name = "trace-ops",
     .kind = SPRY_OPTION_FLAG,
     .offset = offsetof(spry_trace_flags, ops),
     .help = "With --trace: include every op of every step, with its kernel"},
};

spry_option_table spry_trace_flags_table(spry_trace_flags *flags)
{
    return (spry_option_table){trace_options, SPRY_COUNT(trace_options), flags};
}

spry_status spry_trace_flags_check(const spry_trace_flags *flags, spry_error *error)
{
    if (flags->ops && !flags->file)
        return spry_fail(error, SPRY_ERR_INPUT, "--trace-ops needs --trace FILE");
    return SPRY_OK;
}

spry_status spry_trace_file_open(spry_trace **trace, const spry_trace_flags *flags, spry_error *error)
{
    *trace = NULL;
    if (!flags->file)
        return SPRY_OK;
    spry_status status = opened ? SPRY_OK : spry_trace_open(&opened, flags->file, flags->ops, error);
    *trace = opened;
    return status;
}

int spry_trace_file_close(int code)
{
    spry_error error;
    spry_status status = spry_trace_close(opened, &error);
    opened = NULL;
    if (status == SPRY_OK)
        return code;
    int failure = spry_complain_error(&error);
    return code == SPRY_EXIT_OK ? failure : code;
}
