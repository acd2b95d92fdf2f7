/* The block every architecture runs. What an architecture lacks is a NULL in its layer: biases, q/k norms, norms after
 * a part, experts. Work is handed to threads by outputs, by rows or by heads, never by parts of a sum. */
#include <math.h>

#include "model/pass_state.h"

typedef struct linear_job {
    spry_matmul matmul;
    const spry_weight *w;
    const spry_matmul_kernel *kernel;
    void (*encode)(void *out, const float *in, size_t n);
    const float *in;
    unsigned char *act;
} linear_job;

enum { OUTPUT_GRAIN = 16 };

static void linear_part(void *context, size_t worker, size_t n_workers)
{
    const linear_job *job = context;
    size_t begin, end;
    spry_threads_part(&begin, &end, job->w->n_out, OUTPUT_GRAIN, worker, n_workers);
    if (begin == end)
        return;
    job->kernel->run(&job->matmul, begin, end);
    for (size_t row = 0; job->w->bias && row < job->matmul.n_rows; row++)
        for (size_t o = begin; o < end; o++)
            job->matmul.out[row * job->matmul.out_stride + o] += job->w->bias[o];
}

static void encode_part(void *context, size_t worker, size_t n_workers)
{
    const linear_job *job = context;
    size_t begin, end;
    spry_threads_part(&begin, &end, job->matmul.n_rows, 1, worker, n_workers);
    for (size_t row = begin; row < end; row++)
        job->encode(job->act + row * job->matmul.act_stride, job->in + row * job->w->n_in, job->w->n_in);
}

void spry_pass_linear(spry_pass *p, float *out, size_t out_stride, const spry_weight *w, const float *in, size_t n_rows)
{
    const spry_matmul_kernel *kernel = &p->ops->matmul[w->type];
    linear_job job = {.w = w, .kernel = kernel, .encode = p->ops->encode[kernel->act], .in = in, .act = p->act};
    job.matmul = (spry_matmul){.out = out,
                               .out_stride = out_stride,
                               .weight = w->data,
                               .weight_stride = w->row_bytes,
                               .act = in,
                               .n_rows = n_rows,
                               .n_in = w->n_in};
    spry_dtype_size(&job.matmul.act_stride, kernel->act, w->n_in);
    if (kernel->act != SPRY_F32) {
        job.matmul.act = p->act;
        spry_threads_run(p->threads, encode_part, &job);
    }
    spry_threads_run(p->threads, linear_part, &job);
}

typedef struct norm_job {
    const spry_pass *pass;
    float *out;
    const float *in, *weight;
    size_t n_rows, n;
} norm_job;

static void norm_part(void *context, size_t worker, size_t n_workers)
{
    const norm_job *job = context;
    size_t begin, end;
    spry_threads_part(&begin, &end, job->n_rows, 1, worker, n_workers);
    for (size_t row = begin; row < end; row++)
        job->pass->ops->rms_norm(job->out + row * job->n, job->in + row * job->n, job->weight, job->n,
                                 job->pass->config->norm_eps);
}

/* Rows are so small that one of them is not worth waking anybody. */
static void run_rows(spry_pass *p, spry_threads_fn part, void *job, size_t n_rows)
{
    if (n_rows > 1)
        spry_threads_run(p->threads, part, job);
    else
        part(job, 0, 1);
}

void spry_pass_norm(spry_pass *p, float *out, const float *in, const float *weight, size_t n_rows, size_t n)
{
    norm_job job = {p, out, in, weight, n_rows, n};
    run_rows(p, norm_part, &job, n_rows);
}

typedef struct layer_job {
    spry_pass *pass;
    const spry_layer *layer;
    uint32_t index;
} layer_job;

static void store_heads(const spry_pass *p, unsigned char *slot, const float *in)
{
    const spry_kv_pool *pool = p->pool;
    for (size_t head = 0; head < pool->shape.n_kv_heads; head++)
        p->ops->encode[pool->shape.type](slot + head * pool->head_bytes, in + head * pool->shape.head_dim,
                                         pool->shape.head_dim);
}

/* q/k norms, rope, and keys and values into their pages. */
static void prepare_part(void *context, size_t worker, size_t n_workers)
{
    const layer_job *job = context;
    const spry_pass *p = job->pass;
    const spry_config *c = p->config;
    const spry_angles *angles = c->sliding[job->index] ? &p->sliding : &p->full;
    size_t n_pairs = c->rope_dim / 2, begin, end;
    spry_threads_part(&begin, &end, p->n_rows, 1, worker, n_workers);
    for (size_t row = begin; row < end; row++) {
        float *q = p->q + row * c->n_heads * c->head_dim, *k = p->k + row * c->n_kv_heads * c->head_dim;
        for (size_t head = 0; job->layer->q_norm && head < c->n_heads; head++)
            p->ops->rms_norm(q + head * c->head_dim, q + head * c->head_dim, job->layer->q_norm, c->head_dim,
                             c->norm_eps);
        for (size_t head = 0; job->layer->k_norm && head < c->n_kv_heads; head++)
            p->ops->rms_norm(k + head * c->head_dim, k + head * c->head_dim, job->layer->k_norm, c->head_dim,
                             c->norm_eps);
        const float *cosine = angles->cosine + row * n_pairs, *sine = angles->sine + row * n_pairs;
        p->ops->rope(q, cosine, sine, c->n_heads, c->head_dim, n_pairs, c->interleaved);
        p->ops->rope(k, cosine, sine, c->n_kv_heads, c->head_dim, n_pairs, c->interleaved);
        store_heads(p, p->slots[row] + spry_kv_offset(p->pool, job->index, 0), k);
        store_heads(p, p->slots[row] + spry_kv_offset(p->pool, job->index, 1),
                    p->v + row * c->n_kv_heads * c->head_dim);
    }
}

