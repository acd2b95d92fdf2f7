/* GEMMs and embeddings on the GPU against the plain C ops. */
#include "support/cuda_host.h"
#include "support/cuda_scene.h"

#include <math.h>

#include "device/cuda/cuda_gemm.h"
#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/ref/ref.h"
#include "model/arch.h"

/* ---- gemm -------------------------------------------------------------------------------------------------------- */

enum { OUTPUTS = 150, ROWS = 70, SLOTS = 128 };

/* A type of each form in which weights are stored, then all types that share a form. */
#define TYPE(name, NAME, ...) SPRY_##NAME,
static const spry_dtype types[] = {SPRY_F32, SPRY_HALF_TYPES(TYPE) SPRY_QUANT_BLOCKS(TYPE) SPRY_IQ4_XS, SPRY_NVFP4,
                                   SPRY_LEVEL_TYPES(TYPE)};
enum { N_FORMS = 15 };
#undef TYPE

typedef struct gemm_case {
    spry_dtype type;
    size_t n_in;
    unsigned char *rows;       /* as in a file */
    float *weights;            /* [OUTPUTS, n_in]: what they are worth */
    float *floats;             /* [ROWS, n_in]: activations */
    float *worth;              /* the values that a product sees */
    float *expected, *allowed; /* [ROWS, OUTPUTS] */
    spry_weights model;
    spry_config config;
    spry_cuda_device device; /* the parts of a device that launches need */
    bool mma_layout;         /* rows are not quantised in the wgmma layout */
} gemm_case;

/* A block whose largest value is at most 4, for types without an encoder. */
static void random_block(spry_dtype type, unsigned char *block)
{
    float values[256], largest;
    do {
        for (size_t i = 0; i < spry_dtype_bytes(type); i++)
            block[i] = (unsigned char)random_bits();
        ref->decode[type](values, block, spry_dtype_block(type));
        largest = 0;
        for (size_t i = 0; i < spry_dtype_block(type); i++)
            largest = values[i] == values[i] ? fmaxf(largest, fabsf(values[i])) : INFINITY;
    } while (!(largest <= 4 && largest > 0x1p-4f));
}

static void make_weights(gemm_case *c)
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
        else
            for (size_t i = 0; i < row_bytes; i += spry_dtype_bytes(c->type))
                random_block(c->type, row + i);
        ref->decode[c->type](c->weights + o * c->n_in, row, c->n_in);
    }
    c->model.embedding = c->model.output =
        (spry_weight){.data = c->rows, .type = c->type, .n_out = OUTPUTS, .n_in = c->n_in, .row_bytes = row_bytes};
}

static float rounded(float value)
{
    return spry_bf16_decode(spry_bf16_encode(value));
}

static void make_rows(gemm_case *c)
{
    c->floats = taken(ROWS * c->n_in, sizeof(float));
    c->worth = taken(ROWS * c->n_in, sizeof(float));
    fill(c->floats, ROWS * c->n_in, 3);
    memcpy(c->worth, c->floats, ROWS * c->n_in * sizeof(float));
    for (size_t i = 0; spry_cuda_act_format(c->type) == SPRY_ACT_BF16 && i < ROWS * c->n_in; i++)
        c->worth[i] = rounded(c->floats[i]);
}

/* The expected product, and the allowed error: rounding of the sum, the bits that two bf16 terms drop of an activation,
 * and three roundings to bf16 of a quantised weight (scale, minimum, value), in which a quant and a minimum may each be
 * as large as the block's largest weight; these errors are independent. */
