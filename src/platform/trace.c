/* Spans are added to one of two lists under a lock; the writer thread swaps the lists and prints the full one. */
#include "platform/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "platform/clock.h"
#include "platform/machine_state.h"
#include "platform/memory.h"
#include "platform/threads.h"

enum {
    LIST_SPANS = 1 << 18, /* allocated on demand */
    WAKE_SPANS = LIST_SPANS / 4,
    STATE_NS = 1000000000, /* interval of the machine's state */
    WAIT_NS = 250000000,   /* interval of writes; at most this much is lost when the process is killed */
    LINE_MAX_BYTES = 512,
    TEXT_MAX = 1 << 24, /* limit of lane names, and of the text printed at once */
    WRITE_BYTES = 1 << 18,
    NAMED_LANES = 256,
    REQUEST_LANES = 4096
};

typedef struct span_list {
    size_t count;
    spry_trace_span spans[LIST_SPANS];
} span_list;

struct spry_trace {
    char *path;
    int file;
    bool ops;
    uint64_t start_ns;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    span_list *filling; /* protected by the lock, like everything down to `closing` */
    spry_buffer lanes;  /* events that name lanes, printed already */
    uint32_t n_lanes;
    char *names[NAMED_LANES]; /* lane names */
    uint32_t named[NAMED_LANES];
    size_t n_named;
    uint32_t request_lanes[REQUEST_LANES]; /* lanes of requests */
    uint64_t free_from_ns[REQUEST_LANES];  /* UINT64_MAX: in use */
    size_t n_request_lanes;
    uint64_t n_left_out;
    bool closing;
    /* used by the writer thread only, until it is joined */
    span_list *printing;
    spry_buffer text;
    uint64_t state_ns;             /* time of the last state of the machine */
    off_t whole;                   /* length of the file up to its last complete event */
    uint64_t n_printed, n_written; /* spans printed to the text; spans written to the file */
    int failure;                   /* errno of the failure */
    atomic_bool failed;            /* set when `failure` is */
};

/* ---- printing ---------------------------------------------------------------------------------------------------- */

/* Lines are formatted without printf, which takes longer than the ops it would report. */
typedef struct line {
    char text[LINE_MAX_BYTES];
    size_t size;
} line;

static void put(line *l, const char *text, size_t size)
{
    size_t room = sizeof l->text - l->size;
    size = size < room ? size : room;
    memcpy(l->text + l->size, text, size);
    l->size += size;
}

#define PUT(l, literal) put(l, literal, sizeof(literal) - 1)

static void put_text(line *l, const char *text)
{
    put(l, text, strlen(text));
}

static void put_number(line *l, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    put(l, digits + at, sizeof digits - at);
}

static void put_microseconds(line *l, uint64_t ns)
{
    unsigned rest = (unsigned)(ns % 1000);
    const char thousandths[] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10), (char)('0' + rest % 10)};
    put_number(l, ns / 1000);
    put(l, thousandths, sizeof thousandths);
}

static void put_args(line *l, const spry_trace_span *s)
{
    const char *before = ",\"args\":{\"";
    for (size_t i = 0; i < SPRY_TRACE_ARGS && s->args[i].name; i++, before = ",\"") {
        int64_t value = s->args[i].value;
        put_text(l, before);
        put_text(l, s->args[i].name);
        put_text(l, value < 0 ? "\":-" : "\":");
        put_number(l, value < 0 ? (uint64_t)0 - (uint64_t)value : (uint64_t)value);
    }
    if (s->kernel) {
        put_text(l, before);
        PUT(l, "kernel\":\"");
        put_text(l, s->kernel);
        PUT(l, " ");
        put_text(l, s->type);
        PUT(l, "\"");
    }
    put_text(l, s->args[0].name || s->kernel ? "}}" : "}");
}

static void print_span(spry_trace *t, const spry_trace_span *s)
{
    line l;
    l.size = 0; /* the rest needs no clearing */
    PUT(&l, ",\n{\"name\":\"");
    put_text(&l, s->name);
    PUT(&l, "\",\"cat\":\"");
    put_text(&l, s->category);
    PUT(&l, "\",\"ph\":\"X\",\"ts\":");
    put_microseconds(&l, s->begin_ns > t->start_ns ? s->begin_ns - t->start_ns : 0);
    PUT(&l, ",\"dur\":");
    put_microseconds(&l, s->end_ns > s->begin_ns ? s->end_ns - s->begin_ns : 0);
    PUT(&l, ",\"pid\":1,\"tid\":");
    put_number(&l, s->lane);
    put_args(&l, s);
    spry_buffer_append(&t->text, l.text, l.size);
}

