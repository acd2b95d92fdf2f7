/* How the program talks to people.
 *
 * Answers and data go to standard output through spry_out_*, which keep the first failure until the command ends, so a
 * full disk or a reader who left is noticed once. Everything else goes to standard error as `spry: sentence`, one line,
 * with control characters replaced, because sentences may quote hostile files. Escape sequences are written only to
 * terminals that want colour. */
#ifndef SPRY_APPS_TERMINAL_H
#define SPRY_APPS_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/view.h"

/* What commands return. */
enum {
    SPRY_EXIT_OK = 0,
    SPRY_EXIT_FAILURE = 1,
    SPRY_EXIT_USAGE = 2,
    SPRY_EXIT_INTERRUPTED = 130, /* Ctrl-C */
    SPRY_EXIT_READER_LEFT = 141, /* the pipe behind standard output was closed */
};

typedef enum spry_style { SPRY_STYLE_BOLD, SPRY_STYLE_DIM, SPRY_STYLE_ERROR, SPRY_STYLE_PROMPT } spry_style;

/* The escape sequence that begins or ends a style on `stream`; "" where there must be none. */
const char *spry_style_begin(FILE *stream, spry_style style);
const char *spry_style_end(FILE *stream);

/* Columns of the terminal behind `stream`; 80 when it is none. */
unsigned spry_terminal_width(FILE *stream);

/* Appends valid UTF-8 with control characters replaced by '?'; `keep` lists those that may stay. */
void spry_terminal_defuse(spry_buffer *out, spry_view text, const char *keep);

/* `spry: sentence` on standard error. */
void spry_complain(const char *format, ...) SPRY_PRINTF(1, 2);

/* The error's sentence, and the exit code for it. */
int spry_complain_error(const spry_error *error);

/* ---- standard output --------------------------------------------------------------------------------------------- */

/* Writes; false once any write has failed. Flush what somebody is waiting for. */
bool spry_out_write(const void *data, size_t size);
bool spry_out_format(const char *format, ...) SPRY_PRINTF(1, 2);
bool spry_out_flush(void);

/* As spry_out_format, with what files say among it: control characters other than newline become '?'. */
bool spry_out_quote(const char *format, ...) SPRY_PRINTF(1, 2);

/* Text a model made: as it is into files and pipes, with control characters other than newline and tab shown as '?' on
 * a terminal, which they could otherwise take over. Flushes. */
bool spry_out_answer(spry_view text);

/* Flushes, and turns `code` into the code for what went wrong on standard output, if anything did: a closed pipe is
 * silent, the rest gets its sentence. */
int spry_out_finish(int code);

/* ---- progress ---------------------------------------------------------------------------------------------------- */

/* One line on standard error that is redrawn in place, shown only on a terminal and only after a second. */
typedef struct spry_progress_line {
    const char *what; /* "reading the prompt" */
    uint64_t began_ns, drawn_ns;
    bool shown;
} spry_progress_line;

void spry_progress_begin(spry_progress_line *progress, const char *what);
void spry_progress_update(spry_progress_line *progress, size_t done, size_t total);
void spry_progress_end(spry_progress_line *progress); /* wipes the line; may be called twice */

/* ---- words ------------------------------------------------------------------------------------------------------- */

enum { SPRY_AMOUNT_MAX = 32, SPRY_TIME_TEXT = 24 };

/* "31.4 MB", "1.2 GB" (powers of ten), "29.4M"; written to `out`, which is returned. */
const char *spry_amount_bytes(char out[SPRY_AMOUNT_MAX], size_t bytes);
const char *spry_amount_count(char out[SPRY_AMOUNT_MAX], size_t count);

/* "840 ms", "2.1 s". */
const char *spry_amount_time(char out[SPRY_AMOUNT_MAX], double ms);

/* "2026-11-15T12:00:00Z" of seconds since 1970; "" where there is no such year. */
const char *spry_time_text(char out[SPRY_TIME_TEXT], int64_t seconds);

#endif
