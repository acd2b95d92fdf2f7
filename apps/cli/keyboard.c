#include "cli/keyboard.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/select.h>
#include <termios.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/utf8.h"
#include "cli/interrupt.h"

/* ---- the terminal's modes ---------------------------------------------------------------------------------------- */

/* Signal handlers need these. The modes change in handlers too, so they are set as a whole. */
static struct termios own_modes, quiet_modes;
static int screen_fd = -1;
static volatile sig_atomic_t in_use, changed;

#define PASTE_ON  "\033[?2004h" /* pasted text comes between marks */
#define PASTE_OFF "\033[?2004l"

static const int watched[] = {SIGWINCH, SIGTSTP, SIGTERM, SIGHUP, SIGQUIT};
static struct sigaction actions_before[SPRY_COUNT(watched)];

static void write_mark(const char *mark)
{
    ssize_t ignored = write(screen_fd, mark, strlen(mark));
    (void)ignored; /* a closed terminal shows itself when it is read */
}

static void take_terminal(void)
{
    tcsetattr(STDIN_FILENO, TCSANOW, &quiet_modes);
    write_mark(PASTE_ON);
    in_use = 1;
}

static void give_terminal_back(void)
{
    if (in_use) {
        write_mark(PASTE_OFF);
        tcsetattr(STDIN_FILENO, TCSANOW, &own_modes);
    }
    in_use = 0;
}

static void on_resize(int number)
{
    (void)number;
    changed = 1;
}

/* Ctrl-Z: stops the program as it would without a handler. */
static void on_stop(int number)
{
    int before = errno;
    (void)number;
    bool was_in_use = in_use;
    give_terminal_back();
    raise(SIGSTOP);
    if (was_in_use)
        take_terminal();
    changed = 1;
    errno = before;
}

/* The signal is blocked here and ends the program when the handler returns. */
static void on_end(int number)
{
    give_terminal_back();
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_signals(void)
{
    for (size_t i = 0; i < SPRY_COUNT(watched); i++) {
        struct sigaction action = {.sa_handler = watched[i] == SIGWINCH  ? on_resize
                                                 : watched[i] == SIGTSTP ? on_stop
                                                                         : on_end};
        sigfillset(&action.sa_mask);
        action.sa_flags = watched[i] == SIGWINCH || watched[i] == SIGTSTP ? SA_RESTART : 0;
        sigaction(watched[i], &action, &actions_before[i]);
    }
}

enum { INPUT_BYTES_MAX = 32 << 20, PASTE_BYTES_MAX = 16 << 20 };

void spry_keyboard_open(spry_keyboard *keyboard, int screen, bool plain)
{
    *keyboard = (spry_keyboard){.plain = plain};
    spry_buffer_init(&keyboard->bytes, INPUT_BYTES_MAX);
    spry_buffer_init(&keyboard->paste, PASTE_BYTES_MAX);
    if (plain || tcgetattr(STDIN_FILENO, &own_modes) != 0)
        return;
    screen_fd = screen;
    quiet_modes = own_modes;
    quiet_modes.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    quiet_modes.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IXON | ISTRIP);
    quiet_modes.c_cc[VMIN] = 1;
    quiet_modes.c_cc[VTIME] = 0;
    watch_signals();
    take_terminal();
}

void spry_keyboard_release(const spry_keyboard *keyboard, bool release)
{
    if (release)
        give_terminal_back();
    else if (!keyboard->plain)
        take_terminal();
}

void spry_keyboard_close(spry_keyboard *keyboard)
{
    give_terminal_back();
    if (screen_fd >= 0)
        for (size_t i = 0; i < SPRY_COUNT(watched); i++)
            sigaction(watched[i], &actions_before[i], NULL);
    screen_fd = -1;
    spry_buffer_deinit(&keyboard->bytes);
    spry_buffer_deinit(&keyboard->paste);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* A lone Escape and the first byte of a sequence are told apart by what follows within this time. */
enum { ESCAPE_NS = 50000000, CHUNK = 4096 };

typedef enum input { INPUT_READ, INPUT_NONE, INPUT_INTERRUPTED, INPUT_CHANGED, INPUT_CLOSED } input;

/* Waits for bytes and appends them. Signals are unblocked only while it waits, so that none is missed before. */
static input more_bytes(spry_keyboard *keyboard, const struct timespec *limit)
{
    sigset_t held, before;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGWINCH);
    sigaddset(&held, SIGTSTP);
    sigprocmask(SIG_BLOCK, &held, &before);
    input result = INPUT_READ;
    fd_set keys;
    FD_ZERO(&keys);
    FD_SET(STDIN_FILENO, &keys);
    int ready = 0;
    if (!changed && !spry_interrupt_seen())
        ready = pselect(STDIN_FILENO + 1, &keys, NULL, NULL, limit, &before);
    if (spry_interrupt_seen())
        result = INPUT_INTERRUPTED;
    else if (changed)
        result = INPUT_CHANGED;
    else if (ready == 0 || (ready < 0 && errno == EINTR))
        result = INPUT_NONE;
    else if (ready < 0)
        result = INPUT_CLOSED;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (result != INPUT_READ)
        return result;
    char chunk[CHUNK];
    ssize_t got = read(STDIN_FILENO, chunk, sizeof chunk);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return INPUT_NONE;
    return got > 0 && spry_buffer_append(&keyboard->bytes, chunk, (size_t)got) ? INPUT_READ : INPUT_CLOSED;
}