/* Writes the printed text. On failure the file is truncated after its last complete event and writing stops. */
static void write_out(spry_trace *t)
{
    size_t done = 0;
    if (t->text.failed)
        t->failure = ENOMEM;
    while (!t->failure && done < t->text.size) {
        ssize_t n = write(t->file, t->text.data + done, t->text.size - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            t->failure = errno;
    }
    if (!t->failure) {
        t->whole += (off_t)done;
        t->n_written += t->n_printed;
    } else if (ftruncate(t->file, t->whole) == 0) { /* pipes cannot and need not be truncated */
        lseek(t->file, t->whole, SEEK_SET);
    }
    atomic_store(&t->failed, t->failure != 0);
    t->n_printed = 0;
    spry_buffer_clear(&t->text);
}

static void print_list(spry_trace *t)
{
    span_list *list = t->printing;
    for (size_t i = 0; i < list->count && !t->failure; i++) {
        print_span(t, &list->spans[i]);
        t->n_printed++;
        if (t->text.size >= WRITE_BYTES || i + 1 == list->count)
            write_out(t);
    }
    list->count = 0;
}

/* The machine's state as counters; unknown fields are omitted. */
static void print_state(spry_trace *t)
{
    spry_machine_state state;
    spry_machine_state_read(&state, "");
    t->state_ns = spry_clock_ns();
    for (size_t i = 0; i < SPRY_MACHINE_FIELDS; i++) {
        double value = spry_machine_field_value(&state, &spry_machine_fields[i]);
        if (!isnan(value))
            spry_buffer_format(&t->text,
                               ",\n{\"name\":\"%s\",\"cat\":\"machine\",\"ph\":\"C\",\"ts\":%.3f,\"pid\":1,"
                               "\"args\":{\"value\":%.17g}}",
                               spry_machine_fields[i].name, (double)(t->state_ns - t->start_ns) / 1e3, value);
    }
}

/* ---- the writer -------------------------------------------------------------------------------------------------- */

/* Called with the lock held. */
static void wait_for_spans(spry_trace *t)
{
    bool in_time = true;
    while (in_time && !t->closing && t->filling->count < WAKE_SPANS)
        in_time = spry_background_wait(&t->wake, &t->lock, WAIT_NS);
}

static void *run(void *context)
{
    spry_trace *t = context;
    bool closing = false;
    while (!closing) {
        pthread_mutex_lock(&t->lock);
        wait_for_spans(t);
        closing = t->closing;
        span_list *full = t->filling;
        t->filling = t->printing;
        t->printing = full;
        spry_buffer_append(&t->text, t->lanes.data, t->lanes.size);
        spry_buffer_clear(&t->lanes);
        pthread_mutex_unlock(&t->lock);
        print_list(t);
        if (closing || spry_clock_ns() - t->state_ns >= STATE_NS)
            print_state(t);
        write_out(t);
    }
    return NULL;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static const char head[] = "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"spry\"}}";

/* Whether a file has contents that are not a trace: a model, for example, named by mistake. */
static bool is_foreign(int file)
{
    char begin[sizeof head];
    ssize_t size = pread(file, begin, sizeof begin - 1, 0);
    return size > 0 && memcmp(begin, head, (size_t)size) != 0;
}

/* An existing trace is replaced; any other file, and a trace that is being written, is refused. */
static spry_status open_file(spry_trace *t, spry_error *error)
{
    t->file = open(t->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (t->file < 0 && errno != EISDIR) /* a pipe or a device may be write-only */
        t->file = open(t->path, O_WRONLY | O_CLOEXEC);
    if (t->file < 0)
        return spry_fail(error, SPRY_ERR_FILE, "the trace %s cannot be written: %s", t->path, strerror(errno));
    struct stat facts;
    if (fstat(t->file, &facts) == 0 && S_ISREG(facts.st_mode)) {
        if (is_foreign(t->file))
            return spry_fail(error, SPRY_ERR_FILE, "%s is there already and is no trace: name another file", t->path);
        if (flock(t->file, LOCK_EX | LOCK_NB) != 0)
            return spry_fail(error, SPRY_ERR_BUSY, "another process writes the trace %s: name another file", t->path);
        if (ftruncate(t->file, 0) != 0)
            return spry_fail(error, SPRY_ERR_FILE, "the trace %s cannot be written: %s", t->path, strerror(errno));
    }
    spry_buffer_text(&t->text, head);
    return SPRY_OK;
}

static void free_all(spry_trace *t)
{
    if (t->file >= 0)
        close(t->file);
    spry_buffer_deinit(&t->lanes);
    spry_buffer_deinit(&t->text);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->wake);
    for (size_t i = 0; i < t->n_named; i++)
        free(t->names[i]);
    if (t->filling)
        spry_memory_unmap(t->filling, sizeof *t->filling);
    if (t->printing)
        spry_memory_unmap(t->printing, sizeof *t->printing);
    free(t->path);
    free(t);
}

spry_status spry_trace_open(spry_trace **out, const char *path, bool ops, spry_error *error)
{
    *out = NULL;
    spry_trace *t = calloc(1, sizeof *t);
    if (!t)
        return spry_fail_memory(error, "a trace", sizeof *t);
    t->file = -1;
    t->ops = ops;
    t->start_ns = spry_clock_ns();
    pthread_mutex_init(&t->lock, NULL);
    spry_background_condition(&t->wake);
    spry_buffer_init(&t->lanes, TEXT_MAX);
    spry_buffer_init(&t->text, TEXT_MAX);
    t->path = strdup(path);
    t->filling = spry_memory_map(sizeof *t->filling); /* huge pages: few page faults while a caller waits */
    t->printing = spry_memory_map(sizeof *t->printing);
    spry_status status = SPRY_OK;
    if (!t->path || !t->filling || !t->printing)
        status = spry_fail_memory(error, "a trace", 2 * sizeof *t->filling);
    if (!status)
        status = open_file(t, error);
    if (!status)
        status = spry_background_start(&t->thread, run, t, "the trace", error);
    if (status)
        free_all(t);
    else
        *out = t;
    return status;
}

/* Reports which part of the trace is missing. */
static spry_status judge(const spry_trace *t, spry_error *error)
{
    if (t->failure)
        return spry_fail(error, SPRY_ERR_FILE,
                         "the trace %s is not whole: %s; what was written before that (%" PRIu64
                         " spans) can be opened",
                         t->path, strerror(t->failure), t->n_written);
    if (t->n_left_out)
        return spry_fail(error, SPRY_ERR_FILE,
                         "the trace %s is not whole: %" PRIu64 " of %" PRIu64
                         " spans were left out, as its disk could not keep up",
                         t->path, t->n_left_out, t->n_left_out + t->n_written);
    return SPRY_OK;
}

spry_status spry_trace_close(spry_trace *t, spry_error *error)
{
    if (!t)
        return SPRY_OK;
    pthread_mutex_lock(&t->lock);
    t->closing = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    spry_buffer_text(&t->text, "\n]\n");
    write_out(t);
    if (close(t->file) != 0 && !t->failure)
        t->failure = errno;
    t->file = -1;
    spry_status status = judge(t, error);
    free_all(t);
    return status;
}

/* ---- from any thread --------------------------------------------------------------------------------------------- */

void spry_trace_add_all(spry_trace *t, const spry_trace_span *spans, size_t count)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    span_list *list = t->filling;
    size_t room = LIST_SPANS - list->count, fits = count < room ? count : room;
    memcpy(list->spans + list->count, spans, fits * sizeof *spans);
    if (list->count < WAKE_SPANS && list->count + fits >= WAKE_SPANS)
        pthread_cond_signal(&t->wake);
    list->count += fits;
    t->n_left_out += count - fits;
    pthread_mutex_unlock(&t->lock);
}

void spry_trace_add(spry_trace *t, const spry_trace_span *span)
{
    spry_trace_add_all(t, span, 1);
}

bool spry_trace_failed(const spry_trace *t)
{
    return t && atomic_load(&t->failed);
}

bool spry_trace_wants_ops(const spry_trace *t)
{
    return t && t->ops;
}

/* Called with the lock held. Names may come from files; unsafe characters are replaced. */
static uint32_t add_lane(spry_trace *t, const char *name)
{
    uint32_t lane = ++t->n_lanes;
    spry_buffer *out = &t->lanes;
    spry_buffer_format(out, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"args\":{\"name\":\"",
                       lane);
    for (; *name; name++)
        spry_buffer_append(out, *name < ' ' || *name > '~' || *name == '"' || *name == '\\' ? "?" : name, 1);
    spry_buffer_text(out, "\"}}");
    spry_buffer_format(
        out, ",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"args\":{\"sort_index\":%u}}", lane,
        lane);
    return lane;
}

uint32_t spry_trace_lane(spry_trace *t, const char *name)
{
    if (!t)
        return 0;
    size_t at = 0;
    pthread_mutex_lock(&t->lock);
    while (at < t->n_named && strcmp(t->names[at], name) != 0)
        at++;
    uint32_t lane = at < t->n_named ? t->named[at] : add_lane(t, name);
    if (at == t->n_named && at < NAMED_LANES && (t->names[at] = strdup(name)))
        t->named[t->n_named++] = lane;
    pthread_mutex_unlock(&t->lock);
    return lane;
}

uint32_t spry_trace_take_lane(spry_trace *t, uint64_t began_ns)
{
    if (!t)
        return 0;
    uint32_t lane = 0;
    pthread_mutex_lock(&t->lock);
    size_t at = 0;
    while (at < t->n_request_lanes && t->free_from_ns[at] > began_ns)
        at++;
    if (at == t->n_request_lanes && at < REQUEST_LANES) {
        char name[32];
        snprintf(name, sizeof name, "request %zu", at + 1);
        t->request_lanes[t->n_request_lanes++] = add_lane(t, name);
    }
    if (at < t->n_request_lanes) {
        t->free_from_ns[at] = UINT64_MAX;
        lane = t->request_lanes[at];
    }
    pthread_mutex_unlock(&t->lock);
    return lane;
}

void spry_trace_leave_lane(spry_trace *t, uint32_t lane, uint64_t ended_ns)
{
    if (!t || !lane)
        return;
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->n_request_lanes; i++)
        if (t->request_lanes[i] == lane)
            t->free_from_ns[i] = ended_ns;
    pthread_mutex_unlock(&t->lock);
}

