/* Gemma 3n: several residual streams (AltUp), inputs that a token gives to each layer, and the low-rank path beside
 * attention (LAuReL). A layer predicts all streams from all streams, computes the active one, and uses its result to
 * correct all. */
#include <math.h>
#include <string.h>

#include "device/cpu/pass_state.h"

static const float half_root = 0.70710678118654752f;
static const float rounded_root = 0.70703125f; /* square root of 1/2 in 16 bits, as in Gemma 3n's reference code */

static float *stream(float *streams, const spry_pass *p, size_t index)
{
    return streams + index * p->limits.max_rows * p->config->n_embd;
}

static float mean_square(const float *x, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum / (float)n;
}

/* Scales every row of `x` to the magnitude of the same row of `like`. */
static void match_magnitude(const spry_pass *p, float *x, const float *like)
{
    size_t n = p->config->n_embd;
    for (size_t row = 0; row < p->n_rows; row++) {
        float own = mean_square(x + row * n, n), target = sqrtf(mean_square(like + row * n, n));
        p->ops->scale(x + row * n, target / sqrtf(own > 1e-5f ? own : 1e-5f), n);
    }
}

/* Computes the inputs that each row's token gives to all layers: from its embedding, and from a table. */
void spry_pass_layer_inputs(spry_pass *p)
{
    const spry_config *c = p->config;
    const spry_weight *table = &p->weights->layer_embedding;
    size_t all = (size_t)c->n_layers * c->n_layer_embd;
    float scale = c->arch->streams ? rounded_root : half_root;
    spry_pass_linear(p, SPRY_OP_EMBED, p->layer_in, all, &p->weights->layer_projection, p->x, p->n_rows);
    for (size_t row = 0; row < p->n_rows; row++) {
        float *in = p->layer_in + row * all;
        size_t token = (size_t)p->tokens[row] < table->n_out ? (size_t)p->tokens[row] : 0;
        p->ops->decode[table->type](p->layer_row, table->data + token * table->row_bytes, all);
        p->ops->scale(in, 1 / sqrtf((float)c->n_embd), all);
        for (size_t at = 0; at < all; at += c->n_layer_embd)
            p->ops->rms_norm(in + at, in + at, p->weights->layer_norm, c->n_layer_embd, c->norm_eps);
        p->ops->add_scaled(in, p->layer_row, sqrtf((float)c->n_layer_embd), all);
        p->ops->scale(in, scale, all);
    }
}

void spry_pass_streams_begin(spry_pass *p)
{
    const spry_config *c = p->config;
    memcpy(p->streams, p->x, p->n_rows * c->n_embd * sizeof(float));
    for (size_t i = 1; i < c->n_streams; i++) {
        float *to = stream(p->streams, p, i);
        spry_pass_linear(p, SPRY_OP_EMBED, to, c->n_embd, &p->weights->stream_in[i - 1], p->x, p->n_rows);
        match_magnitude(p, to, p->x);
    }
    spry_pass_charge(p, SPRY_OP_EMBED);
}

/* The mean of the first stream and of the others, after their projection back. */
void spry_pass_streams_end(spry_pass *p)
{
    const spry_config *c = p->config;
    size_t n = p->n_rows * c->n_embd;
    memcpy(p->x, p->streams, n * sizeof(float));
    for (size_t i = 1; i < c->n_streams; i++) {
        spry_pass_linear(p, SPRY_OP_OUT, p->y, c->n_embd, &p->weights->stream_out[i - 1], stream(p->streams, p, i),
                         p->n_rows);
        match_magnitude(p, p->y, p->streams);
        p->ops->add(p->x, p->y, n);
    }
    p->ops->scale(p->x, 1 / (float)c->n_streams, n);
    spry_pass_charge(p, SPRY_OP_OUT);
}

/* Computes the coefficients by which the streams are mixed, [n_rows, n_streams]. */
static void make_modalities(spry_pass *p, const spry_side *s, const float *x)
{
    const spry_config *c = p->config;
    spry_pass_norm(p, p->y, x, s->router_norm, NULL, p->n_rows, c->n_embd);
    p->ops->scale(p->y, 1 / (float)c->n_embd, p->n_rows * c->n_embd);
    spry_pass_linear(p, SPRY_OP_ROUTE, p->modality, c->n_streams, &s->router, p->y, p->n_rows);
    for (size_t i = 0; i < p->n_rows * c->n_streams; i++)
        p->modality[i] = tanhf(p->modality[i]);
}

static float mixed(const float *weights, const float *modality, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += weights[i] * modality[i];
    return sum;
}