static void expect(gemm_case *c)
{
    double act_error = spry_cuda_act_format(c->type) == SPRY_ACT_BF16X2 ? 0x1p-17 : 0;
    bool quantised = spry_dtype_block(c->type) > 1;
    c->expected = taken(ROWS * OUTPUTS, sizeof(float));
    c->allowed = taken(ROWS * OUTPUTS, sizeof(float));
    for (size_t row = 0; row < ROWS; row++)
        for (size_t o = 0; o < OUTPUTS; o++) {
            double sum = 0, size = 0, largest = 0, squares = 0;
            for (size_t i = 0; i < c->n_in; i++)
                largest = fmax(largest, fabs((double)c->weights[o * c->n_in + i]));
            for (size_t i = 0; i < c->n_in; i++) {
                double a = (double)c->worth[row * c->n_in + i];
                sum += (double)c->weights[o * c->n_in + i] * a;
                size += 2 * largest * fabs(a);
                squares += largest * largest * a * a;
            }
            if (quantised)
                size += 6 * 0x1p-9 * sqrt(squares) / (act_error + sqrt((double)c->n_in) * 0x1p-24);
            c->expected[row * OUTPUTS + o] = (float)sum;
            c->allowed[row * OUTPUTS + o] = (float)(size * (act_error + sqrt((double)c->n_in) * 0x1p-24));
        }
}

static void open_case(gemm_case *c, spry_dtype type)
{
    size_t block = spry_dtype_block(type);
    static const float norm[2048];
    static const spry_arch arch = {0};
    spry_error error = {0};
    *c = (gemm_case){.type = type, .n_in = block == SPRY_BLOCK_LARGE ? 1536 : block > SPRY_BLOCK_SMALL ? 1152 : 1184};
    make_weights(c);
    make_rows(c);
    expect(c);
    c->model.output_norm = norm;
    c->config = (spry_config){.arch = &arch, .n_embd = (uint32_t)c->n_in};
    c->device = (spry_cuda_device){.config = &c->config, .context = gpu};
    spry_status status = spry_cuda_model_init(&c->device.model, &c->device.context, &c->config, &c->model, ref,
                                              &(spry_step_limits){.session = 1}, (spry_log){0}, &error);
    if (status)
        fail_msg("%s", error.message);
    size_t units = (c->n_in + 63) / 64;
    for (size_t format = 0; format < SPRY_ACT_FORMATS; format++)
        c->device.scratch.act_values[format] = on_gpu(NULL, SLOTS * units * 384);
    c->device.scratch.act_norms = on_gpu(NULL, SLOTS * units * 4);
    c->device.scratch.x_values = on_gpu(NULL, SLOTS * units * 256);
}

static void close_case(gemm_case *c)
{
    for (size_t format = 0; format < SPRY_ACT_FORMATS; format++)
        spry_cuda_free(&gpu, &c->device.scratch.act_values[format]);
    spry_cuda_free(&gpu, &c->device.scratch.act_norms);
    spry_cuda_free(&gpu, &c->device.scratch.x_values);
    spry_cuda_model_deinit(&c->device.model, &c->device.context);
    free(c->rows);
    free(c->weights);
    free(c->floats);
    free(c->worth);
    free(c->expected);
    free(c->allowed);
}

static void multiply_rows(gemm_case *c, spry_quantise_args in, const spry_cuda_gemm *products, size_t n_products,
                          size_t n_rows)
{
    const spry_cuda_rows rows = spry_cuda_quantise(&c->device, in, products, n_products, n_rows, c->mma_layout);
    spry_cuda_gemms(&c->device, &rows, products, n_products, n_rows, false, (spry_cuda_expert_groups){0});
}

/* out[n_rows, OUTPUTS] of rows from `first` on. */
static void multiply(gemm_case *c, float *out, size_t first, size_t n_rows)
{
    spry_cuda_memory in = on_gpu(c->floats + first * c->n_in, n_rows * c->n_in * sizeof(float));
    spry_cuda_memory to = on_gpu(NULL, n_rows * OUTPUTS * sizeof(float));
    const spry_cuda_gemm product = {to, OUTPUTS, &c->device.model.output};
    multiply_rows(c, (spry_quantise_args){.in = in, .n = (uint32_t)c->n_in}, &product, 1, n_rows);
    assert_int_equal(c->device.context.fault, 0);
    from_gpu(out, to, n_rows * OUTPUTS * sizeof(float));
    spry_cuda_free(&gpu, &in);
    spry_cuda_free(&gpu, &to);
}

