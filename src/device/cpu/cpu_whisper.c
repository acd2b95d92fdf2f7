/* Whisper on the CPU. Rows are frames of sound in the encoder and tokens in the decoder; both use the same block. Keys
 * and values are stored in pages, so that attention is the same op as in language models: a row whose position is after
 * all keys sees all of them, which is attention without a mask. A convolution is a product whose input rows overlap in
 * memory. */
#include "device/cpu/cpu_device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "kernels/kv_layout.h"
#include "platform/memory.h"

enum { OUTPUT_GRAIN = 16, ATTEND_ROWS = 16, WORTH_WAKING = 8192 };
enum { GELU_STEPS = 64, GELU_RANGE = 8, GELU_POINTS = 2 * GELU_RANGE * GELU_STEPS + 1 };
#define NORM_EPS 1e-5f

/* Keys and values of some layers. Page p holds tokens 32 p to 32 p + 31 of every layer and head. */
typedef struct kv_store {
    unsigned char *pages;
    spry_kv_entry *entries;
    size_t n_entries, page_bytes, head_bytes, token_bytes, n_heads, head_dim;
    spry_dtype type;
} kv_store;

typedef struct cpu_whisper {
    spry_whisper_device device;
    spry_whisper_weights weights; /* borrowed, or copied to the device's memory */
    const spry_ops *ops;
    spry_threads *threads;
    unsigned char *memory; /* memory of everything below */
    size_t bytes;
    float *wide;         /* [1 + 2 * n_audio_ctx + 1, n]: result of the first convolution, with zeros at both ends */
    float *x, *h, *y;    /* [rows, n]: residual, normalised input, result of attention or feed-forward */
    float *q, *k, *v;    /* [rows, n] */
    float *ff;           /* [rows, widest feed-forward] */
    float *logits;       /* [n_vocab] */
    spry_act_block *act; /* [rows, widest / 32] */
    unsigned char *row;  /* memory for one row of the embedding in its type */
    kv_store sound;      /* keys and values of the encoder's current layer */
    kv_store cross, text;
    float gelu[GELU_POINTS][2]; /* value and slope */
} cpu_whisper;

/* ---- working memory ---------------------------------------------------------------------------------------------- */

typedef struct carver {
    unsigned char *base; /* NULL: only count */
    size_t used;
    bool overflow;
} carver;

static void *carve(carver *c, size_t count, size_t size)
{
    size_t bytes, at = c->used;
    if (!spry_checked_mul(&bytes, count, size) || !spry_checked_align(&bytes, bytes, 64) ||
        !spry_checked_add(&c->used, c->used, bytes))
        c->overflow = true;
    return c->base ? c->base + at : NULL;
}

