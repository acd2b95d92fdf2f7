/* Building a case, and the double-precision product. */
#include "check/matmul_case.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/packed.h"
#include "support/act_values.h"

/* ---- weights ---------------------------------------------------------------------------------------------------- */

static void set_halves(unsigned char *block, spry_dtype type, float first, float second)
{
    int offsets[2];
    check_half_offsets(offsets, type);
    for (int k = 0; k < 2 && offsets[k] >= 0; k++) {
        uint16_t half = spry_f16_encode(k ? second : first);
        memcpy(block + offsets[k], &half, sizeof half);
    }
}

/* The scale of an IQ1_M block is in the top nibbles of its last four words; an NVFP4 block has four 8-bit floats. */
static void set_scattered(unsigned char *block, spry_dtype type, float scale)
{
    uint16_t half = spry_f16_encode(scale);
    for (int i = 0; type == SPRY_IQ1_M && i < 4; i++)
        block[49 + 2 * i] = (unsigned char)((block[49 + 2 * i] & 15) | (half >> 4 * i & 15) << 4);
    for (int i = 0; type == SPRY_NVFP4 && i < 4; i++)
        block[i] = scale > 0 ? 0x38 : 0; /* 1 */
}

/* Scales of 1, and small ones of parts, so that sums stay exact for long. */
static void set_f8(unsigned char *block, spry_dtype type, float scale)
{
    if (type == SPRY_F8)
        memcpy(block, &scale, sizeof scale);
}

static void make_whole(unsigned char *block, spry_dtype type)
{
    bool eighths = type >= SPRY_IQ2_XXS && type <= SPRY_IQ2_S && type != SPRY_IQ4_NL; /* IQ2, IQ3: scales in steps */
    set_halves(block, type, eighths ? 8 : 1, 1);
    for (int i = 4; (type == SPRY_Q4_K || type == SPRY_Q5_K) && i < 16; i++)
        block[i] &= 3;
    for (int i = 192; type == SPRY_Q6_K && i < 208; i++)
        block[i] = (unsigned char)(block[i] % 7 - 3);
    set_scattered(block, type, 8);
    if (type == SPRY_MXFP4)
        block[0] = 128;
    for (int i = 4; type == SPRY_F8 && i < 36; i++)
        block[i] = (unsigned char)(block[i] % 2 ? 0xb8 : 0x40); /* -1 and 2 */
    set_f8(block, type, 1);
}

/* Every byte the same, which puts all levels at an end of their range: 0xff for those without a sign. */
static void make_extreme(check *c, unsigned char *block, spry_dtype type)
{
    static const unsigned char patterns[] = {0xff, 0xff, 0x00, 0x80, 0x7f};
    memset(block, patterns[check_between(c, 0, SPRY_COUNT(patterns) - 1)], spry_dtype_bytes(type));
    set_halves(block, type, check_uniform(c), check_uniform(c));
    set_scattered(block, type, check_uniform(c));
    if (type == SPRY_MXFP4)
        block[0] = 127;
    for (int i = 4; type == SPRY_F8 && i < 36; i++)
        block[i] = block[i] & 128 ? 0xfe : 0x7e; /* the largest */
    set_f8(block, type, check_uniform(c));
}

static void make_odd_scales(check *c, unsigned char *block, spry_dtype type)
{
    static const float scales[] = {0, 0x1p-24f, -0x1p-20f, 0x1p-14f, 1, -65504, 65504};
    set_halves(block, type, scales[check_between(c, 0, SPRY_COUNT(scales) - 1)],
               scales[check_between(c, 0, SPRY_COUNT(scales) - 1)]);
    if (check_between(c, 0, 3) == 0)
        memset(block, 0, spry_dtype_bytes(type));
    set_f8(block, type, scales[check_between(c, 0, SPRY_COUNT(scales) - 1)]);
    if (type == SPRY_IQ1_M)
        set_scattered(block, type, scales[check_between(c, 0, SPRY_COUNT(scales) - 1)]);
    if (type == SPRY_MXFP4)
        block[0] = (unsigned char)check_between(c, 90, 150);
}

