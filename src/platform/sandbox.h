/* Takes rights from a process that reads files of unknown origin, with what the kernel has: Landlock for files, network
 * and signals, seccomp for system calls, and limits of memory and time. What a kernel does not have is left out, so a
 * sandbox is a second line of defence and never the first. */
#ifndef SPRY_PLATFORM_SANDBOX_H
#define SPRY_PLATFORM_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
