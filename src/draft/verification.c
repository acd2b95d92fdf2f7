/* A token x drawn from q is accepted with probability min(1, p(x) / q(x)); otherwise a token is drawn from
 * max(0, p - q), scaled to sum to 1. The result is distributed as p (Leviathan et al., Chen et al., both 2023).
 *
 * Where q gives one token probability 1, this becomes: accept with probability p(x), else draw from p without x.
 * Drawing from p and comparing does the same with one random number instead of two, the same one as a plain draw. */
#include "draft/verification.h"

#include <stdlib.h>

spry_status spry_verifier_init(spry_verifier *verifier, spry_sampler *sampler, spry_error *error)
{
    size_t n_vocab = spry_sampler_vocab(sampler);
    *verifier = (spry_verifier){.sampler = sampler, .target = calloc(n_vocab, sizeof(float))};
    return verifier->target ? SPRY_OK : spry_fail_memory(error, "the verification of drafts", n_vocab * sizeof(float));
}

void spry_verifier_deinit(spry_verifier *verifier)
{
    free(verifier->target);
    *verifier = (spry_verifier){0};
}

/* Replaces p with max(0, p - q). False when the result is 0 everywhere, which rounding can cause where p and q are
 * equal. */
static bool subtract(float *p, const float *q, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        float rest = p[i] > q[i] ? p[i] - q[i] : 0;
        any |= rest > 0;
        p[i] = rest;
    }
    return any;
}

static spry_status judge_drawn(spry_verifier *v, int32_t *token, bool *accepted, const spry_target_row *row,
                               const spry_drafted *draft, spry_error *error)
{
    size_t n_vocab = spry_sampler_vocab(v->sampler), x = (size_t)draft->token;
    if (draft->token < 0 || x >= n_vocab || !(draft->q[x] > 0))
        return spry_fail(error, SPRY_ERR_INPUT, "the drafted token %d cannot come from the distribution given with it",
                         draft->token);
    spry_status status =
        spry_sampler_probabilities(v->sampler, v->target, row->logits, row->history, row->n_history, row->mask, error);
    if (status)
        return status;
    *accepted = spry_sampler_unit(v->sampler) * (double)draft->q[x] < (double)v->target[x];
    if (*accepted) {
        *token = draft->token;
        return SPRY_OK;
    }
    if (subtract(v->target, draft->q, n_vocab))
        return spry_sampler_draw_weighted(v->sampler, token, v->target, error);
    return spry_sampler_draw(v->sampler, token, row->logits, row->history, row->n_history, row->mask, error);
}

spry_status spry_verifier_judge(spry_verifier *v, int32_t *token, bool *accepted, const spry_target_row *row,
                                const spry_drafted *draft, spry_error *error)
{
    *accepted = false;
    if (draft && draft->q && !spry_sampler_greedy(v->sampler))
        return judge_drawn(v, token, accepted, row, draft, error);
    spry_status status =
        spry_sampler_draw(v->sampler, token, row->logits, row->history, row->n_history, row->mask, error);
    *accepted = !status && draft && *token == draft->token;
    return status;
}
