/* The block of all architectures. Biases, norms or experts that an architecture lacks are NULL in its layers. Work is
 * split among threads by outputs, rows or heads, never by parts of a sum. */
#include <math.h>
#include <string.h>

#include "device/cpu/packing.h"
#include "device/cpu/pass_state.h"
#include "kernels/kv_layout.h"

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* Mixture of experts. Rows are grouped by expert, so that each selected expert is read once and the others are not
 * read. A row's contributions are added in ascending order of expert, independent of other rows. */

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* Removes all but the best groups from the choice. With a sigmoid a group is rated by its best two experts, otherwise
 * usually by its best one. Removed experts are never selected with a sigmoid, whose values may be negative, and get the
 * value 0 otherwise, as in the models' original code. */
static void choose_groups(const spry_config *c, float *choice)
{
    uint32_t size = c->n_experts / c->n_groups;
    bool kept[SPRY_MAX_EXPERTS] = {0};
    for (uint32_t used = 0; used < c->n_groups_used; used++) {
        uint32_t best = c->n_groups;
        float most = 0;
        for (uint32_t g = 0; g < c->n_groups; g++) {
            float first = -INFINITY, second = -INFINITY;
            for (uint32_t i = g * size; i < (g + 1) * size; i++) {
                second = choice[i] > first ? first : choice[i] > second ? choice[i] : second;
                first = choice[i] > first ? choice[i] : first;
            }
            float good = c->routing == SPRY_ROUTING_SIGMOID || c->arch->groups_by_two ? first + second : first;
            if (!kept[g] && (best == c->n_groups || good > most)) {
                best = g;
                most = good;
            }
        }
        kept[best] = true;
    }
    for (uint32_t i = 0; i < c->n_experts; i++)
        choice[i] = kept[i / size] ? choice[i] : c->routing == SPRY_ROUTING_SIGMOID ? -INFINITY : 0;
}

/* Computes the values by which experts are selected. */
static void make_choice(const spry_pass *p, float *score, const float *bias)
{
    const spry_config *c = p->config;
    if (c->routing == SPRY_ROUTING_SIGMOID)
        for (uint32_t e = 0; e < c->n_experts; e++)
            score[e] = sigmoid(score[e]);
    else if (c->routing == SPRY_ROUTING_ROOT)
        for (uint32_t e = 0; e < c->n_experts; e++)
            score[e] = sqrtf(score[e] > 20 ? score[e] : log1pf(expf(score[e])));
    else
        p->ops->softmax(score, c->n_experts);
    for (uint32_t e = 0; e < c->n_experts; e++)
        p->choice[e] = bias ? score[e] + bias[e] : score[e];
    if (c->n_groups > 1)
        choose_groups(c, p->choice);
}

/* Selects the experts that the row's token has, sorted by id. An expert that it has twice counts twice. */
static void choose_by_token(const spry_pass *p, size_t row, const spry_layer *l)
{
    const spry_config *c = p->config;
    const int32_t *experts = l->token_experts + (size_t)p->tokens[row] * c->n_experts_used;
    uint32_t *chosen = p->chosen + row * c->n_experts_used;
    float *weight = p->chosen_weight + row * c->n_experts_used, *score = p->router + row * c->n_experts, sum = 0;
    make_choice(p, score, NULL);
    for (uint32_t i = 0; i < c->n_experts_used; i++) {
        uint32_t at = i, expert = (uint32_t)experts[i];
        for (; at > 0 && chosen[at - 1] > expert; at--)
            chosen[at] = chosen[at - 1];
        chosen[at] = expert;
    }
    for (uint32_t i = 0; i < c->n_experts_used; i++) {
        weight[i] = score[chosen[i]];
        sum += weight[i];
    }
    for (uint32_t i = 0; i < c->n_experts_used; i++)
        weight[i] *= c->routed_scale / (c->normalise_experts ? sum + c->weight_eps : 1);
    for (uint32_t i = 0; i + 1 < c->n_experts_used; i++) /* rows take an expert once, by its first place */
        for (uint32_t k = i + 1; k < c->n_experts_used && chosen[k] == chosen[i]; k++) {
            weight[i] += weight[k];
            weight[k] = 0;
        }
}

/* Selects the experts with the largest values (the lower id on ties), then sorts them by id. */
static void choose(const spry_pass *p, size_t row, const spry_layer *l)
{
    const spry_config *c = p->config;
    float *score = p->router + row * c->n_experts, *choice = p->choice;
    uint32_t *chosen = p->chosen + row * c->n_experts_used;
    float *weight = p->chosen_weight + row * c->n_experts_used, sum = 0;
    make_choice(p, score, l->choice_bias);
    for (uint32_t i = 0; i < c->n_experts_used; i++) {
        uint32_t best = c->n_experts;
        for (uint32_t e = 0; e < c->n_experts; e++)
            if (choice[e] > -INFINITY && (best == c->n_experts || choice[e] > choice[best]))
                best = e;
        if (best == c->n_experts) /* NaN logits: no choice is better */
            best = i;
        uint32_t at = i;
        for (; at > 0 && chosen[at - 1] > best; at--) {
            chosen[at] = chosen[at - 1];
            weight[at] = weight[at - 1];
        }
        chosen[at] = best;
        weight[at] = score[best];
        sum += score[best];
        choice[best] = -INFINITY; /* selected already */
    }
    for (uint32_t i = 0; c->normalise_experts && i < c->n_experts_used; i++)
        weight[i] /= sum + c->weight_eps;
    for (uint32_t i = 0; c->routed_scale != 1 && i < c->n_experts_used; i++)
        weight[i] *= c->routed_scale;
    for (uint32_t i = 0; l->expert_scale && i < c->n_experts_used; i++)
        weight[i] *= l->expert_scale[chosen[i]];
}

