/* A model's own head as its drafter (model/draft_head.h). It reads along: after each step it takes the hidden states of
 * the rows that were computed, and adds its own keys and values for them, in pages of its own, later and many rows at a
 * time. To draft, it computes the row of the last decided token, then its own drafts one after the other; rows of
 * drafts are forgotten again.
 *
 * It follows one text at a time. Rows whose states it has not seen, because pages were found in the cache, are left
 * out: drafts are then worse, answers are the same. */
#ifndef SPRY_ENGINE_HEAD_H
#define SPRY_ENGINE_HEAD_H

#include "engine/generation.h"
#include "model/draft_head.h"

typedef struct spry_head spry_head;

/* Finds the head of an engine's model, as the option draft_head asks for it, and sets the model's tap; before the
 * device is opened. *out is NULL if there is none. */
spry_status spry_head_find(spry_draft_head **out, struct spry_engine *engine, const char *asked, spry_error *error);

/* Opens the head, which it takes over, after the engine's device. `found` NULL: *out is NULL. */
spry_status spry_head_create(spry_head **out, struct spry_engine *engine, spry_draft_head *found, spry_error *error);
void spry_head_destroy(spry_head *head);

/* Draft only what it is sure of. */
void spry_head_set_precise(spry_head *head, bool precise);

/* As a source of drafts. */
spry_drafter spry_head_drafter(spry_head *head);

#endif
