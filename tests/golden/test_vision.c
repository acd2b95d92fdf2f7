/* Models with eyes against transformers: pixels after preprocessing, rows after the projector, prompts, logits and
 * continuations. And files that are no good pictures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/engine_state.h"
#include "engine/eyes.h"
#include "formats/image.h"
#include "golden/golden_file.h"
#include "model/tower.h"
#include "sched/driver.h"
#include "spry_pictures.h"
#include "spry_serve.h"
#include "support/device_rows.h"
#include "support/hostile.h"

#ifndef TEST_DEVICE
#define TEST_DEVICE "cpu"
#endif

#ifdef CUDA_DEFAULT
extern bool cuda_default_real; /* support/cuda_default.c */
#endif

enum { MAX_FILE = 1 << 21 };

static const char *const models[] = {"qwen3-vl", "qwen3.5-vl", "qwen2.5-vl", "gemma3-vl", "smolvlm",
                                     "mistral3", "internvl",   "lfm2-vl",    "gemma4-vl"};
static const char pictures[] = "qwen3-vl"; /* all goldens are of the same two */

/* A tower's weights are packed by the engine's threads, which have one caller at a time: the engine's owner. */
static spry_driver *driver; /* NULL: of no interest */

spry_status __real_spry_tower_pack(spry_tower *tower, spry_threads *threads, spry_error *error);
spry_status __wrap_spry_tower_pack(spry_tower *tower, spry_threads *threads, spry_error *error);

static const bool on_gpu = TEST_DEVICE[1] != 'p';

/* A GPU rounds the inputs of products with bf16 weights to bf16; with floats its results are those of floats. */
static void widen(spry_tower *tower, spry_weight *w)
{
    if (!w->data || w->type == SPRY_F32)
        return;
    float *floats = spry_arena_alloc(&tower->arena, w->n_out * w->n_in, sizeof *floats);
    assert_non_null(floats);
    for (size_t row = 0; row < w->n_out; row++)
        tower->ops->decode[w->type](floats + row * w->n_in, w->data + row * w->row_bytes, w->n_in);
    w->data = (const unsigned char *)floats;
    w->type = SPRY_F32;
    w->row_bytes = w->n_in * sizeof *floats;
}

spry_status __wrap_spry_tower_pack(spry_tower *tower, spry_threads *threads, spry_error *error)
{
    assert_true(!driver || spry_driver_is_owner(driver));
    for (uint32_t i = 0; on_gpu && i < tower->config.n_layers; i++) {
        spry_layer *l = &tower->weights.layers[i];
        spry_weight *const all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t k = 0; k < SPRY_COUNT(all); k++)
            widen(tower, all[k]);
    }
    return __real_spry_tower_pack(tower, threads, error);
}

typedef struct file_bytes {
    unsigned char data[MAX_FILE];
    size_t size;
} file_bytes;

static void read_file(file_bytes *out, const char *model, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/models/%s/%s", TEST_DATA, model, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    out->size = fread(out->data, 1, sizeof out->data, file);
    assert_true(feof(file));
    fclose(file);
}

static void show(void *user, int level, const char *sentence)
{
    (void)user;
    if (level >= SPRY_LOG_WARN)
        print_message("%s\n", sentence);
}

static spry_engine *open_engine(const char *model, const char *cpu)
{
    char path[1024];
    spry_engine *engine;
    spry_error error = {0};
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.threads = 2;
    options.context = 256;
    options.kv_type = "f32";
    options.cpu = cpu;
    options.device = TEST_DEVICE;
    options.log = show;
    options.quantize = on_gpu ? "f32" : NULL;
    snprintf(path, sizeof path, "%s/models/%s", TEST_DATA, model);
    if (spry_engine_open(&engine, path, &options, &error))
        fail_msg("%s", error.message);
    assert_string_equal(engine->device_name, TEST_DEVICE);
    assert_true(engine->eyes_on_gpu == on_gpu);
    return engine;
}

/* A data: URL of a file. */
static char *data_url(const file_bytes *file)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t room = file->size * 2 + 64;
    char *text = malloc(room), *at = text + snprintf(text, room, "data:image/png;base64,");
    for (size_t i = 0; i < file->size; i += 3) {
        uint32_t three = (uint32_t)file->data[i] << 16;
        three |= i + 1 < file->size ? (uint32_t)file->data[i + 1] << 8 : 0;
        three |= i + 2 < file->size ? file->data[i + 2] : 0;
        for (int k = 0; k < 4; k++)
            *at++ = i + (size_t)k > file->size ? '=' : digits[three >> (18 - 6 * k) & 63];
    }
    *at = 0;
    return text;
}

