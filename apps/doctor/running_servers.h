/* Servers (`spry serve`) that run on this machine, as far as /proc shows them. */
#ifndef SPRY_APPS_DOCTOR_RUNNING_SERVERS_H
#define SPRY_APPS_DOCTOR_RUNNING_SERVERS_H

#include <stddef.h>
#include <stdint.h>

enum { SPRY_RUNNING_SERVERS_MAX = 8 };

typedef struct spry_running_server {
    uint64_t process;
    size_t resident_bytes; /* 0: unknown */
} spry_running_server;

/* Returns the number of servers, at most SPRY_RUNNING_SERVERS_MAX. `root` is prepended to /proc: "" on a real system, a
 * folder in tests. */
size_t spry_running_servers_find(spry_running_server servers[SPRY_RUNNING_SERVERS_MAX], const char *root);

#endif
