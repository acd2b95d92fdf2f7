/* epoll, level-triggered. */
#include "platform/socket_poll.h"

#include <sys/epoll.h>
#include <unistd.h>

static const struct {
    unsigned ours;
    unsigned theirs;
} names[] = {{SPRY_SOCKET_READ, EPOLLIN},
             {SPRY_SOCKET_WRITE, EPOLLOUT},
             {SPRY_SOCKET_HALF, EPOLLRDHUP},
             {SPRY_SOCKET_CLOSED, EPOLLHUP | EPOLLERR}};

static bool control(spry_socket_poll *poll, int operation, int socket, unsigned events, void *user)
{
    struct epoll_event event = {.data.ptr = user};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        event.events |= events & names[i].ours ? names[i].theirs : 0u;
    return epoll_ctl(poll->file, operation, socket, &event) == 0;
}

bool spry_socket_poll_init(spry_socket_poll *poll)
{
    poll->file = epoll_create1(EPOLL_CLOEXEC);
    return poll->file >= 0;
}

void spry_socket_poll_deinit(spry_socket_poll *poll)
{
    if (poll->file >= 0)
        close(poll->file);
}

bool spry_socket_poll_add(spry_socket_poll *poll, int socket, unsigned events, void *user)
{
    return control(poll, EPOLL_CTL_ADD, socket, events, user);
}

void spry_socket_poll_change(spry_socket_poll *poll, int socket, unsigned events, void *user)
{
    control(poll, EPOLL_CTL_MOD, socket, events, user);
}

void spry_socket_poll_remove(spry_socket_poll *poll, int socket)
{
    control(poll, EPOLL_CTL_DEL, socket, 0, NULL);
}

size_t spry_socket_poll_wait(const spry_socket_poll *poll, spry_socket_event out[SPRY_SOCKET_EVENTS_MAX], int ms)
{
    struct epoll_event events[SPRY_SOCKET_EVENTS_MAX];
    int n = epoll_wait(poll->file, events, SPRY_SOCKET_EVENTS_MAX, ms);
    for (int i = 0; i < n; i++) {
        out[i] = (spry_socket_event){.user = events[i].data.ptr};
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            out[i].events |= events[i].events & names[k].theirs ? names[k].ours : 0u;
    }
    return n > 0 ? (size_t)n : 0;
}