void spry_pass_streams_predict(spry_pass *p, const spry_side *s)
{
    const spry_config *c = p->config;
    size_t streams = c->n_streams, n = c->n_embd;
    make_modalities(p, s, stream(p->streams, p, c->active_stream));
    for (size_t k = 0; k < streams; k++)
        for (size_t row = 0; row < p->n_rows; row++) {
            float *to = stream(p->predicted, p, k) + row * n;
            memcpy(to, stream(p->streams, p, k) + row * n, n * sizeof *to);
            for (size_t j = 0; j < streams; j++)
                p->ops->add_scaled(
                    to, stream(p->streams, p, j) + row * n,
                    mixed(s->predict + (k * streams + j) * streams, p->modality + row * streams, streams), n);
        }
    memcpy(p->x, stream(p->predicted, p, c->active_stream), p->n_rows * n * sizeof *p->x);
    spry_pass_charge(p, SPRY_OP_ADD);
}

void spry_pass_laurel(spry_pass *p, const spry_side *s)
{
    size_t n = p->config->n_embd;
    spry_pass_linear(p, SPRY_OP_OUT, p->low, s->laurel_l.n_out, &s->laurel_l, p->in, p->n_rows);
    spry_pass_linear(p, SPRY_OP_OUT, p->laurel, n, &s->laurel_r, p->low, p->n_rows);
    spry_pass_norm(p, p->laurel, p->laurel, s->laurel_norm, NULL, p->n_rows, n);
    p->ops->add(p->laurel, p->in, p->n_rows * n);
    spry_pass_charge(p, SPRY_OP_ADD);
}

void spry_pass_add_laurel(spry_pass *p)
{
    size_t n = p->n_rows * p->config->n_embd;
    p->ops->add(p->x, p->laurel, n);
    p->ops->scale(p->x, half_root, n);
    spry_pass_charge(p, SPRY_OP_ADD);
}

/* Sets gates below mean + times * standard deviation of the whole row to 0, and subtracts that threshold from the
 * others. */
void spry_pass_sparsify(float *gate, size_t n, const float *row, size_t n_row, float times)
{
    float mean = 0, squares = 0;
    for (size_t i = 0; i < n_row; i++)
        mean += row[i];
    mean /= (float)n_row;
    for (size_t i = 0; i < n_row; i++)
        squares += (row[i] - mean) * (row[i] - mean);
    float least = mean + sqrtf(squares / (float)n_row) * times;
    for (size_t i = 0; i < n; i++)
        gate[i] = gate[i] > least ? gate[i] - least : gate[i] == gate[i] ? 0 : gate[i];
}

void spry_pass_layer_part(spry_pass *p, const spry_side *s, const float *from, uint32_t index)
{
    const spry_config *c = p->config;
    size_t n = c->n_embd, each = c->n_layer_embd, all = (size_t)c->n_layers * each;
    spry_pass_linear(p, SPRY_OP_GATE_UP, p->gate, each, &s->gate, from, p->n_rows);
    for (size_t row = 0; row < p->n_rows; row++)
        p->ops->gate[c->arch->gate](p->gate + row * each, p->gate + row * each, p->layer_in + row * all + index * each,
                                    each);
    spry_pass_linear(p, SPRY_OP_DOWN, p->y, n, &s->proj, p->gate, p->n_rows);
    spry_pass_norm(p, p->y, p->y, s->post_norm, NULL, p->n_rows, n);
}

void spry_pass_streams_correct(spry_pass *p, const spry_side *s, uint32_t index)
{
    const spry_config *c = p->config;
    size_t streams = c->n_streams, n = c->n_embd;
    make_modalities(p, s, p->x);
    const float *active = stream(p->predicted, p, c->active_stream);
    for (size_t i = 0; i < p->n_rows * n; i++)
        p->x[i] -= active[i];
    for (size_t k = 0; k < streams; k++)
        for (size_t row = 0; row < p->n_rows; row++) {
            float *to = stream(p->streams, p, k) + row * n;
            memcpy(to, stream(p->predicted, p, k) + row * n, n * sizeof *to);
            p->ops->add_scaled(to, p->x + row * n,
                               mixed(s->correct + k * streams, p->modality + row * streams, streams) + 1, n);
        }
    active = stream(p->streams, p, c->active_stream);
    for (size_t i = 0; i < p->n_rows * n; i++)
        p->y[i] = active[i] * s->correct_scale[i % n];
    spry_pass_layer_part(p, s, p->y, index); /* added to all streams but the first */
    for (size_t k = 1; k < streams; k++)
        p->ops->add(stream(p->streams, p, k), p->y, p->n_rows * n);
    spry_pass_charge(p, SPRY_OP_ADD);
}