/* A kernel, the tiles and rows of a block, and its dynamic shared memory. */
typedef struct kernel_case {
    spry_kernel_id kernel;
    size_t tiles, rows;
    size_t shared_bytes;
    size_t blocks, share; /* of gemm_wgmma.cu, with rows in the wgmma layout; share: blocks of a cluster */
} kernel_case;

/* The product of all rows by this kernel. */
static void multiply_by(gemm_case *c, float *out, const kernel_case *k)
{
    const spry_cuda_matrix *w = &c->device.model.output;
    size_t columns = (w->tiles.n_tiles + k->tiles - 1) / k->tiles, row_blocks = (ROWS + k->rows - 1) / k->rows;
    spry_cuda_memory in = on_gpu(c->floats, ROWS * c->n_in * sizeof(float));
    spry_cuda_memory to = on_gpu(NULL, ROWS * OUTPUTS * sizeof(float));
    spry_activations act = spry_cuda_activations(&c->device, w, c->n_in);
    act.wgmma_groups = k->blocks ? SLOTS / 8 : 0;
    spry_quantise_args encode = {.in = in, .n = (uint32_t)c->n_in, .n_rows = ROWS, .in_stride = (uint32_t)c->n_in};
    encode.to[spry_cuda_act_format(c->type)] = act;
    spry_cuda_launch(&gpu, spry_quantise_id, ROWS, 1, 1, &encode);
    const spry_gemm_args args = {.parts = {{.weight = w->tiles, .out = to, .stride = OUTPUTS}},
                                 .act = act,
                                 .n_parts = 1,
                                 .n_tiles = w->tiles.n_tiles,
                                 .n_rows = ROWS};
    if (k->share > 1)
        spry_cuda_launch_cluster(&gpu, k->kernel, k->share, k->blocks, 1, 0, k->shared_bytes, &args);
    else if (k->blocks)
        spry_cuda_launch_shared(&gpu, k->kernel, 1, k->blocks, 1, k->shared_bytes, &args);
    else
        spry_cuda_launch_shared(&gpu, k->kernel, columns, row_blocks, 1, k->shared_bytes, &args);
    from_gpu(out, to, ROWS * OUTPUTS * sizeof(float));
    spry_cuda_free(&gpu, &in);
    spry_cuda_free(&gpu, &to);
}

static void expect_bits(gemm_case *c, const float *few, const kernel_case *k)
{
    static float wide[ROWS * OUTPUTS];
    multiply_by(c, wide, k);
    if (memcmp(few, wide, 60 * OUTPUTS * sizeof(float)))
        fail_msg("%s has other bits (%zu blocks of %zu)", spry_cuda_kernel_names[k->kernel], k->blocks, k->share);
}

/* With wgmma: 64 or 128 rows, with a block for each work tile or with fewer blocks. */
static void compare_wgmma(gemm_case *c, const float *few)
{
    static const spry_wgmma_config kinds[] = {{8, 1, 2, 1}, {16, 2, 1, 1}, {8, 1, 2, 2}, {8, 1, 2, 4}, {8, 1, 2, 8}};
    size_t tile_groups = ((OUTPUTS + 15) / 16 + 3) / 4;
    for (size_t i = 0; i < SPRY_COUNT(kinds); i++) {
        const spry_wgmma_config *kind = &kinds[i];
        size_t rows = 8 * kind->groups,
               items = (tile_groups + kind->warpgroups - 1) / kind->warpgroups * ((ROWS + rows - 1) / rows);
        if (spry_cuda_wgmma_smem(c->type, *kind) > gpu.shared_bytes)
            continue;
        for (size_t blocks = kind->share > 1 ? items : 1; blocks <= items; blocks++) {
            kernel_case k = {.tiles = 4,
                             .rows = rows,
                             .kernel = spry_cuda_wgmma_kernel(c->type, false, *kind),
                             .blocks = blocks,
                             .share = kind->share,
                             .shared_bytes = spry_cuda_wgmma_smem(c->type, *kind)};
            expect_bits(c, few, &k);
        }
    }
}

