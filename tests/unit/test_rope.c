/* Rope frequencies and magnitudes against the published formulas, computed here in double precision from numbers
 * written down in the table, while the library gets the same numbers as a config.json. So the reading of the rope
 * fields, what is derived when one is left out, and the arithmetic are tested together.
 *
 * The tolerance follows from the arithmetic: a frequency is theta to a rounded power, so its relative error is about
 * ln(theta) half-ulps and a few more; blends of two frequencies add what their weights lose by cancellation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "model/arch.h"
#include "model/config.h"

static const double PI = 3.14159265358979323846;

enum { MAX_PAIRS = 256, LONG_PAIRS = 48 };

/* What the formulas need. Zeros: not used by the kind. */
typedef struct formula {
    spry_rope_kind kind;
    double theta;
    size_t rope_dim;
    double factor, low, high, original;
    double beta_fast, beta_slow;
    bool exact_ends; /* yarn with truncate false */
    double magnitude;
} formula;

typedef struct rope_case {
    const char *name;
    const char *json; /* other fields of config.json */
    uint32_t head_dim, context;
    formula f;
} rope_case;

/* ---- the formulas ----------------------------------------------------------------------------------------------- */

static double plain_frequency(const formula *f, size_t pair)
{
    return pow(f->theta, -2.0 * (double)pair / (double)f->rope_dim);
}

/* Wavelengths beyond original/low are stretched by the factor, those below original/high kept. */
static double llama3_frequency(const formula *f, size_t pair)
{
    double frequency = plain_frequency(f, pair), turns = f->original * frequency / (2 * PI);
    double blend = (turns - f->low) / (f->high - f->low);
    blend = blend < 0 ? 0 : blend > 1 ? 1 : blend;
    return frequency * (blend + (1 - blend) / f->factor);
}

/* The dimension whose pair turns `turns` times within the original context. */
static double yarn_end(const formula *f, double turns)
{
    return (double)f->rope_dim * log(f->original / (2 * PI * turns)) / (2 * log(f->theta));
}

static void yarn_ramp(const formula *f, double *low, double *high)
{
    *low = yarn_end(f, f->beta_fast);
    *high = yarn_end(f, f->beta_slow);
    if (!f->exact_ends) {
        *low = floor(*low);
        *high = ceil(*high);
    }
    *low = fmax(*low, 0);
    *high = fmin(*high, (double)f->rope_dim - 1);
    if (*low == *high)
        *high += 0.001;
}

static double yarn_frequency(const formula *f, size_t pair)
{
    double low, high, frequency = plain_frequency(f, pair);
    yarn_ramp(f, &low, &high);
    double stretched = fmin(fmax(((double)pair - low) / (high - low), 0), 1);
    return frequency * (1 - stretched) + frequency / f->factor * stretched;
}

/* The lists the long-rope cases are given, as floats because that is what both sides read. */
static double short_factor(size_t pair)
{
    return (double)(float)(1 + 0.02 * (double)pair);
}

static double long_factor(size_t pair)
{
    return (double)(float)(1.05 + 1.31 * (double)pair);
}

static double expected_frequency(const formula *f, size_t pair, bool beyond_original)
{
    switch (f->kind) {
    case SPRY_ROPE_LINEAR: return plain_frequency(f, pair) / f->factor;
    case SPRY_ROPE_LLAMA3: return llama3_frequency(f, pair);
    case SPRY_ROPE_YARN: return yarn_frequency(f, pair);
    case SPRY_ROPE_LONG: return plain_frequency(f, pair) / (beyond_original ? long_factor(pair) : short_factor(pair));
    default: return plain_frequency(f, pair);
    }
}

/* Relative to the plain frequency. */
static double allowed(const formula *f)
{
    double steps = log(f->theta) + 8, low, high;
    if (f->kind == SPRY_ROPE_LLAMA3)
        steps += (log(f->theta) + 8) * f->high / (f->high - f->low);
    if (f->kind == SPRY_ROPE_YARN) {
        yarn_ramp(f, &low, &high);
        steps += (double)f->rope_dim / (high - low);
    }
    return steps * (double)FLT_EPSILON;
}

/* ---- the cases -------------------------------------------------------------------------------------------------- */

#define LONG_LISTS "@" /* replaced by short_factor and long_factor */

