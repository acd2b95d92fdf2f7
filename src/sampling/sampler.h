/* From logits to a token. The order is fixed and documented in docs/SAMPLING.md: penalties (repeat, presence,
 * frequency), logit bias and mask, temperature, top-k, top-p, min-p, typical; then one draw from what is left.
 *
 * A sampler owns its scratch memory, sized for the vocabulary: drawing allocates nothing. */
#ifndef SPRY_SAMPLING_SAMPLER_H
#define SPRY_SAMPLING_SAMPLER_H

#include <stdbool.h>

#include "base/error.h"
#include "base/number.h"
#include "base/sampling_options.h"
#include "sampling/candidates.h"

typedef struct spry_sampler spry_sampler;

/* A sampler with default settings. It draws the same tokens with every table of kernels. */
spry_status spry_sampler_create(spry_sampler **out, const spry_ops *ops, size_t n_vocab, spry_error *error);
void spry_sampler_destroy(spry_sampler *sampler);

/* Sets settings (checked, copied; bias borrowed until the next _set) and restarts the generator from settings->seed. */
spry_status spry_sampler_set(spry_sampler *sampler, const spry_sampling *settings, spry_error *error);

/* Draws one token. `u`, in [0, 1), decides where chance does; at temperature 0 it plays no part. `scratch` is of this
 * vocabulary; `settings` have been checked. Otherwise as spry_sampler_draw. */
spry_status spry_sample(spry_candidates *scratch, int32_t *token, const spry_sampling *settings, const float *logits,
                        const int32_t *history, size_t n_history, const uint32_t *mask, double u, spry_error *error);

/* Draws. `history`: the tokens penalties look at, oldest first. `mask`: NULL, or n_vocab bits, 1 = allowed (bit i % 32
 * of word i / 32). Fails when nothing is allowed, when logits hold a NaN, or when a token of the history that counts is
 * not in the vocabulary. Takes one number from the generator, none at temperature 0 or on failure. */
spry_status spry_sampler_draw(spry_sampler *sampler, int32_t *token, const float *logits, const int32_t *history,
                              size_t n_history, const uint32_t *mask, spry_error *error);

/* The distribution the next draw uses: n_vocab probabilities, 0 for what was cut. At temperature 0: 1 for the greedy
 * token. */
spry_status spry_sampler_probabilities(spry_sampler *sampler, float *probabilities, const float *logits,
                                       const int32_t *history, size_t n_history, const uint32_t *mask,
                                       spry_error *error);

/* log softmax of the raw logits (no NaN among them) at `token`: what APIs call its logprob. -INFINITY for a token that
 * cannot occur. */
double spry_logprob(const float *logits, size_t n_vocab, int32_t token);

/* The most likely of all tokens, at most `most`, sorted, the lower id first where equal; returns how many. `log_sum`:
 * log of the sum of the logits' exponentials, which is a token's logit less its logprob. */
size_t spry_logprob_top(spry_logprob_entry *top, size_t most, const float *logits, size_t n_vocab, double log_sum);

#endif