/* The golden's prompt with its pictures as parts of one message. */
static char *conversation_of(const json_t *item)
{
    static file_bytes file;
    const char *prompt = json_string_value(json_object_get(item, "prompt")), *at = strstr(prompt, "user\n") + 5;
    const char *end = strstr(at, "<|im_end|>");
    json_t *parts = json_array();
    for (size_t i = 0; at < end;) {
        const char *mark = strstr(at, "<IMG>"), *stop = mark && mark < end ? mark : end;
        if (stop > at)
            json_array_append_new(parts, json_pack("{s:s, s:s%}", "type", "text", "text", at, (size_t)(stop - at)));
        at = stop;
        if (at == end)
            break;
        char name[32];
        snprintf(name, sizeof name, "image%d.png",
                 (int)json_integer_value(json_array_get(json_object_get(item, "images"), i++)));
        read_file(&file, pictures, name);
        char *url = data_url(&file);
        json_array_append_new(parts, json_pack("{s:s, s:{s:s}}", "type", "image_url", "image_url", "url", url));
        free(url);
        at += 5;
    }
    json_t *all = json_pack("{s:[{s:s, s:o}]}", "messages", "role", "user", "content", parts);
    char *text = json_dumps(all, 0);
    json_decref(all);
    return text;
}

static json_t *golden_json(const char *model)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/models/%s/golden.json", TEST_DATA, model);
    json_t *json = json_load_file(path, JSON_ALLOW_NUL, NULL);
    assert_non_null(json);
    return json;
}

static void test_decoded_pixels(void **state)
{
    (void)state;
    static file_bytes file, raw;
    for (int i = 0; i < 2; i++) {
        char name[32];
        spry_image image;
        snprintf(name, sizeof name, "image%d.png", i);
        read_file(&file, pictures, name);
        snprintf(name, sizeof name, "image%d.raw", i);
        read_file(&raw, pictures, name);
        assert_string_equal(spry_image_kind(file.data, file.size), "PNG");
        assert_int_equal(spry_image_decode(&image, file.data, file.size, 1 << 20, "it", NULL), SPRY_OK);
        assert_int_equal((size_t)image.width * image.height * 3, raw.size);
        assert_memory_equal(image.rgb, raw.data, raw.size);
        spry_image_deinit(&image);
    }
}

/* The next golden value of a pixel: the same of 256. */
static void check_pixel(const spry_tower *t, const float **expected, const spry_image *sheet, size_t y, size_t x,
                        size_t channel, const char *model)
{
    double got = sheet->rgb[(y * sheet->width + x) * 3 + channel] / 255.0;
    bool unit = t->kind->unit_pixels; /* the golden's pixels go from 0 to 1 */
    double deviation = unit ? 1 : (double)t->deviation[channel], mean = unit ? 0 : (double)t->mean[channel];
    double wanted = (double)*(*expected)++ * deviation + mean;
    if (fabs(wanted - got) > 0.01 / 255)
        fail_msg("%s: pixel %zu, %zu of channel %zu: %g, not %g", model, x, y, channel, got, wanted);
}

/* [channel, y, x] in a frame of a fixed size, with zeros after the lines and at the end. */
static void check_sheet(const spry_tower *t, const float **expected, const spry_image *sheet, size_t width,
                        size_t height, const char *model)
{
    for (size_t channel = 0; channel < 3; channel++)
        for (size_t y = 0; y < height; y++)
            for (size_t x = 0; x < width; x++)
                if (x < sheet->width && y < sheet->height)
                    check_pixel(t, expected, sheet, y, x, channel, model);
                else
                    assert_true(*(*expected)++ == 0);
}

/* Patches in blocks of 2 x 2, each [channel, frame, y, x]. */
static void check_blocks(const spry_tower *t, const float **expected, const spry_image *sheet, const char *model)
{
    uint32_t side = t->patch, columns = sheet->width / side, rows = sheet->height / side;
    for (uint32_t n = 0; n < rows * columns; n++) {
        uint32_t block = n / 4, row = block / (columns / 2) * 2 + n % 4 / 2, column = block % (columns / 2) * 2 + n % 2;
        for (uint32_t k = 0; k < 3 * 2 * side * side; k++)
            check_pixel(t, expected, sheet, row * side + k / side % side, column * side + k % side,
                        k / (2 * side * side), model);
    }
}

