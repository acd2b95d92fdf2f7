/* Ops over a whole vector or head: norm, rotation, softmax. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "check/check.h"

enum { SHAPES = 16, MAX_VALUES = 700 };

/* ---- rms_norm --------------------------------------------------------------------------------------------------- */

static void compare_norm(check *c, const float *out, const guarded *in, const guarded *weight, float eps)
{
    size_t n = in->size / sizeof(float);
    const float *x = guarded_f(in), *w = guarded_f(weight);
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (size_t i = 0; i < n; i++) {
        double expected = (double)x[i] / sqrt(sum / (double)n + (double)eps) * (double)w[i];
        double tolerance = check_roundings(n) * fabs(expected) + (double)FLT_MIN;
        check_close(c, i, (double)out[i], expected, tolerance);
    }
}

static void check_norm_shape(check *c)
{
    size_t n = check_between(c, 1, MAX_VALUES);
    float eps = check_between(c, 0, 1) ? 1e-5f : 1e-6f, size = ldexpf(1, (int)check_between(c, 0, 12) - 9);
    check_detail(c, "n=%zu eps=%g size=%g", n, (double)eps, (double)size);
    guarded in = guarded_floats(n), weight = guarded_floats(n), out = guarded_floats(n);
    check_fill(c, guarded_f(&in), n, size);
    check_fill(c, guarded_f(&weight), n, 2);
    guarded_freeze(&in);
    guarded_freeze(&weight);
    c->ops->rms_norm(guarded_f(&out), guarded_f(&in), guarded_f(&weight), n, eps);
    compare_norm(c, guarded_f(&out), &in, &weight, eps);
    memcpy(out.data, in.data, in.size);
    c->ops->rms_norm(guarded_f(&out), guarded_f(&out), guarded_f(&weight), n, eps);
    compare_norm(c, guarded_f(&out), &in, &weight, eps);
    guarded_destroy(c, &in);
    guarded_destroy(c, &weight);
    guarded_destroy(c, &out);
}

void check_rms_norm(check *c)
{
    if (!check_begin(c, "rms_norm"))
        return;
    for (int shape = 0; shape < SHAPES; shape++)
        check_norm_shape(c);
    check_end(c);
}

/* ---- layer_norm ------------------------------------------------------------------------------------------------- */

/* The mean's rounding counts as much as the largest value does. */
static void compare_layer_norm(check *c, const float *out, const guarded *in, const float *w, const float *b, float eps)
{
    size_t n = in->size / sizeof(float);
    const float *x = guarded_f(in);
    double sum = 0, squares = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i];
        largest = fmax(largest, fabs((double)x[i]));
    }
    for (size_t i = 0; i < n; i++)
        squares += ((double)x[i] - sum / (double)n) * ((double)x[i] - sum / (double)n);
    double scale = 1 / sqrt(squares / (double)n + (double)eps);
    for (size_t i = 0; i < n; i++) {
        double part = ((double)x[i] - sum / (double)n) * scale * (double)w[i], bias = b ? (double)b[i] : 0;
        double tolerance = check_roundings(n) * (fabs(part) + largest * scale * fabs((double)w[i]) + fabs(bias));
        check_close(c, i, (double)out[i], part + bias, tolerance + (double)FLT_MIN);
    }
}

static void check_layer_norm_shape(check *c)
{
    size_t n = check_between(c, 1, MAX_VALUES);
    float eps = check_between(c, 0, 1) ? 1e-5f : 1e-12f;
    bool biased = check_between(c, 0, 1);
    check_detail(c, "n=%zu eps=%g bias=%d", n, (double)eps, biased);
    guarded in = guarded_floats(n), weight = guarded_floats(n), bias = guarded_floats(n), out = guarded_floats(n);
    check_fill(c, guarded_f(&in), n, 3);
    check_fill(c, guarded_f(&weight), n, 2);
    check_fill(c, guarded_f(&bias), n, 1);
    guarded_freeze(&in);
    guarded_freeze(&weight);
    guarded_freeze(&bias);
    const float *b = biased ? guarded_f(&bias) : NULL;
    if (n > 1) { /* the variance of one value is the rounding of its mean */
        c->ops->layer_norm(guarded_f(&out), guarded_f(&in), guarded_f(&weight), b, n, eps);
        compare_layer_norm(c, guarded_f(&out), &in, guarded_f(&weight), b, eps);
        memcpy(out.data, in.data, in.size);
        c->ops->layer_norm(guarded_f(&out), guarded_f(&out), guarded_f(&weight), b, n, eps);
        compare_layer_norm(c, guarded_f(&out), &in, guarded_f(&weight), b, eps);
    }
    guarded_destroy(c, &in);
    guarded_destroy(c, &weight);
    guarded_destroy(c, &bias);
    guarded_destroy(c, &out);
}

void check_layer_norm(check *c)
{
    if (!check_begin(c, "layer_norm"))
        return;
    for (int shape = 0; shape < SHAPES; shape++)
        check_layer_norm_shape(c);
    check_end(c);
}

/* ---- rope ------------------------------------------------------------------------------------------------------- */