/* ---- laps -------------------------------------------------------------------------------------------------------- */

const char *spry_part_name(spry_part part)
{
    static const char *const names[] = {
        [SPRY_PART_READ] = "read",         [SPRY_PART_TEMPLATE] = "template", [SPRY_PART_TOKENIZE] = "tokenize",
        [SPRY_PART_QUEUE] = "queue",       [SPRY_PART_LOOKUP] = "lookup",     [SPRY_PART_RESTORE] = "restore",
        [SPRY_PART_PREFILL] = "prefill",   [SPRY_PART_DRAFT] = "draft",       [SPRY_PART_DECODE] = "decode",
        [SPRY_PART_SAMPLING] = "sampling", [SPRY_PART_GRAMMAR] = "grammar",   [SPRY_PART_DETOKENIZE] = "detokenize",
        [SPRY_PART_WRITE] = "write",       [SPRY_PART_OTHERS] = "others",     [SPRY_PART_PREPROCESS] = "preprocess",
        [SPRY_PART_ENCODE] = "encode",
    };
    return (size_t)part < SPRY_COUNT(names) ? names[part] : "unknown";
}

void spry_laps_begin(spry_laps *laps, spry_trace *trace, uint32_t lane, uint64_t began_ns)
{
    *laps = (spry_laps){.trace = trace, .lane = lane, .began_ns = began_ns, .last_ns = began_ns};
}