/* Patches line after line, each [y, x, channel], in a list of a fixed number of rows; 0: no row is empty. */
static void check_patches(const spry_tower *t, const float **expected, const spry_image *sheet, uint32_t n_rows,
                          const char *model)
{
    uint32_t side = t->patch, columns = sheet->width / side, n = sheet->height / side * columns;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < 3 * side * side; k++)
            check_pixel(t, expected, sheet, i / columns * side + k / 3 / side, i % columns * side + k / 3 % side, k % 3,
                        model);
    for (size_t i = (size_t)n * 3 * side * side; i < (size_t)n_rows * 3 * side * side; i++)
        assert_true(*(*expected)++ == 0);
}

static void test_preprocessing(void **state)
{
    (void)state;
    static file_bytes file, golden;
    for (size_t m = 0; m < SPRY_COUNT(models); m++) {
        spry_engine *engine = open_engine(models[m], "ref");
        spry_tower *tower;
        assert_int_equal(spry_tower_open(&tower, engine->model, NULL, engine->ops, NULL), SPRY_OK);
        read_file(&golden, models[m], "pixel.f32");
        const float *expected = (const float *)(const void *)golden.data;
        bool blocks = !strncmp(models[m], "qwen", 4), padded = !strcmp(models[m], "mistral3");
        for (int i = 0; i < 2; i++) {
            char name[32];
            spry_image image;
            spry_sheets sheets;
            snprintf(name, sizeof name, "image%d.png", i);
            read_file(&file, pictures, name);
            assert_int_equal(spry_image_decode(&image, file.data, file.size, 1 << 20, "it", NULL), SPRY_OK);
            assert_int_equal(spry_tower_sheets(tower, &sheets, &image, 1 << 20, NULL), SPRY_OK);
            for (uint32_t k = 0; k < sheets.n; k++)
                if (!strcmp(models[m], "gemma4-vl") || !strcmp(models[m], "lfm2-vl"))
                    check_patches(tower, &expected, &sheets.sheets[k], *models[m] == 'l' ? 48 : 0, models[m]);
                else if (blocks)
                    check_blocks(tower, &expected, &sheets.sheets[k], models[m]);
                else
                    check_sheet(tower, &expected, &sheets.sheets[k], padded ? 96 : sheets.sheets[k].width,
                                padded ? 96 : sheets.sheets[k].height, models[m]);
            spry_sheets_deinit(&sheets);
            spry_image_deinit(&image);
        }
        assert_ptr_equal(expected, golden.data + golden.size);
        spry_tower_close(tower);
        spry_engine_close(engine);
    }
}

static void compare(const float *got, const float *expected, size_t n, double bound, const char *what)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)got[i] - (double)expected[i]));
    if (!(worst <= bound))
        fail_msg("%s: off by %g, at most %g", what, worst, bound);
}

static const double row_bound = 1e-4;

static spry_eyes_cost cost; /* of all pictures */

static void check_features(const char *model)
{
    static file_bytes file, features, deep;
    spry_error error = {0};
    bool deepstack = !strcmp(model, "qwen3-vl");
    spry_engine *engine = open_engine(model, "ref");
    read_file(&features, model, "image_features.f32");
    if (deepstack)
        read_file(&deep, model, "deepstack.f32");
    const float *expected = (const float *)(const void *)features.data;
    const float *expected_deep = (const float *)(const void *)deep.data;
    size_t all = features.size / sizeof(float), first = 0;
    driver = engine->driver;
    for (int i = 0; i < 2; i++) {
        char name[32];
        spry_seen *seen, *again;
        snprintf(name, sizeof name, "image%d.png", i);
        read_file(&file, pictures, name);
        if (spry_eyes_look(engine->eyes, &seen, &cost, file.data, file.size, name, &error))
            fail_msg("%s: %s", model, error.message);
        assert_true(engine->eyes_on_gpu == on_gpu);
        for (size_t n = 0; n < seen->n_placed; n++) {
            const spry_picture *picture = seen->placed[n].picture;
            assert_int_equal(picture->n_deep, deepstack ? 2 : 0);
            for (uint32_t row = 0; row < picture->n_rows; row++) {
                if (picture->line && (row + 1) % (picture->line + 1) == 0)
                    continue; /* a token, not a feature */
                compare(spry_picture_values(picture, 0, row), expected + first, picture->n_embd, row_bound, model);
                for (uint32_t k = 0; k < picture->n_deep; k++)
                    compare(spry_picture_values(picture, k + 1, row), expected_deep + k * all + first, picture->n_embd,
                            row_bound, "deepstack");
                first += picture->n_embd;
            }
        }
        assert_int_equal(spry_eyes_look(engine->eyes, &again, &cost, file.data, file.size, name, &error), SPRY_OK);
        assert_ptr_equal(seen, again); /* kept */
        spry_seen_unref(seen);
        spry_seen_unref(again);
    }
    assert_int_equal(first, all);
    assert_true(cost.preprocess_ns && cost.encode_ns);
    driver = NULL;
    spry_engine_close(engine);
}