/* Copies the rows of `in`, n values each, that have selected an expert to expert_in; returns their number. */
static size_t gather(spry_pass *p, const float *in, size_t n, uint32_t expert)
{
    const spry_config *c = p->config;
    size_t count = 0;
    for (size_t row = 0; row < p->n_rows; row++)
        for (uint32_t i = 0; i < c->n_experts_used; i++)
            if (p->chosen[row * c->n_experts_used + i] == expert) {
                float *to = p->expert_in + count * n, weight = p->chosen_weight[row * c->n_experts_used + i];
                memcpy(to, in + row * n, n * sizeof *to);
                if (c->arch->scales_inputs)
                    p->ops->scale(to, weight, n);
                p->expert_rows[count] = (uint32_t)row;
                p->expert_weight[count++] = c->arch->scales_inputs ? 1 : weight;
                break;
            }
    return count;
}

static void scatter(spry_pass *p, float *out, size_t n, size_t count)
{
    for (size_t i = 0; i < count; i++)
        p->ops->add_scaled(out + p->expert_rows[i] * n, p->expert_out + i * n, p->expert_weight[i], n);
}

/* Adds the shared expert, which processes every row; its result is multiplied by the sigmoid of its gate, if it has
 * one. */
static void add_shared(spry_pass *p, const spry_layer *l)
{
    size_t n = p->config->n_embd;
    bool weighed = l->shared_router.data;
    if (weighed)
        spry_pass_linear(p, SPRY_OP_ROUTE, p->router, 1, &l->shared_router, p->in, p->n_rows);
    spry_pass_gated(p, p->expert_out, &l->shared_gate, &l->shared_up, &l->shared_down, p->in, p->n_rows);
    for (size_t row = 0; row < p->n_rows; row++)
        p->ops->add_scaled(p->y + row * n, p->expert_out + row * n, weighed ? sigmoid(p->router[row]) : 1, n);
    if (p->config->average_shared)
        p->ops->scale(p->y, 0.5f, p->n_rows * n);
}

static void route(spry_pass *p, const spry_layer *l)
{
    spry_pass_linear(p, SPRY_OP_ROUTE, p->router, p->config->n_experts, &l->router, p->in, p->n_rows);
    for (size_t row = 0; row < p->n_rows; row++)
        l->token_experts ? choose_by_token(p, row, l) : choose(p, row, l);
}

/* y = the weighted results of the selected and of the shared experts. Some experts take rows that are projected to
 * fewer values first. */
static void mix_experts(spry_pass *p, const spry_layer *l)
{
    const spry_config *c = p->config;
    bool latent = l->latent_in.data;
    size_t n = latent ? c->n_latent : c->n_embd;
    const float *in = latent ? p->latent : p->in;
    float *out = latent ? p->latent + p->limits.max_rows * n : p->y;
    if (latent)
        spry_pass_linear(p, SPRY_OP_ROUTE, p->latent, n, &l->latent_in, p->in, p->n_rows);
    memset(out, 0, p->n_rows * n * sizeof(float));
    for (uint32_t e = 0; e < c->n_experts; e++) {
        size_t count = gather(p, in, n, e);
        if (!count)
            continue;
        if (p->experts)
            spry_expert_store_take(p->experts, p->threads, (uint32_t)(l - p->weights->layers), e);
        spry_pass_charge(p, SPRY_OP_ROUTE);
        p->row_numbers = p->expert_rows;
        spry_pass_gated(p, p->expert_out, &l->expert_gate[e], &l->expert_up[e], &l->expert_down[e], p->expert_in,
                        count);
        p->row_numbers = NULL;
        scatter(p, out, n, count);
    }
    if (latent)
        spry_pass_linear(p, SPRY_OP_ROUTE, p->y, c->n_embd, &l->latent_out, out, p->n_rows);
    if (l->shared_up.data)
        add_shared(p, l);
    spry_pass_charge(p, SPRY_OP_ROUTE);
}

/* y = feed-forward(in) of a layer with experts. */
static void pass_experts(spry_pass *p, const spry_layer *l)
{
    route(p, l);
    mix_experts(p, l);
}

/* Gemma 4's experts and its dense part: the router, the experts and the dense part have norms of their own before them,
 * the last two also after them. p->in is the input of the dense part. */
static void pass_beside(spry_pass *p, const spry_layer *l)
{
    size_t n = p->config->n_embd;
    spry_pass_gated(p, p->beside, &l->gate, &l->up, &l->down, p->in, p->n_rows);
    spry_pass_norm(p, p->beside, p->beside, l->dense_post_norm, NULL, p->n_rows, n);
    p->in = p->h;
    spry_pass_norm(p, p->h, p->x, l->router_norm, NULL, p->n_rows, n);
    route(p, l);
    spry_pass_norm(p, p->h, p->x, l->expert_norm, NULL, p->n_rows, n);
    mix_experts(p, l);
    spry_pass_norm(p, p->y, p->y, l->expert_post_norm, NULL, p->n_rows, n);
    p->ops->add(p->y, p->beside, p->n_rows * n);
}