void spry_lap_until(spry_laps *laps, spry_part part, uint64_t ns)
{
    if (ns <= laps->last_ns)
        return;
    laps->ns[part] += ns - laps->last_ns;
    if (laps->trace) {
        const spry_trace_span span = {.name = spry_part_name(part),
                                      .category = "part",
                                      .lane = laps->lane,
                                      .begin_ns = laps->last_ns,
                                      .end_ns = ns};
        spry_trace_add(laps->trace, &span);
    }
    laps->last_ns = ns;
}

void spry_lap(spry_laps *laps, spry_part part)
{
    spry_lap_until(laps, part, spry_clock_ns());
}

void spry_laps_prompt(spry_laps *laps, const spry_chat_prompt *prompt)
{
    uint64_t now = spry_clock_ns(), tokenize = now - (uint64_t)(prompt->tokenize_ms * 1e6);
    uint64_t seen = tokenize - (uint64_t)(prompt->template_ms * 1e6);
    uint64_t decoded = seen - (uint64_t)(prompt->encode_ms * 1e6);
    if (prompt->n_pictures) {
        spry_lap_until(laps, SPRY_PART_TEMPLATE, decoded - (uint64_t)(prompt->preprocess_ms * 1e6));
        spry_lap_until(laps, SPRY_PART_PREPROCESS, decoded);
        spry_lap_until(laps, SPRY_PART_ENCODE, seen);
    }
    spry_lap_until(laps, SPRY_PART_TEMPLATE, tokenize);
    spry_lap_until(laps, SPRY_PART_TOKENIZE, now);
}

void spry_laps_ms(const spry_laps *laps, double ms[SPRY_PART_COUNT])
{
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        ms[i] = (double)laps->ns[i] / 1e6;
}
