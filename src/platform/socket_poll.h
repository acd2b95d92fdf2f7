/* Waiting for many sockets at once, by one thread. */
#ifndef SPRY_PLATFORM_SOCKET_POLL_H
#define SPRY_PLATFORM_SOCKET_POLL_H

#include <stdbool.h>
#include <stddef.h>

/* Events, or-ed. SPRY_SOCKET_CLOSED is reported also where it was not asked for. */
enum {
    SPRY_SOCKET_READ = 1,
    SPRY_SOCKET_WRITE = 2,
    SPRY_SOCKET_HALF = 4,   /* the peer has closed its sending side */
    SPRY_SOCKET_CLOSED = 8, /* both sides are closed, or the connection is broken */
};

typedef struct spry_socket_event {
    void *user;
    unsigned events;
} spry_socket_event;

typedef struct spry_socket_poll {
    int file;
} spry_socket_poll;

/* False when the process can open no more files. */
bool spry_socket_poll_init(spry_socket_poll *poll);
void spry_socket_poll_deinit(spry_socket_poll *poll);

/* `user` is returned with events of the socket. A socket is removed when it is closed. False: memory is short. */
bool spry_socket_poll_add(spry_socket_poll *poll, int socket, unsigned events, void *user);
void spry_socket_poll_change(spry_socket_poll *poll, int socket, unsigned events, void *user);
void spry_socket_poll_remove(spry_socket_poll *poll, int socket);

enum { SPRY_SOCKET_EVENTS_MAX = 64 };

/* Waits at most `ms` milliseconds, -1: without limit, for an event of any socket, and returns how many `out` has. */
size_t spry_socket_poll_wait(const spry_socket_poll *poll, spry_socket_event out[SPRY_SOCKET_EVENTS_MAX], int ms);

#endif
