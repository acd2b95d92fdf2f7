/* Formats one message, truncated to one line. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void spry_log_write(const spry_log *log, int level, const char *format, ...)
{
    if (!log || !log->write)
        return;
    char sentence[512];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    log->write(log->user, level, sentence);
}
