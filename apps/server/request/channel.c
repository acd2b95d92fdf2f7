/* The bell is rung under the lock, so whoever has seen an answer's end may free the channel. */
#include "server/request/channel.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "platform/clock.h"

spry_status spry_channel_init(spry_channel *c, size_t max, spry_error *error)
{
    c->n_done = 0;
    c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->bell < 0)
        return spry_fail(error, SPRY_ERR_MEMORY, "too many files are open to take another request");
    if (pthread_mutex_init(&c->lock, NULL)) {
        close(c->bell);
        return spry_fail_memory(error, "a lock", sizeof c->lock);
    }
    spry_buffer_init(&c->records, max);
    return SPRY_OK;
}

void spry_channel_deinit(spry_channel *c)
{
    spry_buffer_deinit(&c->records);
    pthread_mutex_destroy(&c->lock);
    close(c->bell);
}

static void ring(spry_channel *c)
{
    uint64_t one = 1;
    ssize_t written = write(c->bell, &one, sizeof one); /* fails only when the bell rings already */
    (void)written;
}

bool spry_channel_post(spry_channel *c, uint32_t kind, uint32_t choice, const void *data, size_t size)
{
    spry_record record = {kind, choice, size};
    pthread_mutex_lock(&c->lock);
    bool was_empty = c->records.size == 0;
    size_t before = c->records.size;
    bool fits = spry_buffer_append(&c->records, &record, sizeof record) && spry_buffer_append(&c->records, data, size);
    if (!fits)
        c->records.size = before;
    if (fits && was_empty)
        ring(c);
    pthread_mutex_unlock(&c->lock);
    return fits;
}

void spry_channel_post_done(spry_channel *c)
{
    pthread_mutex_lock(&c->lock);
    c->n_done++;
    ring(c);
    pthread_mutex_unlock(&c->lock);
}

size_t spry_channel_take(spry_channel *c, spry_buffer *out)
{
    uint64_t count;
    pthread_mutex_lock(&c->lock);
    spry_buffer empty = *out;
    *out = c->records;
    c->records = empty;
    ssize_t got = read(c->bell, &count, sizeof count);
    (void)got;
    size_t n_done = c->n_done;
    pthread_mutex_unlock(&c->lock);
    return n_done;
}

static int wait_ms(uint64_t until_ns)
{
    if (!until_ns)
        return -1;
    uint64_t now = spry_clock_ns();
    uint64_t ms = now >= until_ns ? 0 : (until_ns - now) / 1000000 + 1;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

spry_waited spry_channel_wait(spry_channel *c, int socket, uint64_t until_ns)
{
    struct pollfd files[] = {{.fd = c->bell, .events = POLLIN}, {.fd = socket, .events = POLLRDHUP}};
    for (;;) {
        int n = poll(files, 2, wait_ms(until_ns));
        if (n < 0 && errno == EINTR)
            continue;
        if (files[1].revents)
            return SPRY_WAITED_GONE;
        return n == 0 ? SPRY_WAITED_LATE : SPRY_WAITED_NEWS;
    }
}

bool spry_channel_client_left(int socket, int ms)
{
    struct pollfd file = {.fd = socket, .events = POLLRDHUP};
    return poll(&file, 1, ms) > 0 && file.revents;
}
