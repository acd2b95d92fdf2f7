/* Whether a drafted token stays: speculative sampling that leaves the distribution of the answer exactly as it is.
 *
 * Rows are judged one after the other, so that a caller can move a grammar along and hear of end tokens between them:
 *
 *     for (i = 0; i <= n_drafted; i++) {
 *         row = {logits of row i, tokens up to and including draft i - 1, mask at that point}
 *         spry_verifier_judge(verifier, &token, &accepted, &row, i < n_drafted ? &draft[i] : NULL, error)
 *         hand out token
 *         if (!accepted) break    ... and forget the rows after i
 *     }
 *
 * A drafter that names one token without chance (prompt lookup, a greedy draft model) draws nothing: then the answer
 * has the same tokens as without drafting, at any temperature and for every seed. A drafter that draws from its own
 * distribution q changes which numbers of the generator go where: the same distribution, other tokens. At temperature
 * 0 both give the same tokens as without drafting. */
#ifndef SPRY_DRAFT_VERIFICATION_H
#define SPRY_DRAFT_VERIFICATION_H

#include "sampling/sampler.h"

typedef struct spry_verifier {
    spry_sampler *sampler;
    float *target; /* [n_vocab] what the sampler would draw from, then what is left of it */
} spry_verifier;

typedef struct spry_drafted {
    int32_t token;
    const float *q; /* [n_vocab] the distribution it was drawn from, its own above 0; NULL: not drawn */
} spry_drafted;

/* A row of the target model: what spry_sampler_draw takes. */
typedef struct spry_target_row {
    const float *logits;
    const int32_t *history;
    size_t n_history;
    const uint32_t *mask; /* or NULL */
} spry_target_row;

/* Borrows the sampler. */
spry_status spry_verifier_init(spry_verifier *verifier, spry_sampler *sampler, spry_error *error);
void spry_verifier_deinit(spry_verifier *verifier);

/* The token at this row: the drafted one (`accepted`), or one in its place. Without a draft it is drawn as always, and
 * is not accepted. Fails as a draw does, and when q denies the token it is said to have given. */
spry_status spry_verifier_judge(spry_verifier *verifier, int32_t *token, bool *accepted, const spry_target_row *row,
                                const spry_drafted *draft, spry_error *error);

#endif