static const rope_case cases[] = {
    {"default", "", 128, 4096, {SPRY_ROPE_DEFAULT, 1e4, 128, .magnitude = 1}},
    {"default, named",
     "'rope_parameters': {'rope_type': 'default', 'rope_theta': 1000000.0}",
     64,
     4096,
     {SPRY_ROPE_DEFAULT, 1e6, 64, .magnitude = 1}},
    {"default, the old way",
     "'rope_theta': 500000, 'rope_scaling': null",
     96,
     4096,
     {SPRY_ROPE_DEFAULT, 5e5, 96, .magnitude = 1}},
    {"rope_parameters before rope_theta",
     "'rope_theta': 500000, 'rope_parameters': {'rope_theta': 1000000, 'factor': 3}",
     64,
     4096,
     {SPRY_ROPE_DEFAULT, 1e6, 64, .magnitude = 1}},
    {"linear",
     "'rope_scaling': {'type': 'linear', 'factor': 4.0}",
     128,
     16384,
     {SPRY_ROPE_LINEAR, 1e4, 128, .factor = 4, .magnitude = 1}},
    {"linear, as in Gemma 3",
     "'rope_theta': 1000000.0, 'rope_scaling': {'rope_type': 'linear', 'factor': 8.0}",
     256,
     131072,
     {SPRY_ROPE_LINEAR, 1e6, 256, .factor = 8, .magnitude = 1}},
    {"Llama 3.1",
     "'rope_theta': 500000.0, 'rope_scaling': {'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, "
     "'original_max_position_embeddings': 8192, 'rope_type': 'llama3'}",
     128,
     131072,
     {SPRY_ROPE_LLAMA3, 5e5, 128, .factor = 8, .low = 1, .high = 4, .original = 8192, .magnitude = 1}},
    {"Llama 3.2 1B",
     "'rope_parameters': {'rope_theta': 500000.0, 'factor': 32.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, "
     "'original_max_position_embeddings': 8192, 'rope_type': 'llama3'}",
     64,
     131072,
     {SPRY_ROPE_LLAMA3, 5e5, 64, .factor = 32, .low = 1, .high = 4, .original = 8192, .magnitude = 1}},
    {"llama3 with other bounds",
     "'rope_scaling': {'factor': 3.5, 'low_freq_factor': 0.5, 'high_freq_factor': 9.0, "
     "'original_max_position_embeddings': 1000, 'type': 'llama3'}",
     80,
     4096,
     {SPRY_ROPE_LLAMA3, 1e4, 80, .factor = 3.5, .low = 0.5, .high = 9, .original = 1000, .magnitude = 1}},
    {"Qwen 2.5 with yarn",
     "'rope_theta': 1000000.0, 'rope_scaling': {'factor': 4.0, 'original_max_position_embeddings': 32768, "
     "'type': 'yarn'}",
     128,
     32768,
     {SPRY_ROPE_YARN, 1e6, 128, .factor = 4, .original = 32768, .beta_fast = 32, .beta_slow = 1,
      .magnitude = 1.138629436111989}},
    {"yarn, the context left out",
     "'rope_theta': 1000000.0, 'rope_scaling': {'factor': 4.0, 'rope_type': 'yarn'}",
     128,
     40960,
     {SPRY_ROPE_YARN, 1e6, 128, .factor = 4, .original = 40960, .beta_fast = 32, .beta_slow = 1,
      .magnitude = 1.138629436111989}},
    {"yarn, the factor left out",
     "'rope_scaling': {'factor': null, 'original_max_position_embeddings': 4096, 'rope_type': 'yarn'}",
     64,
     65536,
     {SPRY_ROPE_YARN, 1e4, 64, .factor = 16, .original = 4096, .beta_fast = 32, .beta_slow = 1,
      .magnitude = 1.2772588722239782}},
    {"yarn, ends not whole",
     "'rope_theta': 150000, 'rope_scaling': {'factor': 32.0, 'original_max_position_embeddings': 4096, "
     "'rope_type': 'yarn', 'truncate': false, 'beta_fast': 32.0, 'beta_slow': 1.0}",
     64,
     131072,
     {SPRY_ROPE_YARN, 150000, 64, .factor = 32, .original = 4096, .beta_fast = 32, .beta_slow = 1, .exact_ends = true,
      .magnitude = 1.3465735902799727}},
    {"yarn, magnitude given",
     "'rope_scaling': {'factor': 4.0, 'original_max_position_embeddings': 2048, 'rope_type': 'yarn', "
     "'attention_factor': 1.25, 'mscale': 1.0, 'mscale_all_dim': 0.5}",
     128,
     8192,
     {SPRY_ROPE_YARN, 1e4, 128, .factor = 4, .original = 2048, .beta_fast = 32, .beta_slow = 1, .magnitude = 1.25}},
    {"yarn, mscale both",
     "'rope_scaling': {'factor': 40.0, 'original_max_position_embeddings': 4096, 'rope_type': 'yarn', "
     "'mscale': 1.0, 'mscale_all_dim': 0.8}",
     64,
     163840,
     {SPRY_ROPE_YARN, 1e4, 64, .factor = 40, .original = 4096, .beta_fast = 32, .beta_slow = 1,
      .magnitude = 1.0569662567531275}},
    {"yarn, mscale alone counts for nothing",
     "'rope_scaling': {'factor': 4.0, 'original_max_position_embeddings': 2048, 'rope_type': 'yarn', 'mscale': 0.7}",
     64,
     8192,
     {SPRY_ROPE_YARN, 1e4, 64, .factor = 4, .original = 2048, .beta_fast = 32, .beta_slow = 1,
      .magnitude = 1.138629436111989}},
    {"yarn, other betas",
     "'rope_theta': 1000000.0, 'rope_scaling': {'factor': 2.0, 'original_max_position_embeddings': 16384, "
     "'rope_type': 'yarn', 'beta_fast': 64, 'beta_slow': 4}",
     128,
     32768,
     {SPRY_ROPE_YARN, 1e6, 128, .factor = 2, .original = 16384, .beta_fast = 64, .beta_slow = 4,
      .magnitude = 1.0693147180559945}},
    {"yarn, betas null and zero",
     "'rope_scaling': {'factor': 2.0, 'original_max_position_embeddings': 16384, 'rope_type': 'yarn', "
     "'beta_fast': null, 'beta_slow': 0, 'attention_factor': null}",
     128,
     32768,
     {SPRY_ROPE_YARN, 1e4, 128, .factor = 2, .original = 16384, .beta_fast = 32, .beta_slow = 1,
      .magnitude = 1.0693147180559945}},
    {"yarn that does not stretch",
     "'rope_scaling': {'factor': 1.0, 'original_max_position_embeddings': 4096, 'rope_type': 'yarn'}",
     64,
     4096,
     {SPRY_ROPE_YARN, 1e4, 64, .factor = 1, .original = 4096, .beta_fast = 32, .beta_slow = 1, .magnitude = 1}},
    {"yarn of a ramp without width",
     "'rope_scaling': {'factor': 2.0, 'original_max_position_embeddings': 6, 'rope_type': 'yarn', 'truncate': true}",
     64,
     12,
     {SPRY_ROPE_YARN, 1e4, 64, .factor = 2, .original = 6, .beta_fast = 32, .beta_slow = 1,
      .magnitude = 1.0693147180559945}},
    {"yarn whose ramp passes the head",
     "'rope_theta': 100, 'rope_scaling': {'factor': 2.0, 'original_max_position_embeddings': 1000000, "
     "'rope_type': 'yarn', 'beta_fast': 20000, 'beta_slow': 0.001}",
     16,
     2000000,
     {SPRY_ROPE_YARN, 100, 16, .factor = 2, .original = 1000000, .beta_fast = 20000, .beta_slow = 0.001,
      .magnitude = 1.0693147180559945}},
    {"Phi-3.5",
     "'original_max_position_embeddings': 4096, 'rope_scaling': {'type': 'longrope', " LONG_LISTS "}",
     96,
     131072,
     {SPRY_ROPE_LONG, 1e4, 96, .factor = 32, .original = 4096, .magnitude = 1.1902380714238083}},
    {"Phi-3, its first spelling",
     "'original_max_position_embeddings': 4096, 'rope_scaling': {'type': 'su', " LONG_LISTS "}",
     96,
     131072,
     {SPRY_ROPE_LONG, 1e4, 96, .factor = 32, .original = 4096, .magnitude = 1.1902380714238083}},
    {"Phi-3, another original",
     "'original_max_position_embeddings': 2048, 'rope_scaling': {'type': 'longrope', "
     "'original_max_position_embeddings': 1024, " LONG_LISTS "}",
     96,
     65536,
     {SPRY_ROPE_LONG, 1e4, 96, .factor = 32, .original = 2048, .magnitude = 1.2060453783110545}},
    {"Phi-3, the original left out",
     "'rope_scaling': {'type': 'longrope', " LONG_LISTS "}",
     96,
     131072,
     {SPRY_ROPE_LONG, 1e4, 96, .factor = 32, .original = 4096, .magnitude = 1.1902380714238083}},
    {"longrope, original inside",
     "'rope_parameters': {'rope_type': 'longrope', 'rope_theta': 50000, 'original_max_position_embeddings': 8192, "
     "'attention_factor': 1.5, " LONG_LISTS "}",
     96,
     131072,
     {SPRY_ROPE_LONG, 5e4, 96, .original = 8192, .magnitude = 1.5}},
    {"longrope, factor given",
     "'rope_parameters': {'rope_type': 'longrope', 'original_max_position_embeddings': 4096, 'factor': 16, " LONG_LISTS
     "}",
     96,
     131072,
     {SPRY_ROPE_LONG, 1e4, 96, .factor = 16, .original = 4096, .magnitude = 1.1547005383792517}},
    {"longrope that does not stretch",
     "'original_max_position_embeddings': 4096, 'rope_scaling': {'type': 'longrope', " LONG_LISTS "}",
     96,
     4096,
     {SPRY_ROPE_LONG, 1e4, 96, .factor = 1, .original = 4096, .magnitude = 1}},
    {"half of a head", "'partial_rotary_factor': 0.5", 128, 4096, {SPRY_ROPE_DEFAULT, 1e4, 64, .magnitude = 1}},
    {"three quarters, long",
     "'rope_parameters': {'rope_type': 'longrope', 'partial_rotary_factor': 0.75, "
     "'original_max_position_embeddings': 4096, " LONG_LISTS "}",
     128,
     131072,
     {SPRY_ROPE_LONG, 1e4, 96, .factor = 32, .original = 4096, .magnitude = 1.1902380714238083}},
};