static void wide_products_have_the_same_bits(void **state)
{
    (void)state;
    static float few[ROWS * OUTPUTS];
    for (size_t t = 1; t < N_FORMS; t++) { /* not F32 */
        gemm_case c;
        const spry_kernel_id *kernels = spry_cuda_weight_types[types[t]].large;
        open_case(&c, types[t]);
        c.mma_layout = true; /* by kernels for few rows */
        multiply(&c, few, 0, 30);
        multiply(&c, few + 30 * OUTPUTS, 30, 30);
        if (types[t] == SPRY_F16 || types[t] == SPRY_BF16) {
            kernel_case staged = {.kernel = kernels[0], .tiles = 8, .rows = 64, .shared_bytes = 3 * 32768};
            expect_bits(&c, few, &staged);
        } else {
            for (size_t each = 1; each <= 2; each++) {
                kernel_case wide = {.kernel = kernels[each - 1], .tiles = 4 * each, .rows = 128};
                expect_bits(&c, few, &wide);
            }
        }
        if (gpu.has_wgmma)
            compare_wgmma(&c, few);
        close_case(&c);
    }
}

/* Rows of GATED inputs as activations. */
enum { GATED = OUTPUTS / 64 * 64 };
typedef struct quantised_rows {
    unsigned char values[SLOTS * (GATED / 64) * 256];
} quantised_rows;

static void clear_activations(gemm_case *c)
{
    static const quantised_rows zeros;
    spry_act_format format = spry_cuda_act_format(c->type);
    spry_cuda_write(&gpu, c->device.scratch.act_values[format], zeros.values, sizeof zeros.values);
}

static void read_activations(gemm_case *c, quantised_rows *rows)
{
    spry_act_format format = spry_cuda_act_format(c->type);
    from_gpu(rows->values, c->device.scratch.act_values[format], sizeof rows->values);
}

static void expect_activations(gemm_case *c, const quantised_rows *expected, size_t n_rows)
{
    static quantised_rows got;
    read_activations(c, &got);
    if (memcmp(&got, expected, sizeof got))
        fail_msg("%s: %zu rows gated on the way have other bits", spry_dtype_name(c->type), n_rows);
}

static const spry_wgmma_config fused_kinds[] = {{16, 2, 1, 1}, {8, 1, 2, 2}, {8, 1, 2, 4}, {8, 1, 2, 8}};

/* A kernel of gemm_wgmma.cu; clusters for all work tiles, or two blocks. */
static void launch_kind(gemm_case *c, const spry_gemm_args *args, bool gate, const spry_wgmma_config *kind)
{
    spry_kernel_id kernel = spry_cuda_wgmma_kernel(c->type, gate, *kind);
    size_t bytes = spry_cuda_wgmma_smem(c->type, *kind), items = args->n_tiles / 4 * ((args->n_rows + 63) / 64);
    if (kind->share > 1)
        spry_cuda_launch_cluster(&gpu, kernel, kind->share, items, 1, 0, bytes, args);
    else
        spry_cuda_launch_shared(&gpu, kernel, 1, 2, 1, bytes, args);
}

/* With wgmma, on the rows that spry_cuda_gate_up_gemms has quantised. */
static void gate_many(gemm_case *c, const spry_cuda_matrix *w, size_t n_rows, const spry_wgmma_config *kind,
                      uint32_t gate)
{
    spry_act_format format = spry_cuda_act_format(c->type);
    spry_gemm_args args = {.parts = {{.weight = w->tiles}, {.weight = w->tiles, .first_tile = w->tiles.n_tiles}},
                           .act = spry_cuda_activations(&c->device, w, c->n_in),
                           .n_parts = 2,
                           .n_tiles = 2 * w->tiles.n_tiles,
                           .n_rows = (uint32_t)n_rows,
                           .from.gate = gate};
    args.from.to[format] = spry_cuda_activations(&c->device, w, GATED);
    args.act.values = c->device.scratch.x_values;
    args.act.norms = c->device.scratch.act_norms;
    args.act.wgmma_groups = args.from.to[format].wgmma_groups = SLOTS / 8;
    launch_kind(c, &args, true, kind);
}

/* The results of a GEMM that quantises its output: x, and rows of x for the next product. */
typedef struct made_rows {
    float x[ROWS * GATED], squares[SLOTS * (GATED / 64)];
    unsigned char values[SLOTS * (GATED / 64) * 256];
} made_rows;

