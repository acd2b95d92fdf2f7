/* Counting bytes and products from the shapes of the weights in use. */
#include <math.h>

#include "bench.h"

/* Bytes of a matrix as the kernels read it. */
static double weight_bytes(const spry_weight *w, const spry_ops *ops)
{
    uint32_t group = ops->matmul[w->type].group;
    if (w->packed && group)
        return (double)w->group_bytes * (double)((w->n_out + group - 1) / group);
    return (double)w->n_out * (double)w->row_bytes;
}

static double weight_products(const spry_weight *w)
{
    return (double)w->n_out * (double)w->n_in;
}

typedef struct tally {
    const spry_ops *ops; /* NULL: only products by type are wanted */
    double bytes, products;
    double by_type[SPRY_DTYPE_COUNT];
} tally;

/* A matrix (or so many alike) that a step reads once and multiplies `times` rows by. */
static void count(tally *t, const spry_weight *w, double alike, double times)
{
    if (!w->data)
        return;
    if (t->ops)
        t->bytes += alike * weight_bytes(w, t->ops);
    t->products += times * weight_products(w);
    t->by_type[w->type] += times * weight_products(w);
}

/* One layer for `rows` rows. */
static void count_layer(tally *t, const spry_layer *l, const spry_config *c, double rows)
{
    const spry_weight *const matrices[] = {&l->q,           &l->k,         &l->v,           &l->o,
                                           &l->gate,        &l->up,        &l->down,        &l->router,
                                           &l->shared_gate, &l->shared_up, &l->shared_down, &l->shared_router};
    for (size_t i = 0; i < SPRY_COUNT(matrices); i++)
        count(t, matrices[i], 1, rows);
    if (!l->expert_gate)
        return;
    double missed = pow(1 - (double)c->n_experts_used / c->n_experts, rows), read = c->n_experts * (1 - missed);
    const spry_weight *const experts[] = {l->expert_gate, l->expert_up, l->expert_down};
    for (size_t i = 0; i < SPRY_COUNT(experts); i++)
        count(t, experts[i], read, rows * c->n_experts_used);
}

static void count_step(tally *t, const spry_model *model, double rows, double logits)
{
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        count_layer(t, &model->weights.layers[i], &model->config, rows);
    if (logits > 0)
        count(t, &model->weights.output, 1, logits);
}

static size_t seen(const spry_config *c, uint32_t layer, size_t keys)
{
    return c->sliding[layer] && keys > c->window ? c->window : keys;
}

/* Attention of the row at a position: scores and the weighted sum, each a product a key and value. */
static double attention_products(const spry_config *c, size_t position)
{
    double keys = 0;
    for (uint32_t i = 0; i < c->n_layers; i++)
        keys += (double)seen(c, i, position + 1);
    return keys * c->n_heads * c->head_dim * 2;
}

/* Bytes of a sequence's keys and values that its next rows read. */
static double attention_bytes(const spry_engine *e, size_t keys)
{
    const spry_config *c = &e->model->config;
    double layers = 0, token = (double)e->pool.page_bytes / SPRY_PAGE_TOKENS / c->n_layers;
    for (uint32_t i = 0; i < c->n_layers; i++)
        layers += (double)seen(c, i, keys);
    return layers * token;
}

spry_bench_work spry_bench_prefill_work(const spry_engine *e, size_t tokens)
{
    tally t = {.ops = e->ops};
    for (size_t done = 0; done < tokens;) {
        size_t part = tokens - done < e->chunk ? tokens - done : e->chunk;
        count_step(&t, e->model, (double)part, done + part == tokens);
        for (size_t i = 0; i < part; i++)
            t.products += attention_products(&e->model->config, done + i);
        t.bytes += attention_bytes(e, done + part);
        done += part;
    }
    return (spry_bench_work){t.bytes, t.products};
}

spry_bench_work spry_bench_decode_work(const spry_engine *e, size_t depth, size_t batch)
{
    tally t = {.ops = e->ops};
    count_step(&t, e->model, (double)batch, (double)batch);
    t.products += (double)batch * attention_products(&e->model->config, depth);
    t.bytes += (double)batch * attention_bytes(e, depth + 1);
    return (spry_bench_work){t.bytes, t.products};
}

spry_dtype spry_bench_main_type(const spry_model *model)
{
    tally t = {0};
    uint32_t best = 0;
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        count_layer(&t, &model->weights.layers[i], &model->config, 1);
    for (uint32_t type = 1; type < SPRY_DTYPE_COUNT; type++)
        if (t.by_type[type] > t.by_type[best])
            best = type;
    return (spry_dtype)best;
}
