/* pselect unblocks signals only while it waits. */
#include "cli/keyboard.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/select.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/utf8.h"
#include "cli/interrupt.h"

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

void spry_keyboard_begin(spry_keyboard *keyboard)
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

void spry_keyboard_end(spry_keyboard *keyboard)
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

spry_key spry_keyboard_read(spry_keyboard *keyboard, uint32_t *character)
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