static float plain_weight(check *c, matmul_content content)
{
    switch (content) {
    case MATMUL_WHOLE: return (float)check_between(c, 0, 16) - 8;
    case MATMUL_EXTREME: return check_between(c, 0, 1) ? 60000 : -60000;
    case MATMUL_SCALES: return check_uniform(c) * ldexpf(1, (int)check_between(c, 0, 30) - 20);
    default: return check_uniform(c);
    }
}

static void fill_weights(check *c, unsigned char *out, spry_dtype type, size_t n, matmul_content content)
{
    size_t bytes = spry_dtype_bytes(type);
    if (spry_dtype_block(type) == 1) {
        for (size_t i = 0; i < n; i++) {
            float value = plain_weight(c, content);
            c->ref->encode[type](out + i * bytes, &value, 1);
        }
        return;
    }
    check_fill_type(c, out, type, n);
    for (unsigned char *block = out, *end = out + check_bytes(type, n); block < end; block += bytes) {
        if (content == MATMUL_WHOLE)
            make_whole(block, type);
        if (content == MATMUL_EXTREME)
            make_extreme(c, block, type);
        if (content == MATMUL_SCALES)
            make_odd_scales(c, block, type);
    }
}

/* Rows lie apart by a random gap, and none follows the last. A file may put them at any address, so that is odd now and
 * then. */
static void build_weights(check *c, matmul_case *k)
{
    size_t row = check_bytes(k->type, k->n_in), stride = row + 32 * check_between(c, 0, 1);
    k->file = guarded_create((k->n_out - 1) * stride + row + check_between(c, 0, 1));
    for (size_t o = 0; o < k->n_out; o++)
        fill_weights(c, k->file.data + o * stride, k->type, k->n_in, k->content);
    guarded_freeze(&k->file);
    k->m.weight = k->plain.weight = k->file.data;
    k->m.weight_stride = k->plain.weight_stride = stride;

    size_t group = k->kernel->group, bytes = spry_packed_row_bytes(k->type) * group;
    size_t group_bytes = k->n_in / spry_dtype_block(k->type) * bytes, gap = 64 * check_between(c, 0, 1);
    size_t n_groups = group ? (k->n_out + group - 1) / group : 0;
    k->packed = guarded_create(group ? n_groups * (group_bytes + gap) - gap + check_between(c, 0, 1) : 0);
    for (size_t g = 0; g < n_groups; g++) {
        size_t left = k->n_out - g * group;
        spry_pack_group(k->type, k->packed.data + g * (group_bytes + gap), k->file.data + g * group * stride, stride,
                        k->n_in, left < group ? left : group, group);
    }
    guarded_freeze(&k->packed);
    if (group) {
        k->m.weight = k->packed.data;
        k->m.weight_stride = group_bytes + gap;
    }
}

/* ---- activations ------------------------------------------------------------------------------------------------ */

/* Whole numbers whose scale is 1: each block of 32 has a 127. */
static void fill_whole(check *c, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = i % SPRY_ACT_BLOCK ? (float)check_between(c, 0, 254) - 127 : 127;
}

static void fill_extreme(check *c, float *out, size_t n)
{
    size_t signs = check_between(c, 0, 2);
    for (size_t i = 0; i < n; i++)
        out[i] = (signs == 2 ? check_between(c, 0, 1) : signs) ? 3 : -3;
}

static void fill_scales(check *c, float *out, size_t n)
{
    static const int exponents[] = {-140, -110, -100, -70, -1, 0, 1, 40};
    for (size_t i = 0; i < n; i += SPRY_ACT_BLOCK) {
        size_t count = n - i < SPRY_ACT_BLOCK ? n - i : SPRY_ACT_BLOCK;
        check_fill(c, out + i, count, ldexpf(1, exponents[check_between(c, 0, SPRY_COUNT(exponents) - 1)]));
        if (check_between(c, 0, 3) == 0)
            memset(out + i, 0, count * sizeof *out);
    }
}

