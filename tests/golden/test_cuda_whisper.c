/* Whisper on the CUDA device against the CPU: states and logits of every kind of weights and heads, the promise that
 * logits have the same bits however tokens are cut into steps, and what goes wrong. The GPU is imitated
 * (support/cuda_imitation.h); `test_cuda_whisper gpu` uses the first real one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_whisper.h"
#include "device/device_impl.h"
#include "support/cuda_imitation.h"
#include "support/must.h"
#include "voice/whisper.h"

#define FOLDER TEST_DATA "/models/whisper"

/* Of the model, and of a layer of the encoder: inputs of qkv, out, up and down, q, k, v and attention's weights. */
enum { LAYERS = 2, PLACES = 8 };
enum { FRAMES = 3000, BANDS = 80, WIDTH = 64, VOCAB = 512, TOKENS = 40, FAILURE = 700, EVERY = 13, FEW_STATES = 33 };

static bool real;
static float *mel;

/* In place of the driver's library and the program's kernels, which may not be there: what `real` chooses. */
const void *const *__real_spry_cuda_images(void);
const void *const *__wrap_spry_cuda_images(void);

spry_status __real_spry_cuda_open(spry_cuda *cuda, const char *library, spry_error *error);
spry_status __wrap_spry_cuda_open(spry_cuda *cuda, const char *library, spry_error *error);
spry_status __real_spry_cuda_context_init(spry_cuda_context *context, const spry_cuda *cuda, int index,
                                          const void *const *images, spry_error *error);
spry_status __wrap_spry_cuda_context_init(spry_cuda_context *context, const spry_cuda *cuda, int index,
                                          const void *const *images, spry_error *error);

const void *const *__wrap_spry_cuda_images(void)
{
    static const void *const one[] = {"", NULL};
    return one;
}

spry_status __wrap_spry_cuda_open(spry_cuda *cuda, const char *library, spry_error *error)
{
    *cuda = cuda_imitation_driver();
    return real ? __real_spry_cuda_open(cuda, library, error) : SPRY_OK;
}

spry_status __wrap_spry_cuda_context_init(spry_cuda_context *context, const spry_cuda *cuda, int index,
                                          const void *const *images, spry_error *error)
{
    (void)images;
    return __real_spry_cuda_context_init(context, cuda, index, real ? __real_spry_cuda_images() : cuda_imitation_images,
                                         error);
}

typedef struct scene {
    spry_whisper_weights opened, weights; /* as in the file; with other heads */
    const spry_ops *ops;
    spry_threads *threads;
    spry_whisper_setup setup;
    float *features; /* of n_states */
    size_t n_states;
} scene;

static void open_scene(scene *s, const char *kernels, spry_dtype type, uint32_t n_heads, size_t n_states)
{
    spry_error error = {0};
    *s = (scene){.n_states = n_states};
    must(spry_ops_get(&s->ops, kernels, &error), &error);
    must(spry_whisper_weights_open(&s->opened, FOLDER, s->ops, type, &error), &error);
    must(spry_threads_create(&s->threads, 1, &error), &error);
    s->weights = s->opened;
    s->weights.shape.n_audio_heads = s->weights.shape.n_text_heads = n_heads;
    s->setup = (spry_whisper_setup){&s->weights, s->ops, s->threads};
    s->features = calloc((2 * n_states + 2) * BANDS, sizeof *s->features);
    assert_non_null(s->features);
    for (size_t frame = 0; frame < 2 * n_states; frame++)
        for (size_t band = 0; band < BANDS; band++)
            s->features[(1 + frame) * BANDS + band] = mel[band * FRAMES + frame];
}

static void close_scene(scene *s)
{
    free(s->features);
    spry_threads_destroy(s->threads);
    spry_whisper_weights_close(&s->opened);
}

static spry_status open_gpu(spry_whisper_device **device, const scene *s, int index, spry_error *error)
{
    spry_cuda driver;
    spry_status status = spry_cuda_open(&driver, SPRY_CUDA_LIBRARY, error);
    return status ? status : spry_cuda_whisper_open(device, &driver, spry_cuda_images(), index, &s->setup, error);
}

static void close_gpu(spry_whisper_device *device)
{
    device->ops->close(device);
    if (!real)
        assert_true(cuda_imitation_is_clean());
}

