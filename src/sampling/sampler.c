/* The sampling pipeline. Logits are copied once into the candidates' scores and stay float32 up to and including
 * temperature, as in the Python implementations used for comparison; from there on everything is double. */
#include "sampling/sampler.h"

#include <math.h>
#include <stdlib.h>

#include "sampling/candidates.h"

struct spry_sampler {
    spry_sampling settings;
    spry_random random;
    spry_candidates candidates;
};

spry_status spry_sampler_create(spry_sampler **out, const spry_ops *ops, size_t n_vocab, spry_error *error)
{
    *out = NULL;
    if (n_vocab == 0 || n_vocab > INT32_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "a vocabulary of %zu tokens cannot be sampled: it must have 1 to %d",
                         n_vocab, INT32_MAX);
    spry_sampler *sampler = malloc(sizeof *sampler);
    if (!sampler)
        return spry_fail_memory(error, "the sampler", sizeof *sampler);
    spry_sampling_default(&sampler->settings);
    spry_random_seed(&sampler->random, sampler->settings.seed);
    spry_status status = spry_candidates_init(&sampler->candidates, ops, n_vocab, error);
    if (status != SPRY_OK) {
        free(sampler);
        return status;
    }
    *out = sampler;
    return SPRY_OK;
}

void spry_sampler_destroy(spry_sampler *sampler)
{
    if (!sampler)
        return;
    spry_candidates_deinit(&sampler->candidates);
    free(sampler);
}

spry_status spry_sampler_set(spry_sampler *sampler, const spry_sampling *settings, spry_error *error)
{
    spry_status status = spry_sampling_check(settings, sampler->candidates.n_vocab, error);
    if (status != SPRY_OK)
        return status;
    sampler->settings = *settings;
    spry_random_seed(&sampler->random, settings->seed);
    return SPRY_OK;
}

/* ---- from logits to scores ------------------------------------------------------------------------------------- */

static spry_status copy_logits(float *scores, const float *logits, size_t n, spry_error *error)
{
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        scores[i] = logits[i];
        bad |= logits[i] != logits[i];
    }
    if (!bad)
        return SPRY_OK;
    size_t first = 0;
    while (!isnan(logits[first]))
        first++;
    return spry_fail(error, SPRY_ERR_INPUT, "the logit of token %zu is not a number", first);
}

static float penalise(const spry_sampling *settings, float score, uint32_t count)
{
    score = score < 0 ? score * settings->repeat_penalty : score / settings->repeat_penalty;
    return score - settings->presence_penalty - (float)count * settings->frequency_penalty;
}

/* `counts` is scratch memory for every token. */
static spry_status apply_penalties(float *scores, uint32_t *counts, size_t n_vocab, const spry_sampling *settings,
                                   const int32_t *history, size_t n_history, spry_error *error)
{
    if (settings->repeat_penalty == 1 && settings->presence_penalty == 0 && settings->frequency_penalty == 0)
        return SPRY_OK;
    if (settings->penalty_window != 0 && settings->penalty_window < n_history) {
        history += n_history - settings->penalty_window;
        n_history = settings->penalty_window;
    }
    for (size_t i = 0; i < n_history; i++) {
        if (history[i] < 0 || (size_t)history[i] >= n_vocab)
            return spry_fail(error, SPRY_ERR_INPUT, "token %d of the history is not in the vocabulary of %zu",
                             history[i], n_vocab);
        counts[history[i]] = 0;
    }
    for (size_t i = 0; i < n_history; i++)
        counts[history[i]] += counts[history[i]] < UINT32_MAX;
    for (size_t i = 0; i < n_history; i++) {
        int32_t token = history[i];
        if (counts[token] == 0)
            continue;
        scores[token] = penalise(settings, scores[token], counts[token]);
        counts[token] = 0; /* once per token */
    }
    return SPRY_OK;
}

