/* The chat's prompt, with libedit's own interface (histedit.h). libedit measures characters with the C library's
 * functions, so the character type must be UTF-8 in every locale. */
#include "cli/line_editor.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/utf8.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "platform/file.h"

typedef enum spry_key {
    SPRY_KEY_CHARACTER,
    SPRY_KEY_INTERRUPT, /* Ctrl-C */
    SPRY_KEY_RESIZE,    /* the window size changed */
    SPRY_KEY_STOP,      /* Ctrl-Z */
    SPRY_KEY_KILL,      /* a signal to end the program */
    SPRY_KEY_END,       /* the terminal was closed */
} spry_key;

enum { SPRY_KEYBOARD_SIGNALS = 5 };

typedef struct spry_keyboard {
    struct sigaction actions[SPRY_KEYBOARD_SIGNALS]; /* restored by _end */
    sigset_t mask;
    int kill_signal; /* of the last SPRY_KEY_KILL */
} spry_keyboard;

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* pselect unblocks signals only while it waits. */

enum { REPLACEMENT = 0xFFFD };

static const int watched[SPRY_KEYBOARD_SIGNALS] = {SIGWINCH, SIGTSTP, SIGTERM, SIGHUP, SIGQUIT};

static volatile sig_atomic_t resized, stopped, killed;

static void on_signal(int number)
{
    if (number == SIGWINCH)
        resized = 1;
    else if (number == SIGTSTP)
        stopped = 1;
    else
        killed = number;
}

static void keyboard_begin(spry_keyboard *keyboard)
{
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    for (size_t i = 0; i < SPRY_COUNT(watched); i++)
        sigaddset(&held, watched[i]);
    sigprocmask(SIG_BLOCK, &held, &keyboard->mask);
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < SPRY_COUNT(watched); i++)
        sigaction(watched[i], &action, &keyboard->actions[i]);
}

static void keyboard_end(spry_keyboard *keyboard)
{
    for (size_t i = 0; i < SPRY_COUNT(watched); i++)
        sigaction(watched[i], &keyboard->actions[i], NULL);
    sigprocmask(SIG_SETMASK, &keyboard->mask, NULL);
}

/* Consumes a pending signal, if any. */
static bool take_signal(spry_keyboard *keyboard, spry_key *key)
{
    if (killed) {
        keyboard->kill_signal = killed;
        killed = 0;
        *key = SPRY_KEY_KILL;
    } else if (spry_interrupt_seen()) {
        *key = SPRY_KEY_INTERRUPT;
    } else if (stopped) {
        stopped = 0;
        *key = SPRY_KEY_STOP;
    } else if (resized) {
        resized = 0;
        *key = SPRY_KEY_RESIZE;
    } else {
        return false;
    }
    return true;
}

/* One byte, or the reason why there is none. */
static spry_key read_byte(spry_keyboard *keyboard, char *byte)
{
    spry_key key;
    while (!take_signal(keyboard, &key)) {
        fd_set keys;
        FD_ZERO(&keys);
        FD_SET(STDIN_FILENO, &keys);
        if (pselect(STDIN_FILENO + 1, &keys, NULL, NULL, NULL, &keyboard->mask) < 0) {
            if (errno != EINTR)
                return SPRY_KEY_END;
            continue;
        }
        ssize_t got = read(STDIN_FILENO, byte, 1);
        if (got == 1)
            return SPRY_KEY_CHARACTER;
        if (got == 0 || (errno != EINTR && errno != EAGAIN))
            return SPRY_KEY_END;
    }
    return key;
}

/* Waits for a key. Invalid UTF-8 is returned as U+FFFD. */
static spry_key keyboard_read(spry_keyboard *keyboard, uint32_t *character)
{
    char bytes[4];
    for (size_t count = 0; count < sizeof bytes;) {
        spry_key key = read_byte(keyboard, &bytes[count]);
        if (key != SPRY_KEY_CHARACTER)
            return key;
        count++;
        if (spry_utf8_decode(character, bytes, count) == count)
            return SPRY_KEY_CHARACTER;
        if (spry_utf8_incomplete_tail(bytes, count) != count)
            break;
    }
    *character = REPLACEMENT;
    return SPRY_KEY_CHARACTER;
}

