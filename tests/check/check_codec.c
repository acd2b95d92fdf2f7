/* Decoding and encoding. Other tables must give ref's very bits: their results end up in files and caches. */
#include <math.h>
#include <string.h>

#include "check/check.h"
#include "check/encode_bound.h"
#include "support/large_encode_bound.h"

enum { SHAPES = 12 };

/* A number of values that is whole blocks, odd where it may be. */
static size_t random_count(check *c, spry_dtype type)
{
    size_t block = spry_dtype_block(type);
    return block == 1 ? check_between(c, 1, 300) : block * check_between(c, 1, 5);
}

/* ---- decode ----------------------------------------------------------------------------------------------------- */

static void compare_decoded(check *c, spry_dtype type, const guarded *out, const guarded *in, size_t n)
{
    if (check_is_ref(c)) {
        for (size_t i = 0; i < n; i++) {
            double magnitude, expected = naive_value(&magnitude, type, in->data, i);
            check_close(c, i, (double)guarded_f(out)[i], expected, 4 * CHECK_ROUNDING * magnitude);
        }
        return;
    }
    guarded ref_out = guarded_floats(n);
    c->ref->decode[type](guarded_f(&ref_out), in->data, n);
    check_same(c, "the table", out->data, ref_out.data, out->size);
    guarded_destroy(c, &ref_out);
}

void check_decode(check *c)
{
    for (unsigned id = 0; id < SPRY_DTYPE_COUNT; id++) {
        spry_dtype type = (spry_dtype)id;
        if (!spry_dtype_known(id) || !check_begin(c, "decode %s", spry_dtype_name(type)))
            continue;
        for (int shape = 0; shape < SHAPES; shape++) {
            size_t n = random_count(c, type);
            check_detail(c, "n=%zu", n);
            guarded in = guarded_create(check_bytes(type, n)), out = guarded_floats(n);
            check_fill_type(c, in.data, type, n);
            guarded_freeze(&in);
            c->ops->decode[type](guarded_f(&out), in.data, n);
            compare_decoded(c, type, &out, &in, n);
            guarded_destroy(c, &in);
            guarded_destroy(c, &out);
        }
        check_end(c);
    }
}

/* ---- encode ----------------------------------------------------------------------------------------------------- */

static void compare_encoded(check *c, spry_dtype type, const guarded *out, const guarded *in, size_t n)
{
    if (check_is_ref(c)) {
        size_t block = spry_dtype_block(type);
        double (*bound)(spry_dtype, const float *) = block == 256 ? large_encode_bound : encode_bound;
        for (size_t i = 0; i < n; i += block) {
            double error = 0;
            for (size_t k = 0; k < block; k++) {
                double magnitude, back = naive_value(&magnitude, type, out->data, i + k);
                error += pow(back - (double)guarded_f(in)[i + k], 2);
            }
            check_close(c, i, error, 0, bound(type, guarded_f(in) + i));
        }
        return;
    }
    guarded ref_out = guarded_create(out->size);
    c->ref->encode[type](ref_out.data, guarded_f(in), n);
    check_same(c, "the table", out->data, ref_out.data, out->size);
    guarded_destroy(c, &ref_out);
}

/* Any bits at all, so also numbers that are not finite: ref's treatment of them has tests of its own, the others must
 * do the same. */
static void fill_any_bits(check *c, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)check_random(c);
        size_t kind = check_between(c, 0, 2);
        if (kind > 0) /* an exponent that a half has, or almost */
            bits = (bits & 0x807fffff) | (uint32_t)check_between(c, 100, 145) << 23;
        if (kind > 1) /* in the middle between two halves */
            bits = (bits & ~0x1fffu) | 0x1000;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

void check_encode(check *c)
{
    for (unsigned id = 0; id < SPRY_DTYPE_COUNT; id++) {
        spry_dtype type = (spry_dtype)id;
        if (!spry_dtype_known(id) || !c->ref->encode[id] || !check_begin(c, "encode %s", spry_dtype_name(type)))
            continue;
        for (int shape = 0; shape < SHAPES; shape++) {
            size_t n = random_count(c, type);
            float size = ldexpf(1, (int)check_between(c, 0, 40) - 30);
            check_detail(c, "n=%zu size=%g", n, (double)size);
            guarded in = guarded_floats(n), out = guarded_create(check_bytes(type, n));
            if (check_is_ref(c) || shape % 2)
                check_fill(c, guarded_f(&in), n, size);
            else
                fill_any_bits(c, guarded_f(&in), n);
            guarded_freeze(&in);
            c->ops->encode[type](out.data, guarded_f(&in), n);
            compare_encoded(c, type, &out, &in, n);
            guarded_destroy(c, &in);
            guarded_destroy(c, &out);
        }
        check_end(c);
    }
}

/* ---- speed ------------------------------------------------------------------------------------------------------ */

enum { BENCH_VALUES = 1 << 16 };

typedef struct codec_work {
    spry_dtype type;
    float *floats;
    void *encoded;
} codec_work;

static void call_decode(const spry_ops *ops, const void *context)
{
    const codec_work *work = context;
    ops->decode[work->type](work->floats, work->encoded, BENCH_VALUES);
}

static void call_encode(const spry_ops *ops, const void *context)
{
    const codec_work *work = context;
    ops->encode[work->type](work->encoded, work->floats, BENCH_VALUES);
}

static void bench_codec(check *c, spry_dtype type, void (*call)(const spry_ops *, const void *))
{
    guarded floats = guarded_floats(BENCH_VALUES), encoded = guarded_create(check_bytes(type, BENCH_VALUES));
    check_fill(c, guarded_f(&floats), BENCH_VALUES, 1);
    check_fill_type(c, encoded.data, type, BENCH_VALUES);
    codec_work work = {type, guarded_f(&floats), encoded.data};
    check_bench(c, &(bench_work){call, &work, (double)(floats.size + encoded.size), 0});
    guarded_destroy(c, &floats);
    guarded_destroy(c, &encoded);
}

/* What a table leaves to ref is not measured again. */
void bench_decode(check *c)
{
    for (unsigned id = 0; id < SPRY_DTYPE_COUNT; id++)
        if (spry_dtype_known(id) && (check_is_ref(c) || c->ops->decode[id] != c->ref->decode[id]) &&
            check_begin(c, "decode %s", spry_dtype_name((spry_dtype)id)))
            bench_codec(c, (spry_dtype)id, call_decode);
}

void bench_encode(check *c)
{
    for (unsigned id = 0; id < SPRY_DTYPE_COUNT; id++)
        if (c->ref->encode[id] && (check_is_ref(c) || c->ops->encode[id] != c->ref->encode[id]) &&
            check_begin(c, "encode %s", spry_dtype_name((spry_dtype)id)))
            bench_codec(c, (spry_dtype)id, call_encode);
}