/* Sets x to its values before the product, and clears the quantised rows. */
static void begin_rows(gemm_case *c, const float *x, size_t n_rows)
{
    static const made_rows zeros;
    spry_act_format format = spry_cuda_act_format(c->type);
    spry_cuda_write(&gpu, c->device.scratch.x, x, n_rows * GATED * sizeof(float));
    spry_cuda_write(&gpu, c->device.scratch.act_norms, zeros.squares, sizeof zeros.squares);
    spry_cuda_write(&gpu, c->device.scratch.x_values, zeros.values, sizeof zeros.values);
    spry_cuda_write(&gpu, c->device.scratch.act_values[format], zeros.values, sizeof zeros.values);
}

static void take_rows(gemm_case *c, made_rows *rows, spry_cuda_memory values, size_t n_rows)
{
    memset(rows, 0, sizeof *rows);
    from_gpu(rows->x, c->device.scratch.x, n_rows * GATED * sizeof(float));
    from_gpu(rows->squares, c->device.scratch.act_norms, sizeof rows->squares);
    from_gpu(rows->values, values, SLOTS / 8 * (GATED / 64) * spry_cuda_act_group_bytes(c->type));
}

static void expect_rows(gemm_case *c, const made_rows *expected, size_t n_rows, const char *by)
{
    static made_rows got;
    take_rows(c, &got, c->device.scratch.x_values, n_rows);
    if (memcmp(&got, expected, sizeof got))
        fail_msg("%s: %zu rows encoded by the product that makes them, %s, have other bits", spry_dtype_name(c->type),
                 n_rows, by);
}

/* Rows of x that a GEMM adds to and quantises for the next one have the bits of a GEMM followed by a quantising kernel.
 */
static void compare_prequantised(gemm_case *c, size_t n_rows, spry_cuda_memory in, spry_cuda_memory norm)
{
    static made_rows expected;
    spry_cuda_device *d = &c->device;
    spry_act_format format = spry_cuda_act_format(c->type);
    spry_cuda_matrix w = d->model.output, next = w;
    w.tiles.n_out = next.tiles.n_in = GATED;
    w.tiles.n_tiles = GATED / 16;
    w.bias = on_gpu(c->floats + GATED, GATED * sizeof(float));
    next.tiles.n_units = GATED / 64;
    d->scratch.x = on_gpu(NULL, n_rows * GATED * sizeof(float));
    const spry_cuda_gemm product = {d->scratch.x, GATED, &w}, after = {0, 0, &next};
    const spry_quantise_args rows = {.in = in, .n = (uint32_t)c->n_in};
    spry_quantise_args of_x = {.in = d->scratch.x, .weight = norm, .n = GATED};

    begin_rows(c, c->floats, n_rows);
    spry_cuda_rows quantised = spry_cuda_quantise(d, rows, &product, 1, n_rows, false);
    spry_cuda_gemms(d, &quantised, &product, 1, n_rows, true, (spry_cuda_expert_groups){0});
    spry_cuda_quantise(d, of_x, &after, 1, n_rows, false);
    take_rows(c, &expected, d->scratch.act_values[format], n_rows);

    w.next_norm = norm;
    w.next[0] = &next;
    begin_rows(c, c->floats, n_rows);
    quantised = spry_cuda_quantise(d, rows, &product, 1, n_rows, false);
    const spry_cuda_rows x = spry_cuda_gemms(d, &quantised, &product, 1, n_rows, true, (spry_cuda_expert_groups){0});
    assert_int_equal(x.in[format].values, d->scratch.x_values);
    memcpy(of_x.to, x.in, sizeof of_x.to);
    quantised = spry_cuda_quantise(d, of_x, &after, 1, n_rows, false); /* finds nothing to do */
    assert_int_equal(quantised.in[format].values, d->scratch.x_values);
    expect_rows(c, &expected, n_rows, "as it is picked");

    spry_gemm_args args = {.parts = {{.weight = w.tiles, .out = d->scratch.x, .bias = w.bias, .stride = GATED}},
                           .act = spry_cuda_activations(d, &w, c->n_in),
                           .n_parts = 1,
                           .n_tiles = w.tiles.n_tiles,
                           .n_rows = (uint32_t)n_rows,
                           .add = true,
                           .from = {.weight = norm, .n = GATED}};
    args.act.wgmma_groups = SLOTS / 8;
    args.from.to[format] = x.in[format];
    for (size_t i = 0; i < SPRY_COUNT(fused_kinds); i++) {
        if (spry_cuda_wgmma_smem(c->type, fused_kinds[i]) > gpu.shared_bytes)
            continue;
        begin_rows(c, c->floats, n_rows);
        spry_cuda_quantise(d, rows, &product, 1, n_rows, false);
        launch_kind(c, &args, false, &fused_kinds[i]);
        expect_rows(c, &expected, n_rows, fused_kinds[i].warpgroups > 1 ? "by two teams" : "by a cluster");
    }
    spry_cuda_free(&gpu, &d->scratch.x);
    spry_cuda_free(&gpu, &w.bias);
}