/* ---- the editor -------------------------------------------------------------------------------------------------- */

enum { HISTORY_LINES = 1000, HISTORY_BYTES_MAX = 4 << 20, PROMPT_BYTES = 40 };

/* Marks the parts of a prompt that take no columns. */
enum { INVISIBLE = '\1' };

struct spry_line_editor {
    EditLine *edit;
    History *history;
    char *history_path; /* NULL: not stored */
    char first_prompt[PROMPT_BYTES], next_prompt[PROMPT_BYTES];
    bool continued; /* the current line continues an earlier one */
    spry_keyboard keyboard;
    bool interrupted; /* why the last line ended without text */
};

static spry_line_editor *editor_of(EditLine *edit)
{
    void *data = NULL;
    el_get(edit, EL_CLIENTDATA, &data);
    return data;
}

static char *prompt_of(EditLine *edit)
{
    spry_line_editor *editor = editor_of(edit);
    return editor->continued ? editor->next_prompt : editor->first_prompt;
}

static void write_prompt(char out[PROMPT_BYTES], FILE *stream, const char *text)
{
    const char *begin = spry_style_begin(stream, SPRY_STYLE_PROMPT), *end = spry_style_end(stream);
    if (begin[0])
        snprintf(out, PROMPT_BYTES, "%c%s%c%s%c%s%c", INVISIBLE, begin, INVISIBLE, text, INVISIBLE, end, INVISIBLE);
    else
        snprintf(out, PROMPT_BYTES, "%s", text);
}

