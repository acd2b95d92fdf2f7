/* How far a logit may lie from another computation of it. The bound is computed, not chosen. A sum of n products rounds
 * n times, a walk of about sqrt(n) steps of eps; along the way from embedding to logit these walks add up. Their sum
 * times eps, times the sum of |h * w| that made the logit and what logits are multiplied by. */
#ifndef TESTS_LOGIT_BOUND_H
#define TESTS_LOGIT_BOUND_H

#include <float.h>
#include <math.h>

#include "golden/model_runner.h"

static inline double logit_rounding_steps(const spry_config *c, size_t n_keys)
{
    double n_q = (double)c->n_heads * c->head_dim, ff = c->n_ff > c->n_expert_ff ? c->n_ff : c->n_expert_ff;
    double layer =
        3 * sqrt((double)c->n_embd) + sqrt((double)c->head_dim) + sqrt((double)n_keys) + sqrt(n_q) + sqrt(ff);
    return c->n_layers * layer + sqrt((double)c->n_embd);
}

/* The largest sum of |h * w| over the vocabulary for a row of hidden states; `weights` has room for n_embd. */
static inline double logit_magnitude(const model_runner *r, const float *hidden, float *weights)
{
    const spry_weight *w = &r->model->weights.output;
    double largest = 0;
    for (size_t o = 0; o < w->n_out; o++) {
        double sum = 0;
        r->ops->decode[w->type](weights, w->data + o * w->row_bytes, w->n_in);
        for (size_t i = 0; i < w->n_in; i++)
            sum += fabs((double)weights[i] * (double)hidden[i]);
        largest = sum > largest ? sum : largest;
    }
    return largest;
}

/* Of a row that saw row + 1 keys; `hidden` are all rows, as runner_hidden gives them. */
static inline double logit_bound(const model_runner *r, const float *hidden, size_t row, float *weights)
{
    const spry_config *c = &r->model->config;
    return (double)FLT_EPSILON / 2 * logit_rounding_steps(c, row + 1) * (double)c->logit_scale *
           logit_magnitude(r, hidden + row * c->n_embd, weights);
}

/* Some models amplify what is rounded, which no sum of roundings shows: their recurrent states multiply it, a router
 * chooses by it. The golden says how far its logits moved when all weights were disturbed by 1e-6, and rounding
 * disturbs a sum of n products by a walk of sqrt(n) steps. */
static inline double logit_wobble(const model_runner *r, double wobble)
{
    return wobble * (double)FLT_EPSILON / 2 / 1e-6 * sqrt((double)r->model->config.n_embd);
}

/* What rounding the inputs of products to BF16 adds: each of a layer's seven products, and the last, moves by at most
 * 2^-9 of the sum of its terms' sizes. q and k move scores, the more so where these are scaled by more than the usual
 * root of the head's size. */
static inline double logit_bound_bf16(const model_runner *r, const float *hidden, size_t row, float *weights)
{
    const spry_config *c = &r->model->config;
    double gain = sqrt((double)c->head_dim / (double)c->query_scalar);
    return 0x1p-9 * ((5 + 2 * (gain > 1 ? gain : 1)) * c->n_layers + 1) * (double)c->logit_scale *
           logit_magnitude(r, hidden + row * c->n_embd, weights);
}

#endif
