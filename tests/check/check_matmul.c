/* The matrix product, for every weight type. A kernel may want its activations in another type: then they are encoded
 * by ref, and ref multiplies what they decode to. */
#include <math.h>
#include <string.h>

#include "check/check.h"

enum { SHAPES = 14 };

/* No kernel adds in fewer lanes than this, which bounds the roundings a term goes through. */
enum { LEAST_LANES = 8, OTHER_ROUNDINGS = 16 };

typedef struct matmul_case {
    spry_dtype type, act_type;
    size_t n_rows, n_in, n_out, begin, end;
    guarded weight, floats, act, out; /* floats: what the activations decode to, [n_rows, n_in] */
    spry_matmul m;                    /* the call under test */
    spry_matmul plain;                /* the same with float activations and without `out`, for ref */
} matmul_case;

static size_t bytes_of(spry_dtype type, size_t n)
{
    return n / spry_dtype_block(type) * spry_dtype_bytes(type);
}

/* n_in that is whole blocks of both types. */
static size_t random_width(check *c, spry_dtype type, spry_dtype act_type)
{
    size_t block = spry_dtype_block(type), act_block = spry_dtype_block(act_type);
    block = block > act_block ? block : act_block;
    return block == 1 ? check_between(c, 1, 700) : block * check_between(c, 1, 1280 / block);
}

static void choose_shape(check *c, matmul_case *k)
{
    k->act_type = c->ops->matmul[k->type].act;
    k->n_in = random_width(c, k->type, k->act_type);
    k->n_rows = check_between(c, 0, 9) == 0 ? 17 : check_between(c, 1, 9);
    k->n_out = check_between(c, 1, 13);
    k->begin = check_between(c, 0, k->n_out - 1);
    k->end = check_between(c, k->begin + 1, k->n_out);
}

/* Rows lie apart by a random gap in every buffer, and none follows the last row. A file may put weights at any address,
 * so theirs is odd now and then. */
static void build(check *c, matmul_case *k)
{
    size_t weight_row = bytes_of(k->type, k->n_in), weight_stride = weight_row + 32 * check_between(c, 0, 1);
    size_t act_row = bytes_of(k->act_type, k->n_in), act_stride = act_row + 4 * check_between(c, 0, 3);
    size_t out_stride = k->n_out + check_between(c, 0, 5);
    check_detail(c, "n_rows=%zu n_in=%zu n_out=%zu [%zu, %zu)", k->n_rows, k->n_in, k->n_out, k->begin, k->end);

    k->weight = guarded_create((k->n_out - 1) * weight_stride + weight_row + check_between(c, 0, 1));
    for (size_t o = 0; o < k->n_out; o++)
        check_fill_type(c, k->weight.data + o * weight_stride, k->type, k->n_in);
    k->floats = guarded_floats(k->n_rows * k->n_in);
    k->act = guarded_create((k->n_rows - 1) * act_stride + act_row);
    for (size_t row = 0; row < k->n_rows; row++) {
        float *floats = guarded_f(&k->floats) + row * k->n_in;
        check_fill(c, floats, k->n_in, 1);
        c->ref->encode[k->act_type](k->act.data + row * act_stride, floats, k->n_in);
        c->ref->decode[k->act_type](floats, k->act.data + row * act_stride, k->n_in);
    }
    k->out = guarded_floats((k->n_rows - 1) * out_stride + k->n_out);
    guarded_freeze(&k->weight);
    guarded_freeze(&k->floats);
    guarded_freeze(&k->act);

    k->m = (spry_matmul){guarded_f(&k->out), out_stride, k->weight.data, weight_stride,
                         k->act.data,        act_stride, k->n_rows,      k->n_in};
    k->plain = k->m;
    k->plain.out = NULL;
    k->plain.act = k->floats.data;
    k->plain.act_stride = k->n_in * sizeof(float);
}

static double naive_product(double *magnitude, const matmul_case *k, size_t row, size_t output)
{
    const unsigned char *weight = k->weight.data + output * k->m.weight_stride;
    const float *act = guarded_f(&k->floats) + row * k->n_in;
    double sum = 0, size = 0;
    for (size_t i = 0; i < k->n_in; i++) {
        double terms, value = naive_value(&terms, k->type, weight, i);
        sum += value * (double)act[i];
        size += terms * fabs((double)act[i]);
    }
    *magnitude = size;
    return sum;
}

/* The values in the range, and nothing but poison elsewhere. */
static void compare(check *c, const matmul_case *k)
{
    guarded ref_out = guarded_floats(k->out.size / sizeof(float));
    if (!check_is_ref(c)) {
        spry_matmul m = k->plain;
        m.out = guarded_f(&ref_out);
        c->ref->matmul[k->type].run(&m, k->begin, k->end);
    }
    double roundings = (double)(k->n_in / LEAST_LANES + OTHER_ROUNDINGS);
    for (size_t i = 0; i < k->out.size / sizeof(float); i++) {
        size_t row = i / k->m.out_stride, output = i % k->m.out_stride;
        const float *got = guarded_f(&k->out) + i;
        if (output < k->begin || output >= k->end) {
            if (!check_is_poison(got, sizeof *got))
                check_complain(c, "row %zu output %zu is outside the range and was written", row, output);
            continue;
        }
        double magnitude, expected = naive_product(&magnitude, k, row, output);
        if (!check_is_ref(c))
            expected = (double)guarded_f(&ref_out)[i];
        check_close(c, i, (double)*got, expected, roundings * CHECK_ROUNDING * magnitude);
    }
    guarded_destroy(c, &ref_out);
}

