/* Keys from the terminal, and the signals that matter while one is awaited.
 *
 * Between _begin and _end these signals are held back except inside the wait for a key, so none can slip in between
 * looking for it and waiting. Ctrl-C is counted by interrupt.h; the others are handed out like keys. */
#ifndef SPRY_APPS_KEYBOARD_H
#define SPRY_APPS_KEYBOARD_H

#include <signal.h>
#include <stdint.h>

typedef enum spry_key {
    SPRY_KEY_CHARACTER,
    SPRY_KEY_INTERRUPT, /* Ctrl-C */
    SPRY_KEY_RESIZE,    /* the window has a new size */
    SPRY_KEY_STOP,      /* Ctrl-Z */
    SPRY_KEY_KILL,      /* a signal that asks the program to end */
    SPRY_KEY_END,       /* the terminal went away */
} spry_key;

enum { SPRY_KEYBOARD_SIGNALS = 5 };

typedef struct spry_keyboard {
    struct sigaction actions[SPRY_KEYBOARD_SIGNALS]; /* what _end puts back */
    sigset_t mask;
    int kill_signal; /* of the last SPRY_KEY_KILL */
} spry_keyboard;

void spry_keyboard_begin(spry_keyboard *keyboard);
void spry_keyboard_end(spry_keyboard *keyboard);

/* Waits. Bytes that are no UTF-8 come as U+FFFD. */
spry_key spry_keyboard_read(spry_keyboard *keyboard, uint32_t *character);

#endif