static spry_status run(spry_whisper_device *device, const spry_whisper_step *step, spry_error *error)
{
    spry_status status = device->ops->submit(device, step, error);
    return status ? status : device->ops->wait(device, error);
}

static spry_status encode(spry_whisper_device *device, const scene *s, spry_error *error)
{
    return run(device, &(spry_whisper_step){.features = s->features, .n_states = s->n_states}, error);
}

/* Logits after each step of at most `each` tokens, [TOKENS / each, VOCAB]; returns how many. */
static size_t decode(float *out, spry_whisper_device *device, size_t each)
{
    spry_error error = {0};
    int32_t tokens[TOKENS];
    size_t n = 0;
    for (size_t i = 0; i < TOKENS; i++)
        tokens[i] = (int32_t)(i * 37 % VOCAB);
    for (size_t past = 0; past < TOKENS; past += each, n++) {
        size_t left = TOKENS - past;
        const float *logits;
        const spry_whisper_step step = {.tokens = tokens + past, .n_tokens = left < each ? left : each, .past = past};
        must(run(device, &step, &error), &error);
        must(device->ops->logits(device, &logits, &error), &error);
        memcpy(out + n * VOCAB, logits, VOCAB * sizeof *logits);
    }
    return n;
}

/* ---- the CPU's numbers ------------------------------------------------------------------------------------------- */

/* What an activation loses on its way into a product or attention, of its own size: nothing with floats; else queries,
 * weights of attention, keys and values are halves, and activations have 8 bits where weights have at most that. */
static double rounding_of(spry_dtype type)
{
    return type == SPRY_F32 ? 0 : type == SPRY_F16 ? 0x1p-11 : 0x1p-8;
}

/* What may be off, as a share of the largest number: activations are rounded in many places on the way, each
 * of whose errors passes on as it is; and sums of floats, walks of sqrt(n) steps as in test_whisper.c, on both sides
 * and with the cutting off of matrix instructions. */
static double share_off(spry_dtype type, size_t places, double steps)
{
    return rounding_of(type) * (double)places + 4 * 0x1p-24 * steps;
}

static double steps_of(size_t keys, uint32_t n_heads)
{
    return 2 * (3 * sqrt(WIDTH) + sqrt(WIDTH / n_heads) + sqrt((double)keys) + sqrt(WIDTH) + sqrt(128));
}

static double largest_of(const float *x, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)x[i]));
    return largest;
}

static double compare(const char *what, const float *ours, const float *theirs, size_t n, double allowed)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)ours[i] - (double)theirs[i]);
        if (!(off <= allowed))
            fail_msg("%s %zu: %g instead of %g, allowed %g", what, i, (double)ours[i], (double)theirs[i], allowed);
        worst = fmax(worst, off);
    }
    return worst;
}

static void check(spry_dtype type, uint32_t n_heads, size_t n_states)
{
    scene s;
    spry_error error = {0};
    spry_whisper_device *cpu, *gpu;
    const float *ours, *theirs;
    float *logits = malloc(2 * TOKENS * VOCAB * sizeof *logits), *expected = logits + TOKENS * VOCAB;
    assert_non_null(logits);
    cuda_imitation_reset();
    open_scene(&s, "auto", type, n_heads, n_states);
    must(spry_whisper_device_open(&cpu, "cpu", &s.setup, &(spry_log){0}, &error), &error);
    must(open_gpu(&gpu, &s, 0, &error), &error);
    must(encode(cpu, &s, &error), &error);
    must(encode(gpu, &s, &error), &error);
    must(cpu->ops->states(cpu, &theirs, &error), &error);
    must(gpu->ops->states(gpu, &ours, &error), &error);
    spry_dtype placed = s.weights.tokens.type;
    double steps = sqrt(3 * BANDS) + sqrt(3 * WIDTH) + steps_of(n_states, n_heads);
    double allowed = share_off(placed, LAYERS * PLACES, steps) * largest_of(theirs, n_states * WIDTH);
    double states_off = compare("state", ours, theirs, n_states * WIDTH, allowed);
    decode(expected, cpu, 1);
    decode(logits, gpu, 1);
    steps += 2 * steps_of(n_states, n_heads) + sqrt(WIDTH);
    double logits_allowed = share_off(placed, 3 * LAYERS * PLACES + 1, steps) * largest_of(expected, TOKENS * VOCAB);
    double logits_off = compare("logit", logits, expected, TOKENS * VOCAB, logits_allowed);
    print_message("%-5s %u heads, %4zu states: states off by %.1e of %.1e, logits by %.1e of %.1e\n",
                  spry_dtype_name(placed), n_heads, n_states, states_off, allowed, logits_off, logits_allowed);
    cpu->ops->close(cpu);
    close_gpu(gpu);
    close_scene(&s);
    free(logits);
}