/* ---- the block --------------------------------------------------------------------------------------------------- */

enum {
    WORTH_WAKING = 8192
}; /* minimum number of values to process; for fewer, waking the other threads takes
    * longer */
enum { BLOCK_BYTES = 64 * 1024, TILE_UNITS = 4 }; /* bytes of weights, or units of outputs, in a block of work */
enum { KEY_ROWS = SPRY_PAGE_TOKENS };
enum { HALVED_ROWS = 16 }; /* from this many rows on, activations are rounded once for all kernels */
enum { ROW_BLOCKS = 4 };   /* blocks for each worker, if work is divided by rows */

static void run_rows(spry_pass *p, spry_threads_block_fn rows, void *job, size_t n_rows, size_t width)
{
    size_t block = n_rows / (ROW_BLOCKS * spry_threads_count(p->threads));
    if (n_rows > 1 && n_rows * width >= WORTH_WAKING)
        spry_threads_share(p->threads, rows, job, n_rows, block ? block : 1);
    else
        rows(job, 0, n_rows);
}

typedef struct product_job {
    const spry_pass *pass;
    const spry_product *products;
    size_t n_products, n_rows;
    const float *in;
    void (*halve)(uint16_t *out, const float *in, size_t n); /* NULL: activations are not rounded beforehand */
} product_job;

static void halve_rows(void *context, size_t begin, size_t end)
{
    const product_job *job = context;
    size_t n_in = job->products[0].w->n_in;
    for (size_t row = begin; row < end; row++)
        job->halve(job->pass->halves + row * spry_halves_stride(n_in), job->in + row * n_in, n_in);
}

static void encode_row(const spry_pass *p, const float *in, size_t row, size_t n_in)
{
    p->ops->encode_act(p->act + row * (n_in / SPRY_ACT_BLOCK), in + row * n_in, n_in);
}

static void encode_rows(void *context, size_t begin, size_t end)
{
    const product_job *job = context;
    for (size_t row = begin; row < end; row++)
        encode_row(job->pass, job->in, row, job->products[0].w->n_in);
}

/* True if rows of n values should be encoded where they are computed, because `w` multiplies them next. */
static bool encodes_for(const spry_pass *p, const spry_weight *w, size_t n)
{
    return w && w->data && w->n_in == n && p->ops->matmul[spry_weight_kernel_type(w)].integer;
}

static void limit(float *out, const float *in, size_t n, float min, float max)
{
    for (size_t i = 0; i < n; i++)
        out[i] = in[i] < min ? min : in[i] > max ? max : in[i];
}

static void multiply_part(const product_job *job, const spry_product *product, size_t begin, size_t end)
{
    const spry_weight *w = product->w;
    const spry_matmul_kernel *kernel = &job->pass->ops->matmul[spry_weight_kernel_type(w)];
    spry_matmul m = {.out = product->out,
                     .out_stride = product->stride,
                     .weight = kernel->group ? spry_weight_groups(w) : w->data,
                     .weight_stride = kernel->group ? w->group_bytes : w->row_bytes,
                     .act = job->in,
                     .act_stride = w->n_in * sizeof(float),
                     .n_rows = job->n_rows,
                     .n_in = w->n_in,
                     .halves = job->halve ? job->pass->halves : NULL,
                     .halves_stride = spry_halves_stride(w->n_in)};
    if (kernel->integer) {
        m.act = job->pass->act;
        m.act_stride = w->n_in / SPRY_ACT_BLOCK * sizeof(spry_act_block);
    }
    if (m.weight)
        kernel->run(&m, begin, end);
    else
        spry_late_multiply(w, kernel, &m, begin, end);
    for (size_t row = 0; w->scale != 0 && row < job->n_rows; row++)
        job->pass->ops->scale(product->out + row * product->stride + begin, w->scale, end - begin);
    for (size_t row = 0; w->bias && row < job->n_rows; row++)
        for (size_t o = begin; o < end; o++)
            product->out[row * product->stride + o] += w->bias[o];
    for (size_t row = 0; w->limits && row < job->n_rows; row++)
        limit(product->out + row * product->stride + begin, product->out + row * product->stride + begin, end - begin,
              w->limits->out_min, w->limits->out_max);
}

static size_t output_units(const spry_weight *w)
{
    return (w->n_out + SPRY_OUTPUT_GRAIN - 1) / SPRY_OUTPUT_GRAIN;
}

/* Computes units of SPRY_OUTPUT_GRAIN outputs, which are numbered through all products. */
static void product_units(void *context, size_t begin, size_t end)
{
    const product_job *job = context;
    for (size_t i = 0, first = 0, units; i < job->n_products && first < end; i++, first += units) {
        size_t n_out = job->products[i].w->n_out;
        units = output_units(job->products[i].w);
        if (begin >= first + units)
            continue;
        size_t from = begin > first ? begin - first : 0, to = end - first < units ? end - first : units;
        to *= SPRY_OUTPUT_GRAIN;
        multiply_part(job, &job->products[i], from * SPRY_OUTPUT_GRAIN, to < n_out ? to : n_out);
    }
}

