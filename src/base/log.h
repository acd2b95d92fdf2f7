/* The library never prints: it passes messages to the callback given when the engine is opened. */
#ifndef SPRY_BASE_LOG_H
#define SPRY_BASE_LOG_H

#include "base/compiler.h"
#include "spry.h"

typedef struct spry_log {
    void (*write)(void *user, int level, const char *sentence); /* NULL: no messages */
    void *user;
} spry_log;

void spry_log_write(const spry_log *log, int level, const char *format, ...) SPRY_PRINTF(3, 4);

#endif
