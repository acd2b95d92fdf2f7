/* The most likely tokens of a row of logits. */
#include "engine/top_logprobs.h"

#include "sampling/sampler.h"

size_t spry_top_logprobs(spry_logprob_entry *token, spry_logprob_entry *top, size_t most, int32_t id,
                         const float *logits, size_t n_vocab)
{
    *token = (spry_logprob_entry){id, spry_logprob(logits, n_vocab, id)};
    return most ? spry_logprob_top(top, most, logits, n_vocab, (double)logits[id] - token->logprob) : 0;
}

bool spry_report_token(const spry_request *r, int32_t id, const float *logits, size_t n_vocab)
{
    if (!logits)
        return r->on_token(r->user, (spry_logprob_entry){id, 0}, NULL, 0);
    spry_logprob_entry token, top[SPRY_TOP_LOGPROBS_MAX];
    size_t n_top = spry_top_logprobs(&token, top, r->logprobs, id, logits, n_vocab);
    return r->on_token(r->user, token, top, n_top);
}