/* The minimum size of a block. With one row, weights are streamed: a block should be long enough for the prefetcher,
 * unless some workers would get no block. With many rows it should be long enough for tiles of several groups. */
static size_t smallest_block(const spry_pass *p, const spry_weight *w, size_t units, size_t n_rows)
{
    size_t bytes = w->row_bytes * SPRY_OUTPUT_GRAIN, block = bytes < BLOCK_BYTES ? BLOCK_BYTES / bytes : 1;
    block = n_rows > 1 && block < TILE_UNITS ? TILE_UNITS : block;
    size_t most = units / (2 * spry_threads_count(p->threads));
    block = block < most ? block : most;
    return block ? block : 1;
}

/* Adds the product of low rank that a matrix has beside it. */
static void add_low(spry_pass *p, spry_op op, const spry_product *product, const float *in, size_t n_rows)
{
    const spry_weight *w = product->w;
    spry_pass_linear(p, op, p->low_rows, w->low[0].n_out, &w->low[0], in, n_rows);
    spry_pass_linear(p, op, p->low_out, w->n_out, &w->low[1], p->low_rows, n_rows);
    for (size_t row = 0; row < n_rows; row++)
        p->ops->add(product->out + row * product->stride, p->low_out + row * w->n_out, w->n_out);
}

static void multiply_all(spry_pass *p, spry_op op, const spry_product *products, size_t n_products, const float *in,
                         size_t n_rows)
{
    product_job job = {p, products, n_products, n_rows, in, NULL};
    bool integer = false;
    size_t units = 0;
    for (size_t i = 0; i < n_products; i++) {
        const spry_matmul_kernel *kernel = &p->ops->matmul[spry_weight_kernel_type(products[i].w)];
        integer = integer || kernel->integer;
        job.halve = kernel->halve && n_rows >= HALVED_ROWS ? kernel->halve : job.halve;
        units += output_units(products[i].w);
    }
    if (integer && p->encoded != in)
        run_rows(p, encode_rows, &job, n_rows, products[0].w->n_in);
    if (job.halve)
        run_rows(p, halve_rows, &job, n_rows, products[0].w->n_in);
    p->encoded = NULL;
    spry_threads_share(p->threads, product_units, &job, units, smallest_block(p, products[0].w, units, n_rows));
    for (size_t i = 0; i < n_products; i++)
        p->packed = spry_late_multiplied(products[i].w) || p->packed;
    if (p->adapted)
        spry_pass_adapt(p, products, n_products, in, n_rows);
    for (size_t i = 0; i < n_products; i++)
        if (products[i].w->low)
            add_low(p, op, &products[i], in, n_rows);
    spry_pass_took_products(p, op, products, n_products, n_rows);
}

typedef struct limit_job {
    const spry_pass *pass;
    const spry_weight *w;
    const float *in;
} limit_job;

static void limit_rows(void *context, size_t begin, size_t end)
{
    const limit_job *job = context;
    size_t n = job->w->n_in;
    limit(job->pass->limited + begin * n, job->in + begin * n, (end - begin) * n, job->w->limits->in_min,
          job->w->limits->in_max);
}

void spry_pass_products(spry_pass *p, spry_op op, const spry_product *products, size_t n_products, const float *in,
                        size_t n_rows)
{
    if (!products[0].w->limits) {
        multiply_all(p, op, products, n_products, in, n_rows);
        return;
    }
    for (size_t i = 0; i < n_products; i++) { /* each has limits of its own */
        const spry_weight *w = products[i].w;
        limit_job job = {p, w, in};
        if (w->limits)
            run_rows(p, limit_rows, &job, n_rows, w->n_in);
        multiply_all(p, op, &products[i], 1, w->limits ? p->limited : in, n_rows);
    }
}

void spry_pass_linear(spry_pass *p, spry_op op, float *out, size_t stride, const spry_weight *w, const float *in,
                      size_t n_rows)
{
    spry_product product = {out, stride, w};
    spry_pass_products(p, op, &product, 1, in, n_rows);
}

void spry_pass_linear_whole(spry_pass *p, spry_op op, float *out, size_t stride, const spry_weight *w, const float *in,
                            size_t n_rows)
{
    if (!p->team) {
        spry_pass_linear(p, op, out, stride, w, in, n_rows);
        return;
    }
    spry_pass_linear(p, op, p->part, w->n_out, w, in, n_rows);
    spry_pass_join_outputs(p, out, p->part, stride, n_rows);
}

typedef struct norm_job {
    const spry_pass *pass;
    float *out;
    const float *in, *weight, *bias;
    size_t n;
    bool adds, encodes; /* first x += y; encode the result */
} norm_job;

static void normalise(const spry_pass *p, float *out, const float *in, const float *weight, const float *bias, size_t n)
{
    if (p->config->layer_norm)
        p->ops->layer_norm(out, in, weight, bias, n, p->config->norm_eps);
    else
        p->ops->rms_norm(out, in, weight, n, p->config->norm_eps);
}

static void add_rows(const spry_pass *p, size_t begin, size_t end)
{
    size_t n = p->config->n_embd;
    if (p->config->residual_scale == 1)
        p->ops->add(p->x + begin * n, p->y + begin * n, (end - begin) * n);
    else
        p->ops->add_scaled(p->x + begin * n, p->y + begin * n, p->config->residual_scale, (end - begin) * n);
}

