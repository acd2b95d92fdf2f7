/* An eventfd, polled together with the socket. POLLRDHUP reports a peer that has closed its sending side, also while
 * unread bytes remain; it is Linux's own. */
#include "platform/wakeup.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "platform/clock.h"

bool spry_wakeup_init(spry_wakeup *w)
{
    w->file = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return w->file >= 0;
}

void spry_wakeup_deinit(spry_wakeup *w)
{
    close(w->file);
}

void spry_wakeup_raise(spry_wakeup *w)
{
    uint64_t one = 1;
    ssize_t written = write(w->file, &one, sizeof one); /* fails only when the flag is raised already */
    (void)written;
}

void spry_wakeup_clear(spry_wakeup *w)
{
    uint64_t count;
    ssize_t got = read(w->file, &count, sizeof count); /* fails only when the flag is not raised */
    (void)got;
}

static int poll_ms(uint64_t until_ns)
{
    if (!until_ns)
        return -1;
    uint64_t now = spry_clock_ns();
    uint64_t ms = now >= until_ns ? 0 : (until_ns - now) / 1000000 + 1;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

spry_wait_result spry_wakeup_wait(const spry_wakeup *w, int socket, uint64_t until_ns)
{
    struct pollfd files[] = {{.fd = w->file, .events = POLLIN}, {.fd = socket, .events = POLLRDHUP}};
    for (;;) {
        int n = poll(files, 2, poll_ms(until_ns));
        if (n < 0 && errno == EINTR)
            continue;
        if (files[1].revents)
            return SPRY_WAIT_HUNG_UP;
        return n == 0 ? SPRY_WAIT_TIMEOUT : SPRY_WAIT_RAISED;
    }
}

bool spry_socket_hung_up(int socket, int ms)
{
    struct pollfd file = {.fd = socket, .events = POLLRDHUP};
    return poll(&file, 1, ms) > 0 && file.revents;
}
