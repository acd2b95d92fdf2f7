/* The link to a server that is a program: a message is a line of JSON. One thread reads all its lines, and hands
 * replies to the threads that wait for them.
 *
 * A server that sends without end what was not asked for is stopped, and one that does not answer, too; a line that is
 * too long fails the calls that wait, and is skipped. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "base/json.h"
#include "mcp/mcp_server.h"
#include "platform/child.h"
#include "platform/clock.h"
#include "platform/threads.h"
#include "platform/wakeup.h"

enum {
    CHUNK = 1 << 16,
    LOOK_MS = 100,
    PATIENCE_MS = 2000,
    UNASKED_MAX = 64 << 20,
    WORDS_BYTES = 300, /* maximum length of the server's last message on standard error */
    REPLY_S = 2,
};
#define MEMORY_MAX ((size_t)4 << 30)
#define MS_NS      1000000ull

typedef struct pending {
    struct pending *next;
    json_int_t id;
    json_t *reply;
    bool too_long;
} pending;

typedef struct stdio_link {
    spry_mcp_link base;
    spry_process process;
    pthread_t reader;
    spry_wakeup stopped;
    pthread_mutex_t writing; /* held while one message is written */

    pthread_mutex_t lock; /* for the members below */
    pthread_cond_t changed;
    pending *waiting;
    bool ended, orderly; /* orderly: this program wants its end */
    char why[200];

    /* of the reader */
    spry_buffer line;
    bool skips; /* the rest of a line that is too long */
    size_t unasked;
    char words[WORDS_BYTES + 1];
    size_t n_words;
} stdio_link;

static bool is_ended(stdio_link *s)
{
    pthread_mutex_lock(&s->lock);
    bool ended = s->ended;
    pthread_mutex_unlock(&s->lock);
    return ended;
}

