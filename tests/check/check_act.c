/* Activations in 8 bits. Every table gives ref's very bits; ref is compared with what the contract says. */
#include <math.h>
#include <string.h>

#include "check/check.h"

enum { SHAPES = 200, MAX_BLOCKS = 9, BLOCK = SPRY_ACT_BLOCK };

/* ---- inputs ----------------------------------------------------------------------------------------------------- */

static void fill_any_size(check *c, float *block)
{
    check_fill(c, block, BLOCK, ldexpf(1, (int)check_between(c, 0, 276) - 149));
}

/* Numbers half-way between two levels, under a scale of exactly a power of two. */
static void fill_ties(check *c, float *block)
{
    float scale = ldexpf(1, (int)check_between(c, 0, 40) - 20);
    for (int i = 0; i < BLOCK; i++)
        block[i] = ((float)check_between(c, 0, 252) - 126 + 0.5f) * scale;
    block[check_between(c, 0, BLOCK - 1)] = check_between(c, 0, 1) ? 127 * scale : -127 * scale;
}

/* Zeros of both signs, subnormals, numbers around the smallest that count, and the largest. */
static void fill_special(check *c, float *block)
{
    static const float special[] = {0, -0.0f, 0x1p-149f, -0x1p-140f, 0x1p-126f, 0x1.fffffep-101f, 0x1p-100f, -0x1p-99f};
    size_t most = check_between(c, 0, SPRY_COUNT(special) - 1);
    for (int i = 0; i < BLOCK; i++)
        block[i] = special[check_between(c, 0, most)];
    if (check_between(c, 0, 3) == 0)
        block[check_between(c, 0, BLOCK - 1)] = check_between(c, 0, 1) ? 0x1.fffffep127f : -0x1.fffffep127f;
}

static void fill_not_finite(check *c, float *block)
{
    static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY};
    fill_any_size(c, block);
    for (size_t n = check_between(c, 1, 3); n; n--)
        block[check_between(c, 0, BLOCK - 1)] = odd[check_between(c, 0, SPRY_COUNT(odd) - 1)];
}

/* ---- comparison ------------------------------------------------------------------------------------------------- */

static void compare_sums(check *c, const spry_act_block *block)
{
    int first = 0, second = 0;
    for (int i = 0; i < BLOCK / 2; i++) {
        first += block->values[i];
        second += block->values[i + BLOCK / 2];
    }
    float scaled = block->scale * (float)(first + second);
    if (block->half_sum[0] != first || block->half_sum[1] != second || block->minus_8_sum != -8 * (first + second) ||
        memcmp(&block->scaled_sum, &scaled, sizeof scaled) != 0)
        check_complain(c, "sums are %d, %d, %d, %g; the values' are %d and %d", block->half_sum[0], block->half_sum[1],
                       block->minus_8_sum, (double)block->scaled_sum, first, second);
}

/* Value i of a block whose largest magnitude is given. */
static void compare_value(check *c, const spry_act_block *block, int i, float in, float largest)
{
    float scale = largest / 127;
    double level = largest > 0 ? (double)in * 127 / (double)largest : 0, got = block->values[i];
    /* Two roundings may carry a number over the middle between levels, unless the scale is a power of two. */
    bool exact = frexpf(scale, &(int){0}) == 0.5f && scale * 127 == largest;
    if (exact ? got != nearbyint(level) : fabs(got - level) > 0.5 + 127 * 2 * CHECK_ROUNDING)
        check_complain(c, "value %d of %g is %g where the level is %.9g", i, (double)in, got, level);
}

/* A block against the contract of spry_act_encode. */
static void compare_block(check *c, const spry_act_block *block, const float *in)
{
    float largest = 0;
    bool finite = true;
    for (int i = 0; i < BLOCK; i++) {
        largest = fmaxf(largest, fabsf(in[i]));
        finite = finite && isfinite(in[i]);
    }
    largest = largest < SPRY_ACT_SMALLEST ? 0 : largest;
    compare_sums(c, block);
    check_close(c, 0, (double)block->scale, finite ? (double)(largest / 127) : (double)NAN, 0);
    for (int i = 0; i < BLOCK; i++)
        compare_value(c, block, i, finite ? in[i] : 0, finite ? largest : 0);
}

static void check_input(check *c, const float *blocks, size_t n)
{
    guarded in = guarded_floats(n), out = guarded_create(n / BLOCK * sizeof(spry_act_block));
    memcpy(in.data, blocks, in.size);
    guarded_freeze(&in);
    spry_act_block expected[MAX_BLOCKS];
    const spry_act_block *got = (const spry_act_block *)(const void *)out.data;
    spry_act_encode(expected, guarded_f(&in), n);
    c->ops->encode_act((spry_act_block *)(void *)out.data, guarded_f(&in), n);
    check_same(c, "the table", got, expected, out.size);
    for (size_t b = 0; b < n / BLOCK; b++)
        compare_block(c, &got[b], guarded_f(&in) + b * BLOCK);
    guarded_destroy(c, &in);
    guarded_destroy(c, &out);
}

void check_encode_act(check *c)
{
    static void (*const fills[])(check *, float *) = {fill_any_size, fill_ties, fill_special, fill_not_finite};
    if (!check_begin(c, "encode_act"))
        return;
    for (int shape = 0; shape < SHAPES; shape++) {
        float blocks[MAX_BLOCKS * BLOCK];
        size_t n_blocks = check_between(c, 1, MAX_BLOCKS);
        for (size_t b = 0; b < n_blocks; b++)
            fills[check_between(c, 0, SPRY_COUNT(fills) - 1)](c, blocks + b * BLOCK);
        check_detail(c, "shape %d, n=%zu", shape, n_blocks * BLOCK);
        check_input(c, blocks, n_blocks * BLOCK);
    }
    check_end(c);
}

/* ---- speed ------------------------------------------------------------------------------------------------------ */

enum { BENCH_VALUES = 1 << 14 };

typedef struct act_work {
    spry_act_block *out;
    const float *in;
} act_work;

static void call_encode_act(const spry_ops *ops, const void *context)
{
    const act_work *work = context;
    ops->encode_act(work->out, work->in, BENCH_VALUES);
}

void bench_encode_act(check *c)
{
    if (!check_begin(c, "encode_act"))
        return;
    guarded in = guarded_floats(BENCH_VALUES), out = guarded_create(BENCH_VALUES / BLOCK * sizeof(spry_act_block));
    check_fill(c, guarded_f(&in), BENCH_VALUES, 1);
    act_work work = {(spry_act_block *)(void *)out.data, guarded_f(&in)};
    check_bench(c, &(bench_work){call_encode_act, &work, (double)(in.size + out.size), 0});
    guarded_destroy(c, &in);
    guarded_destroy(c, &out);
}