typedef struct rope_shape {
    size_t n_heads, head_dim, n_pairs;
    bool interleaved;
} rope_shape;

/* Value i of a head after rotation; *magnitude is 0 for what must not change. */
static double naive_rope(double *magnitude, const rope_shape *s, const float *head, const float *cosine,
                         const float *sine, size_t i)
{
    *magnitude = 0;
    if (i >= 2 * s->n_pairs)
        return (double)head[i];
    size_t pair = s->interleaved ? i / 2 : i % s->n_pairs;
    bool second = s->interleaved ? i % 2 : i >= s->n_pairs;
    size_t partner = s->interleaved ? i ^ 1 : (i + s->n_pairs) % (2 * s->n_pairs);
    double own = (double)head[i] * (double)cosine[pair], other = (double)head[partner] * (double)sine[pair];
    *magnitude = fabs(own) + fabs(other);
    return second ? own + other : own - other;
}

static void compare_rope(check *c, const rope_shape *s, const float *out, const float *in, const float *cosine,
                         const float *sine)
{
    size_t n = s->n_heads * s->head_dim;
    for (size_t i = 0; i < n; i++) {
        double magnitude;
        double expected = naive_rope(&magnitude, s, in + i / s->head_dim * s->head_dim, cosine, sine, i % s->head_dim);
        check_close(c, i, (double)out[i], expected, 3 * CHECK_ROUNDING * magnitude);
    }
}

static void check_rope_shape(check *c)
{
    static const size_t head_dims[] = {2, 16, 32, 64, 80, 96, 128, 256};
    rope_shape s = {.n_heads = check_between(c, 1, 9),
                    .head_dim = head_dims[check_between(c, 0, SPRY_COUNT(head_dims) - 1)],
                    .interleaved = check_between(c, 0, 1)};
    s.n_pairs = check_between(c, 0, 2) ? s.head_dim / 2 : check_between(c, 1, s.head_dim / 2);
    check_detail(c, "n_heads=%zu head_dim=%zu n_pairs=%zu interleaved=%d", s.n_heads, s.head_dim, s.n_pairs,
                 s.interleaved);
    size_t n = s.n_heads * s.head_dim;
    guarded in = guarded_floats(n), out = guarded_floats(n), cosine = guarded_floats(s.n_pairs),
            sine = guarded_floats(s.n_pairs);
    check_fill(c, guarded_f(&in), n, 3);
    for (size_t i = 0; i < s.n_pairs; i++) {
        float angle = check_uniform(c) * 4;
        guarded_f(&cosine)[i] = cosf(angle);
        guarded_f(&sine)[i] = sinf(angle);
    }
    guarded_freeze(&cosine);
    guarded_freeze(&sine);
    memcpy(out.data, in.data, in.size);
    c->ops->rope(guarded_f(&out), guarded_f(&cosine), guarded_f(&sine), s.n_heads, s.head_dim, s.n_pairs,
                 s.interleaved);
    compare_rope(c, &s, guarded_f(&out), guarded_f(&in), guarded_f(&cosine), guarded_f(&sine));
    guarded_destroy(c, &in);
    guarded_destroy(c, &out);
    guarded_destroy(c, &cosine);
    guarded_destroy(c, &sine);
}

void check_rope(check *c)
{
    if (!check_begin(c, "rope"))
        return;
    for (int shape = 0; shape < 2 * SHAPES; shape++)
        check_rope_shape(c);
    check_end(c);
}

/* ---- softmax ---------------------------------------------------------------------------------------------------- */

/* A difference to the maximum is rounded before exp is taken; the sum holds such terms as well. */
static void compare_softmax(check *c, const float *out, const float *in, size_t n)
{
    double max = -INFINITY, min = INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) {
        max = fmax(max, (double)in[i]);
        min = isfinite(in[i]) ? fmin(min, (double)in[i]) : min;
    }
    for (size_t i = 0; i < n; i++)
        sum += exp((double)in[i] - max);
    for (size_t i = 0; i < n; i++) {
        double expected = exp((double)in[i] - max) / sum;
        double tolerance = (check_roundings(n) + 2 * (max - min) * CHECK_ROUNDING) * expected;
        check_close(c, i, (double)out[i], expected, isfinite(in[i]) ? tolerance + (double)FLT_MIN : 0);
    }
}

/* Some values may be -infinity: they get exactly nothing. */
static void check_softmax_shape(check *c)
{
    size_t n = check_between(c, 1, MAX_VALUES);
    float size = ldexpf(1, (int)check_between(c, 0, 9)), in[MAX_VALUES];
    bool masked = check_between(c, 0, 1);
    check_detail(c, "n=%zu size=%g masked=%d", n, (double)size, masked);
    guarded out = guarded_floats(n);
    check_fill(c, in, n, size);
    for (size_t i = 1; masked && i < n; i++)
        in[i] = check_between(c, 0, 1) ? in[i] : -INFINITY;
    memcpy(out.data, in, out.size);
    c->ops->softmax(guarded_f(&out), n);
    compare_softmax(c, guarded_f(&out), in, n);
    guarded_destroy(c, &out);
}

