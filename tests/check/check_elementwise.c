/* Ops whose result i depends on element i of their inputs alone. Each is one row of a table: how it is called and what
 * it computes. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "check/check.h"

enum { SHAPES = 12, MAX_VALUES = 150 };

typedef struct elementwise_op {
    const char *name;
    bool in_place; /* the call reads `out` instead of `a` */
    double roundings;
    void (*call)(const spry_ops *ops, float *out, const float *a, const float *b, float parameter, size_t n);
    /* `magnitude`: size of what is rounded */
    double (*naive)(double *magnitude, double a, double b, double parameter);
} elementwise_op;

static void call_silu(const spry_ops *ops, float *out, const float *a, const float *b, float parameter, size_t n)
{
    (void)parameter;
    ops->gate[SPRY_GATE_SILU](out, a, b, n);
}

static double naive_silu(double *magnitude, double a, double b, double parameter)
{
    (void)parameter;
    double value = a / (1 + exp(-a)) * b;
    *magnitude = fabs(value);
    return value;
}

static void call_gelu(const spry_ops *ops, float *out, const float *a, const float *b, float parameter, size_t n)
{
    (void)parameter;
    ops->gate[SPRY_GATE_GELU_TANH](out, a, b, n);
}

static double naive_gelu(double *magnitude, double a, double b, double parameter)
{
    (void)parameter;
    *magnitude = fabs(a * b); /* 1 + tanh cancels for negative a */
    return 0.5 * a * (1 + tanh(sqrt(2 / acos(-1)) * (a + 0.044715 * a * a * a))) * b;
}

static void call_add(const spry_ops *ops, float *out, const float *a, const float *b, float parameter, size_t n)
{
    (void)a;
    (void)parameter;
    ops->add(out, b, n);
}

static double naive_add(double *magnitude, double a, double b, double parameter)
{
    (void)parameter;
    *magnitude = fabs(a + b);
    return a + b;
}

static void call_add_scaled(const spry_ops *ops, float *out, const float *a, const float *b, float parameter, size_t n)
{
    (void)a;
    ops->add_scaled(out, b, parameter, n);
}

static double naive_add_scaled(double *magnitude, double a, double b, double parameter)
{
    *magnitude = fabs(a) + fabs(parameter * b);
    return a + parameter * b;
}

static void call_scale(const spry_ops *ops, float *out, const float *a, const float *b, float parameter, size_t n)
{
    (void)a;
    (void)b;
    ops->scale(out, parameter, n);
}

static double naive_scale(double *magnitude, double a, double b, double parameter)
{
    (void)b;
    *magnitude = fabs(a * parameter);
    return a * parameter;
}

static void call_softcap(const spry_ops *ops, float *out, const float *a, const float *b, float parameter, size_t n)
{
    (void)a;
    (void)b;
    ops->softcap(out, parameter, n);
}

static double naive_softcap(double *magnitude, double a, double b, double parameter)
{
    (void)b;
    double value = parameter * tanh(a / parameter);
    *magnitude = fabs(value);
    return value;
}

/* Sums and products round as often as they say; exp and tanh may be off by a few units in the last place. */
static const elementwise_op ops[] = {
    {"gate silu", false, 16, call_silu, naive_silu}, {"gate gelu_tanh", false, 16, call_gelu, naive_gelu},
    {"add", true, 1, call_add, naive_add},           {"add_scaled", true, 3, call_add_scaled, naive_add_scaled},
    {"scale", true, 1, call_scale, naive_scale},     {"softcap", true, 16, call_softcap, naive_softcap},
};

static void compare(check *c, const elementwise_op *op, const float *out, const guarded *a, const guarded *b,
                    float parameter)
{
    size_t n = a->size / sizeof(float);
    float ref_out[MAX_VALUES];
    memcpy(ref_out, a->data, a->size);
    op->call(c->ref, ref_out, ref_out, guarded_f(b), parameter, n);
    for (size_t i = 0; i < n; i++) {
        double x = (double)guarded_f(a)[i], y = (double)guarded_f(b)[i];
        double magnitude, expected = op->naive(&magnitude, x, y, (double)parameter);
        if (!check_is_ref(c))
            expected = (double)ref_out[i];
        double underflow = (double)FLT_MIN * (1 + fabs(x)) * (1 + fabs(y));
        check_close(c, i, (double)out[i], expected, op->roundings * CHECK_ROUNDING * magnitude + underflow);
    }
}

static void check_shape(check *c, const elementwise_op *op)
{
    static const float sizes[] = {1, 20, 200};
    size_t n = check_between(c, 1, MAX_VALUES);
    float size = sizes[check_between(c, 0, SPRY_COUNT(sizes) - 1)], parameter = 5 + 4 * check_uniform(c);
    check_detail(c, "n=%zu size=%g parameter=%g", n, (double)size, (double)parameter);
    guarded a = guarded_floats(n), b = guarded_floats(n), out = guarded_floats(n);
    check_fill(c, guarded_f(&a), n, size);
    check_fill(c, guarded_f(&b), n, size);
    guarded_freeze(&a);
    guarded_freeze(&b);
    if (!op->in_place) {
        op->call(c->ops, guarded_f(&out), guarded_f(&a), guarded_f(&b), parameter, n);
        compare(c, op, guarded_f(&out), &a, &b, parameter);
    }
    memcpy(out.data, a.data, a.size);
    op->call(c->ops, guarded_f(&out), guarded_f(&out), guarded_f(&b), parameter, n);
    compare(c, op, guarded_f(&out), &a, &b, parameter);
    guarded_destroy(c, &a);
    guarded_destroy(c, &b);
    guarded_destroy(c, &out);
}

void check_elementwise(check *c)
{
    for (size_t i = 0; i < SPRY_COUNT(ops); i++) {
        if (!check_begin(c, "%s", ops[i].name))
            continue;
        for (int shape = 0; shape < SHAPES; shape++)
            check_shape(c, &ops[i]);
        check_end(c);
    }
}

/* ---- speed ------------------------------------------------------------------------------------------------------ */

enum { BENCH_VALUES = 4096 };

typedef struct elementwise_work {
    const elementwise_op *op;
    float *out;
    const float *a, *b;
} elementwise_work;

static void call_elementwise(const spry_ops *table, const void *context)
{
    const elementwise_work *work = context;
    work->op->call(table, work->out, work->a, work->b, 1, BENCH_VALUES);
}

void bench_elementwise(check *c)
{
    guarded a = guarded_floats(BENCH_VALUES), b = guarded_floats(BENCH_VALUES), out = guarded_floats(BENCH_VALUES);
    check_fill(c, guarded_f(&a), BENCH_VALUES, 1);
    check_fill(c, guarded_f(&b), BENCH_VALUES, 1);
    for (size_t i = 0; i < SPRY_COUNT(ops); i++) {
        if (!check_begin(c, "%s", ops[i].name))
            continue;
        memcpy(out.data, a.data, a.size);
        elementwise_work work = {&ops[i], guarded_f(&out), guarded_f(&a), guarded_f(&b)};
        check_bench(c, &(bench_work){call_elementwise, &work, (double)(3 * a.size), 0});
    }
    guarded_destroy(c, &a);
    guarded_destroy(c, &b);
    guarded_destroy(c, &out);
}