static void agrees_with_the_cpu(void **state)
{
    (void)state;
    static const spry_dtype types[] = {SPRY_DTYPE_COUNT, SPRY_F16, SPRY_BF16, SPRY_Q8_0, SPRY_Q4_0};
    for (size_t i = 0; i < SPRY_COUNT(types); i++)
        check(types[i], 4, 40);
    for (uint32_t heads = 1; heads <= 2; heads++) { /* F16 pages by matrix instructions */
        check(SPRY_F16, heads, 40);
        check(SPRY_Q8_0, heads, 90);
    }
    if (!real)
        print_message("1,500 states left out: they take minutes without a GPU\n");
    for (uint32_t heads = 1; real && heads <= 4; heads *= 2)
        for (size_t i = 0; i < SPRY_COUNT(types); i++)
            check(types[i], heads, 1500);
}

/* ---- one set of bits --------------------------------------------------------------------------------------------- */

static void check_cuts(spry_dtype type, uint32_t n_heads, bool late)
{
    static const size_t cuts[] = {1, 1, 7, 20, TOKENS}; /* steps of one token become a graph, and are one again */
    scene s;
    spry_error error = {0};
    spry_whisper_device *gpu;
    float *whole = malloc(2 * TOKENS * VOCAB * sizeof *whole), *cut = whole + TOKENS * VOCAB;
    assert_non_null(whole);
    cuda_imitation_reset();
    open_scene(&s, "auto", type, n_heads, FEW_STATES);
    must(open_gpu(&gpu, &s, 0, &error), &error);
    imitation.late = late;
    must(encode(gpu, &s, &error), &error);
    size_t n = decode(whole, gpu, TOKENS);
    assert_int_equal(n, 1);
    for (size_t i = 0; i < SPRY_COUNT(cuts); i++) {
        n = decode(cut, gpu, cuts[i]);
        assert_memory_equal(cut + (n - 1) * VOCAB, whole, VOCAB * sizeof *whole);
    }
    s.n_states -= 9; /* other sound */
    must(encode(gpu, &s, &error), &error);
    decode(cut, gpu, TOKENS);
    assert_memory_not_equal(cut, whole, VOCAB * sizeof *whole);
    s.n_states += 9;
    must(encode(gpu, &s, &error), &error);
    n = decode(cut, gpu, 1);
    assert_memory_equal(cut + (n - 1) * VOCAB, whole, VOCAB * sizeof *whole);
    close_gpu(gpu);
    close_scene(&s);
    free(whole);
}

static void cuts_change_no_bit(void **state)
{
    (void)state;
    check_cuts(SPRY_DTYPE_COUNT, 4, false);
    check_cuts(SPRY_F16, 1, true);
    check_cuts(SPRY_Q8_0, 2, false);
}

/* A token is few launches, and one once its graph is there. */
static void a_token_is_one_launch(void **state)
{
    (void)state;
    enum { EACH = 12, OTHERS = 4 }; /* at most: of a layer; the embedding, positions, norm and logits */
    scene s;
    spry_error error = {0};
    spry_whisper_device *gpu;
    const int32_t token = 1;
    if (real) {
        print_message("SKIPPED a_token_is_one_launch: launches are counted by the imitation\n");
        skip();
    }
    cuda_imitation_reset();
    open_scene(&s, "ref", SPRY_F16, 1, FEW_STATES);
    must(open_gpu(&gpu, &s, 0, &error), &error);
    must(encode(gpu, &s, &error), &error);
    for (size_t past = 0; past < 4; past++) {
        size_t before = imitation.launches, waits = imitation.waits;
        must(run(gpu, &(spry_whisper_step){.tokens = &token, .n_tokens = 1, .past = past}, &error), &error);
        size_t most = past < 2 ? EACH * s.weights.shape.n_text_layers + OTHERS : 0;
        assert_true(imitation.launches - before <= most);
        assert_int_equal(imitation.waits - waits, 1);
    }
    assert_int_equal(imitation.graphs, 1);
    close_gpu(gpu);
    close_scene(&s);
}

