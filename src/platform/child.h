/* Programs as child processes: run to their end, with bytes to its standard input, their output piece by piece; or
 * started, for a caller that reads and writes the pipes. They get a short list of environment variables, no file
 * descriptors but their own, and no new privileges. The caller ignores SIGPIPE. */
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
    const char *const *variables; /* further environment variables, "NAME=VALUE", the last NULL; NULL: none */
    const char *folder;           /* where it runs; NULL: where this program runs */
    uint32_t seconds;             /* limit for its time; 0: none */
    bool is_self; /* the program is spry: it gets all variables, and files without names (spry_temporary_hide) */
    spry_view input;
    bool (*on_output)(void *user, const char *data, size_t size); /* false ends the child */
    void *user;
} spry_child;

/* Returns when the child has ended. Fails where it cannot be started or ends with a status other than 0, and with
 * SPRY_ERR_CANCELLED where the time is over or the request of this thread is (base/interrupt.h): the child is then
 * killed with everything that it has started. */
spry_status spry_child_run(const spry_child *child, spry_error *error);

enum { SPRY_CHILD_PATH = 4096 };

/* The path of a program, whose name is looked up in PATH. False: there is none. */
bool spry_child_find(char path[SPRY_CHILD_PATH], const char *name);

/* A program that runs. Its pipes do not block. */
typedef struct spry_process {
    int id;
    int input, output, messages; /* standard input, output and error of the program */
} spry_process;

/* Starts a program, which is all of `child` but the members of a run: limit of time, input, on_output. */
spry_status spry_process_start(spry_process *out, const spry_child *child, spry_error *error);

/* Closes the input, which asks the program to end; one that has not ended after `patience_ms` is killed with everything
 * that it has started. Returns the exit status, 128 and the signal for one that a signal ended. */
int spry_process_end(spry_process *process, unsigned patience_ms);

#endif
