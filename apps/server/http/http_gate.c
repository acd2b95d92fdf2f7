/* Only the gate's thread touches links. A link is freed after the events of a turn, which may still name it. */
#include "server/http/http_gate.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/socket_poll.h"
#include "platform/wakeup.h"
#include "server/http/http_connections.h"
#include "server/http/http_frames.h"

enum { BLOCK = 16384, SWEEP_MS = 100, OUT_BYTES = 65536, TURNS = 16, LAST_IDLES = 4 };
#define SECOND_NS 1000000000u
#define LAST_NS   (5ull * SECOND_NS) /* for the last bytes of replies when the server ends */
#define LINGER_NS (2u * SECOND_NS)   /* for a client that still sends behind the end of its reply */

typedef struct gate_link gate_link;

typedef struct gate_end {
    gate_link *link; /* NULL: the listening socket, or the flag that wakes the thread */
    int file;
    unsigned events; /* registered ones */
} gate_end;

struct gate_link {
    gate_link *next, **link;
    gate_end client, server;
    spry_tls_link *tls; /* of the client's end; NULL: none */
    spry_http_frames frames;
    spry_buffer in, out; /* towards the server, towards the client */
    bool client_ended;   /* no more bytes of the client */
    bool told;           /* and the server knows */
    bool server_ended;   /* no more bytes of the server */
    bool quiet;          /* the server's end is not polled: it is closed, and its last bytes are not read */
    bool answered;       /* the client has got bytes */
    bool lingering;      /* the reply is complete, and the client still sends */
    bool dead;
    uint64_t closing_ns; /* since when the server's end is closed; 0: it is open */
    uint64_t until_ns;   /* the end of a link that waits for one last thing; 0: it does not */
};

struct spry_http_gate {
    const spry_serve_settings *settings;
    struct MHD_Daemon *daemon;
    const spry_http_tls *tls; /* NULL: plain HTTP */
    gate_end listening, waking;
    spry_socket_poll poll;
    spry_wakeup wakeup;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool quiet;    /* accept no more */
    bool accepted; /* the listening socket is no longer used */
    bool stopping;

    /* The gate's thread alone, without the lock: apart from the above, because a compiler reads neighbours together. */
    uint64_t swept_ns;
    gate_link *first, *dead;
    size_t count;
    bool held;    /* connections wait in the listening socket */
    bool waiting; /* a link has a time to end */
};

/* ---- links ------------------------------------------------------------------------------------------------------- */

static void set_events(spry_http_gate *gate, gate_end *end, unsigned events)
{
    if (end->events != events)
        spry_socket_poll_change(&gate->poll, end->file, events, end);
    end->events = events;
}

static bool add_end(spry_http_gate *gate, gate_end *end, unsigned events)
{
    end->events = events;
    return spry_socket_poll_add(&gate->poll, end->file, events, end);
}

static void end_link(spry_http_gate *gate, gate_link *l)
{
    if (l->dead)
        return;
    l->dead = true;
    if (l->tls)
        spry_tls_link_bye(l->tls);
    close(l->client.file);
    close(l->server.file);
    *l->link = l->next;
    if (l->next)
        l->next->link = l->link;
    gate->count--;
    l->next = gate->dead;
    gate->dead = l;
}

static void free_dead(spry_http_gate *gate)
{
    while (gate->dead) {
        gate_link *l = gate->dead;
        gate->dead = l->next;
        spry_http_frames_deinit(&l->frames);
        spry_buffer_deinit(&l->in);
        spry_buffer_deinit(&l->out);
        if (l->tls)
            spry_tls_link_destroy(l->tls);
        free(l);
    }
}

