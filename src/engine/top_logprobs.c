/* The most likely tokens of a row of logits. */
#include "engine/top_logprobs.h"

#include "sampling/sampler.h"

bool spry_report_token(const spry_request *r, int32_t id, const float *logits, size_t n_vocab)
{
    if (!logits)
        return r->on_token(r->user, (spry_logprob_entry){id, 0}, NULL, 0);
    spry_logprob_entry top[SPRY_TOP_LOGPROBS_MAX], token = {id, spry_logprob(logits, n_vocab, id)};
    double log_sum = (double)logits[id] - token.logprob;
    size_t n_top = r->logprobs ? spry_logprob_top(top, r->logprobs, logits, n_vocab, log_sum) : 0;
    return r->on_token(r->user, token, top, n_top);
}