static void fill_activations(check *c, float *out, size_t n, matmul_content content)
{
    switch (content) {
    case MATMUL_WHOLE: fill_whole(c, out, n); break;
    case MATMUL_EXTREME: fill_extreme(c, out, n); break;
    case MATMUL_SCALES: fill_scales(c, out, n); break;
    default: check_fill(c, out, n, 1); break;
    }
}

void matmul_case_encode(const matmul_case *k, unsigned char *out, const float *floats)
{
    for (size_t row = 0; row < k->n_rows; row++, floats += k->n_in, out += k->m.act_stride) {
        if (k->kernel->integer)
            spry_act_encode((spry_act_block *)(void *)out, floats, k->n_in);
        else
            memcpy(out, floats, k->n_in * sizeof *floats);
    }
}

static float rounded_to_bf16(float x)
{
    float rounded = spry_bf16_decode(spry_bf16_encode(x));
    return fabsf(x) < FLT_MIN ? 0 : rounded;
}

static void build_activations(check *c, matmul_case *k)
{
    size_t n = k->n_in, integer = k->kernel->integer;
    size_t row_bytes = integer ? n / SPRY_ACT_BLOCK * sizeof(spry_act_block) : n * sizeof(float);
    k->floats = guarded_floats(k->n_rows * n);
    k->decoded = guarded_floats(k->n_rows * n);
    k->m.act_stride = row_bytes + 4 * check_between(c, 0, 3);
    k->act = guarded_create((k->n_rows - 1) * k->m.act_stride + row_bytes);
    for (size_t row = 0; row < k->n_rows; row++)
        fill_activations(c, guarded_f(&k->floats) + row * n, n, k->content);
    matmul_case_encode(k, k->act.data, guarded_f(&k->floats));
    memcpy(k->decoded.data, k->floats.data, k->floats.size);
    for (size_t i = 0; k->kernel->bf16 && i < k->n_rows * n; i++)
        guarded_f(&k->decoded)[i] = rounded_to_bf16(guarded_f(&k->floats)[i]);
    for (size_t row = 0; integer && row < k->n_rows; row++)
        act_values(guarded_f(&k->decoded) + row * n,
                   (const spry_act_block *)(const void *)(k->act.data + row * k->m.act_stride), n);
    guarded_freeze(&k->floats);
    guarded_freeze(&k->decoded);
    guarded_freeze(&k->act);
    k->m.act = k->act.data;
    k->plain.act = k->decoded.data;
    k->plain.act_stride = n * sizeof(float);
}

/* ---- what they are worth ---------------------------------------------------------------------------------------- */

static double *allocate(size_t n)
{
    double *numbers = malloc(n * sizeof *numbers);
    if (!numbers) {
        perror("spry-check");
        exit(2);
    }
    return numbers;
}

static double activation_worth(const matmul_case *k, size_t row, size_t i)
{
    if (!k->kernel->integer)
        return (double)guarded_f(&k->decoded)[row * k->n_in + i];
    const spry_act_block *block =
        (const spry_act_block *)(const void *)(k->act.data + row * k->m.act_stride) + i / SPRY_ACT_BLOCK;
    return (double)block->scale * block->values[i % SPRY_ACT_BLOCK];
}

static void find_worths(matmul_case *k)
{
    k->weight = allocate(k->n_out * k->n_in);
    k->size = allocate(k->n_out * k->n_in);
    k->worth = allocate(k->n_rows * k->n_in);
    for (size_t o = 0; o < k->n_out; o++)
        for (size_t i = 0; i < k->n_in; i++) {
            size_t at = o * k->n_in + i;
            k->weight[at] = naive_value(&k->size[at], k->type, k->file.data + o * k->plain.weight_stride, i);
        }
    for (size_t row = 0; row < k->n_rows; row++)
        for (size_t i = 0; i < k->n_in; i++)
            k->worth[row * k->n_in + i] = activation_worth(k, row, i);
}

