/* The matrix product, for every weight type: against double precision and against ref; the same bits however rows and
 * outputs are split; and a row that is not finite spoils itself only. */
#include <math.h>
#include <string.h>

#include "check/matmul_case.h"

/* The values in the range, and nothing but poison elsewhere. */
static void compare(check *c, const matmul_case *k)
{
    guarded ref_out = guarded_create(k->out.size);
    spry_matmul m = k->plain;
    m.out = guarded_f(&ref_out);
    c->ref->matmul[k->type].run(&m, k->begin, k->end);
    for (size_t i = 0; i < k->out.size / sizeof(float); i++) {
        size_t row = i / k->m.out_stride, output = i % k->m.out_stride;
        const float *got = guarded_f(&k->out) + i;
        if (output < k->begin || output >= k->end) {
            if (!check_is_poison(got, sizeof *got))
                check_complain(c, "row %zu output %zu is outside the range and was written", row, output);
            continue;
        }
        double size, expected = matmul_case_product(&size, k, row, output);
        double tolerance = matmul_case_tolerance(k, k->kernel->integer, size);
        check_close(c, i, (double)*got, expected, tolerance);
        if (!check_is_ref(c))
            check_close(c, i, (double)*got, (double)guarded_f(&ref_out)[i],
                        tolerance + matmul_case_tolerance(k, false, size));
    }
    guarded_destroy(c, &ref_out);
}

/* Runs rows [first, first + n) of the case. */
static void run_rows(const matmul_case *k, float *out, const unsigned char *act, size_t first, size_t n)
{
    spry_matmul part = k->m;
    part.n_rows = n;
    part.out = out + first * part.out_stride;
    part.act = act + first * part.act_stride;
    k->kernel->run(&part, k->begin, k->end);
}

/* Rows by themselves, in chunks, and the range in parts must give the same bits. */
static void compare_splits(check *c, const matmul_case *k)
{
    guarded again = guarded_create(k->out.size);
    for (size_t row = 0; row < k->n_rows; row++)
        run_rows(k, guarded_f(&again), k->act.data, row, 1);
    check_same(c, "running each row by itself", again.data, k->out.data, again.size);
    guarded_destroy(c, &again);

    again = guarded_create(k->out.size);
    for (size_t row = 0, n; row < k->n_rows; row += n) {
        n = check_between(c, 1, k->n_rows - row < 12 ? k->n_rows - row : 12);
        run_rows(k, guarded_f(&again), k->act.data, row, n);
    }
    check_same(c, "running chunks of rows", again.data, k->out.data, again.size);
    guarded_destroy(c, &again);

    again = guarded_create(k->out.size);
    spry_matmul parts = k->m;
    parts.out = guarded_f(&again);
    for (size_t end = k->end; end > k->begin;) {
        size_t step = matmul_case_step(k), last = (end - 1) / step;
        size_t begin = check_between(c, k->begin / step, last) * step;
        k->kernel->run(&parts, begin, end);
        end = begin;
    }
    k->kernel->run(&parts, k->begin, k->begin);
    check_same(c, "splitting the range", again.data, k->out.data, again.size);
    guarded_destroy(c, &again);
}

/* Activations that come rounded must give the same bits. */
static void compare_halves(check *c, const matmul_case *k)
{
    size_t stride = spry_halves_stride(k->n_in);
    guarded halves = guarded_create(k->n_rows * stride * sizeof(uint16_t)), again = guarded_create(k->out.size);
    spry_matmul m = k->m;
    m.out = guarded_f(&again);
    m.halves = (const uint16_t *)(const void *)halves.data;
    m.halves_stride = stride;
    for (size_t row = 0; row < k->n_rows; row++)
        k->kernel->halve((uint16_t *)(void *)halves.data + row * stride, guarded_f(&k->floats) + row * k->n_in,
                         k->n_in);
    k->kernel->run(&m, k->begin, k->end);
    check_same(c, "rounding activations beforehand", again.data, k->out.data, again.size);
    guarded_destroy(c, &halves);
    guarded_destroy(c, &again);
}

/* A NaN or an infinity among a row's activations shows in all its results and in no others. */
static void compare_broken_row(check *c, const matmul_case *k)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    guarded floats = guarded_create(k->floats.size), act = guarded_create(k->act.size);
    guarded out = guarded_create(k->out.size);
    size_t broken = check_between(c, 0, k->n_rows - 1), place = check_between(c, 0, k->n_in - 1);
    memcpy(floats.data, k->floats.data, floats.size);
    guarded_f(&floats)[broken * k->n_in + place] = odd[check_between(c, 0, SPRY_COUNT(odd) - 1)];
    matmul_case_encode(k, act.data, guarded_f(&floats));
    run_rows(k, guarded_f(&out), act.data, 0, k->n_rows);
    float *row = guarded_f(&out) + broken * k->m.out_stride;
    for (size_t o = k->begin; o < k->end; o++) {
        if (k->kernel->integer ? !isnan(row[o]) : isfinite(row[o]))
            check_complain(c, "output %zu is %g though an activation is not finite", o, (double)row[o]);
        row[o] = k->m.out[broken * k->m.out_stride + o];
    }
    check_same(c, "an activation of another row that is not finite", out.data, k->out.data, out.size);
    guarded_destroy(c, &floats);
    guarded_destroy(c, &act);
    guarded_destroy(c, &out);
}

static void check_shape(check *c, spry_dtype type, matmul_content content, size_t n_rows, size_t most_outputs)
{
    matmul_case k = {.type = type, .content = content, .n_rows = n_rows};
    matmul_case_build(c, &k, most_outputs);
    k.kernel->run(&k.m, k.begin, k.end);
    compare(c, &k);
    compare_splits(c, &k);
    if (k.kernel->halve)
        compare_halves(c, &k);
    compare_broken_row(c, &k);
    matmul_case_destroy(c, &k);
}

static void check_type(check *c, spry_dtype type)
{
    /* More outputs than three groups of any table; more rows than any tile, and than the blocks rows are taken in. */
    enum { MOST_OUTPUTS = 53, FEW_OUTPUTS = 20, MOST_TILE_ROWS = 17, MANY_ROWS = 65, MOST_ROWS = 140 };
    for (size_t n_rows = 1; n_rows <= MOST_TILE_ROWS; n_rows++)
        for (unsigned content = 0; content < MATMUL_CONTENT_COUNT; content++)
            if (content == MATMUL_RANDOM || n_rows % 4 == 1)
                check_shape(c, type, (matmul_content)content, n_rows, MOST_OUTPUTS);
    for (int i = 0; i < 2; i++)
        check_shape(c, type, MATMUL_RANDOM, check_between(c, MANY_ROWS, MOST_ROWS), FEW_OUTPUTS);
    check_shape(c, type, MATMUL_WHOLE, MANY_ROWS, FEW_OUTPUTS);
}

void check_matmul(check *c)
{
    for (unsigned id = 0; id < SPRY_DTYPE_COUNT; id++) {
        if (!spry_dtype_known(id) || !check_begin(c, "matmul %s", spry_dtype_name((spry_dtype)id)))
            continue;
        check_type(c, (spry_dtype)id);
        check_end(c);
    }
}