/* ---- comparing -------------------------------------------------------------------------------------------------- */

static void append_lists(char *out, size_t size)
{
    static const char *const keys[] = {"short_factor", "long_factor"};
    size_t used = strlen(out);
    for (size_t list = 0; list < SPRY_COUNT(keys); list++) {
        used += (size_t)snprintf(out + used, size - used, "%s\"%s\": [", list ? ", " : "", keys[list]);
        for (size_t i = 0; i < LONG_PAIRS; i++)
            used += (size_t)snprintf(out + used, size - used, "%s%.17g", i ? ", " : "",
                                     list ? long_factor(i) : short_factor(i));
        used += (size_t)snprintf(out + used, size - used, "]");
        assert_true(used < size);
    }
}

/* A whole config.json of Phi-3, whose lists and partial heads are real; quotes are ' in the table. */
static void write_config(char *out, size_t size, const rope_case *c)
{
    int used = snprintf(out, size,
                        "{\"model_type\": \"phi3\", \"num_hidden_layers\": 1, \"num_attention_heads\": 4, "
                        "\"hidden_size\": %u, \"intermediate_size\": 64, \"max_position_embeddings\": %u%s",
                        4 * c->head_dim, c->context, *c->json ? ", " : "");
    assert_true(used > 0 && (size_t)used < size);
    for (const char *p = c->json; *p; p++) {
        size_t at = strlen(out);
        assert_true(at + 2 < size);
        if (*p == *LONG_LISTS) {
            append_lists(out, size);
            continue;
        }
        out[at] = (char)(*p == '\'' ? '"' : *p);
        out[at + 1] = 0;
    }
    assert_true(strlen(out) + 2 < size);
    out[strlen(out) + 1] = 0;
    out[strlen(out)] = '}';
}

