/* How much a model has to do, what it takes, how long that should last on machines that were made up, and which model
 * is chosen for them. Counts are held against sums by hand and against what the engine itself says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/packing.h"
#include "doctor/machine_profile.h"
#include "doctor/model_choice.h"
#include "engine/engine_state.h"
#include "insight/prediction.h"
#include "insight/speed_probe.h"
#include "model/gguf_export.h"
#include "model/quantize.h"
#include "model/shapes.h"
#include "platform/clock.h"
#include "support/must.h"
#include "support/scratch.h"

static const double giga = 1e9;

static void near(double value, double wanted, double share)
{
    if (!(fabs(value - wanted) <= share * fabs(wanted)))
        fail_msg("%.17g is not %.17g", value, wanted);
}

static const spry_ops *ops_of(const char *mask)
{
    const spry_ops *ops;
    spry_error error = {0};
    must(spry_ops_get(&ops, mask, &error), &error);
    return ops;
}

static spry_model *model_of(const char *shape, const char *type)
{
    spry_error error = {0};
    spry_model *model;
    const spry_recipe *recipe;
    must(spry_recipe_find(&recipe, type, &error), &error);
    must(spry_shape_model(&model, spry_shape_find(shape), shape, &error), &error);
    must(spry_model_quantize_sizes(model, recipe, &error), &error);
    return model;
}

/* A machine for which nothing takes time; what a test is about is then made slow. */
static spry_machine_speed ideal_machine(void)
{
    const double at_once = 1e15;
    spry_machine_speed m = {.threads = 4, .kernels = "ref", .read_gb_s = at_once, .sync_us = 1e-15};
    m.attend_g_s = m.attend_gb_s = at_once;
    for (size_t i = 0; i < SPRY_READ_SPEEDS; i++)
        m.reads[i] = (spry_read_speed){(double)(1 << 20) * (double)(1 << i), at_once};
    for (size_t i = 0; i < SPRY_SMALL_COUNT; i++)
        m.small_g_s[i] = at_once;
    for (uint32_t i = 0; i < SPRY_DTYPE_COUNT; i++)
        if (spry_dtype_known(i))
            m.types[i] = (spry_type_speed){at_once, at_once, at_once};
    return m;
}

/* ---- counts ------------------------------------------------------------------------------------------------------ */

/* Of "tiny": 2 layers of 256, 512 within, 4 heads and 2 for keys of 64, 1024 tokens. */
enum {
    TINY_LAYER = 256 * 256 + 2 * 128 * 256 + 256 * 256 + 3 * 256 * 512,
    TINY_OUTPUT = 1024 * 256,
    TINY_KV_TOKEN = 2 * 2 * 2 * 64 * 2, /* layers, keys and values, heads, numbers, bytes */
};

static void a_decode_step_is_counted_by_hand(void **state)
{
    (void)state;
    spry_model *model = model_of("tiny", "f16");
    const spry_work_setting setting = {model, ops_of("ref"), SPRY_F16, 128};
    spry_step_work work = spry_work_of_decode(&setting, 9, 1);
    near(work.one[SPRY_F16].products, 2 * TINY_LAYER + TINY_OUTPUT, 0);
    near(work.one[SPRY_F16].bytes, 2 * (2 * TINY_LAYER + TINY_OUTPUT), 0);
    near(work.kv_bytes, 10 * TINY_KV_TOKEN, 0);
    near(work.attend_products, 2 * 10 * 4 * 64 * 2, 0); /* layers, keys, heads, numbers, scores and sums */
    near(work.syncs, 2 * 5 + 1, 0);                     /* qkv, attention, o, gate and up, down; output */
    near(work.one_small[SPRY_SMALL_GATE], 2 * 512, 0);
    near(work.one_small[SPRY_SMALL_ROPE], 2 * (256 + 2 * 128), 0);
    near(work.many_small[SPRY_SMALL_NORM] + work.many[SPRY_F16].bytes, 0, 0);
    near(spry_work_bytes(&work), work.one[SPRY_F16].bytes + work.kv_bytes, 0);
    near(spry_work_products(&work), work.one[SPRY_F16].products + work.attend_products, 0);
    work = spry_work_of_decode(&setting, 9, 3);
    near(work.many[SPRY_F16].products, 3 * (2 * TINY_LAYER + TINY_OUTPUT), 0);
    near(work.many[SPRY_F16].bytes, 2 * (2 * TINY_LAYER + TINY_OUTPUT), 0);
    near(work.kv_bytes, 3 * 10 * TINY_KV_TOKEN, 0);
    spry_model_close(model);
}

