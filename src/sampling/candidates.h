/* The remaining candidate tokens, and the cuts that remove some. Candidates stay in order of token id, so nothing here
 * depends on how a sort treats equals.
 *
 * To draw a token: fill `scores` for the whole vocabulary, then call _start, _temper, _top_k, _weigh, the other cuts,
 * _pick. No cut removes everything, and only typical, the last one, can remove the most probable candidate. After each,
 * `total` is the sum of the remaining weights. */
#ifndef SPRY_SAMPLING_CANDIDATES_H
#define SPRY_SAMPLING_CANDIDATES_H

#include <stddef.h>

#include "base/error.h"
#include "kernels/ops.h"

/* Sums and maxima of a softmax, the same bits on every platform: additions in one written order. Plain loops that a
 * compiler turns into vector code. The exponentials are the kernels' (kernels/weigh.h).
 *
 * Long arrays are handled in blocks, so that a draw can skip through block sums instead of walking every weight. */

enum { SPRY_SOFTMAX_BLOCK = 64 };

static inline size_t spry_softmax_blocks(size_t n)
{
    return n / SPRY_SOFTMAX_BLOCK + (n % SPRY_SOFTMAX_BLOCK != 0);
}

typedef struct spry_candidates {
    const spry_ops *ops;
    size_t n_vocab;
    size_t n;          /* candidates left */
    bool whole;        /* nothing has been removed yet: candidate i is token i, and `ids` is not filled in */
    float max;         /* the largest score */
    double total;      /* sum of the weights */
    float *scores;     /* [n_vocab] logits after penalties, bias and mask; then divided by the temperature */
    double *weights;   /* [n_vocab] exp(score - max) */
    int32_t *ids;      /* [n_vocab] */
    uint32_t *scratch; /* [n_vocab] keys of a ranking; counts of the penalties */
    float *block_max;  /* [blocks] of the scores, while whole */
    double *block_sum; /* [blocks] of the weights */
} spry_candidates;

spry_status spry_candidates_init(spry_candidates *candidates, const spry_ops *ops, size_t n_vocab, spry_error *error);
void spry_candidates_deinit(spry_candidates *candidates);

/* Makes all tokens candidates, after `scores` has been filled. If a score is +INFINITY, only tokens with that score
 * stay. False when every score is -INFINITY. */
bool spry_candidates_start(spry_candidates *candidates);

/* The largest score's token, the lowest id among equals. Only right after _start. */
int32_t spry_candidates_largest(const spry_candidates *candidates);

/* Divides the scores by a temperature above 0. */
void spry_candidates_temper(spry_candidates *candidates, float temperature);

/* Keeps the `k` largest scores, and all scores equal to the k-th; 0: keeps all. Call it before _weigh. */
void spry_candidates_top_k(spry_candidates *candidates, uint32_t k);

/* Fills weights and total. */
void spry_candidates_weigh(spry_candidates *candidates);

/* Keeps the most probable candidates whose probabilities together reach `p`; among equal ones at the border those with
 * the lowest ids. */
void spry_candidates_top_p(spry_candidates *candidates, float p);

/* Keeps candidates with at least `min_p` times the largest probability. */
void spry_candidates_min_p(spry_candidates *candidates, float min_p);

/* Keeps the candidates whose information content is nearest to the entropy, until their probabilities together reach
 * `p`; and all that are as near as the last of them. */
void spry_candidates_typical(spry_candidates *candidates, float p);

/* The index of the candidate at which the running sum of weights passes u * total, with u in [0, 1). Its weight is
 * never 0. */
size_t spry_candidates_pick(const spry_candidates *candidates, double u);

static inline int32_t spry_candidates_id(const spry_candidates *candidates, size_t index)
{
    return candidates->whole ? (int32_t)index : candidates->ids[index];
}

#endif