/* Phi-3 reads yarn as long rope, so yarn goes in as Llama. */
static void read_config(spry_config *config, const rope_case *c, spry_arena *arena)
{
    char text[8192];
    spry_error error = {0};
    write_config(text, sizeof text, c);
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    if (c->f.kind != SPRY_ROPE_LONG)
        json_object_set_new(json, "model_type", json_string("llama"));
    if (spry_config_from_json(config, json, c->name, arena, &error))
        fail_msg("%s", error.message);
    json_decref(json);
}

static void compare(const rope_case *c, const spry_config *config, uint32_t session)
{
    const formula *f = &c->f;
    float frequencies[MAX_PAIRS];
    assert_int_equal(config->rope_dim, f->rope_dim);
    double magnitude = (double)spry_rope_frequencies(frequencies, &config->rope, config->rope_dim, session);
    if (fabs(magnitude - f->magnitude) > 4 * (double)FLT_EPSILON * f->magnitude)
        fail_msg("%s: magnitude %.9g, expected %.9g", c->name, magnitude, f->magnitude);
    for (size_t i = 0; i < f->rope_dim / 2; i++) {
        double expected = expected_frequency(f, i, session > f->original);
        if (fabs((double)frequencies[i] - expected) > allowed(f) * plain_frequency(f, i))
            fail_msg("%s, session of %u: pair %zu turns by %.9g, expected %.9g", c->name, session, i,
                     (double)frequencies[i], expected);
    }
}