static void carve_store(carver *c, kv_store *s, const cpu_whisper *w, size_t n_tokens, size_t n_layers, size_t n_heads)
{
    spry_dtype_size(&s->token_bytes, w->weights.kv_type, w->weights.shape.n_audio_state / n_heads);
    s->type = w->weights.kv_type;
    s->n_heads = n_heads;
    s->head_dim = w->weights.shape.n_audio_state / n_heads;
    s->head_bytes = s->token_bytes * SPRY_PAGE_TOKENS;
    s->page_bytes = s->head_bytes * n_heads * 2 * n_layers;
    s->n_entries = (n_tokens + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
    s->pages = carve(c, s->n_entries, s->page_bytes);
    s->entries = carve(c, s->n_entries, sizeof *s->entries);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t widest(const spry_whisper_weights *w)
{
    size_t n = w->shape.n_audio_state;
    for (uint32_t i = 0; i < w->shape.n_audio_layers; i++)
        n = larger(n, w->audio[i].up.n_out);
    for (uint32_t i = 0; i < w->shape.n_text_layers; i++)
        n = larger(n, w->text[i].up.n_out);
    return n;
}

/* Copies weights to the device's own memory; if memory is only counted, they stay where they are. */
static const void *place(carver *c, const void *bytes, size_t count, size_t size)
{
    void *own = carve(c, count, size);
    return own ? memcpy(own, bytes, count * size) : bytes;
}

static void place_matrix(carver *c, const spry_ops *ops, spry_voice_matrix *m)
{
    size_t group = ops->matmul[m->type].group;
    m->data = place(c, m->data, group ? (m->n_out + group - 1) / group : m->n_out, m->stride);
    if (m->bias)
        m->bias = place(c, m->bias, m->n_out, sizeof *m->bias);
}

static void place_norm(carver *c, spry_voice_norm *norm, size_t n)
{
    norm->weight = place(c, norm->weight, n, sizeof *norm->weight);
    norm->bias = place(c, norm->bias, n, sizeof *norm->bias);
}

static void place_attention(carver *c, const spry_ops *ops, spry_whisper_attention *a, size_t n)
{
    spry_voice_matrix *const matrices[] = {&a->q, &a->k, &a->v, &a->o};
    place_norm(c, &a->norm, n);
    for (size_t i = 0; i < SPRY_COUNT(matrices); i++)
        place_matrix(c, ops, matrices[i]);
}

static void place_layers(carver *c, const spry_ops *ops, spry_whisper_layer **layers, size_t count, size_t n,
                         bool cross)
{
    spry_whisper_layer *own = carve(c, count, sizeof *own);
    for (size_t i = 0; i < count; i++) {
        spry_whisper_layer layer = (*layers)[i];
        place_attention(c, ops, &layer.self, n);
        if (cross)
            place_attention(c, ops, &layer.cross, n);
        place_norm(c, &layer.norm, n);
        place_matrix(c, ops, &layer.up);
        place_matrix(c, ops, &layer.down);
        if (own)
            own[i] = layer;
    }
    *layers = own ? own : *layers;
}

static void place_weights(carver *c, const spry_ops *ops, spry_whisper_weights *w)
{
    const spry_whisper_shape *s = &w->shape;
    size_t n = s->n_audio_state;
    place_matrix(c, ops, &w->conv1);
    place_matrix(c, ops, &w->conv2);
    place_matrix(c, ops, &w->tokens);
    w->audio_positions = place(c, w->audio_positions, s->n_audio_ctx * n, sizeof(float));
    w->text_positions = place(c, w->text_positions, s->n_text_ctx * n, sizeof(float));
    place_norm(c, &w->audio_norm, n);
    place_norm(c, &w->text_norm, n);
    place_layers(c, ops, &w->audio, s->n_audio_layers, n, false);
    place_layers(c, ops, &w->text, s->n_text_layers, n, true);
}

static void carve_all(cpu_whisper *w, carver *c, bool all)
{
    const spry_whisper_shape *s = &w->weights.shape;
    size_t n = s->n_audio_state, rows = larger(s->n_audio_ctx, s->n_text_ctx), n_ff = widest(&w->weights);
    size_t frames = 2 * (size_t)s->n_audio_ctx + 2;
    w->wide = carve(c, frames * n, sizeof(float));
    float **const vectors[] = {&w->x, &w->h, &w->y, &w->q, &w->k, &w->v};
    for (size_t i = 0; i < SPRY_COUNT(vectors); i++)
        *vectors[i] = carve(c, rows * n, sizeof(float));
    w->ff = carve(c, rows * n_ff, sizeof(float));
    w->logits = carve(c, s->n_vocab, sizeof(float));
    w->act = carve(c, rows * (n_ff / SPRY_ACT_BLOCK + 1), sizeof *w->act);
    w->row = carve(c, n, sizeof(float));
    carve_store(c, &w->sound, w, s->n_audio_ctx, 1, s->n_audio_heads);
    carve_store(c, &w->cross, w, s->n_audio_ctx, s->n_text_layers, s->n_text_heads);
    carve_store(c, &w->text, w, s->n_text_ctx, s->n_text_layers, s->n_text_heads);
    if (all)
        place_weights(c, w->ops, &w->weights);
}

/* Sets the entries for the first n_tokens of a store. */
static void lay_entries(kv_store *s, size_t n_tokens)
{
    s->n_entries = (n_tokens + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
    for (uint32_t i = 0; i < s->n_entries; i++) {
        size_t left = n_tokens - i * (size_t)SPRY_PAGE_TOKENS;
        uint32_t count = left < SPRY_PAGE_TOKENS ? (uint32_t)left : SPRY_PAGE_TOKENS;
        s->entries[i] = (spry_kv_entry){.page = i, .start = i * SPRY_PAGE_TOKENS, .count = count};
    }
}

/* Tabulates x * (1 + erf(x / sqrt(2))) / 2 and its slope. Values between the points are interpolated with an error
 * below 1e-9. */
static void make_gelu(float table[GELU_POINTS][2])
{
    for (size_t i = 0; i < GELU_POINTS; i++) {
        double x = (double)i / GELU_STEPS - GELU_RANGE, part = 0.5 + 0.5 * erf(x * 0.70710678118654752440);
        table[i][0] = (float)(x * part);
        table[i][1] = (float)((part + x * 0.39894228040143267794 * exp(-0.5 * x * x)) / GELU_STEPS);
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void run_rows(cpu_whisper *w, spry_threads_fn part, void *job, size_t n_rows, size_t width)
{
    if (n_rows > 1 && n_rows * width >= WORTH_WAKING)
        spry_threads_run(w->threads, part, job);
    else
        part(job, 0, 1);
}

typedef struct row_job {
    const cpu_whisper *w;
    float *out;
    const float *in;
    const spry_voice_norm *norm;
    size_t n_rows, n;
} row_job;

static void norm_part(void *context, size_t worker, size_t n_workers)
{
    const row_job *job = context;
    size_t begin, end;
    spry_threads_part(&begin, &end, job->n_rows, 1, worker, n_workers);
    for (size_t row = begin; row < end; row++)
        job->w->ops->layer_norm(job->out + row * job->n, job->in + row * job->n, job->norm->weight, job->norm->bias,
                                job->n, NORM_EPS);
}

static void layer_norm(cpu_whisper *w, float *out, const float *in, const spry_voice_norm *norm, size_t n_rows)
{
    size_t n = w->weights.shape.n_audio_state;
    run_rows(w, norm_part, &(row_job){w, out, in, norm, n_rows, n}, n_rows, n);
}

static void gelu_part(void *context, size_t worker, size_t n_workers)
{
    const row_job *job = context;
    size_t begin, end;
    spry_threads_part(&begin, &end, job->n_rows * job->n, OUTPUT_GRAIN, worker, n_workers);
    for (size_t i = begin; i < end; i++) {
        float x = job->out[i];
        if (!(fabsf(x) < GELU_RANGE)) {
            job->out[i] = x > 0 ? x : x * 0; /* a NaN stays a NaN */
            continue;
        }
        float at = (x + GELU_RANGE) * GELU_STEPS;
        size_t point = (size_t)at;
        const float *a = job->w->gelu[point], *b = job->w->gelu[point + 1];
        float t = at - (float)point, rise = b[0] - a[0];
        float bend = a[1] + b[1] - 2 * rise, slope = rise - a[1] - bend; /* coefficients of the cubic with these values
                                                                          * and slopes */
        job->out[i] = a[0] + t * (a[1] + t * (slope + t * bend));
    }
}

static void gelu(cpu_whisper *w, float *x, size_t n_rows, size_t n)
{
    run_rows(w, gelu_part, &(row_job){.w = w, .out = x, .n_rows = n_rows, .n = n}, n_rows, n);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

typedef struct product {
    float *out; /* [n_rows, n_out] */
    const spry_voice_matrix *m;
} product;

typedef struct product_job {
    cpu_whisper *w;
    const product *products;
    size_t n_products;
    const float *in;
    size_t in_stride, n_rows; /* stride in floats */
} product_job;

static void encode_part(void *context, size_t worker, size_t n_workers)
{
    const product_job *job = context;
    size_t begin, end, n_in = job->products[0].m->n_in;
    spry_threads_part(&begin, &end, job->n_rows, 1, worker, n_workers);
    for (size_t row = begin; row < end; row++)
        job->w->ops->encode_act(job->w->act + row * (n_in / SPRY_ACT_BLOCK), job->in + row * job->in_stride, n_in);
}

static void multiply(const product_job *job, const product *p, size_t begin, size_t end)
{
    const spry_voice_matrix *m = p->m;
    const spry_matmul_kernel *kernel = &job->w->ops->matmul[m->type];
    spry_matmul call = {.out = p->out,
                        .out_stride = m->n_out,
                        .weight = m->data,
                        .weight_stride = m->stride,
                        .act = job->in,
                        .act_stride = job->in_stride * sizeof(float),
                        .n_rows = job->n_rows,
                        .n_in = m->n_in};
    if (kernel->integer) {
        call.act = job->w->act;
        call.act_stride = m->n_in / SPRY_ACT_BLOCK * sizeof(spry_act_block);
    }
    kernel->run(&call, begin, end);
    for (size_t row = 0; m->bias && row < job->n_rows; row++)
        job->w->ops->add(p->out + row * m->n_out + begin, m->bias + begin, end - begin);
}

static void product_part(void *context, size_t worker, size_t n_workers)
{
    const product_job *job = context;
    for (size_t i = 0; i < job->n_products; i++) {
        size_t begin, end;
        spry_threads_part(&begin, &end, job->products[i].m->n_out, OUTPUT_GRAIN, worker, n_workers);
        if (begin < end)
            multiply(job, &job->products[i], begin, end);
    }
}

/* Multiplies the same rows, which begin in_stride floats apart, by several matrices. */
static void products(cpu_whisper *w, const product *list, size_t n_products, const float *in, size_t in_stride,
                     size_t n_rows)
{
    product_job job = {
        .w = w, .products = list, .n_products = n_products, .in = in, .in_stride = in_stride, .n_rows = n_rows};
    bool integer = false;
    for (size_t i = 0; i < n_products; i++)
        integer = integer || w->ops->matmul[list[i].m->type].integer;
    if (integer)
        run_rows(w, encode_part, &job, n_rows, list[0].m->n_in);
    spry_threads_run(w->threads, product_part, &job);
}

static void linear(cpu_whisper *w, float *out, const spry_voice_matrix *m, const float *in, size_t n_rows)
{
    products(w, &(product){out, m}, 1, in, m->n_in, n_rows);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

typedef struct attention_job {
    const cpu_whisper *w;
    const kv_store *store;
    size_t layer, first, n_rows; /* `first`: position of the first row */
    bool causal;                 /* a row sees earlier keys only; otherwise every row sees all keys */
} attention_job;

static size_t store_offset(const kv_store *s, size_t layer, size_t which)
{
    return (layer * 2 + which) * s->n_heads * s->head_bytes;
}

/* Stores rows of k and v in the pages. */
static void store_part(void *context, size_t worker, size_t n_workers)
{
    const attention_job *job = context;
    const kv_store *s = job->store;
    size_t begin, end, n = s->n_heads * s->head_dim;
    spry_threads_part(&begin, &end, job->n_rows, 1, worker, n_workers);
    for (size_t row = begin; row < end; row++) {
        size_t token = (job->first + row) % SPRY_PAGE_TOKENS;
        unsigned char *page = s->pages + (job->first + row) / SPRY_PAGE_TOKENS * s->page_bytes;
        unsigned char *keys = page + store_offset(s, job->layer, 0);
        unsigned char *values = page + store_offset(s, job->layer, 1) + token * s->token_bytes;
        for (size_t head = 0; head < s->n_heads; head++) {
            size_t at = row * n + head * s->head_dim;
            spry_kv_store_key(job->w->ops, s->type, keys + head * s->head_bytes, token, job->w->k + at, s->head_dim);
            job->w->ops->encode[s->type](values + head * s->head_bytes, job->w->v + at, s->head_dim);
        }
    }
}

static void attend_part(void *context, size_t worker, size_t n_workers)
{
    const attention_job *job = context;
    const cpu_whisper *w = job->w;
    const kv_store *s = job->store;
    size_t n = s->n_heads * s->head_dim, item = 0;
    for (size_t skip = 0; skip < job->n_rows; skip += ATTEND_ROWS) {
        size_t left = job->n_rows - skip;
        spry_attend a = {.out = w->y + skip * n,
                         .query = w->q + skip * n,
                         .row_stride = n,
                         .n_rows = left < ATTEND_ROWS ? left : ATTEND_ROWS,
                         .first_position = (uint32_t)(job->causal ? job->first + skip : job->first),
                         .head_dim = s->head_dim,
                         .group = 1,
                         .scale = 1 / sqrtf((float)s->head_dim),
                         .type = s->type,
                         .pages = s->pages,
                         .page_bytes = s->page_bytes,
                         .key_offset = store_offset(s, job->layer, 0),
                         .value_offset = store_offset(s, job->layer, 1),
                         .head_bytes = s->head_bytes,
                         .token_bytes = s->token_bytes,
                         .entries = s->entries,
                         .n_entries = s->n_entries};
        for (size_t head = 0; head < s->n_heads; head++, item++)
            if (item % n_workers == worker)
                w->ops->attend(&a, head, head + 1);
    }
}

/* y = attention of q over the keys and values of a store. */
static void attend(cpu_whisper *w, const kv_store *store, size_t layer, size_t first, size_t n_rows, bool causal)
{
    spry_threads_run(w->threads, attend_part, &(attention_job){w, store, layer, first, n_rows, causal});
}

static void add_residual(cpu_whisper *w, const spry_voice_matrix *m, const float *in, size_t n_rows)
{
    linear(w, w->h, m, in, n_rows);
    w->ops->add(w->x, w->h, n_rows * m->n_out);
}

static void self_attention(cpu_whisper *w, const spry_whisper_attention *a, kv_store *store, size_t layer, size_t past,
                           size_t n_rows, bool causal)
{
    const product qkv[] = {{w->q, &a->q}, {w->k, &a->k}, {w->v, &a->v}};
    layer_norm(w, w->h, w->x, &a->norm, n_rows);
    products(w, qkv, SPRY_COUNT(qkv), w->h, a->q.n_in, n_rows);
    run_rows(w, store_part, &(attention_job){w, store, layer, past, n_rows, causal}, n_rows, 2 * a->q.n_in);
    attend(w, store, layer, causal ? past : past + n_rows - 1, n_rows, causal);
    add_residual(w, &a->o, w->y, n_rows);
}

static void cross_attention(cpu_whisper *w, const spry_whisper_attention *a, size_t layer, size_t n_rows)
{
    layer_norm(w, w->h, w->x, &a->norm, n_rows);
    linear(w, w->q, &a->q, w->h, n_rows);
    attend(w, &w->cross, layer, w->weights.shape.n_audio_ctx, n_rows, false);
    add_residual(w, &a->o, w->y, n_rows);
}

static void feed_forward(cpu_whisper *w, const spry_whisper_layer *layer, size_t n_rows)
{
    layer_norm(w, w->h, w->x, &layer->norm, n_rows);
    linear(w, w->ff, &layer->up, w->h, n_rows);
    gelu(w, w->ff, n_rows, layer->up.n_out);
    add_residual(w, &layer->down, w->ff, n_rows);
}

/* ---- encoder and decoder ----------------------------------------------------------------------------------------- */

/* Computes the encoder's input from features: two convolutions over three frames, the second with stride two. */
static void convolve(cpu_whisper *w, const float *features, size_t n_states)
{
    const spry_whisper_weights *m = &w->weights;
    size_t n = m->shape.n_audio_state, n_frames = 2 * n_states;
    memset(w->wide, 0, n * sizeof(float));
    memset(w->wide + (1 + n_frames) * n, 0, n * sizeof(float));
    products(w, &(product){w->wide + n, &m->conv1}, 1, features, m->shape.n_bands, n_frames);
    gelu(w, w->wide + n, n_frames, n);
    products(w, &(product){w->x, &m->conv2}, 1, w->wide, 2 * n, n_states);
    gelu(w, w->x, n_states, n);
    w->ops->add(w->x, m->audio_positions, n_states * n);
}

static void encode(cpu_whisper *w, const float *features, size_t n_states)
{
    const spry_whisper_weights *m = &w->weights;
    convolve(w, features, n_states);
    lay_entries(&w->sound, n_states);
    for (size_t i = 0; i < m->shape.n_audio_layers; i++) {
        self_attention(w, &m->audio[i].self, &w->sound, 0, 0, n_states, false);
        feed_forward(w, &m->audio[i], n_states);
    }
    layer_norm(w, w->h, w->x, &m->audio_norm, n_states);
    /* Keys and values of the decoder's cross-attention are the same for all tokens, so they are computed once. */
    lay_entries(&w->cross, n_states);
    for (size_t i = 0; i < m->shape.n_text_layers; i++) {
        const spry_whisper_attention *a = &m->text[i].cross;
        const product kv[] = {{w->k, &a->k}, {w->v, &a->v}};
        products(w, kv, SPRY_COUNT(kv), w->h, a->k.n_in, n_states);
        run_rows(w, store_part, &(attention_job){w, &w->cross, i, 0, n_states, false}, n_states, 2 * a->k.n_in);
    }
}

static void decode(cpu_whisper *w, const int32_t *ids, size_t count, size_t past)
{
    const spry_whisper_weights *m = &w->weights;
    size_t n = m->shape.n_text_state;
    for (size_t row = 0; row < count; row++) {
        spry_voice_matrix_row(w->x + row * n, w->ops, &m->tokens, (size_t)ids[row], w->row);
        w->ops->add(w->x + row * n, m->text_positions + (past + row) * n, n);
    }
    for (size_t i = 0; i < m->shape.n_text_layers; i++) {
        self_attention(w, &m->text[i].self, &w->text, i, past, count, true);
        cross_attention(w, &m->text[i].cross, i, count);
        feed_forward(w, &m->text[i], count);
    }
    layer_norm(w, w->h, w->x + (count - 1) * n, &m->text_norm, 1);
    linear(w, w->logits, &m->tokens, w->h, 1);
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

static spry_status submit(spry_whisper_device *device, const spry_whisper_step *step, spry_error *error)
{
    cpu_whisper *w = (cpu_whisper *)device;
    (void)error;
    if (step->features)
        encode(w, step->features, step->n_states);
    else
        decode(w, step->tokens, step->n_tokens, step->past);
    return SPRY_OK;
}

static spry_status wait_for_step(spry_whisper_device *device, spry_error *error)
{
    (void)device;
    (void)error;
    return SPRY_OK;
}

static spry_status logits(spry_whisper_device *device, const float **out, spry_error *error)
{
    (void)error;
    *out = ((const cpu_whisper *)device)->logits;
    return SPRY_OK;
}

static spry_status states(spry_whisper_device *device, const float **out, spry_error *error)
{
    (void)error;
    *out = ((const cpu_whisper *)device)->h;
    return SPRY_OK;
}

static void close_device(spry_whisper_device *device)
{
    cpu_whisper *w = (cpu_whisper *)device;
    spry_memory_unmap(w->memory, w->bytes);
    free(w);
}

static const spry_whisper_device_ops device_ops = {
    .close = close_device, .submit = submit, .wait = wait_for_step, .logits = logits, .states = states};

spry_status spry_cpu_whisper_create(spry_whisper_device **out, spry_cpu_region *region, const spry_whisper_setup *setup,
                                    bool all, spry_error *error)
{
    *out = NULL;
    cpu_whisper *w = calloc(1, sizeof *w);
    if (!w)
        return spry_fail_memory(error, "a device", sizeof *w);
    carver counting = {0};
    w->device.ops = &device_ops;
    w->weights = *setup->weights;
    w->ops = setup->ops;
    w->threads = setup->threads;
    carve_all(w, &counting, all);
    w->bytes = counting.used;
    w->memory = counting.overflow ? NULL : spry_memory_map(w->bytes);
    if (!w->memory) {
        spry_fail_memory(error, "the working memory of a Whisper model", w->bytes);
        free(w);
        return SPRY_ERR_MEMORY;
    }
    carve_all(w, &(carver){.base = w->memory}, all);
    make_gelu(w->gelu);
    lay_entries(&w->text, w->weights.shape.n_text_ctx);
    *region = (spry_cpu_region){w->memory, w->bytes};
    *out = &w->device;
    return SPRY_OK;
}

spry_status spry_cpu_whisper_open(spry_whisper_device **out, const char *piece, const spry_whisper_setup *setup,
                                  spry_error *error)
{
    spry_cpu_region region;
    *out = NULL;
    spry_status status = spry_device_only(&spry_device_kind_cpu, piece, error);
    return status ? status : spry_cpu_whisper_create(out, &region, setup, false, error);
}
