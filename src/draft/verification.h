/* Decides whether a drafted token is accepted: speculative sampling that preserves the distribution of the answer.
 *
 * Rows are judged one after the other, so that a caller can advance a grammar and handle end tokens between them:
 *
 *     for (i = 0; i <= n_drafted; i++) {
 *         row = {logits of row i, tokens up to and including draft i - 1, mask at that point}
 *         spry_verifier_judge(verifier, &token, &accepted, &row, i < n_drafted ? &draft[i] : NULL, error)
 *         emit token
 *         if (!accepted) break    ... and discard the rows after i
 *     }
 *
 * A deterministic drafter (prompt lookup, a greedy draft model) uses no random numbers: the answer has the same tokens
 * as without drafting, at any temperature and seed. A drafter that samples from its own distribution q changes the use
 * of the random numbers: the same distribution, other tokens. At temperature 0 both give the same tokens as without
 * drafting.
 *
 * The engine's drafters are deterministic, so it compares the device's draws with the drafts (engine/generation.h). A
 * drafter that samples needs this rule, on rows of logits that it asks the device for. */
#ifndef SPRY_DRAFT_VERIFICATION_H
#define SPRY_DRAFT_VERIFICATION_H

#include "sampling/sampler.h"

typedef struct spry_verifier {
    spry_sampler *sampler;
    float *target; /* [n_vocab] the sampler's distribution, then the remainder after a refusal */
} spry_verifier;

typedef struct spry_drafted {
    int32_t token;
    const float *q; /* [n_vocab] the distribution it was sampled from, non-zero at the token; NULL: deterministic */
} spry_drafted;

/* A row of the target model: the inputs of spry_sampler_draw. */
typedef struct spry_target_row {
    const float *logits;
    const int32_t *history;
    size_t n_history;
    const uint32_t *mask; /* or NULL */
} spry_target_row;

/* Borrows the sampler. */
spry_status spry_verifier_init(spry_verifier *verifier, spry_sampler *sampler, spry_error *error);
void spry_verifier_deinit(spry_verifier *verifier);

/* The token at this row: the drafted one (`accepted`) or a replacement. Without a draft it is sampled normally and not
 * accepted. Fails when sampling fails, and when q gives the drafted token probability 0. */
spry_status spry_verifier_judge(spry_verifier *verifier, int32_t *token, bool *accepted, const spry_target_row *row,
                                const spry_drafted *draft, spry_error *error);

#endif
