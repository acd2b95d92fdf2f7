/* Files put before a prompt as fragments. */
#ifndef SPRY_APPS_FRAGMENT_FILES_H
#define SPRY_APPS_FRAGMENT_FILES_H

#include "base/buffer.h"
#include "base/options.h"

enum { SPRY_FRAGMENTS_MAX = 64 };

typedef struct spry_fragments {
    spry_span spans[SPRY_FRAGMENTS_MAX];
    size_t count;
} spry_fragments;

/* The ids of a conversation whose user message is the files, each a fragment, followed by `text`. `system` may be
 * NULL. */
spry_status spry_fragments_prompt(spry_tokens *out, spry_fragments *fragments, const spry_engine *engine,
                                  const spry_option_list *files, const char *system, spry_view text, spry_error *error);

/* Parses --span-repair: a number of tokens, or "all". */
spry_status spry_fragments_repair(size_t *repair, const char *text, spry_error *error);

#endif