static void test_features(void **state)
{
    (void)state;
    for (size_t m = 0; m < SPRY_COUNT(models); m++)
        check_features(models[m]);
}

typedef struct answer_of_test {
    int32_t ids[64];
    size_t n;
} answer_of_test;

static bool take(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    answer_of_test *a = user;
    (void)top;
    (void)n_top;
    if (a->n < SPRY_COUNT(a->ids))
        a->ids[a->n++] = token.id;
    return true;
}

/* All logits of a prompt. */
static void check_logits(spry_engine *engine, const spry_chat_prompt *p, const golden_case *c, double bound,
                         const char *model)
{
    spry_session *session;
    spry_found found;
    size_t vocabulary = engine->model->config.n_vocab;
    const spry_prompt prompt = {
        .ids = p->ids, .count = p->count, .pictures = p->pictures, .n_pictures = (size_t)p->n_pictures};
    assert_int_equal(spry_session_create(&session, engine, NULL), SPRY_OK);
    assert_int_equal(spry_sequence_begin(&session->sequence, &found, &prompt, NULL), SPRY_OK);
    for (size_t row = 0; spry_sequence_pending(&session->sequence);) {
        spry_segment segments[16];
        size_t n, rows = 0;
        assert_int_equal(spry_sequence_fill(&session->sequence, segments, &n, 16, 16, 0, 16, NULL), SPRY_OK);
        assert_int_equal(step_run(engine->device, segments, n, NULL), SPRY_OK);
        for (size_t i = 0; i < n; i++)
            rows += segments[i].n_rows;
        size_t skip = c->first_row <= row ? 0 : c->first_row - row < rows ? c->first_row - row : rows;
        if (skip < rows)
            compare(step_logits(engine->device, skip, rows - skip),
                    c->logits + (row + skip - c->first_row) * vocabulary, (rows - skip) * vocabulary, bound, model);
        spry_sequence_computed(&session->sequence, rows, 0);
        row += rows;
    }
    spry_session_destroy(session);
}

static void check_answer(spry_engine *engine, const spry_chat_prompt *p, const golden_case *c, size_t reused)
{
    answer_of_test a = {.n = 0};
    spry_request request;
    spry_result result;
    spry_error error = {0};
    spry_session *session;
    spry_request_default(&request);
    request.prompt = p->ids;
    request.n_prompt = p->count;
    request.pictures = p->pictures;
    request.n_pictures = (size_t)p->n_pictures;
    request.max_tokens = (uint32_t)c->n_greedy;
    request.ignore_end = true;
    request.sampling.temperature = 0;
    request.on_token = take;
    request.user = &a;
    assert_int_equal(spry_session_create(&session, engine, NULL), SPRY_OK);
    if (spry_session_generate(session, &result, &request, &error))
        fail_msg("%s", error.message);
    for (size_t i = 0; i < c->n_greedy && c->margins[i] > 0.05; i++)
        assert_int_equal(a.ids[i], c->greedy[i]);
    assert_true(result.reused_tokens >= reused);
    spry_session_destroy(session);
}