void check_softmax(check *c)
{
    if (!check_begin(c, "softmax"))
        return;
    for (int shape = 0; shape < SHAPES; shape++)
        check_softmax_shape(c);
    check_end(c);
}

/* ---- weigh ------------------------------------------------------------------------------------------------------ */

/* Every table gives ref's bits, and those are right. Scores reach from the largest to where nothing is left. */
static void check_weigh_shape(check *c)
{
    size_t n = check_between(c, 1, MAX_VALUES);
    float size = ldexpf(1, (int)check_between(c, 0, 11)), max = 0;
    double expected[MAX_VALUES];
    check_detail(c, "n=%zu size=%g", n, (double)size);
    guarded scores = guarded_floats(n), weights = guarded_create(n * sizeof(double));
    check_fill(c, guarded_f(&scores), n, size);
    for (size_t i = 0; i < n; i++)
        max = i && guarded_f(&scores)[i] < max ? max : guarded_f(&scores)[i];
    if (n > 1 && guarded_f(&scores)[0] < max)
        guarded_f(&scores)[0] = -INFINITY;
    guarded_freeze(&scores);
    c->ref->weigh(expected, guarded_f(&scores), n, max);
    c->ops->weigh((double *)(void *)weights.data, guarded_f(&scores), n, max);
    for (size_t i = 0; i < n; i++) {
        double got, x = exp((double)guarded_f(&scores)[i] - (double)max);
        memcpy(&got, weights.data + i * sizeof got, sizeof got);
        check_close(c, i, got, expected[i], 0);
        check_close(c, i, got, x, 1e-14 * x + 1e-304);
    }
    guarded_destroy(c, &scores);
    guarded_destroy(c, &weights);
}

void check_weigh(check *c)
{
    if (!check_begin(c, "weigh"))
        return;
    for (int shape = 0; shape < SHAPES; shape++)
        check_weigh_shape(c);
    check_end(c);
}

/* ---- speed ------------------------------------------------------------------------------------------------------ */

enum { BENCH_VALUES = 4096, BENCH_HEAD_DIM = 128 };

typedef struct vector_work {
    float *x, *y;
} vector_work;

static void call_weigh(const spry_ops *ops, const void *context)
{
    const vector_work *work = context;
    double weights[BENCH_VALUES / 2]; /* none is above 1 */
    ops->weigh(weights, work->x, BENCH_VALUES / 2, 1);
}

static void call_rms_norm(const spry_ops *ops, const void *context)
{
    const vector_work *work = context;
    ops->rms_norm(work->x, work->y, work->y, BENCH_VALUES, 1e-6f);
}

static void call_layer_norm(const spry_ops *ops, const void *context)
{
    const vector_work *work = context;
    ops->layer_norm(work->x, work->y, work->y, work->y, BENCH_VALUES, 1e-6f);
}

/* Cosines and sines of size 1 at most keep the values from growing when this is done again and again. */
static void call_rope(const spry_ops *ops, const void *context)
{
    const vector_work *work = context;
    ops->rope(work->x, work->y, work->y + BENCH_HEAD_DIM / 2, BENCH_VALUES / BENCH_HEAD_DIM, BENCH_HEAD_DIM,
              BENCH_HEAD_DIM / 2, false);
}

static void call_softmax(const spry_ops *ops, const void *context)
{
    const vector_work *work = context;
    ops->softmax(work->x, BENCH_VALUES);
}

static void bench_vector(check *c, const char *name, double bytes, void (*call)(const spry_ops *, const void *))
{
    if (!check_begin(c, "%s", name))
        return;
    guarded x = guarded_floats(BENCH_VALUES), y = guarded_floats(BENCH_VALUES);
    check_fill(c, guarded_f(&x), BENCH_VALUES, 1);
    check_fill(c, guarded_f(&y), BENCH_VALUES, 0.7f);
    vector_work work = {guarded_f(&x), guarded_f(&y)};
    check_bench(c, &(bench_work){call, &work, bytes, 0});
    guarded_destroy(c, &x);
    guarded_destroy(c, &y);
}

void bench_rms_norm(check *c)
{
    bench_vector(c, "rms_norm", 3.0 * BENCH_VALUES * sizeof(float), call_rms_norm);
}

void bench_layer_norm(check *c)
{
    bench_vector(c, "layer_norm", 4.0 * BENCH_VALUES * sizeof(float), call_layer_norm);
}

void bench_rope(check *c)
{
    if (check_is_ref(c) || c->ops->rope != c->ref->rope)
        bench_vector(c, "rope", 2.0 * BENCH_VALUES * sizeof(float), call_rope);
}

void bench_softmax(check *c)
{
    if (check_is_ref(c) || c->ops->softmax != c->ref->softmax)
        bench_vector(c, "softmax", 2.0 * BENCH_VALUES * sizeof(float), call_softmax);
}

void bench_weigh(check *c)
{
    bench_vector(c, "weigh", BENCH_VALUES / 2 * (sizeof(float) + sizeof(double)), call_weigh);
}
