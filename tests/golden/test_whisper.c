/* Whisper against transformers: features, encoder states, logits and a greedy continuation, under every kernel set; the
 * same checkpoint as a ggml file; quantised; on other devices; and files that are no Whisper model. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/safetensors.h"
#include "spry_voice.h"
#include "support/far/far_device.h"
#include "support/faults.h"
#include "support/scratch.h"
#include "voice/whisper.h"

#define FOLDER TEST_DATA "/models/whisper"
#ifndef TEST_DEVICE
#define TEST_DEVICE "cpu"
#endif

enum { STATES = 1500, FRAMES = 3000, BANDS = 80, WIDTH = 64, VOCAB = 512, PROMPT = 5, GREEDY = 16 };

static const int32_t prompt[PROMPT] = {1, 5, 9, 77, 300};
static scratch folder;

static void *read_whole(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    void *data = malloc(size);
    assert_non_null(file);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, size, file), size);
    fclose(file);
    return data;
}

enum { SAMPLES = 80000 };

static float *read_sound(void)
{
    unsigned char *wav = read_whole(FOLDER "/sound.wav", 44 + 2 * SAMPLES);
    float *samples = malloc(SAMPLES * sizeof *samples);
    assert_non_null(samples);
    for (size_t i = 0; i < SAMPLES; i++)
        samples[i] = (float)(int16_t)(wav[44 + 2 * i] | wav[45 + 2 * i] << 8) / 32768;
    free(wav);
    return samples;
}

static spry_status try_open(spry_whisper **w, const char *path, spry_error *error)
{
    const spry_whisper_options options = {
        .device = TEST_DEVICE, .kernels = "auto", .threads = 1, .type = SPRY_DTYPE_COUNT};
    return spry_whisper_open(w, path, &options, error);
}

static spry_whisper *must_open(const char *path, const spry_whisper_options *options)
{
    spry_whisper *w;
    spry_error error;
    if (spry_whisper_open(&w, path, options, &error) != SPRY_OK)
        fail_msg("%s", error.message);
    return w;
}

static void encode(spry_whisper *w, const float *samples, size_t n_states)
{
    assert_int_equal(spry_whisper_encode(w, samples, SAMPLES, n_states, NULL), SPRY_OK);
}

static const float *decode(spry_whisper *w, const int32_t *ids, size_t count, size_t past)
{
    const float *logits;
    assert_int_equal(spry_whisper_decode(w, &logits, ids, count, past, NULL), SPRY_OK);
    return logits;
}

static const float *states_of(spry_whisper *w)
{
    const float *states;
    assert_int_equal(spry_whisper_states(w, &states, NULL), SPRY_OK);
    return states;
}

/* The reference transforms in floats. Each of the 400 terms of a bin rounds, relative to the loudest: a value d decades
 * of power below that has an error of that times 10^(d/2), as a share of its amplitude. */
static double check_features(const float *features)
{
    float *mel = read_whole(FOLDER "/mel.f32", (size_t)BANDS * FRAMES * sizeof *mel);
    double largest = -INFINITY, worst = 0;
    for (size_t i = 0; i < (size_t)BANDS * FRAMES; i++)
        largest = fmax(largest, (double)mel[i]);
    for (size_t f = 0; f < FRAMES; f++)
        for (size_t b = 0; b < BANDS; b++) {
            double theirs = (double)mel[b * FRAMES + f], difference = fabs((double)features[f * BANDS + b] - theirs);
            double decades = 4 * (largest - theirs), share = FLT_EPSILON / 2 * sqrt(400) * pow(10, decades / 2);
            assert_true(difference <= 2 / log(10) * share / 4 + 4 * FLT_EPSILON);
            worst = fmax(worst, difference);
        }
    free(mel);
    return worst;
}

/* As in logit_bound.h: sums of n products are walks of sqrt(n) rounding steps, which add up along the way. */
static double steps_of(size_t layers, size_t keys)
{
    return (double)layers * (3 * sqrt(WIDTH) + sqrt(16) + sqrt((double)keys) + sqrt(WIDTH) + sqrt(128));
}

static double encoder_steps(void)
{
    return sqrt(3 * BANDS) + sqrt(3 * WIDTH) + steps_of(2, STATES);
}

static double largest_of(const float *x, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)x[i]));
    return largest;
}

/* What features are off by passes through the encoder, too: its convolutions keep the size of their input. */
static void check_states(const float *states, double features_off)
{
    float *theirs = read_whole(FOLDER "/encoder.f32", (size_t)STATES * WIDTH * sizeof *theirs);
    double allowed = features_off + FLT_EPSILON / 2 * encoder_steps() * largest_of(theirs, (size_t)STATES * WIDTH);
    for (size_t i = 0; i < (size_t)STATES * WIDTH; i++)
        if (!(fabs((double)states[i] - (double)theirs[i]) <= allowed))
            fail_msg("state %zu: %g instead of %g, allowed %g", i, (double)states[i], (double)theirs[i], allowed);
    free(theirs);
}