static void a_prefill_is_counted_step_by_step(void **state)
{
    (void)state;
    spry_model *model = model_of("tiny", "f16");
    spry_work_setting setting = {model, ops_of("ref"), SPRY_F16, 40};
    spry_step_work parts = spry_work_of_prefill(&setting, 100);
    setting.chunk = 100;
    spry_step_work whole = spry_work_of_prefill(&setting, 100);
    near(parts.many[SPRY_F16].products, 100 * 2 * TINY_LAYER, 0);
    near(whole.many[SPRY_F16].products, 100 * 2 * TINY_LAYER, 0);
    near(whole.many[SPRY_F16].bytes, 2 * 2 * TINY_LAYER, 0);
    near(parts.many[SPRY_F16].bytes, 3 * 2 * 2 * TINY_LAYER, 0);
    near(parts.one[SPRY_F16].products, TINY_OUTPUT, 0); /* only the last row meets the output */
    near(whole.attend_products, 2 * (100 * 101 / 2) * 4 * 64 * 2, 0);
    near(parts.attend_products, whole.attend_products, 0);
    near(parts.kv_bytes, (40 + 80 + 100) * TINY_KV_TOKEN, 0);
    spry_model_close(model);
}

/* A row meets 2 of 8 experts; many rows meet all of them, each a share of the rows. */
static void experts_are_counted_as_chosen_at_random(void **state)
{
    (void)state;
    enum { EXPERT = 3 * 256 * 256, REST = 256 * 256 * 2 + 2 * 128 * 256 };
    spry_model *model = model_of("tiny-moe", "f16");
    const spry_work_setting setting = {model, ops_of("ref"), SPRY_F16, 128};
    spry_step_work one = spry_work_of_decode(&setting, 0, 1), many = spry_work_of_prefill(&setting, 128);
    near(one.one[SPRY_F16].products, 2 * (REST + 2 * EXPERT) + TINY_OUTPUT, 1e-12);
    near(one.one[SPRY_F16].bytes, 2 * one.one[SPRY_F16].products, 1e-12);
    near(one.one[SPRY_F32].products, 2 * 8 * 256, 0); /* routers */
    near(many.many[SPRY_F16].products, 128.0 * 2 * (REST + 2 * EXPERT), 1e-12);
    near(many.many[SPRY_F16].bytes, 2 * 2.0 * (REST + 8 * EXPERT), 1e-12);
    spry_model_close(model);
}

static void packed_matrices_are_as_large_as_packing_makes_them(void **state)
{
    (void)state;
    static const char *const types[] = {"q4_0", "q4_k_m", "q8_0", "f16"};
    const spry_ops *ops = ops_of("auto");
    for (size_t i = 0; i < SPRY_COUNT(types); i++) {
        spry_model *model = model_of("qwen3-0.6b", types[i]);
        const spry_work_setting setting = {model, ops, SPRY_F16, 128};
        spry_step_work work = spry_work_of_decode(&setting, 0, 1);
        double grouped = 0;
        size_t packed;
        assert_true(spry_weights_packed_bytes(&packed, &model->weights, &model->config, ops));
        for (size_t type = 0; type < SPRY_DTYPE_COUNT; type++)
            grouped += ops->matmul[type].group ? work.one[type].bytes : 0;
        near(grouped, (double)packed, 1e-6); /* which are aligned, besides */
        spry_model_close(model);
    }
}