/* The first reason counts. */
static void end(stdio_link *s, const char *why)
{
    pthread_mutex_lock(&s->lock);
    bool first = !s->ended;
    if (first)
        snprintf(s->why, sizeof s->why, "%s", why);
    s->ended = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    spry_wakeup_raise(&s->stopped);
    if (first)
        s->base.events.broken(s->base.events.user, why);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* False: the server does not read, or has ended; the message may be written in part, so the link is of no use. */
static bool write_line(stdio_link *s, const char *text, uint64_t until_ns)
{
    size_t size = strlen(text), done = 0;
    pthread_mutex_lock(&s->writing);
    while (done <= size && !is_ended(s)) {
        struct pollfd file = {s->process.input, POLLOUT, 0};
        ssize_t n = done < size ? write(s->process.input, text + done, size - done) : write(s->process.input, "\n", 1);
        if (n > 0)
            done += (size_t)n;
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            break;
        else if (spry_clock_ns() >= until_ns)
            break;
        else
            (void)poll(&file, 1, LOOK_MS);
    }
    pthread_mutex_unlock(&s->writing);
    return done > size;
}

static bool send_message(stdio_link *s, const json_t *message, uint64_t until_ns)
{
    char *text = spry_json_text(message, JSON_COMPACT);
    bool sent = text && write_line(s, text, until_ns);
    free(text);
    if (!sent)
        end(s, "it does not read what is sent to it, or has ended");
    return sent;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The server asks something. It was told that nothing but `ping` is answered here. */
static void answer(stdio_link *s, const json_t *id, const char *method)
{
    json_t *reply = strcmp(method, "ping") == 0
                        ? json_pack("{s:s, s:O, s:{}}", "jsonrpc", "2.0", "id", id, "result")
                        : json_pack("{s:s, s:O, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", id, "error", "code", -32601,
                                    "message", "this client answers only ping");
    send_message(s, reply, spry_clock_ns() + REPLY_S * 1000 * MS_NS);
    json_decref(reply);
}

static void take_reply(stdio_link *s, json_t *message)
{
    const json_t *id = json_object_get(message, "id");
    pthread_mutex_lock(&s->lock);
    for (pending *p = s->waiting; p; p = p->next)
        if (json_is_integer(id) && p->id == json_integer_value(id) && !p->reply) {
            p->reply = json_incref(message);
            s->unasked = 0;
        }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void take_line(stdio_link *s, spry_view line)
{
    json_t *message = NULL;
    spry_error ignored;
    if (spry_json_read(&message, line, SPRY_JSON_LAST_KEY, 0, &ignored) != SPRY_OK)
        return; /* some servers print other lines, too */
    const char *method = json_string_value(json_object_get(message, "method"));
    const json_t *id = json_object_get(message, "id");
    if (!method)
        take_reply(s, message);
    else if (id)
        answer(s, id, method);
    else if (strcmp(method, "notifications/tools/list_changed") == 0)
        s->base.events.list_changed(s->base.events.user);
    json_decref(message);
}

static void fail_waiting(stdio_link *s)
{
    pthread_mutex_lock(&s->lock);
    for (pending *p = s->waiting; p; p = p->next) {
        p->too_long = true;
        s->unasked = 0;
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void take_bytes(stdio_link *s, spry_view bytes)
{
    while (bytes.size) {
        const char *newline = memchr(bytes.data, '\n', bytes.size);
        size_t size = newline ? (size_t)(newline - bytes.data) : bytes.size;
        if (!s->skips && !spry_buffer_append(&s->line, bytes.data, size)) {
            s->skips = true;
            fail_waiting(s);
        }
        if (newline && !s->skips && s->line.size)
            take_line(s, spry_buffer_view(&s->line));
        if (newline) {
            s->skips = false;
            spry_buffer_clear(&s->line);
        }
        size += newline != NULL;
        bytes = (spry_view){bytes.data + size, bytes.size - size};
    }
}

/* Keeps the end of what the server says on standard error. */
static void take_words(stdio_link *s, const char *text, size_t size)
{
    size_t kept = size < WORDS_BYTES ? size : WORDS_BYTES, room = WORDS_BYTES - kept;
    size_t old = s->n_words < room ? s->n_words : room;
    memmove(s->words, s->words + s->n_words - old, old);
    memcpy(s->words + old, text + size - kept, kept);
    s->n_words = old + kept;
    s->words[s->n_words] = 0;
}

/* The last line that has letters; control characters become spaces. */
static const char *last_words(stdio_link *s)
{
    char *at = s->words + s->n_words;
    while (at > s->words && (unsigned char)at[-1] <= ' ')
        *--at = 0;
    for (; at > s->words && at[-1] != '\n'; at--)
        if ((unsigned char)at[-1] < ' ' || at[-1] == 127)
            at[-1] = ' ';
    return at;
}

/* False: the pipe is closed. */
static bool read_some(stdio_link *s, int file, char chunk[CHUNK])
{
    ssize_t n = read(file, chunk, CHUNK);
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    s->unasked += (size_t)n;
    if (file == s->process.output)
        take_bytes(s, (spry_view){chunk, (size_t)n});
    else
        take_words(s, chunk, (size_t)n);
    return true;
}

static void *read_all(void *context)
{
    stdio_link *s = context;
    char *chunk = malloc(CHUNK), why[200];
    int messages = s->process.messages;
    while (chunk && !is_ended(s)) {
        struct pollfd files[] = {{s->process.output, POLLIN, 0}, {s->stopped.file, POLLIN, 0}, {messages, POLLIN, 0}};
        if (poll(files, 3, -1) < 0)
            continue;
        if (files[2].revents && !read_some(s, messages, chunk))
            messages = -1;
        if (files[0].revents && !read_some(s, s->process.output, chunk))
            break;
        if (s->unasked > UNASKED_MAX)
            end(s, "it sent 64 MiB without being asked, and was stopped");
    }
    while (chunk && messages >= 0 && read_some(s, messages, chunk) && s->unasked < UNASKED_MAX &&
           poll(&(struct pollfd){messages, POLLIN, 0}, 1, 0) > 0)
        ;
    const char *words = last_words(s);
    snprintf(why, sizeof why, *words ? "it has ended; its last words: %s" : "it has ended%s", words);
    end(s, why);
    free(chunk);
    return NULL;
}

/* ---- the link ---------------------------------------------------------------------------------------------------- */

static spry_status wait_for(stdio_link *s, pending *own, uint64_t until_ns, spry_error *error)
{
    spry_status status = SPRY_ERR_BUSY;
    pthread_mutex_lock(&s->lock);
    while (!own->reply && !own->too_long && !s->ended && status == SPRY_ERR_BUSY) {
        if (spry_interrupted(SPRY_INTERRUPT_WORK))
            status = SPRY_ERR_CANCELLED;
        else if (spry_clock_ns() >= until_ns)
            status = SPRY_ERR_FILE;
        else
            spry_background_wait(&s->changed, &s->lock, LOOK_MS * MS_NS);
    }
    for (pending **at = &s->waiting; *at; at = &(*at)->next)
        if (*at == own) {
            *at = own->next;
            break;
        }
    char why[sizeof s->why];
    snprintf(why, sizeof why, "%s", s->why);
    pthread_mutex_unlock(&s->lock);
    if (own->reply)
        return SPRY_OK;
    if (own->too_long)
        return spry_fail(error, SPRY_ERR_INPUT, "its answer has more than %d bytes", SPRY_MCP_MESSAGE_MAX);
    if (status == SPRY_ERR_CANCELLED)
        return spry_fail(error, status, "the call was cancelled");
    if (status == SPRY_ERR_FILE)
        return spry_fail(error, status, "it has not answered in time");
    return spry_fail(error, SPRY_ERR_FILE, "%s", why);
}

static spry_status exchange(spry_mcp_link *link, json_t **reply, const json_t *message, json_int_t id,
                            uint64_t until_ns, spry_error *error)
{
    stdio_link *s = (stdio_link *)link;
    pending own = {.id = id};
    pthread_mutex_lock(&s->lock);
    if (id) {
        own.next = s->waiting;
        s->waiting = &own;
    }
    pthread_mutex_unlock(&s->lock);
    send_message(s, message, until_ns);
    if (!id)
        return SPRY_OK;
    spry_status status = wait_for(s, &own, until_ns, error);
    *reply = own.reply;
    if (status == SPRY_ERR_CANCELLED) {
        json_t *cancel = json_pack("{s:s, s:s, s:{s:I}}", "jsonrpc", "2.0", "method", "notifications/cancelled",
                                   "params", "requestId", id);
        send_message(s, cancel, spry_clock_ns() + REPLY_S * 1000 * MS_NS);
        json_decref(cancel);
    } else if (status == SPRY_ERR_FILE) {
        end(s, error->message);
    }
    return status;
}

static void stop(spry_mcp_link *link)
{
    stdio_link *s = (stdio_link *)link;
    pthread_mutex_lock(&s->lock);
    s->orderly = !s->ended;
    pthread_mutex_unlock(&s->lock);
    end(s, "it was stopped");
}

static void close_link(spry_mcp_link *link)
{
    stdio_link *s = (stdio_link *)link;
    pthread_join(s->reader, NULL);
    spry_process_end(&s->process, s->orderly ? PATIENCE_MS : 0);
    spry_wakeup_deinit(&s->stopped);
    pthread_mutex_destroy(&s->writing);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    spry_buffer_deinit(&s->line);
    free(s);
}

static const spry_mcp_link_ops ops = {exchange, stop, close_link};

spry_status spry_mcp_stdio_open(spry_mcp_link **out, const spry_mcp_entry *entry, const spry_mcp_events *events,
                                spry_error *error)
{
    const spry_sandbox sandbox = {
        .readable = entry->readable, .writable = entry->writable, .data = MEMORY_MAX, .network = entry->network};
    const spry_child child = {.arguments = entry->arguments,
                              .variables = entry->variables,
                              .folder = entry->folder,
                              .sandbox = entry->readable ? &sandbox : NULL};
    stdio_link *s = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "a server of --mcp", sizeof *s);
    s->base = (spry_mcp_link){&ops, entry, *events};
    spry_buffer_init(&s->line, SPRY_MCP_MESSAGE_MAX);
    pthread_mutex_init(&s->writing, NULL);
    pthread_mutex_init(&s->lock, NULL);
    spry_background_condition(&s->changed);
    spry_status status = spry_wakeup_init(&s->stopped) ? SPRY_OK : spry_fail(error, SPRY_ERR_FILE, "no pipe is left");
    if (status != SPRY_OK)
        goto failed;
    status = spry_process_start(&s->process, &child, error);
    if (status != SPRY_OK)
        goto failed_wakeup;
    status = spry_background_start(&s->reader, read_all, s, "the reader of a server", error);
    if (status == SPRY_OK) {
        *out = &s->base;
        return SPRY_OK;
    }
    spry_process_end(&s->process, 0);
failed_wakeup:
    spry_wakeup_deinit(&s->stopped);
failed:
    pthread_mutex_destroy(&s->writing);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
    return status;
}
