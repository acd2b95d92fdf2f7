/* Standard output that remembers failures, and one-line messages on standard error. */
#include "cli/terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/number.h"
#include "base/utf8.h"
#include "cli/interrupt.h"
#include "cli/markdown_text.h"
#include "platform/clock.h"
#include "platform/environment.h"
#include "platform/threads.h"

static void erase_progress(void);

enum { DEFAULT_WIDTH = 80, DEFAULT_HEIGHT = 24, SENTENCE_MAX = 4096, LINE_MAX_BYTES = 512 };

/* ---- style ------------------------------------------------------------------------------------------------------- */

static bool wants_colour(FILE *stream)
{
    return isatty(fileno(stream)) && spry_environment_wants_colour();
}

const char *spry_style_begin(FILE *stream, spry_style style)
{
    static const char *const sequences[] = {
        [SPRY_STYLE_BOLD] = "\x1b[1m",      [SPRY_STYLE_DIM] = "\x1b[2m",    [SPRY_STYLE_ERROR] = "\x1b[31m",
        [SPRY_STYLE_PROMPT] = "\x1b[1;36m", [SPRY_STYLE_ITALIC] = "\x1b[3m", [SPRY_STYLE_CODE] = "\x1b[36m",
    };
    return wants_colour(stream) ? sequences[style] : "";
}

const char *spry_style_end(FILE *stream)
{
    return wants_colour(stream) ? "\x1b[0m" : "";
}

unsigned spry_terminal_width(FILE *stream)
{
    struct winsize size = {0};
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return DEFAULT_WIDTH;
    return size.ws_col;
}

unsigned spry_terminal_height(FILE *stream)
{
    struct winsize size = {0};
    return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_row ? size.ws_row : DEFAULT_HEIGHT;
}

/* ---- standard error ---------------------------------------------------------------------------------------------- */

static bool is_control(uint32_t character)
{
    return character < 0x20 || (character >= 0x7F && character < 0xA0);
}

void spry_terminal_defuse(spry_buffer *out, spry_view text, const char *keep)
{
    for (size_t i = 0, n; i < text.size; i += n) {
        uint32_t character = 0;
        n = spry_utf8_decode(&character, text.data + i, text.size - i);
        if (n == 0)
            n = 1;
        if (is_control(character) && !(character && character < 0x80 && strchr(keep, (int)character)))
            spry_buffer_append(out, "?", 1);
        else
            spry_buffer_append(out, text.data + i, n);
    }
}

/* Words stay whole on a terminal. The text begins at column `begin`, and goes on at column `hang` after a break. */
static void break_lines(spry_buffer *out, FILE *stream, spry_view text, unsigned begin, unsigned hang)
{
    spry_word_wrap wrap;
    spry_word_wrap_init(&wrap, isatty(fileno(stream)) ? spry_terminal_width(stream) : 0);
    wrap.column = begin;
    wrap.hang = hang;
    spry_word_wrap_add(&wrap, out, text);
    spry_word_wrap_flush(&wrap, out);
    spry_word_wrap_deinit(&wrap);
}

