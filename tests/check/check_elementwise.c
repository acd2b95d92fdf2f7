/* Ops whose result i depends on element i of their inputs alone. Each is one row of a table: how it is called and what
 * it computes. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "check/check.h"

enum { SHAPES = 40, MAX_VALUES = 150 };

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

static void call_gelu_erf(const spry_ops *ops, float *out, const float *a, const float *b, float parameter, size_t n)
{
    (void)parameter;
    ops->gate[SPRY_GATE_GELU](out, a, b, n);
}

static double naive_gelu_erf(double *magnitude, double a, double b, double parameter)
{
    (void)parameter;
    *magnitude = fabs(a * b); /* 1 + erf cancels for negative a */
    return 0.5 * a * (1 + erf(a * sqrt(0.5))) * b;
}

static void call_relu_squared(const spry_ops *ops, float *out, const float *a, const float *b, float parameter,
                              size_t n)
{
    (void)parameter;
    ops->gate[SPRY_GATE_RELU_SQUARED](out, a, b, n);
}

static double naive_relu_squared(double *magnitude, double a, double b, double parameter)
{
    (void)parameter;
    double value = a < 0 ? 0 : a * a * b;
    *magnitude = fabs(value);
    return value;
}

static void call_clamped(const spry_ops *ops, float *out, const float *a, const float *b, float parameter, size_t n)
{
    (void)parameter;
    ops->gate[SPRY_GATE_CLAMPED](out, a, b, n);
}

