/* Kernels of GPUs against the plain C ops. They run on the host (support/cuda_host.h); `test_cuda_kernels gpu` runs the
 * same tests on the first GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_images.h"
#include "device/cuda/cuda_state.h"
#include "kernels/blocks.h"
#include "kernels/kv_layout.h"
#include "kernels/ref/ref.h"
#include "sampling/sampler.h"
#include "support/act_values.h"
#include "support/cuda_imitation.h"

static spry_cuda driver;
static spry_cuda_context gpu;
static const spry_ops *ref;
static uint32_t random_state = 1;

static uint32_t random_bits(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static float uniform(void)
{
    return (float)(random_bits() & 0xffff) / 32768.0f - 1;
}

static void fill(float *out, size_t n, float size)
{
    for (size_t i = 0; i < n; i++)
        out[i] = uniform() * size;
}

static void *taken(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    assert_non_null(memory);
    return memory;
}

static spry_cuda_memory on_gpu(const void *bytes, size_t size)
{
    spry_cuda_memory memory = spry_cuda_allocate(&gpu, size);
    if (bytes)
        spry_cuda_write(&gpu, memory, bytes, size);
    spry_cuda_finish(&gpu);
    return memory;
}

static void from_gpu(void *to, spry_cuda_memory from, size_t size)
{
    spry_error error = {0};
    spry_cuda_read(&gpu, to, from, size);
    spry_cuda_finish(&gpu);
    spry_status status = spry_cuda_fault(&gpu, "a test", &error);
    if (status)
        fail_msg("%s", error.message);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

enum { OUTPUTS = 150, ROWS = 70, SLOTS = 128 };

static const spry_dtype types[] = {SPRY_F32,  SPRY_F16,  SPRY_BF16, SPRY_Q4_0, SPRY_Q4_1, SPRY_Q5_0,
                                   SPRY_Q5_1, SPRY_Q8_0, SPRY_Q4_K, SPRY_Q5_K, SPRY_Q6_K, SPRY_MXFP4};

typedef struct product_case {
    spry_dtype type;
    size_t n_in;
    unsigned char *rows;       /* as in a file */
    float *weights;            /* [OUTPUTS, n_in]: what they are worth */
    float *floats;             /* [ROWS, n_in]: activations */
    float *worth;              /* the same as a product sees them */
    float *expected, *allowed; /* [ROWS, OUTPUTS] */
    spry_weights model;
    spry_config config;
    spry_cuda_device device; /* as much of one as launches need */
} product_case;

static void make_weights(product_case *c)
{
    size_t row_bytes;
    assert_true(spry_dtype_size(&row_bytes, c->type, c->n_in));
    c->rows = taken(OUTPUTS, row_bytes);
    c->weights = taken(OUTPUTS * c->n_in, sizeof(float));
    fill(c->weights, OUTPUTS * c->n_in, 1);
    for (size_t o = 0; o < OUTPUTS; o++) {
        unsigned char *row = c->rows + o * row_bytes;
        if (ref->encode[c->type])
            ref->encode[c->type](row, c->weights + o * c->n_in, c->n_in);
        else /* MXFP4 */
            for (size_t i = 0; i < row_bytes; i++)
                row[i] = (unsigned char)(i % 17 ? random_bits() : 120 + random_bits() % 8);
        ref->decode[c->type](c->weights + o * c->n_in, row, c->n_in);
    }
    c->model.embedding = c->model.output =
        (spry_weight){.data = c->rows, .type = c->type, .n_out = OUTPUTS, .n_in = c->n_in, .row_bytes = row_bytes};
}

static void make_rows(product_case *c)
{
    c->floats = taken(ROWS * c->n_in, sizeof(float));
    c->worth = taken(ROWS * c->n_in, sizeof(float));
    fill(c->floats, ROWS * c->n_in, 3);
    memcpy(c->worth, c->floats, ROWS * c->n_in * sizeof(float));
    if (spry_cuda_form(c->type) != SPRY_ACT_BYTES)
        return;
    spry_act_block *blocks = taken(c->n_in / SPRY_ACT_BLOCK, sizeof *blocks);
    for (size_t row = 0; row < ROWS; row++) {
        spry_act_encode(blocks, c->floats + row * c->n_in, c->n_in);
        act_values(c->worth + row * c->n_in, blocks, c->n_in);
    }
    free(blocks);
}

/* What a product should be, and how far it may be off: roundings of its sum, in which a weight of a block may come as a
 * level and a minimum that are each as large as the block's largest weight, and what of an activation two bf16 drop. */
