/* From logits to a token. The order is fixed and documented in docs/SAMPLING.md: penalties (repeat, presence,
 * frequency), logit bias and mask, temperature, top-k, top-p, min-p, typical; then one draw from the tokens that are
 * left.
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

/* Draws one token. `u`, in [0, 1), is the random number; it is not used at temperature 0. `scratch` is for this
 * vocabulary; `settings` have been checked. Otherwise like spry_sampler_draw. */
spry_status spry_sample(spry_candidates *scratch, int32_t *token, const spry_sampling *settings, const float *logits,
                        const int32_t *history, size_t n_history, const uint32_t *mask, double u, spry_error *error);

/* Draws a token. `history`: the tokens that penalties count, oldest first. `mask`: NULL, or n_vocab bits, 1 = allowed
 * (bit i % 32 of word i / 32). Fails when no token is allowed, when a logit is NaN, or when a counted token of the
 * history is not in the vocabulary. Takes one number from the generator, or none at temperature 0 or on failure. */
spry_status spry_sampler_draw(spry_sampler *sampler, int32_t *token, const float *logits, const int32_t *history,
                              size_t n_history, const uint32_t *mask, spry_error *error);

/* Computes the distribution of the next draw: n_vocab probabilities, 0 for removed tokens. At temperature 0: 1 for the
 * greedy token. */
spry_status spry_sampler_probabilities(spry_sampler *sampler, float *probabilities, const float *logits,
                                       const int32_t *history, size_t n_history, const uint32_t *mask,
                                       spry_error *error);

/* log softmax of the raw logits at `token` (no logit is NaN); this is what APIs call its logprob. -INFINITY for a token
 * with probability 0. */
double spry_logprob(const float *logits, size_t n_vocab, int32_t token);

/* The most likely tokens, at most `most`, sorted, the lower id first among equals; returns their number. `log_sum`:
 * logarithm of the sum of the logits' exponentials: a token's logprob is its logit minus this. */
size_t spry_logprob_top(spry_logprob_entry *top, size_t most, const float *logits, size_t n_vocab, double log_sum);

#endif
