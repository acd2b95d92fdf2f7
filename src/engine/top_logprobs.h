/* Log probabilities of tokens. */
#ifndef SPRY_ENGINE_TOP_LOGPROBS_H
#define SPRY_ENGINE_TOP_LOGPROBS_H

#include "spry.h"

/* The log probability of `id`, and up to `most` of the likeliest tokens in top[], sorted; returns how many. */
size_t spry_top_logprobs(spry_logprob_entry *token, spry_logprob_entry *top, size_t most, int32_t id,
                         const float *logits, size_t n_vocab);

/* Calls request->on_token for a token and returns its result. `logits` NULL: the token was not sampled and has
 * probability 1. */
bool spry_report_token(const spry_request *request, int32_t id, const float *logits, size_t n_vocab);

#endif