static void the_main_type_is_that_of_most_products(void **state)
{
    (void)state;
    spry_model *model = model_of("qwen3-0.6b", "q4_k_m");
    assert_int_equal(spry_work_main_type(model), SPRY_Q4_K);
    spry_model_close(model);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static scratch place;

/* A file of a shape says of itself what the shape says of it. */
static void sizes_are_those_of_a_file(void **state)
{
    (void)state;
    static const struct {
        const char *shape, *type;
    } cases[] = {{"tiny", "q4_0"}, {"tiny", "f16"}, {"tiny-moe", "q8_0"}};
    spry_error error = {0};
    spry_machine_speed machine = ideal_machine();
    snprintf(machine.kernels, sizeof machine.kernels, "%s", ops_of("auto")->name);
    scratch_init(&place);
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_random_model job = {.shape = spry_shape_find(cases[i].shape), .name = "random"};
        spry_engine_options options;
        spry_engine_needs needs;
        spry_prediction of_shape, of_file;
        spry_model *file;
        must(spry_recipe_find(&job.recipe, cases[i].type, &error), &error);
        must(spry_threads_create(&job.threads, 1, &error), &error);
        must(spry_random_model_write(scratch_path(&place, "model.gguf"), &job, &error), &error);
        spry_threads_destroy(job.threads);
        spry_engine_options_default(&options);
        must(spry_engine_estimate(&needs, place.path, NULL, 0, &options, &error), &error);
        must(spry_model_open_sizes(&file, place.path, NULL, 0, &error), &error);
        must(spry_predict_model(&of_file, &machine, file, &error), &error);
        must(spry_predict_shape(&of_shape, &machine, cases[i].shape, cases[i].type, &error), &error);
        near(of_shape.size.parameters, of_file.size.parameters, 0);
        near(of_shape.size.weight_bytes, of_file.size.weight_bytes, 0);
        near(of_file.size.parameters, (double)file->weights.parameters, 0);
        near(of_file.size.file_bytes, (double)file->weights.bytes, 1e-3);
        near(of_shape.size.weight_bytes, (double)needs.weights, 1e-3);
        near(of_shape.size.kv_bytes, (double)needs.kv_full, 0);
        near(of_shape.size.scratch_bytes, (double)needs.scratch, 0);
        assert_int_equal(of_shape.context, 1024);
        spry_model_close(file);
    }
    scratch_deinit(&place);
}

/* ---- times ------------------------------------------------------------------------------------------------------- */

static void what_is_slow_decides(void **state)
{
    (void)state;
    spry_model *model = model_of("tiny", "f16");
    const spry_work_setting setting = {model, ops_of("ref"), SPRY_F16, 128};
    const double weights = 2 * (2 * TINY_LAYER + TINY_OUTPUT);
    spry_machine_speed m = ideal_machine();
    m.types[SPRY_F16].decode_gb_s = 10;
    near(spry_predict_decode(&m, &setting, 0, 1), weights / 10 / giga, 1e-3);
    near(spry_predict_decode(&m, &setting, 0, 4), weights / 10 / giga, 1e-3); /* four rows read them once */
    m = ideal_machine();
    m.types[SPRY_F16].multiply_g_s = 100;
    near(spry_predict_prefill(&m, &setting, 256), 256.0 * 2 * TINY_LAYER / 100 / giga, 1e-3);
    m = ideal_machine();
    m.sync_us = 3;
    near(spry_predict_decode(&m, &setting, 0, 1), 11 * 3e-6, 1e-3);
    m = ideal_machine();
    m.attend_gb_s = 5;
    near(spry_predict_decode(&m, &setting, 999, 2), 2 * 1024 * TINY_KV_TOKEN / 5.0 / giga, 1e-3); /* whole pages */
    m = ideal_machine();
    m.small_g_s[SPRY_SMALL_GATE] = 2; /* of four threads; a single row has one */
    near(spry_predict_decode(&m, &setting, 0, 1), 2 * 512 / 0.5 / giga, 1e-3);
    near(spry_predict_prefill(&m, &setting, 128), 128 * 2 * 512 / 2.0 / giga, 1e-3);
    spry_model_close(model);
}

/* Twice as near as memory: half the time, but never less than the kernel takes. */
static void a_model_that_a_cache_holds_is_faster(void **state)
{
    (void)state;
    spry_model *model = model_of("tiny", "f16");
    const spry_work_setting setting = {model, ops_of("ref"), SPRY_F16, 128};
    const double weights = 2 * (2 * TINY_LAYER + TINY_OUTPUT);
    spry_machine_speed m = ideal_machine();
    m.read_gb_s = 20;
    for (size_t i = 0; i < SPRY_READ_SPEEDS; i++)
        m.reads[i].gb_s = m.reads[i].bytes < 16 << 20 ? 40 : 20;
    m.types[SPRY_F16].decode_gb_s = 18;
    near(spry_predict_decode(&m, &setting, 0, 1), weights / 36 / giga, 1e-3);
    m.types[SPRY_F16].cached_gb_s = 30;
    near(spry_predict_decode(&m, &setting, 0, 1), weights / 30 / giga, 1e-3);
    spry_model_close(model);
    model = model_of("llama3.2-1b", "f16");
    const spry_work_setting large = {model, ops_of("ref"), SPRY_F16, 128};
    spry_step_work work = spry_work_of_decode(&large, 0, 1);
    near(spry_predict_decode(&m, &large, 0, 1), work.one[SPRY_F16].bytes / 18 / giga, 1e-3);
    spry_model_close(model);
}

