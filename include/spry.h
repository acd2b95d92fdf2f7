/* spry: a local language-model engine. This is the only public header.
 *
 * An *engine* is one model, loaded once, with its KV memory. A *session* is one conversation on it: the caller hands
 * over the whole token prefix each time and the session decides what it can reuse. Functions that can fail return a
 * spry_status and, when `error` is not NULL, leave one sentence there. The library never prints and never exits. */
#ifndef SPRY_H
#define SPRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SPRY_API __attribute__((visibility("default")))
#else
#define SPRY_API
#endif

/* ---- status ---------------------------------------------------------------------------------------------------- */

typedef enum spry_status {
    SPRY_OK = 0,
    SPRY_ERR_INPUT,       /* an argument, option or prompt is wrong */
    SPRY_ERR_FILE,        /* a file cannot be opened, read or written */
    SPRY_ERR_FORMAT,      /* a file is corrupt, or not what it claims to be */
    SPRY_ERR_UNSUPPORTED, /* well formed, but nothing this version knows */
    SPRY_ERR_MEMORY,      /* not enough memory */
    SPRY_ERR_CONTEXT,     /* the tokens do not fit the context */
    SPRY_ERR_CANCELLED,   /* the caller asked to stop */
} spry_status;

enum { SPRY_ERROR_MAX = 512 };

typedef struct spry_error {
    spry_status status;
    char message[SPRY_ERROR_MAX]; /* one sentence, no newline */
} spry_error;

SPRY_API const char *spry_status_name(spry_status status);
SPRY_API const char *spry_version(void);

#ifdef __cplusplus
}
#endif
#endif
