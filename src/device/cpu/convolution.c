/* Short convolutions: of the input come B, C and x, a row each; what is convolved over a few tokens is B * x, and C
 * weighs the result. B * x of every token is kept in its page, in the layer's places for keys and values, head by head,
 * and always read from there: what a row gives has the same bits whether its predecessors came with it or earlier. */
#include "device/cpu/pass_state.h"
#include "kernels/kv_layout.h"

typedef struct conv_job {
    spry_pass *pass;
    const spry_layer *layer;
    uint32_t slot;
} conv_job;

/* Where piece `piece` of a token's vector lies; *key: as a key. */
static unsigned char *place(const conv_job *job, unsigned char *page, size_t token, size_t piece, bool *key)
{
    const spry_kv_pool *pool = job->pass->pool;
    size_t heads = pool->shape.n_kv_heads, side = piece / heads % 2;
    unsigned char *at =
        page + spry_kv_offset(pool, job->slot + piece / heads / 2, side) + piece % heads * pool->head_bytes;
    *key = side == 0;
    return *key ? at : at + token * pool->token_bytes;
}

static void store_rows(void *context, size_t begin, size_t end)
{
    const conv_job *job = context;
    const spry_pass *p = job->pass;
    size_t n = p->config->n_embd, dim = p->config->head_dim;
    for (size_t row = begin; row < end; row++) {
        float *b = p->conv + row * 3 * n;
        const float *x = b + 2 * n;
        for (size_t i = 0; i < n; i++)
            b[i] *= x[i];
        for (size_t piece = 0; piece < n / dim; piece++) {
            bool key;
            const spry_slot *slot = &p->slots[row];
            unsigned char *at = place(job, slot->page, slot->token, piece, &key);
            if (key)
                spry_kv_store_key(p->ops, p->pool->shape.type, at, slot->token, b + piece * dim, dim);
            else
                p->ops->encode[p->pool->shape.type](at, b + piece * dim, dim);
        }
    }
}

/* Adds one token's piece, weighed: `weight` of the first coordinate, n_conv apart. */
static void add_token(const conv_job *job, float *sum, const spry_segment *g, size_t position, size_t piece,
                      const float *weight)
{
    const spry_pass *p = job->pass;
    float values[SPRY_MAX_HEAD_DIM];
    size_t dim = p->config->head_dim;
    const spry_kv_entry *entry = spry_kv_table_find(g->table, position);
    size_t token = position - entry->start;
    bool key;
    const unsigned char *at = place(job, spry_host_page(p->pages, entry->page), token, piece, &key);
    if (key)
        spry_kv_load_key(p->pool->shape.type, values, at, token, dim);
    else
        p->ops->decode[p->pool->shape.type](values, at, dim);
    for (size_t i = 0; i < dim; i++)
        sum[i] += weight[i * p->config->n_conv] * values[i];
}

static void convolve_row(const conv_job *job, const spry_segment *g, size_t row, size_t position)
{
    const spry_pass *p = job->pass;
    size_t n = p->config->n_embd, dim = p->config->head_dim, reach = p->config->n_conv;
    const float *c = p->conv + row * 3 * n + n;
    for (size_t piece = 0; piece < n / dim; piece++) {
        float sum[SPRY_MAX_HEAD_DIM];
        for (size_t i = 0; i < dim; i++)
            sum[i] = 0;
        for (size_t k = 0; k < reach; k++) /* before the first token there is nothing */
            if (position + k + 1 >= reach)
                add_token(job, sum, g, position + k + 1 - reach, piece, job->layer->conv + piece * dim * reach + k);
        for (size_t i = 0; i < dim; i++) {
            size_t at = piece * dim + i;
            p->h[row * n + at] = c[at] * (sum[i] + (job->layer->conv_bias ? job->layer->conv_bias[at] : 0));
        }
    }
}

static void convolve_rows(void *context, size_t begin, size_t end)
{
    const conv_job *job = context;
    const spry_pass *p = job->pass;
    size_t row = 0;
    for (size_t s = 0; s < p->n_segments; s++)
        for (uint32_t i = 0; i < p->segments[s].n_rows; i++, row++)
            if (row >= begin && row < end)
                convolve_row(job, &p->segments[s], row, p->positions[row]);
}

void spry_pass_convolution(spry_pass *p, const spry_layer *l, uint32_t index)
{
    size_t n = p->config->n_embd;
    conv_job job = {p, l, p->config->kv_slot[index]};
    spry_pass_linear(p, SPRY_OP_QKV, p->conv, 3 * n, &l->conv_in, p->in, p->n_rows);
    spry_threads_share(p->threads, store_rows, &job, p->n_rows, 1);
    spry_threads_share(p->threads, convolve_rows, &job, p->n_rows, 1);
    spry_pass_charge(p, SPRY_OP_ATTEND);
    spry_pass_linear(p, SPRY_OP_OUT, p->y, n, &l->conv_out, p->h, p->n_rows);
}