static void begin_link(spry_http_gate *gate, int client, int server)
{
    gate_link *l = calloc(1, sizeof *l);
    if (l && gate->tls)
        l->tls = spry_tls_link_create(gate->tls, client);
    if (!l || (gate->tls && !l->tls)) {
        free(l);
        close(client);
        close(server);
        return;
    }
    l->client = (gate_end){.link = l, .file = client};
    l->server = (gate_end){.link = l, .file = server};
    spry_http_frames_init(&l->frames, gate->settings->max_head, gate->settings->max_body);
    spry_buffer_init(&l->in, 4 * gate->settings->max_head + 4 * BLOCK);
    spry_buffer_init(&l->out, OUT_BYTES);
    l->next = gate->first;
    l->link = &gate->first;
    if (l->next)
        l->next->link = &l->next;
    gate->first = l;
    gate->count++;
    if (!add_end(gate, &l->client, SPRY_SOCKET_READ | SPRY_SOCKET_HALF) || !add_end(gate, &l->server, SPRY_SOCKET_READ))
        end_link(gate, l);
}

/* ---- passing on -------------------------------------------------------------------------------------------------- */

/* Bytes of the client, or to either side. */
static ssize_t read_client(gate_link *l, void *bytes, size_t size)
{
    return l->tls ? spry_tls_link_recv(l->tls, bytes, size) : recv(l->client.file, bytes, size, MSG_DONTWAIT);
}