static void use_utf8(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

/* ---- history ----------------------------------------------------------------------------------------------------- */

static void load_history(spry_line_editor *editor)
{
    struct stat facts;
    HistEvent event;
    if (stat(editor->history_path, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size <= HISTORY_BYTES_MAX)
        history(editor->history, &event, H_LOAD, editor->history_path);
}

/* Creates the parent folders of a file; failures show when the file is opened. */
static void make_parents(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
}

static void save_history(spry_line_editor *editor)
{
    spry_error error;
    spry_file_writer writer;
    HistEvent event;
    make_parents(editor->history_path);
    spry_status status = spry_file_writer_open(&writer, editor->history_path, &error);
    if (status == SPRY_OK) {
        fchmod(fileno(writer.file), S_IRUSR | S_IWUSR);
        if (history(editor->history, &event, H_SAVE_FP, writer.file) >= 0) {
            status = spry_file_writer_commit(&writer, &error);
        } else {
            status = spry_fail(&error, SPRY_ERR_FILE, "%s: cannot write", editor->history_path);
            spry_file_writer_abandon(&writer);
        }
    }
    if (status != SPRY_OK)
        spry_complain("the history was not saved: %s", error.message);
}

static void remember(spry_line_editor *editor, const char *line)
{
    HistEvent event;
    if (line[strspn(line, " \t\n")] != 0)
        history(editor->history, &event, H_ENTER, line);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* Stops the program like Ctrl-Z elsewhere, with the terminal restored; returns when it is continued. */
static void stop(EditLine *edit)
{
    el_set(edit, EL_PREP_TERM, 0);
    kill(getpid(), SIGSTOP);
    el_set(edit, EL_PREP_TERM, 1);
    el_set(edit, EL_REFRESH);
}

/* Ends the program by the received signal after restoring the terminal and saving the history. */
static void end_by_signal(spry_line_editor *editor)
{
    int number = editor->keyboard.kill_signal;
    el_set(editor->edit, EL_PREP_TERM, 0);
    if (editor->history_path)
        save_history(editor);
    keyboard_end(&editor->keyboard);
    raise(number);
}

/* libedit's callback for a key: 1 and the key, or 0 at the end of input. */
static int next_key(EditLine *edit, wchar_t *key)
{
    spry_line_editor *editor = editor_of(edit);
    for (;;) {
        uint32_t character = 0;
        switch (keyboard_read(&editor->keyboard, &character)) {
        case SPRY_KEY_CHARACTER: *key = (wchar_t)character; return 1;
        case SPRY_KEY_INTERRUPT: editor->interrupted = true; return 0;
        case SPRY_KEY_END: return 0;
        case SPRY_KEY_STOP: stop(edit); break;
        case SPRY_KEY_KILL: end_by_signal(editor); return 0;
        case SPRY_KEY_RESIZE:
            el_resize(edit);
            el_set(edit, EL_REFRESH);
            break;
        }
    }
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static bool start(spry_line_editor *editor)
{
    FILE *screen = isatty(STDOUT_FILENO) ? stdout : stderr;
    HistEvent event;
    write_prompt(editor->first_prompt, screen, "> ");
    write_prompt(editor->next_prompt, screen, ". ");
    editor->edit = el_init("spry", stdin, screen, stderr);
    editor->history = history_init();
    if (!editor->edit || !editor->history)
        return false;
    el_set(editor->edit, EL_CLIENTDATA, (void *)editor);
    el_set(editor->edit, EL_PROMPT_ESC, prompt_of, INVISIBLE);
    el_set(editor->edit, EL_EDITOR, "emacs");
    el_set(editor->edit, EL_SIGNAL, 0);
    el_set(editor->edit, EL_GETCFN, next_key);
    history(editor->history, &event, H_SETSIZE, HISTORY_LINES);
    history(editor->history, &event, H_SETUNIQUE, 1);
    el_set(editor->edit, EL_HIST, history, editor->history);
    el_set(editor->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    /* Ctrl-D typed during an answer arrives as a zero byte: the terminal took it for an end of file. */
    el_set(editor->edit, EL_BIND, "^@", "em-delete-or-list", NULL);
    el_source(editor->edit, NULL);
    return true;
}

spry_status spry_line_editor_create(spry_line_editor **out, const char *history_path, spry_error *error)
{
    use_utf8();
    spry_line_editor *editor = calloc(1, sizeof *editor);
    if (!editor)
        return spry_fail_memory(error, "the line editor", sizeof *editor);
    if (!start(editor) || (history_path && !(editor->history_path = strdup(history_path)))) {
        spry_line_editor_destroy(editor);
        return spry_fail(error, SPRY_ERR_MEMORY, "the line editor cannot start on this terminal");
    }
    if (editor->history_path)
        load_history(editor);
    *out = editor;
    return SPRY_OK;
}

void spry_line_editor_destroy(spry_line_editor *editor)
{
    if (!editor)
        return;
    if (editor->history_path)
        save_history(editor);
    if (editor->edit)
        el_end(editor->edit);
    if (editor->history)
        history_end(editor->history);
    free(editor->history_path);
    free(editor);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Appends one line without its newline; *more: it ended in a backslash, which is removed. */
static spry_line read_line(spry_line_editor *editor, spry_buffer *text, bool *more)
{
    int length = 0;
    editor->interrupted = false;
    keyboard_begin(&editor->keyboard);
    el_set(editor->edit, EL_PREP_TERM, 1); /* before the prompt is shown, so that typed-ahead input is not lost */
    const char *line = el_gets(editor->edit, &length);
    keyboard_end(&editor->keyboard);
    if (editor->interrupted) {
        spry_interrupt_clear();
        return SPRY_LINE_INTERRUPTED;
    }
    if (!line || length <= 0)
        return SPRY_LINE_END;
    remember(editor, line);
    spry_view view = {line, (size_t)length};
    while (view.size && (view.data[view.size - 1] == '\n' || view.data[view.size - 1] == '\r'))
        view.size--;
    *more = spry_view_ends(view, SPRY_VIEW("\\"));
    if (*more)
        view.size--;
    spry_utf8_append_valid(text, view);
    return SPRY_LINE_TEXT;
}

spry_line spry_line_editor_read(spry_line_editor *editor, spry_buffer *text)
{
    bool more = false;
    spry_buffer_clear(text);
    editor->continued = false;
    do {
        if (editor->continued)
            spry_buffer_append(text, "\n", 1);
        spry_line line = read_line(editor, text, &more);
        if (line != SPRY_LINE_TEXT)
            return line;
        editor->continued = true;
    } while (more);
    return SPRY_LINE_TEXT;
}