void spry_complain(const char *format, ...)
{
    char sentence[SENTENCE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    spry_buffer valid, safe;
    spry_buffer_init(&valid, 4 * SENTENCE_MAX);
    spry_buffer_init(&safe, 4 * SENTENCE_MAX);
    spry_utf8_append_valid(&valid, spry_view_of(sentence));
    spry_terminal_defuse(&safe, spry_buffer_view(&valid), "");
    fflush(stdout);
    erase_progress();
    spry_buffer_clear(&valid);
    break_lines(&valid, stderr, spry_buffer_view(&safe), (unsigned)strlen("spry: "), 0);
    fprintf(stderr, "%sspry:%s %s\n", spry_style_begin(stderr, SPRY_STYLE_ERROR), spry_style_end(stderr),
            spry_buffer_view(&valid).data);
    spry_buffer_deinit(&valid);
    spry_buffer_deinit(&safe);
}

int spry_complain_error(const spry_error *error)
{
    spry_complain("%s", error->message);
    return error->status == SPRY_ERR_CANCELLED ? SPRY_EXIT_INTERRUPTED : SPRY_EXIT_FAILURE;
}

/* ---- standard output --------------------------------------------------------------------------------------------- */

static int out_failure; /* errno of the first failed write */

static bool note_failure(bool failed)
{
    if (failed && !out_failure)
        out_failure = errno ? errno : EIO;
    return !out_failure;
}

/* Ctrl-C waits until a write is done, because a stream drops what an interrupted write has not written. */
static void hold_interrupt(sigset_t *before)
{
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    pthread_sigmask(SIG_BLOCK, &held, before);
}

/* Notes whether the write has failed. */
static bool release_interrupt(const sigset_t *before, bool failed)
{
    bool fine = note_failure(failed);
    pthread_sigmask(SIG_SETMASK, before, NULL);
    return fine;
}

bool spry_out_write(const void *data, size_t size)
{
    sigset_t before;
    if (out_failure)
        return false;
    hold_interrupt(&before);
    errno = 0;
    return release_interrupt(&before, size && fwrite(data, 1, size, stdout) != size);
}

bool spry_out_format(const char *format, ...)
{
    sigset_t before;
    if (out_failure)
        return false;
    va_list args;
    va_start(args, format);
    hold_interrupt(&before);
    errno = 0;
    int length = vfprintf(stdout, format, args);
    va_end(args);
    return release_interrupt(&before, length < 0);
}

bool spry_out_flush(void)
{
    sigset_t before;
    if (out_failure)
        return false;
    hold_interrupt(&before);
    errno = 0;
    return release_interrupt(&before, fflush(stdout) != 0);
}

bool spry_out_quote(const char *format, ...)
{
    char text[SENTENCE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    spry_buffer safe;
    spry_buffer_init(&safe, SENTENCE_MAX);
    spry_terminal_defuse(&safe, spry_view_of(text), "\n");
    bool written = spry_out_write(safe.data, safe.size);
    spry_buffer_deinit(&safe);
    return written;
}

bool spry_out_answer(spry_view text)
{
    if (!isatty(fileno(stdout)))
        return spry_out_write(text.data, text.size) && spry_out_flush();
    spry_buffer safe;
    spry_buffer_init(&safe, text.size);
    spry_terminal_defuse(&safe, text, "\n\t");
    bool ok = spry_out_write(spry_buffer_view(&safe).data, safe.size);
    spry_buffer_deinit(&safe);
    return ok && spry_out_flush();
}

void spry_print_lines(FILE *stream, spry_view lines, unsigned hang)
{
    enum { BELOW = 2, WORDS = 16 }; /* columns where there is no room for words at `hang` */
    spry_buffer safe, text;
    spry_buffer_init(&safe, lines.size + 1);
    spry_buffer_init(&text, SIZE_MAX / 2);
    spry_terminal_defuse(&safe, lines, "\n");
    break_lines(&text, stream, spry_buffer_view(&safe), 0, spry_terminal_width(stream) < hang + WORDS ? BELOW : hang);
    if (stream == stdout)
        spry_out_write(spry_buffer_view(&text).data, text.size);
    else
        fwrite(spry_buffer_view(&text).data, 1, text.size, stream);
    spry_buffer_deinit(&safe);
    spry_buffer_deinit(&text);
}

spry_status spry_out_json(const json_t *json, size_t flags, const char *what, spry_error *error)
{
    char *text = json ? spry_json_text(json, flags) : NULL;
    if (!text)
        return spry_fail_memory(error, what, 0);
    spry_out_format("%s\n", text);
    free(text);
    return SPRY_OK;
}

int spry_out_finish(int code)
{
    if (spry_out_flush())
        return code;
    if (out_failure == EPIPE)
        return SPRY_EXIT_READER_LEFT;
    spry_complain("cannot write to standard output: %s", strerror(out_failure));
    return SPRY_EXIT_FAILURE;
}

/* ---- progress ---------------------------------------------------------------------------------------------------- */

/* A thread draws the line, so that it moves while a long step computes. */

enum { PROGRESS_DELAY_NS = 300000000, PROGRESS_STEP_NS = 100000000, SECONDS_SHOWN = 3 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    spry_progress_line *line; /* NULL: nothing is in progress */
    bool drawn;               /* it is on the screen */
} shown = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Pads with spaces instead of an escape sequence, so that it works on every terminal. */
static void erase_line(void)
{
    if (shown.drawn)
        fprintf(stderr, "\r%*s\r", (int)spry_terminal_width(stderr) - 1, "");
    fflush(stderr);
    shown.drawn = false;
}

static void draw_progress(const spry_progress_line *line, uint64_t now)
{
    static const char *const frames[] = {"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"};
    char text[LINE_MAX_BYTES], part[64] = "", time[64] = "";
    uint64_t passed = now - line->began_ns;
    if (line->total)
        snprintf(part, sizeof part, "  %zu of %zu (%.0f %%)", line->done, line->total,
                 (double)line->done * 100 / (double)line->total);
    if (passed / 1000000000 >= SECONDS_SHOWN)
        snprintf(time, sizeof time, "  %.0f s%s%s", (double)passed / 1e9, line->note[0] ? " of " : "", line->note);
    else if (line->note[0])
        snprintf(time, sizeof time, "  %s", line->note);
    snprintf(text, sizeof text, "%s%s%s", line->what, part, time);
    enum { BESIDE = 3 }; /* the frame, a space, and the last column */
    int width = (int)spry_terminal_width(stderr) - BESIDE;
    width = width < 0 ? 0 : width;
    fprintf(stderr, "\r%s %-*.*s", frames[passed / PROGRESS_STEP_NS % SPRY_COUNT(frames)], width, width, text);
    fflush(stderr);
    shown.drawn = true;
}

/* Before other text is written; the line is drawn again below it. */
static void erase_progress(void)
{
    pthread_mutex_lock(&shown.lock);
    erase_line();
    pthread_mutex_unlock(&shown.lock);
}

static void *show_progress(void *line)
{
    uint64_t wait_ns = PROGRESS_DELAY_NS;
    pthread_mutex_lock(&shown.lock);
    while (shown.line == line) {
        if (!spry_background_wait(&shown.wake, &shown.lock, wait_ns) && shown.line == line)
            draw_progress(line, spry_clock_ns());
        wait_ns = PROGRESS_STEP_NS;
    }
    pthread_mutex_unlock(&shown.lock);
    return NULL;
}

void spry_progress_begin(spry_progress_line *progress, const char *what)
{
    spry_error error;
    if (shown.line)
        spry_progress_end(shown.line);
    pthread_mutex_lock(&shown.lock);
    *progress = (spry_progress_line){.source = what, .began_ns = spry_clock_ns()};
    snprintf(progress->what, sizeof progress->what, "%s", what);
    pthread_mutex_unlock(&shown.lock);
    if (!isatty(fileno(stderr)) || !spry_environment_knows_escapes())
        return;
    fflush(stdout);
    spry_background_condition(&shown.wake);
    shown.line = progress;
    if (spry_background_start(&shown.thread, show_progress, progress, "the progress line", &error) != SPRY_OK)
        shown.line = NULL;
}

void spry_progress_update(spry_progress_line *progress, size_t done, size_t total)
{
    pthread_mutex_lock(&shown.lock);
    snprintf(progress->what, sizeof progress->what, "%s", progress->source ? progress->source : "");
    progress->done = done;
    progress->total = total;
    pthread_mutex_unlock(&shown.lock);
}

void spry_progress_note(spry_progress_line *progress, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&shown.lock);
    vsnprintf(progress->note, sizeof progress->note, format, args);
    pthread_mutex_unlock(&shown.lock);
    va_end(args);
}

void spry_progress_end(const spry_progress_line *progress)
{
    if (shown.line != progress)
        return;
    pthread_mutex_lock(&shown.lock);
    shown.line = NULL;
    erase_line();
    pthread_cond_signal(&shown.wake);
    pthread_mutex_unlock(&shown.lock);
    pthread_join(shown.thread, NULL);
    pthread_cond_destroy(&shown.wake);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* Three digits and the largest unit that gives a number of at least 1. */
static const char *amount(char out[SPRY_AMOUNT_MAX], size_t value, const char *const *units, size_t n_units)
{
    double scaled = (double)value;
    size_t unit = 0;
    while (unit + 1 < n_units && scaled >= 999.5) {
        scaled /= 1000;
        unit++;
    }
    int decimals = unit == 0 || scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
    snprintf(out, SPRY_AMOUNT_MAX, "%.*f%s", decimals, scaled, units[unit]);
    return out;
}

const char *spry_amount_bytes(char out[SPRY_AMOUNT_MAX], size_t bytes)
{
    static const char *const units[] = {" bytes", " kB", " MB", " GB", " TB"};
    return amount(out, bytes, units, SPRY_COUNT(units));
}

const char *spry_amount_count(char out[SPRY_AMOUNT_MAX], size_t count)
{
    static const char *const units[] = {"", "k", "M", "B", "T"};
    return amount(out, count, units, SPRY_COUNT(units));
}

const char *spry_amount_time(char out[SPRY_AMOUNT_MAX], double ms)
{
    if (ms < 1000)
        snprintf(out, SPRY_AMOUNT_MAX, "%.*f ms", ms < 10 ? 1 : 0, ms);
    else
        snprintf(out, SPRY_AMOUNT_MAX, "%.*f s", ms < 10000 ? 2 : 1, ms / 1000);
    return out;
}

const char *spry_time_text(char out[SPRY_TIME_TEXT], int64_t seconds)
{
    time_t when = (time_t)seconds;
    struct tm utc;
    if (!gmtime_r(&when, &utc) || strftime(out, SPRY_TIME_TEXT, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        out[0] = '\0';
    return out;
}

/* ---- Ctrl-C ------------------------------------------------------------------------------------------------------ */

/* The handler only sets a flag and cancels, both of which are async-signal-safe. System calls are not restarted, so a
 * read at the prompt returns too. */

static volatile sig_atomic_t seen;
static _Atomic(spry_session *) watched;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    seen = 1;
    spry_session *session = atomic_load(&watched);
    if (session)
        spry_session_cancel(session);
}

void spry_interrupt_install(spry_session *session, bool once)
{
    atomic_store(&watched, session);
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = once ? (int)SA_RESETHAND : 0};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

void spry_interrupt_remove(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    atomic_store(&watched, NULL);
}

bool spry_interrupt_seen(void)
{
    return seen != 0;
}

void spry_interrupt_clear(void)
{
    seen = 0;
}

/* ---- standard input ---------------------------------------------------------------------------------------------- */

enum { CHUNK_BYTES = 1 << 16 };

spry_status spry_input_read(spry_buffer *out, spry_error *error)
{
    for (;;) {
        char chunk[CHUNK_BYTES];
        ssize_t got = read(STDIN_FILENO, chunk, sizeof chunk);
        if (got == 0)
            return SPRY_OK;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return spry_fail(error, SPRY_ERR_FILE, "cannot read standard input: %s", strerror(errno));
        if ((size_t)got > out->max - out->size)
            return spry_fail(error, SPRY_ERR_INPUT, "standard input has more than %zu bytes", out->max);
        if (!spry_buffer_append(out, chunk, (size_t)got))
            return spry_fail_memory(error, "standard input", out->size + (size_t)got);
    }
}

spry_status spry_input_clean(spry_buffer *out, spry_view bytes, const char *what, spry_error *error)
{
    size_t replaced = 0;
    for (size_t i = 0; i < bytes.size;) {
        const char *zero = memchr(bytes.data + i, 0, bytes.size - i);
        size_t size = zero ? (size_t)(zero - bytes.data) - i : bytes.size - i;
        replaced += spry_utf8_append_valid(out, (spry_view){bytes.data + i, size});
        i += size;
        if (zero) {
            spry_buffer_text(out, "\xEF\xBF\xBD");
            replaced++;
            i++;
        }
    }
    if (out->failed)
        return spry_fail_memory(error, what, bytes.size);
    if (replaced)
        spry_complain("%s is not valid UTF-8: %zu %s replaced by U+FFFD", what, replaced,
                      replaced == 1 ? "sequence was" : "sequences were");
    return SPRY_OK;
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t skip_space(spry_view text, size_t at)
{
    while (at < text.size && is_space(text.data[at]))
        at++;
    return at;
}

static spry_view trim(spry_view text)
{
    size_t begin = skip_space(text, 0);
    while (text.size > begin && is_space(text.data[text.size - 1]))
        text.size--;
    return (spry_view){text.data + begin, text.size - begin};
}

static spry_status push_id(spry_tokens *out, spry_view word, spry_error *error)
{
    uint64_t value;
    if (!spry_number_u64(&value, word))
        return spry_fail(error, SPRY_ERR_INPUT, "'%.*s' in the list of ids is not an integer",
                         (int)(word.size < 60 ? word.size : 60), word.data);
    if (value > INT32_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "id %.*s is larger than any vocabulary", SPRY_VIEW_ARG(word));
    if (!spry_tokens_push(out, (int32_t)value))
        return spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for %zu ids", out->count + 1);
    return SPRY_OK;
}

spry_status spry_input_ids(spry_tokens *out, spry_view text, spry_error *error)
{
    text = trim(text);
    if (text.size && text.data[0] == '[') {
        if (text.data[text.size - 1] != ']')
            return spry_fail(error, SPRY_ERR_INPUT, "the list of ids begins with '[' but does not end with ']'");
        text = trim((spry_view){text.data + 1, text.size - 2});
    }
    for (size_t at = 0; at < text.size;) {
        size_t begin = at;
        while (at < text.size && text.data[at] != ',' && !is_space(text.data[at]))
            at++;
        spry_status status = push_id(out, (spry_view){text.data + begin, at - begin}, error);
        if (status != SPRY_OK)
            return status;
        at = skip_space(text, at);
        if (at < text.size && text.data[at] == ',') {
            at = skip_space(text, at + 1);
            if (at == text.size)
                return spry_fail(error, SPRY_ERR_INPUT, "the list of ids ends with a comma");
        }
    }
    return SPRY_OK;
}
