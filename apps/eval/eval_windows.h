/* Divides a text into windows of the context size, so that every token is counted once and with enough text before it.
 *
 * Windows have `context` tokens and begin `stride` tokens apart. The first counts all of its tokens but the first; each
 * later one counts its last `stride` tokens, which therefore have at least context - stride tokens before them. If the
 * tokenizer adds a token before every text, every window begins with it. */
#ifndef SPRY_APPS_EVAL_WINDOWS_H
#define SPRY_APPS_EVAL_WINDOWS_H

#include "spry.h"

typedef struct spry_eval_windows {
    int32_t *ids; /* owned: the whole text */
    size_t n_ids;
    bool has_start;  /* ids[0] is added by the tokenizer before every text */
    int32_t *window; /* owned: [context] */
    size_t context, stride;
    bool special;     /* spellings of control tokens became those tokens */
    size_t count;     /* windows */
    size_t n_counted; /* tokens, in all windows */
} spry_eval_windows;

typedef struct spry_eval_window {
    const int32_t *ids;
    size_t n_ids;
    size_t first; /* the first id that counts; at least 1 */
} spry_eval_window;

/* Tokenises the text; `stride` 0 is half of the context; `special`: spellings of control tokens become those tokens. A
 * text of fewer than two tokens is refused. */
spry_status spry_eval_windows_init(spry_eval_windows *windows, const spry_engine *engine, const char *text, size_t size,
                                   size_t stride, bool special, spry_error *error);
void spry_eval_windows_deinit(spry_eval_windows *windows);

/* Window number `index`; its ids are valid until the next call. */
spry_eval_window spry_eval_windows_at(const spry_eval_windows *windows, size_t index);

#endif