static void expect(product_case *c)
{
    double act_error = spry_cuda_form(c->type) == SPRY_ACT_TWO ? 0x1p-17 : 0;
    c->expected = taken(ROWS * OUTPUTS, sizeof(float));
    c->allowed = taken(ROWS * OUTPUTS, sizeof(float));
    for (size_t row = 0; row < ROWS; row++)
        for (size_t o = 0; o < OUTPUTS; o++) {
            double sum = 0, size = 0, largest = 0;
            for (size_t i = 0; i < c->n_in; i++)
                largest = fmax(largest, fabs((double)c->weights[o * c->n_in + i]));
            for (size_t i = 0; i < c->n_in; i++) {
                double a = (double)c->worth[row * c->n_in + i];
                sum += (double)c->weights[o * c->n_in + i] * a;
                size += 2 * largest * fabs(a);
            }
            c->expected[row * OUTPUTS + o] = (float)sum;
            c->allowed[row * OUTPUTS + o] = (float)(size * (act_error + sqrt((double)c->n_in) * 0x1p-24));
        }
}

static void open_case(product_case *c, spry_dtype type)
{
    bool large = spry_dtype_block(type) == SPRY_BLOCK_LARGE;
    static const float norm[2048];
    spry_error error = {0};
    *c = (product_case){.type = type, .n_in = large ? 1536 : 1184};
    make_weights(c);
    make_rows(c);
    expect(c);
    c->model.output_norm = norm;
    c->config = (spry_config){.n_embd = (uint32_t)c->n_in};
    c->device = (spry_cuda_device){.config = &c->config, .context = gpu};
    spry_status status = spry_cuda_model_init(&c->device.model, &c->device.context, &c->config, &c->model, ref, 1,
                                              (spry_log){0}, &error);
    if (status)
        fail_msg("%s", error.message);
    size_t units = (c->n_in + 63) / 64;
    for (size_t form = 0; form < SPRY_ACT_FORMS; form++)
        c->device.scratch.act_values[form] = on_gpu(NULL, SLOTS * units * 384);
    c->device.scratch.act_scales = on_gpu(NULL, SLOTS * units * 2 * 8);
}

static void close_case(product_case *c)
{
    for (size_t form = 0; form < SPRY_ACT_FORMS; form++)
        spry_cuda_free(&gpu, &c->device.scratch.act_values[form]);
    spry_cuda_free(&gpu, &c->device.scratch.act_scales);
    spry_cuda_model_deinit(&c->device.model, &c->device.context);
    free(c->rows);
    free(c->weights);
    free(c->floats);
    free(c->worth);
    free(c->expected);
    free(c->allowed);
}

/* out[n_rows, OUTPUTS] of rows from `first` on. */
static void multiply(product_case *c, float *out, size_t first, size_t n_rows)
{
    spry_cuda_memory in = on_gpu(c->floats + first * c->n_in, n_rows * c->n_in * sizeof(float));
    spry_cuda_memory to = on_gpu(NULL, n_rows * OUTPUTS * sizeof(float));
    const spry_cuda_product product = {to, OUTPUTS, &c->device.model.output};
    spry_cuda_encode(&c->device, (spry_encode_args){.in = in, .n = (uint32_t)c->n_in}, &product, 1, n_rows);
    spry_cuda_products(&c->device, &product, 1, n_rows, false, (spry_cuda_groups){0});
    assert_int_equal(c->device.context.fault, 0);
    from_gpu(out, to, n_rows * OUTPUTS * sizeof(float));
    spry_cuda_free(&gpu, &in);
    spry_cuda_free(&gpu, &to);
}

/* The same of all rows by a kernel of this name; `cores`: with rows in the order of multiply_cores. */
static void multiply_by(product_case *c, float *out, const char *kernel, size_t tiles, size_t rows, unsigned threads,
                        size_t shared_bytes, uint32_t cores)
{
    const spry_cuda_matrix *w = &c->device.model.output;
    spry_cuda_memory in = on_gpu(c->floats, ROWS * c->n_in * sizeof(float));
    spry_cuda_memory to = on_gpu(NULL, ROWS * OUTPUTS * sizeof(float));
    spry_acts act = spry_cuda_acts(&c->device, w, c->n_in);
    act.cores = cores;
    spry_encode_args encode = {.in = in, .n = (uint32_t)c->n_in, .in_stride = (uint32_t)c->n_in};
    encode.to[spry_cuda_form(c->type)] = act;
    spry_cuda_launch(&gpu, spry_cuda_kernel(&gpu, "spry_encode"), ROWS, 1, 1, 256, &encode);
    const spry_product_args args = {.parts = {{.weight = w->tiles, .out = to, .stride = OUTPUTS}},
                                    .act = act,
                                    .n_parts = 1,
                                    .n_tiles = w->tiles.n_tiles,
                                    .n_rows = ROWS};
    spry_cuda_launch_shared(&gpu, spry_cuda_kernel(&gpu, kernel), (w->tiles.n_tiles + tiles - 1) / tiles,
                            (ROWS + rows - 1) / rows, 1, threads, shared_bytes, &args);
    from_gpu(out, to, ROWS * OUTPUTS * sizeof(float));
    spry_cuda_free(&gpu, &in);
    spry_cuda_free(&gpu, &to);
}