static void reading_speed_is_known_between_what_was_measured(void **state)
{
    (void)state;
    spry_machine_speed m = ideal_machine();
    for (size_t i = 0; i < SPRY_READ_SPEEDS; i++)
        m.reads[i].gb_s = 100 / (double)(1 << i);
    near(spry_predict_read(&m, 1), 100, 0);
    near(spry_predict_read(&m, m.reads[3].bytes), 12.5, 1e-12);
    near(spry_predict_read(&m, m.reads[3].bytes * sqrt(2)), 12.5 / sqrt(2), 1e-12);
    near(spry_predict_read(&m, 1e15), 100.0 / 512, 1e-12);
}

static void a_type_that_was_not_measured_is_refused(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_prediction prediction;
    spry_machine_speed m = ideal_machine();
    m.types[SPRY_Q6_K] = (spry_type_speed){0};
    assert_int_equal(spry_predict_shape(&prediction, &m, "qwen3-4b", "q4_k_m", &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "Q6_K"));
    must(spry_predict_shape(&prediction, &m, "qwen3-4b", "q8_0", &error), &error);
    assert_int_equal(spry_predict_shape(&prediction, &m, "qwen9", "q8_0", &error), SPRY_ERR_INPUT);
    assert_int_equal(spry_predict_shape(&prediction, &m, "qwen3-4b", "q9", &error), SPRY_ERR_INPUT);
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static spry_candidate candidates[SPRY_CANDIDATES_MAX];

/* A machine of which only reading takes time. */
static spry_machine_speed reading_machine(double gb_s)
{
    spry_machine_speed m = ideal_machine();
    for (size_t i = 0; i < SPRY_DTYPE_COUNT; i++)
        m.types[i].decode_gb_s = m.types[i].cached_gb_s = gb_s;
    return m;
}

static spry_model_choice choose(spry_use use, const spry_machine_speed *m, size_t memory)
{
    spry_error error = {0};
    spry_model_choice choice;
    size_t count;
    must(spry_candidates_predict(candidates, &count, m, memory, &error), &error);
    assert_true(count > 50 && count < SPRY_CANDIDATES_MAX);
    for (size_t i = 0; i < count; i++)
        assert_true(strncmp(candidates[i].shape, "tiny", 4) != 0);
    spry_choice_make(&choice, use, candidates, count, memory);
    assert_int_equal(choice.use, use);
    return choice;
}

static void the_best_that_fits_and_is_fast_enough_is_chosen(void **state)
{
    (void)state;
    spry_machine_speed m = reading_machine(1e6);
    spry_model_choice choice = choose(SPRY_USE_BEST, &m, (size_t)1 << 40);
    assert_string_equal(choice.chosen->shape, "gpt-oss-120b");
    assert_string_equal(choice.chosen->type, "f16");
    choice = choose(SPRY_USE_BEST, &m, (size_t)90 * 1000 * 1000 * 1000); /* 63 GB: 7 bits a parameter of 70 billion */
    assert_string_equal(choice.chosen->shape, "llama3.1-70b");
    assert_string_equal(choice.chosen->type, "q6_k");
    m = reading_machine(26);
    choice = choose(SPRY_USE_FAST, &m, (size_t)16 << 30); /* 1 GB a token */
    assert_true(choice.chosen->predicted.decode_tps >= 25);
    assert_string_equal(choice.chosen->shape, "qwen2.5-1.5b");
    assert_non_null(strstr(choice.why, "25 tokens/s"));
    for (size_t i = 0; i < SPRY_DTYPE_COUNT; i++)
        m.types[i].multiply_g_s = 500; /* a prompt of 1,000 in 2 s: a billion parameters at most */
    choice = choose(SPRY_USE_FAST, &m, (size_t)16 << 30);
    assert_true(choice.chosen->predicted.ttft_1k_ms <= 2000);
    assert_string_equal(choice.chosen->shape, "llama3.2-1b");
}

static void uses_have_models_of_their_own(void **state)
{
    (void)state;
    spry_machine_speed m = reading_machine(1e6);
    spry_model_choice choice = choose(SPRY_USE_CODE, &m, (size_t)1 << 40);
    assert_string_equal(choice.model, "Qwen3-Coder-30B-A3B");
    assert_string_equal(choice.pull, "hf:Qwen/Qwen3-Coder-30B-A3B-Instruct");
    choice = choose(SPRY_USE_CODE, &m, (size_t)8 << 30); /* 5.6 GiB */
    assert_string_equal(choice.model, "Qwen2.5-Coder-7B");
    assert_non_null(strstr(choice.why, "made for this"));
    choice = choose(SPRY_USE_EMBEDDINGS, &m, (size_t)6 << 30); /* 4.5 GB */
    assert_string_equal(choice.model, "Qwen3-Embedding-4B");
    assert_string_equal(choice.pull, ""); /* no repository is known that has it quantised */
    assert_non_null(strstr(choice.why, "tokens/s of text"));
    choice = choose(SPRY_USE_STRUCTURED, &m, (size_t)16 << 30);
    assert_null(choice.model);
    assert_non_null(strstr(choice.why, "schema"));
    for (size_t i = 0; i < SPRY_DTYPE_COUNT; i++)
        m.types[i].multiply_g_s = 2000; /* a prompt of 1,000 in a second: two billion parameters at most */
    choice = choose(SPRY_USE_VOICE, &m, (size_t)64 << 30);
    assert_true(choice.chosen->predicted.ttft_1k_ms <= 1000);
    spry_model_choice chat = choose(SPRY_USE_CHAT, &m, (size_t)64 << 30);
    assert_true(chat.chosen->predicted.ttft_1k_ms <= 4000 && chat.chosen->predicted.size.parameters > 4e9);
    choice = choose(SPRY_USE_CODE, &m, 100 << 20);
    assert_null(choice.chosen);
    for (spry_use use = 0; use < SPRY_USE_COUNT; use++)
        assert_true(strlen(spry_use_name(use)) >= 4);
}

/* Where structured output is asked for, a model that follows schemas comes before a larger one that does not. */
static void schemas_are_followed_by_models_that_can(void **state)
{
    (void)state;
    spry_machine_speed m = reading_machine(1e6);
    spry_model_choice choice = choose(SPRY_USE_STRUCTURED, &m, (size_t)16 << 30);
    const char *largest = choice.chosen->shape; /* nothing is judged */
    for (size_t i = 0; i < SPRY_CANDIDATES_MAX && candidates[i].shape; i++) {
        const char *shape = candidates[i].shape;
        candidates[i].schema = strcmp(shape, largest) == 0        ? 0.6
                               : strcmp(shape, "gemma3-4b") == 0  ? 0.87
                               : strcmp(shape, "gemma3-1b") == 0  ? 0.9
                               : strcmp(shape, "gemma3-27b") == 0 ? 0.95 /* too large */
                                                                  : 0;
        candidates[i].schema_source = "a test";
    }
    spry_choice_make(&choice, SPRY_USE_STRUCTURED, candidates, SPRY_CANDIDATES_MAX, (size_t)16 << 30);
    assert_string_equal(choice.chosen->shape, "gemma3-4b"); /* hardly worse than the best, and larger */
    assert_non_null(strstr(choice.why, "87 % (a test)"));
    spry_choice_make(&choice, SPRY_USE_BEST, candidates, SPRY_CANDIDATES_MAX, (size_t)16 << 30);
    assert_string_not_equal(choice.chosen->shape, "gemma3-4b");
}

static void where_nothing_serves_a_sentence_says_so(void **state)
{
    (void)state;
    spry_machine_speed m = reading_machine(1e6);
    spry_model_choice choice = choose(SPRY_USE_BALANCED, &m, 100 << 20);
    assert_null(choice.chosen);
    assert_non_null(strstr(choice.why, "fits"));
    m = reading_machine(0.1);
    choice = choose(SPRY_USE_BEST, &m, (size_t)16 << 30);
    assert_null(choice.chosen);
    assert_non_null(strstr(choice.why, "3 tokens/s"));
    assert_string_equal(spry_use_name(SPRY_USE_BALANCED), "balanced");
}

static void all_shapes_are_predicted_soon(void **state)
{
    (void)state;
    spry_machine_speed m = ideal_machine();
    uint64_t start = spry_clock_ns();
    choose(SPRY_USE_FAST, &m, (size_t)16 << 30);
    assert_true(spry_clock_ns() - start < 100000000000u); /* half a second, but for sanitizers and busy machines */
}

/* No matrix of any shape is forgotten: parameters are those of the file that is written, but for some vectors. */
static void every_matrix_is_counted(void **state)
{
    (void)state;
    spry_machine_speed m = ideal_machine();
    for (size_t i = 0; spry_shape_names[i]; i++) {
        spry_error error = {0};
        spry_export options = {0};
        spry_export_plan plan;
        spry_prediction predicted;
        double written = 0;
        spry_model *model = model_of(spry_shape_names[i], "f16");
        must(spry_recipe_find(&options.recipe, "f16", &error), &error);
        must(spry_export_plan_init(&plan, model, &options, &error), &error);
        for (size_t k = 0; k < plan.count; k++) {
            const size_t *dims = plan.items[k].as.dims;
            written += (double)dims[0] * (double)dims[1] * (double)dims[2] * (double)dims[3];
        }
        must(spry_predict_shape(&predicted, &m, spry_shape_names[i], "f16", &error), &error);
        near(predicted.size.parameters, written, 0.01);
        spry_export_plan_deinit(&plan);
        spry_model_close(model);
    }
}

/* ---- speeds as JSON ---------------------------------------------------------------------------------------------- */

static spry_machine_speed numbered_machine(void)
{
    spry_machine_speed m = ideal_machine();
    double next = 1;
    m.read_gb_s = next++;
    m.sync_us = next++;
    m.attend_g_s = next++;
    m.attend_gb_s = next++;
    for (size_t i = 0; i < SPRY_READ_SPEEDS; i++)
        m.reads[i].gb_s = next++;
    for (size_t i = 0; i < SPRY_SMALL_COUNT; i++)
        m.small_g_s[i] = next++;
    m.types[SPRY_Q4_0] = (spry_type_speed){next, next + 1, next + 2};
    m.types[SPRY_Q3_K] = (spry_type_speed){0};
    return m;
}

static void speeds_come_back_from_json(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_machine_speed m = numbered_machine(), back;
    json_t *json = spry_machine_speed_to_json(&m);
    assert_non_null(json);
    must(spry_machine_speed_from_json(&back, json, &error), &error);
    assert_memory_equal(&m, &back, sizeof m);
    near(json_number_value(json_object_get(json_object_get(json_object_get(json, "types"), "q4_0"), "decode_gb_s")),
         m.types[SPRY_Q4_0].decode_gb_s, 0);
    json_decref(json);
}

static void what_speeds_lack_is_named(void **state)
{
    (void)state;
    static const char *const keys[] = {"read_gb_s", "sync_us", "attend_gb_s", "encode_g_s",
                                       "threads",   "kernels", "reads",       "types"};
    spry_error error = {0};
    spry_machine_speed m = numbered_machine(), back;
    for (size_t i = 0; i < SPRY_COUNT(keys); i++)
        for (int wrong = 0; wrong < 2; wrong++) {
            json_t *json = spry_machine_speed_to_json(&m);
            if (wrong)
                json_object_set_new(json, keys[i], json_integer(-1));
            else
                json_object_del(json, keys[i]);
            assert_int_equal(spry_machine_speed_from_json(&back, json, &error), SPRY_ERR_FORMAT);
            assert_non_null(strstr(error.message, keys[i]));
            json_decref(json);
        }
    json_t *json = spry_machine_speed_to_json(&m);
    json_object_set_new(json_object_get(json_object_get(json, "types"), "q8_0"), "cached_gb_s", json_string("fast"));
    assert_int_equal(spry_machine_speed_from_json(&back, json, &error), SPRY_ERR_FORMAT);
    assert_non_null(strstr(error.message, "q8_0"));
    json_decref(json);
    json = json_array();
    assert_int_equal(spry_machine_speed_from_json(&back, json, &error), SPRY_ERR_FORMAT);
    json_decref(json);
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static bool stop_at_once(void *user, size_t done, size_t total)
{
    assert_true(done < total);
    ++*(size_t *)user;
    return false;
}

static void measuring_stops_when_told_to(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_machine_speed speed;
    size_t calls = 0;
    const spry_speed_progress progress = {stop_at_once, &calls};
    assert_int_equal(spry_machine_speed_measure(&speed, "auto", 1, &progress, &error), SPRY_ERR_CANCELLED);
    assert_int_equal(calls, 1);
    assert_int_equal(spry_machine_speed_measure(&speed, "abacus", 1, NULL, &error), SPRY_ERR_INPUT);
}

/* What holds on any machine. */
static void probes_measure_what_they_say(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_threads *threads;
    spry_probe_bed bed;
    double peak;
    must(spry_threads_create(&threads, 2, &error), &error);
    must(spry_probe_bed_init(&bed, ops_of("auto"), threads, &error), &error);
    assert_true(spry_probe_multiply(&bed, SPRY_Q4_0) > 10 * spry_probe_decode(&bed, SPRY_Q4_0) / 18 * 32 / 100);
    assert_true(spry_probe_decode(&bed, SPRY_F16) > 0.01 && spry_probe_cached(&bed, SPRY_Q8_0) > 0.01);
    assert_true(spry_probe_attend_many(&bed) > spry_probe_attend_one(&bed) / 100);
    for (size_t op = 0; op < SPRY_SMALL_COUNT; op++)
        assert_true(spry_probe_small(&bed, (spry_small_op)op) > 1e-4);
    assert_true(spry_probe_sync(&bed) > 0);
    assert_true(spry_probe_read(bed.memory, bed.bytes / 4, 2, threads) > 0.1);
    for (size_t i = 0; i < SPRY_PROBE_ROWS * SPRY_PROBE_WIDTH; i++)
        if (!isfinite(bed.results[i]))
            fail_msg("result %zu is not finite: the kernels may have been slow for that", i);
    spry_probe_bed_deinit(&bed);
    must(spry_probe_multiply_peak(&peak, ops_of("auto"), SPRY_Q8_0, threads, &error), &error);
    assert_true(peak > 0.01);
    spry_threads_destroy(threads);
}

/* 60 GB of experts beside 10 GB, of which a token uses 6 GB, in 40 GB of memory. */
static void experts_beyond_memory(void **state)
{
    (void)state;
    spry_prediction p = {.memory_bytes = 70e9, .decode_tps = 5};
    p.size.expert_bytes = 60e9;
    p.size.expert_token_bytes = 6e9;
    spry_expert_prediction x = spry_predict_experts(&p, 40000000000u);
    assert_true(fabs(x.kept_bytes - 10e9) < 1);
    assert_true(fabs(x.read_bytes - 5e9) < 1);
    assert_true(fabs(x.decode_tps - 1 / 5.2) < 1e-9);
    assert_true(spry_predict_experts(&p, 100000000000u).kept_bytes == 0); /* all fit */
    assert_true(spry_predict_experts(&p, 19000000000u).kept_bytes == 0);  /* not even the rest does */
    p.size.expert_bytes = 0;
    assert_true(spry_predict_experts(&p, 40000000000u).kept_bytes == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_beyond_memory),
        cmocka_unit_test(a_decode_step_is_counted_by_hand),
        cmocka_unit_test(a_prefill_is_counted_step_by_step),
        cmocka_unit_test(experts_are_counted_as_chosen_at_random),
        cmocka_unit_test(packed_matrices_are_as_large_as_packing_makes_them),
        cmocka_unit_test(the_main_type_is_that_of_most_products),
        cmocka_unit_test(sizes_are_those_of_a_file),
        cmocka_unit_test(what_is_slow_decides),
        cmocka_unit_test(a_model_that_a_cache_holds_is_faster),
        cmocka_unit_test(reading_speed_is_known_between_what_was_measured),
        cmocka_unit_test(a_type_that_was_not_measured_is_refused),
        cmocka_unit_test(the_best_that_fits_and_is_fast_enough_is_chosen),
        cmocka_unit_test(uses_have_models_of_their_own),
        cmocka_unit_test(schemas_are_followed_by_models_that_can),
        cmocka_unit_test(where_nothing_serves_a_sentence_says_so),
        cmocka_unit_test(all_shapes_are_predicted_soon),
        cmocka_unit_test(every_matrix_is_counted),
        cmocka_unit_test(speeds_come_back_from_json),
        cmocka_unit_test(what_speeds_lack_is_named),
        cmocka_unit_test(measuring_stops_when_told_to),
        cmocka_unit_test(probes_measure_what_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
