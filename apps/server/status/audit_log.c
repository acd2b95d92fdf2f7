/* A line is one write to a file opened for appending, so lines of several threads do not mix. */
#include "server/status/audit_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/terminal.h"
#include "platform/clock.h"
#include "server/http/exchange.h"
#include "server/request/completion.h"

enum { TIME_BYTES = 32 };

spry_status spry_audit_log_open(spry_audit_log *log, const char *path, spry_error *error)
{
    *log = (spry_audit_log){.file = -1};
    if (!path)
        return SPRY_OK;
    log->file = strcmp(path, "-") == 0 ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)
                                       : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
    return log->file >= 0 ? SPRY_OK : spry_fail(error, SPRY_ERR_FILE, "--audit-log %s: %s", path, strerror(errno));
}

void spry_audit_log_close(spry_audit_log *log)
{
    if (log->file >= 0)
        close(log->file);
    log->file = -1;
}

/* "2026-01-31T12:00:00.123Z" */
static void time_text(char out[TIME_BYTES])
{
    struct timespec now;
    struct tm day;
    char seconds[TIME_BYTES];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &day);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &day);
    snprintf(out, TIME_BYTES, "%.20s.%03uZ", seconds, (unsigned)(now.tv_nsec / 1000000) % 1000u);
}

/* The key's name, or the number of its line; null without keys or with a wrong one. */
static json_t *key_json(const spry_exchange *x)
{
    if (!x->key.data)
        return json_null();
    spry_view name = x->server->keys.names[x->key_index];
    return name.size ? spry_view_json(name) : json_integer((json_int_t)x->key_index + 1);
}

static char *line_of(const spry_exchange *x)
{
    const spry_audit_facts *a = &x->audit;
    char when[TIME_BYTES];
    time_text(when);
    json_t *line =
        json_pack("{s:s, s:I, s:o, s:s, s:o, s:o, s:o, s:i, s:I, s:I, s:I, s:I, s:f, s:b}", "time", when, "request",
                  (json_int_t)x->number, "key", key_json(x), "address", a->address, "method",
                  spry_view_json(spry_view_of(a->method)), "path", spry_view_json(spry_view_of(a->path)), "model",
                  a->model[0] ? spry_view_json(spry_view_of(a->model)) : json_null(), "status", (int)x->status,
                  "bytes_in", (json_int_t)(x->body.size + x->dropped), "prompt_tokens", (json_int_t)a->prompt,
                  "cached_tokens", (json_int_t)a->cached, "generated_tokens", (json_int_t)a->generated, "ms",
                  (double)(spry_clock_ns() - x->began_ns) / 1e6, "complete", a->whole);
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(line);
    return text;
}

void spry_audit_log_write(spry_audit_log *log, const spry_exchange *x)
{
    if (log->file < 0)
        return;
    char *text = line_of(x);
    size_t size = text ? strlen(text) : 0;
    bool written = false;
    if (text) {
        text[size] = '\n'; /* instead of the zero */
        written = write(log->file, text, size + 1) == (ssize_t)size + 1;
    }
    free(text);
    if (!written && !atomic_exchange(&log->failed, true))
        spry_complain("--audit-log: a line could not be written: %s; later lines are still tried", strerror(errno));
}