static double logits_allowed(const float *logits, double features_off)
{
    double steps = encoder_steps() + 2 * steps_of(2, PROMPT) + sqrt(WIDTH);
    return (features_off + FLT_EPSILON / 2 * steps) * largest_of(logits, VOCAB) * sqrt(WIDTH);
}

static void compare_logits(const float *ours, const float *theirs, double features_off)
{
    double allowed = logits_allowed(theirs, features_off);
    for (size_t i = 0; i < VOCAB; i++)
        if (!(fabs((double)ours[i] - (double)theirs[i]) <= allowed))
            fail_msg("logit %zu: %g instead of %g, allowed %g", i, (double)ours[i], (double)theirs[i], allowed);
}

static int32_t best_of(const float *logits)
{
    int32_t best = 0;
    for (int32_t i = 1; i < VOCAB; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* The recorded continuation is one token again and again. */
static void check_greedy(spry_whisper *w)
{
    int32_t id = 1;
    for (size_t i = 0; i < GREEDY; i++) {
        id = best_of(decode(w, &id, 1, i));
        assert_int_equal(id, 451);
    }
}

static void check_model(const char *path, const char *kernels, size_t threads)
{
    float *samples = read_sound(), *logits = read_whole(FOLDER "/golden.f32", PROMPT * VOCAB * sizeof *logits);
    spry_whisper *w = must_open(path, &(spry_whisper_options){TEST_DEVICE, kernels, threads, SPRY_DTYPE_COUNT, {0}});
    encode(w, samples, STATES);
    double off = check_features(spry_whisper_features(w));
    check_states(states_of(w), off);
    for (size_t i = 0; i < PROMPT; i++)
        compare_logits(decode(w, prompt, i + 1, 0), logits + i * VOCAB, off);
    for (size_t i = 0; i < PROMPT; i++) /* one token at a time */
        compare_logits(decode(w, prompt + i, 1, i), logits + i * VOCAB, off);
    check_greedy(w);
    spry_whisper_close(w);
    free(samples);
    free(logits);
}

static void test_golden(void **state)
{
    (void)state;
    static const char *const tables[] = {"ref", "avx2", "avx512bw", "avxvnni", "avx512", "avx512bf16",
                                         "amx", "neon", "dotprod",  "i8mm",    "bf16"};
    const spry_ops *ops;
    for (size_t i = 0; i < SPRY_COUNT(tables); i++)
        if (spry_ops_get(&ops, tables[i], NULL) == SPRY_OK)
            check_model(FOLDER, tables[i], 1 + i);
}

/* Threads change no bit, and neither does how a prompt is cut. */
static void test_invariance(void **state)
{
    (void)state;
    float *samples = read_sound(), first[VOCAB];
    for (size_t threads = 1; threads <= 3; threads++) {
        spry_whisper *w =
            must_open(FOLDER, &(spry_whisper_options){TEST_DEVICE, "auto", threads, SPRY_DTYPE_COUNT, {0}});
        encode(w, samples, 400);
        decode(w, prompt, threads, 0);
        const float *logits = decode(w, prompt + threads, PROMPT - threads, threads);
        if (threads == 1)
            memcpy(first, logits, sizeof first);
        assert_memory_equal(first, logits, sizeof first);
        spry_whisper_close(w);
    }
    free(samples);
}

/* Eight bits a weight: each product is off by at most a 254th of its largest terms, so the choice stays the same. */
static void test_quantised(void **state)
{
    (void)state;
    float *samples = read_sound();
    spry_whisper *w = must_open(FOLDER, &(spry_whisper_options){TEST_DEVICE, "auto", 2, SPRY_Q8_0, {0}});
    assert_int_equal(spry_whisper_model(w)->tokens.type, SPRY_Q8_0);
    encode(w, samples, STATES);
    check_greedy(w);
    spry_whisper_close(w);
    free(samples);
}

/* ---- ggml files ----------------------------------------------------------------------------------------------------
 */

static void put_u32(FILE *file, size_t value)
{
    uint32_t v = (uint32_t)value;
    assert_int_equal(fwrite(&v, sizeof v, 1, file), 1);
}

/* OpenAI's name of a tensor. */
static void openai_name(char out[128], spry_view name)
{
    static const char *const names[][2] = {
        {"model.", ""},
        {"layers.", "blocks."},
        {"encoder_attn_layer_norm", "cross_attn_ln"},
        {"self_attn_layer_norm", "attn_ln"},
        {"final_layer_norm", "mlp_ln"},
        {"encoder_attn.", "cross_attn."},
        {"self_attn.", "attn."},
        {"q_proj", "query"},
        {"k_proj", "key"},
        {"v_proj", "value"},
        {"out_proj", "out"},
        {"fc1", "mlp.0"},
        {"fc2", "mlp.2"},
        {"embed_positions.weight", "positional_embedding"},
        {"embed_tokens", "token_embedding"},
        {"encoder.layer_norm", "encoder.ln_post"},
        {"decoder.layer_norm", "decoder.ln"},
    };
    snprintf(out, 128, "%.*s", SPRY_VIEW_ARG(name));
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        char *at = strstr(out, names[i][0]), rest[128];
        if (!at)
            continue;
        snprintf(rest, sizeof rest, "%s", at + strlen(names[i][0]));
        snprintf(at, (size_t)(128 - (at - out)), "%s%s", names[i][1], rest);
    }
}

static const char *write_bin(void)
{
    static const size_t sizes[] = {VOCAB, STATES, WIDTH, 4, 2, 64, WIDTH, 4, 2, BANDS, 0};
    spry_safetensors *files;
    FILE *file = fopen(scratch_path(&folder, "whisper.bin"), "wb");
    assert_non_null(file);
    assert_int_equal(spry_safetensors_open(&files, FOLDER, NULL), SPRY_OK);
    put_u32(file, 0x67676d6c);
    for (size_t i = 0; i < SPRY_COUNT(sizes); i++)
        put_u32(file, sizes[i]);
    put_u32(file, 1); /* a mel filter, which is not used */
    put_u32(file, 1);
    put_u32(file, 0);
    put_u32(file, 2); /* tokens */
    put_u32(file, 1);
    fputc('a', file);
    put_u32(file, 0);
    for (size_t i = 0; i < spry_safetensors_count(files); i++) {
        const spry_tensor *t = spry_safetensors_tensor(files, i);
        char name[128];
        openai_name(name, t->name);
        put_u32(file, t->n_dims);
        put_u32(file, strlen(name));
        put_u32(file, 0);
        for (size_t d = t->n_dims; d-- > 0;)
            put_u32(file, t->dims[d]);
        fputs(name, file);
        assert_int_equal(fwrite(t->data, 1, t->bytes, file), t->bytes);
    }
    spry_safetensors_close(files);
    assert_int_equal(fclose(file), 0);
    return folder.path;
}

static void test_bin(void **state)
{
    (void)state;
    check_model(write_bin(), "auto", 2);
}

/* ---- devices -------------------------------------------------------------------------------------------------------
 */

typedef struct log_lines {
    size_t count;
    char last[SPRY_ERROR_MAX];
} log_lines;

static void count_line(void *user, int level, const char *sentence)
{
    log_lines *lines = user;
    assert_int_equal(level, SPRY_LOG_WARN);
    lines->count++;
    snprintf(lines->last, sizeof lines->last, "%s", sentence);
}

/* States and logits have the CPU's bits. Returns the number of log lines. */
static size_t same_bits(const char *device, const char *path, spry_dtype type, log_lines *lines)
{
    float *samples = read_sound(), states[400 * WIDTH], logits[VOCAB];
    spry_whisper_options options = {.device = "cpu", .kernels = "auto", .threads = 2, .type = type};
    for (size_t run = 0; run < 2; run++) {
        spry_whisper *w = must_open(path, &options);
        encode(w, samples, 400);
        if (!run)
            memcpy(states, states_of(w), sizeof states);
        assert_memory_equal(states, states_of(w), sizeof states);
        const float *given = decode(w, prompt, PROMPT, 0);
        if (!run)
            memcpy(logits, given, sizeof logits);
        assert_memory_equal(logits, given, sizeof logits);
        spry_whisper_close(w);
        options.device = device;
        options.log = (spry_log){count_line, lines};
    }
    free(samples);
    return lines->count;
}

static void test_far(void **state)
{
    (void)state;
    log_lines lines = {0};
    assert_int_equal(same_bits("far", FOLDER, SPRY_DTYPE_COUNT, &lines), 0);
    assert_int_equal(same_bits("far", FOLDER, SPRY_Q8_0, &lines), 0);
    assert_int_equal(same_bits("far", write_bin(), SPRY_DTYPE_COUNT, &lines), 0);
}

/* Neither its weights nor what it computes can be read between steps. */
static void test_far_memory(void **state)
{
    (void)state;
    spry_whisper_weights weights;
    const spry_ops *ops;
    spry_threads *threads;
    spry_whisper_device *device;
    assert_int_equal(spry_ops_get(&ops, "auto", NULL), SPRY_OK);
    assert_int_equal(spry_whisper_weights_open(&weights, FOLDER, ops, SPRY_DTYPE_COUNT, NULL), SPRY_OK);
    assert_int_equal(spry_threads_create(&threads, 1, NULL), SPRY_OK);
    const spry_whisper_setup setup = {&weights, ops, threads};
    assert_int_equal(spry_whisper_device_open(&device, "far", &setup, &(spry_log){0}, NULL), SPRY_OK);
    spry_cpu_region region = spry_far_whisper_region(device);
    size_t matrices = weights.tokens.n_out * weights.tokens.n_in * sizeof(float);
    assert_true(region.bytes > matrices);
    for (size_t at = 0; at < region.bytes; at += region.bytes / 3 + 1)
        assert_true(faults((const unsigned char *)region.memory + at));
    device->ops->close(device);
    spry_threads_destroy(threads);
    spry_whisper_weights_close(&weights);
}

/* Without a GPU, or on a device without Whisper, the CPU computes, and one sentence says so. A name that means nothing
 * is refused. */
static void test_fallback(void **state)
{
    (void)state;
    log_lines missing = {0}, lacking = {0};
    assert_int_equal(same_bits("cuda:99", FOLDER, SPRY_DTYPE_COUNT, &missing), 1);
    assert_string_equal(missing.last, "cuda:99: no such hardware or driver here, or a program without its kernels; the "
                                      "CPU computes instead");
    assert_int_equal(same_bits("cpu+far", FOLDER, SPRY_DTYPE_COUNT, &lacking), 1);
    assert_string_equal(lacking.last, "device 'split' does not compute Whisper models; the CPU computes instead");
    static const char *const wrong[] = {"tpu", "cpu:1", "far:1"};
    for (size_t i = 0; i < SPRY_COUNT(wrong); i++) {
        const spry_whisper_options options = {.device = wrong[i], .kernels = "auto", .type = SPRY_DTYPE_COUNT};
        spry_whisper *w;
        spry_error error;
        assert_int_equal(spry_whisper_open(&w, FOLDER, &options, &error), SPRY_ERR_INPUT);
        assert_non_null(strstr(error.message, wrong[i]));
        assert_null(w);
    }
}

static void refused(const char *path, spry_status status, const char *words)
{
    spry_whisper *w;
    spry_error error;
    assert_int_equal(try_open(&w, path, &error), status);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
}

/* Cut off at any place, or with any number of its head replaced, a file is refused or opened, and nothing else. */
static void test_bin_hostile(void **state)
{
    (void)state;
    const char *whole = write_bin();
    FILE *file = fopen(whole, "rb");
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    fclose(file);
    unsigned char *bytes = read_whole(whole, size);
    for (size_t cut = 0; cut < size; cut += cut < 200 ? 1 : 40001) {
        spry_whisper *w;
        spry_error error;
        scratch_write(&folder, "cut.bin", bytes, cut);
        assert_int_not_equal(try_open(&w, folder.path, &error), SPRY_OK);
    }
    static const uint32_t values[] = {0, 1, 0x7fffffff, 0xffffffff, 0x10000};
    for (size_t at = 4; at < 120; at += 4)
        for (size_t i = 0; i < SPRY_COUNT(values); i++) {
            spry_whisper *w;
            unsigned char kept[4];
            memcpy(kept, bytes + at, 4);
            memcpy(bytes + at, &values[i], 4);
            scratch_write(&folder, "changed.bin", bytes, size);
            try_open(&w, folder.path, NULL);
            spry_whisper_close(w);
            memcpy(bytes + at, kept, 4);
        }
    free(bytes);
}

static void test_not_whisper(void **state)
{
    (void)state;
    refused(TEST_DATA "/models/llama", SPRY_ERR_UNSUPPORTED, "model_type is llama, not whisper");
    refused(MODELS_DIR "/Spry-Tales-29M.gguf", SPRY_ERR_FORMAT, "not a Whisper model");
    refused(scratch_write(&folder, "empty", "", 0), SPRY_ERR_FORMAT, "not a Whisper model");
    refused("/nowhere/whisper.bin", SPRY_ERR_FILE, "/nowhere/whisper.bin");
    spry_speech *speech;
    spry_error error;
    assert_int_equal(spry_speech_open(&speech, FOLDER, NULL, &error), SPRY_ERR_FORMAT);
    assert_non_null(strstr(error.message, "no tokenizer.json"));
    assert_int_equal(spry_speech_open(&speech, write_bin(), NULL, &error), SPRY_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "not one of Whisper's"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden), cmocka_unit_test(test_invariance),  cmocka_unit_test(test_quantised),
        cmocka_unit_test(test_bin),    cmocka_unit_test(test_bin_hostile), cmocka_unit_test(test_not_whisper),
        cmocka_unit_test(test_far),    cmocka_unit_test(test_far_memory),  cmocka_unit_test(test_fallback),
    };
    scratch_init(&folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!failed)
        scratch_deinit(&folder);
    return failed;
}