/* Rows that are normalised or gated within a product have the bits of the single kernels. `sm_count`: the assumed
 * number of SMs; with few of them blocks loop over several batches of tiles. */
static void compare_fused(gemm_case *c, size_t n_rows, float *norm, size_t sm_count, uint32_t gate)
{
    static float apart[ROWS * OUTPUTS], fused[ROWS * OUTPUTS];
    static quantised_rows expected;
    spry_cuda_memory in = on_gpu(c->floats, n_rows * c->n_in * sizeof(float)), weight = on_gpu(norm, c->n_in * 4);
    spry_cuda_memory to = on_gpu(NULL, n_rows * OUTPUTS * 4), up = on_gpu(NULL, n_rows * OUTPUTS * 4);
    const spry_cuda_gemm product = {to, OUTPUTS, &c->device.model.output};
    const spry_quantise_args from = {.in = in, .weight = weight, .n = (uint32_t)c->n_in, .gate = gate};
    const spry_cuda_rows rows = spry_cuda_quantise(&c->device, from, &product, 1, n_rows, false);
    spry_cuda_gemms(&c->device, &rows, &product, 1, n_rows, false, (spry_cuda_expert_groups){0});
    from_gpu(apart, to, n_rows * OUTPUTS * 4);
    c->device.context.sm_count = sm_count;
    spry_cuda_gemms(&c->device, &rows, &product, 1, n_rows, false, (spry_cuda_expert_groups){0});
    from_gpu(fused, to, n_rows * OUTPUTS * 4);
    if (memcmp(apart, fused, n_rows * OUTPUTS * 4))
        fail_msg("%s: %zu rows have other bits on %zu processors", spry_dtype_name(c->type), n_rows, sm_count);
    spry_cuda_quantise_gemms(&c->device, from, &product, 1, n_rows, false);
    from_gpu(fused, to, n_rows * OUTPUTS * 4);
    if (memcmp(apart, fused, n_rows * OUTPUTS * 4))
        fail_msg("%s: %zu rows normalised on the way have other bits", spry_dtype_name(c->type), n_rows);

    spry_cuda_matrix whole = c->device.model.output;
    whole.tiles.n_out = GATED;
    whole.tiles.n_tiles = GATED / 16;
    const spry_cuda_gemm both[] = {{to, GATED, &whole}, {up, GATED, &whole}};
    spry_quantise_args activated = {.in = to, .up = up, .n = GATED, .gate = gate};
    multiply_rows(c, from, both, 2, n_rows);
    clear_activations(c);
    spry_cuda_quantise(&c->device, activated, both, 1, n_rows, false);
    read_activations(c, &expected);
    clear_activations(c);
    assert_true(spry_cuda_gate_up_gemms(&c->device, &activated, from, both, &whole, n_rows));
    expect_activations(c, &expected, n_rows);
    for (size_t i = 0; n_rows > SPRY_ACT_ROWS && i < SPRY_COUNT(fused_kinds); i++) {
        if (spry_cuda_wgmma_smem(c->type, fused_kinds[i]) > gpu.shared_bytes)
            continue;
        clear_activations(c);
        gate_many(c, &whole, n_rows, &fused_kinds[i], gate);
        expect_activations(c, &expected, n_rows);
    }
    if (n_rows > SPRY_ACT_ROWS)
        compare_prequantised(c, n_rows, in, weight);
    c->device.context.sm_count = gpu.sm_count;
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
    for (size_t t = 1; t < N_FORMS; t++) { /* not F32 */
        gemm_case c;
        open_case(&c, types[t]);
        static const size_t counts[] = {1, 3, 8};
        for (size_t i = 0; i < SPRY_COUNT(counts); i++) {
            compare_fused(&c, counts[i], norm, gpu.sm_count, SPRY_GATE_GELU_TANH);
            compare_fused(&c, counts[i], norm, 1, SPRY_GATE_SILU);
        }
        for (uint32_t gate = 0; gpu.has_wgmma && gate < 2; gate++)
            compare_fused(&c, 65, norm, 1, gate ? SPRY_GATE_GELU_TANH : SPRY_GATE_SILU);
        close_case(&c);
    }
}