static void residual_rows(void *context, size_t begin, size_t end)
{
    add_rows(context, begin, end);
}

static void norm_rows(void *context, size_t begin, size_t end)
{
    const norm_job *job = context;
    for (size_t row = begin; row < end; row++) {
        if (job->adds)
            add_rows(job->pass, row, row + 1);
        normalise(job->pass, job->out + row * job->n, job->in + row * job->n, job->weight, job->bias, job->n);
        if (job->encodes)
            encode_row(job->pass, job->out, row, job->n);
    }
}

void spry_pass_norm(spry_pass *p, float *out, const float *in, const float *weight, const float *bias, size_t n_rows,
                    size_t n)
{
    norm_job job = {p, out, in, weight, bias, n, false, false};
    run_rows(p, norm_rows, &job, n_rows, n);
    spry_pass_charge(p, SPRY_OP_NORM);
}

typedef struct layer_job {
    spry_pass *pass;
    const spry_layer *layer;
    uint32_t index;
    bool keys_later; /* keys are stored after all rows have been prepared */
} layer_job;

static spry_kv_place place_of(const spry_pass *p, size_t layer)
{
    const spry_config *c = p->config;
    return spry_kv_place_of(p->pool, c->sliding[layer] && spry_config_has_kinds(c), c->kv_slot[layer]);
}

static void store_key(const spry_pass *p, size_t row, size_t layer, size_t head)
{
    spry_kv_place place = place_of(p, layer);
    unsigned char *keys = p->slots[row].page + place.keys + head * place.head_bytes;
    spry_kv_store_key(p->ops, p->pool->shape.type, keys, p->slots[row].token,
                      p->k + (row * place.n_heads + head) * place.head_dim, place.head_dim);
}

static void store_values(const spry_pass *p, size_t row, size_t layer)
{
    spry_kv_place place = place_of(p, layer);
    const spry_kv_shape *shape = &p->pool->shape;
    const float *v = p->v + row * place.n_heads * place.head_dim;
    unsigned char *values = p->slots[row].page + place.values + p->slots[row].token * place.token_bytes;
    for (size_t head = 0; !shape->keys_only && head < place.n_heads; head++, values += place.head_bytes)
        spry_kv_store_value(p->ops, shape->type, values, v + head * place.head_dim, place.head_dim);
}

void spry_pass_store_row(const spry_pass *p, size_t row, size_t layer)
{
    for (size_t head = 0; head < place_of(p, layer).n_heads; head++)
        store_key(p, row, layer, head);
    store_values(p, row, layer);
}

/* Stores keys of many rows. In a page, a coordinate of all tokens is contiguous, so threads that stored different
 * tokens of one head would write to the same cache lines; therefore a unit of work is one head of KEY_ROWS rows. */
static void store_keys(void *context, size_t begin, size_t end)
{
    const layer_job *job = context;
    const spry_pass *p = job->pass;
    size_t heads = place_of(p, job->index).n_heads;
    for (size_t unit = begin; unit < end; unit++) {
        size_t first = unit / heads * KEY_ROWS, left = p->n_rows - first;
        for (size_t row = first; row < first + (left < KEY_ROWS ? left : KEY_ROWS); row++)
            store_key(p, row, job->index, unit % heads);
    }
}

/* Normalises the heads of one row of q or k. */
static void normalise_heads(const spry_pass *p, float *x, const float *weight, size_t n_heads, size_t head_dim)
{
    const spry_config *c = p->config;
    spry_qk_norm kind = c->arch->qk_norm;
    bool row = kind == SPRY_QK_NORM_ROW;
    size_t each = row ? n_heads * head_dim : head_dim, n = c->normed_dim && !row ? c->normed_dim : each;
    size_t step = kind == SPRY_QK_NORM_EACH ? head_dim : 0;
    for (size_t at = 0; weight && at < n_heads * head_dim; at += each, weight += step)
        if (row)
            p->ops->rms_norm(x + at, x + at, weight, n, c->norm_eps);
        else
            normalise(p, x + at, x + at, weight, NULL, n);
}

/* Norms after RoPE. The weights of the keys' norm are applied to queries: then rotation is the last step of a stored
 * key, and its page can be rotated again. */
static void normalise_later(const spry_pass *p, float *q, float *k, const spry_layer *l)
{
    const spry_config *c = p->config;
    normalise_heads(p, q, l->q_norm, c->n_heads, c->head_dim);
    for (size_t i = 0; i < (size_t)c->n_heads * c->head_dim; i++)
        q[i] *= l->k_norm[i % c->head_dim];
    normalise_heads(p, k, p->ones, c->n_kv_heads, c->head_dim);
}

/* Copies the queries of heads that have gates beside them; the gates move to the front of the row. */
static void take_queries(const spry_pass *p, float *q, size_t row)
{
    size_t n = p->config->head_dim;
    float *raw = p->raw + row * 2 * p->config->n_heads * n;
    for (size_t head = 0; head < p->config->n_heads; head++)
        memcpy(q + head * n, raw + head * 2 * n, n * sizeof *q);
    for (size_t head = 0; head < p->config->n_heads; head++)
        memcpy(raw + head * n, raw + (head * 2 + 1) * n, n * sizeof *raw);
}