static void wide_products_have_the_same_bits(void **state)
{
    (void)state;
    static float few[ROWS * OUTPUTS], wide[ROWS * OUTPUTS];
    for (size_t t = 1; t < SPRY_COUNT(types); t++) /* not F32 */
        for (size_t each = 1; each <= 2; each++) {
            product_case c;
            char name[SPRY_CUDA_KERNEL_NAME];
            bool floats = types[t] == SPRY_F16 || types[t] == SPRY_BF16;
            open_case(&c, types[t]);
            multiply(&c, few, 0, 60);
            if (floats) {
                snprintf(name, sizeof name, "spry_product_%s_staged", spry_cuda_type_name(types[t]));
                multiply_by(&c, wide, name, 8, 64, 128, 3 * 32768, 0);
            } else {
                snprintf(name, sizeof name, "spry_product_%s_wide_%zu", spry_cuda_type_name(types[t]), each);
                multiply_by(&c, wide, name, 4 * each, 128, 256, 0, 0);
            }
            if (memcmp(few, wide, 60 * OUTPUTS * sizeof(float)))
                fail_msg("%s has other bits", name);
            if (gpu.cores) {
                snprintf(name, sizeof name, "spry_product_%s_cores_%zu", spry_cuda_type_name(types[t]), 4 * each);
                multiply_by(&c, wide, name, 4 * each, 128, (unsigned)(128 * each), floats ? 3 * 32768 : 3 * 10240, 16);
                if (memcmp(few, wide, 60 * OUTPUTS * sizeof(float)))
                    fail_msg("%s has other bits", name);
            }
            close_case(&c);
        }
}

/* Rows that are normalised, or gated, within a product: what the kernels one by one give. `processors`: how many the
 * GPU is taken to have; with few, blocks go through several batches of more tiles, also for rows that are encoded. */
static void compare_fused(product_case *c, size_t n_rows, float *norm, size_t processors)
{
    enum { GATED = OUTPUTS / 64 * 64 };
    static float apart[ROWS * OUTPUTS], fused[ROWS * OUTPUTS];
    static unsigned char acts[2][SLOTS * 64 * 24], zeros[SLOTS * 64 * 24];
    spry_cuda_memory in = on_gpu(c->floats, n_rows * c->n_in * sizeof(float)), weight = on_gpu(norm, c->n_in * 4);
    spry_cuda_memory to = on_gpu(NULL, n_rows * OUTPUTS * 4), up = on_gpu(NULL, n_rows * OUTPUTS * 4);
    const spry_cuda_product product = {to, OUTPUTS, &c->device.model.output};
    const spry_encode_args from = {.in = in, .weight = weight, .n = (uint32_t)c->n_in, .gate = 1};
    spry_cuda_encode(&c->device, from, &product, 1, n_rows);
    spry_cuda_products(&c->device, &product, 1, n_rows, false, (spry_cuda_groups){0});
    from_gpu(apart, to, n_rows * OUTPUTS * 4);
    c->device.context.processors = processors;
    spry_cuda_products(&c->device, &product, 1, n_rows, false, (spry_cuda_groups){0});
    from_gpu(fused, to, n_rows * OUTPUTS * 4);
    if (memcmp(apart, fused, n_rows * OUTPUTS * 4))
        fail_msg("%s: %zu rows have other bits on %zu processors", spry_dtype_name(c->type), n_rows, processors);
    spry_cuda_encode_products(&c->device, from, &product, 1, n_rows, false);
    from_gpu(fused, to, n_rows * OUTPUTS * 4);
    if (memcmp(apart, fused, n_rows * OUTPUTS * 4))
        fail_msg("%s: %zu rows normalised on the way have other bits", spry_dtype_name(c->type), n_rows);

    spry_cuda_matrix whole = c->device.model.output;
    whole.tiles.n_out = GATED;
    whole.tiles.n_tiles = GATED / 16;
    const spry_cuda_product both[] = {{to, GATED, &whole}, {up, GATED, &whole}};
    spry_act_form form = spry_cuda_form(c->type);
    size_t bytes = (form == SPRY_ACT_BYTES ? 64 : 256) * SPRY_ACT_ROWS * (GATED / 64);
    for (size_t i = 0; i < 2; i++) {
        spry_cuda_write(&gpu, c->device.scratch.act_values[form], zeros, bytes);
        if (i)
            assert_true(spry_cuda_gated_products(&c->device, from, both, &whole, n_rows));
        else
            spry_cuda_encode(&c->device, from, both, 2, n_rows);
        if (!i)
            spry_cuda_products(&c->device, both, 2, n_rows, false, (spry_cuda_groups){0});
        if (!i)
            spry_cuda_write(&gpu, c->device.scratch.act_values[form], zeros, bytes);
        if (!i)
            spry_cuda_encode(&c->device, (spry_encode_args){.in = to, .up = up, .n = GATED, .gate = 1}, both, 1,
                             n_rows);
        from_gpu(acts[i], c->device.scratch.act_values[form], bytes);
    }
    if (memcmp(acts[0], acts[1], bytes))
        fail_msg("%s: %zu rows gated on the way have other bits", spry_dtype_name(c->type), n_rows);
    c->device.context.processors = gpu.processors;
    spry_cuda_free(&gpu, &in);
    spry_cuda_free(&gpu, &weight);
    spry_cuda_free(&gpu, &to);
    spry_cuda_free(&gpu, &up);
}