static double naive_clamped(double *magnitude, double a, double b, double parameter)
{
    (void)parameter;
    double x = a > 7 ? 7 : a, y = b > 7 ? 7 : b < -7 ? -7 : b;
    double value = x / (1 + exp(-(double)1.702f * x));
    *magnitude = fabs(value) * (1 + fabs(y)) * (1 + fabs(x)); /* the exponent is rounded, too */
    return value * (y + 1);
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

/* In units of CHECK_ROUNDING, exp may be off by 2 of its result and tanh by 4; every other operation by 1.
 * silu: exp, and three operations.
 * gelu: of |a b|. The six roundings within move tanh by at most 6 * 0.45, tanh itself and 1 + tanh by 4 + 2; halved,
 * and two products.
 * gelu by erf: of |a b|. Two roundings of the argument move erf by at most 2 * 0.49, erf itself and 1 + erf by 2 + 2;
 * halved, and two products.
 * softcap: the quotient, tanh, the product. */
static const elementwise_op ops[] = {
    {"gate silu", false, 5, call_silu, naive_silu},
    {"gate gelu_tanh", false, 7, call_gelu, naive_gelu},
    {"gate gelu", false, 5, call_gelu_erf, naive_gelu_erf},
    {"add", true, 1, call_add, naive_add},
    {"add_scaled", true, 2, call_add_scaled, naive_add_scaled},
    {"gate clamped", false, 7, call_clamped, naive_clamped},
    {"gate relu squared", false, 3, call_relu_squared, naive_relu_squared},
    {"scale", true, 1, call_scale, naive_scale},
    {"softcap", true, 6, call_softcap, naive_softcap},
};

static void compare(check *c, const elementwise_op *op, const float *out, const guarded *a, const guarded *b,
                    float parameter)
{
    for (size_t i = 0; i < a->size / sizeof(float); i++) {
        double x = (double)guarded_f(a)[i], y = (double)guarded_f(b)[i];
        double magnitude, expected = op->naive(&magnitude, x, y, (double)parameter);
        /* exp stops at both ends of a float's range, which is worth at most this. */
        double underflow = (double)FLT_MIN * (1 + fabs(x)) * (1 + fabs(y));
        /* Bounds are sums of first-order terms. */
        double roundings = op->roundings * CHECK_ROUNDING * (1 + 0x1p-16);
        check_close(c, i, (double)out[i], expected, roundings * magnitude + underflow);
    }
}

/* Calls the op, also in place where it may be, and compares. */
static void check_values(check *c, const elementwise_op *op, const guarded *a, const guarded *b, float parameter)
{
    size_t n = a->size / sizeof(float);
    guarded out = guarded_floats(n);
    if (!op->in_place) {
        op->call(c->ops, guarded_f(&out), guarded_f(a), guarded_f(b), parameter, n);
        compare(c, op, guarded_f(&out), a, b, parameter);
    }
    memcpy(out.data, a->data, a->size);
    op->call(c->ops, guarded_f(&out), guarded_f(&out), guarded_f(b), parameter, n);
    compare(c, op, guarded_f(&out), a, b, parameter);
    guarded_destroy(c, &out);
}

static void check_shape(check *c, const elementwise_op *op)
{
    static const float sizes[] = {1, 20, 200};
    size_t n = check_between(c, 1, MAX_VALUES);
    float size = sizes[check_between(c, 0, SPRY_COUNT(sizes) - 1)], parameter = 5 + 4 * check_uniform(c);
    check_detail(c, "n=%zu size=%g parameter=%g", n, (double)size, (double)parameter);
    guarded a = guarded_floats(n), b = guarded_floats(n);
    check_fill(c, guarded_f(&a), n, size);
    check_fill(c, guarded_f(&b), n, size);
    guarded_freeze(&a);
    guarded_freeze(&b);
    check_values(c, op, &a, &b, parameter);
    guarded_destroy(c, &a);
    guarded_destroy(c, &b);
}

/* Numbers of every exponent and sign, in steps so odd that all their bits change. */
static void check_sweep(check *c, const elementwise_op *op)
{
    const uint32_t step = 0x2f0b5, above_10000 = 0x46200000;
    size_t n = 2 * (above_10000 / step);
    check_detail(c, "all exponents");
    guarded a = guarded_floats(n), b = guarded_floats(n);
    uint32_t bits = (uint32_t)check_between(c, 0, step - 1);
    for (size_t i = 0; i < n; i += 2, bits += step)
        for (uint32_t sign = 0; sign < 2; sign++) {
            uint32_t signed_bits = bits | sign << 31;
            memcpy(&guarded_f(&a)[i + sign], &signed_bits, sizeof bits);
            guarded_f(&b)[i + sign] = check_uniform(c) + 2;
        }
    check_values(c, op, &a, &b, 1.75f);
    guarded_destroy(c, &a);
    guarded_destroy(c, &b);
}

/* What does not depend on rounding: a NaN shows, and only where it is; zeros and infinity give what they give in double
 * precision, exactly. */
static void check_special(check *c, const elementwise_op *op)
{
    enum { N = 37 };
    static const float special[] = {0, -0.0f, NAN, INFINITY};
    for (size_t k = 0; k < SPRY_COUNT(special); k++) {
        size_t place = check_between(c, 0, N - 1);
        float a[N], b[N], parameter = 3;
        if (op->naive == naive_clamped && k == 3)
            continue; /* of an infinity it makes a number that is rounded */
        check_detail(c, "%g among others", (double)special[k]);
        check_fill(c, a, N, 5);
        check_fill(c, b, N, 5);
        b[place] = 2;
        a[place] = special[k];
        op->call(c->ops, a, a, b, parameter, N);
        double magnitude, expected = op->naive(&magnitude, (double)special[k], 2, (double)parameter);
        if (!isinf(expected))
            check_close(c, place, (double)a[place], expected, 0);
        else if (a[place] != (float)expected)
            check_complain(c, "infinity becomes %g", (double)a[place]);
        for (size_t i = 0; i < N; i++)
            if (i != place && !isfinite(a[i]))
                check_complain(c, "value %zu is %g because of value %zu", i, (double)a[i], place);
    }
}

void check_elementwise(check *c)
{
    for (size_t i = 0; i < SPRY_COUNT(ops); i++) {
        if (!check_begin(c, "%s", ops[i].name))
            continue;
        for (int shape = 0; shape < SHAPES; shape++)
            check_shape(c, &ops[i]);
        check_sweep(c, &ops[i]);
        check_special(c, &ops[i]);
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