void spry_pass_cool(const spry_pass *p, float *q, size_t row, uint32_t layer)
{
    const spry_config *c = p->config;
    if (!c->temperature_length || (c->arch->cools_unrotated && c->rotated[layer]))
        return;
    uint64_t turns = ((uint64_t)p->positions[row] + c->temperature_offset) / c->temperature_length;
    if (turns)
        p->ops->scale(q, 1 + c->temperature_scale * logf(1 + (float)turns),
                      (size_t)c->n_heads * spry_config_heads(c, layer).head_dim);
}

/* Multiplies attention's result by the sigmoid of the gates. */
static void close_rows(void *context, size_t begin, size_t end)
{
    const spry_pass *p = context;
    size_t n = (size_t)p->config->head_dim * p->config->n_heads;
    for (size_t row = begin; row < end; row++)
        for (size_t i = 0; i < n; i++)
            p->attn[row * n + i] /= 1 + expf(-p->raw[row * 2 * n + i]);
}

/* Computes a row's values: the keys, if the layer has no values; scaled; and with zeros after those of each head, if
 * values are shorter than keys. */
static void take_values(const spry_pass *p, const spry_layer *l, float *v, const float *k, spry_heads h)
{
    const spry_config *c = p->config;
    size_t n = h.head_dim, n_value = c->value_dim;
    if (!l->v.data)
        memcpy(v, k, h.n_kv_heads * n * sizeof *v);
    for (size_t head = h.n_kv_heads; n_value && head-- > 0;) {
        memmove(v + head * n, v + head * n_value, n_value * sizeof *v);
        memset(v + head * n + n_value, 0, (n - n_value) * sizeof *v);
    }
    if (c->value_scale != 1)
        p->ops->scale(v, c->value_scale, h.n_kv_heads * n);
    if (c->arch->v_norm)
        normalise_heads(p, v, p->ones, h.n_kv_heads, n);
}

/* Removes the zeros after each head from attention's result. */
static void take_results(spry_pass *p)
{
    size_t n = p->config->head_dim, n_value = p->config->value_dim, heads = p->n_rows * p->config->n_heads;
    for (size_t head = 0; n_value && head < heads; head++)
        memmove(p->attn + head * n_value, p->attn + head * n, n_value * sizeof *p->attn);
}

/* Applies q/k norms and RoPE, and stores keys and values in their pages. */
static void prepare_rows(void *context, size_t begin, size_t end)
{
    const layer_job *job = context;
    const spry_pass *p = job->pass;
    const spry_config *c = p->config;
    const spry_angles *angles = c->sliding[job->index] ? &p->sliding : &p->full;
    bool own = c->kv_layer[job->index] == job->index; /* the layer has its own keys and values */
    bool later = c->arch->qk_norm == SPRY_QK_NORM_HEAD_LATER;
    bool joined = p->team && c->arch->qk_norm == SPRY_QK_NORM_ROW; /* normalised already, together with the heads of
                                                                    * other ranks */
    spry_heads h = spry_config_heads(c, job->index);
    size_t n_pairs = h.rope_dim / 2, n_q = (size_t)c->n_heads * h.head_dim, n_kv = (size_t)h.n_kv_heads * h.head_dim;
    const float *bare = c->arch->qk_norm == SPRY_QK_NORM_BARE && c->qk_norm && c->rotated[job->index] ? p->ones : NULL;
    const float *q_norm = bare ? bare : job->layer->q_norm, *k_norm = bare ? bare : job->layer->k_norm;
    for (size_t row = begin; row < end; row++) {
        float *q = p->q + row * n_q, *k = p->k + row * n_kv;
        if (c->arch->gated_attention)
            take_queries(p, q, row);
        if (own)
            take_values(p, job->layer, p->v + row * n_kv, k, h);
        if (!later && !joined) {
            normalise_heads(p, q, q_norm, c->n_heads, h.head_dim);
            normalise_heads(p, k, own ? k_norm : NULL, h.n_kv_heads, h.head_dim);
        }
        const float *cosine = angles->cosine + row * n_pairs, *sine = angles->sine + row * n_pairs;
        if (c->rotated[job->index]) {
            p->ops->rope(q, cosine, sine, c->n_heads, h.head_dim, n_pairs, c->interleaved);
            if (own)
                p->ops->rope(k, cosine, sine, h.n_kv_heads, h.head_dim, n_pairs, c->interleaved);
        }
        if (later)
            normalise_later(p, q, k, job->layer);
        spry_pass_cool(p, q, row, job->index);
        if (own && job->keys_later)
            store_values(p, row, job->index);
        else if (own)
            spry_pass_store_row(p, row, job->index);
    }
}

