/* The most likely tokens of a row of logits. */
#include "engine/top_logprobs.h"

#include "sampling/sampler.h"

/* The most likely tokens, sorted; the lower id first where equal. */
static size_t top_logprobs(spry_logprob_entry *top, size_t most, const float *logits, size_t n_vocab, double log_sum)
{
    size_t count = 0;
    for (size_t id = 0; id < n_vocab; id++) {
        double logprob = (double)logits[id] - log_sum;
        if (count == most && (!most || logprob <= top[count - 1].logprob))
            continue;
        size_t at = count < most ? count++ : count - 1;
        for (; at > 0 && top[at - 1].logprob < logprob; at--)
            top[at] = top[at - 1];
        top[at] = (spry_logprob_entry){(int32_t)id, logprob};
    }
    return count;
}

bool spry_report_token(const spry_request *r, int32_t id, const float *logits, size_t n_vocab)
{
    if (!logits)
        return r->on_token(r->user, (spry_logprob_entry){id, 0}, NULL, 0);
    spry_logprob_entry top[SPRY_TOP_LOGPROBS_MAX], token = {id, spry_logprob(logits, n_vocab, id)};
    double log_sum = (double)logits[id] - token.logprob;
    size_t n_top = r->logprobs ? top_logprobs(top, r->logprobs, logits, n_vocab, log_sum) : 0;
    return r->on_token(r->user, token, top, n_top);
}