static void products_are_right_and_do_not_depend_on_other_rows(void **state)
{
    (void)state;
    static float all[ROWS * OUTPUTS], some[ROWS * OUTPUTS];
    static const size_t counts[] = {1, 8, 12, 33, 65};
    for (size_t t = 0; t < SPRY_COUNT(types); t++) {
        gemm_case c;
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
        for (size_t k = 0; t < N_FORMS && k < 2 * SPRY_COUNT(counts); k++) {
            size_t count = counts[k / 2], first = random_bits() % (ROWS - count + 1);
            c.mma_layout = k % 2; /* and by the kernels of GPUs without wgmma */
            multiply(&c, some, first, count);
            if (memcmp(some, all + first * OUTPUTS, count * OUTPUTS * sizeof(float)))
                fail_msg("%s: rows %zu to %zu alone have other bits", spry_dtype_name(types[t]), first, first + count);
        }
        print_message("%-6s off by %.4f of what is allowed\n", spry_dtype_name(types[t]), worst);
        close_case(&c);
    }
}

static void embeddings_are_those_of_the_file(void **state)
{
    (void)state;
    for (size_t t = 0; t < SPRY_COUNT(types); t++) {
        gemm_case c;
        open_case(&c, types[t]);
        spry_step_row rows[OUTPUTS] = {{0}};
        for (int32_t i = 0; i < OUTPUTS; i++)
            rows[i].token = OUTPUTS - 1 - i;
        spry_cuda_memory steps = on_gpu(rows, sizeof rows), x = on_gpu(NULL, OUTPUTS * c.n_in * sizeof(float));
        const spry_embed_args args = {
            .weight = c.device.model.embedding.tiles, .x = x, .rows = steps, .n = (uint32_t)c.n_in, .scale = 1};
        spry_cuda_launch(&gpu, spry_cuda_weight_types[types[t]].embed, OUTPUTS, 1, 1, &args);
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

/* Each kernel of the list was compiled, with the threads that it is launched with, and no other kernel was. */
static void the_list_has_every_kernel(void **state)
{
    (void)state;
    for (size_t i = SPRY_NO_KERNEL + 1; i < SPRY_KERNEL_COUNT; i++) {
        const void *kernel = cuda_host_find(spry_cuda_kernel_names[i]);
        if (!kernel)
            fail_msg("%s is in kernel_list.h and was not compiled", spry_cuda_kernel_names[i]);
        assert_int_equal(cuda_host_max_threads(kernel), spry_cuda_kernel_threads[i]);
    }
    assert_int_equal(cuda_host_count(), SPRY_KERNEL_COUNT - 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_has_every_kernel),
        cmocka_unit_test(embeddings_are_those_of_the_file),
        cmocka_unit_test(products_are_right_and_do_not_depend_on_other_rows),
        cmocka_unit_test(fused_products_have_the_same_bits),
        cmocka_unit_test(wide_products_have_the_same_bits),
    };
    return run_on_gpu(argc, argv, tests, SPRY_COUNT(tests));
}
