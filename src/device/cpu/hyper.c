/* Hyper-connections (DeepSeek V4): several residual streams. The input of attention or feed-forward is a weighted sum
 * of all; its result is added to each with a weight, and the streams are mixed by a matrix whose rows and columns have
 * the sum 1. The weights depend on the streams of the row. */
#include <math.h>
#include <string.h>

#include "device/cpu/pass_state.h"

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

void spry_pass_hyper_begin(spry_pass *p)
{
    const spry_config *c = p->config;
    size_t n = c->n_embd;
    for (size_t row = 0; row < p->n_rows; row++)
        for (size_t i = 0; i < c->n_hyper; i++)
            memcpy(p->hyper + (row * c->n_hyper + i) * n, p->x + row * n, n * sizeof *p->x);
}

/* Divides the values of a matrix by the sums of their columns, or of their rows. */
static void balance(float *mixes, size_t n, size_t across, size_t along, float eps)
{
    for (size_t i = 0; i < n; i++) {
        float sum = eps;
        for (size_t k = 0; k < n; k++)
            sum += mixes[i * across + k * along];
        for (size_t k = 0; k < n; k++)
            mixes[i * across + k * along] /= sum;
    }
}

/* Makes weights of sums, weights of results and the mixing matrix of products, in place. */
static void make_weights(const spry_pass *p, float *mix, const spry_hyper *h)
{
    const spry_config *c = p->config;
    size_t n = c->n_hyper;
    float *mixes = mix + 2 * n;
    for (size_t i = 0; i < n; i++) {
        mix[i] = sigmoid(mix[i] * h->scale[0] + h->base[i]) + c->hyper_eps;
        mix[n + i] = 2 * sigmoid(mix[n + i] * h->scale[1] + h->base[n + i]);
    }
    for (size_t i = 0; i < n * n; i++)
        mixes[i] = mixes[i] * h->scale[2] + h->base[2 * n + i];
    for (size_t i = 0; i < n; i++) {
        p->ops->softmax(mixes + i * n, n);
        for (size_t k = 0; k < n; k++)
            mixes[i * n + k] += c->hyper_eps;
    }
    balance(mixes, n, 1, n, c->hyper_eps);
    for (uint32_t round = 1; round < c->hyper_rounds; round++) {
        balance(mixes, n, n, 1, c->hyper_eps);
        balance(mixes, n, 1, n, c->hyper_eps);
    }
}

/* x = the sum of the streams of a row, weighted. */
static void join_streams(const spry_pass *p, size_t row, const float *weights)
{
    size_t n = p->config->n_embd;
    memset(p->x + row * n, 0, n * sizeof *p->x);
    for (size_t i = 0; i < p->config->n_hyper; i++)
        p->ops->add_scaled(p->x + row * n, p->hyper + (row * p->config->n_hyper + i) * n, weights[i], n);
}

/* Products of the normalised streams, in p->hyper_mix. */
static void multiply_streams(spry_pass *p, const spry_hyper *h)
{
    const spry_config *c = p->config;
    size_t wide = (size_t)c->n_hyper * c->n_embd;
    spry_pass_norm(p, p->hyper_flat, p->hyper, p->ones, NULL, p->n_rows, wide);
    spry_pass_linear(p, SPRY_OP_ROUTE, p->hyper_mix, h->mix.n_out, &h->mix, p->hyper_flat, p->n_rows);
}

void spry_pass_hyper_take(spry_pass *p, const spry_hyper *h)
{
    multiply_streams(p, h);
    for (size_t row = 0; row < p->n_rows; row++) {
        float *mix = p->hyper_mix + row * h->mix.n_out;
        make_weights(p, mix, h);
        join_streams(p, row, mix);
    }
    spry_pass_charge(p, SPRY_OP_ADD);
}

void spry_pass_hyper_add(spry_pass *p, const spry_hyper *h)
{
    const spry_config *c = p->config;
    size_t n = c->n_embd, count = c->n_hyper;
    for (size_t row = 0; row < p->n_rows; row++) {
        const float *mix = p->hyper_mix + row * h->mix.n_out, *mixes = mix + 2 * count;
        float *streams = p->hyper + row * count * n, *mixed = p->hyper_flat + row * count * n;
        for (size_t k = 0; k < count; k++) {
            memset(mixed + k * n, 0, n * sizeof *mixed);
            p->ops->add_scaled(mixed + k * n, p->y + row * n, mix[count + k], n);
            for (size_t i = 0; i < count; i++)
                p->ops->add_scaled(mixed + k * n, streams + i * n, mixes[i * count + k], n);
        }
        memcpy(streams, mixed, count * n * sizeof *mixed);
    }
    spry_pass_charge(p, SPRY_OP_ADD);
}

void spry_pass_hyper_end(spry_pass *p)
{
    const spry_hyper *h = &p->weights->hyper;
    multiply_streams(p, h);
    for (size_t row = 0; row < p->n_rows; row++) {
        float *mix = p->hyper_mix + row * h->mix.n_out;
        for (size_t i = 0; i < p->config->n_hyper; i++)
            mix[i] = sigmoid(mix[i] * h->scale[0] + h->base[i]) + p->config->hyper_eps;
        join_streams(p, row, mix);
    }
}