static void test_published_configs(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        const rope_case *c = &cases[i];
        spry_config config = {0};
        spry_arena arena;
        spry_arena_init(&arena);
        read_config(&config, c, &arena);
        assert_int_equal(config.rope.kind, c->f.kind);
        compare(c, &config, 1);
        compare(c, &config, c->context);
        if (c->f.original > 0) {
            compare(c, &config, (uint32_t)c->f.original);
            compare(c, &config, (uint32_t)c->f.original + 1);
        }
        spry_arena_deinit(&arena);
    }
}

/* GGUF gives llama3's scaled frequencies as a list of divisors beside a plain or a linear rope. */
static void test_divisors(void **state)
{
    (void)state;
    float divisors[32], plain[32], divided[32];
    for (size_t i = 0; i < SPRY_COUNT(divisors); i++)
        divisors[i] = 1 + (float)i / 4;
    spry_rope rope = {.kind = SPRY_ROPE_LINEAR, .theta = 5e5f, .factor = 2, .original_context = 8192};
    spry_rope_frequencies(plain, &rope, 64, 100);
    rope.factors = divisors;
    assert_true(spry_rope_frequencies(divided, &rope, 64, 100000) == 1.0f);
    for (size_t i = 0; i < SPRY_COUNT(divisors); i++)
        assert_true(fabs((double)divided[i] * (double)divisors[i] / (double)plain[i] - 1) < 4 * (double)FLT_EPSILON);
}

/* What a kind does not use must not matter. */
static void test_unused_fields(void **state)
{
    (void)state;
    float a[32], b[32];
    spry_rope rope = {.kind = SPRY_ROPE_DEFAULT, .theta = 1e4f, .factor = 1};
    spry_rope other = rope;
    other.factor = 8;
    other.beta_fast = 3;
    other.attention_factor = 2;
    other.low_freq_factor = 9;
    other.original_context = 17;
    assert_true(spry_rope_frequencies(a, &rope, 64, 100) == 1.0f);
    assert_true(spry_rope_frequencies(b, &other, 64, 100) == 1.0f);
    assert_memory_equal(a, b, sizeof a);
}

static void test_angles(void **state)
{
    (void)state;
    static const uint32_t positions[] = {0, 1, 31, 511, 4096, 131071};
    float frequencies[64], cosine[64], sine[64];
    spry_rope rope = {.kind = SPRY_ROPE_DEFAULT, .theta = 1e4f, .factor = 1};
    spry_rope_frequencies(frequencies, &rope, 128, 100);
    for (size_t p = 0; p < SPRY_COUNT(positions); p++) {
        spry_rope_angles(cosine, sine, frequencies, 1.25f, 64, positions[p]);
        for (size_t i = 0; i < 64; i++) {
            double angle = (double)positions[p] * (double)frequencies[i];
            double tolerance = (angle / 2 + 2) * 1.25 * (double)FLT_EPSILON;
            assert_true(fabs((double)cosine[i] - 1.25 * cos(angle)) <= tolerance);
            assert_true(fabs((double)sine[i] - 1.25 * sin(angle)) <= tolerance);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_configs),
        cmocka_unit_test(test_divisors),
        cmocka_unit_test(test_unused_fields),
        cmocka_unit_test(test_angles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
