/* The library never prints: it hands sentences to whoever opened the engine. */
#ifndef SPRY_BASE_LOG_H
#define SPRY_BASE_LOG_H

#include "base/compiler.h"

typedef enum spry_log_level { SPRY_LOG_DEBUG, SPRY_LOG_INFO, SPRY_LOG_WARN } spry_log_level;

typedef struct spry_log {
    void (*write)(void *user, int level, const char *sentence); /* NULL: silence */
    void *user;
} spry_log;

void spry_log_write(const spry_log *log, spry_log_level level, const char *format, ...) SPRY_PRINTF(3, 4);

#endif
