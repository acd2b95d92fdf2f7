/* Multi-head latent attention. What a token leaves in its page is one vector for all heads, [what rope turns |
 * latents]: the latents are both what keys and what values are made of. Queries are taken into the latents' space
 * before attention and results out of it behind, in prefill as in decode, so that both have the same bits. */
#include <string.h>

#include "device/cpu/pass_state.h"

/* A product of each head with its own matrix: rows of n_heads inputs, `in_step` apart, become rows of outputs. */
typedef struct heads_job {
    const spry_pass *pass;
    const spry_weight *heads;
    const float *in;
    size_t in_stride, in_step;
    float *out;
    size_t out_stride, out_step;
} heads_job;

static void multiply_heads(void *context, size_t begin, size_t end)
{
    const heads_job *job = context;
    for (size_t head = begin; head < end; head++) {
        const spry_weight *w = &job->heads[head];
        const spry_matmul_kernel *kernel = &job->pass->ops->matmul[spry_weight_kernel_type(w)];
        const spry_matmul m = {.out = job->out + head * job->out_step,
                               .out_stride = job->out_stride,
                               .weight = kernel->group ? w->packed : w->data,
                               .weight_stride = kernel->group ? w->group_bytes : w->row_bytes,
                               .act = job->in + head * job->in_step,
                               .act_stride = job->in_stride * sizeof(float),
                               .n_rows = job->pass->n_rows,
                               .n_in = w->n_in};
        kernel->run(&m, 0, w->n_out);
    }
}

typedef struct latent_job {
    spry_pass *pass;
    const spry_layer *layer;
    uint32_t index;
} latent_job;

static const float inner_eps = 1e-6f; /* whatever the model's other norms have */

/* Rope, the latents' norm, and the row into its page. */
static void prepare_rows(void *context, size_t begin, size_t end)
{
    const latent_job *job = context;
    const spry_pass *p = job->pass;
    const spry_config *c = p->config;
    size_t n_pairs = c->rope_dim / 2, each = (size_t)c->nope_dim + c->rope_dim;
    for (size_t row = begin; row < end; row++) {
        float *q = p->q + row * c->n_heads * c->head_dim, *k = p->k + row * c->head_dim;
        const float *raw = p->raw + row * c->n_heads * each, *given = p->v + row * c->head_dim;
        const float *cosine = p->full.cosine + row * n_pairs, *sine = p->full.sine + row * n_pairs;
        for (size_t head = 0; head < c->n_heads; head++)
            memcpy(q + head * c->head_dim, raw + head * each + c->nope_dim, c->rope_dim * sizeof *q);
        memcpy(k, given + c->n_kv_rank, c->rope_dim * sizeof *k);
        p->ops->rms_norm(k + c->rope_dim, given, job->layer->kv_a_norm, c->n_kv_rank, inner_eps);
        p->ops->rope(q, cosine, sine, c->n_heads, c->head_dim, n_pairs, c->interleaved);
        p->ops->rope(k, cosine, sine, 1, c->head_dim, n_pairs, c->interleaved);
        spry_pass_store_row(p, row, job->index);
    }
}

static void inner_norm(spry_pass *p, const float *weight, size_t n)
{
    for (size_t row = 0; row < p->n_rows; row++)
        p->ops->rms_norm(p->low + row * n, p->low + row * n, weight, n, inner_eps);
    spry_pass_charge(p, SPRY_OP_NORM);
}

void spry_pass_latent(spry_pass *p, const spry_layer *l, uint32_t index)
{
    const spry_config *c = p->config;
    size_t each = (size_t)c->nope_dim + c->rope_dim, n_q = c->n_heads * each, wide = (size_t)c->n_heads * c->head_dim;
    latent_job job = {p, l, index};
    const float *in = p->in;
    if (l->q_a.data) {
        spry_pass_linear(p, SPRY_OP_QKV, p->low, c->n_q_rank, &l->q_a, p->in, p->n_rows);
        inner_norm(p, l->q_a_norm, c->n_q_rank);
        in = p->low;
    }
    spry_pass_linear(p, SPRY_OP_QKV, p->raw, n_q, &l->q, in, p->n_rows);
    spry_pass_linear(p, SPRY_OP_QKV, p->v, c->head_dim, &l->k, p->in, p->n_rows);
    heads_job into = {p, l->k_b, p->raw, n_q, each, p->q + c->rope_dim, wide, c->head_dim};
    spry_threads_share(p->threads, multiply_heads, &into, c->n_heads, 1);
    spry_pass_charge(p, SPRY_OP_QKV);
    spry_threads_share(p->threads, prepare_rows, &job, p->n_rows, 1);
    spry_pass_charge(p, SPRY_OP_ROPE);
    spry_pass_attend(p, index);
    size_t n_values = (size_t)c->n_heads * c->value_dim;
    heads_job out_of = {p, l->v_b, p->attn, wide, c->head_dim, p->raw, n_values, c->value_dim};
    spry_threads_share(p->threads, multiply_heads, &out_of, c->n_heads, 1);
    const float *values = spry_pass_join_heads(p, p->raw, c->value_dim);
    spry_pass_linear_whole(p, SPRY_OP_OUT, p->y, c->n_embd, &l->o, values, p->n_rows);
}