/* y = attention of the input */
static void attention(spry_pass *p, const spry_layer *l, uint32_t index)
{
    const spry_config *c = p->config;
    spry_heads h = spry_config_heads(c, index);
    size_t n_q = (size_t)c->n_heads * h.head_dim, n_kv = (size_t)h.n_kv_heads * h.head_dim;
    layer_job job = {p, l, index, c->kv_layer[index] == index && p->n_rows >= KEY_ROWS};
    bool gated = c->arch->gated_attention;
    const spry_product qkv[] = {{gated ? p->raw : p->q, gated ? 2 * n_q : n_q, &l->q},
                                {p->k, n_kv, &l->k},
                                {p->v, n_kv, &l->v},
                                {p->raw, 2 * n_q, &l->attn_gate}};
    spry_pass_products(p, SPRY_OP_QKV, qkv,
                       l->attn_gate.data ? 4
                       : l->v.data       ? 3
                       : l->k.data       ? 2
                                         : 1,
                       p->in, p->n_rows);
    if (p->team && c->arch->qk_norm == SPRY_QK_NORM_ROW)
        spry_pass_join_norms(p, l);
    run_rows(p, prepare_rows, &job, p->n_rows, n_q + 2 * n_kv);
    if (job.keys_later)
        spry_threads_share(p->threads, store_keys, &job, (p->n_rows + KEY_ROWS - 1) / KEY_ROWS * h.n_kv_heads, 1);
    spry_pass_charge(p, SPRY_OP_ROPE);
    spry_pass_attend(p, index);
    if (gated || l->attn_gate.data)
        run_rows(p, close_rows, p, p->n_rows, n_q);
    take_results(p);
    spry_pass_linear_whole(p, SPRY_OP_OUT, p->y, c->n_embd, &l->o, spry_pass_join_heads(p, p->attn, h.head_dim),
                           p->n_rows);
}

typedef struct gate_job {
    const spry_pass *pass;
    bool gated;
    size_t n;
    bool encodes;       /* encode the result */
    const float *whole; /* gates of all ranks, n_whole per row, if gates are made sparse */
    size_t n_whole;
} gate_job;

static void gate_rows(void *context, size_t begin, size_t end)
{
    const gate_job *job = context;
    const spry_pass *p = job->pass;
    for (size_t row = begin; row < end; row++) {
        float *gate = p->gate + row * job->n;
        if (p->sparsity > -INFINITY)
            spry_pass_sparsify(gate, job->n, job->whole + row * job->n_whole, job->n_whole, p->sparsity);
        if (p->config->gate_limit > 0) {
            limit(gate, gate, job->n, -INFINITY, p->config->gate_limit);
            limit(p->up + row * job->n, p->up + row * job->n, job->n, -p->config->gate_limit, p->config->gate_limit);
        }
        p->ops->gate[p->config->arch->gate](gate, gate, job->gated ? p->up + row * job->n : p->ones, job->n);
        if (job->encodes)
            encode_row(p, p->gate, row, job->n);
    }
}

void spry_pass_gated(spry_pass *p, float *out, const spry_weight *gate, const spry_weight *up, const spry_weight *down,
                     const float *in, size_t n_rows)
{
    bool gated = gate->data;
    gate_job job = {p, gated, up->n_out, !p->team && encodes_for(p, down, up->n_out), NULL, down->n_in};
    const spry_product both[] = {{p->gate, up->n_out, gated ? gate : up}, {p->up, up->n_out, up}};
    spry_pass_products(p, SPRY_OP_GATE_UP, both, gated ? 2 : 1, in, n_rows);
    if (p->sparsity > -INFINITY)
        job.whole = spry_pass_join_outputs(p, p->joined, p->gate, down->n_in, n_rows);
    run_rows(p, gate_rows, &job, n_rows, up->n_out);
    p->encoded = job.encodes ? p->gate : NULL;
    spry_pass_charge(p, SPRY_OP_GATE);
    const float *whole = spry_pass_join_outputs(p, p->joined, p->gate, down->n_in, n_rows);
    size_t n_out = down->n_out + down->n_before + down->n_after;
    spry_pass_linear_whole(p, SPRY_OP_DOWN, out, n_out, down, whole, n_rows);
}

typedef struct scaling {
    const spry_pass *pass;
    const float *scales;
} scaling;

/* Multiplies each value of y by its own factor. */
static void scale_rows(void *context, size_t begin, size_t end)
{
    const scaling *job = context;
    size_t n = job->pass->config->n_embd;
    for (size_t row = begin; row < end; row++)
        for (size_t i = 0; i < n; i++)
            job->pass->y[row * n + i] *= job->scales[i];
}

/* x += y, where the architecture's norm is applied to y first, or to the sum. `scales`: factors of y, or NULL; `later`:
 * the next input adds y. */
static void add_residual(spry_pass *p, const float *norm, const float *bias, const float *scales, bool later)
{
    bool sum = p->config->arch->norms == SPRY_NORMS_SUM;
    scaling job = {p, scales};
    if (scales)
        run_rows(p, scale_rows, &job, p->n_rows, p->config->n_embd);
    if (norm && !sum)
        spry_pass_norm(p, p->y, p->y, norm, bias, p->n_rows, p->config->n_embd);
    p->adds = later && !sum;
    if (!p->adds) {
        run_rows(p, residual_rows, p, p->n_rows, p->config->n_embd);
        spry_pass_charge(p, SPRY_OP_ADD);
    }
    if (norm && sum)
        spry_pass_norm(p, p->x, p->x, norm, bias, p->n_rows, p->config->n_embd);
}

/* Computes the input of attention or feed-forward: x, normalised if there is a norm; `w`: the first matrix that
 * multiplies it, or NULL. */
static void take_input(spry_pass *p, const float *norm, const float *bias, const spry_weight *w)
{
    size_t n = p->config->n_embd;
    norm_job job = {p, p->h, p->x, norm, bias, n, p->adds, encodes_for(p, w, n)};
    p->in = norm ? p->h : p->x;
    p->adds = false;
    if (!norm)
        return;
    run_rows(p, norm_rows, &job, p->n_rows, n);
    p->encoded = job.encodes ? p->h : NULL;
    spry_pass_charge(p, SPRY_OP_NORM);
}