/* Whether there are `count` bytes, or come soon. */
static bool has_bytes(spry_keyboard *keyboard, size_t count)
{
    const struct timespec soon = {0, ESCAPE_NS};
    while (keyboard->bytes.size < count)
        if (more_bytes(keyboard, &soon) != INPUT_READ)
            return false;
    return true;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static const spry_key control_keys[] = {
    [1] = SPRY_KEY_HOME,          [2] = SPRY_KEY_LEFT,      [3] = SPRY_KEY_INTERRUPT,   [4] = SPRY_KEY_END_OF_INPUT,
    [5] = SPRY_KEY_END,           [6] = SPRY_KEY_RIGHT,     [7] = SPRY_KEY_CANCEL,      [8] = SPRY_KEY_BACKSPACE,
    [9] = SPRY_KEY_TAB,           [10] = SPRY_KEY_ENTER,    [11] = SPRY_KEY_CUT_TO_END, [12] = SPRY_KEY_CLEAR,
    [13] = SPRY_KEY_ENTER,        [14] = SPRY_KEY_NEXT,     [16] = SPRY_KEY_PREVIOUS,   [18] = SPRY_KEY_SEARCH,
    [21] = SPRY_KEY_CUT_TO_BEGIN, [23] = SPRY_KEY_CUT_WORD, [25] = SPRY_KEY_YANK,
};

/* What follows "Escape [" or "Escape O". */
static const struct sequence {
    const char *text;
    spry_key key;
} sequences[] = {
    {"A", SPRY_KEY_UP},
    {"B", SPRY_KEY_DOWN},
    {"C", SPRY_KEY_RIGHT},
    {"D", SPRY_KEY_LEFT},
    {"H", SPRY_KEY_HOME},
    {"F", SPRY_KEY_END},
    {"1~", SPRY_KEY_HOME},
    {"7~", SPRY_KEY_HOME},
    {"4~", SPRY_KEY_END},
    {"8~", SPRY_KEY_END},
    {"3~", SPRY_KEY_DELETE},
    {"200~", SPRY_KEY_PASTE},
    {"1;5C", SPRY_KEY_WORD_RIGHT},
    {"1;5D", SPRY_KEY_WORD_LEFT},
    {"1;3C", SPRY_KEY_WORD_RIGHT},
    {"1;3D", SPRY_KEY_WORD_LEFT},
    {"13;2u", SPRY_KEY_NEWLINE},
};

/* Keys with Alt. */
static const struct alt_key {
    char byte;
    spry_key key;
} alt_keys[] = {
    {'b', SPRY_KEY_WORD_LEFT}, {'f', SPRY_KEY_WORD_RIGHT}, {'d', SPRY_KEY_CUT_NEXT_WORD},
    {'\r', SPRY_KEY_NEWLINE},  {'\n', SPRY_KEY_NEWLINE},   {127, SPRY_KEY_CUT_WORD},
};

/* Appends text that came from outside: valid, with lines ended by newlines. */
static void append_pasted(spry_buffer *out, spry_view text)
{
    size_t begin = out->size;
    spry_utf8_append_valid(out, text);
    size_t end = begin;
    for (size_t i = begin; i < out->size; i++) {
        char byte = out->data[i];
        if (byte == '\r' && i + 1 < out->size && out->data[i + 1] == '\n')
            continue;
        if (byte)
            out->data[end++] = byte == '\r' ? '\n' : byte;
    }
    out->size = end;
    if (out->data)
        out->data[end] = '\0';
}

/* Reads up to the mark that ends a paste. */
static spry_key read_paste(spry_keyboard *keyboard)
{
    static const char end[] = "\033[201~";
    enum { END = sizeof end - 1 };
    spry_buffer_clear(&keyboard->paste);
    size_t searched = 0;
    for (;;) {
        spry_view bytes = spry_buffer_view(&keyboard->bytes);
        const char *found = NULL;
        for (size_t i = searched; !found && i + END <= bytes.size; i++) {
            const char *at = memchr(bytes.data + i, end[0], bytes.size - END + 1 - i);
            i = at ? (size_t)(at - bytes.data) : bytes.size;
            found = at && memcmp(at, end, END) == 0 ? at : NULL;
        }
        if (found) {
            size_t size = (size_t)(found - bytes.data);
            if (!keyboard->paste.failed)
                append_pasted(&keyboard->paste, (spry_view){bytes.data, size});
            spry_buffer_consume(&keyboard->bytes, size + END);
            return SPRY_KEY_PASTE;
        }
        searched = bytes.size > END ? bytes.size - END : 0;
        if (bytes.size > PASTE_BYTES_MAX) { /* the rest is read until the mark, and dropped */
            keyboard->paste.failed = true;
            spry_buffer_consume(&keyboard->bytes, searched);
            searched = 0;
        }
        switch (more_bytes(keyboard, NULL)) {
        case INPUT_INTERRUPTED: spry_buffer_clear(&keyboard->bytes); return SPRY_KEY_INTERRUPT;
        case INPUT_CLOSED: return SPRY_KEY_CLOSED;
        default: break; /* another size is drawn after the paste */
        }
    }
}

/* After Escape, which is used. */
static spry_key read_sequence(spry_keyboard *keyboard)
{
    if (!has_bytes(keyboard, 1))
        return SPRY_KEY_CANCEL;
    const char first = keyboard->bytes.data[0];
    if (first != '[' && first != 'O') {
        for (size_t i = 0; i < SPRY_COUNT(alt_keys); i++) {
            if (alt_keys[i].byte == first) {
                spry_buffer_consume(&keyboard->bytes, 1);
                return alt_keys[i].key;
            }
        }
        return SPRY_KEY_CANCEL; /* Escape; the byte is the next key */
    }
    enum { LONGEST = 32 };
    size_t size = 1;
    while (size < LONGEST && has_bytes(keyboard, size + 1)) {
        const char byte = keyboard->bytes.data[size++];
        if (byte >= '@' && byte <= '~')
            break;
    }
    spry_view text = {keyboard->bytes.data + 1, size - 1};
    spry_key key = SPRY_KEY_NONE;
    for (size_t i = 0; i < SPRY_COUNT(sequences); i++)
        if (spry_view_is(text, sequences[i].text))
            key = sequences[i].key;
    spry_buffer_consume(&keyboard->bytes, size);
    return key == SPRY_KEY_PASTE ? read_paste(keyboard) : key;
}

static spry_key read_character(spry_keyboard *keyboard)
{
    enum { REPLACEMENT = 0xFFFD };
    const spry_buffer *bytes = &keyboard->bytes;
    while (spry_utf8_incomplete_tail(bytes->data, bytes->size < 4 ? bytes->size : 4) == bytes->size &&
           has_bytes(keyboard, bytes->size + 1))
        ;
    size_t size = spry_utf8_decode(&keyboard->character, bytes->data, bytes->size);
    if (size == 0) {
        keyboard->character = REPLACEMENT;
        size = 1;
    }
    spry_buffer_consume(&keyboard->bytes, size);
    return SPRY_KEY_CHARACTER;
}

bool spry_keyboard_pending(const spry_keyboard *keyboard)
{
    fd_set keys;
    FD_ZERO(&keys);
    FD_SET(STDIN_FILENO, &keys);
    struct timeval none = {0};
    return keyboard->bytes.size || (!changed && select(STDIN_FILENO + 1, &keys, NULL, NULL, &none) > 0);
}

spry_key spry_keyboard_read(spry_keyboard *keyboard)
{
    while (!keyboard->bytes.size) {
        switch (more_bytes(keyboard, NULL)) {
        case INPUT_INTERRUPTED: return SPRY_KEY_INTERRUPT;
        case INPUT_CHANGED: changed = 0; return SPRY_KEY_REDRAW;
        case INPUT_CLOSED: return SPRY_KEY_CLOSED;
        case INPUT_READ:
        case INPUT_NONE: break;
        }
    }
    const unsigned char first = (unsigned char)keyboard->bytes.data[0];
    if (first >= ' ' && first != 127)
        return read_character(keyboard);
    spry_buffer_consume(&keyboard->bytes, 1);
    if (first == 27)
        return read_sequence(keyboard);
    return first == 127 ? SPRY_KEY_BACKSPACE : first < SPRY_COUNT(control_keys) ? control_keys[first] : SPRY_KEY_NONE;
}
