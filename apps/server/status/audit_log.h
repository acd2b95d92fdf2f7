/* The audit log: one line of JSON for every request that has ended, without prompts, answers or keys. Any thread. */
#ifndef SPRY_SERVER_AUDIT_LOG_H
#define SPRY_SERVER_AUDIT_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* What the log says of one request; filled while it is served. */
typedef struct spry_audit_facts {
    char method[16], path[128];       /* cut where they are longer */
    char address[48];                 /* of the client */
    char model[128];                  /* that answered; "": none was used */
    size_t prompt, cached, generated; /* tokens; `cached`: of the prompt */
    bool whole;                       /* the reply was sent completely */
} spry_audit_facts;

typedef struct spry_audit_log {
    int file;           /* -1: none */
    atomic_bool failed; /* a line could not be written; one warning was printed */
} spry_audit_log;

/* `path` NULL: none; "-": standard error. Lines are appended; a new file can be read by its owner only. */
spry_status spry_audit_log_open(spry_audit_log *log, const char *path, spry_error *error);
void spry_audit_log_close(spry_audit_log *log);

struct spry_exchange;

/* Writes the line of a request that has ended. */
void spry_audit_log_write(spry_audit_log *log, const struct spry_exchange *exchange);

#endif