/* Each row by itself, and the range in two parts, must give the same bits. */
static void compare_splits(check *c, const matmul_case *k)
{
    void (*run)(const spry_matmul *, size_t, size_t) = c->ops->matmul[k->type].run;
    guarded again = guarded_floats(k->out.size / sizeof(float));
    for (size_t row = 0; row < k->n_rows; row++) {
        spry_matmul one = k->m;
        one.n_rows = 1;
        one.out = guarded_f(&again) + row * one.out_stride;
        one.act = k->act.data + row * one.act_stride;
        run(&one, k->begin, k->end);
    }
    check_same(c, "running each row by itself", again.data, k->out.data, again.size);
    guarded_destroy(c, &again);

    again = guarded_floats(k->out.size / sizeof(float));
    spry_matmul halves = k->m;
    halves.out = guarded_f(&again);
    size_t middle = check_between(c, k->begin, k->end);
    run(&halves, middle, k->end);
    run(&halves, k->begin, middle);
    check_same(c, "splitting the range", again.data, k->out.data, again.size);
    guarded_destroy(c, &again);
}

static void check_shape(check *c, spry_dtype type)
{
    matmul_case k = {.type = type};
    choose_shape(c, &k);
    build(c, &k);
    c->ops->matmul[type].run(&k.m, k.begin, k.end);
    compare(c, &k);
    compare_splits(c, &k);
    guarded_destroy(c, &k.weight);
    guarded_destroy(c, &k.floats);
    guarded_destroy(c, &k.act);
    guarded_destroy(c, &k.out);
}

void check_matmul(check *c)
{
    for (unsigned id = 0; id < SPRY_DTYPE_COUNT; id++) {
        if (!spry_dtype_known(id) || !check_begin(c, "matmul %s", spry_dtype_name((spry_dtype)id)))
            continue;
        for (int shape = 0; shape < SHAPES; shape++)
            check_shape(c, (spry_dtype)id);
        check_end(c);
    }
}

/* ---- speed ------------------------------------------------------------------------------------------------------ */

enum { BENCH_IN = 4096, BENCH_OUT = 1024 };

typedef struct matmul_work {
    const spry_ops *ops; /* whose activations `m` has */
    spry_dtype type;
    spry_matmul m, plain;
} matmul_work;

static void call_matmul(const spry_ops *ops, const void *context)
{
    const matmul_work *work = context;
    ops->matmul[work->type].run(ops == work->ops ? &work->m : &work->plain, 0, BENCH_OUT);
}

static void bench_rows(check *c, spry_dtype type, size_t n_rows)
{
    spry_dtype act_type = c->ops->matmul[type].act;
    size_t weight_row = bytes_of(type, BENCH_IN), act_row = bytes_of(act_type, BENCH_IN);
    guarded weight = guarded_create(BENCH_OUT * weight_row), floats = guarded_floats(n_rows * BENCH_IN);
    guarded act = guarded_create(n_rows * act_row), out = guarded_floats(n_rows * BENCH_OUT);
    check_fill_type(c, weight.data, type, BENCH_OUT * BENCH_IN);
    check_fill(c, guarded_f(&floats), n_rows * BENCH_IN, 1);
    c->ref->encode[act_type](act.data, guarded_f(&floats), n_rows * BENCH_IN);

    matmul_work work = {.ops = c->ops, .type = type};
    work.m = (spry_matmul){guarded_f(&out), BENCH_OUT, weight.data, weight_row, act.data, act_row, n_rows, BENCH_IN};
    work.plain = work.m;
    work.plain.act = floats.data;
    work.plain.act_stride = BENCH_IN * sizeof(float);
    check_bench(c, &(bench_work){call_matmul, &work, (double)weight.size, (double)n_rows * BENCH_OUT * BENCH_IN});
    guarded_destroy(c, &weight);
    guarded_destroy(c, &floats);
    guarded_destroy(c, &act);
    guarded_destroy(c, &out);
}

void bench_matmul(check *c)
{
    static const size_t rows[] = {1, 32};
    for (unsigned id = 0; id < SPRY_DTYPE_COUNT; id++)
        for (size_t i = 0; spry_dtype_known(id) && i < SPRY_COUNT(rows); i++)
            if (check_begin(c, "matmul %s rows %zu", spry_dtype_name((spry_dtype)id), rows[i]))
                bench_rows(c, (spry_dtype)id, rows[i]);
}