static void fused_products_have_the_same_bits(void **state)
{
    (void)state;
    static float norm[2048];
    fill(norm, SPRY_COUNT(norm), 2);
    for (size_t t = 1; t < SPRY_COUNT(types); t++) { /* not F32 */
        product_case c;
        open_case(&c, types[t]);
        static const size_t counts[] = {1, 3, 8};
        for (size_t i = 0; i < SPRY_COUNT(counts); i++) {
            compare_fused(&c, counts[i], norm, gpu.processors);
            compare_fused(&c, counts[i], norm, 1);
        }
        close_case(&c);
    }
}

static void products_are_right_and_do_not_depend_on_other_rows(void **state)
{
    (void)state;
    static float all[ROWS * OUTPUTS], some[ROWS * OUTPUTS];
    static const size_t counts[] = {1, 8, 12, 33, 65};
    for (size_t t = 0; t < SPRY_COUNT(types); t++) {
        product_case c;
        open_case(&c, types[t]);
        multiply(&c, all, 0, ROWS);
        double worst = 0;
        for (size_t i = 0; i < ROWS * OUTPUTS; i++) {
            double off = fabs((double)all[i] - (double)c.expected[i]) / (double)c.allowed[i];
            worst = fmax(worst, off);
            if (!(off <= 1))
                fail_msg("%s: row %zu, output %zu: %g, expected %g, allowed %g off", spry_dtype_name(types[t]),
                         i / OUTPUTS, i % OUTPUTS, (double)all[i], (double)c.expected[i], (double)c.allowed[i]);
        }
        for (size_t k = 0; k < SPRY_COUNT(counts); k++) {
            size_t first = random_bits() % (ROWS - counts[k] + 1);
            multiply(&c, some, first, counts[k]);
            if (memcmp(some, all + first * OUTPUTS, counts[k] * OUTPUTS * sizeof(float)))
                fail_msg("%s: rows %zu to %zu alone have other bits", spry_dtype_name(types[t]), first,
                         first + counts[k]);
        }
        print_message("%-6s off by %.4f of what is allowed\n", spry_dtype_name(types[t]), worst);
        close_case(&c);
    }
}

