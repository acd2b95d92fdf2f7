/* Recurrent heads against the formulas in doubles. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "check/check.h"

enum { SHAPES = 40, TOKENS = 7 };

typedef struct recur_case {
    size_t n_k, n_v, n, first, stride;
    bool corrects;
    guarded rows, gates, before, state, out; /* rows: [n, q | k | v]; gates: [n, fade | beta] */
} recur_case;

static void fill(check *c, recur_case *s)
{
    s->stride = 2 * s->n_k + s->n_v;
    s->rows = guarded_floats(s->n * s->stride);
    s->gates = guarded_floats(s->n * 2);
    s->before = guarded_floats(s->n_k * s->n_v);
    s->state = guarded_floats(s->n_k * s->n_v);
    s->out = guarded_floats((s->n - s->first) * s->n_v);
    check_fill(c, guarded_f(&s->rows), s->n * s->stride, 1);
    check_fill(c, guarded_f(&s->before), s->n_k * s->n_v, 2);
    for (size_t i = 0; i < 2 * s->n; i++)
        guarded_f(&s->gates)[i] = fabsf(check_uniform(c));
    memcpy(s->state.data, s->before.data, s->before.size);
    guarded_freeze(&s->rows);
    guarded_freeze(&s->gates);
}

static spry_recur arguments(const recur_case *s)
{
    const float *rows = guarded_f(&s->rows);
    return (spry_recur){.state = guarded_f(&s->state),
                        .q = rows,
                        .k = rows + s->n_k,
                        .v = rows + 2 * s->n_k,
                        .stride = s->stride,
                        .fade = guarded_f(&s->gates),
                        .beta = guarded_f(&s->gates) + 1,
                        .gate_stride = 2,
                        .out = guarded_f(&s->out),
                        .out_stride = s->n_v,
                        .n = s->n,
                        .first = s->first,
                        .n_k = s->n_k,
                        .n_v = s->n_v,
                        .corrects = s->corrects,
                        .skip = s->corrects ? 0 : 0.75f};
}

/* One column; `size` is the same sum with absolute values, which bounds the error. */
static void compare_column(check *c, const recur_case *s, const spry_recur *r, size_t column)
{
    double *state = calloc(2 * s->n_k, sizeof *state), *size = state + s->n_k;
    for (size_t i = 0; i < s->n_k; i++)
        size[i] = fabs(state[i] = (double)guarded_f(&s->before)[i * s->n_v + column]);
    for (size_t t = 0; t < s->n; t++) {
        const float *q = r->q + t * s->stride, *k = r->k + t * s->stride;
        double fade = (double)r->fade[2 * t], beta = (double)r->beta[2 * t], v = (double)r->v[t * s->stride + column];
        double known = 0, known_size = 0, sum = (double)r->skip * v, sum_size = fabs(sum);
        for (size_t i = 0; s->corrects && i < s->n_k; i++) {
            known += (double)k[i] * state[i];
            known_size += fabs((double)k[i]) * size[i];
        }
        for (size_t i = 0; i < s->n_k; i++) {
            state[i] = fade * state[i] + (double)k[i] * beta * (v - fade * known);
            size[i] = fade * size[i] + fabs((double)k[i]) * beta * (fabs(v) + fade * known_size);
            sum += (double)q[i] * state[i];
            sum_size += fabs((double)q[i]) * size[i];
        }
        double roundings = (double)((t + 1) * (s->n_k + 6)) * CHECK_ROUNDING;
        if (t >= s->first)
            check_close(c, t * s->n_v + column, (double)guarded_f(&s->out)[(t - s->first) * s->n_v + column], sum,
                        roundings * sum_size);
    }
    for (size_t i = 0; i < s->n_k; i++)
        check_close(c, i * s->n_v + column, (double)guarded_f(&s->state)[i * s->n_v + column], state[i],
                    (double)(s->n * (s->n_k + 6)) * CHECK_ROUNDING * size[i]);
    free(state);
}

/* The tokens in two calls give the same bits. */
static void compare_split(check *c, const recur_case *s, const spry_recur *whole)
{
    guarded state = guarded_floats(s->n_k * s->n_v), out = guarded_floats((s->n - s->first) * s->n_v);
    size_t n = check_between(c, 0, s->n);
    memcpy(state.data, s->before.data, s->before.size);
    for (size_t begin = 0, end = n; begin < s->n || end < s->n; begin = end, end = s->n) {
        spry_recur part = *whole;
        part.state = guarded_f(&state);
        part.q += begin * s->stride;
        part.k += begin * s->stride;
        part.v += begin * s->stride;
        part.fade += 2 * begin;
        part.beta += 2 * begin;
        part.n = end - begin;
        part.first = s->first < begin ? 0 : s->first - begin < part.n ? s->first - begin : part.n;
        part.out = guarded_f(&out) + (begin > s->first ? begin - s->first : 0) * s->n_v;
        c->ops->recur(&part);
    }
    check_same(c, "splitting the tokens", state.data, s->state.data, state.size);
    check_same(c, "splitting the tokens", out.data, s->out.data, out.size);
    guarded_destroy(c, &state);
    guarded_destroy(c, &out);
}

static void check_shape(check *c)
{
    static const size_t sizes[] = {1, 3, 8, 16, 17, 32, 33, 64, 96, 100, 128};
    recur_case s = {.n_k = sizes[check_between(c, 0, SPRY_COUNT(sizes) - 1)],
                    .n_v = sizes[check_between(c, 0, SPRY_COUNT(sizes) - 1)],
                    .n = check_between(c, 1, TOKENS),
                    .corrects = check_between(c, 0, 1)};
    s.first = check_between(c, 0, s.n - 1);
    check_detail(c, "n_k=%zu n_v=%zu n=%zu first=%zu corrects=%d", s.n_k, s.n_v, s.n, s.first, s.corrects);
    fill(c, &s);
    const spry_recur r = arguments(&s);
    c->ops->recur(&r);
    for (size_t column = 0; column < s.n_v; column++)
        compare_column(c, &s, &r, column);
    compare_split(c, &s, &r);
    guarded_destroy(c, &s.rows);
    guarded_destroy(c, &s.gates);
    guarded_destroy(c, &s.before);
    guarded_destroy(c, &s.state);
    guarded_destroy(c, &s.out);
}

void check_recur(check *c)
{
    if (!check_begin(c, "recur"))
        return;
    for (int shape = 0; shape < SHAPES; shape++)
        check_shape(c);
    check_end(c);
}

static void run(const spry_ops *ops, const void *context)
{
    ops->recur(context);
}

/* A head of 128 x 128 over 32 tokens, as Qwen3.5 has; and one of 128 x 64 of Mamba-2. */
void bench_recur(check *c)
{
    static const char *const names[] = {"recur 128x128", "recur 128x64 mamba"};
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        if (!check_begin(c, "%s", names[i]))
            continue;
        recur_case s = {.n_k = 128, .n_v = i ? 64 : 128, .n = 32, .corrects = !i};
        fill(c, &s);
        const spry_recur r = arguments(&s);
        check_bench(c, &(bench_work){run, &r, 0, (double)(s.n * s.n_k * s.n_v * (i ? 2 : 3))});
        guarded_destroy(c, &s.rows);
        guarded_destroy(c, &s.gates);
        guarded_destroy(c, &s.before);
        guarded_destroy(c, &s.state);
        guarded_destroy(c, &s.out);
    }
}
