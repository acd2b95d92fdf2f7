/* Child processes: programs, work on hostile input, and the sandboxes of both. */
#ifndef SPRY_PLATFORM_CHILD_H
#define SPRY_PLATFORM_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/view.h"

/* ---- sandbox.c: processes that give up rights -------------------------------------------------------------------- */

/* Takes rights from a process that reads files of unknown origin, with what the kernel has: Landlock for files, network
 * and signals, seccomp for system calls, and limits of memory and time. What a kernel does not have is left out, so a
 * sandbox is a second line of defence and never the first. */

typedef struct spry_sandbox {
    const char *const *readable; /* files and folders that it may read and run, the last NULL */
    const char *const *writable; /* folders that it may also change, ends with NULL; NULL: none */
    const char *program;         /* a further one to read; NULL: none */
    size_t memory;               /* limit for its address space in bytes; 0: none */
    size_t data;                 /* limit for the memory that it writes, which excludes reserved addresses; 0: none */
    uint32_t cpu_s;              /* limit for its processor time; 0: none */
    bool network;                /* the network is allowed, but not Unix sockets with a path */
} spry_sandbox;

/* Programs of the system, with their libraries, data and fonts. */
extern const char *const spry_sandbox_programs[];

/* Restricts the calling thread and everything it starts, for good: it reads what is readable, changes only what is
 * writable, opens no socket unless it may use the network, signals and watches no other process. Only makes system
 * calls, so that it may be used between a fork and exec. False, and errno: a limit could not be set. */
bool spry_sandbox_enter(const spry_sandbox *sandbox);

/* Restricts a server, its threads to come and its children, for good: it changes no file but those at the paths
 * `writable` and below, the last NULL (NULL: any), and does not use the kernel's machinery for other processes and for
 * administrators. It still reads what its user can read, opens sockets and starts programs. */
void spry_sandbox_enter_server(const char *const *writable);

/* From now on no process of this program gives up rights; limits of memory and time remain. */
void spry_sandbox_switch_off(void);
bool spry_sandbox_is_on(void);

/* Whether this kernel has Landlock and seccomp. */
bool spry_sandbox_complete(void);

/* ---- child.c: programs ------------------------------------------------------------------------------------------- */

/* Programs as child processes: run to their end, with bytes to its standard input, their output piece by piece; or
 * started, for a caller that reads and writes the pipes. They get a short list of environment variables, no file
 * descriptors but their own, and no new privileges. The caller ignores SIGPIPE. */

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

/* ---- isolated.c: work in a child without rights ------------------------------------------------------------------ */

/* Work on hostile input in a forked child with no rights (a sandbox is for programs, which need some): it can compute,
 * allocate memory and write its result. It has no files, no network and no other processes, and ends after a limit of
 * time. What it does wrong ends the child alone. */

typedef struct spry_isolated spry_isolated;

/* Writes to the parent; false when it no longer reads. */
typedef bool (*spry_isolated_write)(void *self, const void *data, size_t size);

/* What runs in the child. It must not use locks that other threads may hold, except those of malloc. */
typedef void (*spry_isolated_work)(void *context, spry_isolated_write write, void *self);

/* Starts a child that may take `seconds` of processor time, and for which reads may wait three times as long. */
spry_status spry_isolated_start(spry_isolated **out, spry_isolated_work work, void *context, unsigned seconds,
                                spry_error *error);

/* What the child has written, at most `size` bytes; 0 at its end, and where spry_isolated_end will fail: a wait took
 * too long, or the request of this thread is over (base/interrupt.h). */
size_t spry_isolated_read(spry_isolated *child, void *data, size_t size);

/* Frees the child, which is killed if its end was not read. Fails unless it ended by returning. */
spry_status spry_isolated_end(spry_isolated *child, spry_error *error);

/* All three: appends what the child writes to `out`, whose maximum counts. */
spry_status spry_isolated_run(spry_buffer *out, spry_isolated_work work, void *context, unsigned seconds,
                              spry_error *error);

#endif