static ssize_t write_end(const gate_end *end, const void *bytes, size_t size)
{
    spry_tls_link *tls = end == &end->link->client ? end->link->tls : NULL;
    return tls ? spry_tls_link_send(tls, bytes, size) : send(end->file, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Sends what the other side takes. False: the socket is closed. */
static bool flush(spry_buffer *buffer, const gate_end *end, bool *moved)
{
    while (buffer->size) {
        ssize_t n = write_end(end, buffer->data, buffer->size);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        spry_buffer_consume(buffer, (size_t)n);
        *moved = true;
    }
    return true;
}

/* From the client to libmicrohttpd. Bytes are read only when all earlier ones are passed on; behind the server's last
 * byte they are dropped. */
static bool pass_in(gate_link *l)
{
    char block[BLOCK];
    bool moved = true;
    for (int i = 0; moved && i < TURNS; i++) {
        moved = false;
        if (!l->in.size && !l->client_ended) {
            ssize_t n = read_client(l, block, sizeof block);
            if (n < 0 && errno != EAGAIN && errno != EINTR)
                return false;
            l->client_ended = n == 0;
            if (n > 0 && !l->server_ended)
                spry_http_frames_feed(&l->frames, &l->in, (spry_view){block, (size_t)n});
            if (l->in.failed)
                return false;
        }
        if (l->server_ended || !flush(&l->in, &l->server, &moved))
            l->in.size = 0;
    }
    if (l->client_ended && !l->in.size && !l->told) {
        shutdown(l->server.file, SHUT_WR);
        l->told = true;
    }
    return true;
}

/* From libmicrohttpd to the client. */
static bool pass_out(gate_link *l)
{
    bool moved = true;
    for (int i = 0; moved && (l->quiet || i < TURNS); i++) {
        moved = false;
        if (!l->out.size && !l->server_ended) {
            char block[OUT_BYTES];
            ssize_t n = recv(l->server.file, block, sizeof block, MSG_DONTWAIT);
            if (n < 0 && errno != EAGAIN && errno != EINTR)
                n = 0;
            l->server_ended = n == 0;
            if (n > 0 && !spry_buffer_append(&l->out, block, (size_t)n))
                return false;
            l->answered = l->answered || n > 0;
        }
        if (!flush(&l->out, &l->client, &moved))
            return false;
    }
    return true;
}

/* True when the link has nothing left to do. Once the server's end is closed the client has a time to read the rest of
 * its reply, and then to stop sending. */
static bool is_over(const spry_http_gate *gate, gate_link *l)
{
    uint64_t now = spry_clock_ns(), idle_ns = (uint64_t)gate->settings->idle_s * SECOND_NS;
    if (!l->server_ended && !l->quiet)
        return false;
    l->closing_ns = l->closing_ns ? l->closing_ns : now;
    if (!l->server_ended || l->out.size) {
        uint64_t last_ns = l->closing_ns + LAST_IDLES * idle_ns;
        l->until_ns = now + idle_ns < last_ns ? now + idle_ns : last_ns;
        return false;
    }
    if (!l->answered || spry_http_frames_between(&l->frames) || l->client_ended)
        return true;
    if (!l->lingering) {
        if (l->tls)
            spry_tls_link_bye(l->tls);
        shutdown(l->client.file, SHUT_WR);
        l->lingering = true;
        l->until_ns = now + LINGER_NS;
    }
    return false;
}

static void pass(spry_http_gate *gate, gate_link *l)
{
    if (!pass_in(l) || !pass_out(l) || is_over(gate, l)) {
        end_link(gate, l);
        return;
    }
    gate->waiting = gate->waiting || l->until_ns;
    unsigned more = l->in.size || l->client_ended ? 0 : SPRY_SOCKET_READ;
    unsigned half = l->until_ns || l->client_ended ? 0 : SPRY_SOCKET_HALF;
    bool writes = l->out.size || (l->tls && spry_tls_link_writes(l->tls));
    set_events(gate, &l->client, more | half | (writes ? SPRY_SOCKET_WRITE : 0u));
    if (!l->quiet)
        set_events(gate, &l->server,
                   (l->out.size || l->server_ended ? 0u : SPRY_SOCKET_READ) | (l->in.size ? SPRY_SOCKET_WRITE : 0u));
}

static void on_events(spry_http_gate *gate, gate_end *end, unsigned events)
{
    gate_link *l = end->link;
    if (l->dead)
        return;
    if (end == &l->client && events & SPRY_SOCKET_CLOSED) {
        end_link(gate, l);
        return;
    }
    if (end == &l->server && events & SPRY_SOCKET_CLOSED && !l->quiet) {
        l->quiet = true;
        spry_socket_poll_remove(&gate->poll, l->server.file);
    }
    if (events & SPRY_SOCKET_HALF && !l->until_ns)
        l->until_ns = spry_clock_ns() + SECOND_NS; /* for bytes that the server does not read */
    pass(gate, l);
    if (!l->dead && !l->closing_ns && !l->in.size)
        l->until_ns = 0; /* nothing is held up */
}

/* Links whose time is over. One that holds bytes back, whose client has left, tells the server now. */
static void sweep(spry_http_gate *gate)
{
    uint64_t now = spry_clock_ns();
    if (now - gate->swept_ns < SWEEP_MS * 1000000u)
        return;
    gate->swept_ns = now;
    gate->waiting = false;
    for (gate_link *l = gate->first, *next; l; l = next) {
        next = l->next;
        gate->waiting = gate->waiting || l->until_ns;
        if (!l->until_ns || now < l->until_ns)
            continue;
        if (l->closing_ns) {
            end_link(gate, l);
            continue;
        }
        l->until_ns = 0;
        l->in.size = 0;
        l->client_ended = true;
        pass(gate, l);
    }
}

/* ---- accepting --------------------------------------------------------------------------------------------------- */

static void accept_one(spry_http_gate *gate, int client, const struct sockaddr *address, socklen_t size)
{
    int pair[2], on = 1;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        close(client);
        return;
    }
    if (MHD_add_connection(gate->daemon, pair[1], address, size) == MHD_YES) {
        begin_link(gate, client, pair[0]);
    } else {
        close(client);
        close(pair[0]);
    }
}

/* At most as many connections as libmicrohttpd takes, and as there are files for; others wait in the listening socket,
 * which is then looked at again after a time. */
static void accept_all(spry_http_gate *gate)
{
    struct sockaddr_storage address;
    struct sockaddr *plain = (struct sockaddr *)(void *)&address;
    bool more = true;
    gate->held = false;
    while (more && !gate->held) {
        socklen_t size = sizeof address;
        gate->held = gate->count >= gate->settings->connections + SPRY_CONNECTIONS_MARGIN;
        int client = gate->held ? -1 : accept4(gate->listening.file, plain, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
        more = client >= 0;
        gate->held = gate->held || (!more && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED);
        if (more)
            accept_one(gate, client, plain, size);
    }
    set_events(gate, &gate->listening, gate->held ? 0u : (unsigned)SPRY_SOCKET_READ);
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* Whether the thread goes on; *stop_ns is set when it is to stop. */
static bool read_orders(spry_http_gate *gate, uint64_t *stop_ns)
{
    spry_wakeup_clear(&gate->wakeup);
    pthread_mutex_lock(&gate->lock);
    if (gate->quiet && !gate->accepted) {
        spry_socket_poll_remove(&gate->poll, gate->listening.file);
        gate->accepted = true;
        pthread_cond_broadcast(&gate->changed);
    }
    if (gate->stopping && !*stop_ns)
        *stop_ns = spry_clock_ns() + LAST_NS;
    pthread_mutex_unlock(&gate->lock);
    return !*stop_ns || (gate->first && spry_clock_ns() < *stop_ns);
}

static void *gate_main(void *context)
{
    spry_http_gate *gate = context;
    spry_socket_event events[SPRY_SOCKET_EVENTS_MAX];
    uint64_t stop_ns = 0;
    while (read_orders(gate, &stop_ns)) {
        bool timed = gate->held || gate->waiting || stop_ns, asked = gate->held;
        size_t n = spry_socket_poll_wait(&gate->poll, events, timed ? SWEEP_MS : -1);
        for (size_t i = 0; i < n; i++) {
            gate_end *end = events[i].user;
            asked = asked || end == &gate->listening;
            if (end->link)
                on_events(gate, end, events[i].events);
        }
        sweep(gate);
        free_dead(gate);
        if (asked && !gate->accepted)
            accept_all(gate);
    }
    while (gate->first)
        end_link(gate, gate->first);
    free_dead(gate);
    return NULL;
}

static void destroy(spry_http_gate *gate)
{
    spry_socket_poll_deinit(&gate->poll);
    spry_wakeup_deinit(&gate->wakeup);
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->lock);
    free(gate);
}

spry_status spry_http_gate_start(spry_http_gate **out, const spry_serve_settings *settings, struct MHD_Daemon *daemon,
                                 int listening, const spry_http_tls *tls, spry_error *error)
{
    spry_http_gate *gate = calloc(1, sizeof *gate);
    if (!gate)
        return spry_fail_memory(error, "the server", sizeof *gate);
    *gate = (spry_http_gate){.settings = settings, .daemon = daemon, .tls = tls, .listening.file = listening};
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, NULL);
    bool polled = spry_socket_poll_init(&gate->poll);
    bool woken = spry_wakeup_init(&gate->wakeup);
    gate->waking.file = gate->wakeup.file;
    if (polled && woken && add_end(gate, &gate->waking, SPRY_SOCKET_READ) &&
        add_end(gate, &gate->listening, SPRY_SOCKET_READ) &&
        pthread_create(&gate->thread, NULL, gate_main, gate) == 0) {
        *out = gate;
        return SPRY_OK;
    }
    destroy(gate);
    return spry_fail(error, SPRY_ERR_MEMORY, "the HTTP server cannot start a thread");
}

void spry_http_gate_quiesce(spry_http_gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->quiet = true;
    spry_wakeup_raise(&gate->wakeup);
    while (!gate->accepted)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

void spry_http_gate_stop(spry_http_gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->stopping = true;
    pthread_mutex_unlock(&gate->lock);
    spry_wakeup_raise(&gate->wakeup);
    pthread_join(gate->thread, NULL);
    destroy(gate);
}
