/* What systems other than Linux share: sockets and pipes by fcntl, a pipe that wakes threads. */
#include "platform/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/wakeup.h"

/* ---- threads and processors -------------------------------------------------------------------------------------- */

/* The system alone places threads: macOS offers nothing else, and POSIX names nothing. */

int spry_os_processor(void)
{
    return -1;
}

bool spry_os_affinity(spry_processor_set *set, pthread_t thread)
{
    (void)set, (void)thread;
    return false;
}

void spry_os_set_affinity(pthread_t thread, const spry_processor_set *set)
{
    (void)thread, (void)set;
}

void spry_os_bind(pthread_t thread, int processor)
{
    (void)thread, (void)processor;
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

/* A child process that another thread starts between the two calls inherits the descriptor: POSIX has nothing better.
 */
static int prepare(int file, bool blocks)
{
    if (file < 0)
        return -1;
    if (fcntl(file, F_SETFD, FD_CLOEXEC) == 0 && (blocks || fcntl(file, F_SETFL, O_NONBLOCK) == 0)) {
#if defined(SO_NOSIGPIPE)
        if (!blocks)
            setsockopt(file, SOL_SOCKET, SO_NOSIGPIPE, &(int){1}, sizeof(int));
#endif
        return file;
    }
    int why = errno;
    close(file);
    errno = why;
    return -1;
}

int spry_os_socket(int family)
{
    return prepare(socket(family, SOCK_STREAM, 0), false);
}

int spry_os_accept(int listening, struct sockaddr *address, socklen_t *size)
{
    return prepare(accept(listening, address, size), false);
}

bool spry_os_pipe(int ends[2])
{
    if (pipe(ends) != 0)
        return false;
    if (prepare(ends[0], true) < 0)
        close(ends[1]);
    else if (prepare(ends[1], true) < 0)
        close(ends[0]);
    else
        return true;
    return false;
}

void spry_os_forget(int file)
{
    fsync(file);
}

const char spry_os_descriptors[] = "/dev/fd";

/* ---- waking a thread (wakeup.h) ---------------------------------------------------------------------------------- */

bool spry_wakeup_init(spry_wakeup *w)
{
    int ends[2];
    if (!spry_os_pipe(ends))
        return false;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    *w = (spry_wakeup){.file = ends[0], .raised = ends[1]};
    return true;
}

void spry_wakeup_deinit(spry_wakeup *w)
{
    close(w->file);
    close(w->raised);
}

void spry_wakeup_raise(spry_wakeup *w)
{
    ssize_t written = write(w->raised, "", 1); /* fails only when the pipe is full, and so raised */
    (void)written;
}

void spry_wakeup_clear(spry_wakeup *w)
{
    char bytes[64];
    while (read(w->file, bytes, sizeof bytes) > 0)
        ;
}

/* What the socket's next byte is, without taking it. */
typedef enum spry_next_byte { SPRY_BYTE_NONE, SPRY_BYTE_THERE, SPRY_BYTE_END } spry_next_byte;

static spry_next_byte peek(int socket)
{
    char byte;
    ssize_t got = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    bool nothing = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    return got > 0 ? SPRY_BYTE_THERE : nothing ? SPRY_BYTE_NONE : SPRY_BYTE_END;
}

/* `socket` -1: none; poll ignores it. While bytes of the peer are unread, its end cannot be seen, and the socket is not
 * waited for: then only a failed send tells that the peer has gone. */
spry_wait_result spry_wakeup_wait(const spry_wakeup *w, int socket, uint64_t until_ns)
{
    for (bool unread = false;;) {
        struct pollfd files[] = {{.fd = w->file, .events = POLLIN}, {.fd = unread ? -1 : socket, .events = POLLIN}};
        int n = poll(files, 2, spry_clock_ms_until(until_ns));
        if (n < 0 && errno == EINTR)
            continue;
        if (files[1].revents) {
            spry_next_byte next = peek(socket);
            if (next == SPRY_BYTE_END)
                return SPRY_WAIT_HUNG_UP;
            unread = next == SPRY_BYTE_THERE;
            if (!files[0].revents)
                continue;
        }
        return n == 0 ? SPRY_WAIT_TIMEOUT : SPRY_WAIT_RAISED;
    }
}

bool spry_socket_hung_up(int socket, int ms)
{
    struct pollfd file = {.fd = socket, .events = POLLIN};
    spry_next_byte next = poll(&file, 1, ms) > 0 ? peek(socket) : SPRY_BYTE_NONE;
    if (next == SPRY_BYTE_THERE)
        poll(NULL, 0, ms); /* so that a caller that asks again and again does not spin */
    return next == SPRY_BYTE_END;
}

/* ---- memory (memory.h) ------------------------------------------------------------------------------------------- */

size_t spry_memory_huge_page(void)
{
    return 0;
}

/* A fresh mapping in the place of the old one: here madvise need not make pages zero. */
void spry_memory_drop(void *memory, size_t bytes)
{
    uintptr_t page = spry_memory_page(), begin = (uintptr_t)memory;
    uintptr_t first = (begin + page - 1) / page * page, end = (begin + bytes) / page * page;
    if (first < end)
        mmap((void *)first, end - first, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* Right for memory of spry_memory_map. Pages of a mapped file count when the system has them, also for others. */
bool spry_memory_resident(size_t *bytes, const void *memory, size_t size)
{
    enum { PAGES_AT_ONCE = 4096 };
    unsigned char states[PAGES_AT_ONCE];
    size_t page = spry_memory_page(), count = 0;
    uintptr_t first = ((uintptr_t)memory + page - 1) / page, end = ((uintptr_t)memory + size + page - 1) / page;
    *bytes = 0;
    while (first < end) {
        size_t n = end - first < PAGES_AT_ONCE ? end - first : PAGES_AT_ONCE;
        if (mincore((void *)(first * page), n * page, (void *)states) != 0)
            return false;
        for (size_t i = 0; i < n; i++)
            count += states[i] & 1;
        first += n;
    }
    *bytes = count * page;
    return true;
}

/* ---- counters of Linux ------------------------------------------------------------------------------------------- */

int spry_energy_perf_open(uint32_t type, uint64_t config, unsigned cpu)
{
    (void)type, (void)config, (void)cpu;
    errno = ENOSYS;
    return -1;
}