static void test_prompts_logits_and_continuations(void **state)
{
    (void)state;
    static const char *const cpus[] = {"ref", "auto"};
    for (size_t m = 0; m < SPRY_COUNT(models) * SPRY_COUNT(cpus); m += on_gpu ? SPRY_COUNT(cpus) : 1) {
        char folder[1024];
        golden_file golden;
        spry_error error = {0};
        const char *model = models[m / SPRY_COUNT(cpus)], *cpu = cpus[m % SPRY_COUNT(cpus)];
        snprintf(folder, sizeof folder, "%s/models/%s", TEST_DATA, model);
        print_message("%s\n", model);
        golden_open(&golden, folder);
        json_t *json = golden_json(model);
        spry_engine *engine = open_engine(model, cpu);
        for (size_t i = 0; i < golden.n_cases; i++) {
            const golden_case *c = &golden.cases[i];
            spry_chat_prompt prompt;
            char *text = conversation_of(json_array_get(json_object_get(json, "cases"), i));
            if (spry_engine_chat_prompt(engine, &prompt, text, strlen(text), &error))
                fail_msg("%s", error.message);
            assert_int_equal(prompt.count, c->n_ids);
            assert_true(!prompt.n_pictures == !prompt.picture_tokens && prompt.picture_tokens < prompt.count);
            assert_memory_equal(prompt.ids, c->ids, c->n_ids * sizeof *c->ids);
            if (!strcmp(cpu, "ref"))
                check_logits(engine, &prompt, c, fmax(1e-3, 8 * c->wobble), model);
            check_answer(engine, &prompt, c, 0);
            check_answer(engine, &prompt, c, c->n_ids - 1); /* the second time nothing is computed */
            free(text);
            spry_chat_prompt_deinit(&prompt);
        }
        spry_engine_close(engine);
        json_decref(json);
        golden_close(&golden);
    }
}

static void expect_bad(spry_engine *engine, const void *data, size_t size, const char *words)
{
    spry_error error = {0};
    spry_seen *seen;
    hostile_expect(spry_eyes_look(engine->eyes, &seen, &cost, data, size, "picture 1", &error), &error, SPRY_ERR_INPUT,
                   words);
}

static void test_bad_pictures(void **state)
{
    (void)state;
    static file_bytes file;
    spry_engine *engine = open_engine("qwen3-vl", "auto");
    read_file(&file, pictures, "image0.png");
    for (size_t size = 8; size < file.size; size = size * 2 + 3) /* cut off */
        expect_bad(engine, file.data, size, "picture 1");
    for (size_t i = 33; i < file.size; i += 101) { /* damaged: a sentence or a picture, and nothing else */
        spry_image image;
        unsigned char was = file.data[i];
        file.data[i] ^= 0x55;
        if (!spry_image_decode(&image, file.data, file.size, 1 << 20, "it", NULL))
            spry_image_deinit(&image);
        file.data[i] = was;
    }
    static const unsigned char huge[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\1\x86\xa0\0\1\x86\xa0\x08\2\0\0\0";
    expect_bad(engine, huge, sizeof huge - 1, "picture 1");
    static const char svg[] = "<svg xmlns='http://www.w3.org/2000/svg'/>";
    expect_bad(engine, svg, sizeof svg - 1, "no PNG, JPEG, WebP or GIF");
    expect_bad(engine, "", 0, "no PNG");
    expect_bad(engine, "GIF89a\xff\xff\xff\xff\0\0\0", 13, "65535 x 65535 pixels");
    expect_bad(engine, "GIF89a\1\0\1\0\0\0\0;", 14, "damaged");
    expect_bad(engine, "\xff\xd8\xff\xe0", 4, "damaged");
    expect_bad(engine, "RIFF\4\0\0\0WEBP", 12, "damaged");
    static const char *const conversations[][2] = {
        {"http://127.0.0.1/x.png", "nothing is fetched"},
        {"file:///etc/passwd", "nothing is fetched"},
        {"data:image/png,abc", "not base64"},
        {"data:image/png;base64,", "not valid base64"},
        {"data:image/png;base64,@@@@", "not valid base64"},
        {"data:", "not base64"},
    };
    for (size_t i = 0; i < SPRY_COUNT(conversations); i++) {
        char text[512];
        spry_chat_prompt prompt;
        spry_error error = {0};
        snprintf(
            text, sizeof text,
            "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": \"%s\"}]}]}",
            conversations[i][0]);
        hostile_expect(spry_engine_chat_prompt(engine, &prompt, text, strlen(text), &error), &error, SPRY_ERR_INPUT,
                       conversations[i][1]);
    }
    spry_engine_close(engine);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoded_pixels), cmocka_unit_test(test_preprocessing),
        cmocka_unit_test(test_features),       cmocka_unit_test(test_prompts_logits_and_continuations),
        cmocka_unit_test(test_bad_pictures),
    };
#ifdef CUDA_DEFAULT
    cuda_default_real = argc > 1 && !strcmp(argv[1], "gpu");
#else
    (void)argc;
    (void)argv;
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
