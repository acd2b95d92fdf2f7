/* Keys of a terminal.
 *
 * While a keyboard is open the terminal neither echoes nor collects lines, so that what is typed during an answer waits
 * for the next prompt. Ctrl-C and Ctrl-Z remain signals; Ctrl-C is a key while a key is read. The terminal's own modes
 * return when the keyboard is closed, when a signal ends the program, and while it is stopped. */
#ifndef SPRY_CLI_KEYBOARD_H
#define SPRY_CLI_KEYBOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

typedef enum spry_key {
    SPRY_KEY_NONE, /* a sequence that means nothing here */
    SPRY_KEY_CHARACTER,
    SPRY_KEY_PASTE,
    SPRY_KEY_ENTER,
    SPRY_KEY_NEWLINE, /* Alt-Enter */
    SPRY_KEY_TAB,
    SPRY_KEY_LEFT,
    SPRY_KEY_RIGHT,
    SPRY_KEY_UP,
    SPRY_KEY_DOWN,
    SPRY_KEY_PREVIOUS, /* Ctrl-P: of the history, in any row */
    SPRY_KEY_NEXT,
    SPRY_KEY_HOME,
    SPRY_KEY_END,
    SPRY_KEY_WORD_LEFT,
    SPRY_KEY_WORD_RIGHT,
    SPRY_KEY_BACKSPACE,
    SPRY_KEY_DELETE,
    SPRY_KEY_CUT_WORD,      /* Ctrl-W */
    SPRY_KEY_CUT_NEXT_WORD, /* Alt-D */
    SPRY_KEY_CUT_TO_BEGIN,  /* Ctrl-U */
    SPRY_KEY_CUT_TO_END,    /* Ctrl-K */
    SPRY_KEY_YANK,          /* Ctrl-Y */
    SPRY_KEY_SEARCH,        /* Ctrl-R */
    SPRY_KEY_CANCEL,        /* Ctrl-G, Escape */
    SPRY_KEY_CLEAR,         /* Ctrl-L */
    SPRY_KEY_INTERRUPT,     /* Ctrl-C */
    SPRY_KEY_END_OF_INPUT,  /* Ctrl-D */
    SPRY_KEY_REDRAW,        /* the terminal has another size, or the program was continued after Ctrl-Z */
    SPRY_KEY_CLOSED,        /* there is no terminal any more */
} spry_key;

/* One per program. `screen`: descriptor of the terminal that is written to. `plain`: it knows no escape sequences, and
 * the terminal itself edits lines. */
typedef struct spry_keyboard {
    uint32_t character; /* the character of SPRY_KEY_CHARACTER */
    spry_buffer paste; /* the text of SPRY_KEY_PASTE: valid UTF-8, lines end with \n, no zero bytes; failed: too long */
    spry_buffer bytes; /* read and not used yet */
    bool plain;
} spry_keyboard;

void spry_keyboard_open(spry_keyboard *keyboard, int screen, bool plain);
void spry_keyboard_close(spry_keyboard *keyboard);

/* Gives the terminal its own modes, or takes it again. */
void spry_keyboard_release(const spry_keyboard *keyboard, bool release);

/* Waits for a key. */
spry_key spry_keyboard_read(spry_keyboard *keyboard);

/* Whether a key is there already. */
bool spry_keyboard_pending(const spry_keyboard *keyboard);

#endif