/* ---- through the seam -------------------------------------------------------------------------------------------- */

typedef struct log_lines {
    size_t count;
} log_lines;

static void count_line(void *user, int level, const char *sentence)
{
    (void)level;
    print_message("log: %s\n", sentence);
    ((log_lines *)user)->count++;
}

/* Under its name the device is found and takes rows as they lie in files, which gives the bits of packed ones. */
static void names_open_it(void **state)
{
    (void)state;
    enum { SAMPLES = 2 * FEW_STATES * 160 };
    scene s;
    spry_error error = {0};
    spry_whisper *whisper;
    spry_whisper_device *gpu;
    const float *ours, *theirs;
    float *sound = calloc(SAMPLES, sizeof *sound);
    log_lines lines = {0};
    const spry_whisper_options options = {"cuda:0", "auto", 1, SPRY_Q8_0, {count_line, &lines}};
    assert_non_null(sound);
    for (size_t i = 0; i < SAMPLES; i++)
        sound[i] = sinf((float)i * 0.1f);
    cuda_imitation_reset();
    open_scene(&s, "auto", SPRY_Q8_0, 4, FEW_STATES);
    must(spry_whisper_open(&whisper, FOLDER, &options, &error), &error);
    assert_int_equal(lines.count, 0);
    must(spry_whisper_encode(whisper, sound, SAMPLES, FEW_STATES, &error), &error);
    must(spry_whisper_states(whisper, &ours, &error), &error);
    memcpy(s.features + BANDS, spry_whisper_features(whisper), (size_t)2 * FEW_STATES * BANDS * sizeof *sound);
    must(open_gpu(&gpu, &s, 0, &error), &error);
    must(encode(gpu, &s, &error), &error);
    must(gpu->ops->states(gpu, &theirs, &error), &error);
    assert_memory_equal(ours, theirs, (size_t)FEW_STATES * WIDTH * sizeof *ours);
    assert_int_equal(spry_whisper_model(whisper)->tokens.stride, WIDTH / 32 * 34);
    gpu->ops->close(gpu);
    spry_whisper_close(whisper);
    if (!real)
        assert_true(cuda_imitation_is_clean());
    close_scene(&s);
    free(sound);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

static void refused(const scene *s, spry_status expected, const char *words, int index)
{
    spry_error error = {0};
    spry_whisper_device *device;
    assert_int_equal(open_gpu(&device, s, index, &error), expected);
    assert_null(device);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
    assert_true(cuda_imitation_is_clean());
}

static bool imitated(const char *test)
{
    if (real)
        print_message("SKIPPED %s: faults can only be imitated\n", test);
    return !real;
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    scene s;
    if (!imitated("what_cannot_be_is_refused"))
        skip();
    open_scene(&s, "ref", SPRY_DTYPE_COUNT, 4, FEW_STATES);
    cuda_imitation_reset();
    imitation.devices = 0;
    refused(&s, SPRY_ERR_INPUT, "there is no GPU 0: the driver has 0", 0);
    cuda_imitation_reset();
    refused(&s, SPRY_ERR_INPUT, "there is no GPU 3: the driver has 1", 3);
    cuda_imitation_reset();
    imitation.free_bytes = 1 << 20;
    refused(&s, SPRY_ERR_MEMORY, "Imitated GPU 0 has 1 MB free", 0);
    cuda_imitation_reset();
    s.weights.shape.n_audio_heads = 8;
    refused(&s, SPRY_ERR_UNSUPPORTED, "heads of 8 values", 0);
    close_scene(&s);
}

static void every_call_may_fail_while_opening(void **state)
{
    (void)state;
    scene s;
    spry_error error = {0};
    spry_whisper_device *device;
    if (!imitated("every_call_may_fail_while_opening"))
        skip();
    open_scene(&s, "auto", SPRY_Q8_0, 4, FEW_STATES);
    cuda_imitation_reset();
    must(open_gpu(&device, &s, 0, &error), &error);
    int calls = imitation.calls;
    close_gpu(device);
    for (int fail_at = 1; fail_at <= calls; fail_at += fail_at < 10 || fail_at > calls - 10 ? 1 : EVERY) {
        cuda_imitation_reset();
        imitation.fail_at = fail_at;
        imitation.fail_with = fail_at % 2 ? FAILURE : SPRY_CUDA_OUT_OF_MEMORY;
        spry_status status = open_gpu(&device, &s, 0, &error);
        if (!status) { /* asking for free memory may fail */
            close_gpu(device);
            continue;
        }
        assert_int_equal(status, fail_at % 2 ? SPRY_ERR_DEVICE : SPRY_ERR_MEMORY);
        assert_non_null(strstr(error.message, fail_at % 2 ? "the driver is tired" : "are not free"));
        assert_null(device);
        assert_true(cuda_imitation_is_clean());
    }
    close_scene(&s);
}

/* One step of sound and three tokens, the last as a graph. */
static spry_status run_all(spry_whisper_device *device, const scene *s, spry_error *error)
{
    static const int32_t token = 7;
    const float *states;
    spry_status status = encode(device, s, error);
    if (!status)
        status = device->ops->states(device, &states, error);
    for (size_t past = 0; !status && past < 3; past++)
        status = run(device, &(spry_whisper_step){.tokens = &token, .n_tokens = 1, .past = past}, error);
    return status;
}

static void every_call_may_fail_in_a_step(void **state)
{
    (void)state;
    scene s;
    spry_error error = {0};
    spry_whisper_device *device;
    if (!imitated("every_call_may_fail_in_a_step"))
        skip();
    open_scene(&s, "ref", SPRY_F16, 2, FEW_STATES);
    cuda_imitation_reset();
    must(open_gpu(&device, &s, 0, &error), &error);
    int before = imitation.calls;
    must(run_all(device, &s, &error), &error);
    int calls = imitation.calls - before;
    close_gpu(device);
    for (int fail_at = 1; fail_at <= calls; fail_at += EVERY) {
        const float *logits;
        cuda_imitation_reset();
        must(open_gpu(&device, &s, 0, &error), &error);
        imitation.fail_at = imitation.calls + fail_at;
        imitation.fail_with = FAILURE;
        assert_int_equal(run_all(device, &s, &error), SPRY_ERR_DEVICE);
        assert_non_null(strstr(error.message, "the driver is tired"));
        assert_int_equal(run_all(device, &s, &error), SPRY_ERR_DEVICE); /* a lost GPU stays lost */
        assert_int_equal(device->ops->logits(device, &logits, &error), SPRY_ERR_DEVICE);
        close_gpu(device);
    }
    close_scene(&s);
}

static void work_that_never_ends_is_given_up(void **state)
{
    (void)state;
    scene s;
    spry_error error = {0};
    spry_whisper_device *device;
    if (!imitated("work_that_never_ends_is_given_up"))
        skip();
    open_scene(&s, "ref", SPRY_DTYPE_COUNT, 4, FEW_STATES);
    cuda_imitation_reset();
    must(open_gpu(&device, &s, 0, &error), &error);
    ((spry_cuda_whisper *)device)->gpu.context.timeout_ms = 5;
    imitation.hangs = true;
    assert_int_equal(run_all(device, &s, &error), SPRY_ERR_DEVICE);
    assert_non_null(strstr(error.message, "no end after"));
    close_gpu(device);
    close_scene(&s);
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static int read_mel(void **state)
{
    (void)state;
    FILE *file = fopen(FOLDER "/mel.f32", "rb");
    mel = malloc((size_t)BANDS * FRAMES * sizeof *mel);
    assert_true(file && mel);
    assert_int_equal(fread(mel, sizeof *mel, (size_t)BANDS * FRAMES, file), (size_t)BANDS * FRAMES);
    return fclose(file);
}

static int free_mel(void **state)
{
    (void)state;
    free(mel);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_cpu),
        cmocka_unit_test(cuts_change_no_bit),
        cmocka_unit_test(a_token_is_one_launch),
        cmocka_unit_test(names_open_it),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(every_call_may_fail_in_a_step),
        cmocka_unit_test(every_call_may_fail_while_opening),
        cmocka_unit_test(work_that_never_ends_is_given_up),
    };
    real = argc > 1 && !strcmp(argv[1], "gpu");
    return cmocka_run_group_tests(tests, read_mel, free_mel);
}