double matmul_case_product(double *size, const matmul_case *k, size_t row, size_t output)
{
    const double *weight = k->weight + output * k->n_in, *sizes = k->size + output * k->n_in;
    const double *act = k->worth + row * k->n_in;
    double sum = 0, total = 0;
    for (size_t i = 0; i < k->n_in; i++) {
        sum += weight[i] * act[i];
        total += sizes[i] * fabs(act[i]);
    }
    *size = total;
    return sum;
}

/* Terms that a float kernel may add in one lane before it adds lanes or chains. */
enum { FLOAT_CHAIN = 128 };

double matmul_case_tolerance(const matmul_case *k, bool integer, double size)
{
    if (k->content == MATMUL_WHOLE && size < 0x1p24)
        return 0;
    /* Dots of blocks are exact. Each, and each minimum, is added with one rounding; scales are multiplied before. */
    double roundings = integer ? (double)(2 * (k->n_in / SPRY_ACT_BLOCK) + 4) * CHECK_ROUNDING
                               : check_roundings(k->n_in) + FLOAT_CHAIN * CHECK_ROUNDING;
    /* A product of scales may be subnormal and then multiplies a dot. */
    double underflow = (double)k->n_in * 127 * 255 * 0x1p-150;
    if (k->kernel->bf16) /* subnormal sums become zeros */
        underflow += (double)k->n_in * (double)FLT_MIN;
    return roundings * size + underflow;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

/* n_in that is whole blocks. */
static size_t random_width(check *c, const matmul_case *k)
{
    size_t block = spry_dtype_block(k->type);
    block = k->kernel->integer && block < SPRY_ACT_BLOCK ? SPRY_ACT_BLOCK : block;
    return block == 1 ? check_between(c, 1, 300) : block * check_between(c, 1, block == SPRY_ACT_BLOCK ? 16 : 3);
}

static void choose_shape(check *c, matmul_case *k, size_t most_outputs)
{
    k->n_in = random_width(c, k);
    k->n_out = check_between(c, 1, most_outputs);
    size_t step = matmul_case_step(k), n_steps = (k->n_out + step - 1) / step, first = check_between(c, 0, n_steps - 1);
    k->begin = first * step;
    k->end = check_between(c, first + 1, n_steps) * step;
    k->end = k->end < k->n_out ? k->end : k->n_out;
    check_detail(c, "content=%d n_rows=%zu n_in=%zu n_out=%zu [%zu, %zu)", (int)k->content, k->n_rows, k->n_in,
                 k->n_out, k->begin, k->end);
}

void matmul_case_build(check *c, matmul_case *k, size_t most_outputs)
{
    k->kernel = &c->ops->matmul[k->type];
    choose_shape(c, k, most_outputs);
    k->m.n_rows = k->n_rows;
    k->m.n_in = k->n_in;
    k->m.out_stride = k->n_out + check_between(c, 0, 5);
    k->plain = k->m;
    build_weights(c, k);
    build_activations(c, k);
    find_worths(k);
    k->out = guarded_floats((k->n_rows - 1) * k->m.out_stride + k->n_out);
    k->m.out = guarded_f(&k->out);
}

void matmul_case_destroy(check *c, matmul_case *k)
{
    guarded *const buffers[] = {&k->file, &k->packed, &k->floats, &k->act, &k->decoded, &k->out};
    for (size_t i = 0; i < SPRY_COUNT(buffers); i++)
        guarded_destroy(c, buffers[i]);
    free(k->weight);
    free(k->size);
    free(k->worth);
}
