/* Waking a thread that waits for work and, at the same time, for its client to close a socket. */
#ifndef SPRY_PLATFORM_WAKEUP_H
#define SPRY_PLATFORM_WAKEUP_H

#include <stdbool.h>
#include <stdint.h>

/* A flag that one thread raises and another waits for. */
typedef struct spry_wakeup {
    int file;   /* readable while it is raised */
    int raised; /* written to raise it */
} spry_wakeup;

/* False when the process can open no more files. */
bool spry_wakeup_init(spry_wakeup *wakeup);
void spry_wakeup_deinit(spry_wakeup *wakeup);

/* Never blocks; raising a raised flag changes nothing. */
void spry_wakeup_raise(spry_wakeup *wakeup);
void spry_wakeup_clear(spry_wakeup *wakeup);

typedef enum spry_wait_result {
    SPRY_WAIT_RAISED,
    SPRY_WAIT_HUNG_UP, /* the peer has closed the socket, or its sending side */
    SPRY_WAIT_TIMEOUT,
} spry_wait_result;

/* `socket` -1: none. `until_ns` is a time of spry_clock_ns; 0: no limit. */
spry_wait_result spry_wakeup_wait(const spry_wakeup *wakeup, int socket, uint64_t until_ns);

/* Waits at most `ms` milliseconds for the peer of a socket to hang up. */
bool spry_socket_hung_up(int socket, int ms);

#endif
