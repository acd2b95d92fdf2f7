/* Runs a program as a child process: bytes to its standard input, its output piece by piece. It gets a short list of
 * environment variables, no file descriptors but its own, and no new privileges. The caller ignores SIGPIPE. */
#ifndef SPRY_PLATFORM_CHILD_H
#define SPRY_PLATFORM_CHILD_H

#include "base/error.h"
#include "base/view.h"
#include "platform/sandbox.h"

typedef struct spry_child {
    const char *command;          /* run with the shell; its messages go to standard error */
    const char *const *arguments; /* or, where it is not NULL, this program with these arguments, the last NULL; its
                                   * messages are discarded */
    const spry_sandbox *sandbox;  /* NULL: none */
    uint32_t seconds;             /* limit for its time; 0: none */
    bool is_self; /* it is this program: it gets all variables, and files without names (spry_temporary_hide) */
    spry_view input;
    bool (*on_output)(void *user, const char *data, size_t size); /* false ends the child */
    void *user;
} spry_child;

/* Returns when the child has ended. Fails where it cannot be started or ends with a status other than 0, and with
 * SPRY_ERR_CANCELLED where the time is over or the request of this thread is (base/interrupt.h): the child is then
 * killed with everything that it has started. */
spry_status spry_child_run(const spry_child *child, spry_error *error);

#endif
