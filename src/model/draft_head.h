/* Heads that draft: a layer after a model's last one, in the model's files, that predicts the token after the next one
 * from the model's hidden state and the next token (multi-token prediction, MTP). It is computed as a model of one
 * layer whose steps have hidden states as inputs beside their tokens:
 *
 *   x = draft_in * [norm(embedding of token t + 1) | norm(h of token t)];  the layer;  norm;  the model's output matrix
 *
 * where h is the model's state after its last norm, or, for a further draft, the head's own. */
#ifndef SPRY_MODEL_DRAFT_HEAD_H
#define SPRY_MODEL_DRAFT_HEAD_H

#include "model/model.h"

typedef struct spry_draft_head {
    spry_config config; /* with a tap of the state after its norm */
    spry_weights weights;
    spry_arena arena;
} spry_draft_head;

/* Binds the head of a model, which must outlive it; *out is NULL if its files have none. */
spry_status spry_draft_head_open(spry_draft_head **out, const spry_model *model, spry_error *error);
void spry_draft_head_close(spry_draft_head *head);

#endif