static void embeddings_are_those_of_the_file(void **state)
{
    (void)state;
    for (size_t t = 0; t < SPRY_COUNT(types); t++) {
        product_case c;
        char name[SPRY_CUDA_KERNEL_NAME];
        open_case(&c, types[t]);
        spry_step_row rows[OUTPUTS] = {{0}};
        for (int32_t i = 0; i < OUTPUTS; i++)
            rows[i].token = OUTPUTS - 1 - i;
        spry_cuda_memory steps = on_gpu(rows, sizeof rows), x = on_gpu(NULL, OUTPUTS * c.n_in * sizeof(float));
        const spry_embed_args args = {
            .weight = c.device.model.embedding.tiles, .x = x, .rows = steps, .n = (uint32_t)c.n_in, .scale = 1};
        snprintf(name, sizeof name, "spry_embed_%s", spry_cuda_type_name(types[t]));
        spry_cuda_launch(&gpu, spry_cuda_kernel(&gpu, name), OUTPUTS, 1, 1, 256, &args);
        float *got = taken(OUTPUTS * c.n_in, sizeof(float));
        from_gpu(got, x, OUTPUTS * c.n_in * sizeof(float));
        for (size_t i = 0; i < OUTPUTS * c.n_in; i++) {
            float expected = c.weights[(OUTPUTS - 1 - i / c.n_in) * c.n_in + i % c.n_in];
            if (got[i] != expected)
                fail_msg("%s: row %zu, value %zu: %g instead of %g", spry_dtype_name(types[t]), i / c.n_in, i % c.n_in,
                         (double)got[i], (double)expected);
        }
        free(got);
        spry_cuda_free(&gpu, &steps);
        spry_cuda_free(&gpu, &x);
        close_case(&c);
    }
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

enum { PAGES = 24, ENTRIES = 19, KV_HEADS = 2, TURNS = 3, ATTEND_ROWS = 40 };

typedef struct attend_shape {
    spry_dtype type;
    size_t head_dim, group;
    uint32_t window;
    float softcap;
    bool interleaved;
} attend_shape;

static const attend_shape attend_shapes[] = {
    {SPRY_F16, 128, 2, 0, 0, false}, {SPRY_F16, 64, 4, 100, 0, true},  {SPRY_F32, 16, 3, 0, 5, false},
    {SPRY_F32, 32, 1, 1, 0, false},  {SPRY_Q8_0, 96, 2, 0, 0, false},  {SPRY_Q8_0, 256, 4, 40, 3, true},
    {SPRY_F16, 512, 2, 0, 0, false}, {SPRY_F16, 80, 9, 333, 0, false}, {SPRY_F16, 256, 1, 50, 2, false},
    {SPRY_F16, 96, 20, 0, 0, true},  {SPRY_F16, 32, 5, 0, 0, false},
};

typedef struct attend_scene {
    const attend_shape *shape;
    unsigned char *pages;
    spry_kv_entry entries[ENTRIES];
    float cosine[TURNS][SPRY_ATTEND_HEAD_DIM_MAX / 2], sine[TURNS][SPRY_ATTEND_HEAD_DIM_MAX / 2];
    spry_turn turns[TURNS];
    float *query, *expected; /* [ATTEND_ROWS, heads * head_dim] */
    size_t n_tokens, token_bytes, head_bytes, page_bytes, width;
    spry_step_row rows[ATTEND_ROWS];
} attend_scene;

static void fill_pages(attend_scene *s)
{
    const attend_shape *p = s->shape;
    float head[SPRY_ATTEND_HEAD_DIM_MAX];
    s->pages = taken(PAGES, s->page_bytes);
    memset(s->pages, 0xff, PAGES * s->page_bytes);
    s->n_tokens = 0;
    for (size_t e = 0; e < ENTRIES; e++) {
        uint32_t count = e % 5 == 3 ? 1 + random_bits() % 32 : 32;
        s->entries[e] = (spry_kv_entry){(uint32_t)((e * 7 + 3) % PAGES), (uint32_t)s->n_tokens, count,
                                        e % 4 == 2 ? 1 + (uint32_t)e % 2 : 0};
        for (size_t token = 0; token < count; token++)
            for (size_t h = 0; h < KV_HEADS; h++) {
                unsigned char *at = s->pages + s->entries[e].page * s->page_bytes + h * s->head_bytes;
                fill(head, p->head_dim, 1);
                spry_kv_store_key(ref, p->type, at, token, head, p->head_dim);
                fill(head, p->head_dim, 1);
                ref->encode[p->type](at + KV_HEADS * s->head_bytes + token * s->token_bytes, head, p->head_dim);
            }
        s->n_tokens += count;
    }
}

static void open_scene(attend_scene *s, const attend_shape *p)
{
    *s = (attend_scene){.shape = p, .width = KV_HEADS * p->group * p->head_dim};
    assert_true(spry_dtype_size(&s->token_bytes, p->type, p->head_dim));
    s->head_bytes = s->token_bytes * SPRY_PAGE_TOKENS;
    s->page_bytes = s->head_bytes * KV_HEADS * 2;
    fill_pages(s);
    for (size_t t = 1; t < TURNS; t++) {
        for (size_t i = 0; i < p->head_dim / 2; i++) {
            s->cosine[t][i] = cosf((float)(t * i) + 0.3f);
            s->sine[t][i] = sinf((float)(t * i) + 0.3f);
        }
        s->turns[t] = (spry_turn){s->cosine[t], s->sine[t]};
    }
    s->query = taken(ATTEND_ROWS * s->width, sizeof(float));
    s->expected = taken(ATTEND_ROWS * s->width, sizeof(float));
    fill(s->query, ATTEND_ROWS * s->width, 1);
}

static float attend_scale(const attend_shape *p)
{
    return 1 / sqrtf((float)p->head_dim);
}

static void expect_attention(attend_scene *s)
{
    const attend_shape *p = s->shape;
    const spry_attend a = {.out = s->expected,
                           .query = s->query,
                           .row_stride = s->width,
                           .n_rows = ATTEND_ROWS,
                           .first_position = (uint32_t)(s->n_tokens - ATTEND_ROWS),
                           .window = p->window,
                           .head_dim = p->head_dim,
                           .group = p->group,
                           .scale = attend_scale(p),
                           .softcap = p->softcap,
                           .type = p->type,
                           .pages = s->pages,
                           .page_bytes = s->page_bytes,
                           .value_offset = KV_HEADS * s->head_bytes,
                           .head_bytes = s->head_bytes,
                           .token_bytes = s->token_bytes,
                           .entries = s->entries,
                           .n_entries = ENTRIES,
                           .turns = s->turns,
                           .n_pairs = p->head_dim / 2,
                           .interleaved = p->interleaved};
    for (size_t h = 0; h < KV_HEADS; h++)
        spry_ref_attend(&a, h);
}

static void place_rows_of(attend_scene *s)
{
    for (size_t i = 0; i < ATTEND_ROWS; i++) {
        uint32_t position = (uint32_t)(s->n_tokens - ATTEND_ROWS + i), last = 0;
        while (s->entries[last].start + s->entries[last].count <= position)
            last++;
        s->rows[i] = (spry_step_row){.position = position, .n_entries = last + 1};
    }
}

/* `many`: runs of `each` rows; otherwise one by one, in pieces of `each`. */
static void attend_on_gpu(attend_scene *s, float *out, bool many, uint32_t each)
{
    const attend_shape *p = s->shape;
    uint32_t few[ATTEND_ROWS], n_runs = 0, n_pieces = 0, n_heads = (uint32_t)(KV_HEADS * p->group);
    spry_attend_run runs[ATTEND_ROWS];
    spry_attend_piece pieces[ATTEND_ROWS];
    for (uint32_t i = 0; i < ATTEND_ROWS; i++)
        few[i] = i;
    for (uint32_t i = 0; i < ATTEND_ROWS; i += each)
        runs[n_runs++] = (spry_attend_run){i, ATTEND_ROWS - i < each ? ATTEND_ROWS - i : each};
    for (uint32_t i = 0; i < ATTEND_ROWS; i += each)
        pieces[n_pieces++] = (spry_attend_piece){i, ATTEND_ROWS - i < each ? ATTEND_ROWS - i : each, i};
    const spry_config config = {.n_heads = n_heads, .n_kv_heads = KV_HEADS, .head_dim = (uint32_t)p->head_dim};
    const spry_cuda_attention way = spry_cuda_attention_of(&config, p->type);
    size_t chunks = (ENTRIES + way.chunk_pages - 1) / way.chunk_pages, bytes = ATTEND_ROWS * s->width * sizeof(float);
    spry_cuda_memory memory[] = {on_gpu(NULL, bytes),
                                 on_gpu(s->query, bytes),
                                 on_gpu(NULL, ATTEND_ROWS * n_heads * chunks * (p->head_dim + 2) * sizeof(float)),
                                 on_gpu(s->rows, sizeof s->rows),
                                 on_gpu(s->entries, sizeof s->entries),
                                 on_gpu(few, sizeof few),
                                 on_gpu(runs, sizeof runs),
                                 on_gpu(NULL, TURNS * p->head_dim / 2 * sizeof(float)),
                                 on_gpu(NULL, TURNS * p->head_dim / 2 * sizeof(float)),
                                 on_gpu(s->pages, PAGES * s->page_bytes),
                                 on_gpu(pieces, sizeof pieces)};
    for (size_t t = 1; t < TURNS; t++) {
        spry_cuda_write(&gpu, memory[7] + t * p->head_dim / 2 * sizeof(float), s->cosine[t], p->head_dim / 2 * 4);
        spry_cuda_write(&gpu, memory[8] + t * p->head_dim / 2 * sizeof(float), s->sine[t], p->head_dim / 2 * 4);
    }
    const spry_attend_args args = {.out = memory[0],
                                   .q = memory[1],
                                   .partial = memory[2],
                                   .rows = memory[3],
                                   .entries = memory[4],
                                   .few = memory[5],
                                   .pieces = memory[10],
                                   .runs = memory[6],
                                   .turn_cosine = memory[7],
                                   .turn_sine = memory[8],
                                   .kv = {.pages = memory[9],
                                          .page_bytes = s->page_bytes,
                                          .value_offset = KV_HEADS * s->head_bytes,
                                          .head_bytes = (uint32_t)s->head_bytes,
                                          .token_bytes = (uint32_t)s->token_bytes,
                                          .n_kv_heads = KV_HEADS,
                                          .head_dim = (uint32_t)p->head_dim},
                                   .n_heads = n_heads,
                                   .n_pairs = (uint32_t)p->head_dim / 2,
                                   .interleaved = p->interleaved,
                                   .window = p->window,
                                   .n_chunks = (uint32_t)chunks,
                                   .chunk_pages = (uint32_t)way.chunk_pages,
                                   .scale = attend_scale(p),
                                   .softcap = p->softcap};
    char name[SPRY_CUDA_KERNEL_NAME];
    snprintf(name, sizeof name, many ? way.many : way.few, way.number);
    void *kernel = spry_cuda_kernel(&gpu, name);
    unsigned threads = (unsigned)way.warps * 32;
    if (many) {
        spry_cuda_launch_shared(&gpu, kernel, n_runs, KV_HEADS, 1, threads, way.shared_bytes, &args);
    } else {
        spry_cuda_launch(&gpu, kernel, way.pieces ? n_pieces : ATTEND_ROWS,
                         KV_HEADS * ((p->group + way.queries - 1) / way.queries) * way.parts,
                         (chunks * way.chunk_pages + way.warps - 1) / way.warps, threads, &args);
        spry_cuda_launch(&gpu, spry_cuda_kernel(&gpu, "spry_attend_merge"), ATTEND_ROWS, n_heads, 1, 128, &args);
    }
    from_gpu(out, memory[0], bytes);
    for (size_t i = 0; i < SPRY_COUNT(memory); i++)
        spry_cuda_free(&gpu, &memory[i]);
}

static void attention_is_right_and_does_not_depend_on_other_rows(void **state)
{
    (void)state;
    for (size_t t = 0; t < SPRY_COUNT(attend_shapes); t++) {
        attend_scene s;
        open_scene(&s, &attend_shapes[t]);
        expect_attention(&s);
        place_rows_of(&s);
        size_t n = ATTEND_ROWS * s.width;
        float *few = taken(n, sizeof(float)), *many = taken(n, sizeof(float)), *others = taken(n, sizeof(float));
        attend_on_gpu(&s, few, false, 1);
        attend_on_gpu(&s, many, true, 16);
        attend_on_gpu(&s, others, true, 7);
        /* Values are at most 1, scores at most sqrt(head_dim). */
        double allowed =
            ((double)s.shape->head_dim * sqrt((double)s.shape->head_dim) + 2.0 * (double)s.n_tokens) * 0x1p-24;
        for (size_t i = 0; i < n; i++)
            if (!(fabs((double)few[i] - (double)s.expected[i]) <= allowed))
                fail_msg("shape %zu: row %zu, value %zu: %g instead of %g", t, i / s.width, i % s.width, (double)few[i],
                         (double)s.expected[i]);
        assert_memory_equal(few, many, n * sizeof(float));
        if (s.shape->group < 16) {
            attend_on_gpu(&s, many, false, (uint32_t)(16 / s.shape->group));
            assert_memory_equal(few, many, n * sizeof(float));
        }
        assert_memory_equal(few, others, n * sizeof(float));
        free(few);
        free(many);
        free(others);
        free(s.pages);
        free(s.query);
        free(s.expected);
    }
}

/* ---- sampling ---------------------------------------------------------------------------------------------------- */

enum { VOCAB = 1500, DRAWS = 16, HISTORY = 40 };

typedef struct draw_scene {
    float logits[VOCAB];
    int32_t history[HISTORY];
    spry_logit_bias bias[3];
    uint32_t mask[(VOCAB + 31) / 32];
    spry_sampling settings;
    bool masked;
} draw_scene;

static bool sometimes(void)
{
    return random_bits() % 2;
}

static void make_scene(draw_scene *s)
{
    float size = sometimes() ? 8.0f : 2.0f;
    for (size_t i = 0; i < VOCAB; i++) /* some are equal */
        s->logits[i] = floorf(uniform() * 64) / 64 * size;
    for (size_t i = 0; i < HISTORY; i++)
        s->history[i] = (int32_t)(random_bits() % VOCAB);
    for (size_t i = 0; i < SPRY_COUNT(s->bias); i++)
        s->bias[i] = (spry_logit_bias){(int32_t)(random_bits() % VOCAB), i ? uniform() * 10 : -INFINITY};
    for (size_t i = 0; i < SPRY_COUNT(s->mask); i++)
        s->mask[i] = random_bits() | random_bits() << 16;
    s->masked = sometimes();
    bool plain = random_bits() % 8 == 0; /* greedy and nothing else */
    spry_sampling_default(&s->settings);
    s->settings.temperature = random_bits() % 4 ? 0.2f + (float)(random_bits() % 100) / 50 : 0;
    s->settings.repeat_penalty = sometimes() ? 1.3f : 1;
    s->settings.presence_penalty = sometimes() ? 0.4f : 0;
    s->settings.frequency_penalty = sometimes() ? 0.2f : 0;
    s->settings.penalty_window = sometimes() ? 16 : 0;
    s->settings.top_k = sometimes() ? 1 + random_bits() % 60 : 0;
    s->settings.top_p = sometimes() ? 0.3f + (float)(random_bits() % 70) / 100 : 1;
    s->settings.min_p = sometimes() ? (float)(random_bits() % 20) / 100 : 0;
    s->settings.typical_p = random_bits() % 3 ? 1 : 0.6f;
    s->settings.seed = random_bits();
    s->settings.bias = s->bias;
    s->settings.n_bias = sometimes() ? SPRY_COUNT(s->bias) : 0;
    if (plain) {
        spry_sampling_default(&s->settings);
        s->settings.temperature = 0;
        s->masked = false;
    }
}

static void draws_are_those_of_the_host(void **state)
{
    (void)state;
    static draw_scene scenes[DRAWS];
    static float logits[DRAWS * VOCAB];
    spry_config config = {.n_vocab = VOCAB};
    spry_cuda_device d = {.config = &config, .context = gpu};
    spry_error error = {0};
    spry_sampler *sampler;
    assert_int_equal(spry_sampler_create(&sampler, ref, VOCAB, &error), SPRY_OK);
    d.scratch.draw_scores = on_gpu(NULL, SPRY_CUDA_DRAWS * VOCAB * 4);
    d.scratch.draw_weight = on_gpu(NULL, SPRY_CUDA_DRAWS * VOCAB * 8);
    d.scratch.draw_count = on_gpu(NULL, SPRY_CUDA_DRAWS * VOCAB * 4);
    gpu.cuda->memory_fill(d.scratch.draw_count, 0, SPRY_CUDA_DRAWS * VOCAB);
    d.scratch.draw_best = on_gpu(NULL, SPRY_CUDA_DRAWS * SPRY_DRAW_SLICES * 8);
    d.scratch.logits = on_gpu(NULL, sizeof logits);
    for (size_t round = 0; round < 12; round++) {
        spry_draw draws[DRAWS] = {{0}}, *list[DRAWS];
        for (size_t i = 0; i < DRAWS; i++) {
            spry_random random;
            make_scene(&scenes[i]);
            memcpy(logits + i * VOCAB, scenes[i].logits, sizeof scenes[i].logits);
            spry_random_seed(&random, scenes[i].settings.seed);
            draws[i] = (spry_draw){.row = i,
                                   .settings = &scenes[i].settings,
                                   .history = scenes[i].history,
                                   .n_history = HISTORY,
                                   .mask = scenes[i].masked ? scenes[i].mask : NULL,
                                   .u = spry_random_unit(&random),
                                   .wants_logprob = sometimes(),
                                   .max_top = sometimes() ? 7 : 0};
            list[i] = &draws[i];
        }
        spry_cuda_write(&d.context, d.scratch.logits, logits, sizeof logits);
        assert_int_equal(spry_cuda_draw_queue(&d, list, DRAWS, &error), SPRY_OK);
        spry_cuda_finish(&d.context);
        spry_cuda_draw_take(&d, list, DRAWS);
        for (size_t i = 0; i < DRAWS; i++) {
            int32_t token;
            assert_int_equal(spry_sampler_set(sampler, &scenes[i].settings, &error), SPRY_OK);
            assert_int_equal(spry_sampler_draw(sampler, &token, scenes[i].logits, scenes[i].history, HISTORY,
                                               scenes[i].masked ? scenes[i].mask : NULL, &error),
                             SPRY_OK);
            assert_int_equal(draws[i].status, SPRY_OK);
            if (draws[i].token != token)
                fail_msg("round %zu, draw %zu: token %d, the host drew %d", round, i, draws[i].token, token);
            if (draws[i].wants_logprob || draws[i].max_top)
                assert_true(fabs(draws[i].logprob - spry_logprob(scenes[i].logits, VOCAB, token)) < 1e-9);
            assert_int_equal(draws[i].n_top, draws[i].max_top);
            for (size_t k = 0; k < draws[i].n_top; k++) {
                size_t better = 0;
                float own = scenes[i].logits[draws[i].top[k].id];
                for (int32_t id = 0; id < VOCAB; id++)
                    better += scenes[i].logits[id] > own || (scenes[i].logits[id] == own && id < draws[i].top[k].id);
                assert_int_equal(better, k);
            }
        }
    }
    logits[5] = NAN;
    spry_sampling settings;
    spry_sampling_default(&settings);
    uint32_t nothing[(VOCAB + 31) / 32] = {0};
    spry_draw bad = {.settings = &settings}, empty = {.row = 1, .settings = &settings, .mask = nothing};
    spry_draw *list[] = {&bad, &empty};
    spry_cuda_write(&d.context, d.scratch.logits, logits, sizeof logits);
    assert_int_equal(spry_cuda_draw_queue(&d, list, 2, &error), SPRY_OK);
    spry_cuda_finish(&d.context);
    spry_cuda_draw_take(&d, list, 2);
    assert_int_equal(bad.status, SPRY_ERR_INPUT);
    assert_int_equal(empty.status, SPRY_ERR_INPUT);
    spry_cuda_draw_deinit(&d);
    spry_cuda_free(&gpu, &d.scratch.draw_scores);
    spry_cuda_free(&gpu, &d.scratch.draw_weight);
    spry_cuda_free(&gpu, &d.scratch.draw_count);
    spry_cuda_free(&gpu, &d.scratch.draw_best);
    spry_cuda_free(&gpu, &d.scratch.logits);
    spry_sampler_destroy(sampler);
}

int main(int argc, char **argv)
{
    bool real = argc > 1 && !strcmp(argv[1], "gpu");
    spry_error error = {0};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings_are_those_of_the_file),
        cmocka_unit_test(products_are_right_and_do_not_depend_on_other_rows),
        cmocka_unit_test(fused_products_have_the_same_bits),
        cmocka_unit_test(wide_products_have_the_same_bits),
        cmocka_unit_test(attention_is_right_and_does_not_depend_on_other_rows),
        cmocka_unit_test(draws_are_those_of_the_host),
    };
    cuda_imitation_reset();
    driver = cuda_imitation_driver();
    if (spry_ops_get(&ref, "ref", &error) || (real && spry_cuda_open(&driver, SPRY_CUDA_LIBRARY, &error)) ||
        spry_cuda_context_init(&gpu, &driver, 0, real ? spry_cuda_images : cuda_imitation_images, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    spry_cuda_context_deinit(&gpu);
    spry_cuda_close(&driver);
    return failed;
}