/* Items are (segment, key/value head) pairs, dealt round. */
static void attend_part(void *context, size_t worker, size_t n_workers)
{
    const layer_job *job = context;
    const spry_pass *p = job->pass;
    const spry_config *c = p->config;
    size_t stride = (size_t)c->n_heads * c->head_dim, row = 0, item = 0;
    for (size_t s = 0; s < p->n_segments; s++) {
        const spry_segment *g = &p->segments[s];
        spry_attend a = {.out = p->attn + row * stride,
                         .query = p->q + row * stride,
                         .row_stride = stride,
                         .n_rows = g->n_rows,
                         .first_position = g->first_position,
                         .window = c->sliding[job->index] ? c->window : 0,
                         .head_dim = c->head_dim,
                         .group = c->n_heads / c->n_kv_heads,
                         .scale = 1 / sqrtf(c->query_scalar),
                         .softcap = c->attn_softcap,
                         .type = p->pool->shape.type,
                         .pages = p->pool->pages,
                         .page_bytes = p->pool->page_bytes,
                         .key_offset = spry_kv_offset(p->pool, job->index, 0),
                         .value_offset = spry_kv_offset(p->pool, job->index, 1),
                         .head_bytes = p->pool->head_bytes,
                         .token_bytes = p->pool->token_bytes,
                         .entries = g->table->entries,
                         .n_entries = g->table->n_entries};
        for (size_t head = 0; head < c->n_kv_heads; head++, item++)
            if (item % n_workers == worker)
                p->ops->attend(&a, head);
        row += g->n_rows;
    }
}

/* y = attention of h */
static void attention(spry_pass *p, const spry_layer *l, uint32_t index)
{
    const spry_config *c = p->config;
    size_t n_q = (size_t)c->n_heads * c->head_dim, n_kv = (size_t)c->n_kv_heads * c->head_dim;
    layer_job job = {p, l, index};
    spry_pass_linear(p, p->q, n_q, &l->q, p->h, p->n_rows);
    spry_pass_linear(p, p->k, n_kv, &l->k, p->h, p->n_rows);
    spry_pass_linear(p, p->v, n_kv, &l->v, p->h, p->n_rows);
    run_rows(p, prepare_part, &job, p->n_rows);
    spry_threads_run(p->threads, attend_part, &job);
    spry_pass_linear(p, p->y, c->n_embd, &l->o, p->attn, p->n_rows);
}

typedef struct gate_job {
    const spry_pass *pass;
    size_t n_rows, n;
} gate_job;

static void gate_part(void *context, size_t worker, size_t n_workers)
{
    const gate_job *job = context;
    const spry_pass *p = job->pass;
    size_t begin, end;
    spry_threads_part(&begin, &end, job->n_rows, 1, worker, n_workers);
    for (size_t row = begin; row < end; row++) {
        float *gate = p->gate + row * job->n;
        p->ops->gate[p->config->arch->gate](gate, gate, p->up + row * job->n, job->n);
    }
}

void spry_pass_gated(spry_pass *p, float *out, const spry_weight *gate, const spry_weight *up, const spry_weight *down,
                     const float *in, size_t n_rows)
{
    gate_job job = {p, n_rows, gate->n_out};
    spry_pass_linear(p, p->gate, gate->n_out, gate, in, n_rows);
    spry_pass_linear(p, p->up, gate->n_out, up, in, n_rows);
    run_rows(p, gate_part, &job, n_rows);
    spry_pass_linear(p, out, p->config->n_embd, down, p->gate, n_rows);
}

/* x += y, normalised first where the architecture says so */
static void add_part(spry_pass *p, const float *post_norm)
{
    size_t n = p->config->n_embd;
    if (post_norm)
        spry_pass_norm(p, p->y, p->y, post_norm, p->n_rows, n);
    p->ops->add(p->x, p->y, p->n_rows * n);
}

void spry_pass_block(spry_pass *p, uint32_t index)
{
    const spry_layer *l = &p->weights->layers[index];
    size_t n = p->config->n_embd;
    spry_pass_norm(p, p->h, p->x, l->attn_norm, p->n_rows, n);
    attention(p, l, index);
    add_part(p, l->attn_post_norm);
    spry_pass_norm(p, p->h, p->x, l->ffn_norm, p->n_rows, n);
    if (l->router.data)
        spry_pass_experts(p, l);
    else
        spry_pass_gated(p, p->y, &l->gate, &l->up, &l->down, p->h, p->n_rows);
    add_part(p, l->ffn_post_norm);
}
