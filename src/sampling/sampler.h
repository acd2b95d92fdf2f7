/* From logits to a token. The order is fixed and documented in docs/SAMPLING.md: penalties (repeat, presence,
 * frequency), logit bias and mask, temperature, top-k, top-p, min-p, typical; then one draw from what is left.
 *
 * A sampler owns its scratch memory, sized for the vocabulary: drawing allocates nothing. */
#ifndef SPRY_SAMPLING_SAMPLER_H
#define SPRY_SAMPLING_SAMPLER_H

#include <stdbool.h>

#include "base/error.h"

enum { SPRY_BIAS_MAX = 1024 };

typedef struct spry_logit_bias {
    int32_t token;
    float bias; /* added to the logit; -INFINITY bans */
} spry_logit_bias;

typedef struct spry_sampling {
    float temperature;       /* 0: greedy, the first of the largest */
    uint32_t top_k;          /* 0: off */
    float top_p;             /* 1: off */
    float min_p;             /* 0: off */
    float typical_p;         /* 1: off */
    float repeat_penalty;    /* 1: off; divides positive logits of seen tokens, multiplies negative ones */
    float presence_penalty;  /* 0: off; subtracted once from seen tokens */
    float frequency_penalty; /* 0: off; subtracted per occurrence */
    uint32_t penalty_window; /* how many last tokens count as seen; 0: all */
    uint64_t seed;
    const spry_logit_bias *bias; /* borrowed, ascending or not */
    size_t n_bias;
} spry_sampling;

typedef struct spry_sampler spry_sampler;

void spry_sampling_default(spry_sampling *settings);
/* Checks ranges; the sentence names the setting and its range. */
spry_status spry_sampling_check(const spry_sampling *settings, size_t n_vocab, spry_error *error);

spry_status spry_sampler_create(spry_sampler **out, size_t n_vocab, spry_error *error);
void spry_sampler_destroy(spry_sampler *sampler);

/* Sets settings (checked, copied; bias borrowed) and restarts the generator from settings->seed. */
spry_status spry_sampler_set(spry_sampler *sampler, const spry_sampling *settings, spry_error *error);

/* Draws. `history`: the tokens penalties look at, oldest first. `mask`: NULL, or n_vocab bits, 1 = allowed (bit i of
 * word i / 32). Fails when nothing is allowed or logits hold a NaN. */
spry_status spry_sampler_draw(spry_sampler *sampler, int32_t *token, const float *logits, const int32_t *history,
                              size_t n_history, const uint32_t *mask, spry_error *error);

/* The distribution the next draw uses: n_vocab probabilities, 0 for what was cut. At temperature 0: 1 for the greedy
 * token. */
spry_status spry_sampler_probabilities(spry_sampler *sampler, float *probabilities, const float *logits,
                                       const int32_t *history, size_t n_history, const uint32_t *mask,
                                       spry_error *error);

/* log softmax of the raw logits at `token`: what APIs call its logprob. */
double spry_logprob(const float *logits, size_t n_vocab, int32_t token);

/* The generator: PCG-XSL-RR 128/64-like quality is not needed; what matters is that the stream is the same everywhere.
 */
typedef struct spry_random {
    uint64_t state[4];
} spry_random;
void spry_random_seed(spry_random *random, uint64_t seed);
uint64_t spry_random_next(spry_random *random);
double spry_random_unit(spry_random *random); /* [0, 1), 53 bits */

#endif