/* Gemma 4: adds the layer's own input, and multiplies by the layer's scalar. */
static void end_layer(spry_pass *p, const spry_layer *l, uint32_t index)
{
    size_t n = p->n_rows * p->config->n_embd;
    if (l->side) {
        spry_pass_layer_part(p, l->side, p->x, index);
        p->ops->add(p->x, p->y, n);
    }
    if (l->output_scale)
        p->ops->scale(p->x, *l->output_scale, n);
    spry_pass_charge(p, SPRY_OP_ADD);
}

/* Zamba2: the input of a recurrent part is x and the result of a block that reads x beside the embedding, normalised.
 */
static void pass_shared_block(spry_pass *p, const spry_layer *l, uint32_t index)
{
    size_t n = p->config->n_embd;
    for (size_t row = 0; row < p->n_rows; row++) {
        memcpy(p->wide + row * 2 * n, p->x + row * n, n * sizeof *p->x);
        memcpy(p->wide + row * 2 * n + n, p->embedded + row * n, n * sizeof *p->x);
    }
    spry_pass_norm(p, p->wide, p->wide, l->block_norm, NULL, p->n_rows, 2 * n);
    p->in = p->wide;
    attention(p, l, index);
    spry_pass_norm(p, p->h, p->y, l->ffn_norm, NULL, p->n_rows, n);
    spry_pass_gated(p, p->y, &l->gate, &l->up, &l->down, p->h, p->n_rows);
    spry_pass_linear(p, SPRY_OP_OUT, p->h, n, &l->block_out, p->y, p->n_rows);
    p->ops->add(p->h, p->x, p->n_rows * n);
    spry_pass_norm(p, p->h, p->h, l->attn_norm, NULL, p->n_rows, n);
    p->in = p->h;
}

/* Attention, or what a layer has in its place or in addition. */
static void mix(spry_pass *p, const spry_layer *l, uint32_t index)
{
    const spry_config *c = p->config;
    bool parallel = c->arch->norms == SPRY_NORMS_PARALLEL, feeds = spry_config_feeds(c, index);
    bool streams = c->arch->streams;
    if (c->n_hyper)
        spry_pass_hyper_take(p, &l->attn_hyper);
    if (spry_config_has_block(c, index))
        pass_shared_block(p, l, index);
    else
        take_input(p, l->attn_norm, l->attn_norm_bias, streams || c->convolves[index] ? NULL : &l->q);
    if (streams)
        spry_pass_laurel(p, l->side);
    if (spry_config_recurs(c, index))
        spry_pass_delta(p, l, index);
    else if (c->convolves[index])
        spry_pass_convolution(p, l, index);
    else if (c->arch->latent)
        spry_pass_latent(p, l, index);
    else if (c->arch->compressed)
        spry_pass_compressed(p, l, index);
    else
        attention(p, l, index);
    if (spry_config_recurs(c, index) && c->arch->both_mixers) {
        memcpy(p->beside_state, p->y, p->n_rows * c->n_embd * sizeof *p->y);
        attention(p, l, index);
        p->ops->add(p->y, p->beside_state, p->n_rows * c->n_embd);
    }
    if (c->n_hyper) {
        spry_pass_hyper_add(p, &l->attn_hyper);
        return;
    }
    add_residual(p, l->attn_post_norm, l->attn_post_norm_bias, l->attn_scales,
                 feeds && !streams && !parallel && l->ffn_norm);
    if (streams)
        spry_pass_add_laurel(p);
}

static void feed(spry_pass *p, const spry_layer *l, uint32_t index)
{
    bool more = index + 1 < p->config->n_layers && !p->reads_x, streams = p->config->arch->streams;
    if (p->config->n_hyper)
        spry_pass_hyper_take(p, &l->ffn_hyper);
    if (p->config->arch->norms != SPRY_NORMS_PARALLEL)
        take_input(p, l->ffn_norm, l->ffn_norm_bias, l->router.data ? NULL : &l->up);
    if (l->dense_post_norm)
        pass_beside(p, l);
    else if (l->router.data)
        pass_experts(p, l);
    else
        spry_pass_gated(p, p->y, &l->gate, &l->up, &l->down, p->in, p->n_rows);
    if (p->config->n_hyper) {
        spry_pass_hyper_add(p, &l->ffn_hyper);
        return;
    }
    add_residual(p, l->ffn_post_norm, l->ffn_post_norm_bias, l->ffn_scales,
                 !streams && !p->config->arch->beside && more && l[1].attn_norm);
    if (streams)
        spry_pass_streams_correct(p, l->side, index);
    if (p->config->arch->beside)
        end_layer(p, l, index);
}

void spry_pass_block(spry_pass *p, uint32_t index)
{
    const spry_layer *l = &p->weights->layers[index];
    p->sparsity = p->config->sparsity ? p->config->sparsity[index] : -INFINITY;
    bool streams = p->config->arch->streams;
    if (streams)
        spry_pass_streams_predict(p, l->side);
    if (p->config->kinds[index] != SPRY_LAYER_FEEDS)
        mix(p, l, index);
    if (p->config->kinds[index] != SPRY_LAYER_MIXES)
        feed(p, l, index);
}
