/* Keys from the terminal, and the signals that matter while waiting for one.
 *
 * Between _begin and _end these signals are blocked except inside the wait for a key, so that none is lost between
 * checking for it and waiting. Ctrl-C is counted by interrupt.h; the others are returned like keys. */
#ifndef SPRY_APPS_KEYBOARD_H
#define SPRY_APPS_KEYBOARD_H

#include <signal.h>
#include <stdint.h>

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

void spry_keyboard_begin(spry_keyboard *keyboard);
void spry_keyboard_end(spry_keyboard *keyboard);

/* Waits for a key. Invalid UTF-8 is returned as U+FFFD. */
spry_key spry_keyboard_read(spry_keyboard *keyboard, uint32_t *character);

#endif