static void apply_bias(float *scores, const spry_logit_bias *bias, size_t n_bias)
{
    for (size_t i = 0; i < n_bias; i++) {
        float *score = &scores[bias[i].token];
        *score = bias[i].bias == -INFINITY ? -INFINITY : *score + bias[i].bias; /* a ban wins over a logit of
                                                                                 * +INFINITY */
    }
}

static void apply_mask(float *scores, size_t n_vocab, const uint32_t *mask)
{
    for (size_t start = 0; start < n_vocab; start += 32) {
        uint32_t allowed = mask[start / 32];
        if (allowed == UINT32_MAX)
            continue;
        size_t n = n_vocab - start < 32 ? n_vocab - start : 32;
        for (size_t i = 0; i < n; i++)
            if (!(allowed >> i & 1))
                scores[start + i] = -INFINITY;
    }
}

/* Computes everything up to the temperature: all tokens are candidates, with their final scores. */
static spry_status score(spry_candidates *c, const spry_sampling *settings, const float *logits, const int32_t *history,
                         size_t n_history, const uint32_t *mask, spry_error *error)
{
    spry_status status = copy_logits(c->scores, logits, c->n_vocab, error);
    if (status == SPRY_OK)
        status = apply_penalties(c->scores, c->scratch, c->n_vocab, settings, history, n_history, error);
    if (status != SPRY_OK)
        return status;
    apply_bias(c->scores, settings->bias, settings->n_bias);
    if (mask)
        apply_mask(c->scores, c->n_vocab, mask);
    if (!spry_candidates_start(c))
        return spry_fail(error, SPRY_ERR_INPUT,
                         "no token can be drawn: logits, bias and mask leave none of the %zu tokens above -infinity",
                         c->n_vocab);
    return SPRY_OK;
}

/* ---- from scores to a token ------------------------------------------------------------------------------------ */

static void cut(spry_candidates *c, const spry_sampling *settings)
{
    spry_candidates_temper(c, settings->temperature);
    spry_candidates_top_k(c, settings->top_k);
    spry_candidates_weigh(c);
    spry_candidates_top_p(c, settings->top_p);
    spry_candidates_min_p(c, settings->min_p);
    spry_candidates_typical(c, settings->typical_p);
}

spry_status spry_sample(spry_candidates *c, int32_t *token, const spry_sampling *settings, const float *logits,
                        const int32_t *history, size_t n_history, const uint32_t *mask, double u, spry_error *error)
{
    spry_status status = score(c, settings, logits, history, n_history, mask, error);
    if (status != SPRY_OK)
        return status;
    if (settings->temperature == 0) {
        *token = spry_candidates_largest(c);
        return SPRY_OK;
    }
    cut(c, settings);
    *token = spry_candidates_id(c, spry_candidates_pick(c, u));
    return SPRY_OK;
}

spry_status spry_sampler_draw(spry_sampler *sampler, int32_t *token, const float *logits, const int32_t *history,
                              size_t n_history, const uint32_t *mask, spry_error *error)
{
    spry_random after = sampler->random;
    double u = sampler->settings.temperature == 0 ? 0 : spry_random_unit(&after);
    spry_status status =
        spry_sample(&sampler->candidates, token, &sampler->settings, logits, history, n_history, mask, u, error);
    if (status == SPRY_OK)
        sampler->random = after;
    return status;
}

spry_status spry_sampler_probabilities(spry_sampler *sampler, float *probabilities, const float *logits,
                                       const int32_t *history, size_t n_history, const uint32_t *mask,
                                       spry_error *error)
{
    spry_candidates *c = &sampler->candidates;
    spry_status status = score(c, &sampler->settings, logits, history, n_history, mask, error);
    if (status != SPRY_OK)
        return status;
    for (size_t i = 0; i < c->n_vocab; i++)
        probabilities[i] = 0;
    if (sampler->settings.temperature == 0) {
        probabilities[spry_candidates_largest(c)] = 1;
        return SPRY_OK;
    }
    cut(c, &sampler->settings);
    for (size_t i = 0; i < c->n; i++)
        probabilities[spry_candidates_id(c, i)] = (float)(c->weights[i] / c->total);
    return SPRY_OK;
}
